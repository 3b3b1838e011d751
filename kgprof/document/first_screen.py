"""The first screen: four figures, the runs by speed, what to do next, and where each run's GPU time
goes.

Of a comparison the figures are changes, and in place of the runs stands what accounts for the
change.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from kgprof import coverage, limits
from kgprof import model as m
from kgprof.document import breakdown, compare_words
from kgprof.document.account import picture
from kgprof.document.breakdown import Bar, Part, legend
from kgprof.document.compare_part import SIDES, parts_of, window_us
from kgprof.document.escaping import one_line
from kgprof.document.failures import measured_nothing
from kgprof.document.finding_list import FindingList, fix_label, not_applied
from kgprof.document.limit_table import limit_blocks
from kgprof.document.limits import anchor, importance
from kgprof.document.plot import Axis
from kgprof.document.quantity import (
    DASH,
    count,
    duration,
    figure,
    of_width,
    or_dash,
    percent,
    ratio,
    rounded,
    sign,
)
from kgprof.document.run_parts import name_of
from kgprof.document.summary import made, speedup_words
from kgprof.document.table import Shown, View
from kgprof.measures.times import PER_STEP, Ranked, ranked, within_process
from kgprof.wording import plural, ranges, relative

RUNS = 8  # bars of the first screen; the table of results has every run
_CODE, _UNIT = 120, 24  # characters
_INTERVALS = 6
_TICKS = 6  # at most
_LEAST_PERCENT = 2.0  # of the axis of intervals, to either side
_MARGIN = 0.06  # of the axis, beyond the longest interval


class Tile(View, kw_only=False):
    """One of the four figures."""

    label: str
    value: str
    below: str
    leads_to: str  # the anchor where more of it stands
    tone: str = ""  # a class: "worse", "better", "attention"


class BusyBar(Bar, kw_only=True):
    """100 % is the time in which the GPU (on a CPU: an operator) was busy."""

    busy: str
    of_step: str
    width: str


def first_screen(profile: m.Profile, found: FindingList) -> Shown:
    runs = profile.runs
    by_speed = ranked(runs)
    comparison = profile.comparison
    root = profile.source_root
    per = "window"
    if comparison or any(kernels.steps for *_, kernels in breakdown.broken_down(runs)):
        per = "step"
    busy = [*_both_sides(comparison)] or [*_busy(runs, by_speed)]
    kinds = {part.kind for bar in busy for part in bar.parts}
    shown: Shown = {
        "account": picture(profile),
        **dict.fromkeys(("bars", "limited", "steps", "causes", "intervals", "diff"), ()),
        "not_applied": not_applied(profile.actions),
        "busy": busy,
        "per": per,
        "on_gpu": profile.device == "cuda",
        "kinds": [
            replace(one, name=one.name.replace(", ", "/").replace(" and ", "/"))
            for one in legend(kinds)
        ],
    }
    if comparison:
        return shown | {
            "tiles": [*_changes(comparison)],
            "causes": [*_causes(comparison, found, root)],
            "causes_of": _causes_of(comparison),
            "diff": _diff(comparison),
            "fix": _fix(profile, comparison),
            "intervals": _intervals(comparison),
        }
    if by_speed and len(by_speed.runs) > 1:
        shown["bars"] = [*_bars(by_speed, runs)]
        shown["has_winner"] = by_speed.has_winner
        shown["more_runs"] = max(0, len(by_speed.runs) - RUNS)
        shown["unit"] = by_speed.unit.name
    return shown | {
        "tiles": [*_figures(profile, found)],
        "limited": limit_blocks(runs, root),
        "steps": [*_steps(profile, found)],
    }


@m.otherwise("")
def _causes_of(comparison: m.Comparison) -> str:
    """The change of the first run that has causes; empty where it is not known."""
    for run in comparison.runs:
        if run.causes:
            return f"{m.known(run.delta_us):+.1f} \N{MICRO SIGN}s/{one_line(run.per, _UNIT)}"
    return ""


# ---------------------------------------------------------------- the four figures


def _figures(profile: m.Profile, found: FindingList) -> Iterator[Tile]:
    if not profile.runs or measured_nothing(profile):
        return
    first = profile.runs[importance(profile.runs)[0]]
    if isinstance(first.step, m.Spread):
        yield _step_tile(profile, first, first.step)
    if isinstance(first.kernels, m.KernelBreakdown):
        yield _busy_tile(first, first.kernels)
    compiled = first.compile
    if isinstance(compiled, m.CompileSummary) and isinstance(compiled.first_call_s, float):
        below = made(compiled)
        cold = getattr(first.economics, "cold", None)
        if isinstance(cold, m.BreakEven):
            below = f"break-even after {plural(round(cold.steps), 'step')}"
        what = "First call"
        if first.script:
            what = "First step"
        yield Tile(what, duration(1e6 * compiled.first_call_s), below, "compile")
    lines = [line for group in found.groups for line in group.lines]
    own = sum(first.slug in line.runs or not line.runs for line in lines)
    below, tone = coverage.tally(profile.coverage, profile.rules), ""
    if own:
        below, tone = "all of them", "attention"
    if others := len(lines) - own:
        below = f"{others:,} more on other runs"
    yield Tile("Findings", count(own), below, "findings", tone)


def _step_tile(profile: m.Profile, first: m.RunReport, step: m.Spread) -> Tile:
    base = next((run for run in profile.runs if run.is_baseline), first)
    known = within_process(step, PER_STEP)
    spread = f"{duration(step.p10)}{DASH}{duration(step.p90)}"
    if not known.is_steady:
        below = f"p10{DASH}p90 varied {ratio(known.variation)}: not decided"
        return Tile("Step", spread, below, "results", "attention")
    if limits.is_crowded(first):
        below = "other processes were busy: not decided"
        return Tile("Step", spread, below, "results", "attention")
    below = f"p10{DASH}p90 {spread}"
    if first.long_steps:
        below = f"the median; {first.long_steps.words}"
        return Tile("Step", duration(step.median), below, "results", "attention")
    if base is not first and isinstance(base.step, m.Spread):
        below = f"baseline {duration(base.step.median)}"
    return Tile("Step", duration(step.median), below, "results")


def _busy_tile(first: m.RunReport, kernels: m.KernelBreakdown) -> Tile:
    """Of another pass than the step's tile, it says so where the two differ."""
    us, share, of, is_timing = breakdown.busy_share(kernels, first.step)
    label = "Operators busy"
    if kernels.device == "cuda":
        label = "GPU busy"
    unit, size = "\N{MICRO SIGN}s", 1.0
    if of >= 1e3:
        unit, size = "ms", 1e3
    if doubt := breakdown.share_doubt(of, first.step):
        return Tile(label, duration(us), doubt, "time")
    below = f"{figure(us / size)} of {figure(of / size)} {unit}"
    if not is_timing:
        below += " traced"
    return Tile(label, rounded(share), below, "time")


