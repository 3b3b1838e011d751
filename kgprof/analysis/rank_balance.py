"""The ranks of one job beside each other: who computes longest, and who waits for whom.

Ranks that meet in collectives take equally long for a step, whoever is slow: the others wait inside their collectives.
So a straggler shows as the rank that computes longest and communicates shortest. Only durations are compared, because
the clocks of two machines are not one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from kgprof import model as m

# Read in HTA 0.5.0 (analyzers/straggler.py); tests/record/test_holistic_process.py holds it to that.
HTA_STRAGGLERS = m.HolisticCall(
    name="get_potential_stragglers",
    outcome="not called",
    reason="it looks for kernels named ncclKernel, raises where NCCL calls them ncclDevKernel, as it does today, and "
    "compares when they began by the clocks of different ranks",
)
_BY_HTA = ("device computing", "device idle", "communication overlapped")
STRAGGLES_FROM = 1.05  # largest compute time over the median; below it ranks are called level

_QUANTITIES = (
    ("step", "step_us"),
    ("device busy", "busy_us"),
    ("compute", "compute_us"),
    ("communication", "communication_us"),
    ("exposed communication", "exposed_us"),
    ("device idle", "idle_us"),
)


def rank_balance(files: Sequence[m.TraceFile], reports: Sequence[m.RunReport]) -> m.RankBalance | None:
    """None where there are no two ranks. Of two files of one rank the first counts."""
    files = [file for file in files if not file.against and file.rank is not None]
    if len({file.rank for file in files}) < 2:
        return None
    kernels = {report.key: report.kernels for report in reports}
    loads: dict[int, m.RankLoad] = {}
    left_out = []
    for rank, key in ((file.rank, file.key) for file in files if file.rank is not None):
        load = _load(key, rank, kernels[key])
        if isinstance(load, m.RankLoad) and rank not in loads:
            loads[rank] = load
        else:
            why = load if isinstance(load, str) else f"another file of rank {rank} counts already"
            left_out.append(f"{key.strategy}: {why}")
    ranks = tuple(loads[rank] for rank in sorted(loads))
    if len(ranks) < 2:
        text = "the ranks cannot be compared: fewer than two of them have device work in marked steps"
        return m.RankBalance(ranks=ranks, text=text, left_out=tuple(left_out))
    straggler, text = _straggler(ranks)
    return m.RankBalance(
        ranks=ranks,
        spreads=tuple(_spreads(ranks)),
        straggler=straggler,
        text=text,
        left_out=tuple(left_out),
        hta=_by_hta(ranks, {report.key: report.holistic for report in reports}),
    )


def _by_hta(
    ranks: Sequence[m.RankLoad], checks: dict[m.RunKey, m.HolisticCheck | m.Skipped]
) -> m.RanksByHolistic | m.Skipped:
    """Skipped with the first reason where it has said nothing of any rank."""
    of_ranks = [(load.rank, checks[load.run]) for load in ranks]
    figures = tuple(
        msgspec.structs.replace(figure, name=f"rank {rank}, {figure.name}", note="")
        for rank, check in of_ranks
        if isinstance(check, m.HolisticCheck)
        for name in _BY_HTA
        for figure in check.figures
        if figure.name == name
    )
    reasons = (check for _, check in of_ranks if isinstance(check, m.Skipped))
    silent = None if figures else next(reasons, None)
    return silent or m.RanksByHolistic(figures=figures, calls=(HTA_STRAGGLERS,))


def _load(key: m.RunKey, rank: int, kernels: m.KernelBreakdown | m.Skipped) -> m.RankLoad | str:
    """Or why there is none."""
    if isinstance(kernels, m.Skipped):
        return kernels.reason
    if not isinstance(kernels.communication, m.Communication):
        return kernels.communication.reason
    if not kernels.steps:
        return "the trace marks no steps (ProfilerStep#), so there is no common unit"
    exposed_us = kernels.communication.exposed_us
    return m.RankLoad(
        run=key,
        rank=rank,
        steps=kernels.steps,
        step_us=kernels.window_us / kernels.steps,
        busy_us=kernels.busy_us / kernels.steps,
        idle_us=kernels.idle_us / kernels.steps,
        compute_us=(kernels.busy_us - exposed_us) / kernels.steps,
        communication_us=kernels.communication.busy_us / kernels.steps,
        exposed_us=exposed_us / kernels.steps,
    )


def _spreads(ranks: Sequence[m.RankLoad]) -> Iterable[m.RankSpread]:
    for quantity, field in _QUANTITIES:
        values = {load.run: float(getattr(load, field)) for load in ranks}
        largest = max(values, key=lambda run: values[run])
        middle = median(values.values())
        yield m.RankSpread(
            quantity=quantity,
            median_us=middle,
            max_us=values[largest],
            ratio=values[largest] / middle if middle else m.Skipped(reason="the median is 0"),
            run=largest,
        )


def _straggler(ranks: Sequence[m.RankLoad]) -> tuple[m.RunKey | None, str]:
    slowest = max(ranks, key=lambda load: load.compute_us)
    middle = median(load.compute_us for load in ranks)
    evidence = f"{slowest.compute_us:,.1f} us of compute a step, median of {len(ranks)} ranks {middle:,.1f}"
    if not middle or slowest.compute_us < STRAGGLES_FROM * middle:
        return None, f"no rank computes {STRAGGLES_FROM} times as long as the median (rank {slowest.rank}: {evidence})"
    said = f"rank {slowest.rank} computes {slowest.compute_us / middle:.2f} times as long as the median ({evidence})"
    talks = [load.communication_us for load in ranks]
    if not any(talks):
        return slowest.run, f"{said}; no collective is in the traces, so whether others wait for it is not known"
    if slowest.communication_us == min(talks):
        return slowest.run, (
            f"{said} and is the shortest in collectives ({slowest.communication_us:,.1f} us, median "
            f"{median(talks):,.1f}): the others wait for it"
        )
    return slowest.run, f"{said}, but is not the shortest in collectives: whether the others wait for it is open"
