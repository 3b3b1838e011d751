"""How much the page may hold, and the names that its parts share."""

from __future__ import annotations

from dataclasses import dataclass

from kgprof.render.embedded_profile import Share

TOP_KERNELS = 25  # rows of a kernel table where there is room


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of each the page may hold. What is beyond is in report.json, and the page says so."""

    log_chars: int  # of all runs together
    host_rows: int  # a run
    kernel_rows: int  # a run
    findings: int
    runs: int
    name: int  # characters of any one name or message
    lines: int  # rows of any other table: compilations, gaps, flags, settings
    timelines: int = 0  # runs whose step is drawn, the first ones
    flames: int = 0  # runs whose stacks are drawn, the first ones
    flame_rows: int = 0  # of each
    carries: Share = Share.NOTHING  # of the Profile itself


def anchor(run_index: int) -> str:
    """Run names may hold anything, so anchors count."""
    return f"run-{run_index + 1}"
