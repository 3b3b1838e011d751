"""Python's stack above a hook, while the program stands still in it."""

import dis
import linecache
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import FrameType

import torch

from kgprof import model as m
from kgprof.reading.project import ProjectFiles

TORCH = str(Path(torch.__file__).parent)
IN_TORCH = f"{TORCH}/"  # torch_geometric and torchvision lie beside it
# compiled by torch on its own, where eager code calls torch.cond
BY_TORCH = f"{TORCH}/_higher_order_ops"

Frames = tuple[m.Frame, ...]
Stack = tuple[FrameType, ...]


def upwards(frame: FrameType | None) -> Iterator[FrameType]:
    """``frame`` and its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def innermost_of(project: ProjectFiles, frame: FrameType | None) -> FrameType | None:
    """Return the innermost of ``frame`` and its callers that lies in the project."""
    return next((each for each in upwards(frame) if project.holds(each.f_code.co_filename)), None)


def line_of(frame: FrameType | None) -> m.SourceLine | None:
    if frame is None:
        return None
    code = frame.f_code
    return m.SourceLine(code.co_filename, frame.f_lineno or 0, code.co_name)


def described(frame: FrameType) -> m.Frame:
    code = frame.f_code
    first = code.co_firstlineno
    return m.Frame(code.co_filename, line_at(frame) or first, code.co_name, first)


def instruction_at(frame: FrameType) -> str:
    """Python's name for what a frame is doing: "CALL", "POP_JUMP_IF_FALSE"."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]]


def line_at(frame: FrameType) -> int | None:
    """The line of what a frame is doing. Where Python 3.11 calls in the instruction before CALL,
    Dynamo's bytecode has that of the ``def`` for it."""
    return position_at(frame)[0] if _precedes_a_call(frame) else frame.f_lineno


def position_at(frame: FrameType) -> tuple[int | None, int | None, int | None, int | None]:
    """First and last line and column of what a frame is evaluating."""
    at = frame.f_lasti // 2 + (2 if _precedes_a_call(frame) else 0)  # and its cache
    return next(islice(frame.f_code.co_positions(), at, None), (None, None, None, None))


def _precedes_a_call(frame: FrameType) -> bool:
    return instruction_at(frame) == "PRECALL"


def expression_at(frame: FrameType) -> str:
    """What a frame is evaluating, as it is written; empty where that is not known."""
    code = frame.f_code
    first, last, start, end = position_at(frame)
    if frame.f_lasti and any(tests in instruction_at(frame) for tests in ("JUMP", "TO_BOOL")):
        # Of a jump CPython names the whole ``if (...)`` or the first part of ``a or b``; what is
        # tested is what the instruction before it gave.
        first, last, start, end = next(islice(code.co_positions(), frame.f_lasti // 2 - 1, None))
    if first is None or last is None:
        return ""
    lines = [
        linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)
    ]
    if start is None or end is None or not all(lines):
        return b"".join(lines).decode(errors="replace").strip()
    lines[-1] = lines[-1][:end]  # first: of a single line both are cut
    lines[0] = lines[0][start:]
    return b"".join(lines).decode(errors="replace")
