"""The guards of one compilation, read off torch's tree of them."""

from collections.abc import Iterator
from typing import Any

from kgprof import model as m
from kgprof.record.ground.source import words

MOST, TEXT = 2000, 400  # guards on values that are kept; characters of one

# Kinds of torch's, by the names of their classes, that look at what a name stands for.
_NAMES = frozenset(
    (
        "TYPE_MATCH",
        "ID_MATCH",
        "NO_HASATTR",
        "WEAKREF_ALIVE",
        "DICT_VERSION",
        "OBJECT_ALIASING",
    )
)
# an attribute that an object does not hide, the names in a dict, marks on a tensor
_OF_A_NAME = ("not ___dict_contains(", "list(dict.keys(", "___dict_contains(", "hasattr(")


def checked(manager: Any, compile_id: str) -> m.CompiledGuards:
    """``manager``: what torch keeps of a compilation (``GuardManagerWrapper``). Nothing of the
    program's own runs for it."""
    try:
        found = dict.fromkeys(_leaves(manager.root))
    except (AttributeError, TypeError) as error:  # of a torch whose tree is another one
        return m.CompiledGuards(compile_id=compile_id, missing=words(error))
    values = [
        f"{kind}: {_cut(kind, text)}" for kind, text in found if not _is_of_a_name(kind, text)
    ]
    return m.CompiledGuards(
        compile_id=compile_id,
        values=tuple(values[:MOST]),
        left_out=max(0, len(values) - MOST),
    )


def _cut(kind: str, text: str) -> str:
    if kind == "GLOBAL_STATE":  # every setting of it counts
        return text
    return text[:TEXT]


def _is_of_a_name(kind: str, text: str) -> bool:
    return kind in _NAMES or text.startswith(_OF_A_NAME)


def _leaves(manager: Any) -> Iterator[tuple[str, str]]:
    """Kind and code of each; one that relates several values stands at each of them, alike."""
    for guard in manager.get_leaf_guards():
        kind = type(guard).__name__
        yield from ((kind, text) for text in guard.verbose_code_parts())
    below = list(manager.get_child_managers())
    if hasattr(manager, "get_key_value_managers"):
        for pair in manager.get_key_value_managers().values():
            below += filter(None, pair)
    for each in below:
        yield from _leaves(each)
