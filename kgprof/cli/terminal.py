"""What a terminal gets in place of plain text: its width, its colour, the short form, and where to
go on."""

import os
import shutil
import sys
from pathlib import Path
from typing import TextIO

from kgprof import model as m
from kgprof.document.sheet import Sheet
from kgprof.progress import is_terminal
from kgprof.render import sheet as sheets
from kgprof.render.text import WIDTH, Text

NARROWEST, WIDEST = 40, 200  # columns


def layout(stream: TextIO | None) -> tuple[bool, int]:
    """Whether it takes colour, and how many columns it has; those of a file where it is none."""
    if not is_terminal(stream):
        return False, WIDTH
    columns = shutil.get_terminal_size((WIDTH, 24)).columns
    return not os.environ.get("NO_COLOR"), min(max(columns, NARROWEST), WIDEST)


def text(profile: m.Profile, *, verbose: bool, stream: TextIO | None = None) -> str:
    """All of it for a file or a log, the short form for a terminal, unless it is asked to be
    ``verbose``."""
    stream = sys.stdout if stream is None else stream
    color, width = layout(stream)
    return Text(color=color, width=width, brief=is_terminal(stream) and not verbose).render(profile)


def sheet(shown: Sheet, stream: TextIO | None) -> str:
    """A capture or a sweep, in the stream's own width and colour."""
    color, width = layout(stream)
    return sheets.text(shown, color=color, width=width)


def linked(path: str) -> str:
    """A path on stdout; on a terminal one that opens with a click."""
    file = Path(path)
    if not is_terminal(sys.stdout) or not file.exists():
        return path
    return f"\x1b]8;;{file.resolve().as_uri()}\x1b\\{path}\x1b]8;;\x1b\\"


def next_command(profile: m.Profile, folder: Path) -> str:
    """What a reader of this result would run now."""
    if profile.actions:
        return f"kgprof explain {profile.actions[0].rule}"
    timed = any(not isinstance(run.step, m.Skipped) for run in profile.runs)
    undecided = profile.verdict.status is m.VerdictStatus.INCONCLUSIVE
    if timed and undecided and profile.options.rounds == 1:
        return (
            f"{' '.join(profile.command[:3])} --rounds 3"
            if len(profile.command) > 2
            else "kgprof profile --rounds 3"
        )
    return f"kgprof report {folder} --format markdown"
