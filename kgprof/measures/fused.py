"""The operators that Inductor fused into a kernel, read back from the kernel's name.

Inductor names a kernel ``triton_<category>_fused_<ops>_<n>`` or ``cpp_fused_<ops>_<n>`` (in a trace with
``graph_<id>_`` before it), where ``<ops>`` are the distinct operators in alphabetical order, joined by underscores
(torch/_inductor/utils.py: get_fused_kernel_name).
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from kgprof import model as m

# What is known of torch's operators by name.
_LISTS = {
    kind: frozenset(names.split())
    for kind, names in tomllib.loads(
        resources.files("kgprof.measures").joinpath("operators.toml").read_text(encoding="utf-8")
    ).items()
}
# In the order in which they are asked; no name is in two of them.
OPERATOR_KINDS = {m.KernelKind(kind): names for kind, names in _LISTS.items() if kind != "of_no_kind"}
MULTI_WORD_OPERATORS = frozenset(name for names in _LISTS.values() for name in names if "_" in name.strip("_"))

# The category is the first three letters of Inductor's own word: pointwise, reduction, persistent_reduction, template,
# foreach, split_scan.
_GENERATED = re.compile(
    r"(?:.*?_)??(?P<generator>triton|cpp)(?:_(?P<category>[a-z]{3}))?_fused(?:_(?P<ops>.+?))??_(?P<number>\d+)"
)
_GRAPH = re.compile(r"^graph_\d+_")
_WORD = re.compile(r"__[a-z0-9]+__|_?[A-Za-z0-9]+_?")  # aten::__lshift__ is one word too
_MAX_NAME = 1000  # beyond it a name is no longer taken apart: the search is quadratic in its length


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedName:
    generator: str  # "triton" or "cpp"
    category: str  # "poi", "red", "per", "tem" ...; empty for C++
    ops: tuple[str, ...]


def parse(name: str) -> GeneratedName | None:
    """What the name of a kernel that Inductor generated says; None for any other kernel."""
    found = _GENERATED.fullmatch(name)
    if found is None:
        return None
    return GeneratedName(
        generator=found["generator"], category=found["category"] or "", ops=split_operators(found["ops"] or "")
    )


def plain_name(name: str) -> str:
    """A generated kernel's name without the numbers of its graph and of itself, which another compilation gives
    otherwise; any other name as it is."""
    return _GRAPH.sub("", name).rpartition("_")[0] if _GENERATED.fullmatch(name) else name


@cache
def split_operators(joined: str) -> tuple[str, ...]:
    """``index_add_mul`` -> ``("index_add", "mul")``.

    The fewest operators that spell the text in ascending order, each one word or a known name of several words. Where
    no ascending reading exists (another ``descriptive_names`` setting) the order is given up, then the known names.
    """
    if not joined:
        return ()
    if len(joined) > _MAX_NAME:
        return (joined,)
    return _fewest(joined, ascending=True) or _fewest(joined, ascending=False) or (joined,)


def _fewest(joined: str, *, ascending: bool) -> tuple[str, ...] | None:
    """Shortest path over the positions where an operator may begin; a state is (where it begins, the one before)."""
    frontier: dict[tuple[int, str], tuple[str, ...]] = {(0, ""): ()}
    while frontier:
        # All states of one frontier hold equally many operators, so the first to reach the end is the shortest;
        # among equals the reading with the longest first operator wins.
        done = [path for (position, _), path in frontier.items() if position > len(joined)]
        if done:
            return max(done, key=lambda path: [len(operator) for operator in path])
        following: dict[tuple[int, str], tuple[str, ...]] = {}
        for (position, last), path in frontier.items():
            for operator in _operators_at(joined, position):
                if not ascending or operator > last:
                    following.setdefault((position + len(operator) + 1, operator), (*path, operator))
        frontier = following
    return None


@cache
def _operators_at(joined: str, position: int) -> tuple[str, ...]:
    """The operators that may stand here, each followed by an underscore or the end."""
    ends = [i for i in range(position + 1, len(joined) + 1) if i == len(joined) or joined[i] == "_"]
    texts = (joined[position:end] for end in ends)
    return tuple(text for text in texts if _WORD.fullmatch(text) or {text, text.rstrip("_")} & MULTI_WORD_OPERATORS)
