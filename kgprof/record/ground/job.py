"""What the parent asks of a child process, and the lines that the child sends back while it
works."""

import os
import re
import signal
import traceback
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import msgspec

from kgprof import model as m
from kgprof.errors import KgprofError, OutputError, WorkloadError
from kgprof.record.ground.source import listeners_in, words

# To a script that is about to be ended: write down what there is. A program has no use for it; some
# systems lack it.
WRITE_NOW: int | None = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else None

_COLOURS = re.compile(r"\x1b\[[\d;]*m")  # for a terminal: torch.load's refusal has some

PACKAGE = Path(__file__).resolve().parents[2]
PLUMBING = (  # kgprof's way to the workload (linkpred and the examples are workloads)
    *(str(PACKAGE / room) for room in ("record", "lab")),
    *(
        str(PACKAGE / "workloads" / f"{name}.py")
        for name in ("catalog", "example", "loading", "programs", "user")
    ),
)

CALL_THE_STEP = (str(PACKAGE / "workloads" / "user.py"), str(PACKAGE / "record" / "passes"))

# a file in Inductor's cache: every instruction set passed the probe there
VECTOR_ISA_WORKS = "vector-isa-works"


class Task(StrEnum):
    PLAN = "plan"  # what can run here, and on which machine
    # a whole program, run once as it stands, under the passes that the options name
    SCRIPT = "script"
    MEASURE = "measure"  # child A: COMPILE, TIMING, TRACE, HOST
    PROBE = "probe"  # child B: MEMORY, and KERNELS where the C++ kernels are to be named
    ROUND = "round"  # TIMING once more, in a process of its own, on the caches that MEASURE left
    AGREEMENT = "agreement"  # are the results of the runs equal?
    CEILINGS = "ceilings"  # what the card does at most
    TRIAL = "trial"  # one question of a verb that asks many (kgprof.record.processes.trials)


class Checkout(m.Model):
    """One of two trees that are recorded in turn: its child runs in ``folder`` and imports from
    there."""

    folder: str
    # the other side's, from which nothing may be imported; empty: both sides are one folder
    other: str = ""
    # of the kgprof that the child is; empty: ours. A built-in workload is the checkout's own
    home: str = ""
    python: str = ""  # the interpreter that is the child; empty: the one that is kgprof


class Job(m.Model, kw_only=False):
    """One child's work; it lies as JSON in the scratch folder."""

    task: Task
    options: m.Options
    # the child ends itself when this process is gone
    parent_pid: int = msgspec.field(default_factory=os.getpid)
    recording: str = ""  # the Recording's folder; empty while there is none (PLAN)
    answer: str = ""  # PLAN's and TRIAL's answer is written here
    function: str = ""  # TRIAL: "module:name" of what answers
    question: str = ""  # TRIAL: what it is asked, as JSON
    key: m.RunKey | None = None  # of MEASURE, PROBE and ROUND
    cell: m.Cell | None = None  # SCRIPT: of a sweep, what the program's own torch.compile is to do
    round: int = 1  # ROUND: which one, from 2
    kernels: bool = False  # PROBE: trace once more with the C++ kernels by name
    code_cached: bool = False  # PROBE: the caches hold what MEASURE compiled
    plan: m.Plan | None = None  # all but PLAN's own
    probe_cache: str = ""  # PLAN: where the vector-ISA probe's files go, for the runs to start from
    compiles: bool = False  # PLAN: what is planned as it is will run in compiled modes too
    # PLAN: torch's variables as the user set them
    flags: dict[str, str] = msgspec.field(default_factory=dict)

    checkout: Checkout | None = None  # None: the child runs where kgprof was started
    turns: tuple[int, int] | None = None  # ROUND: beside the other side's (record.ground.turns)
    slice_steps: int = 1
    cold: bool = False  # ROUND: no more than a first call, on empty caches
    # PROBE, AGREEMENT: names the children that run at the same time (kgprof.record.ground.alone)
    beside: str = ""
    without: tuple[m.Unavailable, ...] = ()  # sources that do not listen, and why
    # MEASURE, SCRIPT: nothing listens; ``answer`` takes what torch itself counts
    control: bool = False
    setting: m.Setting | None = None  # control: made before the program is loaded
    runs_eagerly: bool = False  # SCRIPT: torch compiles nothing
    traces_all: bool = False  # SCRIPT: torch.profiler is on from its first line to its end
    input_copy: str = ""  # SCRIPT: the file of what its first run reads from its standard input
    # SCRIPT: the file that takes how it ended; a program may close every descriptor, or reuse it
    last_words: str = ""
    # SCRIPT: where torch writes what a launched rank knows of its collectives; empty: nowhere
    collectives: str = ""

    @property
    def compiles_its_run(self) -> bool:
        """Whether Inductor may be needed."""
        return self.key is not None and self.key.mode != m.EAGER

    @property
    def is_rerun(self) -> bool:
        """Of a script, which has printed everything before: under one pass that needs a run of its
        own, or none."""
        passes = self.options.passes
        of_a_pass = len(passes) == 1 and m.PASSES[passes[0]].reruns
        return self.task is Task.SCRIPT and (self.control or self.traces_all or of_a_pass)


