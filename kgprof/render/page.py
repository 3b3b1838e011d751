"""What the HTML page shows, as text and geometry: the template only lays it out.

Every string from outside passes ``one_line`` or ``visible`` here and jinja's autoescape there. Limits say how much of
everything there may be; html.py lowers them until the page fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kgprof.model import (
    CompileSummary,
    Finding,
    HostBreakdown,
    KernelBreakdown,
    Level,
    ObserverCost,
    PassName,
    Profile,
    Rule,
    RunReport,
    Skipped,
    Spread,
)
from kgprof.render import breakdown, chart, evaluation_table, kernel_table, summary
from kgprof.render.chart import Bar, LegendEntry, TimeTable
from kgprof.render.evaluation_table import Fact, Table
from kgprof.render.finding_groups import grouped
from kgprof.render.gaps import Gap, gathered
from kgprof.render.kernel_table import HostTable, KernelTable
from kgprof.render.limits import TOP_KERNELS, Limits, anchor, run_name
from kgprof.render.quantity import DASH, count, figure, milliseconds, ratio, size
from kgprof.render.spread import ranged, sampled
from kgprof.render.visible import clip, one_line, visible

SYMBOLS = {"ok": "\u2713", "attention": "!", "failed": "\u2715", "inconclusive": "?"}
STATUS_WORDS = {"ok": "OK", "attention": "Attention", "failed": "Failed", "inconclusive": "Inconclusive"}
LEVEL_WORDS = {"error": "Error", "warning": "Warning", "note": "Note"}
_NOT_AN_ID = re.compile(r"[^A-Za-z0-9_-]+")


# ---------------------------------------------------------------- the page's parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    name: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCell:
    text: str
    details: tuple[str, ...]
    measured: bool
    sort: str
    wrong: bool
    bar: str = ""  # width of the bar under the figure, "37.500%"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    anchor: str
    strategy: str
    mode: str
    baseline: bool
    ended: str
    notes: tuple[str, ...]
    cells: tuple[RunCell, ...]

    @property
    def name(self) -> str:
        return f"{self.strategy}.{self.mode}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingLine:
    anchor: str
    runs: tuple[str, ...]
    message: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingGroup:
    """Findings of one rule on one level, so that the rule is explained once."""

    rule: Rule
    level: str
    level_word: str
    lines: tuple[FindingLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileLine:
    run: str
    first_call_s: str
    compilations: str
    compile_s: str
    steady: str
    details: tuple[tuple[str, str, str, str, str], ...]  # id, function, location, seconds, failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverTable:
    passes: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]  # run, (ratio, samples or reason) a pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    anchor: str
    run: str
    size: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    workload: str
    version: str
    schema_version: int
    created_utc: str
    status: str
    status_word: str
    symbol: str
    verdict: str
    reasons: tuple[str, ...]
    facts: tuple[str, ...]
    headings: tuple[Heading, ...]
    runs: tuple[RunLine, ...]
    footnotes: tuple[str, ...]
    strategies: tuple[Fact, ...]
    baseline: str
    bars: tuple[Bar, ...]
    bar_scale_ms: str
    legend: tuple[LegendEntry, ...]
    time_table: TimeTable
    findings: tuple[FindingGroup, ...]
    finding_count: int
    rules: tuple[Rule, ...]
    kernels: tuple[KernelTable, ...]
    hosts: tuple[HostTable, ...]
    evaluations: Table
    metrics: Table
    settings: tuple[Fact, ...]
    compiles: tuple[CompileLine, ...]
    isa_probe: str
    observers: ObserverTable
    gaps: tuple[Gap, ...]
    environment: tuple[Fact, ...]
    options: tuple[Fact, ...]
    command: str
    kinds: tuple[tuple[str, str], ...]
    logs: tuple[Log, ...]
    left_out: tuple[str, ...]
    device: str
    steps: int
    warmup: int


def build(profile: Profile, limits: Limits) -> Page:
    runs = profile.runs[: limits.runs]
    columns = summary.columns(profile)
    verdict = profile.verdict
    return Page(
        workload=one_line(profile.workload, limits.name),
        version=profile.kgprof_version,
        schema_version=profile.schema_version,
        created_utc=_when(profile.created_utc),
        status=verdict.status if verdict.status in SYMBOLS else "inconclusive",
        status_word=STATUS_WORDS.get(verdict.status, one_line(verdict.status, limits.name)),
        symbol=SYMBOLS.get(verdict.status, "?"),
        verdict=one_line(verdict.text, 4 * limits.name),
        reasons=tuple(one_line(reason, 2 * limits.name) for reason in verdict.reasons[: limits.lines]),
        facts=_facts(profile, limits),
        headings=tuple(Heading(name=column.name, title=column.title) for column in columns),
        runs=_run_lines(runs, columns, limits),
        strategies=_strategies(profile, limits),
        footnotes=tuple(one_line(note, 2 * limits.name) for note in summary.footnotes(profile)[: limits.lines]),
        baseline=one_line(profile.baseline.slug, limits.name) if profile.baseline else "",
        bars=chart.bars(runs, limits),
        bar_scale_ms=milliseconds(chart.scale_us(runs)),
        legend=chart.legend(runs),
        time_table=chart.time_table(runs, limits),
        findings=_findings(profile, limits),
        finding_count=len(profile.findings),
        rules=profile.rules,
        kernels=kernel_table.kernel_tables(runs, limits),
        hosts=kernel_table.host_tables(runs, limits),
        evaluations=evaluation_table.classes(runs, limits),
        metrics=evaluation_table.metrics(runs, limits),
        settings=evaluation_table.settings(runs, limits),
        compiles=_compiles(runs, limits),
        isa_probe=_or_reason(profile.vector_isa_probe_s, lambda s: f"{figure(s)} s", limits),
        observers=_observers(runs, limits),
        gaps=_gaps(profile, limits),
        environment=_environment(profile, limits),
        options=_options(profile, limits),
        command=one_line(" ".join(profile.command), 4 * limits.name),
        kinds=tuple((name, meaning) for _, name, meaning in breakdown.KINDS),
        logs=_logs(runs, limits),
        left_out=_left_out(profile, limits),
        device=one_line(profile.device, limits.name),
        steps=profile.options.steps,
        warmup=profile.options.warmup,
    )


def _when(created_utc: str) -> str:
    """ISO 8601 to the minute, as people write it."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)", created_utc)
    return f"{found[1]} {found[2]} UTC" if found else one_line(created_utc, 60)


