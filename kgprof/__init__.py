"""kgprof: compilation diagnostics and profiling for torch.compile workloads."""

from __future__ import annotations

from collections.abc import Callable

from kgprof._version import __version__

__all__ = ["__version__", "step"]

_on_step: Callable[[], None] | None = None  # set while a script is recorded (kgprof.record.steps)


def step() -> None:
    """Say that a step begins here, for ``kgprof profile script.py``; it does nothing anywhere else.

    Where a program calls it, the steps of the report are counted by it, whatever optimizers and compiled functions
    there are. Call it at the top of the loop's body, outside compiled code.
    """
    if _on_step is not None:
        _on_step()
