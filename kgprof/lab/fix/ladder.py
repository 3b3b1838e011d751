"""The ladder of one program: each lever on top of those that were shown to help before it.

    first start     is it safe to start again (kgprof.lab.fix.first_start); which levers may help
    as it is        a Recording (COMPILE and TIMING)
    a lever         the text of the workload's file changed in a copy; a Recording; pairs of
                    processes in turn with what was kept so far, until its gain is shown to help,
                    too small, or not decided after MOST_PAIRS; if it helps, a seeded start for the
                    results, and before the first of these one of the program as it is
    at the end      what was kept is measured without each of its levers in turn: one that adds
                    nothing goes; then the patch against the program as it is, in new pairs

A lever is shown to help where the whole interval of ``judge.paired`` lies below 1 - LEAST_GAIN, or,
as the patch is measured again, where each of the first pairs lies below CLEAR.
"""

import math
import shutil
import statistics
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from kgprof import model as m
from kgprof.errors import EXIT_USAGE, UsageError, WorkloadError
from kgprof.judge import InTurn, Samples, judge, looks, paired, pairs_of
from kgprof.lab.fix import first_start, results
from kgprof.lab.fix.lever import Lever
from kgprof.lab.fix.patch import lines_changed, patch_of
from kgprof.lab.fix.trees import Tree, changes_between, state_of
from kgprof.measures import times
from kgprof.progress import Progress
from kgprof.reading import layout, recordings
from kgprof.record.ground import store
from kgprof.record.ground.job import Checkout
from kgprof.record.processes import children, recorder, trials
from kgprof.record.processes.recorder import Recorder
from kgprof.wording import clause, plural, short

