"""A report in the order in which it is read, said once for a comment, a job summary and a log:
sections of tables, lists and sentences, which the printers lay out.

The page shows more of everything, and draws (render/page.py).
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from kgprof import coverage
from kgprof import model as m
from kgprof.document import (
    breakdown,
    compare_words,
    economics_table,
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
from kgprof.document.environment_facts import gathered
from kgprof.document.finding_list import Found, Grouped, cost_order, failing, grouped
from kgprof.document.quantity import (
    EXTREMES,
    FEWEST_FOR_PERCENTILES,
    milliseconds,
    percent,
    share_of,
)
from kgprof.document.run_parts import having
from kgprof.document.sheet import Section, Sections
from kgprof.document.table import Block, Blocks, Points, Table, plain
from kgprof.document.work_table import work_blocks
from kgprof.wording import clause

FINDINGS = 10  # places that stand open; the others are folded
_MORE_FINDINGS = 200  # of those; report.json holds the rest
COMPARED_ROWS = 8  # of the metrics that stand open in a comment
_METRICS = 8  # columns of the table of runs
_KERNELS = 10  # rows of kernels; the page holds more
_LINES = 5  # of them with the lines that they compute
_NAME = 60  # characters of a kernel, more where two would look alike
_ON_THE_PAGE = ("dropped",)  # keys of columns that are nowhere else
_NARROW = ("first call",)  # of those that a terminal has no room for
_RANGES = (
    f"ranges: 10th to 90th percentile; {EXTREMES} for fewer than {FEWEST_FOR_PERCENTILES} samples"
)
_LIMITS = trace_table.IN_TEXT


def sections(profile: m.Profile, *, wide: bool) -> Sections:
    """``wide``: there is room for tables of many columns, and what is long is folded."""
    if profile.comparison:
        yield from compared(profile, profile.comparison, below=COMPARED_ROWS)
        yield from _exceeded(profile)
        return
    yield from next_steps(profile)
    yield from _limits(profile)
    yield from runs(profile, wide=wide)
    yield from _exceeded(profile)
    yield from _findings(profile, wide)
    yield from _accepted(profile)
    yield from _watched(profile)
    if wide and (times := breakdown.time_table(profile.runs)).rows:
        intro = "ms per traced step; idle includes profiler overhead"
        yield Section("Where the time went", intro=intro, blocks=(times,), noun="runs")
    yield from _kernels(profile)
    yield from _checked(profile)
    yield from _compiled(profile, wide)
    yield from _roofline(profile)
    if wide and (rest := by_weight(profile)[FINDINGS : FINDINGS + _MORE_FINDINGS]):
        yield _listed("More findings", rest, profile, folded=True)
    yield from _not_measured(profile)


def _exceeded(profile: m.Profile) -> Sections:
    if profile.gate and profile.gate.budgets:
        yield Section("", (gate_table.in_lines(profile.gate),), noun="budgets")


def next_steps(profile: m.Profile) -> Sections:
    if profile.actions:
        steps = Points(tuple(practices.next_steps(profile)), numbered=True)
        yield Section(practices.NEXT_STEPS, (steps,), noun="actions")


def _limits(profile: m.Profile) -> Sections:
    limited = limit_table.limit_blocks(profile.runs, profile.source_root)
    if limited:
        yield Section(limit_table.SECTION, limited, noun="shares")


def runs(profile: m.Profile, *, wide: bool) -> Sections:
    """A row a run, or a trace file in place of a run that was timed; ranks and traces beside each
    other."""
    if profile.trace_files:
        files = trace_table.file_table(profile)
        yield Section("", (replace(files, notes=()), *files.notes), noun="traces")
    else:
        yield _timed(profile, wide)
    if profile.rank_balance:
        blocks = trace_table.rank_blocks(profile.rank_balance)
        yield Section("Ranks", [*blocks], profile.rank_balance.text)
    for each in profile.differences:
        yield trace_table.difference(each, rows=_KERNELS, name=_NAME)


def _timed(profile: m.Profile, wide: bool) -> Section:
    hidden = [*_ON_THE_PAGE]
    if not wide:
        hidden += _NARROW
    shown = [column for column in summary.columns(profile) if column.key not in hidden]
    table = summary.run_table(profile.runs, shown[:_METRICS], "")
    ended = [f"{run.slug} {words}" for run in profile.runs if (words := summary.ended(run))]
    notes = [f"{run.slug}: {note}" for run in profile.runs for note in run.notes]
    blocks: Blocks = (table, _RANGES, *ended, *notes, *summary.footnotes(profile))
    return Section("", blocks, noun="runs")


# ---------------------------------------------------------------- findings


def by_weight(profile: m.Profile) -> list[Grouped]:
    """Order those that nobody accepts: what fails the gate first."""
    fails, levels = failing(profile), tuple(m.Level)
    return sorted(
        (group for group in grouped(profile.findings) if not group.first.accepted),
        key=lambda group: (
            fails.isdisjoint(group.members),
            levels.index(group.first.level),
            *cost_order(group.members),
        ),
    )


def _listed(
    title: str, groups: Iterable[Grouped], profile: m.Profile, *more: str, folded: bool = False
) -> Section:
    found = Found(tuple(groups), profile.source_root)
    return Section(title, (found, *more), folded=folded, noun="findings")


def _findings(profile: m.Profile, wide: bool) -> Sections:
    """A log shows all of them, a comment the first; the others are folded below."""
    if not profile.findings:
        said = f"no finding; {coverage.tally(profile.coverage, profile.rules)}"
        if wide:
            checked = coverage.checked(profile.coverage, profile.rules)
            said += f" (rules checked: {', '.join(rule.id for rule in checked)})"
        yield Section("", (said,))
        return
    groups = by_weight(profile)
    title = f"Findings ({len(profile.findings):,})"
    beyond = len(groups) - FINDINGS
    if not wide or beyond <= 0:
        yield _listed(title, groups, profile)
        return
    more = f"{beyond:,} more below"
    if beyond > _MORE_FINDINGS:
        more += f", {beyond - _MORE_FINDINGS:,} of them in report.json only"
    yield _listed(title, groups[:FINDINGS], profile, more)


def _accepted(profile: m.Profile) -> Sections:
    groups = [group for group in grouped(profile.findings) if group.first.accepted]
    expired = [
        f"expired on {entry.expires}: {entry.rule} in {entry.file} {entry.function} "
        f"({entry.owner}: {entry.reason})"
        for entry in (profile.gate or profile).accepted
        if entry.status is m.AcceptedStatus.EXPIRED
    ]
    blocks: list[Block] = []
    if groups:
        by_whom = [f"accepted by {group.first.accepted}" for group in groups]
        blocks.append(Found(groups, profile.source_root, by_whom, struck=True))
    if expired:
        blocks.append(_points(expired))
    if blocks:
        title = "Accepted findings"
        yield Section(title, blocks, folded=True, noun=title.lower())


# ---------------------------------------------------------------- what was measured


def _watched(profile: m.Profile) -> Sections:
    """Trade-offs, the runs that pay, what failed of the checklist, syncs and memory."""
    weighed = [
        (practices.WEIGHED.get(each.verdict, each.verdict), each.text)
        for each in profile.trade_offs
    ]
    if weighed:
        yield Section("Trade-offs", weighed, noun="trade-offs")
    if paying := economics_table.sentences(profile):
        yield Section("Economics", (_points(paying),), noun="runs")
    if profile.checklist:
        failed = [
            f"{item.title}: {item.evidence}"
            for item in profile.checklist
            if item.status == m.PracticeStatus.FAIL
        ]
        intro = practices.tally(profile.checklist)
        yield Section("Checklist", intro=intro, blocks=(_points(failed),), noun="items")
    if columns := memory_table.columns(profile.runs):
        table = summary.run_table(profile.runs, columns, "")
        yield Section("Syncs and memory", (table,), noun="runs")


def _points(sentences: Iterable[str], *, numbered: bool = False) -> Points:
    return Points([(sentence,) for sentence in sentences], numbered)


def _kernels(profile: m.Profile) -> Sections:
    """Of each run what ran, whose lines it computes, why the device was idle, and the host's
    step."""
    root = profile.source_root
    for _, run, kernels in breakdown.broken_down(profile.runs):
        step = breakdown.step_us(kernels)
        shares = ", ".join(
            f"{breakdown.NAMES[kind]} {percent(share_of(us, step))}"
            for kind, us in breakdown.parts(kernels).items()
        )
        intro = (
            f"{milliseconds(step)} ms/{breakdown.per(kernels)} in {kernels.measured_in.upper()}, "
            f"{breakdown.busy_caption(kernels, run.step)}: {shares}"
        )
        table = kernel_table.kernel_table(
            run, kernels, root, _KERNELS, length=_NAME, longest=_LIMITS.name
        )
        table = table.only("kernel", "kind", "count", "total ms", "share")
        lines = [
            f"kernel {rank}: {kernel_table.first_line(row, root)}"
            for rank, row in enumerate(kernels.rows[:_LINES], start=1)
            if row.lines
        ]
        blocks: Blocks = (
            replace(table, totals=table.totals[:-1]),  # what all of them take is said above
            kernel_table.known_lines(kernels),
            *lines,
            *kernel_table.sentences(kernels),
            *kernels.warnings,
        )
        title = f"Kernels of {run.slug}"
        yield Section(title, blocks, intro, folded=True, noun="kernels")


def _checked(profile: m.Profile) -> Sections:
    """HolisticTraceAnalysis' figures; what it was not asked, or did not say, once for all runs."""
    checks = having(profile.runs, "holistic", m.HolisticCheck)
    if not checks:
        return
    said = [f"{run.slug}: {trace_table.hta_sentence(check)}" for _, run, check in checks]
    blocks: list[Block] = [_points(said)]
    calls = (call for *_, check in checks for call in check.calls if call.reason)
    reasons = dict.fromkeys(f"{call.name} {call.outcome}: {call.reason}" for call in calls)
    if reasons:
        blocks.append(f"HTA: {'; '.join(reasons)}")
    intro = "HolisticTraceAnalysis; difference = HTA minus kgprof"
    yield Section("Cross-check with HTA", blocks, intro, noun="runs")


