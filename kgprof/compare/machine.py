"""Was the machine itself slower? What two recordings' times say of the program when that is taken into account.

By how much a step follows the loop of the host can be seen in the rounds (compare_intervals.adjusted). The loop of the
device moves little and then all at once, when a GPU throttles or a CPU's cores are taken, so that no slope can be seen.
There the interval is widened, to what it would be if the step had slowed down as much as the loop can have: what is
outside of the budget then is the program's under either reading. So it is with the host's loop where it shows no slope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kgprof import model as m
from kgprof.compare.intervals import Interval, Round, interval

HOST, DEVICE = "host", "device"
LEAST_DRIFT = 0.005  # below it a drift is nothing to a budget, however sure
# A loop that may have taken so many times as long, or so many times less, tells a machine that was not steady, also
# where chance could do it: one busy program on one of two cores made the device's loop take 0.7 to 49 times as long,
# and an unchanged evaluation 51 to 153 times, because OpenMP's threads wait for each other.
UNSTEADY = 1.5
NO_ROUNDS = m.Skipped(reason="with fewer than two rounds a side there is no interval")


def machine_drift(base: m.RunReport, head: m.RunReport) -> tuple[m.MachineDrift, ...] | m.Skipped:
    """Of both loops. Skipped with the reason of the side that has none."""
    before, after = _speed(base), _speed(head)
    if isinstance(before, m.Skipped):
        return before
    if isinstance(after, m.Skipped):
        return after
    loops = ((HOST, before.host_us, after.host_us), (DEVICE, before.device_us, after.device_us))
    found = [(loop, interval(base_us, head_us)) for loop, base_us, head_us in loops]
    return tuple(drift_of(loop, within) for loop, within in found if within is not None) or NO_ROUNDS


def rounds_of(run: m.RunReport, times: Sequence[float]) -> tuple[Round, ...]:
    """``times``, one a round, each with the host's loop of its round; empty where that is not known of each."""
    if not isinstance(run.rounds, m.Rounds) or isinstance(run.rounds.machine, m.Skipped):
        return ()
    loops, errors = run.rounds.machine.host_us, run.rounds.host_error
    if not len(times) == len(loops) == len(errors):
        return ()
    each = zip(times, loops, errors, strict=True)
    return tuple(Round(time=time, machine=us, error=error) for time, us, error in each)


def widened(measured: Interval, drift: Sequence[m.MachineDrift]) -> Interval:
    """To what it would be if the loops that drifted had not, by as much as they may have; of a time that waits for the
    host by a share that is known, they have the rest."""
    ends = [1.0, *(end for one in told(drift) for end in (one.low, one.high))]
    rest = 1 - measured.slope
    return replace(measured, low=measured.low / max(ends) ** rest, high=measured.high / min(ends) ** rest)


def drift_words(drift: Sequence[m.MachineDrift]) -> str:
    """ "the machine itself was 9.8 % slower in head's rounds (host loop, 95 % +6.3 % to +13.4 %)"; empty for none."""
    said = [
        f"{100 * abs(one.ratio - 1):.1f} % {'slower' if one.ratio > 1 else 'faster'} in head's rounds "
        f"({one.loop} loop, 95 % {100 * (one.low - 1):+.1f} % to {100 * (one.high - 1):+.1f} %)"
        if one.beyond_chance
        else f"not steady ({one.loop} loop, 95 % {one.low:.2g} to {one.high:.2g} times as long in head's rounds)"
        for one in told(drift)
    ]
    return f"the machine itself was {' and '.join(said)}" if said else ""


def told(drift: Sequence[m.MachineDrift]) -> tuple[m.MachineDrift, ...]:
    """Those that are neither chance nor too little to matter, and those of which nothing is known."""
    return tuple(one for one in drift if _moved(one) or max(one.high, 1 / one.low) > UNSTEADY)


def _moved(one: m.MachineDrift) -> bool:
    return one.beyond_chance and abs(one.ratio - 1) >= LEAST_DRIFT


def _speed(run: m.RunReport) -> m.MachineSpeed | m.Skipped:
    return run.rounds.machine if isinstance(run.rounds, m.Rounds) else NO_ROUNDS


def drift_of(loop: str, found: Interval) -> m.MachineDrift:
    return m.MachineDrift(
        loop=loop, base=found.base, head=found.head, ratio=found.ratio, low=found.low, high=found.high
    )
