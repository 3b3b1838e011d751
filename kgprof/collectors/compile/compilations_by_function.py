"""The compilations of one run by the function that they are of, and which of them made code that
torch had made before.

    RunTrace ──by_function──► FunctionCompilations ├─ recompiled: added an entry beside others
                                                   ├─ refused: torch's limit stood against it
                                                   └─ every_value_new: none was of use twice

A function is told by its def. What goes on behind a graph break in it is a code object of its own,
and part of the function.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.fingerprint import grouped, line_of
from kgprof.reading import compiled_callables
from kgprof.reading.source_text import is_resumed, user_function
from kgprof.reading.structured_trace import Compiled, RunTrace, frame_id

MANY = 3  # recompiles in a row, each for another value, from which on it is taken to go on for ever
_CREATED_AGAIN = "created again"


@dataclass(eq=False)
class FunctionCompilations:
    """All compilations of one function of a run, in torch's order."""

    trace: RunTrace
    definition: m.Location | None  # None: torch named no frame
    compiled: list[Compiled] = field(default_factory=list)

    @cached_property
    def rows(self) -> Sequence[m.OfferedFrame]:
        """What the frame hook saw of them."""
        return [row for each in self.compiled for row in self.trace.frame_rows(each)]

    @cached_property
    def wrappers(self) -> Sequence[m.OfferedFrame]:
        """Those of torch's wrapper, which calls what torch writes no code for."""
        return [row for row in self.rows if row.wraps]

    @cached_property
    def owners(self) -> Sequence[m.CompiledCallable]:
        """The compiled callables in whose calls they began, one for each that is known."""
        owners = [compiled_callables.of_compilation(self.trace, each) for each in self.compiled]
        return [owner for owner in owners if owner is not None]

    @cached_property
    def library(self) -> m.PackageLine | None:
        """The function's def, if it is a library's."""
        place, source = self.definition, self.trace.source
        if place is None or source.project.holds(place.file):
            return None
        for row in self.rows:
            if row.qualified and not is_resumed(row.function):
                return source.package_line(replace(place, function=row.qualified))
        return source.package_line(place)

    @property
    def name(self) -> str:
        """Qualified where it is known."""
        defined = self.library or self.definition
        if defined is None:
            return ""
        return defined.function

    @property
    def place(self) -> m.Location | None:
        """Its def; of a library's function the project's line that led to its first recompile, or
        to the limit."""
        if self.library is None:
            return self.definition
        places = (place_of(self.trace, each) for each in (*self.recompiled, *self.refused))
        return next(filter(None, places), None)

    @property
    def modules(self) -> str:
        """Which modules were compiled, if it is a library's function around them, as torch's own
        is: it says nothing to their owner."""
        frames = {each.frame for each in self.compiled}
        by_number = {}
        for owner in self.owners:
            code = owner.offered
            if m.Location(code.file, code.line, code.function) in frames:
                by_number[owner.number] = owner
        modules = by_number.values()
        if self.library is None or not any(owner.module for owner in modules):
            return ""
        return compiled_callables.named(modules)

    @property
    def recompiled(self) -> Iterator[Compiled]:
        """Those that made code beside other code of the function."""
        for each in self.compiled:
            is_made = not each.failed and not each.is_empty
            if is_made and (is_recompile(each) or id(each) in self._created_again):
                yield each

    @cached_property
    def refused(self) -> Sequence[Compiled]:
        """Those that torch's limit stood against. A function that failed each time reaches the
        limit as well, as the frame hook tells."""
        worked = not all(each.failed for each in self.compiled)
        refused = [each for each in self.compiled if is_refused(self.trace, each)]
        return [each for each in refused if worked or self.trace.frame_rows(each)]

    @property
    def every_value_new(self) -> bool:
        """Whether each call (or each run) of one of its code objects, until the last one or the
        limit, had to compile it."""
        made = [each for each in self.compiled if not each.failed]
        return any(map(self._is_always_new, grouped(made, self._code_of)))

    def _code_of(self, compiled: Compiled) -> str:
        if id(compiled) in self._created_again:
            return _CREATED_AGAIN
        return compiled.frame_id

    def _is_always_new(self, entries: Sequence[Compiled]) -> bool:
        """``entries``: the compilations of one code object."""
        if len(entries) <= MANY or self._is_forgotten(entries):
            return False
        codes = {each.frame_id for each in entries}
        end = self.trace.calls
        if self.refused and self.refused[0].frame_id in codes:
            end = self.refused[0].call
        all_runs = runs_of(self.trace, codes)
        if end < self.trace.calls and max(all_runs, default=end) > end:
            return False  # nothing is compiled after the limit: a value has come again
        compiling = {each.call for each in entries}
        first = min(compiling)
        runs = {call: count for call, count in all_runs.items() if first <= call < end}
        if not runs:  # no graph of it was counted: go by the calls alone
            return compiling == set(range(first, end))
        every_call = len(compiling) > MANY and runs.keys() <= compiling
        return every_call or sum(runs.values()) <= len(entries)

    def _is_forgotten(self, entries: Sequence[Compiled]) -> bool:
        """Whether torch dropped the code between two of its compilations, so that the next one says
        nothing of a new value, or skips it, also for values that come again."""
        resets = {each.resets for each in entries}
        if len(resets) > 1 and id(entries[0]) not in self._created_again:
            return True
        frames = [each.frame for each in entries if each.frame]
        emptied = self.trace.emptied
        return any((at.file, at.line, at.function) in emptied for at in frames)

    @cached_property
    def _created_again(self) -> frozenset[int]:
        """The ``id()`` of each compilation of a function that torch had never met, although it had
        compiled one just like it.

        A function that is made from text in every call has a new code object each time: no guard
        fails, and every call compiles. A few of a kind are a coincidence of names, and what is
        called again after it was compiled is a function of its own (formulas that a program makes
        from texts). ``torch._dynamo.reset()`` forgets all code objects, and what is compiled after
        it is new; a Recording of an older kgprof does not say when that was.
        """
        new = [each for each in self.compiled if each.frame and not is_recompile(each)]
        known = [each for each in new if not each.failed and not each.is_resumed]
        again = []
        for alike in grouped(known, lambda each: (each.frame, each.resets)):
            if len({each.call for each in alike}) > MANY:
                again += alike[1:]
        return frozenset(id(each) for each in again if not self._is_called_again(each))

    def _is_called_again(self, compiled: Compiled) -> bool:
        """Whether its code ran in a later call, before torch gave its number to another one."""
        same = [each.call for each in self.compiled if each.frame_id == compiled.frame_id]
        end = min((call for call in same if call > compiled.call), default=self.trace.calls)
        runs = runs_of(self.trace, {compiled.frame_id})
        return any(compiled.call < call < end for call in runs)


