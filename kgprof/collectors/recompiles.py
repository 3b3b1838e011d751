"""KGP103, KGP104, KGP105: functions that are compiled again, because of which guard, and whether it
ever ends.

torch gives a reason (artifact ``recompile_reasons``) for each cache entry that it rejected, newest
first; the compile id on the record is that of the new compilation. What happens after the limit
leaves no record at all: it is counted from the graphs that did not run.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.event import Event, finding
from kgprof.collectors.fingerprint import grouped
from kgprof.collectors.graph_breaks import numbered
from kgprof.collectors.guard_text import OTHER, TENSOR_KINDS, Guard, is_condition, parse
from kgprof.collectors.guard_words import (
    in_words,
    is_left_by_a_break,
    is_returned_by_a_break,
    used_in,
)
from kgprof.collectors.input_sizes import Inputs, InputSize, inputs_of
from kgprof.collectors.remedies import (
    NUMBERS,
    STATIC_INT,
    Cause,
    are_of_parameters,
    as_code,
    is_number,
    name_of,
    room_for_all,
    sizes_of,
)
from kgprof.collectors.tried_settings import TriedSettings, in_vain
from kgprof.reading import compiled_callables
from kgprof.reading.compile_calls import not_static
from kgprof.reading.evidence import Evidence
from kgprof.reading.source_text import is_resumed, resumed_at, user_function
from kgprof.reading.structured_trace import Compiled, RunTrace, compile_id, frame_id
from kgprof.wording import and_more, in_steps, plural, step_name

ARTIFACT = "recompile_reasons"
_UNREAD = re.compile(r": '\w+' object has no attribute '\w+'")
_ON_STACK = re.compile(rf"{m.ON_STACK}(\d+)")
_POSITIONAL = re.compile(r"args\[(\d+)\]")
MANY = 3  # recompiles in a row, each for another value, from which on it is taken to go on for ever

IN_STEADY_STATE = m.Rule(
    id="KGP103",
    name="recompile-in-steady-state",
    level=m.Level.WARNING,
    summary=(
        "A function was compiled again after the warm-up calls, because a guard on "
        "its inputs failed."
    ),
    why=(
        "The call with the new value waits for a whole compilation, which takes seconds while a "
        "step takes milliseconds, and later calls have one more cache entry to check. A recompile "
        "that happens only once (the first smaller batch, the first evaluation under no_grad, each "
        "change of a flag) is a note and counts against no budget; so are recompiles in the "
        "warm-up calls (a size that becomes dynamic)."
    ),
    example=(
        "A temperature that is an attribute of the module falls with every epoch: "
        "self.temperature *= 0.9."
    ),
    remedy=(
        "Give the compiled function the same kind of input in every call, or tell torch in "
        "advance: torch._dynamo.mark_dynamic(tensor, dim) or dynamic=True for a size that no line "
        "needs as a number, a 0-d tensor for a number that is only added or multiplied, a "
        "warm-up call with each value of a flag."
    ),
    topic=m.Topic.COMPILATION,
    seen_in=((m.Witness.COMPILE, m.Witness.STEADY_CALLS),),
    can_cost=(m.CostKind.HOST, m.CostKind.COPIES, m.CostKind.LAUNCHES),
    judged_from_times=False,
    symptom_of=(),
    relieves=(m.LimitKind.RECOMPILING, m.LimitKind.HOST),
)
LIMIT_REACHED = m.Rule(
    id="KGP104",
    name="recompile-limit-reached",
    level=m.Level.WARNING,
    summary=(
        "A function reached torch's recompile limit; from then on new inputs silently run eagerly."
    ),
    why=(
        "At the limit (8 per function by default) torch stops compiling the function. Inputs that "
        "fit none of the compiled entries run eagerly, with everything that the function calls, "
        "and no later message says so: the program is as slow as without torch.compile and has "
        "paid for eight compilations."
    ),
    example=(
        "dynamic=False with bucketed sequence lengths: more buckets than "
        "torch._dynamo.config.recompile_limit."
    ),
    remedy=(
        "Reduce the number of different values: a size that no line needs as a number can be "
        "dynamic (torch._dynamo.mark_dynamic, dynamic=True), a number that is only added "
        "or multiplied a 0-d tensor. Or compile separate functions for them. Raising "
        "torch._dynamo.config.recompile_limit only helps if the number of values is known."
    ),
    topic=m.Topic.COMPILATION,
    seen_in=((m.Witness.COMPILE,),),
    can_cost=(m.CostKind.HOST, m.CostKind.LAUNCHES, m.CostKind.COPIES, m.CostKind.REPLACED),
    judged_from_times=False,
    symptom_of=(),
    relieves=(m.LimitKind.RECOMPILING, m.LimitKind.LAUNCHES, m.LimitKind.HOST),
)
UNBOUNDED = m.Rule(
    id="KGP105",
    name="unbounded-recompile",
    level=m.Level.WARNING,
    summary="Every call brings a value that the function was not compiled for.",
    why=(
        "A guard checks something that is new in each call: a counter or step number, a list that "
        "grows, a new string, a size under dynamic=False. Every call compiles until the limit is "
        "reached, no compiled code is used twice, and after that every call runs eagerly."
    ),
    example=(
        "def forward(self, x): self.calls += 1 -- an int attribute of a module is a "
        "constant to torch."
    ),
    remedy=(
        "Keep what changes in every call out of the guards: a counter in the caller; a 0-d tensor "
        "in place of a number that is only added or multiplied; the slice itself in place of "
        "a number that slices or counts the turns of a loop; functions and strings made once, "
        "outside; a size marked dynamic, if no line needs it as a number."
    ),
    topic=m.Topic.COMPILATION,
    seen_in=((m.Witness.COMPILE, m.Witness.STEADY_CALLS, m.Witness.CALLS),),
    can_cost=(m.CostKind.HOST, m.CostKind.COPIES, m.CostKind.LAUNCHES),
    judged_from_times=False,
    symptom_of=(),
    relieves=(m.LimitKind.RECOMPILING, m.LimitKind.HOST),
)
RULES = (IN_STEADY_STATE, LIMIT_REACHED, UNBOUNDED)
SHOWN = 3  # things that a sentence names
# What tells a note from the rule's finding, as fingerprints have it.
WARM_UP, AFTER_A_BREAK = "converged", "after a break"
_Subject = tuple[str, str, int | None]  # of a guard: kind, source, dimension
UNKNOWN_CALLS = " (calls are not in this recording, so whether it ended is unknown)"


class Recompile(m.Model):
    """One compilation that replaced nothing but was added, since every entry there was had been
    rejected."""

    compile_id: str
    call: int
    guard: Guard  # the first that no recompile failed on before, else that of the newest entry
    rejected: tuple[Guard, ...]  # of all entries, newest first
    call_site: m.Location | None  # the project's line that called
    duration_s: float | m.Skipped
    # the same guards of the same code failed in no other call, and for no other value
    once: bool = False
    begins: bool = False  # it is part of the first calls of its own module, however late they came
    used: m.Location | None = None  # the project's line that made the value a constant
    returned_by: m.Location | None = None  # the line of the graph break that returned the value
    fix: str = ""  # what to write so that this guard no longer fails
    words: str = ""  # the guard in a sentence


class RecompiledFunction(Event):
    """One function of one run that was compiled more than once."""

    # its def; for a library's function the project's line that leads there
    function: str = ""  # its name, qualified where it is known
    library: m.PackageLine | None = None  # the def of a library's function
    recompiles: tuple[Recompile, ...]
    steady_from: int  # recompiles from this call on are in steady state
    limit_call: int | None  # the call in which torch refused to compile it once more
    limit_guard: Guard | None  # what that call failed on
    eager_calls: int | m.Skipped  # calls since the limit in which no compiled code of it ran
    # Of compiled callables: their own calls since then, whichever ran; None where ``eager_calls``
    # are of the workload.
    calls_since: int | None = None
    eager_names: str = ""  # which of several modules ran eagerly
    modules: str = ""  # of torch's one function around all its modules: which modules were compiled
    # modules that share the code object which reached the limit, one entry for each
    modules_of_code: int = 0
    eager_steady: int | m.Skipped = 0  # of these eager calls, those after warm-up
    idle_calls: int = 0  # all calls of the workload since the limit, if no graph of it ran in any
    every_value_new: bool  # it was compiled whenever it ran
    calls_known: bool = True  # False: no call was told from another, and nothing is said of warm-up
    wraps: tuple[str, ...] = ()  # what torch's wrapper called, where that was compiled: "Linear"
    limit_fix: str = ""  # for ``limit_guard``
    tried: Mapping[str, str] = {}  # settings by name, as far as they were tried: what each does

    @property
    def is_of_library(self) -> bool:
        """Whether no def of the project's is the place of it."""
        return bool(self.library or self.wraps)

    def is_steady(self, recompile: Recompile) -> bool:
        return recompile.call >= self.steady_from and not recompile.begins

    @property
    def name(self) -> str:
        if self.modules:
            method = self.function.rpartition(".")[2]
            of_library = self.library is not None and self.library.package != "torch"
            named = of_library and method != "forward"
            return f"{method} of {self.modules}" if named else self.modules
        if self.wraps:
            others = len(self.wraps) - 2
            return f"{', '.join(self.wraps[:2])}{f' and {others} more' if others > 0 else ''}"
        return f"{self.function or 'a function'}{f' in {self.library}' if self.library else ''}"


