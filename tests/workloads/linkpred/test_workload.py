"""The door that the recorder uses: what is offered, what runs, and how results are judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from kgprof.errors import InputError, UsageError
from kgprof.model import Agreement, RunAgreement, RunKey, Skipped
from kgprof.workloads.linkpred import agreement
from kgprof.workloads.linkpred.agreement import Judge
from kgprof.workloads.linkpred.proof import FAILED, PROVED, UNFINISHED
from kgprof.workloads.linkpred.strategies.fused import Fused
from kgprof.workloads.linkpred.workload import LinkPrediction, build
from kgprof.workloads.protocol import ComparableWorkload, DivisibleWorkload
from tests.workloads.linkpred.evaluations import (
    CPU,
    TREE,
    evaluate,
    one_thread,
    reference,
    workload,
)

BATCHED = RunKey(strategy="batched", mode="eager")
FUSED = RunKey(strategy="fused", mode="eager")
COND = RunKey(strategy="torch_cond", mode="eager")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with one_thread():
        yield


def small() -> LinkPrediction:
    return workload("--batch-size", "64")


# ---------------------------------------------------------------- what is offered


def test_the_workload_is_comparable_and_named() -> None:
    assert isinstance(small(), ComparableWorkload)
    assert small().name == "linkpred"


def test_what_is_offered() -> None:
    every = ("eager", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

    assert {plan.name: plan.modes for plan in small().strategies()} == {
        "sequential": every,
        "batched": every,
        "recycled": every,
        "torch_cond": every,
        "fused": every,
        "stepped": every,
        "looped": ("eager", "default"),
        "levels": ("eager", "default"),
        "reference": ("eager",),
    }
    assert all(plan.summary.endswith(".") for plan in small().strategies())


def test_what_runs_by_default_on_any_device() -> None:
    for device in ("cpu", "cuda"):
        assert [run.slug for run in small().default_runs(torch.device(device))] == [
            "batched.eager",
            "batched.default",
            "torch_cond.eager",
            "torch_cond.default",
            "fused.eager",
            "fused.default",
        ]


@pytest.mark.parametrize(
    ("runs", "baseline"),
    [
        (["fused.default", "batched.default", "fused.eager", "batched.eager"], "batched.eager"),
        (["fused.default", "torch_cond.eager", "fused.eager"], "torch_cond.eager"),
        (["fused.default", "batched.default"], "fused.default"),
        ([], None),
    ],
)
def test_the_baseline(runs: list[str], baseline: str | None) -> None:
    keys = [RunKey(strategy=slug.partition(".")[0], mode=slug.partition(".")[2]) for slug in runs]

    found = small().baseline(keys)

    assert (found.slug if found else None) == baseline


# ---------------------------------------------------------------- what is refused


def test_a_later_strategy_is_not_in_this_version() -> None:
    with pytest.raises(UsageError, match="'triton' is not supported in this version"):
        small().prepare(RunKey(strategy="triton", mode="eager"), CPU)
    with pytest.raises(UsageError, match="'triton' is not supported in this version"):
        small().check_strategy("triton")


def test_an_unknown_strategy_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="no strategy 'fusd'; did you mean 'fused'\\?"):
        small().prepare(RunKey(strategy="fusd", mode="eager"), CPU)


def test_reference_is_not_compiled() -> None:
    with pytest.raises(UsageError, match="'reference' does not run in mode 'default'"):
        small().prepare(RunKey(strategy="reference", mode="default"), CPU)


def test_weights_that_do_not_fit_are_one_clear_error(tmp_path: Path) -> None:
    torch.save({"predicate.weight": torch.zeros(2, 2)}, tmp_path / "policy.pt")
    of = build([*TREE, "--policy", str(tmp_path / "policy.pt")], 0)

    with pytest.raises(InputError, match="does not fit this policy"):
        of.prepare(FUSED, CPU)


# ---------------------------------------------------------------- what runs


def test_weights_from_a_file_are_used(tmp_path: Path) -> None:
    torch.save(workload(seed=0).policy().state_dict(), tmp_path / "policy.pt")
    same_graph = LinkPrediction(
        replace(small().options, policy=tmp_path / "policy.pt"),
        small().graph,
        small().candidates,
        seed=1,
    )

    found = evaluate(same_graph, Fused).found

    assert found.outcome.tolist() == reference(small()).outcome.tolist()


def test_reference_runs_the_whole_candidate_set() -> None:
    session = small().prepare(RunKey(strategy="reference", mode="eager"), CPU)
    session.step()

    evaluation = session.count(lambda: None)

    assert (evaluation.steps, evaluation.unfinished) == (320, 0)
    assert evaluation.metrics == evaluate(small(), Fused).evaluation.metrics
    assert session.result()["outcome"].tolist() == reference(small()).outcome.tolist()


def test_the_settings_say_what_was_evaluated() -> None:
    settings = small().settings()

    assert settings["graph"] == "family-tree:120"
    assert settings["caps"].startswith("4 atoms, 2 children (tensor 2 wide), ")
    assert settings["corruptions evaluated"] == "3 per side"
    expected = {
        "batch_size": "64",
        "depth": "5",
        "dtype": "float64",
        "seed": "0",
        "queries evaluated": "40",
    }
    assert {name: settings[name] for name in expected} == expected
    assert all(isinstance(value, str) for value in settings.values())


def test_the_settings_of_reference_say_the_dtype_that_it_computes_in() -> None:
    of = workload("--batch-size", "64", "--dtype", "float32")

    dtypes = {}
    for run in (RunKey(strategy="reference", mode="eager"), RunKey(strategy="fused", mode="eager")):
        session = of.prepare(run, CPU)
        dtypes[run.strategy] = session.evaluate(lambda: None).settings["dtype"]

    assert dtypes == {"reference": "float64", "fused": "float32"}


@pytest.mark.parametrize(("args", "precision"), [((), "highest"), (("--allow-tf32",), "high")])
def test_tf32_is_off_unless_allowed(args: tuple[str, ...], precision: str) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        workload(*args).prepare(FUSED, CPU)
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)


# ---------------------------------------------------------------- how results are judged


def right() -> dict[str, np.ndarray]:
    truth = reference(small())
    return {"outcome": truth.outcome.copy(), "steps": truth.steps.copy()}


def judged(
    of: LinkPrediction, **results: dict[str, np.ndarray]
) -> dict[str, RunAgreement | Skipped]:
    keys = {"batched": BATCHED, "fused": FUSED, "cond": COND}
    answer = of.agreement({keys[name]: arrays for name, arrays in results.items()}, BATCHED)
    assert answer.baseline == BATCHED
    return {key.strategy: verdict for key, verdict in answer.runs}


def test_equal_results_are_equal_to_the_reference_too() -> None:
    verdicts = judged(small(), batched=right(), fused=right())

    for verdict in verdicts.values():
        assert isinstance(verdict, RunAgreement)
        assert (verdict.verdict, verdict.compared, verdict.differing) == ("equal", 320, 0)
        assert (verdict.reference_differing, verdict.near_ties, verdict.reference_near_ties) == (
            0,
            0,
            0,
        )
        assert verdict.reference_compared >= 200
        assert "float64" in verdict.note


@pytest.mark.parametrize("array", ["outcome", "steps"])
def test_one_other_class_or_number_of_steps_is_different_and_is_held_to_the_reference(
    array: str,
) -> None:
    wrong = right()
    row = int(np.flatnonzero(wrong["outcome"] == FAILED)[-1])
    wrong[array][row] += 1

    verdict = judged(small(), batched=right(), fused=wrong)["fused"]

    assert isinstance(verdict, RunAgreement)
    assert (verdict.verdict, verdict.differing, verdict.reference_differing) == ("different", 1, 1)


def test_runs_that_agree_with_each_other_and_not_with_the_reference_are_different() -> None:
    wrong = right()
    wrong["outcome"][wrong["outcome"] == PROVED] = FAILED

    verdict = judged(small(), batched=wrong, fused=wrong)["fused"]

    assert isinstance(verdict, RunAgreement)
    assert (verdict.verdict, verdict.differing) == ("different", 0)
    assert verdict.reference_differing > 0


def test_unfinished_candidates_are_left_out_and_counted() -> None:
    cut = right()
    cut["outcome"][100:], cut["steps"][100:] = UNFINISHED, 0

    verdict = judged(small(), batched=right(), fused=cut)["fused"]

    assert isinstance(verdict, RunAgreement)
    assert (verdict.verdict, verdict.compared, verdict.differing) == ("equal", 100, 0)
    assert "220 unfinished candidates are not compared" in verdict.note
    assert verdict.reference_compared <= 100


def test_nothing_finished_is_nothing_to_compare() -> None:
    none = {"outcome": np.zeros(320, dtype=np.int8), "steps": np.zeros(320, dtype=np.int32)}

    assert judged(small(), batched=right(), fused=none)["fused"] == Skipped(
        reason="no candidate finished, so there is no result to compare"
    )


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({}, "the result holds nothing, expected outcome and steps"),
        ({"outcome": np.zeros(3)}, "the result holds outcome, expected outcome and steps"),
        (
            {"outcome": np.zeros(3), "steps": np.zeros(3)},
            "outcome has shape (3,), the workload has 320 candidates",
        ),
    ],
)
def test_a_result_of_another_shape_is_not_compared(
    arrays: dict[str, np.ndarray], reason: str
) -> None:
    assert judged(small(), batched=right(), fused=arrays)["fused"] == Skipped(reason=reason)


def test_a_baseline_without_a_result_is_replaced_by_the_first_run_that_has_one() -> None:
    answer = small().agreement({FUSED: right(), COND: right()}, BATCHED)

    assert answer.baseline == FUSED
    assert small().agreement({}, BATCHED) == Agreement(baseline=None, runs=())


# ---------------------------------------------------------------- near-ties


def judge(threshold: float | None, most_replays: int = 2000) -> Judge:
    return Judge(
        replays=small().replays(),
        seed=0,
        threshold=threshold,
        dtype="float32",
        most_replays=most_replays,
    )


def gaps() -> list[float]:
    """The narrowest gap on each candidate's path."""
    replays = judge(None).replays
    return [replays.of(row)[2] for row in range(320)]


