"""A trace of five kernels, and what HTA says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kgprof.model import Holistic, HolisticCall, HolisticIdle, HolisticRank
from kgprof.reading import kineto
from kgprof.reading.kineto import Trace
from tests.analysis.events import event, step, write


def work(
    number: int,
    name: str,
    launched_us: float,
    start_us: float,
    duration_us: float,
    *,
    stream: int = 7,
    by: str = "",
) -> list[dict[str, Any]]:
    """One kernel and the call that launched it."""
    call = event("cuda_runtime", by or "cudaLaunchKernel", launched_us, 1.0)
    done = event("kernel", name, start_us, duration_us, thread=stream, stream=stream)
    call["args"] = {"correlation": number}
    done["args"]["correlation"] = number
    return [call, done]


def two_streams(tmp_path: Path) -> Trace:
    """Stream 7 runs at 10-20, 25-35, 100-110 and 150-160, stream 9 at 15-65, the one kernel of
    communication."""
    events = [
        step(0, 0, 200),
        *work(1, "a", 1, 10, 10),
        *work(2, "b", 2, 25, 10),  # launched while a had not begun: a gap of 5 us
        *work(3, "a", 50, 100, 10),  # launched 15 us after b had ended
        *work(4, "c", 105, 150, 10),  # launched while a ran, and 40 us late
        *work(5, "ncclDevKernel_AllReduce", 3, 15, 50, stream=9, by="cuLaunchKernelEx"),
    ]
    return kineto.read(write(tmp_path / "t.json", events))


def answered(**changes: Any) -> Holistic:
    """What HTA says of ``two_streams`` (held to it in tests/record/processes/test_holistic.py)."""
    rank = HolisticRank(
        rank=0,
        kernels={"a": 20.0, "b": 10.0, "c": 10.0, "ncclDevKernel_AllReduce": 50.0},
        window_us=150.0,
        idle_us=75.0,
        compute_us=40.0,
        idle_causes=(
            HolisticIdle(stream=7, cause="host_wait", total_us=65.0),
            HolisticIdle(stream=7, cause="kernel_wait", total_us=5.0),
            HolisticIdle(stream=7, cause="other", total_us=40.0),
            HolisticIdle(stream=9, cause="other", total_us=0.0),
        ),
        queue_length={"7": 2.0},
        bandwidth_gb_per_s={},
        overlap_percent=30.0,
    )
    calls = (HolisticCall(name="get_queue_length_summary", outcome="ok"),)
    return Holistic(
        versions={"pandas": "3"}, calls=calls, ranks=(msgspec.structs.replace(rank, **changes),)
    )
