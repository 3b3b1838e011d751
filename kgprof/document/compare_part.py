"""The comparison on the page: two sides, what is worse and why, where the time moved, and which
findings are new."""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document import breakdown, compare_words, trace_table
from kgprof.document.breakdown import LETTERS, Bar, Bars, Part, legend
from kgprof.document.finding_list import Anchors, place
from kgprof.document.limits import Limits, anchor
from kgprof.document.quantity import DASH, count, figure, milliseconds
from kgprof.document.table import Block, Fold, Shown, Table, plain
from kgprof.document.work_table import work_blocks

SIDES = {"base": "before", "head": "after"}  # what the fields of a Change call them
DEFAULTS = 40  # of torch's that differ; all are in report.json
KERNELS = 12  # rows of a table of kernels
_OPEN = 8  # findings of one status that stand open
_COLUMNS = ("metric", "verdict", "base", "head", "change", "95 % interval")


def compare_part(
    profile: m.Profile, found: m.Comparison, anchors: Anchors, limits: Limits
) -> Shown:
    """What the section holds. ``anchors``: where each finding of the head stands, by its
    fingerprint."""
    metrics = compare_words.metrics_of(found)
    root = profile.source_root
    listed = metrics[: 4 * limits.lines]
    changed = [metric for metric in listed if metric.verdict in compare_words.CHANGED]
    # Those that are the same, or of which nothing is known.
    unchanged = [metric for metric in listed if metric not in changed]
    base, head = compare_words.sides(found)
    at = {run.key: anchor(index) for index, run in enumerate(profile.runs)}
    traces = [run.trace for run in found.runs if run.trace]
    bars = [parts_of(trace, side) for trace in traces for side in SIDES]
    longest = max((sum(bar.values()) for bar in bars), default=0.0)  # microseconds, on either side
    by_status = compare_words.by_status(found)
    notes = (*compare_words.unchecked(found), found.method, *found.notes)
    return {
        "base": base,
        "head": head,
        "base_page": m.BASE_PAGE * found.base.has_page,
        "sides": _sides(found),
        "comparable": found.comparable and not compare_words.settings_that_differ(found),
        "comparability": compare_words.comparability(found),
        "causes": tuple(_causes(found, root, anchors)),
        "work": [block for run in found.runs for block in work_blocks(run, root)],
        "accounts": [*_evidence(found), *compare_words.accounts(found, limits.runs)],
        "metrics": _metrics(
            changed, "Metrics that changed, or that the measurement does not settle"
        ),
        "unchanged": _metrics(unchanged, "Metrics that are the same, or were not observed"),
        "keys": legend({kind for bar in bars for kind in bar}),
        # The bars of base and head, and what traces, compilations and settings differ in.
        "runs": [
            _run(run, at.get(run.run, ""), longest, limits) for run in found.runs[: limits.runs]
        ],
        "findings": [
            _status(status, same, root, anchors, limits)
            for status, same in by_status.items()
            if same or status is not m.FindingStatus.MOVED
        ],
        "differences": (
            *_changes("Facts of the environment that differ", "fact", found.environment),
            *_changes("Settings that differ", "setting", found.settings),
            *_changes(
                "Defaults of torch and decompositions that differ",
                "default",
                found.defaults[:DEFAULTS],
            ),
        ),
        "notes": tuple(filter(None, notes)),
    }


def _sides(found: m.Comparison) -> Table:
    def facts(side: m.ComparedSide) -> Sequence[str]:
        commit = side.commit
        if side.git_dirty is True:
            commit += " with changes"
        if isinstance(side.git_commit, m.Skipped):
            commit = f"not known: {side.git_commit.reason}"
        verdict = f"{side.verdict.status}: {side.verdict.text} (exit code {side.exit_code})"
        return side.source, commit, side.created_utc, side.kgprof_version, verdict

    names = ("from", "commit", "recorded", "by kgprof", "its own verdict")
    rows = zip(names, facts(found.base), facts(found.head), strict=True)
    headings = ("fact", "base", "head")
    return plain("The two sides", headings, rows, style="", first="kind", words=3)


# ---------------------------------------------------------------- metrics


def _metrics(metrics: Sequence[m.ComparedMetric], label: str) -> Table:
    return compare_words.metric_table(metrics, label).only(*_COLUMNS)


# ---------------------------------------------------------------- causes


def _causes(found: m.Comparison, root: str, anchors: Anchors) -> Iterable[Shown]:
    """Those that the first screen has no room for."""
    together = compare_words.unexplained(found.causes)
    first = compare_words.first_causes(found)
    for cause in (cause for cause in found.causes if cause not in first):
        # How much it explains, unless that is said once among the accounts, and its run.
        details = []
        if not together:
            details.append(compare_words.explains(cause, found.runs))
        if cause.run:
            details.append(cause.run.slug)
        yield Shown(
            cause=cause.cause,
            text=compare_words.cause_text(cause),
            detail=", ".join(details),
            place=place(cause.place, root),
            anchor=anchors.get(cause.fingerprint, ""),  # of the finding, if this page has it
        )


def _evidence(found: m.Comparison) -> Iterable[str]:
    """What the first screen has no room for, of the causes that it shows."""
    for cause in compare_words.first_causes(found):
        more = "; ".join(compare_words.besides(cause))
        if more:
            yield f"{cause.text}: {more}"


