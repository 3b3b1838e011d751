"""speedscope's own file format, one evented profile a thread or stream.

The format: https://github.com/jlfwong/speedscope/blob/main/src/lib/file-format-spec.ts and the
schema that the file names. Times are whole nanoseconds from the trace's first event on, the same
zero in every profile.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kgprof._version import __version__
from kgprof.errors import InputError

if TYPE_CHECKING:
    from kgprof.measures.host_stacks import Nesting

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class _Event(msgspec.Struct, gc=False):
    type: str  # "O" opens, "C" closes
    at: int
    frame: int


class Speedscope:
    name = "speedscope"

    def export(self, trace: Path, title: str) -> tuple[bytes, tuple[str, ...]]:
        from kgprof.measures.host_stacks import nesting
        from kgprof.reading import kineto

        read = kineto.read(trace)
        nested = nesting(read.columns)
        if not nested.tracks:
            raise InputError("the trace has no CPU or GPU event", path=trace)
        return speedscope(nested, name=title), tuple(
            f"{trace.name}: {warning}" for warning in read.warnings
        )


def speedscope(nesting: Nesting, *, name: str) -> bytes:
    """The file. A nesting without tracks gives one that speedscope refuses to open: say so
    before."""
    profiles = [
        {
            "type": "evented",
            "name": track.name,
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": nesting.end_ns,
            "events": [
                _Event("O" if change.opens else "C", change.at_ns, change.frame)
                for change in track.changes
            ],
        }
        for track in nesting.tracks
    ]
    document = {
        "$schema": SCHEMA,
        "shared": {"frames": nesting.frames},
        "profiles": profiles,
        "name": name,
        "activeProfileIndex": 0,
        "exporter": f"kgprof@{__version__}",
    }
    return msgspec.json.encode(document)
