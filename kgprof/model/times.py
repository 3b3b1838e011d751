"""How long a run took, how sure that is, and what it is worth."""

from enum import StrEnum

from kgprof.model.passes import MachineSpeed, PassName, RunKey
from kgprof.model.structs import Amount, Count, Location, Model, Skipped, Tagged, fit
from kgprof.wording import figure


class Spread(Tagged, kw_only=False):
    """A measured quantity: median and spread of ``samples`` values from one pass."""

    median: float
    p10: float
    p90: float
    minimum: float
    maximum: float
    samples: Count
    unit: str  # "us", "s", "ms/token", "tokens/s"
    measured_in: PassName


Time = Spread | Skipped


class LongSteps(Model, kw_only=False):
    """The fewest steps that half of the time of all steps lies in, where the median step times
    their number is less than half of it."""

    steps: Count
    of: Count
    longest_us: Amount

    @property
    def words(self) -> str:
        """ "half of the time of the steps lies in 26 of 620 of them, up to 298 ms"."""
        which = f"{self.steps:,} of {self.of:,} of them"
        longest = f"{figure(self.longest_us / 1e3)} ms"
        return f"half of the time of the steps lies in {which}, up to {longest}"


class TrainingPhase(StrEnum):
    DATA = "data"  # the DataLoader, and copies to the GPU
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    OTHER = "other"  # Python between the operators


class PhaseTime(Model, kw_only=False):
    """Microseconds a step of TRACE, so under the profiler: the CPU's are longer than without it."""

    phase: TrainingPhase
    host_us: float  # wall time of the step; all phases add up to it
    # of the kernels and copies that it launched; forward's has those that no span launched
    device_us: float | Skipped


class TrainingPhases(Tagged, tag="training_phases"):
    steps: int  # that were traced
    parts: tuple[PhaseTime, ...]  # in the order of TrainingPhase
    backward_passes: int = 1  # before each optimizer step; more are gradient accumulation


class TakenInTurn(Model, kw_only=False):
    """A round that was timed slice by slice beside another process: its slice k is the same work at
    the same time as the other one's slice k."""

    # the median step of each slice; of a long evaluation of every so many
    step_us: tuple[float, ...]
    evaluation_s: tuple[float, ...]  # each; empty for a workload that has no whole evaluation


class Rounds(Tagged):
    """TIMING in several fresh processes: of each that has one its median, in the order of the
    rounds.

    The samples of one process hang together, these do not: intervals are taken over them. The first
    round is the one of RunReport.step; what it compiled still counts its runs for COMPILE, 0.1 to
    0.2 us a graph, and that of the others does not. ``lost`` says which have no figure, and why.
    """

    asked: int  # --rounds
    numbers: tuple[int, ...]  # of the rounds that were timed, from 1
    step_us: tuple[float, ...]  # one each
    evaluation_s: tuple[float, ...]  # one each; empty for a workload that has no whole evaluation
    warm_first_call_s: tuple[float, ...]  # of the rounds from 2 on: the first one's cache was cold
    step: Spread | Skipped  # over ``step_us``
    evaluation_time: Spread | Skipped  # over ``evaluation_s``
    # ms; of ``evaluation_s`` over the units of round 1's, or of ``step_us`` over a step's
    per_unit: Spread | Skipped
    warm_first_call: Spread | Skipped  # over ``warm_first_call_s``
    graphs_from_cache: tuple[int | Skipped, ...] = ()  # as warm_first_call_s
    graphs_compiled: tuple[int | Skipped, ...] = ()
    machine: MachineSpeed | Skipped = Skipped(
        "TIMING did not check the machine's speed"
    )  # a round's median each
    lost: tuple[str, ...] = ()  # "round 3 was killed during TIMING: SIGKILL"
    in_turn: tuple[TakenInTurn | None, ...] = ()  # one each; None: it was timed alone
    # of further processes on empty caches, each made beside one of another side
    cold_first_call_s: tuple[float | Skipped, ...] = ()


