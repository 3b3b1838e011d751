"""Traces that others recorded: as a Recording, as a report, and whatever else may lie under such a
name."""

from __future__ import annotations

import errno
import gzip
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kgprof import cli
from kgprof.analysis import analyse
from kgprof.model import (
    FindingCost,
    KernelBreakdown,
    KernelKind,
    Profile,
    RankLoad,
    RunKey,
    Skipped,
    decode_json,
)
from kgprof.reading import files, recordings
from tests.analysis.events import event, step, write

KERNEL, COLLECTIVE = (
    "triton_poi_fused_add_0",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)",
)


def work(*, compute_us: float, talk_us: float, steps: int = 2) -> list[dict[str, Any]]:
    """Steps of 1000 us: from 100 us on a kernel, and after it, up to 900 us at most, a
    collective."""
    events: list[dict[str, Any]] = []
    for number in range(steps):
        at, correlation = 1000.0 * number, 2 * number + 1
        events.append(step(number, at, 1000.0))
        for offset, name, us in ((0, KERNEL, compute_us), (1, COLLECTIVE, talk_us)):
            call = event("cuda_runtime", "cudaLaunchKernel", at + 10 + 5 * offset, 2.0)
            kernel = event(
                "kernel", name, at + 100 + offset * compute_us, us, thread=7, stream=7 + offset
            )
            call["args"] = {"correlation": correlation + offset}
            kernel["args"]["correlation"] = correlation + offset
            events += [call, kernel]
    return events


def saved(
    path: Path,
    events: Sequence[Mapping[str, Any]],
    *,
    rank: int | None = None,
    world: int = 2,
    **head: Any,
) -> Path:
    """As torch.profiler writes it: what is known of the process stands before the events."""
    whole: dict[str, Any] = {"schemaVersion": 1, **head}
    if rank is not None:
        whole["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    data = json.dumps({**whole, "traceEvents": list(events)}).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``kgprof trace``, without HTA, which has tests of its own."""
    code = cli.run(["trace", "--no-hta", *map(str, arguments)])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return code, said.out, said.err


def profile_in(folder: Path) -> Profile:
    return decode_json((folder / "report.json").read_bytes(), Profile)


# ---------------------------------------------------------------- what a trace becomes


@pytest.mark.parametrize(
    "name",
    ["trace.json", "trace.json.gz", "host_1.123.pt.trace.json", "host_1.123.pt.trace.json.gz"],
)
def test_a_trace_becomes_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    # given a trace of two steps with 300 us of a kernel each
    path = saved(
        tmp_path / name,
        work(compute_us=300.0, talk_us=0.0),
        deviceProperties=[{"id": 0, "name": "NVIDIA H200"}],
        cuda_runtime_version=13010,
        with_stack=1,
    )
    # when
    code, out, err = run(capsys, path, "-o", tmp_path / "out")
    # then
    assert (code, out) == (0, f"{tmp_path / 'out' / 'report.html'}\n")
    assert "reading" in err
    found = profile_in(tmp_path / "out")
    (only,) = found.runs
    assert isinstance(only.kernels, KernelBreakdown)
    assert (found.device, found.environment.device_name, found.environment.cuda) == (
        "cuda",
        "NVIDIA H200",
        "13.1",
    )
    assert (only.kernels.steps, only.kernels.busy_us, only.kernels.window_us) == (2, 600.0, 2000.0)
    assert only.notes == (
        "recorded with stacks (with_stack), which slows down everything on the CPU",
    )
    assert isinstance(only.step, Skipped)
    assert isinstance(only.compile, Skipped)
    assert isinstance(only.host, Skipped)
    assert found.verdict.text.startswith(
        f"{only.key.slug}: GPU busy 30.0 % of 2 traced steps; what it waits for is not decided: "
    )


def test_the_recording_needs_its_source_no_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path / "trace.json", work(compute_us=300.0, talk_us=0.0))
    run(capsys, path, "-o", tmp_path / "out")
    before = profile_in(tmp_path / "out")
    path.unlink()
    # when it is read again
    code = cli.run(["report", "--no-hta", str(tmp_path / "out")])
    # then
    assert (code, profile_in(tmp_path / "out")) == (0, before)
    assert analyse(recordings.load(tmp_path / "out")).runs[0].kernels == before.runs[0].kernels


