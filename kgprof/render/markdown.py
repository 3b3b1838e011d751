"""A summary for a pull request: what a reviewer sees before anything is opened, a line of verdict,
three rows, the cause and the fix; everything else is folded."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import quote

from msgspec.structs import replace

from kgprof import coverage
from kgprof import model as m
from kgprof.measures.times import ranked, said
from kgprof.render import (
    account,
    breakdown,
    compare_words,
    economics_table,
    environment_facts,
    gate_table,
    kernel_table,
    limit_table,
    memory_table,
    practices,
    region_table,
    roofline_table,
    summary,
    trace_table,
)
from kgprof.render.environment_facts import cores, gathered
from kgprof.render.escaping import CELL, clip, escaped, one_line
from kgprof.render.finding_list import Grouped, cost_order, failing, grouped
from kgprof.render.quantity import DASH
from kgprof.render.table import Block, Table, View, plain
from kgprof.render.table import markdown as printed
from kgprof.wording import and_more, figure, plural, ranges, relative

ADDRESS = re.compile(r"https://[A-Za-z0-9._~:/?#@!$&*+,;=%-]+")
# characters: of the first line, of cause and fix, of a name
VERDICT, _STATED, _NAMED = 220, 240, 60
_ROWS = 3
_SYMBOLS = {"ok": "✅", "attention": "⚠️", "failed": "❌", "inconclusive": "❔"}
_STATUS = {"attention": "Attention", "failed": "Failed", "inconclusive": "Inconclusive"}
# src/step.py:41, step(), .item(), mode='default', torch.where, fused.reduce-overhead, fused_add_3
_CODE = re.compile(
    r"(?<![\w/.-])[\w./-]*\w\.py(?::\d+(?:[-,]\d+)*)?\b|\.?\b[A-Za-z_][\w.]{0,200}\([^()\s`]*\)|"
    r"\b[A-Za-z]\w*=(?:'[^'`]*'|True\b|False\b)|\b[A-Za-z_]\w*(?:\.\w+)+(?:-\w+)*|\b[A-Za-z]\w*_\w+\b"
)


def blob(profile: m.Profile, source_url: str) -> str:
    """What the address of a file of the repository begins with, at the commit that was measured;
    empty: not known."""
    commit, dirty = profile.environment.git_commit, profile.environment.git_dirty
    known = ADDRESS.fullmatch(source_url) and isinstance(commit, str) and dirty is False
    return f"{source_url}/blob/{commit}/" if known else ""


class Front:
    """``source_url``: the repository's, from which a line of it can be linked at the commit that
    was measured."""

    def __init__(self, profile: m.Profile, source_url: str = "") -> None:
        self._profile = profile
        self._blob = blob(profile, source_url)

    def lines(self) -> Iterator[str]:
        """Under 1,500 characters, whatever is in the Profile."""
        profile, verdict = self._profile, self._profile.verdict
        device = escaped(profile.environment.device_name, _NAMED)
        yield f"### kgprof: {code(profile.workload, _NAMED)} on {device}"
        yield ""
        status = (
            "Regression"
            if profile.comparison and verdict.status == "failed"
            else _STATUS.get(verdict.status, "")
        )
        lead = f"{escaped(verdict.lead, _STATED)}; " if verdict.lead else ""
        marked = f"**{status}:** " if status else ""
        yield f"{_SYMBOLS.get(verdict.status, '❔')} {marked}{lead}{prose(verdict.text, VERDICT)}"
        yield ""
        if rows := [*self._rows()]:
            head, *others = rows
            yield f"| {' | '.join(head)} |"
            yield f"| {' | '.join((':--', *('--:' for _ in head[1:])))} |"
            yield from (f"| {' | '.join(row)} |" for row in others)
            yield ""
        yield from (f"**{name}:** {text}\n" for name, text in self._why() if text)

    def folded(self) -> str:
        runs, findings = len(self._profile.runs), len(self._profile.findings)
        return f"All details: {plural(runs, 'run')}, {plural(findings, 'finding')}"

    # ---------------------------------------------------------------- three rows

    def _rows(self) -> Iterator[tuple[str, ...]]:
        profile = self._profile
        if profile.comparison is not None:
            yield "metric", "base", "head", "change"
            for metric in compare_words.metrics_of(profile.comparison)[:_ROWS]:
                base, head = (
                    compare_words.value(metric, side) for side in (metric.base, metric.head)
                )
                name = (
                    f"{escaped(metric.name, _NAMED)} ({code(metric.run.slug, _NAMED, cell=True)})"
                )
                change = escaped(f"{compare_words.change(metric)}, {metric.verdict}", _NAMED)
                yield name, escaped(base, 30), escaped(head, 30), change
        elif profile.gate is not None and profile.gate.budgets:
            budgets = gate_table.budget_table(profile.gate, rows=_ROWS)
            yield "budget", "limit", "observed", "status"
            for row in budgets.only("run", "budget", "limit", "observed", "status").rows:
                slug, budget, *others = (cell.text for cell in row.cells)
                yield (
                    f"{code(budget, _NAMED, cell=True)} ({code(slug, _NAMED, cell=True)})",
                    *others,
                )
        else:
            yield from self._fastest()

    def _fastest(self) -> Iterator[tuple[str, ...]]:
        """The first run, the runner-up and the baseline, on what all of them have in common."""
        found = ranked(self._profile.runs)
        if found is None:
            return
        yield "run", found.unit.name, "speed-up", "first call"
        shown = [*found.runs[:_ROWS]]
        base = next((each for each in found.runs if each[0].is_baseline), None)
        if base is not None and base not in shown:
            shown[-1] = base
        for run, time in shown:
            speedup = "baseline" if run.is_baseline else "–"  # noqa: RUF001
            if isinstance(run.speedup, m.Speedup):
                speedup = (
                    f"{figure(run.speedup.ratio)}×"
                    if run.speedup.ranks
                    else str(run.speedup.verdict)
                )
            first = run.compile if isinstance(run.compile, m.Skipped) else run.compile.first_call_s
            starts = "–" if isinstance(first, m.Skipped) else f"{figure(first)} s"  # noqa: RUF001
            yield (
                code(run.key.slug, _NAMED, cell=True),
                said(time, found.unit),
                speedup,
                starts,
            )

    # ---------------------------------------------------------------- why, and what to do

    def _why(self) -> Iterator[tuple[str, str]]:
        profile, found = self._profile, self._profile.comparison
        if found is not None:
            if found.causes:
                cause = found.causes[0]
                yield "Cause", self._stated(cause.rule, cause.text, cause.place)
                yield "Fix", self._remedy(cause.rule)
            return
        here = [action for action in profile.actions if not action.only_on_gpu]
        if here:
            action = here[0]
            lines = next(map(ranges, action.lines.values()), "")
            yield (
                "Cause",
                self._stated(
                    action.rule, f"{action.run.slug}: {action.text}", action.location, lines
                ),
            )
            yield (
                "Fix",
                code(action.fix, _STATED)
                or prose(action.no_fix, _STATED)
                or self._remedy(action.rule),
            )
            return
        fails = failing(profile)
        elsewhere = {action.rule for action in profile.actions}  # each costs on a GPU alone
        told = [f for f in profile.findings if not f.accepted and f.rule not in elsewhere]
        order = (f for level in m.Level for f in told if f.level is level)
        worst = next((f for f in profile.findings if f in fails), None) or next(order, None)
        if worst is not None and worst.level is not m.Level.NOTE:
            yield "Cause", self._stated(worst.rule, worst.alone, worst.location)
            yield "Fix", code(worst.fix, _STATED) if worst.fix else self._remedy(worst.rule)

    def _stated(self, rule: str, text: str, place: m.Location | None, lines: str = "") -> str:
        """Rule, place and sentence; the sentence of a cause may begin with its rule already."""
        named = f"{code(rule, _NAMED)} " if rule else ""
        stated = text.replace(f" {rule} ", ": ", 1) if rule else text
        return f"{named}{self._place(place, lines)}{prose(stated, _STATED)}"

    def _place(self, place: m.Location | None, lines: str = "") -> str:
        if place is None:
            return ""
        file = relative(place.file, self._profile.environment.source_root)
        shown = code(f"{clip_left(file)}:{lines or place.line}", _NAMED)
        inside = (
            not file.startswith(("/", "<", "~", ".."))
            and ":" not in file
            and len(file) <= 2 * _NAMED
        )
        if self._blob and inside:
            return f"[{shown}]({self._blob}{quote(file)}#L{place.line}) "
        return f"{shown} "

    def _remedy(self, rule: str) -> str:
        remedy = next((known.remedy for known in self._profile.rules if known.id == rule), "")
        # As many of the first as there is room for; the first one always.
        shown = ""
        for sentence in re.split(r"(?<=\.)\s+(?=[A-Z])", remedy):
            if shown and len(shown) + len(sentence) + 1 > _STATED:
                break
            shown = f"{shown} {sentence}".strip()
        return prose(shown, _STATED)


# ---------------------------------------------------------------- Markdown


def code(text: str, limit: int, *, cell: bool = False) -> str:
    """A code span, if nothing in the text means anything there; else the text, escaped. ``cell``:
    of a table."""
    shown = one_line(text, limit, words=True)
    if not shown or not set("`<>&@#").isdisjoint(shown):
        return escaped(shown, limit)
    whole = shown.removesuffix("\N{HORIZONTAL ELLIPSIS}")
    return f"`{whole.replace('|', chr(92) + '|') if cell else whole}`{shown[len(whole) :]}"


def prose(text: str, limit: int) -> str:
    """A sentence of ours with what is code in it as code; all else means nothing to Markdown. It is
    cut between words, outside of code."""
    whole, done = one_line(text, 4 * limit), 0
    shown = clip(_CODE.sub(lambda code: code[0].replace(" ", "_"), whole), limit, words=True)
    end = len(shown) - (len(whole) > limit)
    parts: list[str] = []
    for found in _CODE.finditer(whole):
        if found.end() <= end:
            parts += [_plain(whole[done : found.start()], first=not parts), f"`{found[0]}`"]
            done = found.end()
    return "".join((*parts, _plain(whole[done:end] + shown[end:], first=not parts)))


def _plain(text: str, *, first: bool) -> str:
    """Escaped with the spaces around it; what steers only at the start of a line does not behind
    something else."""
    inner = text.strip()
    start = text.index(inner) if inner else len(text)
    shown = escaped(inner, len(inner)) if first else escaped(f"x{inner}", len(inner) + 1)[1:]
    return f"{text[:start]}{shown}{text[start + len(inner) :]}"


def clip_left(file: str) -> str:
    """The end of a long path, which tells more than its beginning."""
    return file if len(file) <= _NAMED - 8 else f"\N{HORIZONTAL ELLIPSIS}{file[-(_NAMED - 9) :]}"


LIMIT = 60_000  # characters; GitHub refuses a comment of more than 65,536
_RESERVE = 200  # for the lines that say what was cut
FINDINGS = 10  # places that stand open; the others are folded
_MORE_FINDINGS = 200  # of those; report.json holds the rest
_METRICS = 8  # columns of the table of runs
_COMPARED = 8  # rows of compared metrics, and of what else differs
_KERNELS = 10  # rows of kernels; the page holds more
_KERNEL_NAME = 60  # characters, more where two would look alike
_ON_THE_PAGE = ("dropped",)  # keys of columns that are nowhere else
_LEVELS = {"error": "❌", "warning": "⚠️", "note": "ℹ️"}  # noqa: RUF001 - the sign itself is meant


class Section(View):
    """Head and tail stand or fall together; rows are cut from the end."""

    head: tuple[str, ...]
    rows: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    noun: str = "rows"
    # what must follow once this section is there, wherever the text is cut
    opens: tuple[str, ...] = ()
    closes: bool = False


class Markdown:
    """For a comment, of at most LIMIT characters; a job summary may have more, and counts bytes.

    ``report_url``: where the whole report can be had. ``source_url``: of the repository, before
    ``/blob/COMMIT/FILE``.
    """

    name = "markdown"
    suffix = ".md"

    def __init__(
        self,
        *,
        limit: int = LIMIT,
        in_bytes: bool = False,
        report_url: str = "",
        source_url: str = "",
    ) -> None:
        self._limit = limit
        self._size = (lambda text: len(text.encode("utf-8", errors="replace"))) if in_bytes else len
        self._report_url = report_url
        self._source_url = source_url

    def render(self, profile: m.Profile) -> str:
        compared = profile.comparison is not None
        link = (
            f"[The whole report]({self._report_url})" if ADDRESS.fullmatch(self._report_url) else ""
        )
        front = Front(profile, self._source_url)
        close = ("</details>",)
        sections = [
            Section(head=(*front.lines(), *((link, "") if link else ()))),
            Section(head=(f"<details><summary>{front.folded()}</summary>", ""), opens=close),
            _reasons(profile),
            *_compared(profile),
        ]
        if profile.actions and not compared:
            shown = (
                "<br>".join(escaped(part, 400) for part in parts)
                for parts in practices.next_steps(profile)
            )
            sections.append(_points(f"**{practices.NEXT_STEPS}**", shown, "actions"))
        if not compared:
            sections += _limited(profile)
        sections += [_runs(profile), *_of_traces(profile)]
        if profile.gate is not None and profile.gate.budgets:
            budgets = gate_table.budget_table(profile.gate, rows=len(profile.gate.budgets))
            table = budgets.only("run", "budget", "limit", "observed", "status")
            sections.append(_tabled(table, "budgets", words=2))
        sections += [_findings(profile), *_accepted(profile), *_details(profile), *_folded(profile)]
        sections.append(Section(head=close, closes=True))
        return _fitted(sections, last=_last(profile), limit=self._limit, size=self._size)


def _fitted(
    sections: Sequence[Section], *, last: Sequence[Section], limit: int, size: Callable[[str], int]
) -> str:
    """Whole sections while they fit; of the first that does not, the rows that do, and a line that
    says so.

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
                f"*Cut at {limit:,} {'characters' if size is len else 'bytes'}; report.json has "
                "everything.*"
            )
            lines += ["", *closing]
            break
        rows: list[str] = []
        left = room - fixed
        for line in section.rows:
            left -= size(line) + 1
            if left < 0:
                break
            rows.append(line)
        cut = len(section.rows) - len(rows)
        body = [*section.head, *rows, *section.tail]
        if cut:
            body.append(f"*{cut:,} more {section.noun} cut; report.json has them.*")
        lines += [*body, ""]
        room -= sum(size(line) + 1 for line in body) + 1
        closing = [] if section.closes else list(section.opens) or closing
    return "\n".join([*lines, *end]).rstrip("\n") + "\n"


