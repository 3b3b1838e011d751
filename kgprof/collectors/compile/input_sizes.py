"""The sizes of the tensors that a function was compiled for, again and again: which of them varied,
whether torch made a symbol of one, and which line made a constant of it again.

torch describes each tensor that comes into a graph, and each size of it that it takes for a symbol
or that a line specializes.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from kgprof import model as m
from kgprof.reading.structured_trace import Compiled, RunTrace, frame_id

MEMBER = re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]")  # as torch writes "self.head"
_SIZE = re.compile(r"(?P<source>.+)\.size\(\)\[(?P<dimension>\d+)\]")
_LOCAL = re.compile(r"L\['(\w+)'\]")

_Key = tuple[str, str, int]  # the frame's id, the tensor as guards name it, the dimension


class InputSize(m.Model, kw_only=False):
    """One dimension of one tensor that came to one frame in more than one size."""

    frame_id: str
    source: str  # as guards name it
    dimension: int
    sizes: tuple[int, ...]  # in the order in which they were met first
    is_parameter: bool = False
    is_symbol: bool = False  # torch compiled it for many sizes at least once
    is_always: bool = True  # the tensor came to every graph of the frame
    is_constant: bool = False  # the function's own code made a constant of it


class Inputs(m.Model):
    """What came into the graphs of one function."""

    tensors: frozenset[str]  # their names, as a program writes them
    varied: tuple[InputSize, ...]
    # sizes that the function's own code made constants of, with the line if it does so of each size
    constants: Mapping[tuple[str, int], m.Location | None]
    by_compilation: Mapping[str, frozenset[str]]  # tensors as guards name them, no parameters

    def are_others(self, compilation: str, entry: str) -> bool:
        """Tell whether other tensors came than those that an earlier entry was compiled for."""
        known = self.by_compilation
        return known.get(compilation, frozenset()) != known.get(entry, frozenset())

    def with_parameters(
        self, sizes_of: Mapping[tuple[str, int], Collection[int]]
    ) -> frozenset[str]:
        """Tensors that come in the sizes of a parameter, an argument too, as its gradient does.
        torch keeps a parameter's sizes static, and a mark on the other tensor raises.

        ``sizes_of``: what came, by tensor and dimension.
        """
        parameters = [each for each in self.varied if each.is_parameter]
        return frozenset(
            source
            for (source, dimension), came in sizes_of.items()
            for each in parameters
            if each.dimension == dimension and set(each.sizes) <= set(came)
        )

    def together(self, frame: str) -> tuple[InputSize, ...]:
        """What varied in the graphs of one frame, parameters left out."""
        return tuple(
            each for each in self.varied if each.frame_id == frame and not each.is_parameter
        )


def inputs_of(trace: RunTrace, compiled: Sequence[Compiled]) -> Inputs:
    names = list(dict.fromkeys(each.compile_id for each in compiled))
    symbols: set[_Key] = set()
    varies: set[_Key] = set()  # in one compilation at least
    constants: dict[_Key, m.Location | None] = {}
    for name in names:
        made = {_dimension(name, source): line for source, line in trace.specialized(name)}
        constants |= {key: line for key, line in made.items() if key and key not in constants}
        own = {key for source in _symbols(trace, name) if (key := _dimension(name, source))}
        symbols |= own
        varies |= own - made.keys()
    for key in varies & constants.keys():
        constants[key] = None
    met: dict[_Key, dict[int, None]] = {}
    came: dict[tuple[str, str], set[str]] = {}  # frame and tensor: compilations
    tensors, parameters = set(), set()
    each_input = ((name, *each) for name in names for each in described(trace, name))
    for name, source, sizes, is_parameter in each_input:
        came.setdefault((frame_id(name), source), set()).add(name)
        tensors.add(MEMBER.sub(r".\1", source))
        for dimension, size in enumerate(sizes):
            met.setdefault((frame_id(name), source, dimension), {})[size] = None
        if is_parameter:
            parameters.add(source)
    by_compilation: dict[str, set[str]] = {}
    for (_, source), compilations in came.items():
        if source in parameters:
            continue
        for name in compilations:
            by_compilation.setdefault(name, set()).add(source)
    most: dict[str, int] = {}
    for (frame, _), compilations in came.items():
        most[frame] = max(most.get(frame, 0), len(compilations))
    varied = tuple(
        InputSize(
            *key,
            sizes=tuple(sizes),
            is_parameter=key[1] in parameters,
            is_symbol=key in symbols,
            is_always=len(came[key[0], key[1]]) == most[key[0]],
            is_constant=key in constants,
        )
        for key, sizes in met.items()
        if len(sizes) > 1
    )
    return Inputs(
        tensors=frozenset(tensors),
        varied=varied,
        constants={key[1:]: line for key, line in constants.items()},
        by_compilation={name: frozenset(each) for name, each in by_compilation.items()},
    )


def numbers_of(trace: RunTrace, name: str) -> tuple[str, ...]:
    """Name, as Dynamo does, the numbers that are symbols in one compilation; none where a size is
    one."""
    sources = tuple(_symbols(trace, name))
    if any(_SIZE.fullmatch(source) for source in sources):
        return ()
    return tuple(dict.fromkeys(sources))


def as_in_guards(source: str) -> str:
    """``batch['x']`` for Dynamo's ``L['batch']['x']``."""
    return _LOCAL.sub(r"\1", source, count=1)


def _dimension(name: str, source: str) -> _Key | None:
    found = _SIZE.fullmatch(source)
    if found is None:
        return None
    return frame_id(name), as_in_guards(found["source"]), int(found["dimension"])


def _symbols(trace: RunTrace, name: str) -> Iterator[str]:
    """The source of each value that torch took for a symbol in one compilation."""
    for record in trace.records_of(name):
        made = record.metadata.get("create_symbol")
        if isinstance(made, Mapping):
            yield str(made.get("source"))


def described(trace: RunTrace, name: str) -> Iterator[tuple[str, Sequence[int], bool]]:
    """The source and sizes of each tensor among the inputs of one compilation, and whether it is a
    parameter."""
    tensors: dict[tuple[object, ...], Mapping[str, object]] = {}
    for record in trace.records_of(name):
        metadata = record.metadata
        tensor, source = metadata.get("describe_tensor"), metadata.get("describe_source")
        if isinstance(tensor, dict):
            tensors[tensor.get("describer_id"), tensor.get("id")] = tensor
        if isinstance(source, dict):
            known = tensors.get((source.get("describer_id"), source.get("id")), {})
            sizes = known.get("size", ())
            if isinstance(sizes, list):
                is_parameter = bool(known.get("is_parameter"))
                yield as_in_guards(str(source.get("source"))), sizes, is_parameter