# ---------------------------------------------------------------- reading records


def reasons(payload: str) -> tuple[str, ...]:
    """A list as JSON where several entries were rejected; the bare sentence where one was."""
    try:
        decoded = json.loads(payload)
    except (ValueError, RecursionError):
        decoded = payload
    return (
        tuple(str(reason) for reason in decoded) if isinstance(decoded, list) else (str(decoded),)
    )


def _readable(payload: str) -> Sequence[str]:
    """torch's reasons without those that it failed to work out again, where there are others."""
    every = reasons(payload)
    return [reason for reason in every if not _UNREAD.search(reason)] or every


def rejections(trace: RunTrace) -> dict[str, tuple[Guard, ...]]:
    """Of each compile id that followed a rejection: the failed guards, newest entry first."""
    read = functools.cache(parse)  # every later rejection names the entry again, in the same words
    found = {
        compile_id(record.metadata): tuple(read(reason) for reason in _readable(record.payload))
        for record in trace.artifacts(ARTIFACT)
        if record.payload
    }
    # A value guard says what was expected only; what came is what the next rejection says of the
    # new entry.
    compiled_for = {
        (guard.entry, guard.source, guard.kind): "" if is_condition(guard) else guard.expected
        for g in found.values()
        for guard in g
    }

    def with_actual(name: str, guard: Guard) -> Guard:
        # two guards on one dict are about different keys
        if guard.actual or guard.kind == "keys" or is_condition(guard):
            return guard
        came = compiled_for.get((name, guard.source, guard.kind), "")
        return replace(guard, actual=came) if came else guard

    on_stack = {frame_id(row.compile_id): row.on_stack for row in trace.all.frames}

    def with_place(name: str, guard: Guard) -> Guard:
        found = _ON_STACK.match(guard.source)
        is_held = found is not None and int(found[1]) < on_stack.get(frame_id(name), 0) - 1
        return replace(guard, is_held=True) if is_held else guard

    return {
        name: tuple(with_place(name, with_actual(name, guard)) for guard in guards)
        for name, guards in found.items()
    }


def is_recompile(compiled: Compiled) -> bool:
    """Tell whether torch had compiled its code before, and has not forgotten that since."""
    return _is_another_attempt(compiled) and not compiled.after_failures


def _is_another_attempt(compiled: Compiled) -> bool:
    return not compiled.compile_id.endswith("/0") and not compiled.first_since_reset


def _reached_limit(trace: RunTrace, compiled: Compiled) -> bool:
    """torch refused it: a compilation that failed where the frame hook saw that compiled code may
    run, and no more. A program that makes each recompile an error reaches no limit."""
    is_an_error = compiled.metrics.get("fail_type") == "RecompileError"
    if is_an_error or not compiled.failed or not _is_another_attempt(compiled):
        return False
    rows = trace.frame_rows(compiled)
    if rows:
        return any(row.outcome == "run-only" for row in rows)
    # the limit is checked before the frame is looked at
    return compiled.metrics.get("co_name") is None


# ---------------------------------------------------------------- events


def collect(evidence: Evidence) -> tuple[RecompiledFunction, ...]:
    return tuple(event for trace in evidence.compilers for event in _of_run(trace))


def _of_run(trace: RunTrace) -> Iterator[RecompiledFunction]:
    guards = rejections(trace)
    for definition, compiled in _by_function(trace):
        anew = _made_anew(trace, compiled)
        kept = [c for c in compiled if not c.failed and not c.is_empty]
        again = [c for c in kept if is_recompile(c) or id(c) in anew]
        # a function that is refused each time reaches the limit as well
        worked = any(not c.failed for c in compiled)
        limits = [
            c for c in compiled if _reached_limit(trace, c) and (worked or trace.frame_rows(c))
        ]
        if again or limits:
            yield _recompiled(trace, definition, compiled, again, limits, guards)


def _by_function(trace: RunTrace) -> Iterator[tuple[m.Location | None, list[Compiled]]]:
    """A function's def with its compilations; what follows its breaks is part of it."""
    groups: dict[object, tuple[m.Location | None, list[Compiled]]] = {}
    last: dict[str, m.Location | None] = {}
    # first lines of a library's functions, by file and name
    met: dict[tuple[str, str], list[int]] = {}
    for compiled in trace.compiled:
        # The limit is checked before torch says what it compiles: such an entry is where the code
        # object was last.
        definition = last[compiled.frame_id] = _definition(trace, compiled, met) or last.get(
            compiled.frame_id
        )
        key = (definition.file, definition.line) if definition else compiled.frame_id
        groups.setdefault(key, (definition, []))[1].append(compiled)
    yield from groups.values()


