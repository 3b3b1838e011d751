"""No verb eats what it reads, and where a place cannot be written every older result stays
whole."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgprof import cli
from kgprof.errors import OutputError
from kgprof.reading import layout
from kgprof.record.files import kept_traces
from kgprof.record.ground import store, unfinished
from kgprof.record.processes import recorder
from tests.record import handmade, scripted

TRACES = Path(__file__).resolve().parents[2] / "fixtures" / "torch_trace" / "two_ranks"
TRACE = "run/recording/runs/fused.default/trace.json.gz"
CAPTURE = TRACES.parents[1] / "captures" / "h200" / "fusion.json"
RANK = "dedicated_log_torch_trace_rank_0_frox0meq.log.gz"

# Each reads something that it would replace, or lies in what it would replace. {p} is the folder of
# all.
EATING = [
    f"trace {TRACE} -o run",
    f"trace t.json.gz --against {TRACE} -o run",
    f"trace link/{TRACE.partition('/')[2]} -o run",
    "trace t.json.gz -o new --format json=t.json.gz",
    "trace t.json.gz -o new --format json=hard.json.gz",
    "trace t.json.gz -o run --format json=run/recording/recording.json",
    "report --torch-trace run/recording/traced -o run",
    f"report --torch-trace traced -o new --format json=traced/{RANK}",
    "check-graphs --torch-trace run/recording/traced -o run",
    "report run -o run/recording/runs",
    "report run --format json=run/recording/recording.json",
    f"report run --format html={TRACE}",
    "report run/report.html --format json=link/recording/runs/fused.default/exit.json",
    "extract run/report.html -o run/report.html",
    "extract run/report.html -o link/report.html",
    "extract run/report.html -o soft.html",
    "extract run/report.html -o hard.html",
    f"export run --to perfetto --run fused.default -o {TRACE}",
    "export run/report.html --to perfetto --run fused.default -o run/report.html",
    "compare base run -o run",
    "compare run base -o link",
    "compare run/report.json base -o run",
    "compare base run --format json=run/report.json",
    "compare base run --format json=run/recording/recording.json",
    "compare base run --format json=kgprof.toml",
    "compare base run base --format json=run/report.json",
    "compare base run base --format json=base/recording/recording.json",
    "compare base run/report.html base --format html=run/report.html",
    "compare --record . . s.py:step -o new --format json=s.py",
    "compare --record . . s.py:step -o new --format json=kgprof.toml",
    "export run --to graph -o run/recording/recording.json",
    "export run --to code -o run/report.json",
    "profile run/recording/s.py -o run",
    "profile s.py -o new --format json=s.py",
    "profile s.py:step -o new --format json=s.py",
    "profile s.py -o new --format json=new/recording/recording.json",
    "profile s.py -o run -- --data run/recording/runs",
    "profile s.py -o run -- --data=run/recording/s.py",
    "check-graphs s.py:step -o new --format json=kgprof.toml",
    "check-graphs s.py:step -o new --format sarif=kgprof-accepted.toml",
]
# Each writes to {to}, where an older result stands.
WRITING = [
    "trace t.json.gz -o {to}/run",
    "report {to}/run",
    "report base -o {to}/run",
    "report base --format json={to}/one.json",
    "report --torch-trace traced -o {to}/run",
    "check-graphs --torch-trace traced -o {to}/run",
    "extract base/report.html -o {to}/one.json",
    "export base --to perfetto --run fused.default -o {to}/one.json",
    "compare base base -o {to}/run",
    "compare base base --format json={to}/one.json",
    "compare base base base -o {to}/history",
    "compare base base base --format json={to}/one.json",
    "profile s.py -o {to}/run",
    "check-graphs s.py:step -o {to}/run",
    "ci-init github -o {to}/kgprof.yml",
]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Recording and its report, made once: every test works on copies of it."""
    folder = tmp_path_factory.mktemp("reported")
    handmade.write(folder / "recording")
    assert cli.run(["report", str(folder)]) == 0
    return folder


