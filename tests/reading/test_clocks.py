"""Which waits are for a clock of the program's, and which only stand in a function that has one."""

from __future__ import annotations

import ast

import pytest

from kgprof.reading.clocks import waits_for_a_clock

WAIT = "torch.cuda.synchronize()"


def judged(text: str, *callers: str) -> bool:
    """Judge the line with WAIT; ``callers``: words of the lines that lead there, nearest first."""
    tree, lines = ast.parse(text), text.splitlines()
    numbers = [
        next(at for at, line in enumerate(lines, 1) if words in line) for words in (WAIT, *callers)
    ]
    return waits_for_a_clock([(tree, number) for number in numbers])


FOR_A_CLOCK = {
    "before it is read": f"t0 = 0\n{WAIT}\nt0 = time.perf_counter()\nwork()\n",
    "in one line with others": f"t = time.time(); f(x); {WAIT}; n.append(time.time() - t)\n",
    "a condition of its own": f"if on_gpu:\n  {WAIT}\nt0 = perf_counter()\n",
    "with the clock in a branch": f"if i == 20: {WAIT}; t0 = time.time()\nstep()\n",
    "an event's time": f"end.record()\n{WAIT}\nms = start.elapsed_time(end)\n",
    "last in a timed loop": f"for x in y:\n  f(x)\n  {WAIT}\nprint(time.time() - t)\n",
    "before the loop's next time": f"for x in y:\n  t = time.time()\n  f(x)\n  {WAIT}\n",
    "with the memory reset between": f"{WAIT}\ntorch.cuda.reset_peak_memory_stats()\nt0 = time()\n",
    "in a context manager": f"class T:\n  def start(self):\n    {WAIT}\n    self.t = time.time()\n",
}


@pytest.mark.parametrize("text", FOR_A_CLOCK.values(), ids=FOR_A_CLOCK)
def test_a_wait_beside_a_clock_is_for_it(text: str) -> None:
    assert judged(text)


FOR_SOMETHING_ELSE = {
    "no clock": f"def step(x):\n  y = f(x)\n  {WAIT}\n  return y\n",
    "a clock far above": f"t0 = time.time()\ny = f(x)\n{WAIT}\nsave(y)\nt1 = time.time()\n",
    "a clock in another function": f"y = f(x)\n{WAIT}\ndef later():\n  return time.time()\n",
    "amid a timed loop": f"t = time()\nfor x in y:\n  f(x)\n  {WAIT}\n  g(x)\nu = time()\n",
    "work between": f"{WAIT}\ny = f(reset_peak_memory_stats())\nt0 = time.time()\n",
    "a sleep": f"y = f(x)\n{WAIT}\ntime.sleep(1)\n",
    "an event without a time": f"done.record()\n{WAIT}\nbuffer.copy_(y)\n",
    "a clock around the caller": f"def f():\n  {WAIT}\n  return 1\nt0 = time.time()\nf()\n",
}


@pytest.mark.parametrize("text", FOR_SOMETHING_ELSE.values(), ids=FOR_SOMETHING_ELSE)
def test_a_wait_that_stands_elsewhere_is_not(text: str) -> None:
    assert not judged(text)


HELPER = f"def sync():\n  if torch.cuda.is_available():\n    {WAIT}\n"


def test_a_function_that_only_waits_belongs_to_the_line_that_calls_it() -> None:
    assert judged(f"{HELPER}sync()  # here\nt0 = time.time()\n", "sync()  # here")
    assert not judged(f"{HELPER}sync()  # here\nwork()\n", "sync()  # here")


def test_a_step_that_waits_is_not_its_callers_clock() -> None:
    step = f"def step(x):\n  y = f(x)\n  {WAIT}\n  return y\n"

    assert not judged(
        f"{step}t0 = time.time()\nstep(x)  # here\nt1 = time.time()\n", "step(x)  # here"
    )


def test_a_line_that_is_not_in_the_text_is_no_clock() -> None:
    assert not waits_for_a_clock([(ast.parse("x = 1\n"), 9)])