def _changes(comparison: m.Comparison) -> Iterator[Tile]:
    metrics = compare_words.metrics_of(comparison)
    for label, wanted in (
        ("Step", m.TimeOf.STEP),
        ("First call", m.COLD_FIRST_CALL),
        ("Kernels", m.KERNELS_PER_STEP),
    ):
        known = (one for one in metrics if one.name == wanted)
        metric = next((one for one in known if not isinstance(one.head, m.Skipped)), None)
        if not metric:
            continue
        sides = [compare_words.value(metric, side) for side in (metric.base, metric.head)]
        below = " \N{RIGHTWARDS ARROW} ".join(sides)
        change = compare_words.change(metric).partition(" (")[0]
        tone = ""
        if metric.verdict in (m.MetricVerdict.WORSE, m.MetricVerdict.BETTER):
            tone = metric.verdict.value
        yield Tile(label, change, below, "metrics", tone)
    each = compare_words.by_status(comparison)
    new = len(each[m.FindingStatus.NEW])
    tone = ""
    if new:
        tone = "worse"
    elif each[m.FindingStatus.FIXED]:
        tone = "better"
    below = compare_words.tally(comparison).partition(", ")[2]
    yield Tile("New findings", count(new), below, "compared-findings", tone)


# ----------------------------------------------------------- the runs by speed, and by what they do


