"""Six ways to count steps at once, and what an event's number is when one of them has been
chosen."""

from __future__ import annotations

import os

import pytest
import torch

import kgprof
from kgprof.model import BEFORE_THE_FIRST
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.source import listening
from kgprof.record.passes.steps import OTHERS_IN_A_ROW, Kind, StepMarks, Steps

PROJECT = ProjectFiles(libraries=())


def marked(*kinds: Kind) -> Steps:
    steps = Steps()
    for kind in kinds:
        steps.mark(kind)
    return steps


E, O, I, R, G, M = Kind  # noqa: E741


@pytest.mark.parametrize(
    ("kinds", "chosen", "numbers", "ended"),
    [
        ((), None, [-1], 0),
        ((R, R), R, [-1, 0, 1], 1),
        # what is before the first explicit step is before the first step, compiled calls too
        ((R, E, R, E, R), E, [-1, -1, 0, 0, 1, 1], 1),
        # an optimizer's step ends one: the first began with the first compiled call
        ((R, O, R, O), O, [-1, 0, 1, 1, 2], 2),
        ((R, R, O), O, [-1, 0, 0, 1], 1),
        # nothing compiled before it: the first step can only begin with it
        ((O, R, O), O, [-1, 0, 0, 1], 1),
        ((O, E, R), E, [-1, -1, 0, 0], 0),
        ((M, M), M, [-1, 0, 1], 1),
        ((M, G, G), G, [-1, -1, 0, 1], 1),
        # what a module did before there was an optimizer is before the first step
        ((M, M, O, O), O, [-1, -1, -1, 0, 1], 1),
        ((M, R, O), O, [-1, 0, 0, 1], 1),
    ],
)
def test_the_preferred_kind_there_is_decides_what_every_label_means(
    kinds: tuple[Kind, ...], chosen: Kind | None, numbers: list[int], ended: int
) -> None:
    steps = marked(*kinds)

    assert steps.chosen is chosen
    number = steps.numbers()
    assert [number(label) for label in range(-1, len(kinds))] == numbers
    assert steps.ended() == ended
    assert len(steps.boundaries()) == (0 if chosen is None else ended + 1)
    assert steps.current == len(kinds) + BEFORE_THE_FIRST


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_step_in_which_a_graph_or_its_backward_is_compiled_is_known(
    fullgraph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    monkeypatch.setitem(counters, "inductor", type(counters["inductor"])())
    steps = marked(R, R)
    compiled = torch.compile(lambda x: x + 1, backend="eager", fullgraph=fullgraph)
    compiled(torch.ones(2))
    for _ in range(2):
        steps.mark(R)
        compiled(torch.ones(2))
    counters["inductor"]["fxgraph_cache_hit"] += 1  # as that of a backward graph

    assert steps.compiled_in() == (1, 3)
    assert Steps().compiled_in() == ()


def test_what_the_recorder_does_at_a_mark_is_no_part_of_a_step() -> None:
    import time

    steps = Steps(lambda kind: time.sleep(0.05))
    steps.mark(R)
    steps.mark(R)

    (first, second) = steps.boundaries()
    assert second - first < 40e6


def test_a_forked_process_marks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = marked(R)
    monkeypatch.setattr(os, "getpid", lambda: -1)

    steps.mark(R)

    assert (steps.counts[R], steps.current) == (1, 0)


def test_each_kind_is_marked_once_and_afterwards_everything_is_as_it_was() -> None:
    from torch._dynamo import eval_frame

    before = (eval_frame._callback_from_stance, kgprof._on_step)
    inner = torch.compile(lambda x: x + 1, backend="eager")
    outer = torch.compile(lambda x: inner(x) * 2, backend="eager")
    weights = torch.nn.Parameter(torch.ones(2))
    first, second = (torch.optim.SGD([weights], lr=0.1) for _ in range(2))
    steps = Steps()

    with listening([StepMarks(steps, PROJECT)]):
        kgprof.step()
        outer(torch.ones(2))  # the compiled function in it is no call of its own
        inner(torch.ones(2))
        weights.grad = torch.ones(2)
        first.step()
        second.step()  # the second of two optimizers ends no step
        first.step()
    kgprof.step()
    first.step()
    inner(torch.ones(2))

    assert steps.counts == [1, 2, 0, 2, 0, 0]
    assert (eval_frame._callback_from_stance, kgprof._on_step) == before


def stepping(*optimizers: torch.optim.Optimizer) -> int:
    """How many steps are counted when these step, one after the other."""
    steps = Steps()
    with listening([StepMarks(steps, PROJECT)]):
        for optimizer in optimizers:
            optimizer.step()
    return steps.counts[Kind.OPTIMIZER]


def test_an_optimizer_that_takes_the_place_of_the_first_is_counted() -> None:
    weights, others = ([torch.nn.Parameter(torch.ones(2))] for _ in range(2))
    first, second, apart = (torch.optim.SGD(each, lr=0.1) for each in (weights, weights, others))

    # its first step may have been one in turn
    assert stepping(first, first, second, second, second) == 4
    assert stepping(first, second, first, second) == 2
    assert stepping(first, apart, apart, apart, first) == 2  # a discriminator that steps more often


def test_an_optimizer_of_a_second_phase_is_counted_after_a_while_and_named_before() -> None:
    weights, others = ([torch.nn.Parameter(torch.ones(2))] for _ in range(2))
    first, second = (torch.optim.SGD(each, lr=0.1) for each in (weights, others))
    steps, uncounted = Steps(), []
    marks = StepMarks(steps, PROJECT)

    with listening([marks]):
        for optimizer in (first, second, second, first, second, second, second):
            optimizer.step()
            uncounted.append(marks.uncounted)
        for _ in range(OTHERS_IN_A_ROW):
            second.step()

    assert uncounted == [0, 0, 2, 0, 0, 0, 3]
    assert marks.uncounted == 0
    assert steps.counts[Kind.OPTIMIZER] == 2 + 3


def test_steps_in_hooks_on_gradients_after_the_last_counted_one_are_named() -> None:
    """As where each parameter's optimizer steps, and goes, while backward() still runs."""
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    counted, *in_hooks = (torch.optim.SGD(each, lr=0.1) for each in (weights, *zip(weights)))
    steps, uncounted = Steps(), []
    marks = StepMarks(steps, PROJECT)

    def train(*, steps_itself: bool) -> None:
        torch.stack(list(weights)).sum().backward()
        if steps_itself:
            counted.step()
        uncounted.append(marks.uncounted)

    with listening([marks]):
        train(steps_itself=True)
        for weight, optimizer in zip(weights, in_hooks, strict=True):
            weight.register_post_accumulate_grad_hook(lambda _, each=optimizer: each.step())
        train(steps_itself=True)  # hooks that are a part of each step
        train(steps_itself=False)
        train(steps_itself=False)

    assert uncounted == [0, 0, 0, 4]
    assert steps.counts[Kind.OPTIMIZER] == 2


def test_an_optimizer_made_anew_is_counted_at_once() -> None:
    weights, steps = [torch.nn.Parameter(torch.ones(2))], Steps()

    with listening([StepMarks(steps, PROJECT)]):
        for _ in range(3):
            optimizer = torch.optim.SGD(weights, lr=0.1)
            optimizer.step()

    assert steps.counts[Kind.OPTIMIZER] == 3


def test_an_optimizer_that_steps_inside_of_a_backward_ends_no_step() -> None:
    weights, steps = torch.nn.Parameter(torch.ones(2)), Steps()
    optimizer = torch.optim.SGD([weights], lr=0.1)
    weights.register_post_accumulate_grad_hook(lambda _: optimizer.step())

    with listening([StepMarks(steps, PROJECT)]):
        for _ in range(3):
            weights.sum().backward()

    assert steps.counts[Kind.OPTIMIZER] == 0
    assert weights[0] < 1  # it did step


def test_a_compiled_optimizer_step_is_compiled_as_without_the_marks() -> None:
    from torch._dynamo.utils import counters

    def graphs_and_breaks() -> tuple[int, int]:
        torch._dynamo.reset()
        counters.clear()
        weights = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([weights], lr=0.1)
        step = torch.compile(optimizer.step, backend="eager")
        for _ in range(2):
            weights.grad = torch.ones(2)
            step()
        return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())

    without = graphs_and_breaks()
    steps = Steps()
    with listening([StepMarks(steps, PROJECT)]):
        with_marks = graphs_and_breaks()

    assert with_marks == without
    assert steps.counts == [0, 0, 2, 2, 0, 0]