def _compiled(profile: m.Profile, wide: bool) -> Sections:
    """What compiling made of each graph."""
    parts: Sequence[tuple[str, Iterable[Block]]] = (
        ("Fusion, graph by graph", region_table.fusion_blocks(profile.runs, _LIMITS)),
        ("Autotuning and Triton's stages", region_table.tuning_blocks(profile.runs, _LIMITS)),
        ("Buffers that Inductor allocates", region_table.buffer_blocks(profile.runs)),
    )
    for title, blocks in parts:
        shown = [*blocks]
        if not wide:
            shown = [*map(_narrow, shown)]
        if shown:
            yield Section(title, shown, folded=True)


def _narrow(block: Block) -> Block:
    """Of the graphs the columns that a terminal has room for."""
    if isinstance(block, Table) and block.label == region_table.FUSION:
        return block.only(*region_table.IN_TERMINAL)
    return block


def _roofline(profile: m.Profile) -> Sections:
    """The largest kernels of the run of which most could be placed, and how much of each run
    was."""
    found = roofline_table.placed(profile.runs)
    if not found:
        return
    _, run, _, roofline = max(found, key=lambda each: share_of(each[3].placed_us, each[2].total_us))
    table = roofline_table.roofline_table(run, roofline, _KERNELS)
    ceilings = ", ".join(
        f"{roofline_table.ceiling_name(each)} {roofline_table.rate(each.median, each.unit)}"
        for each in roofline.ceilings
    )
    against = f"Measured on this GPU: {ceilings}."
    if not ceilings:
        against = f"No peak rates: {roofline.without}."
    shares = [
        f"{each.slug}: {roofline_table.sentence(kernels, of)}" for _, each, kernels, of in found
    ]
    blocks: Blocks = (table, against, *shares)
    title = f"Roofline: the largest kernels of {run.slug}"
    yield Section(title, blocks, folded=True, noun="kernels")


