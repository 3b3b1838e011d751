"""Another Python than the one that is kgprof, to record with."""

import json
import os
import shutil
import subprocess

from kgprof.errors import UsageError

NEEDED = ("torch", "msgspec", "numpy", "click")  # by what kgprof runs in a child
LEAST_PYTHON = [3, 11]
LEAST_TORCH = [2, 11]
ANSWERS_S = 120.0  # a busy machine takes 20 s to import torch
_ASKED = """
import sys
del sys.path[0]  # the current folder
import json
from importlib.util import find_spec
lacking = [name for name in sys.argv[1:] if find_spec(name) is None]
torch = "" if "torch" in lacking else __import__("torch").__version__
print("", json.dumps([sys.version_info[:2], lacking, str(torch)]), sep="\\n")
"""


def checked(given: str) -> str:
    """Return its absolute path. Raises UsageError if it does not run, or if kgprof cannot run in
    it."""
    named = f"--python {given}"
    found = shutil.which(given)
    if found is None:
        raise UsageError(f"{named}: no such program", "give an environment's bin/python")
    python = os.path.abspath(found)  # not resolved: a virtual environment's is a link
    try:
        done = subprocess.run(
            [python, "-c", _ASKED, *NEEDED],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWERS_S,
            check=False,
        )
        version, lacking, torch = json.loads(done.stdout.rpartition("\n\n")[2])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{named} does not run: {error}") from error
    except ValueError as error:
        why = done.stderr.strip().rpartition("\n")[2] or "it printed nothing"
        hint = f"{given} -c 'import torch' fails in the same way"
        raise UsageError(f"{named} cannot be used: {why}", hint) from error
    if version < LEAST_PYTHON:
        raise UsageError(f"{named} is Python {_dotted(version)}; kgprof needs 3.11 or later")
    if lacking:
        hint = f"{given} -m pip install {' '.join(lacking)}"
        raise UsageError(f"{named} lacks {', '.join(lacking)}", hint)
    if [int(part) for part in torch.split(".")[:2]] < LEAST_TORCH:
        raise UsageError(f"{named} has torch {torch}; kgprof needs {_dotted(LEAST_TORCH)} or later")
    return python


def _dotted(version: list[int]) -> str:
    return ".".join(map(str, version))
