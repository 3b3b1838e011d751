"""Source: checkpoints with the keys of a compiled module, which torch.compile puts behind
``_orig_mod.``.

A module that is not compiled finds none of its parameters under such keys, nor a compiled one under
plain ones.
"""

import functools
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from types import FrameType
from typing import Any

import torch

from kgprof import model as m
from kgprof.record.ground.source import Source, aside, not_compiled, replace

KEPT = 20
ENTRIES = 10_000  # of one dict that are looked at
DEPTH = 3  # of mappings in what is saved: {"model": state_dict, "optimizer": ...}


class Checkpoints(Source):
    """Listens to torch.save and Module.load_state_dict; ``found`` has each line once."""

    name = "checkpoints"

    def __init__(self) -> None:
        self.found: list[m.Checkpoint] = []

    def listen(self, undo: ExitStack) -> None:
        save = torch.save
        load = torch.nn.Module.load_state_dict
        # Where a frame fell back, Dynamo compiles what it calls.
        look_at = torch._dynamo.disable(self._look_at)  # type: ignore[no-untyped-call]

        @functools.wraps(save)
        def saved(obj: object, *args: Any, **kwargs: Any) -> None:
            if not torch.compiler.is_compiling():
                look_at(obj, DEPTH, None, sys._getframe(1))
            save(obj, *args, **kwargs)

        @functools.wraps(load)
        def loaded(
            module: torch.nn.Module, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any
        ) -> Any:
            if not torch.compiler.is_compiling():
                look_at(state_dict, 1, module, sys._getframe(1))
            return load(module, state_dict, *args, **kwargs)

        not_compiled(saved, loaded)
        replace(torch, "save", saved, undo)
        replace(torch.nn.Module, "load_state_dict", loaded, undo)

    @aside
    def _look_at(
        self, value: object, depth: int, into: torch.nn.Module | None, frame: FrameType
    ) -> None:
        if keys := list(_keys(value, depth)):
            self._saw(keys, into, frame)

    def _saw(self, keys: list[str], into: torch.nn.Module | None, frame: FrameType) -> None:
        names = () if into is None else (name for name, _ in into.named_parameters())
        one = m.Checkpoint(
            location=m.Location(
                frame.f_code.co_filename,
                frame.f_lineno,
                frame.f_code.co_qualname,
            ),
            compiled_keys=any(m.COMPILED_KEY in key for key in keys),
            into_compiled=None
            if into is None
            else any(m.COMPILED_KEY in f"{name}." for name in names),
        )
        if one not in self.found and len(self.found) < KEPT:
            self.found.append(one)


def _keys(value: object, depth: int) -> Iterator[str]:
    """Under which tensors stand in it."""
    # No other mapping: one that loads what is asked for would load it all.
    for key, inner in islice(value.items(), ENTRIES) if isinstance(value, dict) and depth else ():
        if isinstance(key, str) and isinstance(inner, torch.Tensor):
            yield key
        yield from _keys(inner, depth - 1)
