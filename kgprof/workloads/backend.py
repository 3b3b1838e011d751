"""Other settings for every torch.compile of a program: a backend in Inductor's place, or a cell of
a sweep."""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from kgprof import model as m

INDUCTOR = m.INDUCTOR
# its settings; another backend takes them for its own and refuses
OF_INDUCTOR = ("mode", "options")


@contextmanager
def as_in(cell: m.Cell, device: str) -> Iterator[None]:
    """A program's own calls of ``torch.compile`` compile as the cell has it, and its steps run in
    the cell's precision.

    A stance and a precision are the process's: nothing else may run in it.
    """
    dynamic = {m.Dynamic.FALSE: False, m.Dynamic.TRUE: True, m.Dynamic.AUTO: None}
    settings: dict[str, object] = {}
    if cell.dynamic in dynamic:
        settings["dynamic"] = dynamic[cell.dynamic]
    backend = "" if cell.backend == INDUCTOR else cell.backend
    if cell.mode in m.COMPILED_MODES and not backend:
        settings["mode"] = cell.mode
    if cell.mode == m.EAGER:
        torch.compiler.set_stance("force_eager")
    if cell.precision is m.Precision.TF32:
        torch.set_float32_matmul_precision("high")
    with (
        in_place_of_inductor(backend, settings, chosen_too=cell.mode in m.COMPILED_MODES),
        torch.autocast(device, dtype=torch.bfloat16, enabled=cell.precision is m.Precision.BF16),
    ):
        yield


@contextmanager
def in_place_of_inductor(
    backend: str | Callable[..., object],
    given: Mapping[str, object] | None = None,
    *,
    chosen_too: bool = False,
) -> Iterator[None]:
    """Every call of ``torch.compile`` that names no backend, or Inductor, gets ``backend`` (empty:
    Inductor) and the settings ``given``; with neither nothing changes. ``chosen_too``: also one
    that names another backend.

    It reaches whatever asks ``torch`` for ``compile`` from now on: decorators of a module that is
    imported within, ``nn.Module.compile``, and kgprof's own modes; and whatever asks
    ``torch._dynamo`` for ``optimize``. It does not reach a ``from torch import compile`` made
    before. A backend that the user chose stays.
    """
    if not backend and not given:
        yield
        return
    from torch import _dynamo  # seconds, which a run without a stand-in does not pay for

    compile_ = torch.compile
    optimize = _dynamo.optimize

    @functools.wraps(compile_)
    def compiling(*args: Any, **settings: Any) -> Any:
        chosen = settings.pop("backend", INDUCTOR)
        if chosen != INDUCTOR and not chosen_too:
            return compile_(*args, backend=chosen, **settings)
        # torch takes a mode or options, not both.
        dropped = OF_INDUCTOR if backend or "mode" in (given or {}) or chosen != INDUCTOR else ()
        kept = {name: value for name, value in settings.items() if name not in dropped}
        return compile_(*args, **{**kept, **(given or {})}, backend=backend or INDUCTOR)

    @functools.wraps(optimize)
    def optimizing(asked: Any = INDUCTOR, *args: Any, **settings: Any) -> Any:
        chosen = settings.pop("backend", asked)
        # torch.compile comes through here too, with a backend of its own making that is no name.
        named_inductor = isinstance(chosen, str) and chosen == INDUCTOR
        return optimize(backend if named_inductor and backend else chosen, *args, **settings)

    torch.compile = compiling
    _dynamo.optimize = optimizing
    try:
        yield
    finally:
        torch.compile = compile_
        _dynamo.optimize = optimize
