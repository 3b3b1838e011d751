"""Who reads a tensor's value on the host, and from which line.

    hook (sync_hooks) ──Syncs.sees(Read)──► the _Site of Python's stack ──► SyncRecord, counted
                      ──Syncs.took────────► how long the host waited
    compiled graph begins (running_graphs) ──► a SyncRecord for each copy that it captured
    Syncs.records ──► SyncRecords

Three hooks, because each misses something (measured on an H200): a kernel under ``BackendSelect``
sees every read that goes through the dispatcher, also from inside a C++ operator or a compiled
graph, but not ``.cpu()`` or a blocking copy; torch's sync-debug mode sees those and names generated
files; and explicit waits (``torch.cuda.synchronize``, events, streams) are calls of Python's that
neither sees. On a CPU ``.cpu()``, ``.numpy()``, ``.tolist()`` and ``.to("cpu")`` dispatch nothing
at all, so they are watched as calls too.

The hooks change no value. What reads inside a compiled graph is named by the operator that Dynamo
captured.
"""

import sys
import sysconfig
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice, takewhile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from msgspec.structs import replace as replaced

import kgprof
from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground.python_stack import (
    IN_TORCH,
    TORCH,
    Frames,
    Stack,
    described,
    expression_at,
    instruction_at,
    line_at,
    upwards,
)
from kgprof.record.ground.source import Source, aside
from kgprof.record.listeners import eager_calls, running_graphs, sync_hooks, tensor_places
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.running_graphs import FILLED, NAME, Graph, RunningGraphs
from kgprof.record.listeners.sync_hooks import (
    ALL_HOOKS,
    PLACES_HOOKS,
    SYNC_DEBUG_HOOKS,
    TENSORS,
    WAITS,
    Read,
    deaf_to_sync_debug,
)
from kgprof.record.listeners.tensor_places import DEVICE, HOST, LOADERS, UNKNOWN

# steps of a script in which tensors are followed, from the last one with a read of a new kind
FOLLOWED = 64
# or these, if they took so much CPU time: following a step of thousands of operators costs as much
# again as the step
FEWEST_FOLLOWED = 16
ENOUGH_CPU_S = 0.4
UNFOLLOWED = "unfollowed"  # in place of where a tensor lies; UNKNOWN in the records
PLACES = 4096
CODES = 65536  # of Python's stacks
STACK = 8  # frames of the project above a read
STANDARD = sysconfig.get_path("stdlib")
OPTIMIZERS = f"{TORCH}/optim/"  # their step count lies on the CPU wherever the parameters are
# how many sequences a PackedSequence has at each place lies on the CPU, too
PACKED = (f"{TORCH}/nn/modules/rnn.py", f"{TORCH}/nn/utils/rnn.py")
LBFGS = f"{OPTIMIZERS}lbfgs.py"  # has none, and reads losses and directions
# Dynamo's call behind a graph that makes an array of its result, in a line of its own making.
TO_NUMPY = "to_numpy_helper"
# A hook and the line that reads.
BETWEEN = (
    __file__,
    sync_hooks.__file__,
    running_graphs.__file__,
    tensor_places.__file__,
    eager_calls.__file__,
    warnings.__file__,
    f"{TORCH}/_dynamo",
    f"{TORCH}/_ops.py",
    f"{TORCH}/_compile.py",
)
RECORD = str(Path(kgprof.__file__).resolve().parent / "record")
# Derivatives that read on the CPU alone (measured on an H200): on a GPU they select by a mask.
ON_A_CPU_ALONE = frozenset(
    {"MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0"}
)
CHAIN = 12  # lines of libraries between the project's line and a read
# torch's way to an operator, which is no place where anything is decided.
PLUMBING = tuple(
    f"{TORCH}/{file}"
    for file in (
        "_tensor.py",
        "_tensor_str.py",
        "functional.py",
        "_jit_internal.py",
        "overrides.py",
        "nn/modules/module.py",
        "utils/_contextlib.py",
        "utils/_device.py",
        "autograd",
        "_higher_order_ops",
        "_inductor",
    )
)
# but where a module moves its parameters, as a tensor's method of the same name moves one
MODULE = f"{TORCH}/nn/modules/module.py"
MOVES = ("<lambda>", "convert")
# Where torch waits for what is its own: it warms up and records a CUDA graph, or tries kernels.
CUDA_GRAPHS = (f"{TORCH}/_inductor/cudagraph", f"{TORCH}/cuda/graphs.py")
INDUCTOR = f"{TORCH}/_inductor"
FAKE_TENSORS = f"{TORCH}/_subclasses/"  # while Dynamo traces, of a number that became a tensor
TRITON = f"{Path(TORCH).parent}/triton/"


