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
    Evaluation,
    Finding,
    HostBreakdown,
    HostRow,
    KernelBreakdown,
    KernelRow,
    Level,
    ObserverCost,
    PassName,
    Profile,
    Rule,
    RunReport,
    Skipped,
    Spread,
)
from kgprof.render import breakdown, summary
from kgprof.render.gaps import Gap, gathered
from kgprof.render.quantity import DASH, count, figure, fixed, milliseconds, percent, ratio, size, span
from kgprof.render.visible import clip, one_line, visible

SYMBOLS = {"ok": "\u2713", "attention": "!", "failed": "\u2715", "inconclusive": "?"}
STATUS_WORDS = {"ok": "OK", "attention": "Attention", "failed": "Failed", "inconclusive": "Inconclusive"}
LEVEL_WORDS = {"error": "Error", "warning": "Warning", "note": "Note"}
# One letter a kind, so that a bar can be read without its colours.
LETTERS = {
    "gemm": "G",
    "normalisation": "N",
    "pointwise": "P",
    "index": "I",
    "copy": "C",
    "framework": "F",
    "other": "O",
    breakdown.IDLE: "",
}
_LETTER_FROM = 0.025  # of the bar's width: narrower segments carry no letter
_SHARE_FROM = 0.05  # from here on the share fits too on a wide screen
_SHARE_ALWAYS_FROM = 0.14  # and from here on also on a phone
_NOT_AN_ID = re.compile(r"[^A-Za-z0-9_-]+")
_NOISE_IN_NAMES = ("void ", "at::native::", "(anonymous namespace)::", "at_cuda_detail::")
_SHORT_NAME = 110
_KEPT_END = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of each the page may hold. What is beyond is in report.json, and the page says so."""

    log_chars: int  # of all runs together
    host_rows: int  # a run
    kernel_rows: int  # a run
    findings: int
    runs: int
    name: int  # characters of any one name or message
    lines: int  # rows of any other table: compilations, gaps, flags, settings


# ---------------------------------------------------------------- the page's parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    name: str
    value: str
    missing: bool = False


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
class Segment:
    kind: str
    x: str
    width: str
    middle: str
    letter: str
    share: str
    wide: bool  # the share fits on a wide screen only


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    anchor: str
    run: str
    caption: str
    description: str  # the bar in words
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendEntry:
    kind: str
    letter: str
    name: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTable:
    kinds: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    rank: str
    name: str
    full_name: str  # empty where ``name`` already is the whole
    kind: str
    letter: str
    generator: str
    ops: tuple[str, ...]
    count: str
    total_ms: str
    share: str
    share_width: str
    median_us: str
    extremes_us: str
    sort: tuple[str, str, str, str]  # count, total, share, median


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    anchor: str
    run: str
    caption: str
    unit: str
    lines: tuple[KernelLine, ...]
    rest: tuple[str, str, str, str]  # how many, count, total, share; empty strings when there is no rest
    total: tuple[str, str]  # count, total
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLine:
    function: str
    place: str
    calls: str
    self_ms: str
    share: str
    cumulative_ms: str
    sort: tuple[str, str, str, str]  # calls, self, share, cumulative


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTable:
    anchor: str
    run: str
    caption: str
    lines: tuple[HostLine, ...]
    rest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingLine:
    anchor: str
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
class Table:
    """A plain table: the first column names the row."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


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
        baseline=one_line(profile.baseline.slug, limits.name) if profile.baseline else "",
        bars=_bars(runs, limits),
        bar_scale_ms=milliseconds(_scale_us(runs)),
        legend=_legend(runs),
        time_table=_time_table(runs, limits),
        findings=_findings(profile, limits),
        finding_count=len(profile.findings),
        rules=profile.rules,
        kernels=_kernel_tables(runs, limits),
        hosts=_host_tables(runs, limits),
        evaluations=_evaluations(runs, limits),
        metrics=_metrics(runs, limits),
        settings=_settings(runs, limits),
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


def _anchor(run_index: int) -> str:
    """Run names may hold anything, so anchors count."""
    return f"run-{run_index + 1}"


