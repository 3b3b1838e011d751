"""What a budget can be put on, how each metric is counted from a Profile, and when it was not
observed; and budgets: ``METRIC=N`` for every run, or for the runs of one strategy or one
strategy.mode; and how much worse each metric of a comparison may be: ``METRIC=5%``, by option or in
the configuration file."""

import math
from collections.abc import Mapping, Sequence

from kgprof import coverage
from kgprof import model as m
from kgprof.collectors import (
    caches,
    cuda_graphs,
    graph_breaks,
    recompiles,
    rule_of,
    runs_eagerly,
    skipped_frames,
    syncs,
)
from kgprof.collectors.witnesses import INDISPENSABLE
from kgprof.wording import nearest

SITES, EVENTS, SECONDS, READS, EAGER_CALLS = "sites", "events", "s", "syncs/step", "calls"
FRACTIONAL = (SECONDS, READS)  # units whose limits need not be whole numbers
# those in which CUDA graphs can have been asked for
CUDAGRAPH_MODES = ("reduce-overhead", "max-autotune", "as-is")


class Metric(m.Model):
    """``rules`` are the findings that it counts: by place (sites) or by how often they happened
    (events)."""

    name: str
    unit: str
    rules: tuple[str, ...] = ()
    # says nothing about a run in which another backend stood in for Inductor
    generated_code: bool = False
    cuda_only: bool = False
    in_memory: bool = False  # counted in MEMORY, whatever was compiled
    default: float | None = None  # the limit where none was given
    # over that limit it does not fail the gate; over one that was given it does
    warns_by_default: bool = False


METRICS = (
    Metric(name="graph-breaks", unit=SITES, rules=(graph_breaks.GRAPH_BREAK.id,), default=0),
    Metric(name="skipped-frames", unit=SITES, rules=(skipped_frames.SKIPPED_FRAME.id,), default=0),
    Metric(
        name="recompiles", unit=EVENTS, rules=tuple(rule.id for rule in recompiles.RULES), default=0
    ),
    Metric(
        name="eager-calls",
        unit=EAGER_CALLS,
        rules=(
            runs_eagerly.RUNS_EAGERLY.id,
            recompiles.LIMIT_REACHED.id,
            recompiles.UNBOUNDED.id,
            skipped_frames.SKIPPED_FRAME.id,
        ),
        default=0,
        warns_by_default=True,
    ),
    Metric(
        name="cache-bypasses", unit=SITES, rules=(caches.CACHE_BYPASSED.id,), generated_code=True
    ),
    Metric(
        name="cudagraph-skips",
        unit=SITES,
        rules=(cuda_graphs.SKIPPED.id,),
        generated_code=True,
        cuda_only=True,
    ),
    Metric(name="compile-seconds", unit=SECONDS, generated_code=True),
    Metric(
        name="syncs-per-step",
        unit=READS,
        rules=tuple(rule.id for rule in syncs.WAITING),
        in_memory=True,
    ),
)
BY_NAME = {metric.name: metric for metric in METRICS}


def count(
    metric: Metric,
    run: m.RunReport,
    findings: Sequence[m.Finding],
    profile: m.Profile,
    *,
    limit: float,
) -> float | m.Skipped:
    """The metric over one run, from ``findings`` (those that are not accepted); a number only if it
    was observed.

    Where it is a lower bound, it is a number only above ``limit``.
    """
    if reason := why_not_observed(metric, run, profile):
        return m.Skipped(reason)
    if not metric.rules:
        assert isinstance(run.compile, m.CompileSummary)
        if ran_unseen := m.ran_unseen(run.compile.capture_unavailable):
            return m.Skipped(ran_unseen)
        durations = [compilation.duration_s for compilation in run.compile.compilations]
        unknown = [duration for duration in durations if isinstance(duration, m.Skipped)]
        return unknown[0] if unknown else sum(d for d in durations if not isinstance(d, m.Skipped))
    mine = [finding for finding in findings if finding.run == run.key and counts(metric, finding)]
    number = float(sum(finding.count for finding in mine) if metric.unit == EVENTS else len(mine))
    missing = coverage.missing(profile.coverage, run.key, *metric.rules)
    # an accepted read is off the number
    if metric.in_memory and isinstance(run.memory, m.MemorySummary):
        if isinstance(run.memory.syncs_per_step, m.Skipped):
            return run.memory.syncs_per_step
        number = math.fsum(
            run.memory.reads.get(name, 0.0) for name in {finding.fingerprint for finding in mine}
        )
    if metric.unit == EAGER_CALLS and isinstance(run.compile, m.CompileSummary):
        calls = run.compile.compiled_calls
        if isinstance(calls, m.Skipped):
            return calls
        told = [calls.eager.get(finding.fingerprint, 0) for finding in mine]
        number = float(sum(each for each in told if isinstance(each, int)))
        lacking = [each.reason for each in told if isinstance(each, m.Skipped)]
        missing = missing or next(iter(lacking), "")
    return m.Skipped(missing) if missing and number <= limit else number


