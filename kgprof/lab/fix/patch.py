"""A change of a file as a unified diff."""

import difflib
import io


def patch_of(name: str, before: str, after: str) -> str:
    """Return what ``git apply`` takes to make of one text of a file the other."""
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}")
    return "".join(_ended(line) for line in lines)


def _ended(line: str) -> str:
    if line.endswith("\n"):
        return line
    return f"{line}\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    """Split it as git does: at no other character than the end of a line."""
    return io.StringIO(text, newline="\n").readlines()


def lines_changed(before: str, after: str) -> str:
    """Return the lines that a change adds, without their indentation and each once."""
    found = difflib.ndiff(before.splitlines(), after.splitlines())
    added = [line[2:].strip() for line in found if line.startswith("+ ")]
    return "\n".join(dict.fromkeys(filter(None, added)))
