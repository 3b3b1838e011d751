"""Records the evaluator with each planted regression in it, and unchanged, into the archives of
fixtures/regressions.

    python -m tests.regressions.record [--device cuda] [--gpus 4] [-j 4] [--into FOLDER] [--until
    SECONDS] [NAME ...]

Each recording is one ``kgprof profile linkpred`` (or ``check-graphs``) of a copy of this tree. An
archive that is there is not made again. With ``--gpus`` the cores are shared out among the GPUs,
and all recordings of a setting are made on one of them. ``-j``, a multiple, makes so many at a
time: two on one GPU disturb each other, which is then part of the times' noise. ``--until`` starts
none after so many seconds.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.regressions.planted import REGRESSIONS, ROOT, UNCHANGED, Setting, regressions, unchanged

LONGEST_S = 900  # of one recording: a hang costs one, not all


@dataclass(frozen=True, kw_only=True)
class Wanted:
    name: str
    setting: Setting
    patch: Path | None
    archive: Path


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one recording at a time is made."""

    cores: str  # as taskset names them
    gpu: str  # as CUDA_VISIBLE_DEVICES names it; empty: whatever is there


def wanted() -> tuple[Wanted, ...]:
    """The bases first, then the regressions, then the unchanged tree again."""
    again = [
        Wanted(
            name=f"{setting.name}_{number}",
            setting=setting,
            patch=None,
            archive=unchanged(setting, number),
        )
        for number in range(max(UNCHANGED.values()))
        for setting, times in UNCHANGED.items()
        if number < times
    ]
    planted = [
        Wanted(name=each.name, setting=each.setting, patch=each.patch, archive=each.recording)
        for each in regressions()
    ]
    bases = len(UNCHANGED)
    return (*again[:bases], *planted, *again[bases:])


def places(device: str, gpus: int) -> tuple[Place, ...]:
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // gpus)
    return tuple(
        Place(
            cores=",".join(map(str, cores[gpu * share : (gpu + 1) * share] or cores)),
            gpu=str(gpu) if device == "cuda" and gpus > 1 else "",
        )
        for gpu in range(gpus)
    )


def copy_tree(patch: Path | None, folder: Path) -> None:
    """What ``python -m kgprof`` needs of this tree, with the patch applied."""
    for part in ("kgprof", "templates"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    if patch is not None:
        subprocess.run(["git", "apply", str(patch.resolve())], cwd=folder, check=True)
    # The top of a repository is told by this, and files are named from there: a checkout has it.
    (folder / ".git").mkdir()


def command(each: Wanted) -> list[str]:
    setting = each.setting
    strategy, _, mode = setting.run.partition(".")
    how = {
        "profile": [
            *("--mode", mode, "--passes", ",".join(setting.passes)),
            *("--rounds", str(setting.rounds), "--no-hta", "--device", setting.device),
        ],
        "check-graphs": ["--backend", "eager", "--device", setting.device],
    }[setting.verb]
    program = [sys.executable, "-m", "kgprof", setting.verb, "linkpred"]
    return [*program, "--strategy", strategy, *how, "--quiet", "-o", "out", "--", *setting.args]


def record(each: Wanted, place: Place, archive: Path) -> str:
    """How it went, in a few words; an archive is left only where kgprof made a report."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kgprof-planted-") as scratch:
        folder = Path(scratch) / "tree"
        copy_tree(each.patch, folder)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        }
        if place.gpu:
            environment["CUDA_VISIBLE_DEVICES"] = place.gpu
        try:
            done = subprocess.run(
                ["taskset", "-c", place.cores, *command(each)],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"took more than {LONGEST_S} s"
        if (folder / "out" / "recording").is_dir():
            pack(folder / "out" / "recording", archive)
            if each.patch is not None:
                shutil.copy(each.patch, archive.with_name("recorded.patch"))
    seconds = f"{time.monotonic() - began:.0f} s"
    if done.returncode or not archive.is_file():
        return f"exit {done.returncode} after {seconds}: {done.stderr[-600:]}"
    return f"{seconds}, {archive.stat().st_size / 1024:.0f} KiB"


def pack(recording: Path, archive: Path) -> None:
    """Under its name only when it is whole."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(".part")
    with tarfile.open(unfinished, "w:gz") as packed:
        packed.add(recording, arcname="recording")
    unfinished.rename(archive)


def record_all(
    todo: Sequence[tuple[Wanted, Path]], where: Sequence[Place], jobs: int, until: float
) -> int:
    """How many could not be made."""
    end = time.monotonic() + until
    waiting: list[queue.SimpleQueue[tuple[Wanted, Path]]] = [queue.SimpleQueue() for _ in where]
    for one in todo:
        waiting[one[0].setting.place % len(where)].put(one)
    threads = [
        threading.Thread(target=_record_share, args=(waiting[job % len(where)], place, end))
        for job in range(jobs)
        for place in [where[job % len(where)]]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(not archive.is_file() for _, archive in todo)


def _record_share(
    waiting: queue.SimpleQueue[tuple[Wanted, Path]], place: Place, end: float
) -> None:
    while time.monotonic() < end:
        try:
            each, archive = waiting.get_nowait()
        except queue.Empty:
            return
        went = record(each, place, archive)
        sys.stdout.write(f"{each.name} (GPU {place.gpu or 'any'}): {went}\n")
        sys.stdout.flush()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.regressions.record")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="the start of a name chooses all that begin so"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--into", type=Path, default=REGRESSIONS)
    parser.add_argument("--until", type=float, default=float("inf"), metavar="SECONDS")
    asked = parser.parse_args(arguments)
    chosen = [
        each
        for each in wanted()
        if each.setting.device == asked.device
        and (not asked.names or each.name.startswith(tuple(asked.names)))
    ]
    todo = [(each, asked.into / each.archive.relative_to(REGRESSIONS)) for each in chosen]
    todo = [(each, archive) for each, archive in todo if not archive.is_file()]
    where = places(asked.device, asked.gpus)
    return 1 if record_all(todo, where, asked.jobs, asked.until) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
