"""The gate over the built-in evaluator: its step is clean, and a fault put into it is told at its
line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgprof.cli import reading
from kgprof.model import Finding, MemorySummary, Profile
from tests.linkpred_faults import GRAPH_BREAK, RECOMPILES, SYNC, Fault, Planted, check_graphs, plant


def gated(fault: Fault | None, folder: Path, *args: str) -> tuple[int, str, Profile, Planted]:
    """Exit code, stdout, the Profile and where the fault stands."""
    planted = plant(fault, folder / "copy")
    done = check_graphs(planted, *args)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout, reading.read(planted.folder / "out"), planted


def only(profile: Profile) -> Finding:
    (finding,) = profile.findings
    return finding


def test_a_break_in_the_step_fails_the_gate_at_its_line(tmp_path: Path) -> None:
    code, said, profile, planted = gated(GRAPH_BREAK, tmp_path)

    place = only(profile).location
    assert place is not None
    # a report names the repository's files from its top
    shown = str(planted.file.relative_to(planted.folder))
    assert (code, only(profile).rule, place.file, place.line) == (1, "KGP101", shown, planted.line)
    assert place.text.strip() == GRAPH_BREAK.statement
    assert said.splitlines()[0].startswith(
        f"{planted.file.relative_to(planted.folder)}:{planted.line}: KGP101 "
    )
    assert said.splitlines()[-1].endswith(" graph-breaks")


@pytest.mark.long
def test_a_recompile_in_the_step_fails_the_gate_at_the_function_and_names_the_value(
    tmp_path: Path,
) -> None:
    code, said, profile, planted = gated(RECOMPILES, tmp_path)

    place = only(profile).location
    assert place is not None
    shown = str(planted.file.relative_to(planted.folder))
    assert (code, only(profile).rule, place.file, place.line) == (1, "KGP105", shown, planted.step)
    assert "self.trail" in only(profile).message
    assert [Path(call.file).name for call in only(profile).related] == ["evaluator.py"]
    assert said.splitlines()[-1].endswith("fused.default: 5 over the budget of 0 recompiles")


# ---------------------------------------------------------------- reads


def reads_of(profile: Profile) -> list[tuple[str, str, str]]:
    """Rule, file and the line's text."""
    places = [(finding.rule, finding.location) for finding in profile.findings]
    return [
        (rule, Path(place.file).name, place.text.strip())
        for rule, place in places
        if place is not None
    ]


DONE_CHECK = ("KGP201", "evaluator.py", "self.done = bool(self.strategy.done)")


def test_the_fused_step_stays_one_graph_and_reads_nothing_but_whether_it_is_done(
    tmp_path: Path,
) -> None:
    code, said, profile, _ = gated(None, tmp_path, "--max", "syncs-per-step=1")

    (run,) = profile.runs
    assert code == 0, said
    assert said.splitlines()[-1].startswith("OK: ")
    assert isinstance(run.memory, MemorySummary)
    assert (run.memory.syncs_per_step, run.memory.steps) == (1.0, 3)
    # Nothing else either: no break, no recompile, no buffer moves, no result shares memory with
    # another tensor.
    assert reads_of(profile) == [DONE_CHECK]
    assert len(profile.findings) == 1


@pytest.mark.long
def test_torch_cond_reads_its_predicate_besides_in_the_code_that_inductor_generates(
    tmp_path: Path,
) -> None:
    untouched = Fault(
        statement="",
        strategy="torch_cond",
        after="fresh = moved.idle & (slots.candidate < problem.size)",
    )

    code, said, profile, _ = gated(
        untouched, tmp_path, "--backend", "inductor", "--max", "syncs-per-step=1"
    )

    (run,) = profile.runs
    assert code == 1
    assert isinstance(run.memory, MemorySummary)
    assert run.memory.syncs_per_step == 2.0
    bypassed, *reads = sorted(reads_of(profile))
    assert bypassed[0] == "KGP106"
    assert reads == [
        DONE_CHECK,
        ("KGP202", "torch_cond.py", "states, number, dropped = torch.cond("),
    ]
    assert said.splitlines()[-1].endswith(
        "torch_cond.default: 2 over the budget of 1 syncs-per-step"
    )


@pytest.mark.long
def test_a_read_in_the_step_fails_the_gate_at_its_line(tmp_path: Path) -> None:
    code, said, profile, planted = gated(
        SYNC, tmp_path, "--max", "syncs-per-step=1", "--max", "graph-breaks=9"
    )

    places = {
        finding.location.line
        for finding in profile.findings
        if finding.location and finding.rule != "KGP101"
    }
    shown = str(planted.file.relative_to(planted.folder))
    read = [
        f
        for f in profile.findings
        if f.location and f.location.file == shown and f.rule != "KGP101"
    ]
    assert code == 1
    assert planted.line in places
    assert [(f.location.line, f.location.text.strip()) for f in read if f.location] == [
        (planted.line, SYNC.statement)
    ]
    assert said.splitlines()[-1].endswith("fused.default: 2 over the budget of 1 syncs-per-step")