def _points(title: str, points: Iterable[str], noun: str, *, tail: tuple[str, ...] = ()) -> Section:
    return Section(
        head=(title, ""), rows=tuple(f"- {point}" for point in points), tail=tail, noun=noun
    )


def _behind(title: str, rows: Iterable[str], *, noun: str = "rows") -> Section:
    """Rows behind one line that opens them."""
    head = (f"<details><summary>{title}</summary>", "")
    return Section(head=head, rows=tuple(rows), tail=("", "</details>"), noun=noun)


def _tabled(
    table: Table,
    noun: str,
    *,
    title: tuple[str, ...] = (),
    words: int = 1,
    tail: tuple[str, ...] = (),
) -> Section:
    head, rows = printed(table, words=words)
    return Section(head=(*title, *head), rows=rows, tail=tail, noun=noun)


def _lines(blocks: Iterable[Block]) -> Iterable[str]:
    """Tables, and between them notes in small."""
    for block in blocks:
        if isinstance(block, Table):
            head, rows = printed(block)
            yield from ("", *head, *rows)
        elif isinstance(block, str):
            yield f"\n<sub>{escaped(block, 600)}</sub>"


def _reasons(profile: m.Profile) -> Section:
    """What else the verdict says: all of its text if the first line cut it, how far to trust it."""
    verdict, (said, more) = profile.verdict, summary.reasons(profile)
    whole = (escaped(verdict.text, 600), "") if len(verdict.text) > VERDICT else ()
    trust = (f"<sub>{escaped(verdict.trust, 600)}</sub>", "") if verdict.trust else ()
    reasons = [f"- {escaped(reason, 600)}" for reason in said] + (
        [f"- {more:,} more"] if more else []
    )
    about = "<br>".join(escaped(line, 600) for line in account.lines(profile))
    accounted = (f"<sub>{about}</sub>", "") if about else ()
    return Section(head=(*whole, *trust, *accounted), rows=tuple(reasons), noun="reasons")


