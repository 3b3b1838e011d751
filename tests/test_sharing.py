"""What leaves the machine through the command line: reports without private names, summaries where
a CI job has one."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import msgspec
import pytest

from kgprof import cli, render
from kgprof.cli import writing
from kgprof.cli.saying import SUMMARY_BYTES
from kgprof.model import PassName, PrivateNames, Profile, decode_json, encode_json
from kgprof.reading import layout, recordings
from kgprof.record.ground import store
from tests.record import handmade

HERE = PrivateNames(users=("analima",), hosts=("gpu-node17",), homes=("/srv/people/analima",))
SECRET = "hf_" + "Qw" * 17


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A Recording by somebody: their name, their machine's and a token are in its command, a log
    and a trace."""
    recording = handmade.write(tmp_path / "out" / "recording")
    words = (
        "kgprof",
        "profile",
        "/srv/people/analima/project/a.py",
        "--",
        "--where",
        "gpu-node17",
        SECRET,
    )
    header = msgspec.structs.replace(recording.header, private=HERE, command=words)
    folder = Path(recording.folder)
    store.write_json(folder / layout.HEADER, header)
    log = layout.run_folder(folder, handmade.BATCHED) / layout.LOG
    log.write_text(f"loading /srv/people/analima/weights with {SECRET}\n", encoding="utf-8")
    trace = layout.trace_path(recording, handmade.BATCHED, PassName.TRACE)
    document = json.loads(gzip.decompress(trace.read_bytes()))
    document["traceEvents"][0]["args"] = {
        "file": "/srv/people/analima/project/a.py",
        "host": "gpu-node17",
    }
    trace.write_bytes(gzip.compress(json.dumps(document).encode()))
    return tmp_path / "out"


def carried_traces(page: str) -> str:
    data = re.findall(r'href="data:application/gzip;base64,([^"]+)"', page)
    assert data
    return "".join(gzip.decompress(base64.b64decode(one)).decode() for one in data)


def private_in(text: str) -> set[str]:
    return {name for name in ("analima", "gpu-node17", SECRET) if name in text}


def test_what_a_report_holds_names_neither_people_nor_machines(recorded: Path) -> None:
    assert cli.run(["report", str(recorded)]) == 0

    for name in ("report.html", "report.json"):
        assert private_in((recorded / name).read_text(encoding="utf-8")) == set()
    assert (
        private_in(carried_traces((recorded / "report.html").read_text(encoding="utf-8"))) == set()
    )
    found = decode_json((recorded / "report.json").read_bytes(), Profile)
    assert found.command == (
        "kgprof",
        "profile",
        "~/project/a.py",
        "--",
        "--where",
        "<host>",
        "<token>",
    )
    assert found.contents is not None
    assert found.contents.redaction
    # then: the Recording is as it was, and says so
    assert private_in((recorded / "recording" / "recording.json").read_text(encoding="utf-8"))


FORMS = ("html", "json", "text", "markdown", "sarif", "junit", "github")


