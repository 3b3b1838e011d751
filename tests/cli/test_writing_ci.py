"""The workflows that ci-init writes: parsed as YAML, and their shell steps run in a scratch repository of two commits.

kgprof and gh are stand-ins there that write down how they were called: what they do is tested elsewhere, and what is
tested here is what the steps hand to them.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kgprof import cli
from kgprof._version import __version__
from kgprof.cli.writing import PATHS, workflow

HOSTILE = 'my model.py:step" # ${{ secrets.X }} --> $(touch pwned)'


def written(place: str, workload: str = "model.py:step") -> Any:
    return yaml.safe_load(workflow(place, workload=workload, torch="2.13.0", path=PATHS[place]))


def steps() -> dict[str, dict[str, Any]]:
    return {step["name"]: step for step in written("github")["jobs"]["compare"]["steps"] if "name" in step}


# ---------------------------------------------------------------- the file


def test_github_actions_are_pinned_by_commit_and_packages_by_version() -> None:
    job = written("github")["jobs"]["compare"]

    uses = [step["uses"] for step in job["steps"] if "uses" in step]
    assert len(uses) == 3
    assert all(len(one.partition("@")[2]) == 40 for one in uses)
    assert job["env"]["PROJECT"] == f"kgprof=={__version__} torch==2.13.0"
    assert job["runs-on"] == "ubuntu-24.04"


def test_a_token_can_write_comments_and_nothing_else() -> None:
    document = written("github")

    assert document["permissions"] == {"contents": "read", "pull-requests": "write"}
    # YAML 1.1 reads the key `on` as a truth value; GitHub does not
    assert list(document[True]) == ["pull_request"]
    checkout = document["jobs"]["compare"]["steps"][0]
    assert checkout["with"]["persist-credentials"] is False


def test_nothing_from_the_pull_request_is_put_into_a_script() -> None:
    scripts = [step["run"] for step in written("github", HOSTILE)["jobs"]["compare"]["steps"] if "run" in step]

    assert len(scripts) == 3
    assert [script for script in scripts if "${{" in script] == []


def test_only_what_a_fork_cannot_do_is_left_out_for_one() -> None:
    conditions = {name: step["if"] for name, step in steps().items() if "if" in step}

    assert set(conditions) == {"Upload the report", "Comment"}
    assert "head.repo.full_name == github.repository" in conditions["Comment"]
    assert "fork" not in conditions["Upload the report"]


@pytest.mark.parametrize("place", ["github", "gitlab"])
def test_a_workload_of_any_name_is_one_value(place: str) -> None:
    document = written(place, HOSTILE)

    variables = document["jobs"]["compare"]["env"] if place == "github" else document["kgprof"]["variables"]
    assert variables["WORKLOAD"] == HOSTILE


def test_gitlab_keeps_the_page_and_the_cases_whatever_the_verdict() -> None:
    job = written("gitlab")["kgprof"]

    assert job["artifacts"]["when"] == "always"
    assert job["artifacts"]["reports"] == {"junit": "kgprof-report/junit.xml"}
    assert job["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "merge_request_event"'}]


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize("place", ["github", "gitlab"])
def test_it_writes_where_the_place_looks_and_replaces_what_it_wrote(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert cli.run(["ci-init", place]) == 0
    assert cli.run(["ci-init", place, "--workload", "b.py:step"]) == 0

    assert capsys.readouterr().out == f"{PATHS[place]}\n" * 2
    assert '"b.py:step"' in (tmp_path / PATHS[place]).read_text(encoding="utf-8")


def test_another_hands_file_is_replaced_by_force_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ci.yml"
    path.write_text("on: push\n", encoding="utf-8")

    assert cli.run(["ci-init", "github", "-o", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"kgprof: error: {path} was not written by `kgprof ci-init`\n"
        "  hint: name another file with -o, or replace it with --force\n"
    )
    assert path.read_text(encoding="utf-8") == "on: push\n"

    assert cli.run(["ci-init", "github", "-o", str(path), "--force"]) == 0
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
(out / "recording").mkdir(parents=True, exist_ok=True)
for arg in args:
    if arg.startswith("markdown="):
        pathlib.Path(arg.removeprefix("markdown=")).write_text("### the summary\n")
sys.exit(int(os.environ.get("VERDICT" if args[0] == "compare" else "PROFILED", "0")))
"""
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
"""


class Scratch:
    """A clone as GitHub's checkout leaves it: the merge of a pull request, whose first parent is the base."""

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
    assert scratch.calls == [f"merged|compare|--record|HEAD^1|.|a model.py:step|--rounds|10|{WRITTEN}"]


@pytest.mark.parametrize("profiled", ["0", "4"])
def test_where_the_workload_is_new_the_head_is_reported_alone(profiled: str, scratch: Scratch) -> None:
    done = scratch.run("Compare", VERDICT="5", PROFILED=profiled)

    assert done.returncode == int(profiled), done.stderr
    assert scratch.calls[-1] == f"merged|profile|a model.py:step|{WRITTEN}"


@pytest.mark.parametrize(
    ("existing", "sent"), [("", "POST repos/o/r/issues/7/comments"), ("41", "PATCH repos/o/r/issues/comments/41")]
)
def test_there_is_one_comment_and_it_is_updated_in_place(scratch: Scratch, existing: str, sent: str) -> None:
    scratch.run("Compare")
    marker = steps()["Comment"]["env"]["MARKER"]

    done = scratch.run("Comment", NUMBER="7", REPORT="https://example.org/a", MARKER=marker, EXISTING=existing)

    assert done.returncode == 0, done.stderr
    assert Path(scratch.environment["SENT"]).read_text(encoding="utf-8") == (
        f"{sent}\n<!-- kgprof: model.py:step -->\n### the summary\n\n[The whole report](https://example.org/a)\n"
    )


def test_without_a_summary_nothing_is_said(scratch: Scratch) -> None:
    done = scratch.run("Comment", NUMBER="7", REPORT="", MARKER="<!-- kgprof -->", EXISTING="")

    assert done.returncode == 0
    assert not Path(scratch.environment["SENT"]).exists()


def test_the_comment_that_is_looked_for_is_a_bots_that_begins_with_the_marker() -> None:
    query = steps()["Comment"]["run"]

    assert '.user.type == "Bot" and (.body | startswith(env.MARKER))' in query


def test_the_shell_of_gitlabs_job_is_bash_that_parses() -> None:
    script = "\n".join(written("gitlab")["kgprof"]["script"])

    assert 'kgprof compare --record "$CI_MERGE_REQUEST_DIFF_BASE_SHA" . "$WORKLOAD"' in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
