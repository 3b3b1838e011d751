"""Two Profiles beside each other, head's with a Comparison in it, or more than two. Pure: the same
give the same."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from msgspec.structs import replace

from kgprof import coverage
from kgprof import model as m
from kgprof._version import __version__
from kgprof.analysis.trace_diff import difference
from kgprof.compare import changes, flame_diff, upgrade, verdict
from kgprof.compare.causes import CLOCKLESS, explained, overall
from kgprof.compare.findings import compared_findings
from kgprof.compare.machine import MachineDrifts, drift_words, machine_drift
from kgprof.compare.metrics import EVALUATION, STEP, Budgets, Sides, metrics
from kgprof.compare.work import compared_work, in_words
from kgprof.errors import EXIT_OK, UsageError
from kgprof.judge import looks
from kgprof.wording import clause, relative

DEFAULT_BUDGETS: Budgets = {STEP: 5.0, EVALUATION: 5.0}  # percent
# of sides recorded in turn; more where their pairs could not have seen so little
IN_TURN_BUDGETS: Budgets = {STEP: 2.0, EVALUATION: 2.0}
SIDES = ("base", "head")
# what is new is held to more than what was there: a new graph break is a warning
FAIL_ON = "warning"
# Another torch or Python dispatches an operator in another time: what is asked for then is the
# difference as measured.
OTHER_LOOPS = m.Skipped(
    "the environments differ, so the loops that check the machine's speed do too"
)
IN_TURN = m.Skipped("the sides were recorded in turn, so that drift is alike on both")
LEAST_DRIFT = 0.02  # below it a note about the machine helps nobody
METHOD = (
    "times: Welch's 95 % interval for the ratio of the geometric means of the rounds' medians "
    "(each round is a fresh process). The sides were recorded one after the other: inconclusive if "
    "a loop that checks the machine's speed differs between them by more than the limit, and drift "
    "that the loops do not show is in no interval"
)
WORK_METHOD = (
    "no step was timed; graphs, generated code, guards and traces of one recording of each side "
    "are compared, without the names of variables, numbers behind names and hashes, in any order"
)
_STAGES = ("capture", "frontend", "scheduling", "code generation", "machine code", "caching")

# Names, and the fields of Environment that they stand for. The commit is meant to differ. The
# kernel's release, the memory's size and the probe of the compiler change from one machine of a CI
# pool to the next and move no time alone.
_FACTS = (
    ("GPU or CPU in use", "device_name"),
    ("driver", "driver"),
    ("torch", "torch"),
    ("triton", "triton"),
    ("CUDA", "cuda"),
    ("Python", "python"),
    ("CPU", "cpu_name"),
    ("CPU cores", "cpu_count"),
    ("torch threads", "torch_threads"),
    ("C++ compiler", "compiler"),
    ("kgprof", "kgprof"),
)
# They say where things are put or written down, not what runs.
_WHERE_TO = ("_DIR", "_PATH", "_FILE", "_TRACE", "_ROOT", "_HOME")
_Metrics = Sequence[m.ComparedMetric | None]


@dataclass(frozen=True, slots=True)
class CompareSettings:
    """``budgets``: percent by which a metric may be worse. Those of DEFAULT_BUDGETS always have
    one."""

    budgets: Budgets = field(default_factory=dict)
    fail_on: str = FAIL_ON
    allow_different_environment: bool = False


def compare(
    base: m.Profile,
    head: m.Profile,
    settings: CompareSettings = CompareSettings(),
    *,
    sources: tuple[str, str] = ("base", "head"),
    diff: str = "",
) -> m.Profile:
    """Head's Profile with its ``comparison``; its verdict and exit code are the comparison's.

    ``sources``: where the two were read from, in the user's words; ``diff``: what git says changed
    between their commits, for files whose text is not on both sides. Raises UsageError where there
    is nothing to compare: a comparison as a side, or two workloads.
    """
    workloads = []
    for side, source in ((base, sources[0]), (head, sources[1])):
        if side.comparison is not None:
            hint = "give the two Recordings or reports that it was made from"
            raise UsageError(
                f"{source} is itself a comparison and cannot be one of its sides", hint
            )
        workloads.append(workload_of(side))
    before, after = workloads
    if before != after:
        hint = "compare two recordings of one workload"
        raise UsageError(
            f"{sources[0]} is of {before} and {sources[1]} of {after}: two workloads", hint
        )
    flags = _changes(_flags(base), _flags(head), absent="not set")
    # empty where times may be compared
    environment = (
        *_changes(_facts(base), _facts(head)),
        *sorted(flags, key=lambda flag: flag.name),
    )
    in_turn = _in_turn(base, head)
    changed = changes.between(base, head, diff)
    upgraded = ""
    if in_turn is not None and (interpreters := upgrade.interpreters(base, head)):
        environment += interpreters
        upgraded = upgrade.in_words(environment, base, head, changed)
    findings = compared_findings(base, head, settings.fail_on)
    compared = m.Comparison(
        base=_side(base, sources[0]),
        head=_side(head, sources[1]),
        environment=environment,
        comparable=bool(settings.allow_different_environment or not environment or upgraded),
        fail_on=settings.fail_on,
        findings=findings,
        not_looked_for=tuple(
            m.NotLookedFor(name, tuple(rules), reason)
            for name, side, other in (("base", base, head), ("head", head, base))
            for reason, rules in coverage.one_sided(side.coverage, other.coverage).items()
        ),
        settings=_changes(_options(base), _options(head)),
        method=method_of(in_turn, base.options, head.options),
        in_turn=in_turn,
        upgrade=upgraded,
    )
    if base.created_utc == head.created_utc and base.runs == head.runs:
        compared = replace(compared, notes=("both sides are the same recording",))
    given = dict(settings.budgets)
    budgets = {**DEFAULT_BUDGETS, **given}
    if in_turn is not None:
        given = {**in_turn.limits, **given}
        budgets = {**IN_TURN_BUDGETS, **given}
    changed = changes.between(base, head, diff)
    runs = tuple(_runs(base, head, compared, budgets, _without_limit(given), changed))
    causes = overall(runs, [each for each in findings if each.finding.run is None])
    compared = replace(compared, runs=runs, causes=causes)
    if upgraded:
        compared = _with_what_came_along(compared, base, head, changed)
    reasons = verdict.reasons(base, head, compared)
    return replace(
        head,
        # 1,900 settings and decompositions: those that differ are the comparison's
        environment=replace(head.environment, defaults={}),
        comparison=compared,
        verdict=verdict.verdict(reasons, compared, head.source_root),
        exit_code=next((reason.exit_code for reason in reasons), EXIT_OK),
    )


def workload_of(side: m.Profile) -> str:
    """As seen from the repository, so that a script in two checkouts is one; of a path elsewhere
    the file's name."""
    named = relative(side.workload, side.source_root)
    if named.startswith("/"):
        named = named.rpartition("/")[2]
    return named.removeprefix("./")