def _runs(profile: m.Profile) -> Section:
    """A row a run; the trace files, in place of runs that were timed."""
    if profile.trace_files:
        table = trace_table.file_table(profile, trace_table.IN_TEXT)
        notes = (f"<sub>{escaped(note[0])}: {escaped(note[1], 600)}</sub>" for note in table.notes)
        return _tabled(table, "traces", words=2, tail=("", *notes))
    shown = [column for column in summary.columns(profile) if column.key not in _ON_THE_PAGE][
        :_METRICS
    ]
    table = summary.run_table(profile.runs, shown, "", anchored=True)
    return _tabled(table, "runs", tail=tuple(_lines(summary.footnotes(profile))))


def _of_traces(profile: m.Profile) -> Iterable[Section]:
    """The ranks beside each other; what changed between two traces, by kind, and the kernels that
    changed most."""
    limits = trace_table.IN_TEXT
    if profile.rank_balance is not None:
        lines = tuple(_lines(trace_table.rank_blocks(profile.rank_balance, limits)))
        yield Section(
            head=(f"**Ranks**: {escaped(profile.rank_balance.text, 600)}",),
            rows=lines,
            noun="lines",
        )
    for each in profile.differences:
        shown = trace_table.difference(
            each, limits, rows=_KERNELS, name=_KERNEL_NAME, kinds=("kind", "kernel")
        )
        title = f"**{escaped(shown.title)}**: {escaped(shown.text, 600)}"
        yield Section(head=(title,), rows=tuple(_lines(shown.tables)))


