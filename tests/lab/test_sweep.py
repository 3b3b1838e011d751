"""Cells run in turn, each process in a child; one that dies, hangs or raises costs itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kgprof import model as m
from kgprof.errors import UsageError
from kgprof.lab.sweep import Grid, Session, lacking, refuse_another_question
from kgprof.progress import Progress
from kgprof.record.processes import recorder, trials
from kgprof.record.processes.children import Caches
from tests.record import handmade
from tests.sweeps import DEFAULT, EAGER, QUESTION, TUNED

AOT = m.Cell(mode="default", backend="aot_eager")
MODES = (m.AS_IS, m.EAGER, *m.COMPILED_MODES)
GRID = Grid(modes=("default", "max-autotune"))
OK = m.Exit(outcome=m.Outcome.OK)

Answers = dict[m.Cell, trials.Trial]


def trial(ended: m.Exit = OK, *, step_us: float = 100.0, interrupted: bool = False) -> trials.Trial:
    times = m.CellTimes(start_s=(1.0,), step_us=(step_us,), clock="perf_counter", frames=1)
    answer = m.encode_json(m.CellAnswer(times=times)) if ended.outcome is m.Outcome.OK else None
    return trials.Trial(exit=ended, answer=answer, log="the log", interrupted=interrupted)


@pytest.fixture
def asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[Session, list[str]]]:
    """A session whose children answer at once, and what they were asked in turn."""

    def begin(
        answers: Answers, earlier: m.Sweep | None = None, grid: Grid = GRID
    ) -> tuple[Session, list[str]]:
        turns: list[str] = []

        def run(function: str, question: m.CellQuestion, **given: object) -> trials.Trial:
            start = "" if question.steady else " start"
            turns.append(f"{question.cell.mode} {'cold' if question.cold else 'warm'}{start}")
            return answers.get(question.cell, trial())

        plan = m.Plan(
            workload="model.py:step",
            strategies=(m.StrategyPlan(name="step", modes=MODES),),
            runs=(m.RunKey(strategy="step", mode=m.AS_IS),),
            baseline=None,
            device="cuda",
            environment=handmade.ENVIRONMENT,
            vector_isa_probe_s=m.Skipped(reason="a test"),
            agreement=False,
        )
        monkeypatch.setattr(trials, "run", run)
        monkeypatch.setattr(recorder, "make_plan", lambda *given, **settings: (plan, None))
        options = m.Options(workload="model.py:step")
        session = Session(
            options,
            tmp_path,
            Progress(),
            lambda spans: m.Skipped(reason="none"),
            lambda sweep: None,
        )
        session.plan(grid, tmp_path, str)
        session.begin(grid, 3, earlier)
        return session, turns

    return begin


@pytest.mark.parametrize("works", [True, False])
def test_what_runs_in_a_sweep_need_not_try_the_vector_instructions_again(
    asked: Callable[..., tuple[Session, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    works: bool,
) -> None:
    begun: list[Caches] = []
    session, _ = asked({})
    plan = msgspec.structs.replace(
        session._plan, vector_isa_works=works, variables={"TORCH_OF_IT": "1"}
    )
    monkeypatch.setattr(recorder, "make_plan", lambda *given, **settings: (plan, None))
    monkeypatch.setattr(trials, "run", lambda *_, caches, **given: begun.append(caches) or trial())
    session.plan(GRID, tmp_path, str)
    session.begin(GRID, 3, None)

    swept(session)

    told = {"TORCH_OF_IT": "1", **({"TORCHINDUCTOR_VEC_ISA_OK": "1"} if works else {})}
    seed = tmp_path / recorder.PROBE_CACHE
    assert {(each.seed, *each.extra.items()) for each in begun} == {(seed, *told.items())}
    assert session.caches("others", kept=True) == Caches(
        folder=tmp_path / "others", seed=seed, extra=told, kept=True
    )


def swept(session: Session, minutes: float = 60.0, repeats: int = 1) -> m.Sweep:
    return session.run(repeats=repeats, minutes=minutes, ahead=lambda sweep: [DEFAULT])


def test_the_processes_of_the_cells_take_turns_and_the_first_of_each_is_cold(
    asked: Callable[..., tuple[Session, list[str]]],
) -> None:
    session, turns = asked({})

    found = swept(session)

    first = ["eager cold", "default cold", "max-autotune cold"]
    then = ["eager warm", "default warm", "max-autotune warm"]
    assert turns == [*first, *then, *then, "default cold start", "default cold start"]
    assert [len(each.measured()) for each in found.cells] == [3, 5, 3]


@pytest.mark.parametrize("outcome", [m.Outcome.KILLED, m.Outcome.TIMED_OUT, m.Outcome.RAISED])
def test_a_cell_that_ends_otherwise_costs_itself(
    asked: Callable[..., tuple[Session, list[str]]], outcome: m.Outcome
) -> None:
    ended = m.Exit(outcome=outcome, message="why", during="trial")
    session, turns = asked({TUNED: trial(ended)})

    found = swept(session)

    assert turns.count("max-autotune cold") == 1
    assert "max-autotune warm" not in turns
    cells = {each.cell: each for each in found.cells}
    assert cells[TUNED].dead
    assert cells[TUNED].failed == m.Exit(outcome=outcome, message="why")
    assert cells[TUNED].processes[0].log == "the log"
    assert len(cells[EAGER].measured()) == 3


def test_an_interruption_keeps_what_was_measured(
    asked: Callable[..., tuple[Session, list[str]]],
) -> None:
    session, _ = asked({TUNED: trial(m.Exit(outcome=m.Outcome.INTERRUPTED), interrupted=True)})

    found = swept(session)

    assert found.interrupted
    assert [len(each.processes) for each in found.cells] == [1, 1, 0]


def test_cells_that_have_ended_are_not_run_again(
    asked: Callable[..., tuple[Session, list[str]]],
) -> None:
    # given: an earlier sweep in which one cell died, one is complete and one was cut off
    session, _ = asked({DEFAULT: trial(m.Exit(outcome=m.Outcome.KILLED))})
    earlier = swept(session)
    cut = [
        each if each.cell != TUNED else m.CellResult(cell=TUNED, processes=each.processes[:2])
        for each in earlier.cells
    ]
    ladder = m.Ladder(
        strategy="step",
        cell=DEFAULT.name,
        steps=1,
        rungs=(),
        first=None,
        minified=m.Skipped(reason="no rung differs"),
    )
    earlier = m.decode_json(m.encode_json(msgspec.structs.replace(earlier, ladder=ladder)), m.Sweep)

    # when
    session, turns = asked({}, earlier)
    whole = swept(session)
    session, again = asked({}, msgspec.structs.replace(earlier, cells=tuple(cut)))
    swept(session)

    # then
    assert turns == []
    assert (whole.ladder, whole.shapes) == (ladder, None)
    assert again == ["max-autotune cold", "max-autotune warm", "max-autotune warm"]


def test_repeats_are_cold_starts_of_every_cell(
    asked: Callable[..., tuple[Session, list[str]]],
) -> None:
    session, turns = asked({})

    swept(session, repeats=2)

    assert [turns.count(f"{mode} cold") for mode in ("eager", "default", "max-autotune")] == [
        1,
        1,
        1,
    ]
    assert [turns.count(f"{mode} cold start") for mode in ("eager", "default", "max-autotune")] == [
        1,
        1,
        1,
    ]


def test_no_process_is_started_that_would_end_too_late(
    asked: Callable[..., tuple[Session, list[str]]],
) -> None:
    """Eager is what all others are held against: it runs in any case."""
    session, turns = asked({})

    found = swept(session, minutes=0.01)

    assert set(turns) == {"eager cold", "eager warm"}
    assert [bool(each.not_run) for each in found.cells] == [False, True, True]


@pytest.mark.parametrize(
    ("frames", "minutes", "ran", "whole"),
    [
        # nothing is compiled: the first compiling cell shows it
        (0, 60.0, {EAGER: 1, DEFAULT: 1, TUNED: 0}, False),
        (1, 60.0, {EAGER: 4, DEFAULT: 6, TUNED: 4}, True),
        # no time for more is no reason to say so, nor is it a death
        (1, 0.01, {EAGER: 4, DEFAULT: 0, TUNED: 0}, True),
    ],
)
def test_a_script_that_compiles_nothing_is_not_run_in_every_cell(
    asked: Callable[..., tuple[Session, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    frames: int,
    minutes: float,
    ran: dict[m.Cell, int],
    whole: bool,
) -> None:
    def process(self: Session, question: m.CellQuestion, caches: object, number: int) -> object:
        cold = question.cold
        steps = () if cold else (100.0,)
        count = frames if cold and question.cell.compiles else 0
        times = m.CellTimes(start_s=(1.0,), step_us=steps, clock="perf_counter", frames=count)
        return OK, times, "", False

    session, _ = asked({})
    monkeypatch.setattr(Session, "_program_process", process)
    monkeypatch.setattr(session, "_is_program", True)
    monkeypatch.setattr(session, "_warm_turns", 3)

    found = swept(session, minutes=minutes)

    assert {each.cell: len(each.processes) for each in found.cells} == ran
    assert not any(each.dead for each in found.cells)
    assert any(times.step_us for each in found.cells for times in each.measured()) is whole


def test_a_process_that_is_ended_because_the_time_is_up_has_not_failed(
    asked: Callable[..., tuple[Session, list[str]]],
) -> None:
    session, _ = asked({TUNED: trial(m.Exit(outcome=m.Outcome.TIMED_OUT))})
    session.until = 0.0

    *others, cut = swept(session).cells

    assert (cut.cell, cut.processes, cut.failed) == (TUNED, (), None)
    assert cut.not_run.startswith("measured in no process: time ran out")
    assert [len(each.measured()) for each in others] == [3, 5]


def test_a_cell_is_begun_only_if_all_its_turns_have_room(
    asked: Callable[..., tuple[Session, list[str]]],
) -> None:
    """The guess for max-autotune is 150 s, for default 67 s."""
    session, turns = asked({})

    found = swept(session, minutes=100 / 60)

    assert [len(each.measured()) for each in found.cells] == [3, 5, 0]
    assert found.cells[2].not_run.startswith("measured in no process")
    assert not any(turn.startswith("max-autotune") for turn in turns)


def test_a_cell_that_was_left_out_runs_if_the_others_took_less_than_expected(
    asked: Callable[..., tuple[Session, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the others' turns max-autotune is expected to end after 450 of 400 s, after them after
    210 s."""
    session, turns = asked({})
    took_s: dict[tuple[m.Cell, bool], float] = {}
    monkeypatch.setattr(session, "_took_s", took_s)
    monkeypatch.setattr(
        session,
        "_expected_s",
        lambda cell, *, cold: 0.0 if (cell, cold) in took_s else 60 + 30 * cold,
    )

    found = swept(session, minutes=400 / 60)

    assert [len(each.measured()) for each in found.cells] == [3, 5, 3]
    assert not any(each.not_run for each in found.cells)
    assert turns.index("max-autotune cold") > turns.index("default warm")


