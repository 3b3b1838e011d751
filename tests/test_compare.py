"""`kgprof compare` on the command line: what it reads, what it refuses, what it says and how it
ends."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kgprof import cli
from kgprof.model import PROFILE_SCHEMA_VERSION, History, Profile, decode_json, encode_json
from kgprof.render import by_name
from tests.analysis.compared import finding, profile, slower
from tests.document.test_memory_table_chart import CURVE
from tests.record import handmade


def here(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    code = cli.run([str(arg) for arg in args])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture(autouse=True)
def away_from_this_repositorys_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)


def reported(folder: Path, given: Profile) -> Path:
    """report.html and report.json, as if they had been downloaded."""
    folder.mkdir()
    for name in ("html", "json"):
        (folder / f"report.{name}").write_text(by_name(name).render(given), encoding="utf-8")
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return reported(tmp_path / "base", profile())


@pytest.fixture
def worse(tmp_path: Path) -> Path:
    given = msgspec.structs.replace(slower(profile(), 1200.0), findings=(finding(),))
    return reported(tmp_path / "head", given)


# ---------------------------------------------------------------- what it reads


@pytest.mark.parametrize("name", ["", "report.html", "report.json"])
def test_a_folder_a_page_and_a_document_say_the_same(
    name: str, base: Path, worse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = here(capsys, "compare", base / name, worse / name)

    assert (code, err) == (1, "")
    verdict = next(line for line in out.splitlines() if line.startswith("REGRESSION: "))
    assert "fused.default" in verdict
    assert "step.py:41: new KGP201" in verdict
    assert re.search("^step +fused.default ", out, re.MULTILINE)
    assert "+20.0 %" in out


def test_a_recording_is_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the folder, by recording/ and by its header; made in one round, so that nothing is said of
    times."""
    handmade.write(tmp_path / "out" / "recording")
    recording = tmp_path / "out" / "recording"

    said = [
        here(capsys, "compare", tmp_path / "out", path)
        for path in (recording, recording / "recording.json")
    ]

    assert [code for code, _, _ in said] == [4, 4]  # lost.default died in head
    assert all("lost.default" in out.splitlines()[2] for _, out, _ in said)


def test_a_report_beside_no_recording_stands_for_the_folder(
    base: Path, worse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (base / "report.html").unlink()

    assert here(capsys, "compare", base, worse)[0] == 1


# ---------------------------------------------------------------- what it refuses


def test_what_is_not_there_is_said_once(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = here(capsys, "compare", base, tmp_path / "nowhere")

    assert (code, out) == (2, "")
    assert err.count("kgprof: error:") == 1
    assert f"{tmp_path / 'nowhere'}: file or folder not found" in err


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "report.html",
            "<!doctype html><title>another tool</title></html>",
            "not a report.html written by kgprof",
        ),
        ("report.json", "{", "not a kgprof Profile"),
        ("report.json", f'{{"schema_version": {PROFILE_SCHEMA_VERSION}}}', "not a kgprof Profile"),
        ("report.json", "[" * 100_000, "not a kgprof Profile"),
        ("report.json", "", "not a kgprof Profile"),
    ],
)
def test_another_tools_file_and_a_broken_one_are_refused(
    name: str, text: str, words: str, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)

    code, out, err = here(capsys, "compare", tmp_path / name, base)

    assert (code, out) == (2, "")
    assert words in err