def counts(metric: Metric, finding: m.Finding) -> bool:
    """Calls that ran eagerly did so whatever the level of the finding that says it: what follows
    from a graph break is a note."""
    is_a_fact = metric.unit == EAGER_CALLS and not finding.made_by_torch
    return finding.rule in metric.rules and (finding.counts or is_a_fact)


# ---------------------------------------------------------------- why a metric was not observed


def why_not_observed(metric: Metric, run: m.RunReport, profile: m.Profile) -> str:
    """Empty where it was."""
    if run.exit.outcome != "ok":
        return f"the run {run.exit.words}"
    if metric.in_memory:
        if run.probe_exit is not None and run.probe_exit.outcome != "ok":
            return f"its second process {run.probe_exit.words}"
    elif isinstance(run.compile, m.Skipped):
        return run.compile.reason
    elif lacking := nothing_captured(run):
        return lacking
    elif compiled_nothing(run, profile.findings):
        return m.nothing_compiled(run.compile.unused, run.script.workers if run.script else 0)
    if metric.cuda_only and profile.device != "cuda":
        return "CUDA graphs are not observable on a CPU run"
    # or the program itself asks for them, and torch left one out
    found = any(f.run == run.key and f.rule in metric.rules for f in profile.findings)
    if metric.cuda_only and run.key.mode not in CUDAGRAPH_MODES and not found:
        return f"mode {run.key.mode} does not request CUDA graphs"
    if profile.options.backend and metric.generated_code:
        return f"backend {profile.options.backend} generates no code"
    return ""


def nothing_captured(run: m.RunReport) -> str:
    """Which capture was missing where COMPILE could show nothing; empty where none was."""
    missing = () if isinstance(run.compile, m.Skipped) else run.compile.capture_unavailable
    return next(
        (one.words for one in missing if one.capture in INDISPENSABLE and not one.incomplete), ""
    )


def compiled_nothing(run: m.RunReport, findings: Sequence[m.Finding]) -> bool:
    """Neither a compilation, nor code compiled earlier, nor a finding about one: such a run looks
    like a clean one and is none."""
    if isinstance(run.compile, m.Skipped) or m.ran_unseen(run.compile.capture_unavailable):
        return False
    about_compilation = (m.Topic.COMPILATION, m.Topic.CUDA_GRAPHS)
    spoken_of = any(f.run == run.key and rule_of(f).topic in about_compilation for f in findings)
    return not run.compile.compilations and not spoken_of


OPTION = "--max"
DEFAULT = "default"
DEFAULTS = tuple(
    m.Budget(metric=metric.name, limit=metric.default, scope="", origin=DEFAULT)
    for metric in METRICS
    if metric.default is not None
)


def parse_option(text: str, faults: list[str]) -> m.Budget | None:
    """``[strategy[.mode]:]METRIC=N``; what is wrong goes to ``faults``."""
    name, equals, value = text.rpartition("=")
    scope, _, metric = name.rpartition(":")
    if not equals:
        faults.append(
            f"{OPTION} {text}: a budget must be METRIC=N, or strategy.mode:METRIC=N for some runs "
            "only"
        )
        return None
    try:
        limit: object = float(value)
    except ValueError:
        limit = value
    return _budget(metric, limit, scope, OPTION, f"{OPTION} {text}", faults)


def parse_table(table: object, origin: str, faults: list[str]) -> list[m.Budget]:
    """``[max]`` of a configuration file: metric = number, or a table of these under a strategy or
    strategy.mode."""
    if not isinstance(table, dict):
        faults.append(f"{origin}: max must be a table, max = {{graph-breaks = 0}}")
        return []
    budgets: list[m.Budget | None] = []
    for name, value in table.items():
        if isinstance(value, Mapping):
            each = (
                (metric, limit, f"{origin}: max.{name}.{metric}") for metric, limit in value.items()
            )
            budgets += [
                _budget(metric, limit, name, origin, place, faults) for metric, limit, place in each
            ]
        else:
            budgets.append(_budget(name, value, "", origin, f"{origin}: max.{name}", faults))
    return [budget for budget in budgets if budget is not None]


def _budget(
    name: str, value: object, scope: str, origin: str, place: str, faults: list[str]
) -> m.Budget | None:
    metric = BY_NAME.get(name)
    if metric is None:
        faults.append(f"{place}: no metric {name!r}{nearest(name, BY_NAME)}")
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value < 0
    ):
        faults.append(f"{place}: a limit must be 0 or more, got {value!r}")
        return None
    if metric.unit not in FRACTIONAL and value != int(value):
        faults.append(
            f"{place}: {metric.name} are counted, so the limit must be a whole number, got "
            f"{value!r}"
        )
        return None
    return m.Budget(metric=name, limit=float(value), scope=scope, origin=origin)


def applies(budget: m.Budget, run: m.RunKey) -> bool:
    return budget.scope in ("", run.strategy, run.slug)


