"""The gate over the built-in evaluator: its step is clean, and a fault put into it is told at its line."""

from __future__ import annotations

from pathlib import Path

from kgprof import cli
from kgprof.model import Finding, Profile
from tests.linkpred_faults import GRAPH_BREAK, RECOMPILES, Fault, Planted, check_graphs, plant


def gated(fault: Fault | None, folder: Path) -> tuple[int, str, Profile, Planted]:
    """Exit code, stdout, the Profile and where the fault stands."""
    planted = plant(fault, folder / "copy")
    done = check_graphs(planted)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout, cli.read(planted.folder / "out"), planted


def only(profile: Profile) -> Finding:
    (finding,) = profile.findings
    return finding


def test_the_fused_step_is_one_graph_and_stays_one(tmp_path: Path) -> None:
    code, said, profile, _ = gated(None, tmp_path)

    assert code == 0, said
    assert said.splitlines()[-1] == "OK: gate passed: 3 budgets held over 1 run"
    assert profile.findings == ()


def test_a_break_in_the_step_fails_the_gate_at_its_line(tmp_path: Path) -> None:
    code, said, profile, planted = gated(GRAPH_BREAK, tmp_path)

    place = only(profile).location
    assert place is not None
    assert (code, only(profile).rule, Path(place.file), place.line) == (1, "KGP101", planted.file, planted.line)
    assert place.text.strip() == GRAPH_BREAK.statement
    assert said.splitlines()[0].startswith(f"{planted.file.relative_to(planted.folder)}:{planted.line}: KGP101 ")
    assert said.splitlines()[-1].endswith("fused.default: 1 over the budget of 0 graph-breaks")


def test_a_recompile_in_the_step_fails_the_gate_at_the_function_and_names_the_value(tmp_path: Path) -> None:
    code, said, profile, planted = gated(RECOMPILES, tmp_path)

    place = only(profile).location
    assert place is not None
    assert (code, only(profile).rule, Path(place.file), place.line) == (1, "KGP105", planted.file, planted.step)
    assert "self.trail" in only(profile).message
    assert [Path(call.file).name for call in only(profile).related] == ["evaluator.py"]
    assert said.splitlines()[-1].endswith("fused.default: 5 over the budget of 0 recompiles")
