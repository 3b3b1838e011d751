"""The first screen: four figures, the runs by speed, what to do next, and where each run's GPU time
goes.

Of a comparison the figures are changes, and in place of the runs stands what accounts for the
change.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from kgprof import coverage
from kgprof import model as m
from kgprof.document import breakdown, compare_words
from kgprof.document.account import picture
from kgprof.document.breakdown import Part, Segment, legend, of_parts
from kgprof.document.compare_part import Shown, parts_of, plot
from kgprof.document.escaping import clip, one_line
from kgprof.document.failures import measured_nothing
from kgprof.document.finding_list import FindingList, not_applied
from kgprof.document.limit_table import limit_blocks
from kgprof.document.limits import Limits, anchor, importance
from kgprof.document.quantity import DASH, count, duration, figure, of_width, percent, ratio
from kgprof.document.summary import made
from kgprof.document.table import View, bounded
from kgprof.judge import NOISY
from kgprof.measures.times import PER_STEP, Ranked, ranked, within_process
from kgprof.wording import plural, ranges, relative

RUNS = 8  # bars of the first screen; the table of results has every run
_CODE, _UNIT = 120, 24  # characters
_CAUSES = 3
_INTERVALS = 3


class Tile(View):
    """One of the four figures."""

    label: str
    value: str
    below: str
    leads_to: str  # the anchor where more of it stands
    tone: str = ""  # a class: "worse", "better", "attention"


class RunBar(View):
    leads_to: str
    run: str
    first: bool
    speedup: str
    time: str
    width: str
    title: str


class Step(View):
    """Something to do, or what a change is put down to."""

    text: str
    code: str
    place: str
    amount: str
    leads_to: str
    width: str = ""  # of its bar
    remedy: str = ""
    about: str = ""


class BusyBar(View):
    """100 % is the time in which the GPU (on a CPU: an operator) was busy."""

    leads_to: str
    run: str
    description: str
    segments: Sequence[Segment]
    busy: str
    of_step: str
    width: str


def first_screen(profile: m.Profile, found: FindingList, limits: Limits) -> dict[str, object]:
    runs = profile.runs
    by_speed = ranked(runs)
    first = runs[importance(runs)[0]] if runs else None
    compared = profile.comparison is not None
    both = tuple(_both_sides(profile.comparison)) if profile.comparison else ()
    busy = both or tuple(_busy(runs, by_speed, limits))
    kinds = {segment.kind for bar in busy for segment in bar.segments}
    tiles = _changes(profile, found) if compared else _figures(profile, first, found, limits)
    decided = (
        next((run for run in profile.comparison.runs if run.causes), None)
        if profile.comparison
        else None
    )
    marked = any(isinstance(run.kernels, m.KernelBreakdown) and run.kernels.steps for run in runs)
    causes_of = ""
    if decided and isinstance(decided.delta_us, float):
        causes_of = (
            f"{decided.delta_us:+.1f} \N{MICRO SIGN}s/"
            f"{clip(one_line(decided.per, limits.name), _UNIT)}"
        )
    return {
        "account": picture(profile),
        "tiles": [*tiles],
        "unit": by_speed.unit.name if by_speed else "",
        "bars": ()
        if compared or by_speed is None or len(by_speed.runs) < 2
        else tuple(_bars(by_speed, runs, limits)),
        "has_winner": by_speed is not None and by_speed.has_winner,
        "more_runs": max(0, len(by_speed.runs) - RUNS) if by_speed else 0,
        "limited": ()
        if compared
        else bounded(limit_blocks(runs, profile.environment.source_root), limits),
        "steps": () if compared else tuple(_steps(profile, found, limits)),
        "not_applied": not_applied(profile.actions),
        "causes": tuple(
            _causes(profile.comparison, found, profile.environment.source_root, limits)
        ),
        "causes_of": causes_of,
        "intervals": tuple(_intervals(profile.comparison)) if profile.comparison else (),
        "busy": busy,
        "per": "step" if marked or compared else "window",
        "on_gpu": profile.device == "cuda",
        "kinds": [
            replace(one, name=one.name.replace(", ", "/").replace(" and ", "/"))
            for one in legend(kinds)
        ],
    }


# ---------------------------------------------------------------- the four figures


def _figures(
    profile: m.Profile, first: m.RunReport | None, found: FindingList, limits: Limits
) -> Iterator[Tile]:
    if first is None or measured_nothing(profile):
        return
    if isinstance(first.step, m.Spread):
        yield _step_tile(profile, first, first.step)
    if isinstance(first.kernels, m.KernelBreakdown):
        yield _busy_tile(first, first.kernels)
    if isinstance(first.compile, m.CompileSummary) and isinstance(
        first.compile.first_call_s, float
    ):
        below = made(first.compile)
        if isinstance(first.economics, m.Economics):
            cold = first.economics.cold
            steps = plural(round(cold.steps), "step") if isinstance(cold, m.BreakEven) else ""
            never = first.economics.verdict in (m.Payoff.LEVEL, m.Payoff.NEVER)
            below = f"pays off after {steps}" if steps else "not paid back" if never else below
        value = duration(1e6 * first.compile.first_call_s)
        yield Tile(label="First call", value=value, below=below, leads_to="compile")
    lines = [line for group in found.groups for line in (*group.lines, *group.folded)]
    own = sum(first.key.slug in line.runs or not line.runs for line in lines)
    others = len(lines) - own
    below = "all of them" if own else coverage.tally(profile.coverage, profile.rules)
    below = f"{others:,} more on other runs" if others else below
    yield Tile(
        label="Findings",
        value=count(own),
        below=below,
        leads_to="findings",
        tone="attention" if own else "",
    )


def _step_tile(profile: m.Profile, first: m.RunReport, step: m.Spread) -> Tile:
    base = next((run for run in profile.runs if run.is_baseline), first)
    known = within_process(step, PER_STEP)
    value = duration(step.median)
    spread = f"{duration(step.p10)}{DASH}{duration(step.p90)}"
    below = f"p10{DASH}p90 {spread}"
    if base is not first and isinstance(base.step, m.Spread):
        below = f"baseline {duration(base.step.median)}"
    if known.is_steady:
        return Tile(label="Step", value=value, below=below, leads_to="results")
    below = f"p10{DASH}p90 varied {ratio(known.variation)}: not decided"
    return Tile(label="Step", value=spread, below=below, leads_to="results", tone="attention")


def _busy_tile(first: m.RunReport, kernels: m.KernelBreakdown) -> Tile:
    """Of another pass than the step's tile, it says so where the two differ."""
    us, share, of, is_timing = breakdown.busy_share(kernels, first.step)
    label = "GPU busy" if kernels.device == "cuda" else "Operators busy"
    unit, size = ("ms", 1e3) if of >= 1e3 else ("\N{MICRO SIGN}s", 1.0)
    below = f"{figure(us / size)} of {figure(of / size)} {unit}"
    if isinstance(first.step, m.Skipped):
        return Tile(label=label, value=f"{100 * share:.0f} %", below=below, leads_to="time")
    if is_timing and not within_process(first.step, PER_STEP).is_steady:
        below = "per step; its share is not decided"
        return Tile(label=label, value=duration(us), below=below, leads_to="time")
    median = first.step.median
    if not is_timing and median and max(of / median, median / of) > NOISY:
        below += f" traced, {ratio(of / median)} the step"
    return Tile(label=label, value=f"{100 * share:.0f} %", below=below, leads_to="time")


