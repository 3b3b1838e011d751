"""What the records of torch.__trace have in common: compile ids, stacks with numbered file names,
compilations.

What a topic's own records mean is in that topic's collector. The names used here are the same in
torch 2.11 to 2.15.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kgprof import model as m
from kgprof.reading.source_text import SourceText, is_resumed

# torch's record of a size or number that it could vary and made a constant of
SPECIALIZED = "symbolic_shape_specialization"

Metrics = Mapping[str, Any]
Frame = tuple[int, str, int, str]  # call, file, first line, function


@dataclass(kw_only=True, slots=True)
class Compiled:
    """One compilation of one frame: what torch said when it began and when it ended."""

    compile_id: str
    call: int
    # outermost first; the last one is the frame itself, at its first line
    stack: tuple[m.Location, ...] = ()
    metrics: Metrics = field(default_factory=dict)
    backward: list[Metrics] = field(default_factory=list)
    # times that all compiled code had been dropped before it, as far as the recording knows
    resets: int = 0
    # of its code object, after such a time: it replaces nothing, whatever its id
    first_since_reset: bool = False
    # of its code object torch compiled nothing yet, only failed to: it replaces nothing either
    after_failures: bool = False

    @property
    def frame(self) -> m.Location | None:
        return self.stack[-1] if self.stack else None

    @property
    def frame_id(self) -> str:
        """The same for every compilation of one code object."""
        return frame_id(self.compile_id)

    @property
    def is_resumed(self) -> bool:
        """Whether it is of what goes on behind a graph break."""
        return self.frame is not None and is_resumed(self.frame.function)

    @property
    def failed(self) -> bool:
        return bool(self.metrics.get("fail_type"))

    @property
    def is_empty(self) -> bool:
        """Whether torch met no operator: it then keeps no code and no guards."""
        return not self.failed and self.metrics.get("guard_count", 0) is None

    @property
    def took_us(self) -> float:
        """Of the compilation and its backward, as torch timed them; 0 where it did not."""
        known = (metrics.get("duration_us") for metrics in (self.metrics, *self.backward))
        return sum(float(us) for us in known if isinstance(us, int | float))


class RunTrace:
    """One run's records, frames and graphs, with the source text that explains them."""

    def __init__(
        self,
        run: m.RunKey,
        records: m.CompileRecords,
        *,
        calls: int,
        steady_from: int,
        source: SourceText,
        changed: Sequence[m.BackendFailure] = (),
        setting_trials: Sequence[m.Control] = (),
    ) -> None:
        """``changed``: what failed under kgprof alone."""
        self.run = run
        self.setting_trials = setting_trials
        self._changed = {(each.file, each.first_line, each.function) for each in changed}
        self.all = records
        self.calls = calls  # that the COMPILE pass made
        self.steady_from = steady_from
        self.source = source
        # File names are told once, under a number: ``{"str": [name, number]}``.
        told = (record.metadata["str"] for record in records.records if "str" in record.metadata)
        self._names = {int(number): str(name) for name, number in told}
        # Recordings of before hold no resets, so that there is no telling one from a function that
        # was created again.
        self.knows_resets = not isinstance(records.compiled_calls, m.Skipped)
        self.compiled = tuple(self._compilations())
        self._by_id: dict[str, list[Compiled]] = {}
        # Of one frame in one call: what torch began to compile, and what the frame hook saw.
        self._by_frame: dict[Frame, list[Compiled]] = {}
        self._rows: dict[Frame, list[m.OfferedFrame]] = {}
        for compiled in self.compiled:
            self._by_id.setdefault(compiled.compile_id, []).append(compiled)
            if (frame := compiled.frame) is not None:
                self._by_frame.setdefault(
                    (compiled.call, frame.file, frame.line, frame.function), []
                ).append(compiled)
        for row in records.frames:
            self._rows.setdefault((row.call, row.file, row.first_line, row.function), []).append(
                row
            )

    def is_changed(self, file: str, first_line: int, function: str) -> bool:
        """Whether a backend failed for this code object, and not in the control, in which nothing
        listened."""
        return (file, first_line, function) in self._changed

    @cached_property
    def emptied(self) -> Mapping[tuple[str, int, str], int]:
        """Functions in which torch met no operator, with the call. torch skips them from then on,
        whatever they are given."""
        emptied: dict[tuple[str, int, str], int] = {}
        for row in self.all.frames:
            code = (row.file, row.first_line, row.function)
            if row.outcome == "compiled":
                emptied.pop(code, None)  # it was reset
            elif row.outcome == "skipped" and not row.why:
                emptied.setdefault(code, row.call)
        return emptied

    @cached_property
    def compiled_functions(self) -> frozenset[tuple[str, str]]:
        """The project's functions that torch compiled: the file and the qualified name."""
        frames = {each.frame for each in self.compiled if each.frame and not each.failed}
        own = [frame for frame in frames if self.source.project.holds(frame.file)]
        places = [self.source.definition(at.file, at.line, at.function) for at in own]
        return frozenset((place.file, place.function) for place in places)

    @cached_property
    def _by_compilation(self) -> Mapping[str, Sequence[m.TraceRecord]]:
        found: dict[str, list[m.TraceRecord]] = {}
        for record in self.all.records:
            found.setdefault(compile_id(record.metadata), []).append(record)
        return found

    def records_of(self, name: str) -> Sequence[m.TraceRecord]:
        """The records of one compilation, in torch's order."""
        return self._by_compilation.get(name, ())

    def specialized(self, name: str) -> Iterator[tuple[str, m.Location | None]]:
        """The sizes and numbers that a compilation made constants of although torch could vary
        them, each by its source, with the innermost line of the program that needed it."""
        for record in self.records_of(name):
            made = record.metadata.get(SPECIALIZED)
            if isinstance(made, Mapping):
                place = self.source.innermost(tuple(self._stack(made.get("user_stack"))))
                for source in made.get("sources") or ():
                    yield str(source), place

    def artifacts(self, name: str) -> Iterator[m.TraceRecord]:
        """The records of one kind of artifact, in torch's order."""
        for record in self.all.records:
            if artifact_name(record.metadata) == name:
                yield record

    def compilation(self, name: str, call: int) -> Compiled | None:
        """The one that a record of this call belongs to: ids are given anew after
        ``torch._dynamo.reset()``."""
        found = [compiled for compiled in self._by_id.get(name, ()) if compiled.call <= call]
        return found[-1] if found else None

    def frame_rows(self, compiled: Compiled) -> Sequence[m.OfferedFrame]:
        """What the frame hook saw of the same frame in the same call."""
        frame = compiled.frame
        return (
            self._rows.get((compiled.call, frame.file, frame.line, frame.function), ())
            if frame
            else ()
        )

    def compilations_of(self, row: m.OfferedFrame) -> Sequence[Compiled]:
        """The compilations that torch began for a frame that was offered to it."""
        return self._by_frame.get((row.call, row.file, row.first_line, row.function), [])

    def _compilations(self) -> Iterator[Compiled]:
        latest: dict[str, Compiled] = {}
        resets = 0
        met: dict[str, list[Compiled]] = {}  # by code object, since the last reset
        for record in self.all.records:
            name = compile_id(record.metadata)
            metadata = record.metadata
            if m.DYNAMO_RESET in metadata:
                resets = resets + 1
                met = {}
            if not name:
                continue
            start = metadata.get("dynamo_start")
            # Restarts of one attempt begin in one call; the same id in a later call is another
            # compilation. One that the recompile limit refused never begins, and after a reset its
            # metrics come under an id that had some.
            ended = (
                "compilation_metrics" in metadata and name in latest and bool(latest[name].metrics)
            )
            begins = isinstance(start, Mapping) or ended
            if name not in latest or (
                begins and (latest[name].call, latest[name].resets) != (record.call, resets)
            ):
                before = met.setdefault(frame_id(name), [])
                latest[name] = Compiled(
                    compile_id=name,
                    call=record.call,
                    resets=resets,
                    first_since_reset=resets > 0 and not before,
                    after_failures=bool(before) and all(each.failed for each in before),
                )
                before.append(latest[name])
                yield latest[name]
            compiled = latest[name]
            if isinstance(start, Mapping):
                compiled.stack = compiled.stack or tuple(self._stack(start.get("stack")))
            if isinstance(metrics := metadata.get("compilation_metrics"), Mapping):
                compiled.metrics = metrics
            if isinstance(metrics := metadata.get("bwd_compilation_metrics"), Mapping):
                compiled.backward.append(metrics)

    def _stack(self, entries: object) -> Iterator[m.Location]:
        for entry in entries if isinstance(entries, list) else ():
            number = entry.get("filename")
            file = self._names.get(number, str(number)) if isinstance(number, int) else str(number)
            yield m.Location(file, int(entry.get("line") or 0), str(entry.get("name") or ""))


