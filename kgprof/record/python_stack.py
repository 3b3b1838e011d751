"""Python's stack above a hook, while the program stands still in it."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

from kgprof import model as m


def upwards(frame: FrameType | None) -> Iterator[FrameType]:
    """``frame`` and its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def described(frame: FrameType) -> m.Frame:
    code = frame.f_code
    return m.Frame(
        file=code.co_filename,
        line=frame.f_lineno or code.co_firstlineno,
        function=code.co_name,
        first_line=code.co_firstlineno,
    )
