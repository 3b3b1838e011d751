"""What torch alone says that each case changes, and whether cases.toml says the same.

    python -m benchmarks.same_work.truth              # all; keeps results/same_work_truth.json
    python -m benchmarks.same_work.truth NAME ...     # these take their place in what is kept
    python -m benchmarks.same_work.truth --kept       # runs nothing: compares what is kept

Each side of a case runs in a process of its own (probe.py), one at a time, without kgprof. COUNTS
are numbers, TEXTS are compared with names undone. A regression has its truth if the same counts and
texts differ as cases.toml says and by as much; a refactoring if none differs at all. A base program
runs once for all of its cases. Times are the shortest of 60 steps on a busy machine, and only there
to show that no clock would decide. Exit code 0: each case has its truth.
"""

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import cases
from .cases import BASE, HEAD, REGRESSION, Case

ROOT = cases.HERE.parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "same_work_truth.json"
COUNTS = (
    *("compilations", "breaks", "recompiles", "regions"),
    *("graph_operators", "graph_outputs", "guard_count"),
    *("kernels", "launches", "buffer_bytes"),
    *("eager_operators", "allocated", "alive", "growth"),
)
TEXTS = ("graphs", "code", "guards", "settings", "operators")
# Inductor writes its code each time; what the compiler made of it stays, under the source's hash.
ALONE = {
    "OMP_NUM_THREADS": "1",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
}
CASES, CLOCK = "cases", "clock"  # in the file; the second is clock.py's
TIME_LIMIT_S = 300
SHOWN_LINES, SHOWN_COLUMNS = 4, 140
Work = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    parser.add_argument("--cache", type=Path, help="Inductor's folder, kept for the next time")
    parser.add_argument("--kept", action="store_true", help="run nothing")
    asked = parser.parse_args()
    rows = kept(asked.output)
    chosen = cases.chosen(asked.names)
    todo = [] if asked.kept else chosen
    with tempfile.TemporaryDirectory(prefix="same-work-") as scratch:
        for case, row in truths(todo, Path(scratch), asked.cache or Path(scratch) / "cache"):
            rows[case.name] = row
            print(row_text(case, row), flush=True)
            keep(asked.output, rows)
    wrong = [case.name for case in chosen if not as_written(case, rows[case.name])]
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} cases have the truth that is written")
    return 1 if wrong else 0


def kept(path: Path, part: str = CASES) -> dict[str, Work]:
    if not path.is_file():
        return {}
    rows: dict[str, Work] = json.loads(path.read_text(encoding="utf-8")).get(part, {})
    return rows


def keep(path: Path, rows: dict[str, Work], part: str = CASES) -> None:
    """In the order of cases.toml; cases that it no longer has are left out."""
    ordered = {case.name: rows[case.name] for case in cases.all_cases() if case.name in rows}
    parts = {name: kept(path, name) for name in (CASES, CLOCK)}
    found = {"command": "python -m benchmarks.same_work.truth", **parts, part: ordered}
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def truths(chosen: list[Case], scratch: Path, cache: Path) -> Iterator[tuple[Case, Work]]:
    bases: dict[str, Work] = {}
    for case in chosen:
        if case.program not in bases:
            bases[case.program] = probed(case, BASE, scratch, cache)
        yield case, row_of(case, bases[case.program], probed(case, HEAD, scratch, cache))


def probed(case: Case, side: str, scratch: Path, cache: Path) -> Work:
    folder = cases.make(case, side, scratch / side)
    out = scratch / "work.json"
    command = [sys.executable, str(cases.HERE / "probe.py"), case.program, str(out)]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **ALONE, "TORCHINDUCTOR_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{case.name}, {side}: exit code {done.returncode}\n{done.stdout}")
    work: Work = json.loads(out.read_text(encoding="utf-8"))
    work["eager_operators"] = sum(work["operators"].values())
    return work


def row_of(case: Case, base: Work, head: Work) -> Work:
    counts = {name: [base[name], head[name]] for name in COUNTS if base[name] != head[name]}
    differs = [name for name in TEXTS if base[name] != head[name]]
    return {
        "kind": case.kind,
        "what": case.what,
        "place": place_of(case),
        "counts": counts,
        "differs": differs,
        "example": [line for name in differs for line in example(base[name], head[name])],
        "step_ms": [round(side["milliseconds"], 3) for side in (base, head)],
    }


def as_written(case: Case, row: Work) -> bool:
    return row["counts"] == case.truth and tuple(row["differs"]) == case.differs


def place_of(case: Case) -> str:
    if case.kind != REGRESSION:
        return ""
    file, number = case.place
    return f"{file}:{number}"


def example(base: Any, head: Any) -> list[str]:
    """The first lines that differ, without what is equal around them."""
    lines = difflib.unified_diff(lines_of(base), lines_of(head), lineterm="", n=0)
    changed = [line for line in lines if line[:3] not in ("---", "+++") and line[:2] != "@@"]
    return [" ".join(line.split())[:SHOWN_COLUMNS] for line in changed[:SHOWN_LINES]]


def lines_of(text: Any) -> list[str]:
    """Of a text, a list of such, or the count of each operator."""
    if isinstance(text, dict):
        return [f"{name} {count}" for name, count in sorted(text.items())]
    if isinstance(text, list):
        return [line for part in text for line in lines_of(part)]
    return str(text).splitlines()


def row_text(case: Case, row: Work) -> str:
    agrees = as_written(case, row)
    mark = "as written" if agrees else "NOT as written"
    counts = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in row["counts"].items())
    old_ms, new_ms = row["step_ms"]
    lines = [
        f"{case.name}: {mark} ({case.kind}, {case.what}) {row['place']}",
        f"    differs: {', '.join(row['differs']) or 'nothing'}; {counts or 'no count'}",
        f"    {old_ms} -> {new_ms} ms",
    ]
    if not agrees:
        lines += [f"    {line}" for line in row["example"]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