def _without_limit(given: Budgets) -> list[str]:
    """The times that nobody gave a limit: a unit of work has the evaluation's."""
    times = [of for of in m.TimeOf if of not in given]
    if EVALUATION in given:
        times = [of for of in times if of is not m.TimeOf.UNIT]
    return [*times]


def _with_what_came_along(
    compared: m.Comparison,
    base: m.Profile,
    head: m.Profile,
    changed: Sequence[changes.ChangedLine],
) -> m.Comparison:
    """With what changed in torch itself, where the work differs: after the causes that explain a
    part of the time."""
    defaults = _changes(base.environment.defaults, head.environment.defaults, upgrade.ABSENT)
    compared = replace(
        compared,
        work=in_words(compared, head.source_root),
        defaults=upgrade.of_the_device(defaults, head.device),
        notes=(upgrade.BOTH,) if changed else (),
    )
    if not any(isinstance(run.work, m.ComparedWork) and run.work.differs for run in compared.runs):
        return compared
    works = [
        {run.key: run.work for run in side.runs if isinstance(run.work, m.CompiledWork)}
        for side in (base, head)
    ]
    passes = dict.fromkeys(
        change
        for key in filter(works[1].__contains__, works[0])
        for change in _changes(works[0][key].passes, works[1][key].passes, absent="0")
    )
    items = [item for side in works for work in side.values() for item in work.items]
    came = upgrade.causes(compared.defaults, [*passes], items)
    causes = sorted((*came, *compared.causes), key=lambda each: each.explains_us is CLOCKLESS)
    return replace(compared, causes=tuple(causes))


def _in_turn(base: m.Profile, head: m.Profile) -> m.InTurn | None:
    """None for sides that were not recorded as two of a pair, or are given the wrong way round."""
    one = base.in_turn
    other = head.in_turn
    if one is None or other is None or one.id != other.id or (one.side, other.side) != SIDES:
        return None
    return other


