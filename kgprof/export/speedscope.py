"""speedscope's own file format, one evented profile a thread or stream.

The format: https://github.com/jlfwong/speedscope/blob/main/src/lib/file-format-spec.ts and the schema that the file
names. Times are whole nanoseconds from the trace's first event on, the same zero in every profile.
"""

from __future__ import annotations

import msgspec

from kgprof._version import __version__
from kgprof.measures.nesting import Frame, Nesting, Track

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class _Frame(msgspec.Struct, omit_defaults=True):
    name: str
    file: str = ""
    line: int | None = None


class _Event(msgspec.Struct, gc=False):
    type: str  # "O" opens, "C" closes
    at: int
    frame: int


class _Profile(msgspec.Struct, rename="camel"):
    type: str
    name: str
    unit: str
    start_value: int
    end_value: int
    events: list[_Event]


class _Shared(msgspec.Struct):
    frames: list[_Frame]


class _File(msgspec.Struct, rename="camel"):
    schema: str = msgspec.field(name="$schema")
    shared: _Shared
    profiles: list[_Profile]
    name: str
    active_profile_index: int
    exporter: str


def speedscope(nesting: Nesting, *, name: str) -> bytes:
    """The file. A nesting without tracks gives one that speedscope refuses to open: say so before."""
    return msgspec.json.encode(
        _File(
            schema=SCHEMA,
            shared=_Shared(frames=[_frame(frame) for frame in nesting.frames]),
            profiles=[_profile(track, nesting.end_ns) for track in nesting.tracks],
            name=name,
            active_profile_index=0,
            exporter=f"kgprof@{__version__}",
        )
    )


def _frame(frame: Frame) -> _Frame:
    return _Frame(name=frame.name, file=frame.file, line=frame.line)


def _profile(track: Track, end_ns: int) -> _Profile:
    events = [_Event("O" if change.opens else "C", change.at_ns, change.frame) for change in track.changes]
    return _Profile(type="evented", name=track.name, unit="nanoseconds", start_value=0, end_value=end_ns, events=events)
