"""What to do next: at most three fixes for the run that a reader would choose. Those that relieve
what limits its step come first, where that is decided; of them, and of the others, those that could
save most. What only a GPU would wait for comes last where the program ran without one.

A symptom comes after a reason that covers most of it: a GPU that is idle between an optimizer's
launches is mended at the optimizer, whose own bound is smaller only because it is more exact.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors import RULES, rule_of, weight
from kgprof.collectors.compile import caches
from kgprof.collectors.graphs import addresses
from kgprof.collectors.tensors import aliases, mutations
from kgprof.collectors.tensors.tensor_facts import run_tensors
from kgprof.collectors.time import device_idle, syncs
from kgprof.collectors.time.break_even import NEVER_BREAKS_EVEN
from kgprof.reading.evidence import Evidence
from kgprof.wording import plural

MOST = 3
MOST_OF_IT = 0.5  # of a symptom's bound
WORTH_SHARE = 0.01  # of the step: a smaller bound is no reason to do anything
# Which cost nothing on a CPU: lines that would sync, and what CUDA graphs alone ask of tensors.
ON_A_GPU = frozenset(
    rule.id
    for rule in (
        *(*syncs.RULES, *addresses.RULES, *mutations.RULES),
        *(aliases.OUTPUT_INPUT, aliases.OUTPUTS),
    )
)
# Which cost nothing where no CUDA graph is asked for.
OF_CUDA_GRAPHS = frozenset(rule.id for rule in (*addresses.RULES, *mutations.RULES))
# The costs of the others are those of code that was compiled in pieces.
OF_COMPILING = frozenset(rule.id for rule in RULES if rule.topic is m.Topic.COMPILATION)
# A wrong result, a contradiction or an empty measurement is no matter of speed, and leads the
# report anyway.
NOT_ABOUT_SPEED = (m.Topic.RESULTS, m.Topic.SOURCES, m.Topic.COVERAGE)


def actions(
    evidence: Evidence,
    runs: m.Runs,
    findings: m.Findings,
    late: m.RunKey | None = None,
) -> tuple[m.Action, ...]:
    """Those with a bound by its size, then errors and warnings without one in the order of the
    report. ``late``: the run that the other ranks wait for; only it makes their steps shorter."""
    # The fastest of those whose results may be believed; without times, the first.
    ended = [run for run in runs if run.exit.outcome == m.Outcome.OK or run.was_stopped]
    sound = [run for run in ended if not run.results_differ]
    if not sound:
        return ()
    run = min(sound, key=_step_us)
    run = next((each for each in sound if each.key == late), run)
    if not _asks_for_cuda_graphs(evidence, run.key):
        findings = tuple(each for each in findings if each.rule not in OF_CUDA_GRAPHS)
    # of a short step, where the traced ones are unlike the others: no bound of what the others wait
    idle = {
        event.run: event.idle_us for event in evidence.once(device_idle.collect) if not event.unlike
    }
    found = [
        replace(action, only_on_gpu=evidence.device != "cuda" and action.rule in ON_A_GPU)
        for action in _found(run, findings, idle.get(run.key))
    ]
    found.sort(key=lambda action: -_per_step(run, action.saves))
    limiting = _limiting(run)
    relieving = {rule.id for rule in RULES if not limiting.isdisjoint(rule.relieves)}
    never = _never_pays(run)
    fixes = [action for action in found if action.fix]
    fixed = {a.rule: _per_step(run, a.saves) for a in fixes if isinstance(a.saves, m.Saving)}
    reasons = {rule.id: rule.symptom_of for rule in RULES}

    def place(action: m.Action) -> tuple[bool, ...]:
        """Sort after what says less; of equals the one that saves more comes first."""
        is_bounded = isinstance(action.saves, m.Saving)
        is_later = action.rule not in OF_COMPILING
        if is_bounded:
            covered_us = max((fixed.get(each, 0.0) for each in reasons[action.rule]), default=0.0)
            is_later = covered_us > MOST_OF_IT * _per_step(run, action.saves)
        return (
            action.only_on_gpu,
            not (never and action.rule == NEVER_BREAKS_EVEN.id),
            action.rule not in relieving,
            not is_bounded,
            is_later,
        )

    # A symptom for which nothing is to be written, beside its reason: one that limits the run, and
    # says what to write.
    said = relieving & {action.rule for action in fixes}
    told = [
        action
        for action in sorted(found, key=place)
        if action.fix
        or (never and action.rule == NEVER_BREAKS_EVEN.id)
        or said.isdisjoint(reasons[action.rule])
    ]
    # one that mends several places is named once, at the first of them
    texts = [action.fix for action in told]
    once = [each for at, each in enumerate(told) if not each.fix or texts.index(each.fix) == at]
    return tuple(once[:MOST])


def _asks_for_cuda_graphs(evidence: Evidence, run: m.RunKey) -> bool:
    watched = (each for each in evidence.once(run_tensors) if each.key == run)
    return any(graph.cuda_graphs for each in watched for graph in each.tensors.graphs)


@m.otherwise(math.inf)
def _step_us(run: m.RunReport) -> float:
    return m.known(run.step).median


def _found(run: m.RunReport, findings: m.Findings, idle_us: float | None) -> Iterator[m.Action]:
    """What one habit comes to is one action: its sites together save at most what a sync can."""
    step_us = _step_us(run)
    habits: dict[tuple[object, ...], list[m.Finding]] = defaultdict(list)
    for finding in sorted(findings, key=weight):
        rule = rule_of(finding)
        if finding.run not in (run.key, None) or finding.accepted or _is_over(finding):
            continue
        if rule.topic in NOT_ABOUT_SPEED:
            continue
        saves = _bound(run, finding, rule, idle_us)
        if isinstance(saves, m.Saving) or _asks_for_something(finding):
            habits[_habit(finding), isinstance(saves, m.Saving)].append(
                replace(finding, saves=saves)
            )
    for first, *more in habits.values():
        saves = first.saves
        share = None
        fix = first.fix
        if isinstance(saves, m.Saving):
            together = sum(
                one.saves.us_per_step for one in (first, *more) if isinstance(one.saves, m.Saving)
            )
            if idle_us is not None and rule_of(first).topic is m.Topic.SYNCS:
                together = min(together, idle_us)
            saves = replace(saves, us_per_step=together)
            if 0 < step_us < math.inf:
                if _per_step(run, saves) < WORTH_SHARE * step_us:
                    continue
                if saves.per == "step":
                    share = together / step_us
        if any(one.fix != fix for one in more):
            fix += "  # and likewise on the other lines"
        also = tuple(one.location for one in more if one.location)
        text = first.message
        lines = len({(one.file, one.line) for one in (first.location, *also) if one})
        if first.location and lines > 1:
            if all(one.message == text for one in more):
                text += f", on each of {lines} lines"
            else:
                text += f" on line {first.location.line}, and on {plural(lines - 1, 'more line')}"
        yield m.Action(
            run=run.key,
            rule=first.rule,
            finding=first.fingerprint,
            text=text,
            location=first.location,
            fix=fix,
            tried=first.tried,
            no_fix=first.no_fix,
            saves=saves,
            share=share,
            also=also,
        )


def _limiting(run: m.RunReport) -> set[m.LimitKind]:
    """What limits the run: what is paid once, where that is most of it, else its step."""
    if isinstance(run.whole, m.WholeRun) and run.whole.leading is not None:
        return {share.limit for share in run.whole.once}
    if isinstance(run.limits, m.RunLimits) and run.limits.leading is not None:
        return {run.limits.leading.limit}
    return set()


def _never_pays(run: m.RunReport) -> bool:
    """Whether a script is slower compiled: that no step of TIMING's compiles is known, so mending
    its recompiles leaves a slower step."""
    economics = run.economics
    return (
        run.script is not None
        and isinstance(economics, m.Economics)
        and economics.verdict is m.Payoff.NEVER
    )


def _per_step(run: m.RunReport, saves: m.Saving | m.Skipped) -> float:
    """Microseconds per step; what is saved once, over all steps of the run."""
    if isinstance(saves, m.Skipped):
        return 0.0
    if saves.per == "run" and isinstance(run.whole, m.WholeRun):
        return saves.us_per_step / max(1, run.whole.steps)
    return saves.us_per_step


def _habit(finding: m.Finding) -> tuple[object, ...]:
    """The same for findings that one fix mends, and for those of one kind in one function of the
    program. What is written for a graph break mends all of its kind."""
    kind: object = finding.reads and finding.reads.cause
    by_fix: object = finding.library
    if finding.refusal is not None:
        cause = finding.refusal.cause
        kind = cause.identity, cause.operator
        by_fix = by_fix or finding.fix
    if not by_fix and (place := finding.location) is not None and kind:
        # the module's own level, comprehensions too
        function = place.function
        if function.startswith("<"):
            function = ""
        return finding.rule, place.file, function, kind, bool(finding.fix), finding.no_fix
    return finding.rule, finding.fix or finding.fingerprint


def _is_over(finding: m.Finding) -> bool:
    """Of compiling, a note without a fix: recompiles that stopped by themselves."""
    is_note = finding.level is m.Level.NOTE and not finding.fix and not finding.no_fix
    return is_note and rule_of(finding).topic is m.Topic.COMPILATION


def _asks_for_something(finding: m.Finding) -> bool:
    """What reads in many steps; no other note, and nothing that only another process pays for. On a
    CPU ``.cpu()`` costs nothing, nor does what is a warning there."""
    if (reads := finding.reads) is not None and reads.steps:
        often = reads.is_dear or reads.in_steps > syncs.SELDOM * reads.steps
        return often and (finding.level is not m.Level.NOTE or finding.rule == syncs.WOULD_SYNC.id)
    return finding.level is not m.Level.NOTE and finding.rule != caches.CACHE_BYPASSED.id


def _bound(
    run: m.RunReport, finding: m.Finding, rule: m.Rule, idle_us: float | None
) -> m.Saving | m.Skipped:
    """The finding's own; a sync is worth at most the idle time that it leaves behind it, and a
    recompile what compiling took, where that limits the run. The program's own clock is no work of
    its step, and taking it out mends nothing."""
    cost = finding.cost
    if isinstance(finding.saves, m.Saving) or isinstance(cost, m.Skipped):
        return finding.saves
    recompiling = m.LimitKind.RECOMPILING
    if cost.unit == "s" and recompiling in rule.relieves and recompiling in _limiting(run):
        return m.Saving(1e6 * cost.value, "the time to compile again", cost.measured_in, per="run")
    if rule.topic is not m.Topic.SYNCS or rule is syncs.OWN_CLOCK:
        return finding.saves
    seldom = finding.level is m.Level.NOTE  # an evaluation's work, as likely as a wait for it
    if idle_us is None or cost.unit != "us/step" or seldom:
        return finding.saves
    return m.Saving(
        min(cost.value, idle_us),
        "the CPU's wait here, at most the step's GPU idle time",
        (*cost.measured_in, m.PassName.TIMING, m.PassName.TRACE),
    )
