"""What `kgprof fix` tried: each lever, what it did to the program's time and to its results, and
the patch of those that were shown to help."""

from enum import StrEnum

from kgprof.model.recording import Environment
from kgprof.model.structs import Bounded, Count, Model, Skipped, Tagged

FIX_SCHEMA_VERSION = 1
FIX_MINUTES = 10.0
FIX_RESULT_STEPS = 20
FIX_GIVEN_UP = "given up"  # begins the reason of a lever whose first process took too long


class Changes(StrEnum):
    """What a lever may change of a program's results, by what it is."""

    NOTHING = "nothing"
    ROUNDING = "rounding"  # another order of sums, or fused operations
    MEANING = "meaning"  # lower precision on purpose, say: the owner has to want it


class Results(StrEnum):
    """What became of the results under a lever."""

    SAME = "same"  # bit for bit
    ROUNDED = "rounded"  # as near to float64 as the program as it is, within a factor
    DIFFERENT = "different"
    NOT_COMPARABLE = "not comparable"  # two starts of the program as it is differ


class Effect(Model, kw_only=False):
    """Something that the program did to what is not its own: another start would do it again."""

    what: str  # "writes", "connects to 10.0.0.1:80"
    path: str = ""  # what it does it to, seen from the program's folder if it is in there
    file: str = ""  # the line of the program that did it; empty where Python saw none
    line: int = 0

    @property
    def said(self) -> str:
        place = f"{self.file}:{self.line} " if self.file else ""
        return f"{place}{self.what} {self.path}".rstrip()


class StepFacts(Tagged):
    """What the program as it is showed in its first start: which levers are worth trying follows
    from it."""

    device: str  # "cpu" or "cuda"
    step: str = ""  # the workload's function, as its module names it
    # names of the workload's module that hold an nn.Module which is part of no other one there
    modules: tuple[str, ...] = ()
    compiled_modules: tuple[str, ...] = ()  # of them, those that torch.compile was called for
    optimizers: tuple[tuple[str, str], ...] = ()  # name and class: ("opt", "AdamW")
    frames: Count = 0  # functions that torch compiled
    frames_late: Count = 0  # of them in the second half of the steps
    graphs_late: Count = 0  # functions and sizes that a CUDA graph was recorded for in that half
    collections_late: Count = 0  # by Python's collector, of old objects too, in that half
    loaders: tuple[Count, ...] = ()  # how many workers each DataLoader has that could have some
    generates: bool = False  # a model of transformers that makes text
    has_convolution: bool = False
    has_float32: bool = False  # parameters of that dtype
    returns_gradient: bool = False  # what the step returns requires one
    threads: Count = 1  # of an operator on the CPU
    cores: Count = 1
    # of torch._dynamo.config: those that torch's hints named, and the value they asked for
    settings: tuple[tuple[str, bool], ...] = ()


class Gain(Tagged, kw_only=False):
    """The time with a change over the time without it, from pairs of processes in turn."""

    ratio: Bounded
    low: Bounded  # of an interval that holds the truth in 95 %, at each look at it
    high: Bounded
    pairs: Count


class LeverTrial(Model):
    """One lever, on top of those that were kept before it."""

    lever: str
    says: str  # what it does, in words
    code: str  # the lines that it adds or changes
    changes: Changes
    kept: bool
    results: Results | Skipped
    gain: Gain | Skipped
    why: str = ""  # it was not kept
    needs_leave: bool = False  # it is faster, and changes what the owner did not allow
    # neither kept nor known to gain nothing: time or pairs were too few
    is_open: bool = False
    without: Gain | None = None  # all that were kept over those without it, at the end


class NotTried(Model, kw_only=False):
    lever: str
    says: str
    why: str
    is_open: bool = False  # it was worth trying, and there was no time
    is_wanted: bool = True  # something in the program asked for it


class Fix(Model):
    """The ladder of one program."""

    schema_version: int
    created_utc: str
    command: tuple[str, ...]
    workload: str
    environment: Environment
    facts: StepFacts
    trials: tuple[LeverTrial, ...] = ()
    not_tried: tuple[NotTried, ...] = ()
    patch: str = ""  # a unified diff
    # the patch over the program as it is, measured again after it was chosen
    gain: Gain | Skipped = Skipped("nothing was shown to help")
    results: Results | Skipped = Skipped("nothing was shown to help")
    starts: Count = 0  # of the program, in all
    interrupted: bool = False

    @property
    def is_decided(self) -> bool:
        """Whether it is known of each lever worth trying that it is in the patch or adds
        nothing."""
        tried_open = any(each.is_open or (each.kept and not self.patch) for each in self.trials)
        left_open = any(each.is_open for each in self.not_tried)
        return not (self.interrupted or tried_open or left_open)