@pytest.mark.parametrize("form", ["text", "json", "markdown", "html", "sarif", "junit", "github"])
def test_every_format_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    path = saved(tmp_path / "trace.json", work(compute_us=300.0, talk_us=0.0))
    code, out, _ = run(capsys, path, "-o", tmp_path / "out", "-q", "--format", form)
    assert code == 0
    assert out.strip()
    assert (tmp_path / "out" / "report.html").is_file()


def test_operators_of_a_cpu_trace_are_broken_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        tmp_path / "cpu.json", [step(0, 0.0, 100.0), event("cpu_op", "aten::mm", 10.0, 60.0)]
    )
    code, _, _ = run(capsys, path, "-o", tmp_path / "out")
    found = profile_in(tmp_path / "out")
    kernels = found.runs[0].kernels
    assert isinstance(kernels, KernelBreakdown)
    assert (code, found.device, kernels.device, kernels.total_us) == (0, "cpu", "cpu", 60.0)


@pytest.mark.shared
def test_traces_of_an_h200_are_reported_as_kgprofs_own_are(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shared / "traces" / "h200"
    code, _, _ = run(capsys, folder, "-o", tmp_path / "out", "-q")
    found = profile_in(tmp_path / "out")
    assert (code, len(found.runs)) == (0, 9)
    for run_report, file in zip(found.runs, found.trace_files, strict=True):
        kernels = run_report.kernels
        assert isinstance(kernels, KernelBreakdown)
        # of a folder elsewhere a report says the name alone
        packed = (folder / Path(file.file).name).read_bytes()
        events = json.loads(gzip.decompress(packed))["traceEvents"]
        raw_us = sum(
            e["dur"] for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
        )
        assert kernels.total_us == pytest.approx(raw_us, abs=0.01)
        assert file.size_bytes == len(packed)


# ---------------------------------------------------------------- ranks


def test_ranks_are_compared_and_the_straggler_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given four ranks of which one computes twice as long, while the others wait in the collective
    for rank in range(4):
        compute_us, talk_us = (600.0, 100.0) if rank == 2 else (300.0, 400.0)
        saved(
            tmp_path / f"t{3 - rank}.json",
            work(compute_us=compute_us, talk_us=talk_us),
            rank=rank,
            world=4,
        )
    # when
    code, out, _ = run(capsys, tmp_path, "-o", tmp_path / "out", "--format", "text")
    # then
    balance = profile_in(tmp_path / "out").rank_balance
    assert code == 0
    assert balance is not None
    assert [load.rank for load in balance.ranks] == [0, 1, 2, 3]
    assert balance.ranks[2] == RankLoad(
        run=RunKey(strategy="rank2", mode="as-is"),
        rank=2,
        steps=2,
        step_us=1000.0,
        busy_us=700.0,
        idle_us=300.0,
        compute_us=600.0,
        communication_us=100.0,
        exposed_us=100.0,
    )
    assert balance.straggler == RunKey(strategy="rank2", mode="as-is")
    assert balance.text == (
        "rank 2 is late: the other ranks wait 0.300 of 1.00 ms per traced step (30%) for it, "
        "because it computes longer: 0.600 vs 0.300 ms per step, most of it triton_poi_fused_add_0"
    )
    assert "largest over median" in out


def test_level_ranks_are_called_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        saved(tmp_path / f"t{rank}.json", work(compute_us=300.0 + rank, talk_us=100.0), rank=rank)
    run(capsys, tmp_path, "-o", tmp_path / "out")
    balance = profile_in(tmp_path / "out").rank_balance
    assert balance is not None
    assert balance.straggler is None
    assert balance.text == (
        "no rank is late: they wait on average at most 0 of 1.00 ms per traced step for each other"
    )


def test_communication_beside_other_work_is_not_exposed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a collective of 100 us that begins 60 us before the kernel ends
    for rank in range(2):
        kernel = event("kernel", KERNEL, 10.0, 200.0, thread=7, stream=7)
        collective = event("kernel", COLLECTIVE, 150.0, 100.0, thread=8, stream=8)
        saved(tmp_path / f"t{rank}.json", [step(0, 0.0, 400.0), kernel, collective], rank=rank)
    run(capsys, tmp_path, "-o", tmp_path / "out")
    balance = profile_in(tmp_path / "out").rank_balance
    assert balance is not None
    load = balance.ranks[0]
    assert (load.compute_us, load.communication_us, load.exposed_us, load.busy_us) == (
        200.0,
        100.0,
        40.0,
        240.0,
    )


def test_a_rank_comes_from_the_name_where_the_trace_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        saved(tmp_path / f"job_rank{rank}.json", work(compute_us=300.0, talk_us=1.0))
    run(capsys, tmp_path, "-o", tmp_path / "out")
    found = profile_in(tmp_path / "out")
    assert [(file.rank, file.notes) for file in found.trace_files] == [
        (rank, ("the trace does not name its rank (distributedInfo), so the file name decides",))
        for rank in range(2)
    ]
    assert found.rank_balance is not None


def test_two_files_of_one_rank_and_a_missing_one_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, rank in (("a.json", 0), ("b.json", 0), ("c.json", 2)):
        saved(tmp_path / name, work(compute_us=300.0, talk_us=10.0), rank=rank, world=3)
    run(capsys, tmp_path, "-o", tmp_path / "out")
    found = profile_in(tmp_path / "out")
    assert [run_report.key.strategy for run_report in found.runs] == [
        "rank0",
        "rank0-file2",
        "rank2",
    ]
    assert found.trace_files[0].notes == (
        "2 files are of rank 0: all are shown, but ranks are compared by the first",
        "the job had 3 ranks; there is no trace of 1 of them (1)",
    )
    assert found.rank_balance is not None
    assert found.rank_balance.left_out == (
        "rank0-file2: another file of rank 0 is already counted",
    )
    assert [load.rank for load in found.rank_balance.ranks] == [0, 2]


def test_ranks_on_a_cpu_stand_beside_each_other_uncompared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        events = [step(0, 0.0, 100.0), event("cpu_op", "c10d::allreduce_", 10.0, 50.0 + rank)]
        saved(tmp_path / f"t{rank}.json", events, rank=rank)
    code, out, _ = run(capsys, tmp_path, "-o", tmp_path / "out", "--format", "text")
    balance = profile_in(tmp_path / "out").rank_balance
    assert code == 0
    assert balance is not None
    assert (balance.ranks, balance.straggler) == ((), None)
    assert balance.left_out == (
        "rank0: the trace has no span of a collective, and an operator mixes work and waiting",
        "rank1: the trace has no span of a collective, and an operator mixes work and waiting",
    )
    assert "Not compared: rank0: the trace has no span" in out


# ---------------------------------------------------------------- against another


def test_a_trace_against_another_says_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = saved(tmp_path / "old.json", work(compute_us=300.0, talk_us=10.0))
    new = saved(tmp_path / "new.json", work(compute_us=250.0, talk_us=10.0, steps=4))
    code, out, _ = run(capsys, new, "--against", old, "-o", tmp_path / "out", "--format", "text")
    (found,) = profile_in(tmp_path / "out").differences
    assert code == 0
    assert found.total is not None
    assert (found.total.before_us, found.total.after_us, found.total.delta_us) == (
        310.0,
        260.0,
        -50.0,
    )
    assert "new against old: GPU time: 260 \N{MICRO SIGN}s per step, before 310" in out


def test_ranks_are_held_against_the_same_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side, compute_us in (("old", 300.0), ("new", 200.0)):
        (tmp_path / side).mkdir()
        for rank in range(2):
            events = work(compute_us=compute_us + rank, talk_us=10.0)
            saved(tmp_path / side / f"t{rank}.json", events, rank=rank)
    run(capsys, tmp_path / "new", "--against", tmp_path / "old", "-o", tmp_path / "out")
    found = profile_in(tmp_path / "out")
    assert [(one.run.strategy, one.against.strategy) for one in found.differences] == [
        ("rank0", "against-rank0"),
        ("rank1", "against-rank1"),
    ]
    assert found.rank_balance is not None
    assert [load.run.strategy for load in found.rank_balance.ranks] == ["rank0", "rank1"]


# ---------------------------------------------------------------- bad input


WHOLE = json.dumps({"traceEvents": work(compute_us=300.0, talk_us=10.0)}).encode()
CUT_EARLY = gzip.compress(WHOLE, mtime=0)[:20]
ONE_EVENT = json.dumps({"traceEvents": [event("cpu_op", "aten::mm", 1.0, 2.0)]}).encode()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.json", b"", "the trace is empty"),
        ("t.json.gz", gzip.compress(b"", mtime=0), "the trace is empty"),
        ("t.json", b'{"loss": [1, 2, 3]}', "not a Kineto trace: it has no traceEvents"),
        ("t.json", b"epoch 1, loss 0.3\n", "not a Kineto trace: it has no traceEvents"),
        ("t.json", b'{"traceEvents": null}', "not a Kineto trace: it has no traceEvents"),
        ("t.json", b'{"traceEvents": []}', "it has no complete event (ph X)"),
        (
            "t.json",
            b'{"traceEvents": ["a", 1, {}]}',
            "it has no complete event (ph X); 2 events of an unknown shape",
        ),
        (
            "t.json",
            b'{"traceEvents": [{"ph": "X"}]}',
            "it has no complete event (ph X); 1 events with a missing",
        ),
        (
            "t.json",
            b'{"traceEvents": [' + b"[" * 100_000,
            "it has no complete event (ph X); the trace was not read to its end",
        ),
        (
            "t.json.gz",
            CUT_EARLY,
            "nothing in it can be read: the gzip data is truncated after 0 unpacked bytes",
        ),
        (
            "t.json.gz",
            b"\x1f\x8b" + b"\0" * 99,
            "nothing in it can be read: the gzip data is damaged",
        ),
    ],
)
def test_what_is_no_trace_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    code, out, err = run(capsys, path, "-o", tmp_path / "out", "-q")
    assert (code, out) == (2, "")
    assert err.startswith(f"kgprof: error: {path}: {said}")
    assert err.count("\n") == 2, err
    assert "  hint: " in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "warning"),
    [
        (WHOLE[: len(WHOLE) // 2], "the trace was not read to its end"),
        (gzip.compress(WHOLE, mtime=0)[:-40], "the gzip data is truncated"),
        (WHOLE.replace(KERNEL.encode(), b"\xff\xfe\xfa", 1), ""),
    ],
)
def test_a_damaged_trace_is_reported_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, warning: str
) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    code, _, _ = run(capsys, path, "-o", tmp_path / "out")
    kernels = profile_in(tmp_path / "out").runs[0].kernels
    assert code == 0
    assert isinstance(kernels, KernelBreakdown)
    assert any(one.startswith(warning) for one in kernels.warnings) == bool(warning)
    assert warning in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_trace_of_one_event_is_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(ONE_EVENT)
    code, _, _ = run(capsys, path, "-o", tmp_path / "out")
    kernels = profile_in(tmp_path / "out").runs[0].kernels
    assert code == 0
    assert isinstance(kernels, KernelBreakdown)
    assert (kernels.total_us, kernels.steps) == (2.0, 0)


