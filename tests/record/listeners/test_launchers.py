"""What a script starts: which commands are launchers, and how kgprof is started inside of them."""

from __future__ import annotations

import functools
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record.listeners.launchers import Launchers, launched

RANK = {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
INSIDE = "-m kgprof profile train.py"
MODULE = "-m kgprof profile -m shop.train"


@pytest.mark.parametrize(
    ("command", "environment", "by", "start"),
    [
        (
            "torchrun --nproc-per-node 2 train.py --lr 1",
            {},
            "torchrun",
            f"torchrun --nproc-per-node 2 {INSIDE} -- --lr 1",
        ),
        (["/opt/bin/torchrun", "train.py"], None, "torchrun", f"torchrun {INSIDE}"),
        (
            [sys.executable, "-m", "torch.distributed.launch", "--nproc-per-node=2", "train.py"],
            None,
            "torch.distributed.launch",
            f"python -m torch.distributed.launch --nproc-per-node=2 {INSIDE}",
        ),
        (
            ["accelerate", "launch", "--config_file", "a.yaml", "train.py", "a b"],
            None,
            "accelerate",
            f"accelerate launch --config_file a.yaml {INSIDE} -- 'a b'",
        ),
        (
            ["deepspeed", "train.py"],
            None,
            "deepspeed",
            "deepspeed --module kgprof profile train.py",
        ),
        (
            [sys.executable, "-u", "train.py"],
            RANK,
            "torch.distributed",
            f"torchrun --nproc-per-node 4 {INSIDE}",
        ),
        (
            [sys.executable, "train.py"],
            {"RANK": "0", "WORLD_SIZE": "1"},
            "python",
            f"python {INSIDE}",
        ),
        ("python3 train.py", None, "python", f"python {INSIDE}"),
        (
            "python3 -u -m shop.train --lr 1",
            None,
            "python",
            "python -m kgprof profile -m shop.train -- --lr 1",
        ),
        (
            "python -m shop.train x.py",
            RANK,
            "torch.distributed",
            f"torchrun --nproc-per-node 4 {MODULE} -- x.py",
        ),
        (
            "torchrun --nproc-per-node 2 -m shop.train",
            None,
            "torchrun",
            f"torchrun --nproc-per-node 2 {MODULE}",
        ),
        (
            "python -m torch.distributed.run --nproc-per-node 2 --module shop.train --lr 1",
            None,
            "torch.distributed.run",
            f"python -m torch.distributed.run --nproc-per-node 2 {MODULE} -- --lr 1",
        ),
        (
            "accelerate launch --module shop.train",
            None,
            "accelerate",
            f"accelerate launch {MODULE}",
        ),
    ],
)
def test_a_launcher_is_known_and_started_again_with_kgprof_inside(
    command: object, environment: Mapping[str, str] | None, by: str, start: str
) -> None:
    found = launched(command, environment)
    assert found is not None
    assert (found.by, found.command) == (by, start)


@pytest.mark.parametrize(
    "command",
    [
        *(
            "ls",
            "ls train.py",
            "python -c 1",
            "python -m pip list",
            "python -m http.server 80",
            "'",
            "",
            b"torchrun",
            3,
            None,
            [],
        ),
        "torchrun -m kgprof profile train.py",
        [sys.executable, "/torch/_inductor/compile_worker/__main__.py"],
    ],
)
def test_what_launches_no_script_is_no_launcher(command: object) -> None:
    assert launched(command, RANK) is None


def stays(value: int) -> int:
    return value


class Worker(multiprocessing.get_context("fork").Process):  # type: ignore[misc]
    def run(self) -> None:
        stays(1)


def test_functions_of_the_program_in_other_processes_are_seen_and_workers_of_libraries_are_not() -> (  # noqa: E501
    None
):
    fork = multiprocessing.get_context("fork")
    project = ProjectFiles(libraries=(), own=(str(Path(__file__).parent),))
    data = torch.utils.data.DataLoader([1, 2], num_workers=1, multiprocessing_context="fork")

    with Launchers(project) as source:
        assert list(data)
        started = [fork.Process(target=functools.partial(stays, 1)) for _ in range(2)]
        started += [Worker()]
        for one in started:
            one.start()
            one.join()
        here = [found.function for found in source.found]
        with fork.Pool(1) as pool:
            assert pool.map(stays, [2]) == [2]

    lines = [stays.__code__.co_firstlineno, Worker.run.__code__.co_firstlineno]
    assert here == [
        f"stays (test_launchers.py:{lines[0]})",
        f"Worker.run (test_launchers.py:{lines[1]})",
    ]
    assert source.found[2] == m.Launched(by=m.MULTIPROCESSING, command="step = kgprof.watch(step)")


def ends_badly(rank: int) -> None:
    raise SystemExit(rank + 1)


def test_each_launch_is_seen_once_and_everything_is_put_back(
    capfd: pytest.CaptureFixture[str],
) -> None:
    spawning = sys.modules["torch.multiprocessing.spawn"]
    watched = [
        (subprocess.Popen, "__init__"),
        (os, "system"),
        (multiprocessing.process.BaseProcess, "start"),
        (spawning, "start_processes"),
        (torch.multiprocessing, "start_processes"),
    ]
    before = [getattr(owner, name) for owner, name in watched]
    with Launchers(ProjectFiles(libraries=())) as source:
        for _ in range(2):
            subprocess.run([sys.executable, "-S", "missing.py"], check=False)
            os.system("python missing_too.py 2> /dev/null")
        with pytest.raises(torch.multiprocessing.ProcessExitedException):
            torch.multiprocessing.spawn(ends_badly, nprocs=1)
    capfd.readouterr()

    assert [(one.by, one.processes) for one in source.found] == [
        ("python", None),
        ("python", None),
        (m.SPAWN, 1),
    ]
    assert source.found[2].command.startswith("torchrun --nproc-per-node 1 -m kgprof profile ")
    assert [getattr(owner, name) for owner, name in watched] == before