@dataclass(slots=True)
class _Site:
    """Reads outside of compiled graphs for which Python's stack stands at the same instructions."""

    loads: bool = False
    is_no_read: bool = False
    places: dict[str, m.SyncRecord] = field(default_factory=dict)  # by where the tensor lies
    decided: m.SyncRecord | None = None  # of all reads from now on

    def add(self, lies: str, seen: m.SyncRecord) -> None:
        """What was read while nobody followed tensors was like this."""
        self.places[lies] = seen
        if lies != UNFOLLOWED and (before := self.places.pop(UNFOLLOWED, None)) is not None:
            seen.calls.update(before.calls)
            before.calls.clear()


class Syncs(Source):
    """Source. One SyncRecord for each place, source and operator."""

    name = NAME
    parts = (tensor_places.__name__, running_graphs.__name__, sync_hooks.__name__)

    def __init__(self, calls: CallIndex, device: torch.device, project: ProjectFiles) -> None:
        self._calls = calls
        self._device = device
        self._places: dict[object, m.SyncRecord] = {}  # whose counts grow
        self._sites: dict[object, _Site] = {}
        # and whether it is between a hook and the line that reads
        self._codes: dict[int, tuple[CodeType, bool]] = {}
        self._steps_alike = 0  # since a read was the first of its kind
        self._alike_since_s = 0.0  # CPU time
        # the call from which on tensors were not followed, but for new reads
        self.followed_until: int | None = None
        self._left_out = 0
        self._listens = self._names_a_device = False
        self._graphs = RunningGraphs(self._graph_begins)
        self._holds = cache(project.holds)

    def records(self) -> m.SyncRecords:
        return m.SyncRecords(
            records=tuple(_so_far(place) for place in self._places.values() if place.calls),
            left_out=self._left_out,
            names_a_device=self._names_a_device or (self._listens and TENSORS.names_a_device),
        )

    def listen(self, undo: ExitStack) -> None:
        undo.enter_context(self._graphs)
        self.unavailable = self._graphs.unavailable
        for hooks in ALL_HOOKS:
            if hooks.on in ("", self._device.type):
                undo.callback(hooks.leave, self)
                lacking = hooks.join(self)
                self.unavailable = "; ".join(filter(None, (self.unavailable, lacking)))
        self._listens = True
        undo.callback(self._stops)

    def _stops(self) -> None:
        """Before the hooks that know it are taken off."""
        self._listens = False
        self._names_a_device = TENSORS.names_a_device
        if self in SYNC_DEBUG_HOOKS.listening and not SYNC_DEBUG_HOOKS.lacking:
            self.lost = self.lost or deaf_to_sync_debug()

    @property
    def runs_a_graph(self) -> bool:
        return self._graphs.running is not None

    # ------------------------------------------------------------ what they see

    @aside
    def _graph_begins(self, graph: Graph) -> None:
        """Where a compiled graph copies to the CPU, nothing is called on a CPU, and on CUDA torch's
        warning does not reach Python from every backend; so each run counts for what was captured.
        """
        for operator, frames, device in graph.on_a_cpu:
            inside, chain = self._captured_at(frames)
            if inside:
                new = partial(
                    m.SyncRecord,
                    source="captured graph",
                    op=f"Tensor.{operator}",
                    device=device,
                    operator=operator,
                    compile_id=graph.compile_id,
                    frames=inside,
                    chain=chain,
                    calls=Counter(),
                )
                self._counted((graph.compile_id, operator, inside), new)

    def _captured_at(self, frames: Frames) -> tuple[Frames, Frames]:
        """The project's lines of an operator that Dynamo captured, and the libraries' between it
        and them."""
        inside = tuple(frame for frame in frames if self._holds(frame.file))
        if not inside:
            return (), ()
        between = takewhile(lambda frame: not self._holds(frame.file), frames)
        chain = (frame for frame in between if not frame.file.startswith(PLUMBING))
        return inside, tuple(islice(chain, CHAIN))

    @aside
    def took(self, seen: m.SyncRecord, began_ns: int) -> None:
        """Under the hook, whose own few microseconds are outside of it. A read of the CPU's waits
        for nothing."""
        if self._device.type == "cuda":
            waited_us = (time.perf_counter_ns() - began_ns) / 1e3
            seen.waited_us[self._calls.current] += waited_us

    @aside
    def sees(self, read: Read) -> m.SyncRecord | None:
        """Count a read. None where it is none that counts, or there is no room for its record."""
        graph = self._graphs.running
        hook = sys._getframe(3)
        derivative = ""  # the node of autograd's that reads
        if read.source == "dispatch" and self._device.type == "cpu":
            node = torch._C._current_autograd_node()
            if node is not None:
                derivative = node.name()
        site = _Site()  # of a read in a graph, which is kept nowhere
        lies = UNKNOWN
        if graph is None:
            site = self._site([*read[:3], derivative], hook)
            if site.is_no_read:
                return None
            seen = site.decided
            if seen is None:
                lies = self._place_of(read, loads=site.loads)
                if TENSORS.rest and lies == UNKNOWN:  # else its memory tells, as an array's does
                    lies = UNFOLLOWED
                seen = site.places.get(lies)
            if seen is not None:
                self._count(seen)
                return seen
        stack = tuple(upwards(hook))
        site.is_no_read = self._is_no_read(read, stack, graph, derivative)
        if site.is_no_read:
            return None
        seen = self._recorded(read, stack, graph, lies)
        if seen is not None and graph is None:
            site.add(lies, seen)
            self._steps_alike = 0
        return seen

    def _site(self, at: list[Any], hook: FrameType) -> _Site:
        """What a read is follows from where the stack stands without hooks, and from where its
        tensor lies."""
        for frame in upwards(hook):
            code = frame.f_code
            known = self._codes.get(id(code))
            if known is None:  # kept, so that its number stays its own
                if len(self._codes) >= CODES:
                    return _Site()
                known = self._codes[id(code)] = code, code.co_filename.startswith(BETWEEN)
            if not known[1]:
                at += (id(code), frame.f_lasti)
        key = tuple(at)
        site = self._sites.get(key)
        if site is None:
            site = _Site(_loads(hook))
            if len(self._sites) < PLACES:
                self._sites[key] = site
        return site

    @aside
    def step_begins(self) -> None:
        """Of a script. After FOLLOWED steps that read nothing new (FEWEST_FOLLOWED, if those took
        ENOUGH_CPU_S), each place of a read is taken to read what it has read so far, and tensors
        are not followed any more until there is a new place. All reads are counted."""
        if not self._steps_alike:
            self._alike_since_s = time.process_time()
        self._steps_alike += 1
        took_s = time.process_time() - self._alike_since_s
        fewest = FEWEST_FOLLOWED if took_s >= ENOUGH_CPU_S else FOLLOWED
        rests = self._steps_alike > fewest and len(PLACES_HOOKS.listening) == 1
        if rests and not TENSORS.rest:
            sites = [
                site
                for site in self._sites.values()
                if site.decided is None and site.places.keys() - {UNFOLLOWED}
            ]
            if any(len(site.places) > 1 for site in sites):
                self._steps_alike = 0
                return
            for site in sites:
                (site.decided,) = site.places.values()
            self.followed_until = self.followed_until or self._calls.current
        TENSORS.rests(rests)

    def _is_no_read(self, read: Read, stack: Stack, graph: Graph | None, derivative: str) -> bool:
        """Whether it counts for nobody. ``derivative``: the name of autograd's node that reads."""
        above = tuple(frame for frame in stack if not frame.f_code.co_filename.startswith(BETWEEN))
        if not above or not self._in_project(stack) or any(map(_is_a_guard, above[:8])):
            return True
        caller = above[0].f_code.co_filename
        # kgprof waits for the device as well, and torch's optimizers read their step count on the
        # host.
        if caller.startswith(RECORD):
            return True
        if read.device == "cpu" and caller != LBFGS and caller.startswith((OPTIMIZERS, *PACKED)):
            return True
        if graph is not None:
            # counted when the graph began, or no tensor of the program's
            counted = read.source == "python-call" and self._device.type == "cpu"
            if counted or id(read.tensor) in graph.numbers:
                return True
        reads_in_graph = graph is not None and read.op not in WAITS
        return derivative in ON_A_CPU_ALONE or _is_torchs_own(above, reads_in_graph=reads_in_graph)

    def _in_project(self, stack: Stack) -> Stack:
        held = (frame for frame in stack if self._holds(frame.f_code.co_filename))
        return tuple(islice(held, STACK))

    def _recorded(
        self, read: Read, stack: Stack, graph: Graph | None, lies: str
    ) -> m.SyncRecord | None:
        project = self._in_project(stack)
        nearest = project[0]
        operator = ""
        compile_id = ""
        captured: Frames = ()
        makes_an_array = graph is None and _makes_an_array(stack)
        if graph is not None:
            operator, captured, _ = graph.next_operator(read.source)
            if operator == FILLED:
                return None
            compile_id = graph.compile_id
        elif makes_an_array and read.tensor is not None:
            captured = self._graphs.returned_at(read.tensor)
        inside, chain = self._captured_at(captured)
        libraries: Stack = ()
        if graph is None and not inside:
            libraries = _libraries(stack, nearest)
        # By name: a code object's hash is that of its constants, and in Dynamo's bytecode a slice
        # may be one.
        where = tuple(
            (frame.f_code.co_filename, frame.f_code.co_qualname, line_at(frame))
            for frame in (*libraries, *project)
        )

        def new() -> m.SyncRecord:
            doing: dict[str, Any] = {}
            if not makes_an_array:
                doing |= _doing(nearest, "")
            if libraries:
                doing |= _doing(libraries[0], "library_")
            return m.SyncRecord(
                source=read.source,
                op=read.op,
                device=read.device,
                operator=operator,
                compile_id=compile_id,
                frames=inside or tuple(map(described, project)),
                chain=chain or tuple(map(_of_a_library, libraries)),
                tensor=lies,
                loads=_loads(nearest),
                text=read.text,
                calls=Counter(),
                waited_us=defaultdict(float),
                **doing,
            )

        key = (*read[:3], where, nearest.f_lasti, compile_id, operator, inside, lies)
        return self._counted(key, new)

    def _place_of(self, read: Read, *, loads: bool) -> str:
        """Where it would lie on a GPU's machine; a dataset, a sampler or a loader reads what lies
        on the host."""
        if read.tensor is None or self._device.type == "cuda":
            return UNKNOWN
        copies = read.op in ("Tensor.cpu", "Tensor.to")
        place = TENSORS.before_it_was_moved(read.tensor) if copies else TENSORS.of(read.tensor)
        if place == DEVICE:
            return UNKNOWN
        return HOST if loads else place

    def _counted(self, key: object, new: Callable[[], m.SyncRecord]) -> m.SyncRecord | None:
        seen = self._places.get(key)
        if seen is None:
            if len(self._places) >= PLACES:
                self._left_out += 1
                return None
            seen = self._places[key] = new()
        self._count(seen)
        return seen

    def _count(self, seen: m.SyncRecord) -> None:
        seen.calls[self._calls.current] += 1