def test_the_usual_grid_has_eight_cells_on_a_gpu_and_no_two_alike_on_a_cpu() -> None:
    on_gpu, on_cpu = (Grid().cells(device, own_settings=False) for device in ("cuda", "cpu"))

    assert (len(on_gpu), len(on_cpu)) == (8, 4)
    assert on_gpu[0] == on_cpu[0] == EAGER
    assert not [cell for cell in on_cpu if cell.mode in ("reduce-overhead", "max-autotune")]
    assert Grid().cells("cpu", own_settings=True)[1] == m.Cell(mode=m.AS_IS)


def test_a_grid_is_the_product_of_what_was_asked_for() -> None:
    grid = Grid(
        backends=("inductor", "aot_eager"),
        modes=("default", "max-autotune"),
        dynamic=(m.Dynamic.FALSE,),
    )

    static = [m.Cell(mode=mode, dynamic=m.Dynamic.FALSE) for mode in ("default", "max-autotune")]
    assert list(grid.cells("cpu", own_settings=False)) == [
        EAGER,
        *static,
        m.Cell(mode="default", backend="aot_eager", dynamic=m.Dynamic.FALSE),
    ]
    sized = Grid(modes=("default",), sizes=(("--batch", "8"), ("--batch", "64"))).cells(
        "cpu", own_settings=False
    )
    assert [(cell.mode, cell.size[-1]) for cell in sized] == [
        *(("eager", "8"), ("default", "8")),
        *(("eager", "64"), ("default", "64")),
    ]


