"""Where the wall time of a script went, from its first line to its end."""

from enum import StrEnum

from kgprof.model.structs import Amount, Model, Tagged


class RunPhase(StrEnum):
    """What the program was doing. All are of one process, and each moment is in one of them."""

    START = "start and imports"
    # of a program whose optimizer ends its steps: nothing marks where the first one begins
    START_AND_STEP = "start, imports and the first step"
    COMPILING = "compiling"
    RECORDING = "recording CUDA graphs"
    # beyond a usual step: kernels that are loaded at their first run, or what the step does besides
    BESIDE_COMPILING = "other work in steps that compile or record"
    STEPS = "steps"
    EVALUATION = "in eval mode"  # a module is, and no optimizer steps meanwhile
    AFTER = "after the last step"
    STEP_AND_AFTER = "the last step and after"  # nothing marks where it ends
    # optimizers step after the last counted step: a second training, or one in hooks on gradients
    OTHERS_AND_AFTER = "other optimizers' steps and after"
    REST = "the rest"  # of a program without steps


class RunPhaseTime(Model):
    phase: RunPhase
    us: Amount
    share: Amount  # of the run, 0..1


class ScriptAccount(Tagged):
    """``phases``: in the order of ``RunPhase``, without those that took no time; they add up to
    ``total_us``."""

    total_us: Amount
    phases: tuple[RunPhaseTime, ...]
    under_listeners: bool  # those of COMPILE and MEMORY, on cold caches; else a rerun, on warm ones


NOT_ACCOUNTED = "this report was made before scripts were accounted for"
