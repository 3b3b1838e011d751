"""The walls between the rooms, held by tests: who may import torch, and which names are not names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "kgprof"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAY_IMPORT_TORCH = ("record/", "workloads/")
MODEL = (
    *("structs", "options", "plan", "passes", "evaluation", "holistic", "recording"),
    *("findings", "verdict", "times", "roofline", "timeline", "kernels", "ranks", "host", "run_report"),
    *("comparison", "profile"),
)


def imports(module: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def room(module: Path) -> str:
    return module.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("module", MODULES, ids=room)
def test_torch_is_imported_left_of_the_wall_only(module: Path) -> None:
    torch_imports = {name for name in imports(module) if name.split(".")[0] == "torch"}

    assert not torch_imports or room(module).startswith(MAY_IMPORT_TORCH)


@pytest.mark.parametrize("module", [m for m in MODULES if "linkpred" in room(m)], ids=room)
def test_the_evaluator_knows_nothing_of_the_profiler(module: Path) -> None:
    stages = ("kgprof.record", "kgprof.analysis", "kgprof.collectors", "kgprof.render", "kgprof.cli")

    assert not {name for name in imports(module) if name.startswith(stages)}


@pytest.mark.parametrize("module", [m for m in MODULES if not room(m).startswith("workloads/")], ids=room)
def test_the_profiler_never_imports_the_evaluator(module: Path) -> None:
    assert not {name for name in imports(module) if name.startswith("kgprof.workloads.linkpred")}


@pytest.mark.parametrize(
    "module", [m for m in MODULES if room(m).startswith(("analysis/", "render/", "collectors/", "gate/"))]
)
def test_right_of_the_wall_there_is_no_clock_and_no_environment(module: Path) -> None:
    impure = {"time", "os", "datetime", "socket", "urllib.request", "random", "subprocess"}
    # HTA is told by a variable not to round; the module is run as a process of its own.
    allowed = {"os"} if room(module) == "analysis/holistic.py" else set()

    assert not imports(module) & impure - allowed


@pytest.mark.parametrize("module", MODULES, ids=room)
def test_hta_is_imported_in_its_own_process_only(module: Path) -> None:
    asked = {name for name in imports(module) if name.split(".")[0] == "hta"}

    assert not asked or room(module) == "analysis/holistic.py"
    assert "kgprof.analysis.holistic" not in imports(module)


@pytest.mark.parametrize("place", range(len(MODEL)), ids=MODEL)
def test_a_room_of_the_model_imports_those_before_it_only(place: int) -> None:
    ours = {name for name in imports(PACKAGE / "model" / f"{MODEL[place]}.py") if name.startswith("kgprof")}
    records = {f"kgprof.{of}_records" for of in ("ceiling", "compile", "sync", "tensor")}

    assert ours <= {f"kgprof.model.{before}" for before in MODEL[:place]} | records


def test_the_models_rooms_are_all_known_and_have_one_door() -> None:
    through_the_wall = {
        room(module)
        for module in MODULES
        if not room(module).startswith("model/") and any(name.startswith("kgprof.model.") for name in imports(module))
    }

    assert {module.stem for module in MODULES if room(module).startswith("model/")} == {"__init__", *MODEL}
    assert not through_the_wall


def test_no_module_is_named_after_nothing() -> None:
    nothing = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}

    assert not [room(module) for module in MODULES if module.stem in nothing]
