"""Source: what a script starts in place of doing the work itself: torchrun, accelerate,
torch.multiprocessing.spawn, other scripts and modules, functions of its own in other processes.

kgprof follows one process, so the report names the command that starts kgprof inside each of the
others, or for a function the line that does.
"""

import functools
import multiprocessing.pool
import multiprocessing.process
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.source import Source, aside, replace

LAUNCHERS = (
    "torchrun",
    "accelerate",
    "deepspeed",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
)
# in a word of the command: Inductor's own processes
NOT_ITS_WORK = ("torch._inductor", "compile_worker")
MODULE = ("-m", "--module")
KEPT = 20
# python -m: no program's work
TOOLS = (*sys.stdlib_module_names, "pip", "setuptools", "wheel", "build", "torch")
# modules of what a pool's processes begin with
POOLS = ("multiprocessing.pool", "concurrent.futures.process")
LOADER = "torch.utils.data._utils.worker"  # module of what a DataLoader's processes begin with
WATCH = "step = kgprof.watch(step)"


class Launchers(Source):
    """Listens to subprocess, os.system and multiprocessing; ``found`` has each launch once."""

    name = "launched processes"

    def __init__(self, project: ProjectFiles) -> None:
        self._project = project
        self.found: list[m.Launched] = []
        self.workers = 0  # processes of torch's data loaders

    def listen(self, undo: ExitStack) -> None:
        def spawned(
            fn: object, args: object = (), nprocs: int = 1, *rest: object, **kwargs: object
        ) -> None:
            command = _inside(["torchrun", "--nproc-per-node", str(nprocs)], sys.argv, 0)
            self._saw(m.Launched(by=m.SPAWN, processes=nprocs, command=command))

        def started(this: object, *args: Any, **kwargs: Any) -> None:
            self._saw(launched(args[0] if args else kwargs.get("args"), kwargs.get("env")))

        self._watch(subprocess.Popen, "__init__", started, undo)
        self._watch(multiprocessing.process.BaseProcess, "start", self._begins, undo)
        self._watch(os, "system", lambda command: self._saw(launched(command, None)), undo)
        for module in (torch.multiprocessing, sys.modules["torch.multiprocessing.spawn"]):
            self._watch(module, "start_processes", spawned, undo)

    def _watch(self, owner: Any, name: str, saw: Callable[..., None], undo: ExitStack) -> None:
        original = getattr(owner, name)
        note = self._note

        @functools.wraps(original)
        def seen(*args: Any, **kwargs: Any) -> Any:
            # before the call, which may not return, or raise what a rank raised
            note(saw, *args, **kwargs)
            return original(*args, **kwargs)

        replace(owner, name, seen, undo)

    @aside
    def _note(self, saw: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        saw(*args, **kwargs)

    def _begins(self, process: Any) -> None:
        """A function of the program's own, or a pool; not the workers of a DataLoader, of Inductor
        or of a library."""
        # a class of processes has its own ``run``
        target = getattr(process, "_target", None) or type(process).run
        while isinstance(target, functools.partial):
            target = target.func
        code = getattr(target, "__code__", None)
        module = getattr(target, "__module__", "")
        torchs = any(
            getattr(arg, "__module__", "").startswith("torch.")
            for arg in getattr(process, "_args", ())
        )
        self.workers += module == LOADER
        if module in POOLS and not torchs:
            self._saw(m.Launched(by=m.MULTIPROCESSING, command=WATCH))
        elif code is not None and self._project.holds(code.co_filename):
            where = f"{target.__qualname__} ({Path(code.co_filename).name}:{code.co_firstlineno})"
            self._saw(m.Launched(by=m.MULTIPROCESSING, command=WATCH, function=where))

    def _saw(self, launch: m.Launched | None) -> None:
        if launch is not None and launch not in self.found and len(self.found) < KEPT:
            self.found.append(launch)


def launched(command: Any, environment: Mapping[Any, Any] | None) -> m.Launched | None:
    """What a command starts, if it is a launcher, one of a launcher's ranks, or a Python script or
    module."""
    if not isinstance(command, str | list | tuple):  # an iterator is the program's to consume
        return None
    try:
        words = (
            shlex.split(command)
            if isinstance(command, str)
            else [os.fsdecode(word) for word in command]
        )
    except (TypeError, ValueError):  # for subprocess to refuse
        return None
    words[:1] = [
        "python" if "python" in name else name
        for name in (word.rpartition("/")[2] for word in words[:1])
    ]
    script = _script_in(words)
    by = next((word for word in words[:script] if word in LAUNCHERS), "")
    others = "kgprof" in words or any(mark in word for word in words for mark in NOT_ITS_WORK)
    if others or not script or not (by or words[0] == "python"):
        return None
    environment = environment or {}
    if not by and "RANK" in environment and environment.get("WORLD_SIZE", "1") != "1":
        size = str(environment.get("LOCAL_WORLD_SIZE") or environment["WORLD_SIZE"])
        if not size.isdecimal():
            return None
        ranks = int(size)
        start = ["torchrun", "--nproc-per-node", size]
        return m.Launched(
            by="torch.distributed", processes=ranks, command=_inside(start, words, script)
        )
    start = words[: script - (words[script - 1] in MODULE)] if by else ["python"]
    return m.Launched(by=by or m.PYTHON, command=_inside(start, words, script))


def _script_in(words: Sequence[str]) -> int:
    """Where in a command the script stands, or the module with the option before it as one: 0 if
    there is neither."""
    for place, word in enumerate(words):
        if place and words[place - 1] in MODULE and word not in LAUNCHERS:
            return 0 if word.partition(".")[0] in TOOLS else place
        if word.endswith(".py"):
            return place
        if word == "-c" and words[0] == "python":
            break
    return 0


def _inside(start: Sequence[str], words: Sequence[str], script: int) -> str:
    """The words that start it, then kgprof with the script or module and its arguments."""
    module = ["-m"] if script and words[script - 1] in MODULE else []
    option = "--module" if "deepspeed" in start[0] else "-m"
    args = words[script + 1 :]
    return shlex.join(
        [
            *start,
            option,
            "kgprof",
            "profile",
            *module,
            words[script],
            *(["--", *args] if args else []),
        ]
    )
