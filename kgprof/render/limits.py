"""How much the page may hold, and the names that its parts share."""

from __future__ import annotations

from dataclasses import dataclass

from kgprof.render.embedded_profile import Share

TOP_KERNELS = 25  # rows of a kernel table where there is room
MORE_KERNELS = 300  # and below it, in a line each
FIRST_RUNS = 3  # the winner, the baseline and the runner-up: what others lose, these keep


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
    other_rows: int = 0  # as kernel_rows, of a run that is not among the first
    more_kernels: int = 0  # of a run, a line each: what the filter finds besides
    timelines: int = 0  # runs whose step is drawn: the winner, the baseline, the runner-up, then others
    flames: int = 0  # runs whose stacks are drawn, likewise
    flame_rows: int = 0  # of each
    source_rows: int = 0  # lines of the workload's files, of each of the first runs
    code_chars: int = 0  # of the graphs and the generated code of each of those
    carries: Share = Share.NOTHING  # of the Profile itself


def anchor(run_index: int) -> str:
    """Run names may hold anything, so anchors count."""
    return f"run-{run_index + 1}"
