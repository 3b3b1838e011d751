"""A comparison for a terminal and a log: the verdict, its cause, what changed, and how far to trust it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgprof import model as m
from kgprof.render.compare_words import account, by_status, cause_text, explains, metric_table, tally
from kgprof.render.escaping import one_line
from kgprof.render.finding_groups import where
from kgprof.render.gate_text import LENGTH, NAME, aligned, verdict
from kgprof.wording import plural

REGRESSION = "REGRESSION"  # what a comparison that fails is called
_CAUSES = 5
_FINDINGS = 10  # of each status
_COLUMNS = ("run", "metric", "base", "head", "change", "95 % interval", "verdict")


def lines(profile: m.Profile, compared: m.Comparison) -> Iterable[str]:
    root = profile.environment.source_root
    yield f"kgprof compare: {one_line(profile.workload, NAME)} on {one_line(profile.environment.device_name, NAME)}"
    for name, side in (("base", compared.base), ("head", compared.head)):
        commit = "" if isinstance(side.git_commit, m.Skipped) else f", commit {side.git_commit[:12]}"
        dirty = " with local changes" if side.git_dirty is True else ""
        made = f"{one_line(side.created_utc, 40)}{one_line(commit + dirty, NAME)}"
        yield f"  {name}: {one_line(side.source, 200)} ({made})"
    yield ""
    yield from verdict(profile.verdict, REGRESSION)
    yield ""
    yield from _causes(compared, root)
    yield from _table(compared)
    yield from _findings(compared, root)
    yield from _trust(compared)


def _causes(compared: m.Comparison, root: str) -> Iterable[str]:
    if not compared.causes:
        return
    worse = any(not isinstance(run.explained_us, m.Skipped) for run in compared.runs)
    yield "likely cause" if worse else "what changed"
    for number, cause in enumerate(compared.causes[:_CAUSES], start=1):
        yield f"  {number}. {one_line(caused(cause, compared, root), LENGTH)}"
    if len(compared.causes) > _CAUSES:
        yield f"  and {len(compared.causes) - _CAUSES} more"
    for run in compared.runs:
        if said := account(run):
            yield "  " + one_line("; ".join((said, *run.notes)), LENGTH)
    yield ""


def caused(cause: m.Cause, compared: m.Comparison, root: str) -> str:
    """Kind, run, place, sentence, and how much of the change it accounts for."""
    of = f"{cause.run.slug}: " if cause.run else ""
    share = "" if isinstance(cause.explains_us, m.Skipped) else f" ({explains(cause, compared.runs)})"
    return f"{cause.cause}: {of}{where(cause.place, root)}{cause_text(cause)}{share}"


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
    if not shown:
        return
    table = metric_table(shown).only(*_COLUMNS)
    rows = [[one_line(cell.text, NAME) for cell in row.cells] for row in table.rows]
    for row, metric in zip(rows, shown, strict=True):
        row[-1] += f" (budget {metric.budget_percent:g} %)" if metric.budget_percent is not None else ""
    yield from aligned((_COLUMNS, *rows), [column.number for column in table.columns])
    if hidden := len(metrics) - len(shown):
        yield f"{plural(hidden, 'metric')} unchanged or not measured"
    for note in dict.fromkeys(metric.note for metric in shown if metric.note):
        yield f"note: {one_line(note, LENGTH)}"
    yield ""


def _findings(compared: m.Comparison, root: str) -> Iterable[str]:
    yield f"findings: {tally(compared)}"
    found = by_status(compared)
    unchanged = found.pop(m.FindingStatus.UNCHANGED)
    for status, same in found.items():
        yield from _listed(same, status, root)
    yield from _listed([each for each in unchanged if each.grew], "more often", root)
    yield ""


def _listed(found: Sequence[m.ComparedFinding], word: str, root: str) -> Iterable[str]:
    for each in found[:_FINDINGS]:
        finding = each.finding
        run = f" [{finding.run.slug}]" if finding.run else ""
        times = f" ({each.base_count:,} -> {each.head_count:,} times)" if each.grew else ""
        fails = "fails: " if each.fails else "accepted: " if finding.accepted else ""
        place = where(finding.location, root)
        text = f"{word} {finding.level.value} {fails}{place}{finding.rule} {finding.message}{times}{run}"
        yield f"  {one_line(text, LENGTH)}"
    if len(found) > _FINDINGS:
        yield f"  and {len(found) - _FINDINGS} more {word}"


def _trust(compared: m.Comparison) -> Iterable[str]:
    if compared.environment:
        so = "compared anyway, as requested" if compared.comparable else "so no time is judged"
        yield f"the environments differ, {so}"
        for change in compared.environment:
            yield f"  {one_line(f'{change.name}: {change.base} -> {change.head}', LENGTH)}"
    for setting in compared.settings:
        yield f"settings differ: {one_line(f'{setting.name}: {setting.base} -> {setting.head}', LENGTH)}"
    for run in compared.runs:
        if run.status is not m.Presence.BOTH:
            yield f"only in {'head' if run.status is m.Presence.NEW else 'base'}: {one_line(run.run.slug, NAME)}"
    for note in compared.notes:
        yield f"note: {one_line(note, LENGTH)}"
    yield one_line(compared.method, LENGTH)
