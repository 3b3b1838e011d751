"""Where the time of a script goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.source import listening
from kgprof.record.passes.account import Account, Span, length, overlaps, united, without
from kgprof.record.passes.steps import StepMarks, Steps

PAUSE_S = 0.05
Phase = m.RunPhase


def accounted(program: Callable[[], object]) -> dict[Phase, float]:
    """The seconds of each phase; they add up to the whole."""
    torch._dynamo.reset()
    steps = Steps()
    account, marks = Account(steps), StepMarks(steps, ProjectFiles(libraries=()))
    before = torch.nn.Module.train
    with listening([marks, account]):
        program()
        trains_on = marks.uncounted > 0
        found = account.answer(steps.now_ns(), under_listeners=False, trains_on=trains_on)
    assert torch.nn.Module.train is before
    assert isinstance(found, m.ScriptAccount)
    assert sum(each.us for each in found.phases) == pytest.approx(found.total_us)
    assert sum(each.share for each in found.phases) == pytest.approx(1)
    return {each.phase: each.us / 1e6 for each in found.phases}


def model() -> tuple[torch.nn.Sequential, Callable[[], None]]:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step() -> None:
        net(torch.ones(3, 2)).sum().backward()
        optimizer.step()

    return net, step


def test_what_an_optimizer_does_not_step_in_is_told_from_its_steps() -> None:
    def program() -> None:
        net, step = model()
        time.sleep(PAUSE_S)
        for _ in range(3):
            for _ in range(3):
                step()
            net.eval()
            time.sleep(PAUSE_S)
            net.train()
        time.sleep(PAUSE_S)

    found = accounted(program)

    assert set(found) == {Phase.START_AND_STEP, Phase.STEPS, Phase.EVALUATION, Phase.AFTER}
    assert found[Phase.EVALUATION] >= 3 * PAUSE_S
    assert found[Phase.START_AND_STEP] >= PAUSE_S
    assert found[Phase.AFTER] >= PAUSE_S


def test_a_second_training_is_not_merely_after_the_last_step() -> None:
    def program() -> None:
        _, step = model()
        step()
        step()
        _, other = model()
        time.sleep(PAUSE_S)
        for _ in range(3):
            other()

    found = accounted(program)

    assert set(found) == {Phase.START_AND_STEP, Phase.STEPS, Phase.OTHERS_AND_AFTER}
    assert found[Phase.OTHERS_AND_AFTER] >= PAUSE_S


def test_calls_of_compiled_code_that_go_on_after_the_last_step_are_named() -> None:
    """As of an optimizer whose step is compiled: nothing tells kgprof of its steps."""

    def program() -> None:
        _, step = model()
        compiled = torch.compile(lambda x: x + 1, backend="eager")
        for _ in range(3):
            step()
        for _ in range(4):
            compiled(torch.ones(2))
            time.sleep(PAUSE_S)

    found = accounted(program)

    assert Phase.AFTER not in found
    assert found[Phase.ANOTHER_KIND_AND_AFTER] >= 4 * PAUSE_S


def test_a_model_that_is_loaded_in_eval_mode_is_not_evaluated_before_it_learns() -> None:
    """As from_pretrained() leaves it, while the texts are read."""

    def program() -> None:
        net, step = model()
        net.eval()
        time.sleep(PAUSE_S)
        net.train()
        step()
        step()

    found = accounted(program)

    assert set(found) == {Phase.START_AND_STEP, Phase.STEPS, Phase.AFTER}
    assert found[Phase.START_AND_STEP] >= PAUSE_S


def test_a_generator_in_eval_mode_while_its_critic_learns_is_no_evaluation() -> None:
    def program() -> None:
        generator, step = model()
        _, criticise = model()
        for _ in range(3):
            generator.train()
            step()
            generator.eval()
            time.sleep(PAUSE_S)
            criticise()
            criticise()

    found = accounted(program)

    assert Phase.EVALUATION not in found
    assert found[Phase.STEPS] >= 2 * PAUSE_S


def test_a_copy_that_is_evaluated_is_in_eval_mode_until_it_is_gone() -> None:
    def evaluate() -> None:
        torch.nn.Linear(2, 2).eval()
        twin = torch.nn.Linear(2, 2).eval()
        time.sleep(PAUSE_S)
        del twin

    def program() -> None:
        _, step = model()
        for _ in range(3):
            step()
            step()
            evaluate()

    assert accounted(program)[Phase.EVALUATION] >= 3 * PAUSE_S


def test_an_evaluation_at_the_end_is_one() -> None:
    def program() -> None:
        net, step = model()
        step()
        step()
        net.eval()
        time.sleep(PAUSE_S)

    assert accounted(program)[Phase.EVALUATION] >= PAUSE_S


def test_eval_mode_is_not_told_of_a_time_in_which_an_optimizers_compiled_step_may_run() -> None:
    def program() -> None:
        net, step = model()
        compiled = torch.compile(lambda x: x + 1, backend="eager")
        step()
        net.eval()
        time.sleep(PAUSE_S)
        step()
        for _ in range(4):
            compiled(torch.ones(2))
            time.sleep(PAUSE_S)

    found = accounted(program)

    assert Phase.EVALUATION not in found
    assert found[Phase.ANOTHER_KIND_AND_AFTER] >= 4 * PAUSE_S


def test_a_module_that_stays_in_eval_mode_while_others_learn_is_no_evaluation() -> None:
    def program() -> None:
        teacher = torch.nn.Linear(2, 2).eval()
        net, step = model()
        for _ in range(3):
            net.train()
            net[1].eval()  # a frozen layer
            teacher(torch.ones(2))
            step()
            step()

    assert Phase.EVALUATION not in accounted(program)


def test_a_program_that_only_evaluates_has_steps_and_no_evaluation() -> None:
    def program() -> None:
        net = torch.nn.Linear(2, 2)
        compiled = torch.compile(net, backend="eager")
        net.eval()
        for _ in range(4):
            compiled(torch.ones(2))
            torch.nn.Linear(2, 2).eval()  # another model, loaded between two steps
            time.sleep(PAUSE_S)

    found = accounted(program)

    assert Phase.EVALUATION not in found
    assert set(found) >= {Phase.START, Phase.COMPILING, Phase.STEPS, Phase.STEP_AND_AFTER}
    assert found[Phase.STEPS] >= 3 * PAUSE_S
    assert found[Phase.STEP_AND_AFTER] >= PAUSE_S


def test_compiling_is_told_apart_wherever_it_happens() -> None:
    compiles_s = 6 * PAUSE_S  # beside it a busy machine's first step takes little

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        time.sleep(compiles_s)
        return graph.forward

    def program() -> None:
        net, step = model()
        compiled = torch.compile(lambda x: x + 1, backend=backend)
        torch.compile(lambda x: x + 2, backend=backend)(torch.ones(2))
        step()
        torch._dynamo.reset()  # forgets torch's own listeners
        compiled(torch.ones(2))
        step()
        net.eval()
        torch.compile(lambda x: x + 3, backend=backend)(torch.ones(2))

    found = accounted(program)

    assert found[Phase.COMPILING] >= 3 * compiles_s
    assert found[Phase.EVALUATION] < compiles_s
    assert found[Phase.STEPS] < compiles_s


def test_threads_that_compile_at_the_same_time_count_once() -> None:
    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        return graph.forward

    def compiles() -> None:
        torch.compile(lambda x: x * 2, backend=backend)(torch.ones(2))

    def program() -> None:
        threads = [threading.Thread(target=compiles) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    began = time.perf_counter()
    found = accounted(program)

    assert sum(found.values()) <= time.perf_counter() - began


def test_a_program_without_steps_has_one_rest() -> None:
    assert set(accounted(lambda: time.sleep(PAUSE_S))) == {Phase.REST}


def test_what_dynamo_traces_is_not_broken_by_the_account() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    seen = []

    def evaluates(x: torch.Tensor) -> object:
        return net.eval()(x).sum()

    def program() -> None:
        seen.append(torch._dynamo.explain(evaluates)(torch.ones(2)).graph_break_count)

    accounted(program)

    assert seen == [torch._dynamo.explain(evaluates)(torch.ones(2)).graph_break_count]


def test_where_a_frame_fell_back_dynamo_compiles_nothing_of_the_account() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())

    @torch.compile(backend="eager")
    def trained(x: torch.Tensor) -> torch.Tensor:
        for module in (net, net[0], net[1]):
            torch._dynamo.graph_break()
            module.train()
        return x + 1

    def program() -> None:
        torch._dynamo.utils.counters.clear()
        trained(torch.ones(2))
        seen.append(dict(torch._dynamo.utils.counters["frames"]))

    seen: list[dict[str, int]] = []
    accounted(program)
    torch._dynamo.reset()
    program()

    assert seen[0] == seen[1]
    assert seen[0]["total"] > 0


SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda pair: (pair[0], sum(pair))),
    max_size=8,
)


@given(SPANS, SPANS)
def test_spans_are_cut_out_of_others_moment_by_moment(spans: list[Span], cut: list[Span]) -> None:
    def moments(of: list[Span]) -> set[int]:
        return {at for begin, end in of for at in range(begin, end)}

    left = without(united(spans), united(cut))

    assert moments(left) == moments(spans) - moments(cut)
    assert length(left) == len(moments(left))


def test_what_is_tuned_when_it_runs_first_is_in_no_usual_step() -> None:
    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        left = [PAUSE_S]

        def runs(*given: torch.Tensor) -> object:
            time.sleep(left.pop() if left else 0)
            return graph.forward(*given)

        return runs

    def program() -> None:
        _, step = model()
        compiled = torch.compile(lambda x: x + 1, backend=backend)
        step()
        step()
        step()
        compiled(torch.ones(2))
        step()
        step()

    assert accounted(program)[Phase.BESIDE_COMPILING] >= 0.8 * PAUSE_S


def test_where_every_step_compiles_none_is_usual_and_nothing_is_told_from_the_steps() -> None:
    def program() -> None:
        _, step = model()
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        step()
        torch.compile(lambda x: x + 2, backend="eager")(torch.ones(2))
        step()

    assert Phase.BESIDE_COMPILING not in accounted(program)


@pytest.mark.parametrize(
    ("begin", "end", "lies"),
    [(0, 3, True), (0, 2, False), (3, 4, True), (4, 9, False), (7, 9, False), (9, 11, True)],
)
def test_spans_that_touch_do_not_overlap(begin: int, end: int, lies: bool) -> None:
    assert overlaps([(2, 4), (10, 12)], begin, end) is lies