def _limited(profile: m.Profile) -> Iterable[Section]:
    """Print the limits of the step of the run that a reader would choose."""
    for block in limit_table.limit_blocks(profile.runs, profile.environment.source_root):
        if isinstance(block, str):
            yield Section(head=(f"**{limit_table.SECTION}**", "", escaped(block, 400)))
        elif isinstance(block, Table):
            yield _tabled(block, "shares", words=2)


def _compared(profile: m.Profile) -> Iterable[Section]:
    """Both sides, the likely cause, the metrics that changed, and what is new or fixed among the
    findings."""
    found = profile.comparison
    if found is None:
        return
    base, head = map(escaped, compare_words.sides(found))
    yield Section(
        head=(f"**{base}** vs **{head}**. {escaped(compare_words.comparability(found), 400)}",)
    )
    differ: list[m.ChangedFact] = [*found.environment, *found.settings]
    if rows := [
        (change.name, change.base or DASH, change.head or DASH) for change in differ[:_COMPARED]
    ]:
        yield _tabled(plain("", ("differs", "base", "head"), rows), "differences", words=3)
    if found.causes:
        yield Section(head=("**Likely cause**", ""), rows=tuple(_causes(found)), noun="causes")
    yield _metrics(found)
    yield Section(head=(f"**Findings: {escaped(compare_words.tally(found))}**",))
    root, by_status = profile.environment.source_root, compare_words.by_status(found)
    for status in (m.FindingStatus.NEW, m.FindingStatus.FIXED, m.FindingStatus.NOT_LOOKED_FOR):
        if groups := grouped(each.finding for each in by_status[status]):
            more = len(groups) - FINDINGS
            tail = (f"- {more:,} more in the report",) if more > 0 else ()
            struck = status is m.FindingStatus.FIXED
            points = (_finding(group, root, struck=struck) for group in groups[:FINDINGS])
            yield _points(f"{status.capitalize()}:", points, "findings", tail=tail)
    yield Section(
        head=(), tail=tuple(f"- {escaped(line, 400)}" for line in compare_words.unchecked(found))
    )


