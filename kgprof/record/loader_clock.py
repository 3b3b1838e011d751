"""How long the program waits in ``next()`` of its DataLoaders, by nothing but a clock: under
torch.profiler a loader takes longer, and not as much longer as the launches beside it."""

import threading
import time
from contextlib import ExitStack
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from kgprof.record.source import Source, not_compiled, replace


class LoaderClock(Source):
    name = "DataLoader clock"

    def __init__(self) -> None:
        self.spent_ns = 0  # up to now, on the main thread: another one loads while it works

    def listen(self, undo: ExitStack) -> None:
        following = _BaseDataLoaderIter.__next__

        def timed(iterator: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return following(iterator)
            began, before_ns = time.perf_counter_ns(), self.spent_ns
            try:
                return following(iterator)
            finally:  # what a loader inside of this one took is a part of it
                self.spent_ns = before_ns + time.perf_counter_ns() - began

        not_compiled(timed)
        replace(_BaseDataLoaderIter, "__next__", timed, undo)
