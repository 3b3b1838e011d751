"""KGP501 and KGP502: same answer, and all of it."""

from __future__ import annotations

from kgprof.collectors.trust import results
from kgprof.model import Finding, Level, Recording, Skipped
from kgprof.reading.evidence import Evidence
from tests.analysis.recordings import EAGER, FUSED, agreed, agreement, recording, run


def diagnosed(recorded: Recording) -> tuple[Finding, ...]:
    return results.diagnose(results.collect(Evidence(recorded)))


def test_a_different_result_is_an_error_with_its_counts() -> None:
    different = agreement(agreed(EAGER), agreed(FUSED, "different", differing=12))

    (found,) = diagnosed(recording(run(EAGER), run(FUSED), agreement=different))

    assert found == Finding(
        rule="KGP501",
        level=Level.ERROR,
        message="12 of 100 results differ from batched.eager and 0 of 50 differ from the reference",
        run=FUSED,
        count=12,
        fingerprint=found.fingerprint,
    )


def test_near_ties_are_no_finding() -> None:
    near = agreement(agreed(EAGER), agreed(FUSED, "near-ties", differing=4, near_ties=4))

    assert diagnosed(recording(run(EAGER), run(FUSED), agreement=near)) == ()


def test_a_run_that_was_not_compared_is_no_finding() -> None:
    missing = agreement(agreed(EAGER), (FUSED, Skipped(reason="the run left no result")))

    assert diagnosed(recording(run(EAGER), run(FUSED), agreement=missing)) == ()


def test_unfinished_candidates_are_an_error_with_their_number() -> None:
    (found,) = diagnosed(recording(run(EAGER), run(FUSED, unfinished=7)))

    assert (found.rule, found.level, found.message, found.count) == (
        "KGP502",
        Level.ERROR,
        "7 of 100 candidates are unfinished",
        7,
    )


def test_a_workload_without_evaluation_is_no_finding() -> None:
    assert diagnosed(recording(run(EAGER, unfinished=None))) == ()
