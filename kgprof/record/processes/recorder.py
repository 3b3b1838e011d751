"""record(): the plan, then every run in a child of its own, then the card's ceilings and the
comparison of the results.

The parent never imports torch. Whatever happens to one child costs that run and no other; a signal
ends the running child, and what was measured by then stands in the Recording.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kgprof import model as m
from kgprof.errors import (
    EXIT_INTERNAL,
    EXIT_USAGE,
    EXIT_WORKLOAD,
    KgprofError,
    OutputError,
    UsageError,
    WorkloadError,
)
from kgprof.measures import times
from kgprof.progress import Progress
from kgprof.reading import layout, recordings
from kgprof.record.files import flight_recorder, foreign
from kgprof.record.ground import ranks, store
from kgprof.record.ground.flags import Variables, flags
from kgprof.record.ground.job import (
    VECTOR_ISA_WORKS,
    Checkout,
    Job,
    Task,
    asks_for_child_b,
    not_asked_for,
)
from kgprof.record.ground.scratch import scratch_folder
from kgprof.record.ground.turns import SLICE_S
from kgprof.record.processes import children, fork_server
from kgprof.record.processes.children import Caches, Echo, Ended, Start
from kgprof.wording import plural
from kgprof.workloads import programs

Redact = Callable[[str], str]

AGAIN = "--passes compile,memory,trace,timing"  # of a script
# of the steps of a slice the median counts, and on a GPU the first one finds it idle
SLICE_LEAST = {"cpu": 1, "cuda": 5}
NOT_TIMED = m.Skipped("there is no TIMING")
NOT_REPEATED = m.Exit(m.Outcome.NOT_STARTED, "the first round has no TIMING")
PROBE_CACHE = "vector-isa"
# Below Inductor's cache: what it chose by timing kernels, such as padded matmuls
# (torch._inductor.codecache.LocalCache).
CHOICES = "cache"
# With compiling switched off it may take so many times as long as with it, in any case so long.
EAGER_MOST = 2
EAGER_AT_LEAST_S = 20.0
TRACED_WHOLE_BELOW_S = 20.0  # a trace grows with the operators of the program
CONTROLLED_BELOW_S = 60.0  # a program that takes longer is not run again on kgprof's own account
# With a setting of torch it may take so many times as long as without it, in any case so long.
TRIAL_MOST = 3
TRIAL_AT_LEAST_S = 120.0  # a busy machine takes half a minute for the first C++ kernel


def record(
    options: m.Options,
    folder: Path,
    progress: Progress,
    *,
    echo: Echo = lambda data: None,
    redact: Redact = str,
    load: m.Load | m.Skipped | None = None,
    checkout: Checkout | None = None,
) -> Path:
    """Measure ``options.workload`` into ``folder/recording`` and return that folder.

    ``echo`` gets what a program prints to stdout; ``redact`` what is left of a workload that could
    not be loaded; ``load``: what other processes took of the machine just before; None: nobody
    looked; ``checkout``: where it runs; None: where kgprof was started.

    Raises UsageError for what cannot run as asked or a folder that cannot be written. A run that
    fails, hangs or is killed is no error, nor is a workload that does so while it is loaded: it is
    in the Recording.
    """
    refuse_other_platforms()
    is_program = programs.is_program(options.workload)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder("kgprof-"))  # for jobs and compiler caches
        stack.enter_context(fork_server.imports_shared())
        plan, dead = make_plan(options, folder, scratch, progress, redact, checkout)
        session = Recorder(folder / layout.FOLDER, options, plan, scratch, progress, echo, checkout)
        if load is not None:
            session.header = replace(session.header, load=load)
        store.clear(folder)
        store.create(session.folder, session.header)
        if dead is not None:
            (key,) = plan.runs  # all that the run of such a workload has is an end and a log
            store.write_exit(session.folder, key, dead)
            shutil.copyfile(
                scratch / layout.PLAN_LOG, layout.run_folder(session.folder, key) / layout.LOG
            )
            return session.folder
        progress.expect(plan.runs, tuple(name for name in m.PASSES if options.wants(name)))
        try:
            later = []
            for key in plan.runs:
                if is_program:
                    session.run_program(key)
                elif session.measure(key):
                    if plan.device == "cpu":
                        later.append(key)
                    else:  # its syncs are waits, which another process would make longer
                        session.probe(key)
            session.probe_beside(later)
            session.measure_rounds()
            session.measure_ceilings()
            session.compare_results()
        except KeyboardInterrupt:
            store.write_json(
                session.folder / layout.HEADER,
                replace(session.header, interrupted=True),
            )
    return session.folder


def refuse_other_platforms() -> None:
    """Raises UsageError on Windows, where there are no process groups to end a child by."""
    if sys.platform == "win32":
        raise UsageError(
            "`kgprof profile` does not run on Windows",
            hint="record on Linux; `kgprof report` and `kgprof explain` work here",
        )


def default_folder(workload: str) -> Path:
    """``reports/<workload>-<utc time>``, with a number where two start within a second."""
    name = folder_name(workload)
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = Path("reports") / f"{name}-{now}"
    tried = (folder, *(folder.with_name(f"{folder.name}-{number}") for number in range(2, 100)))
    return next((each for each in tried if not each.exists()), folder)


def folder_name(workload: str) -> str:
    """What of it can be a folder's name: ``model-step`` of ``path/model.py:step``, ``train`` of
    ``path/train.py``."""
    named = (
        workload.removeprefix(programs.MODULE_OPTION)
        .rpartition("/")[2]
        .removesuffix(".py")
        .replace(".py:", "-")
    )
    return (re.sub(r"[^A-Za-z0-9._-]+", "-", named).strip("-.") or "workload")[:80]


# ---------------------------------------------------------------- the plan


def make_plan(
    options: m.Options,
    output: Path,
    scratch: Path,
    progress: Progress,
    redact: Redact,
    checkout: Checkout | None = None,
    *,
    compiles: bool = False,
    variables: Variables | None = None,
) -> tuple[m.Plan, m.Exit | None]:
    """And how the child ended, where the workload could not be loaded. ``compiles``: also what is
    planned as it is; ``variables``: of its environment."""
    answer = scratch / "plan.json"
    log = scratch / layout.PLAN_LOG
    job = Job(
        Task.PLAN,
        options,
        answer=str(answer),
        probe_cache=str(scratch / PROBE_CACHE),
        compiles=compiles,
        flags=flags(),
        checkout=checkout,
    )
    caches = Caches(folder=scratch / "caches", extra=variables or {})
    progress.phase("plan", None)
    ended = children.run(Start(job, scratch, log, caches))
    if ended.interrupted:
        raise KeyboardInterrupt
    well = ended.exit.outcome == "ok"
    if well or (
        answer.is_file() and (ended.failed is None or ended.failed.exit_code == EXIT_WORKLOAD)
    ):
        return m.decode_json(answer.read_bytes(), m.Plan), None if well else ended.exit
    raise _why_no_plan(ended, options.workload, log, output, redact)


def lacks_compiler(plan: m.Plan, mode: str) -> str:
    """Say why there is no C++ compiler, if Inductor needs one in this mode; empty otherwise."""
    compiler = plan.environment.compiler
    if isinstance(compiler, m.Skipped) and m.needs_cpp_compiler(mode, plan.device):
        return compiler.reason
    return ""


def _why_no_plan(
    ended: Ended, workload: str, log: Path, output: Path, redact: Redact
) -> KgprofError:
    """The child's own words; where there is a traceback, it is saved in the output folder,
    redacted, and named."""
    failed = ended.failed
    if failed is not None and failed.exit_code == EXIT_USAGE:
        return UsageError(failed.message, hint=failed.hint)
    saved = output / layout.PLAN_LOG
    saved.write_text(redact(log.read_text(encoding="utf-8", errors="replace")), encoding="utf-8")
    hint = f"its output and traceback: {saved}"
    if failed is not None and failed.exit_code is None:
        return KgprofError(f"the plan for {workload} failed: {failed.message}", hint=hint)
    return WorkloadError(f"{workload} could not be loaded: {ended.exit.message}", hint=hint)


# ---------------------------------------------------------------- the runs


def _too_long(took_s: float) -> str:
    if took_s < CONTROLLED_BELOW_S:
        return ""
    limit = f"only a program that takes less than {CONTROLLED_BELOW_S:g} s is run again"
    return f"{limit} automatically; this one took {took_s:.0f} s"


class Recorder:
    """A Recording in the making: its folder, its plan, and the children that fill it one after the
    other."""

    def __init__(
        self,
        folder: Path,
        options: m.Options,
        plan: m.Plan,
        scratch: Path,
        progress: Progress,
        echo: Echo = lambda data: None,
        checkout: Checkout | None = None,
        side: str = "",
    ) -> None:
        self.folder = folder
        self._checkout = checkout
        self._side = side
        self._echo = echo
        self.plan = plan
        self._scratch = scratch
        self._progress = progress
        self.header = foreign.header(options, plan)

    def run_program(self, key: m.RunKey) -> None:
        """Once under all that one run gives, and once more for each pass that needs a rerun and was
        asked for; a short program also for TIMING, if nothing else was asked for."""
        options = self.header.options
        began = time.monotonic()
        for name, declared in m.PASSES.items():
            if name not in options.passes and not declared.listens:
                store.write_pass(self.folder, key, name, m.Skipped(declared.not_in_script))
        folder = layout.run_folder(self.folder, key)
        store.write_json(folder / layout.EVALUATION, m.Skipped("a script has no evaluation"))
        passes = tuple(n for n in options.passes if not m.PASSES[n].reruns)
        ended = self._start(self._job(Task.SCRIPT, key, passes))
        took_s = time.monotonic() - began
        if self._without_what_changed_it(Task.SCRIPT, key, passes, ended, took_s).outcome != "ok":
            return
        self._try_settings(Task.SCRIPT, key, took_s)
        for name in (name for name in options.passes if m.PASSES[name].reruns):
            if self._start(self._job(Task.SCRIPT, key, (name,))).outcome != "ok":
                return
        if options.timing_below_s is not None:
            file = folder / layout.SCRIPT  # not there where the program ended past Python
            script = m.decode_json(file.read_bytes(), m.ScriptRun) if file.is_file() else None
            self._time_program(key, script, took_s, options.timing_below_s)
            if script is not None and options.wants(m.PassName.TRACE):
                self._trace_program(key, script, took_s)

    def _time_program(
        self, key: m.RunKey, script: m.ScriptRun | None, took_s: float, below_s: float
    ) -> None:
        """Nobody asked for this rerun: whatever becomes of it, the run ended as it ended."""
        why = ""
        if script is not None and script.work_is_in is not None:
            why = "the program only launches other processes and has no step to time"
        elif took_s >= below_s:
            why = (
                f"only a program that takes less than {below_s:g} s is run again automatically; "
                f"this one took {took_s:.0f} s; to do so: {AGAIN}"
            )
        elif ranks.launch() is not None:  # they would have to decide alike
            why = f"launched ranks are not run again automatically; to do so: {AGAIN}"
        else:
            ended = self._start(self._job(Task.SCRIPT, key, (m.PassName.TIMING,)), decides=False)
            if ended.outcome != "ok":
                why = f"run again for TIMING, the program {ended.words}"
        if why and self.timing(key) is None:
            store.write_pass(self.folder, key, m.PassName.TIMING, m.Skipped(why))
        if not why:
            self._time_eagerly(key, script, took_s)

    def _trace_program(self, key: m.RunKey, script: m.ScriptRun, took_s: float) -> None:
        """All of a program on a GPU that has no steps, if it is short; nobody asked for this
        rerun."""
        if self.plan.device != "cuda" or not script.is_one_window:
            return
        if ranks.launch() is not None or script.work_is_in is not None:
            return
        if took_s >= TRACED_WHOLE_BELOW_S:
            why = (
                "the program has no steps, and only one that takes less than "
                f"{TRACED_WHOLE_BELOW_S:g} s is traced as a whole; this one took {took_s:.0f} s "
                "with kgprof's listeners on"
            )
            store.write_pass(self.folder, key, m.PassName.TRACE, m.Skipped(why))
            return
        self._start(
            self._job(Task.SCRIPT, key, (m.PassName.TRACE,), traces_all=True), decides=False
        )

    def _time_eagerly(self, key: m.RunKey, script: m.ScriptRun | None, took_s: float) -> None:
        """Once more with compiling switched off, to say whether it pays; nobody asked for it."""
        compiled = self._compiled(key)
        if script is None or not script.step or compiled is None or not compiled.compilations:
            return
        limit_s = min(self.header.options.timeout_s, max(EAGER_AT_LEAST_S, EAGER_MOST * took_s))
        job = self._job(Task.SCRIPT, key, (m.PassName.TIMING,), runs_eagerly=True)
        options = replace(job.options, timeout_s=limit_s)
        ended = self._start(replace(job, options=options), decides=False)
        if ended.outcome is not m.Outcome.OK:
            why = f"run again with compiling switched off, the program {ended.words}"
            file = layout.run_folder(self.folder, key) / layout.EAGER_TIMES
            store.write_json(file, m.Skipped(why))

    def measure(self, key: m.RunKey) -> bool:
        """Child A; whether it wrote every pass."""
        why = lacks_compiler(self.plan, key.mode)
        if why and not self.header.options.backend:
            lacking = f"no C++ compiler, and Inductor needs one on the CPU: {why}"
            ended = m.Exit(m.Outcome.RAISED, lacking, during="prepare")
            store.write_exit(self.folder, key, ended)
            return False
        ended = self._start(self._job(Task.MEASURE, key))
        ended = self._without_what_changed_it(Task.MEASURE, key, None, ended)
        if ended.outcome is m.Outcome.OK:
            self._try_settings(Task.MEASURE, key)
        step = times.step_time(self.timing(key) or NOT_TIMED)
        words = ended.words
        if self._side and ended.outcome is m.Outcome.TIMED_OUT:  # it may have been no --timeout
            words = str(ended.outcome)
        if isinstance(step, m.Spread):
            took = f"{times.said(step, times.PER_STEP)} {times.PER_STEP.name}"
            died = "" if ended.outcome == "ok" else f"; then {words}"
            is_median = times.within_process(step, times.PER_STEP).is_steady
            what = "median" if is_median else "p10 to p90"
            said = f"{took}, {what} of {plural(step.samples, 'step')}{died}"
            self._progress.result(said, key, short=f"{took}{died}")
        elif ended.outcome != "ok" and ended.failure is None:
            self._progress.result(words, key)
        return ended.outcome == "ok"

    def _without_what_changed_it(
        self,
        task: Task,
        key: m.RunKey,
        passes: tuple[m.PassName, ...] | None,
        ended: m.Exit,
        took_s: float = 0.0,
    ) -> m.Exit:
        """How the run ends for good. Where kgprof's listening may have changed it, the control
        decides: a run that ends well there alone is made again without the listeners that its
        exception came through."""
        doubtful = ended.outcome is m.Outcome.RAISED and ended.through
        if not doubtful and not recordings.backend_failures(self.folder, key):
            return ended
        file = layout.run_folder(self.folder, key) / layout.CONTROL
        if why := self._why_no_control(task, took_s):
            store.write_json(file, m.Skipped(why))
            return ended
        control = self._control(task, key)
        store.write_json(file, control)
        if ended.outcome is m.Outcome.OK or control.exit.outcome is not m.Outcome.OK:
            return ended  # a control that fails may do so for being a second run
        why = f"{ended.message.strip()} came through it; without it the run ends well"
        without = tuple(m.Unavailable(name, why) for name in ended.through)
        again = ended
        if without:
            # compiled in the run that failed
            job = self._job(task, key, passes, without=without)
            shutil.rmtree(self._caches(job).folder, ignore_errors=True)
            again = self._start(job)
        if again.outcome is not m.Outcome.OK:
            self._give_up(key, ended, control.exit)
        return control.exit

    def _control(self, task: Task, key: m.RunKey) -> m.Control:
        """The run once more without any listener."""
        job = self._job(task, key, control=True, answer=self._answer)
        ended = self._start(job, decides=False)
        return self._counted(ended) or m.Control(ended)

    def _trial(
        self, task: Task, key: m.RunKey, setting: m.Setting | None, limit_s: float
    ) -> m.Control | None:
        """A control with a setting or, to compare, without any; None where the program changed the
        setting."""
        job = self._job(task, key, control=True, setting=setting, answer=self._answer)
        limit_s = min(job.options.timeout_s, limit_s)
        options = replace(job.options, timeout_s=limit_s)
        ended = self._start(replace(job, options=options), decides=False)
        trial = self._counted(ended)
        if trial is None and ended.outcome is m.Outcome.OK:
            return None
        return replace(trial or m.Control(ended), setting=setting)

    @property
    def _answer(self) -> str:
        return str((self._scratch / layout.CONTROL).resolve())

    def _counted(self, ended: m.Exit) -> m.Control | None:
        """What a control that ended so has left, once; None where it came to no end."""
        answer = Path(self._answer)
        if not answer.is_file():
            return None
        counted = m.decode_json(answer.read_bytes(), m.Control)
        answer.unlink()
        return replace(counted, exit=ended)

    def _try_settings(self, task: Task, key: m.RunKey, took_s: float = 0.0) -> None:
        """Try what torch's hints tell the owner to set, each in a run of its own: a fix that names
        it then says what it does here. However a trial ends, the run ended as it ended."""
        compiled = recordings.read_pass(self.folder, key, m.PassName.COMPILE, m.CompilePass)
        if compiled is None:
            return
        settings, is_reset = recordings.named_settings(self.folder, key)
        if not settings:
            return
        took_s = took_s or sum(compiled.call_us) / 1e6
        file = layout.run_folder(self.folder, key) / layout.SETTING_TRIALS
        if why := self._why_no_trial(task, took_s, is_reset):
            store.write_json(file, m.Skipped(why))
            return
        limit_s = max(TRIAL_AT_LEAST_S, TRIAL_MOST * took_s)
        trials = [self._trial(task, key, setting, limit_s) for setting in settings]
        made = [trial for trial in trials if trial is not None]
        if any(trial.exit.outcome is m.Outcome.OK for trial in made):
            made += filter(None, [self._trial(task, key, None, limit_s)])
        store.write_json(file, tuple(made))

    def _why_no_trial(self, task: Task, took_s: float, is_reset: bool) -> str:
        if self._side:
            return "settings are not tried while two versions are recorded in turn"
        options = self.header.options
        if options.for_a_gate:
            return "a gate tries no setting; kgprof profile does"
        if task is Task.SCRIPT and options.timing_below_s is None:
            return "the program is run only for the passes that --passes names"
        if is_reset:
            return "the program resets torch.compile, which then forgets where graphs broke"
        return self._why_no_control(task, took_s) or _too_long(took_s)

    def _why_no_control(self, task: Task, took_s: float) -> str:
        """A program is run again only where that is safe: it is short, and no rank waits for it."""
        if task is not Task.SCRIPT:
            return ""
        if ranks.launch() is not None:
            return "launched ranks are not run again automatically"
        return _too_long(took_s)

    def _give_up(self, key: m.RunKey, ended: m.Exit, control: m.Exit) -> None:
        """The run ended as the control did; what was recorded under listeners is no record of
        it."""
        why = (
            f"kgprof's listening changed the program: under it the run {ended.words}; "
            "without it the run ends well"
        )
        store.write_exit(self.folder, key, control)
        for name in m.PASSES:
            store.write_pass(self.folder, key, name, m.Skipped(why))

    def probe(self, key: m.RunKey) -> None:
        """Child B, where it has anything to do."""
        if (kernels := self._probed(key)) is not None:
            self._start(self._job(Task.PROBE, key, kernels=kernels))

    def _probed(self, key: m.RunKey) -> bool | None:
        """Whether child B makes KERNELS too; None: it makes no pass. Each that it will not make
        says why."""
        why = {
            n: not_asked_for(self.header.options, n)
            for n, declared in m.PASSES.items()
            if declared.in_probe
        }
        why[m.PassName.KERNELS] = why[m.PassName.KERNELS] or self._why_no_kernels(key)
        for name, reason in why.items():
            if reason:
                store.write_pass(self.folder, key, name, m.Skipped(reason))
        return None if all(why.values()) else not why[m.PassName.KERNELS]

    def probe_beside(self, keys: Sequence[m.RunKey]) -> None:
        """Child B of each run, and the comparison of the results: two at a time, because they
        hardly measure times. One that fails may have failed for the other one's presence, and runs
        again by itself."""
        compiled = {key: found for key in keys if (found := self._compiled(key)) is not None}
        peaks = [found.compiling for found in compiled.values()]
        if len(compiled) < len(keys) or not children.has_room_for_two(peaks):
            for key in keys:
                self.probe(key)
            return
        by_length = sorted(compiled, key=lambda key: compiled[key].call_us[0], reverse=True)
        starts = [
            self._given(self._job(Task.PROBE, key, kernels=kernels), waits=True)
            for key in by_length
            if (kernels := self._probed(key)) is not None
        ]
        if self.plan.agreement and not self._why_no_agreement():
            starts.append(self._given(self._job(Task.AGREEMENT, None), waits=True))
        # a signal left some out
        ended = list(zip(starts, children.run_beside(starts) if starts else (), strict=False))
        failed = (m.Outcome.RAISED, m.Outcome.KILLED)
        again = []
        for given, one in ended:
            if given.job.key is not None and one.exit.outcome in failed and not one.interrupted:
                again.append(given)
                continue
            with contextlib.suppress(KeyboardInterrupt):  # the others have ended as well
                self._taken(given, one)
        if any(one.interrupted for _, one in ended):
            raise KeyboardInterrupt
        for given in again:
            self._start(given.job)

    def measure_rounds(self) -> None:
        """Round after round over all runs (ABCABC), so that what drifts on this machine drifts
        under all of them."""
        for number in range(2, self.header.options.rounds + 1):
            for key in self.plan.runs:
                self.measure_round(key, number)

    def measure_round(self, key: m.RunKey, number: int) -> bool:
        """Whether it ended well."""
        if self.timing(key) is not None:
            return self._start(self._job(Task.ROUND, key, round=number)).outcome == m.Outcome.OK
        run = layout.run_folder(self.folder, key)
        store.write_json(run / f"{layout.round_name(number)}_exit.json", NOT_REPEATED)
        return False

    def measure_cold(self, key: m.RunKey, number: int) -> None:
        """A first call on empty caches, in a fresh process; one that dies leaves nothing."""
        self._start(self._job(Task.ROUND, key, round=number, cold=True), decides=False)

    def measure_pair(
        self, other: Recorder, key: m.RunKey, number: int, *, at_once: bool = False
    ) -> bool:
        """A round of each at the same time, slice by slice in turn; whether both ended well. Both
        are timed already. ``at_once``: they start together, and disturb each other's first
        call."""
        steps = [times.step_time(each.timing(key) or NOT_TIMED) for each in (self, other)]
        slowest_us = max((one.median for one in steps if isinstance(one, m.Spread)), default=0)
        slice_steps = max(
            SLICE_LEAST[self.plan.device], round(1e6 * SLICE_S / (slowest_us or math.inf))
        )
        fields: dict[str, Any] = {"round": number, "slice_steps": slice_steps}
        one = self._given(self._job(Task.ROUND, key, **fields))
        two = other._given(other._job(Task.ROUND, key, **fields), waits=True)
        ended, others = children.run_in_turn(one, two, at_once=at_once)
        try:
            ended_well = self._taken(one, ended).outcome == m.Outcome.OK
        finally:  # after Ctrl-C the other one's end is written down as well
            others_well = other._taken(two, others).outcome == m.Outcome.OK
        return ended_well and others_well

    def timing(self, key: m.RunKey) -> m.TimingPass | None:
        return recordings.read_pass(self.folder, key, m.PassName.TIMING, m.TimingPass)

    def _compiled(self, key: m.RunKey) -> m.CompilePass | None:
        return recordings.read_pass(self.folder, key, m.PassName.COMPILE, m.CompilePass)

    def measure_ceilings(self) -> None:
        """Without them the kernels' own figures stand, held against nothing."""
        options = self.header.options
        why = not_asked_for(options, m.PassName.TRACE)
        if self.plan.device != "cuda":
            why = "a CPU run has no GPU kernels to compare with them"
        elif programs.is_program(options.workload) and self._is_rank(Task.SCRIPT):
            why = ranks.NOT_ALONE
        self._finish(Task.CEILINGS, layout.CEILINGS, "their measurement", why)

    def compare_results(self) -> None:
        """A comparison that fails leaves every run measured and says why it has no verdict."""
        if self.plan.agreement and not (self.folder / layout.AGREEMENT).is_file():
            self._finish(
                Task.AGREEMENT, layout.AGREEMENT, "the comparison", self._why_no_agreement()
            )

    def _why_no_agreement(self) -> str:
        why = not_asked_for(self.header.options, m.PassName.TIMING)
        folders = (layout.run_folder(self.folder, key) for key in self.plan.runs)
        if not why and not any((folder / layout.RESULT).exists() for folder in folders):
            why = "no run left a result"
        return why

    def _finish(self, task: Task, file: str, what: str, why_not: str) -> None:
        """What is done once at the end, or why it was not."""
        if not why_not and (ended := self._start(self._job(task, None))).outcome != "ok":
            why_not = f"{what} {ended.words}"
        if why_not:
            store.write_json(self.folder / file, m.Skipped(why_not))

    def _why_no_kernels(self, key: m.RunKey) -> str:
        if self.plan.device != "cpu":
            return "not needed on a GPU"
        if key.mode == m.EAGER:
            return "mode eager has no Inductor kernels"
        compiled = self._compiled(key)
        if key.mode == m.AS_IS and compiled is not None and not compiled.compilations:
            return "nothing was compiled"
        return ""

    def _start(self, job: Job, *, decides: bool = True) -> m.Exit:
        """One child to its end; how it ended is in the Recording before anything else happens, if
        it ``decides``."""
        given = self._given(job)
        prints = job.task is Task.SCRIPT and not job.is_rerun

        def hangs(pid: int) -> None:
            if job.collectives:
                flight_recorder.ask(Path(job.collectives))

        echo = self._echo if prints else (lambda data: None)
        ended = children.run(given, echo=echo, on_timeout=hangs)
        return self._taken(given, ended, decides=decides)

    def _job(
        self,
        task: Task,
        key: m.RunKey | None,
        passes: tuple[m.PassName, ...] | None = None,
        **fields: Any,
    ) -> Job:
        """``fields``: what this job has and others have not."""
        options = self.header.options
        if passes is not None:
            options = replace(options, passes=passes)
        return Job(
            task,
            options,
            recording=str(self.folder.resolve()),
            key=key,
            plan=self.plan,
            checkout=self._checkout,
            collectives=str(self._collectives) if self._is_rank(task) else "",
            **fields,
        )

    def _given(self, job: Job, *, waits: bool = False) -> Start:
        """What a child is started with. Its start is said at once, but of one that ``waits`` when
        it has started."""
        task, key, caches = job.task, job.key, self._caches(job)
        cached = task is Task.PROBE and caches.folder.is_dir()
        first = task.value if key is None else "prepare"
        round_ = f"pair {job.round - 1}" if self._side else f"round {job.round}"
        tried = "trying a setting" if job.setting is not None else ""
        if job.cold:
            tried = "empty caches"
        said = ", ".join(filter(None, (self._side, tried, round_ if task is Task.ROUND else "")))
        said = f"{said}: " if said else ""
        if not waits:
            self._progress.phase(said + first, key)
        return Start(
            replace(job, code_cached=cached),
            self._scratch,
            self._files(job)[0],
            caches,
            on_phase=lambda name: (
                self._progress.phase(said + name, key, beside=waits)
                if waits or name != first
                else None
            ),
        )

    def _taken(self, given: Start, ended: Ended, *, decides: bool = True) -> m.Exit:
        log, exit_file = self._files(given.job)
        if not (self.folder / layout.HEADER).is_file():
            raise OutputError(
                f"{self.folder} was moved or deleted while kgprof wrote to it", hint="run again"
            )
        if exit_file is not None and decides:
            store.write_json(exit_file, ended.exit)
        key = given.job.key
        prefix = given.job.collectives
        if key is not None and prefix and ended.exit.outcome is not m.Outcome.OK:
            flight_recorder.keep(Path(prefix), layout.run_folder(self.folder, key))
        if ended.interrupted:
            raise KeyboardInterrupt
        fault = ended.lost if ended.lost is not None else ended.failed
        if fault is not None and fault.unwritable:
            raise OutputError(fault.message, hint=fault.hint)
        if fault is not None and (fault is ended.lost or fault.exit_code == EXIT_INTERNAL):
            finished = ended.exit.outcome is m.Outcome.OK
            how = "finished, but" if finished else "ended in an error, and"
            where = f"{self.header.options.workload} {how} kgprof failed; see its log: {log}"
            raise KgprofError(fault.message, hint=fault.hint or where)
        return ended.exit

    @property
    def _collectives(self) -> Path:
        """What torch's flight recorder writes of this rank begins with it."""
        return self._scratch.resolve() / "collectives_"

    def _is_rank(self, task: Task) -> bool:
        return task is Task.SCRIPT and ranks.launch() is not None

    def _files(self, job: Job) -> tuple[Path, Path | None]:
        """A child's log, and the file that says how a child of a run ended."""
        if job.key is None:
            return self.folder / f"{job.task}_{layout.LOG}", None
        run = layout.run_folder(self.folder, job.key)
        prefix = ""
        exit_file: Path | None = run / layout.exit_name(False)
        if job.setting is not None:
            prefix = f"{job.setting.name}_"
            exit_file = None
        elif job.control:
            prefix = "control_"
            exit_file = None
        elif job.cold:
            prefix = f"cold_{job.round}_"
            exit_file = None
        elif job.task is Task.ROUND:
            prefix = f"{layout.round_name(job.round)}_"
            exit_file = run / f"{prefix}exit.json"
        elif job.task is Task.PROBE:
            prefix = "probe_"
            exit_file = run / layout.exit_name(True)
        elif job.runs_eagerly:
            prefix = "eager_"
            exit_file = None
        elif job.is_rerun:
            prefix = f"{job.options.passes[0]}_"
        return run / f"{prefix}{layout.LOG}", exit_file

    def choices(self, key: m.RunKey) -> Path:
        """What Inductor chose by timing kernels in a run whose caches are kept for its rounds."""
        return self._scratch / f"caches-{self.plan.runs.index(key)}" / "inductor" / CHOICES

    def _caches(self, job: Job) -> Caches:
        """Cold, but for the vector-ISA probe's own files: compiling those once more would count as
        compile time.

        Child B, a further round and a script's rerun find those of the run's first process warm. A
        trial has its own: a graph found in a cache brings the guards of the run that stored it. A
        workload that sets variables of torch means those of a process whose torch has not read them
        yet: children begin with them.
        """
        options = self.header.options
        last = Task.PROBE if asks_for_child_b(options) else Task.MEASURE
        if options.rounds > 1:
            last = Task.ROUND
        kept = job.task is not last or job.round < options.rounds
        folder = self._scratch / "caches"
        if job.key is None or (job.task is not Task.SCRIPT and last is Task.MEASURE):
            kept = False
        else:
            folder = self._scratch / f"caches-{self.plan.runs.index(job.key)}"
        extra = dict(self.plan.variables)
        if self.plan.vector_isa_works or (folder / "inductor" / VECTOR_ISA_WORKS).is_file():
            extra["TORCHINDUCTOR_VEC_ISA_OK"] = "1"
        if self._is_rank(job.task):
            extra |= flight_recorder.variables(self._collectives, os.environ)
        if job.setting is not None or job.cold:
            folder = self._scratch / "caches-trial"
            kept = False
        return Caches(folder=folder, seed=self._scratch / PROBE_CACHE, kept=kept, extra=extra)
