"""A user's workload runs in every mode, and its runs are compared fairly."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kgprof.errors import UsageError
from kgprof.model import Agreement, Alternative, Evaluation, RunAgreement, RunKey, Skipped, WorkUnit
from kgprof.workloads import loading
from kgprof.workloads.protocol import (
    BufferSession,
    ComparableWorkload,
    EvaluationSession,
    ResultSession,
    Session,
    Tick,
    WeighedWorkload,
)
from kgprof.workloads.user import UserWorkload, as_workload, compare, named_arrays

CPU = torch.device("cpu")


def run(strategy: str, mode: str = "as-is") -> RunKey:
    return RunKey(strategy=strategy, mode=mode)


def three() -> torch.Tensor:
    """The number three.

    In a tensor.
    """
    return torch.full((2,), 3.0)


class Job:
    """Two steps an evaluation."""

    def step(self) -> None: ...

    def evaluate(self, tick: Tick) -> None:
        tick()
        tick()


def strategies(baseline: str | None = None, **found: object) -> UserWorkload:
    workload = as_workload(SimpleNamespace(strategies=found, baseline=baseline), name="file.py:it")
    assert isinstance(workload, UserWorkload)
    return workload


# ---------------------------------------------------------------- what its work is counted in


def unit_of(found: object, module: object = None) -> WorkUnit:
    workload = as_workload(found, name="file.py:it", module=module)
    assert isinstance(workload, UserWorkload)
    return workload.unit


def test_a_unit_is_declared_on_the_object_or_for_a_function_in_its_module() -> None:
    module = SimpleNamespace(unit="query", units_per_step=lambda: 8)
    tokens = WorkUnit(name="token", plural="tokens", per_step=4096)

    assert (
        unit_of(SimpleNamespace(strategies={"a": three}, unit="token", units_per_step=4096))
        == tokens
    )
    assert unit_of(three, module) == WorkUnit(name="query", plural="queries", per_step=8)
    assert (
        unit_of(Job(), module) == unit_of(three, SimpleNamespace(unit=torch.ones(2))) == WorkUnit()
    )


@pytest.mark.parametrize("per_step", [0, -4, 4.5, True, "many", lambda: 0, lambda: 1 // 0])
def test_units_of_a_step_that_are_no_number_are_refused(per_step: object) -> None:
    with pytest.raises(UsageError, match="units_per_step"):
        unit_of(three, SimpleNamespace(unit="token", units_per_step=per_step))


@pytest.mark.parametrize("unit", [7, "", "4 tokens", "a\nb", "step", ["token"]])
def test_a_unit_that_is_no_word_is_refused(unit: object) -> None:
    with pytest.raises(UsageError, match="unit"):
        unit_of(SimpleNamespace(strategies={"a": three}, unit=unit, units_per_step=4))


def evaluated(returned: object, **declared: object) -> Evaluation | None:
    job = Job()
    job.evaluate = lambda tick: (tick(), tick(), returned)[-1]  # type: ignore[method-assign]
    workload = as_workload(SimpleNamespace(strategies={"job": job}, **declared), name="file.py:it")
    session = workload.prepare(run("job"), CPU)
    assert isinstance(session, EvaluationSession)
    return session.evaluate(lambda: None)


@pytest.mark.parametrize(
    ("returned", "declared", "units"),
    [
        (12, {"unit": "token"}, 12),
        ({"units": 12}, {}, 12),
        (None, {"units_per_step": 5}, 10),
        ({"loss": 0.5}, {"units_per_step": 5}, 10),
        ({"loss": 0.5}, {}, 0),
    ],
)
def test_a_job_counts_what_it_returns_or_its_steps(
    returned: object, declared: dict[str, object], units: int
) -> None:
    found = evaluated(returned, **declared)

    assert found is not None
    assert (found.units, found.steps, found.finished) == (units, 2, units)


def test_a_job_that_says_nothing_counts_nothing() -> None:
    assert evaluated(None) is evaluated(3) is evaluated(torch.ones(1), unit="token") is None


def test_metrics_carry_what_is_known_about_them_and_one_that_is_no_number_is_a_fault() -> None:
    given = {"value": torch.tensor(91.0), "unit": "%", "better": "higher", "tolerance": 0.5}

    found = evaluated({"accuracy": given, "loss": 2.0, "norm": float("nan")})

    assert found is not None
    accuracy, loss = found.metrics
    assert (accuracy.value, accuracy.unit, accuracy.better, accuracy.tolerance) == (
        91.0,
        "%",
        "higher",
        0.5,
    )
    assert (loss.value, loss.unit, loss.better, loss.tolerance) == (
        2.0,
        "",
        "",
        pytest.approx(2e-4),
    )
    assert [(tally.name, tally.kind) for tally in found.tallies] == [("norm is nan", "fault")]


@pytest.mark.parametrize(
    "returned",
    [
        {"units": 0},
        {"units": 2.5},
        {"loss": "low"},
        {"loss": torch.ones(2)},
        {"loss": {"unit": "%"}},
        {"loss": {"value": 1.0, "better": "up"}},
        {"loss": {"value": 1.0, "lower": True}},
    ],
)
def test_a_count_or_a_metric_that_is_none_is_refused(returned: object) -> None:
    with pytest.raises(UsageError, match="evaluate"):
        evaluated(returned)


# ---------------------------------------------------------------- what it offers


def test_a_function_is_one_strategy_in_every_mode() -> None:
    (offered,) = as_workload(three, name="file.py:three").strategies()

    assert offered.name == "three"
    assert offered.modes == (
        "as-is",
        "eager",
        "default",
        "reduce-overhead",
        "max-autotune",
        "max-autotune-no-cudagraphs",
    )
    assert offered.summary == "The number three."


def test_a_job_that_steps_itself_cannot_be_wrapped() -> None:
    (offered,) = strategies(job=Job()).strategies()

    assert offered.modes == ("as-is", "eager")


def test_by_default_everything_runs_as_it_stands() -> None:
    assert strategies(a=three, b=three).default_runs(CPU) == [run("a"), run("b")]


@pytest.mark.parametrize(
    ("declared", "runs", "expected"),
    [
        (None, [run("a"), run("b")], None),
        (None, [run("a", "default"), run("a", "eager")], run("a", "eager")),
        ("b", [run("a"), run("b")], run("b")),
        ("b", [run("a", "eager"), run("b", "default"), run("b", "eager")], run("b", "eager")),
        ("b", [run("a", "eager")], None),
    ],
)
def test_the_baseline_is_the_declared_strategy_or_the_eager_run(
    declared: str | None, runs: list[RunKey], expected: RunKey | None
) -> None:
    assert strategies(declared, a=three, b=three).baseline(runs) == expected


def test_the_pairs_to_weigh_are_the_declared_ones() -> None:
    declared = SimpleNamespace(
        strategies={"guarded": three, "always": three}, alternatives={"guarded": "always"}
    )

    workload = as_workload(declared, name="file.py:it")

    assert isinstance(workload, WeighedWorkload)
    assert workload.alternatives() == (Alternative(guarded="guarded", always="always"),)
    assert strategies(a=three).alternatives() == ()


def test_only_runs_that_can_be_compared_are() -> None:
    workload = strategies("a", a=three, b=three)

    assert isinstance(workload, ComparableWorkload)
    assert loading.is_comparable(workload, [run("a"), run("b")])
    assert not loading.is_comparable(workload, [run("a")])
    assert not loading.is_comparable(strategies(a=three, b=three), [run("a"), run("b")])


async def _in_a_loop() -> int:
    return 3


def _one_by_one() -> Iterator[int]:
    yield 3


async def _awaited_one_by_one() -> AsyncIterator[int]:
    yield 3


@pytest.mark.parametrize("step", [_in_a_loop, _one_by_one, _awaited_one_by_one])
def test_a_step_whose_call_runs_nothing_is_refused(step: Callable[[], object]) -> None:
    for found in (step, SimpleNamespace(step=step), functools.partial(step)):
        with pytest.raises(UsageError, match="a call of it runs nothing of it"):
            as_workload(found, name="file.py:it")


def test_a_step_that_leaves_its_work_to_a_thread_is_refused() -> None:
    going_on = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        workload = as_workload(lambda: pool.submit(going_on.wait), name="file.py:it")
        (strategy,) = (plan.name for plan in workload.strategies())
        session = workload.prepare(run(strategy), torch.device("cpu"))
        with pytest.raises(UsageError, match="returned a Future, whose work is not done"):
            session.step()
        going_on.set()


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"strategies": {}}, "strategies is empty"),
        ({"strategies": ["a"]}, "strategies is a list, not a mapping"),
        ({"strategies": {"a": three, "b": 3}}, "strategy 'b' is a int, which cannot be called"),
        (
            {"strategies": {"a": three}, "baseline": "b"},
            "baseline 'b' is not one of its strategies",
        ),
        (
            {"strategies": {"a": three}, "alternatives": {"a": "b"}},
            "alternatives name 'b', which is not one of its strat",
        ),
        (
            {"strategies": {"a": three}, "alternatives": {"a": ["a"]}},
            "alternatives name .'a'., which is not one of its",
        ),
        (
            {"strategies": {"a": three}, "alternatives": ["a"]},
            "alternatives is a list, not a mapping",
        ),
        (
            {"strategies": {"a": SimpleNamespace(step=lambda x: x)}},
            "cannot be called without arguments",
        ),
    ],
)
def test_strategies_that_cannot_run_are_refused(found: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        as_workload(SimpleNamespace(**found), name="file.py:it")


def test_an_object_with_the_whole_protocol_is_taken_as_it_is() -> None:
    found = SimpleNamespace(strategies=list, default_runs=list, baseline=list, prepare=list)

    assert as_workload(found, name="x") is found


# ---------------------------------------------------------------- how it runs


def test_a_function_is_a_session_whose_result_is_its_first_steps() -> None:
    numbers = iter([torch.ones(1), torch.zeros(1)])
    session = strategies(a=lambda: next(numbers)).prepare(run("a"), CPU)

    session.step()
    session.step()

    assert isinstance(session, Session)
    assert isinstance(session, ResultSession)
    assert not isinstance(session, EvaluationSession)
    assert session.result()["result"].tolist() == [1.0]


def test_a_job_is_an_evaluation_session() -> None:
    session = strategies(job=Job()).prepare(run("job"), CPU)
    ticks: list[int] = []

    assert isinstance(session, EvaluationSession)
    session.evaluate(lambda: ticks.append(1))

    assert len(ticks) == 2


def test_a_result_of_its_own_goes_before_what_a_step_returned() -> None:
    job = SimpleNamespace(step=three, result=lambda: {"total": [1, 2]})
    session = strategies(a=job).prepare(run("a"), CPU)

    session.step()

    assert isinstance(session, ResultSession)
    assert {name: array.tolist() for name, array in session.result().items()} == {"total": [1, 2]}


def test_the_modes_compile_what_they_say() -> None:
    # In a process of its own: mode eager switches torch.compile off for good.
    program = """