@pytest.mark.parametrize("form", FORMS)
def test_each_format_is_made_of_what_is_redacted(
    form: str, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: whatever is rendered is kept
    renderer, seen = render.by_name(form), []
    monkeypatch.setattr(
        type(renderer), "render", lambda self, profile: seen.append(profile) or "made"
    )

    cli.run(["report", str(recorded), "--format", f"{form}={tmp_path / 'made'}"])

    assert (tmp_path / "made").read_text(encoding="utf-8") == "made"
    assert seen
    assert all(profile.contents and profile.contents.redaction for profile in seen)
    assert [private_in(encode_json(profile).decode()) for profile in seen] == [set()] * len(seen)


def test_each_format_there_is_is_among_them() -> None:
    assert {renderer.name for renderer in render.RENDERERS} == set(FORMS)


@pytest.mark.parametrize("viewer", ["perfetto", "speedscope"])
def test_what_is_exported_is_redacted_unless_it_is_not_wanted(
    viewer: str, recorded: Path, tmp_path: Path
) -> None:
    trace = layout.trace_path(recordings.load(recorded), handmade.BATCHED, PassName.TRACE)
    document = json.loads(gzip.decompress(trace.read_bytes()))
    for event in document["traceEvents"]:
        event["name"] = f"{event['name']} by analima on gpu-node17 with {SECRET}"
        event["args"] = {**event.get("args", {}), "password": "hunter2"}
    trace.write_bytes(gzip.compress(json.dumps(document).encode()))
    words = [
        "export",
        str(recorded),
        "--to",
        viewer,
        "--run",
        "batched.eager",
        "-o",
        str(tmp_path / "file"),
    ]

    def exported(*more: str) -> str:
        assert cli.run([*words, *more]) == 0
        data = (tmp_path / "file").read_bytes()
        return (gzip.decompress(data) if viewer == "perfetto" else data).decode()

    assert private_in(exported("--no-redact")) == {"analima", "gpu-node17", SECRET}
    assert private_in(safe := exported()) == set()
    assert json.loads(safe)
    assert "hunter2" not in safe


def test_a_damaged_trace_is_exported_as_it_is_or_not_at_all(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = layout.trace_path(recordings.load(recorded), handmade.BATCHED, PassName.TRACE)
    trace.write_bytes(trace.read_bytes()[:-20])
    words = [
        "export",
        str(recorded),
        "--to",
        "perfetto",
        "--run",
        "batched.eager",
        "-o",
        str(tmp_path / "file"),
    ]

    assert cli.run(words) == 2
    assert "cannot be searched for secrets" in capsys.readouterr().err
    assert cli.run([*words, "--no-redact"]) == 0


def test_no_redact_leaves_everything_and_the_page_says_so(recorded: Path) -> None:
    assert cli.run(["report", str(recorded), "--no-redact"]) == 0

    page = (recorded / "report.html").read_text(encoding="utf-8")
    assert private_in(page) == {"analima", "gpu-node17", SECRET}
    assert private_in(carried_traces(page)) == {"analima", "gpu-node17"}
    assert "nothing: this report is not redacted" in page


def test_a_comparison_is_redacted_whatever_its_sides_were(recorded: Path) -> None:
    # given: a base that is a report with everything in it, a head that is a Recording
    base, out = recorded.parent / "base", recorded.parent / "comparison"
    cli.run(["report", str(recorded), "--no-redact", "-o", str(base)])

    cli.run(["compare", str(base / "report.html"), str(recorded), "-o", str(out)])

    found = decode_json((out / "report.json").read_bytes(), Profile)
    assert found.comparison is not None
    # then: what has a shape; the names of another machine stand in its own Recording only
    assert SECRET not in (out / "report.json").read_text(encoding="utf-8")
    assert SECRET not in (out / "report.html").read_text(encoding="utf-8")


def test_a_trace_that_cannot_be_looked_through_is_not_carried(recorded: Path) -> None:
    trace = layout.trace_path(recordings.load(recorded), handmade.BATCHED, PassName.TRACE)
    trace.write_bytes(trace.read_bytes()[:-20])

    assert writing.looked_through(trace, recordings.load_header(recorded / "recording")) is None


def test_the_box_on_the_page_counts_what_was_left_out(recorded: Path) -> None:
    cli.run(["report", str(recorded)])

    page = (recorded / "report.html").read_text(encoding="utf-8")
    box = page[page.index('<section aria-labelledby="contents"') :]
    assert re.search(r"home directories \(\d+\), host names \(\d+\), tokens and keys \(\d+\)", box)
    assert "1 variable: TORCHINDUCTOR_VEC_ISA_OK" in box
    assert "Embedded traces are redacted in the same way." in box
    assert "as they were recorded" not in box


def test_a_new_recording_says_that_it_is_private(recorded: Path) -> None:
    assert "nothing in it is redacted" in (recorded / "recording" / layout.PRIVATE).read_text(
        encoding="utf-8"
    )


# ---------------------------------------------------------------- the job summary


def test_a_job_gets_the_summary_and_is_told(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = recorded / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))

    assert cli.run(["report", str(recorded)]) == 0

    said = capsys.readouterr()
    assert (
        said.err
        == f"kgprof: the summary was added to the job summary: {summary} (--no-ci leaves it out)\n"
    )
    assert said.out == f"{recorded / 'report.html'}\n"
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("### kgprof: `invented` on ")
    assert private_in(text) == set()


def test_no_ci_leaves_the_summary_alone(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(recorded / "summary.md"))

    assert cli.run(["report", str(recorded), "--no-ci"]) == 0

    assert capsys.readouterr().err == ""
    assert not (recorded / "summary.md").exists()


@pytest.mark.parametrize("state", ["full", "a folder"])
def test_a_summary_that_cannot_be_had_costs_no_report(
    state: str, recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = recorded / "summary.md"
    if state == "full":
        summary.write_bytes(b"x" * SUMMARY_BYTES)
    else:
        summary.mkdir()
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))

    assert cli.run(["report", str(recorded)]) == 0

    assert capsys.readouterr().err.startswith("kgprof: warning: the job summary ")
    assert (recorded / "report.html").exists()


def test_stdout_of_a_github_job_holds_no_command(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = layout.run_folder(recorded / "recording", handmade.BATCHED) / layout.LOG
    log.write_text("::error::from the workload\n##[error]too\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    for name in ("json", "html", "junit", "sarif", "text", "markdown"):
        assert cli.run(["report", str(recorded), "--format", name]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [
            line for line in lines if line.strip().startswith("::error") or "##[" in line
        ] == [], name


def test_a_secret_fails_the_command_where_that_is_asked_for_and_is_not_said(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["report", str(recorded)]) == 0
    assert cli.run(["report", str(recorded), "--fail-on-secret"]) == 1

    captured = capsys.readouterr()
    assert "kgprof: error: secrets were left out of the report: tokens and keys (" in captured.err
    assert "<secret>, <token> or <credentials> stands in command[6]" in captured.err
    assert private_in(captured.err + captured.out) == set()
    # then: the report is written all the same
    assert decode_json((recorded / "report.json").read_bytes(), Profile).command[6] == "<token>"


def test_no_secret_is_no_failure(tmp_path: Path) -> None:
    handmade.write(tmp_path / "out" / "recording")

    assert cli.run(["report", str(tmp_path / "out"), "--fail-on-secret"]) == 0


def test_without_redaction_no_secret_is_looked_for(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["report", str(recorded), "--no-redact", "--fail-on-secret"]) == 2
    assert "--no-redact turns that off" in capsys.readouterr().err
