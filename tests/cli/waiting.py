"""``kgprof`` whose children import no torch, and which waits for a signal at the phase that WAIT_AT
names.

    python -m tests.cli.waiting profile s.py -o out

It makes the file ``at`` in the working directory when it is there. The program is never run: its
child starts a daemon that leaves the child's session, and writes one pass after the other.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kgprof import model as m
from kgprof.record.ground import store
from kgprof.record.ground.job import Done, Job, Phase, Task
from kgprof.record.ground.unfinished import Unfinished
from kgprof.record.processes import child, children, recorder
from tests.record import scripted

ROOT = Path(__file__).resolve().parents[2]
CHILD = (  # in place of children.BOOTSTRAP
    f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from tests.cli import waiting; "
    "main = getattr(waiting, 'child_' + '{}'.rpartition('.')[2]); main(*sys.argv[2:])"
)
WAITS_S = 1.0  # a phase of the parent's: a signal comes in it, and its handler is called
PASSES_S = 1.0


def at(phase: str, waits_s: float = WAITS_S) -> None:
    if os.environ.get("WAIT_AT") == phase:
        del os.environ["WAIT_AT"]
        Path("at").touch()
        until = time.monotonic() + waits_s
        while time.monotonic() < until:
            time.sleep(0.05)


def child_child(job_file: str, descriptor: str) -> None:
    job = m.decode_json(Path(job_file).read_bytes(), Job)
    with os.fdopen(int(descriptor), "wb", buffering=0) as events:
        child.end_with_the_parent(job.parent_pid)
        events.write(msgspec.json.encode(Phase(name=job.task)) + b"\n")
        if job.task is Task.PLAN:
            at("planning", 600)
            store.write_json(Path(job.answer), scripted.plan(job.options))
        else:
            if not os.fork():
                os.setsid()
                if os.fork():
                    os._exit(0)
                os.closerange(0, 64)
                time.sleep(600)
            os.wait()
            assert job.key is not None
            for name in (m.PassName.COMPILE, m.PassName.MEMORY, m.PassName.TRACE):
                store.write_pass(Path(job.recording), job.key, name, m.Skipped(reason="not here"))
                at("pass", 600)
                time.sleep(PASSES_S / 3)
        events.write(msgspec.json.encode(Done()) + b"\n")


def before(owner: Any, name: str, phase: str) -> None:
    """Wait when ``owner.name`` is called."""
    original: Callable[..., Any] = getattr(owner, name)

    def waiting(*args: Any, **given: Any) -> Any:
        at(phase)
        return original(*args, **given)

    setattr(owner, name, waiting)


class Started(subprocess.Popen):  # type: ignore[type-arg]
    children = 0

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        Started.children += "pass_fds" in given
        if Started.children == 2:  # the plan's was the first
            at("starting")


def main() -> None:
    # here, for a child imports this module, too, and the command's rooms are none of its own: what
    # a signal prints of them is the command's
    from kgprof import cli, render
    from kgprof.cli import reading
    from kgprof.reading import recordings

    children.BOOTSTRAP = children.PROGRAM_BOOTSTRAP = CHILD
    before(recorder, "make_plan", "before")
    before(recorder.Recorder, "measure_rounds", "between")
    before(recordings, "load", "reading")
    before(reading, "analyse", "analysing")
    before(render, "by_name", "rendering")
    before(Unfinished, "finish", "placing")
    children.subprocess.Popen = Started  # type: ignore[misc]
    original = recorder.scratch_folder

    @contextlib.contextmanager
    def scratch_folder(prefix: str) -> Iterator[Path]:
        with original(prefix) as folder:
            yield folder
        at("clearing")

    recorder.scratch_folder = scratch_folder
    cli.main(sys.argv[1:])


if __name__ == "__main__":
    main()
