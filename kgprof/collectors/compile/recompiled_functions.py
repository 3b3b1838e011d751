"""The functions of one run that were compiled again, or that torch's limit stopped.

RunTrace ─┬─ by_function ──► FunctionCompilations ─┬─ recompiles_of, limit_of
          └─ rejections ───► failed guards ────────┤
                                                   └─ Advice ──► RecompiledFunction, Recompile
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.compile.compilations_by_function import FunctionCompilations, by_function
from kgprof.collectors.compile.guard_rejections import rejections
from kgprof.collectors.compile.recompile_advice import Advice
from kgprof.collectors.compile.recompile_causes import Recompile, happened_once, recompiles_of
from kgprof.collectors.compile.recompile_limit import LimitReached, limit_of
from kgprof.collectors.event import Event
from kgprof.reading.structured_trace import RunTrace
from kgprof.wording import and_more, clause


class RecompiledFunction(Event):
    """One function of one run that was compiled more than once."""

    # its def; for a library's function the project's line that leads there
    function: str = ""  # its name, qualified where it is known
    library: m.PackageLine | None = None  # the def of a library's function
    recompiles: tuple[Recompile, ...]
    steady_from: int  # recompiles from this call on are in steady state
    limit: LimitReached | None = None
    modules: str = ""  # of torch's one function around all its modules: which modules were compiled
    every_value_new: bool  # it was compiled whenever it ran
    calls_known: bool = True  # False: no call was told from another, and nothing is said of warm-up
    wraps: tuple[str, ...] = ()  # what torch's wrapper called, where that was compiled: "Linear"
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
            return self._method_of_modules
        if self.wraps:
            return f"{', '.join(self.wraps[:2])}{and_more(self.wraps, 2)}"
        return f"{self.function or 'a function'}{clause(' in ', self.library)}"

    @property
    def _method_of_modules(self) -> str:
        """The modules, and the method that a library other than torch defines, unless a call of the
        module runs it."""
        method = self.function.rpartition(".")[2]
        if method == "forward" or self.library is None or self.library.package == "torch":
            return self.modules
        return f"{method} of {self.modules}"


def recompiled_functions(trace: RunTrace) -> Iterator[RecompiledFunction]:
    failed = rejections(trace)
    for function in by_function(trace):
        recompiles = tuple(recompiles_of(function, failed))
        limit = limit_of(function, failed)
        if recompiles or limit:
            yield _event(function, recompiles, limit)


def _event(
    function: FunctionCompilations, recompiles: Sequence[Recompile], limit: LimitReached | None
) -> RecompiledFunction:
    trace, place, library = function.trace, function.place, function.library
    wraps = tuple(dict.fromkeys(row.wraps for row in function.wrappers))
    name = ", ".join(wraps) or function.name
    identity = [*trace.source.identity(place)[:2]]
    if library is not None:
        identity += (library.package, library.file, library.function)
    if wraps:
        library = None  # of torch's wrapper the program knows nothing
    advice = Advice(function, name, recompiles, limit)
    recompiles = tuple(_advised(recompiles, advice))
    if limit is not None and limit.guard is not None:
        limit = replace(limit, fix=advice.fix(limit.guard))
    return RecompiledFunction(
        run=trace.run,
        location=place,
        identity="\0".join(identity),
        function=name,
        library=library,
        recompiles=recompiles,
        steady_from=trace.steady_from,
        limit=limit,
        modules=function.modules,
        every_value_new=trace.calls > 0 and function.every_value_new,
        calls_known=trace.calls > 0,
        wraps=wraps,
        tried=advice.tried,
    )


def _advised(recompiles: Sequence[Recompile], advice: Advice) -> Iterator[Recompile]:
    for recompile, once in zip(recompiles, happened_once(recompiles), strict=True):
        guard = recompile.guard
        yield replace(
            recompile,
            once=once,
            used=advice.used(guard),
            fix=advice.fix(guard),
            words=advice.words(guard),
        )


def known_s(recompiles: Iterable[Recompile]) -> list[float]:
    """Seconds of each that torch timed."""
    durations = (recompile.duration_s for recompile in recompiles)
    return [each for each in durations if not isinstance(each, m.Skipped)]
