"""What the sources of the COMPILE pass wrote down, before anyone has made sense of it.

On disk each is one line of ``trace_records.jsonl.gz`` under its own key, and ``Sources`` is
``sources.json`` beside it. ``call`` counts the calls of the workload in this pass from 0; -1 stands
for anything before the first.
"""

from typing import Any

from kgprof.model.structs import Amount, Model, Skipped, Tagged

CALLS_NOT_COUNTED = "this Recording does not count the calls of compiled functions"


class TraceRecord(Model, kw_only=False):
    """One record of the logger torch.__trace. Line: the fields themselves, ``{"call":, "metadata":,
    "payload":}``."""

    metadata: dict[str, Any]
    payload: str | None = None
    call: int = -1


class SourceLine(Model, kw_only=False):
    """A line of the program or of a library."""

    file: str
    line: int
    function: str = ""


class CodeCount(Model):
    """How often torch compiled one code object, and the kinds of errors that other attempts ended
    in."""

    code: SourceLine  # empty where torch refused it before it looked at it
    times: int = 0
    failures: tuple[str, ...] = ()


BEFORE_THE_FIRST = -1  # call: while the program was loading
# Dynamo's names for what lay on Python's stack at a graph break: "___stack0" is the oldest
ON_STACK = "___stack"
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")  # frames before 3.12


class OfferedFrame(Model):
    """One frame that was offered to Dynamo, seen by the frame hook. Line: ``{"frame": {...}}``."""

    call: int
    # the code object's name; torch_dynamo_resume_in_F_at_LINE for what follows a break in F
    function: str
    file: str
    # of the code object: a decorator's line, or the line of the break for a resume function
    first_line: int
    outcome: str  # compiled, skipped, run-only (a recompile limit was reached), raised
    compile_id: str = ""  # of a compiled frame
    # of a skipped one: error, dispatch-mode, skip-list, disabled, or empty when nothing was wrong
    why: str = ""
    text: str = ""  # torch's words about it, or the exception's
    called_in: str = ""  # the nearest function above it that had been skipped for a fault itself
    # the function's qualified name, "Attention.forward"; empty where the Recording has none
    qualified: str = ""
    # of one that raised: the user's lines that torch was tracing, outermost first
    stack: tuple[SourceLine, ...] = ()
    # Of torch's wrapper around what it did not write code for, as a module of torch.nn: what is
    # called, "Linear", and the names of the arguments that the wrapper passes on.
    wraps: str = ""
    arguments: tuple[str, ...] = ()
    # of code behind a graph break, the values that lay on Python's stack there: the last is what
    # the line gave, if it gave one; 0 where nobody counted them
    on_stack: int = 0


class CompiledGuards(Model, kw_only=False):
    """What is checked before a compilation's code is run. Line: ``{"guards": {...}}``.

    ``values``: torch's kind of guard and its code, with the line of the program behind it where
    torch knows it; without those that only check which class, function, module or attribute a name
    stands for.
    """

    compile_id: str
    values: tuple[str, ...] = ()
    left_out: int = 0  # values beyond the limit
    missing: str = ""  # why they could not be read


class LineOperators(Model, kw_only=False):
    """A line of a large graph, in any of the frames that Dynamo inlined there."""

    file: str
    line: int
    function: str
    operators: int
    kinds: int  # of these, different ones: operator and innermost line
    of: int  # operators of the whole graph


class GraphRuns(Model):
    """One compiled graph and how often it ran, seen by the graph hook. Line: ``{"graph":
    {...}}``."""

    compile_id: str
    inputs: tuple[str, ...] = ()  # Dynamo's source of each placeholder, in order: "L['x']"
    runs: dict[int, int] = {}  # call -> runs in it
    # Inductor was asked for CUDA graphs; None where another backend compiled
    cuda_graphs: bool | None = None
    lines: tuple[LineOperators, ...] = ()  # none where it has few operators


class BackendFailure(Model):
    """What a backend raised for one graph, whatever torch made of it. Line: ``{"backend":
    {...}}``."""

    call: int
    function: str  # the code object's name, as of OfferedFrame
    file: str
    first_line: int
    error: str


class BegunCompilation(Model):
    """A compilation that torch began; ids begin again after torch._dynamo.reset(), so the call
    belongs to it."""

    call: int
    compile_id: str