def test_nothing_to_measure_is_its_own_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "t.json", [step(0, 1.0, 2.0)])
    code, _, err = run(capsys, path, "-o", tmp_path / "out", "-q")
    assert code == 5
    assert "nothing was measured" in err
    assert isinstance(profile_in(tmp_path / "out").runs[0].kernels, Skipped)


def test_a_bomb_is_read_to_its_limit_and_the_report_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "EXPANSION_FROM", 2**20)
    one = json.dumps(event("kernel", KERNEL, 1.0, 1.0, stream=7)).encode() + b", "
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + one * (2**24 // len(one)), mtime=0))
    code, _, _ = run(capsys, path, "-o", tmp_path / "out")
    kernels = profile_in(tmp_path / "out").runs[0].kernels
    assert code == 0
    assert isinstance(kernels, KernelBreakdown)
    assert "unpacks to more than 100 times its size" in kernels.warnings[0]


def test_a_file_that_may_not_be_read_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a file that the system refuses to open (root may open any, so the refusal is made here)
    path = saved(tmp_path / "t.json", work(compute_us=1.0, talk_us=1.0))
    opened = files.opened

    def refused(asked: Path, within: Path | None = None) -> Any:
        if asked == path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(asked))
        return opened(asked, within)

    monkeypatch.setattr(files, "opened", refused)
    code, _, err = run(capsys, path, "-o", tmp_path / "out", "-q")
    assert code == 2
    assert err.startswith(f"kgprof: error: {path}: cannot be read: Permission denied\n")