def method_of(in_turn: m.InTurn | None, *options: m.Options) -> str:
    """How the times are judged; of sides recorded in turn also when that ends."""
    if all(side.untimed for side in options):
        return WORK_METHOD
    if in_turn is None:
        return METHOD
    *early, last = looks(in_turn.most_rounds)
    after = clause("", ", ".join(map(str, early)), " and ") + str(last)
    each = {**IN_TURN_BUDGETS, **in_turn.limits}
    limits = ", ".join(f"{name} {percent:g} %" for name, percent in each.items())
    return (
        "times: a round is a fresh process per side, with warm caches; both take turns. After "
        f"{after} rounds per side kgprof looks at the differences within the pairs and stops as "
        f"soon as each limit ({limits}) is decided; one that was not given is what the "
        "pairs could have seen, if that is more. The intervals allow for looking several times: "
        "together they are right with 95 %"
    )


def _side(profile: m.Profile, source: str) -> m.ComparedSide:
    environment = profile.environment
    return m.ComparedSide(
        source=source,
        created_utc=profile.created_utc,
        kgprof_version=profile.kgprof_version,
        git_commit=environment.git_commit,
        git_dirty=environment.git_dirty,
        exit_code=profile.exit_code,
        verdict=profile.verdict,
    )


# ---------------------------------------------------------------- one run


def _runs(
    base: m.Profile,
    head: m.Profile,
    compared: m.Comparison,
    budgets: Budgets,
    without_limit: Sequence[str],
    changed: Sequence[changes.ChangedLine],
) -> Iterator[m.RunComparison]:
    """In head's order, those that only base has last. ``compared`` has no runs yet."""
    on_base, on_head = ({run.key: run for run in side.runs} for side in (base, head))
    doubt = ""
    if not compared.comparable:
        others = [each.words for each in compared.environment]
        more = [f"and {len(others) - 3} more"] * (len(others) > 3)
        doubt = f"the environments differ: {'; '.join(others[:3] + more)}"
    # What another torch or another setting does is no line's work.
    due_to = () if compared.environment else changed
    for key in {**on_head, **on_base}:
        if key not in on_base:
            yield m.RunComparison(run=key, status=m.Presence.NEW)
            continue
        if key not in on_head:
            yield m.RunComparison(run=key, status=m.Presence.GONE)
            continue
        before = on_base[key]
        after = on_head[key]
        machine: MachineDrifts = OTHER_LOOPS
        if compared.in_turn is not None:
            machine = IN_TURN
        elif not compared.environment:
            machine = machine_drift(before, after)
        given = [change for change in compared.settings if change.name not in m.OF_THE_MEASUREMENT]
        sides = Sides(
            base=before,
            head=after,
            coverage=(base.coverage, head.coverage),
            settings=(*given, *_changes(_settings(before), _settings(after))),
            drift=machine,
            in_turn=compared.in_turn,
            widening=without_limit,
            doubt=doubt,
        )
        mine = [each for each in compared.findings if each.finding.run == key]
        trace = difference(before.kernels, after.kernels, run=key, against=key)
        causes = explained(sides, metrics(sides, budgets, mine), trace, mine, head.source_root)
        notes = [*causes.notes, drift_words(machine, LEAST_DRIFT)]
        rounds = isinstance(before.rounds, m.Rounds) and isinstance(after.rounds, m.Rounds)
        if rounds and isinstance(machine, m.Skipped) and machine is not IN_TURN:
            unknown = "whether the machine was slower during head's rounds is unknown"
            notes.append(f"{unknown}: {machine.reason}")
        yield replace(
            causes,
            work=compared_work(before, after, causes, mine, due_to, head),
            causes=changes.put_down(causes, due_to, mine, after, head),
            phases=_phases(before, after),
            flame=flame_diff.of_runs(before, after),
            machine=machine,
            notes=tuple(filter(None, notes)),
        )


@m.otherwise(())
def _phases(base: m.RunReport, head: m.RunReport) -> tuple[m.PhaseChange, ...]:
    """Empty where not every compilation of a side has its stages: seconds that nobody knows were
    not saved."""
    before = _stages(base)
    after = _stages(head)
    if not before or not after:
        return ()
    phases = []
    for name in _STAGES:
        seconds = operator.attrgetter(f"{name.replace(' ', '_')}_s")
        base_s = sum(map(seconds, before))
        head_s = sum(map(seconds, after))
        phases.append(m.PhaseChange(name, base_s, head_s))
    return tuple(phases)


