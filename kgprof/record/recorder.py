"""record(): the plan, then every run in a child of its own, then the card's ceilings and the comparison of the results.

The parent never imports torch. Whatever happens to one child costs that run and no other; Ctrl-C ends the running
child, and what was measured by then stands in the Recording.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kgprof import model as m
from kgprof.errors import EXIT_USAGE, EXIT_WORKLOAD, KgprofError, UsageError, WorkloadError
from kgprof.progress import Progress
from kgprof.reading import layout, recordings
from kgprof.record import children, ranks, store
from kgprof.record.children import Caches, Echo, Ended, Interrupted
from kgprof.record.flags import flags
from kgprof.record.job import Job, Task, not_asked_for
from kgprof.record.private_names import private_names
from kgprof.workloads import programs

RERUNS = (m.PassName.TIMING, m.PassName.HOST, m.PassName.STACK)  # of a program: each runs it once more
UNASKED = {
    m.PassName.TIMING: "a script is run once, and under instruments; --passes with timing in it runs it once more",
    m.PassName.HOST: "a script is run once, and not under cProfile; --passes with host in it runs it once more",
    m.PassName.STACK: "a script is run once, and without stacks; --passes with stack in it runs it once more",
    m.PassName.KERNELS: "a script is not compiled a second time for the names of Inductor's C++ kernels",
}
NOT_REPEATED = m.Exit(outcome="not started", message="the first round has no TIMING")
PLAN_LOG = "plan.log"  # in the output folder, and only where there is no Recording to hold it


def record(options: m.Options, folder: Path, progress: Progress, *, echo: Echo = lambda data: None) -> Path:
    """Measure ``options.workload`` into ``folder/recording`` and return that folder.

    ``echo`` gets what a program prints to stdout.

    Raises UsageError for what cannot run as asked or a folder that cannot be written. A run that fails, hangs or is
    killed is no error, nor is a workload that does so while it is loaded: it is in the Recording.
    """
    refuse_other_platforms()
    made = store.claim(folder)
    with _scratch() as scratch:
        plan, dead = _make_plan(options, folder, made, scratch, progress)
        session = _Recording(folder / layout.FOLDER, options, plan, scratch, progress, echo)
        store.clear(folder)
        session.create()
        if dead is not None:
            session.note_death(dead, scratch / PLAN_LOG)
            return session.folder
        try:
            for key in plan.runs:
                if programs.is_program(options.workload):
                    session.run_program(key)
                elif session.measure(key):
                    session.probe(key)
            session.measure_rounds()
            session.measure_ceilings()
            session.compare_results()
        except KeyboardInterrupt:
            session.note_interruption()
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
    """What of it can be a folder's name: ``model-step`` of ``path/model.py:step``, ``train`` of ``path/train.py``."""
    named = workload.removeprefix(programs.MODULE_OPTION).rpartition("/")[2].removesuffix(".py").replace(".py:", "-")
    return (re.sub(r"[^A-Za-z0-9._-]+", "-", named).strip("-.") or "workload")[:80]


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Jobs and compiler caches live here, and nothing of it outlives the command."""
    folder = Path(tempfile.mkdtemp(prefix="kgprof-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- the plan


def _make_plan(
    options: m.Options, output: Path, made: bool, scratch: Path, progress: Progress
) -> tuple[m.Plan, m.Exit | None]:
    """And how the child ended, where the workload could not be loaded."""
    answer, log = scratch / "plan.json", scratch / PLAN_LOG
    job = Job(
        task=Task.PLAN,
        options=options,
        parent_pid=os.getpid(),
        answer=str(answer),
        probe_cache=str(_probe_cache(scratch)),
        flags=flags(os.environ),
    )
    caches = Caches(folder=scratch / "caches")
    progress.phase("plan", None)
    try:
        ended = children.run(job, scratch=scratch, log=log, caches=caches)
    except KeyboardInterrupt:
        _leave_no_empty_folder(output, made)
        raise
    if ended.exit.outcome == "ok":
        return m.decode_json(answer.read_bytes(), m.Plan), None
    if answer.is_file() and (ended.failed is None or ended.failed.exit_code == EXIT_WORKLOAD):
        return m.decode_json(answer.read_bytes(), m.Plan), ended.exit
    raise _why_no_plan(ended, options.workload, log, output, made)


def _probe_cache(scratch: Path) -> Path:
    return scratch / "vector-isa"


def _why_no_plan(ended: Ended, workload: str, log: Path, output: Path, made: bool) -> KgprofError:
    """The child's own words; where there is a traceback, it is saved in the output folder and named."""
    failed = ended.failed
    if failed is not None and failed.exit_code == EXIT_USAGE:
        _leave_no_empty_folder(output, made)
        return UsageError(failed.message, hint=failed.hint)
    saved = output / PLAN_LOG
    shutil.copyfile(log, saved)
    hint = f"everything that it printed and its traceback: {saved}"
    if failed is not None and failed.exit_code is None:
        return KgprofError(f"the plan for {workload} failed: {failed.message}", hint=hint)
    return WorkloadError(f"{workload} could not be loaded: {ended.exit.message}", hint=hint)


