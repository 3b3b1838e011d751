"""Python code of the program's own that the GPU waits for, by function, at its longest line."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kgprof import limits
from kgprof import model as m
from kgprof.collectors.event import Event, finding, of_each, on_gpu
from kgprof.measures import kernels
from kgprof.measures.traced_steps import Extent, traced_steps
from kgprof.reading.evidence import RunEvidence
from kgprof.wording import figure

WORTH_SHARE = 0.2  # of the step

HOST_CODE = m.Rule(
    id="KGP612",
    name="gpu-waits-for-python",
    level=m.Level.WARNING,
    summary="The GPU is idle while the step runs Python code of the program.",
    why=(
        "Between the operators of a step its own Python code runs, and the GPU has nothing to do "
        "when the queue of launches is empty. A thread samples the main thread's stack over the "
        "traced steps of a script; what torch does, lines that wait for the GPU, and lines that "
        "call torch's operators (whose time may be the operators') are left out. A function is "
        "named if it takes "
        f"{100 * WORTH_SHARE:.0f} % of the traced step and the GPU was idle in Python for as long, "
        "without the time of the other functions, and if it is idle for that much of a step "
        "without the profiler, too."
    ),
    example="An augmentation in pure Python that prepares each batch inside the training loop.",
    remedy=(
        "Take it out of the step: prepare batches in worker processes of a DataLoader, run it in a "
        "process beside the GPU's work, call it less often, or write it with tensor operators."
    ),
    topic=m.Topic.TIME,
    seen_in=(
        (m.Witness.CUDA, m.Witness.TRACE, m.Witness.STEPS, m.Witness.HOST_LINES, m.Witness.READS),
    ),
    can_cost=(m.CostKind.HOST,),
    judged_from_times=True,
    relieves=(m.LimitKind.HOST,),
)
RULES = (HOST_CODE,)


class HostCode(Event):
    """One function of one run that the GPU waits for."""

    function: str
    function_us: float  # per traced step
    # per traced step: the GPU's, for Python between operators, of which other functions take none
    waits_us: float
    traced_us: float  # of a step
    idle_us: float  # the GPU's per step, by TIMING if there is one
    extent: Extent


@on_gpu
@m.otherwise(())
def collect(run: RunEvidence) -> Sequence[HostCode]:
    """Of the scripts on a GPU whose lines were sampled in TRACE."""
    host_lines = m.known(run.record.trace).host_lines
    traced = m.known(run.once(traced_steps))
    found = m.known(run.once(kernels.of_trace))
    if host_lines is None or not found.steps:
        return ()
    # The CPU waits in these lines, and does not work.
    waiting = {
        (frame.file, frame.line)
        for record in m.known(m.known(run.record.memory).syncs).records
        for frame in record.frames
    }
    # A sample in one of these may be in an operator.
    operators = {
        (line.file, line.line)
        for origin in getattr(run.record.kernel_origins, "origins", ())
        for line in origin.lines
    }
    left_out = waiting | operators
    waits_us = sum(
        us
        for limit, name, us in limits.causes(m.known(found.idle))
        if limit is m.LimitKind.HOST and name == limits.PYTHON_BETWEEN
    )
    functions: dict[tuple[str, str], list[m.HostLine]] = defaultdict(list)
    for row in host_lines.rows:
        place = (row.at.file, row.at.line)
        if place in left_out or not run.source.project.holds(row.at.file):
            continue
        functions[row.at.file, row.at.function].append(row)
    python_us = sum(row.us for rows in functions.values() for row in rows)
    events = []
    for rows in functions.values():
        most = max(rows, key=lambda row: row.us)
        function_us = sum(row.us for row in rows)
        events.append(
            HostCode(
                run=run.key,
                location=run.source.at(most.at.file, most.at.line, most.at.function),
                function=most.at.function,
                function_us=function_us / found.steps,
                waits_us=max(0.0, waits_us - (python_us - function_us)) / found.steps,
                traced_us=found.window_us / found.steps,
                idle_us=traced.without_work_us,
                extent=traced.extent,
            )
        )
    return events


@of_each
def diagnose(event: HostCode) -> Iterator[m.Finding]:
    if min(event.function_us, event.waits_us) < WORTH_SHARE * event.traced_us:
        return
    # torch.profiler slows the CPU down: without it the GPU may be busy all the time
    if event.idle_us < WORTH_SHARE * event.extent.step_us:
        return
    where = f"{event.function.replace('.<locals>', '')}()"
    if event.function == "<module>":
        where = "the script's own level"
    function, step = figure(event.function_us / 1e3), figure(event.traced_us / 1e3)
    yield finding(
        HOST_CODE,
        event,
        f"the GPU waits for Python code: {where} takes {function} of {step} ms per traced step",
        event.function,
        no_fix=(
            "take it out of the step: into worker processes of a DataLoader, into a process beside "
            "the GPU's work, or into tensor operators"
        ),
        cost=event.extent.cost(event.function_us, "Python code", (m.PassName.TRACE,)),
        saves=event.extent.saving(
            min(event.function_us, event.waits_us, event.idle_us), "the time of this Python code"
        ),
    )