def _causes(found: m.Comparison) -> Iterable[str]:
    together = compare_words.unexplained(found.causes)
    for number, cause in enumerate(found.causes, start=1):
        of = f" ({escaped(cause.run.slug)})" if cause.run else ""
        explains = (
            "" if together else f": {escaped(compare_words.explains(cause, found.runs), 400)}"
        )
        yield f"{number}. {escaped(compare_words.cause_text(cause), 400)}{of}{explains}"
    yield from (f"- {escaped(account, 400)}" for account in compare_words.accounts(found))


def _metrics(found: m.Comparison) -> Section:
    """What changed or is not settled; the others are a count."""
    metrics = compare_words.metrics_of(found)
    changed = [metric for metric in metrics if metric.verdict in compare_words.CHANGED]
    rest = Counter(metric.verdict for metric in metrics if metric not in changed)
    counted_rest = ", ".join(f"{number:,} {escaped(verdict)}" for verdict, number in rest.items())
    more = (
        f"; {len(changed) - _COMPARED:,} more changes in the report"
        if len(changed) > _COMPARED
        else ""
    )
    tail = (f"\n<sub>Other metrics: {counted_rest}{more}.</sub>",) if counted_rest or more else ()
    if not changed:
        return Section(head=(), tail=tail)
    table = compare_words.metric_table(changed[:_COMPARED])
    shown = table.only("metric", "run", "verdict", "base", "head", "change", "95 % interval")
    return _tabled(shown, "metrics", words=3, tail=tail)


