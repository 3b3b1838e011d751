"""Which cases an exact comparison without a clock gets right.

    python -m benchmarks.same_work.run -o FILE.json            # all
    python -m benchmarks.same_work.run NAME ... -o FILE.json   # these take their place in the file

For each case the program as it is and with the case's edits are two folders, and

    kgprof compare --record BASE HEAD PROGRAM.py:step --work-only --format json

compares them. With --apart each side is recorded by `kgprof profile` with the same passes, a
program as it is once for all of its cases, and `kgprof compare` compares the two: a third of the
time. A regression is found if the work differs and one of the first FIRST differences
names the case's line, as its location or as what changed. A refactoring is right if the work is the
same. What kgprof says of the work is kept beside the mark. Exit code 0: all are right; 1: not.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from . import cases
from .cases import BASE, HEAD, REFACTORING, REGRESSION, Case

FIRST = 3
KEPT_DIFFERENCES = 6
RIGHT, NOT_NAMED, NOT_SEEN, ALARM, NO_ANSWER = (
    *("right", "differs, line not named", "called the same", "false alarm"),
    "no answer",
)
TIME_LIMIT_S = 900
LAST_COLUMNS = 2000
Row = dict[str, Any]
Done = subprocess.CompletedProcess[str]
Recorder = Callable[[Case, list[str], Path, Path], Done]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--apart", action="store_true", help="each side by itself")
    parser.add_argument("--kgprof", default=f"{sys.executable} -m kgprof", help="the command")
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    chosen = cases.chosen(asked.names)
    rows: dict[str, Row] = {}
    if asked.output.is_file():
        rows = json.loads(asked.output.read_text(encoding="utf-8"))["cases"]
    kgprof = asked.kgprof.split()
    with tempfile.TemporaryDirectory(prefix="same-work-base-") as bases:
        recorder = partial(apart, bases=Path(bases)) if asked.apart else in_turn
        found = compared(chosen, partial(one, kgprof=kgprof, recorder=recorder), asked.jobs)
        keep_each(found, asked.output, rows)
    print(table({case.name: rows[case.name] for case in chosen}))
    return 1 if any(rows[case.name]["mark"] != RIGHT for case in chosen) else 0


def keep_each(found: Iterator[tuple[Case, Row]], output: Path, rows: dict[str, Row]) -> None:
    for case, row in found:
        rows[case.name] = row
        print(row_text(case.name, row), file=sys.stderr, flush=True)
        keep(output, rows)


def keep(path: Path, rows: dict[str, Row]) -> None:
    """In the order of cases.toml; cases that it no longer has are left out."""
    ordered = {case.name: rows[case.name] for case in cases.all_cases() if case.name in rows}
    found = {"command": "python -m benchmarks.same_work.run", "cases": ordered}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def compared(
    chosen: list[Case], one: Callable[[Case], Row], jobs: int
) -> Iterator[tuple[Case, Row]]:
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(one, case) for case in chosen]
        for case, row in zip(chosen, waiting, strict=True):
            yield case, row.result()


def one(case: Case, *, kgprof: list[str], recorder: Recorder) -> Row:
    with tempfile.TemporaryDirectory(prefix="same-work-") as scratch:
        report = Path(scratch) / "report.json"
        done = recorder(case, kgprof, Path(scratch), report)
        work = work_of(report)
    return {
        "kind": case.kind,
        "what": case.what,
        "exit_code": done.returncode,
        "mark": mark(case, work),
        "work": shortened(work),
        "last_words": done.stdout[-LAST_COLUMNS:] if work is None else "",
    }


def in_turn(case: Case, kgprof: list[str], scratch: Path, report: Path) -> Done:
    base, head = (str(cases.make(case, side, scratch / side)) for side in (BASE, HEAD))
    options = ["--work-only", "--no-ci", "-o", f"{scratch}/out", f"--format=json={report}"]
    return run([*kgprof, "compare", "--record", base, head, case.workload, *options], scratch)


def apart(case: Case, kgprof: list[str], scratch: Path, report: Path, *, bases: Path) -> Done:
    base = bases / case.program
    if not base.exists():
        recorded(case, BASE, kgprof, scratch, base)
    recorded(case, HEAD, kgprof, scratch, scratch / "head-run")
    compare = ["compare", str(base), f"{scratch}/head-run", "--no-ci", f"--format=json={report}"]
    return run([*kgprof, *compare], scratch)


def recorded(case: Case, side: str, kgprof: list[str], scratch: Path, output: Path) -> None:
    folder = cases.make(case, side, scratch / side)
    options = ["--passes", "compile,trace,memory", "--no-ci", "-q", "-o", str(output)]
    run([*kgprof, "profile", case.workload, *options], folder)


def run(command: list[str], folder: Path) -> Done:
    return subprocess.run(
        command,
        cwd=folder,
        env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": str(cases.HERE.parents[1])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )


def work_of(report: Path) -> Row | None:
    """``comparison.runs[0].work``, or None where the report has none."""
    if not report.is_file():
        return None
    comparison = json.loads(report.read_text(encoding="utf-8")).get("comparison") or {}
    runs = comparison.get("runs") or [{}]
    work: Row | None = runs[0].get("work")
    return work


def mark(case: Case, work: Row | None) -> str:
    if work is None or "differs" not in work:
        return NO_ANSWER
    if case.kind == REFACTORING:
        return ALARM if work["differs"] else RIGHT
    if not work["differs"]:
        return NOT_SEEN
    first = work.get("differences", [])[:FIRST]
    return RIGHT if any(names(case, difference) for difference in first) else NOT_NAMED


def names(case: Case, difference: Row) -> bool:
    """Whether the difference shows the case's line: by its number in its file, or by its text."""
    file, number = case.place
    for place in (difference.get("location"), difference.get("changed")):
        if not place or not str(place.get("file", "")).endswith(file):
            continue
        if place.get("line") == number or str(place.get("text", "")).strip() == case.line:
            return True
    return False


def shortened(work: Row | None) -> Row | None:
    if work is None:
        return None
    return {**work, "differences": work.get("differences", [])[:KEPT_DIFFERENCES]}


# ---------------------------------------------------------------- what is printed


def row_text(name: str, row: Row) -> str:
    said = [difference.get("text", "") for difference in (row["work"] or {}).get("differences", [])]
    first = said[0] if said else ""
    return f"{name:<34} {row['what']:<32} {row['exit_code']:>3}  {row['mark']:<24} {first}"


def table(rows: dict[str, Row]) -> str:
    lines = [row_text(name, row) for name, row in rows.items()]
    for kind, word in ((REGRESSION, "found"), (REFACTORING, "called the same")):
        marks = [row["mark"] for row in rows.values() if row["kind"] == kind]
        lines.append(f"{kind}s: {marks.count(RIGHT)} of {len(marks)} {word}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