def test_where_an_optimizer_step_is_compiled_first_a_call_is_a_step_also_when_it_runs_eagerly() -> (
    None
):
    """Behind torch's limit, where its hooks are called."""
    from torch._dynamo import config

    class Descent(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            weights.sub_(self.param_groups[0]["lr"])

    torch._dynamo.reset()
    weights, steps = torch.nn.Parameter(torch.ones(2)), Steps()
    optimizer = Descent([weights], {"lr": 0.1})
    optimizer.step = torch.compile(optimizer.step, backend="eager")  # type: ignore[method-assign]

    with (
        config.patch(recompile_limit=2, specialize_float=True),
        listening([StepMarks(steps, PROJECT)]),
    ):
        for number in range(5):
            optimizer.param_groups[0]["lr"] = 0.1 * number
            optimizer.step()

    assert (steps.chosen, steps.counts[R], steps.counts[O]) == (R, 5, 0)


def module_hooks() -> int:
    from torch.nn.modules import module

    return len(module._global_forward_pre_hooks)


def test_where_nothing_is_compiled_or_trained_a_call_of_the_outermost_module_is_a_step() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.ReLU()))
    steps = Steps()

    with listening([StepMarks(steps, PROJECT)]):
        for _ in range(3):
            model(torch.ones(2))
        model[0](torch.ones(2))

    assert (steps.counts[M], steps.chosen, module_hooks()) == (4, M, 0)


