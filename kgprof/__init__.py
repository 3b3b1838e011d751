"""kgprof: compilation diagnostics and profiling for torch.compile workloads."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kgprof._version import __version__

if TYPE_CHECKING:
    from kgprof.watching.watch import watch as watch

__all__ = ["__version__", "step", "watch"]

_on_step: Callable[[], None] | None = None  # set while a script is recorded or a block is watched
# a child of `kgprof profile` or `check-graphs`, which measures this process itself
_profiled = False


def step() -> None:
    """Say that a step begins here, for ``kgprof profile script.py`` and ``kgprof.watch``; elsewhere
    it does nothing.

    Where a program calls it, the steps of the report are counted by it, whatever optimizers and
    compiled functions there are. Call it at the top of the loop's body, outside compiled code.
    """
    if _on_step is not None:
        _on_step()


def __getattr__(name: str) -> Any:
    """``watch`` brings torch along, which ``import kgprof`` does not."""
    if name == "watch":
        from kgprof.watching.watch import watch

        return watch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
