"""Training steps by their phases: a row a run."""

from __future__ import annotations

from collections.abc import Sequence

from kgprof import model as m
from kgprof.render.quantity import milliseconds, percent
from kgprof.render.table import Cell, Table, plain


def phase_table(runs: Sequence[m.RunReport]) -> Table:
    """Empty where no run trains."""
    headings = ("run", *(phase.value for phase in m.TrainingPhase))
    trained = ((run.key.slug, run.phases) for run in runs if isinstance(run.phases, m.TrainingPhases))
    rows = ([Cell(slug), *(_cell(part, phases) for part in phases.parts)] for slug, phases in trained)
    return plain("Training step by phase: ms per traced step on the CPU, and on the GPU", headings, rows)


def _cell(part: m.PhaseTime, phases: m.TrainingPhases) -> Cell:
    whole_us = sum(each.host_us for each in phases.parts) or 1.0
    gpu = () if isinstance(part.device_us, m.Skipped) else (f"GPU {milliseconds(part.device_us)}",)
    share = percent(part.host_us / whole_us)
    return Cell(milliseconds(part.host_us), details=(share, *gpu), value=part.host_us)
