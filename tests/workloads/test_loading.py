"""A name on the command line becomes a workload, or one clear error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgprof.errors import InputError, UsageError, WorkloadError
from kgprof.workloads import loading
from kgprof.workloads.loading import Target, find, load, refuse_from_its_text

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "workloads"
SHAPES = FIXTURES / "shapes.py"


@pytest.fixture(autouse=True)
def _as_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Loading is meant for a process of its own: it changes sys.path, sys.argv and sys.modules.

    Packages stay: Triton ends the process when it is imported a second time, and there must not be
    two of sympy.
    """
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("torch."):  # torch.classes has any attribute that it is asked for
            continue
        module = sys.modules[name]
        places = (getattr(module, "__file__", None) or "", *getattr(module, "__path__", ()))
        if any(place.startswith((str(tmp_path), str(FIXTURES))) for place in places):
            del sys.modules[name]


def test_a_file_and_a_module_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("", encoding="utf-8")
    (tmp_path / "script").write_text("", encoding="utf-8")

    assert find("linkpred") is None
    assert find("model.py:step") == Target(file=tmp_path / "model.py", name="step")
    assert find("./script:step") == Target(file=tmp_path / "script", name="step")
    assert find("package.model:Class.step") == Target(module="package.model", name="Class.step")


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ("linkpre", "no workload 'linkpre'; did you mean 'linkpred'?"),
        ("zzz", "no workload 'zzz'"),
        ("model.py:", "workload 'model.py:' is incomplete"),
        (":step", "workload ':step' is incomplete"),
        ("not-a-module:step", "'not-a-module' is not a module name"),
    ],
)
def test_what_is_no_workload_is_refused(workload: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        find(workload)

    assert caught.value.message == message
    assert caught.value.hint == loading.FORMS


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match=r"^nowhere/model\.py: file not found$"):
        find("nowhere/model.py:step")


def test_a_files_folder_is_on_the_path_and_its_arguments_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("VALUE = 3", encoding="utf-8")
    (tmp_path / "model.py").write_text(
        "import sys, neighbour\nargv = list(sys.argv)\ndef step(): return (neighbour.VALUE, argv)",
        encoding="utf-8",
    )

    workload = load(f"{tmp_path / 'model.py'}:step", ["--size", "3"], 0)

    assert [(s.name, s.modes[0]) for s in workload.strategies()] == [("step", "as-is")]
    assert sys.path[0] == str(tmp_path)
    assert sys.modules["model"].step() == (3, [str(tmp_path / "model.py"), "--size", "3"])


def test_a_file_does_not_hide_a_module_of_its_name(tmp_path: Path) -> None:
    import json

    (tmp_path / "json.py").write_text("def step(): return 1", encoding="utf-8")

    load(f"{tmp_path / 'json.py'}:step", [], 0)

    assert sys.modules["json"] is json


def test_a_module_is_found_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "deep.py").write_text(
        "class Model:\n  @staticmethod\n  def step(): ...", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)

    workload = load("package.deep:Model.step", [], 0)

    assert workload.name == "package.deep:Model.step"


@pytest.mark.parametrize("name", ["no_such_module_anywhere", "json.no_such_part"])
def test_a_missing_module_is_the_users_slip(name: str) -> None:
    with pytest.raises(UsageError, match=f"no module named '{name}'"):
        load(f"{name}:step", [], 0)


def test_a_module_that_a_users_module_misses_is_its_own_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "incomplete.py").write_text("import no_such_module_anywhere", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(
        WorkloadError, match="module incomplete raised ModuleNotFoundError while it was imported"
    ) as caught:
        load("incomplete:step", [], 0)

    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('no')", "raised RuntimeError while it was imported: no"),
        ("def step(:", "raised SyntaxError while it was imported: "),
        ("import sys; sys.exit('bye')", "raised SystemExit while it was imported: bye"),
    ],
)
def test_a_file_that_raises_is_the_workloads_failure(
    tmp_path: Path, source: str, message: str
) -> None:
    (tmp_path / "broken.py").write_text(source, encoding="utf-8")

    with pytest.raises(WorkloadError) as caught:
        load(f"{tmp_path / 'broken.py'}:step", [], 0)

    assert caught.value.message.startswith(f"{tmp_path / 'broken.py'} {message}")
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("egaer", f"{SHAPES} has no 'egaer'; did you mean 'eager'?"),
        ("zzz", f"{SHAPES} has no 'zzz'"),
        ("strategies.zzz", f"{SHAPES} has no 'strategies.zzz'"),
        ("not_callable", f"{SHAPES}:not_callable is a int, which cannot be called"),
        (
            "needs_an_argument",
            f"{SHAPES}:needs_an_argument cannot be called without arguments: missing a required",
        ),
        ("Counter", f"{SHAPES}:Counter is a class"),
    ],
)
def test_a_name_that_cannot_be_run_is_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(f"{SHAPES}:{name}", [], 0)

    assert caught.value.message.startswith(message)
    assert caught.value.hint


