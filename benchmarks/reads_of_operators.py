"""Count what torch's own operators read on the host, on a CPU and on a GPU.

A CPU run of kgprof says of a read that it "would force a sync on a GPU". Some kernels of the CPU
read for themselves, to check their input, where CUDA's read nothing: ``CHECKING`` and
``READ_ON_A_CPU`` of record/listeners/tensor_places.py name them, ``CHECKS_ON_A_CPU`` of
collectors/time/syncs.py
those that are made of other operators. The inputs are those of torch's own tests, for which
torch.testing needs the package expecttest.

    python benchmarks/reads_of_operators.py cpu > cpu.json
    python benchmarks/reads_of_operators.py cuda > cuda.json    (the same torch, with a GPU)
    python benchmarks/reads_of_operators.py compare cpu.json cuda.json
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kgprof.record.listeners.sync_hooks import READING

SAMPLES = 10  # of each operator
BELOW = torch._C.DispatchKey.BackendSelect


class Reads:
    """How many operators that read ran, none inside of another."""

    count = 0
    depth = 0

    def of(self, operator: Any) -> Callable[..., Any]:
        def hook(keys: Any, *args: Any, **kwargs: Any) -> Any:
            self.count += self.depth == 0
            self.depth += 1
            try:
                return operator.redispatch(keys.remove(BELOW), *args, **kwargs)
            finally:
                self.depth -= 1

        return hook


@contextmanager
def counting() -> Iterator[Reads]:
    reads = Reads()
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for name in READING:
        operator = getattr(torch.ops.aten, name).default
        library.impl(name, reads.of(operator), "BackendSelect", with_keyset=True)  # type: ignore[no-untyped-call]
    try:
        yield reads
    finally:
        library._destroy()  # type: ignore[no-untyped-call]


def moved(sample: Any, device: str) -> Any:
    def move(value: Any) -> Any:
        return value.to(device) if isinstance(value, torch.Tensor) else value

    there = sample.transform(move)
    if "device" in there.kwargs:
        there.kwargs["device"] = device
    return there


def measured(device: str) -> dict[str, list[list[int] | str]]:
    """Give, for each operator and sample, the reads and the warnings of torch's sync-debug mode."""
    from torch.testing._internal.common_methods_invocations import op_db

    if device == "cuda":
        torch.cuda.set_sync_debug_mode("warn")
    found = {}
    with counting() as reads:
        for info in op_db:
            types = [each for each in (torch.float32, torch.int64) if each in info.dtypes]
            if types:
                name = ".".join(filter(None, (info.name, info.variant_test_name)))
                found[name] = list(of_samples(info, types[0], device, reads))
    return found


def of_samples(
    info: Any, dtype: torch.dtype, device: str, reads: Reads
) -> Iterator[list[int] | str]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(info.sample_inputs("cpu", dtype))[:SAMPLES]
    for sample in samples:
        there = moved(sample, device)
        reads.count = 0
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                info.op(there.input, *there.args, **there.kwargs)
            except Exception as error:  # noqa: BLE001 - one that this device lacks
                yield type(error).__name__
                continue
        yield [reads.count, sum("synchronizing" in str(each.message) for each in said)]


def compare(on_a_cpu: str, on_a_gpu: str) -> dict[str, list[list[int]]]:
    """Give, for each operator that differs, the reads of a CPU and those of a GPU by sample."""
    with open(on_a_cpu) as file:
        cpu = json.load(file)
    with open(on_a_gpu) as file:
        cuda = json.load(file)
    differ = {}
    for name in cpu.keys() & cuda.keys():
        pairs = zip(cpu[name], cuda[name], strict=False)
        counts = [[a[0], max(b)] for a, b in pairs if isinstance(a, list) and isinstance(b, list)]
        if any(a != b for a, b in counts):
            differ[name] = counts
    return dict(sorted(differ.items()))


if __name__ == "__main__":
    command, *files = sys.argv[1:]
    print(json.dumps(compare(*files) if command == "compare" else measured(command), indent=1))