class ProcessSteps(Model):
    """The steps of one process in their order, ``every`` consecutive ones to an entry of the
    columns."""

    number: int  # of the round, from 1
    time: Spread  # us, over all of them
    evaluations: tuple[int, ...]  # steps of each
    every: int
    low_us: tuple[float, ...]
    middle_us: tuple[float, ...]  # the median
    high_us: tuple[float, ...]

    def __post_init__(self) -> None:
        fit(self.low_us, self.middle_us, self.high_us)


class StepSeries(Tagged):
    """How the steps of TIMING lie: over time, process by process, and how many are how long."""

    processes: tuple[ProcessSteps, ...]
    time: Spread  # us, over the steps of all processes
    bins_from_us: float
    bin_us: Amount
    counts: tuple[int, ...]  # of the steps of all processes, by bin
    above: int  # longer than the last bin


class Judged(StrEnum):
    """What two times come to, of the one against the other."""

    FASTER = "faster"
    SLOWER = "slower"
    LEVEL = "level"
    UNDECIDED = "not decided"


class Speedup(Tagged, kw_only=False):
    """``baseline's median / this run's median`` of the quantity ``basis`` names."""

    ratio: float
    # Several processes: a 95 % interval. One each: of evaluations the extremes, of steps p10 over
    # p90 and p90 over p10.
    low: float | Skipped
    high: float | Skipped  # both skipped where a side was measured once
    basis: str  # "whole evaluation" or "step"
    verdict: Judged = Judged.UNDECIDED

    @property
    def ranks(self) -> bool:
        """Whether the ratio says which of the two is faster; no colour and no order is made of
        another one."""
        return self.verdict in (Judged.FASTER, Judged.SLOWER)


class ObserverCost(Model, kw_only=False):
    """A pass's own step time over TIMING's: what watching cost."""

    observer: PassName
    ratio: float | Skipped
    samples: int


class BreakEven(Tagged, kw_only=False):
    """From when on compiling has paid for itself."""

    steps: float
    units: float | Skipped  # of work, where the workload counts them
    after_s: float  # so many compiled steps (or units) take


class Payoff(StrEnum):
    """What compiling a run comes to against its eager twin."""

    PAYS = "pays"
    LEVEL = "level"
    NEVER = "never"
    UNDECIDED = "not decided"  # both were timed, and nobody can tell which is faster
    NOT_OBSERVED = "not observed"


class Economics(Tagged):
    """One compiled run against the same strategy in mode eager."""

    run: RunKey
    eager: RunKey
    cold_s: float | Skipped  # all of COMPILE's compilations, as torch timed them, caches cold
    # what the times are of: "step", or the unit of work where both runs finished their whole job
    per: str
    compiled_time: Spread | Skipped  # us a step, or ms a unit
    eager_time: Spread | Skipped
    rounds: int  # over which the two spreads are; 1: over the samples of one process each
    saved_us: float | Skipped  # by each step or unit; negative: it takes longer
    cold: BreakEven | Skipped
    verdict: Payoff
    text: str  # the same in a sentence, with the figures

    @property
    def is_decided(self) -> bool:
        return self.verdict in (Payoff.PAYS, Payoff.LEVEL, Payoff.NEVER)


class ReadVerdict(StrEnum):
    KEEP = "keep the read"
    REMOVE = "remove it"
    INCONCLUSIVE = "inconclusive"
    NOT_OBSERVED = "not observed"


class TradeOff(Model):
    """Work behind a read of its predicate (``guarded``) against the same work done in every step
    (``always``)."""

    guarded: RunKey
    always: RunKey
    location: Location | None  # the line that reads
    syncs_per_step: float | Skipped  # that the guarded one has more
    sync_us: float | Skipped  # what they cost in a step: the time the host waited
    # what the guarded one saves, before that cost; negative: it takes more
    saved_us: float | Skipped
    # what ``saved_us`` is of; "evaluation": a step of the two is not the same work
    saved_per: str = "step"
    net: Spread | Skipped  # the quantity that decides, of the guarded run
    net_always: Spread | Skipped  # and of the other
    verdict: ReadVerdict
    text: str  # the same in a sentence, with the figures
