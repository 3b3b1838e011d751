"""KGP305 and KGP401: what moves, since when, by whose doing, at which line; and what a CUDA graph
copies."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from kgprof.collectors.graphs import addresses
from kgprof.collectors.graphs.addresses import NOT_ON_CPU, AddressChange, BufferUse, CopiedInput
from kgprof.model import Finding, Level, PassName, Recording, Skipped
from kgprof.reading import layout
from kgprof.reading.evidence import Evidence
from tests.collectors import written, written_tensors
from tests.collectors.watched import lines_with, recording, watch
from tests.collectors.written_tensors import ALL, MOVED, buffer, given, graph, held, lies

Step = Callable[[int], object]


def of(
    step: Step, buffers: Callable[[], Mapping[str, torch.Tensor]] | None = None
) -> tuple[Any, ...]:
    return addresses.collect(Evidence(recording(watch(step, buffers=buffers), __file__)))


def found(
    step: Step, buffers: Callable[[], Mapping[str, torch.Tensor]] | None = None
) -> list[tuple[int, Level]]:
    diagnosed = addresses.diagnose(of(step, buffers))
    assert all(finding.rule == "KGP401" for finding in diagnosed)
    return [(finding.location.line, finding.level) for finding in diagnosed if finding.location]


def line(mark: str) -> int:
    (number,) = lines_with(__file__, mark)
    return number


@torch.compile(backend="eager")
def advanced(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 + 1


# ---------------------------------------------------------------- inputs that move


def test_a_state_that_is_carried_from_call_to_call_is_a_warning_at_the_line_that_passes_it() -> (
    None
):
    carried = {"x": torch.ones(4)}

    def step(call: int) -> None:
        carried["x"] = advanced(carried["x"])  # carried

    (event,) = of(step)
    assert isinstance(event, AddressChange)
    assert (event.names, event.calls, event.carried) == (("x",), (3, 4, 5, 6, 7), ("0/0 output 0",))
    (finding,) = addresses.diagnose((event,))
    assert finding.location is not None
    assert (finding.location.line, finding.level) == (line("carried"), Level.WARNING)
    assert finding.message == (
        "x, input of advanced, moved to another address in 5 of 5 watched steps after warm-up, "
        "last in step 7: it is new memory, made by compiled graph 0/0 output 0 in an earlier call"
    )


def test_of_a_recording_that_does_not_name_the_watched_steps_no_total_is_said() -> None:
    whole = written_tensors.recording(graph(given(moved=MOVED)))

    (event,) = addresses.collect(Evidence(whole))

    assert isinstance(event, AddressChange)
    older = msgspec.structs.replace(event, steps=0)
    known, unknown = (addresses.diagnose((each,))[0].message for each in (event, older))
    assert " in 5 of 5 watched steps after warm-up, last in step 7" in known
    assert " in 5 steps after warm-up, last in step 7" in unknown


def test_a_batch_is_not_said_to_come_from_the_graph_that_made_the_state() -> None:
    of_graph = {"0/0 output 0": len(MOVED)}
    whole = written_tensors.recording(
        graph(given(moved=MOVED), given("L['state']", moved=MOVED, made_before=of_graph))
    )

    batch, state = addresses.diagnose(addresses.collect(Evidence(whole)))

    assert (batch.level, batch.names) == (Level.NOTE, ("x",))
    assert "made by" not in batch.message
    assert (state.level, state.names) == (Level.WARNING, ("state",))


@pytest.mark.parametrize(
    "lie_in",
    [torch.zeros(8, 4), [torch.zeros(4) for _ in range(8)]],
    ids=["slices of one tensor", "a ring of tensors"],
)
def test_memory_that_was_there_before_is_not_said_to_be_new(lie_in: Sequence[torch.Tensor]) -> None:
    (event,) = of(lambda call: advanced(lie_in[call % 8]))

    (finding,) = addresses.diagnose((event,))

    assert "new" not in finding.message


class Advancing(torch.nn.Module):
    """Its place is assigned here alone."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("place_of_each", torch.ones(4))

    def forward(self) -> torch.Tensor:
        self.place_of_each = self.place_of_each * 0.5 + 1
        return self.place_of_each


def test_what_one_line_assigns_and_another_one_passes_is_assigned_once() -> None:
    model = torch.compile(Advancing(), backend="eager")

    (event,) = (each for each in of(lambda call: model()) if isinstance(each, AddressChange))

    assert (event.carried, len(event.related)) == (("0/0 output 0",), 1)
    assert not event.is_assigned_often


def test_a_fresh_batch_is_a_note() -> None:
    def step(call: int) -> None:
        x = torch.full((4,), float(call))
        advanced(x)  # fresh

    assert found(step) == [(line("fresh"), Level.NOTE)]


def test_one_move_after_warm_up_counts_and_one_before_does_not() -> None:
    tensors = [torch.ones(4), torch.zeros(4)]

    def late(call: int) -> None:
        advanced(tensors[call >= 5])  # late

    def early(call: int) -> None:
        advanced(tensors[call >= 2])

    assert found(late) == [(line("late"), Level.NOTE)]
    assert found(early) == []