# ---------------------------------------------------------------- where the time moved


def parts_of(trace: m.TraceDifference, side: str) -> dict[str, float]:
    """Microseconds of a step by kind, in the bars' order, then idle."""
    rows = (*trace.kinds, *(row for row in trace.window if row.name == breakdown.IDLE))
    return breakdown.in_order({row.name: _us(row, side) for row in rows})


def _us(change: m.Change | None, side: str) -> float:
    """Zero where it is not known."""
    return float(getattr(change, f"{SIDES[side]}_us", 0.0))


def window_us(trace: m.TraceDifference, side: str) -> float:
    return _us(trace.of_window("window"), side)


def _run(run: m.RunComparison, place: str, longest_us: float, limits: Limits) -> Fold:
    trace = run.trace
    verdicts = Counter(metric.verdict for metric in run.metrics)
    tally = [f"{count(verdicts[word])} {word}" for word in m.MetricVerdict if verdicts[word]]
    alone = compare_words.only_in(run)
    blocks: list[Block] = [*run.notes]
    if trace and not trace.missing:
        blocks.append(Bars([_bar(trace, side, longest_us) for side in SIDES]))
        rows = min(KERNELS, limits.kernel_rows)
        # A page that is too large for any kernel keeps the kinds.
        if not rows:
            trace = replace(trace, kernels=(), spans=(), regions=())
        blocks += trace_table.difference(trace, rows=rows or KERNELS).blocks
    elif alone:
        blocks.append("No bars: the run is on one side only.")
    elif trace:
        blocks.append(f"No bars: {trace.missing}.")
    else:
        blocks.append("No bars: neither side was traced.")
    blocks += _tables(run)
    worse = m.MetricVerdict.WORSE in verdicts
    return Fold(run.run.slug, blocks, caption=alone or ", ".join(tally), open=worse, run=place)


def _bar(trace: m.TraceDifference, name: str, longest_us: float) -> Bar:
    parts = parts_of(trace, name)
    whole = window_us(trace, name) or sum(parts.values()) or 1.0
    ms = f"{milliseconds(whole)} ms"
    caption = f"{ms} per {trace.per} under the profiler"
    if trace.per == "step":
        caption += f", mean of {count(getattr(trace, f'{SIDES[name]}_steps'))}"
    words = [f"{breakdown.NAMES[kind]} {milliseconds(us)} ms" for kind, us in parts.items()]
    return Bar(
        f"{name}: {ms}: {', '.join(words)}",
        [
            Part(kind, LETTERS[kind], us / (longest_us or 1.0), us / whole)
            for kind, us in parts.items()
        ],
        name,
        caption,
    )


def _tables(run: m.RunComparison) -> Iterable[Block]:
    """What is less than a millisecond of a compilation is none."""
    stages = [
        (
            phase.name,
            figure(phase.base_s),
            figure(phase.head_s),
            trace_table.signed(phase.head_s - phase.base_s),
        )
        for phase in run.phases
    ]
    if stages:
        headings = ("compile stage", "was, s", "is, s", "difference")
        label = f"{run.run.slug}, by stage of compilation"
        yield plain(label, headings, stages, style="", first="name")
    yield from _changes(f"{run.run.slug}, settings that differ", "setting", run.settings)


def _changes(label: str, name: str, changes: Sequence[m.ChangedFact]) -> Iterable[Table]:
    rows = [(change.name, change.base or DASH, change.head or DASH) for change in changes]
    if rows:
        yield plain(label, (name, "base", "head"), rows, style="", first="name")


# ---------------------------------------------------------------- findings


def _status(
    status: m.FindingStatus,
    same: Sequence[m.ComparedFinding],
    root: str,
    anchors: Anchors,
    limits: Limits,
) -> Shown:
    groups = compare_words.by_place(same)
    # What fails comes first, then what grew.
    groups.sort(
        key=lambda pair: (
            not any(each.fails for each in pair[1]),
            not any(each.grew for each in pair[1]),
        )
    )
    shown = groups[: min(limits.findings, limits.lines)]
    rows = []
    for group, members in shown:
        finding = group.first
        before = max(each.base_count for each in members)
        after = max(each.head_count for each in members)
        counts = count(after)
        if before != after:
            counts += f", was {count(before)}"
        anchor = ""
        if status is not m.FindingStatus.FIXED:
            anchor = anchors.get(finding.fingerprint, "")
        row = Shown(
            rule=finding.rule,
            level=finding.level.value,
            message=finding.message,
            why=compare_words.not_looked_for(members[0])
            or compare_words.moved_from(members[0], root),
            place=place(finding.location, root),
            runs=", ".join(group.runs),
            counts=counts,
            fails=any(each.fails for each in members),
            anchor=anchor,
        )
        rows.append(row)
    more = ""
    if cut := len(groups) - len(shown):
        more = f"{count(cut)} more places in report.json"
    few_fixed = status is m.FindingStatus.FIXED and len(shown) <= _OPEN
    return Shown(
        status=status,
        symbol=compare_words.STATUS_SYMBOLS[status],
        total=count(len(same)),
        rows=rows,
        more=more,
        open=status is m.FindingStatus.NEW or few_fixed,
    )
