"""Every outcome of ``kgprof capture``, on functions whose outcome is known; on the CPU with an
imitation of a graph."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kgprof import model as m
from kgprof.lab import capture_cases, captures
from kgprof.model import CaptureOutcome as Outcome
from kgprof.progress import Progress
from kgprof.record.ground.scratch import scratch_folder
from kgprof.record.processes import children

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "captured" / "programs.py"
TAPE, CUDA_GRAPH = "tests.lab.capture_tape:Tape", "kgprof.lab.capturing:CudaGraph"
HANGS_AFTER_S = 48.0  # from its start, on a GPU; importing torch takes 3 of them
HANGS_FOR_S = 0.5  # from where it is to hang
TRUTH = {
    "plain": ("capture-eager", Outcome.CORRECT),
    "accumulates": ("capture-eager", Outcome.CORRECT),
    "draws": ("capture-eager", Outcome.CORRECT),
    "nested": ("capture-default", Outcome.CORRECT),
    "reads_globals": ("capture-eager-rebound", Outcome.WRONG),
    "counts": ("capture-eager", Outcome.WRONG),
    "reads_a_value": ("capture-eager", Outcome.RAISED),
    "synchronizes": ("capture-eager", Outcome.RAISED),
    "copies_to_the_cpu": ("capture-eager-cold", Outcome.RAISED),
    "waits_for_a_lock": ("capture-eager", Outcome.HUNG),
    "waits_at_a_barrier": ("capture-eager-cold", Outcome.HUNG),
    "fails": ("capture-eager", Outcome.NOT_APPLICABLE),
}
Tries = Callable[..., m.CaptureResult]


def environment() -> m.Environment:
    unknown = m.Skipped(reason="a test")
    texts = dict.fromkeys(("kgprof", "python", "torch", "device_name", "cpu_name", "platform"), "")
    others = (
        "triton",
        "cuda",
        "driver",
        "cpu_count",
        "torch_threads",
        "memory_bytes",
        "compiler",
        "git_commit",
    )
    return m.Environment(**texts, **dict.fromkeys((*others, "git_dirty"), unknown), flags={})


SURVEY = m.CaptureSurvey(environment=environment(), strategy="step")


@pytest.fixture
def scratch() -> Iterator[Path]:
    with scratch_folder("kgprof-test-") as folder:
        yield folder


@pytest.fixture
def tried(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Tries:
    """One case of one function of PROGRAMS."""
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    )

    def attempt(
        program: str, name: str, *, capturer: str, timeout_s: float = 150.0
    ) -> m.CaptureResult:
        backend = "aot_eager" if capturer == TAPE else ""
        options = m.Options(workload=f"{PROGRAMS}:{program}", timeout_s=timeout_s, backend=backend)
        (case,) = captures.chosen([name], built_in=False)
        question = m.CaptureQuestion(case=case, capturer=capturer)
        (result,) = captures.Captures(options, scratch, Progress(), question).results(
            [case], SURVEY
        )
        return result

    return attempt


def phase_of_hanging(case: str) -> str:
    return "warm-up" if case == "capture-eager" else "capture"  # without warm-up


def checked(program: str, result: m.CaptureResult) -> None:
    name, outcome = TRUTH[program]
    assert (result.name, result.outcome) == (name, outcome), result
    answer = result.answer
    assert answer is not None
    if outcome is Outcome.HUNG:
        assert answer.phase == phase_of_hanging(name)
        assert f"in {program}" in result.stacks
        for pid in re.findall(r"descendant (\d+)", result.stacks):
            assert not Path("/proc", pid).exists()
        assert ("descendant" in result.stacks) == (program == "waits_at_a_barrier")
        assert isinstance(result.native_stacks, m.Skipped) or "#0" in result.native_stacks
    if outcome in (Outcome.CORRECT, Outcome.WRONG):
        assert answer.difference is not None
        assert bool(answer.difference.differing) == (outcome is Outcome.WRONG)
        assert not answer.blind
        assert [one.name for one in answer.inputs][:1] == ["a"]
        assert isinstance(answer.call_us, m.Spread) == (outcome is Outcome.CORRECT)
    if outcome in (Outcome.RAISED, Outcome.NOT_APPLICABLE):
        assert "Error: " in result.why
        assert answer.at is not None
    assert answer.stale == (program == "reads_globals")


def limit(program: str) -> float:
    return HANGS_AFTER_S if TRUTH[program][1] is Outcome.HUNG else 600.0


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tries]:
    """As ``tried``, on the tape and in this process: for what neither hangs nor dies."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.delitem(sys.modules, PROGRAMS.stem, raising=False)

    def attempt(program: str, name: str) -> m.CaptureResult:
        (case,) = captures.chosen([name], built_in=False)
        question = m.encode_json(m.CaptureQuestion(case=case, capturer=TAPE))
        answers: list[Any] = []
        capture_cases.measure(
            question,
            m.Options(workload=f"{PROGRAMS}:{program}", backend="aot_eager"),
            answers.append,
        )
        answer: m.CaptureAnswer = answers[-1]
        assert answer.outcome is not None
        return m.CaptureResult(
            case=case, name=case.name, outcome=answer.outcome, why=answer.why, answer=answer
        )

    yield attempt
    torch.compiler.set_stance("default")