def test_transforms_of_single_items_and_a_loss_are_modules_and_no_steps() -> None:
    class Halved(torch.nn.Module):
        def forward(self, item: torch.Tensor) -> torch.Tensor:
            return item / 2

    transform, model, loss = (
        torch.nn.Sequential(Halved()),
        torch.nn.Linear(2, 2),
        torch.nn.MSELoss(),
    )
    steps = Steps()

    with listening([StepMarks(steps, PROJECT)]):
        for _ in range(3):
            batch = torch.stack([transform(torch.ones(2)) for _ in range(8)])
            loss(model(batch), batch)

    assert steps.counts[M] == 3


def test_the_hook_on_modules_is_gone_before_anything_is_compiled_or_trained() -> None:
    model, steps = torch.nn.Linear(2, 2), Steps()

    with listening([StepMarks(steps, PROJECT)]):
        assert module_hooks() == 1
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        assert module_hooks() == 0
        compiled(torch.ones(2))
    with listening([StepMarks(steps, PROJECT)]):
        torch.optim.SGD(model.parameters(), lr=0.1)
        assert module_hooks() == 0
    assert steps.counts[R] == 1


def test_each_optimizer_step_has_ended_also_where_the_first_began_unseen() -> None:
    steps = Steps()
    assert steps.running is None

    for _ in range(5):
        steps.mark(Kind.OPTIMIZER)
    assert (steps.ended(), steps.running) == (4, 6)

    steps.mark(Kind.EXPLICIT)
    steps.mark(Kind.EXPLICIT)
    assert steps.running == 2


def test_a_call_inside_the_capture_of_a_cuda_graph_is_no_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Kind] = []
    steps = Steps(told.append)
    captures = iter((False, True, False))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: next(captures))

    for _ in range(3):
        steps.mark(R)

    assert told == [R, R]  # nothing waits for the GPU or starts a profiler in the capture
    assert steps.ended() == 1
    assert len(steps.boundaries()) == 2


@pytest.mark.parametrize("in_graph", [True, False])
def test_a_replay_of_a_graph_with_an_optimizer_step_in_it_ends_a_step(
    in_graph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps warm it up, one is captured, and the training is in the replays."""
    from kgprof.record.passes import steps as recorded

    class StandIn:
        def capture_end(self) -> None:
            """As torch's."""

        def replay(self) -> None:
            """As torch's."""

    def captures(now: bool) -> None:
        monkeypatch.setattr(recorded, "captures_a_graph", lambda: now)

    monkeypatch.setattr(torch.cuda, "CUDAGraph", StandIn)
    weights, steps, graph = torch.nn.Parameter(torch.ones(2)), Steps(), StandIn()
    optimizer = torch.optim.SGD([weights], lr=0.1)
    weights.grad = torch.ones(2)

    with listening([StepMarks(steps, PROJECT)]):
        for _ in range(3):
            optimizer.step()
        captures(True)
        if in_graph:
            optimizer.step()
        graph.capture_end()
        captures(False)
        for _ in range(50):
            graph.replay()

    assert steps.chosen is O
    assert (steps.counts[O], steps.counts[G]) == ((53, 0) if in_graph else (3, 50))
    assert steps.after_the_last() == ({} if in_graph else {G: 50})


@pytest.mark.parametrize(
    ("kinds", "chosen", "goes_on"),
    [
        ((O, O, R, R, R), O, {R: 3}),
        # as in each step before, and a single call after them
        ((R, O, R, O, R), O, {}),
        ((R, R, O, R, R, O, R, R), O, {}),
        ((R, R, O, R, R, O, R, R, R), O, {R: 3}),
        ((E, E, R, R), E, {R: 2}),
        # the only step that there is may make all of these calls
        ((E, R, R, R), E, {}),
        ((O, R, R, R), O, {}),
        ((), None, {}),
    ],
)
def test_what_goes_on_after_the_last_step_is_more_than_between_two(
    kinds: tuple[Kind, ...], chosen: Kind | None, goes_on: dict[Kind, int]
) -> None:
    steps = marked(*kinds)

    assert steps.chosen is chosen
    assert steps.after_the_last() == goes_on