def test_a_number_that_dynamo_makes_a_tensor_of_moves_nothing_of_the_programs() -> None:
    x = torch.ones(4)
    scaled = torch.compile(lambda x, rate: x * rate, backend="eager")

    assert found(lambda call: scaled(x, 0.5 + call)) == []


def test_what_stays_and_what_one_graph_hands_to_the_next_is_silent() -> None:
    x, table = torch.ones(4), torch.arange(8.0)
    model = torch.nn.Linear(4, 4)
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def chained(call: int) -> None:
        advanced(advanced(advanced(x)))

    def two_places(call: int) -> None:
        advanced(table[:4])
        advanced(table[4:])

    def trained(call: int) -> None:
        optimizer.zero_grad()
        compiled(x).sum().backward()
        optimizer.step()

    assert [found(step) for step in (chained, two_places, trained)] == [[], [], []]


def test_what_goes_on_behind_a_break_passes_nothing_of_its_own() -> None:
    @torch.compile(backend="eager")
    def region(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * x

    def step(call: int) -> None:
        x = torch.full((4,), float(call))
        region(x)  # with a break

    assert found(step) == [(line("with a break"), Level.NOTE)]


SCALE = torch.ones(4)


def test_a_captured_tensor_points_at_the_call_and_names_the_line_that_rebinds_it() -> None:
    @torch.compile(backend="eager")
    def region(x: torch.Tensor) -> torch.Tensor:
        return x * SCALE

    x = torch.ones(4)

    def step(call: int) -> None:
        global SCALE
        SCALE = torch.full((4,), float(call))  # rebinds SCALE
        region(x)  # passes SCALE

    (finding,) = addresses.diagnose(of(step))
    assert finding.location is not None
    assert finding.location.line == line("passes SCALE")
    assert [place.line for place in finding.related] == [line("rebinds SCALE")]


def test_without_a_caller_of_the_projects_the_line_that_rebinds_it_is_the_place() -> None:
    program = written.PROGRAM + "\n\ndef reset(model):\n    model.state = 3\n"
    tensor = given("L['self'].state", moved=MOVED, frames=())

    (finding,) = addresses.diagnose(
        addresses.collect(Evidence(written_tensors.recording(graph(tensor), program=program)))
    )

    assert finding.location is not None
    assert (finding.location.line, finding.location.function) == (25, "reset")


# ---------------------------------------------------------------- declared buffers


class Carries:
    def __init__(self, update: Callable[[Carries, torch.Tensor], None]) -> None:
        self.state = torch.zeros(4)
        self.update = update

    def __call__(self, call: int) -> None:
        self.update(self, advanced(self.state))  # passes state

    def buffers(self) -> dict[str, torch.Tensor]:
        return {"state": self.state}


def rebinds(carries: Carries, new: torch.Tensor) -> None:
    carries.state = new


def copies(carries: Carries, new: torch.Tensor) -> None:
    carries.state.copy_(new)


def test_a_declared_buffer_that_is_rebound_is_a_warning_and_one_that_is_copied_is_silent() -> None:
    rebound, copied = Carries(rebinds), Carries(copies)

    use, change = of(rebound, rebound.buffers)

    assert (use.pattern, use.calls, use.made_by) == ("rebound", (3, 4, 5, 6, 7), ("0/0 output 0",))
    assert (change.declared, change.names) == (True, ("x",))
    assert found(rebound, rebound.buffers) == [(line("passes state"), Level.WARNING)]
    (use,) = of(copied, copied.buffers)
    assert use.pattern == "copied"


def test_a_buffer_that_no_graph_takes_as_an_argument_points_at_what_rebinds_it() -> None:
    program = written.PROGRAM + "\n\ndef commit(model, new):\n    model.state, done = new\n"
    moving = buffer("table.state", rebound=MOVED, moved=MOVED)
    captured = given("L['self']._buffers['state']", static="fixed", moved=MOVED)

    whole = written_tensors.recording(graph(captured), buffers=(moving,), program=program)
    use, change = addresses.collect(Evidence(whole))
    (finding,) = addresses.diagnose((use, change))

    assert use.pattern == "rebound"
    assert finding.location is not None
    assert (finding.location.line, finding.level) == (25, Level.WARNING)
    assert finding.message.startswith("the declared buffer table.state moved to another address")


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({}, "unwritten"),
        ({"written_outside": (3, 4)}, "copied"),
        ({"written_inside": (3, 4), "written_outside": (3,)}, "mutated"),
        ({"rebound": (1,), "moved": (1,), "written_outside": (5,)}, "copied"),
        ({"written_inside": (0,)}, "unwritten"),
        ({"moved": (6,)}, "rebound"),
    ],
)
def test_the_pattern_is_what_happens_after_warm_up(fields: dict[str, Any], pattern: str) -> None:
    uses = addresses.collect(Evidence(written_tensors.recording(buffers=(buffer(**fields),))))

    assert isinstance(uses[0], BufferUse)
    assert uses[0].pattern == pattern


# ---------------------------------------------------------------- CUDA graphs