def _bars(found: Ranked, runs: m.Runs) -> Iterator[Shown]:
    longest = max(time.median for _, time in found.runs) or 1.0
    index = {run.key: i for i, run in enumerate(runs)}
    for place, (run, time) in enumerate(found.runs[:RUNS]):
        yield Shown(
            leads_to=anchor(index[run.key]),
            run=run.slug,
            first=not place and found.has_winner,
            speedup=speedup_words(run),
            time=found.unit.bare(time.median),
            width=of_width(max(time.median / longest, 0.004)),
            title=f"{run.slug}: {found.unit.say(time.median)}",
        )


def _busy(runs: m.Runs, found: Ranked | None) -> Iterator[BusyBar]:
    known = breakdown.broken_down(runs)
    if found:
        order = {run.key: place for place, (run, _) in enumerate(found.runs)}
        known.sort(key=lambda each: order.get(each[1].key, len(order)))
    for index, run, kernels in known:
        parts = breakdown.parts(kernels)
        parts.pop(breakdown.IDLE, None)
        if sum(parts.values()):
            share: float | None
            us, share, of, _ = breakdown.busy_share(kernels, run.step)
            if breakdown.share_doubt(of, run.step):
                share = None
            yield _busy_bar(name_of(run.key), parts, us, share, f"kernels-{anchor(index)}")


def _busy_bar(
    run: str, parts: Mapping[str, float], us: float, share: float | None, anchor: str = ""
) -> BusyBar:
    """``parts``: microseconds by kind; ``us``: all that it was busy, which is ``share`` of the
    step, if that is known."""
    whole = sum(parts.values())
    words = []
    drawn = []
    for kind, part_us in parts.items():
        name = breakdown.NAMES[kind]
        part = part_us / whole
        words.append(f"{name} {rounded(part)}")
        drawn.append(Part(kind, "", part, part, f"{name} {percent(part)}"))
    description = ", ".join(words)
    if not anchor:
        description = f"{run}: {description}"
    return BusyBar(
        description,
        drawn,
        run,
        anchor=anchor,
        busy=duration(us),
        of_step=or_dash(share, rounded),
        width=of_width(share or 0.0),
    )


# ----------------------------------------------------- what to do, and what a change is put down to


def _steps(profile: m.Profile, found: FindingList) -> Iterator[Shown]:
    """Yield each action but its remedy, a paragraph that the page has more room for."""
    root = profile.source_root
    for action in profile.actions:
        saves = action.saves
        if isinstance(saves, m.Saving):
            share = or_dash(action.share, lambda share: f" ({rounded(share)})", "")
            most = f"{duration(saves.us_per_step)}/{saves.per}"
            saved = f"saves \N{LESS-THAN OR EQUAL TO} {most}{share}"
            how = saves.how
        else:
            saved, how = "", saves.reason
        code = action.fix
        if action.location:
            code = code or action.location.text.strip()
        places = [_lines(file, lines, root) for file, lines in action.lines.items()]
        yield Shown(
            text=action.text,
            code=one_line(code, _CODE),
            place=", ".join(places),
            amount=saved,
            leads_to=found.anchors.get(action.finding, "findings"),
            about=f"{action.run.slug}, {action.rule}, {how}",
        )


def _causes(found: m.Comparison, shown: FindingList, root: str) -> Iterator[Shown]:
    """What accounts for the change; where nothing does, what differs without a clock."""
    first = compare_words.first_causes(found)
    explained = [(cause, us) for cause in first if isinstance(us := cause.explains_us, float)]
    longest = max((abs(us) for _, us in explained), default=0.0) or 1.0

    def sized(us: float) -> Shown:
        return Shown(amount=f"{us:+.1f}", width=of_width(abs(us) / longest))

    def placed(place: m.Location | None) -> str:
        return _lines(place.file, [place.line], root) if place else ""

    for cause in first:
        amount = Shown(amount="unknown", width="")
        if isinstance(cause.explains_us, float):
            amount = sized(cause.explains_us)
        yield amount | Shown(
            text=cause.text,
            place=placed(cause.place),
            leads_to=shown.anchors.get(cause.fingerprint, ""),
        )
    run = next((run for run in found.runs if run.causes), None)
    if run and isinstance(run.remainder_us, float) and explained:
        rest = Shown(text="not explained", place="", leads_to="")
        yield rest | sized(run.remainder_us)
    difference = compare_words.first_difference(found)
    if difference and not first:
        text = f"{difference.aspect}: {difference.text}"
        told = Shown(text=text, leads_to="work", amount="unknown", width="")
        yield told | Shown(place=placed(difference.place))


