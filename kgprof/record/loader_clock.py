"""How long the program waits in ``next()`` of its DataLoaders, by nothing but a clock: under
torch.profiler a loader takes longer, and not as much longer as the launches beside it."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch.utils.data import dataloader

from kgprof.record.source import not_compiled, replace


def watch_loaders(undo: ExitStack) -> Callable[[], int]:
    """Return what tells the nanoseconds so far, on the main thread: another one loads while that
    one works."""
    iterator_class = dataloader._BaseDataLoaderIter
    following = iterator_class.__next__
    spent_ns = 0

    def timed(iterator: Any) -> Any:
        nonlocal spent_ns
        if threading.current_thread() is not threading.main_thread():
            return following(iterator)
        before_ns = spent_ns
        began_ns = time.perf_counter_ns()
        try:
            return following(iterator)
        finally:  # what a loader inside of this one took is a part of it
            spent_ns = before_ns + time.perf_counter_ns() - began_ns

    not_compiled(timed)
    replace(iterator_class, "__next__", timed, undo)
    return lambda: spent_ns
