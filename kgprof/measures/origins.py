"""From a kernel in a trace back to the lines whose operations it computes.

A kernel that Inductor generated has its name in the trace. A library call
(``extern_kernels.addmm``) has not: the trace shows the operator ``aten::addmm``, or the library's
own kernel launched inside it; so the calls of each operator in one run of a compiled region are
matched with Inductor's calls of it by their order, and only where there are as many of the one as
of the other. Whatever is replayed by a CUDA graph has no operators, and is found by its name or not
at all.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from kgprof import model as m
from kgprof.measures.collectives import BACKWARD, GENERATED_CODE_PREFIX, REGION_PREFIX
from kgprof.reading import launches, timeline
from kgprof.reading.kineto import NONE, Columns
from kgprof.reading.launches import Indices, Mask
from kgprof.reading.timeline import NOBODY, STEP_PREFIX

Lines = tuple[m.SourceLine, ...]


class Known(m.Model, kw_only=False):
    """What Inductor said about one device event, or one operator on a CPU."""

    lines: Lines = ()
    # of one call; more than one where calls of one name are not told apart
    work: tuple[m.KernelWork, ...] = ()
    call: int = NOBODY  # of a library, which may launch several kernels: an index into the columns


_UNKNOWN = Known()

_GRAPH_PREFIX = re.compile(r"graph_\d+_(?=cpp_)")  # of C++ kernels, in a trace only
_DISPATCHED = "torch.ops."
_CALLED = re.compile(
    r"(?:extern_kernels|(?:torch\.ops\.)?aten)\.(?P<aten>\w+)|torch\.ops\.(?P<other>\w+\.\w+)"
)
CASTS = ("aten::to", "aten::_to_copy")
# see m.GRADIENTS_ADDED
ENGINE = "autograd::engine::evaluate_function"
ADDS = ("aten::add", "aten::add_")
DIFFERENTIATED = "CompiledFunction"  # AOTAutograd's name for a graph that is differentiated

# Inductor's key of it, or its compile id (empty for eager code); whether it is the backward, None:
# either. DDP splits what one compile id stands for into a graph per bucket, which only their keys
# tell apart.
Graph = tuple[str, bool | None]
_EAGER: Graph = ("", None)


class Origins:
    """What is known about the kernels of one run, to be asked about the events of its traces."""

    def __init__(self, origins: Iterable[m.KernelOrigin]) -> None:
        generated: dict[tuple[Graph, str], list[Known]] = defaultdict(list)
        called: dict[tuple[Graph, str], list[Known]] = defaultdict(list)
        # In older Recordings: of eager code what Python called, and not what torch dispatched.
        self._by_python: set[str] = set()
        self._of_graph: dict[Graph, Lines] = {}
        self._keys = {origin.graph for origin in origins} - {""}
        for origin, backward in _with_direction(tuple(origins)):
            known = Known(origin.lines)
            if origin.work is not None:
                known = Known(origin.lines, (origin.work,))
            operator = operator_of(origin.kernel)
            calls = called
            if not operator:
                calls = generated
            graphs: set[Graph] = {(origin.compile_id, None), (origin.compile_id, backward)}
            if origin.graph:
                graphs.add((origin.graph, None))
            for graph in graphs:
                calls[graph, operator or origin.kernel].append(known)
                self._of_graph[graph] = merged([self._of_graph.get(graph, ()), origin.lines])
            if not origin.compile_id and not origin.kernel.startswith(_DISPATCHED):
                self._by_python.add(operator)
        self._generated: dict[tuple[Graph, str], Known] = {}
        # the lines of one are those of all its calls
        for (graph, kernel), alike in generated.items():
            lines = merged([call.lines for call in alike])
            work = dict.fromkeys(work for call in alike for work in call.work)
            self._generated[graph, kernel] = Known(lines, tuple(work))
        self._called = dict(called)

    def of(self, columns: Columns, events: Indices, asked_by: Indices) -> list[Known] | None:
        """What is known of each of ``events``; its lines are empty where nothing is. None where
        nothing was recorded.

        ``asked_by``: on a GPU the host's call that launched the event (NOBODY where there is none),
        on a CPU the event itself.
        """
        if not self._generated and not self._called:
            return None
        calls = self._library_calls(columns)
        top = np.zeros(len(columns), np.bool_)
        top[list(calls)] = True
        call = launches.innermost(columns, top, asked_by).tolist()
        graphs = _graphs(columns, asked_by, self._keys)[1]
        names = [
            _GRAPH_PREFIX.sub("", columns.names[name]) for name in columns.name[events].tolist()
        ]
        found = [
            self._generated.get((graph, name))
            or self._generated.get(((graph[0], None), name))
            or calls.get(within)
            for name, graph, within in zip(names, graphs, call, strict=True)
        ]
        if events is not asked_by:
            return [known or _UNKNOWN for known in found]
        # On a CPU an operator that only holds others (a node of autograd, a composite one) has the
        # lines of the first of them; what torch does to enter a compiled graph, and C++ kernels
        # without a name, those of the graph.
        threads, starts, ends = (
            each.tolist() for each in (columns.thread, columns.start_ns, columns.end_ns)
        )
        places = sorted((threads[index], starts[index], index) for index in calls)
        for at, event in enumerate(events.tolist()):
            if found[at] is None and "::" not in names[at] and graphs[at] != _EAGER:
                found[at] = Known(self._of_graph.get(graphs[at], ()))
            elif found[at] is None:
                first = bisect_left(places, (threads[event], starts[event], NOBODY))
                if first < len(places) and places[first] < (threads[event], ends[event], NOBODY):
                    found[at] = Known(calls[places[first][2]].lines)
        return [known or _UNKNOWN for known in found]

    def _library_calls(self, columns: Columns) -> dict[int, Known]:
        """Operators that the generated code called, and those of eager code, as indices into
        ``columns``."""
        operators = {operator for _, operator in self._called}
        adds = {name for name in ADDS if m.GRADIENTS_ADDED in operators}
        operators |= adds
        wanted = columns.called(*operators)
        wanted &= columns.of_category("cpu_op")
        wanted[_entered_by_autocast(columns, wanted)] = False
        # An operator may call itself under another overload.
        outermost = launches.outermost(columns, wanted)
        spans, graphs = _graphs(columns, outermost, self._keys)
        # By time: a backward runs on another thread than the one that takes the steps.
        marks = timeline.step_events(columns)
        steps = timeline.owners(timeline.intervals_of(columns, marks)).at(
            columns.start_ns[outermost]
        )
        # A compiled region is an operator in a trace; a step is none.
        operators_of_all = columns.of_category("cpu_op") & ~columns.named(STEP_PREFIX)
        alone = set(launches.outermost(columns, operators_of_all).tolist())
        added = columns.called(*adds)
        around = launches.innermost(columns, operators_of_all & ~added, outermost).tolist()
        groups: dict[tuple[int, Graph, str], list[int]] = defaultdict(list)
        for index, span, graph, step, within in zip(
            outermost.tolist(), spans, graphs, steps.tolist(), around, strict=True
        ):
            operator = columns.name_of(index)
            if added[index] and within != NOBODY and columns.name_of(within).startswith(ENGINE):
                operator = m.GRADIENTS_ADDED
            if graph != _EAGER and ((graph[0], None), operator) in self._called:
                groups[span, graph, operator].append(index)
            # What stands in a region and not in its generated code is what a broken frame calls
            # between two graphs.
            elif step != NOBODY and (
                operator not in self._by_python or (graph == _EAGER and index in alone)
            ):
                groups[int(marks[step]), _EAGER, operator].append(index)
        found: dict[int, Known] = {}
        uncounted: list[int] = []
        for (_, graph, operator), calls in groups.items():
            for of in (graph, (graph[0], None)):
                known = self._called.get((of, operator), [])
                if graph == _EAGER and len(known) == 1 and operator not in self._by_python:
                    known = known * len(calls)  # always from the same lines, however often
                if len(known) == len(calls):
                    in_order = sorted(calls, key=columns.start_ns.__getitem__)
                    found.update(
                        (call, replace(one, call=call))
                        for call, one in zip(in_order, known, strict=True)
                    )
                    break
            else:
                if graph == _EAGER and operator not in self._by_python:
                    uncounted += calls
        lines = _of_neighbours(columns, found, np.array(uncounted, np.intp))
        return found | {
            call: Known(lines=at, call=call)
            for call, at in zip(uncounted, lines, strict=True)
            if at
        }


def _entered_by_autocast(columns: Columns, wanted: Mask) -> list[int]:
    """Of ``wanted`` those around one of their own name, with casts before it: autocast makes them
    above the place at which operators are recorded, where the casts and the inner operator come one
    by one."""
    casting = columns.called(*CASTS)
    casts = np.flatnonzero(casting & columns.of_category("cpu_op"))
    outer = launches.innermost(columns, wanted & ~casting, casts)
    inside: dict[tuple[int, int], list[int]] = defaultdict(list)
    in_order = np.flatnonzero(wanted)
    in_order = in_order[np.argsort(columns.start_ns[in_order], kind="stable")]
    for index in in_order.tolist():
        inside[int(columns.thread[index]), int(columns.name[index])].append(index)
    entered = []
    for cast, around in zip(casts.tolist(), outer.tolist(), strict=True):
        if around == NOBODY:
            continue
        alike = inside[int(columns.thread[around]), int(columns.name[around])]
        after = bisect_left(alike, columns.end_ns[cast], key=columns.start_ns.__getitem__)
        if after < len(alike) and columns.end_ns[alike[after]] <= columns.end_ns[around]:
            entered.append(around)
    return entered


def _of_neighbours(columns: Columns, found: Mapping[int, Known], calls: Indices) -> list[Lines]:
    """The lines of calls that were not counted alike: what one operator of the program calls is of
    one line, and so is the backward of all of it, which autograd numbers as the forward."""
    named = np.array(["::" in name for name in columns.names], np.bool_)[columns.name]
    top = np.zeros(len(columns), np.bool_)
    top[launches.outermost(columns, named & columns.of_category("cpu_op"))] = True
    within: dict[int, Lines] = {}
    matched = np.array(list(found), np.intp)
    for call, around in zip(
        matched.tolist(), launches.innermost(columns, top, matched).tolist(), strict=True
    ):
        within.setdefault(around, found[call].lines)
    numbered = np.flatnonzero(columns.of_category("cpu_op") & (columns.sequence != NONE))
    numbered = numbered[np.argsort(columns.start_ns[numbered], kind="stable")]
    of_node: dict[int, int] = {}  # the last operator that begins with a number makes the node
    for event, around in zip(
        numbered.tolist(), launches.innermost(columns, top, numbered).tolist(), strict=True
    ):
        if around != NOBODY and not columns.name_of(around).startswith(ENGINE):
            of_node[int(columns.sequence[event])] = around
    lines: list[Lines] = []
    for around in launches.innermost(columns, top, calls).tolist():
        own: Lines = ()
        if around != NOBODY:
            own = within.get(around, ())
            if columns.name_of(around).startswith(ENGINE):
                forward = of_node.get(int(columns.sequence[around]), NOBODY)
                own = within.get(forward) or own
        lines.append(own)
    return lines


def _with_direction(
    origins: Sequence[m.KernelOrigin],
) -> Iterator[tuple[m.KernelOrigin, bool | None]]:
    """Each, and whether it is of a backward: the last graph of a compilation that made more than
    one. Inductor numbers the calls of each graph from 1 on. Eager code has one order for both."""
    graphs: dict[str, list[dict[int, m.KernelOrigin]]] = defaultdict(list)
    for origin in origins:
        of_compilation = graphs[origin.compile_id]
        if not of_compilation or origin.number in of_compilation[-1]:
            of_compilation.append({})
        of_compilation[-1][origin.number] = origin
    for compile_id, of_compilation in graphs.items():
        for graph in of_compilation:
            backward = None
            if compile_id:
                backward = len(of_compilation) > 1 and graph is of_compilation[-1]
            for _, origin in sorted(graph.items()):
                yield origin, backward


def operator_of(kernel: str) -> str:
    """``aten::addmm`` for ``extern_kernels.addmm`` or ``torch.ops.aten.addmm.out``; empty for a
    generated kernel."""
    found = _CALLED.match(kernel)
    if found is None:
        return ""
    if found["aten"]:
        return f"aten::{found['aten']}"
    return str(found["other"]).replace(".", "::")


def _graphs(
    columns: Columns, events: Indices, keys: Collection[str]
) -> tuple[list[int], list[Graph]]:
    """The call of a compiled graph that each of ``events`` is in (NOBODY), and which graph that
    is."""
    key_of = [
        name.removeprefix(GENERATED_CODE_PREFIX).removesuffix(" ##") for name in columns.names
    ]
    keyed = np.array([key in keys for key in key_of], np.bool_)[columns.name]
    names = columns.called(DIFFERENTIATED, BACKWARD)
    backward = columns.called(BACKWARD)
    region = columns.named(REGION_PREFIX)
    forward = np.flatnonzero(names & ~backward & (columns.sequence != NONE))
    inside = launches.innermost(columns, region, forward).tolist()
    # By the number that autograd gives a node, which both have.
    regions = dict(zip(columns.sequence[forward].tolist(), inside, strict=True))
    spans = launches.innermost(columns, region | backward | keyed, events).tolist()
    graphs: list[Graph] = []
    for span in spans:
        if span != NOBODY and keyed[span]:
            graphs.append((key_of[columns.name[span]], None))
            continue
        of = span
        if span != NOBODY and backward[span]:
            of = regions.get(int(columns.sequence[span]), NOBODY)
        name = ""
        if of != NOBODY:
            name = columns.name_of(of).removeprefix(REGION_PREFIX)
        graph = _EAGER
        if name:
            graph = name, bool(backward[span])
        graphs.append(graph)
    return spans, graphs


def merged(lines: Sequence[Lines]) -> Lines:
    """Each line once, in the order in which they come."""
    return tuple(dict.fromkeys(line for some in lines for line in some))
