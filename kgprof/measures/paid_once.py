"""What the steps of a script in which torch compiles or records take beyond the usual.

    step   0        1     2     3        4     5 ...
           compiles ▁     ▁     records  ▁     ▁       usual: the median of the others
           └ extra ┘            └ extra ┘

All steps are those of one run, under kgprof's listeners and on cold caches: MEMORY has their times.
"""

from collections.abc import Iterable
from statistics import median

from kgprof import model as m
from kgprof.reading.evidence import RunEvidence

# Functions of torch._inductor.cudagraph_trees that log what they do, in torch 2.11 to 2.13.
RECORDS = "record_function"
RUNS_EAGERLY = "run_eager"
WARM_UP = "Running warmup"  # of what the second logs: it goes before a recording


class PaidOnce(m.Model, kw_only=False):
    """Times of all steps, and which of them are no usual ones."""

    step_us: tuple[float, ...]
    steady_from: int
    usual: dict[int, float]  # microseconds of those that neither compile nor record
    profiled: range  # in which torch.profiler starts, runs and is written
    compiling: frozenset[int]
    recording: frozenset[int]  # CUDA graphs, and nothing was compiled

    @property
    def usual_us(self) -> float:
        return median(self.usual.values())

    @property
    def unprofiled(self) -> tuple[float, ...]:
        """Of the usual ones those that torch.profiler made no longer."""
        return tuple(us for step, us in self.usual.items() if step not in self.profiled)

    def extra_us(self, steps: Iterable[int]) -> float:
        """Add up what these steps take beyond a usual one."""
        known = (self.step_us[step] for step in steps if 0 <= step < len(self.step_us))
        usual_us = self.usual_us
        return sum(max(0.0, us - usual_us) for us in known)


@m.skippable
def paid_once(run: RunEvidence) -> PaidOnce | m.Skipped:
    """Skipped where there are no steps of one run, or none of them is a usual one."""
    record = run.record
    trace = run.compiler
    if record.script is None or record.script.is_one_window:
        return m.Skipped(reason="only the steps of a script are all of its work")
    memory = m.known(record.memory)
    if trace is None or isinstance(record.compile, m.Skipped):
        return m.Skipped(reason="COMPILE did not come to its end")
    compiling = frozenset(record.compile.compiled_in)
    calls = frozenset(line.call for line in trace.all.logs if is_recording(line))
    recording = calls - compiling
    step_us = memory.step_us
    steady_from = memory.steady_from
    usual = {
        step: us
        for step, us in enumerate(step_us)
        if step >= steady_from and step not in compiling and step not in recording
    }
    if not usual:
        return m.Skipped(reason="every step compiled or recorded something")
    profiled = range(0)
    if isinstance(record.trace, m.TracePass):
        starts = len(record.compile.call_us)
        profiled = range(starts, starts + len(record.trace.step_us) + 2)
    return PaidOnce(step_us, steady_from, usual, profiled, compiling, recording)


def is_recording(line: m.LogLine) -> bool:
    """Tell a recording, and the run of a size without a graph that goes before it."""
    return line.function == RECORDS or (line.function == RUNS_EAGERLY and WARM_UP in line.text)
