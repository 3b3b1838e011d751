"""What other processes take of the cores, from a built /proc."""

import os
from pathlib import Path

import pytest

from kgprof.model import Load, Skipped
from kgprof.record.ground import load
from kgprof.record.ground.load import Moment, between, busy_ticks, load_from_now, wait_for_idle

# user nice system idle iowait irq softirq steal guest guest_nice
STAT = """cpu  999 0 0 0 0 0 0 0 0 0
cpu0 100 10 20 1000 50 1 2 3 40 0
cpu1 7 0 0 1000 0 0 0 0 0 0
cpu10 5 0 0 0 0 0 0 0 0 0
intr 1 2 3
"""


def test_a_core_is_busy_where_it_neither_idles_nor_waits_and_guests_count_once() -> None:
    assert busy_ticks(STAT, {0}) == 100 + 10 + 20 + 1 + 2 + 3
    assert busy_ticks(STAT, {0, 1}) == 136 + 7
    assert busy_ticks(STAT, {2}) == 0


def test_what_is_not_ours_was_others() -> None:
    first = Moment(at_s=10.0, busy=1000, own=100, cores=2)

    found = between(first, Moment(at_s=12.0, busy=1390, own=110, cores=2), 100)

    assert found == Load(seconds=2.0, cores=2, others_s=3.8, own_s=0.1)
    assert (found.is_high, found.words) == (True, "other processes used 1.9 of 2 cores")


@pytest.mark.parametrize(("others_s", "is_high"), [(0.99, False), (1.0, True)])
def test_a_quarter_of_the_cores_is_a_busy_machine(others_s: float, is_high: bool) -> None:
    assert Load(seconds=1.0, cores=4, others_s=others_s).is_high is is_high


def test_ticks_of_ours_that_came_late_are_no_negative_load() -> None:
    first = Moment(at_s=10.0, busy=1000, own=100, cores=2)

    found = between(first, Moment(at_s=11.0, busy=1010, own=115, cores=2), 100)

    assert isinstance(found, Load)
    assert found.others_s == 0.0


def test_a_time_that_is_too_short_for_the_kernels_clock_says_nothing() -> None:
    first = Moment(at_s=10.0, busy=1000, own=100, cores=2)

    found = between(first, Moment(at_s=10.02, busy=1004, own=100, cores=2), 100)

    assert found == Skipped(reason="20 ms are too short for the kernel's clock")


def test_processes_of_our_group_are_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: this process, a worker of its own whose child has ended, and a stranger
    core = min(os.sched_getaffinity(0))
    stat = f"cpu{core} {{}} 0 0 0 0 0 0 0 0 0\n"
    group, others = os.getpgrp(), os.getpgrp() + 1
    moments = iter((10.0, 11.0))
    monkeypatch.setattr(load, "perf_counter", lambda: next(moments))

    def stands(busy: int, own: int, worker: int) -> None:
        (tmp_path / "stat").write_text(stat.format(busy))
        processes = ((1, "python", group, own, 0), (2, "a (b) c", group, worker, 10))
        for pid, name, its, ticks, of_children in (*processes, (3, "other", others, 900, 0)):
            folder = tmp_path / str(pid)
            folder.mkdir(exist_ok=True)
            times = f"{ticks} 0 {of_children} 0"
            (folder / "stat").write_text(f"{pid} ({name}) R 1 {its} 1 0 -1 0 0 0 0 0 {times} 20")

    stands(1000, 50, 5)
    watched = load_from_now(tmp_path)
    stands(1000 + 60, 50 + 10, 5 + 20)

    found = watched()

    assert isinstance(found, Load)
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    assert (found.own_s * ticks_per_s, found.others_s * ticks_per_s) == pytest.approx((30, 30))


def test_without_proc_the_reason_is_told(tmp_path: Path) -> None:
    found = load_from_now(tmp_path)()

    assert isinstance(found, Skipped)
    assert "No such file" in found.reason


BUSY, IDLE = (Load(seconds=0.5, cores=2, others_s=taken) for taken in (0.9, 0.1))


def test_who_waits_measures_as_soon_as_the_machine_is_idle() -> None:
    looks, told, slept = iter((BUSY, BUSY, IDLE)), list[str](), list[float]()

    def tell(seen: Load, passed_s: float) -> None:
        told.append(seen.words)

    found = wait_for_idle(60.0, tell, lambda: next(looks), slept.append)

    assert found == IDLE
    assert told == [BUSY.words] * 2
    assert slept == [load.BETWEEN_S] * 2


def test_nobody_waits_who_did_not_ask_for_it() -> None:
    looks = iter((BUSY,))

    found = wait_for_idle(0.0, lambda seen, passed: pytest.fail("told"), lambda: next(looks))

    assert found == BUSY


def test_a_wait_ends_though_the_machine_stays_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter((0.0, 5.0, 8.0))
    monkeypatch.setattr(load.time, "monotonic", lambda: next(moments))
    slept = list[float]()

    found = wait_for_idle(8.0, lambda seen, passed: None, lambda: BUSY, slept.append)

    assert found == BUSY
    assert slept == [5.0, 3.0]


def test_a_machine_of_which_nothing_is_known_is_not_waited_for() -> None:
    unknown = Skipped(reason="only Linux says how busy each core is")

    assert wait_for_idle(60.0, lambda seen, passed: None, lambda: unknown) == unknown