def _definition(
    trace: RunTrace, compiled: Compiled, met: dict[tuple[str, str], list[int]]
) -> m.Location | None:
    """Of a library's function there is no text: the nearest first line above stands for what a part
    of it is in."""
    frame = compiled.frame
    if frame is None:
        return None
    if trace.source.project.holds(frame.file):
        return trace.source.definition(frame.file, frame.line, frame.function)
    name = user_function(frame.function)
    lines = met.setdefault((frame.file, name), [])
    if not is_resumed(frame.function):
        lines.append(frame.line)
    line = max((line for line in lines if line <= frame.line), default=frame.line)
    return m.Location(file=frame.file, line=line, function=name)


def place_of(trace: RunTrace, compiled: Compiled) -> m.Location | None:
    """The def of a project's function; for a library's the innermost line of the project that leads
    there."""
    frame = compiled.frame
    if frame is not None and trace.source.project.holds(frame.file):
        return trace.source.definition(frame.file, frame.line, frame.function)
    return trace.source.innermost(compiled.stack)


def library_function(
    trace: RunTrace, *compiled: Compiled, place: m.Location | None = None
) -> m.PackageLine | None:
    """The def (``place``, if known) of what was compiled, in parts and again maybe, where that is a
    library's."""
    frame = compiled[0].frame
    if frame is None or trace.source.project.holds(frame.file):
        return None
    place = place or trace.source.definition(frame.file, frame.line, frame.function)
    rows = (
        row
        for c in compiled
        for row in trace.frame_rows(c)
        if row.qualified and not is_resumed(row.function)
    )
    function = next((row.qualified for row in rows), place.function)
    return trace.source.package_line(replace(place, function=function))


def _made_anew(trace: RunTrace, compiled: Sequence[Compiled]) -> set[int]:
    """Compilations (by identity) of a function that torch had never met, although it had compiled
    one just like it.

    A function that is made from text in every call has a new code object each time: no guard fails,
    and every call compiles. A few of a kind are a coincidence of names, and what is called again
    after it was compiled is a function of its own (formulas that a program makes from texts).
    ``torch._dynamo.reset()`` forgets all code objects, and what is compiled after it is new; a
    Recording of an older kgprof does not say when that was.
    """
    alike = grouped(
        (
            (frame, one)
            for one in compiled
            if (frame := one.frame)
            and not one.failed
            and not is_recompile(one)
            and not is_resumed(frame.function)
        ),
        lambda met: (met[0].file, met[0].line, met[0].function, met[1].resets),
    )
    return {
        id(one)
        for group in alike
        if len({c.call for _, c in group}) > MANY
        for _, one in group[1:]
        if not _is_called_again(trace, one, compiled)
    }


def _is_called_again(trace: RunTrace, one: Compiled, compiled: Sequence[Compiled]) -> bool:
    """Tell whether its code ran in a later call, before torch gave its number to another one."""
    later = [each.call for each in compiled if each.frame_id == one.frame_id]
    end = min((call for call in later if call > one.call), default=trace.calls)
    return any(one.call < call < end for call in _runs(trace, {one.frame_id}))


def _recompiled(
    trace: RunTrace,
    definition: m.Location | None,
    compiled: Sequence[Compiled],
    again: Sequence[Compiled],
    limits: Sequence[Compiled],
    guards: dict[str, tuple[Guard, ...]],
) -> RecompiledFunction:
    limit = limits[0] if limits else None
    refused = guards.get(limit.compile_id, ()) if limit else ()
    location, function = definition, definition.function if definition else ""
    library: m.PackageLine | None = None
    if definition is not None and not trace.source.project.holds(definition.file):
        location = next((place for c in (*again, *limits) if (place := place_of(trace, c))), None)
        library = library_function(trace, *compiled, place=definition)
        function = library.function if library else function
    inside = (library.package, library.file, library.function) if library else ()
    eager = _eager_since(trace, limit, compiled) if limit else _Eager(calls=0)
    wrapped = [row for each in compiled for row in trace.frame_rows(each) if row.wraps]
    wraps = tuple(dict.fromkeys(row.wraps for row in wrapped))
    function = ", ".join(wraps) or function
    recompiles = _told_apart(trace, again, guards)
    rejected = [*(guard for recompile in recompiles for guard in recompile.rejected), *refused]
    same = {_subject(guards[0]): _without_repeats(guards) for guards in grouped(rejected, _subject)}
    inputs = inputs_of(trace, compiled)
    advised = Advised(
        trace=trace,
        definition=definition,
        compiled=compiled,
        function=_called_as(trace, compiled, function, wraps=bool(wraps)),
        wrapped=wrapped,
        lines=frozenset(each.call_site for each in recompiles if each.call_site),
        modules=eager.modules,
        same=same,
        library=library is not None and not wraps,
        inputs=inputs,
        with_parameters=_come_with_parameters(inputs, rejected),
        beside_others=_fail_beside_others(inputs, recompiles),
        values=_values(recompiles),
        settings=TriedSettings(trace).of_code(compiled),
    )
    return RecompiledFunction(
        run=trace.run,
        location=location,
        function=function,
        library=None if wraps else library,  # of torch's wrapper the program knows nothing
        recompiles=tuple(map(advised.recompile, recompiles)),
        wraps=wraps,
        limit_fix=advised.fix(refused[0]) if refused else "",
        tried=advised.settings,
        steady_from=trace.steady_from,
        limit_call=limit.call if limit else None,
        limit_guard=refused[0] if refused else None,
        eager_calls=eager.calls,
        calls_since=eager.of,
        eager_names=eager.names,
        eager_steady=eager.steady,
        idle_calls=eager.idle,
        modules_of_code=eager.modules,
        modules=_modules(trace, compiled) if library else "",
        every_value_new=trace.calls > 0 and _every_value_new(trace, compiled, limit),
        calls_known=trace.calls > 0,
        identity="\0".join((*trace.source.identity(location)[:2], *inside)),
    )


def _called_as(trace: RunTrace, compiled: Sequence[Compiled], function: str, *, wraps: bool) -> str:
    """Name what the program calls: the module in place of its forward, or of torch's wrapper."""
    if function.rpartition(".")[2] != "forward" and not wraps:
        return function
    owners = [compiled_callables.of_compilation(trace, each) for each in compiled]
    known = [each for each in owners if each is not None]
    paths = {each.path or each.function for each in known}
    paths = {path for path in paths if path.isidentifier()}
    if len(paths) == 1:
        return paths.pop()
    return "compiled" if wraps else "model"


def _modules(trace: RunTrace, compiled: Sequence[Compiled]) -> str:
    """torch's own function around its modules says nothing to the owner; the modules do."""
    owners = [compiled_callables.of_compilation(trace, each) for each in compiled]
    same_code = {id(each) for c in compiled for each in compiled_callables.of_code(trace, c.frame)}
    by_number = {each.number: each for each in owners if each is not None and id(each) in same_code}
    if not any(each.module for each in by_number.values()):
        return ""
    return compiled_callables.named(by_number.values())