def _slug(run: RunReport, limits: Limits) -> str:
    return one_line(run.key.slug, limits.name)


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
    scales = {column.name: _largest(column, runs) for column in columns if column.name in ("ms/step", "ms/candidate")}
    return tuple(
        RunLine(
            anchor=_anchor(index),
            strategy=one_line(run.key.strategy, limits.name // 4),
            mode=one_line(run.key.mode, limits.name // 4),
            baseline=run.is_baseline,
            ended=one_line(summary.ended(run), 2 * limits.name),
            notes=tuple(one_line(note, limits.name) for note in run.notes[: limits.lines]),
            cells=tuple(_run_cell(column.cell(run), scales.get(column.name, 0.0), limits) for column in columns),
        )
        for index, run in enumerate(runs)
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
        bar=_width(cell.value / scale) if scale and cell.value is not None else "",
    )


def _width(share: float) -> str:
    """An SVG length: per cent of the element's width, so that geometry needs neither style nor script."""
    return f"{100 * min(max(share, 0.0), 1.0):.3f}%"


# ---------------------------------------------------------------- where the time went


def _broken_down(runs: Sequence[RunReport]) -> list[tuple[int, RunReport, KernelBreakdown]]:
    return [(i, run, run.kernels) for i, run in enumerate(runs) if isinstance(run.kernels, KernelBreakdown)]


def _scale_us(runs: Sequence[RunReport]) -> float:
    """Length of the longest bar, a step. Kernels that overlap can make a bar longer than its window."""
    return max(
        (sum(part.per_step_us for part in breakdown.parts(kernels)) for _, _, kernels in _broken_down(runs)),
        default=0.0,
    )


def _bars(runs: Sequence[RunReport], limits: Limits) -> tuple[Bar, ...]:
    scale = _scale_us(runs) or 1.0
    return tuple(_bar(index, run, kernels, scale, limits) for index, run, kernels in _broken_down(runs))


def _bar(index: int, run: RunReport, kernels: KernelBreakdown, scale: float, limits: Limits) -> Bar:
    found = breakdown.parts(kernels)
    steps = breakdown.steps_of(kernels)
    words = [
        f"{breakdown.NAMES[part.kind]} {milliseconds(part.per_step_us)} ms ({percent(part.share)})" for part in found
    ]
    return Bar(
        anchor=_anchor(index),
        run=_slug(run, limits),
        caption=_bar_caption(run, kernels),
        description=f"{milliseconds(kernels.window_us / steps)} ms per step: {', '.join(words)}",
        segments=_segments(found, scale),
    )


def _segments(found: Sequence[breakdown.Part], scale: float) -> tuple[Segment, ...]:
    segments = []
    x = 0.0
    for part in found:
        width = part.per_step_us / scale
        segments.append(
            Segment(
                kind=part.kind,
                x=_width(x),
                width=_width(width),
                middle=_width(x + width / 2),
                letter=LETTERS[part.kind] if width >= _LETTER_FROM else "",
                share=f"{100 * part.share:.0f} %" if width >= _SHARE_FROM else "",
                wide=width < _SHARE_ALWAYS_FROM,
            )
        )
        x += width
    return tuple(segments)


def _bar_caption(run: RunReport, kernels: KernelBreakdown) -> str:
    steps = breakdown.steps_of(kernels)
    said = [f"{milliseconds(kernels.window_us / steps)} ms/step", f"busy {percent(_busy(kernels))}"]
    if isinstance(kernels.launches, int):
        said.append(f"{figure(kernels.launches / steps)} launches/step")
    said.append(f"{kernels.measured_in.upper()} pass, {count(kernels.steps)} steps")
    watched = next((cost.ratio for cost in run.observers if cost.observer is kernels.measured_in), None)
    if isinstance(watched, float):
        said.append(f"{ratio(watched)} the bare step")
    return ", ".join(said)


def _busy(kernels: KernelBreakdown) -> float:
    return kernels.busy_us / kernels.window_us if kernels.window_us else 0.0


def _present_kinds(runs: Sequence[RunReport]) -> tuple[str, ...]:
    present = {part.kind for _, _, kernels in _broken_down(runs) for part in breakdown.parts(kernels)}
    return tuple(str(kind) for kind, _, _ in breakdown.KINDS if kind in present)


def _legend(runs: Sequence[RunReport]) -> tuple[LegendEntry, ...]:
    present = _present_kinds(runs)
    return tuple(
        LegendEntry(kind=str(kind), letter=LETTERS[kind], name=name, meaning=meaning)
        for kind, name, meaning in breakdown.KINDS
        if kind in present
    )


def _time_table(runs: Sequence[RunReport], limits: Limits) -> TimeTable:
    kinds = _present_kinds(runs)
    rows = []
    for _, run, kernels in _broken_down(runs):
        found = {part.kind: part for part in breakdown.parts(kernels)}
        cells = [milliseconds(found[kind].per_step_us) if kind in found else DASH for kind in kinds]
        total = milliseconds(kernels.window_us / breakdown.steps_of(kernels))
        rows.append((_slug(run, limits), (*cells, total)))
    return TimeTable(kinds=tuple(breakdown.NAMES[kind] for kind in kinds), rows=tuple(rows))


# ---------------------------------------------------------------- kernels


def _kernel_tables(runs: Sequence[RunReport], limits: Limits) -> tuple[KernelTable, ...]:
    return tuple(
        KernelTable(
            anchor=_anchor(index),
            run=_slug(run, limits),
            caption=_kernel_caption(kernels),
            unit=breakdown.unit(kernels),
            lines=tuple(
                _kernel_line(rank, row, limits) for rank, row in enumerate(kernels.rows[: limits.kernel_rows], start=1)
            ),
            rest=_kernel_rest(kernels.rows[limits.kernel_rows :]),
            total=(count(sum(row.count for row in kernels.rows)), milliseconds(kernels.total_us)),
            warnings=tuple(one_line(warning, 2 * limits.name) for warning in kernels.warnings[: limits.lines]),
        )
        for index, run, kernels in _broken_down(runs)
    )


def _kernel_caption(kernels: KernelBreakdown) -> str:
    names = f"{count(len(kernels.rows))} {'name' if len(kernels.rows) == 1 else 'names'}"
    return (
        f"{names}, {milliseconds(kernels.total_us)} ms of {breakdown.unit(kernels)} in {count(kernels.steps)} steps, "
        f"{kernels.measured_in.upper()} pass"
    )


def _kernel_line(rank: int, row: KernelRow, limits: Limits) -> KernelLine:
    whole = one_line(row.name, limits.name)
    name = short_name(whole)
    return KernelLine(
        rank=count(rank),
        name=name,
        full_name=whole if whole != name else "",
        kind=row.kind.value,
        letter=LETTERS[row.kind],
        generator=one_line(row.generator, limits.name),
        ops=tuple(one_line(op, limits.name) for op in row.ops[: limits.lines]),
        count=count(row.count),
        total_ms=milliseconds(row.total_us),
        share=percent(row.share),
        share_width=_width(row.share),
        median_us=figure(row.median_us),
        extremes_us=span(figure(row.min_us), figure(row.max_us)),
        sort=(repr(row.count), repr(row.total_us), repr(row.share), repr(row.median_us)),
    )


def short_name(name: str) -> str:
    """A C++ name without what all of them share; what is still too long loses its middle, for Inductor's generated
    names are told apart by the number at their end."""
    for noise in _NOISE_IN_NAMES:
        name = name.replace(noise, "")
    if len(name) <= _SHORT_NAME:
        return name
    return f"{name[: _SHORT_NAME - _KEPT_END - 1]}\N{HORIZONTAL ELLIPSIS}{name[-_KEPT_END:]}"


def _kernel_rest(rest: Sequence[KernelRow]) -> tuple[str, str, str, str]:
    if not rest:
        return ("", "", "", "")
    return (
        count(len(rest)),
        count(sum(row.count for row in rest)),
        milliseconds(sum(row.total_us for row in rest)),
        percent(sum(row.share for row in rest)),
    )


# ---------------------------------------------------------------- host


def _host_tables(runs: Sequence[RunReport], limits: Limits) -> tuple[HostTable, ...]:
    return tuple(
        HostTable(
            anchor=_anchor(index),
            run=_slug(run, limits),
            caption=f"{milliseconds(host.total_self_us)} ms in {count(host.steps)} steps under cProfile, HOST pass",
            lines=tuple(_host_line(row, host, limits) for row in host.rows[: limits.host_rows]),
            rest=_host_rest(host, limits),
        )
        for index, run in enumerate(runs)
        if isinstance(host := run.host, HostBreakdown)
    )


def _host_line(row: HostRow, host: HostBreakdown, limits: Limits) -> HostLine:
    share = row.self_us / host.total_self_us if host.total_self_us else 0.0
    # cProfile files what is written in C under "~", without a line.
    place = "built-in" if row.file in ("", "~") else f"{row.file}:{row.line}" if row.line else row.file
    return HostLine(
        function=one_line(row.function, limits.name),
        place=one_line(place, limits.name),
        calls=count(row.calls),
        self_ms=milliseconds(row.self_us),
        share=percent(share),
        cumulative_ms=milliseconds(row.cumulative_us),
        sort=(repr(row.calls), repr(row.self_us), repr(share), repr(row.cumulative_us)),
    )


def _host_rest(host: HostBreakdown, limits: Limits) -> str:
    shown = host.rows[: limits.host_rows]
    others = len(host.rows) - len(shown) + host.rows_left_out
    if not others:
        return ""
    remaining = max(0.0, host.total_self_us - sum(row.self_us for row in shown))
    return f"{count(others)} more functions: {milliseconds(remaining)} ms"


# ---------------------------------------------------------------- findings


def _findings(profile: Profile, limits: Limits) -> tuple[FindingGroup, ...]:
    """In the Profile's order, which is by level first."""
    rules = {rule.id: rule for rule in profile.rules}
    used: set[str] = set()
    groups: dict[tuple[str, Level], list[FindingLine]] = {}
    for finding in profile.findings[: limits.findings]:
        groups.setdefault((finding.rule, finding.level), []).append(
            FindingLine(
                anchor=_finding_anchor(finding, used),
                message=one_line(finding.message, 2 * limits.name),
                location=_location(finding, limits),
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


# ---------------------------------------------------------------- evaluation

_CLASS_HEADINGS = (
    "run",
    "candidates",
    "proved",
    "of these in > 2 steps",
    "failed",
    "depth-truncated",
    "overflow",
    "unfinished",
    "invalid (padding)",
    "steps",
    "atoms dropped",
    "children dropped",
    "facts dropped",
    "rules dropped",
    "NaN scores",
)


def _evaluated(runs: Sequence[RunReport]) -> list[tuple[RunReport, Evaluation]]:
    return [(run, run.evaluation) for run in runs if isinstance(run.evaluation, Evaluation)]


def _evaluations(runs: Sequence[RunReport], limits: Limits) -> Table:
    rows = []
    for run, evaluation in _evaluated(runs):
        dropped = evaluation.dropped
        numbers = (
            evaluation.candidates,
            evaluation.proved,
            evaluation.deep,
            evaluation.failed,
            evaluation.depth_truncated,
            evaluation.overflow,
            evaluation.unfinished,
            evaluation.invalid,
            evaluation.steps,
            dropped.atoms,
            dropped.children,
            dropped.facts,
            dropped.rules,
            evaluation.nan_scores,
        )
        rows.append((_slug(run, limits), *(count(number) for number in numbers)))
    return Table(headings=_CLASS_HEADINGS, rows=tuple(rows))


def _metrics(runs: Sequence[RunReport], limits: Limits) -> Table:
    """Every side under every tie rule; runs with the same figures share their rows."""
    by_figures: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for run, evaluation in _evaluated(runs):
        figures = tuple(
            (
                one_line(metric.side, limits.name),
                one_line(metric.ties, limits.name),
                count(metric.queries),
                fixed(metric.mrr, 4),
                fixed(metric.hits_at_1, 4),
                fixed(metric.hits_at_3, 4),
                fixed(metric.hits_at_10, 4),
            )
            for metric in evaluation.metrics[: limits.lines]
        )
        by_figures.setdefault(figures, []).append(_slug(run, limits))
    rows = [(_listed(names), *figures) for rows, names in by_figures.items() for figures in rows]
    headings = ("runs", "side", "ties", "ranks", "MRR", "Hits@1", "Hits@3", "Hits@10")
    return Table(headings=headings, rows=tuple(rows))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} others with the same figures"


def _settings(runs: Sequence[RunReport], limits: Limits) -> tuple[Fact, ...]:
    """Once where all runs agree, else each value with its runs."""
    values: dict[str, dict[str, list[str]]] = {}
    evaluated = _evaluated(runs)
    for run, evaluation in evaluated:
        for name, value in evaluation.settings.items():
            values.setdefault(name, {}).setdefault(value, []).append(_slug(run, limits))
    facts = []
    for name, by_value in list(values.items())[: limits.lines]:
        if len(by_value) == 1:
            said = next(iter(by_value))
        else:
            said = "; ".join(f"{value} ({', '.join(names)})" for value, names in by_value.items())
        facts.append(Fact(name=one_line(name, limits.name), value=one_line(said, 2 * limits.name)))
    return tuple(facts)


# ---------------------------------------------------------------- compile, observers, gaps


def _compiles(runs: Sequence[RunReport], limits: Limits) -> tuple[CompileLine, ...]:
    return tuple(_compile_line(run, run.compile, limits) for run in runs if isinstance(run.compile, CompileSummary))


def _compile_line(run: RunReport, compiled: CompileSummary, limits: Limits) -> CompileLine:
    seconds = [c.duration_s for c in compiled.compilations if not isinstance(c.duration_s, Skipped)]
    return CompileLine(
        run=_slug(run, limits),
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
    return (
        f"{milliseconds(time.median)} ({span(milliseconds(time.p10), milliseconds(time.p90))}, {count(time.samples)})"
    )


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
            rows.append((_slug(run, limits), tuple(_observer(costs.get(name), limits) for name in passes)))
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
        ("git commit", f"{commit}{dirty}" if isinstance(commit, str) else commit),
        ("kgprof", f"recorded with {environment.kgprof}, read with {profile.kgprof_version}"),
        *environment.flags.items(),
    ]
    return tuple(_fact(name, value, limits) for name, value in pairs[: limits.lines])


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
            anchor=_anchor(index),
            run=_slug(run, limits),
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
    kernels = sum(
        max(0, len(run.kernels.rows) - limits.kernel_rows) for run in runs if isinstance(run.kernels, KernelBreakdown)
    )
    return [f"{count(kernels)} kernel names (their sum stands in each table's last rows)"] if kernels else []
