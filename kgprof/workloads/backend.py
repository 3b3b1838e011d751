"""Another backend in Inductor's place: capture is the same, and no code is generated."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

INDUCTOR = "inductor"
OF_INDUCTOR = ("mode", "options")  # its settings; another backend takes them for its own and refuses


@contextmanager
def in_place_of_inductor(backend: str | Callable[..., object]) -> Iterator[None]:
    """Every call of ``torch.compile`` that names no backend, or Inductor, gets ``backend``; empty changes nothing.

    It reaches whatever asks ``torch`` for ``compile`` from now on: decorators of a module that is imported within,
    ``nn.Module.compile``, and kgprof's own modes; and whatever asks ``torch._dynamo`` for ``optimize``. It does not
    reach a ``from torch import compile`` made before. A backend that the user chose stays.
    """
    if not backend:
        yield
        return
    from torch import _dynamo  # seconds, which a run without a stand-in does not pay for

    compile_, optimize = torch.compile, _dynamo.optimize

    @functools.wraps(compile_)
    def compiling(*args: Any, **settings: Any) -> Any:
        if settings.get("backend", INDUCTOR) != INDUCTOR:
            return compile_(*args, **settings)
        kept = {name: value for name, value in settings.items() if name not in OF_INDUCTOR}
        return compile_(*args, **{**kept, "backend": backend})

    @functools.wraps(optimize)
    def optimizing(asked: Any = INDUCTOR, *args: Any, **settings: Any) -> Any:
        chosen = settings.pop("backend", asked)
        # torch.compile comes through here too, with a backend of its own making that is no name.
        named_inductor = isinstance(chosen, str) and chosen == INDUCTOR
        return optimize(backend if named_inductor else chosen, *args, **settings)

    torch.compile, _dynamo.optimize = compiling, optimizing
    try:
        yield
    finally:
        torch.compile, _dynamo.optimize = compile_, optimize
