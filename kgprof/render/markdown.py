"""A summary for a pull request: the verdict, one row a run, the findings, where the time went."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render import (
    breakdown,
    compare_words,
    contents_box,
    economics_table,
    gate_table,
    holistic_table,
    memory_table,
    origin_table,
    practices,
    roofline_table,
    summary,
    trace_table,
)
from kgprof.render.environment_facts import cores
from kgprof.render.finding_groups import Grouped, cost_order, grouped
from kgprof.render.gaps import gathered
from kgprof.render.kernel_table import distinct_names
from kgprof.render.looked_for import looked_for
from kgprof.render.quantity import DASH, amount, figure, milliseconds, percent
from kgprof.render.table import markdown as printed
from kgprof.render.visible import CELL, escaped
from kgprof.wording import relative

LIMIT = 60_000  # characters; GitHub refuses a comment of more than 65,536
_RESERVE = 200  # for the lines that say what was cut
FINDINGS = 10  # places that stand open; the others are folded
_MORE_FINDINGS = 200  # of those; report.json holds the rest
_METRICS = 8  # columns of the table of runs
_COMPARED = 8  # rows of compared metrics, and of what else differs
_KERNELS = 10  # rows of kernels; the page holds more
_KERNEL_NAME = 60  # characters, more where two would look alike
_COLUMNS = ("step", "unit", "evaluation", "rounds", "speed-up", "results", "finished", "metrics", "first call")
_SYMBOLS = {"ok": "✅", "attention": "⚠️", "failed": "❌", "inconclusive": "❔"}
_LEVELS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}  # noqa: RUF001 - the sign itself is meant
_ADDRESS = re.compile(r"https://[A-Za-z0-9._~:/?#@!$&*+,;=%-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Head and tail stand or fall together; rows are cut from the end."""

    head: tuple[str, ...]
    rows: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    noun: str = "rows"
    opens: tuple[str, ...] = ()  # what must follow once this section is there, wherever the text is cut
    closes: bool = False


class Markdown:
    """For a comment, of at most LIMIT characters; a job summary may have more, and counts bytes.

    ``report_url``: where the whole report can be had, a page that whoever asks for it knows.
    """

    name = "markdown"
    suffix = ".md"

    def __init__(self, *, limit: int = LIMIT, in_bytes: bool = False, report_url: str = "") -> None:
        self._limit = limit
        self._size = _bytes if in_bytes else len
        self._report_url = report_url

    def render(self, profile: m.Profile) -> str:
        runs = _traces(profile) if profile.trace_files else _runs(profile)
        findings = _findings(profile)
        open_to_all = (
            _verdict(profile),
            _link(self._report_url),
            *_compared(profile),
            *(() if profile.comparison else (runs,)),
            _ranks(profile),
            *(_difference(one) for one in profile.differences),
            _budgets(profile),
            *(() if profile.comparison else (findings,)),
            _accepted(profile),
        )
        details = (
            *((runs, findings) if profile.comparison else ()),
            _trade_offs(profile),
            _economics(profile),
            _checklist(profile),
            _time(profile),
            _origins(profile),
            _holistic(profile),
            _memory(profile),
        )
        folded = (_roofline(profile), _more_findings(profile), _gaps(profile))
        last = (_contents(profile), _environment(profile))
        sections = (*open_to_all, *_folded("Details", details), *folded)
        return _fitted(_present(sections), last=_present(last), limit=self._limit, size=self._size)


def _present(sections: Iterable[Section | None]) -> list[Section]:
    return [section for section in sections if section is not None]


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", errors="replace"))