@pytest.fixture
def place(reported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with results, a script and links; no child is ever started in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("run", "base"):
        shutil.copytree(reported, tmp_path / name)
    for folder in (tmp_path, tmp_path / "run" / "recording"):
        shutil.copytree(TRACES, folder / "traced")
        (folder / "s.py").write_text("def step(): pass\n", encoding="utf-8")
    shutil.copy(tmp_path / TRACE, tmp_path / "t.json.gz")
    for name in ("kgprof.toml", "kgprof-accepted.toml"):
        (tmp_path / name).touch()
    os.link(tmp_path / "t.json.gz", tmp_path / "hard.json.gz")
    os.link(tmp_path / "run" / "report.html", tmp_path / "hard.html")
    (tmp_path / "soft.html").symlink_to("run/report.html")
    (tmp_path / "link").symlink_to("run")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()
    }


def refused(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What it says on stderr, in one sentence and with exit code 2."""
    capsys.readouterr()
    code = cli.run(words.split())
    err = capsys.readouterr().err

    assert code == 2, err
    lines = (line for line in err.splitlines() if not line.startswith("kgprof:  "))
    said = [line for line in lines if not line.startswith("kgprof: other processes used")]
    assert [line[:15] for line in said[:1]] == ["kgprof: error: "], err
    assert [line[:8] for line in said[1:]] in ([], ["  hint: "]), err
    return err


@pytest.mark.parametrize("words", EATING)
def test_nothing_that_is_read_is_overwritten(
    place: Path, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(place)

    err = refused(words, capsys)

    assert "would be" in err
    assert contents(place) == before
    assert not (place / "new").exists()


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan without a child: what is written after it is what fails."""

    def planned(options: object, *_: object) -> object:
        return scripted.plan(options), None  # type: ignore[arg-type]

    monkeypatch.setattr(recorder, "make_plan", planned)


def test_whatever_is_larger_than_it_may_be_leaves_the_older_results(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick(monkeypatch)
    (place / "one.json").write_text("older", encoding="utf-8")
    before, limits = contents(place), resource.getrlimit(resource.RLIMIT_FSIZE)

    for words in WRITING:
        resource.setrlimit(resource.RLIMIT_FSIZE, (128, limits[1]))
        try:
            refused(words.format(to="."), capsys)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

        assert contents(place) == before, words


@pytest.fixture
def mounted(place: Path) -> Iterator[Path]:
    """A file system of 4 MB with older results."""
    folder = place / "mounted"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=False
    ).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        shutil.copytree(place / "run", folder / "run")
        (folder / "one.json").write_text("older", encoding="utf-8")
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.mounts
@pytest.mark.parametrize("how", ["full", "read-only"])
def test_a_place_that_cannot_be_written_keeps_the_older_results(
    mounted: Path, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quick(monkeypatch)
    if how == "full":
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={mounted / 'filler'}"], check=False, capture_output=True
        )
    else:
        subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    before = contents(mounted)

    for words in WRITING:
        refused(words.format(to=mounted), capsys)

        assert contents(mounted) == before, words


def test_a_rank_looks_at_the_place_of_the_whole_before_its_program_starts(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "s.py").write_text("open('ran', 'w')\n", encoding="utf-8")
    (place / "mine").mkdir()
    (place / "mine" / "report.html").write_text("mine", encoding="utf-8")
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)

    assert "already exists" in refused("profile s.py -o mine", capsys)
    assert "would be" in refused("profile s.py -o run -- --data=run/recording/s.py", capsys)
    assert not (place / "ran").exists()
    assert not list(place.glob("*/rank*"))


@pytest.mark.parametrize(("verb", "name"), [("capture", "capture"), ("sweep", "sweep")])
def test_a_file_that_kgprof_did_not_write_is_not_replaced(
    place: Path, verb: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "mine").mkdir()
    for suffix, text in {
        "html": "mine",
        "json": '{"schema_version": 1, "environment": {}}',
    }.items():
        (place / "mine" / f"{name}.{suffix}").write_text(text, encoding="utf-8")
        before = contents(place)

        assert "already exists" in refused(f"{verb} s.py:step -o mine", capsys)
        assert contents(place) == before


def test_an_earlier_result_is_replaced_and_the_reports_beside_it_stay(place: Path) -> None:
    shutil.copy(CAPTURE, place / "run" / "capture.json")
    before = contents(place / "run")
    unfinished.refuse_in_the_way(place / "run", ("capture.json", "capture.html"))

    with unfinished.Unfinished(place / "run", worth_keeping=False) as work:
        (work.folder / "capture.json").write_text("new", encoding="utf-8")
        work.finish()

    assert contents(place / "run") == {**before, "capture.json": b"new"}