def _changes(profile: m.Profile, found: FindingList) -> Iterator[Tile]:
    comparison = profile.comparison
    assert comparison is not None
    metrics = compare_words.metrics_of(comparison)
    for label, wanted in (
        ("Step", m.TimeOf.STEP),
        ("First call", m.COLD_FIRST_CALL),
        ("Kernels", m.KERNELS_PER_STEP),
    ):
        known = (one for one in metrics if one.name == wanted)
        metric = next((one for one in known if not isinstance(one.head, m.Skipped)), None)
        if metric is None:
            continue
        tone = (
            metric.verdict.value
            if metric.verdict in (m.MetricVerdict.WORSE, m.MetricVerdict.BETTER)
            else ""
        )
        sides = f"{compare_words.value(metric, metric.base)} \N{RIGHTWARDS ARROW} "
        below = f"{sides}{compare_words.value(metric, metric.head)}"
        change = compare_words.change(metric)
        yield Tile(
            label=label, value=change.partition(" (")[0], below=below, leads_to="metrics", tone=tone
        )
    each = compare_words.by_status(comparison)
    new = len(each[m.FindingStatus.NEW])
    fixed = len(each[m.FindingStatus.FIXED])
    below = compare_words.tally(comparison).partition(", ")[2]
    tone = "worse" if new else "better" if fixed else ""
    yield Tile(
        label="New findings", value=count(new), below=below, leads_to="compared-findings", tone=tone
    )