def traced(copies: int) -> Recording:
    """Four steps with a launch each, and ``copies`` of inputs in their compiled regions."""
    whole = written_tensors.a_copied_input()
    event = {"ph": "X", "pid": 1, "tid": 1, "args": {}}
    region = {**event, "cat": "cpu_op", "name": "## Call CompiledFxGraph f ##", "dur": 20.0}
    copy = {**event, "cat": "cpu_op", "name": "aten::_foreach_copy_", "dur": 1.0}
    launch = {**event, "cat": "cuda_runtime", "name": "cudaGraphLaunch", "dur": 1.0}
    events = [{**copy, "ts": 90.0}]  # the workload's own, outside of the region
    for step in range(4):
        events += [{**region, "ts": 100.0 * step}, {**launch, "ts": 100.0 * step + 10}]
    events += [{**copy, "ts": 100.0 * step + 2} for step in range(copies)]
    path = layout.trace_path(whole, whole.runs[0].key, PassName.TRACE)
    Path(path).write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return whole


def test_a_copy_beside_a_launch_proves_what_dynamo_did_not_mark_as_fixed() -> None:
    (event,) = addresses.collect(Evidence(traced(4)))

    (finding,) = addresses.diagnose((event,))
    assert event.copies_per_step == 1.0
    assert finding == Finding(
        rule="KGP305",
        level=Level.WARNING,
        message="the CUDA graph of Model.step copies x before each replay: 4,194,304 bytes",
        run=written.REDUCE_OVERHEAD,
        location=written.place(*written.CALLER),
        fingerprint=finding.fingerprint,
        # only what the host did is in it
        cost=Skipped(reason="TRACE shows no GPU copy before a replay"),
    )


def test_without_a_copy_in_the_trace_it_is_torchs_rule_and_a_note() -> None:
    (finding,) = addresses.diagnose(addresses.collect(Evidence(traced(0))))

    assert finding.level == Level.NOTE
    assert finding.message.endswith("(by torch's rule; TRACE shows no copy in a compiled region)")


def test_a_graph_that_writes_to_what_another_one_made_is_captured_and_copies_the_rest() -> None:
    made = given(
        "L['h']", memory=lies(8192), moved=MOVED, written=ALL, made_now={"0/0 output 0": 7}
    )
    whole = written_tensors.recording(graph(made, given(), cuda_graphs=True))

    (event,) = (one for one in addresses.collect(Evidence(whole)) if isinstance(one, CopiedInput))

    assert event.names == ("x",)


def test_on_a_cpu_it_is_a_prediction() -> None:
    asked = written_tensors.recording(graph(given(), cuda_graphs=True))
    plain = written_tensors.recording(graph(given()))

    (event,) = addresses.collect(Evidence(asked))
    (finding,) = addresses.diagnose((event,))

    assert isinstance(event, CopiedInput)
    assert (event.copies_per_step, event.size_bytes) == (NOT_ON_CPU, 32)
    assert (finding.level, finding.message) == (
        Level.NOTE,
        "on CUDA the graph of Model.step would copy x before each replay: 32 bytes",
    )
    assert addresses.collect(Evidence(plain)) == ()


@pytest.mark.parametrize(
    "inputs",
    [
        (given(static="fixed", memory=lies(device="cuda:0")),),
        (given(memory=lies(device="cpu")),),  # stays on the host
        (given("L['a']", moved=MOVED, made_now={"1/0 output 0": 7}, memory=lies(device="cuda:0")),),
        (given(written=MOVED, memory=lies(device="cuda:0")),),  # so that torch makes no CUDA graph
        (written_tensors.GraphInput(name="L['n']", held=()),),  # a number
    ],
)
def test_what_is_not_copied(inputs: tuple[Any, ...]) -> None:
    whole = written_tensors.recording(graph(*inputs, cuda_graphs=True), on_cuda=True, launches=4)

    assert [
        event for event in addresses.collect(Evidence(whole)) if isinstance(event, CopiedInput)
    ] == []


def test_nothing_is_copied_into_graphs_that_were_never_launched() -> None:
    tensor = given(memory=lies(device="cuda:0"))
    whole = written_tensors.recording(graph(tensor, cuda_graphs=True), on_cuda=True, launches=0)

    assert addresses.collect(Evidence(whole)) == ()


def test_two_runs_of_a_graph_in_a_call_are_two_replays() -> None:
    twice = written_tensors.GraphInput(
        name="L['x']", held=(held(run=0), held(run=1, memory=lies(8192)))
    )
    whole = written_tensors.recording(graph(twice, given("L['y']"), cuda_graphs=True))

    (event,) = addresses.collect(Evidence(whole))

    assert isinstance(event, CopiedInput)
    assert (event.names, event.size_bytes) == (("x", "y"), 2 * 32)


def test_two_runs_of_a_graph_in_a_call_are_two_places() -> None:
    tensor = written_tensors.GraphInput(
        name="L['x']", held=(held(run=0), held(run=1, memory=lies(8192)))
    )

    assert addresses.collect(Evidence(written_tensors.recording(graph(tensor)))) == ()
