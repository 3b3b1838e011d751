"""A commit between GOOD and BAD is called good or bad only by what those two differ in; one that
nobody can tell is skipped."""

from __future__ import annotations

import msgspec
import pytest

from kgprof import model as m
from kgprof.compare import compare
from kgprof.compare.bisect import (
    by_limits,
    by_work,
    deciding_rows,
    next_commit,
    row_words,
    told,
    worse_metrics,
)
from kgprof.errors import EXIT_INCONCLUSIVE, EXIT_OK
from tests.analysis.compared import profile
from tests.compare.test_work import WORK, changed, with_work

RUN = m.RunKey("fused", "default")
MORE_BYTES = changed(bytes_per_step=512.0)
OTHER_CALL = changed(items=(*WORK.items, m.WorkItem(text="cpp_fused_tan 11(_)")), calls=(5,))
LESS_BYTES = changed(bytes_per_step=128.0)
BYTES = "bytes per step"


def compared(one: m.CompiledWork | m.Skipped, other: m.CompiledWork | m.Skipped) -> m.Comparison:
    found = compare(with_work(profile(), one), with_work(profile(), other)).comparison
    assert found is not None
    return found


def judged(good: m.CompiledWork, bad: m.CompiledWork, commit: m.CompiledWork | m.Skipped) -> str:
    deciding = deciding_rows(compared(good, bad))
    verdict, _ = by_work(deciding, compared(good, commit), compared(bad, commit))
    return verdict


# ---------------------------------------------------------------- which commit is tried next


@pytest.mark.parametrize(
    ("skipped", "tried"),
    [
        ((), "d"),
        (("d",), "e"),  # of a, b, c, e ... the second one
        (("d", "c"), "a"),
        (("d", "c", "e", "b"), "g"),
        (("a", "b", "c", "d", "e", "f", "g"), None),
    ],
)
def test_the_next_one_halves_the_way_and_keeps_away_from_those_that_were_skipped(
    skipped: tuple[str, ...], tried: str | None
) -> None:
    halving = ["d", "c", "e", "b", "f", "a", "g", "bad"]

    assert next_commit(halving, "bad", skipped) == tried


def test_the_bad_one_alone_needs_no_other_trial() -> None:
    assert next_commit(["bad"], "bad", ()) is None


# ---------------------------------------------------------------- without a clock


@pytest.mark.parametrize(
    ("commit", "verdict"),
    [
        (WORK, "good"),
        (MORE_BYTES, "bad"),
        (LESS_BYTES, "skipped"),
        # what GOOD and BAD have in common decides nothing
        (OTHER_CALL, "good"),
        (msgspec.structs.replace(OTHER_CALL, bytes_per_step=512.0), "bad"),
        (m.Skipped("nothing was compiled"), "skipped"),
        (changed(bytes_per_step=m.Skipped("no generated code")), "skipped"),
    ],
)
def test_a_commit_is_held_to_what_good_and_bad_differ_in(
    commit: m.CompiledWork | m.Skipped, verdict: str
) -> None:
    assert judged(WORK, MORE_BYTES, commit) == verdict


def test_numbers_of_what_runs_decide_before_the_texts_behind_them() -> None:
    """Bytes grew, and some other commit changed the code: that one alone is still good."""
    bad = msgspec.structs.replace(OTHER_CALL, bytes_per_step=512.0)

    rows = deciding_rows(compared(WORK, bad))

    assert [(run, name) for run, name in rows] == [(RUN, BYTES)]
    assert row_words(rows[RUN, BYTES]) == f"{BYTES} 256 -> 512"
    assert judged(WORK, bad, OTHER_CALL) == "good"


def test_a_count_of_nothing_is_a_number_too() -> None:
    """The sum of no eager operators is an int."""
    row = m.WorkRow(m.WorkAspect.EAGER, "eager operators per step", 0, 2.5, True)

    assert row_words(row) == "eager operators per step 0 -> 2.5"


def test_texts_decide_where_no_number_differs() -> None:
    rows = deciding_rows(compared(WORK, OTHER_CALL))

    assert [row_words(row) for row in rows.values()] == [
        "calls in generated code (as many, but others)"
    ]
    assert judged(WORK, OTHER_CALL, MORE_BYTES) == "good"
    assert judged(WORK, OTHER_CALL, changed(calls=())) == "skipped"


def test_the_first_of_two_changes_is_looked_for() -> None:
    """A commit that has one of BAD's changes and GOOD's of the other lies behind the first."""
    bad = changed(bytes_per_step=512.0, calls_per_step=2.0)

    assert judged(WORK, bad, changed(calls_per_step=2.0)) == "bad"


