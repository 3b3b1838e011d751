"""Was the machine itself slower during the rounds of one side? What drifts between two recordings
that were made one after the other (another neighbour on the machine) is in neither one's variance,
so no interval of their times shows it.
"""

from collections.abc import Sequence

from kgprof import model as m
from kgprof.judge import welch

HOST = "host"
DEVICE = "device"
ONE_ROUND = m.Skipped("an interval needs at least two rounds per side")


@m.skippable
def machine_drift(base: m.RunReport, head: m.RunReport) -> tuple[m.MachineDrift, ...] | m.Skipped:
    """How the two loops that check the machine's speed differ. Skipped with the reason of the side
    that has none."""
    before = m.known(_speed(base))
    after = m.known(_speed(head))
    loops = {
        HOST: welch(before.host_us, after.host_us),
        DEVICE: welch(before.device_us, after.device_us),
    }
    drift = tuple(
        m.MachineDrift(
            loop=loop,
            base=each.first,
            head=each.second,
            ratio=each.ratio,
            low=each.low,
            high=each.high,
        )
        for loop, each in loops.items()
        if each is not None
    )
    return drift or ONE_ROUND


def _speed(run: m.RunReport) -> m.MachineSpeed | m.Skipped:
    return run.rounds.machine if isinstance(run.rounds, m.Rounds) else ONE_ROUND


def moved(drift: Sequence[m.MachineDrift], budget: float) -> tuple[m.MachineDrift, ...]:
    """The loops that differ by more than a budget: a time of these rounds says nothing about the
    program."""
    return tuple(loop for loop in drift if max(loop.ratio, 1 / loop.ratio) > 1 + budget)


def drift_words(drift: Sequence[m.MachineDrift]) -> str:
    """ "the machine itself was 9.8 % slower in head's rounds (CPU check loop)"."""
    each = [
        f"{100 * abs(loop.ratio - 1):.1f} % {'slower' if loop.ratio > 1 else 'faster'} in head's "
        f"rounds ({'CPU check loop' if loop.loop == HOST else 'check kernel'})"
        for loop in drift
    ]
    return f"the machine itself was {' and '.join(each)}"