def test_a_place_without_traces_says_what_to_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given nothing, a folder without a trace, one whose traces lie deeper, one of TORCH_TRACE, and
    # one of kgprof's own
    empty, above, logs = tmp_path / "empty", tmp_path / "above", tmp_path / "logs"
    for folder in (empty, above / "deeper", logs):
        folder.mkdir(parents=True)
    saved(above / "deeper" / "t.json", work(compute_us=1.0, talk_us=1.0))
    (logs / "dedicated_log_torch_trace_abc.log").write_text("x", encoding="utf-8")
    run(capsys, above / "deeper", "-o", tmp_path / "own", "-q")
    said = {
        name: run(capsys, tmp_path / name, "-o", tmp_path / "out", "-q")
        for name in ("gone", "empty", "above", "logs", "own")
    }
    assert {name: code for name, (code, _, _) in said.items()} == dict.fromkeys(said, 2)
    assert "gone: file or folder not found" in said["gone"][2]
    assert "empty: has no trace (*.json, *.json.gz)" in said["empty"][2]
    assert f"{above / 'deeper'} has such files" in said["above"][2]
    assert f"kgprof report --torch-trace {logs} reads it" in said["logs"][2]
    assert f"kgprof report {tmp_path / 'own'} reads it again" in said["own"][2]


