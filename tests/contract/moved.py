"""A Recording as another machine would have made it: the same facts under other folders, and
further down the file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from kgprof.model import Recording

_LINES = frozenset(("line", "first_line", "co_firstlineno", "fail_user_frame_lineno"))
_IN_TEXT = re.compile(r"(?<=\.py\", line )\d+|(?<=\.py:)\d+|(?<=_at_)\d+")


def moved(recording: Recording, folders: Mapping[str, str], *, lines: int = 0) -> Recording:
    """``folders``: what each becomes, wherever it stands. ``lines``: so many empty ones at the top
    of every file."""
    text = msgspec.json.encode(recording).decode()
    for before, after in folders.items():
        text = re.sub(rf"{re.escape(before)}(?=[/\"])", after, text)
    return msgspec.convert(_further_down(msgspec.json.decode(text), lines), Recording, strict=False)


def without_git(recording: Recording, own: str) -> Recording:
    """The same where no file lies in a repository, and ``own`` is the workload's folder."""
    return msgspec.convert(
        _unversioned(msgspec.to_builtins(recording), own), Recording, strict=False
    )


def _further_down(value: Any, lines: int, name: str = "") -> Any:
    if isinstance(value, dict):
        if value.get("sha256"):
            return {**value, "text": "\n" * lines + value["text"]}
        return {key: _further_down(item, lines, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_further_down(item, lines) for item in value]
    if isinstance(value, str):
        return _IN_TEXT.sub(lambda number: str(int(number[0]) + lines), value)
    return value + lines if name in _LINES and isinstance(value, int) and value > 0 else value


def _unversioned(value: Any, own: str) -> Any:
    if isinstance(value, dict):
        put = {key: _unversioned(item, own) for key, item in value.items()}
        return {
            **put,
            **(
                {"repository": ""}
                if "sha256" in put
                else {"own": [own]}
                if "libraries" in put
                else {}
            ),
        }
    return [_unversioned(item, own) for item in value] if isinstance(value, list | tuple) else value