LEAST_GAIN = 0.03
# A process takes steps for so long at a time, five times, but at least so many.
GROUP_S = 0.4
FEWEST_STEPS = 4
MOST_PAIRS = 8  # of a lever; a look after 4 and after every 2
# After so many a lever without a gain is given up, and one with a clear one kept.
FIRST_PAIRS = 2
CLEAR = 0.9
LITTLE = 0.94  # where that is left after a look, it is given no more pairs
TIME_UP = "the time was up (--minutes)"
IN_YOUR_FOLDER = "(in your own folder, where somebody else may have done it)"
LOG_KEPT = 2_000  # characters of the end of a log
# Services that record experiments would write into the owner's account at every start.
_OFFLINE = {
    "WANDB_MODE": "offline",
    "HF_HUB_OFFLINE": "1",
    "COMET_START_ONLINE": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Decision(StrEnum):
    """The words say why a lever is not kept."""

    SHOWN = ""
    SLOWER = "it took longer"
    NONE = f"no gain of {LEAST_GAIN:.0%} was seen"
    SMALL = f"its gain is below {LEAST_GAIN:.0%}"
    OPEN = "not decided"


class Measured(NamedTuple):
    gain: m.Gain | m.Skipped
    decision: Decision

    @property
    def why(self) -> str:
        """Why it is not kept, with what was seen where that is no gain."""
        if isinstance(self.gain, m.Gain) or self.decision is Decision.SHOWN:
            return self.decision
        return f"{self.decision}: {self.gain.reason}"


class Ending(NamedTuple):
    patch: str
    gain: m.Gain | m.Skipped  # over the program as it is
    results: m.Results | m.Skipped


NOTHING = Ending("", m.Skipped("nothing was shown to help"), m.Skipped("nothing was kept"))


class Program(m.Model):
    """The owner's program: its files, the file that the levers edit (as named in ``tree``), and
    where in a copy it is run."""

    tree: Tree
    file: str
    folder: str  # below the root: the current folder, as its owner starts it
    options: m.Options  # with the workload as it is named in that folder


class Side(m.Model):
    """One text of the program in a copy of its own, and its Recording once it is measured."""

    label: str
    text: str
    folder: Path  # of the copy, of its Recording and of its caches
    levers: tuple[Lever, ...] = ()

    @property
    def copy(self) -> Path:
        return self.folder / "copy"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    @property
    def works_on(self) -> bool:
        return any(each.starts_workers for each in self.levers)


class Climb:
    """Processes in turn, and what they said. ``text``: of the workload's file as it is.

    Raises WorkloadError where the program as it is fails."""

    def __init__(
        self,
        program: Program,
        text: str,
        scratch: Path,
        progress: Progress,
        until: float,
        *,
        again_is_safe: bool = False,
    ) -> None:
        self.program = program
        self.starts = 0
        self.trials: list[m.LeverTrial] = []
        self.not_tried: list[m.NotTried] = []
        self._scratch = scratch
        self._progress = progress
        self._until = until
        self._again_is_safe = again_is_safe  # then a start may have left something for the next one
        self._number = 1  # of the last pair of processes
        self._recorders: dict[str, Recorder] = {}
        # of the tree as it is now: its owner may work in it meanwhile
        whole = program.tree.copy(scratch / "original")
        self._original = replace(program.tree, root=whole)
        self.as_is = self._side("as it is", text)
        self.kept = self.as_is
        self._arrays: dict[str, results.Arrays] = {}
        self._no_results: dict[str, str] = {}  # of each start for them: why it left none
        self._steps = program.options.steps  # that a process takes at a time
        self._changed = ""  # what was kept and changed the results, as it was allowed to

    @property
    def environment(self) -> m.Environment:
        return self._plan.environment

    # ------------------------------------------------------------ the first start

    def first_start(self) -> tuple[m.StepFacts, tuple[m.Effect, ...]]:
        """What the program as it is does to what is not its own, and what there is to change.

        Raises WorkloadError where it fails.
        """
        side = self.as_is
        self._say("first start: is it safe to start again?")
        own = state_of(self.program.tree.root, self._scratch)
        before = state_of(side.copy)
        question = first_start.Question(
            folder=str(side.copy),
            free=(str(side.temporary), str(self._scratch)),
            results=results.Question(str(side.folder), side.label),
        )
        [trial] = self._ask(side, first_start.FUNCTION, question)
        if trial.failed is not None and trial.failed.exit_code == EXIT_USAGE:
            raise UsageError(trial.failed.message, trial.failed.hint)
        if trial.answer is None:
            raise WorkloadError(
                f"{self.program.options.workload} {_words(trial)}", hint=_end_of(trial)
            )
        seen = m.decode_json(trial.answer, first_start.Seen)
        named = {each.path for each in seen.effects}
        unheard = changes_between(before, state_of(side.copy))
        owners = changes_between(own, state_of(self.program.tree.root, self._scratch))
        effects = (
            *seen.effects,
            *(each for each in unheard if each.path not in named),
            *(replace(each, path=f"{each.path} {IN_YOUR_FOLDER}") for each in owners),
        )
        if seen.facts is None:
            did = clause("; before that: ", "; ".join(each.said for each in effects))
            lacks = clause("; not in the copy: ", ", ".join(self.program.tree.left_out))
            raise WorkloadError(
                f"{self.program.options.workload}, run in a copy of {self.program.tree.root}, "
                f"{_words(trial)}{did}{lacks}",
                hint=_end_of(trial),
            )
        if seen.has_results:
            self._take_results(side, side.label, trial)
        warm = self.program.options.warmup + 1
        fewer = max(FEWEST_STEPS, warm, round(GROUP_S / seen.step_s))
        self._steps = min(self._steps, fewer)
        return seen.facts, effects

    # ------------------------------------------------------------ the program as it is

    def measure_as_it_is(self, facts: m.StepFacts) -> None:
        """Record it; add to the facts what torch's hints name."""
        side = self.as_is
        asked = self._options
        self._say("as it is: the plan")
        self.starts += 1
        if self._again_is_safe:
            self._renew(side)
        plan, dead = recorder.make_plan(
            asked,
            side.folder,
            side.folder,
            self._progress,
            str,
            self._checkout(side),
            variables=self._variables(side),
        )
        if dead is not None:
            raise WorkloadError(f"{asked.workload} {dead.words}")
        self._plan = plan
        if len(plan.runs) > 1:
            names = ", ".join(run.strategy for run in plan.runs)
            raise UsageError(
                f"{asked.workload} has several strategies ({names})",
                "name a function that makes one step",
            )
        (self.key,) = plan.runs
        if why := self._record(side):
            raise WorkloadError(f"{asked.workload} as it is: {why}")
        settings, _ = recordings.named_settings(self._recorders[side.label].folder, self.key)
        named = tuple((each.name, each.value) for each in settings)
        self.facts = replace(facts, settings=named)

    # ------------------------------------------------------------ a lever

    def climb(self, levers: Sequence[Lever], allowed: m.Changes) -> None:
        """Try each on top of what was kept, as long as there is time, and last those that would not
        be put into the patch; one that found no place is asked again when another one was kept."""
        waiting = sorted(levers, key=lambda lever: _comes_last(lever, allowed))
        later: list[Lever] = []
        while waiting:
            lever = waiting.pop(0)
            text = self._edited(lever)
            if text is None:
                later.append(lever)
            elif time.monotonic() > self._until:
                self._leave_out(lever, TIME_UP, is_open=True)
            elif self._changed and lever.changes is not m.Changes.MEANING:
                why = f"{self._changed} has changed the results: begin again with its patch applied"
                self._leave_out(lever, why, is_open=True)
            else:
                before = self.kept
                try:
                    self._try(lever, text, allowed)
                except KeyboardInterrupt:
                    for each in (lever, *waiting):
                        is_wanted = bool(each.wanted(self.facts))
                        self._leave_out(
                            each, "it was interrupted", is_open=True, is_wanted=is_wanted
                        )
                    raise
                if self.kept is not before:
                    waiting = [*later, *waiting]
                    later = []
        for lever in later:
            if lever.wanted(self.facts):
                self._leave_out(lever, "the file has it already, or no place for it")
            else:
                self._leave_out(lever, "nothing in the program asks for it", is_wanted=False)

    def _edited(self, lever: Lever) -> str | None:
        """The text with it; None where nothing asks for it, or it has no place."""
        if not lever.wanted(self.facts):
            return None
        text = lever.edit(self.kept.text, self.facts)
        if text == self.kept.text:
            return None
        return text

    def _leave_out(
        self, lever: Lever, why: str, *, is_open: bool = False, is_wanted: bool = True
    ) -> None:
        self.not_tried.append(
            m.NotTried(
                lever=lever.id, says=lever.says, why=why, is_open=is_open, is_wanted=is_wanted
            )
        )

    def _try(self, lever: Lever, text: str, allowed: m.Changes) -> None:
        before = self.kept
        side = self._side(lever.id, text, (*before.levers, lever))
        became: m.Results | m.Skipped = m.Skipped("it was not shown to help")
        measured = Measured(m.Skipped("it was not timed"), Decision.SLOWER)
        needs_leave = False
        why = self._record(side)
        if not why:
            measured = self._compared(before, side)
            why = measured.why
        if not why:
            became, why = self._results_of(side)
        if not why:
            why = self._refused(lever, became)
        if not why and became is not m.Results.SAME and _needs_leave(lever, allowed):
            why = "it changes what the program means (--allow meaning puts it into the patch)"
            needs_leave = True
        if not why:
            self._keep(side)
            if lever.changes is m.Changes.MEANING and became is not m.Results.SAME:
                self._changed = lever.id
        else:
            shutil.rmtree(side.copy, ignore_errors=True)
        self.trials.append(
            m.LeverTrial(
                lever=lever.id,
                says=lever.says,
                code=lines_changed(before.text, text),
                changes=lever.changes,
                kept=not why,
                results=became,
                gain=measured.gain,
                why=why,
                needs_leave=needs_leave,
                is_open=measured.decision is Decision.OPEN or why == TIME_UP,
            )
        )

    def _keep(self, side: Side) -> None:
        """From now on the program is this one, with what torch compiles of it."""
        self.kept = side
        if side.label in self._recorders:
            (run,) = recordings.load(self._recorders[side.label].folder).runs
            if isinstance(run.compile, m.CompilePass):
                self.facts = replace(self.facts, frames=len(run.compile.compilations))

    def _refused(self, lever: Lever, became: m.Results | m.Skipped) -> str:
        if lever.changes is m.Changes.MEANING:
            return ""
        if lever.changes is not m.Changes.NOTHING and isinstance(became, m.Skipped):
            return became.reason
        if became is m.Results.DIFFERENT:
            return "the results differ from those of the program as it is"
        if became is m.Results.NOT_COMPARABLE and lever.changes is not m.Changes.NOTHING:
            return (
                "two starts of the program as it is give different results, so only what changes "
                "nothing by what it is can be kept"
            )
        return ""

    # ------------------------------------------------------------ at the end

    def leave_out_each(self) -> None:
        """Where several were kept, measure what was kept without each of them; those that add
        nothing go."""
        if len(self.kept.levers) < 2:
            return
        for lever in self.kept.levers:
            if time.monotonic() > self._until:
                return
            rest = tuple(each for each in self.kept.levers if each is not lever)
            text = self._text_of(rest)
            if text is None:
                continue  # another one stands on it
            side = self._side(f"without {lever.id}", text, rest)
            if self._record(side):
                continue
            measured = self._compared(side, self.kept)
            at = next(n for n, each in enumerate(self.trials) if each.lever == lever.id)
            known = measured.gain if isinstance(measured.gain, m.Gain) else None
            self.trials[at] = replace(self.trials[at], without=known)
            if measured.decision not in (Decision.SHOWN, Decision.OPEN):
                said = f"on top of the others: {measured.decision}"
                self.trials[at] = replace(self.trials[at], kept=False, why=said)
                self.kept = side

    def _text_of(self, levers: Sequence[Lever]) -> str | None:
        text = self.as_is.text
        for lever in levers:
            edited = lever.edit(text, self.facts)
            if edited is None:
                return None
            text = edited
        return text

    def ended(self) -> Ending:
        """The patch, its gain over the program as it is in new pairs, and its results."""
        if not self.kept.levers:
            return NOTHING
        patch = patch_of(self.program.file, self.as_is.text, self.kept.text)
        side = self.kept
        became, why = self._results_of(side)
        if self._changed not in (each.id for each in side.levers):
            refused = (self._refused(lever, became) for lever in side.levers)
            why = why or next(filter(None, refused), "")
        if why:
            return Ending("", m.Skipped(why), became)
        gain, decision = self._compared(self.as_is, side, is_last=True)
        if decision is Decision.SHOWN:
            return Ending(patch, gain, became)
        if isinstance(gain, m.Gain):
            times = f"{gain.low:.2f} to {gain.high:.2f}\N{MULTIPLICATION SIGN} of the time"
            gain = m.Skipped(f"{decision}: {times} in {plural(gain.pairs, 'pair')}")
        return Ending("", gain, became)

    # ------------------------------------------------------------ one start, and pairs of them

    @property
    def _options(self) -> m.Options:
        # The caches of a side are kept for as many processes as may come.
        passes = (m.PassName.COMPILE, m.PassName.TIMING)
        return replace(self.program.options, passes=passes, rounds=m.MOST_ROUNDS, steps=self._steps)

    def _side(self, label: str, text: str, levers: tuple[Lever, ...] = ()) -> Side:
        folder = self._scratch / f"side-{len(list(self._scratch.glob('side-*')))}"
        folder.mkdir()
        side = Side(label=label, text=text, folder=folder.resolve(), levers=levers)
        self._renew(side)
        return side

    def _renew(self, side: Side) -> None:
        """Make its copy what it was before any start."""
        shutil.rmtree(side.temporary, ignore_errors=True)
        side.temporary.mkdir()
        self._original.copy(side.copy)
        (side.copy / self.program.folder).mkdir(parents=True, exist_ok=True)
        file = side.copy / self.program.file
        file.unlink()  # which may be for reading only
        file.write_text(side.text, "utf-8")

    def _checkout(self, side: Side) -> Checkout:
        where = side.copy / self.program.folder
        return Checkout(folder=str(where), other=str(self.program.tree.root))

    def _variables(self, side: Side) -> dict[str, str]:
        return {**_OFFLINE, "TMPDIR": str(side.temporary), "MLFLOW_TRACKING_URI": str(side.copy)}

    def _say(self, text: str) -> None:
        self._progress.phase(text, None)

    def _ask(self, side: Side, function: str, *questions: m.Model) -> list[trials.Trial]:
        """Several beside each other, unless each has a new copy; one that fails may have failed for
        the other one's presence, and runs again by itself."""
        found: list[trials.Trial] = []
        caches = children.Caches(
            folder=self._scratch / "caches-trial", kept=True, extra=self._variables(side)
        )
        given: dict[str, Any] = {
            "options": self.program.options,
            "scratch": side.folder,
            "caches": caches,
            "checkout": self._checkout(side),
        }
        if len(questions) > 1 and not self._again_is_safe:
            self.starts += len(questions)
            found = trials.run_beside(function, questions, **given)
        for at, question in enumerate(questions):
            if any(each.interrupted for each in found):
                raise KeyboardInterrupt
            if found[at : at + 1] and found[at].exit.outcome is m.Outcome.OK:
                continue
            self.starts += 1
            if self._again_is_safe:
                self._renew(side)
            found[at : at + 1] = [trials.run(function, question, **given)]
        if any(each.interrupted for each in found):
            raise KeyboardInterrupt
        return found

    def _keep_results(self, side: Side, *names: str) -> str:
        """Why there are none of the first name; empty where they are kept. Each is started once."""
        missing = [name for name in names if name not in self._no_results]
        said = ", ".join(filter(None, (name.removeprefix(side.label) for name in missing)))
        if missing:
            self._say(f"{side.label}: its results" + clause(", ", said))
            questions = [
                results.Question(str(side.folder), name, in_float64=name == "float64")
                for name in missing
            ]
            found = self._ask(side, results.FUNCTION, *questions)
            for name, trial in zip(missing, found, strict=True):
                self._take_results(side, name, trial)
        return self._no_results[names[0]]

    def _take_results(self, side: Side, name: str, trial: trials.Trial) -> None:
        why = ""
        if trial.answer is None or trial.exit.outcome is not m.Outcome.OK:
            why = f"the program {_words(trial)}"
            if side is self.as_is:
                why = f"as it is, {why} in a seeded start"
        else:
            found = recordings.read_result(side.folder, m.RunKey(name, m.AS_IS))
            self._arrays[name] = found or {}
        self._no_results[name] = why

    def _results_of(self, side: Side) -> tuple[m.Results | m.Skipped, str]:
        """And why the program with it left none. The first start of the program as it is has left
        its own; a second one, and one in float64, are made for what is not the same bit for bit."""
        none: results.Arrays = {}
        lacking = self._keep_results(self.as_is, self.as_is.label)
        if why := self._keep_results(side, side.label):
            return m.Skipped(why), why
        found, as_is = (self._arrays.get(name, none) for name in (side.label, self.as_is.label))
        if as_is and results.are_same(found, as_is):
            return m.Results.SAME, ""
        if as_is and side.works_on:  # which draw other numbers: that is no question of rounding
            return m.Results.DIFFERENT, ""
        lacking = lacking or self._keep_results(self.as_is, "again", "float64")
        if not lacking and not as_is:
            lacking = "its steps return nothing that can be compared"
        if lacking:
            return m.Skipped(lacking), ""
        again, wide = (self._arrays.get(name, none) for name in ("again", "float64"))
        return results.compared(found, as_is, again, wide), ""

    def _record(self, side: Side) -> str:
        """Make its Recording; why there is none, and empty where it is there."""
        self.starts += 1
        if self._again_is_safe:
            self._renew(side)
        plan = replace(self._plan, variables={**self._plan.variables, **self._variables(side)})
        output = side.folder / "measured"
        output.mkdir()
        options = self._options
        patience_s = min((each.patience_s for each in side.levers[-1:]), default=math.inf)
        limit_s = patience_s
        if math.isinf(patience_s) and side.levers:
            limit_s = max(self._until - time.monotonic(), 1.0)
        limit_s = min(limit_s, options.timeout_s)
        making = Recorder(
            output / layout.FOLDER,
            replace(options, timeout_s=limit_s),
            plan,
            self.as_is.folder,  # with the caches of all sides
            self._progress,
            checkout=self._checkout(side),
            side=side.label,
        )
        store.create(making.folder, making.header)
        self._recorders[side.label] = making
        ended_well = making.measure(self.key)
        making.header = replace(making.header, options=options)
        if ended_well:
            if making.timing(self.key) is None:
                return "it was not timed"
            return ""
        (run,) = recordings.load(making.folder).runs
        if run.exit.outcome is m.Outcome.TIMED_OUT and limit_s < options.timeout_s:
            if math.isinf(patience_s):
                return TIME_UP
            return f"{m.FIX_GIVEN_UP}: its first process did not end in {limit_s:.0f} s"
        return f"the program {run.exit.words}"

    def _compared(self, before: Side, after: Side, *, is_last: bool = False) -> Measured:
        """The time of ``after`` over that of ``before``. ``is_last``: what is seen is stated as the
        gain, and not measured once more; only then a pair is begun after the time is up."""
        one = self._recorders[before.label]
        other = self._recorders[after.label]
        first = self._times(one)
        second = self._times(other)
        if isinstance(first, m.Skipped) or isinstance(second, m.Skipped):
            return Measured(m.first_skipped(first, second), Decision.OPEN)
        # What was seen when one of them was chosen counts no more.
        seen = judge(replace(first, rounds={}), replace(second, rounds={}))
        if seen.verdict is m.Judged.FASTER and not is_last:
            times = f"{short(second.median / first.median)}\N{MULTIPLICATION SIGN} as long"
            return Measured(m.Skipped(f"{times} in its first process"), Decision.SLOWER)
        begun = self._number
        measured = Measured(m.Skipped("there was no time for a pair"), Decision.OPEN)
        for made in range(1, MOST_PAIRS + 1):
            if time.monotonic() > self._until and not is_last:
                break
            self._number += 1
            self.starts += 2
            if self._again_is_safe:
                self._renew(before)
                self._renew(after)
            sides = (other, one)
            if made % 2:
                sides = (one, other)
            ended_well = self._measured_pair(sides, alone=before.works_on or after.works_on)
            numbers = range(begun + 1, self._number + 1)
            measured = self._decided(one, other, numbers, is_last=is_last)
            if measured.decision is not Decision.OPEN or not ended_well:
                break
            if not is_last and isinstance(measured.gain, m.Gain) and measured.gain.ratio > LITTLE:
                break  # others may gain more
        return measured

    def _measured_pair(self, sides: tuple[Recorder, Recorder], *, alone: bool) -> bool:
        """In turn; one after the other where workers would get ahead in the other one's turn."""
        one, other = sides
        if not alone and not any(self.facts.loaders):
            return one.measure_pair(other, self.key, self._number, at_once=True)
        return all(each.measure_round(self.key, self._number) for each in sides)

    @m.skippable
    def _times(self, of: Recorder) -> Samples:
        (run,) = recordings.load(of.folder).runs
        found = m.known(times.samples(times.RunTimes.of(run), times.PER_STEP))
        # Alone means beside workers: most steps find a batch, and the others wait for all of them.
        # So it is with steps of which some compile, or record a CUDA graph.
        is_uneven = self.facts.graphs_late or self.facts.frames_late
        means = {
            number: statistics.fmean(each.timing.every_us)
            for number, each in run.timed_rounds.items()
            if is_uneven or not each.timing.slice_steps
        }
        pieces = {number: each for number, each in found.pieces.items() if number not in means}
        return replace(found, rounds={**found.rounds, **means}, pieces=pieces)

    def _decided(
        self, one: Recorder, other: Recorder, numbers: range, *, is_last: bool
    ) -> Measured:
        first = self._times(one)
        second = self._times(other)
        if isinstance(first, m.Skipped) or isinstance(second, m.Skipped):
            return Measured(m.first_skipped(first, second), Decision.OPEN)
        made = pairs_of(first, second, numbers)
        least = 1.0
        if not is_last:
            least -= LEAST_GAIN
        seen, where = made, f"in {plural(FIRST_PAIRS, 'pair')}"
        if len(made) == 1 and second.pieces.get(numbers[0]) and not is_last:
            seen, where = pairs_of(first, second, (1, *numbers)), "in its first process and a pair"
        if len(seen) == FIRST_PAIRS:
            ratios = " and ".join(f"{pair.ratio:.2f}\N{MULTIPLICATION SIGN}" for pair in seen)
            said = m.Skipped(f"{ratios} {where}")
            if all(pair.ratio >= least for pair in seen):
                return Measured(said, Decision.NONE)
            if seen is made and not is_last and all(pair.ratio < CLEAR for pair in made):
                return Measured(said, Decision.SHOWN)
        turn = InTurn(planned=MOST_PAIRS, made=len(numbers))
        found = paired(made, turn) if turn.look else None
        if found is None:
            few = ", ".join(f"{pair.ratio:.2f}" for pair in made) or "none"
            return Measured(m.Skipped(f"too few pairs to decide: {few}"), Decision.OPEN)
        gain = m.Gain(ratio=found.ratio, low=found.low, high=found.high, pairs=len(made))
        return Measured(gain, decision_of(gain, at_look=len(numbers) in looks(MOST_PAIRS)))


def decision_of(gain: m.Gain, *, at_look: bool) -> Decision:
    """An interval is held against the limit at the planned looks only."""
    if not at_look:
        return Decision.OPEN
    if gain.high < 1 - LEAST_GAIN:
        return Decision.SHOWN
    if gain.low >= 1:
        return Decision.NONE
    if gain.low >= 1 - LEAST_GAIN:
        return Decision.SMALL
    return Decision.OPEN


def _needs_leave(lever: Lever, allowed: m.Changes) -> bool:
    return lever.changes is m.Changes.MEANING and allowed is not m.Changes.MEANING


def _comes_last(lever: Lever, allowed: m.Changes) -> bool:
    """Tell whether its results will keep it out of the patch; what a program computes with workers
    may be the same."""
    return _needs_leave(lever, allowed) and not lever.starts_workers


def _words(trial: trials.Trial) -> str:
    words: str = msgspec.structs.replace(trial.exit, during="").words
    return words


def _end_of(trial: trials.Trial) -> str:
    lines = trial.log[-LOG_KEPT:].strip().splitlines()
    if not lines:
        return "it printed nothing"
    return f"the end of what it printed: {lines[-1]}"