def in_force(budgets: Sequence[m.Budget], run: m.RunKey) -> list[m.Budget]:
    """One budget a metric, in the metrics' order: the narrowest scope wins; of the same scope, the
    command line over the file over the default."""

    def precedence(budget: m.Budget) -> tuple[int, int]:
        narrow = bool(budget.scope) + (budget.scope == run.slug)
        return narrow, {OPTION: 2, DEFAULT: 0}.get(budget.origin, 1)

    chosen = {
        budget.metric: budget for budget in sorted(budgets, key=precedence) if applies(budget, run)
    }
    return [chosen[metric.name] for metric in METRICS if metric.name in chosen]


def check(
    budgets: Sequence[m.Budget],
    profile: m.Profile,
    counted: Sequence[m.Finding],
    accepted: Sequence[m.Finding],
) -> tuple[m.BudgetCheck, ...]:
    """Each metric that has a budget, on each run that it applies to."""
    checks = []
    for run in profile.runs:
        for budget in in_force(budgets, run.key):
            metric = BY_NAME[budget.metric]
            observed = count(metric, run, counted, profile, limit=budget.limit)
            if isinstance(observed, m.Skipped):
                status = m.BudgetStatus.NOT_OBSERVED
            else:
                over = m.BudgetStatus.WARNED if only_warns(budget) else m.BudgetStatus.EXCEEDED
                status = over if observed > budget.limit else m.BudgetStatus.HELD
            held = m.BudgetCheck(
                metric=metric.name,
                run=run.key,
                limit=budget.limit,
                unit=metric.unit,
                observed=observed,
                accepted=sum(
                    finding.run == run.key and counts(metric, finding) for finding in accepted
                ),
                made_by_torch=_made_by_torch(metric, run, profile.findings),
                origin=budget.origin,
                status=status,
            )
            checks.append(held)
    return tuple(checks)


def only_warns(budget: m.Budget | m.BudgetCheck) -> bool:
    """A default limit that neither fails the gate nor has to be observed; nobody asked for it."""
    return budget.origin == DEFAULT and BY_NAME[budget.metric].warns_by_default


def _made_by_torch(metric: Metric, run: m.RunReport, findings: Sequence[m.Finding]) -> int:
    """How many sites of the metric torch makes itself, on purpose."""
    if metric.unit != SITES:
        return 0
    return sum(f.run == run.key and f.rule in metric.rules and f.made_by_torch for f in findings)


MAX_REGRESSION = "--max-regression"
REGRESSIONS = "max-regression"
_FORMERLY = (
    ("reads-a-step", "syncs-per-step"),
    ("-a-step", "-per-step"),
    ("-an-evaluation", "-per-evaluation"),
)
LARGEST = 10_000.0  # percent; more is a typing mistake


def option_name(metric: str) -> str:
    """As it is written on a command line: "peak-allocated" for "peak allocated"."""
    return metric.replace(",", "").replace(" ", "-")


def parse_regressions(
    values: Sequence[str], known: Sequence[str], faults: list[str]
) -> dict[str, float]:
    """Percent by metric; what is wrong goes to ``faults``."""
    budgets: dict[str, float] = {}
    for value in values:
        name, equals, percent = value.partition("=")
        if not equals:
            faults.append(
                f"{MAX_REGRESSION} {value}: a budget must be METRIC=PERCENT, such as step=5%"
            )
            continue
        _add_regression(budgets, name.strip(), percent, f"{MAX_REGRESSION} {value}", known, faults)
    return budgets


def regression_table(
    table: object, path: str, known: Sequence[str], faults: list[str]
) -> dict[str, float]:
    """``[max-regression]`` of a configuration file: metric = 5, or "5%"."""
    budgets: dict[str, float] = {}
    if not isinstance(table, Mapping):
        faults.append(f"{path}: {REGRESSIONS} must be a table, {REGRESSIONS} = {{step = 5}}")
        return budgets
    for name, percent in table.items():
        _add_regression(budgets, str(name), percent, f"{path}: {REGRESSIONS}.{name}", known, faults)
    return budgets


def _add_regression(
    budgets: dict[str, float],
    name: str,
    percent: object,
    place: str,
    known: Sequence[str],
    faults: list[str],
) -> None:
    names = {option_name(metric): metric for metric in known}
    for old, new in _FORMERLY:  # earlier spellings, in files and options that exist
        name = name.replace(old, new) if name not in names else name
    try:
        number = (
            math.nan if isinstance(percent, bool) else float(str(percent).strip().removesuffix("%"))
        )
    except ValueError:
        number = math.nan
    if name not in names:
        faults.append(f"{place}: no metric {name!r}{nearest(name, names)}")
    elif not 0 <= number <= LARGEST:
        faults.append(
            f"{place}: a budget must be a percentage of 0 or more (5 or 5%), got {percent!r}"
        )
    else:
        budgets[names[name]] = number