def _fitted(sections: Sequence[Section], *, last: Sequence[Section], limit: int, size: Callable[[str], int]) -> str:
    """Whole sections while they fit; of the first that does not, the rows that do, and a line that says so.

    ``last`` always stands at the end. Whatever is cut, a folded part that was opened is closed.
    """
    end = [line for section in last for line in (*section.head, *section.rows, *section.tail, "")]
    room = limit - _RESERVE - sum(size(line) + 1 for line in end)
    lines: list[str] = []
    closing: list[str] = []
    for section in sections:
        fixed = sum(size(line) + 1 for line in (*section.head, *section.tail)) + 1
        if fixed > room and not section.closes:
            lines.append(
                f"*Cut at {limit:,} {'characters' if size is len else 'bytes'}; report.json holds everything.*"
            )
            lines += ["", *closing]
            break
        rows, cut = _rows_that_fit(section.rows, room - fixed, size)
        body = [*section.head, *rows, *section.tail]
        if cut:
            body.append(f"*{cut:,} more {section.noun} cut; report.json holds them.*")
        lines += [*body, ""]
        room -= sum(size(line) + 1 for line in body) + 1
        closing = [] if section.closes else list(section.opens) or closing
    return "\n".join([*lines, *end]).rstrip("\n") + "\n"


def _folded(title: str, sections: Iterable[Section | None]) -> list[Section]:
    """The sections behind one line that opens them; none where there is none."""
    inside = _present(sections)
    if not inside:
        return []
    close = ("</details>",)
    return [
        Section(head=(f"<details><summary>{title}</summary>",), opens=close),
        *inside,
        Section(head=close, closes=True),
    ]


def _behind(title: str, rows: Iterable[str], *, noun: str = "rows") -> Section:
    """Rows behind one line that opens them."""
    head = (f"<details><summary>{title}</summary>", "")
    return Section(head=head, rows=tuple(rows), tail=("", "</details>"), noun=noun)


def _rows_that_fit(rows: Sequence[str], room: int, size: Callable[[str], int]) -> tuple[list[str], int]:
    kept: list[str] = []
    for row in rows:
        room -= size(row) + 1
        if room < 0:
            break
        kept.append(row)
    return kept, len(rows) - len(kept)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(headings: Sequence[str], *, leading_words: int = 1) -> tuple[str, str]:
    rule = [":--" if index < leading_words else "--:" for index in range(len(headings))]
    return _row(headings), _row(rule)


def _verdict(profile: m.Profile) -> Section:
    symbol = _SYMBOLS.get(profile.verdict.status, "❔")
    title = f"### kgprof: {escaped(profile.workload)} on {escaped(profile.environment.device_name)}"
    status = f"{symbol} **{escaped(profile.verdict.status.upper())}** {escaped(profile.verdict.text, 600)}"
    said, more = summary.reasons(profile)
    reasons = [f"- {escaped(reason, 600)}" for reason in said] + ([f"- {more:,} more"] if more else [])
    return Section(head=(title, "", status, ""), rows=tuple(reasons), noun="reasons")


def _link(url: str) -> Section | None:
    """Of what is no address nothing is made."""
    return Section(head=(f"[The whole report]({url})",)) if _ADDRESS.fullmatch(url) else None


def _runs(profile: m.Profile) -> Section:
    shown = [column for column in summary.columns(profile) if column.key in _COLUMNS][:_METRICS]
    return Section(
        head=_table(["run", *(escaped(column.name) for column in shown)]),
        rows=tuple(_row([_run_name(run), *(_cell(column.cell(run)) for column in shown)]) for run in profile.runs),
        tail=tuple(f"\n<sub>{escaped(note, 600)}</sub>" for note in summary.footnotes(profile)),
        noun="runs",
    )


def _traces(profile: m.Profile) -> Section:
    """The files, in place of runs that were timed."""
    limits = trace_table.IN_TEXT
    lines = trace_table.file_lines(profile, limits)
    notes = (f"<sub>{escaped(line.cells[0])}: {escaped(note, 600)}</sub>" for line in lines for note in line.notes)
    return Section(
        head=_table(trace_table.FILE_HEADINGS, leading_words=2),
        rows=tuple(_row(map(escaped, line.cells)) for line in lines),
        tail=("", *notes),
        noun="traces",
    )


def _ranks(profile: m.Profile) -> Section | None:
    found = trace_table.rank_table(profile.rank_balance, trace_table.IN_TEXT)
    if found is None:
        return None
    headings = _table(found.table.headings) if found.table.rows else ()
    return Section(
        head=(f"**Ranks**, us per step: {escaped(found.text, 600)}", "", *headings),
        rows=tuple(_row(map(escaped, row)) for row in found.table.rows),
        tail=tuple(
            f"\n<sub>{escaped(said, 600)}</sub>"
            for said in (
                *(f"not compared: {one}" for one in found.left_out),
                *(f"{name}: kgprof {ours}, HTA {hta} ({difference})" for name, ours, hta, difference in found.hta.rows),
                *found.hta_notes,
            )
        ),
        noun="ranks",
    )