def test_what_is_not_whole_and_what_is_older_stays_not_beside_a_new_result(place: Path) -> None:
    with unfinished.Unfinished(place / "run") as work:
        shutil.copytree(place / "base" / "recording", work.recording)
        (work.folder / ".partial-7-report.html").write_text("half", encoding="utf-8")
        (work.folder / "report.json").write_text("new", encoding="utf-8")
        work.finish()

    assert {one.name for one in (place / "run").iterdir()} == {"recording", "report.json"}
    assert (place / "run" / "report.json").read_text(encoding="utf-8") == "new"


def test_a_result_without_a_recording_leaves_the_reports_beside_it(place: Path) -> None:
    (place / "run" / "report.html").write_text("the profile's", encoding="utf-8")

    with unfinished.Unfinished(place / "run") as work:
        (work.folder / "sweep.json").write_text("{}", encoding="utf-8")
        work.finish()

    assert (place / "run" / "report.html").read_text(encoding="utf-8") == "the profile's"
    assert (place / "run" / "sweep.json").exists()


def test_without_an_exchange_at_once_the_older_result_is_kept_until_the_new_one_stands(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished.sys, "platform", "another")
    traces = kept_traces.kept_traces(place / "run" / "recording", [handmade.FUSED])

    assert cli.run(["trace", "t.json.gz", "-o", "run", "-q"]) == 0

    assert not [trace for trace in traces if trace.path.exists()]
    assert {one.name for one in (place / "run").iterdir()} == {
        "recording",
        "report.html",
        "report.json",
    }


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("goes_on_failing", [False, True])
def test_where_a_page_cannot_be_replaced_the_older_result_is_whole(
    place: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool, goes_on_failing: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(unfinished.sys, "platform", "another")
    (place / "run" / "report.html").write_text("older", encoding="utf-8")
    before = contents(place / "run")
    exchange = unfinished._exchange
    moved: list[Path] = []

    def fails(new: Path, old: Path) -> None:
        moved.append(new)
        if len(moved) == 2 or (goes_on_failing and len(moved) > 2):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        exchange(new, old)

    monkeypatch.setattr(unfinished, "_exchange", fails)

    with unfinished.Unfinished(place / "run", worth_keeping=False) as work:
        shutil.copytree(place / "base" / "recording", work.recording)
        (work.recording / "agreement.json").unlink()
        (work.folder / "report.html").write_text("new", encoding="utf-8")
        with pytest.raises(OutputError, match="cannot replace what is in"):
            work.finish()

    kept = contents(place / "run")
    aside = f"{layout.UNFINISHED}/"
    if goes_on_failing:  # nothing can be put back: it is kept, and not called what was measured
        assert kept[f"{aside}recording/agreement.json"] == before["recording/agreement.json"]
        assert not work.begun
    else:
        assert {name: kept[name] for name in kept if not name.startswith(aside)} == before


@pytest.mark.parametrize("ends", ["well", "with nothing", "in the owner's"])
def test_the_folder_of_all_reports_is_kept_out_of_git_by_whom_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.chdir(tmp_path)
    reports = Path("reports")
    if ends == "in the owner's":
        reports.mkdir()

    with unfinished.Unfinished(reports / "train") as work:
        if ends != "with nothing":
            (work.folder / "report.html").write_text("")
            work.finish()

    ignored = reports / ".gitignore"
    assert ignored.exists() == (ends == "well")
    assert reports.exists() == (ends != "with nothing")
    assert ends != "well" or ignored.read_text().endswith("\n*\n")


def test_links_in_a_strangers_folder_are_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "run" / layout.UNFINISHED
    folder.mkdir(parents=True)
    (folder / unfinished.LOCK).symlink_to(victim)
    (tmp_path / f"{layout.PARTIAL}{os.getpid()}-page.html").symlink_to(victim)

    with pytest.raises(OutputError), unfinished.Unfinished(tmp_path / "run"):
        pass
    with store.replacing(tmp_path / "page.html") as partial:
        partial.write_text("a page")

    assert victim.read_text() == "mine"
    assert not (tmp_path / "page.html").is_symlink()
