"""Does kgprof work with an older and with a newer torch? Its selftest with each of them.

    python benchmarks/torch_versions.py 2.13.0 2.15.0 -o docs/torch.md

Each version has a virtual environment of its own, where torch is installed first, as somebody has
it, and kgprof after it: another torch than before is an error. A build of torch for CUDA is a
download of about 3 GB and takes 7 GB of disk; ``--keep FOLDER`` leaves the environments there, and
takes them again. The table has a line for each capture of `kgprof selftest --device cpu`. Exit
code 1: an answer is wrong, or torch was replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MARKS = {"works": "yes", "unavailable": "no", "wrong": "**wrong**"}
INTRODUCTION = """# With which torch?

kgprof needs torch 2.11 or later, and `pip install .` leaves such a torch as it is. `kgprof
selftest` says what works with yours. This table is made by `python benchmarks/torch_versions.py
{versions} -o docs/torch.md`, on a CPU, with Python {python}. "no": not seen there, and
`Skipped` in a report, for the reason below.
"""


def by_hand(file: Path) -> str:
    """Return what follows the table in a file that is there: its later headings."""
    written = file.read_text("utf-8") if file.is_file() else ""
    _, heading, rest = written.partition("\n## ")
    return heading + rest


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or Path(scratch)
        answers = [selftest(environment(folder, version), version) for version in asked.versions]
    asked.out.write_text(page(asked.versions, answers) + by_hand(asked.out), encoding="utf-8")
    wrong = [
        f"torch {answer['torch']}: {check['capture']}"
        for answer in answers
        for check in answer["checks"]
        if check["status"] == "wrong"
    ]
    print("\n".join(wrong), file=sys.stderr)
    return bool(wrong)


def environment(folder: Path, version: str) -> Path:
    """The Python of an environment with this torch and kgprof; torch comes first."""
    home = folder / f"torch-{version}"
    python = home / "bin" / "python"
    if not python.exists():
        print(f"torch {version}: a download of about 3 GB", file=sys.stderr)
        venv.create(home, with_pip=True)
        install(python, f"torch=={version}")
    before = installed(python)
    install(python, str(ROOT))
    if installed(python) != before:
        raise SystemExit(f"torch {before} became {installed(python)}")
    return python


def install(python: Path, what: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "--quiet", what], check=True)


def installed(python: Path) -> str:
    asked = "import importlib.metadata as m; print(m.version('torch'))"
    done = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def selftest(python: Path, version: str) -> dict[str, Any]:
    print(f"torch {version}: kgprof selftest", file=sys.stderr)
    command = [
        str(python),
        "-m",
        "kgprof",
        "selftest",
        "--device",
        "cpu",
        "--format",
        "json",
        "--quiet",
    ]
    with tempfile.TemporaryDirectory() as elsewhere:  # not this tree's kgprof, but the installed
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=elsewhere, env=os.environ, check=False
        )
    if not done.stdout:
        raise SystemExit(f"torch {version}: {done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def inert(reason: str) -> str:
    """Without the addresses and folders of one run."""
    return re.sub(r" at 0x\w+| \(/\S+\)", "", reason)


def page(versions: Sequence[str], answers: Sequence[dict[str, Any]]) -> str:
    lines = [INTRODUCTION.format(versions=" ".join(versions), python=answers[-1]["python"])]
    lines.append(f"| capture | {' | '.join(answer['torch'] for answer in answers)} |")
    lines.append(f"|---|{'---|' * len(answers)}")
    reasons: dict[str, None] = {}
    by_name = [{check["capture"]: check for check in answer["checks"]} for answer in answers]
    for capture in by_name[-1]:
        cells = []
        for answer, checks in zip(answers, by_name, strict=True):
            check = checks[capture]
            cells.append(MARKS[check["status"]])
            if check["status"] != "works":
                reasons[f"- torch {answer['torch']}, {capture}: {inert(check['got'])}"] = None
        lines.append(f"| {capture} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *reasons]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
