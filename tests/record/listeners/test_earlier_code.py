"""Code that Dynamo compiled before kgprof listened: it is counted where it runs, and nothing is
passed over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
import torch

import kgprof
from kgprof.errors import EXIT_GATE_FAILED, EXIT_INCONCLUSIVE
from kgprof.gate import judge
from kgprof.model import EARLIER_CODE, Unavailable
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.earlier_code import EarlierCode
from kgprof.watching.pytest_plugin import Guard
from tests.analysis.recordings import run
from tests.gate.gated import FUSED, finding, profile, settings

ROWS = torch.ones(3, 4)


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def splits(rows: torch.Tensor) -> torch.Tensor:
    doubled = rows * 2
    torch._dynamo.graph_break()
    return doubled.sum(-1)


class Whole(torch.nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.sin() + 1


def compiled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return torch.compile(function, backend="eager")


def warm(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    made = compiled(function)
    made(ROWS)
    return made


def watched(step: Callable[[], object], steps: int = 3) -> kgprof.watching.watch.Watch:
    seen = kgprof.watch(step)
    for _ in range(steps):
        seen()
    seen.stop()
    return seen


def earlier(seen: kgprof.watching.watch.Watch) -> list[str]:
    return [words for words in seen.unavailable if EARLIER_CODE in words]


# ---------------------------------------------------------------- a watch that begins late


def test_code_from_before_is_named_with_its_calls_and_its_break_beside_what_compiles_now() -> None:
    before, now = warm(splits), compiled(torch.cos)

    seen = watched(lambda: now(before(ROWS)))

    (words,) = earlier(seen)
    assert "splits (test_earlier_code.py:" in words
    assert "with 1 graph break; that code ran in 3 calls. Call torch._dynamo.reset() first" in words


def test_a_module_from_before_is_named_and_has_no_break() -> None:
    before = torch.compile(Whole(), backend="eager")
    before(ROWS)

    (words,) = earlier(watched(lambda: before(ROWS), steps=2))

    assert "forward (test_earlier_code.py:" in words
    assert "graph break" not in words
    assert "ran in 2 calls" in words


def test_many_functions_from_before_are_cut_to_two() -> None:
    def first(rows: torch.Tensor) -> torch.Tensor:
        return rows + 1

    def second(rows: torch.Tensor) -> torch.Tensor:
        return rows - 1

    ready = [warm(function) for function in (first, second, splits)]

    (words,) = earlier(watched(lambda: [each(ROWS) for each in ready]))

    assert "and 1 more: compiled before kgprof listened" in words


def test_code_from_before_that_no_step_runs_is_not_spoken_of() -> None:
    warm(splits)
    now = compiled(torch.tan)

    assert watched(lambda: now(ROWS)).unavailable == ()


def test_after_a_reset_everything_is_seen() -> None:
    before = warm(splits)
    torch._dynamo.reset()

    seen = watched(lambda: before(ROWS))

    assert seen.unavailable == ()
    assert [each.rule for each in seen.findings] == ["KGP101"]


def test_the_counters_are_taken_off_again() -> None:
    before, calls = warm(splits), CallIndex()
    graphs = {name: value for name, value in globals().items() if name.startswith("__compiled_fn")}

    with EarlierCode(calls) as source, calls.call():
        before(ROWS)
        assert any(globals()[name] is not value for name, value in graphs.items())

    assert list(source.ran_unseen())
    assert all(globals()[name] is value for name, value in graphs.items())


# ---------------------------------------------------------------- who reads it


@pytest.mark.parametrize(
    "demand", ["no_graph_breaks", "no_recompiles", "no_mutation", "no_aliasing", "no_syncs"]
)
def test_a_guard_does_not_pass_over_code_from_before(demand: str) -> None:
    before, now = warm(Whole().forward), compiled(torch.exp)
    guard = Guard()
    step = guard(lambda: now(before(ROWS)).add(1))
    for _ in range(3):
        step()
    guard.stop()

    with pytest.raises(AssertionError, match=r"not observed[\s\S]*compiled before kgprof listened"):
        getattr(guard, demand)()


UNSEEN = Unavailable(capture=EARLIER_CODE, why="f (job.py:3): compiled before kgprof listened")


def test_a_budget_that_holds_as_far_as_was_seen_is_inconclusive() -> None:
    one = run(FUSED)
    partly = msgspec.structs.replace(
        one, compile=msgspec.structs.replace(one.compile, capture_unavailable=(UNSEEN,))
    )

    judged = judge(profile(runs=(partly,)), settings())

    assert judged.exit_code == EXIT_INCONCLUSIVE
    assert "compiled before kgprof listened" in judged.verdict.text


def test_without_a_compilation_it_is_inconclusive_and_not_empty() -> None:
    one = run(FUSED, compiled=0)
    none = msgspec.structs.replace(
        one, compile=msgspec.structs.replace(one.compile, capture_unavailable=(UNSEEN,))
    )

    judged = judge(profile(runs=(none,)), settings())

    assert judged.exit_code == EXIT_INCONCLUSIVE
    assert "nothing was compiled" not in judged.verdict.text


def test_a_break_that_was_seen_fails_all_the_same() -> None:
    one = run(FUSED)
    partly = msgspec.structs.replace(
        one, compile=msgspec.structs.replace(one.compile, capture_unavailable=(UNSEEN,))
    )

    assert judge(profile(finding(), runs=(partly,)), settings()).exit_code == EXIT_GATE_FAILED