def _leave_no_empty_folder(output: Path, made: bool) -> None:
    if made:
        with contextlib.suppress(OSError):  # something else has been put there meanwhile, or it has gone: not ours
            output.rmdir()


# ---------------------------------------------------------------- the runs


class _Recording:
    """A Recording in the making: its folder, its plan, and the children that fill it one after the other."""

    def __init__(
        self, folder: Path, options: m.Options, plan: m.Plan, scratch: Path, progress: Progress, echo: Echo
    ) -> None:
        self.folder = folder
        self._echo = echo
        self._plan = plan
        self._scratch = scratch
        self._progress = progress
        self._header = m.RecordingHeader(
            schema_version=m.RECORDING_SCHEMA_VERSION,
            created_utc=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            command=("kgprof", *sys.argv[1:]),
            private=private_names(),
            options=options,
            plan=plan,
        )

    def create(self) -> None:
        store.create(self.folder, self._header)

    def run_program(self, key: m.RunKey) -> None:
        """Once under all that one run gives, and once more for each pass that needs a rerun and was asked for."""
        asked = self._header.options.passes
        for name, why in UNASKED.items():
            if name not in asked:
                store.write_pass(self.folder, key, name, m.Skipped(reason=why))
        store.write_evaluation(self.folder, key, m.Skipped(reason="a script has no evaluation"))
        reruns = [name for name in RERUNS if name in asked]
        ended = self._start(Task.SCRIPT, key, tuple(name for name in asked if name not in RERUNS))
        if ended.outcome != "ok":
            return
        for name in reruns:
            again = self._start(Task.SCRIPT, key, (name,))
            if again.outcome != "ok":
                return

    def measure(self, key: m.RunKey) -> bool:
        """Child A; whether it wrote every pass."""
        if lacking := self._what_is_lacking(key):
            store.write_exit(self.folder, key, m.Exit(outcome="raised", message=lacking, during="prepare"))
            return False
        ended = self._start(Task.MEASURE, key)
        return ended.outcome == "ok"

    def probe(self, key: m.RunKey) -> None:
        """Child B, where it has anything to do; a pass that it will not make says why."""
        why = {
            m.PassName.MEMORY: not_asked_for(self._header.options, m.PassName.MEMORY),
            m.PassName.KERNELS: self._why_no_kernels(key),
        }
        for name, reason in why.items():
            if reason:
                store.write_pass(self.folder, key, name, m.Skipped(reason=reason))
        if not all(why.values()):
            self._start(Task.PROBE, key, kernels=not why[m.PassName.KERNELS])

    def measure_rounds(self) -> None:
        """Round after round over all runs (ABCABC), so that what drifts on this machine drifts under all of them."""
        for number in range(2, self._header.options.rounds + 1):
            for key in self._plan.runs:
                if recordings.read_pass(self.folder, key, m.PassName.TIMING, m.TimingPass) is not None:
                    self._start(Task.ROUND, key, number=number)
                else:
                    store.write_round_exit(self.folder, key, number, NOT_REPEATED)

    def measure_ceilings(self) -> None:
        """Without them the kernels' own figures stand, held against nothing."""
        if self._plan.device != "cuda":
            why = "a CPU run has no kernels on a device to hold against them"
        elif programs.is_program(self._header.options.workload) and ranks.launch(os.environ) is not None:
            why = ranks.NOT_ALONE
        else:
            why = not_asked_for(self._header.options, m.PassName.TRACE)
        if not why and (ended := self._start(Task.CEILINGS, None)).outcome != "ok":
            why = f"their measurement {ended.words}"
        if why:
            store.write_ceilings(self.folder, m.Skipped(reason=why))

    def compare_results(self) -> None:
        """A comparison that fails leaves every run measured and says why it has no verdict."""
        if not self._plan.agreement:
            return
        if why := not_asked_for(self._header.options, m.PassName.TIMING):
            store.write_agreement(self.folder, m.Skipped(reason=why))
            return
        if not any(recordings.has_result(self.folder, key) for key in self._plan.runs):
            store.write_agreement(self.folder, m.Skipped(reason="no run left a result"))
            return
        ended = self._start(Task.AGREEMENT, None)
        if ended.outcome != "ok":
            reason = f"the comparison {ended.words}"
            store.write_agreement(self.folder, m.Skipped(reason=reason))

    def note_death(self, ended: m.Exit, log: Path) -> None:
        """Of a workload that could not be loaded: all that its run has is an end and a log."""
        (key,) = self._plan.runs
        store.write_exit(self.folder, key, ended)
        shutil.copyfile(log, layout.run_folder(self.folder, key) / layout.LOG)

    def note_interruption(self) -> None:
        store.write_header(self.folder, msgspec.structs.replace(self._header, interrupted=True))

    def _what_is_lacking(self, key: m.RunKey) -> str:
        compiler = self._plan.environment.compiler
        replaced = self._header.options.backend
        if not replaced and isinstance(compiler, m.Skipped) and m.needs_cpp_compiler(key.mode, self._plan.device):
            return f"no C++ compiler, and Inductor needs one on the CPU: {compiler.reason}"
        return ""

    def _why_no_kernels(self, key: m.RunKey) -> str:
        if why := not_asked_for(self._header.options, m.PassName.KERNELS):
            return why
        if self._plan.device != "cpu":
            return "on CUDA the trace itself names the device's kernels"
        if key.mode == m.EAGER:
            return "mode eager has no kernels of Inductor's"
        compiled = recordings.read_pass(self.folder, key, m.PassName.COMPILE, m.CompilePass)
        if key.mode == m.AS_IS and compiled is not None and not compiled.compilations:
            return "nothing was compiled"
        return ""

    def _start(
        self,
        task: Task,
        key: m.RunKey | None,
        passes: tuple[m.PassName, ...] | None = None,
        *,
        kernels: bool = False,
        number: int = 1,
    ) -> m.Exit:
        """One child to its end; how it ended is in the Recording before anything else happens."""
        options = self._header.options
        job = Job(
            task=task,
            options=options if passes is None else msgspec.structs.replace(options, passes=passes),
            parent_pid=os.getpid(),
            recording=str(self.folder.resolve()),
            key=key,
            round=number,
            kernels=kernels,
            plan=self._plan,
        )
        first = task.value if key is None else "prepare"
        said = f"round {number}: " if task is Task.ROUND else ""
        self._progress.phase(said + first, key)
        try:
            ended = children.run(
                job,
                scratch=self._scratch,
                log=self._log(task, key, passes, number),
                caches=self._caches(task, key, number),
                on_phase=lambda name: self._progress.phase(said + name, key) if name != first else None,
                echo=self._echo if task is Task.SCRIPT else (lambda data: None),
            )
        except Interrupted as interrupted:
            self._write_exit(task, key, interrupted.ended, number)
            raise
        self._write_exit(task, key, ended.exit, number)
        if ended.is_kgprofs_own_failure:
            raise KgprofError(ended.exit.message, hint=ended.failed.hint if ended.failed else "")
        return ended.exit

    def _write_exit(self, task: Task, key: m.RunKey | None, ended: m.Exit, number: int) -> None:
        if key is not None and task is Task.ROUND:
            store.write_round_exit(self.folder, key, number, ended)
        elif key is not None:
            store.write_exit(self.folder, key, ended, probe=task is Task.PROBE)

    def _log(self, task: Task, key: m.RunKey | None, passes: tuple[m.PassName, ...] | None, number: int) -> Path:
        if key is not None and task is Task.ROUND:
            return layout.run_folder(self.folder, key) / f"{layout.round_name(number)}_{layout.LOG}"
        if key is None:
            return self.folder / (layout.CEILINGS_LOG if task is Task.CEILINGS else layout.AGREEMENT_LOG)
        if passes is not None and passes[0] in RERUNS:
            return layout.run_folder(self.folder, key) / f"{passes[0]}_{layout.LOG}"
        return layout.run_folder(self.folder, key) / (layout.PROBE_LOG if task is Task.PROBE else layout.LOG)

    def _caches(self, task: Task, key: m.RunKey | None, number: int) -> Caches:
        """Cold, but for the probe's own files: compiling those once more would count as compile time.

        A further round finds those of the run's first process warm, which are kept until the last one.
        """
        told = {"TORCHINDUCTOR_VEC_ISA_OK": "1"} if self._plan.vector_isa_works else {}
        rounds = self._header.options.rounds
        shared = rounds > 1 and key is not None and task in (Task.MEASURE, Task.ROUND)
        name = f"caches-{self._plan.runs.index(key)}" if shared and key is not None else "caches"
        kept = shared and number < rounds
        return Caches(folder=self._scratch / name, seed=_probe_cache(self._scratch), extra=told, kept=kept)
