"""Scripts on the command line: what goes to stdout, the exit codes, and torchrun's ranks in one
report.

Whole recordings are few and each looks at much; how a script runs is in
tests/record/passes/test_script.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kgprof import cli
from kgprof.errors import UsageError
from kgprof.record.ground import ranks
from tests import commands
from tests.cli.test_saying import acted_on

ROOT = Path(__file__).resolve().parent.parent
TRAINING = ROOT / "fixtures" / "workloads" / "training.py"


def kgprof(
    *args: str | Path, cwd: Path, before: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    given = {**commands.without_settings(), "OMP_NUM_THREADS": "1", **environment}
    if not before:
        return commands.run(*args, cwd=cwd, environment=given)
    return subprocess.run(
        [sys.executable, *before, "-m", "kgprof", *map(str, args)],
        cwd=cwd,
        env={**given, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


# ---------------------------------------------------------------- without a child


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["profile", "missing.py"], ["missing.py: file not found", "path/script.py"]),
        (["profile", "folder"], ["folder: is a folder, not a script", "-m"]),
        (["profile", "folder.py"], ["folder.py: is a folder, not a script"]),
        (["check-graphs", "-m", "no.such.module"], ["no module named 'no.such.module'"]),
        (["profile", "-m", "not-a-name"], ["-m 'not-a-name' is not a module name"]),
        (["profile", "-m", "email"], ["'email' is a package without __main__"]),
        (
            ["profile", "-m", "json.tool", "script.py"],
            ["-m json.tool and WORKLOAD script.py are two workloads"],
        ),
        (
            ["profile", "script.py", "--strategy", "x", "--passes", "compile,tming"],
            ["no pass 'tming'", "timing"],
        ),
        (
            ["profile", "linkpred", "--max-steps", "3"],
            ["--max-steps is for scripts, but linkpred is not one"],
        ),
        (
            ["check-graphs", "linkpred", "--duration", "3"],
            ["--duration is for scripts, but linkpred is not one"],
        ),
    ],
)
def test_bad_input_is_one_clear_error_before_anything_runs(
    args: list[str],
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "script.py").write_text("", encoding="utf-8")

    code = cli.run(args)

    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err.count("error:") == 1
    for part in expected:
        assert part in said.err
    assert not (tmp_path / "reports").exists()


def test_ranks_agree_on_a_folder_without_speaking() -> None:
    torchrun = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29500"}
    zero, one = (ranks.launch({**torchrun, "RANK": rank}) for rank in ("0", "1"))

    assert zero is not None
    assert one is not None
    assert zero.identity == one.identity
    assert ranks.agreed_folder("train", zero) == ranks.agreed_folder("train", one)
    assert (zero.folder(Path("out")), one.folder(Path("out"))) == (
        Path("out/rank0"),
        Path("out/rank1"),
    )
    assert ranks.launch({}) is None
    assert ranks.launch({"RANK": "0", "WORLD_SIZE": "1"}) is None


def test_ranks_on_several_machines_need_a_folder_that_all_of_them_see() -> None:
    far = ranks.launch({"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"})

    assert far is not None
    with pytest.raises(UsageError, match="all ranks must record into one folder"):
        ranks.agreed_folder("train", far)


# ---------------------------------------------------------------- whole runs


def test_a_script_that_raises_is_profiled_and_stdout_is_json(tmp_path: Path) -> None:
    done = kgprof(
        "profile", TRAINING, "-o", "out", "--format", "json", "--", "--fail-at", "5", cwd=tmp_path
    )

    report = json.loads(done.stdout)
    (run,) = report["runs"]
    assert (done.returncode, report["exit_code"], run["exit"]["exit_code"]) == (4, 4, 1), (
        done.stderr
    )
    place, where = done.stderr.splitlines()[-2:]
    assert place.endswith(": ValueError: no more batches")
    assert where.startswith("training.as-is: after step 5 of the program; its log: out/")
    assert "step 0\nstep 1\nstep 2\nstep 3\nstep 4\n" in done.stderr
    assert "kgprof/record" not in run["exit"]["traceback"]
    assert run["script"]["step"] == "an optimizer step"
    assert run["script"]["steps"] == 5
    counted = (
        "a step is an optimizer step; 5 counted (also seen: 5 times a call of a compiled function)"
    )
    assert run["notes"][0] == counted
    assert [compilation["compile_id"] for compilation in run["compile"]["compilations"]] == ["0/0"]
    assert run["step"]["reason"].startswith("a script that failed")
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.long
def test_a_script_that_cannot_run_twice_has_not_failed(tmp_path: Path) -> None:
    steps = (
        "import os, torch\nmodel = torch.nn.Linear(4, 4)\nfor _ in range(40):\n    "
        "model(torch.ones(4))\n"
    )
    text = f"{steps}os.mkdir('made')\n"
    (tmp_path / "once.py").write_text(text + "print('done')\n", encoding="utf-8")
    (tmp_path / "sooner.py").write_text(
        text.replace("\n", "\nos.mkdir('sooner')\n", 1), encoding="utf-8"
    )

    once = kgprof("profile", "once.py", "-o", "out", "--format", "json", cwd=tmp_path)
    (tmp_path / "made").rmdir()
    sooner = kgprof("profile", "sooner.py", "-o", "out", "--format", "json", cwd=tmp_path)

    (run,) = json.loads(once.stdout)["runs"]
    assert (once.returncode, run["exit"]["outcome"], once.stderr.count("done")) == (0, "ok", 1), (
        once.stderr
    )
    assert run["step"]["samples"] == 36  # its steps were over when it failed
    (run,) = json.loads(sooner.stdout)["runs"]
    assert (sooner.returncode, run["exit"]["outcome"]) == (0, "ok"), sooner.stderr
    assert "FileExistsError" in run["step"]["reason"]


def test_what_a_script_prints_is_no_command_to_a_github_job(tmp_path: Path) -> None:
    said = ("::error file=a.py::no", "::set-output name=x::1", "##[error]no", "half a line")
    lines = (
        f"print({said[0]!r})",
        f"print({said[1]!r}, file=sys.stderr)",
        f"print({said[2]!r}, {said[3]!r}, end='')",
    )
    text = "\n".join(("import sys", *lines))
    (tmp_path / "prints.py").write_text(text, encoding="utf-8")

    done = kgprof("check-graphs", "prints.py", "-o", "out", cwd=tmp_path, GITHUB_ACTIONS="true")

    assert done.returncode == 5, done.stderr
    assert said[0] in done.stderr
    assert acted_on(done.stderr) == acted_on(done.stdout) == []
    # then: a command of kgprof's own is one again
    assert acted_on(done.stderr + "::error::ours") == ["::error::ours"]


def test_the_gate_judges_a_script_by_one_run_of_it(tmp_path: Path) -> None:
    gate = ("check-graphs", TRAINING, "-o", "out", "--quiet")
    once = kgprof(*gate, "--format", "json", "--", "--longer-on-rank", "0", cwd=tmp_path)
    failed = kgprof(*gate, "--format", "json", "--", "--growing", cwd=tmp_path)
    nothing = kgprof(*gate, "--", "--steps", "0", cwd=tmp_path)

    assert once.stderr == ""
    (note,) = json.loads(once.stdout)["findings"]
    assert (once.returncode, note["rule"], note["level"], note["one_off"]) == (
        0,
        "KGP103",
        "note",
        True,
    )
    assert "in step 4" in note["message"]
    (finding,) = json.loads(failed.stdout)["findings"]
    assert (failed.returncode, finding["rule"], finding["location"]["line"]) == (1, "KGP103", 23)
    assert nothing.returncode == 5
    assert "nothing was compiled" in nothing.stdout


def test_a_script_too_short_to_have_a_steady_state_does_not_pass_for_one_without_recompiles(
    tmp_path: Path,
) -> None:
    done = kgprof(
        "check-graphs", TRAINING, "-o", "out", "--quiet", "--", "--steps", "2", cwd=tmp_path
    )

    assert done.returncode == 6
    assert "recompiles not observed: kgprof counted 2 steps, and --warmup is 3" in done.stdout


def test_torchruns_ranks_are_one_report_and_what_only_one_compiled_is_said(tmp_path: Path) -> None:
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    done = kgprof(
        "profile", TRAINING, "--format", "json", "--passes", "compile", "--", "--longer-on-rank", "1",  # noqa: E501
        cwd=tmp_path, before=torchrun,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    zero, one = report["runs"]
    assert [run["key"]["strategy"] for run in (zero, one)] == ["training-rank0", "training-rank1"]
    assert [run["script"]["rank"] for run in (zero, one)] == [0, 1]
    assert "not compiled on rank 0: 1 graph that other ranks compiled" in zero["notes"]
    differs = (
        "compiled on rank 1 of 2 only: 0/1 of loss_of, training.py:22 (tensor 'rows' size mismatch"
    )
    assert any(note.startswith(differs) for note in one["notes"])
    (finding,) = report["findings"]
    assert (finding["rule"], finding["run"]["strategy"]) == ("KGP103", "training-rank1")
    (folder,) = (each for each in (tmp_path / "reports").iterdir() if each.is_dir())
    assert {path.name for path in folder.iterdir()} == {
        "rank0",
        "rank1",
        "recording",
        "report.html",
        "report.json",
    }


STRAGGLER = """
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(14):
    time.sleep(0.03 * dist.get_rank())
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


