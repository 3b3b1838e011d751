"""Whoever says which of two runs is faster says what the judge says: every section, over pairs of
every kind.

A pair is what an eager run and a compiled one took, a list of step times for each process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import msgspec
import pytest

from kgprof import model as m
from kgprof.analysis import analyse
from kgprof.analysis.trade_off import weigh
from kgprof.analysis.verdict import fastest
from kgprof.collectors.time.break_even import NEVER_BREAKS_EVEN
from kgprof.compare import CompareSettings, compare
from kgprof.document.economics_table import economics_table
from kgprof.document.finding_list import finding_list
from kgprof.document.first_screen import first_screen
from kgprof.document.summary import columns
from kgprof.document.sweep import sheet
from kgprof.judge import APART, NOISY, Doubt, InTurn, Samples, Unknown, judge
from kgprof.measures.buckets import best_policy
from kgprof.measures.sweep import weighed
from kgprof.measures.times import PER_STEP, held, samples, spread
from kgprof.render.html import LEVELS
from kgprof.render.markdown import Markdown
from tests import sweeps
from tests.analysis.recordings import COMPILED, EAGER, recording, run
from tests.gathering import for_all

FASTER, SLOWER, LEVEL, UNDECIDED = m.Judged
Processes = Sequence[Sequence[float]]


def steps(middle: float, noise: float = 0.02) -> list[float]:
    """Of one process: twenty, evenly from one end to the other."""
    return [middle * (1 + noise * (2 * at / 19 - 1)) for at in range(20)]


def rounds(*middles: float) -> list[list[float]]:
    return [steps(middle) for middle in middles]


# name: what eager took, what the compiled run took, and what the compiled run is
PAIRS: dict[str, tuple[Processes, Processes, m.Judged]] = {
    "one process each, twice as fast": (rounds(1000), rounds(500), FASTER),
    "one process each, half as fast": (rounds(500), rounds(1000), SLOWER),
    "one process each, 1.6 times": (rounds(1600), rounds(1000), FASTER),
    "one process each, 1.4 times": (rounds(1400), rounds(1000), UNDECIDED),
    "one process each, 1.4 times slower": (rounds(1000), rounds(1400), UNDECIDED),
    "one process each, 1.01 times": (rounds(1010), rounds(1000), LEVEL),
    "one process each, 1.3 times, and they overlap": (
        [steps(1300, 0.3)],
        [steps(1000, 0.3)],
        UNDECIDED,
    ),
    "one process each, noisy, five times": (rounds(5000), [steps(1000, 0.6)], UNDECIDED),
    "one step each": ([[2000.0]], [[1000.0]], UNDECIDED),
    "rounds, a tenth faster": (rounds(1000, 1010, 990), rounds(900, 910, 890), FASTER),
    "rounds, a tenth slower": (rounds(900, 910, 890), rounds(1000, 1010, 990), SLOWER),
    "rounds, level": (rounds(1000, 1010, 990), rounds(1002, 1011, 989), LEVEL),
    "rounds that lie wide apart": (rounds(1000, 1500, 700), rounds(900, 1300, 600), UNDECIDED),
    "two rounds that agree": (rounds(1000, 1001), rounds(800, 801), FASTER),
    "two rounds that do not": (rounds(1000, 1300), rounds(800, 1050), UNDECIDED),
    "two rounds that vary by half, and eight times": (rounds(2450, 1350), rounds(218, 219), FASTER),
    "five rounds with an outlier, all above": (
        rounds(1000, 1010, 990, 1005, 2600),
        rounds(900, 905, 910, 895, 899),
        FASTER,
    ),
    "three rounds with an outlier, all above": (
        rounds(1000, 1010, 2600),
        rounds(900, 905, 910),
        UNDECIDED,
    ),
    "rounds of noisy processes": ([steps(1000, 0.6)] * 3, [steps(500, 0.6)] * 3, FASTER),
    "rounds on one side only": (rounds(1000, 1010, 990), rounds(900), UNDECIDED),
}
ONE_EACH = [
    name for name, (eager, compiled, _) in PAIRS.items() if min(len(eager), len(compiled)) == 1
]


def record(key: m.RunKey, processes: Processes) -> m.RunRecord:
    """Eager starts in 1 ms, the compiled run in 4 s."""
    first, *further = (
        m.TimingPass(clock="perf_counter", step_us=(tuple(us),), evaluation_s=())
        for us in processes
    )
    made = run(key, evaluation_s=None, unfinished=None)
    assert isinstance(made.compile, m.CompilePass)
    call_us = (1000.0 if key == EAGER else 4e6, *processes[0][:3], processes[0][0])
    ended = m.Exit(outcome=m.Outcome.OK, exit_code=0)
    timed = (
        m.TimedRound(first_call_s=0.1, graphs_from_cache=1, graphs_compiled=0, timing=timing)
        for timing in further
    )
    return msgspec.structs.replace(
        made,
        timing=first,
        compile=msgspec.structs.replace(made.compile, call_us=call_us),
        rounds=tuple(
            m.RoundRecord(number=at, exit=ended, measured=one)
            for at, one in enumerate(timed, start=2)
        ),
    )


def profile(eager: Processes, compiled: Processes) -> m.Profile:
    return analyse(recording(record(EAGER, eager), record(COMPILED, compiled)))


@functools.cache
def judged_pair(name: str) -> tuple[m.Profile, m.Judged]:
    eager, compiled, expected = PAIRS[name]
    return profile(eager, compiled), expected


def of_each_pair(check: Callable[[tuple[m.Profile, m.Judged]], None]) -> Callable[..., None]:
    """The test that each pair holds what the check asks."""

    def of_pair(name: str) -> None:
        check(judged_pair(name))

    return for_all(PAIRS)(of_pair)


@of_each_pair
def test_the_judge_tells_what_was_planted_from_either_side(
    pair: tuple[m.Profile, m.Judged],
) -> None:
    (eager, compiled), expected = pair[0].runs, pair[1]

    assert held(compiled, eager, PER_STEP).verdict is expected
    assert held(eager, compiled, PER_STEP).verdict is {FASTER: SLOWER, SLOWER: FASTER}.get(
        expected, expected
    )


@of_each_pair
def test_the_first_line_and_its_colour_agree(pair: tuple[m.Profile, m.Judged]) -> None:
    found, expected = fastest(pair[0].runs, EAGER), pair[1]

    assert (found.status is m.VerdictStatus.INCONCLUSIVE) == (expected is UNDECIDED)
    first = {
        FASTER: "batched.default is fastest: ",
        SLOWER: "batched.eager is fastest: ",
        LEVEL: " are level: ",
        UNDECIDED: "cannot rank: ",
    }
    assert first[expected] in found.text


@of_each_pair
def test_speedups_and_the_table_of_runs_agree(pair: tuple[m.Profile, m.Judged]) -> None:
    (_, compiled), expected = pair[0].runs, pair[1]
    (column,) = (each for each in columns(pair[0]) if each.key == "speed-up")

    assert isinstance(compiled.speedup, m.Speedup)
    assert compiled.speedup.verdict is expected
    assert [word for word in ("level", "not decided") if word in column.cell(compiled).details] == (
        [str(expected)] if expected in (LEVEL, UNDECIDED) else []
    )


@of_each_pair
def test_the_first_screen_marks_a_winner_only_where_there_is_one(
    pair: tuple[m.Profile, m.Judged],
) -> None:
    expected, limits = pair[1], LEVELS[0]
    bars = first_screen(pair[0], finding_list(pair[0], limits))["bars"]

    shown = {bar["run"]: bar for bar in bars}
    winner = {FASTER: COMPILED.slug, SLOWER: EAGER.slug}.get(expected)
    assert [name for name, bar in shown.items() if bar["first"]] == ([winner] if winner else [])
    assert (shown[COMPILED.slug]["speedup"] == str(expected)) == (expected in (LEVEL, UNDECIDED))


@of_each_pair
def test_the_comment_agrees(pair: tuple[m.Profile, m.Judged]) -> None:
    table = [
        line
        for line in Markdown().render(pair[0]).splitlines()
        if line.startswith("| `batched.default`")
    ]

    assert (f"| {pair[1]} |" in table[0]) == (pair[1] in (LEVEL, UNDECIDED))


@of_each_pair
def test_break_even_stands_only_where_the_compiled_run_is_faster(
    pair: tuple[m.Profile, m.Judged],
) -> None:
    (_, compiled), expected = pair[0].runs, pair[1]
    found = compiled.economics

    assert isinstance(found, m.Economics)
    payoff = {FASTER: "pays", SLOWER: "never", LEVEL: "level", UNDECIDED: "not decided"}[expected]
    assert found.verdict == payoff
    assert isinstance(found.cold, m.BreakEven) == (expected is FASTER)
    (row,) = economics_table(pair[0]).rows
    assert (row.cells[1].text, bool(row.cells[1].details)) == (payoff, expected in (FASTER, SLOWER))
    assert ("pays off after" in found.text) == (expected is FASTER)
    levels = [each.level for each in pair[0].findings if each.rule == NEVER_BREAKS_EVEN.id]
    assert levels == {SLOWER: [m.Level.WARNING], LEVEL: [m.Level.NOTE]}.get(expected, [])


@of_each_pair
def test_a_trade_off_agrees(pair: tuple[m.Profile, m.Judged]) -> None:
    eager, compiled = pair[0].runs
    words = {FASTER: m.ReadVerdict.KEEP, SLOWER: m.ReadVerdict.REMOVE}

    found = weigh(compiled, eager, eager.key, (), on_cuda=False)

    assert found.verdict is words.get(pair[1], m.ReadVerdict.INCONCLUSIVE)


@for_all(PAIRS)
def test_a_comparison_agrees_beyond_its_limit_and_explains_what_is_slower(name: str) -> None:
    base, head, expected = PAIRS[name]
    sides = [
        analyse(recording(record(EAGER, processes), baseline=None)) for processes in (base, head)
    ]

    found = compare(*sides, CompareSettings(budgets={m.TimeOf.STEP: 0.0})).comparison

    assert found is not None
    (metric,) = (each for each in found.runs[0].metrics if each.time_of is m.TimeOf.STEP)
    answer = held(sides[1].runs[0], sides[0].runs[0], PER_STEP)
    if name in ONE_EACH:  # no limit is held against one process
        assert (metric.verdict, metric.undecided) == (
            m.MetricVerdict.INCONCLUSIVE,
            m.Undecided.ONE_ROUND,
        )
    else:
        assert answer.interval is not None
        assert (metric.low, metric.high) == pytest.approx(
            (1 / answer.interval.high, 1 / answer.interval.low)
        )
        known = {FASTER: m.MetricVerdict.BETTER, SLOWER: m.MetricVerdict.WORSE}
        settled = not metric.low <= 1 <= metric.high  # type: ignore[operator]
        assert metric.verdict is (known.get(expected) if settled else m.MetricVerdict.INCONCLUSIVE)
        assert settled or expected is not SLOWER
    assert isinstance(found.runs[0].explained_us, float) == (expected is SLOWER)


@for_all([name for name in PAIRS if name not in ONE_EACH])
def test_a_sweep_agrees(name: str) -> None:
    eager, compiled, expected = PAIRS[name]
    middles = [[sorted(us)[10] for us in side] for side in (eager, compiled)]
    few = len(eager) < 3
    # A second cold start is one more process.
    cold_s = ([0.0, 0.01], [1.0, 1.01]) if expected is FASTER and not few else ([0.0], [1.0])
    cells = [
        sweeps.cell(kind, *us, cold_s=starts)
        for kind, us, starts in zip((sweeps.EAGER, sweeps.DEFAULT), middles, cold_s, strict=True)
    ]
    found = weighed(sweeps.sweep(*cells), 1_000_000)
    (worth,) = (each for each in found.worth if each.cell == sweeps.DEFAULT)

    assert worth.verdict is (UNDECIDED if few else expected)
    assert not isinstance(worth.break_even, m.Estimate) or worth.verdict is FASTER
    assert ("faster than eager" in found.verdicts[0].text) == (worth.verdict is FASTER)
    table = sheet(found).sections[0].blocks[-1]
    (row,) = (row for row in table.rows if row.cells[0].text == sweeps.DEFAULT.name)  # type: ignore[union-attr]
    assert (str(worth.verdict) in row.cells[2].details) == (
        worth.verdict in (LEVEL, UNDECIDED) and not few
    )


@for_all(ONE_EACH)
def test_policies_for_sizes_agree(name: str) -> None:
    eager, compiled, expected = PAIRS[name]

    def result(us: Sequence[float], compile_s: float) -> m.PolicyResult:
        time = spread(us, unit="ms", measured_in=m.PassName.TIMING)
        sizes = (
            m.SizeCost(size=8, calls=3, padded_to=8, steady=time),
            m.SizeCost(size=9, calls=1, padded_to=9, steady=time),
        )
        return m.PolicyResult(graphs=1, compile_s=compile_s, sizes=sizes)

    # The compiled run's times are those of the policy that compiles longer.
    policies = [
        (m.SizePolicy.STATIC, result(compiled[0], 9.0)),
        (m.SizePolicy.DYNAMIC, result(eager[0], 1.0)),
    ]

    chosen = best_policy(policies)

    assert chosen is not None
    best, unknown = chosen.best, chosen.unknown

    if expected in (FASTER, SLOWER, LEVEL):
        assert best is (m.SizePolicy.STATIC if expected is FASTER else m.SizePolicy.DYNAMIC)
        assert unknown == []
    elif len(compiled) == len(eager) == 1:
        assert best is not None
        assert unknown == [each for each, _ in policies if each is not best]


# ---------------------------------------------------------------- what no report can have


def one(*us: float) -> Samples:
    return Samples(median=sorted(us)[len(us) // 2], low=min(us), high=max(us), count=len(us))


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ((0.0, 0.0), (1.0, 1.0), Doubt.NO_TIME),
        ((1.0, 1.0), (0.0, 1.0), Doubt.NO_TIME),
        ((1.0,), (9.0, 9.0), Doubt.ONCE),
        ((1.0, NOISY * 1.01), (9.0, 9.0), Doubt.VARIED),
        ((1.0, 1.5), (1.3, 1.9), Doubt.OVERLAP),
        ((1.0, 1.0), (APART * 0.99, APART * 0.99), Doubt.CLOSE),
    ],
)
def test_why_nobody_can_tell(
    first: tuple[float, ...], second: tuple[float, ...], why: Doubt
) -> None:
    for sides in ((one(*first), one(*second)), (one(*second), one(*first))):
        answer = judge(*sides)

        assert isinstance(answer, Unknown)
        assert answer.why is why


def test_a_limit_is_held_against_an_interval_only() -> None:
    answer = judge(one(1.0, 1.0), one(9.0, 9.0), limit=0.05)

    assert answer == Unknown(Doubt.ONE_ROUND)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        pytest.param((1100.0, 1102.0, 1098.0, 1100.0), SLOWER, id="slower"),
        pytest.param((900.0, 902.0, 898.0, 900.0), FASTER, id="faster"),
        pytest.param((1001.0, 1003.0, 998.0, 999.0), LEVEL, id="level"),
        pytest.param((700.0, 1600.0, 900.0, 1300.0), UNDECIDED, id="wide apart"),
    ],
)
def test_pairs_in_turn(head: tuple[float, ...], expected: m.Judged) -> None:
    def side(us: Sequence[float]) -> Samples:
        return msgspec.structs.replace(one(*us), rounds=dict(enumerate((9e9, *us), start=1)))

    base = side((1000.0, 1001.0, 999.0, 1000.0))

    assert judge(side(head), base, in_turn=InTurn(4, 4)).verdict is expected
    assert judge(side(head), base, 0.02, InTurn(4, 4)).verdict is expected


def test_rounds_of_which_nobody_knows_the_numbers_are_no_rounds() -> None:
    compiled = profile(rounds(1000, 1010, 990), rounds(900, 910, 890)).runs[1]
    assert isinstance(compiled.rounds, m.Rounds)
    lost = msgspec.structs.replace(compiled.rounds, step_us=compiled.rounds.step_us[:2])

    side = samples(msgspec.structs.replace(compiled, rounds=lost), PER_STEP)

    assert isinstance(side, Samples)
    assert len(side.rounds) == 1
