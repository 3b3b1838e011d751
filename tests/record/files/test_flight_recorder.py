"""What torch's flight recorder knows of a rank that did not end well: two ranks over gloo, and
pickles by hand."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kgprof.record.files import flight_recorder
from tests import commands

WAITS_FOR_ANOTHER = """
from datetime import timedelta
import time, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=5))
weights = torch.ones(16)
for batch in range(4):
    dist.all_reduce(weights)
if dist.get_rank() == 0:
    time.sleep(300)
dist.broadcast(weights, 0)
"""
# The rank that fails gives rank 0 ten seconds to end by itself: here it never does.
IMPATIENT = """
from kgprof.record.ground import ranks
ranks.FAILED_WAIT_S = 0.5
from kgprof.__main__ import main
main()
"""


TORCH = "/x/lib/python3.11/site-packages/torch"


def entry(number: int, operation: str = "all_reduce", **others: Any) -> dict[str, Any]:
    return {
        "frames": [
            {"name": "all_reduce", "filename": f"{TORCH}/distributed/c10d.py", "line": 1},
            {"name": "epoch", "filename": "/home/torch/train.py", "line": 7},
        ],
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "profiling_name": f"nccl:{operation}",
        "input_sizes": [[4, 2]],
        "is_p2p": False,
        "time_created_ns": 10_000_000_000 * number,
        **others,
    }


def test_the_order_keeps_each_kind_of_call_once_and_torchs_own_lines_out() -> None:
    entries = [entry(1), entry(2), entry(2, is_p2p=True), entry(3, "broadcast")]
    status = {"0": {"last_enqueued_collective": 3, "last_completed_collective": 2}}

    data = pickle.dumps({"entries": entries, "pg_status": status})
    found = flight_recorder.order(data, 1, 42_000_000_000)

    assert found.begun == (("0", 1, 0), ("0", 2, 0), ("0", 3, 1))
    assert [call.operation for call in found.calls] == ["all_reduce", "broadcast"]
    assert [(frame.file, frame.line) for frame in found.calls[0].frames] == [
        ("/home/torch/train.py", 7)
    ]
    assert (found.completed, found.waits_s) == ({"0": 2}, {"0": 12.0})


def test_what_ended_in_a_group_is_looked_up_by_this_process_own_number_of_it() -> None:
    """Its name, which all ranks have, is another; -1 is before the first has ended."""
    entries = [
        entry(1, pg_id=1, process_group=("3", "rows")),
        entry(2, pg_id=1, process_group=("3", "rows")),
        entry(1, pg_id=2, process_group=("5", "columns")),
    ]
    status = {
        str(pg_id): {"last_completed_collective": number}
        for pg_id, number in ((0, 7), (1, 1), (2, -1), (3, 9))
    }

    data = pickle.dumps({"entries": entries, "pg_status": status})
    found = flight_recorder.order(data, 1, 42_000_000_000)

    assert found.completed == {"3": 1, "5": 0}
    assert found.waits_s == {"3": 22.0, "5": 32.0}


@pytest.mark.parametrize(
    "written",
    [
        [],
        {"entries": [entry(1)], "pg_status": {"0": {}}},
        {"entries": [entry(1)], "pg_status": {"0": 3}},
        {"entries": [entry(1, frames=[{}])]},
    ],
)
def test_a_dump_of_another_form_leaves_nothing_but_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    written: Any,
) -> None:
    monkeypatch.setenv("RANK", "1")
    (tmp_path / "c_1").write_bytes(pickle.dumps(written))

    flight_recorder.keep(tmp_path / "c_", tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["c_1"]
    said = capsys.readouterr().err
    assert said.startswith("kgprof: torch's record of rank 1's collectives was not read: ")
    assert said.count("\n") == 1


def test_a_dump_that_is_too_large_is_not_read_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    with (tmp_path / "c_1").open("wb") as file:
        file.truncate(flight_recorder.MOST_BYTES + 1)

    flight_recorder.keep(tmp_path / "c_", tmp_path)

    assert "was not read: ValueError: it has more than 64 MB" in capsys.readouterr().err


def test_where_no_rank_wrote_nothing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flight_recorder.keep(tmp_path / "c_", tmp_path)

    assert capsys.readouterr().err == ""


def test_a_rank_that_cannot_write_says_so_and_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)

    flight_recorder.write(tmp_path / "no folder" / "c_")

    assert "[kgprof: collectives not kept: FileNotFoundError" in capsys.readouterr().err


def test_a_pickle_that_names_a_class_is_not_loaded() -> None:
    with pytest.raises(pickle.UnpicklingError, match="is not a plain value"):
        flight_recorder.order(pickle.dumps({"entries": Path("x")}), 0, 0)


def test_what_the_owner_has_set_stays() -> None:
    theirs = {flight_recorder.FILE: "/elsewhere"}

    assert flight_recorder.variables(Path("/scratch/c_"), theirs) == {
        flight_recorder.PIPE: "/scratch/c_"
    }
    older = {flight_recorder.OLDER_FILE: "/elsewhere"}
    assert flight_recorder.variables(Path("/scratch/c_"), older) == {
        flight_recorder.PIPE: "/scratch/c_"
    }


def test_a_rank_that_waits_for_a_collective_names_it_and_the_rank_that_does_not_come(
    tmp_path: Path,
) -> None:
    (tmp_path / "meets.py").write_text(WAITS_FOR_ANOTHER, encoding="utf-8")
    (tmp_path / "impatient.py").write_text(IMPATIENT, encoding="utf-8")

    subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("impatient.py", "profile", "meets.py", "-o", "out"),
        ],
        cwd=tmp_path,
        env={**commands.without_settings(), "PYTHONPATH": str(commands.ROOT)},
        capture_output=True,
        check=False,
    )

    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["verdict"]["text"] == (
        "rank 1 waits in broadcast of [16] (meets.py:10), collective 5, which rank 0 never called"
    )
    assert report["verdict"]["status"] == "failed"


def test_reading_what_was_written_needs_no_torch() -> None:
    script = "import sys, kgprof.record.files.flight_recorder; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "False"