def _not_measured(profile: m.Profile) -> Sections:
    gaps = []
    for what, reason, slugs in gathered(profile.omissions):
        runs = clause(" (", ", ".join(slugs), ")")
        gaps.append(f"{', '.join(what)}: {reason}{runs}")
    if gaps:
        yield Section("Not measured", (_points(gaps),), folded=True, noun="lines")


# ---------------------------------------------------------------- a comparison


def compared(profile: m.Profile, found: m.Comparison, *, below: int = 0) -> Sections:
    """Both sides, the likely cause, the metrics that changed, and what is new or fixed among the
    findings. ``below``: so many rows stand above it with the first cause, and are not repeated."""
    sides: Blocks = (("base", _side(found.base)), ("head", _side(found.head)))
    yield Section("", (*sides, compare_words.comparability(found)))
    differ = [(one.name, one.base, one.head) for one in (*found.environment, *found.settings)]
    if differ:
        table = plain("", ("differs", "base", "head"), differ, words=3)
        yield Section("", (table,), noun="differences")
    yield from _causes(profile, found, found.causes[bool(below) :])
    for run in found.runs:
        yield Section("", tuple(work_blocks(run, profile.source_root)), noun="work")
    yield _metrics(found, compare_words.in_front(found)[:below])
    told = ""
    if below and found.causes:
        told = found.causes[0].fingerprint
    yield from _compared_findings(profile, found, told)
    alone = [
        f"{where}: {run.run.slug}" for run in found.runs if (where := compare_words.only_in(run))
    ]
    yield Section("", (*alone, *found.notes, found.method))