# ----------------------------------------------------------- the runs by speed, and by what they do


def _bars(found: Ranked, runs: Sequence[m.RunReport], limits: Limits) -> Iterator[RunBar]:
    longest = max(time.median for _, time in found.runs) or 1.0
    index = {run.key: i for i, run in enumerate(runs)}
    for place, (run, time) in enumerate(found.runs[:RUNS]):
        speedup = run.speedup
        words = "baseline" if run.is_baseline else DASH
        if isinstance(speedup, m.Speedup):
            words = ratio(speedup.ratio) if speedup.ranks else str(speedup.verdict)
        said = found.unit.say(time.median)
        yield RunBar(
            leads_to=anchor(index[run.key]),
            run=one_line(run.key.slug, limits.name),
            first=not place and found.has_winner,
            speedup=words,
            time=found.unit.bare(time.median),
            width=of_width(max(time.median / longest, 0.004)),
            title=f"{one_line(run.key.slug, limits.name)}: {said}",
        )


def _busy(runs: Sequence[m.RunReport], found: Ranked | None, limits: Limits) -> Iterator[BusyBar]:
    order = [run.key for run, _ in found.runs] if found else []
    for index in sorted(
        range(len(runs)), key=lambda at: order.index(runs[at].key) if runs[at].key in order else 999
    ):
        run = runs[index]
        kernels = runs[index].kernels
        if not isinstance(kernels, m.KernelBreakdown):
            continue
        parts = breakdown.parts(kernels)
        parts.pop(breakdown.IDLE, None)
        if sum(parts.values()):
            us, share, _, _ = breakdown.busy_share(kernels, run.step)
            yield _busy_bar(
                one_line(run.key.slug, limits.name),
                parts,
                us,
                share,
                leads_to=f"kernels-{anchor(index)}",
            )


def _busy_bar(
    run: str, parts: Mapping[str, float], us: float, share: float, *, leads_to: str = ""
) -> BusyBar:
    """``parts``: microseconds by kind; ``us``: all that it was busy, which is ``share`` of the
    step."""
    whole = sum(parts.values())
    shares = [(kind, breakdown.NAMES[kind], part / whole) for kind, part in parts.items()]
    words = ", ".join(f"{name} {100 * part:.0f} %" for _, name, part in shares)
    return BusyBar(
        leads_to=leads_to,
        run=run,
        description=words if leads_to else f"{run}: {words}",
        segments=of_parts(
            [
                Part(kind=kind, letter="", length=part, share=part, title=f"{name} {percent(part)}")
                for kind, name, part in shares
            ]
        ),
        busy=duration(us),
        of_step=f"{100 * share:.0f} %",
        width=of_width(share),
    )


# ----------------------------------------------------- what to do, and what a change is put down to


