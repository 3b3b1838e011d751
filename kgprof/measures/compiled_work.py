"""What a run's compiled code consists of, to be compared exactly with another run's: no clock is
asked, and no name of the program's is looked at.

    Dynamo's graphs      -> operators, in the graphs' order  -> the line of the program
    Inductor's code      -> calls of kernels and libraries   -> the lines that they compute
    torch's guards       -> those on values                  -> the line that asked for the value
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from kgprof import model as m
from kgprof.reading import compiled_text
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.structured_trace import RunTrace

CHARACTERS = 4 * 2**20  # of graphs and code that are read
MOST_GUARDED = 100  # compilations whose guards a Recording holds
MOST = 20_000  # operators, calls or guards of a run
NO_TEXTS = m.Skipped(
    "this Recording holds no graphs: it is an earlier kgprof's, or nothing was compiled"
)
_OBJECT = re.compile(r"\b\d{9,}\b")  # an address, which is another one in each process


_Items = dict[m.WorkItem, int]  # each once, by its text and its lines, with its place


def _place(items: _Items, text: str, lines: Iterable[m.Location]) -> int:
    return items.setdefault(m.WorkItem(text, tuple(lines)), len(items))


@m.skippable
def compiled_work(run: RunEvidence) -> m.CompiledWork | m.Skipped:
    """Skipped without the texts of what was compiled, or where they were cut."""
    trace = run.compiler
    if trace is None:
        return m.Skipped("COMPILE did not come to its end")
    compiled = m.known(run.record.compile)
    texts = trace.all.texts
    eager = _eager(run.record.kernel_origins)
    made = any(frame.compile_id for frame in trace.all.frames)
    if not texts and (made or isinstance(eager, m.Skipped)):
        return NO_TEXTS
    cut = sum(bool(each.cut) for each in texts)
    if cut:
        return m.Skipped(f"{cut} of {len(texts)} texts of what was compiled are cut")
    size = sum(len(each.text) for each in texts)
    if size > CHARACTERS:
        return m.Skipped(
            f"the graphs and their code have {size:,} characters; {CHARACTERS:,} are read"
        )
    items: _Items = {}
    runs = _runs_per_step(trace)
    graphs: list[str] = []
    operators: list[int] = []
    for each in texts:
        if each.what == m.GRAPH:
            read, digest = m.known(compiled_text.graph(each.text))
            operators += (_operator(one, items, run) for one in read)
            graphs.append(digest)
    calls = _calls(run, texts, items)
    works = calls if isinstance(calls, m.Skipped) else run.record.kernel_origins
    guards = _guards(trace, items)
    sizes = [operators] + [each for each in (calls, guards) if isinstance(each, tuple)]
    if max(map(len, sizes)) > MOST:
        return m.Skipped(f"more than {MOST:,} operators, calls or guards")
    return m.CompiledWork(
        graphs=tuple(graphs),
        items=tuple(items),
        operators=tuple(operators),
        calls=calls,
        guards=guards,
        allocated_bytes=_allocated_bytes(works),
        calls_per_step=_per_step(works, runs, lambda graph: graph.kernels),
        bytes_per_step=_per_step(works, runs, _moved_bytes),
        flops_per_step=_flops(works, runs),
        eager=eager,
        passes={name: f"{times:,}" for name, times in compiled.inductor.items()},
    )


def _operator(one: compiled_text.Operator, items: _Items, run: RunEvidence) -> int:
    text, line = one
    lines = []
    if line is not None:
        lines = [run.source.at(line.file, line.line, line.function)]
    return _place(items, text, lines)


@m.skippable
def _calls(
    run: RunEvidence, texts: Sequence[m.CompiledText], items: _Items
) -> tuple[int, ...] | m.Skipped:
    """Of all generated code; its lines come from what Inductor said of the same call."""
    codes = [each for each in texts if each.what == m.CODE]
    if texts and not codes:
        return m.Skipped("no code was generated")
    origins: dict[tuple[str, str], list[m.KernelOrigin]] = defaultdict(list)
    if isinstance(run.record.kernel_origins, m.KernelOrigins):
        for origin in run.record.kernel_origins.origins:
            origins[origin.compile_id, origin.kernel].append(origin)
    found: list[int] = []
    for code in codes:
        for function, text in m.known(compiled_text.calls(code.text)):
            known = origins[code.compile_id, function]
            lines: tuple[m.SourceLine, ...] = ()
            if known:
                lines = known.pop(0).lines
            places = [run.source.at(line.file, line.line, line.function) for line in lines]
            found.append(_place(items, text, places))
    return tuple(found)


def _guards(trace: RunTrace, items: _Items) -> tuple[int, ...] | m.Skipped:
    told = trace.all.guards
    if not told and trace.all.texts:
        return m.Skipped("this Recording holds no guards")
    for each in told:
        if each.missing:
            return m.Skipped(f"torch's guards could not be read: {each.missing}")
    if len(told) > MOST_GUARDED or any(each.left_out for each in told):
        return m.Skipped("there are more guards than a Recording holds")
    return tuple(_guard(text, trace, items) for each in told for text in each.values)


def _guard(text: str, trace: RunTrace, items: _Items) -> int:
    """ "EQUALS_MATCH: L['self'].scale == 2  # y = x * self.scale  # app/model.py:11 in forward" """
    code, comment = compiled_text.without_comment(text)
    lines = []
    if used := compiled_text.used_at(comment):
        whole = (own for own in trace.source.own if own.endswith(f"/{used.file}"))
        file = next(whole, used.file)
        line = trace.source.at(file, used.line, used.function)
        lines = [replace(line, text=used.text)]
    return _place(items, _OBJECT.sub("_", code), lines)


# ---------------------------------------------------------------- of a step


@m.skippable
def _runs_per_step(trace: RunTrace) -> Mapping[str, float]:
    """By compile id: how often the graph ran in a call after warm-up."""
    steps = trace.calls - trace.steady_from
    numbers = [each.compile_id for each in trace.all.graphs]
    if steps < 1:
        m.known(m.Skipped("no step came after warm-up"))
    if len(set(numbers)) < len(numbers):
        m.known(m.Skipped("two graphs have one number, as after torch._dynamo.reset()"))
    return {
        each.compile_id: sum(
            times for call, times in each.runs.items() if call >= trace.steady_from
        )
        / steps
        for each in trace.all.graphs
    }


_Runs = Mapping[str, float] | m.Skipped


@m.skippable
def _per_step(
    origins: m.KernelOrigins | m.Skipped, runs: _Runs, of: Callable[[m.GraphWork], int]
) -> m.Figure:
    """A backward is taken to run as often as its forward."""
    graphs = m.known(m.known(origins).graphs)
    return sum(of(graph) * _runs_of(graph.compile_id, runs) for graph in graphs)


def _runs_of(compile_id: str, runs: _Runs) -> float:
    number = m.known(runs).get(compile_id)
    if number is None:
        return m.known(m.Skipped("the runs of a graph were not counted"))
    return number


def _moved_bytes(graph: m.GraphWork) -> int:
    if graph.unknown:
        m.known(m.Skipped("what some calls move is not known"))
    return graph.moved_bytes


@m.skippable
def _flops(origins: m.KernelOrigins | m.Skipped, runs: _Runs) -> m.Figure:
    """Of what Inductor counts: matrix products, convolutions and attention."""
    known = m.known(origins)
    if known.left_out:
        return m.Skipped("the Recording holds a part of the calls")
    counted = [each for each in known.origins if each.work and each.work.flops and each.compile_id]
    return sum(
        (each.work.flops or 0) * _runs_of(each.compile_id, runs) for each in counted if each.work
    )


@m.skippable
def _allocated_bytes(origins: m.KernelOrigins | m.Skipped) -> m.Figure:
    graphs = m.known(m.known(origins).graphs)
    return float(sum(m.known(graph.buffers).allocated_bytes for graph in graphs))


@m.skippable
def _eager(origins: m.KernelOrigins | m.Skipped) -> tuple[tuple[str, float], ...] | m.Skipped:
    return m.known(origins).eager
