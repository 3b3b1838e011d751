"""Where the wall time of a script went, from its first line to its end."""

from enum import StrEnum

import msgspec

from kgprof.model.structs import Amount, Model, Tagged
from kgprof.wording import plural


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
    # marks of another kind go on after the last step, as the replays of a CUDA graph
    ANOTHER_KIND_AND_AFTER = "another kind of step and after"
    REST = "the rest"  # of a program without steps


class RunPhaseTime(Model, kw_only=False):
    phase: RunPhase
    us: Amount
    share: Amount  # of the run, 0..1


class ScriptAccount(Tagged):
    """``phases``: in the order of ``RunPhase``, without those that took no time; they add up to
    ``total_us``."""

    total_us: Amount
    phases: tuple[RunPhaseTime, ...]
    under_listeners: bool  # those of COMPILE and MEMORY, on cold caches; else a rerun, on warm ones
    # after the last step, where the program goes on in them: {"a replay of a CUDA graph": 6000}
    another_kind: dict[str, int] = msgspec.field(default_factory=dict)

    def share(self, phase: RunPhase) -> float:
        return sum(each.share for each in self.phases if each.phase is phase)

    @property
    def goes_on(self) -> bool:
        """Whether the program goes on behind its steps, for longer than twice what all of them
        took: the last one, whose end nothing marks, is none."""
        after = (RunPhase.STEP_AND_AFTER, RunPhase.ANOTHER_KIND_AND_AFTER)
        return sum(map(self.share, after)) > 2 * self.share(RunPhase.STEPS)

    def words(self, phase: RunPhase) -> str:
        """Name a phase; another kind of step with how many there were."""
        if phase is RunPhase.START:  # most of which may be the program's own preparations
            return "before the first step"
        if phase is RunPhase.STEP_AND_AFTER and self.goes_on:
            return "from the last step that was seen on"
        if phase is not RunPhase.ANOTHER_KIND_AND_AFTER:
            return str(phase)
        seen = (f"{plural(count, 'time')} {words}" for words, count in self.another_kind.items())
        return f"{phase} ({', '.join(seen)})"


NOT_ACCOUNTED = "this report was made before scripts were accounted for"
