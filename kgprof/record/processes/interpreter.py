"""Another Python than the one that is kgprof, to record with."""

import os
import shutil
import subprocess

from kgprof.errors import UsageError

NEEDED = ("torch", "msgspec", "numpy", "click")  # by what kgprof runs in a child
ANSWERS_S = 120.0  # a busy machine takes 20 s to import torch
# what it says last on stdout: "fit", or what it lacks, with a hint behind a tab
_ASKED = """
import sys
del sys.path[0]  # the current folder
from importlib.util import find_spec
lacking = [name for name in sys.argv[1:] if find_spec(name) is None]
torch = "2.11" if "torch" in lacking else str(__import__("torch").__version__)
said = "fit"
if [int(part) for part in torch.split(".")[:2]] < [2, 11]:
    said = "has torch " + torch + "; kgprof needs 2.11 or later"
if lacking:
    said = "lacks " + ", ".join(lacking) + "\\t-m pip install " + " ".join(lacking)
if sys.version_info < (3, 11):
    said = "is Python " + sys.version.split()[0] + "; kgprof needs 3.11 or later"
print("")
print(said)
"""


def checked(given: str) -> str:
    """Return its absolute path. Raises UsageError if it does not run, or if kgprof cannot run in
    it."""
    found = shutil.which(given)
    if found is None:
        raise UsageError(f"--python {given}: no such program", "give an environment's bin/python")
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
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"--python {given} does not run: {error}") from error
    said, _, hint = done.stdout.strip().rpartition("\n")[2].partition("\t")
    if done.returncode or not said:
        said = f"cannot be used: {done.stderr.strip().rpartition(chr(10))[2] or 'it said nothing'}"
        hint = "-c 'import torch' fails in the same way"
    if said != "fit":
        raise UsageError(f"--python {given} {said}", f"{given} {hint}" * bool(hint))
    return python