class CompiledCallable(Model):
    """What torch.compile returned or decorated, and how its calls ran. Line: ``{"callable":
    {...}}``.

    Each count is by call of the workload. A call that ran no compiled graph of its own is eager,
    unless it raised.
    """

    number: int
    function: str  # qualified, "Layer.forward"
    module: str = ""  # the class of the module whose call it is; empty where it is a function's
    # under which the program knows the module: "layers.8", "heads[3]"; empty where it has no name
    path: str = ""
    definition: SourceLine
    # the code object that Dynamo sees first: torch's own one around a module of torch's
    offered: SourceLine
    # the project's line that called torch.compile; None where it was before
    compiled_at: SourceLine | None = None
    is_static: bool = False  # torch.compile was given dynamic=False
    called_at: SourceLine | None = None  # the project's line that called it first
    calls: dict[int, int] = {}
    eager: dict[int, int] = {}
    raised: dict[int, int] = {}
    # of the eager ones, those under a stance of torch.compiler.set_stance
    stances: dict[str, dict[int, int]] = {}
    stance_set_at: SourceLine | None = None  # the project's line that set the first of them
    # in its calls, outside of other compiled callables in them
    compilations: tuple[BegunCompilation, ...] = ()
    # torch knew its code before the recording began, so eager calls are not known
    compiled_before: bool = False

    @property
    def name(self) -> str:
        """``layers.8 (Layer)``, ``f``."""
        if not self.module:
            return self.function
        return f"{self.path} ({self.module})" if self.path else self.module


class CompiledCalls(Tagged):
    """Calls of compiled callables were counted. Line: ``{"compiled_calls": {...}}``, before those
    of the callables."""

    callables: tuple[CompiledCallable, ...] = ()
    # Methods of compiled modules that torch left as they are, by the line that asks for one. Line:
    # ``{"plain": {...}}``
    plain: tuple[CompiledCallable, ...] = ()
    left_out: int = 0  # calls of callables beyond the limit
    # calls of torch.compile from a line of the program, by call of the workload
    asked: dict[int, int] = {}


# A record among torch's own: all compiled code was dropped here, by torch._dynamo.reset() or
# reset_code_caches().
DYNAMO_RESET = "kgprof_dynamo_reset"


class CompiledText(Model, kw_only=False):
    """What torch made of one compilation, as it logged it. Line: ``{"text": {...}}``."""

    compile_id: str
    what: str  # GRAPH or CODE
    text: str
    cut: int = 0  # characters that are left out
    call: int = -1


GRAPH, CODE = "graph", "code"  # Dynamo's FX graph; Inductor's Python, of a backward too


class LogLine(Model):
    """One message of torch's ``cudagraphs`` log. Line: ``{"log": {...}}``."""

    call: int
    logger: str
    level: str
    text: str
    function: str = ""  # torch's function that logged it
    compile_id: str = ""  # of the compilation that was going on


class TimedChoice(Model, kw_only=False):
    """A configuration of a kernel, and what torch's own benchmark took for one launch of it."""

    name: str  # in torch's words: "triton_mm_7 ACC_TYPE='tl.float32', BLOCK_K=64, ...", "mm"
    us: float


class Autotuned(Model):
    """What torch timed to choose one kernel.

    ``template``: at compile time, among libraries and templates of an operator (max-autotune); the
    fastest is chosen unless fusing what follows into another one pays. Else the block sizes of one
    Triton kernel, at its first launch.
    """

    call: int
    kernel: str  # the operator, "addmm", or the Triton kernel's name
    inputs: str  # "2048x1024 float16, 1024x4096 float16"; empty for block sizes
    template: bool
    tried: int
    # of those: they did not compile, spilled registers, or needed more than the card has
    failed: int
    slowest_us: float | None
    choices: tuple[TimedChoice, ...]  # the fastest ones, fastest first
    # of wall time, compiling what is tried included; little where a cache on disk had the times
    seconds: float


class KernelWork(Model):
    """What one call of a kernel has to move and to compute at least, by the shapes that Inductor
    compiled it for.

    ``bytes_moved``: each element that is read or written counts once, whatever caches do; what a
    kernel looks up by index, once for each look-up and never more than the whole buffer. ``flops``:
    of matmuls, convolutions and attention, a multiplication and an addition counted as two; None
    where Inductor counts none.
    """

    bytes_moved: int | None = None
    flops: int | None = None
    # of what is computed, where ``flops`` is known: "tf32" where float32 may run on tensor cores
    dtype: str = ""
    unknown: str = ""  # why there is no ``bytes_moved``


# in place of the operator: the engine adds up the gradients of one tensor
GRADIENTS_ADDED = "autograd::add"


class KernelOrigin(Model):
    """One call of a kernel in generated code, and the lines whose operations went into it,
    outermost first.

    Without a ``compile_id`` one call of an operator in a step's eager code, or the one entry of an
    operator that is always called from the same lines: the project's that calls it (of a backward:
    that called its forward), then the nearest one of a library between the two.
    """

    compile_id: str
    # "triton_poi_fused_add_0", "cpp_fused_add_0", "extern_kernels.addmm"; of eager code
    # "torch.ops.aten.addmm", which torch dispatched, in a backward too; in older Recordings
    # "aten.addmm", which Python called.
    kernel: str
    number: int  # its place in the code
    lines: tuple[SourceLine, ...]
    work: KernelWork | None = None  # None: this Recording holds none
    # the key under which Inductor keeps the graph, which a trace names; empty where it was seen
    # before
    graph: str = ""


