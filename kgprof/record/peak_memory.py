"""How much memory some calls need at their worst, and how much was held before them.

On a GPU the caching allocator counts. On a CPU nothing counts allocations; the kernel knows the largest resident set
of the process (VmHWM in /proc/self/status), and forgets it when a 5 is written to /proc/self/clear_refs (proc(5)).
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import torch

from kgprof import model as m
from kgprof.record import timing

FORGET_THE_PEAK = "5"
CLEAR_REFS, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
NOT_ON_A_CPU = m.Skipped(reason="nothing counts the allocations on a CPU; the resident set is measured instead")


def measured_peaks(step: Callable[[], object], device: torch.device, *, calls: int) -> m.MemoryPeaks:
    """Over ``calls`` calls of ``step``, which should be warm."""
    gc.collect()
    cannot = ""
    try:
        CLEAR_REFS.write_text(FORGET_THE_PEAK)
    except OSError as error:
        cannot = f"the peak of the resident set cannot be reset here ({CLEAR_REFS}: {error.strerror or error})"
    before = _resident("VmRSS")
    allocated: int | m.Skipped = NOT_ON_A_CPU
    on_gpu = device.type == "cuda"
    if on_gpu:
        timing.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        allocated = torch.cuda.memory_allocated(device)
    for _ in range(max(1, calls)):
        step()
    timing.synchronize(device)
    return m.MemoryPeaks(
        allocated_bytes=torch.cuda.max_memory_allocated(device) if on_gpu else NOT_ON_A_CPU,
        reserved_bytes=torch.cuda.max_memory_reserved(device) if on_gpu else NOT_ON_A_CPU,
        resident_bytes=m.Skipped(reason=cannot) if cannot else _resident("VmHWM"),
        allocated_before_bytes=allocated,
        resident_before_bytes=before,
    )


def _resident(field: str) -> int | m.Skipped:
    """Bytes; the file says kB and means KiB."""
    try:
        lines = STATUS.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        return m.Skipped(reason=f"{STATUS}: {error.strerror or error}")
    for line in lines:
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return m.Skipped(reason=f"{STATUS} has no {field}")