def _difference(found: m.TraceDifference) -> Section:
    """By kind, and the kernels that changed most."""
    shown = trace_table.difference_tables(found, trace_table.IN_TEXT, rows=_KERNELS, name=_KERNEL_NAME)
    rows: list[str] = []
    for name, table in shown.tables:
        if name in ("kind", "kernel"):
            rows += ["", *_table(table.headings), *(_row(map(escaped, row)) for row in table.rows)]
    return Section(
        head=(f"**{escaped(shown.title)}**: {escaped(shown.missing or shown.caption, 600)}",), rows=tuple(rows)
    )


def _run_name(run: m.RunReport) -> str:
    ended = summary.ended(run)
    return escaped(run.key.slug) + (f"<br><sub>{escaped(ended)}</sub>" if ended else "")


def _cell(cell: summary.Cell) -> str:
    detail = f"<br><sub>{escaped(cell.detail)}</sub>" if cell.detail and cell.measured else ""
    return escaped(cell.text) + detail


def _budgets(profile: m.Profile) -> Section | None:
    if profile.gate is None or not profile.gate.budgets:
        return None
    rows = tuple(
        _row([escaped(b.run.slug), escaped(b.metric), amount(b.limit, b.unit), escaped(_observed(b)), _status(b)])
        for b in gate_table.by_weight(profile.gate.budgets)
    )
    return Section(
        head=_table(["run", "budget", "limit", "observed", "status"], leading_words=2), rows=rows, noun="budgets"
    )


def _status(budget: m.BudgetCheck) -> str:
    return f"**{escaped(budget.status)}**" if budget.status == "exceeded" else escaped(budget.status)


def _observed(budget: m.BudgetCheck) -> str:
    if isinstance(budget.observed, m.Skipped):
        return f"{DASH} ({budget.observed.reason})"
    accepted = f" ({budget.accepted} accepted)" if budget.accepted else ""
    return amount(budget.observed, budget.unit) + accepted


def _compared(profile: m.Profile) -> Iterable[Section]:
    """Both sides, the likely cause, the metrics that changed, and what is new or fixed among the findings."""
    found = profile.comparison
    if found is None:
        return
    base, head = map(escaped, compare_words.sides(found))
    yield Section(head=(f"**{base}** vs **{head}**. {escaped(compare_words.comparability(found), 400)}",))
    differ = [(change.name, change.base, change.head) for change in found.environment]
    differ += [(change.name, change.base, change.head) for change in found.settings]
    if differ:
        yield Section(
            head=_table(["differs", "base", "head"], leading_words=3),
            rows=tuple(_row(escaped(cell) or DASH for cell in row) for row in differ[:_COMPARED]),
            noun="differences",
        )
    if found.causes:
        yield Section(head=("**Likely cause**", ""), rows=tuple(_causes(found)), noun="causes")
    yield _metrics(found)
    yield from _of_status(found, profile)


def _causes(found: m.Comparison) -> Iterable[str]:
    together = compare_words.unexplained(found.causes)
    for number, cause in enumerate(found.causes, start=1):
        of = f" ({escaped(cause.run.slug)})" if cause.run else ""
        explains = "" if together else f": {escaped(compare_words.explains(cause, found.runs), 400)}"
        yield f"{number}. {escaped(compare_words.cause_text(cause), 400)}{of}{explains}"
    for said in (together, *(compare_words.account(run) for run in found.runs)):
        if said:
            yield f"- {escaped(said, 400)}"


