"""The workflows that ci-init writes: parsed as YAML, and their shell steps run in a scratch
repository of two commits.

kgprof and gh are stand-ins there that write down how they were called: what they do is tested
elsewhere, and what is tested here is what the steps hand to them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kgprof import cli
from kgprof.cli.writing import PATHS, workflow

W = ("--workload", "model.py:step")
HOSTILE = 'my model.py:step" # ${X} --> $(touch pwned)'


SOURCE = f"git+https://git.example.org/owner/kgprof@{'0a' * 20}"


def written(place: str, workload: str = "model.py:step") -> Any:
    text = workflow(place, workload=workload, torch="2.13.0", path=PATHS[place], source=SOURCE)
    return yaml.safe_load(text)


def jobs() -> dict[str, dict[str, Any]]:
    made: dict[str, dict[str, Any]] = written("github")["jobs"]
    return made


def steps() -> dict[str, dict[str, Any]]:
    return {
        step["name"]: step for job in jobs().values() for step in job["steps"] if "name" in step
    }


# ---------------------------------------------------------------- the file


def test_github_actions_are_pinned_by_commit_with_their_version() -> None:
    text = workflow("github", workload="model.py:step", torch="2.13.0", path=PATHS["github"])

    uses = re.findall(r"uses: (\S+)(.*)", text)
    assert len(uses) == 6
    assert [
        name for name, version in uses if not re.fullmatch(r"actions/[a-z/-]+@[0-9a-f]{40}", name)
    ] == []
    assert [name for name, version in uses if not re.fullmatch(r" # v\d+\.\d+\.\d+", version)] == []


def test_kgprof_is_installed_at_a_commit_and_torch_by_its_version() -> None:
    job = jobs()["measure"]

    assert (job["env"]["KGPROF"], job["env"]["PROJECT"]) == (SOURCE, "torch==2.13.0")
    assert "kgprof==" not in str(written("github")) + str(written("gitlab"))


def test_only_the_job_that_runs_nothing_of_the_pull_request_can_write() -> None:
    document = written("github")

    assert document["permissions"] == {}
    assert {name: job["permissions"] for name, job in document["jobs"].items()} == {
        "measure": {"contents": "read"},
        "comment": {"pull-requests": "write"},
    }
    # YAML 1.1 reads the key `on` as a truth value; GitHub does not
    assert list(document[True]) == ["pull_request", "push"]


def test_the_job_that_measures_has_no_token_in_its_steps() -> None:
    measure = jobs()["measure"]

    assert measure["steps"][0]["with"]["persist-credentials"] is False
    assert "token" not in str(measure)


def test_the_job_that_comments_checks_nothing_out_and_installs_nothing() -> None:
    comment = jobs()["comment"]

    assert [step["uses"].partition("@")[0] for step in comment["steps"] if "uses" in step] == [
        "actions/download-artifact"
    ]
    script = "".join(step.get("run", "") for step in comment["steps"])
    assert not re.search(
        r"\b(?:git|pip|python3?|kgprof|source|eval|bash|sh|GITHUB_ENV|GITHUB_OUTPUT)\b(?!/)", script
    )


def test_the_number_of_the_pull_request_is_the_events() -> None:
    assert steps()["Comment"]["env"]["NUMBER"] == "${{ github.event.pull_request.number }}"
    assert "needs." not in str(jobs()["comment"])


def test_nothing_from_the_pull_request_is_put_into_a_script() -> None:
    scripts = [step["run"] for job in jobs().values() for step in job["steps"] if "run" in step]

    assert len(scripts) == 4
    assert [script for script in scripts if "${{" in script] == []


def test_only_the_comment_is_left_out_for_a_fork() -> None:
    assert "head.repo.full_name == github.repository" in jobs()["comment"]["if"]
    assert "if" not in jobs()["measure"]
    assert steps()["Upload the report"]["if"] == "${{ !cancelled() }}"


@pytest.mark.parametrize("place", ["github", "gitlab"])
@pytest.mark.parametrize(
    "workload", [HOSTILE, "\N{PARTY POPPER}.py:step", "\u6a21\u578b.py:\u00e9", "a\u2028b\x7f.py:f"]
)
def test_a_workload_of_any_name_is_one_value(place: str, workload: str) -> None:
    document = written(place, workload)

    if place == "github":
        assert document["jobs"]["measure"]["env"]["WORKLOAD"] == workload
    else:
        assert document["kgprof"]["variables"]["WORKLOAD"] == {"value": workload, "expand": False}


@pytest.mark.parametrize("place", ["github", "gitlab"])
@pytest.mark.parametrize("workload", ["", "  ", "${{ toJSON(secrets) }}", "a.py:\udcff"])
def test_a_workload_that_cannot_stand_in_the_file_is_refused(
    place: str, workload: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ci.yml"

    assert cli.run(["ci-init", place, "--workload", workload, "-o", str(path)]) == 2

    assert capsys.readouterr().err.count("kgprof: error: ") == 1
    assert not path.exists()


def test_gitlab_keeps_the_page_and_the_cases_whatever_the_verdict() -> None:
    job = written("gitlab")["kgprof"]

    assert job["artifacts"]["when"] == "always"
    assert job["artifacts"]["reports"] == {"junit": "kgprof-report/junit.xml"}
    assert job["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "merge_request_event"'}]


@pytest.mark.parametrize("persona", ["regular", "pedantic"])
def test_zizmor_finds_nothing_in_the_workflow(persona: str, tmp_path: Path) -> None:
    path = tmp_path / PATHS["github"]
    path.parent.mkdir(parents=True)
    path.write_text(
        workflow(
            "github", workload="model.py:step", torch="2.13.0", path=PATHS["github"], source=SOURCE
        ),
        "utf-8",
    )

    zizmor = Path(sys.executable).parent / "zizmor"
    done = subprocess.run(
        [zizmor, "--offline", "--no-progress", f"--persona={persona}", "--format=plain", path],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "No findings to report" in done.stdout + done.stderr


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize("place", ["github", "gitlab"])
def test_it_writes_where_the_place_looks_and_replaces_what_it_wrote(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert cli.run(["ci-init", place, "--workload", "a.py:step"]) == 0
    assert cli.run(["ci-init", place, "--workload", "b.py:step"]) == 0

    assert capsys.readouterr().out == f"{PATHS[place]}\n" * 2
    assert '"b.py:step"' in (tmp_path / PATHS[place]).read_text(encoding="utf-8")


def test_without_a_workload_it_is_that_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.kgprof]\nworkload = "c.py:step"\n')
    (tmp_path / "c.py").write_text("def step(): pass\n")

    assert cli.run(["ci-init", "github"]) == 0
    assert '"c.py:step"' in (tmp_path / PATHS["github"]).read_text(encoding="utf-8")


def test_the_configured_file_is_named_from_the_top_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "kgprof.toml").write_text('workload = "c.py:step"\n')
    (tmp_path / "sub" / "c.py").write_text("def step(): pass\n")
    monkeypatch.chdir(tmp_path / "sub")

    assert cli.run(["ci-init", "github", "-o", "../ci.yml"]) == 0
    assert '"sub/c.py:step"' in (tmp_path / "ci.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workload = 3", "workload must be a string, got 3"),
        ("workload = ", "kgprof.toml: "),
        ("workload = 'nowhere.py:step'", "nowhere.py: file not found"),
    ],
)
@pytest.mark.parametrize("verb", ["ci-init github", "profile", "compare --record a b"])
def test_a_fault_of_the_configured_workload_is_told(
    verb: str,
    text: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kgprof.toml").write_text(f"{text}\n")

    assert cli.run(verb.split()) == 2
    assert said in capsys.readouterr().err


def test_a_repository_of_somebodys_does_not_benchmark_kgprofs_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text("import torch\ntorch.compile(print)()\n")

    assert cli.run(["ci-init", "github"]) == 2
    assert capsys.readouterr().err == (
        "kgprof: error: no workload is named\n"
        "  hint: name it: kgprof ci-init github --workload FILE.py:FUNCTION or SCRIPT.py, or once "
        "as workload under [tool.kgprof]; here may be meant: train.py\n"
    )
    assert not (tmp_path / ".github").exists()


@pytest.mark.parametrize("here", ["", "bench"])
def test_verbs_that_run_take_the_workload_of_the_configuration(
    here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "kgprof.toml").write_text('workload = "bench/model.py:step"\n')
    (tmp_path / "bench" / "model.py").write_text("def other(): pass\n")
    monkeypatch.chdir(tmp_path / here)

    assert cli.run(["check-graphs"]) == 2
    assert "model.py has no 'step'" in capsys.readouterr().err


def test_compare_records_nothing_without_a_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert cli.run(["compare", "--record", "HEAD^", "."]) == 2
    assert "name it: kgprof compare --record HEAD^ . FILE.py:FUNCTION" in capsys.readouterr().err


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_fifo_or_a_link_is_refused_and_nothing_is_written(
    force: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "ours.yml").write_text("# Written by `kgprof ci-init github`\n")
    (tmp_path / ".github").symlink_to("elsewhere")
    (tmp_path / "link.yml").symlink_to("ours.yml")
    os.mkfifo(tmp_path / "fifo.yml")

    assert cli.run(["ci-init", "github", *W, *force]) == 2
    assert cli.run(["ci-init", "github", *W, "-o", "link.yml", *force]) == 2
    assert cli.run(["ci-init", "github", *W, "-o", "fifo.yml", *force]) == 2

    errors = capsys.readouterr().err
    assert [line for line in errors.splitlines() if line.startswith("kgprof: error: ")] == [
        "kgprof: error: cannot write to .github/workflows/kgprof.yml: .github is a symbolic link",
        "kgprof: error: cannot write to link.yml: link.yml is a symbolic link",
        "kgprof: error: cannot write to fifo.yml: it is not a regular file",
    ]
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (SOURCE, 0),
        ("./third_party/kgprof", 0),
        ("kgprof==0.1.0", 2),
        ("git+https://git.example.org/owner/kgprof@main", 2),
        ("./../elsewhere", 2),
        (SOURCE + " other", 2),
    ],
)
def test_kgprof_comes_from_a_commit_or_from_the_repository_itself(
    source: str, code: int, tmp_path: Path
) -> None:
    path = tmp_path / "ci.yml"

    assert cli.run(["ci-init", "github", *W, "--from", source, "-o", str(path)]) == code
    assert path.exists() == (code == 0)


def test_another_hands_file_is_replaced_by_force_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ci.yml"
    path.write_text("on: push\n", encoding="utf-8")

    assert cli.run(["ci-init", "github", *W, "-o", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"kgprof: error: {path} was not written by `kgprof ci-init`\n"
        "  hint: name another file with -o, or replace it with --force\n"
    )
    assert path.read_text(encoding="utf-8") == "on: push\n"

    assert cli.run(["ci-init", "github", *W, "-o", str(path), "--force"]) == 0
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["name"] == "kgprof"


# ---------------------------------------------------------------- its steps, run

# Writes down its folder, commit and arguments; of what was asked to be written it writes something.
KGPROF = r"""#!/usr/bin/env python3
import os, pathlib, subprocess, sys
head = subprocess.run(["git", "log", "-1", "--format=%s"], capture_output=True, text=True).stdout.strip()
with open(os.environ["CALLS"], "a") as calls:
    print(head, *sys.argv[1:], sep="|", file=calls)
