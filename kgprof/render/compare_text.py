"""A comparison for a terminal and a log: the verdict, its cause, what changed, and how far to trust it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgprof import model as m
from kgprof.render.compare_words import account, cause_text, explains, metric_table, of_status
from kgprof.render.escaping import one_line
from kgprof.wording import plural, relative

_LENGTH = 2000
_NAME = 60
_CAUSES = 5
_FINDINGS = 10  # of each status
_COLUMNS = ("run", "metric", "base", "head", "change", "95 % interval", "verdict")


def lines(profile: m.Profile, compared: m.Comparison) -> Iterable[str]:
    yield f"kgprof compare: {one_line(profile.workload, _NAME)} on {one_line(profile.environment.device_name, _NAME)}"
    yield f"  base: {_side(compared.base)}"
    yield f"  head: {_side(compared.head)}"
    yield ""
    yield f"{profile.verdict.status.upper()}: {one_line(profile.verdict.text, _LENGTH)}"
    for reason in profile.verdict.reasons:
        yield f"  also: {one_line(reason, _LENGTH)}"
    yield ""
    yield from _causes(compared, profile.environment.source_root)
    yield from _table(compared)
    yield from _findings(compared, profile.environment.source_root)
    yield from _trust(compared)


def _side(side: m.ComparedSide) -> str:
    commit = "" if isinstance(side.git_commit, m.Skipped) else f", commit {side.git_commit[:12]}"
    dirty = " with local changes" if side.git_dirty is True else ""
    return f"{one_line(side.source, 200)} ({one_line(side.created_utc, 40)}{one_line(commit + dirty, _NAME)})"


# ---------------------------------------------------------------- why


def _causes(compared: m.Comparison, root: str) -> Iterable[str]:
    if not compared.causes:
        return
    worse = any(not isinstance(run.explained_us, m.Skipped) for run in compared.runs)
    yield "likely cause" if worse else "what changed"
    for number, cause in enumerate(compared.causes[:_CAUSES], start=1):
        where = f"{relative(cause.location.file, root)}:{cause.location.line}: " if cause.location else ""
        of = f"{cause.run.slug}: " if cause.run else ""
        share = "" if isinstance(cause.explains_us, m.Skipped) else f" ({explains(cause, compared.runs)})"
        text = one_line(f"{cause.cause}: {of}{where}{cause_text(cause)}{share}", _LENGTH)
        yield f"  {number}. {text}"
    if len(compared.causes) > _CAUSES:
        yield f"  and {len(compared.causes) - _CAUSES} more"
    for run in compared.runs:
        if said := account(run):
            yield "  " + one_line("; ".join((said, *run.notes)), _LENGTH)
    yield ""


# ---------------------------------------------------------------- the table


def _table(compared: m.Comparison) -> Iterable[str]:
    """What decides or has changed; and of what is the same the times, for which a reader looks."""
    metrics = [metric for run in compared.runs for metric in run.metrics]
    shown = [
        metric
        for metric in metrics
        if metric.decides
        or metric.verdict in (m.MetricVerdict.WORSE, m.MetricVerdict.BETTER)
        or (metric.time_of and not isinstance(metric.base, m.Skipped) and not isinstance(metric.head, m.Skipped))
    ]
    hidden = len(metrics) - len(shown)
    if not shown:
        return
    table = metric_table(shown).only(*_COLUMNS)
    rows = [[one_line(cell.text, _NAME) for cell in row.cells] for row in table.rows]
    for row, metric in zip(rows, shown, strict=True):
        row[-1] += f" (budget {metric.budget_percent:g} %)" if metric.budget_percent is not None else ""
    rows.insert(0, [column.name for column in table.columns])
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        each = zip(table.columns, row, widths, strict=True)
        yield "  ".join(cell.rjust(n) if column.number else cell.ljust(n) for column, cell, n in each).rstrip()
    if hidden:
        yield f"{plural(hidden, 'further metric')} the same or not observed"
    for note in dict.fromkeys(metric.note for metric in shown if metric.note):
        yield f"note: {one_line(note, _LENGTH)}"
    yield ""


# ---------------------------------------------------------------- findings


def _findings(compared: m.Comparison, root: str) -> Iterable[str]:
    by_status = {status: of_status(compared.findings, status) for status in m.FindingStatus}
    unchanged = by_status.pop(m.FindingStatus.UNCHANGED)
    tally = ", ".join(f"{len(found)} {status}" for status, found in by_status.items())
    yield f"findings: {tally}, {len(unchanged)} unchanged"
    for status, found in by_status.items():
        yield from _listed(found, status, root)
    yield from _listed([one for one in unchanged if one.grew], "more often", root)
    yield ""


def _listed(found: Sequence[m.ComparedFinding], word: str, root: str) -> Iterable[str]:
    for one in found[:_FINDINGS]:
        finding = one.finding
        where = f"{relative(finding.location.file, root)}:{finding.location.line}: " if finding.location else ""
        run = f" [{finding.run.slug}]" if finding.run else ""
        times = f" ({one.base_count:,} -> {one.head_count:,} times)" if word == "more often" else ""
        fails = "fails: " if one.fails else "accepted: " if finding.accepted else ""
        text = f"{word} {finding.level.value} {fails}{where}{finding.rule} {finding.message}{times}{run}"
        yield f"  {one_line(text, _LENGTH)}"
    if len(found) > _FINDINGS:
        yield f"  and {len(found) - _FINDINGS} more {word}"


# ---------------------------------------------------------------- how far to trust it


def _trust(compared: m.Comparison) -> Iterable[str]:
    if compared.environment:
        so = "compared all the same, as asked" if compared.comparable else "so no time is judged"
        yield f"the environments differ, {so}"
        for change in compared.environment:
            yield f"  {one_line(f'{change.name}: {change.base} -> {change.head}', _LENGTH)}"
    for setting in compared.settings:
        yield f"asked for otherwise: {one_line(f'{setting.name}: {setting.base} -> {setting.head}', _LENGTH)}"
    for run in compared.runs:
        if run.status is not m.Presence.BOTH:
            yield f"only in {'head' if run.status is m.Presence.NEW else 'base'}: {one_line(run.run.slug, _NAME)}"
    for note in compared.notes:
        yield f"note: {one_line(note, _LENGTH)}"
    yield one_line(compared.method, _LENGTH)
