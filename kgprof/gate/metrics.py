"""What a budget can be put on, how each metric is counted from a Profile, and when it was not
observed; and budgets: ``METRIC=N`` for every run, or for the runs of one strategy or one
strategy.mode; and how much worse each metric of a comparison may be: ``METRIC=5%``, by option or in
the configuration file."""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kgprof import coverage
from kgprof import model as m
from kgprof.collectors import rule_of
from kgprof.collectors.compile import caches, graph_breaks, recompiles, runs_eagerly, skipped_frames
from kgprof.collectors.graphs import cuda_graphs
from kgprof.collectors.time import syncs
from kgprof.collectors.trust.witnesses import INDISPENSABLE
from kgprof.wording import nearest

SITES, EVENTS, SECONDS, READS, EAGER_CALLS = "sites", "events", "s", "syncs/step", "calls"
FRACTIONAL = (SECONDS, READS)  # units whose limits need not be whole numbers
# those in which CUDA graphs can have been asked for
CUDAGRAPH_MODES = ("reduce-overhead", "max-autotune", "as-is")


class Metric(m.Model, kw_only=False):
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
    Metric("graph-breaks", SITES, (graph_breaks.GRAPH_BREAK.id,), default=0),
    Metric("skipped-frames", SITES, (skipped_frames.SKIPPED_FRAME.id,), default=0),
    Metric("recompiles", EVENTS, tuple(rule.id for rule in recompiles.RULES), default=0),
    Metric(
        "eager-calls",
        EAGER_CALLS,
        (
            runs_eagerly.RUNS_EAGERLY.id,
            recompiles.LIMIT_REACHED.id,
            recompiles.UNBOUNDED.id,
            skipped_frames.SKIPPED_FRAME.id,
        ),
        default=0,
        warns_by_default=True,
    ),
    Metric("cache-bypasses", SITES, (caches.CACHE_BYPASSED.id,), generated_code=True),
    Metric(
        "cudagraph-skips", SITES, (cuda_graphs.SKIPPED.id,), generated_code=True, cuda_only=True
    ),
    Metric("compile-seconds", SECONDS, generated_code=True),
    Metric("syncs-per-step", READS, tuple(rule.id for rule in syncs.WAITING), in_memory=True),
)
BY_NAME = {metric.name: metric for metric in METRICS}


@m.skippable
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
        compiled = m.known(run.compile)
        if ran_unseen := m.ran_unseen(compiled.capture_unavailable):
            return m.Skipped(ran_unseen)
        return sum(m.known(compilation.duration_s) for compilation in compiled.compilations)
    mine = [finding for finding in findings if finding.run == run.key and counts(metric, finding)]
    number = float(len(mine))
    missing = coverage.missing(profile.coverage, run.key, *metric.rules)
    if metric.unit == EVENTS:
        number = float(sum(finding.count for finding in mine))
    # an accepted read is off the number
    elif metric.in_memory and isinstance(run.memory, m.MemorySummary):
        m.known(run.memory.syncs_per_step)
        names = {finding.fingerprint for finding in mine}
        number = math.fsum(run.memory.reads.get(name, 0.0) for name in names)
    elif metric.unit == EAGER_CALLS:
        calls = m.known(m.known(run.compile).compiled_calls)
        told = [calls.eager.get(finding.fingerprint, 0) for finding in mine]
        number = float(sum(each for each in told if isinstance(each, int)))
        lacking = (each.reason for each in told if isinstance(each, m.Skipped))
        missing = missing or next(lacking, "")
    if missing and number <= limit:
        return m.Skipped(missing)
    return number


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
        return nothing_compiled(run)
    if metric.cuda_only and profile.device != "cuda":
        return "CUDA graphs are not observable on a CPU run"
    # or the program itself asks for them, and torch left one out
    found = any(f.run == run.key and f.rule in metric.rules for f in profile.findings)
    if metric.cuda_only and run.key.mode not in CUDAGRAPH_MODES and not found:
        return f"mode {run.key.mode} does not request CUDA graphs"
    if profile.options.backend and metric.generated_code:
        return f"backend {profile.options.backend} generates no code"
    return ""


