"""Whether compiling pays: the seconds that it takes against what a step then saves over eager's."""

from __future__ import annotations

from kgprof import model as m
from kgprof.collectors import device_idle, graph_breaks, recompiles
from kgprof.collectors.fingerprint import fingerprint
from kgprof.measures.economics import economics
from kgprof.measures.times import NOISY
from kgprof.reading.evidence import Evidence
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
        f"{LATE_AFTER_H:g} hours of nothing but steps. Times that vary by more than {NOISY:g}x within one process "
        "weigh nothing: the machine was busy."
    ),
    example=(
        "A step of three small operators on a CPU: guards and the call into compiled code take longer than what fusing "
        "the three saves."
    ),
    remedy=(
        f"Look at why it is not faster: graph breaks ({graph_breaks.GRAPH_BREAK.id}), recompiles "
        f"({recompiles.IN_STEADY_STATE.id} to {recompiles.UNBOUNDED.id}), a device that waits for the host "
        f"({device_idle.DEVICE_IDLE.id}, {device_idle.LAUNCH_BOUND.id}). Where nothing of that is found, compile less "
        "(the part that takes the time, with larger batches) or leave this step in eager mode."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.EAGER_TIMES,),),
    can_cost=(),
    judged_from_times=True,
    symptom_of=tuple(rule.id for rule in (*graph_breaks.RULES, *recompiles.RULES, *device_idle.RULES)),
)
RULES = (NEVER_BREAKS_EVEN,)


def collect(evidence: Evidence) -> tuple[m.Economics, ...]:
    """Of runs that compiled something and could be held against the same strategy in mode eager."""
    found = (run.once(economics) for run in evidence.runs)
    return tuple(one for one in found if not isinstance(one, m.Skipped) and one.verdict != m.Payoff.NOT_OBSERVED)


def diagnose(events: tuple[m.Economics, ...]) -> tuple[m.Finding, ...]:
    findings = []
    for event in events:
        after_h = event.cold.after_s / 3600 if isinstance(event.cold, m.BreakEven) else None
        never = event.verdict == m.Payoff.NEVER
        if not never and event.verdict != m.Payoff.LEVEL and (after_h is None or after_h <= LATE_AFTER_H):
            continue
        cost: m.FindingCost | m.Skipped
        if isinstance(event.cold_s, m.Skipped):
            cost = event.cold_s
        else:
            what = "compiling took, on a cold cache"
            cost = m.FindingCost(value=event.cold_s, unit="s", what=what, measured_in=(m.PassName.COMPILE,), samples=1)
        finding = m.Finding(
            rule=NEVER_BREAKS_EVEN.id,
            level=NEVER_BREAKS_EVEN.level if never else m.Level.NOTE,
            message=event.text if after_h is None else f"{event.text}: that is {short(after_h)} hours of steps",
            run=event.run,
            fingerprint=fingerprint(NEVER_BREAKS_EVEN.id, event.run),
            cost=cost,
        )
        findings.append(finding)
    return tuple(findings)