def _side(side: m.ComparedSide) -> str:
    made = [side.created_utc]
    if side.commit:
        commit = f"commit {side.commit[:12]}"
        if side.git_dirty is True:
            commit += " with local changes"
        made.append(commit)
    return f"{side.source} ({', '.join(made)})"


def _causes(profile: m.Profile, found: m.Comparison, shown: Sequence[m.Cause]) -> Sections:
    if not found.causes:
        return
    root = profile.source_root
    causes = _points((compare_words.caused(cause, found, root) for cause in shown), numbered=True)
    notes = [f"{run.run.slug}: {note}" for run in found.runs for note in run.notes]
    title = "Likely cause"
    if len(shown) < len(found.causes):
        title = "Other causes"
    if all(isinstance(run.explained_us, m.Skipped) for run in found.runs):
        title = "Changes"
    yield Section(title, (causes, *compare_words.accounts(found), *notes), noun="causes")


def _metrics(found: m.Comparison, told: Sequence[m.ComparedMetric]) -> Section:
    """What decides or may have changed, and of what is the same the times, for which a reader
    looks; the others are a count. ``told``: those that stand elsewhere."""
    metrics = [metric for metric in compare_words.metrics_of(found) if metric not in told]
    shown = [metric for metric in metrics if compare_words.is_shown(metric)]
    rest = Counter(metric.verdict for metric in metrics if metric not in shown)
    blocks: list[Block] = []
    if shown:
        blocks.append(compare_words.metric_table(shown))
    if rest:
        others = ", ".join(f"{number:,} {verdict}" for verdict, number in rest.items())
        blocks.append(f"Other metrics: {others}.")
    return Section("", blocks, noun="metrics")


def _compared_findings(profile: m.Profile, found: m.Comparison, told: str) -> Sections:
    """``told``: the fingerprint of one that stands elsewhere."""
    tally = compare_words.tally(found)
    yield Section("Findings", compare_words.unchecked(found), tally)
    by_status = {
        status: [each for each in same if not told or each.finding.fingerprint != told]
        for status, same in compare_words.by_status(found).items()
    }
    grown = [each for each in by_status[m.FindingStatus.UNCHANGED] if each.grew]
    for title, same in (
        ("New", by_status[m.FindingStatus.NEW]),
        ("Fixed", by_status[m.FindingStatus.FIXED]),
        ("Moved", by_status[m.FindingStatus.MOVED]),
        ("More often", grown),
        ("Not looked for", by_status[m.FindingStatus.NOT_LOOKED_FOR]),
    ):
        if same:
            groups = compare_words.by_place(same)
            shown = groups[:FINDINGS]
            listed = Found(
                [group for group, _ in shown],
                profile.source_root,
                [_note(members, profile.source_root) for _, members in shown],
                struck=title == "Fixed",
            )
            blocks: list[Block] = [listed]
            if len(groups) > FINDINGS:
                blocks.append(f"{len(groups) - FINDINGS:,} more in the report")
            yield Section(title, blocks, noun="findings")


def _note(members: list[m.ComparedFinding], root: str) -> str:
    """Say of the same finding in several runs what the comparison adds."""
    said = {}
    for each in members:
        said[compare_words.moved_from(each, root)] = each.moved_from is not None
        said["fails"] = each.fails
        said[f"{each.base_count:,} -> {each.head_count:,} times"] = each.grew
        said[compare_words.not_looked_for(each)] = bool(each.missing)
    return ", ".join(words for words, holds in said.items() if holds)
