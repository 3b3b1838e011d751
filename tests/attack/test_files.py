"""What others hand over costs one error: the reproductions of past faults, and a sample of each
family of damaged files. `python -m tests.attack.families FAMILY` runs one in full, `make
test-long` the shares that stand here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kgprof.errors import EXIT_INCONCLUSIVE, EXIT_OK, EXIT_USAGE
from tests.attack import documents, families
from tests.attack.asked import ask, counted

SMALL_OPS = documents.SWEEPS / "h200" / "small-ops.json"
# of each family, in every run
SAMPLES = {"numbers": 40, "corruptions": 30, "sweeps": 25, "traces": 20, "checkpoints": 266}
# of each family, in the long run
SHARES = {"numbers": 0.2, "corruptions": 0.5, "sweeps": 1.0, "traces": 1.0, "checkpoints": 1.0}


@pytest.mark.parametrize("family", SAMPLES)
def test_a_sample_of_each_family_costs_one_error(family: str) -> None:
    cases = families.sampled(family, seed=4, most=SAMPLES[family])

    tried, found = families.faults(cases)

    assert found == [], counted(found, tried)
    assert tried == SAMPLES[family]


@pytest.mark.long
@pytest.mark.parametrize("family", SHARES)
def test_each_family_costs_one_error(family: str) -> None:
    cases = families.sampled(family, seed=5, share=SHARES[family])

    tried, found = families.faults(cases)

    assert found == [], counted(found, tried)
    assert tried > 250


def test_the_families_hold_what_they_are_said_to_hold() -> None:
    """Every numeric field with 18 values, at least 563 corruptions and 550 traces."""
    kinds = {"numbers": 10_000, "corruptions": 563, "sweeps": 500, "traces": 550}
    counts = {name: len(families.sampled(name, seed=0)) for name in kinds}

    assert all(counts[name] >= least for name, least in kinds.items()), counts
    formats = {each.name.partition("/")[0] for each in documents.numbered()}
    assert {"handmade", "sweep", "report.json", "trace"} <= formats


def test_the_judge_of_an_answer_sees_each_fault() -> None:
    right = ask("explain", "KGP101")
    wrong = {
        "exit code 3": {"code": 3},
        "exit code 130": {"code": 130},
        "0 errors": {"code": EXIT_USAGE},
        "stderr": {"said": "RuntimeWarning: overflow"},
        "no number": {"out": "step nan us"},
        "a control character": {"said": "\x1b[2J"},
        "99 s": {"seconds": 99.0},
    }

    assert right.fault == ""
    for said, change in wrong.items():
        ended = type(right)(**{**vars(right), **change})  # type: ignore[arg-type]
        assert ended.fault.startswith(said)


# ---------------------------------------------------------------- past faults


@pytest.mark.parametrize(
    ("field", "literal"),
    [
        ("start_s", "[0, 1e308]"),
        ("start_s", "[-1]"),
        ("step_us", "[0.0]"),
        ("step_us", "[1e-320, 1e308]"),
        ("again_s", "-1e308"),
    ],
)
def test_a_sweep_with_impossible_times_is_one_error(
    tmp_path: Path, field: str, literal: str
) -> None:
    sweep = json.loads(SMALL_OPS.read_text())
    for cell in sweep["cells"]:
        for process in cell["processes"]:
            if "reason" not in process["measured"]:
                process["measured"][field] = json.loads(literal)
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))

    ended = ask("advise", tmp_path, "--executions", "10")

    assert (ended.code, ended.fault) == (EXIT_USAGE, "")
    assert "not a sweep of kgprof" in ended.said
    assert field in ended.said


def test_a_time_of_nothing_under_a_policy_is_one_error(tmp_path: Path) -> None:
    sweep = documents.with_trials(json.loads(SMALL_OPS.read_text()))
    for _, policy in sweep["shapes"]["policies"]:
        policy["sizes"][0]["steady"]["median"] = 0.0
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))

    assert ask("advise", tmp_path, "--executions", "10").code == EXIT_USAGE


def test_a_sweep_beyond_its_size_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_bytes(b" " * (8 * 2**20 + 1))

    ended = ask("advise", tmp_path, "--executions", "10")

    assert ended.code == EXIT_USAGE
    assert "larger than 8,388,608 bytes" in ended.said


def test_advice_does_not_replace_its_sweep(tmp_path: Path) -> None:
    file = tmp_path / "sweep.json"
    shutil.copy(SMALL_OPS, file)
    for place in ("sweep.json", "."):
        ended = ask(
            *("advise", tmp_path / place, "--executions", "10"),
            *("--format", f"json={tmp_path / 'sweep.json'}"),
        )
        assert ended.code == EXIT_USAGE
        assert "would be overwritten" in ended.said
    assert file.read_bytes() == SMALL_OPS.read_bytes()


def test_a_number_of_thousands_of_digits_costs_its_event(tmp_path: Path) -> None:
    event = '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":%s,"dur":1}'
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents":[%s]}' % (event % ("9" * 5000)))

    ended = ask("trace", path, "--no-hta", "-o", tmp_path / "out", "-q")

    assert (ended.code, ended.fault) == (EXIT_USAGE, "")
    assert "it has no complete event" in ended.said


@pytest.mark.parametrize("text", ["tool = 3", "tool = []", "tool.kgprof = 3"])
def test_a_pyproject_of_another_shape_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    documents.handmade.write(tmp_path / "a")
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.chdir(tmp_path)

    ended = ask("compare", "a", "a")

    assert (ended.code, ended.fault) == (EXIT_USAGE, "")
    assert "tool.kgprof must be a table" in ended.said


def test_a_head_that_did_not_end_is_inconclusive(tmp_path: Path) -> None:
    """130 is for Ctrl-C now, not for one in a Recording."""
    for side in ("base", "head"):
        shutil.copytree(documents.recordings()["break_even"], tmp_path / side)
    for file in (tmp_path / "head").rglob("exit.json"):
        file.unlink()

    ended = ask("compare", tmp_path / "base", tmp_path / "head")

    assert ended.code == EXIT_INCONCLUSIVE
    assert "was interrupted" in ended.out


def test_text_that_is_no_utf_8_is_one_error(tmp_path: Path) -> None:
    documents.handmade.write(tmp_path / "a")
    file = tmp_path / "a" / "recording.json"
    file.write_bytes(file.read_bytes().replace(b'"Linux', b'"\x80inux', 1))

    ended = ask("report", tmp_path / "a")

    assert ended.code == EXIT_USAGE
    assert "it is not UTF-8" in ended.said


_PHASE = '{"phase": "steps", "us": 1, "share": 1e308}'
_ACCOUNT = (
    f'{{"kind": "scriptaccount", "total_us": 1, "phases": [{_PHASE}], "under_listeners": false}}'
)


@pytest.mark.parametrize(
    ("recording", "file", "field", "literal"),
    [
        ("handmade", "runs/batched.eager/timing.json", "evaluation_s", "[-1e308]"),
        ("rank_skips_a_sum", "collectives.json", "begun", '[["0", 1, 9223372036854775807]]'),
        ("eager_resnet", "compile.json", "calls", "9223372036854775807"),
        ("eager_resnet", "compile.json", "steady_from", "-9223372036854775807"),
        ("eager_resnet", "timing.json", "account", _ACCOUNT),  # 100 times that is no number
    ],
)
def test_an_impossible_number_of_a_recording_is_one_error(
    recording: str, file: str, field: str, literal: str
) -> None:
    folder = documents.recordings()[recording]
    place = next(folder.rglob(Path(file).name)).relative_to(folder)
    document = documents.Document(
        name=field, folder=folder, file=str(place), reader=documents.REPORT
    )
    value = {**json.loads(document.path.read_bytes()), field: json.loads(literal)}

    ended = document.with_bytes(json.dumps(value).encode())

    assert (ended.code, ended.fault) == (EXIT_USAGE, "")
    assert field in ended.said or "do not fit together" in ended.said


# ---------------------------------------------------------------- what is written where


def test_nothing_is_extracted_into_a_recording(tmp_path: Path) -> None:
    work_in = tmp_path / "x"
    documents.handmade.write(work_in / "recording")
    assert ask("report", work_in).code == EXIT_OK
    header = work_in / "recording" / "recording.json"
    before = header.read_bytes()
    (tmp_path / "link").symlink_to(work_in / "recording")

    for place in (header, tmp_path / "link" / "runs" / "batched.eager" / "exit.json"):
        ended = ask("extract", work_in / "report.html", "-o", place)
        assert ended.code == EXIT_USAGE
        assert "would be overwritten: it is in" in ended.said
    assert header.read_bytes() == before


def test_a_file_beside_a_recording_json_of_a_program_s_own_may_be_replaced(tmp_path: Path) -> None:
    documents.handmade.write(tmp_path / "x" / "recording")
    assert ask("report", tmp_path / "x").code == EXIT_OK
    other = tmp_path / "other"
    other.mkdir()
    place = other / "found.json"
    for header, is_taken in (
        ('{"title": "of a radio", "schema_version": 3}', True),
        ("{", False),  # what is damaged may be a Recording
        ((tmp_path / "x" / "recording" / "recording.json").read_text(), False),
    ):
        place.write_text("older")
        (other / "recording.json").write_text(header)

        ended = ask("extract", tmp_path / "x" / "report.html", "-o", place)

        assert ended.code == (EXIT_OK if is_taken else EXIT_USAGE), header
        assert (place.read_text() == "older") != is_taken


@pytest.mark.parametrize(
    ("recording", "file", "changed"),
    [
        ("eager_resnet", "compile.json", {"calls": 5 * 10**7 + 1}),  # more than fit into memory
        ("eager_resnet", "compile.json", {"calls": 10**12}),
        ("handmade", "batched.eager/timing.json", {"evaluation_s": [1e-320]}),
        ("busy_gpu", "timing.json", {"step_us": [[0] * 1000]}),  # by a clock that stood still
    ],
)
def test_an_odd_number_of_a_recording_is_reported_on(
    recording: str, file: str, changed: dict[str, object]
) -> None:
    folder = documents.recordings()[recording]
    place = next(folder.rglob(file)).relative_to(folder)
    document = documents.Document(
        name=file, folder=folder, file=str(place), reader=documents.REPORT
    )
    value = {**json.loads(document.path.read_bytes()), **changed}

    ended = document.with_bytes(json.dumps(value).encode())

    assert (ended.code, ended.fault) == (EXIT_OK, "")


@pytest.mark.parametrize(
    ("formats", "said"),
    [
        (("markdown={p}/x", "json={p}/x"), "two formats cannot share a file"),
        (("markdown={p}/x", "json={p}/a/../x"), "two formats cannot share a file"),
        (("markdown={p}/report.html",), "is the name of another format than markdown"),
        (("sarif={p}/report.json",), "is the name of another format than sarif"),
    ],
)
def test_no_format_takes_the_place_of_another(
    tmp_path: Path, formats: tuple[str, ...], said: str
) -> None:
    documents.handmade.write(tmp_path / "recording")
    assert ask("report", tmp_path).code == EXIT_OK
    (tmp_path / "a").mkdir()
    page = (tmp_path / "report.html").read_bytes()
    asked = [word for each in formats for word in ("--format", each.replace("{p}", str(tmp_path)))]

    ended = ask("report", tmp_path, *asked)

    assert ended.code == EXIT_USAGE
    assert said in ended.said
    assert (tmp_path / "report.html").read_bytes() == page
    assert not (tmp_path / "x").exists()