def _findings(profile: m.Profile) -> Section:
    """Those that nobody accepts; what fails the gate first."""
    if not profile.findings:
        watched = ", ".join(
            escaped(rule.id) for rule in coverage.checked(profile.coverage, profile.rules)
        )
        return Section(head=(f"No findings (rules checked: {watched}).",))
    same, root = _by_weight(profile), profile.environment.source_root
    more = len(same[FINDINGS:])
    beyond = f", {len(same[FINDINGS + _MORE_FINDINGS :]):,} of them in report.json only"
    tail = (f"- {more:,} more below{beyond if more > _MORE_FINDINGS else ''}",) if more else ()
    points = (_finding(group, root) for group in same[:FINDINGS])
    return _points(f"**Findings ({len(profile.findings):,})**", points, "findings", tail=tail)


def _by_weight(profile: m.Profile) -> list[Grouped]:
    fails, levels = failing(profile), tuple(m.Level)
    return sorted(
        (group for group in grouped(profile.findings) if not group.first.accepted),
        key=lambda group: (
            fails.isdisjoint(group.members),
            levels.index(group.first.level),
            *cost_order(group.members),
        ),
    )


def _finding(group: Grouped, root: str, *, struck: bool = False) -> str:
    cost = f"; {escaped(f'costs {group.cost}', 200)}" if group.cost else ""
    point = f"**{escaped(group.first.rule)}** {escaped(group.line(root), 400)}{cost}"
    if struck:
        return f"<s>{point}</s>"
    fix, no_fix = code(group.first.fix, _STATED), escaped(group.first.no_fix, _STATED)
    advice = f"; fix: {fix}" if fix else f"; no fix: {no_fix}" if no_fix else ""
    return f"{_LEVELS[group.first.level]} {point}{advice}"


def _accepted(profile: m.Profile) -> Iterable[Section]:
    root, entries = (
        profile.environment.source_root,
        profile.gate.accepted if profile.gate else profile.accepted,
    )
    rows = [
        f"- {_finding(group, root, struck=True)} accepted by {escaped(group.first.accepted, 400)}"
        for group in grouped(profile.findings)
        if group.first.accepted
    ]
    rows += [
        f"- expired on {escaped(entry.expires)}: "
        f"{escaped(f'{entry.rule} in {entry.file} {entry.function}')} ({escaped(entry.owner)}: "
        f"{escaped(entry.reason)})"
        for entry in entries
        if entry.status is m.AcceptedStatus.EXPIRED
    ]
    if rows:
        yield _behind("Accepted findings", rows, noun="accepted findings")


def _details(profile: m.Profile) -> Iterable[Section]:
    """In a line or a row a run: trade-offs, runs that pay, what failed of the checklist, times,
    lines, memory."""
    if profile.trade_offs:
        named = [
            (practices.WEIGHED.get(each.verdict, each.verdict), each.text)
            for each in profile.trade_offs
        ]
        weighed = (f"**{escaped(verdict)}**: {escaped(text, 400)}" for verdict, text in named)
        yield _points("**Trade-offs**", weighed, "trade-offs")
    if paying := economics_table.sentences(profile):
        yield _points("**Economics**", (escaped(sentence, 600) for sentence in paying), "runs")
    if profile.checklist:
        failed = (item for item in profile.checklist if item.status == m.PracticeStatus.FAIL)
        items = (f"{escaped(item.title)}: {escaped(item.evidence, 400)}" for item in failed)
        yield _points(f"**Checklist**: {practices.tally(profile.checklist)}", items, "items")
    times = breakdown.time_table(profile.runs)
    if times.rows:
        head = "**Where the time went** (ms per traced step; idle includes profiler overhead)"
        yield _tabled(times, "runs", title=(head, ""))
    root = profile.environment.source_root
    traced = [
        (run, run.kernels) for run in profile.runs if isinstance(run.kernels, m.KernelBreakdown)
    ]
    if traced:
        lines = (
            f"{escaped(run.key.slug)}: {escaped(_origin(kernels, root), 1500)}"
            for run, kernels in traced
        )
        yield _points("**Source lines of the kernels**", lines, "runs")
    if checks := [
        (run, run.holistic) for run in profile.runs if isinstance(run.holistic, m.HolisticCheck)
    ]:
        # What HTA was not asked, or did not say, once for all runs.
        calls = (call for _, check in checks for call in check.calls if call.reason)
        reasons = "; ".join(
            dict.fromkeys(f"{call.name} {call.outcome}: {call.reason}" for call in calls)
        )
        title = "**Cross-check with HTA** (HolisticTraceAnalysis; difference = HTA minus kgprof)"
        lines = (
            f"{escaped(run.key.slug)}: {escaped(trace_table.hta_sentence(check), 600)}"
            for run, check in checks
        )
        yield _points(
            title,
            lines,
            "runs",
            tail=(f"\n<sub>HTA: {escaped(reasons, 2000)}</sub>",) if reasons else (),
        )
    compiled = (
        ("Fusion, graph by graph", region_table.fusion_blocks(profile.runs, trace_table.IN_TEXT)),
        (
            "Autotuning and Triton's stages",
            region_table.tuning_blocks(profile.runs, trace_table.IN_TEXT),
        ),
        (
            "Buffers that Inductor allocates",
            region_table.buffer_blocks(profile.runs, trace_table.IN_TEXT),
        ),
    )
    for title, blocks in compiled:
        if blocks:
            yield _behind(title, _lines(blocks))
    if columns := memory_table.columns(profile.runs):
        table = summary.run_table(profile.runs, columns, "")
        yield _tabled(table, "runs", title=("**Syncs and memory**", ""))