args = sys.argv[1:]
out = pathlib.Path(args[args.index("-o") + 1])
if os.environ.get("VERDICT") != "2":
    (out / "recording").mkdir(parents=True, exist_ok=True)
for arg in args:
    if arg.startswith("markdown="):
        pathlib.Path(arg.removeprefix("markdown=")).write_text("### the summary\n")
sys.exit(int(os.environ.get("VERDICT" if args[0] == "compare" else "PROFILED", "0")))
"""  # noqa: E501
# One comment of ours may be there; what is sent is kept.
GH = r"""#!/usr/bin/env python3
import os, pathlib, sys
args = sys.argv[1:]
if "--jq" in args:
    print(os.environ["EXISTING"])
else:
    body = next(arg for arg in args if arg.startswith("body=@")).removeprefix("body=@")
    path = next(arg for arg in args if arg.startswith("repos/"))
    text = pathlib.Path(body).read_text()
    pathlib.Path(os.environ["SENT"]).write_text(args[args.index("--method") + 1] + " " + path + "\n" + text)
"""  # noqa: E501


class Scratch:
    """A clone as GitHub's checkout leaves it: the merge of a pull request, whose first parent is
    the base."""

    def __init__(self, folder: Path) -> None:
        self.repository, self.temp, self.bin = folder / "repo", folder / "temp", folder / "bin"
        for made in (self.repository, self.temp, self.bin):
            made.mkdir()
        for name, text in (("kgprof", KGPROF), ("gh", GH)):
            (self.bin / name).write_text(text, encoding="utf-8")
            (self.bin / name).chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(self.temp),
            "CALLS": str(folder / "calls"),
            "SENT": str(folder / "sent"),
            "GITHUB_REPOSITORY": "o/r",
            "WORKLOAD": "a model.py:step",
            "ROUNDS": "10",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        for command in (
            ("init", "-q", "-b", "main"),
            (*identity, "commit", "-q", "--allow-empty", "-m", "base"),
            ("checkout", "-q", "-b", "change"),
            (*identity, "commit", "-q", "--allow-empty", "-m", "change"),
            ("checkout", "-q", "--detach", "main"),
            (*identity, "merge", "-q", "--no-ff", "-m", "merged", "change"),
        ):
            subprocess.run(["git", *command], cwd=self.repository, env=self.environment, check=True)

    def run(self, name: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """As the runner does: bash -e on a file."""
        script = self.temp / "step.sh"
        script.write_text(steps()[name]["run"], encoding="utf-8")
        return subprocess.run(
            ["bash", "-e", str(script)],
            cwd=self.repository,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        text = Path(self.environment["CALLS"]).read_text(encoding="utf-8")
        return text.replace(str(self.temp), "TEMP").splitlines()


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch(tmp_path)


WRITTEN = "-o|TEMP/kgprof|--format|github|--format|markdown=TEMP/kgprof/comment.md"


@pytest.mark.parametrize("verdict", ["0", "1", "6"])
def test_the_base_and_the_merge_are_recorded_in_turn_and_the_verdict_is_the_jobs(
    verdict: str, scratch: Scratch
) -> None:
    done = scratch.run("Compare", VERDICT=verdict)

    assert done.returncode == int(verdict), done.stderr
    assert scratch.calls == [
        f"merged|compare|--record|HEAD^1|.|a model.py:step|--rounds|10|{WRITTEN}"
    ]


@pytest.mark.parametrize("profiled", ["0", "4"])
def test_where_the_workload_is_new_the_head_is_reported_alone(
    profiled: str, scratch: Scratch
) -> None:
    done = scratch.run("Compare", VERDICT="5", PROFILED=profiled)

    assert done.returncode == int(profiled), done.stderr
    assert scratch.calls[-1] == f"merged|profile|a model.py:step|{WRITTEN}"


def test_the_recording_is_added_to_the_history_and_its_trend_to_the_comment(
    scratch: Scratch,
) -> None:
    scratch.run("Compare", VERDICT="1")
    done = scratch.run("Trend")

    assert done.returncode == 0, done.stderr
    assert scratch.calls[-1] == (
        "merged|compare|--history|TEMP/kgprof-history|TEMP/kgprof|-o|TEMP/kgprof|"
        "--format|markdown=TEMP/kgprof/trend.md"
    )
    comment = (scratch.temp / "kgprof" / "comment.md").read_text(encoding="utf-8")
    assert comment == (
        "### the summary\n\n<details><summary>Trend</summary>\n\n### the summary\n\n</details>\n"
    )


def test_without_a_recording_nothing_is_added_to_the_history(scratch: Scratch) -> None:
    scratch.run("Compare", VERDICT="2")

    assert scratch.run("Trend").returncode == 0
    assert len(scratch.calls) == 1


def test_only_a_push_to_the_default_branch_saves_the_history() -> None:
    restored, saved = steps()["Restore the history"], steps()["Save the history"]

    assert saved["if"] == "${{ !cancelled() && github.event_name == 'push' }}"
    assert (saved["with"]["path"], saved["with"]["key"]) == (
        restored["with"]["path"],
        restored["with"]["key"],
    )
    # each run saves under a key of its own, and the newest of them is restored
    assert "github.run_id" in saved["with"]["key"]
    assert saved["with"]["key"].startswith(restored["with"]["restore-keys"])


ADDRESS = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_RUN_ID": "5", "NUMBER": "7"}
LINK = "[The whole report](https://github.com/o/r/actions/runs/5#artifacts)"


def commented(scratch: Scratch, existing: str = "") -> str:
    marker = steps()["Comment"]["env"]["MARKER"]
    done = scratch.run("Comment", MARKER=marker, EXISTING=existing, **ADDRESS)
    assert done.returncode == 0, done.stderr
    return Path(scratch.environment["SENT"]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("existing", "sent"),
    [("", "POST repos/o/r/issues/7/comments"), ("41", "PATCH repos/o/r/issues/comments/41")],
)
def test_there_is_one_comment_and_it_is_updated_in_place(
    scratch: Scratch, existing: str, sent: str
) -> None:
    scratch.run("Compare")

    assert (
        commented(scratch, existing)
        == f"{sent}\n<!-- kgprof: model.py:step -->\n### the summary\n\n\n{LINK}\n"
    )


def test_a_text_of_the_pull_request_is_cut_and_only_text(scratch: Scratch) -> None:
    (scratch.temp / "kgprof").mkdir()
    data = b"$(touch pwned) `touch pwned`\x1b[2J\xff\x00" + b"x" * 200_000
    (scratch.temp / "kgprof" / "comment.md").write_bytes(data)

    sent = commented(scratch)

    assert "$(touch pwned) `touch pwned`[2Jxxx" in sent
    assert len(sent) < 60_200
    assert sent.endswith(f"x\n\n{LINK}\n")
    assert not (scratch.repository / "pwned").exists()


def test_a_link_in_the_place_of_the_summary_is_not_followed(scratch: Scratch) -> None:
    (scratch.temp / "kgprof").mkdir()
    (scratch.temp / "kgprof" / "comment.md").symlink_to("/etc/hostname")

    done = scratch.run("Comment", MARKER="<!-- kgprof -->", EXISTING="", **ADDRESS)

    assert done.returncode == 0
    assert not Path(scratch.environment["SENT"]).exists()


def test_without_an_address_of_kgprof_the_job_stops_and_says_so(scratch: Scratch) -> None:
    (scratch.bin / "pip").write_text('#!/bin/sh\nprintf "%s|" "$@" >> "$CALLS"\n')
    (scratch.bin / "pip").chmod(0o755)

    done = scratch.run("Install", KGPROF="", PROJECT="torch==2.13.0")
    assert (done.returncode, "::error::KGPROF" in done.stdout) == (2, True)
    assert scratch.run("Install", KGPROF=SOURCE, PROJECT="torch==2.13.0 numpy").returncode == 0

    assert scratch.calls == [f"install|{SOURCE}|torch==2.13.0|numpy|"]


def test_without_a_summary_nothing_is_said(scratch: Scratch) -> None:
    done = scratch.run("Comment", MARKER="<!-- kgprof -->", EXISTING="", **ADDRESS)

    assert done.returncode == 0
    assert not Path(scratch.environment["SENT"]).exists()


def test_the_comment_that_is_looked_for_is_a_bots_that_begins_with_the_marker() -> None:
    query = steps()["Comment"]["run"]

    assert '.user.type == "Bot" and (.body | startswith(env.MARKER))' in query


def test_the_shell_of_gitlabs_job_is_bash_that_parses() -> None:
    script = "\n".join(written("gitlab")["kgprof"]["script"])

    assert 'kgprof compare --record "$CI_MERGE_REQUEST_DIFF_BASE_SHA" . "$WORKLOAD"' in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