def _steps(profile: m.Profile, found: FindingList, limits: Limits) -> Iterator[Step]:
    root = profile.environment.source_root
    for action in profile.actions:
        place = action.location
        saves = action.saves
        amount = ""
        about = (action.run.slug, action.rule)
        if isinstance(saves, m.Saving):
            share = "" if action.share is None else f" ({100 * action.share:.0f} %)"
            amount = (
                f"saves \N{LESS-THAN OR EQUAL TO} {duration(saves.us_per_step)}/{saves.per}{share}"
            )
        how = saves.how if isinstance(saves, m.Saving) else saves.reason
        yield Step(
            text=one_line(action.text, 2 * limits.name),
            code=clip(
                one_line(action.fix or (place.text.strip() if place else ""), limits.name), _CODE
            ),
            place=", ".join(
                _lines(file, lines, root, limits) for file, lines in action.lines.items()
            ),
            amount=amount,
            leads_to=found.anchors.get(action.finding, "findings"),
            remedy=one_line(action.no_fix or profile.remedy(action.rule), 4 * limits.name),
            about=one_line(", ".join((*about, how)), 2 * limits.name),
        )


def _causes(
    found: m.Comparison | None, shown: FindingList, root: str, limits: Limits
) -> Iterator[Step]:
    if found is None:
        return
    explained = [abs(one.explains_us) for one in found.causes if isinstance(one.explains_us, float)]
    longest = max(explained, default=0.0) or 1.0
    for cause in [cause for cause in found.causes if isinstance(cause.explains_us, float)][
        :_CAUSES
    ] or found.causes[:1]:
        place = cause.place
        us = cause.explains_us
        yield Step(
            text=one_line(cause.text, limits.name),
            code="",
            place=_lines(place.file, [place.line], root, limits) if place else "",
            amount="unknown" if isinstance(us, m.Skipped) else f"{us:+.1f}",
            width="" if isinstance(us, m.Skipped) else of_width(abs(us) / longest),
            leads_to=shown.anchors.get(cause.fingerprint, "") if cause.fingerprint else "",
        )
    run = next((run for run in found.runs if run.causes), None)
    if run is not None and isinstance(run.remainder_us, float) and explained:
        us = run.remainder_us
        width = of_width(min(1.0, abs(us) / longest))
        yield Step(
            text="not explained", code="", place="", amount=f"{us:+.1f}", width=width, leads_to=""
        )


def _lines(file: str, lines: Sequence[int], root: str, limits: Limits) -> str:
    """The file's last two parts: the finding has the whole of its path."""
    path = relative(file, root).split("/")
    return f"{one_line('/'.join(path[-2:]), limits.name)}:{ranges(lines)}"


def _intervals(found: m.Comparison) -> Iterator[Shown]:
    """Yield a time's change, drawn about "no change"."""
    times = [each for each in compare_words.metrics_of(found) if each.time_of is not None]
    for metric in times[:_INTERVALS]:
        if (drawn := plot(metric)) is None:
            continue
        words = compare_words.interval(metric)
        tone = metric.verdict.replace(" ", "-")
        change = compare_words.change(metric)
        title = f"{metric.name}, {metric.run.slug}: {change}, {words}"
        yield Shown(name=metric.name, change=change, tone=tone, title=title, plot=drawn)


def _both_sides(found: m.Comparison) -> Iterator[BusyBar]:
    """Of the first run that was traced on both sides."""
    known = (run for run in found.runs if run.trace is not None and not run.trace.missing)
    run = next(known, None)
    if run is None or run.trace is None:
        return
    for name, after in (("base", False), ("head", True)):
        parts = {
            kind: us for kind, us in parts_of(run.trace, after).items() if kind != breakdown.IDLE
        }
        window = run.trace.of_window("window")
        whole = sum(parts.values())
        metric = next((one for one in run.metrics if one.time_of is m.TimeOf.STEP), None)
        bare = (metric.head if after else metric.base) if metric else None
        of = (
            bare
            if isinstance(bare, float)
            else (window.after_us if after else window.before_us)
            if window
            else 0.0
        )
        if whole and of:
            yield _busy_bar(name, parts, whole, whole / of)
