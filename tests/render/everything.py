"""A Profile in which every field of every Struct is filled, made by walking the types: a new field
cannot be forgotten.

Strings come one after the other from what is given; numbers are small and positive. Of a union the
first member is taken that is not Skipped or None, or else, where asked, Skipped and None wherever
they may be.
"""

from __future__ import annotations

import enum
import itertools
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kgprof.model import PROFILE_SCHEMA_VERSION, Profile, RunKey, RunReport, Skipped

ITEMS = 2  # of every tuple, as many as there are runs
NUMBERS = {int: 3, float: 1.5, bool: True}
# Numbers that point at something, and texts that are one of a few. A tree as arrays: the first node
# has no parent, and the second is below it.
GIVEN = {
    ("KernelBreakdown", "device"): "cuda",
    ("Contents", "source"): "all",
    ("FlameGraph", "parent"): (-1, 0),
    ("FlameGraph", "frame"): (0, 1),
    ("FlameDifference", "parent"): (-1, 0),
    ("FlameDifference", "frame"): (0, 1),
    ("CompiledWork", "operators"): (0, 1),
    ("CompiledWork", "calls"): (0, 1),
    ("CompiledWork", "guards"): (0, 1),
    ("StackFrame", "name"): 1,
    ("StackFrame", "file"): 1,
    ("StackFunction", "frame"): 1,
    ("Gate", "failing"): (0, 1),
    ("Lane", "name"): (0, 1),
    ("Lane", "kind"): (0, 1),
    ("Lane", "call"): (-1, 0),
    ("Profile", "schema_version"): PROFILE_SCHEMA_VERSION,
}


def everything(texts: Iterable[str], *, skipped: bool = False) -> Profile:
    made = Maker(texts, skipped=skipped).of(Profile)
    assert isinstance(made, Profile)
    return made


class Maker:
    """``filled``: (Struct, field) of each string that was put somewhere."""

    def __init__(self, texts: Iterable[str], *, skipped: bool = False) -> None:
        self._texts = itertools.cycle(texts)
        self._skipped = skipped
        self._numbers = itertools.count()
        # Runs that others speak of are there.
        self._runs = tuple(
            RunKey(strategy=f"{number}{next(self._texts)}", mode=next(self._texts))
            for number in range(ITEMS)
        )
        self._reports, self._keys = itertools.cycle(self._runs), itertools.cycle(self._runs)
        self._enums: dict[type, Iterator[enum.Enum]] = {}
        self.filled: set[tuple[str, str]] = {("RunKey", "strategy"), ("RunKey", "mode")}

    def of(self, hint: Any, *, path: tuple[type, ...] = (), name: str = "") -> Any:
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self.of(self._member(inner), path=path, name=name)
        if origin is tuple:
            kinds = inner[:1] * ITEMS if inner[1:] == (...,) else inner
            return tuple(self.of(kind, path=path, name=name) for kind in kinds)
        if origin is dict:
            return {self._key(): self.of(inner[1], path=path, name=name) for _ in range(ITEMS)}
        if hint is str:
            self.filled.add((path[-1].__name__, name))
            return next(self._texts)
        if hint in NUMBERS:
            return NUMBERS[hint]
        if hint is type(None):
            return None
        if issubclass(hint, enum.Enum):
            return next(self._enums.setdefault(hint, itertools.cycle(hint)))
        return self._struct(hint, path)

    def _member(self, members: tuple[Any, ...]) -> Any:
        absent = [member for member in members if member in (Skipped, type(None))]
        if self._skipped and absent:
            return absent[0]
        return next(member for member in members if member not in absent)

    def _key(self) -> str:
        return f"{next(self._numbers)}{next(self._texts)}"

    def _struct(self, kind: type[msgspec.Struct], path: tuple[type, ...]) -> msgspec.Struct:
        if kind is RunKey:
            return next(self._keys)
        hints = typing.get_type_hints(kind)
        if path.count(kind) > 1:  # a tree ends somewhere
            hints = {name: hint for name, hint in hints.items() if kind not in leaves(hint)}
        values = {
            name: self.of(hint, path=(*path, kind), name=name) for name, hint in hints.items()
        }
        if kind is RunReport:
            values["key"] = next(self._reports)
        values |= {
            field: value for (owner, field), value in GIVEN.items() if owner == kind.__name__
        }
        return kind(**values)


def string_fields(kind: type[msgspec.Struct] = Profile) -> set[tuple[str, str]]:
    """(Struct, field) of each field, however deep, that holds a string."""
    found: set[tuple[str, str]] = set()
    seen: set[type] = set()
    waiting: list[type] = [kind]
    while waiting:
        struct = waiting.pop()
        if struct in seen:
            continue
        seen.add(struct)
        for name, hint in typing.get_type_hints(struct).items():
            if str in _values(hint):
                found.add((struct.__name__, name))
            waiting += [
                leaf
                for leaf in leaves(hint)
                if isinstance(leaf, type) and issubclass(leaf, msgspec.Struct)
            ]
    return found


def leaves(hint: Any) -> set[Any]:
    inner = typing.get_args(hint)
    return set().union(*map(leaves, inner)) if inner else {hint}


def _values(hint: Any) -> set[Any]:
    """Without the keys of mappings, which are strings always."""
    if typing.get_origin(hint) is dict:
        return _values(typing.get_args(hint)[1])
    inner = typing.get_args(hint)
    return set().union(*map(_values, inner)) if inner else {hint}