@pytest.mark.parametrize(
    ("cell", "device", "why"),
    [
        (m.Cell(mode="default", backend="onnxrt"), "cuda", "not installed"),
        (m.Cell(mode="default", backend="tensorrt"), "cuda", "not installed"),
        (m.Cell(mode="default", backend="cudagraphs"), "cpu", "needs an NVIDIA GPU"),
        (m.Cell(mode="default", precision=m.Precision.TF32), "cpu", "TF32"),
        (m.Cell(mode="default", backend="cudagraphs"), "cuda", ""),
        (AOT, "cpu", ""),
    ],
)
def test_what_cannot_run_here_says_why(cell: m.Cell, device: str, why: str) -> None:
    assert bool(lacking(cell, device, MODES)) is bool(why)
    assert why in lacking(cell, device, MODES)


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        (EAGER, "# leave f uncompiled"),
        (
            m.Cell(mode="reduce-overhead", dynamic=m.Dynamic.TRUE),
            'f = torch.compile(f, mode="reduce-overhead", dynamic=True)',
        ),
        (AOT, 'f = torch.compile(f, backend="aot_eager")'),
        (
            m.Cell(mode="default", precision=m.Precision.TF32),
            'torch.set_float32_matmul_precision("high")\nf = torch.compile(f)',
        ),
    ],
)
def test_the_code_of_a_cell(cell: m.Cell, code: str) -> None:
    assert cell.code("f", "cuda") == code


def test_another_question_is_refused_with_what_differs() -> None:
    other = msgspec.structs.replace(QUESTION, torch="2.13.0")

    refuse_another_question(QUESTION, (other, QUESTION), Path("sweep.json"))
    with pytest.raises(UsageError, match=r"torch was '2\.11\.0', is '2\.13\.0'"):
        refuse_another_question(QUESTION, (other,), Path("sweep.json"))
