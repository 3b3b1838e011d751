"""Whether compiling pays: the seconds that it takes against what a step then saves over eager's."""

from collections.abc import Iterator

from kgprof import model as m
from kgprof.collectors.compile import graph_breaks, recompiles
from kgprof.collectors.event import of_each
from kgprof.collectors.fingerprint import fingerprint
from kgprof.collectors.time import device_idle
from kgprof.judge import APART, NOISY
from kgprof.measures.economics import economics
from kgprof.reading.evidence import Evidence
from kgprof.wording import short

LATE_AFTER_H = 24.0  # of nothing but steps; a break-even beyond it is remarked on

NEVER_BREAKS_EVEN = m.Rule(
    id="KGP603",
    name="never-breaks-even",
    level=m.Level.WARNING,
    summary=(
        "The compiled step is not faster than the eager one, so its compile time is "
        "never recovered."
    ),
    why=(
        "Compiling costs seconds at every start (fewer with warm compiler caches), and shorter "
        "steps have to pay for it. Compile time is the sum of torch's own durations of all "
        "compilations; step times are TIMING's. Nothing is compared if more than 5 % of the "
        "steps after warm-up, or of their calls of compiled functions, run no compiled code, if "
        "they call torch.compile, or if torch compiles while it is timed. It is a warning if the "
        "compiled run is slower: with --rounds, if the 95 % interval of the ratio lies above 1; in "
        "one process each, if nine of ten of its steps are above nine of ten of eager's and the "
        f"medians are {APART:g}× apart or more. It is a note if the two are level, or if the "
        f"break-even is more than {LATE_AFTER_H:g} hours of steps away. Anything between is not "
        f"decided, and so are times that vary by more than {NOISY:g}× within one process."
    ),
    example=(
        "A step of three small operators on a CPU: guards and the call into compiled code take "
        "longer than fusing the three saves."
    ),
    remedy=(
        f"Find out why it is not faster: graph breaks ({graph_breaks.GRAPH_BREAK.id}), recompiles "
        f"({recompiles.IN_STEADY_STATE.id} to {recompiles.UNBOUNDED.id}), a GPU that waits for the "
        f"CPU ({device_idle.DEVICE_IDLE.id}, {device_idle.LAUNCH_BOUND.id}). If there is none of "
        "these, compile only the part that takes the time, enlarge the batch, or leave this step "
        "in eager mode."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.EAGER_TIMES,),),
    can_cost=(),
    judged_from_times=True,
    symptom_of=tuple(
        rule.id for rule in (*graph_breaks.RULES, *recompiles.RULES, *device_idle.RULES)
    ),
)
RULES = (NEVER_BREAKS_EVEN,)


def collect(evidence: Evidence) -> tuple[m.Economics, ...]:
    """Of runs that compiled something and could be held against the same strategy in mode eager."""
    found = (run.once(economics) for run in evidence.runs)
    return tuple(one for one in found if isinstance(one, m.Economics) and one.is_decided)


@of_each
def diagnose(event: m.Economics) -> Iterator[m.Finding]:
    level, message, is_late = m.Level.NOTE, event.text, False
    if isinstance(event.cold, m.BreakEven):
        after_h = event.cold.after_s / 3600
        message += f", which is {short(after_h)} hours of steps"
        is_late = after_h > LATE_AFTER_H
    if event.verdict == m.Payoff.NEVER:
        level = NEVER_BREAKS_EVEN.level
    elif event.verdict != m.Payoff.LEVEL and not is_late:
        return
    yield m.Finding(
        rule=NEVER_BREAKS_EVEN.id,
        level=level,
        message=message,
        run=event.run,
        fingerprint=fingerprint(NEVER_BREAKS_EVEN.id, event.run),
        cost=_cost(event),
    )


@m.skippable
def _cost(event: m.Economics) -> m.FindingCost:
    return m.FindingCost(
        m.known(event.cold_s), "s", "compile time, on a cold cache", (m.PassName.COMPILE,), 1
    )
