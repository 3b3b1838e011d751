"""What a CI job offers, and what it must not take for a command: told by its variables alone."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kgprof.cli.saying import (
    SUMMARY_BYTES,
    Job,
    append_summary,
    fenced,
    inert,
    inert_document,
    job_of,
)
from kgprof.render import by_name
from kgprof.render.markdown import Markdown
from tests.render import profiles

IN_GITHUB = Job(parses_log=True)
# Lines that GitHub's runner acts on, in its new form and its old one.
COMMANDS = (
    "::error file=a.py::no",
    "  ::set-output name=x::1",
    "before ##[error]no",
    "::stop-commands::mine",
)


def acted_on(text: str) -> list[str]:
    """As the runner reads a log: a stop-commands line counts until its token comes back on a line
    of its own."""
    found, token = [], ""
    for line in text.splitlines():
        said = line.strip()
        if token:
            token = "" if said == f"::{token}::" else token
        elif said.startswith("::stop-commands::"):
            token = said.removeprefix("::stop-commands::")
        elif said.startswith("::") or "##[" in said:
            found.append(line)
    return found


# ---------------------------------------------------------------- where we are


def test_a_github_job_is_known_by_its_variables(tmp_path: Path) -> None:
    variables = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_RUN_ID": "12",
    }

    url = "https://github.com/o/r/actions/runs/12"
    source = "https://github.com/o/r"
    assert job_of(variables) == Job(
        parses_log=True, summary=tmp_path / "summary", run_url=url, source_url=source
    )


def test_elsewhere_there_is_no_job() -> None:
    assert job_of({"CI": "1", "GITHUB_SERVER_URL": "https://github.com"}) == Job()


# ---------------------------------------------------------------- the fence


def fenced_output(*pieces: bytes) -> str:
    written: list[bytes] = []
    with fenced(written.append, IN_GITHUB) as write:
        for piece in pieces:
            write(piece)
    return b"".join(written).decode()


def test_what_a_workload_prints_steers_nothing() -> None:
    # given: lines in pieces, one of them ended by nothing
    printed = "\n".join(COMMANDS).encode()
    made = fenced_output(printed[:10], printed[10:])

    assert acted_on("\n".join(COMMANDS)) != []
    assert acted_on(made + "::error::ours") == ["::error::ours"]
    # then: it is all there
    assert all(command in made for command in COMMANDS)


def test_each_fence_has_a_token_of_its_own() -> None:
    assert fenced_output(b"x") != fenced_output(b"x")


def test_a_workload_that_prints_nothing_leaves_no_fence() -> None:
    assert fenced_output() == ""


def test_the_fence_is_closed_when_the_workload_is_interrupted() -> None:
    written: list[bytes] = []

    def interrupted() -> None:
        with fenced(written.append, IN_GITHUB) as write:
            write(b"::error::x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert acted_on(b"".join(written).decode() + "::notice::ours") == ["::notice::ours"]


def test_what_a_process_that_was_left_behind_prints_later_is_dropped() -> None:
    written: list[bytes] = []
    with fenced(written.append, IN_GITHUB) as write:
        write(b"x\n")
    before = list(written)

    write(b"::error::late\n")

    assert written == before


def test_outside_of_ci_nothing_is_added() -> None:
    written: list[bytes] = []

    with fenced(written.append, Job()) as write:
        write(b"::error::x\n")

    assert written == [b"::error::x\n"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_message_that_quotes_a_workload_is_no_command(command: str) -> None:
    assert acted_on(inert(f"kgprof: error: it said\n{command}")) == []


@pytest.mark.parametrize("name", ["html", "json", "text", "markdown", "sarif", "junit"])
def test_no_document_on_stdout_holds_a_command(name: str) -> None:
    # given: the commands in every string field
    profile = profiles.commanding(COMMANDS)
    renderer = by_name(name)

    shown = inert_document(renderer.render(profile), renderer.name)

    assert acted_on(shown) == []
    if name in ("json", "sarif"):
        assert json.loads(shown) == json.loads(renderer.render(profile))
    if name == "junit":
        plain = renderer.render(profile)
        assert ElementTree.tostring(ElementTree.fromstring(shown)) == ElementTree.tostring(
            ElementTree.fromstring(plain)
        )


# ---------------------------------------------------------------- the job summary


def test_a_summary_is_added_behind_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_text("another tool's\n", encoding="utf-8")

    assert append_summary(path, lambda room: f"ours, {room} bytes at most") == ""

    assert (
        path.read_text(encoding="utf-8")
        == f"another tool's\nours, {SUMMARY_BYTES - 16} bytes at most\n"
    )


def test_a_summary_keeps_to_the_bytes_that_are_left(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_bytes(b"x" * (SUMMARY_BYTES - 20_000))

    wrong = append_summary(
        path, lambda room: Markdown(limit=room, in_bytes=True).render(profiles.huge())
    )

    assert wrong == ""
    assert SUMMARY_BYTES - 10_000 < path.stat().st_size <= SUMMARY_BYTES


def test_a_full_summary_is_left_alone_and_said(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_bytes(b"x" * SUMMARY_BYTES)

    wrong = append_summary(path, lambda room: "ours")

    assert wrong == (
        f"the job summary is full ({SUMMARY_BYTES:,} bytes), so this run was left out of it: {path}"
    )
    assert path.stat().st_size == SUMMARY_BYTES


@pytest.mark.parametrize("where", ["folder", "folder/missing/summary"])
def test_a_summary_that_cannot_be_written_is_said(tmp_path: Path, where: str) -> None:
    (tmp_path / "folder").mkdir()

    wrong = append_summary(tmp_path / where, lambda room: "ours")

    assert wrong.startswith(f"the job summary could not be written: {tmp_path / where}: ")