def test_what_else_lies_in_a_folder_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path / "t.json", work(compute_us=300.0, talk_us=10.0))
    (tmp_path / "config.json").write_text('{"lr": 0.1}', encoding="utf-8")
    code, _, err = run(capsys, tmp_path, "-o", tmp_path / "out", "-q")
    why = "not a Kineto trace: it has no traceEvents"
    assert (code, err) == (0, f"kgprof: left out: {tmp_path / 'config.json'}: {why}\n")
    # The report may be attached to a pull request, and has of a folder elsewhere the last two
    # names.
    assert profile_in(tmp_path / "out").runs[0].notes == (
        f"<elsewhere>/{tmp_path.name}/config.json: {why}",
    )


def test_a_folder_of_other_files_alone_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text('{"lr": 0.1}', encoding="utf-8")
    code, _, err = run(capsys, tmp_path, "-o", tmp_path / "out", "-q")
    assert code == 2
    assert err.startswith(f"kgprof: error: {tmp_path}: none of 2 files is a Kineto trace\n")


def test_a_wrong_name_costs_no_older_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path / "t.json", work(compute_us=300.0, talk_us=10.0))
    run(capsys, path, "-o", tmp_path / "out")
    before = (tmp_path / "out" / "report.json").read_bytes()
    code, _, _ = run(capsys, tmp_path / "typo.json", "-o", tmp_path / "out")
    assert (code, (tmp_path / "out" / "report.json").read_bytes()) == (2, before)


HEADS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)
FIELDS = st.sampled_from(["ph", "cat", "name", "ts", "dur", "pid", "tid", "args"])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    head=st.dictionaries(
        st.sampled_from(
            ["distributedInfo", "deviceProperties", "with_stack", "cuda_runtime_version"]
        ),
        HEADS,
    ),
    rank=HEADS,
    odd=st.dictionaries(FIELDS, HEADS, max_size=3),
    cut=st.integers(0, 400),
)
def test_whatever_a_trace_says_it_is_a_report_or_one_error(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    head: dict[str, Any],
    rank: Any,
    odd: dict[str, Any],
    cut: int,
) -> None:
    events = [
        {**event("kernel", KERNEL, 5.0, 2.0, stream=7), **odd},
        *work(compute_us=3.0, talk_us=1.0, steps=1),
    ]
    data = json.dumps(
        {"distributedInfo": {"rank": rank, "world_size": rank}, **head, "traceEvents": events}
    ).encode()
    path = tmp_path / "t.json"
    path.write_bytes(data[: len(data) - cut])
    code, out, err = run(capsys, path, "-o", tmp_path / "out", "-q")
    assert code in (0, 2, 5)
    assert "internal error" not in err
    assert bool(out) == (code != 2)


# ---------------------------------------------------------------- the project's own kinds