def _is_torchs_own(above: Stack, *, reads_in_graph: bool) -> bool:
    """Or kgprof's: what torch waits for in order to record a CUDA graph, to try a kernel, or to
    begin and end a profile that kgprof asked for.

    What reads in compiled code stands below Inductor's wrapper too; what waits there does so only
    where Inductor tries kernels, by itself or through Triton.
    """
    files = [frame.f_code.co_filename for frame in above]
    by_torch = list(takewhile(lambda file: file.startswith((IN_TORCH, TRITON)), files))
    if reads_in_graph:
        return any(file.startswith(CUDA_GRAPHS) for file in by_torch)
    own = (INDUCTOR, FAKE_TENSORS, *CUDA_GRAPHS)
    beyond = files[len(by_torch) :]
    return any(file.startswith(RECORD) for file in beyond[:1]) or any(
        file.startswith(own) for file in by_torch
    )


def _libraries(stack: Stack, project: FrameType) -> Stack:
    """The libraries' frames between a read and the project's line, innermost first; of torch's and
    Python's own the innermost alone, which tells a module that moves from a tensor."""
    libraries: list[FrameType] = []
    for frame in takewhile(lambda frame: frame is not project, stack):
        file = frame.f_code.co_filename
        moves = file == MODULE and frame.f_code.co_name in MOVES
        if file.startswith(("<", RECORD, *BETWEEN, *PLUMBING)) and not moves:
            continue
        own = file.startswith(IN_TORCH) or (file.startswith(STANDARD) and "-packages" not in file)
        if not (libraries and own):
            libraries.append(frame)
    return tuple(libraries[:CHAIN])


