"""Which levers are kept, and what is said of the others. Nothing is run: processes answer at
once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from kgprof import model as m
from kgprof.judge import Samples
from kgprof.lab.fix import ladder
from kgprof.lab.fix.ladder import LEAST_GAIN, Climb, Decision, Measured, Program, Side, decision_of
from kgprof.lab.fix.lever import Lever
from kgprof.lab.fix.trees import Tree
from kgprof.progress import Progress
from kgprof.reading import recordings
from kgprof.record.processes import recorder, trials
from tests.record import handmade

FACTS = m.StepFacts(device="cpu")
TEXT = "x = 1\n"
NONE = Measured(m.Skipped("1.10 and 1.20 in 2 pairs"), Decision.NONE)


def lever(name: str, changes: m.Changes = m.Changes.ROUNDING, why: str = "a test") -> Lever:
    """Adds a line that names it."""

    def edit(text: str, facts: m.StepFacts) -> str | None:
        line = f"{name}()\n"
        return None if line in text else text + line

    return Lever(id=name, says=f"does {name}", changes=changes, wanted=lambda _: why, edit=edit)


def gain(ratio: float) -> Measured:
    return Measured(
        m.Gain(ratio=ratio, low=ratio - 0.01, high=ratio + 0.01, pairs=4), Decision.SHOWN
    )


class Canned(Climb):
    """``speeds``: the time of a text with these levers over that without them; ``results``: of each
    lever; what is not named takes as long, and computes the same."""

    speeds: Mapping[str, float] = {}
    became: Mapping[str, m.Results | m.Skipped] = {}
    dies: Sequence[str] = ()
    open: Sequence[str] = ()

    def _results_of(self, side: Side) -> tuple[m.Results | m.Skipped, str]:
        found = self.became.get(side.label, m.Results.SAME)
        return found, found.reason if isinstance(found, m.Skipped) else ""

    def _record(self, side: Side) -> str:
        return "the program raised ValueError" if side.label in self.dies else ""

    def _compared(self, before: Side, after: Side, *, is_last: bool = False) -> Measured:
        names = {each.id for each in after.levers} - {each.id for each in before.levers}
        if names & set(self.open):
            return Measured(m.Skipped("no time"), Decision.OPEN)
        ratio = 1.0
        for name in names:
            ratio *= self.speeds.get(name, 1.0)
        return gain(ratio) if ratio < 1 - LEAST_GAIN else NONE


@pytest.fixture
def climb(tmp_path: Path) -> Canned:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.py").write_text(TEXT)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    program = Program(
        tree=Tree(root, ("a.py",), False),
        file="a.py",
        folder="",
        options=m.Options(workload="a.py:step"),
    )
    made = Canned(program, TEXT, scratch, Progress(), time.monotonic() + 60)
    made.facts = FACTS
    return made


def kept(climb: Climb) -> list[str]:
    return [each.lever for each in climb.trials if each.kept]


def why(climb: Climb, name: str) -> str:
    return next(each.why for each in (*climb.trials, *climb.not_tried) if each.lever == name)


def test_each_lever_is_tried_on_top_of_those_that_helped(climb: Canned) -> None:
    climb.speeds = {"fast": 0.5, "faster": 0.8}

    climb.climb([lever("fast"), lever("idle"), lever("faster")], m.Changes.ROUNDING)

    assert kept(climb) == ["fast", "faster"]
    assert climb.kept.text == "x = 1\nfast()\nfaster()\n"
    assert (climb.kept.copy / "a.py").read_text() == climb.kept.text
    assert why(climb, "idle") == "no gain of 3% was seen: 1.10 and 1.20 in 2 pairs"
    assert [each.code for each in climb.trials] == ["fast()", "idle()", "faster()"]


@pytest.mark.parametrize(
    ("became", "changes", "is_kept"),
    [
        (m.Results.SAME, m.Changes.NOTHING, True),
        (m.Results.ROUNDED, m.Changes.ROUNDING, True),
        (m.Results.DIFFERENT, m.Changes.NOTHING, False),
        (m.Results.DIFFERENT, m.Changes.ROUNDING, False),
        (m.Results.NOT_COMPARABLE, m.Changes.NOTHING, True),
        (m.Results.NOT_COMPARABLE, m.Changes.ROUNDING, False),
        (m.Skipped("the program raised KeyError"), m.Changes.NOTHING, False),
    ],
)
def test_what_is_faster_is_kept_if_its_results_hold(
    climb: Canned, became: m.Results | m.Skipped, changes: m.Changes, is_kept: bool
) -> None:
    climb.speeds = {"fast": 0.5}
    climb.became = {"fast": became}

    climb.climb([lever("fast", changes)], m.Changes.ROUNDING)

    assert bool(kept(climb)) is is_kept
    assert bool(why(climb, "fast")) is not is_kept
    assert climb.trials[0].results == became


@pytest.mark.parametrize("allowed", [m.Changes.ROUNDING, m.Changes.MEANING])
def test_what_changes_the_meaning_is_measured_and_kept_only_if_allowed(
    climb: Canned, allowed: m.Changes
) -> None:
    climb.speeds = {"bf16": 0.5}
    climb.became = {"bf16": m.Results.DIFFERENT}

    climb.climb([lever("bf16", m.Changes.MEANING)], allowed)

    assert kept(climb) == (["bf16"] if allowed is m.Changes.MEANING else [])
    assert isinstance(climb.trials[0].gain, m.Gain)


@pytest.mark.parametrize(
    ("allowed", "order"),
    [(m.Changes.ROUNDING, ["other", "lower"]), (m.Changes.MEANING, ["lower", "other"])],
)
def test_what_would_not_be_put_into_the_patch_comes_last(
    climb: Canned, allowed: m.Changes, order: list[str]
) -> None:
    climb.climb([lever("lower", m.Changes.MEANING), lever("other")], allowed)

    assert [trial.lever for trial in climb.trials] == order


def test_behind_an_allowed_change_of_the_results_no_other_kind_is_tried(climb: Canned) -> None:
    climb.became = dict.fromkeys(("lower", "free", "more"), m.Results.DIFFERENT)
    climb.speeds = {"lower": 0.5, "free": 0.5, "more": 0.5}
    tried = [
        lever("lower", m.Changes.MEANING),
        lever("other"),
        lever("free", m.Changes.NOTHING),
        lever("more", m.Changes.MEANING),
    ]

    climb.climb(tried, m.Changes.MEANING)
    ending = climb.ended()

    assert [trial.lever for trial in climb.trials if trial.kept] == ["lower", "more"]
    left, _ = climb.not_tried
    assert [each.lever for each in climb.not_tried if each.is_open] == ["other", "free"]
    assert left.why == "lower has changed the results: begin again with its patch applied"
    assert "+lower()" in ending.patch


def test_a_lever_that_kills_the_program_is_a_line_and_nothing_more(climb: Canned) -> None:
    climb.speeds = {"fast": 0.5, "deadly": 0.1}
    climb.dies = ["deadly"]

    climb.climb([lever("deadly"), lever("fast")], m.Changes.ROUNDING)

    assert kept(climb) == ["fast"]
    assert "ValueError" in why(climb, "deadly")


def test_a_lever_without_a_place_is_asked_again_when_another_was_kept(climb: Canned) -> None:
    def on_top(text: str, facts: m.StepFacts) -> str | None:
        return f"{text}on_top()\n" if "fast" in text and "on_top" not in text else None

    like = lever("needs")
    needs = Lever(id="needs", says="", changes=like.changes, wanted=like.wanted, edit=on_top)
    climb.speeds = {"fast": 0.5, "needs": 0.5}

    climb.climb([needs, lever("fast"), lever("idle")], m.Changes.ROUNDING)

    assert kept(climb) == ["fast", "needs"]
    assert not climb.not_tried


def test_what_is_not_tried_says_why_and_whether_that_leaves_something_open(climb: Canned) -> None:
    climb.climb([lever("unwanted", why="")], m.Changes.ROUNDING)
    climb._until = time.monotonic() - 1
    climb.climb([lever("late")], m.Changes.ROUNDING)

    assert [(each.lever, each.is_open) for each in climb.not_tried] == [
        ("unwanted", False),
        ("late", True),
    ]


def test_levers_that_were_not_reached_are_listed_as_open(
    climb: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(side: Side) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(climb, "_record", interrupted)

    with pytest.raises(KeyboardInterrupt):
        climb.climb([lever("one"), lever("two"), lever("unasked", why="")], m.Changes.ROUNDING)

    assert [(each.lever, each.is_open, each.is_wanted) for each in climb.not_tried] == [
        ("one", True, True),
        ("two", True, True),
        ("unasked", True, False),
    ]


def test_at_the_end_a_lever_that_adds_nothing_to_the_others_goes(climb: Canned) -> None:
    levers = [lever("first"), lever("second")]
    climb.speeds = {"first": 0.5, "second": 0.5}
    climb.climb(levers, m.Changes.ROUNDING)
    climb.speeds = {"second": 0.5}

    climb.leave_out_each()

    assert kept(climb) == ["second"]
    assert why(climb, "first").startswith("on top of the others")
    assert climb.kept.text == "x = 1\nsecond()\n"


def test_the_patch_is_stated_by_what_was_measured_after_it_was_chosen(climb: Canned) -> None:
    climb.speeds = {"fast": 0.5}
    climb.climb([lever("fast")], m.Changes.ROUNDING)
    climb.speeds = {"fast": 0.75}

    patch, measured, became = climb.ended()

    assert "+fast()" in patch
    assert isinstance(measured, m.Gain)
    assert measured.ratio == 0.75
    assert became is m.Results.SAME


def test_a_patch_whose_results_differ_is_none(climb: Canned) -> None:
    climb.speeds = {"fast": 0.5}
    climb.climb([lever("fast")], m.Changes.ROUNDING)
    climb.became = {"fast": m.Results.DIFFERENT}

    patch, measured, became = climb.ended()

    assert patch == ""
    assert isinstance(measured, m.Skipped)
    assert became is m.Results.DIFFERENT


def test_a_patch_that_does_not_help_again_is_none(climb: Canned) -> None:
    climb.speeds = {"fast": 0.5}
    climb.climb([lever("fast")], m.Changes.ROUNDING)
    climb.speeds = {}

    patch, measured, _ = climb.ended()

    assert patch == ""
    assert isinstance(measured, m.Skipped)


def test_a_lever_whose_leaving_out_was_not_decided_stays(climb: Canned) -> None:
    climb.speeds = {"first": 0.5, "second": 0.5}
    climb.climb([lever("first"), lever("second")], m.Changes.ROUNDING)
    climb.open = ["first", "second"]

    climb.leave_out_each()

    assert kept(climb) == ["first", "second"]


def test_copies_are_of_the_tree_as_it_was_when_the_ladder_began(climb: Canned) -> None:
    (climb.program.tree.root / "a.py").write_text("x = 2\n")
    (climb.program.tree.root / "b.py").write_text("")

    climb.speeds = {"fast": 0.5}
    climb.climb([lever("fast")], m.Changes.ROUNDING)

    assert (climb.kept.copy / "a.py").read_text() == "x = 1\nfast()\n"
    assert not (climb.kept.copy / "b.py").exists()


def test_without_results_only_what_changes_nothing_can_be_kept(
    climb: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(climb, "_keep_results", lambda side, *names: "")
    climb.speeds = {"gc": 0.5, "fused": 0.5}
    levers = [lever("gc", m.Changes.NOTHING), lever("fused")]

    for each in levers:
        side = climb._side(each.id, TEXT)
        became, why = Climb._results_of(climb, side)
        assert why == ""
        assert bool(climb._refused(each, became)) is (each.id == "fused")


def test_a_faster_lever_that_is_not_allowed_says_so(climb: Canned) -> None:
    climb.speeds = {"bf16": 0.5, "workers": 0.5}
    climb.became = {"bf16": m.Results.ROUNDED}
    levers = [lever("bf16", m.Changes.MEANING), lever("workers", m.Changes.MEANING)]

    climb.climb(levers, m.Changes.ROUNDING)

    assert climb.trials[0].needs_leave
    assert kept(climb) == ["workers"]  # whose results are the same, bit for bit


def test_what_is_not_faster_has_no_start_for_its_results(
    climb: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(climb, "_keep_results", lambda side, name: pytest.fail(name))
    monkeypatch.setattr(climb, "_results_of", lambda side: Climb._results_of(climb, side))

    climb.climb([lever("idle")], m.Changes.ROUNDING)

    assert isinstance(climb.trials[0].results, m.Skipped)


def test_beside_workers_the_mean_step_counts(
    climb: Canned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timing(*step_us: float, slice_steps: int = 0) -> m.TimingPass:
        return m.TimingPass(
            clock="a clock", step_us=(step_us,), evaluation_s=(), slice_steps=slice_steps
        )

    def round_of(number: int, timed: m.TimingPass) -> m.RoundRecord:
        measured = m.TimedRound(
            first_call_s=1.0, graphs_from_cache=0, graphs_compiled=0, timing=timed
        )
        return m.RoundRecord(number=number, measured=measured, exit=m.Exit(m.Outcome.OK))

    one = round_of(2, timing(1, 1, 10))
    other = round_of(3, timing(1, 1, 10, slice_steps=1))
    whole = handmade.write(tmp_path / "handmade")
    run = replace(whole.runs[0], timing=timing(1, 1, 10), rounds=(one, other))
    monkeypatch.setattr(recordings, "load", lambda folder: replace(whole, runs=(run,)))
    recorder: Any = SimpleNamespace(folder=tmp_path)

    found = climb._times(recorder)

    assert isinstance(found, Samples)
    assert found.rounds == {1: 1, 2: 4, 3: 1}

    climb.facts = replace(FACTS, graphs_late=1)

    uneven = climb._times(recorder)

    assert isinstance(uneven, Samples)
    assert uneven.rounds == {1: 1, 2: 4, 3: 4}
    assert uneven.pieces == {}


class Recording:
    """Says what it was asked to measure."""

    def __init__(self, asked: list[str], name: str) -> None:
        self.asked, self.name = asked, name

    def measure_pair(self, other: Recording, *_: object, at_once: bool) -> bool:
        self.asked.append(f"{self.name} beside {other.name}")
        return at_once

    def measure_round(self, *_: object) -> bool:
        self.asked.append(self.name)
        return True


@pytest.mark.parametrize(
    ("loaders", "alone", "asked"),
    [
        ((), False, ["one beside other"]),
        ((0,), False, ["one beside other"]),
        ((0, 2), False, ["one", "other"]),
        ((0,), True, ["one", "other"]),
    ],
)
def test_processes_with_workers_run_one_after_the_other(
    climb: Canned, loaders: tuple[int, ...], alone: bool, asked: list[str]
) -> None:
    climb.facts = replace(FACTS, loaders=loaders)
    climb.key = m.RunKey("step", m.AS_IS)
    seen: list[str] = []
    sides: Any = tuple(Recording(seen, name) for name in ("one", "other"))

    assert climb._measured_pair(sides, alone=alone)
    assert seen == asked


@pytest.mark.parametrize(
    ("found", "again", "starts", "became"),
    [
        (1.0, 1.0, 2, m.Results.SAME),
        (1.0, 2.0, 2, m.Results.SAME),
        (1.5, 2.0, 4, m.Results.NOT_COMPARABLE),
        (1.5, 1.0, 4, m.Results.DIFFERENT),
    ],
)
def test_results_that_are_the_same_need_no_other_start(
    climb: Canned,
    monkeypatch: pytest.MonkeyPatch,
    found: float,
    again: float,
    starts: int,
    became: m.Results,
) -> None:
    values = {"as it is": 1.0, "lever": found, "again": again, "float64": 1.0}
    asked = []

    def keep(side: Side, *names: str) -> str:
        asked.extend(names)
        found = {name: {"result of step 1:": np.float32([values[name]])} for name in names}
        climb._arrays.update(found)
        return ""

    monkeypatch.setattr(climb, "_keep_results", keep)

    said = Climb._results_of(climb, climb._side("lever", TEXT))

    assert said == (became, "")
    assert len(asked) == starts


def test_what_workers_draw_is_not_held_to_float64(
    climb: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_workers = replace(lever("workers", m.Changes.MEANING), starts_workers=True)
    side = climb._side("workers", TEXT, (with_workers,))
    asked = []

    def keep(side: Side, *names: str) -> str:
        asked.extend(names)
        climb._arrays.update({name: {"result": np.float32([len(asked)])} for name in names})
        return ""

    monkeypatch.setattr(climb, "_keep_results", keep)

    assert Climb._results_of(climb, side) == (m.Results.DIFFERENT, "")
    assert asked == ["as it is", "workers"]


@pytest.mark.parametrize(
    ("beside", "again", "alone"), [("ok", False, 0), ("killed", False, 1), ("ok", True, 2)]
)
def test_starts_for_results_run_beside_each_other_and_again_alone(
    climb: Canned, monkeypatch: pytest.MonkeyPatch, beside: str, again: bool, alone: int
) -> None:
    def trial(outcome: str) -> trials.Trial:
        return trials.Trial(exit=m.Exit(m.Outcome(outcome)), answer=b"{}", log="")

    made = []
    monkeypatch.setattr(
        trials, "run_beside", lambda *_, **given: [trial(beside), trial(m.Outcome.OK)]
    )
    monkeypatch.setattr(trials, "run", lambda *_, **given: made.append(1) or trial(m.Outcome.OK))
    climb._again_is_safe = again

    assert climb._keep_results(climb.as_is, "again", "float64") == ""
    assert len(made) == alone
    assert climb.starts == alone + 2 * (not again)


@pytest.mark.parametrize(
    ("patience_s", "left_s", "limit_s", "words"),
    [
        (75.0, 10.0, 75.0, "given up: its first process did not end in 75 s"),
        (75.0, 9000.0, 75.0, "given up: its first process did not end in 75 s"),
        (np.inf, 10.0, 10.0, "the time was up (--minutes)"),
        (np.inf, 9000.0, 900.0, "the program timed out"),
    ],
)
def test_a_first_process_has_a_limit(
    climb: Canned,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    patience_s: float,
    left_s: float,
    limit_s: float,
    words: str,
) -> None:
    limits = []

    class Late(recorder.Recorder):
        def measure(self, key: m.RunKey) -> bool:
            limits.append(self.header.options.timeout_s)
            return False

    whole = handmade.write(tmp_path / "handmade")
    ended = m.Exit(m.Outcome.TIMED_OUT, "timed out after 900 s (--timeout)")
    run = replace(whole.runs[0], exit=ended)
    monkeypatch.setattr(ladder, "Recorder", Late)
    monkeypatch.setattr(recordings, "load", lambda folder: replace(whole, runs=(run,)))
    climb._plan = whole.header.plan
    (climb.key,) = whole.header.plan.runs[:1]
    climb._until = time.monotonic() + left_s
    slow = replace(lever("slow"), patience_s=patience_s)
    side = climb._side("slow", TEXT, (slow,))

    assert Climb._record(climb, side).startswith(words)
    assert limits == [pytest.approx(limit_s, abs=2)]
    assert climb._recorders["slow"].header.options.timeout_s == 900


@pytest.mark.parametrize(
    ("first", "pairs", "decision"),
    [
        (1.0, [0.98], Decision.NONE),
        (0.96, [0.98], Decision.OPEN),
        (1.0, [0.96], Decision.OPEN),
        (0.5, [0.5], Decision.OPEN),
    ],
)
def test_a_first_process_and_a_pair_without_a_gain_are_enough(
    climb: Canned,
    monkeypatch: pytest.MonkeyPatch,
    first: float,
    pairs: Sequence[float],
    decision: Decision,
) -> None:
    def side(*medians: float) -> Samples:
        rounds = dict(enumerate(medians, 1))
        pieces = {2: (medians[1],) * 20}
        return Samples(median=1, low=1, high=1, count=20, rounds=rounds, pieces=pieces)

    sides = {"one": side(1.0, 1.0), "other": side(first, *pairs)}
    monkeypatch.setattr(climb, "_times", sides.get)

    measured = climb._decided("one", "other", range(2, 3), is_last=False)  # type: ignore[arg-type]

    assert measured.decision is decision


@pytest.mark.parametrize(("ratio", "pairs"), [(0.96, 4), (0.93, 8)])
def test_a_little_gain_gets_no_more_pairs_than_a_look_needs(
    climb: Canned, monkeypatch: pytest.MonkeyPatch, ratio: float, pairs: int
) -> None:
    one = Samples(median=1, low=1, high=1, count=20, rounds={}, pieces={})
    open_ = m.Gain(ratio=ratio, low=0.8, high=1.1, pairs=4)
    few = m.Skipped("too few pairs")
    side = climb.as_is
    recorders: Any = {side.label: one}
    climb._recorders = recorders
    monkeypatch.setattr(climb, "_times", lambda of: of)
    monkeypatch.setattr(climb, "_measured_pair", lambda *_, **__: True)
    monkeypatch.setattr(
        climb,
        "_decided",
        lambda *given, **_: Measured(open_ if len(given[2]) >= 4 else few, Decision.OPEN),
    )

    assert Climb._compared(climb, side, side).gain == open_
    assert climb._number == 1 + pairs


@pytest.mark.parametrize(
    ("ratios", "is_last", "decision"),
    [
        ((0.5, 0.8), False, Decision.SHOWN),
        ((0.5, 0.8), True, Decision.OPEN),
        ((0.5, 0.95), False, Decision.OPEN),
        ((1.0, 1.2), True, Decision.NONE),
        ((0.98, 1.2), False, Decision.NONE),
        ((0.98, 1.2), True, Decision.OPEN),
        ((0.96, 1.2), False, Decision.OPEN),
        ((0.5,), False, Decision.OPEN),
    ],
)
def test_two_pairs_decide_what_is_clear(
    climb: Canned,
    monkeypatch: pytest.MonkeyPatch,
    ratios: Sequence[float],
    is_last: bool,
    decision: Decision,
) -> None:
    pieces = Samples(median=1, low=1, high=1, count=20, pieces={})
    rounds = {number: 1.0 for number, _ in enumerate(ratios, 2)}
    one = replace(pieces, rounds=rounds)
    other = replace(pieces, rounds=dict(enumerate(ratios, 2)))
    recorders = {"one": one, "other": other}
    monkeypatch.setattr(climb, "_times", recorders.get)

    measured = climb._decided("one", "other", range(2, 2 + len(ratios)), is_last=is_last)  # type: ignore[arg-type]

    assert measured.decision is decision
    assert bool(measured.why) is (decision is not Decision.SHOWN)


@pytest.mark.parametrize(
    ("low", "high", "at_look", "expected"),
    [
        (0.5, 0.9, True, Decision.SHOWN),
        (0.5, 0.9, False, Decision.OPEN),
        (0.9, 0.98, True, Decision.OPEN),
        (0.975, 0.99, True, Decision.SMALL),
        (0.98, 1.2, True, Decision.SMALL),
        (1.0, 1.2, True, Decision.NONE),
        (0.9, 1.2, True, Decision.OPEN),
    ],
)
def test_an_interval_decides_at_a_look_only(
    low: float, high: float, at_look: bool, expected: Decision
) -> None:
    measured = m.Gain(ratio=(low + high) / 2, low=low, high=high, pairs=4)

    assert decision_of(measured, at_look=at_look) is expected
