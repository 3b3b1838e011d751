"""A program under torchrun: each rank records into a folder of its own, and rank 0 puts them
together.

What belongs together is told by what the launcher gave all of them. The others are waited for at
the end, where they arrive at about the same time; one that does not come is in the report as one
that did not.
"""

import contextlib
import datetime
import os
import re
import shutil
import time
from pathlib import Path

from msgspec.structs import replace

from kgprof import model as m
from kgprof.errors import InputError, UsageError
from kgprof.reading import layout, recordings
from kgprof.record.ground import store
from kgprof.record.ground.flags import Variables

WAIT_S = 120.0  # for the other ranks, after rank 0 has written its own
FAILED_WAIT_S = 10.0  # for rank 0, before a rank that failed makes its launcher end them all
POLL_S = 0.2
# in a rank's folder, with the launch that it was part of; the last thing that a rank writes
DONE = "done.txt"
NOT_ALONE = "several ranks share the GPUs, and peak rates need an idle GPU"
_RANK = re.compile(r"-rank\d+$")


class Launch(m.Model, kw_only=False):
    """This process's place among those that one launcher started."""

    rank: int
    world_size: int
    identity: str  # the same for all ranks of a launch, and for no other launch
    began: datetime.datetime | None  # of the launcher, where it runs on this machine

    def folder(self, output: Path) -> Path:
        return output / f"rank{self.rank}"


def launch(environment: Variables = os.environ) -> Launch | None:
    """None where there is no launcher, or one process alone. Raises UsageError for a rank that is
    no number."""
    world_size = environment.get("WORLD_SIZE", "")
    if "RANK" not in environment or world_size in ("", "1"):
        return None
    try:
        rank = int(environment["RANK"])
        size = int(world_size)
    except ValueError:
        raise UsageError(
            f"RANK={environment['RANK']} and WORLD_SIZE={world_size} do not name a valid rank",
            hint="unset them, or use torchrun",
        ) from None
    local = environment.get("LOCAL_WORLD_SIZE", world_size) == world_size
    began = _began(os.getppid()) if local else None
    told = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
    identity = " ".join(
        [*(environment.get(name, "") for name in told), began.isoformat() if began else ""]
    )
    return Launch(rank, size, identity, began)


def _began(pid: int) -> datetime.datetime | None:
    """When a process of this machine was started, from Linux's /proc; None elsewhere."""
    with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        # field 22 of proc(5), two before the comm's end
        since_boot_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        lines = Path("/proc/stat").read_text(encoding="utf-8").splitlines()
        boot_s = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
        return datetime.datetime.fromtimestamp(boot_s + since_boot_s, datetime.UTC)
    return None


def agreed_folder(name: str, launched: Launch) -> Path:
    """Where there is no -o: named after the moment in which the launcher began, which all ranks
    read alike.

    Raises UsageError where they cannot.
    """
    if launched.began is None:
        raise UsageError(
            "all ranks must record into one folder",
            hint="choose one that all ranks can see with -o",
        )
    return Path("reports") / f"{name}-{launched.began.strftime('%Y%m%dT%H%M%SZ')}"


def begin(output: Path, launched: Launch) -> None:
    """Take away what an earlier launch left in this rank's folder as its last word."""
    (launched.folder(output) / DONE).unlink(missing_ok=True)


def done(output: Path, launched: Launch) -> None:
    """This rank's Recording is whole."""
    store.write_export(launched.folder(output) / DONE, launched.identity.encode())


def await_first(output: Path, launched: Launch) -> None:
    """Give rank 0 time to end by itself: the launcher ends all ranks when one has failed, and what
    they know by then of why they wait is lost."""
    until = time.monotonic() + FAILED_WAIT_S
    while time.monotonic() < until and not _is_done(output, launched, 0):
        time.sleep(POLL_S)


def gather(output: Path, launched: Launch, into: Path) -> Path:
    """Rank 0: wait for the others below ``output``, then one Recording of all ranks' runs in
    ``into``; its folder.

    Ctrl-C ends the waiting, not the gathering.
    """
    interrupted = False
    try:
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until and not all(
            _is_done(output, launched, r) for r in range(launched.world_size)
        ):
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        interrupted = True
    store.clear(into)
    folder = into / layout.FOLDER
    header = recordings.load(launched.folder(output) / layout.FOLDER).header
    (mine,) = header.plan.runs
    name = _RANK.sub("", mine.strategy)
    runs = []  # and whether it left a Recording
    for rank in range(launched.world_size):
        recording = _recording(output, launched, rank)
        key = m.RunKey(f"{name}-rank{rank}", mine.mode)
        runs.append((recording.runs[0].key if recording else key, recording is not None))
    keys = tuple(key for key, _ in runs)
    strategies = (
        m.StrategyPlan(key.strategy, (key.mode,), f"rank {i}") for i, key in enumerate(keys)
    )
    plan = replace(header.plan, runs=keys, strategies=tuple(strategies))
    interrupted = interrupted or header.interrupted
    store.create(folder, replace(header, plan=plan, interrupted=interrupted))
    store.write_json(folder / layout.CEILINGS, m.Skipped(NOT_ALONE))
    for rank, (key, is_there) in enumerate(runs):
        if not is_there:
            why = (
                f"rank {rank} of {launched.world_size} left no Recording within {WAIT_S:.0f} "
                "s after rank 0 ended"
            )
            store.write_exit(folder, key, m.Exit(m.Outcome.KILLED, why))
        else:
            there = layout.run_folder(output / f"rank{rank}" / layout.FOLDER, key)
            shutil.copytree(there, layout.run_folder(folder, key), copy_function=_linked)
    return folder


def _is_done(output: Path, launched: Launch, rank: int) -> bool:
    try:
        return (output / f"rank{rank}" / DONE).read_text(encoding="utf-8") == launched.identity
    except OSError:
        return False


def _recording(output: Path, launched: Launch, rank: int) -> m.Recording | None:
    """None where a rank left nothing, or nothing of this launch."""
    if not _is_done(output, launched, rank):
        return None
    try:
        return recordings.load(output / f"rank{rank}" / layout.FOLDER)
    except InputError:
        return None  # said as a rank that left no Recording


def _linked(source: str, target: str) -> None:
    """The same bytes twice in one output folder need not take room twice."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
