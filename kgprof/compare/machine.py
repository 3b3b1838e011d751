"""Was the machine itself slower during the rounds of one side? What drifts between two recordings
that were made one after the other (another neighbour on the machine) is in neither one's variance,
so no interval of their times shows it.
"""

from kgprof import model as m
from kgprof.judge import welch
from kgprof.wording import clause, slower

HOST = "host"
DEVICE = "device"
_NAMES = {HOST: "CPU check loop", DEVICE: "check kernel"}
MachineDrifts = tuple[m.MachineDrift, ...] | m.Skipped
ONE_ROUND = m.Skipped("an interval needs at least two rounds per side")


@m.skippable
def machine_drift(base: m.RunReport, head: m.RunReport) -> MachineDrifts:
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
            loop,
            each.first,
            each.second,
            each.ratio,
            each.low,
            each.high,
        )
        for loop, each in loops.items()
        if each is not None
    )
    return drift or ONE_ROUND


def _speed(run: m.RunReport) -> m.MachineSpeed | m.Skipped:
    if isinstance(run.rounds, m.Rounds):
        return run.rounds.machine
    return ONE_ROUND


@m.otherwise("")
def drift_words(drift: MachineDrifts, least: float) -> str:
    """ "the machine itself was 9.8 % slower in head's rounds (CPU check loop)": the loops that
    differ by more than ``least``, so that a time of these rounds says nothing about the program."""
    each = [
        f"{slower(loop.ratio)} in head's rounds ({_NAMES[loop.loop]})"
        for loop in m.known(drift)
        if max(loop.ratio, 1 / loop.ratio) > 1 + least
    ]
    return clause("the machine itself was ", " and ".join(each))
