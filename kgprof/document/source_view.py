"""The workload's own files with what was measured of each line, and what torch made of them: graphs
and code."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kgprof import model as m
from kgprof.document.escaping import clip, one_line
from kgprof.document.finding_list import Anchors
from kgprof.document.limits import FIRST_RUNS, Limits, anchor, kept
from kgprof.document.quantity import count, duration, figure, or_dash, size
from kgprof.document.table import Shown
from kgprof.wording import plural, relative, visible

_AROUND = 3  # lines shown before and after one with figures
_CODE = 160  # characters of a line
_Column = tuple[str, str, Callable[[float], str]]
_WORDS = {m.GRAPH: "FX graph", m.CODE: "generated code"}


@dataclass(slots=True)
class _Line:
    """What is known of a line, per step."""

    figures: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    rules: dict[str, str] = field(default_factory=dict)  # the anchor of a rule's first finding here

    @property
    def weight(self) -> tuple[float, float, float]:
        once = len(self.rules) + self.figures["breaks"] + self.figures["recompiles"]
        return self.figures["us"], self.figures["syncs"], once


def _whole(value: float) -> str:
    return count(round(value))


# The heading of a figure of a line, its name, and how it is written.
_COLUMNS: Sequence[_Column] = (
    ("{} time", "us", duration),
    ("moved", "bytes", lambda value: size(round(value))),
    ("syncs", "syncs", figure),
    ("breaks", "breaks", _whole),
    ("recompiles", "recompiles", _whole),
)


def source_view(profile: m.Profile, anchors: Anchors, limits: Limits) -> Sequence[Shown]:
    """Of the runs that matter most. ``anchors``: of findings by fingerprint."""
    if not limits.source_rows:
        return ()
    first = sorted(kept(profile.runs, FIRST_RUNS))
    return [view for at in first if (view := _of_run(profile, at, anchors, limits)) is not None]


def left_out(profile: m.Profile) -> str:
    """Why source lines are not shown, and the switch that shows them; empty where they are."""
    texts = (source.text for source in profile.sources)
    missing = [text.reason for text in texts if isinstance(text, m.Skipped)]
    if not missing or len(missing) < len(profile.sources):
        return ""
    if profile.contents and profile.contents.source != "all":
        wider = "all"
        if profile.contents.source == "none":
            wider = "repo"
        return (
            f"Source lines are left out (--include-source {profile.contents.source}): make the "
            f"report again with --include-source {wider} to see them."
        )
    return f"Source lines are left out: {missing[0]}."


def _of_run(profile: m.Profile, at: int, anchors: Anchors, limits: Limits) -> Shown | None:
    run = profile.runs[at]
    root = profile.source_root
    texts = {source.file: source.text for source in profile.sources}
    known: dict[str, dict[int, _Line]] = defaultdict(lambda: defaultdict(_Line))
    for place, figures, rules in _measured(profile, run, anchors):
        # An older Recording holds the text of few of them.
        if place.file in texts or not relative(place.file, root).startswith(("/", "<", "~")):
            line = known[place.file][place.line]
            line.rules = {**rules, **line.rules}
            for name, value in figures.items():
                line.figures[name] += value
    compiled = tuple(_compiled(run, limits))
    if not known and not compiled:
        return None
    processor = "CPU"
    if isinstance(run.kernels, m.KernelBreakdown) and run.kernels.device == "cuda":
        processor = "GPU"
    every = [line for lines in known.values() for line in lines.values()]
    columns = [column for column in _COLUMNS if any(line.figures[column[1]] for line in every)]
    weights = {file: max(line.weight for line in lines.values()) for file, lines in known.items()}
    room = limits.source_rows
    files = []
    for file in sorted(known, key=lambda file: ([-part for part in weights[file]], file)):
        most = room
        if len(known) > 1:
            # The largest takes half of the room, so that a sync in the next one is seen.
            most = -(-room // 2)
        code = None
        if isinstance(text := texts.get(file), str):
            code = text.splitlines()
        lines = _lines(known[file], code, columns, most, limits)
        room -= len(lines)
        if lines:
            caption = _caption(known[file].values(), processor)
            if file not in texts:
                caption += "; its text was not recorded"
            name = one_line(relative(file, root), limits.name)
            files.append(Shown(name=name, caption=caption, lines=lines))
    more = ""
    if unseen := len(known) - len(files):
        more = f"{plural(unseen, 'more file')} with figures in report.json"
    return Shown(
        anchor=anchor(at),
        run=one_line(run.slug, limits.name),
        columns=[heading.format(processor) for heading, _, _ in columns],
        files=files,
        compiled=compiled,
        more=more,
    )


def _measured(
    profile: m.Profile, run: m.RunReport, anchors: Anchors
) -> Iterator[tuple[m.Location, dict[str, float], dict[str, str]]]:
    """Each line with figures of it, and with the anchors of what is found there."""
    kernels = run.kernels
    if isinstance(kernels, m.KernelBreakdown):
        steps = kernels.steps or 1
        moved: dict[str, float] = defaultdict(float)
        for launches in getattr(kernels.roofline, "rows", ()):
            if not isinstance(launches.bytes_moved, m.Skipped):
                moved[launches.name] += launches.bytes_moved * launches.count / steps
        for row in kernels.rows:
            for place in row.lines:
                yield place, {"us": row.lines_us / steps, "bytes": moved[row.name]}, {}
    if isinstance(run.compile, m.CompileSummary) and isinstance(run.compile.recompiles, tuple):
        for entry in run.compile.recompiles:
            if entry.location:
                yield entry.location, {"recompiles": 1}, {}
    reads = getattr(run.memory, "reads", {})
    for finding in profile.findings:
        if finding.location and finding.run in (None, run.key):
            mark = finding.fingerprint
            rules = {}
            figures = {"syncs": reads.get(mark, 0.0)}
            if mark in anchors:
                rules[finding.rule] = anchors[mark]
            if finding.refusal:
                figures["breaks"] = finding.count
            yield finding.location, figures, rules


def _caption(lines: Collection[_Line], processor: str) -> str:
    parts = []
    if most := max(line.figures["us"] for line in lines):
        parts.append(f"up to {duration(most)} of {processor} time on a line")
    if findings := {anchor for line in lines for anchor in line.rules.values()}:
        parts.append(plural(len(findings), "finding"))
    return ", ".join(parts)


def _lines(
    known: Mapping[int, _Line],
    text: Sequence[str] | None,
    columns: Sequence[_Column],
    room: int,
    limits: Limits,
) -> Sequence[Shown]:
    """Those with figures and a few around each: what has a finding, then what takes longest, as
    long as there is room. Without the text only those."""
    width = min(_CODE, limits.name)
    wanted: set[int] = set()
    for number in sorted(
        known,
        key=lambda number: (not known[number].rules, -known[number].figures["us"], number),
    ):
        more = {number}
        if text is not None:
            more = {*range(max(1, number - _AROUND), min(number + _AROUND, len(text)) + 1)}
        if len(wanted | more) > room:
            break
        wanted |= more
    lines: list[Shown] = []
    for number in sorted(wanted):
        if lines and text is not None and number - 1 not in wanted:
            lines.append(Shown(number=""))  # lines were left out
        line = known.get(number, _Line())
        code = None
        if text is not None:
            code = clip(visible(text[number - 1]), width)
        figures = [or_dash(line.figures[name] or None, words, "") for _, name, words in columns]
        findings = tuple(line.rules.items())
        lines.append(Shown(number=str(number), code=code, figures=figures, findings=findings))
    return lines


def _compiled(run: m.RunReport, limits: Limits) -> Iterator[Shown]:
    """As much of each as there is room for in all."""
    if not isinstance(run.compile, m.CompileSummary):
        return
    texts = [text for text in run.compile.texts if text.text]
    room = limits.code_chars // max(1, len(texts))
    if room < _CODE:
        return
    functions = {made.compile_id: made.function for made in run.compile.compilations}
    slug = one_line(run.slug, limits.name)
    for text in texts:
        shown = text.text[:room]
        function = functions.get(text.compile_id) or "a function"
        title = f"{_WORDS.get(text.what, text.what)} of {function} ({text.compile_id})"
        more = ""
        if cut := text.cut + len(text.text) - len(shown):
            whole = f"kgprof export RECORDING --to {text.what} --run {slug} -o FILE"
            more = f"{cut:,} more characters; the whole: {whole}"
        yield Shown(title=one_line(title, limits.name), text=visible(shown, keep="\n"), more=more)
