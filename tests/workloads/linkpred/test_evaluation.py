"""``kgprof evaluate``: the same result in any chunks, with pruning, in several processes and after
any end."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kgprof.errors import InputError, OutputError, UsageError
from kgprof.workloads.linkpred import chunks, evaluation
from kgprof.workloads.linkpred.chunks import VectorHash
from kgprof.workloads.linkpred.evaluation_report import Evaluated
from tests.workloads.linkpred.evaluations import TREE, reference, workload

TINY = ("--embedding", "8", "--hidden", "8", "--layers", "1", "--batch-size", "32")
ARGS = (*TREE, *TINY, "--quiet", "--json")
COMMAND = (sys.executable, "-m", "kgprof", "evaluate", *ARGS, "--chunk", "24")


def evaluated(*args: str | Path) -> dict[str, Any]:
    """The one evaluation of a command line."""
    text, code = evaluation.main([*ARGS, *map(str, args)])
    assert code == 0
    (only,) = json.loads(text)["evaluations"]
    return only


@cache
def whole() -> dict[str, Any]:
    return evaluated("--check", "closure")


def result(of: dict[str, Any]) -> tuple[Any, ...]:
    """All of it that may depend on nothing but the question."""
    names = (
        "sha256",
        "sha256_proved",
        "classes",
        "metrics",
        "dropped",
        "proof_lengths",
        "invalid",
        "nan_scores",
    )
    return tuple(of[name] for name in names)


def test_it_is_what_the_workload_counts() -> None:
    of = workload(*TINY)
    truth = reference(of)
    counted = of.prepare(evaluation.m.RunKey(strategy="reference", mode="eager"), None).count(
        lambda: None
    )
    vector = VectorHash()
    vector.add(truth.outcome, truth.steps)

    assert whole()["sha256"] == vector.hexdigest()
    assert 0 < whole()["seconds"] < whole()["elapsed_seconds"]
    assert whole()["metrics"] == [msgspec.structs.asdict(each) for each in counted.metrics]
    names = ("proved", "failed", "overflow", "unfinished")
    assert [whole()["classes"][name] for name in names] == [
        getattr(counted, name) for name in names
    ]
    assert whole()["classes"]["truncated"] == counted.depth_truncated
    assert whole()["dropped"] == msgspec.structs.asdict(counted.dropped)
    assert sum(whole()["proof_lengths"].values()) == counted.proved > 0
    assert whole()["candidates"] == counted.candidates == 320
    assert whole()["occupancy"] is None  # a level is no batch


def test_the_time_left_is_told_where_candidates_finish_steadily(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluation, "PROGRESS_S", 0.0)

    def lines(*args: str) -> list[str]:
        evaluation.main([*TREE, *TINY, "--json", *args])
        return capsys.readouterr().err.splitlines()

    levels = lines("--chunk", "24")
    in_the_first = [line for line in levels if "chunk 1 of" in line][:-1]

    assert in_the_first
    assert not any("left" in line for line in in_the_first)  # nearly all finish at the last level
    assert any("left" in line for line in levels)
    assert any("left" in line for line in lines("--strategy", "fused"))


def test_occupancy_is_the_share_of_the_slots_that_went_forward() -> None:
    """Alone in its slot a candidate leaves none idle; slots that wait for the others of their query
    do."""
    rooms = {
        args: evaluated(*args)["occupancy"]
        for args in (
            ("--strategy", "sequential", "--queries", "4"),
            ("--strategy", "recycled"),
            ("--strategy", "recycled", "--layout", "transposed"),
            ("--strategy", "stepped", "--choices", "2"),
        )
    }
    alone, queue, own, stepped = rooms.values()

    assert 0.8 < alone <= 1  # of sequential's steps one loads
    assert 0 < own < queue < 1
    assert 0 < stepped < 1


@pytest.mark.parametrize(
    "args",
    [("--chunk", "1"), ("--chunk", "50"), ("--memory", "16K"), ("--strategy", "batched")],
    ids=" ".join,
)
def test_chunks_and_strategies_change_nothing(args: tuple[str, ...]) -> None:
    other = evaluated(*args)

    assert result(other) == result(whole())
    assert (other["chunks"] > 1) == (args[0] != "--strategy")


def test_pruning_changes_no_rank_and_the_closure_bounds_them() -> None:
    pruned = evaluated("--prune", "closure", "--chunk", "100")

    assert (pruned["sha256_proved"], pruned["metrics"]) == (
        whole()["sha256_proved"],
        whole()["metrics"],
    )
    closure = whole()["closure"]
    assert closure["proved_without_a_proof"] == 0
    assert closure["complete"]
    # The generator says so: every question is true and every filtered corruption false.
    assert [each["mrr"] for each in closure["metrics"] if each["ties"] == "realistic"] == [
        1.0,
        1.0,
        1.0,
    ]
    provable = closure["undecided"]["provable"] + whole()["classes"]["proved"]
    assert provable == 2 * whole()["queries"] == 80
    assert pruned["classes"]["refuted"] == 320 - provable


def test_several_numbers_of_corruptions_stand_side_by_side() -> None:
    args = [*TREE[:4], *TINY, "--quiet", "--corruptions", "2,all", "--chunk", "500"]
    text, _ = evaluation.main([*args, "--queries", "3"])
    both = json.loads(evaluation.main([*args, "--queries", "3", "--json"])[0])["evaluations"]
    alone = json.loads(
        evaluation.main(
            [*TREE[:4], *TINY, "--quiet", "--json", "--queries", "3", "--corruptions", "2"]
        )[0]
    )

    assert [each["corruptions"] for each in both] == ["2", "all"]
    assert both[0]["candidates"] == 18 < both[1]["candidates"]
    assert result(both[0]) == result(alone["evaluations"][0])
    assert re.search(r"^corruptions per side +2 +all$", text, re.MULTILINE)


@pytest.mark.parametrize("score", ["probability", "weights"])
def test_a_score_breaks_ties_among_the_proved_only(score: str) -> None:
    scored = evaluated("--score", score)

    assert scored["sha256"] == whole()["sha256"]
    assert scored["replays_without_proof"] == 0
    headline = [
        each for each in scored["metrics"] if (each["side"], each["ties"]) == ("both", "realistic")
    ]
    assert 0 < headline[0]["mrr"] <= 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--corruptions", "2,x"), "'x' is not a whole number from 1 to 999999999"),
        (("--corruptions", "2,2"), "'2,2' names a number twice"),
        (("--memory", "much"), "'much' is not an amount of memory, such as 512M or 4G"),
        (("--chekpoint", "a"), "no option '--chekpoint'; did you mean '--checkpoint'?"),
        (("--checkpoint", "a", "--resume", "a"), "--checkpoint and --resume both name the folder"),
        (("--strategy", "fussed"), "linkpred has no strategy 'fussed'; did you mean 'fused'?"),
        (("--device", "cuda"), "--device cuda, and torch sees no GPU"),
    ],
)
def test_a_wrong_option_is_one_sentence(args: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError) as error:
        evaluation.main([*ARGS, *args])

    assert said in error.value.message
    assert "\n" not in error.value.message


def test_a_checkpoint_is_kept_and_held_to_its_question(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    first = evaluated("--checkpoint", folder, "--chunk", "24")

    with pytest.raises(UsageError, match="already holds a checkpoint"):
        evaluated("--checkpoint", folder)
    with pytest.raises(UsageError, match="is of another evaluation: depth was 5, and is 6"):
        evaluated("--resume", folder, "--depth", "6")
    # the chunks stay those that it was begun with
    again = evaluated("--resume", folder, "--chunk", "1000")

    assert result(again) == result(first) == result(whole())
    assert again["chunks"] == len([*folder.glob("chunk-*.bin")]) == 14
    assert not [*folder.glob("*.partial")]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:40] + b"?" + data[41:],
        lambda data: b"",
        lambda data: data[:32],
    ],
    ids=["cut", "changed", "empty", "no payload"],
)
def test_a_damaged_chunk_is_said_and_computed_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], damage: Callable[[bytes], bytes]
) -> None:
    evaluated("--checkpoint", tmp_path, "--chunk", "160")
    path = tmp_path / "chunk-000001.bin"
    path.write_bytes(damage(path.read_bytes()))

    assert result(evaluated("--resume", tmp_path)) == result(whole())
    assert capfd.readouterr().err == f"kgprof: {path}: is damaged; this chunk is computed again\n"


def test_a_damaged_manifest_is_one_sentence(tmp_path: Path) -> None:
    evaluated("--checkpoint", tmp_path)
    (tmp_path / chunks.MANIFEST).write_text('{"version": 1')

    with pytest.raises(InputError, match=r"evaluation\.json: is damaged") as error:
        evaluated("--resume", tmp_path)
    assert "begin another one with --checkpoint" in error.value.hint


@pytest.mark.parametrize("bounds", [[], [0], [0, 7, 7, 40], [0, 10**9], [5, 40]], ids=str)
def test_chunks_that_do_not_hold_the_queries_are_one_sentence(
    tmp_path: Path, bounds: list[int]
) -> None:
    evaluated("--checkpoint", tmp_path)
    manifest = tmp_path / chunks.MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "bounds": bounds}))

    with pytest.raises(InputError, match="its chunks do not hold the queries"):
        evaluated("--resume", tmp_path)


def test_what_drops_nothing_is_named() -> None:
    text, _ = evaluation.main([*TREE, *TINY, "--quiet", "--max-atoms", "2"])

    assert "with --max-atoms auto none does" in text


@pytest.mark.parametrize("name", ["WORLD_SIZE", "RANK", "LOCAL_RANK"])
def test_a_variable_of_torchrun_that_is_no_number(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.setenv(variable, "two" if variable == name else "2")

    with pytest.raises(UsageError, match=f"{name} must be a whole number"):
        evaluation.main([*ARGS])


@pytest.mark.parametrize("place", ["taken", "taken/below"])
def test_a_checkpoint_in_a_file_is_one_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "taken").write_text("mine")

    with pytest.raises(OutputError, match="cannot be written"):
        evaluated("--checkpoint", tmp_path / place)
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_full_disk_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    def full(file: int) -> None:
        synced.append(file)
        if len(synced) == 6:
            raise OSError(28, os.strerror(28))

    monkeypatch.setattr(chunks.os, "fsync", full)
    with pytest.raises(OutputError) as error:
        evaluated("--checkpoint", tmp_path, "--chunk", "24")
    monkeypatch.undo()

    assert error.value.message == f"{tmp_path} cannot be written: No space left on device"
    assert error.value.hint.startswith(f"make room; --resume {tmp_path} goes on")
    assert len([*tmp_path.iterdir()]) == 5  # evaluation.json and four chunks
    assert result(evaluated("--resume", tmp_path)) == result(whole())


def killed_until_it_ends(
    folder: Path, kills: int, seed: int, *args: str
) -> tuple[dict[str, Any], int]:
    """Start it, kill it at a random moment after it has begun, and start it again; at last let it
    end."""
    draws, hits = random.Random(seed), 0
    command = [*COMMAND, *args, "--resume", folder]
    for _ in range(kills):
        before = {path.name for path in folder.glob("chunk-*.bin")}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        # At any time between its start and the second new chunk.
        new = draws.choice((0, 1, 2))
        while (
            len({path.name for path in folder.glob("chunk-*.bin")} - before) < new
            and process.poll() is None
        ):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(draws.random() * (2.0 if new == 0 else 0.05))
        hits += process.poll() is None
        process.kill()
        process.communicate()
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return json.loads(ended.stdout)["evaluations"][0], hits


def test_it_goes_on_after_a_kill(tmp_path: Path) -> None:
    found, hits = killed_until_it_ends(tmp_path, kills=2, seed=3)

    assert hits
    assert result(found) == result(whole())


@pytest.mark.long
def test_it_goes_on_after_ten_kills_at_random_moments(tmp_path: Path) -> None:
    # A chunk a query, and a strategy that takes its time, so that ten starts do not come to the end
    # of them.
    queries = ("--queries", "200", "--chunk", "1", "--strategy", "reference")
    found, hits = killed_until_it_ends(tmp_path, 10, 1, *queries)

    assert hits == 10
    assert result(found) == result(evaluated("--queries", "200"))


def several(processes: int, *args: str | Path, **variables: str) -> list[subprocess.Popen[str]]:
    """As torchrun starts them, without its own process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(processes),
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    return [
        subprocess.Popen(
            [*COMMAND, *args],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]


def test_two_processes_give_the_result_of_one() -> None:
    first, second = [
        (*process.communicate(timeout=120), process.returncode) for process in several(2)
    ]

    assert (first[2], second) == (0, ("", second[1], 0)), (first, second)
    (only,) = json.loads(first[0])["evaluations"]
    assert only["processes"] == 2
    assert result(only) == result(whole())
    assert only["elapsed_seconds"] > 0


def test_several_processes_search_as_long_as_the_slowest() -> None:
    one = chunks.ChunkResult(
        outcome=np.ones(4, np.int8),
        steps=np.ones(4, np.int32),
        places=chunks.NO_PLACES,
        upper_places=chunks.NO_PLACES,
        truth=np.zeros((len(chunks.OUTCOMES), 3), np.int64),
        dropped=np.zeros(4, np.int64),
        counts=np.zeros(4, np.int64),
        seconds=np.array(2.0),
    )
    alone, dealt = chunks.Total(), chunks.Total()
    for chunk in range(3):
        alone.add(one)
        dealt.add(one, chunk % 2)

    def of(total: chunks.Total) -> Evaluated:
        return Evaluated(
            total=total,
            settings={},
            notes=(),
            queries=1,
            corruptions="1",
            slots=0,
            chunks=3,
            processes=1,
            elapsed_s=7.0,
            peak_bytes=0,
            peak_gpu_bytes=None,
            closure=None,
        )

    assert [(of(total).search_s, of(total).candidates_per_second) for total in (alone, dealt)] == [
        (6, 2),
        (4, 3),
    ]


@pytest.mark.parametrize("fails", [pytest.param("0", marks=pytest.mark.long), "1"])
def test_the_other_process_ends_when_a_search_fails(tmp_path: Path, fails: str) -> None:
    """The first process must not wait for a sum that will never be whole."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "if os.environ.get('RANK') == os.environ.get('FAILS'):\n"
        "    from kgprof.errors import WorkloadError\n"
        "    from kgprof.workloads.linkpred import evaluation\n"
        "    def evaluate(self, *args): raise WorkloadError('planted')\n"
        "    evaluation.Evaluation.evaluate = evaluate\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = [
        process.communicate(timeout=120)[1] for process in several(2, PYTHONPATH=path, FAILS=fails)
    ]
    other = "another process of the evaluation died: "
    assert "kgprof: error: planted" in ended[int(fails)]
    assert other in ended[1 - int(fails)], ended


def test_a_dead_process_is_one_sentence_and_nothing_is_lost(tmp_path: Path) -> None:
    first, second = several(2, "--checkpoint", tmp_path, "--corruptions", "6")
    deadline = time.monotonic() + 60
    # one of the second's
    while not [*tmp_path.glob("chunk-*[13579].bin")] and time.monotonic() < deadline:
        time.sleep(0.002)
    second.send_signal(signal.SIGKILL)
    second.communicate()
    _, told = first.communicate(timeout=120)

    assert first.returncode == 4
    message, hint, *rest = told.strip().splitlines()
    assert message.startswith("kgprof: error: another process of the evaluation died: ")
    assert hint == f"  hint: go on with --resume {tmp_path}: finished chunks are there"
    assert not rest
    assert result(evaluated("--resume", tmp_path, "--corruptions", "6")) == result(
        evaluated("--corruptions", "6")
    )


def test_an_added_histogram_counts_each_place_once() -> None:
    one = chunks.histogram(np.array([[1, 1], [2, 1]]), np.array([[3, 1], [2, 1]]))
    other = chunks.histogram(np.array([[1, 1]]), np.array([[3, 2]]))

    assert one.tolist() == [[0, 1, 3, 1], [0, 2, 2, 1], [1, 1, 1, 2]]
    assert chunks.added(one, other).tolist() == [
        [0, 1, 3, 2],
        [0, 2, 2, 1],
        [1, 1, 1, 2],
        [1, 1, 2, 1],
    ]


def test_help_needs_no_torch() -> None:
    program = (
        "import sys; from kgprof.workloads import loading; text, code = "
        "loading.evaluate(['--json', '--help']);assert 'torch' not in sys.modules; print(code, "
        "text)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert told.stdout.startswith("0 Usage: kgprof evaluate [options]")
    assert {"--resume DIR", "--depth N", "--score [proved|probability|weights]"} <= {
        line.strip().partition("  ")[0] for line in told.stdout.splitlines()
    }
