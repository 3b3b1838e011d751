"""The traces that the page carries or links to: a download without scripts, and a button that opens Perfetto's UI.

What is carried stands once, as the ``data:`` address of its download link; the button's script reads it from there.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render.limits import Limits
from kgprof.render.quantity import size
from kgprof.render.visible import one_line

CARRIED_BYTES = 400_000  # gzipped, of all traces together
_TEXT_OF_3_BYTES = 4  # base64


@dataclass(frozen=True, kw_only=True)
class TraceToHandOff:
    """Gzipped Kineto JSON of one run."""

    run: m.RunKey
    measured_in: m.PassName
    size_bytes: int
    data: bytes | None  # None: larger than CARRIED_BYTES, so that nobody need read it
    file_name: str  # that a browser saves it as
    link: str  # to the file, from where the page stands; empty where the page stands nowhere (stdout)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOffLine:
    """``address`` is what the link leads to; empty where there is none. ``carried``: the button can hand it over."""

    run: str
    measured_in: str
    size: str
    file_name: str
    address: str
    carried: bool


def carried(traces: Sequence[TraceToHandOff], room_bytes: int) -> frozenset[m.RunKey]:
    """In the order of the runs, each that still fits: into CARRIED_BYTES, and as text into ``room_bytes``."""
    left = min(CARRIED_BYTES, room_bytes // _TEXT_OF_3_BYTES * 3)
    found = set()
    for trace in traces:
        if trace.data is not None and len(trace.data) + 2 <= left:  # base64 fills the last three bytes up
            found.add(trace.run)
            left -= len(trace.data) + 2
    return frozenset(found)


def hand_off(traces: Sequence[TraceToHandOff], which: Collection[m.RunKey], limits: Limits) -> tuple[HandOffLine, ...]:
    """``which`` of them the page carries."""
    return tuple(_line(trace, trace.run in which, limits) for trace in traces[: limits.runs])


def _line(trace: TraceToHandOff, carries: bool, limits: Limits) -> HandOffLine:
    return HandOffLine(
        run=one_line(trace.run.slug, limits.name),
        measured_in=trace.measured_in.upper(),
        size=size(trace.size_bytes),
        file_name=one_line(trace.file_name, limits.name),
        address=_data_address(trace.data) if carries and trace.data is not None else trace.link,
        carried=carries,
    )


def _data_address(data: bytes) -> str:
    return f"data:application/gzip;base64,{base64.b64encode(data).decode('ascii')}"