def _metrics(found: m.Comparison) -> Section:
    """What changed or is not settled; the others are a count."""
    metrics = compare_words.metrics_of(found)
    changed = [metric for metric in metrics if metric.verdict in compare_words.CHANGED]
    rest = Counter(metric.verdict for metric in metrics if metric not in changed)
    counted_rest = ", ".join(f"{number:,} {escaped(verdict)}" for verdict, number in rest.items())
    more = f"; {len(changed) - _COMPARED:,} more that changed stand in the report" if len(changed) > _COMPARED else ""
    tail = (f"\n<sub>Further metrics: {counted_rest}{more}.</sub>",) if counted_rest or more else ()
    table = compare_words.metric_table(changed[:_COMPARED])
    shown = table.only("metric", "run", "verdict", "base", "head", "change", "95 % interval")
    head, rows = printed(shown, words=3) if changed else ((), ())
    return Section(head=head, rows=rows, tail=tail, noun="metrics")


def _of_status(found: m.Comparison, profile: m.Profile) -> Iterable[Section]:
    yield Section(head=(f"**Findings: {compare_words.tally(found)}**",))
    for status in (m.FindingStatus.NEW, m.FindingStatus.FIXED):
        groups = compare_words.groups_of(compare_words.of_status(found.findings, status))
        if not groups:
            continue
        more = len(groups) - FINDINGS
        yield Section(
            head=(f"{status.capitalize()}:", ""),
            rows=tuple(_of_comparison(group, status, profile) for group in groups[:FINDINGS]),
            tail=(f"- {more:,} more in the report",) if more > 0 else (),
            noun="findings",
        )


def _of_comparison(group: Grouped, status: m.FindingStatus, profile: m.Profile) -> str:
    if status is m.FindingStatus.FIXED:
        return f"- <s>**{escaped(group.first.rule)}** {_finding(group, profile)}</s>"
    return _finding_line(group, profile)


def _findings(profile: m.Profile) -> Section:
    """Those that nobody accepts; what fails the gate first."""
    if not profile.findings:
        watched = ", ".join(escaped(rule.id) for rule in looked_for(profile))
        return Section(head=(f"No finding (looked for: {watched}).",))
    same = _by_weight(profile)
    more = len(same[FINDINGS:])
    beyond = f", {len(same[FINDINGS + _MORE_FINDINGS :]):,} of them in report.json only"
    folded = f"- {more:,} more below{beyond if more > _MORE_FINDINGS else ''}"
    return Section(
        head=(f"**Findings ({len(profile.findings):,})**", ""),
        rows=tuple(_finding_line(group, profile) for group in same[:FINDINGS]),
        tail=(folded,) if more else (),
        noun="findings",
    )


def _more_findings(profile: m.Profile) -> Section | None:
    rest = _by_weight(profile)[FINDINGS : FINDINGS + _MORE_FINDINGS]
    if not rest:
        return None
    return _behind("More findings", (_finding_line(group, profile) for group in rest), noun="findings")


def _by_weight(profile: m.Profile) -> list[Grouped]:
    failing = {profile.findings[i] for i in profile.gate.failing} if profile.gate else frozenset()
    same = [group for group in grouped(profile.findings) if not group.first.accepted]
    levels = tuple(m.Level)
    return sorted(
        same,
        key=lambda group: (
            failing.isdisjoint(group.members),
            levels.index(group.first.level),
            *cost_order(group.members),
        ),
    )


def _finding_line(group: Grouped, profile: m.Profile) -> str:
    return f"- {_LEVELS[group.first.level]} **{escaped(group.first.rule)}** {_finding(group, profile)}"


def _finding(group: Grouped, profile: m.Profile) -> str:
    place = group.first.location
    where = f"{relative(place.file, profile.environment.source_root)}:{place.line}: " if place else ""
    times = f" ({group.times})" if group.times else ""
    cost = f"; {escaped(f'costs {group.cost}', 200)}" if group.cost else ""
    return escaped(f"{where}{group.message}{times}", 400) + cost


def _accepted(profile: m.Profile) -> Section | None:
    groups = [group for group in grouped(profile.findings) if group.first.accepted]
    entries = profile.gate.accepted if profile.gate else profile.accepted
    expired = [entry for entry in entries if entry.status == "expired"]
    if not groups and not expired:
        return None
    rows = [
        f"- <s>**{escaped(group.first.rule)}** {_finding(group, profile)}</s> accepted by "
        f"{escaped(group.first.accepted, 400)}"
        for group in groups
    ]
    rows += [
        f"- expired on {escaped(entry.expires)}: {escaped(f'{entry.rule} in {entry.file} {entry.function}')} "
        f"({escaped(entry.owner)}: {escaped(entry.reason)})"
        for entry in expired
    ]
    return _behind("Accepted findings", rows, noun="accepted findings")


