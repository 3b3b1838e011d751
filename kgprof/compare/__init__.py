"""Two Profiles beside each other: head's Profile, with a Comparison in it. Pure: the same two give the same one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from kgprof import model as m
from kgprof.analysis.trace_diff import difference
from kgprof.compare import flame_diff, verdict
from kgprof.compare.causes import explained, overall
from kgprof.compare.environment import OF_THE_MEASUREMENT, declared_changes, environment_changes, option_changes
from kgprof.compare.findings import compared_findings
from kgprof.compare.machine import drift_words, machine_drift
from kgprof.compare.metrics import EVALUATION, STEP, Sides, metrics
from kgprof.errors import UsageError
from kgprof.wording import relative

DEFAULT_BUDGETS: Mapping[str, float] = {STEP: 5.0, EVALUATION: 5.0}  # percent
FAIL_ON = "warning"  # what is new is held to more than what was there: a new graph break is a warning
# Another torch or Python dispatches an operator in another time: what is asked for then is the difference as measured.
OTHER_LOOPS = m.Skipped(reason="the environments differ, and the loops that time the machine with them")
METHOD = (
    "times: 95 % interval for the ratio of the geometric means of the rounds' medians (each round a fresh process); "
    "where both sides timed a loop of the host beside their samples, by analysis of covariance with that loop, so that "
    "the ratio is what is left without the machine's own part, whether or not the loop was timed with an error; else "
    "Welch's, which holds nothing of what changed on the machine between the two recordings; wider where a loop "
    "changed of which the rounds do not tell how the time follows it"
)
_STAGES = (
    ("capture", "capture_s"),
    ("frontend", "frontend_s"),
    ("scheduling", "scheduling_s"),
    ("code generation", "code_generation_s"),
    ("machine code", "machine_code_s"),
    ("caching", "caching_s"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareSettings:
    """``budgets``: percent by which a metric may be worse. Those of DEFAULT_BUDGETS always have one."""

    budgets: Mapping[str, float] = field(default_factory=dict)
    fail_on: str = FAIL_ON
    allow_different_environment: bool = False


def compare(
    base: m.Profile,
    head: m.Profile,
    settings: CompareSettings = CompareSettings(),
    *,
    sources: tuple[str, str] = ("base", "head"),
) -> m.Profile:
    """Head's Profile with its ``comparison``; its verdict and exit code are the comparison's.

    ``sources``: where the two were read from, in the user's words. Raises UsageError where there is nothing to compare:
    a comparison as a side, or two workloads.
    """
    _refuse(base, head, sources)
    environment, options = environment_changes(base, head), option_changes(base, head)
    comparable = settings.allow_different_environment or not environment
    budgets = {**DEFAULT_BUDGETS, **settings.budgets}
    findings = compared_findings(base, head, settings.fail_on)
    doubt = "" if comparable else _other_environment(environment)
    of_the_work = tuple(change for change in options if change.name not in OF_THE_MEASUREMENT)
    loops = OTHER_LOOPS if environment else None
    runs = tuple(_run(key, base, head, budgets, findings, doubt, of_the_work, loops) for key in _keys(base, head))
    compared = m.Comparison(
        base=_side(base, sources[0]),
        head=_side(head, sources[1]),
        environment=environment,
        comparable=comparable,
        fail_on=settings.fail_on,
        runs=runs,
        findings=findings,
        causes=overall(runs, [one for one in findings if one.finding.run is None]),
        settings=options,
        method=METHOD,
        notes=_notes(base, head),
    )
    found = verdict.reasons(base, head, compared)
    return msgspec.structs.replace(
        head,
        comparison=compared,
        verdict=verdict.verdict(found, compared, head.environment.source_root),
        exit_code=verdict.exit_code(found),
    )


def _refuse(base: m.Profile, head: m.Profile, sources: tuple[str, str]) -> None:
    for side, source in ((base, sources[0]), (head, sources[1])):
        if side.comparison is not None:
            hint = "give the two Recordings or reports that it was made from"
            raise UsageError(f"{source} is a comparison, and no side of one", hint=hint)
    before, after = _workload(base), _workload(head)
    if before != after:
        hint = "compare two recordings of one workload"
        raise UsageError(f"{sources[0]} is of {before} and {sources[1]} of {after}: two workloads", hint=hint)


def _workload(profile: m.Profile) -> str:
    """As seen from the repository, so that a script in two checkouts is one; of a path elsewhere the file's name."""
    named = relative(profile.workload, profile.environment.source_root)
    return named.rpartition("/")[2] if named.startswith("/") else named.removeprefix("./")


