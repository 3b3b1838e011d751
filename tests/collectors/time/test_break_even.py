"""Which compiled runs are said never to earn back their compilation, and how grave that is."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from kgprof.collectors.time.break_even import LATE_AFTER_H, NEVER_BREAKS_EVEN, collect, diagnose
from kgprof.model import BreakEven, Economics, Finding, FindingCost, Level, RunKey, Skipped
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from tests.analysis.recordings import COMPILED, EAGER, FUSED, recording, run

ROOT = Path(__file__).resolve().parents[3]
UNKNOWN = Skipped(reason="not in this test")


def weighed(verdict: str, cold: BreakEven | Skipped = UNKNOWN) -> Economics:
    return Economics(
        run=COMPILED,
        eager=EAGER,
        cold_s=3.9,
        per="step",
        compiled_time=UNKNOWN,
        eager_time=UNKNOWN,
        rounds=1,
        saved_us=UNKNOWN,
        cold=cold,
        verdict=verdict,
        text="in words",
    )


def test_it_costs_what_compiling_took() -> None:
    (finding,) = diagnose((weighed("never"),))

    assert isinstance(finding.cost, FindingCost)
    assert finding.cost.value == 3.9


def after(hours: float) -> BreakEven:
    return BreakEven(steps=1e9, units=UNKNOWN, after_s=hours * 3600)


@pytest.mark.parametrize(
    ("event", "level"),
    [
        pytest.param(weighed("never"), Level.WARNING, id="slower"),
        pytest.param(weighed("level"), Level.NOTE, id="level"),
        pytest.param(
            weighed("pays", after(LATE_AFTER_H + 1)), Level.NOTE, id="after more than a day"
        ),
        pytest.param(weighed("pays", after(LATE_AFTER_H)), None, id="after a day"),
        pytest.param(weighed("pays"), None, id="at a time that is not known"),
    ],
)
def test_slower_is_a_warning_level_or_late_a_note_and_what_pays_is_none(
    event: Economics, level: Level | None
) -> None:
    assert [finding.level for finding in diagnose((event,))] == ([] if level is None else [level])


def test_the_finding_says_the_figures_and_when() -> None:
    never, late = diagnose((weighed("never"), weighed("pays", after(48))))

    assert (never.rule, never.run, never.message) == (NEVER_BREAKS_EVEN.id, COMPILED, "in words")
    assert late.message == "in words, which is 48 hours of steps"
    assert never.fingerprint == late.fingerprint


def test_a_run_without_an_eager_one_beside_it_is_not_judged() -> None:
    found: tuple[Finding, ...] = diagnose(
        collect(Evidence(recording(run(EAGER), run(FUSED, evaluation_s=0.9))))
    )

    assert found == ()


def test_a_slower_compiled_run_is_found_from_a_recording() -> None:
    (finding,) = diagnose(collect(Evidence(recording(run(EAGER), run(COMPILED, evaluation_s=0.9)))))

    assert (finding.rule, finding.level) == ("KGP603", Level.WARNING)
    assert finding.message == (
        "slower than eager: 9.00 ms per candidate, 5.00 ms in mode eager (TIMING, medians, in one "
        "process each); compiling took 1.5 s with cold caches and is not recovered"
    )


def test_on_a_recording_the_small_operator_never_pays_and_the_fused_chain_does(
    tmp_path: Path,
) -> None:
    # given: three rounds of fixtures/workloads/break_even.py in mode eager and default, on two
    # cores under load
    with tarfile.open(ROOT / "fixtures" / "recordings" / "break_even.tgz") as archive:
        archive.extractall(tmp_path, filter="data")
    events = collect(Evidence(recordings.load(tmp_path)))

    (finding,) = diagnose(events)
    assert (finding.run, finding.level) == (
        RunKey(strategy="one_small_operator", mode="default"),
        Level.WARNING,
    )
    assert [(event.run.strategy, event.verdict, event.rounds) for event in events] == [
        ("one_small_operator", "never", 3),
        ("pointwise_chain", "pays", 3),
    ]
    never, pays = events
    # 17 us against 3.6 us
    assert not isinstance(never.saved_us, Skipped)
    assert -16 < never.saved_us < -12
    assert isinstance(pays.cold, BreakEven)
    assert 1 < pays.cold.steps < 30