def _trade_offs(profile: m.Profile) -> Section | None:
    if not profile.trade_offs:
        return None
    rows = tuple(f"- **{escaped(weighed.verdict)}**: {escaped(weighed.text, 400)}" for weighed in profile.trade_offs)
    return Section(head=("**Trade-offs**", ""), rows=rows, noun="trade-offs")


def _economics(profile: m.Profile) -> Section | None:
    """Of the runs that pay; the others are findings."""
    rows = tuple(f"- {escaped(said, 600)}" for said in economics_table.sentences(profile))
    return Section(head=("**Economics**", ""), rows=rows, noun="runs") if rows else None


def _checklist(profile: m.Profile) -> Section | None:
    """What failed; the rest is a count."""
    if not profile.checklist:
        return None
    failed = tuple(
        f"- {escaped(item.title)}: {escaped(item.evidence, 400)}" for item in profile.checklist if item.status == "fail"
    )
    head = f"**Checklist**: {practices.tally(profile.checklist)}"
    return Section(head=(head, ""), rows=failed, noun="items")


def _memory(profile: m.Profile) -> Section | None:
    columns = memory_table.columns(profile.runs)
    if not columns:
        return None
    return Section(
        head=("**Reads and memory**", "", *_table(["run", *(column.name for column in columns)])),
        rows=tuple(
            _row([escaped(run.key.slug), *(_cell(column.cell(run)) for column in columns)]) for run in profile.runs
        ),
        noun="runs",
    )


def _time(profile: m.Profile) -> Section | None:
    broken_down = [(run, run.kernels) for run in profile.runs if isinstance(run.kernels, m.KernelBreakdown)]
    if not broken_down:
        return None
    present = {part.kind for _, kernels in broken_down for part in breakdown.parts(kernels)}
    kinds = [kind for kind, _, _ in breakdown.KINDS if kind in present]
    return Section(
        head=(
            "**Where the time went** (ms per traced step; idle includes the profiler's own cost)",
            "",
            *_table(["run", *(breakdown.NAMES[kind] for kind in kinds), "step"]),
        ),
        rows=tuple(_row(_time_cells(run, kernels, kinds)) for run, kernels in broken_down),
        noun="runs",
    )


def _time_cells(run: m.RunReport, kernels: m.KernelBreakdown, kinds: Sequence[str]) -> list[str]:
    found = {part.kind: part for part in breakdown.parts(kernels)}
    cells = [
        f"{milliseconds(found[kind].per_step_us)} ({percent(found[kind].share)})"
        if kind in found
        else breakdown.without_kernel(kernels, kind)
        for kind in kinds
    ]
    return [escaped(run.key.slug), *cells, milliseconds(kernels.window_us / breakdown.steps_of(kernels))]


def _origins(profile: m.Profile) -> Section | None:
    broken_down = [(run, run.kernels) for run in profile.runs if isinstance(run.kernels, m.KernelBreakdown)]
    if not broken_down:
        return None
    rows = tuple(
        f"- {escaped(run.key.slug)}: {escaped(_origin(kernels, profile.environment.source_root), 1500)}"
        for run, kernels in broken_down
    )
    return Section(head=("**Source lines of the kernels**", ""), rows=rows, noun="runs")


def _origin(kernels: m.KernelBreakdown, root: str) -> str:
    """What is known, the lines of the largest kernel that has any, why the device was idle, and the host's step."""
    said = [origin_table.known(kernels)]
    if largest := next((row for row in kernels.rows if row.lines), None):
        more = f" and {len(largest.lines) - 1} more" if len(largest.lines) > 1 else ""
        said.append(f"largest kernel with lines: {origin_table.place(largest.lines[0], root, 200)}{more}")
    sentences = (
        origin_table.idle_sentence(kernels),
        origin_table.input_copies_sentence(kernels),
        origin_table.host_sentence(kernels),
        origin_table.queue_sentence(kernels),
    )
    said += [sentence for sentence in sentences if sentence]
    return "; ".join(said)


