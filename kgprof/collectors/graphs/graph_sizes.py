"""Of a compiled function with dynamic shapes that became CUDA graphs: how many sizes came, and what
recording a graph for each of them took.

    log     symint key 36   warm-up   symint key 26   warm-up   recording   recording
    step    2               2         3               3         12          21
            a size          runs once without a graph           runs as a graph from here on

torch logs each new size, the first run with it (which is no CUDA graph yet) and the recording.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

import msgspec

from kgprof import model as m
from kgprof.collectors.compile import recompiles
from kgprof.collectors.compile.input_sizes import numbers_of
from kgprof.measures.paid_once import RECORDS, PaidOnce, is_recording, paid_once
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.structured_trace import RunTrace, frame_id

NEW_SIZE = "deferred_cudagraphify"
WARNS = "maybe_warning_due_to_dynamic_shape"
_KEY = re.compile(r"symint key (?P<key>.+)")
_COMPILE_ID = re.compile(r"\[(?P<id>[^\]\s]+)\] ")
_INPUT = re.compile(r"Tensor\(size=\[(?P<size>[\d, ]*)\]")

Size = tuple[int, ...]


class GraphSizes(m.Model):
    """One compilation for which torch recorded CUDA graphs of several sizes."""

    compile_id: str
    location: m.Location | None
    sizes: int  # that came
    recorded: int  # graphs
    late: int  # of them, after warm-up
    warned: bool  # torch says itself that there are many
    numbers: tuple[str, ...] = ()  # that vary, as Dynamo names them, where no size does
    steps: int = 0  # after warm-up
    in_steps: int = 0  # of those, in which torch recorded a graph or ran a size for the first time
    each_us: float | m.Skipped = m.Skipped("no step of this run has a time")
    usual_us: float = 0.0  # of a step that only replays
    extra_us: float = 0.0  # what ``in_steps`` took beyond usual steps, in all
    compiled_us: float = 0.0  # compiling again for another size, in all


@dataclass(kw_only=True, slots=True)
class _Log:
    """What torch logged of one compilation."""

    keys: set[str] = field(default_factory=set)
    calls: set[int] = field(default_factory=set)
    recorded: list[tuple[int, tuple[Size, ...]]] = field(default_factory=list)  # call, its inputs


def graph_sizes(
    run: RunEvidence, trace: RunTrace, places: dict[str, m.Location | None]
) -> tuple[GraphSizes, ...]:
    """``places``: of each compilation that was recorded."""
    warned = any(line.function == WARNS for line in trace.all.logs)
    paid = run.once(paid_once)
    return tuple(
        _with_times(run, _sizes(trace, name, log, places.get(name), warned), log, paid)
        for name, log in _logs(trace).items()
        if len(log.keys) > 1
    )


def _logs(trace: RunTrace) -> dict[str, _Log]:
    """By compile id. In torch 2.11 a new size has none, and the warm-up behind it does."""
    logs: dict[str, _Log] = {}
    waiting = ""  # a size whose compilation is not known yet
    for line in trace.all.logs:
        if line.function == NEW_SIZE and (size := _KEY.search(line.text)):
            waiting = size["key"]
        found = _COMPILE_ID.match(line.text)
        if found is None:
            continue
        log = logs.setdefault(found["id"], _Log())
        if waiting:
            log.keys.add(waiting)
            waiting = ""
        if line.function == RECORDS:
            log.recorded.append((line.call, inputs(line.text)))
        if is_recording(line):
            log.calls.add(line.call)
    return logs


def inputs(text: str) -> tuple[Size, ...]:
    """Read the sizes of a recording's inputs, as far as the log has them."""
    return tuple(
        tuple(int(length) for length in found["size"].split(",") if length.strip())
        for found in _INPUT.finditer(text)
    )


def _sizes(
    trace: RunTrace, name: str, log: _Log, place: m.Location | None, warned: bool
) -> GraphSizes:
    numbers: tuple[str, ...] = ()
    if len({sizes for _, sizes in log.recorded}) <= 1:
        numbers = numbers_of(trace, name)
    return GraphSizes(
        compile_id=name,
        location=place,
        sizes=len(log.keys),
        recorded=len(log.recorded),
        late=sum(call >= trace.steady_from for call, _ in log.recorded),
        warned=warned,
        numbers=numbers,
    )


def _with_times(
    run: RunEvidence, event: GraphSizes, log: _Log, paid: PaidOnce | m.Skipped
) -> GraphSizes:
    """Add what it took, where the steps have times."""
    if isinstance(paid, m.Skipped):
        return event
    late = [
        step for step in log.calls & paid.recording if paid.steady_from <= step < len(paid.step_us)
    ]
    fields = {
        "steps": len(paid.step_us) - paid.steady_from,
        "in_steps": len(late),
        "usual_us": paid.usual_us,
        "extra_us": paid.extra_us(log.calls & paid.recording),
        "compiled_us": 1e6 * sum(_compiled_for_sizes(run, event.compile_id)),
    }
    if late:
        fields["each_us"] = median(paid.step_us[step] for step in late)
    return msgspec.structs.replace(event, **fields)


def _compiled_for_sizes(run: RunEvidence, name: str) -> Iterator[float]:
    """Give the seconds of each recompile of the same code object that another size led to."""
    for event in run.whole.once(recompiles.collect):
        for recompile in event.recompiles:
            same = event.run == run.key and frame_id(recompile.compile_id) == frame_id(name)
            known = recompile.duration_s
            if same and recompile.guard.kind == "size" and not isinstance(known, m.Skipped):
                yield known