import sys, torch
from kgprof.model import RunKey
from kgprof.workloads.user import as_workload
from torch._dynamo.utils import counters
seen = []
def plain(): return torch.ones(3) + 1
compiled = torch.compile(plain, backend=lambda graph, inputs: (seen.append(graph), graph.forward)[1])
real = torch.compile
torch.compile = lambda fn, mode: (seen.append(mode), real(fn, backend="eager"))[1]
workload = as_workload(compiled, name="x:compiled")
def graphs(mode, fn=workload):
    seen.clear()
    fn.prepare(RunKey(strategy=fn.strategies()[0].name, mode=mode), torch.device("cpu")).step()
    return len(seen), seen[0] if seen and isinstance(seen[0], str) else ""
assert graphs("as-is") == (1, ""), seen
assert graphs("reduce-overhead", as_workload(plain, name="x:plain")) == (1, "reduce-overhead"), seen
torch._dynamo.reset()
assert graphs("eager") == (0, ""), seen
"""  # noqa: E501
    subprocess.run([sys.executable, "-c", program], check=True)


# ---------------------------------------------------------------- results


def test_tensors_arrays_and_numbers_are_found_wherever_they_are() -> None:
    value = {"a": [torch.ones(2), (3, True)], "b": np.zeros(1), "text": "left out", "none": None}

    found = {name: array.tolist() for name, array in named_arrays(value)}

    assert found == {
        "result['a'][0]": [1.0, 1.0],
        "result['a'][1][0]": 3,
        "result['a'][1][1]": True,
        "result['b']": [0.0],
    }


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2, requires_grad=True),
        torch.eye(2).to_sparse(),
        torch.tensor([1 + 2j]).conj(),
        torch.ones(2, 3).t(),
        torch.ones((), dtype=torch.bool),
    ],
)
def test_every_kind_of_tensor_becomes_an_array(tensor: torch.Tensor) -> None:
    ((name, array),) = named_arrays(tensor)

    assert name == "result"
    dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    assert array.tolist() == dense.resolve_conj().tolist()


def test_a_result_is_not_changed_by_a_later_step() -> None:
    buffer = torch.zeros(2)
    ((_, array),) = named_arrays(buffer)

    buffer += 1

    assert array.tolist() == [0.0, 0.0]


def judged(found: object, expected: object) -> RunAgreement:
    return compare(dict(named_arrays(found)), dict(named_arrays(expected)))


@pytest.mark.parametrize(
    ("found", "expected", "differing"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + 1e-6]), 0),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + 1e-4]), 1),
        (
            torch.tensor([1.0], dtype=torch.float64),
            torch.tensor([1.0 + 1e-6], dtype=torch.float64),
            1,
        ),
        (
            torch.tensor([1.0], dtype=torch.bfloat16),
            torch.tensor([1.0078125], dtype=torch.bfloat16),
            0,
        ),
        (torch.tensor([1.0], dtype=torch.float16), torch.tensor([1.0098], dtype=torch.float16), 1),
        (torch.tensor([float("nan"), float("inf")]), torch.tensor([float("nan"), float("inf")]), 0),
        (torch.tensor([float("inf")]), torch.tensor([float("-inf")]), 1),
        (torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4]), 1),
        (torch.tensor([True]), torch.tensor([False]), 1),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 2j]), 1),
        (torch.ones(2), torch.ones(3), 3),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), 2),
        ((torch.ones(2), torch.ones(1)), (torch.ones(2),), 1),
        (torch.ones(0), torch.ones(0), 0),
    ],
)
def test_results_are_equal_within_assert_closes_tolerance(
    found: object, expected: object, differing: int
) -> None:
    agreement = judged(found, expected)

    assert agreement.differing == differing
    assert agreement.verdict == ("different" if differing else "equal")


def test_the_tolerances_are_torchs_own() -> None:
    from kgprof.workloads.user import TOLERANCES

    for name, tolerance in TOLERANCES.items():
        assert torch.testing._comparison.default_tolerances(getattr(torch, name)) == tolerance


def test_the_verdict_says_tolerance_and_largest_difference() -> None:
    assert judged(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5])) == RunAgreement(
        verdict="different",
        compared=2,
        differing=1,
        near_ties=0,
        reference_compared=0,
        reference_differing=0,
        reference_near_ties=0,
        note="float32 within relative 1.3e-06 and absolute 1e-05, largest difference 0.5",
    )


def results_of(
    **functions: object,
) -> tuple[UserWorkload, Mapping[RunKey, Mapping[str, np.ndarray]]]:
    workload = strategies(next(iter(functions)), **functions)
    found = {}
    for name in functions:
        session = workload.prepare(run(name), CPU)
        session.step()
        assert isinstance(session, ResultSession)
        found[run(name)] = session.result()
    return workload, found


def test_each_run_is_compared_with_the_baseline() -> None:
    workload, results = results_of(a=three, same=three, other=lambda: three() + 1)

    agreement = workload.agreement(results, run("a"))

    assert isinstance(agreement, Agreement)
    verdicts = {key.strategy: a.verdict for key, a in agreement.runs if isinstance(a, RunAgreement)}
    assert verdicts == {"a": "equal", "same": "equal", "other": "different"}


@pytest.mark.parametrize("draw", [lambda: torch.rand(2), lambda: np.random.rand(2)])
def test_steps_that_draw_random_numbers_are_not_called_different(draw: object) -> None:
    workload, results = results_of(a=three, random=draw)

    agreement = dict(workload.agreement(results, run("a")).runs)

    reason = "its steps draw random numbers, and compiled code may draw others from the same seed"
    assert agreement[run("random")] == Skipped(reason=reason)


def test_without_the_baselines_result_there_is_no_verdict() -> None:
    workload, results = results_of(a=three, b=three)
    left = {key: arrays for key, arrays in results.items() if key != run("a")}

    (judgement,) = [found for _, found in workload.agreement(left, run("a")).runs]

    assert judgement == Skipped(reason="the baseline left no result to compare with")


def test_a_step_that_returns_nothing_leaves_no_result() -> None:
    session = strategies(a=lambda: None).prepare(run("a"), CPU)
    session.step()

    assert isinstance(session, ResultSession)
    assert session.result() == {}


# ---------------------------------------------------------------- declared buffers


class Keeps:
    """A strategy whose state lives from step to step."""

    def __init__(self) -> None:
        self.state = torch.zeros(3)

    def step(self) -> None:
        self.state = self.state + 1


class KeepsByMethod(Keeps):
    def buffers(self) -> dict[str, object]:
        return {"state": self.state, "no tensor": 3}


class KeepsByMapping(Keeps):
    def __init__(self) -> None:
        super().__init__()
        self.buffers = {"state": self.state}


class KeepsAsModule(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(3))

    def step(self) -> None:
        self.state.add_(1)


def prepared(strategy: object) -> Session:
    workload = as_workload(strategy, name="w:strategy")
    (run,) = workload.default_runs(torch.device("cpu"))
    return workload.prepare(run, torch.device("cpu"))


@pytest.mark.parametrize("kind", [KeepsByMethod, KeepsByMapping, KeepsAsModule])
def test_declared_buffers_are_the_sessions(kind: type) -> None:
    strategy = kind()
    session = prepared(strategy)
    assert isinstance(session, BufferSession)

    session.step()

    found = session.buffers()
    assert list(found) == ["state"]
    assert found["state"] is (
        strategy.buffers["state"] if kind is KeepsByMapping else strategy.state
    )


@pytest.mark.parametrize("strategy", [Keeps(), torch.nn.Identity, lambda: None])
def test_a_session_of_a_strategy_that_declares_none_has_none(strategy: object) -> None:
    if isinstance(strategy, type):
        strategy = type("Step", (strategy,), {"step": lambda self: None})()

    assert not isinstance(prepared(strategy), BufferSession)


def test_buffers_that_are_no_mapping_are_the_users_error() -> None:
    strategy = KeepsByMapping()
    strategy.buffers = [strategy.state]  # type: ignore[assignment]
    session = prepared(strategy)

    with pytest.raises(UsageError, match="buffers is a list, not a mapping from name to tensor"):
        session.buffers()  # type: ignore[attr-defined]