@pytest.mark.parametrize(
    "program", [name for name, (_, outcome) in TRUTH.items() if outcome is not Outcome.HUNG]
)
def test_a_known_outcome_is_found_on_the_tape(program: str, here: Tries) -> None:
    checked(program, here(program, TRUTH[program][0]))


@pytest.fixture
def limited_once_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child's time begins where it is to hang, however long a busy machine takes to import torch
    before that."""
    started, await_news = children.run, children._Child._await_news

    def run(start: children.Start, **given: Any) -> children.Ended:
        job = start.job
        hangs_in = phase_of_hanging(TRUTH[job.options.workload.rpartition(":")[2]][0])

        def from_there_on(child: children._Child, timeout_s: float) -> None:
            deadline = time.monotonic() + timeout_s
            while f'"{hangs_in}"' not in (
                Path(job.answer).read_text() if Path(job.answer).exists() else ""
            ):
                assert child._process.poll() is None, "it ended too early"
                assert time.monotonic() < deadline, "it never came so far"
                time.sleep(0.05)
            await_news(child, HANGS_FOR_S)

        monkeypatch.setattr(children._Child, "_await_news", from_there_on)
        return started(start, **given)

    monkeypatch.setattr(children, "run", run)


@pytest.mark.usefixtures("limited_once_it_hangs")
@pytest.mark.parametrize("program", ["waits_for_a_lock", "waits_at_a_barrier"])
def test_a_child_that_hangs_is_ended_with_all_that_it_started(
    program: str, tried: Tries, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program == "waits_at_a_barrier":  # gdb reads torch's symbols for seconds: once is enough
        unasked = m.Skipped(reason="the other program shows it")
        monkeypatch.setattr(captures, "native_stacks", lambda pid: unasked)
    checked(program, tried(program, TRUTH[program][0], capturer=TAPE))


def test_a_child_that_does_not_hang_gives_its_own_answer(tried: Tries) -> None:
    checked("plain", tried("plain", TRUTH["plain"][0], capturer=TAPE))


@pytest.mark.parametrize(
    "name",
    [
        *(
            "default",
            "as-is",
            "callables-eager",
            "capture-default-cold",
            "capture-default-new-shape",
        ),
        *(
            "capture-default-rng",
            "capture-default-stream",
            "capture-eager-thread-global",
            "reduce-overhead-rebound",
        ),
    ],
)
def test_every_way_is_tried_and_correct_for_a_plain_function(name: str, here: Tries) -> None:
    result = here("plain", name)

    assert result.outcome is Outcome.CORRECT, result
    assert result.answer is not None
    assert result.answer.random == name.endswith("rng")
    assert isinstance(result.answer.copies_us, m.Spread) == name.startswith("capture")


def test_a_sync_beside_the_function_raises(here: Tries) -> None:
    assert here("plain", "capture-eager-sync").outcome is Outcome.RAISED


@pytest.mark.gpu
@pytest.mark.parametrize("program", TRUTH)
def test_a_known_outcome_is_found_in_a_cuda_graph(program: str, tried: Tries) -> None:
    result = tried(program, TRUTH[program][0], capturer=CUDA_GRAPH, timeout_s=limit(program))

    if kept := os.environ.get("OUT"):
        Path(kept, f"program-{program}.json").write_bytes(m.encode_json(result))
    checked(program, result)
    assert result.answer is not None
    if program == "reads_a_value":
        assert result.answer.at is not None
        assert result.answer.at.function == program
