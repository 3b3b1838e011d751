"""Each way out of kgprof has its documented code and one sentence; 3 is left to kgprof's own
faults."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import commands

TRACE = Path("fixtures/recordings/cuda_graphs_h200/breaks/runs/cond.as-is/trace.json.gz").resolve()
OWN = """
import torch

def step():
    return compiled(torch.ones(4))

compiled = torch.compile(lambda x: x * 2, backend="eager")

class Numbered:
    strategies = {1: step}

class Raising:
    @property
    def strategies(self):
        raise RuntimeError("none today")

class Deaf:
    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")

class Protocol:
    def strategies(self):
        raise RuntimeError("not asked like this")
    default_runs = baseline = prepare = strategies

numbered, raising, deaf, protocol = Numbered(), Raising(), Deaf(), Protocol()
if __name__ == "__main__":
    step()
    print("the program's own end")
"""


def kgprof(
    folder: Path, *args: str, bytes_a_file: int = -1, **env: str
) -> subprocess.CompletedProcess[str]:
    (folder / "own.py").write_text(OWN, encoding="utf-8")
    if bytes_a_file == -1:
        return commands.run(*args, cwd=folder, environment={**os.environ, **env})
    return subprocess.run(
        [sys.executable, "-m", "kgprof", *args],
        cwd=folder,
        env={**os.environ, **env, "PYTHONPATH": os.getcwd()},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_a_file, bytes_a_file)),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """The one error on stderr, its hint with it."""
    assert "Traceback" not in done.stderr
    (at,) = (
        at for at, line in enumerate(done.stderr.splitlines()) if line.startswith("kgprof: error: ")
    )
    return "\n".join(done.stderr.splitlines()[at:]).removeprefix("kgprof: error: ")


@pytest.mark.parametrize(
    ("args", "env", "code", "says"),
    [
        (("own.py:numbered",), {}, 2, "own.py:numbered: 1 in strategies is not a name"),
        pytest.param(("own.py:raising",), {}, 4, "RuntimeError", marks=pytest.mark.long),
        pytest.param(("own.py:deaf",), {}, 4, "RuntimeError", marks=pytest.mark.long),
        pytest.param(("own.py:protocol",), {}, 4, "RuntimeError", marks=pytest.mark.long),
        (
            ("own.py",),
            {"TORCH_LOGS_FORMAT": "%(x"},
            2,
            "torch cannot be imported: ValueError: Invalid format '%(x'",
        ),
        pytest.param(
            ("own.py",),
            {"TORCH_LOGS": "nonsense"},
            2,
            "torch cannot be imported",
            marks=pytest.mark.long,
        ),
        (("own.py", "--", "\udcff"), {}, 2, r"'\udcff' is not UTF-8"),
        (("own\udcff.py",), {}, 2, r"'own\udcff.py' is not UTF-8"),
        (("own\udcff.py:step",), {}, 2, r"'own\udcff.py:step' is not UTF-8"),
        pytest.param(("own.py", "-o", "out\udcff"), {}, 2, "is not UTF-8", marks=pytest.mark.long),
    ],
)
def test_what_is_wrong_with_a_workload_is_no_fault_of_kgprofs(
    tmp_path: Path, args: tuple[str, ...], env: dict[str, str], code: int, says: str
) -> None:
    (tmp_path / "own\udcff.py").write_text(OWN, encoding="utf-8")

    done = kgprof(
        tmp_path,
        "profile",
        *args[:1],
        "-q",
        *(args[1:] if "-o" in args else ("-o", "out", *args[1:])),
        **env,
    )

    assert done.returncode == code, done.stderr
    assert says in error_of(done)


@pytest.mark.parametrize(
    ("args", "limit"),
    [
        (("trace", str(TRACE), "-o", "out"), 2048),
        pytest.param(
            ("profile", "own.py", "-o", "out", "--passes", "compile"), 4096, marks=pytest.mark.long
        ),
        pytest.param(("check-graphs", "own.py:step", "-o", "out"), 4096, marks=pytest.mark.long),
        pytest.param(("check-graphs", "own.py", "-o", "out"), 4096, marks=pytest.mark.long),
    ],
)
def test_a_full_disk_is_said_in_a_sentence_and_is_nobodys_fault(
    tmp_path: Path, args: tuple[str, ...], limit: int
) -> None:
    done = kgprof(tmp_path, *args, bytes_a_file=limit)

    assert done.returncode == 2, done.stderr
    assert "cannot write" in error_of(done)
    assert "File too large" in error_of(done)
    assert "raised" not in done.stderr


@pytest.mark.parametrize("args", [("--help",), ("profile", "--help"), ("--version",), ("explain",)])
def test_a_full_stdout_is_told(tmp_path: Path, args: tuple[str, ...]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kgprof", *args],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 2
    assert "No space left on device" in error_of(done)


def test_ctrl_c_while_it_imports_ends_it_as_ever(tmp_path: Path) -> None:
    slow = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"
    (tmp_path / "click.py").write_text(slow, encoding="utf-8")
    command = [sys.executable, "-m", "kgprof", "--help"]
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"}
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "importing\n"
        time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate()

    assert (running.returncode, err) == (130, "kgprof: error: interrupted\n")


@pytest.mark.parametrize("raises", ["ImportError('no module msgspec')", "MemoryError()"])
def test_where_kgprof_cannot_be_loaded_it_says_so_in_one_line(tmp_path: Path, raises: str) -> None:
    code = (
        "import sys\n"
        "class Fails:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'kgprof.cli': raise {raises}\n"
        "sys.meta_path.insert(0, Fails())\n"
        "from kgprof.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert done.returncode == 3
    assert done.stderr.startswith("kgprof: error: kgprof cannot be loaded: no m")
    assert done.stderr.count("\n") == 1