def _origin(kernels: m.KernelBreakdown, root: str) -> str:
    """What is known, the lines of the largest kernel that has any, why the device was idle, and the
    host's step."""
    said = [kernel_table.known_lines(kernels)]
    if largest := next((row for row in kernels.rows if row.lines), None):
        more = and_more(largest.lines, 1)
        said.append(
            f"largest kernel with lines: {kernel_table.place(largest.lines[0], root)}{more}"
        )
    return "; ".join((*said, *kernel_table.sentences(kernels)))


def _roofline(profile: m.Profile) -> Iterable[Section]:
    """The largest kernels of the run of which most could be placed, and how much of each run
    was."""
    found = roofline_table.placed(profile.runs)
    if not found:
        return
    _, run, _, roofline = max(found, key=lambda each: each[3].placed_us / (each[2].total_us or 1.0))
    table = roofline_table.roofline_table(
        run, roofline, replace(trace_table.IN_TEXT, kernel_rows=_KERNELS, name=CELL)
    )
    ceilings = ", ".join(
        f"{roofline_table.ceiling_name(each)} {roofline_table.rate(each.median, each.unit)}"
        for each in roofline.ceilings
    )
    against = (
        f"Measured on this GPU: {ceilings}" if ceilings else f"No peak rates: {roofline.without}"
    )
    placed = (
        f"- {escaped(each.key.slug)}: {escaped(roofline_table.sentence(k, r), 400)}"
        for _, each, k, r in found
    )
    title = f"<details><summary>Roofline: the largest kernels of {escaped(run.key.slug)}</summary>"
    yield _tabled(
        table.only(*roofline_table.IN_MARKDOWN),
        "kernels",
        title=(title, "", f"<sub>{escaped(against, 600)}.</sub>", ""),
        words=2,
        tail=("", *placed, "", "</details>"),
    )


def _folded(profile: m.Profile) -> Iterable[Section]:
    yield from _roofline(profile)
    if rest := _by_weight(profile)[FINDINGS : FINDINGS + _MORE_FINDINGS]:
        root = profile.environment.source_root
        yield _behind(
            "More findings", (f"- {_finding(group, root)}" for group in rest), noun="findings"
        )
    rows = []
    for gap in gathered(profile.omissions):
        runs = f" ({escaped(', '.join(gap.runs))})" if gap.runs else ""
        rows.append(f"- {escaped(', '.join(gap.what))}: {escaped(gap.reason, 400)}{runs}")
    if rows:
        yield _behind("Not measured", rows, noun="lines")


def _last(profile: m.Profile) -> tuple[Section, Section]:
    """What a reader should know before this is shown to others, and how it was made."""
    held = (
        f"- {escaped(fact.name)}: {escaped(fact.value, 600)}"
        for fact in environment_facts.contents(profile)
    )
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
    command = f"<sub>Reproduce: {escaped(shlex.join(profile.command), 600)}</sub>"
    made = Section(head=(f"<sub>{escaped(', '.join(facts), 600)}</sub>", "", command))
    return _behind(environment_facts.CONTENTS, held), made
