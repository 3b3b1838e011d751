"""One process that makes many reports and profiles, and what it holds after each.

python -m tests.attack.soak REPORTS PROFILES [RESULT.json]
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from kgprof import cli

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "fixtures" / "torch_trace" / "two_ranks"
PROGRAM = """\
import torch

@torch.compile(backend="eager")
def f(x):
    return x.sin() + 1

def step():
    f(torch.ones(4))
"""
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Held:
    """By this process, and under its names in the folders that all processes share."""

    rss_kib: int
    descriptors: int
    temporary: int
    shared_memory: int
    children: int


def held(temporary: Path) -> Held:
    gc.collect()
    status = Path("/proc/self/status").read_text("utf-8")
    rss = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return Held(
        rss_kib=int(rss.split()[1]),
        descriptors=len(os.listdir("/proc/self/fd")),
        temporary=sum(1 for _ in temporary.rglob("*")),
        shared_memory=sum(1 for _ in SHARED_MEMORY.glob("*kgprof*")),
        children=len(Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()),
    )


def run(arguments: list[str]) -> None:
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = cli.run(arguments)
    assert code == 0, (code, said.buffer.getvalue())


def soak(reports: int, profiles: int, folder: Path, temporary: Path) -> dict[str, list[Held]]:
    """What is held after each report and after each profile."""
    program = folder / "program.py"
    program.write_text(PROGRAM, "utf-8")
    recording = folder / "ranks"
    run(["report", "--torch-trace", str(TRACE), "-o", str(recording)])
    found: dict[str, list[Held]] = {"reports": [], "profiles": []}
    pages = set()
    for _ in range(reports):
        run(["report", str(recording), "--no-hta", "-o", str(folder / "report")])
        pages.add((folder / "report" / "report.html").read_bytes())
        found["reports"].append(held(temporary))
    assert len(pages) == 1
    profile = ["profile", f"{program}:step", "-q", "--no-hta", "--passes", "compile,timing"]
    for _ in range(profiles):
        run([*profile, "-o", str(folder / "profile")])
        found["profiles"].append(held(temporary))
    return found


def main(reports: int, profiles: int, result: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as temporary:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder) / "inductor")
        os.environ["TMPDIR"] = temporary
        tempfile.tempdir = temporary
        found = soak(reports, profiles, Path(folder), Path(temporary))
    told = {name: [asdict(each) for each in held] for name, held in found.items()}
    if result is not None:
        lines = (json.dumps([name, *row.values()]) for name, rows in told.items() for row in rows)
        result.write_text("\n".join(lines) + "\n", "utf-8")
    else:
        sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