def test_the_door_to_linkpred_takes_its_options() -> None:
    workload = load("linkpred", ["--queries", "2", "--corruptions", "2"], 0)

    assert workload.name == "linkpred"
    assert {"batched", "torch_cond", "fused"} <= {
        strategy.name for strategy in workload.strategies()
    }


def test_linkpreds_options_are_checked_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="--qeries"):
        loading.check_arguments("linkpred", ["--qeries", "3"])
    loading.check_arguments("model.py:step", ["--whatever"])


def test_help_is_asked_of_linkpred_and_left_to_a_users_workload() -> None:
    assert loading.asks_for_help("linkpred", ["--help"])
    assert not loading.asks_for_help("model.py:step", ["--help"])
    assert "--queries" in loading.help_text("linkpred")


def test_looking_for_a_workload_does_not_import_torch() -> None:
    program = (
        "import sys; from kgprof.workloads import loading; loading.find('os:getcwd');"
        "loading.check_arguments('linkpred', ['--queries', '3']); assert 'torch' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_file_that_python_cannot_read_is_told_in_pythons_own_words(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import torch\ndef step(:\n    pass\n", encoding="utf-8")

    for workload in (f"{file}:step", str(file)):
        with pytest.raises(UsageError) as caught:
            refuse_from_its_text(workload)
        first, *others = caught.value.message.splitlines()
        assert first == f"Python cannot read {file}"
        assert others == [
            f'  File "{file}", line 2',
            "    def step(:",
            "             ^",
            "SyntaxError: invalid syntax",
        ]


def test_a_package_has_its_modules_and_main_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owned").mkdir()
    (tmp_path / "owned" / "__init__.py").write_text("from . import other\n")

    refuse_from_its_text("owned:model.step")
    refuse_from_its_text("__main__:step")


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("{file}:stop", "no 'stop'; did you mean 'step'?"),
        ("{file}:Model.step", "no 'Model.step'"),
        ("there_is_no_such_package.model:step", "no module named 'there_is_no_such_package'"),
    ],
)
def test_what_its_text_tells_is_refused_before_anything_runs(
    tmp_path: Path, workload: str, said: str
) -> None:
    file = tmp_path / "model.py"
    file.write_text("raise SystemExit\ndef step(): pass\n", encoding="utf-8")

    with pytest.raises(UsageError) as caught:
        refuse_from_its_text(workload.format(file=file))

    assert said in caught.value.message


@pytest.mark.parametrize(
    "source",
    [
        "def step(): return '\\d'\n",
        "# -*- coding: latin-1 -*-\nstep = '\xe9'\n",
        "from os import *\n",
        "globals().update(made=1)\n",
        "def __getattr__(name): return len\n",
        "import sys\nsys._getframe().f_globals['st' + 'ep'] = len\n",
    ],
    ids=["a warning", "another encoding", "star import", "globals", "when asked", "a frame's"],
)
def test_what_python_can_read_is_not_refused(tmp_path: Path, source: str) -> None:
    file = tmp_path / "fine.py"
    file.write_bytes(source.encode("latin-1"))

    refuse_from_its_text(f"{file}:step")
    refuse_from_its_text("linkpred")
    refuse_from_its_text("json.tool:main")


@pytest.mark.parametrize(
    "text",
    [
        "class W:\n    strategies = {'a': print}\n",
        "class W:\n    strategies: dict = {}\n    def prepare(self): ...\n",
        "class W(Base):\n    pass\n",
        "@made\nclass W:\n    pass\n",
        "class W:\n    pass\nW = W()\n",
        "def W(x):\n    pass\nW.__defaults__ = (3,)\n",
        "def W(x=1, *more, **named):\n    pass\n",
        "from a import W\n",
        "if True:\n    def W(x): ...\n",
    ],
)
def test_what_may_be_a_workload_is_not_refused_by_its_text(text: str, tmp_path: Path) -> None:
    file = tmp_path / "w.py"
    file.write_text(text, encoding="utf-8")

    loading.refuse_from_its_text(f"{file}:W")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("class W:\n    pass\n", "is a class"),
        ("def W(x, *, k):\n    pass\n", "needs x, k"),
        ("def W(x, y=1):\n    pass\n", "needs x"),
    ],
)
def test_a_class_and_a_function_that_needs_arguments_are_refused_by_their_text(
    text: str, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "w.py"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(UsageError) as raised:
        loading.refuse_from_its_text(f"{file}:W")
    assert raised.value.message == f"{file}:W {why}"
