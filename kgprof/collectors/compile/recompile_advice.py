"""What the failed guards of one function mean: the line that used a value, the guard in a sentence,
and what to write so that it no longer fails.

    FunctionCompilations ─┐                ├─ used(guard)   the project's line
    Recompile, ...        ├─ Advice(...) ──┼─ words(guard)  "size of x: expected 8, got 9"
    LimitReached ─────────┘                └─ fix(guard)    remedies.as_code(Cause)

``remedies`` decides by a Cause alone. What is true of the function is in each Cause of it; the rest
is asked for each guard: the source text, the inputs of the graphs, and the other guards on the same
thing.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.compile.compilations_by_function import FunctionCompilations
from kgprof.collectors.compile.guard_words import in_words, is_left_by_a_break
from kgprof.collectors.compile.input_sizes import InputSize, inputs_of
from kgprof.collectors.compile.recompile_causes import Recompile
from kgprof.collectors.compile.recompile_limit import LimitReached
from kgprof.collectors.compile.remedies import (
    NUMBERS,
    STATIC_INT,
    Cause,
    as_code,
    is_number,
    name_of,
    sizes_of,
)
from kgprof.collectors.compile.tried_settings import TriedSettings
from kgprof.collectors.fingerprint import grouped
from kgprof.collectors.guard_text import TENSOR_KINDS, Guard
from kgprof.reading import compiled_callables
from kgprof.reading.compile_calls import not_static
from kgprof.reading.structured_trace import frame_id

_POSITIONAL = re.compile(r"^args\[(\d+)\]")  # of torch's wrapper
_MEMBER = re.compile(r"(?:\.|\[')(\w+)(?:'\])?$")  # the last of "args[0].param_groups[0]['lr']"
_IS_A_CONSTANT = re.compile(r"\S+\.size\(\)\[\d+\] == \d+")  # no multiple of a number
_NO_SIZE = -1  # in place of a dimension


class Advice:
    def __init__(
        self,
        function: FunctionCompilations,
        name: str,
        recompiles: Sequence[Recompile],
        limit: LimitReached | None,
    ) -> None:
        """``name``: the function's."""
        self._function = function
        self._trace = function.trace
        self._source = function.trace.source
        self._name = name
        self._recompiles = recompiles
        self._rejected = [guard for each in recompiles for guard in each.rejected]
        self._modules = 0
        self._behind_a_break = {each.frame_id for each in function.compiled if each.is_resumed}
        if limit is not None:
            self._rejected += limit.rejected
            self._modules = limit.modules
        self._inputs = inputs_of(self._trace, function.compiled)
        by_subject = grouped(self._rejected, lambda guard: guard.subject)
        self._by_subject = {same[0].subject: _without_repeats(same) for same in by_subject}
        # tensors whose sizes are always those of a parameter
        self._with_parameters = self._inputs.with_parameters(
            {_size(same[0]): sizes_of(same) for same in grouped(self._rejected, _size)}
        )
        self._fixes: dict[object, str] = {}

    # ------------------------------------------------------------ for each guard

    def used(self, guard: Guard) -> m.Location | None:
        """The project's line that made a constant of the value; of an entry or attribute only a
        line that names it, as torch may give the one that first looked at its owner."""
        member = _MEMBER.search(guard.source)
        line = self._line_of(guard)
        if member and line and guard.dimension is None and not guard.variable:
            return line if member[1] in re.findall(r"\w+", line.text) else None
        return line or self._inputs.constants.get(_size(guard))

    def words(self, guard: Guard) -> str:
        same, wraps, arguments = self._same(guard), "", self._arguments
        if self._wrapper is not None:
            wraps = self._wrapper.wraps
        elif self._function.library:
            guard = replace(guard, source=_POSITIONAL.sub(_counted, guard.source))
        return in_words(guard, same=same, wraps=wraps, arguments=arguments)

    def fix(self, guard: Guard) -> str:
        """One for all guards on a value that one line used, however many there are."""
        # no name of the program's, or none before the call: mend the break
        if is_left_by_a_break(guard) or self._is_behind_a_break(guard):
            return ""
        line = self._line_of(guard)
        key = guard.subject, line
        if key not in self._fixes:
            self._fixes[key] = as_code(self._cause(guard, line))
        return self._fixes[key]

    def _line_of(self, guard: Guard) -> m.Location | None:
        """The line that torch quotes, else the nearest of the stack."""
        shown = guard.used
        if shown is not None:
            files = [file for file in self._source.own if _is_shown_as(file, shown.file)]
            if len(files) == 1:
                return self._source.at(files[0], shown.line, shown.function)
        return self._source.innermost(guard.stack)

    def _same(self, guard: Guard) -> Sequence[Guard]:
        """All that failed on the same thing."""
        return self._by_subject.get(guard.subject, (guard,))

    def _is_behind_a_break(self, guard: Guard) -> bool:
        """Whether only code that goes on behind a graph break looked at this property of a
        tensor: what is done to an argument before the call says nothing of a variable there."""
        if guard.kind not in TENSOR_KINDS:
            return False
        codes = {frame_id(each.entry) for each in self._same(guard) if each.entry}
        return bool(codes) and codes <= self._behind_a_break

    def _cause(self, guard: Guard, used: m.Location | None) -> Cause:
        same = self._same(guard)
        name = name_of(guard)
        # of an entry for which the size was dynamic already
        constants = [each for each in same if " == " in each.expected]
        cause = replace(
            self._of_function,
            guards=tuple(replace(each, source=self._passed(each.source)) for each in same),
            with_parameter=guard.source in self._with_parameters,
            is_constant=bool(constants) or _size(guard) in self._inputs.constants,
            constant_at=self._constant_at(guard, constants),
            beside_others=self._fails_beside_others(guard),
            values=self._values(guard),
            together=self._together(guard),
            only_computed=self._only_computed(guard, used),
            of_many_types=self._is_of_many_types(guard),
        )
        if self._wrapper is None:
            is_argument = self._is_argument(name)
            cause = replace(cause, is_argument=is_argument, is_rest=self._is_rest(name))
        if used is None:
            return cause
        cause = replace(cause, only_grows=self._source.only_appends(used, name))
        if not guard.source.isidentifier():
            return cause
        return replace(
            cause,
            comparison=self._source.comparison(used, guard.source),
            returned=self._source.only_returns(used, guard.source),
        )

    def _constant_at(self, guard: Guard, constants: Sequence[Guard]) -> m.Location | None:
        """The line that makes a constant of each size."""
        line = self._inputs.constants.get(_size(guard))
        if line is None and constants and _IS_A_CONSTANT.fullmatch(constants[0].expected):
            return self._line_of(constants[0])
        return line

    def _fails_beside_others(self, guard: Guard) -> bool:
        """Whether it failed in no recompile for the same tensors (an argument that is None
        elsewhere is one of them): torch compiles for other tensors anyway."""
        others = [
            self._inputs.are_others(recompile.compile_id, each.entry)
            for recompile in self._recompiles
            for each in recompile.rejected
            if each.subject == guard.subject
        ]
        return bool(others) and all(others)

    def _values(self, guard: Guard) -> int:
        """How many values came at least: all those that entries had at once, and the one that none
        of them had."""
        most = 0
        for recompile in self._recompiles:
            same = (each for each in recompile.rejected if each.subject == guard.subject)
            most = max(most, len({each.expected for each in same}))
        if not most:
            return 0
        return most + 1

    def _together(self, guard: Guard) -> tuple[InputSize, ...]:
        """What varied with a size and can be made dynamic with it, itself included."""
        source, dimension = _size(guard)
        code = frame_id(guard.entry)
        if dimension == _NO_SIZE:
            return ()
        varied = []
        for each in self._inputs.together(code):
            if not each.is_constant and each.source not in self._with_parameters:
                varied.append(each)
        if (source, dimension) not in {(each.source, each.dimension) for each in varied}:
            sizes = tuple(sorted(sizes_of(self._same(guard))))
            varied = [InputSize(frame_id=code, source=source, dimension=dimension, sizes=sizes)]
        return tuple(replace(each, source=self._passed(each.source)) for each in varied)

    def _only_computed(self, guard: Guard, used: m.Location | None) -> bool:
        """Whether each use of a number, where the text shows them all, may take a tensor, and the
        attribute that it is may be set."""
        if not is_number(guard) and guard.expected not in NUMBERS:
            return False
        name = name_of(guard)
        _, is_attribute, field = name.rpartition(".")
        if is_attribute and self._source.is_frozen(field):
            return False
        return self._source.only_computed(
            [place for place in (self._function.definition, used) if place],
            self._inside(name),
            set(map(self._inside, self._inputs.tensors)),
            is_symbol=any(STATIC_INT in switch for switch in guard.switches),
        )

    def _is_of_many_types(self, guard: Guard) -> bool:
        """Whether a value came as numbers of two types, or as a number and as a tensor."""
        of_source = [each for each in self._rejected if each.source == guard.source]
        types = {each.expected for each in of_source if each.kind == "type"}
        return bool(types) and types <= {*NUMBERS}

    # ------------------------------------------------------------ names

    @property
    def _wrapper(self) -> m.OfferedFrame | None:
        return next(iter(self._function.wrappers), None)

    @property
    def _arguments(self) -> tuple[str, ...]:
        """Those that torch's wrapper passes on, as the function that it calls names them."""
        if self._wrapper is None:
            return ()
        return self._wrapper.arguments

    def _inside(self, source: str) -> str:
        return _POSITIONAL.sub(self._argument_at, source)

    def _argument_at(self, found: re.Match[str]) -> str:
        return next(iter(self._arguments[int(found[1]) :]), found[0])

    def _passed(self, source: str) -> str:
        """``args[0]`` of torch's wrapper is what the owner's line passes there, if that is a
        variable."""
        if self._wrapper is None:
            return source
        return _POSITIONAL.sub(self._passed_at, source)

    def _passed_at(self, found: re.Match[str]) -> str:
        lines = {each.call_site for each in self._recompiles if each.call_site}
        function = self._of_function.function
        names = {self._source.passed(line, function, int(found[1])) for line in lines}
        if len(names) != 1:
            return found[0]
        return names.pop() or found[0]

    def _is_argument(self, name: str) -> bool | None:
        known = self._parameters(stars=True)
        if not known:
            return None
        return name in known

    def _is_rest(self, name: str) -> bool:
        """Whether it begins with the name of *args or **kwargs, of which no caller knows."""
        stars = {*self._parameters(stars=True)} - {*self._parameters(stars=False)}
        return re.split(r"\W", name)[0] in stars

    def _parameters(self, *, stars: bool) -> tuple[str, ...]:
        place = self._function.definition
        if place is None:
            return ()
        return self._source.arguments(place.file, place.line, place.function, stars=stars)

    # ------------------------------------------------------------ for the function

    @cached_property
    def tried(self) -> Mapping[str, str]:
        """Settings by name, as far as they were tried: what each does."""
        return TriedSettings(self._trace).of_code(self._function.compiled)

    @cached_property
    def _of_function(self) -> Cause:
        """What each Cause of the function has."""
        compiled = self._function.compiled
        files = {place.file for each in compiled for place in each.stack}
        return Cause(
            guards=(),
            function=self._called_as(),
            wraps=self._wrapper is not None,
            modules=self._modules,
            library=self._wrapper is None and self._function.library is not None,
            scheduler=self._source.momentum_scheduler,
            switched=self._source.switched(files),
            within_compiled=self._is_within_compiled(),
            not_static=self._not_static(),
            in_turn=compiled_callables.in_turn(self._function.owners),
            tried=self.tried,
        )

    def _called_as(self) -> str:
        """Name what the program calls: the module in place of its forward, or of torch's
        wrapper."""
        if self._wrapper is None and self._name.rpartition(".")[2] != "forward":
            return self._name
        paths = {owner.path or owner.function for owner in self._function.owners}
        names = [path for path in paths if path.isidentifier()]
        if len(names) == 1:
            return names[0]
        if self._wrapper is None:
            return "model"
        return "compiled"

    def _is_within_compiled(self) -> bool:
        """Whether a function that leads to its calls is compiled as well."""
        above: set[m.Location] = set()
        for compiled in self._function.compiled:
            if not compiled.is_resumed:
                above.update(compiled.stack[:-1])
        for place in above:
            if self._source.project.holds(place.file):
                caller = self._source.at(place.file, place.line, place.function)
                if (caller.file, caller.function) in self._trace.compiled_functions:
                    return True
        return False

    def _not_static(self) -> str:
        """Write the torch.compile with dynamic=False that compiled it without that, if one did."""
        owners = self._function.owners
        for line in dict.fromkeys(owner.compiled_at for owner in owners):
            if line is not None:
                call = not_static(self._source.tree(line.file), line.line)
                if call:
                    return call
        if any(owner.is_static for owner in owners):  # by an argument that no text shows
            return "torch.compile(...)"
        return ""


def _size(guard: Guard) -> tuple[str, int]:
    """The tensor and dimension whose size a guard is on."""
    if guard.kind != "size" or guard.dimension is None:
        return guard.source, _NO_SIZE
    return guard.source, guard.dimension


def _counted(found: re.Match[str]) -> str:
    """``args[0]`` of a library's wrapper is what the owner passes first."""
    return f"positional argument {int(found[1]) + 1}"


def _is_shown_as(file: str, shown: str) -> bool:
    """torch leaves out what a path has in common with its own, and one character more
    (torch.utils._traceback.shorten_filename): "/tmp/a/model.py" is "mp/a/model.py"."""
    return f"/{file}".endswith(shown) or f"/{shown}".endswith(f"/{file}")


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