def is_whole(metadata: Any) -> bool:
    """Whether a record has torch's form, as far as readers rely on it."""
    if not isinstance(metadata, Mapping):
        return False
    named = metadata.get("str", ["", 0])
    artifact = metadata.get("artifact", {})
    has_name = not isinstance(artifact, Mapping) or isinstance(artifact.get("name"), str | None)
    measured = isinstance(metadata.get("compilation_metrics"), Mapping | None)
    return (
        has_name
        and measured
        and isinstance(named, list | tuple)
        and [type(part) for part in named] == [str, int]
    )


def artifact_name(metadata: Mapping[str, Any]) -> str:
    """Return the artifact's name; empty for a record of another kind."""
    artifact = metadata.get("artifact")
    return str(artifact.get("name") or "") if isinstance(artifact, Mapping) else ""


def compile_id(metadata: Mapping[str, Any]) -> str:
    """``0/1``: the first code object's second compilation; empty for a record that belongs to none.

    Under compiled autograd torch writes ``!0/0/1``, with the number of the backward graph in front.
    """
    frame, compiled, backward = (
        metadata.get(f"{name}_id") for name in ("frame", "frame_compile", "compiled_autograd")
    )
    if frame is None or compiled is None:
        return ""
    return f"{frame}/{compiled}" if backward is None else f"!{backward}/{frame}/{compiled}"


def frame_id(name: str) -> str:
    """``0`` of the compile id ``0/1``."""
    return name.rpartition("/")[0]