def _keys(base: m.Profile, head: m.Profile) -> tuple[m.RunKey, ...]:
    """In head's order; what only base has comes last."""
    return tuple(dict.fromkeys([*(run.key for run in head.runs), *(run.key for run in base.runs)]))


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


def _other_environment(changes: tuple[m.EnvironmentChange, ...]) -> str:
    said = "; ".join(f"{change.name} {change.base} -> {change.head}" for change in changes[:3])
    more = f"; and {len(changes) - 3} more" if len(changes) > 3 else ""
    return f"the environments differ: {said}{more}"


def _notes(base: m.Profile, head: m.Profile) -> tuple[str, ...]:
    if base.created_utc == head.created_utc and base.runs == head.runs:
        return ("both sides are the same recording",)
    return ()


# ---------------------------------------------------------------- one run


def _run(
    key: m.RunKey,
    base: m.Profile,
    head: m.Profile,
    budgets: Mapping[str, float],
    findings: tuple[m.ComparedFinding, ...],
    doubt: str,
    options: tuple[m.SettingChange, ...],
    loops: m.Skipped | None,
) -> m.RunComparison:
    """``loops``: why those of the two machines cannot be compared."""
    before, after = _named(base, key), _named(head, key)
    if before is None or after is None:
        return m.RunComparison(run=key, status="new" if before is None else "gone")
    machine = loops or machine_drift(before, after)
    sides = Sides(
        base=before,
        head=after,
        settings=(*options, *declared_changes(before, after)),
        drift=() if isinstance(machine, m.Skipped) else machine,
        doubt=doubt,
    )
    mine = [one for one in findings if one.finding.run == key]
    found = explained(
        sides,
        metrics(sides, budgets, mine),
        difference(before.kernels, after.kernels, run=key, against=key),
        mine,
        head.environment.source_root,
    )
    return msgspec.structs.replace(
        found,
        phases=_phases(before, after),
        flame=flame_diff.of_runs(before, after),
        machine=machine,
        notes=(*found.notes, *_of_the_machine(machine, before, after)),
    )


def _of_the_machine(
    machine: tuple[m.MachineDrift, ...] | m.Skipped, base: m.RunReport, head: m.RunReport
) -> tuple[str, ...]:
    """What a reader of times that have an interval must know of the machine."""
    if not isinstance(machine, m.Skipped):
        said = drift_words(machine)
        return (said,) if said else ()
    if isinstance(base.rounds, m.Rounds) and isinstance(head.rounds, m.Rounds):
        return (f"whether the machine itself was slower in head's rounds is not known: {machine.reason}",)
    return ()


def _named(profile: m.Profile, key: m.RunKey) -> m.RunReport | None:
    return next((run for run in profile.runs if run.key == key), None)


def _phases(base: m.RunReport, head: m.RunReport) -> tuple[m.PhaseChange, ...]:
    """Empty where not every compilation of a side has its stages: seconds that nobody knows were not saved."""
    before, after = _stages(base), _stages(head)
    if not before or not after:
        return ()
    return tuple(
        m.PhaseChange(
            name=name, base_s=sum(getattr(s, name_s) for s in before), head_s=sum(getattr(s, name_s) for s in after)
        )
        for name, name_s in _STAGES
    )


def _stages(run: m.RunReport) -> list[m.CompileStages]:
    compilations = run.compile.compilations if isinstance(run.compile, m.CompileSummary) else ()
    known = [one.stages for one in compilations if not isinstance(one.stages, m.Skipped)]
    return known if len(known) == len(compilations) else []
