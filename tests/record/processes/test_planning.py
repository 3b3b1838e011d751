"""The plan runs what was asked for, and refuses what cannot run before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from kgprof.errors import UsageError
from kgprof.model import Alternative, Options, RunKey, Skipped, StrategyPlan
from kgprof.record.processes import planning
from kgprof.record.processes.planning import alternatives_of, refuse_without_compiler, select_runs
from kgprof.workloads.protocol import Session

CPU = torch.device("cpu")
NO_COMPILER = Skipped(reason="No working C++ compiler found")


class Offer:
    """Strategies in modes, and a default choice among them."""

    name = "offer"

    def strategies(self) -> Sequence[StrategyPlan]:
        return [
            StrategyPlan(name="reference", modes=("eager",)),
            StrategyPlan(name="batched", modes=("eager", "default")),
            StrategyPlan(name="fused", modes=("default", "eager", "reduce-overhead")),
        ]

    def default_runs(self, device: torch.device) -> Sequence[RunKey]:
        return [
            RunKey(strategy="batched", mode="eager"),
            RunKey(strategy="batched", mode="default"),
        ]

    def baseline(self, runs: Sequence[RunKey]) -> RunKey | None:
        return None

    def prepare(self, run: RunKey, device: torch.device) -> Session:
        raise NotImplementedError


def chosen(strategies: tuple[str, ...] = (), modes: tuple[str, ...] = ()) -> list[str]:
    return [
        run.slug for run in select_runs(Offer(), Options(strategies=strategies, modes=modes), CPU)
    ]


def runs(*slugs: str) -> list[RunKey]:
    return [RunKey(strategy=slug.partition(".")[0], mode=slug.partition(".")[2]) for slug in slugs]


@pytest.mark.parametrize(
    ("strategies", "modes", "expected"),
    [
        ((), (), ["batched.eager", "batched.default"]),
        (("batched",), (), ["batched.eager", "batched.default"]),  # its usual modes
        # not usual: their first mode
        (("fused", "reference"), (), ["fused.default", "reference.eager"]),
        ((), ("eager",), ["batched.eager"]),
        # what has none of them stays out
        ((), ("reduce-overhead", "default"), ["batched.default"]),
        (("fused", "fused"), ("eager", "default"), ["fused.eager", "fused.default"]),
    ],
)
def test_what_is_left_open_is_the_workloads_choice(
    strategies: tuple[str, ...], modes: tuple[str, ...], expected: list[str]
) -> None:
    assert chosen(strategies, modes) == expected


@pytest.mark.parametrize(
    ("strategies", "modes", "message", "hint"),
    [
        (
            ("fusd",),
            (),
            "offer has no strategy 'fusd'; did you mean 'fused'?",
            "it has: reference, batched, fused",
        ),
        (("zzz",), (), "offer has no strategy 'zzz'", "it has: reference, batched, fused"),
        (
            (),
            ("egaer",),
            "offer has no mode 'egaer'; did you mean 'eager'?",
            "it has: eager, default, reduce-overhead",
        ),
        (
            ("reference",),
            ("default",),
            "strategy 'reference' does not run in mode 'default'",
            "it runs in: eager",
        ),
        (
            (),
            ("reduce-overhead",),
            "no default strategy has mode reduce-overhead",
            "name the strategy with --strategy",
        ),
    ],
)
def test_what_cannot_run_is_refused(
    strategies: tuple[str, ...], modes: tuple[str, ...], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(strategies, modes)

    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_without_a_compiler_nothing_is_refused_that_could_still_run() -> None:
    refuse_without_compiler(runs("fused.eager", "fused.default"), CPU, NO_COMPILER)
    refuse_without_compiler(runs("fused.default"), torch.device("cuda"), NO_COMPILER)
    refuse_without_compiler(runs("fused.default"), CPU, "g++")


def test_without_a_compiler_a_plan_of_compiled_runs_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"no C\+\+ compiler.*No working C\+\+ compiler found"
    ) as caught:
        refuse_without_compiler(runs("fused.default", "batched.max-autotune"), CPU, NO_COMPILER)

    assert "--mode eager" in caught.value.hint


@pytest.mark.parametrize("name", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_compiled_runs_are_refused_where_compilation_is_off(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")

    planning.refuse_if_compilation_is_off(runs("fused.eager", "step.as-is"))
    with pytest.raises(
        UsageError,
        match=rf"{name}=1 is set, so torch.compile would compile nothing in fused.default",
    ):
        planning.refuse_if_compilation_is_off(runs("fused.eager", "fused.default"))


class Weighed(Offer):
    """With one pair to weigh."""

    def __init__(self, guarded: str, always: str) -> None:
        self.pair = Alternative(guarded=guarded, always=always)

    def alternatives(self) -> Sequence[Alternative]:
        return [self.pair]


def test_the_pairs_that_a_workload_declares_are_its_strategies() -> None:
    declared = Weighed("batched", "fused")

    assert alternatives_of(declared) == (declared.pair,)
    assert alternatives_of(Offer()) == ()
    with pytest.raises(
        UsageError, match="alternatives of offer: no strategy 'fusde'; did you mean 'fused'"
    ) as refused:
        alternatives_of(Weighed("batched", "fusde"))
    assert refused.value.hint == "it has: reference, batched, fused"