def change_in(report: Path, place: str, change: Callable[[Any], Any]) -> None:
    """Write one with a value changed: of the Profile itself, or of its first run."""
    given = profile()
    run = msgspec.structs.replace(given.runs[0], memory_curve=CURVE)
    document = json.loads(encode_json(msgspec.structs.replace(given, runs=(run, *given.runs[1:]))))
    part = document if place == "contents" else document["runs"][0]
    *way, last = (int(key) if key.isdecimal() else key for key in place.split("."))
    for key in way:
        part = part[key]
    before, part[last] = part[last], change(part[last])
    assert part[last] != before
    report.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize(
    ("place", "change", "words"),
    [
        ("flame.self_ns", lambda given: given[:-1], "columns of one table do not fit together"),
        ("flame.frame", lambda given: [*given[:-1], 10**9], "columns"),
        ("flame.names", lambda given: given[:1], "columns"),
        ("flame.frames", lambda given: [], "columns"),
        ("flame.parent.0", lambda given: 0, "comes before its parent"),
        ("flame.parent.1", lambda given: 1, "parent"),
        ("flame.parent", lambda given: [*given[:-1], -2], "parent"),
        ("flame.steps", lambda given: 0, "flame.steps"),
        ("series.processes.0.low_us", lambda given: [*given, 1.0], "columns"),
        ("series.time.samples", lambda given: -1, "samples"),
        ("series.bin_us", lambda given: -given, "series.bin_us"),
        ("memory_curve.at_us", lambda given: given[1:], "columns"),
        ("memory_curve.duration_us", lambda given: -given, "duration_us"),
        ("kernels.timeline.lanes.0.kind", lambda given: given[1:], "columns"),
        ("kernels.timeline.lanes.0.kind.0", lambda given: 10**6, "columns"),
        ("kernels.timeline.lanes.0.name.0", lambda given: -1, "columns"),
        ("kernels.timeline.lanes.0.duration_ns.0", lambda given: -given, "duration_ns"),
        ("kernels.timeline.kinds", lambda given: [], "columns"),
        ("kernels.timeline.window_us", lambda given: -given, "window_us"),
        ("kernels.device", lambda given: "tpu", "kernels.device"),
        ("kernels.total_us", lambda given: 1e308, "1e+308 is beyond"),
        ("kernels.total_us", lambda given: 5e-324, "5e-324 is beyond"),
        ("contents", lambda given: {"redaction": False, "source": "some"}, "contents.source"),
    ],
)
def test_a_report_with_values_that_cannot_be_is_refused(
    place: str,
    change: Callable[[Any], Any],
    words: str,
    base: Path,
    worse: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change_in(worse / "report.json", place, change)

    code, out, err = here(capsys, "compare", base, worse / "report.json")

    assert (code, out) == (2, "")
    assert err.startswith(f"kgprof: error: {worse / 'report.json'}: not a kgprof Profile: ")
    assert words in err


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("evaluation", {"kind": "skipped", "reason": "lost"}),
        ("evaluation.units", 0),
        ("rounds.evaluation_s", []),
        ("rounds.machine.host_us", []),
        ("evaluation.metrics.0.decimals", -1),
        ("evaluation.metrics.0.decimals", 10**18),
    ],
)
def test_a_value_that_another_one_needs_may_be_missing(
    place: str, value: object, base: Path, worse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_in(worse / "report.json", place, lambda given: value)

    code, out, err = here(capsys, "compare", base, worse / "report.json", "--format", "html")

    assert code in (0, 1, 6)
    assert (out[:9], err) == ("<!DOCTYPE", "")


def test_a_page_that_breaks_off_is_refused(
    base: Path, worse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (worse / "report.html").read_text(encoding="utf-8")
    (worse / "report.html").write_text(text[: text.index('id="profile"') + 500], encoding="utf-8")

    code, _, err = here(capsys, "compare", base, worse / "report.html")

    assert code == 2
    assert "is truncated" in err


def test_a_newer_schema_is_refused(
    base: Path, worse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((worse / "report.json").read_text())
    (worse / "report.json").write_text(
        json.dumps({**document, "schema_version": PROFILE_SCHEMA_VERSION + 1})
    )

    code, _, err = here(capsys, "compare", base, worse)

    assert code == 2
    assert "newer than this kgprof reads" in err
    assert "update kgprof" in err


def test_a_comparison_is_refused_as_a_side(
    base: Path, worse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert here(capsys, "compare", base, worse, "-o", tmp_path / "compared")[0] == 1

    code, _, err = here(capsys, "compare", base, tmp_path / "compared")

    assert code == 2
    assert f"{tmp_path.name}/compared is itself a comparison and cannot be one of its sides" in err


def test_two_workloads_are_refused(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = reported(tmp_path / "other", profile(workload="train.py:step"))

    code, _, err = here(capsys, "compare", base, other)

    assert code == 2
    assert "two workloads" in err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("steps=5", "no metric 'steps' (did you mean step"),
        ("step", "a budget must be METRIC=PERCENT"),
        ("step=five", "a budget must be a percentage"),
        ("step=-1", "a budget must be a percentage"),
        ("step=nan", "a budget must be a percentage"),
    ],
)
def test_a_budget_that_is_none_is_refused(
    given: str, words: str, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = here(capsys, "compare", base, base, "--max-regression", given)

    assert code == 2
    assert words in err


# ---------------------------------------------------------------- budgets and the configuration


def test_a_budget_lets_a_time_pass_and_the_finding_still_fails(
    base: Path, worse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    allowed = ("--max-regression", "step=30%", "--max-regression", "evaluation=30")

    assert here(capsys, "compare", base, worse, *allowed)[0] == 1
    assert here(capsys, "compare", base, worse, *allowed, "--fail-on", "error")[0] == 0
    assert here(capsys, "compare", base, worse, "--fail-on", "never")[0] == 0


def test_budgets_stand_in_the_configuration_and_options_win(
    base: Path, worse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[tool.kgprof]\nfail-on = "error"\nmax-regression = {step = "30%", evaluation = 30}\n'
    (tmp_path / "pyproject.toml").write_text(text)

    assert here(capsys, "compare", base, worse)[0] == 0
    assert here(capsys, "compare", base, worse, "--max-regression", "step=10%")[0] == 1


def test_a_fault_in_the_configuration_is_told(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kgprof.toml").write_text("max-regression = {stepp = 5}\n")

    code, _, err = here(capsys, "compare", base, base)

    assert code == 2
    assert "max-regression.stepp: no metric 'stepp' (did you mean step?)" in err


def test_what_the_project_accepts_does_not_fail(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = reported(tmp_path / "head", profile(findings=(finding(),)))
    entry = (
        '[[accepted]]\nrule = "KGP201"\nfile = "step.py"\nfunction = "step"\nreason '
        '= "see #12"\nowner = "ada"\n'
    )
    assert here(capsys, "compare", base, head)[0] == 1

    (tmp_path / "kgprof-accepted.toml").write_text(f"{entry}expires = 2027-01-31\n")
    assert here(capsys, "compare", base, head)[0] == 0

    (tmp_path / "kgprof-accepted.toml").write_text(f"{entry}expires = 2026-01-31\n")
    assert here(capsys, "compare", base, head)[0] == 1


# ---------------------------------------------------------------- what it writes


def test_json_holds_heads_profile_with_the_comparison(
    base: Path, worse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = here(capsys, "compare", base, worse, "--format", "json")

    found = decode_json(out, Profile)
    assert (code, found.exit_code) == (1, 1)
    assert found.comparison is not None
    folder = base.parent.name
    assert (found.comparison.base.source, found.comparison.head.source) == (
        f"{folder}/base",
        f"{folder}/head",
    )
    _, whole, _ = here(capsys, "compare", base, worse, "--format", "json", "--no-redact")
    assert f'"source": "{base}"' in whole
    assert encode_json(found).decode().strip() == out.strip()


def test_the_page_is_written_where_it_is_asked_for_and_carries_the_comparison(
    base: Path, worse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "compared"

    code, out, err = here(capsys, "compare", base, worse, "-o", where)

    assert code == 1
    assert "REGRESSION: fused.default" in out
    assert err == f"kgprof: the report is {where / 'report.html'}\n"
    assert sorted(path.name for path in where.iterdir()) == ["report.html", "report.json"]
    code, extracted, _ = here(capsys, "extract", where / "report.html")
    assert decode_json(extracted, Profile).comparison is not None


def test_another_environment_ends_with_six_unless_it_is_allowed(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = slower(profile(), 1200.0)
    elsewhere = msgspec.structs.replace(
        given, environment=msgspec.structs.replace(given.environment, torch="2.14.0")
    )
    head = reported(tmp_path / "head", elsewhere)

    code, out, _ = here(capsys, "compare", base, head)

    assert code == 6
    assert "The environments differ in 1 fact, so times are not compared." in out
    assert re.search("^torch +2.13.0.cpu +2.14.0$", out, re.MULTILINE)
    assert here(capsys, "compare", base, head, "--allow-different-environment")[0] == 1


def test_the_same_two_give_the_same_bytes(
    base: Path, worse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        here(capsys, "compare", base, worse, "-o", tmp_path / name)
    one, two = ((tmp_path / name / "report.html").read_bytes() for name in ("one", "two"))

    assert one == two


def test_nothing_is_left_beside_the_inputs(
    base: Path, worse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in (*base.iterdir(), *worse.iterdir()))
    shutil.copytree(base, base.parent / "copy")

    here(capsys, "compare", base, worse)

    assert sorted(path.name for path in (*base.iterdir(), *worse.iterdir())) == before


# ---------------------------------------------------------------- more than two


def test_more_than_two_are_a_history(
    base: Path, worse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "history"

    code, text, err = here(capsys, "compare", base, worse / "report.html", base, "-o", out)
    _, document, _ = here(
        capsys, "compare", base, worse, base, "--format", "json", "-o", out
    )  # once more, in its place

    assert (code, err) == (0, f"kgprof: the report is {out / 'history.html'}\n")
    assert "History of linkpred" in text
    assert "+20.0 %" in text
    assert 'class="plot"' in (out / "history.html").read_text(encoding="utf-8")
    found = decode_json((out / "history.json").read_bytes(), History)
    assert found == decode_json(document.encode(), History)
    assert [len(metric.values) for metric in found.metrics] == [3] * len(found.metrics)


def test_a_history_has_no_form_of_a_gate_and_replaces_no_file_of_others(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "history.html").write_text("mine")

    code, _, err = here(capsys, "compare", base, base, base, "--format", "sarif")
    other = here(capsys, "compare", base, base, base, "-o", taken)

    assert (code, "has no format sarif" in err) == (2, True)
    assert (other[0], "history.html already exists" in other[2]) == (2, True)
    assert (taken / "history.html").read_text() == "mine"
