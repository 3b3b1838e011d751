"""From a kernel in a trace back to the lines whose operations it computes.

A kernel that Inductor generated has its name in the trace. A library call (``extern_kernels.addmm``) has not: the trace
shows the operator ``aten::addmm``, or the library's own kernel launched inside it; so the calls of each operator in one
run of a compiled region are matched with Inductor's calls of it by their order, and only where there are as many of
the one as of the other. Whatever is replayed by a CUDA graph has no operators, and is found by its name or not at all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kgprof import model as m
from kgprof.measures.attribution import REGION_PREFIX
from kgprof.reading import launches
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import Indices
from kgprof.reading.timeline import NOBODY, STEP_PREFIX

Lines = tuple[m.SourceLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What Inductor said about one device event, or one operator on a CPU."""

    lines: Lines = ()
    work: tuple[m.KernelWork, ...] = ()  # of one call; more than one where calls of one name are not told apart
    call: int = NOBODY  # of a library, which may launch several kernels: an index into the columns


_UNKNOWN = Known()

_GRAPH_PREFIX = re.compile(r"graph_\d+_(?=cpp_)")  # of C++ kernels, in a trace only
_CALLED = re.compile(r"(?:extern_kernels|(?:torch\.ops\.)?aten)\.(?P<aten>\w+)|torch\.ops\.(?P<other>\w+\.\w+)")


class Origins:
    """What Inductor said about the kernels of one run, to be asked about the events of its traces."""

    def __init__(self, origins: Iterable[m.KernelOrigin]) -> None:
        generated: dict[tuple[str, str], list[Known]] = defaultdict(list)
        called: dict[tuple[str, str], list[Known]] = defaultdict(list)
        for origin in sorted(origins, key=lambda origin: origin.number):
            known = Known(lines=origin.lines, work=() if origin.work is None else (origin.work,))
            if operator := operator_of(origin.kernel):
                called[origin.compile_id, operator].append(known)
            else:
                generated[origin.compile_id, origin.kernel].append(known)
        self._generated: dict[tuple[str, str], Known] = {}
        for key, calls in generated.items():  # the lines of one are those of all its calls
            work = tuple(dict.fromkeys(work for call in calls for work in call.work))
            self._generated[key] = Known(lines=merged([call.lines for call in calls]), work=work)
        self._called = dict(called)

    def __bool__(self) -> bool:
        return bool(self._generated or self._called)

    def of(self, columns: Columns, events: Indices, asked_by: Indices) -> list[Known]:
        """What is known of each of ``events``; its lines are empty where nothing is.

        ``asked_by``: on a GPU the host's call that launched the event (NOBODY where there is none), on a CPU the event
        itself.
        """
        region = launches.innermost(columns, columns.named(REGION_PREFIX), asked_by)
        calls = self._library_calls(columns)
        top = np.zeros(len(columns), np.bool_)
        top[list(calls)] = True
        call = launches.innermost(columns, top, asked_by)
        return [
            self._generated.get((_compile_id(columns, in_region), _GRAPH_PREFIX.sub("", columns.names[name])))
            or calls.get(in_call, _UNKNOWN)
            for name, in_region, in_call in zip(
                columns.name[events].tolist(), region.tolist(), call.tolist(), strict=True
            )
        ]

    def _library_calls(self, columns: Columns) -> dict[int, Known]:
        """Operators that the generated code called, and those of eager code, as indices into ``columns``."""
        operators = {operator for _, operator in self._called}
        wanted = np.array([name in operators for name in columns.names], np.bool_)[columns.name]
        # An operator may call itself under another overload.
        outermost = launches.outermost(columns, wanted & columns.of_category("cpu_op"))
        regions = launches.innermost(columns, columns.named(REGION_PREFIX), outermost)
        steps = launches.innermost(columns, columns.named(STEP_PREFIX), outermost)
        # A compiled region is an operator in a trace; a step is none.
        operators_of_all = columns.of_category("cpu_op") & ~columns.named(STEP_PREFIX)
        nested = set(outermost.tolist()) - set(launches.outermost(columns, operators_of_all).tolist())
        groups: dict[tuple[int, str], list[int]] = defaultdict(list)
        for index, region, step in zip(outermost.tolist(), regions.tolist(), steps.tolist(), strict=True):
            within = region if region != NOBODY else step
            if within != NOBODY and not (region == NOBODY and index in nested):
                groups[within, columns.names[columns.name[index]]].append(index)
        found: dict[int, Known] = {}
        for (within, operator), calls in groups.items():
            known = self._called.get((_compile_id(columns, within), operator), [])
            if len(known) == len(calls):
                in_order = sorted(calls, key=lambda i: int(columns.start_ns[i]))
                found.update((call, replace(one, call=call)) for call, one in zip(in_order, known, strict=True))
        return found


def operator_of(kernel: str) -> str:
    """``aten::addmm`` for ``extern_kernels.addmm`` or ``torch.ops.aten.addmm.out``; empty for a generated kernel."""
    found = _CALLED.match(kernel)
    if found is None:
        return ""
    return f"aten::{found['aten']}" if found["aten"] else str(found["other"]).replace(".", "::")


def _compile_id(columns: Columns, within: int) -> str:
    """Empty for what is in no compiled region, and for a step."""
    name = "" if within == NOBODY else columns.names[columns.name[within]]
    return name.removeprefix(REGION_PREFIX) if name.startswith(REGION_PREFIX) else ""


def merged(lines: Sequence[Lines]) -> Lines:
    """Each line once, in the order in which they come."""
    return tuple(dict.fromkeys(line for some in lines for line in some))
