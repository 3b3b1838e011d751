"""The traces that the page carries or links to: a download without scripts, and a button that opens Perfetto's UI.

What is carried stands once, as the ``data:`` address of its download link; the button's script reads it from there.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from kgprof import model as m
from kgprof.render.escaping import one_line
from kgprof.render.limits import Limits
from kgprof.render.quantity import size
from kgprof.render.table import View

EMBEDDED_BYTES = 400_000  # gzipped, of all traces together
_TEXT_OF_3_BYTES = 4  # base64


def stay() -> None:
    """The file lies where its link leads."""


@dataclass(frozen=True, kw_only=True)
class TraceFile:
    """Gzipped Kineto JSON of one run."""

    run: m.RunKey
    measured_in: m.PassName
    size_bytes: int
    read: Callable[[], bytes | None]  # called only where the page has room for a trace
    file_name: str  # that a browser saves it as
    link: str  # to the file, from where the page stands; empty where the page stands nowhere (stdout)
    place: Callable[[], None] = stay  # puts the file where the link leads; called unless the page carries the trace

    @cached_property
    def data(self) -> bytes | None:
        """As a page may carry it; None for one that no page can."""
        return self.read() if self.size_bytes <= EMBEDDED_BYTES else None


class TraceLink(View, frozen=True, kw_only=True):
    """``address`` is what the link leads to; empty where there is none. ``carried``: the button can hand it over."""

    run: str
    measured_in: str
    size: str
    file_name: str
    address: str
    carried: bool


def embedded(traces: Sequence[TraceFile], room_bytes: int) -> frozenset[m.RunKey]:
    """In the order of the runs, each that still fits: into EMBEDDED_BYTES, and as text into ``room_bytes``."""
    left = min(EMBEDDED_BYTES, room_bytes // _TEXT_OF_3_BYTES * 3)
    fitting = set()
    for trace in traces:
        if left > 2 and trace.data is not None and len(trace.data) + 2 <= left:  # base64 fills the last three bytes up
            fitting.add(trace.run)
            left -= len(trace.data) + 2
    return frozenset(fitting)


def trace_links(traces: Sequence[TraceFile], which: Collection[m.RunKey], limits: Limits) -> tuple[TraceLink, ...]:
    """``which`` of them the page carries."""
    return tuple(
        TraceLink(
            run=one_line(trace.run.slug, limits.name),
            measured_in=trace.measured_in.upper(),
            size=size(trace.size_bytes),
            file_name=one_line(trace.file_name, limits.name),
            address=trace.link
            if trace.run not in which or trace.data is None
            else f"data:application/gzip;base64,{base64.b64encode(trace.data).decode('ascii')}",
            carried=trace.run in which,
        )
        for trace in traces[: limits.runs]
    )
