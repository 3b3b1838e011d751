"""KGP701: a Python loop that Dynamo unrolled, so that its body was compiled once for each
iteration.

Dynamo traces a loop by running it. The operators of the graph carry the lines they came from; a
line's own share, and how often each of its operators comes again, tell an unrolled loop.
"""

from collections.abc import Iterator, Sequence

from kgprof import model as m
from kgprof.collectors.event import Event, finding, of_each
from kgprof.reading.evidence import Evidence
from kgprof.reading.structured_trace import Compiled, RunTrace
from kgprof.wording import figure

LONG_S = 10.0  # to compile
MOSTLY = 0.5  # of the graph's operators
REPEATED = 8.0  # operators of the loop for each kind of them

UNROLLED = m.Rule(
    id="KGP701",
    name="unrolled-loop",
    level=m.Level.WARNING,
    summary="A Python loop was unrolled: its body is compiled again for each iteration.",
    why=(
        "torch.compile runs a Python loop while it traces, so a loop of 200 iterations becomes a "
        "graph with 200 copies of its body. The time to compile grows with the number of "
        "iterations, and another number of iterations compiles everything again. The rule: "
        f"compiling took at least {LONG_S:g} s, at least {100 * MOSTLY:.0f} % of the graph's "
        f"operators come from the loop, and each kind of them {REPEATED:g} times on average. Ten "
        "seconds are little before hours of steps: the finding says what they are, not that they "
        "are too many."
    ),
    example="for t in range(x.shape[1]): h = cell(x[:, t], h) inside a compiled function.",
    remedy=(
        "Compile what the loop calls instead of the function around it: the body is then compiled "
        "once. Each iteration becomes a call of compiled code, so measure the step as well. "
        "A loop over time steps stays in one operator with torch._higher_order_ops.scan, or with "
        "torch.nn.GRU and its like, which torch.compile leaves in eager."
    ),
    topic=m.Topic.COMPILATION,
    seen_in=((m.Witness.COMPILE, m.Witness.GRAPH_HOOK),),
    can_cost=(),
    judged_from_times=True,
    relieves=(m.LimitKind.COMPILING,),
)
RULES = (UNROLLED,)


class UnrolledLoop(Event):
    """The innermost loop that most of a graph comes from; ``location`` is its first line."""

    function: str  # that was compiled
    operators: int  # of the loop
    of: int  # of the graph
    seconds: float  # to compile the graph

    @property
    def loop_s(self) -> float:
        """The loop's part of the time, by its part of the operators."""
        return self.seconds * self.operators / self.of


def collect(evidence: Evidence) -> tuple[UnrolledLoop, ...]:
    """Of each graph that took long to compile, whatever the reason."""
    return tuple(event for trace in evidence.compilers for event in _of_run(trace))


def _of_run(trace: RunTrace) -> Iterator[UnrolledLoop]:
    for graph in trace.all.graphs:
        if not graph.lines:
            continue
        compiled = trace.compilation(graph.compile_id, min(graph.runs, default=-1))
        if compiled is not None and compiled.took_us >= 1e6 * LONG_S:
            yield from _loop(trace, compiled, graph.lines)


def _loop(
    trace: RunTrace, compiled: Compiled, lines: Sequence[m.LineOperators]
) -> Iterator[UnrolledLoop]:
    """Finds the shortest loop of the project's own files that most of the graph comes from."""
    found = []
    for file in {each.file for each in lines if trace.source.project.holds(each.file)}:
        for loop in trace.source.loops(file):
            inside = [each for each in lines if each.file == file and loop.holds(each.line)]
            operators = sum(each.operators for each in inside)
            kinds = sum(each.kinds for each in inside)
            of = lines[0].of
            if operators >= MOSTLY * of and operators >= REPEATED * kinds:
                found.append((loop.last - loop.first, min(operators, of), file, loop))
    if not found:
        return
    _, operators, file, loop = min(found, key=lambda each: each[0])
    location = trace.source.at(file, loop.first)
    function = ""
    if (frame := compiled.frame) is not None:
        function = trace.source.definition(frame.file, frame.line, frame.function).function
    yield UnrolledLoop(
        run=trace.run,
        location=location,
        identity="\0".join(trace.source.identity(location)),
        function=function,
        operators=operators,
        of=lines[0].of,
        seconds=compiled.took_us / 1e6,
    )


@of_each
def diagnose(event: UnrolledLoop) -> Iterator[m.Finding]:
    measured = (m.PassName.COMPILE,)
    took = f"{figure(event.seconds)} s"
    yield finding(
        UNROLLED,
        event,
        f"this loop was unrolled: {event.operators:,} of the {event.of:,} operators of "
        f"{event.function}'s graph come from it; compiling took {took}",
        event.identity,
        cost=m.FindingCost(event.seconds, "s", "to compile the graph", measured, 1),
        saves=m.Saving(
            1e6 * event.loop_s,
            "at most the loop's part of the time to compile, by operators: its body compiles still",
            measured,
            per="run",
        ),
    )