class Phase(m.Model, kw_only=False, tag_field="event", tag="phase"):
    """The child begins something; the last one is where it was when it died."""

    name: str


class Done(m.Model, tag_field="event", tag="done"):
    """Everything asked for is written."""


class Failed(m.Model, kw_only=False, tag_field="event", tag="failed"):
    """An exception ended the child. ``exit_code`` is set when it was one of kgprof's own errors."""

    message: str
    hint: str = ""
    traceback: str = ""
    exit_code: int | None = None
    exited: bool = False  # a script that ended itself with a code other than 0
    failure: m.Failure | None = None
    through: tuple[str, ...] = ()  # the listeners of kgprof's that it came through
    unwritable: bool = False  # the Recording could not be written: no fault of the run's


Event = Phase | Done | Failed
EVENT_DECODER = msgspec.json.Decoder(Event)


def describe_failure(error: BaseException) -> Failed:
    """The exception as the workload's author wants it: without the frames of kgprof that called
    them."""
    shown = _of_the_workload(error)
    frames = shown.__traceback__
    while frames is not None and frames.tb_next is not None:
        if not frames.tb_frame.f_code.co_filename.startswith((*PLUMBING, "<frozen importlib")):
            break
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(shown), shown, frames))
    if isinstance(error, KgprofError):
        unwritable = isinstance(error, OutputError)
        return Failed(error.message, error.hint, text, error.exit_code, unwritable=unwritable)
    line = _last_line(error)
    if _is_of_kgprof(error):
        line = f"in kgprof's own code, not in the workload's: {line}"
    return Failed(line, traceback=text, through=listeners_in(error))


def _is_of_kgprof(error: BaseException) -> bool:
    """Whether no line of the workload's, nor of a library, is among its frames. A step that is
    written in C has none."""
    files = [line.filename for line in traceback.extract_tb(error.__traceback__)]
    if not files or files[-1].startswith(CALL_THE_STEP):
        return False
    return all(file.startswith(PLUMBING) for file in files) and isinstance(error, Exception)


def _of_the_workload(error: BaseException) -> BaseException:
    """What a workload raised while it was loaded, without what kgprof says of it."""
    return error.__cause__ if isinstance(error, WorkloadError) and error.__cause__ else error


def _last_line(error: BaseException) -> str:
    return _COLOURS.sub("", words(error)).strip()


def failure(
    error: BaseException,
    is_own: Callable[[str], bool],
    step: int | None = None,
    steps: int | None = None,
) -> m.Failure | None:
    """In which line of the program it was raised, or called what raised it; None where no line of
    its own is among the frames. ``is_own``: whether a file is the program's."""
    raised = _of_the_workload(error)
    if isinstance(raised, KgprofError):
        return None
    found = own_line(raised, is_own)
    if isinstance(raised, SyntaxError) and raised.filename and raised.lineno:
        text = (raised.text or "").strip()
        found = m.Location(raised.filename, raised.lineno, text=text)
    if found is None:
        return None
    return m.Failure(_last_line(raised), found, step, steps)


def own_line(error: BaseException, is_own: Callable[[str], bool]) -> m.Location | None:
    """Return the innermost line of the program that an exception came through."""
    found = None
    for line in traceback.extract_tb(error.__traceback__):
        if is_own(line.filename) and not line.filename.startswith(PLUMBING):
            found = m.Location(line.filename, line.lineno or 0, line.name, text=line.line or "")
    return found


def not_asked_for(options: m.Options, name: m.PassName) -> str:
    """Why there is no such pass, where the options are the reason; otherwise empty."""
    if options.wants(name):
        return ""
    if options.passes == (m.PassName.COMPILE,):
        return "only the COMPILE pass was requested"
    return f"{name.upper()} was not requested"


def asks_for_child_b(options: m.Options) -> bool:
    """Whether any pass is wanted that child B makes."""
    return any(options.wants(name) for name, declared in m.PASSES.items() if declared.in_probe)
