"""The work behind a read, or in every step: by the times of both, with what the read costs beside
it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kgprof.analysis import analyse
from kgprof.model import (
    Agreement,
    Alternative,
    Evaluation,
    PassName,
    Recording,
    RunKey,
    RunRecord,
    Skipped,
    Spread,
    TimingPass,
    TradeOff,
)
from kgprof.model.memory_records import SyncRecord
from tests.analysis.recordings import GONE, agreed, agreement, died
from tests.analysis.recordings import recording as recorded
from tests.analysis.recordings import run as timed
from tests.collectors import written_syncs
from tests.collectors.written_syncs import PREDICATE, predicate, read

GUARDED = RunKey(strategy="guarded", mode="default")
ALWAYS = RunKey(strategy="always", mode="default")
DONE = read(each=1)


def run(
    key: RunKey, *reads: SyncRecord, step_us: float = 1000.0, evaluation_s: float | None = 0.5
) -> RunRecord:
    """Evaluations 10 % either way; without, steps 10 % either way."""
    made = timed(
        key,
        step_us=step_us,
        evaluation_s=evaluation_s,
        unfinished=None if evaluation_s is None else 0,
    )
    return msgspec.structs.replace(made, memory=written_syncs.memory(*reads))


def recording(
    *runs: RunRecord,
    device: str = "cpu",
    agreed_on: Agreement | Skipped = GONE,
    passes: tuple[PassName, ...] = (),
) -> Recording:
    whole = recorded(*runs, baseline=None, agreement=agreed_on)
    pair = Alternative(guarded=GUARDED.strategy, always=ALWAYS.strategy)
    plan = msgspec.structs.replace(whole.header.plan, device=device, alternatives=(pair,))
    options = msgspec.structs.replace(whole.header.options, passes=passes)
    return msgspec.structs.replace(
        whole, header=msgspec.structs.replace(whole.header, plan=plan, options=options)
    )


def weighed(*runs: RunRecord, **fields: Any) -> TradeOff:
    (found,) = analyse(recording(*runs, **fields)).trade_offs
    return found


def waiting(us: float, *, on: SyncRecord | None = None) -> SyncRecord:
    """The predicate on a GPU; the host waits ``us`` for it in each call after warm-up, and longer
    in the first."""
    waited = {call: us + (100.0 if call == 3 else 0.0) for call in range(3, 8)}
    return msgspec.structs.replace(on or predicate(device="cuda"), device="cuda", waited_us=waited)


# ---------------------------------------------------------------- by evaluations


@pytest.mark.parametrize(
    ("guarded_s", "verdict", "words"),
    [
        (0.25, "keep the read", "skipping work after the sync is 2× faster"),
        (1.0, "remove it", "always doing the work is 2× faster"),
        (0.52, "inconclusive", "their spreads overlap"),
    ],
)
def test_whole_evaluations_decide(guarded_s: float, verdict: str, words: str) -> None:
    found = weighed(run(GUARDED, DONE, predicate(), evaluation_s=guarded_s), run(ALWAYS, DONE))

    assert found.verdict == verdict
    assert words in found.text
    assert (found.guarded, found.always, found.syncs_per_step) == (GUARDED, ALWAYS, 1.0)
    assert found.location is not None
    assert (found.location.line, found.location.function) == (PREDICATE.line, "Model.step")
    assert isinstance(found.net, Spread)
    assert isinstance(found.net_always, Spread)
    assert (found.net.unit, found.net.samples, found.net_always.median) == ("ms/candidate", 3, 5.0)
    assert found.sync_us == Skipped(reason="not applicable on a CPU")
    assert found.saved_us == Skipped(reason="not applicable on a CPU")


def test_the_sentence_has_the_figures_and_says_what_they_are() -> None:
    found = weighed(run(GUARDED, DONE, predicate(), evaluation_s=0.25), run(ALWAYS, DONE))

    assert found.text == (
        "guarded.default takes 2.50 ms/candidate (TIMING, median, range 2.25 to 2.75, n = 3), "
        "always.default takes 5.00 ms/candidate (TIMING, median, range 4.50 to 5.50, n = 3): "
        "skipping work after the sync is 2× faster, one process each"
    )


def test_one_evaluation_ranks_nothing() -> None:
    once = run(ALWAYS, DONE)
    assert isinstance(once.timing, TimingPass)
    once = msgspec.structs.replace(
        once, timing=msgspec.structs.replace(once.timing, evaluation_s=(0.5,))
    )

    found = weighed(run(GUARDED, DONE, predicate(), evaluation_s=0.1), once)

    assert found.verdict == "inconclusive"
    assert found.text.endswith("measured once (n = 1)")


@pytest.mark.parametrize(("guarded_s", "saved_ms"), [(0.25, 250.0), (0.75, -250.0)])
def test_a_wait_counts_in_every_step_of_an_evaluation(guarded_s: float, saved_ms: float) -> None:
    """Its figure is what the two evaluations differ in, without the waits: no net saving."""
    guarded = run(GUARDED, waiting(40.0, on=DONE), waiting(310.0), evaluation_s=guarded_s)
    always = run(ALWAYS, waiting(35.0, on=DONE))
    assert isinstance(guarded.evaluation, Evaluation)

    found = weighed(guarded, always, device="cuda")

    waits_ms = 0.310 * guarded.evaluation.steps
    assert found.saved_per == "evaluation"
    assert found.saved_us == pytest.approx(1000 * (saved_ms + waits_ms))
    assert found.text.endswith("the CPU waited 310 µs per step here (under instrumentation)")


# ---------------------------------------------------------------- by steps, and what the host waits


def test_without_evaluations_steps_decide_and_a_gpu_says_what_the_read_costs() -> None:
    guarded = run(
        GUARDED, waiting(40.0, on=DONE), waiting(310.0), step_us=1000.0, evaluation_s=None
    )
    always = run(ALWAYS, waiting(35.0, on=DONE), step_us=1500.0, evaluation_s=None)

    found = weighed(guarded, always, device="cuda")

    assert (found.verdict, found.sync_us, found.saved_us) == ("keep the read", 310.0, 810.0)
    assert found.text == (
        "guarded.default takes 1.00 ms/step (TIMING, median, p10 to p90 0.920 to 1.08, n = 3), "
        "always.default takes 1.50 ms/step (TIMING, median, p10 to p90 1.38 to 1.62, n = 3): "
        "skipping work after the sync is 1.5× faster, one process each; the CPU waited 310 µs per "
        "step here (under instrumentation)"
    )


def test_a_read_in_some_steps_costs_its_share_of_each() -> None:
    often = msgspec.structs.replace(
        predicate(device="cuda", calls=range(4, 8, 3)), waited_us={4: 300.0, 7: 500.0}
    )
    guarded = run(GUARDED, often, step_us=1000.0, evaluation_s=None)

    found = weighed(guarded, run(ALWAYS, step_us=1500.0, evaluation_s=None), device="cuda")

    assert (found.sync_us, found.saved_us) == (160.0, 660.0)  # 400 us in two of five calls


def test_steps_whose_spreads_overlap_decide_nothing() -> None:
    guarded = run(GUARDED, predicate(), step_us=1000.0, evaluation_s=None)

    found = weighed(guarded, run(ALWAYS, step_us=1050.0, evaluation_s=None))

    assert found.verdict == "inconclusive"
    assert "their spreads overlap" in found.text


def test_a_wait_that_no_hook_timed_is_no_zero() -> None:
    found = weighed(run(GUARDED, predicate(device="cuda")), run(ALWAYS), device="cuda")

    assert found.sync_us == Skipped(reason="no hook timed this wait")


# ---------------------------------------------------------------- where there is nothing to weigh


@pytest.mark.parametrize(
    ("always", "why"),
    [
        (None, "always.default: it was not run in this mode"),
        (died(ALWAYS), "always.default: the run was killed during timing: SIGKILL"),
        (timed(ALWAYS, unfinished=7), "always.default: 7 of 100 candidates are unfinished"),
    ],
    ids=["not run", "died", "unfinished"],
)
def test_what_has_no_time_is_not_weighed(always: RunRecord | None, why: str) -> None:
    found = weighed(run(GUARDED, predicate()), *([always] if always else []))

    assert found.verdict == "not observed"
    assert why in found.text


def test_results_that_differ_are_not_weighed() -> None:
    held = agreement(agreed(GUARDED), agreed(ALWAYS, "different", differing=3))

    found = weighed(run(GUARDED, predicate(), evaluation_s=0.1), run(ALWAYS), agreed_on=held)

    assert (found.verdict, found.text) == (
        "not observed",
        "guarded.default and always.default were not compared: results differ",
    )


def test_without_a_read_more_there_is_none_to_weigh() -> None:
    found = weighed(run(GUARDED, DONE, evaluation_s=0.1), run(ALWAYS, DONE))

    assert (found.verdict, found.syncs_per_step, found.location) == ("not observed", 0.0, None)


def test_reads_that_nobody_looked_for_leave_the_times_to_decide() -> None:
    blind = msgspec.structs.replace(run(GUARDED, evaluation_s=0.1), memory=GONE)

    found = weighed(blind, run(ALWAYS))

    assert (found.verdict, found.syncs_per_step) == (
        "keep the read",
        Skipped(reason=f"guarded.default: {GONE.reason}"),
    )


def test_where_the_guarded_one_did_not_run_or_no_time_was_asked_for_nothing_is_said() -> None:
    both = (run(GUARDED, predicate()), run(ALWAYS))

    assert analyse(recording(run(ALWAYS))).trade_offs == ()
    assert analyse(recording(*both, passes=(PassName.COMPILE, PassName.MEMORY))).trade_offs == ()
