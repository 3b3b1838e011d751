"""Whether `kgprof bisect` finds a planted commit among 63 others, and in how many recordings.

    python benchmarks/bisect_planted.py -o FILE.json            # all
    python benchmarks/bisect_planted.py CASE ... -o FILE.json   # these take their place

For each case of same_work/cases.toml that is named in PLANTED a git repository of 64 commits is
made of its program: the first is the program as it is, one has the case's edits, and the others do
no other work. They are the program's refactorings of cases.toml that can still be made, comments,
unused functions, lines that move, other files, and commits that do not run at all: a syntax error
or a module that is missing, one by one and three in a row, each repaired by the next commit. Which
commit is which follows from the seed and the case's name. Then

    kgprof bisect FIRST LAST PROGRAM.py:step --format json

is asked for the planted one. Exit code 0: each was found in at most MOST recordings; 1: not.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from same_work import cases
from same_work.cases import REFACTORING, Case

PLANTED = (
    "encoder-normalised-in-eager",
    "encoder-norm-in-double",
    "encoder-epsilon-global",
    "encoder-lengths-checked",
    "encoder-matmul-precision",
    "denoiser-image-cloned",
    "train-features-kept",
    "recommender-rerank-dynamic",
    "recommender-confidence-read",
    "rollout-history",
)
COMMITS = 64
MOST = 8
BROKEN = (1, 1, 3)  # so many in a row, and then one that repairs them
FAULTS = ("def unfinished(:\n", "import a_module_that_nobody_has\n")
WHO = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
TIME_LIMIT_S = 3600
LAST_COLUMNS = 1500
Texts = dict[str, str]  # of the files of a commit
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="CASE", default=PLANTED)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    rows: dict[str, Row] = {}
    if asked.output.is_file():
        rows = json.loads(asked.output.read_text(encoding="utf-8"))["repositories"]
    for case in cases.chosen(list(asked.names)):
        rows[case.name] = one(case, asked.seed)
        print(words(case.name, rows[case.name]), flush=True)
        keep(asked.output, asked.seed, rows)
    return 0 if all(rows[name]["right"] for name in asked.names) else 1


def one(case: Case, seed: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="planted-") as scratch:
        folder = Path(scratch, "repository")
        folder.mkdir()
        kinds = Counter[str]()
        planted = ""
        git(folder, "init", "-q")
        for kind, subject, texts in history(case, random.Random(f"{seed} {case.name}")):
            write(folder, texts)
            git(folder, "add", "-A")
            git(folder, *WHO, "commit", "-q", "-m", subject)
            kinds[kind] += 1
            if kind == "planted":
                planted = git(folder, "rev-parse", "HEAD")
        began = time.monotonic()
        done = bisect(folder, case.workload, Path(scratch, "out"))
        seconds = time.monotonic() - began
        left = git(folder, "status", "--short"), git(folder, "worktree", "list").count("\n")
    found: Row = {}
    if done.stdout.startswith("{"):
        found = json.loads(done.stdout)["comparison"]["bisect"]
    recordings = sum(each["recorded"] for each in found.get("tried", []))
    remaining = found.get("remaining", [])
    return {
        "what": case.what,
        "kgprof": git(Path(), "rev-parse", "HEAD"),
        "commits": dict(kinds),
        "planted": planted,
        "found": remaining[0] if len(remaining) == 1 and not found["why_open"] else None,
        "remaining": len(remaining),
        "recordings": recordings,
        "died": sum(not each["recorded"] for each in found.get("tried", [])),
        "looked_for": found.get("looked_for", []),
        "why_open": found.get("why_open", ""),
        "seconds": round(seconds),
        "exit_code": done.returncode,
        "left_clean": left == ("", 0),
        "right": remaining == [planted] and recordings <= MOST and done.returncode == 0,
        "last_words": "" if found else done.stderr[-LAST_COLUMNS:],
    }


def history(case: Case, draw: random.Random) -> Iterator[tuple[str, str, Texts]]:
    """Of each commit its kind, its subject and the texts of its files."""
    texts = {
        str(path.relative_to(cases.PROGRAMS)): path.read_text(encoding="utf-8")
        for path in cases.files_of(case.program)
    }
    yield "first", "The program", texts
    program = f"{case.program}.py"
    others = [each for each in cases.all_cases() if each.program == case.program]
    refactorings = [each for each in others if each.kind == REFACTORING]
    draw.shuffle(refactorings)
    kinds = planned(draw, len(refactorings))
    is_planted = False
    fault = ""
    for number, kind in enumerate(kinds, start=1):
        subject = f"{kind} {number}"
        if kind == "planted":
            texts = changed(texts, case) or texts
            is_planted = True
        elif kind == "refactoring":
            each = refactorings.pop()
            made = changed(texts, each)
            # the planted edits must still find their lines
            if made is not None and (is_planted or changed(made, case) is not None):
                texts, subject = made, each.what
            else:
                kind = "comment"
        if kind != "broken":
            fault = ""
        elif not fault:
            fault = draw.choice(FAULTS)
        if kind not in ("planted", "refactoring", "broken"):
            texts = texts | harmless(kind, number, texts[program], program)
        now = texts
        if kind == "broken":
            now = texts | {program: f"{texts[program]}# commit {number}\n{fault}"}
        yield kind, subject, now


def planned(draw: random.Random, refactorings: int) -> list[str]:
    """The kinds of all commits but the first, in their order: the last one runs."""
    usual = COMMITS - 1 - 1 - sum(BROKEN) - len(BROKEN) - refactorings
    kinds = ["refactoring"] * refactorings
    kinds += draw.choices(("comment", "unused function", "moved lines", "other file"), k=usual)
    draw.shuffle(kinds)
    groups = [[kind] for kind in kinds]
    for length in BROKEN:
        group = [*["broken"] * length, "repaired"]
        groups.insert(draw.randrange(len(groups) + 1), group)
    groups.insert(draw.randrange(len(groups) + 1), ["planted"])
    return [kind for group in groups for kind in group]


def harmless(kind: str, number: int, text: str, program: str) -> Texts:
    """The files that change."""
    if kind == "other file":
        return {f"notes/{number}.md": f"Note {number}\n"}
    if kind == "unused function":
        text += f"\n\ndef unused_{number}(x):\n    return x * {number}\n"
    elif kind == "moved lines":
        text = f"# moved by line {number}\n{text}"
    else:
        text += f"# commit {number}\n"
    return {program: text}


def changed(texts: Texts, case: Case) -> Texts | None:
    """With a case's edits; None where one of them does not find its text."""
    made = dict(texts)
    for edit in case.edits:
        text = made.get(edit.file, "")
        if (edit.old and text.count(edit.old) != 1) or (not edit.old and text):
            return None
        made[edit.file] = text.replace(edit.old, edit.new) if edit.old else edit.new
    return made


def write(folder: Path, texts: Texts) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def bisect(folder: Path, workload: str, out: Path) -> subprocess.CompletedProcess[str]:
    first = git(folder, "rev-list", "--max-parents=0", "HEAD")
    command = [sys.executable, "-m", "kgprof", "bisect", first, "HEAD", workload]
    return subprocess.run(
        [*command, "--no-ci", "--format", "json", "-o", str(out)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_S,
    )


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def words(name: str, row: Row) -> str:
    mark = "found" if row["right"] else "NOT FOUND"
    counted = f"{row['recordings']} recordings, {row['died']} died, {row['seconds']} s"
    return f"{name:<32} {row['what']:<18} {mark:<10} {counted} {row['why_open']}"


def keep(path: Path, seed: int, rows: dict[str, Row]) -> None:
    import torch

    ordered = {name: rows[name] for name in PLANTED if name in rows}
    found = {
        "command": f"python benchmarks/bisect_planted.py --seed {seed}",
        "torch": torch.__version__,
        "commits": COMMITS,
        "most_recordings": MOST,
        "repositories": ordered,
    }
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