# ---------------------------------------------------------------- head


def _facts(profile: Profile, limits: Limits) -> tuple[str, ...]:
    environment = profile.environment
    facts = [environment.device_name, f"torch {environment.torch}"]
    if profile.device == "cuda":
        facts += [f"CUDA {environment.cuda}"] if isinstance(environment.cuda, str) else []
        facts += [f"Triton {environment.triton}"] if isinstance(environment.triton, str) else []
    else:
        facts += [f"{environment.cpu_count} cores, {environment.torch_threads} torch threads"]
    if isinstance(environment.git_commit, str):
        facts.append(f"commit {environment.git_commit[:10]}{' with changes' if environment.git_dirty is True else ''}")
    facts.append(f"seed {profile.options.seed}")
    return tuple(one_line(fact, limits.name) for fact in facts)


def _run_lines(runs: Sequence[RunReport], columns: Sequence[summary.Column], limits: Limits) -> tuple[RunLine, ...]:
    scales = {
        column.name: _largest(column, runs)
        for column in columns
        if column.name in ("ms/step", "ms/candidate", "s/evaluation")
    }
    return tuple(
        RunLine(
            anchor=anchor(index),
            strategy=one_line(run.key.strategy, limits.name // 4),
            mode=one_line(run.key.mode, limits.name // 4),
            baseline=run.is_baseline,
            ended=one_line(summary.ended(run), 2 * limits.name),
            notes=tuple(one_line(note, limits.name) for note in run.notes[: limits.lines]),
            cells=tuple(_run_cell(column.cell(run), scales.get(column.name, 0.0), limits) for column in columns),
        )
        for index, run in enumerate(runs)
    )


def _strategies(profile: Profile, limits: Limits) -> tuple[Fact, ...]:
    """What each strategy that ran computes differently, in the workload's own words."""
    ran = {run.key.strategy for run in profile.runs}
    told = [strategy for strategy in profile.strategies if strategy.name in ran and strategy.summary]
    return tuple(
        Fact(name=one_line(strategy.name, limits.name), value=one_line(strategy.summary, 2 * limits.name))
        for strategy in told[: limits.lines]
    )


def _largest(column: summary.Column, runs: Sequence[RunReport]) -> float:
    return max((cell.value or 0.0 for run in runs if (cell := column.cell(run)).measured), default=0.0)


def _run_cell(cell: summary.Cell, scale: float, limits: Limits) -> RunCell:
    return RunCell(
        text=one_line(cell.text, limits.name),
        details=tuple(one_line(detail, limits.name) for detail in cell.details),
        measured=cell.measured,
        sort="" if cell.value is None else repr(cell.value),
        wrong=cell.wrong,
        bar=chart.of_width(cell.value / scale) if scale and cell.value is not None else "",
    )


# ---------------------------------------------------------------- findings


def _findings(profile: Profile, limits: Limits) -> tuple[FindingGroup, ...]:
    """In the Profile's order, which is by level first."""
    rules = {rule.id: rule for rule in profile.rules}
    used: set[str] = set()
    groups: dict[tuple[str, Level], list[FindingLine]] = {}
    for same in grouped(profile.findings[: limits.findings]):
        groups.setdefault((same.first.rule, same.first.level), []).append(
            FindingLine(
                anchor=_finding_anchor(same.first, used),
                runs=tuple(one_line(run, limits.name // 2) for run in same.runs[: limits.lines]),
                message=one_line(same.words, 2 * limits.name),
                location=_location(same.first, limits),
            )
        )
    return tuple(
        FindingGroup(
            rule=rules.get(rule) or _unknown(rule, level, limits),
            level=level.value,
            level_word=LEVEL_WORDS[level],
            lines=tuple(lines),
        )
        for (rule, level), lines in groups.items()
    )


def _finding_anchor(finding: Finding, used: set[str]) -> str:
    base = clip(_NOT_AN_ID.sub("-", f"{finding.rule}-{finding.fingerprint}"), 80).rstrip("\u2026")
    anchor, number = base, 1
    while anchor in used:
        number += 1
        anchor = f"{base}-{number}"
    used.add(anchor)
    return anchor


def _location(finding: Finding, limits: Limits) -> str:
    where = finding.location
    return one_line(f"{where.file}:{where.line} {where.function}".strip(), limits.name) if where else ""


def _unknown(rule: str, level: Level, limits: Limits) -> Rule:
    """For a finding whose rule this Profile does not list (one written by another version)."""
    name = one_line(rule, limits.name)
    return Rule(id=name, name="unknown rule", level=level, summary="", why="", example="", remedy="")


# ---------------------------------------------------------------- compile, observers, gaps


def _compiles(runs: Sequence[RunReport], limits: Limits) -> tuple[CompileLine, ...]:
    return tuple(_compile_line(run, run.compile, limits) for run in runs if isinstance(run.compile, CompileSummary))


def _compile_line(run: RunReport, compiled: CompileSummary, limits: Limits) -> CompileLine:
    seconds = [c.duration_s for c in compiled.compilations if not isinstance(c.duration_s, Skipped)]
    return CompileLine(
        run=run_name(run, limits),
        first_call_s=figure(compiled.first_call_s),
        compilations=count(len(compiled.compilations)),
        compile_s=figure(sum(seconds)) if seconds else DASH,
        steady=_spread_ms(compiled.steady, limits),
        details=tuple(
            (
                one_line(c.compile_id, limits.name),
                one_line(c.function, limits.name),
                one_line(c.location, limits.name),
                _or_reason(c.duration_s, figure, limits),
                one_line(c.fail_reason, limits.name),
            )
            for c in compiled.compilations[: limits.lines]
        ),
    )


def _spread_ms(time: Spread | Skipped, limits: Limits) -> str:
    if isinstance(time, Skipped):
        return one_line(time.reason, limits.name)
    known = [part for part in (ranged(time, 1e-3), sampled(time)) if part]
    return f"{milliseconds(time.median)} ({', '.join(known)})"


def _or_reason(value: float | Skipped, say: Callable[[float], str], limits: Limits) -> str:
    return f"not measured: {one_line(value.reason, limits.name)}" if isinstance(value, Skipped) else say(value)


_OBSERVERS = (PassName.COMPILE, PassName.TRACE, PassName.HOST, PassName.KERNELS)


def _observers(runs: Sequence[RunReport], limits: Limits) -> ObserverTable:
    seen = {cost.observer for run in runs for cost in run.observers}
    passes = tuple(name for name in _OBSERVERS if name in seen)
    rows = []
    for run in runs:
        costs = {cost.observer: cost for cost in run.observers}
        if costs:
            rows.append((run_name(run, limits), tuple(_observer(costs.get(name), limits) for name in passes)))
    return ObserverTable(passes=tuple(name.upper() for name in passes), rows=tuple(rows))


def _observer(cost: ObserverCost | None, limits: Limits) -> tuple[str, str]:
    if cost is None:
        return DASH, "no such pass"
    if isinstance(cost.ratio, Skipped):
        return DASH, one_line(cost.ratio.reason, limits.name)
    return ratio(cost.ratio), f"{count(cost.samples)} steps"


def _gaps(profile: Profile, limits: Limits) -> tuple[Gap, ...]:
    return tuple(
        Gap(
            what=tuple(one_line(what, limits.name) for what in gap.what[: limits.lines]),
            reason=one_line(gap.reason, 2 * limits.name),
            runs=tuple(one_line(run, limits.name) for run in gap.runs[: limits.lines]),
        )
        for gap in gathered(profile.omissions)[: limits.lines]
    )


# ---------------------------------------------------------------- environment, logs


def _environment(profile: Profile, limits: Limits) -> tuple[Fact, ...]:
    environment = profile.environment
    commit = environment.git_commit
    dirty = " with uncommitted changes" if environment.git_dirty is True else ""
    pairs: list[tuple[str, str | Skipped]] = [
        ("device", f"{profile.device}: {environment.device_name}"),
        ("CPU", f"{environment.cpu_name}, {environment.cpu_count} cores usable"),
        ("memory", size(environment.memory_bytes)),
        ("torch", f"{environment.torch}, {environment.torch_threads} threads"),
        ("Triton", environment.triton),
        ("CUDA", environment.cuda),
        ("driver", environment.driver),
        ("Python", environment.python),
        ("C++ compiler", environment.compiler),
        ("platform", environment.platform),
        ("git commit", f"{commit}{dirty}" if isinstance(commit, str) else no_commit(commit)),
        ("kgprof", f"recorded with {environment.kgprof}, read with {profile.kgprof_version}"),
        *environment.flags.items(),
    ]
    return tuple(_fact(name, value, limits) for name, value in pairs[: limits.lines])


_NO_COMMITS = ("not a git repository", "ambiguous argument 'HEAD'", "unknown revision")  # in git's own words


def no_commit(commit: Skipped) -> Skipped:
    """The usual reason in ours; any other as it stands."""
    if any(words in commit.reason for words in _NO_COMMITS):
        return Skipped(reason="no commit: not a git repository with commits")
    return commit


def _fact(name: str, value: str | Skipped, limits: Limits) -> Fact:
    if isinstance(value, Skipped):
        return Fact(name=name, value=one_line(value.reason, limits.name), missing=True)
    return Fact(name=one_line(name, limits.name), value=one_line(value, limits.name))


def _options(profile: Profile, limits: Limits) -> tuple[Fact, ...]:
    options = profile.options
    pairs = (
        ("strategies", ", ".join(options.strategies) or "the workload's own default"),
        ("modes", ", ".join(options.modes) or "the workload's own default"),
        ("device", options.device),
        ("steps, warm-up", f"{options.steps}, {options.warmup}"),
        ("evaluations in TIMING", f"up to {options.evaluations}"),
        ("seed", str(options.seed)),
        ("time limit of a process", f"{figure(options.timeout_s)} s"),
        ("workload's own options", " ".join(options.workload_args) or "none"),
    )
    return tuple(Fact(name=name, value=one_line(value, limits.name)) for name, value in pairs)


def _logs(runs: Sequence[RunReport], limits: Limits) -> tuple[Log, ...]:
    if not limits.log_chars:
        return ()
    written = [(index, run) for index, run in enumerate(runs) if run.log.text]
    each = limits.log_chars // max(1, len(written))
    return tuple(
        Log(
            anchor=anchor(index),
            run=run_name(run, limits),
            size=size(len(run.log.text.encode("utf-8", errors="replace")) + run.log.left_out_bytes),
            text=_middle_out(visible(run.log.text, keep="\n\t"), each),
        )
        for index, run in written
    )


def _middle_out(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {count(len(text) - 2 * half)} characters left out ...]\n{text[-half:]}"


def _left_out(profile: Profile, limits: Limits) -> tuple[str, ...]:
    """What this page does not show of the Profile because of its own limits."""
    found = []
    if len(profile.runs) > limits.runs:
        found.append(f"{count(len(profile.runs) - limits.runs)} of {count(len(profile.runs))} runs")
    if len(profile.findings) > limits.findings:
        found.append(f"{count(len(profile.findings) - limits.findings)} of {count(len(profile.findings))} findings")
    if not limits.log_chars and any(run.log.text for run in profile.runs):
        found.append("the logs")
    if not limits.host_rows and any(isinstance(run.host, HostBreakdown) for run in profile.runs):
        found.append("the host functions")
    found += _cut_tables(profile.runs, limits)
    return tuple(found)


def _cut_tables(runs: Iterable[RunReport], limits: Limits) -> list[str]:
    if limits.kernel_rows >= TOP_KERNELS:
        return []  # the table is of the top ones, and says itself how many more there are
    kernels = sum(
        max(0, min(len(run.kernels.rows), TOP_KERNELS) - limits.kernel_rows)  # the rest is in no page, however small
        for run in runs
        if isinstance(run.kernels, KernelBreakdown)
    )
    return [f"{count(kernels)} kernel names (their sum stands in each table's last rows)"] if kernels else []
