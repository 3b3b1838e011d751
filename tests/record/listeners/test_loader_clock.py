"""How long ``next()`` of a DataLoader takes, with nothing but a clock."""

import threading
import time
from contextlib import ExitStack

from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from kgprof.record.listeners.loader_clock import LoaderClock

PAUSE_S = 0.02
ITEMS = 3


class Slow(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        time.sleep(PAUSE_S)
        return index

    def __len__(self) -> int:
        return ITEMS


class Nested(Slow):
    """Each of its items is a whole epoch of another loader."""

    def __getitem__(self, index: int) -> int:
        return sum(1 for _ in DataLoader(Slow()))


def spent_s(dataset: Dataset[int], *, on_a_thread: bool = False) -> tuple[float, float]:
    """By the clock, and in all."""
    before = _BaseDataLoaderIter.__next__
    began = time.perf_counter()

    def program() -> None:
        for _ in DataLoader(dataset):
            time.sleep(PAUSE_S)

    with ExitStack() as undo:
        clock = LoaderClock()
        clock.watch(undo)
        if on_a_thread:
            thread = threading.Thread(target=program)
            thread.start()
            thread.join()
        else:
            program()
    assert _BaseDataLoaderIter.__next__ is before
    return clock.spent_ns / 1e9, time.perf_counter() - began


def test_what_next_takes_is_told_from_what_the_program_does_between() -> None:
    spent, whole = spent_s(Slow())

    assert ITEMS * PAUSE_S <= spent <= whole - ITEMS * PAUSE_S


def test_a_loader_inside_of_another_one_counts_once() -> None:
    spent, whole = spent_s(Nested())

    assert ITEMS * ITEMS * PAUSE_S <= spent <= whole - ITEMS * PAUSE_S


def test_another_thread_loads_beside_the_steps() -> None:
    assert spent_s(Slow(), on_a_thread=True)[0] == 0