class EagerWork(Tagged):
    """What eager mode would dispatch in place of a graph: run once on tensors without data (torch's
    FakeTensor).

    Operators as they reach the device, below autograd; views and allocations launch nothing and are
    not counted.
    """

    operators: int  # each launches one kernel at least
    # operands and results of each, counted once each; of what is looked up by index the result's
    # size
    bytes_moved: int


class BufferPlan(Tagged):
    """What Inductor's wrapper allocates for one call of a graph, its outputs among it; views of
    inputs are none."""

    allocated: int = 0
    allocated_bytes: int = 0
    reused: int = 0  # buffers that take over the memory of one that is no longer needed
    reused_bytes: int = 0


class SavedForBackward(Tagged):
    """How AOTAutograd divided forward and backward, read off the graph of the backward."""

    activations: int  # tensors that the forward keeps for it
    activation_bytes: int
    inputs: int  # parameters and inputs that it needs as well, and which are there anyway
    recomputed: int  # operators of the forward that the backward computes again
    operators: int  # of the forward's graph


class GraphWork(Model):
    """One graph that Inductor compiled: what eager mode runs in its place, what it runs itself, and
    what has to move.

    ``needed_bytes``: what its kernels read of its inputs and write of its outputs, each once. Sizes
    are those that it was compiled for.
    """

    compile_id: str
    backward: bool
    eager: EagerWork | Skipped
    kernels: int  # calls in the generated code, of libraries too
    generated: int  # of those, Triton or C++
    moved_bytes: int  # by those whose bytes are known
    unknown: int  # calls whose bytes are not
    needed_bytes: int
    buffers: BufferPlan | Skipped
    saved: SavedForBackward | Skipped = Skipped("only a backward pass has saved tensors")


class KernelStages(Model):
    kernel: str
    # In Triton's order: "ir" (from Python to its first IR), "ttir", "ttgir", "llir", "ptx", "cubin"
    # and "store".
    seconds: dict[str, float]


class TritonStages(Tagged):
    """Each kernel compiled once more, alone and past Triton's cache, in the configuration that it
    was launched in."""

    kernels: tuple[KernelStages, ...]
    left_out: int  # kernels beyond the time that there is for this


class KernelOrigins(Tagged):
    """All that Inductor generated while COMPILE, or a script, compiled, and one step's operators
    outside of it."""

    origins: tuple[KernelOrigin, ...]
    left_out: int = 0
    graphs: tuple[GraphWork, ...] | Skipped = Skipped("this Recording has no work by graph")
    stages: TritonStages | Skipped = Skipped("this Recording has no stages of Triton's")
    # What eager code calls in a step, on average: "aten::mm(float32[8, 4], float32[4, 4])"
    eager: tuple[tuple[str, Amount], ...] | Skipped = Skipped(
        "this Recording has no types of eager operators"
    )


class CompiledKernel(Model):
    """A Triton kernel as it lay in the process that was traced, after Inductor had chosen its
    configuration."""

    kernel: str
    warps: int | None  # of each block
    stages: int | None  # of the software pipeline
    registers: int | None  # of each thread
    spills: int | None  # registers that did not fit and went to memory
    shared_bytes: int | None


class CompiledKernels(Tagged):
    """One entry for each kernel and configuration; two graphs may each hold a kernel of one
    name."""

    kernels: tuple[CompiledKernel, ...]


class RegistryEntry(Model, kw_only=False):
    """One kind of graph break, from graph_break_registry.json in torch's wheel. Braces are torch's
    placeholders."""

    type: str
    explanation: str
    hints: tuple[str, ...]


class SourceFile(Model):
    """A project file that a stack or a frame names. ``text`` is None where it was too long;
    ``left_out`` says so."""

    sha256: str
    text: str | None
    left_out: str = ""
    # the folder with .git above it, else the working directory above it; absolute or empty
    repository: str = ""


class Sources(Model):
    """What a reader needs of the machine that recorded: source text, break registry, and which
    files were libraries."""

    libraries: tuple[str, ...] = ()  # folders: see kgprof.reading.project
    own: tuple[str, ...] = ()
    files: dict[str, SourceFile] = {}
    registry: dict[str, RegistryEntry] = {}  # by GB id, "GB0059"
    # import name -> "transformers 4.57.1"; of the packages whose lines records name
    packages: dict[str, str] = {}


class CompileRecords(Tagged, tag="records"):
    """All that one run's COMPILE pass left, in the order it was written."""

    records: tuple[TraceRecord, ...] = ()
    frames: tuple[OfferedFrame, ...] = ()
    graphs: tuple[GraphRuns, ...] = ()
    logs: tuple[LogLine, ...] = ()
    texts: tuple[CompiledText, ...] = ()
    guards: tuple[CompiledGuards, ...] = ()
    backends: tuple[BackendFailure, ...] = ()
    compiled_calls: CompiledCalls | Skipped = Skipped(CALLS_NOT_COUNTED)
    # records beyond the limit: a count that is taken from them is no longer certain
    left_out: int = 0
    sources: Sources = Sources()
