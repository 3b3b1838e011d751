"""Under which name the program knows a module: ``layers.8`` of its model, ``heads[3]`` of a list of
modules.

A module does not know what holds it, so all modules of the process are looked through once, and
again when one comes that was not there then. A scan of a large process takes about 0.1 s, and it
happens where something is compiled.
"""

import gc
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch

SCANS = 8  # at most: a program may make modules in every step
LOOKED_THROUGH = 1000  # entries of a list or dictionary

# torch.compile(module) is a module that holds the one it was given under this name.
_COMPILED = "_orig_mod"


class ModulePaths:
    """Looks modules up by identity: a class of the program's may define ``__eq__`` and no
    ``__hash__``."""

    def __init__(self) -> None:
        self._holders: dict[int, tuple[weakref.ref[torch.nn.Module], str]] = {}
        self._met: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._scans = 0

    def path(self, module: torch.nn.Module, names: Mapping[str, Any]) -> str:
        """``names``: the globals of the code that calls it. Empty where the program has no name for
        it."""
        self._meet(module)
        parts: list[str] = []
        root = module
        while (holder := self._holder(root)) is not None and len(parts) < LOOKED_THROUGH:
            root, name = holder
            if name != _COMPILED:
                parts.insert(0, name)
        # "8" alone says nothing: of a bare ModuleList or Sequential the variable's name belongs to
        # it.
        if not parts or parts[0].isdecimal():
            variable = name_of(root, names)
            if parts and not variable:
                variable = type(root).__name__
            parts = [variable, *parts] if variable else parts
        return ".".join(parts)

    def _meet(self, module: torch.nn.Module) -> None:
        """Look through all modules unless this one was there the last time."""
        known = self._met.get(id(module))
        if self._scans >= SCANS or (known is not None and known() is module):
            return
        self._scans += 1
        self._met.clear()
        self._holders.clear()
        for found in gc.get_objects():
            # Its type is asked: isinstance would run the properties of a proxy.
            if issubclass(type(found), torch.nn.Module):
                self._add(found)

    def _add(self, holder: torch.nn.Module) -> None:
        self._met[id(holder)] = weakref.ref(holder)
        # One that is being made, or whose class forgot super().__init__(), has none.
        children = holder.__dict__.get("_modules") or {}
        for name, child in children.items():
            if child is not None:
                self._holders.setdefault(id(child), (weakref.ref(holder), name))

    def _holder(self, module: torch.nn.Module) -> tuple[torch.nn.Module, str] | None:
        """The module that holds this one, and under which name."""
        reference, name = self._holders.get(id(module), (None, ""))
        holder = reference() if reference is not None else None
        if holder is None or holder.__dict__.get("_modules", {}).get(name) is not module:
            return None
        return holder, name


def name_of(module: torch.nn.Module, names: Mapping[str, Any]) -> str:
    """``model``, ``heads[3]``; empty where no variable of a file holds it."""
    for name, value in list(names.items()):
        if _is(value, module):
            return name
        for key, entry in _entries(value):
            if _is(entry, module):
                return f"{name}[{key!r}]"
    return ""


def _is(value: object, module: torch.nn.Module) -> bool:
    if value is module:
        return True
    compiled = issubclass(type(value), torch.nn.Module)
    return compiled and vars(value).get("_modules", {}).get(_COMPILED) is module


def _entries(value: object) -> Iterator[tuple[object, object]]:
    if type(value) in (list, tuple) and len(value) <= LOOKED_THROUGH:  # type: ignore[arg-type]
        yield from enumerate(value)  # type: ignore[arg-type]
    if type(value) is dict and len(value) <= LOOKED_THROUGH:
        yield from ((key, entry) for key, entry in value.items() if isinstance(key, str | int))