def _of_a_library(frame: FrameType) -> m.Frame:
    """A comprehension's frame has the name of the function around it: it has none of its own."""
    named = described(frame)
    if named.function not in m.COMPREHENSIONS:
        return named
    parts = reversed(frame.f_code.co_qualname.split("."))
    around = next((part for part in parts if not part.startswith("<")), named.function)
    return replaced(named, function=around)


def _doing(frame: FrameType, whose: str) -> dict[str, Any]:
    return {
        f"{whose}instruction": instruction_at(frame),
        f"{whose}expression": expression_at(frame)[: m.EXPRESSION_KEPT],
    }


def _so_far(place: m.SyncRecord) -> m.SyncRecord:
    """A record whose counts grow no more."""
    tensor = place.tensor
    if tensor == UNFOLLOWED:
        tensor = UNKNOWN
    calls = dict(place.calls)
    return replaced(place, tensor=tensor, calls=calls, waited_us=dict(place.waited_us))


def _is_a_guard(frame: FrameType) -> bool:
    """Dynamo's guards read the scalars on the CPU that it looked at while it traced, and none on a
    GPU."""
    code = frame.f_code
    return (code.co_filename, code.co_name) == ("<string>", "guard")


def _loads(frame: FrameType) -> bool:
    """Whether a dataset, a sampler or a loader is on the stack."""
    return any(above.f_code.co_filename.startswith(LOADERS) for above in upwards(frame))


def _makes_an_array(stack: Stack) -> bool:
    """Whether the call that reads is Dynamo's own, between a hook and a line of the program."""
    called = takewhile(lambda frame: frame.f_code.co_filename.startswith(BETWEEN), stack)
    return any(frame.f_code.co_name == TO_NUMPY for frame in called)