def _told_apart(
    trace: RunTrace, again: Sequence[Compiled], guards: dict[str, tuple[Guard, ...]]
) -> tuple[Recompile, ...]:
    """The recompiles, and which of them happened once: the same guards of the same code object
    failed in no other call and, in that call, for no second value. A flag has two values, so that
    each recompile for one happens once."""
    made = list(_recompiles(trace, again, guards))
    met: dict[object, set[tuple[int, str]]] = {}
    keys = [
        (
            frame_id(each.compile_id),
            frozenset((_cause(guard), _size_class(guard)) for guard in each.rejected),
        )
        for each in made
    ]
    for key, each in zip(keys, made, strict=True):
        met.setdefault(key, set()).add((each.call, each.guard.actual))
    return tuple(
        replace(each, once=bool(each.rejected) and (len(met[key]) == 1 or _is_flag(each.guard)))
        for key, each in zip(keys, made, strict=True)
    )


def _is_flag(guard: Guard) -> bool:
    value = guard.expected.removeprefix("no ")
    return guard.kind == "value" and value in ("True", "False")


def _size_class(guard: Guard) -> str:
    """torch compiles for one size, for all from 2 on, for 0 and for 1, in any order, and ends."""
    if guard.kind != "size":
        return ""
    if not guard.expected.isdecimal():
        return "range"
    return guard.expected if int(guard.expected) < 2 else "one size"


_IS_A_CONSTANT = re.compile(r"\S+\.size\(\)\[\d+\] == \d+")  # no multiple of a number
_MODES = ("grad-mode", "autocast", "global-state", "backend")  # of guards


def _recompiles(
    trace: RunTrace, again: Sequence[Compiled], guards: dict[str, tuple[Guard, ...]]
) -> Iterator[Recompile]:
    """Each with the guard that no earlier recompile of its code object failed on, or that no entry
    before had for this value, or that this entry never failed on: entries for other values reject a
    value that was met before, but it is compiled again for something else. So it is where an entry
    for the value itself fails on another guard."""
    met: dict[str, set[object]] = {}
    made_for = {
        (guard.entry, _subject(guard)): guard.expected
        for rejected in guards.values()
        for guard in rejected
        if not is_condition(guard)
    }
    for compiled in again:
        rejected = guards.get(compiled.compile_id, ())
        before = met.setdefault(compiled.frame_id, set())
        news = [guard for guard in rejected if _subject(guard) not in before]
        values = [each for each in rejected if (_subject(each), each.expected) not in before]
        first = [each for each in rejected if (_subject(each), each.entry, "entry") not in before]
        before.update(map(_subject, rejected))
        before.update((_subject(each), each.expected) for each in rejected)
        before.update((_subject(each), each.entry, "entry") for each in rejected)
        # An entry of another mode says no before anything else is asked: those of this mode tell,
        # else the one that differs in the fewest settings.
        values_now = {(_subject(each), _came(each)) for each in rejected}
        had = {
            subject
            for subject, came in values_now
            if came and _other_entry_has(subject, came, rejected, made_for)
        }
        causes = sorted(
            (*news, *values, *first, *rejected),
            key=lambda guard: (_modes_apart(guard), _subject(guard) in had),
        )
        yield _recompile(trace, compiled, rejected, causes)


def _other_entry_has(
    subject: _Subject,
    came: str,
    rejected: Sequence[Guard],
    made_for: Mapping[tuple[str, _Subject], str],
) -> bool:
    """Whether an entry that was made for this value said no because of something else."""
    return any(
        made_for.get((other.entry, subject)) == came and _subject(other) != subject
        for other in rejected
    )


def _came(guard: Guard) -> str:
    """What failed the guard, as the guard of an entry for that is written; empty if not known."""
    if guard.kind != "keys":
        return guard.actual
    key = guard.expected.removeprefix("no ")
    return key if key != guard.expected else f"no {key}"