def test_the_same_work_decides_nothing() -> None:
    assert deciding_rows(compared(WORK, WORK)) == {}


def test_another_environment_is_no_verdict() -> None:
    deciding = deciding_rows(compared(WORK, MORE_BYTES))
    other = m.ChangedFact("torch", "2.12", "2.13")
    elsewhere = msgspec.structs.replace(compared(WORK, MORE_BYTES), environment=(other,))

    assert by_work(deciding, elsewhere, compared(MORE_BYTES, MORE_BYTES)) == (
        "skipped",
        "another environment than GOOD's: torch",
    )


# ---------------------------------------------------------------- by limits


def metric(verdict: str, name: str = "step") -> m.ComparedMetric:
    return m.ComparedMetric(
        name=name,
        run=RUN,
        unit="us",
        base=1.0,
        head=2.0,
        ratio=2.0,
        verdict=m.MetricVerdict(verdict),
        decides=True,
    )


def limited(*metrics: m.ComparedMetric) -> m.Comparison:
    run = m.RunComparison(run=RUN, status=m.Presence.BOTH, metrics=metrics)
    return msgspec.structs.replace(compared(WORK, WORK), runs=(run,))


@pytest.mark.parametrize(
    ("metrics", "verdict"),
    [
        ((metric("worse"),), "bad"),
        ((metric("same"),), "good"),
        ((metric("better"),), "good"),
        ((metric("inconclusive"),), "inconclusive"),
        ((metric("not observed"),), "skipped"),
        ((), "skipped"),
        # BAD is not worse in it, so that it decides nothing
        ((metric("same"), metric("worse", "evaluation")), "good"),
    ],
)
def test_a_commit_is_bad_where_it_exceeds_a_limit_that_bad_exceeds(
    metrics: tuple[m.ComparedMetric, ...], verdict: str
) -> None:
    deciding = worse_metrics(limited(metric("worse"), metric("same", "evaluation")))

    assert [name for _, name in deciding] == ["step"]
    assert by_limits(deciding, limited(*metrics))[0] == verdict


# ---------------------------------------------------------------- in words

TRIED = (
    m.BisectedCommit("b" * 40, "Ready", m.BisectVerdict.BAD),
    m.BisectedCommit("a" * 40, "Begin", m.BisectVerdict.GOOD),
    m.BisectedCommit("c" * 40, "Half", m.BisectVerdict.SKIPPED, "it died", recorded=False),
    m.BisectedCommit("d" * 40, "Copy", m.BisectVerdict.BAD),
)
FOUND = m.Bisect(
    looked_for=("bytes per step 256 -> 512",),
    tried=TRIED,
    remaining=("d" * 40,),
    authored="2026-01-02T03:04:05+00:00",
    files=("model.py",),
)


def shown(found: m.Bisect) -> m.Profile:
    return told(compare(with_work(profile(), WORK), with_work(profile(), MORE_BYTES)), found)


def test_the_first_bad_commit_is_the_verdict() -> None:
    given = shown(FOUND)

    assert (given.exit_code, given.verdict.status) == (EXIT_OK, "ok")
    assert given.verdict.text == "dddddddddddd Copy is the first bad commit"
    assert given.verdict.trust == "3 recordings; between GOOD and BAD: bytes per step 256 -> 512"
    assert given.verdict.reasons[:2] == (
        "authored 2026-01-02T03:04:05+00:00",
        "it changed model.py",
    )
    assert given.comparison is not None
    assert given.comparison.bisect == FOUND
    assert "skipped: cccccccccccc Half (it died)" in given.comparison.notes


def test_what_remains_is_no_first_bad_commit() -> None:
    why = "the others were skipped"
    given = shown(msgspec.structs.replace(FOUND, remaining=("d" * 40, "c" * 40), why_open=why))

    assert (given.exit_code, given.verdict.status) == (EXIT_INCONCLUSIVE, "inconclusive")
    assert given.verdict.text == f"not decided: {why}"
    assert given.verdict.reasons[0] == "one of 2 commits: dddddddddddd, cccccccccccc"


def test_of_a_bad_one_that_is_not_worse_no_commit_is_the_first() -> None:
    why = "BAD was not shown to be worse than GOOD"
    remaining = ("d" * 40, "c" * 40)
    given = shown(msgspec.structs.replace(FOUND, looked_for=(), remaining=remaining, why_open=why))

    assert given.verdict.text == f"not decided: {why}"
    assert not any("one of" in reason for reason in given.verdict.reasons)