# Which rank is late: tests/analysis/test_ranks.py; that torchrun's ranks become one report: above.
@pytest.mark.long
def test_the_rank_that_the_others_wait_for_leads_the_report_of_a_launch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STRAGGLER, encoding="utf-8")
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    done = kgprof(
        "profile",
        "train.py",
        "--format",
        "json",
        "--passes",
        "trace",
        cwd=tmp_path,
        before=torchrun,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    balance = report["rank_balance"]
    assert (balance["straggler"]["strategy"], balance["cause"]) == (
        "train-rank1",
        "its CPU is late",
    )
    assert report["verdict"]["text"].startswith("rank 1 is late: rank 0 waits ")
    (page,) = tmp_path.glob("reports/*/report.html")
    assert "gloo:all_reduce" in page.read_text("utf-8")


def test_a_script_that_only_launches_others_says_how_to_start_kgprof_inside(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("", encoding="utf-8")
    start = (
        "[sys.executable, '-m', 'torch.distributed.run', '--nproc-per-node', '1', "
        "'train.py', '--lr', '1']"
    )
    launcher = f"import subprocess, sys\nsubprocess.run({start}, check=True)\n"
    (tmp_path / "launch.py").write_text(launcher, encoding="utf-8")

    done = kgprof("profile", "launch.py", "--format", "json", cwd=tmp_path)

    report = json.loads(done.stdout)
    command = (
        "python -m torch.distributed.run --nproc-per-node 1 -m kgprof profile train.py -- --lr 1"
    )
    assert done.returncode == 5
    assert report["verdict"]["text"].endswith(
        "the script only launches other processes (torch.distributed.run), and kgprof sees only "
        f"its own. Run {command}"
    )
    (finding,) = report["findings"]
    assert (finding["rule"], finding["fix"]) == ("KGP504", command)
    (run,) = report["runs"]
    launch = {"by": "torch.distributed.run", "processes": None, "command": command, "function": ""}
    assert run["script"]["launched"] == [launch]
    assert "only launches other processes" in next(
        gap["reason"] for gap in report["omissions"] if "TIMING" in gap["what"]
    )