def by_function(trace: RunTrace) -> Iterable[FunctionCompilations]:
    functions: dict[object, FunctionCompilations] = {}
    last: dict[str, m.Location | None] = {}
    first_lines: dict[tuple[str, str], list[int]] = defaultdict(list)
    for compiled in trace.compiled:
        code = compiled.frame_id
        # The limit is checked before torch says what it compiles: such an entry is where the code
        # object was last.
        last[code] = _definition(trace, compiled, first_lines) or last.get(code)
        key = line_of(last[code], code)
        function = functions.setdefault(key, FunctionCompilations(trace, last[code]))
        function.compiled.append(compiled)
    return functions.values()


def _definition(
    trace: RunTrace, compiled: Compiled, first_lines: dict[tuple[str, str], list[int]]
) -> m.Location | None:
    """Of a library's function there is no text: the nearest first line above stands for what a part
    of it is in. ``first_lines``: those of its functions so far, by file and name."""
    frame = compiled.frame
    if frame is None or trace.source.project.holds(frame.file):
        return _own_definition(trace, compiled)
    name = user_function(frame.function)
    lines = first_lines[frame.file, name]
    if not compiled.is_resumed:
        lines.append(frame.line)
    above = [line for line in lines if line <= frame.line]
    return m.Location(frame.file, max(above, default=frame.line), name)


def _own_definition(trace: RunTrace, compiled: Compiled) -> m.Location | None:
    frame = compiled.frame
    if frame is None or not trace.source.project.holds(frame.file):
        return None
    return trace.source.definition(frame.file, frame.line, frame.function)


def place_of(trace: RunTrace, compiled: Compiled) -> m.Location | None:
    """The def of a project's function; for a library's the innermost line of the project that leads
    there."""
    return _own_definition(trace, compiled) or trace.source.innermost(compiled.stack)


def library_function(trace: RunTrace, compiled: Compiled) -> m.PackageLine | None:
    """The def of what was compiled, if that is a library's."""
    frame = compiled.frame
    if frame is None:
        return None
    definition = trace.source.definition(frame.file, frame.line, frame.function)
    return FunctionCompilations(trace, definition, [compiled]).library


def is_recompile(compiled: Compiled) -> bool:
    """Tell whether torch had compiled its code before, and has not forgotten that since."""
    return _is_another_attempt(compiled) and not compiled.after_failures


def _is_another_attempt(compiled: Compiled) -> bool:
    return not compiled.compile_id.endswith("/0") and not compiled.first_since_reset


def is_refused(trace: RunTrace, compiled: Compiled) -> bool:
    """Whether torch's limit stood against it: a compilation that failed where the frame hook saw
    that compiled code may run, and no more. A program that makes each recompile an error reaches no
    limit."""
    if not compiled.failed or not _is_another_attempt(compiled):
        return False
    if compiled.metrics["fail_type"] == "RecompileError":
        return False
    rows = trace.frame_rows(compiled)
    if rows:
        return any(row.outcome == "run-only" for row in rows)
    # the limit is checked before the frame is looked at
    return compiled.metrics.get("co_name") is None


def runs_of(trace: RunTrace, codes: Collection[str]) -> Counter[int]:
    """How often a graph of any entry of these code objects ran in each call (the graph up to its
    first break)."""
    runs: Counter[int] = Counter()
    for graph in trace.all.graphs:
        if frame_id(graph.compile_id) in codes:
            runs.update(graph.runs)
    return runs
