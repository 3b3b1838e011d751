"""What torch logs of CUDA graphs: the graphs that it skipped, cut into partitions, and recorded.

    m.LogLine of COMPILE ──► skips ──────► Skip            KGP301
                         ──► partitions ─► Partitioning    KGP302
                         ──► recordings ─► Recorded        KGP304

Messages are told apart by the function of torch's that logged them (the same in 2.11 and 2.13),
their text is kept as it stands.
"""

import re
from collections.abc import Iterable, Iterator

from kgprof import model as m
from kgprof.collectors.compile.compilations_by_function import place_of
from kgprof.collectors.fingerprint import line_of
from kgprof.collectors.graphs.graph_sizes import inputs
from kgprof.collectors.tensors.aliases import quoted_line
from kgprof.collectors.tensors.tensor_facts import last_name, said
from kgprof.reading.structured_trace import RunTrace, compile_id

# Functions of torch._inductor that log, and what their messages are about.
_SKIP = "log_cudagraph_skip_and_bump_counter"
_PARTITIONS = "_log_graph_partitions"
_NODE = "_log_non_cudagraphable_node"
_RECORD = "record_function"
# in the reason for an operator that cannot stand in a CUDA graph
_ON_CPU = re.compile(r"(?i)cpu|DeviceCopy")
_COUNTS = re.compile(
    r"Created (\d+) graph partitions: (\d+) cudagraphable, (\d+) non-cudagraphable"
)
_NODE_REASON = re.compile(r"\S+: reason=(?P<reason>.*?)(?:, ir=.*)?")
_COMPILE_ID = re.compile(r"\[(?P<id>[^\]\s]+)\] ")
_FUNCTION = re.compile(r"function=(?P<function>[^,=]+),")
_AGAIN = re.compile(r" reason=(?P<reason>.+)", re.S)


class Skip(m.Model, kw_only=False):
    compile_id: str  # empty for a skip that torch decides on when the graph runs
    location: m.Location | None  # the project's line that torch names, else the def
    reason: str  # torch's first line
    text: str


class Partitioning(m.Model, kw_only=False):
    """How one compilation was cut into pieces; all of them may be fit for CUDA graphs."""

    compile_id: str
    graphed: int
    not_graphed: int
    reasons: tuple[str, ...]  # torch's words for each operator that cannot stand in one
    location: m.Location | None
    # tensors on the CPU that the graph takes, as the program names them
    cpu_inputs: tuple[str, ...] = ()
    related: tuple[m.Location, ...] = ()  # the def, or the lines that bind those tensors


class Recorded(m.Model, kw_only=False):
    """One recording of one CUDA graph."""

    compile_id: str
    call: int
    again: str  # why it was recorded again, in torch's words; empty for a first one
    location: m.Location | None
    function: str = ""  # one a piece of the graph: "partition_0"
    inputs: tuple[tuple[int, ...], ...] = ()  # their sizes
    # the call in which it was compiled: a reset gives out the same ids again
    compiled_in: int = 0


def definition(trace: RunTrace, name: str, call: int) -> m.Location | None:
    """The place of the compilation with this id that a message of this call belongs to."""
    compiled = trace.compilation(name, call)
    if compiled is None:
        return None
    return place_of(trace, compiled)


def skips(trace: RunTrace) -> Iterator[Skip]:
    """torch says it once a function; the same line twice is one skip."""
    seen: set[object] = set()
    for message in trace.all.logs:
        if message.function != _SKIP:
            continue
        name = message.compile_id
        text = message.text
        place = quoted_line(trace.source, text) or definition(trace, name, message.call)
        first_line = text.partition("\n")[0].strip()
        reason = first_line.removesuffix("Found from :").strip(" .")
        key = (line_of(place, name), reason)
        if key not in seen:
            seen.add(key)
            yield Skip(name, place, reason, text)


def partitions(trace: RunTrace) -> Iterator[Partitioning]:
    """A line with the counts, then a few lines for each operator that cannot stand in a CUDA
    graph."""
    head: m.LogLine | None = None
    texts: list[str] = []
    for message in trace.all.logs:
        begins = message.function == _PARTITIONS and _COUNTS.search(message.text)
        if begins:
            if head is not None:
                yield _partitioning(trace, head, texts)
            head = message
            texts = []
        elif message.function in (_PARTITIONS, _NODE):
            texts.append(message.text)
    if head is not None:
        yield _partitioning(trace, head, texts)


def _partitioning(trace: RunTrace, head: m.LogLine, texts: list[str]) -> Partitioning:
    """``texts``: of the messages that follow ``head``."""
    counts = _COUNTS.search(head.text)
    assert counts is not None  # the group begins with it
    reasons = tuple(dict.fromkeys(_reasons(texts)))
    sources: tuple[str, ...] = ()
    if any(map(_ON_CPU.search, reasons)):
        sources = tuple(_cpu_inputs(trace, head.compile_id))
    bound = dict[m.Location, None]()
    for name in sources:
        bound |= dict.fromkeys(trace.source.bound(last_name(name)))
    related = tuple(bound)
    quoted = quoted_line(trace.source, "\n".join(texts))
    place = definition(trace, head.compile_id, head.call)
    if quoted is not None:
        place = quoted
    elif len(related) == 1:
        # The line that puts a tensor of the CPU where the graph finds it is the one to change.
        defined = place
        (place,) = related
        if defined is not None:
            related = (defined,)
    return Partitioning(
        head.compile_id,
        int(counts[2]),
        int(counts[3]),
        reasons,
        place,
        tuple(map(said, sources)),
        related,
    )


def _reasons(texts: Iterable[str]) -> Iterator[str]:
    """torch's words for each operator that cannot stand in a CUDA graph."""
    for text in texts:
        operator = _NODE_REASON.fullmatch(text.strip())
        if operator:
            yield operator["reason"]


def _cpu_inputs(trace: RunTrace, name: str) -> Iterator[str]:
    """Dynamo's sources of the tensors on the CPU that it met in a compilation."""
    on_cpu: set[tuple[object, object]] = set()
    for record in trace.all.records:
        metadata = record.metadata
        if compile_id(metadata) != name:
            continue
        tensor = metadata.get("describe_tensor")
        source = metadata.get("describe_source")
        if isinstance(tensor, dict) and "cpu" in str(tensor.get("device")):
            on_cpu.add((tensor.get("describer_id"), tensor.get("id")))
        if isinstance(source, dict) and (source.get("describer_id"), source.get("id")) in on_cpu:
            yield str(source.get("source"))


def recordings(trace: RunTrace) -> Iterator[Recorded]:
    """The reason for a recording that is not the first stands in a message before it, in the same
    call."""
    why = ""
    why_call = -1
    for message in trace.all.logs:
        text = message.text
        call = message.call
        if message.function == _RECORD:
            again = ""
            if why_call == call:
                again = why
            yield _recorded(trace, message, again)
        elif message.function != _NODE and (reason := _AGAIN.search(text)):
            why = reason["reason"].strip()
            why_call = call


def _recorded(trace: RunTrace, message: m.LogLine, again: str) -> Recorded:
    number = message.compile_id
    text = message.text
    if named := _COMPILE_ID.match(text):
        number = named["id"]
    function = ""
    if piece := _FUNCTION.search(text):
        function = piece["function"]
    location = None
    compiled_in = 0
    if compiled := trace.compilation(number, message.call):
        location = place_of(trace, compiled)
        compiled_in = compiled.call
    return Recorded(number, message.call, again, location, function, inputs(text), compiled_in)