def test_the_projects_own_kinds_decide_and_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a project that knows what its kernels are, and one rule of it that fits nothing
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.kgprof.kernel-kinds]\n"^triton_poi" = "attention"\n"nowhere" = "sort"\n',
        encoding="utf-8",
    )
    path = saved(tmp_path / "trace.json", work(compute_us=300.0, talk_us=0.0))
    # when
    code, _, _ = run(capsys, path, "-q", "-o", tmp_path / "out")
    pages = [(tmp_path / "out" / name).read_bytes() for name in ("report.json", "report.html")]
    again = cli.run(["report", "--no-hta", str(tmp_path / "out")])
    # then the same Recording and configuration give the same bytes
    assert (code, again) == (0, 0)
    assert pages == [
        (tmp_path / "out" / name).read_bytes() for name in ("report.json", "report.html")
    ]
    found = profile_in(tmp_path / "out")
    assert isinstance(found.runs[0].kernels, KernelBreakdown)
    assert [(kind.kind, kind.total_us) for kind in found.runs[0].kernels.kinds] == [
        (KernelKind.ATTENTION, 600.0),
        (KernelKind.COMMUNICATION, 0.0),
    ]
    assert found.runs[0].kernels.rows[0].rule == 'pyproject.toml: kernel-kinds "^triton_poi"'
    assert [(own.pattern, own.kernels) for own in found.kind_overrides] == [
        ("^triton_poi", 1),
        ("nowhere", 0),
    ]
    assert b"attention: 1 kernel of this report (pyproject.toml)" in pages[1]
    # and without it the kernel is what its name says
    (tmp_path / "pyproject.toml").unlink()
    cli.run(["report", "--no-hta", str(tmp_path / "out")])
    plain = profile_in(tmp_path / "out")
    assert isinstance(plain.runs[0].kernels, KernelBreakdown)
    assert (plain.runs[0].kernels.kinds[0].kind, plain.kind_overrides) == (KernelKind.POINTWISE, ())


def test_a_fault_in_the_projects_own_kinds_is_one_error_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kgprof.toml").write_text('[kernel-kinds]\n"mm" = "gem"\n', encoding="utf-8")
    path = saved(tmp_path / "trace.json", work(compute_us=300.0, talk_us=0.0))

    code, out, err = run(capsys, path, "-o", tmp_path / "out")

    assert (code, out) == (2, "")
    assert err.startswith(
        f"kgprof: error: {tmp_path}/kgprof.toml: kernel-kinds.'mm': 'gem' is not a kind (did you "
        "mean gemm?)"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.shared
@pytest.mark.parametrize(
    ("marks", "per"), [(0, "window"), (3, "step")], ids=["as it is", "with three steps marked"]
)
def test_a_trace_of_an_h200_without_marks_of_steps_says_where_its_time_goes(
    shared: Path, tmp_path: Path, marks: int, per: str
) -> None:
    """94.9 % of its GPU time is one float32 kernel on CUDA cores; marks of steps change the unit,
    not the answer."""
    trace = json.loads(
        gzip.decompress((shared / "traces" / "h200" / "trace_default_plain.json.gz").read_bytes())
    )
    host = [
        event for event in trace["traceEvents"] if event.get("cat") in ("cuda_runtime", "cpu_op")
    ]
    first, thread = (
        min(event["ts"] for event in host),
        {name: host[0][name] for name in ("pid", "tid")},
    )
    long = (max(event["ts"] + event["dur"] for event in host) - first) / max(1, marks)
    for number in range(marks):
        mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "args": {}}
        trace["traceEvents"].append({**mark, **thread, "ts": first + number * long, "dur": long})
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))

    assert cli.run(["trace", str(path), "-o", str(tmp_path / "out"), "--no-hta", "-q"]) == 0
    profile = decode_json((tmp_path / "out" / "report.json").read_bytes(), Profile)

    (found,) = (one for one in profile.findings if one.rule == "KGP604")
    assert "600 kernels" in found.message
    assert found.message.endswith(f"% of the traced {per}")
    assert isinstance(found.cost, FindingCost)
    assert found.cost.unit == f"us/{per}"
    unseen = {rule for row in profile.coverage if row.missing for rule in row.rules}
    assert ("KGP610" in unseen) == (marks == 0)
    assert "KGP604" not in unseen
