"""HTA in the read step: asked once about each GPU trace, in a process that may fail without harm;
and it agrees."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from kgprof import cli
from kgprof.analysis import analyse
from kgprof.errors import KgprofError
from kgprof.measures import holistic_check, kernels
from kgprof.model import (
    Holistic,
    HolisticCheck,
    KernelBreakdown,
    PassName,
    Recording,
    Skipped,
)
from kgprof.reading import kineto, layout, recordings
from kgprof.record.ground import store
from kgprof.record.processes import holistic
from tests.analysis.holistic_answers import answered, two_streams
from tests.conftest import SHARED
from tests.record import handmade

ROOT = Path(__file__).resolve().parents[3]
BREAKS = ROOT / "fixtures" / "recordings" / "cuda_graphs_h200" / "breaks"
H200 = SHARED / "traces" / "h200"
H200_TRACES = (
    "strategies_all_nosched",
    "strategies_one_eager",
    "strategies_one_fused",
    "strategies_one_reduce_overhead",
    "strategies_one_torch_cond",
    "trace_default_plain",
    "trace_eager_plain",
    "trace_reduce-overhead_plain",
    "trace_reduce-overhead_stack",
)
# eager and in CUDA graphs, with stacks and without, of one strategy and of several
OF_EACH_KIND = (
    *("strategies_all_nosched", "strategies_one_reduce_overhead", "trace_eager_plain"),
    "trace_reduce-overhead_stack",
)
GRAPHS = holistic.GRAPHS_UNKNOWN


def recorded(folder: Path, *strategies: str) -> Recording:
    """These runs of the Recording that was made on an H200."""
    shutil.copytree(BREAKS, folder / "recording")
    path = folder / "recording" / "recording.json"
    header = json.loads(path.read_bytes())
    header["plan"]["runs"] = [
        key for key in header["plan"]["runs"] if key["strategy"] in strategies
    ]
    path.write_text(json.dumps(header), encoding="utf-8")
    return recordings.load(folder)


def kept(recording: Recording) -> list[Path]:
    return sorted(Path(recording.folder).glob("runs/*/holistic.json"))


def answer_of(recording: Recording) -> Holistic | Skipped:
    (run,) = recording.runs
    return run.holistic


def check_of(recording: Recording) -> HolisticCheck:
    (run,) = analyse(recording).runs
    assert isinstance(run.holistic, HolisticCheck)
    return run.holistic


def pretend_hta(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *, on_import: str = "", on_load: str = ""
) -> None:
    """A package of HTA's name, which its process finds first."""
    for name in ("hta", "hta/common"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(on_import, encoding="utf-8")
    trace = (
        "class Trace:\n    def __init__(self, **_): ...\n    def load_traces(self, "
        f"**_):\n        {on_load or '...'}\n"
    )
    (folder / "hta" / "common" / "trace.py").write_text(trace, encoding="utf-8")
    (folder / "hta" / "trace_analysis.py").write_text(
        "class TraceAnalysis: ...\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))


# ---------------------------------------------------------------- it agrees


@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    [
        name if name in OF_EACH_KIND else pytest.param(name, marks=pytest.mark.long)
        for name in H200_TRACES
    ],
)
def test_on_real_traces_every_figure_agrees_within_half_a_percent(name: str) -> None:
    path = H200 / f"{name}.json.gz"
    trace = kineto.read(path)
    ours = kernels.breakdown(
        trace, device="cuda", measured_in=PassName.TRACE, cpp_kernel_profile=False
    )
    assert isinstance(ours, KernelBreakdown)

    answer, its_own = holistic.ask(path)

    assert its_own
    assert isinstance(answer, Holistic)
    found = holistic_check.check(answer, ours, trace.columns)
    # Measured: HTA rounds causes to 0.01 us, which is up to 0.005 % of the smallest; all else
    # agrees to 0.0001 %. Its idle time begins with the first device event, so ours is compared
    # without the edges of the window.
    assert {figure.name: figure.difference_percent for figure in found.figures[:7]} == {
        name: pytest.approx(0.0, abs=0.01)
        for name in (
            "kernels, copies and fills",
            "GPU busy",
            "GPU idle",
            "GPU computing",
            "idle: host_wait",
            "idle: kernel_wait",
            "idle: other",
        )
    }
    assert found.kernels == len(ours.rows)
    assert found.kernels_differing == 0
    queues = [figure for figure in found.figures if figure.name.startswith("longest queue")]
    assert queues
    for queue in queues:
        if isinstance(ours.graph_launches, int) and ours.graph_launches:
            assert queue.hta == Skipped(reason=f"get_queue_length_summary: not called: {GRAPHS}")
        else:
            assert queue.hta == queue.ours


def test_what_the_tests_of_the_check_take_for_htas_words_are_its_words(tmp_path: Path) -> None:
    # given: two streams, communication under computation, each of the three causes of idle time
    two_streams(tmp_path)

    answer, _ = holistic.ask(tmp_path / "t.json")

    assert isinstance(answer, Holistic)
    assert answer.ranks == answered().ranks


def test_a_recordings_own_traces_agree_and_what_hta_gets_wrong_is_not_shown(tmp_path: Path) -> None:
    # given: kernels of a CUDA graph, and none
    recording = holistic.asked(recorded(tmp_path, "item_read", "cond"))

    graphs, plain = (run.holistic for run in analyse(recording).runs)

    assert isinstance(graphs, HolisticCheck)
    assert isinstance(plain, HolisticCheck)
    for found, names in ((graphs, 10), (plain, 9)):
        assert (found.kernels, found.kernels_differing) == (names, 0)
        assert not [figure.name for figure in found.figures if figure.differs]
        for figure in found.figures[:7]:  # of 10 us, HTA's two decimals are 0.1 %
            assert figure.difference_percent == pytest.approx(0.0, abs=0.1)
    refused = {call.name for call in graphs.calls if call.reason == GRAPHS}
    assert refused == {
        "get_queue_length_summary",
        "get_cuda_kernel_launch_stats",
        "critical_path_analysis",
    }
    assert {call.outcome for call in plain.calls} <= {"ok", "empty", "not called"}


# ---------------------------------------------------------------- it is asked once


def test_an_answer_is_kept_and_read_again_without_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    first = holistic.asked(recorded(tmp_path, "cond"), say=said.append)
    (path,) = kept(first)
    bytes_of_it = path.read_bytes()

    # when: nobody can be asked any more
    monkeypatch.setattr(holistic, "ask", lambda trace, limit_s: pytest.fail("it was asked again"))
    second = holistic.asked(recordings.load(tmp_path))

    assert ["cond.as-is (at most 120 s)" in line for line in said] == [True]
    assert answer_of(second) == answer_of(first) == msgspec.json.decode(bytes_of_it, type=Holistic)
    assert analyse(second) == analyse(recordings.load(tmp_path))


def test_again_asks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = recorded(tmp_path, "cond")
    store.write_json(
        layout.run_folder(Path(recording.folder), recording.runs[0].key) / layout.HOLISTIC,
        Skipped(reason="the old answer"),
    )
    monkeypatch.setattr(
        holistic, "ask", lambda trace, limit_s: (Skipped(reason="the new one"), True)
    )

    assert answer_of(holistic.asked(recordings.load(tmp_path))) == Skipped(reason="the old answer")
    assert answer_of(holistic.asked(recordings.load(tmp_path), again=True)) == Skipped(
        reason="the new one"
    )
    assert answer_of(recordings.load(tmp_path)) == Skipped(reason="the new one")


def test_without_hta_the_report_says_so_and_the_next_machine_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = recorded(tmp_path, "cond")
    monkeypatch.setattr(holistic.util, "find_spec", lambda name: None)

    without = holistic.asked(recording)

    assert answer_of(without) == Skipped(reason=holistic.NOT_INSTALLED)
    assert kept(without) == []
    (omission,) = (gap for gap in analyse(without).omissions if gap.what == "HolisticTraceAnalysis")
    assert omission.reason == holistic.NOT_INSTALLED

    # when: it is read where HTA is
    monkeypatch.undo()
    assert isinstance(answer_of(holistic.asked(recordings.load(tmp_path))), Holistic)


def test_a_recording_that_cannot_be_written_to_is_answered_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise KgprofError("cannot write")

    monkeypatch.setattr(store, "write_json", refuse)
    monkeypatch.setattr(holistic, "ask", lambda trace, limit_s: (Skipped(reason="an answer"), True))

    assert answer_of(holistic.asked(recorded(tmp_path, "cond"))) == Skipped(reason="an answer")


# ---------------------------------------------------------------- it may fail


def test_hta_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_hta(monkeypatch, tmp_path / "pretended", on_load="import time; time.sleep(60)")

    recording = holistic.asked(recorded(tmp_path, "cond"), limit_s=3.0)

    assert answer_of(recording) == Skipped(reason="HTA timed out after 3 s")
    assert kept(recording) == []


def test_the_traces_of_a_recording_share_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    def ask(trace: Path, limit_s: float) -> tuple[Skipped, bool]:
        limits.append(limit_s)
        time.sleep(0.3)
        return Skipped(reason="too long"), False

    monkeypatch.setattr(holistic, "ask", ask)

    recording = holistic.asked(
        recorded(tmp_path, "item_read", "cond", "nonzero"), limit_s=0.35, all_s=0.5
    )

    reasons = [run.holistic.reason for run in recording.runs if isinstance(run.holistic, Skipped)]
    assert reasons[0] == "too long"
    assert reasons[-1] == "HTA's 0.5 s for all traces of this Recording were used up"
    assert max(limits) <= 0.35
    assert sum(limits) < 0.35 + 0.2


def test_hta_that_takes_too_much_memory_is_refused_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: pages that are asked for and never touched, so that this test takes no memory where the
    # bound is not there
    pretend_hta(
        monkeypatch,
        tmp_path / "pretended",
        on_load="import numpy; self.rows = numpy.zeros(6 * 2**27)",
    )

    recording = holistic.asked(recorded(tmp_path, "cond"))

    assert answer_of(recording) == Skipped(
        reason="HTA could not load the trace: MemoryError: it may take 4 GiB"
    )


def test_hta_that_cannot_be_imported_says_why_and_is_asked_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_hta(
        monkeypatch, tmp_path / "pretended", on_import="raise ImportError('pandas is broken')"
    )

    recording = holistic.asked(recorded(tmp_path, "cond"))

    assert answer_of(recording) == Skipped(
        reason="HTA's process ended with code 1: ImportError: pandas is broken"
    )
    assert kept(recording) == []


def test_ctrl_c_costs_the_answers_that_were_not_there_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([Skipped(reason="the first")])
    said: list[str] = []

    def ask(trace: Path, limit_s: float) -> tuple[Skipped, bool]:
        for answer in answers:
            return answer, True
        raise KeyboardInterrupt

    monkeypatch.setattr(holistic, "ask", ask)

    recording = holistic.asked(recorded(tmp_path, "item_read", "cond", "nonzero"), say=said.append)

    reasons = [run.holistic.reason for run in recording.runs if isinstance(run.holistic, Skipped)]
    assert reasons[0] == "the first"
    assert [reason.startswith("HolisticTraceAnalysis was not run") for reason in reasons[1:]] == [
        True,
        True,
    ]
    assert said[-1] == "interrupted: the report omits the remaining HolisticTraceAnalysis results"


# ---------------------------------------------------------------- the command line


def test_report_asks_once_and_no_hta_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = recorded(tmp_path, "cond")

    assert cli.run(["report", "--no-hta", str(tmp_path)]) == 0
    assert kept(recording) == []
    assert "HolisticTraceAnalysis was not run" in (tmp_path / "report.html").read_text(
        encoding="utf-8"
    )

    assert cli.run(["report", str(tmp_path)]) == 0
    first = (tmp_path / "report.html").read_bytes(), (tmp_path / "report.json").read_bytes()
    assert len(kept(recording)) == 1

    assert cli.run(["report", str(tmp_path)]) == 0
    assert (
        (tmp_path / "report.html").read_bytes(),
        (tmp_path / "report.json").read_bytes(),
    ) == first
    assert capsys.readouterr().err.count("reads the trace of cond.as-is") == 1


def test_a_recording_of_a_cpu_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handmade.write(tmp_path / "recording")
    monkeypatch.setattr(
        holistic.subprocess, "run", lambda *_, **__: pytest.fail("a process was started")
    )

    assert cli.run(["report", "--rerun-hta", str(tmp_path)]) == 0

    found = json.loads((tmp_path / "report.json").read_bytes())
    assert {run["holistic"]["reason"] for run in found["runs"]} == {
        "a CPU run: HTA analyses what ran on a GPU"
    }
    assert "HolisticTraceAnalysis" not in [omission["what"] for omission in found["omissions"]]


@pytest.mark.parametrize("arguments", [["--help"], ["report", "FOLDER"]])
def test_neither_help_nor_a_report_imports_pandas_or_hta(
    tmp_path: Path, arguments: list[str]
) -> None:
    handmade.write(tmp_path / "recording")
    given = [str(tmp_path) if argument == "FOLDER" else argument for argument in arguments]
    code = (
        "import sys; from kgprof.cli import run; code = run(sys.argv[1:]); "
        "print(code, sorted({'hta', 'pandas', 'plotly'} & set(sys.modules)))"
    )

    ended = subprocess.run(
        [sys.executable, "-c", code, *given], capture_output=True, text=True, cwd=ROOT, check=True
    )

    assert ended.stdout.splitlines()[-1] == "0 []"