def flipped(row: int) -> dict[str, np.ndarray]:
    wrong = right()
    wrong["steps"][row] += 1
    return wrong


def test_a_difference_is_a_near_tie_only_below_the_threshold() -> None:
    row = int(np.argmin(gaps()))
    results = {BATCHED: right(), FUSED: flipped(row)}

    above, below, never = (
        dict(judge(threshold).agreement(results, BATCHED).runs)[FUSED]
        for threshold in (gaps()[row] * 1.01, gaps()[row] * 0.99, None)
    )

    assert isinstance(above, RunAgreement)
    assert isinstance(below, RunAgreement)
    assert isinstance(never, RunAgreement)
    assert (above.verdict, above.near_ties, above.reference_near_ties) == ("near-ties", 1, 1)
    assert (below.verdict, below.near_ties, below.reference_near_ties) == ("different", 0, 0)
    assert (never.verdict, never.near_ties) == ("different", 0)


def test_one_difference_that_is_no_near_tie_makes_the_run_different() -> None:
    narrow, wide = (
        int(np.argmin(gaps())),
        int(np.argmax(np.isfinite(gaps()) * np.nan_to_num(gaps(), posinf=0))),
    )
    both = flipped(narrow)
    both["steps"][wide] += 1

    verdict = dict(
        judge(gaps()[narrow] * 1.01).agreement({BATCHED: right(), FUSED: both}, BATCHED).runs
    )[FUSED]

    assert isinstance(verdict, RunAgreement)
    assert (verdict.verdict, verdict.differing, verdict.near_ties) == ("different", 2, 1)


