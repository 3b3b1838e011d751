"""How long the program waits in ``next()`` of its DataLoaders, by nothing but a clock: under
torch.profiler a loader takes longer, and not as much longer as the launches beside it."""

import threading
import time
from contextlib import ExitStack
from typing import Any

from torch.utils.data import dataloader

from kgprof.record.ground.source import not_compiled, replace


class LoaderClock:
    """``spent_ns``: so far, on the main thread: another one loads while that one works.
    ``workers``: the most worker processes that a loader had."""

    def __init__(self) -> None:
        self.spent_ns = 0
        self.workers = 0

    def watch(self, undo: ExitStack) -> None:
        iterator_class = dataloader._BaseDataLoaderIter
        following = iterator_class.__next__

        def timed(iterator: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return following(iterator)
            self.workers = max(self.workers, iterator._num_workers)
            began_ns = time.perf_counter_ns() - self.spent_ns
            try:
                return following(iterator)
            finally:  # what a loader inside of this one took is a part of it
                self.spent_ns = time.perf_counter_ns() - began_ns

        not_compiled(timed)
        replace(iterator_class, "__next__", timed, undo)