@m.otherwise("")
def nothing_captured(run: m.RunReport) -> str:
    """Which capture was missing where COMPILE could show nothing; empty where none was."""
    for one in m.known(run.compile).capture_unavailable:
        if one.capture in INDISPENSABLE and not one.incomplete:
            return one.words
    return ""


@m.otherwise(False)
def compiled_nothing(run: m.RunReport, findings: Sequence[m.Finding]) -> bool:
    """Neither a compilation, nor code compiled earlier, nor a finding about one: such a run looks
    like a clean one and is none."""
    compiled = m.known(run.compile)
    if compiled.compilations or m.ran_unseen(compiled.capture_unavailable):
        return False
    about_compilation = (m.Topic.COMPILATION, m.Topic.CUDA_GRAPHS)
    return not any(f.run == run.key and rule_of(f).topic in about_compilation for f in findings)


def nothing_compiled(run: m.RunReport) -> str:
    """Of one whose COMPILE pass ran."""
    workers = run.script.workers if run.script else 0
    return m.nothing_compiled(m.known(run.compile).unused, workers)


OPTION = "--max"
DEFAULT = "default"
DEFAULTS = tuple(
    m.Budget(metric.name, metric.default, "", DEFAULT)
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
        or not 0 <= value <= sys.float_info.max
    ):
        faults.append(f"{place}: a limit must be 0 or more, got {value!r}")
        return None
    if metric.unit not in FRACTIONAL and value != int(value):
        faults.append(
            f"{place}: {metric.name} are counted, so the limit must be a whole number, got "
            f"{value!r}"
        )
        return None
    return m.Budget(name, float(value), scope, origin)


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
                status=_status(observed, budget),
            )
            checks.append(held)
    return tuple(checks)


@m.otherwise(m.BudgetStatus.NOT_OBSERVED)
def _status(observed: m.Figure, budget: m.Budget) -> m.BudgetStatus:
    if m.known(observed) <= budget.limit:
        return m.BudgetStatus.HELD
    if only_warns(budget):
        return m.BudgetStatus.WARNED
    return m.BudgetStatus.EXCEEDED


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


Regression = tuple[str, str, object]  # where it is written, the metric's name, and percent


def of_options(values: Sequence[str], faults: list[str]) -> Iterator[Regression]:
    """``METRIC=PERCENT``; what is wrong goes to ``faults``."""
    for value in values:
        place = f"{MAX_REGRESSION} {value}"
        name, equals, percent = value.partition("=")
        if equals:
            yield place, name.strip(), percent
        else:
            faults.append(f"{place}: a budget must be METRIC=PERCENT, such as step=5%")


def of_table(table: object, path: str, faults: list[str]) -> Iterator[Regression]:
    """``[max-regression]`` of a configuration file: metric = 5, or "5%"."""
    if not isinstance(table, Mapping):
        faults.append(f"{path}: {REGRESSIONS} must be a table, {REGRESSIONS} = {{step = 5}}")
        return
    for name, percent in table.items():
        yield f"{path}: {REGRESSIONS}.{name}", name, percent


def regressions(
    written: Iterable[Regression], known: Sequence[str], faults: list[str]
) -> dict[str, float]:
    """Percent by metric, the last one of each; what is wrong goes to ``faults``."""
    budgets: dict[str, float] = {}
    names = {option_name(metric): metric for metric in known}
    for place, name, percent in written:
        for old, new in _FORMERLY:  # earlier spellings, in files and options that exist
            if name not in names:
                name = name.replace(old, new)
        try:
            number = float(str(percent).strip().removesuffix("%"))  # of true and false none
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
    return budgets
