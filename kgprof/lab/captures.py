"""The parent's side of ``kgprof capture``: which cases there are, each tried in a child, and what
came of it."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from kgprof import model as m
from kgprof.errors import EXIT_USAGE, UsageError, WorkloadError
from kgprof.progress import Progress
from kgprof.record.ground.flags import flags
from kgprof.record.ground.native_stacks import native_stacks
from kgprof.record.processes import trials
from kgprof.record.processes.children import Caches

CAPTURE, CALL, CALLABLES = m.CaptureWay.CAPTURE, m.CaptureWay.CALL, m.CaptureWay.CALLABLES
SURVEY, MEASURE = (f"kgprof.lab.capture_cases:{name}" for name in ("survey", "measure"))
_STACK_CHARS = 12_000  # of a child's log, which ends with its stacks


def all_cases(*, built_in: bool) -> tuple[m.CaptureCase, ...]:
    """A capture in each mode, warm and cold, and from the default mode one change at a time. A
    user's own step may hold a torch.compile, so it is captured as it stands too."""
    modes = m.CAPTURE_MODES if built_in else (m.AS_IS, *m.CAPTURE_MODES)
    changed = partial(m.CaptureCase, way=CAPTURE)
    compiled = partial(changed, mode="default")
    plain = partial(changed, mode=m.EAGER)
    return (
        *(m.CaptureCase(way=CALL, mode=mode) for mode in modes),
        *(changed(mode=mode, warmups=number) for mode in modes for number in (m.WARMUPS, 0)),
        compiled(new_shape=True),
        compiled(own_stream=True),
        compiled(beside=m.Beside.RNG),
        compiled(rebound=True),
        plain(beside=m.Beside.RNG),
        plain(beside=m.Beside.SYNC),
        plain(rebound=True),
        *(plain(beside=m.Beside.THREAD, error_mode=error_mode) for error_mode in m.ERROR_MODES),
        *(m.CaptureCase(way=CALLABLES, mode=mode) for mode in (m.EAGER, "default")),
        m.CaptureCase(way=CALL, mode="reduce-overhead", rebound=True),
    )


def chosen(names: Sequence[str], *, built_in: bool) -> tuple[m.CaptureCase, ...]:
    """Those that ``--case`` names (patterns as a shell has them); all of them where it names none.

    Raises UsageError for a name that no case has.
    """
    known = all_cases(built_in=built_in)
    wanted: dict[str, m.CaptureCase] = {}
    for name in names:
        fitting = {case.name: case for case in known if fnmatchcase(case.name, name)}
        if not fitting:
            raise UsageError(f"no case {name!r}", hint="kgprof capture --list names them")
        wanted |= fitting
    return tuple(wanted.values()) if names else known


class Captures:
    """The cases of one workload, tried one after the other. ``interrupted``: a signal came, and the
    rest is left."""

    def __init__(
        self, options: m.Options, scratch: Path, progress: Progress, question: m.CaptureQuestion
    ) -> None:
        self._options, self._scratch, self._progress = options, scratch, progress
        self._question = replace(question, flags=flags())
        self.interrupted = False

    def survey(self) -> m.CaptureSurvey:
        """Raises UsageError or WorkloadError where the workload cannot be loaded,
        KeyboardInterrupt."""
        self._progress.phase("loading the workload", None)
        trial = self._ask(SURVEY, self._question, cold=False)
        if trial.interrupted:
            raise KeyboardInterrupt
        if trial.exit.outcome is m.Outcome.OK and trial.answer is not None:
            return m.decode_json(trial.answer, m.CaptureSurvey)
        failed = trial.failed
        if failed is not None and failed.exit_code == EXIT_USAGE:
            raise UsageError(failed.message, hint=failed.hint)
        why = (
            f"{self._options.workload} could not be loaded: "
            f"{trial.exit.message or trial.exit.words}"
        )
        raise WorkloadError(
            f"no case could be run: {why}",
            hint="run the file with python to see its whole traceback",
        )

    def results(
        self, cases: Sequence[m.CaptureCase], survey: m.CaptureSurvey
    ) -> Iterator[m.CaptureResult]:
        for number, case in enumerate(cases, start=1):
            if survey.unavailable:
                outcome = m.CaptureOutcome.NOT_APPLICABLE
                yield m.CaptureResult(case, case.name, outcome, survey.unavailable)
                continue
            key = m.RunKey(survey.strategy, case.name)
            self._progress.phase(f"case {number} of {len(cases)}", key)
            question = replace(self._question, case=case)
            # What compiles inside a capture must find nothing compiled, not on disk either: a cache
            # hit runs none of what fails there. Where it compiles before the capture, the caches of
            # the case before it do.
            cold = case.mode != m.EAGER and (case.warmups == 0 or case.new_shape)
            trial = self._ask(MEASURE, question, cold=cold)
            if trial.interrupted:
                self.interrupted = True
                return
            yield _result(case, trial, self._native)

    def _ask(self, function: str, question: m.CaptureQuestion, *, cold: bool) -> trials.Trial:
        folder = self._scratch / (f"caches-{question.case.name}" if cold else "caches")
        self._native: str | m.Skipped = m.Skipped("the process exited")
        return trials.run(
            function,
            question,
            options=self._options,
            scratch=self._scratch,
            caches=Caches(folder=folder, kept=not cold),
            on_timeout=self._look_at,
        )

    def _look_at(self, pid: int) -> None:
        """A child that has no time left."""
        self._native = native_stacks(pid)


def _result(case: m.CaptureCase, trial: trials.Trial, native: str | m.Skipped) -> m.CaptureResult:
    """The child's answer if it ended well; else how it ended, also if it had an outcome and was
    timing."""
    answer = m.decode_json(trial.answer, m.CaptureAnswer) if trial.answer is not None else None
    raised = m.CaptureOutcome.RAISED
    made = m.CaptureResult(case, case.name, raised, answer=answer, exit=trial.exit)
    phase = answer.phase if answer is not None else "load"
    if trial.exit.outcome is m.Outcome.OK and answer is not None and answer.outcome is not None:
        return replace(made, outcome=answer.outcome, why=answer.why)
    if trial.exit.outcome is m.Outcome.TIMED_OUT:
        return replace(
            made,
            outcome=m.CaptureOutcome.HUNG,
            why=f"{trial.exit.message} (phase: {phase})",
            stacks=trial.log[-_STACK_CHARS:],
            native_stacks=native,
        )
    why = f"the process ended in phase {phase}: {trial.exit.words}"
    if phase == "load":
        return replace(made, outcome=m.CaptureOutcome.NOT_APPLICABLE, why=why)
    return replace(made, why=why)