def _roofline(profile: m.Profile) -> Section | None:
    """The largest kernels of the run of which most could be placed, and how much of each run was."""
    found = roofline_table.placed(profile.runs)
    if not found:
        return None
    _, run, _, roofline = max(found, key=lambda one: one[3].placed_us / (one[2].total_us or 1.0))
    shown = roofline.rows[:_KERNELS]
    names = distinct_names([row.name for row in shown], _KERNEL_NAME, CELL)
    ceilings = ", ".join(
        f"{roofline_table.ceiling_name(one)} {roofline_table.rate(one.median, one.unit)}" for one in roofline.ceilings
    )
    against = f"Measured on this card: {ceilings}" if ceilings else f"No ceilings: {roofline.without}"
    said = (f"- {escaped(each.key.slug)}: {escaped(roofline_table.sentence(k, r), 400)}" for _, each, k, r in found)
    return Section(
        head=(
            f"<details><summary>The largest kernels of {escaped(run.key.slug)} against the card</summary>",
            "",
            f"<sub>{escaped(against, 600)}.</sub>",
            "",
            *_table(["kernel", "bound by", "median us", "GB/s", "TFLOP/s", "registers", "occupancy"], leading_words=2),
        ),
        rows=tuple(_row(_launch_cells(name, row)) for name, row in zip(names, shown, strict=True)),
        tail=("", *said, "", "</details>"),
        noun="kernels",
    )


def _launch_cells(name: str, row: m.KernelLaunches) -> list[str]:
    bound = roofline_table.bound(row, CELL)
    figures = (roofline_table.gigabytes(row, CELL), roofline_table.teraflops(row, CELL))
    registers = DASH if isinstance(row.registers, m.Skipped) else f"{row.registers:,}"
    return [
        escaped(name),
        escaped(f"{bound.text} ({bound.below})" if bound.below else bound.text),
        figure(row.median_us),
        *(escaped(cell.text) for cell in figures),
        registers,
        escaped(roofline_table.occupancy(row, CELL).text),
    ]


def _holistic(profile: m.Profile) -> Section | None:
    """Kernel and idle time, and what differs; then what HTA was not asked, or did not say."""
    compared = holistic_table.compared(profile.runs)
    if not compared:
        return None
    reasons: dict[str, None] = {}
    for _, found in compared:
        reasons.update({f"{call.name} {call.outcome}: {call.reason}": None for call in found.calls if call.reason})
    tail = (f"\n<sub>HTA: {escaped('; '.join(reasons), 2000)}</sub>",) if reasons else ()
    return Section(
        head=("**Held against HTA** (HolisticTraceAnalysis; the difference is HTA's less ours)", ""),
        rows=tuple(
            f"- {escaped(run.key.slug)}: {escaped(holistic_table.sentence(found), 600)}" for run, found in compared
        ),
        tail=tail,
        noun="runs",
    )


def _gaps(profile: m.Profile) -> Section | None:
    gaps = gathered(profile.omissions)
    if not gaps:
        return None
    rows = []
    for gap in gaps:
        runs = f" ({escaped(', '.join(gap.runs))})" if gap.runs else ""
        rows.append(f"- {escaped(', '.join(gap.what))}: {escaped(gap.reason, 400)}{runs}")
    return _behind("Not measured", rows, noun="lines")


def _contents(profile: m.Profile) -> Section:
    """What a reader should know before this is shown to others."""
    facts = contents_box.facts(profile)
    return _behind(contents_box.TITLE, (f"- {escaped(fact.name)}: {escaped(fact.value, 600)}" for fact in facts))


def _environment(profile: m.Profile) -> Section:
    environment = profile.environment
    commit = environment.git_commit if isinstance(environment.git_commit, str) else "no git commit"
    facts = (
        f"torch {environment.torch}",
        f"Python {environment.python}",
        *cores(environment),
        f"seed {profile.options.seed}",
        commit + (" with changes" if environment.git_dirty is True else ""),
        profile.created_utc,
    )
    command = f"<sub>Again: {escaped(shlex.join(profile.command), 600)}</sub>"
    return Section(head=(f"<sub>{escaped(', '.join(facts), 600)}</sub>", "", command))
