"""A change of a file as a unified diff."""

import difflib
import io
from collections.abc import Mapping


def patch_of(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return what ``git apply`` takes; ``before`` and ``after``: the texts by their names."""
    parts = []
    for name, text in before.items():
        old = _lines(text)
        new = _lines(after[name])
        lines = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")
        for line in lines:
            ends = line.endswith("\n")
            parts.append(line if ends else f"{line}\n\\ No newline at end of file\n")
    return "".join(parts)


def _lines(text: str) -> list[str]:
    """Split it as git does: at no other character than the end of a line."""
    return io.StringIO(text, newline="\n").readlines()


def lines_changed(before: str, after: str) -> str:
    """Return the lines that a change adds, without their indentation and each once."""
    found = difflib.ndiff(before.splitlines(), after.splitlines())
    added = [line[2:].strip() for line in found if line.startswith("+ ")]
    return "\n".join(dict.fromkeys(filter(None, added)))