def _modes_apart(guard: Guard) -> int:
    """How many settings keep an entry from a call; none where something else does."""
    return (len(guard.source.split()) or 1) * (guard.kind in _MODES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Advised:
    """What a guard means for one function of a run: the line that used the value, and what to
    write."""

    trace: RunTrace
    function: str
    wrapped: Sequence[m.OfferedFrame]  # the function's frames, where it is torch's wrapper
    lines: frozenset[m.Location]  # the project's, that call it
    modules: int  # that share its code and its limit, one entry for each
    library: bool  # the function is a library's, so that its variables are none of the owner's
    inputs: Inputs
    with_parameters: frozenset[str]  # tensors whose sizes are always those of a parameter
    same: Mapping[_Subject, Sequence[Guard]]  # what failed for this function, by what it is about
    # sizes that changed only where other tensors came, for which torch compiles anyway
    beside_others: frozenset[_Subject]
    values: Mapping[_Subject, int]  # how many came, at least
    definition: m.Location | None
    compiled: Sequence[Compiled]
    settings: Mapping[str, str]  # as far as they were tried: what each does
    # that were worked out
    fixes: dict[tuple[_Subject, m.Location | None], str] = field(default_factory=dict)

    def recompile(self, recompile: Recompile) -> Recompile:
        """With what is known about its guard."""
        guard = recompile.guard
        wraps = self.wrapped[0].wraps if self.wrapped else ""
        return replace(
            recompile,
            used=_used(self.trace, guard) or self.inputs.constants.get(_size(guard)),
            fix=self.fix(guard),
            words=in_words(
                self._counted(guard),
                same=self._same(guard),
                wraps=wraps,
                arguments=self._arguments,
            ),
        )

    def fix(self, guard: Guard) -> str:
        """One for all guards on a value that one line used, however many there are."""
        # no name of the program's, or none before the call: mend the break
        if is_left_by_a_break(guard) or self._is_behind_a_break(guard):
            return ""
        key = (_subject(guard), _used(self.trace, guard))
        if key not in self.fixes:
            self.fixes[key] = self._fix(guard, key[1])
        return self.fixes[key]

    def _fix(self, guard: Guard, used: m.Location | None) -> str:
        source, plain = self.trace.source, guard.source.isidentifier()
        name = name_of(guard)
        # of an entry for which the size was dynamic already
        constant = next((each for each in self._same(guard) if " == " in each.expected), None)
        constant_at = self.inputs.constants.get(_size(guard))
        is_constant = constant is not None and _IS_A_CONSTANT.fullmatch(constant.expected)
        if constant is not None and constant_at is None and is_constant:
            constant_at = _used(self.trace, constant)
        cause = Cause(
            guards=tuple(
                replace(each, source=self._argument(each.source)) for each in self._same(guard)
            ),
            function=self.function,
            wraps=bool(self.wrapped),
            modules=self.modules,
            scheduler=source.momentum_scheduler,
            switched=source.switched(
                {place.file for each in self.compiled for place in each.stack}
            ),
            comparison=source.comparison(used, guard.source) if used and plain else "",
            returned=source.only_returns(used, guard.source) if used and plain else False,
            library=self.library,
            with_parameter=guard.source in self.with_parameters,
            is_constant=_size(guard) in self.inputs.constants or constant is not None,
            beside_others=_subject(guard) in self.beside_others,
            values=self.values.get(_subject(guard), 0),
            constant_at=constant_at,
            together=self._together(guard),
            within_compiled=self._is_within_compiled(),
            not_static=self._not_static(),
            only_computed=self._only_computed(guard, used),
            of_many_types=self._is_of_many_types(guard),
            in_turn=compiled_callables.in_turn(self.trace, self.compiled),
            only_grows=source.only_appends(used, name) if used else False,
            is_argument=True if self.wrapped else self._is_argument(name),
            is_rest=not self.wrapped and self._is_rest(name),
            tried=self.settings,
        )
        return as_code(cause)

    def _is_argument(self, name: str) -> bool | None:
        place = self.definition
        if place is None:
            return None
        known = self.trace.source.arguments(place.file, place.line, place.function)
        return name in known if known else None

    def _is_rest(self, name: str) -> bool:
        """Whether it begins with the name of *args or **kwargs, of which no caller knows."""
        place, arguments = self.definition, self.trace.source.arguments
        named = arguments(place.file, place.line, place.function, stars=False) if place else ()
        first = re.split(r"\W", name)[0]
        return bool(self._is_argument(first)) and first not in named

    def _is_within_compiled(self) -> bool:
        """Whether a function that leads to its calls is compiled as well."""
        source = self.trace.source
        begun = (
            each.stack[:-1]
            for each in self.compiled
            if each.frame is not None and not is_resumed(each.frame.function)
        )
        above = {place for stack in begun for place in stack if source.project.holds(place.file)}
        callers = (source.at(place.file, place.line, place.function) for place in above)
        functions = self.trace.compiled_functions
        return any((place.file, place.function) in functions for place in callers)

    def _not_static(self) -> str:
        """Write the torch.compile with dynamic=False that compiled it without that, if one did."""
        found = (compiled_callables.of_compilation(self.trace, each) for each in self.compiled)
        owners = [each for each in found if each is not None]
        lines = {each.compiled_at for each in owners if each.compiled_at}
        calls = (not_static(self.trace.source.tree(line.file), line.line) for line in lines)
        is_static = any(each.is_static for each in owners)  # by an argument that no text shows
        return next(filter(None, calls), "torch.compile(...)" if is_static else "")

    def _is_behind_a_break(self, guard: Guard) -> bool:
        """Whether only code that goes on behind a graph break looked at this property of a
        tensor: what is done to an argument before the call says nothing of a variable there."""
        behind = {
            each.frame_id
            for each in self.compiled
            if each.frame is not None and is_resumed(each.frame.function)
        }
        same = [each for each in self._same(guard) if each.entry]
        only_there = bool(same) and all(frame_id(each.entry) in behind for each in same)
        return guard.kind in TENSOR_KINDS and only_there

    def _together(self, guard: Guard) -> tuple[InputSize, ...]:
        """What varied with a size and can be made dynamic with it, itself included."""
        source, dimension = _size(guard)
        if dimension < 0:
            return ()
        varied = [
            each
            for each in self.inputs.together(frame_id(guard.entry))
            if not each.is_constant and each.source not in self.with_parameters
        ]
        if not any((each.source, each.dimension) == (source, dimension) for each in varied):
            varied = [
                InputSize(
                    frame_id=frame_id(guard.entry),
                    source=source,
                    dimension=dimension,
                    sizes=tuple(sorted(sizes_of(self._same(guard)))),
                )
            ]
        return tuple(replace(each, source=self._argument(each.source)) for each in varied)

    def _only_computed(self, guard: Guard, used: m.Location | None) -> bool:
        """Whether each use of a number, where the text shows them all, may take a tensor, and the
        attribute that it is may be set."""
        if not is_number(guard) and guard.expected not in NUMBERS:
            return False
        _, is_attribute, field = name_of(guard).rpartition(".")
        if is_attribute and self.trace.source.is_frozen(field):
            return False
        return self.trace.source.only_computed(
            [place for place in (self.definition, used) if place],
            self._inside(name_of(guard)),
            {self._inside(tensor) for tensor in self.inputs.tensors},
            is_symbol=any(STATIC_INT in switch for switch in guard.switches),
        )

    def _inside(self, source: str) -> str:
        """``args[0]`` of torch's wrapper as the function that it calls names it."""
        found = _POSITIONAL.match(source)
        names = self._arguments[int(found[1]) :] if found else ()
        return f"{names[0]}{source[found.end() :]}" if found and names else source

    def _is_of_many_types(self, guard: Guard) -> bool:
        """Whether a value came as numbers of two types, or as a number and as a tensor."""
        types = [
            each
            for same in self.same.values()
            for each in same
            if each.kind == "type" and each.source == guard.source
        ]
        return bool(types) and all(each.expected in NUMBERS for each in types)

    def _counted(self, guard: Guard) -> Guard:
        """``args[0]`` of a library's wrapper is what the owner passes first."""
        found = _POSITIONAL.match(guard.source) if self.library else None
        if found is None:
            return guard
        counted = f"positional argument {int(found[1]) + 1}{guard.source[found.end() :]}"
        return replace(guard, source=counted)

    def _same(self, guard: Guard) -> Sequence[Guard]:
        return self.same.get(_subject(guard), (guard,))

    @property
    def _arguments(self) -> tuple[str, ...]:
        return self.wrapped[0].arguments if self.wrapped else ()

    def _argument(self, source: str) -> str:
        """``args[0]`` of torch's wrapper is what the owner's line passes there, if that is a
        variable."""
        found = _POSITIONAL.match(source)
        if not self.wrapped or found is None:
            return source
        passed = self.trace.source.passed
        names = {passed(line, self.function, int(found[1])) for line in self.lines}
        name = names.pop() if len(names) == 1 else ""
        return f"{name}{source[found.end() :]}" if name else source


def _size(guard: Guard) -> tuple[str, int]:
    """The tensor and dimension that a guard is on; of no size, -1."""
    is_size = guard.kind == "size" and guard.dimension is not None
    return guard.source, guard.dimension if is_size and guard.dimension is not None else -1


def _fail_beside_others(inputs: Inputs, recompiles: Sequence[Recompile]) -> frozenset[_Subject]:
    """Find the sizes that failed in no recompile for the same tensors (an argument that is None
    elsewhere is one of them)."""
    apart: dict[_Subject, bool] = {}
    for recompile in recompiles:
        for guard in recompile.rejected:
            others = inputs.are_others(recompile.compile_id, guard.entry)
            apart[_subject(guard)] = others and apart.get(_subject(guard), True)
    return frozenset(subject for subject, others in apart.items() if others)


def _values(recompiles: Sequence[Recompile]) -> dict[_Subject, int]:
    """How many values came at least: all those that entries had at once, and the one that none of
    them had."""
    values: dict[_Subject, int] = {}
    for recompile in recompiles:
        for guards in grouped(recompile.rejected, _subject):
            subject, met = _subject(guards[0]), len({each.expected for each in guards}) + 1
            values[subject] = max(met, values.get(subject, 0))
    return values


def _come_with_parameters(inputs: Inputs, rejected: Sequence[Guard]) -> frozenset[str]:
    sizes = grouped((guard for guard in rejected if _size(guard)[1] >= 0), _size)
    return inputs.with_parameters({_size(same[0]): sizes_of(same) for same in sizes})


def _used(trace: RunTrace, guard: Guard) -> m.Location | None:
    """The project's line that made a value a constant: the one that torch quotes, else the nearest
    of the stack."""
    if guard.used is not None:
        files = [file for file in trace.source.own if _is_shown_as(file, guard.used.file)]
        if len(files) == 1:
            return trace.source.at(files[0], guard.used.line, guard.used.function)
    return trace.source.innermost(guard.stack)


def _is_shown_as(file: str, shown: str) -> bool:
    """torch leaves out what a path has in common with its own, and one character more
    (torch.utils._traceback.shorten_filename): "/tmp/a/model.py" is "mp/a/model.py"."""
    return f"/{file}".endswith(shown) or f"/{shown}".endswith(f"/{file}")


def _subject(guard: Guard) -> _Subject:
    return guard.kind, guard.source, guard.dimension


def _cause(guard: Guard) -> tuple[_Subject, str]:
    """What two guards share that are one cause: each condition on a value is one of its own."""
    return _subject(guard), guard.text if guard.kind == OTHER or is_condition(guard) else ""


def _without_repeats(guards: Sequence[Guard]) -> tuple[Guard, ...]:
    """Those that say anything that none before them says: each entry is rejected in every later
    recompile again."""
    met: set[object] = set()
    kept = []
    for guard in guards:
        says = {("expected", guard.expected), ("actual", guard.actual), guard.switches}
        if not says <= met:
            met |= says
            kept.append(guard)
    return tuple(kept)


def _recompile(
    trace: RunTrace, compiled: Compiled, rejected: tuple[Guard, ...], causes: Sequence[Guard]
) -> Recompile:
    is_timed = compiled.metrics.get("duration_us") is not None
    return Recompile(
        compile_id=compiled.compile_id,
        call=compiled.call,
        guard=causes[0] if causes else _without_a_reason(compiled, trace.knows_resets),
        rejected=rejected,
        call_site=trace.source.innermost(compiled.stack[:-1]),
        returned_by=_break_before(trace, compiled)
        if rejected and is_returned_by_a_break(rejected[0])
        else None,
        duration_s=compiled.took_us / 1e6 if is_timed else m.Skipped("torch gave no duration"),
        begins=compiled_callables.begins_with(trace, compiled),
    )


def _break_before(trace: RunTrace, compiled: Compiled) -> m.Location | None:
    """The line of the graph break behind which the code goes on."""
    line = resumed_at(compiled.frame.function) if compiled.frame else 0
    return trace.source.at(compiled.frame.file, line) if compiled.frame and line else None


def _without_a_reason(compiled: Compiled, knows_resets: bool) -> Guard:
    if is_recompile(compiled):
        return Guard(kind=OTHER, entry="", text="torch gave no reason")
    if not knows_resets:
        text = "it was created again, or torch._dynamo.reset() was called"
        return Guard(kind="identity", entry="", text=text)
    name = compiled.frame.function if compiled.frame else ""
    text = "torch takes it for a new function: it was created again"
    return Guard(kind="identity", entry="", source=name, text=text)


def ledger(trace: RunTrace) -> tuple[m.RecompileEntry, ...]:
    """Every recompile of a run, and each time that torch's limit stood against one, in the order of
    the calls."""
    entries = (entry for event in _of_run(trace) for entry in _entries(event))
    return tuple(sorted(entries, key=lambda entry: -1 if entry.call is None else entry.call))


def _entries(event: RecompiledFunction) -> Iterator[m.RecompileEntry]:
    for recompile in event.recompiles:
        yield m.RecompileEntry(
            compile_id=recompile.compile_id,
            location=event.location,
            call=recompile.call if event.calls_known else None,
            steady=event.calls_known and event.is_steady(recompile),
            reason=recompile.words,
            words=recompile.guard.text,
            guard=recompile.guard.kind,
            duration_s=recompile.duration_s,
            call_site=recompile.call_site,
            function=event.function,
            library=event.library,
        )
    if event.limit_call is not None:
        guard = event.limit_guard
        yield m.RecompileEntry(
            compile_id="",
            location=event.location,
            call=event.limit_call if event.calls_known else None,
            steady=event.calls_known and event.limit_call >= event.steady_from,
            reason=in_words(guard) if guard else "torch gave no reason",
            words=guard.text if guard else "",
            guard=guard.kind if guard else "",
            duration_s=m.Skipped("torch's recompile limit was reached: nothing was compiled"),
            refused=True,
            function=event.function,
            library=event.library,
        )


# ---------------------------------------------------------------- what the graphs tell


def _runs(trace: RunTrace, codes: Collection[str]) -> dict[int, int]:
    """call -> how often a graph of any entry of these code objects ran in it (the graph up to its
    first break)."""
    total: dict[int, int] = {}
    for graph in trace.all.graphs:
        if frame_id(graph.compile_id) in codes:
            for call, runs in graph.runs.items():
                total[call] = total.get(call, 0) + runs
    return total


class _Eager(m.Model):
    """Calls since the limit that ran eagerly: ``of`` so many, of the compiled callables; None: of
    the workload."""

    calls: int | m.Skipped
    of: int | None = None
    names: str = ""
    steady: int | m.Skipped = 0
    modules: int = 0
    idle: int = 0


def _eager_since(trace: RunTrace, limit: Compiled, compiled: Sequence[Compiled]) -> _Eager:
    """Exact where torch compiles the callable itself; what it calls behind a break is told by the
    graphs."""
    own = _limited(trace, limit, compiled)
    if not own:
        return _Eager(
            calls=_eager_calls_of_a_part(trace, limit, limit.call),
            steady=_eager_calls_of_a_part(trace, limit, trace.steady_from),
            idle=_idle_calls(trace, limit),
        )
    eager = [each for each in own if _of_the_limit(each, limit.call)]
    return _Eager(
        calls=sum(sum(_of_the_limit(each, limit.call).values()) for each in own),
        of=sum(compiled_callables.calls(each, limit.call) for each in own),
        names=compiled_callables.named(eager) if any(each.module for each in eager) else "",
        modules=_one_entry_each(own, limit.call),
        steady=sum(
            n
            for each in own
            for call, n in _of_the_limit(each, limit.call).items()
            if call >= trace.steady_from
        ),
    )


def _one_entry_each(own: Sequence[m.CompiledCallable], limit_call: int) -> int:
    """How many modules there are, if torch compiled each of them once at most; else 0: room for all
    would not help.

    Where modules are first called after the limit and in the later half of all calls too, the
    program makes new ones, and no number is enough.
    """
    alone = all(each.module and len(each.compilations) <= 1 for each in own)
    without = any(not each.compilations and each.eager for each in own)
    newest = max(min(each.calls, default=0) for each in own)
    last = max(max(each.calls, default=0) for each in own)
    known = newest <= max(limit_call, last // 2)
    return len(own) if alone and without and known else 0


def _of_the_limit(called: m.CompiledCallable, since: int) -> dict[int, int]:
    """Its eager calls by call of the workload, without those under a stance and those before the
    limit, of which torch made no graph."""
    stances = called.stances.values()
    eager = {call: n for call, n in called.eager.items() if call >= since}
    under = {call: sum(each.get(call, 0) for each in stances) for call in eager}
    return {call: n - under[call] for call, n in eager.items() if n > under[call]}


def _limited(
    trace: RunTrace, limit: Compiled, compiled: Sequence[Compiled]
) -> tuple[m.CompiledCallable, ...]:
    """The compiled callables whose own code object reached the limit."""
    frames = (each.frame for each in (limit, *compiled) if each.frame_id == limit.frame_id)
    frame = next((frame for frame in frames if frame is not None), None)
    return tuple(
        each for each in compiled_callables.of_code(trace, frame) if not each.compiled_before
    )


def reached_limit(trace: RunTrace, called: m.CompiledCallable) -> bool:
    """Whether KGP104 or KGP105 speaks of its eager calls."""
    limits = [each for each in trace.compiled if _reached_limit(trace, each)]
    return any(called in _limited(trace, limit, trace.compiled) for limit in limits)


def eager_by_finding(evidence: Evidence, run: m.RunKey) -> dict[str, int | m.Skipped]:
    """Calls after warm-up that ran eagerly because of the limit, by the fingerprint of the finding
    that says so. Of a part behind a graph break, calls of the workload in which it did."""
    by_finding: dict[str, int | m.Skipped] = {}
    for event, ordinal in numbered(evidence.once(collect)):
        told_apart = replace(event, identity=f"{event.identity}{ordinal}")
        for made in _judge(told_apart):
            if event.run == run and event.eager_steady and made.rule != IN_STEADY_STATE.id:
                by_finding[made.fingerprint] = event.eager_steady
    return by_finding


def _eager_calls_of_a_part(trace: RunTrace, limit: Compiled, since: int) -> int | m.Skipped:
    """Calls of the workload from the limit and ``since`` on in which the function ran in eager at
    least once.

    It ran compiled so many times a call before the limit; a call with fewer runs has lost them to
    eager, or called it less often.
    """
    runs = _runs(trace, {limit.frame_id})
    if not runs:
        return m.Skipped("no graph of it was counted")
    if limit.call <= 0:
        return m.Skipped("not known after a limit in the first call")
    usual = min((runs.get(call, 0) for call in range(min(runs), limit.call)), default=0)
    if not usual:
        return m.Skipped("it does not run in every call")
    later = range(max(limit.call, since), trace.calls)
    return sum(runs.get(call, 0) < usual for call in later)


def _idle_calls(trace: RunTrace, limit: Compiled) -> int:
    """How many calls of the workload follow the limit, if graphs of the function ran before and in
    none of them; else 0."""
    runs = _runs(trace, {limit.frame_id})
    later = range(limit.call + 1, trace.calls)
    return len(later) if runs and not any(runs.get(call, 0) for call in later) else 0


def _every_value_new(trace: RunTrace, compiled: Sequence[Compiled], limit: Compiled | None) -> bool:
    """Whether each call (or each run) of one function, until the last one or the limit, had to
    compile it."""
    anew = _made_anew(trace, compiled)
    by_code = grouped(
        (c for c in compiled if not c.failed),
        lambda c: "created again" if id(c) in anew else c.frame_id,
    )
    return any(
        _is_always_new(trace, entries, limit)
        for entries in by_code
        if not _spans_a_reset(entries, anew)
    )


def _spans_a_reset(entries: Sequence[Compiled], anew: set[int]) -> bool:
    """Whether torch forgot the code between two of its compilations: the next one says nothing of a
    new value."""
    return id(entries[0]) not in anew and len({entry.resets for entry in entries}) > 1


def _code(frame: m.Location) -> tuple[str, int, str]:
    return frame.file, frame.line, frame.function


def _is_always_new(trace: RunTrace, entries: Sequence[Compiled], limit: Compiled | None) -> bool:
    if len(entries) <= MANY:
        return False
    codes = {entry.frame_id for entry in entries}
    end = limit.call if limit is not None and limit.frame_id in codes else trace.calls
    compiling = {entry.call for entry in entries}
    all_runs = _runs(trace, codes)
    if any(entry.frame and _code(entry.frame) in trace.emptied for entry in entries):
        return False  # torch skips it from then on, also for values that come again
    if end < trace.calls and any(call > end for call in all_runs):
        return False  # nothing is compiled after the limit: a value has come again
    runs = {call: count for call, count in all_runs.items() if min(compiling) <= call < end}
    if not runs:  # no graph of it was counted: go by the calls alone
        return compiling == set(range(min(compiling), end))
    return runs.keys() <= compiling or sum(runs.values()) <= len(entries)


# ---------------------------------------------------------------- findings


def diagnose(events: tuple[RecompiledFunction, ...]) -> tuple[m.Finding, ...]:
    return tuple(
        finding
        for event, ordinal in numbered(events)
        for finding in _judge(replace(event, identity=f"{event.identity}{ordinal}"))
    )


def _judge(event: RecompiledFunction) -> Iterator[m.Finding]:
    """One rule at most a function; what recompiled during warm-up is a note of its own."""
    if not event.calls_known and event.limit_call is None:
        yield _finding(IN_STEADY_STATE, event, event.recompiles, UNKNOWN_CALLS, WARM_UP)
    elif event.every_value_new:
        yield _finding(UNBOUNDED, event, event.recompiles)
    elif event.limit_call is not None:
        yield _finding(LIMIT_REACHED, event, event.recompiles)
    else:
        yield from _of_breaks(event)
        own = [recompile for recompile in event.recompiles if not recompile.returned_by]
        steady = [recompile for recompile in own if event.is_steady(recompile)]
        again = [recompile for recompile in steady if not recompile.once]
        once = [recompile for recompile in steady if recompile.once]
        before = [recompile for recompile in own if not event.is_steady(recompile)]
        if again:
            yield _finding(IN_STEADY_STATE, event, again)
        if once:
            apart = "once" if again else ""
            note = _finding(IN_STEADY_STATE, event, once, apart=apart, is_note=True)
            yield replace(note, one_off=True)
        if before:
            yield _finding(IN_STEADY_STATE, event, before, _first_calls(event, before), WARM_UP)


def _first_calls(event: RecompiledFunction, recompiles: Sequence[Recompile]) -> str:
    """Which first calls these recompiles came in."""
    if all(each.call < event.steady_from for each in recompiles):
        return ", during warm-up"
    if all(each.begins for each in recompiles):
        return ", each in the first steps of its module"
    return ", during warm-up or in the first steps of its module"


def _of_breaks(event: RecompiledFunction) -> Iterator[m.Finding]:
    """What the line of a graph break returned is a constant of the code behind it. The break is the
    cause, and has a finding of its own."""
    returned = [recompile for recompile in event.recompiles if recompile.returned_by]
    for same in grouped(returned, lambda recompile: recompile.returned_by):
        yield _finding(IN_STEADY_STATE, event, same, apart=AFTER_A_BREAK)


def _because_of_break(event: RecompiledFunction, recompiles: Sequence[Recompile]) -> str:
    """Names the lines of the breaks, which lie in the file of the function itself."""
    lines = dict.fromkeys(
        recompile.returned_by.line for recompile in recompiles if recompile.returned_by
    )
    if not lines:
        return ""
    of = f" of {event.library.file}" if event.library else ""
    part = "" if all(recompile.returned_by for recompile in recompiles) else "in part "
    return f", {part}because of the graph break at line {', '.join(map(str, lines))}{of}"


def _finding(
    rule: m.Rule,
    event: RecompiledFunction,
    recompiles: Sequence[Recompile],
    first_calls: str = "",
    apart: str = "",
    *,
    is_note: bool = False,
) -> m.Finding:
    """``first_calls``: which of them, that end; such a finding is a note, as is what a graph break
    causes, which has a finding of its own. ``apart``: what tells it from another finding of the
    same rule and function."""
    guards = [recompile.guard for recompile in recompiles] or (
        [event.limit_guard] if event.limit_guard else []
    )
    eager = ""
    if event.limit_call is not None:
        where = f" {in_steps([event.limit_call])}{_silently(event)}" if event.calls_known else ""
        eager = f"; torch's limit was reached{where}"
    shared = (
        "; everything that is called through this wrapper of torch's shares the limit"
        if event.wraps
        else ""
    )
    eager += shared if event.limit_call is not None else ""
    lines = {recompile.call_site for recompile in recompiles}
    called = lines.pop() if event.is_of_library and len(lines) == 1 else None
    calls = [f"{step_name(r.call)}, " if event.calls_known else "" for r in recompiles]
    kinds = () if apart in (WARM_UP, AFTER_A_BREAK) else sorted({guard.kind for guard in guards})
    of_break = bool(recompiles) and all(recompile.returned_by for recompile in recompiles)
    times = f"{_times(event, recompiles)}{first_calls}{_because_of_break(event, recompiles)}"
    # torch's own sentence for each, one a line, and below them its hints
    detail = "\n".join(
        [
            *(f"{c}{r.compile_id}: {r.guard.text}" for c, r in zip(calls, recompiles, strict=True)),
            *dict.fromkeys(f"Hint: {guard.hint}" for guard in guards if guard.hint),
        ]
    )
    return finding(
        rule,
        replace(event, location=called or event.location),
        f"{event.name} recompiled {times}: {_why(event, recompiles)}{eager}"
        f"{in_vain(event.tried, detail)}",
        *([apart] if apart else []),
        event.identity,
        *kinds,
        level=m.Level.NOTE if is_note or first_calls or of_break else None,
        library=None
        if event.modules and event.library and event.library.package == "torch"
        else event.library,
        count=max(1, len(recompiles)),
        related=_related(event, recompiles),
        detail=detail,
        cost=_cost(recompiles),
        fix=_advice(event, recompiles, rule, apart),
        names=tuple(dict.fromkeys(guard.source for guard in guards if guard.source)),
    )


def _advice(
    event: RecompiledFunction, recompiles: Sequence[Recompile], rule: m.Rule, apart: str
) -> str:
    """The remedy for what failed; at the limit, if there is none or the modules that share the code
    have parameters of several sizes, room for all of these."""
    if apart == WARM_UP and event.calls_known:
        return ""
    room = room_for_all(event.modules_of_code) if rule is LIMIT_REACHED else ""
    if room and are_of_parameters([each.guard for each in recompiles]):
        return room
    return _fix(event, recompiles) or room


def _silently(event: RecompiledFunction) -> str:
    if isinstance(event.eager_calls, m.Skipped):
        if event.idle_calls:
            return f"; no graph of it ran in the {plural(event.idle_calls, 'call')} since then"
        return "; how often it ran eagerly since then is not known"
    if not event.eager_calls:
        return ""
    if event.calls_since is None:
        since = plural(event.eager_calls, "call")
        return f"; in {since} since then it, or a part of it, ran eagerly or was not called"
    which = f": {event.eager_names}" if event.eager_names else ""
    return (
        f"; {event.eager_calls:,} of its {plural(event.calls_since, 'call')} from there on ran "
        f"eagerly{which}"
    )


def _why(event: RecompiledFunction, recompiles: Sequence[Recompile]) -> str:
    """What failed, the first guard on each thing and dimension, with the line that used its
    value."""
    if not recompiles:
        return in_words(event.limit_guard) if event.limit_guard else "torch gave no reason"
    causes = grouped(recompiles, lambda recompile: _cause(recompile.guard))
    firsts = [same[0] for same in causes]
    # what such a line holds is told where it comes from, if that is known
    told = {_change(each.guard) for each in firsts if not each.guard.is_held}
    firsts = [one for one in firsts if not one.guard.is_held or _change(one.guard) not in told]
    words = list(dict.fromkeys(f"{first.words}{_used_in(first, event)}" for first in firsts))
    return f"{'; '.join(words[:SHOWN])}{and_more(words, SHOWN)}"


def _change(guard: Guard) -> tuple[str, int | None, str, str]:
    return guard.kind, guard.dimension, guard.expected, guard.actual


def _used_in(recompile: Recompile, event: RecompiledFunction) -> str:
    return "" if recompile.returned_by else used_in(recompile.used, event.location)


def _related(event: RecompiledFunction, recompiles: Sequence[Recompile]) -> tuple[m.Location, ...]:
    """The break that a value came from, the lines that used one, the calls that recompiled. A break
    in a library is no place of the project."""
    breaks = [] if event.library else [recompile.returned_by for recompile in recompiles]
    places = (*breaks, *(r.used for r in recompiles), *(r.call_site for r in recompiles))
    return tuple(dict.fromkeys(place for place in places if place))


def _fix(event: RecompiledFunction, recompiles: Sequence[Recompile]) -> str:
    """For the cause of most of the recompiles, and of half of them at least: a fix for another one
    would leave most of them. What it leaves is said."""
    causes = Counter(each.fix or _cause(each.guard) for each in recompiles)
    if not causes:
        return event.limit_fix
    most = max(causes.values())
    fix = next((str(each.fix) for each in recompiles if each.fix and causes[each.fix] == most), "")
    if not fix or 2 * most < len(recompiles):
        return ""
    alone = "; other causes may stay" if len(causes) > 1 else ""
    return f"{fix}{alone}"


def _cost(recompiles: Sequence[Recompile]) -> m.FindingCost | m.Skipped:
    """The compilations that the finding counts; calls that ran in eager since are not in it."""
    known = known_s(recompiles)
    if not known or len(known) < len(recompiles):
        lacking = plural(len(recompiles) - len(known), "compilation")
        return m.Skipped(
            f"torch gave no duration for {lacking}" if recompiles else "it was not compiled again"
        )
    what = "compile time in all"
    return m.FindingCost(
        value=sum(known), unit="s", what=what, measured_in=(m.PassName.COMPILE,), samples=len(known)
    )


def known_s(recompiles: Sequence[Recompile]) -> list[float]:
    """Seconds of each that torch timed."""
    return [r.duration_s for r in recompiles if not isinstance(r.duration_s, m.Skipped)]


def _times(event: RecompiledFunction, recompiles: Sequence[Recompile]) -> str:
    seconds = known_s(recompiles)
    calls = {recompile.call for recompile in recompiles if event.calls_known}
    where = f" {in_steps(calls)}" if calls else ""
    cost = f", {sum(seconds):.2f} s" if seconds else ""
    return f"{plural(len(recompiles), 'time')}{where}{cost}"
