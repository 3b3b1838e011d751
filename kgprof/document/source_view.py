"""The workload's own files with what was measured of each line, and what torch made of them: graphs
and code."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kgprof import model as m
from kgprof.document.escaping import clip, one_line, visible
from kgprof.document.limits import FIRST_RUNS, Limits, anchor, kept
from kgprof.document.quantity import count, duration, figure, size
from kgprof.document.table import View
from kgprof.wording import plural, relative

_AROUND = 3  # lines shown before and after one with figures
_CODE = 160  # characters of a line
_WORDS = {m.GRAPH: "FX graph", m.CODE: "generated code"}


@dataclass(kw_only=True, slots=True)
class _Line:
    """What is known of a line, per step."""

    us: float = 0.0
    bytes: float = 0.0
    syncs: float = 0.0
    breaks: int = 0
    recompiles: int = 0
    rules: dict[str, str] = field(default_factory=dict)  # the anchor of a rule's first finding here


class SourceLine(View):
    """``number`` is empty where lines were left out; ``code`` is None where the text is not
    known."""

    number: str = ""
    code: str | None = None
    figures: tuple[str, ...] = ()  # one for each of the columns
    findings: tuple[tuple[str, str], ...] = ()  # rule and anchor


class SourceFile(View):
    name: str
    caption: str
    lines: tuple[SourceLine, ...]


class Compiled(View):
    """A graph, or its code."""

    title: str
    text: str
    more: str  # how much is left out, and where the whole is


class SourceOfRun(View):
    anchor: str
    run: str
    columns: tuple[str, ...]
    files: tuple[SourceFile, ...]
    compiled: tuple[Compiled, ...]
    more: str  # lines that are left out


def source_view(
    profile: m.Profile, anchors: Mapping[str, str], limits: Limits
) -> tuple[SourceOfRun, ...]:
    """Of the runs that matter most. ``anchors``: of findings by fingerprint."""
    if not limits.source_rows:
        return ()
    first = sorted(kept(profile.runs, FIRST_RUNS))
    return tuple(
        view for at in first if (view := _of_run(profile, at, anchors, limits)) is not None
    )


def left_out(profile: m.Profile) -> str:
    """Why source lines are not shown, and the switch that shows them; empty where they are."""
    missing = [
        source.text.reason for source in profile.sources if isinstance(source.text, m.Skipped)
    ]
    if not missing or len(missing) < len(profile.sources):
        return ""
    if profile.contents and profile.contents.source != "all":
        return (
            f"Source lines are left out (--include-source {profile.contents.source}): make the "
            "report again with --include-source "
            f"{'repo' if profile.contents.source == 'none' else 'all'} to see them."
        )
    return f"Source lines are left out: {missing[0]}."


def _of_run(
    profile: m.Profile, at: int, anchors: Mapping[str, str], limits: Limits
) -> SourceOfRun | None:
    run = profile.runs[at]
    root = profile.environment.source_root
    own = {source.file for source in profile.sources}
    known: dict[str, dict[int, _Line]] = defaultdict(lambda: defaultdict(_Line))
    for place, line in _measured(profile, run, anchors):
        # An older Recording holds the text of few of them.
        if place.file in own or not relative(place.file, root).startswith(("/", "<", "~")):
            _add(known[place.file][place.line], line)
    texts = {
        source.file: source.text.splitlines()
        for source in profile.sources
        if isinstance(source.text, str)
    }
    compiled = tuple(_compiled(run, limits))
    if not known and not compiled:
        return None
    device = run.kernels.device if isinstance(run.kernels, m.KernelBreakdown) else ""
    columns = _columns([line for lines in known.values() for line in lines.values()], device)
    weights = {file: max(_weight(line) for line in lines.values()) for file, lines in known.items()}
    room = limits.source_rows
    files = []
    for file in sorted(known, key=lambda file: (tuple(-part for part in weights[file]), file)):
        # The largest takes half of the room, so that a sync in the next one is seen.
        lines = _lines(
            known[file], texts.get(file), columns, -(-room // 2) if len(known) > 1 else room, limits
        )
        room -= len(lines)
        if lines:
            caption = _caption(known[file].values(), device) + (
                "" if file in own else "; its text was not recorded"
            )
            files.append(
                SourceFile(
                    name=one_line(relative(file, root), limits.name), caption=caption, lines=lines
                )
            )
    more = len(known) - len(files)
    return SourceOfRun(
        anchor=anchor(at),
        run=one_line(run.key.slug, limits.name),
        columns=tuple(name for name, _ in columns),
        files=tuple(files),
        compiled=compiled,
        more=f"{plural(more, 'more file')} with figures in report.json" if more else "",
    )


def _measured(
    profile: m.Profile, run: m.RunReport, anchors: Mapping[str, str]
) -> Iterator[tuple[m.Location, _Line]]:
    """Each figure with the line that it is of."""
    kernels = run.kernels
    if isinstance(kernels, m.KernelBreakdown):
        steps = kernels.steps or 1
        moved: dict[str, float] = defaultdict(float)
        for launches in kernels.roofline.rows if isinstance(kernels.roofline, m.Roofline) else ():
            if not isinstance(launches.bytes_moved, m.Skipped):
                moved[launches.name] += launches.bytes_moved * launches.count / steps
        for row in kernels.rows:
            for place in row.lines:
                yield place, _Line(us=row.lines_us / steps, bytes=moved.get(row.name, 0.0))
    if isinstance(run.compile, m.CompileSummary) and not isinstance(
        run.compile.recompiles, m.Skipped
    ):
        for entry in run.compile.recompiles:
            if entry.location:
                yield entry.location, _Line(recompiles=1)
    reads = run.memory.reads if isinstance(run.memory, m.MemorySummary) else {}
    for finding in profile.findings:
        if finding.location and finding.run in (None, run.key):
            rules = (
                {finding.rule: anchors[finding.fingerprint]}
                if finding.fingerprint in anchors
                else {}
            )
            breaks = finding.count if finding.refusal else 0
            yield (
                finding.location,
                _Line(syncs=reads.get(finding.fingerprint, 0.0), breaks=breaks, rules=rules),
            )


def _add(line: _Line, more: _Line) -> None:
    line.us += more.us
    line.bytes += more.bytes
    line.syncs += more.syncs
    line.breaks += more.breaks
    line.recompiles += more.recompiles
    line.rules = {**more.rules, **line.rules}


def _columns(lines: Sequence[_Line], device: str) -> tuple[tuple[str, str], ...]:
    """Heading and field of each figure that some line of the run has."""
    every = (
        ("GPU time" if device == "cuda" else "CPU time", "us"),
        ("moved", "bytes"),
        ("syncs", "syncs"),
        ("breaks", "breaks"),
        ("recompiles", "recompiles"),
    )
    return tuple(
        (name, field) for name, field in every if any(getattr(line, field) for line in lines)
    )


def _shown(line: _Line, field: str) -> str:
    value: float = getattr(line, field)
    if not value:
        return ""
    if field == "us":
        return duration(value)
    return (
        size(round(value))
        if field == "bytes"
        else figure(value)
        if field == "syncs"
        else count(round(value))
    )


def _weight(line: _Line) -> tuple[float, ...]:
    return line.us, line.syncs, float(len(line.rules) + line.breaks + line.recompiles)


def _caption(lines: Iterable[_Line], device: str) -> str:
    lines = list(lines)
    findings = len({anchor for line in lines for anchor in line.rules.values()})
    most = max(line.us for line in lines)
    busiest = (
        f"up to {duration(most)} of {'GPU' if device == 'cuda' else 'CPU'} time on a line"
        if most
        else ""
    )
    return ", ".join(
        part for part in (busiest, plural(findings, "finding") if findings else "") if part
    )


def _lines(
    known: Mapping[int, _Line],
    text: Sequence[str] | None,
    columns: Sequence[tuple[str, str]],
    room: int,
    limits: Limits,
) -> tuple[SourceLine, ...]:
    """Those with figures and a few around each: what has a finding, then what takes longest, as
    long as there is room. Without the text only those."""
    around = _AROUND if text is not None else 0
    wanted: set[int] = set()
    for number in sorted(
        known, key=lambda number: (not known[number].rules, -known[number].us, number)
    ):
        more = {
            n
            for n in range(number - around, number + around + 1)
            if text is None or 0 < n <= len(text)
        }
        if len(wanted | more) > room:
            break
        wanted |= more
    lines: list[SourceLine] = []
    for number in sorted(wanted):
        if lines and text is not None and number - 1 not in wanted:
            lines.append(SourceLine())
        line = known.get(number, _Line())
        lines.append(
            SourceLine(
                number=str(number),
                code=clip(visible(text[number - 1]), min(_CODE, limits.name))
                if text is not None
                else None,
                figures=tuple(_shown(line, field) for _, field in columns),
                findings=tuple(line.rules.items()),
            )
        )
    return tuple(lines)


def _compiled(run: m.RunReport, limits: Limits) -> Iterator[Compiled]:
    """As much of each as there is room for in all."""
    if isinstance(run.compile, m.Skipped):
        return
    texts = [text for text in run.compile.texts if text.text]
    room = limits.code_chars // max(1, len(texts))
    functions = {made.compile_id: made.function for made in run.compile.compilations}
    for text in texts if room >= _CODE else ():
        shown = text.text[:room]
        function = functions.get(text.compile_id) or "a function"
        cut = text.cut + len(text.text) - len(shown)
        whole = (
            f"kgprof export RECORDING --to {text.what} --run "
            f"{one_line(run.key.slug, limits.name)} -o FILE"
        )
        yield Compiled(
            title=one_line(
                f"{_WORDS.get(text.what, text.what)} of {function} ({text.compile_id})", limits.name
            ),
            text=visible(shown, keep="\n"),
            more=f"{cut:,} more characters; the whole: {whole}" if cut else "",
        )