def test_differences_beyond_the_limit_are_not_replayed_and_excuse_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agreement, "SAMPLE", 0)
    monkeypatch.setattr(agreement, "SAMPLE_OF_CLASS", 0)
    wrong = right()
    wrong["steps"][np.flatnonzero(np.isfinite(gaps()))[:10]] += 1

    answer = judge(1e9, most_replays=4).agreement({BATCHED: right(), FUSED: wrong}, BATCHED)
    verdict = dict(answer.runs)[FUSED]

    assert isinstance(verdict, RunAgreement)
    assert (verdict.verdict, verdict.differing, verdict.near_ties) == ("different", 10, 4)
    assert (verdict.reference_compared, verdict.reference_differing) == (4, 4)
    assert "6 differing candidates were not replayed (limit 4)" in verdict.note


@pytest.mark.parametrize(
    ("args", "threshold"),
    [((), None), (("--dtype=float32",), 2e-4), (("--dtype=float32", "--allow-tf32"), 1e-2)],
)
def test_what_counts_as_a_near_tie_follows_the_dtype(
    args: tuple[str, ...], threshold: float | None
) -> None:
    note = judged(workload(*args), batched=right())["batched"].note  # type: ignore[union-attr]

    assert ("near-tie below" in note) == (threshold is not None)
    assert threshold is None or f"near-tie below a top-2 gap of {threshold:g}" in note


def test_float32_runs_agree_with_the_float64_reference_up_to_near_ties() -> None:
    of = workload("--batch-size", "64", "--dtype", "float32")
    found = evaluate(of, Fused).found
    results = {"outcome": found.outcome, "steps": found.steps}

    verdict = judged(of, batched=results)["batched"]

    assert isinstance(verdict, RunAgreement)
    assert verdict.verdict in ("equal", "near-ties")
    assert "float32: near-tie below a top-2 gap of" in verdict.note


def test_a_part_is_a_few_queries_unless_their_number_was_asked_for() -> None:
    part, said = build([], 0).part()
    chosen = build(["--queries", "40"], 0)

    assert isinstance(chosen, DivisibleWorkload)
    assert len(part.candidates.queries) == 16
    assert said == "16 of 320 queries; all of them with `-- --queries 320`"
    assert chosen.part() == (chosen, "")
