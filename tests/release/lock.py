"""The pins of constraints.txt with the hashes of their files.

    python -m tests.release.lock                   # makes requirements-locked.txt, from the index
    python -m tests.release.lock print build ...   # the lines of these packages, for pip -r

Printing needs nothing but Python itself.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
LOCKED = ROOT / "requirements-locked.txt"
_BLOCK = r"^([\w.-]+)==[^\\\n]*(?:\\\n[^\\\n]*)*\n"
TORCH = "torch"
HEAD = """\
# Made by `python -m tests.release.lock` from constraints.txt: change that file and run it again.
# Each package with the SHA-256 of every file that the index has of it. Of torch's builds for a CPU,
# which are on an index of their own, only the one for Linux, x86_64 and the Python that made this.
#
#   pip install --require-hashes --no-deps -r requirements-locked.txt
"""
# After a platform that has files of all of them; uv writes the hashes of the others too.
_ASKED = ("--no-deps", "--generate-hashes", "--no-header", "--no-annotate", "--quiet")
_PLATFORM = ("--python-platform", "x86_64-manylinux_2_28")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def normal(name: str) -> str:
    """The name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path = CONSTRAINTS) -> dict[str, str]:
    """Versions by name."""
    lines = path.read_text("utf-8").splitlines()
    found = (re.match(r"([\w.-]+)==([\w.+!-]+)", line) for line in lines)
    return {normal(match[1]): match[2] for match in found if match}


def blocks(path: Path = LOCKED) -> dict[str, str]:
    """The lines of each package, with its hashes."""
    text = path.read_text("utf-8")
    found = re.finditer(_BLOCK, text, re.MULTILINE)
    return {normal(match[1]): match[0] for match in found}


def hashes(block: str) -> list[str]:
    return re.findall(r"--hash=sha256:([0-9a-f]{64})\b", block)


def made() -> str:
    """What the file should hold, as far as the index tells today."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "pins.in"
        asked.write_text("".join(f"{name}=={pin}\n" for name, pin in pins().items()), "utf-8")
        out = Path(folder) / "locked.txt"
        environment = dict(os.environ)
        if _CERTIFICATES.is_file():
            environment.setdefault("SSL_CERT_FILE", str(_CERTIFICATES))
        uv = Path(sys.executable).with_name("uv")
        command = [uv, "pip", "compile", asked, *_ASKED, *_PLATFORM, "-o", out]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        found = blocks(out)
    for digest in here(TORCH, pins()[TORCH]):
        if digest not in hashes(found[TORCH]):
            found[TORCH] = f"{found[TORCH].rstrip()} \\\n    --hash=sha256:{digest}\n"
    return HEAD + "".join(found.values())


def here(name: str, version: str) -> Sequence[str]:
    """Of the file that pip would install on this machine."""
    asked = ["--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report", "-"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *asked, f"{name}=={version}"],
        check=True,
        capture_output=True,
        text=True,
    )
    report = json.loads(done.stdout)
    archives: list[Mapping[str, Mapping[str, str]]] = [
        one["download_info"]["archive_info"] for one in report["install"]
    ]
    return [archive["hashes"]["sha256"] for archive in archives]


if __name__ == "__main__":
    if sys.argv[1:2] == ["print"]:
        known = blocks()
        sys.stdout.writelines(known[normal(name)] for name in sys.argv[2:])
    else:
        LOCKED.write_text(made(), "utf-8")
