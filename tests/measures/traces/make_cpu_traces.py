"""Made cpu_eager.json.gz and cpu_kernels.json.gz: python tests/measures/traces/make_cpu_traces.py (torch 2.13.0+cpu).

A linear layer, a table lookup, a layer norm, gelu, softmax and a gather, eagerly and compiled with Inductor's C++
kernel profiling; six traced steps of each.
"""  # noqa: E501

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config
from torch.profiler import ProfilerActivity, profile, schedule

HERE = Path(__file__).parent
linear = torch.nn.Linear(64, 64)
table = torch.randn(1000, 64)


def step(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.layer_norm(linear(x) + table[i], (64,))
    z = torch.nn.functional.gelu(y).softmax(-1)
    return z.gather(1, (i[:, None] % 64)).sum() + z.clone().cumsum(0).max()


def trace(name: str, function: Any) -> None:
    x, i = torch.randn(256, 64), torch.randint(0, 1000, (256,))
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "trace.json"
        for _ in range(3):
            function(x, i)
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=1, warmup=2, active=6),
            on_trace_ready=lambda p: p.export_chrome_trace(str(raw)),
        ) as profiler:
            for _ in range(9):
                function(x, i)
                profiler.step()
        document = json.loads(raw.read_text(encoding="utf-8"))
    for key in ("host_name", "traceName", "trace_id"):  # where it was made is nobody's business
        document.pop(key, None)
    (HERE / name).write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))


if __name__ == "__main__":
    trace("cpu_eager.json.gz", step)
    torch._inductor.config.cpp.enable_kernel_profile = True
    trace("cpu_kernels.json.gz", torch.compile(step))