def _stages(run: m.RunReport) -> list[m.CompileStages]:
    """Of each compilation; raises as ``known`` does."""
    return [m.known(made.stages) for made in m.known(run.compile).compilations]


# ---------------------------------------------------------------- what is not the same around them


def surroundings(side: m.Profile) -> dict[str, str]:
    """All that two recordings must have alike if their times are to be compared."""
    given = _options(side)
    for name in m.OF_THE_MEASUREMENT:
        del given[name]
    return {**_facts(side), **_flags(side), **given}


def _facts(side: m.Profile) -> dict[str, str]:
    facts = {"device": side.device}
    for name, of_environment in _FACTS:
        value = getattr(side.environment, of_environment)
        if isinstance(value, m.Skipped):
            value = value.reason
        facts[name] = str(value)
    return facts


def _flags(side: m.Profile) -> dict[str, str]:
    return {
        f"environment variable {name}": relative(value, side.source_root)
        for name, value in side.environment.flags.items()
        # those are compared as options
        if not name.endswith(_WHERE_TO) and not name.startswith("KGPROF_")
    }


def _options(side: m.Profile) -> dict[str, str]:
    """What the command line says about the work; how long it was measured is no part of that."""
    given = side.options
    return {
        "the workload's own options": " ".join(given.workload_args),
        "--seed": str(given.seed),
        "backend": given.backend or "inductor",
        "--steps": str(given.steps),
        "--warmup": str(given.warmup),
    }


@m.otherwise({})
def _settings(run: m.RunReport) -> Mapping[str, str]:
    """What an evaluation declares: batch size, depth, dtype ..."""
    return m.known(run.evaluation).settings


def _changes(
    before: Mapping[str, str], after: Mapping[str, str], absent: str = ""
) -> tuple[m.ChangedFact, ...]:
    names = dict.fromkeys((*before, *after))
    facts = (
        m.ChangedFact(name, before.get(name, absent), after.get(name, absent)) for name in names
    )
    return tuple(fact for fact in facts if fact.base != fact.head)


# ---------------------------------------------------------------- more than two


def history(
    profiles: Sequence[m.Profile], settings: CompareSettings, sources: Sequence[str]
) -> m.History:
    """Of one workload, in order: each metric of each against the first one and the one before.

    Raises UsageError for a comparison among them, and for two workloads.
    """
    sides = list(zip(profiles, sources, strict=True))
    first = [_comparison(sides[0], side, settings) for side in sides[1:]]
    previous = [_comparison(before, after, settings) for before, after in pairwise(sides)]
    found = [_by_name(each) for each in first], [_by_name(each) for each in previous]
    metrics = []
    for run, name in dict.fromkeys(key for each in (*found[0], *found[1]) for key in each):
        against_first, against_previous = (
            tuple(each.get((run, name)) for each in compared) for compared in found
        )
        metrics.append(
            m.MetricHistory(
                run,
                name,
                tuple(_values(against_first, against_previous)),
                against_first,
                against_previous,
            )
        )
    return m.History(
        schema_version=m.HISTORY_SCHEMA_VERSION,
        kgprof_version=__version__,
        workload=profiles[-1].workload,
        environment=profiles[-1].environment,
        recordings=(first[0].base, *(each.head for each in first)),
        metrics=tuple(metrics),
        environments_differ=tuple(
            f"{change.words} at recording {number}"
            for number, each in enumerate(previous, start=2)
            for change in each.environment
        ),
    )


def _values(first: _Metrics, previous: _Metrics) -> Iterator[m.Figure]:
    """What each recording has, as the first comparison says that it is a side of."""
    absent = m.Skipped("the run is not in this recording or its neighbours")
    bases = [metric.base for metric in (*first, *previous[:1]) if metric is not None]
    yield next(iter(bases), absent)
    followed = (*previous[1:], None)
    for by_first, by_previous, by_next in zip(first, previous, followed, strict=True):
        here = [metric.head for metric in (by_first, by_previous) if metric is not None]
        if by_next is not None:
            here.append(by_next.base)
        yield next(iter(here), absent)


def _comparison(
    base: tuple[m.Profile, str], head: tuple[m.Profile, str], settings: CompareSettings
) -> m.Comparison:
    found = compare(base[0], head[0], settings, sources=(base[1], head[1])).comparison
    assert found is not None
    return found


def _by_name(compared: m.Comparison) -> dict[tuple[m.RunKey, str], m.ComparedMetric]:
    return {(metric.run, metric.name): metric for run in compared.runs for metric in run.metrics}
