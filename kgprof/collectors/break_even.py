"""Whether compiling pays: the seconds that it takes against what a step then saves over eager's."""

from __future__ import annotations

from kgprof import model as m
from kgprof.collectors.fingerprint import fingerprint
from kgprof.wording import short

LATE_AFTER_H = 24.0  # of nothing but steps; a break-even beyond it is remarked on

NEVER_BREAKS_EVEN = m.Rule(
    id="KGP603",
    name="never-breaks-even",
    level=m.Level.WARNING,
    summary="The compiled step is not faster than the eager one: the time that compiling takes is never earned back.",
    why=(
        "Compiling costs seconds at every start (fewer where the compiler's caches are warm) and is paid for by steps "
        "that are shorter. Both are measured here: COMPILE's calls before steady state beyond as many steady ones, "
        "less the same of the eager run, and TIMING's steps or units of work of both. A warning where the compiled "
        "run is slower beyond the noise (its samples, or with --rounds 3 or more its rounds, all lie above eager's); a "
        "note where the two cannot be told apart, and where the break-even lies beyond "
        f"{LATE_AFTER_H:g} hours of nothing but steps."
    ),
    example=(
        "A step of three small operators on a CPU: guards and the call into compiled code take longer than what fusing "
        "the three saves."
    ),
    remedy=(
        "Look at why it is not faster: graph breaks (KGP101), recompiles (KGP103 to KGP105), a device that waits for "
        "the host (KGP601, KGP602). Where nothing of that is found, compile less (the part that takes the time, with "
        "larger batches) or leave this step in eager mode."
    ),
)
RULES = (NEVER_BREAKS_EVEN,)


def collect(recording: m.Recording) -> tuple[m.Economics, ...]:
    """Of runs that compiled something and could be held against the same strategy in mode eager."""
    # analysis reads this room: it is not there yet when this module is loaded
    from kgprof.measures.economics import NOT_OBSERVED, economics

    found = (economics(recording, run) for run in recording.runs)
    return tuple(one for one in found if not isinstance(one, m.Skipped) and one.verdict != NOT_OBSERVED)


def diagnose(events: tuple[m.Economics, ...]) -> tuple[m.Finding, ...]:
    return tuple(_finding(event, level) for event in events if (level := _level(event)) is not None)


def _level(event: m.Economics) -> m.Level | None:
    if event.verdict == "never":
        return NEVER_BREAKS_EVEN.level
    return m.Level.NOTE if event.verdict == "level" or _late(event.cold) else None


def _late(cold: m.BreakEven | m.Skipped) -> bool:
    return isinstance(cold, m.BreakEven) and cold.after_s > LATE_AFTER_H * 3600


def _finding(event: m.Economics, level: m.Level) -> m.Finding:
    late = f": that is {short(event.cold.after_s / 3600)} hours of steps" if isinstance(event.cold, m.BreakEven) else ""
    return m.Finding(
        rule=NEVER_BREAKS_EVEN.id,
        level=level,
        message=f"{event.text}{late}",
        run=event.run,
        fingerprint=fingerprint(NEVER_BREAKS_EVEN.id, event.run),
        cost=_cost(event.cold_s),
    )


def _cost(cold_s: float | m.Skipped) -> m.FindingCost | m.Skipped:
    if isinstance(cold_s, m.Skipped):
        return cold_s
    what = "compiling took, on a cold cache"
    return m.FindingCost(value=cold_s, unit="s", what=what, measured_in=(m.PassName.COMPILE,), samples=1)
