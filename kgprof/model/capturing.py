"""What ``kgprof capture`` tries, what came of each case, and what it recommends."""

from enum import StrEnum

import msgspec

from kgprof.model.passes import AS_IS, EAGER, Exit
from kgprof.model.recording import Environment
from kgprof.model.structs import Location, Model, Skipped, Tagged
from kgprof.model.times import Spread
from kgprof.wording import plural

CAPTURE_SCHEMA_VERSION = 1
CAPTURE_MODES = (EAGER, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
OWN_GRAPHS = ("reduce-overhead", "max-autotune")  # modes in which torch makes CUDA graphs itself
ERROR_MODES = ("global", "thread_local", "relaxed")  # torch.cuda.graph(capture_error_mode=...)
WARMUPS = 3  # calls before a capture, as torch's documentation has it


class CaptureWay(StrEnum):
    CALL = "call"  # called; modes of OWN_GRAPHS replay graphs of torch's own
    CAPTURE = "capture"  # with torch.cuda.graph(graph): step()
    CALLABLES = "callables"  # torch.cuda.make_graphed_callables


class Beside(StrEnum):
    """What happens in the capture beside the function itself."""

    NOTHING = ""
    RNG = "rng"  # an operator that draws random numbers
    SYNC = "sync"  # .item()
    THREAD = "thread"  # another thread allocates GPU memory


class CaptureCase(Model):
    way: CaptureWay
    mode: str  # one of CAPTURE_MODES, or as-is
    warmups: int = WARMUPS
    # compiled for another shape before; this one's is new inside the capture
    new_shape: bool = False
    # captured on a stream that the program made, and not on torch's own for captures
    own_stream: bool = False
    beside: Beside = Beside.NOTHING
    error_mode: str = ERROR_MODES[0]
    rebound: bool = False  # between replays the inputs are at new addresses, as after ``x = new_x``

    @property
    def name(self) -> str:
        """What ``--case`` takes."""
        parts = [self.mode] if self.way is CaptureWay.CALL else [str(self.way), self.mode]
        if self.warmups != WARMUPS:
            parts.append(f"warmup-{self.warmups}" if self.warmups else "cold")
        parts += ["new-shape"] * self.new_shape + ["stream"] * self.own_stream
        parts += [str(self.beside)] * bool(self.beside)
        parts += [self.error_mode] * (
            self.beside is Beside.THREAD or self.error_mode != ERROR_MODES[0]
        )
        return "-".join([*parts, *["rebound"] * self.rebound])

    @property
    def compiled(self) -> bool:
        return self.mode not in (EAGER, AS_IS)

    @property
    def words(self) -> str:
        """What it does, as the end of "The function is ..."."""
        own = f"compiled with mode={self.mode!r}" if self.compiled else "run as it stands"
        own = "run without torch.compile" if self.mode == EAGER else own
        then = {
            CaptureWay.CALL: "called",
            CaptureWay.CAPTURE: "captured in torch.cuda.graph",
            CaptureWay.CALLABLES: "given to torch.cuda.make_graphed_callables",
        }[self.way]
        parts = [
            own,
            f"{then} after {plural(self.warmups, 'warm-up call')}"
            if self.warmups
            else f"{then} at its first call",
        ]
        parts += ["for a shape that it was not compiled for"] * self.new_shape
        parts += ["on a stream of the program's own"] * self.own_stream
        beside = {
            Beside.RNG: "with an operator that draws random numbers",
            Beside.SYNC: "with an .item() in it",
            Beside.THREAD: "while another thread allocates GPU memory",
        }
        parts += [beside[self.beside]] if self.beside else []
        parts += [f"capture_error_mode={self.error_mode!r}"] * (self.beside is Beside.THREAD)
        parts += ["with its inputs rebound to new tensors between calls"] * self.rebound
        return ", ".join(parts)


class CaptureOutcome(StrEnum):
    CORRECT = "correct"
    WRONG = "wrong"
    RAISED = "raised"
    HUNG = "hung"
    NOT_APPLICABLE = "not applicable"


class CaptureDifference(Model):
    """The worst of all elements of all results after three calls, the inputs changed before the
    second and third."""

    of: str  # "result[0]", or the name of a tensor that the step writes
    index: tuple[int, ...]
    expected: str  # the element in eager mode, and here
    got: str
    largest: float | None  # |got - expected|; None: one of them is not finite
    tolerance: float
    differing: int  # elements beyond it
    elements: int
    dtype: str


class CaptureInput(Model):
    """A tensor that the function reads, did not make and does not write; nn.Parameters are not
    among them."""

    name: str  # the variable's, or "input 0" where none was found
    shape: tuple[int, ...]
    dtype: str
    declared: bool  # by the workload's buffers


class CaptureAnswer(Model):
    """What a case's child knows; it is written again at each phase, so that one that hangs leaves
    where it was."""

    phase: str  # load, warm-up, capture, reference, replay, timing
    outcome: CaptureOutcome | None = None
    why: str = ""  # torch's sentence, or why the case does not apply
    at: Location | None = None  # the innermost line of the project when it raised
    traceback: str = ""
    difference: CaptureDifference | None = None
    stale: bool = False  # a wrong result was that for the inputs of the capture
    # changed inputs change the result less than the tolerance: a stale one would not be seen
    blind: bool = False
    random: bool = False  # the function draws random numbers
    inputs: tuple[CaptureInput, ...] = ()
    notes: tuple[str, ...] = ()
    call_us: Spread | Skipped = Skipped("only a correct case is timed")
    copies_us: Spread | Skipped = Skipped(
        "nothing is copied by hand"
    )  # new values into the declared inputs, or into all


class CaptureQuestion(Model):
    """What a child is asked. ``capturer``: "module:Class" of what captures and replays."""

    case: CaptureCase
    strategy: str = ""  # empty: the workload's first
    capturer: str = "kgprof.lab.capturing:CudaGraph"
    # torch's variables as the user set them
    flags: dict[str, str] = msgspec.field(default_factory=dict)


class CaptureSurvey(Model, kw_only=False):
    """The machine, and whether it can run anything; asked before the first case."""

    environment: Environment
    strategy: str
    unavailable: str = ""  # why no case can run here


class CaptureResult(Model, kw_only=False):
    case: CaptureCase
    name: str
    outcome: CaptureOutcome
    why: str = ""
    answer: CaptureAnswer | None = None
    exit: Exit | None = None  # None: no child was started
    stacks: str = ""  # of a case that hung: the Python stack of every thread
    native_stacks: str | Skipped = Skipped("only for a case that hung")

    @property
    def cost_us(self) -> float | None:
        """Microseconds of one call, the median, with the copies of new inputs where the workload
        declares which change.

        Where it declares none, weights may be among the inputs, and what is not new needs no copy.
        """
        if self.answer is None or isinstance(self.answer.call_us, Skipped):
            return None
        copies = self.answer.copies_us
        declared = any(each.declared for each in self.answer.inputs)
        return self.answer.call_us.median + (
            copies.median if declared and isinstance(copies, Spread) else 0.0
        )


class Confidence(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class CaptureAdvice(Tagged, tag="advice", kw_only=False):
    case: str  # the case that it follows
    summary: str  # "Capture the default-compiled function yourself."
    code: str
    reason: str
    confidence: Confidence
    because: tuple[str, ...]  # what the confidence rests on
    warnings: tuple[str, ...] = ()


class CaptureReport(Model):
    """capture.json."""

    schema_version: int = CAPTURE_SCHEMA_VERSION
    created_utc: str
    command: tuple[str, ...]
    workload: str
    strategy: str
    environment: Environment
    timeout_s: float
    results: tuple[CaptureResult, ...]
    advice: CaptureAdvice | Skipped
    not_tried: tuple[str, ...] = ()  # the names of cases that an interruption left out
    interrupted: bool = False

    @property
    def tried(self) -> bool:
        """Whether any case could be run."""
        return any(result.outcome is not CaptureOutcome.NOT_APPLICABLE for result in self.results)