def _put_down(found: m.Comparison) -> m.Cause | m.WorkDifference | None:
    """What the change is put down to first."""
    return next(iter(compare_words.first_causes(found)), compare_words.first_difference(found))


def _diff(found: m.Comparison) -> Sequence[tuple[str, str]]:
    """The lines of the change, each with its style."""
    styles = {"-": "gone", "+": "come"}
    told = _put_down(found)
    if told is None:
        return ()
    return [(styles.get(line[0], "at"), line) for line in compare_words.changed_line(told)]


def _fix(profile: m.Profile, found: m.Comparison) -> Shown:
    """Code where there is any, else what the rule says; empty without a cause that is a finding."""
    told = _put_down(found)
    finding = None
    if isinstance(told, m.Cause):
        finding = compare_words.finding_of(told, found)
    if finding is None:
        return {"label": "", "code": "", "text": ""}
    if finding.fix:
        return {"label": fix_label(finding).capitalize(), "code": finding.fix, "text": ""}
    return {"label": "What to do", "code": "", "text": profile.remedy(finding.rule)}


def _lines(file: str, lines: Sequence[int], root: str) -> str:
    """The file's last two parts: the finding has the whole of its path."""
    path = relative(file, root).split("/")
    return f"{'/'.join(path[-2:])}:{ranges(lines)}"


def _intervals(found: m.Comparison) -> Shown:
    """The change of each time in percent, on one axis: rows, and ticks with their numbers."""
    known = []
    for metric in compare_words.metrics_of(found):
        ends = compare_words.interval_of(metric)
        if metric.time_of and ends:
            known.append((metric, 100 * ends[0], 100 * ends[1]))
    known = known[:_INTERVALS]
    if not known:
        return {}
    several = len({metric.run for metric, *_ in known}) > 1
    limits = [metric.budget_percent or 0.0 for metric, *_ in known]
    low = min(-_LEAST_PERCENT, *(low for _, low, _ in known))
    high = max(_LEAST_PERCENT, *limits, *(high for *_, high in known))
    margin = _MARGIN * (high - low)
    axis = Axis(low=low - margin, high=high + margin)
    rows = []
    for metric, from_, to in known:
        words = compare_words.ends(metric)
        limit = ""
        beyond = ""
        if metric.budget_percent is not None:
            at = axis.at(metric.budget_percent)
            limit, beyond = of_width(at), of_width(1 - at)
        row = Shown(
            name=metric.name,
            run=name_of(metric.run) * several,
            ends=words,
            verdict=metric.verdict,
            tone=metric.verdict.replace(" ", "-"),
            title=f"{metric.name}, {metric.run.slug}: {words}, {metric.verdict}",
            x=of_width(axis.at(from_)),
            width=of_width(max(axis.at(to) - axis.at(from_), 0.004)),
            limit=limit,
            beyond=beyond,
        )
        rows.append(row)
    ticks = [(of_width(axis.at(value)), _percent(value)) for value in axis.ticks(_TICKS)]
    return {"rows": rows, "ticks": ticks, "zero": of_width(axis.at(0.0))}


def _percent(value: float) -> str:
    """Of a tick; there is no other zero than this one."""
    if not value:
        return "0 %"
    return f"{sign(value)}{abs(value):g} %"


def _both_sides(found: m.Comparison | None) -> Iterator[BusyBar]:
    """Of the first run that was traced on both sides."""
    if not found:
        return
    known = [run for run in found.runs if run.trace and not run.trace.missing]
    for run in known[:1]:
        assert run.trace
        step = next((one for one in run.metrics if one.time_of is m.TimeOf.STEP), None)
        for side in SIDES:
            parts = parts_of(run.trace, side)
            parts.pop(breakdown.IDLE, None)
            whole = sum(parts.values())
            of_us = getattr(step, side, None)
            if not isinstance(of_us, float):
                of_us = window_us(run.trace, side)
            if whole and of_us:
                yield _busy_bar(side, parts, whole, whole / of_us)
