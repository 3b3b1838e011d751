"""The child's side of ``kgprof capture``: one case, in a process that may raise, hang or be killed
for it.

A replay is compared with eager mode from the same tensors and the same seed, three calls in a row:
with the inputs as they were, and with two other sets of values. What is compared are the results
and every tensor that the step writes. The reference is made after the capture, so that nothing has
warmed up anything before it.
"""

import contextlib
import importlib
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo
from msgspec.structs import replace

from kgprof import model as m
from kgprof.lab.capturing import CudaGraph
from kgprof.measures.times import spread
from kgprof.reading.project import ProjectFiles
from kgprof.record.ground import environment
from kgprof.record.ground.job import own_line
from kgprof.record.ground.project_sources import project_files
from kgprof.record.ground.run import seed_everything
from kgprof.record.ground.source import first_line
from kgprof.record.listeners.static_inputs import ROUNDS, StaticInputs, Tensors, worst
from kgprof.record.passes.timing import clock_for, timed_steps, wall_us
from kgprof.record.processes.planning import select_runs
from kgprof.record.processes.trials import Write
from kgprof.workloads import loading, user
from kgprof.workloads.backend import in_place_of_inductor
from kgprof.workloads.protocol import BufferSession, Step, Workload

ELSEWHERE_BYTES = 300 * 2**20  # more than the caching allocator has left over from anything else
SAMPLES, SAMPLE_US = 15, 5_000.0  # each a group of calls that takes about so long
MOST_CALLS = 100  # in a group
# Of torch._dynamo.config: no guard looks at a tensor whose dict (a module's, the globals) is as it
# was.
SKIPS_GUARDS = ("use_recursive_dict_tags_for_guards", "skip_tensor_guards_with_matching_dict_tags")
BLIND = "other inputs do not change the result, so it does not show which of them a replay reads"
_TRACEBACK = 20_000  # characters


def survey(question: bytes, options: m.Options, write: Write) -> None:
    """The machine, without running the step: it may hang. Raises what loading the workload
    raises."""
    decoded, capturer = _decoded(question)
    unavailable = capturer.unavailable()
    device = torch.device("cpu") if unavailable else capturer.device
    workload = loading.load(options.workload, options.workload_args, options.seed)
    described = environment.describe(device, decoded.flags)
    strategy = _strategy(workload, decoded.strategy, device)
    write(m.CaptureSurvey(described, strategy, unavailable))


def measure(question: bytes, options: m.Options, write: Write) -> None:
    """One case. Raises what loading the workload raises; what comes after is an outcome."""
    decoded, capturer = _decoded(question)
    with in_place_of_inductor(options.backend):
        attempt = _Attempt(decoded, options, capturer, write)
        try:
            attempt.answer = attempt.outcome()
        except Exception as error:  # noqa: BLE001  whatever it raises is the outcome
            attempt.answer = attempt.raised(error)
        write(attempt.answer)


def _decoded(question: bytes) -> tuple[m.CaptureQuestion, CudaGraph]:
    """The question, and what captures: the tests name another one, which needs no GPU."""
    decoded = m.decode_json(question, m.CaptureQuestion)
    module, _, name = decoded.capturer.partition(":")
    return decoded, getattr(importlib.import_module(module), name)()


def _strategy(workload: Workload, wanted: str, device: torch.device) -> str:
    """Raises UsageError for one that the workload does not have."""
    return select_runs(workload, m.Options(strategies=(wanted,) if wanted else ()), device)[
        0
    ].strategy


class _NotComparableError(Exception):
    """Says why the case does not apply to this function."""


class _Attempt:
    """A case on its way. ``answer`` is what is known by now."""

    def __init__(
        self, question: m.CaptureQuestion, options: m.Options, capturer: CudaGraph, write: Write
    ) -> None:
        self.case, self._options, self._capturer, self._write = (
            question.case,
            options,
            capturer,
            write,
        )
        self._project: ProjectFiles = project_files(options.workload)
        self.answer = m.CaptureAnswer(phase="load")
        self._phase("load")
        seed_everything(options.seed)
        workload = loading.load(options.workload, options.workload_args, options.seed)
        strategy = _strategy(workload, question.strategy, capturer.device)
        modes = next(plan.modes for plan in workload.strategies() if plan.name == strategy)
        key = m.RunKey(strategy, m.AS_IS if m.AS_IS in modes else m.EAGER)
        session = workload.prepare(key, capturer.device)
        self._owner = session.unwatched if isinstance(session, user.UserSession) else session.step
        self._declared = session.buffers() if isinstance(session, BufferSession) else {}
        self._step = _beside(self._owner, self.case.beside, capturer.device)
        self._inputs: StaticInputs | None = None
        if self.case.mode == m.EAGER:
            torch.compiler.set_stance("force_eager")
        self._called: Any = self._compiled() if self.case.compiled else self._step

    def _compiled(self) -> Any:
        # else the second shape is traced as a dynamic one
        dynamic = False if self.case.new_shape else None
        mode = None if self.case.mode == "default" else self.case.mode
        return torch.compile(self._step, mode=mode, dynamic=dynamic)

    def _phase(self, name: str) -> None:
        self.answer = replace(self.answer, phase=name)
        self._write(self.answer)

    def outcome(self) -> m.CaptureAnswer:
        case = self.case
        if case.new_shape:
            self._find_inputs(())
            self._compile_for_half()
        if case.way is m.CaptureWay.CALLABLES:
            self._find_inputs(())
            self._phase("capture")
            inputs = self._read.inputs
            graphed = self._capturer.callables(
                lambda *_: self._called(), [held.program for held in inputs]
            )
            # made before timing
            arguments = [[held.elsewhere(number) for held in inputs] for number in range(ROUNDS)]
            return self._judged(lambda number: graphed(*arguments[number]), copied=True)
        self._phase("warm-up")
        with (
            self._capturer.warming_up()
            if case.way is m.CaptureWay.CAPTURE
            else contextlib.nullcontext()
        ):
            for _ in range(0 if case.new_shape else case.warmups):
                self._marked()
        if case.way is m.CaptureWay.CALL:
            self._find_inputs(())
            return self._judged(lambda number: self._marked())
        self._phase("capture")
        with self._capturer.capturing(case):
            captured = self._called()
            if case.beside is m.Beside.THREAD:
                _allocate_elsewhere(self._capturer.device)
        self._find_inputs(captured)

        def replay(number: int) -> object:
            self._capturer.replay()
            return captured

        return self._judged(replay)

    def _marked(self) -> object:
        if self.case.mode in m.OWN_GRAPHS:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return self._called()

    # ---------------------------------------------------------------- the function's tensors

    @property
    def _read(self) -> StaticInputs:
        assert self._inputs is not None
        return self._inputs

    def _eager(self, number: int = 0) -> object:
        with torch.compiler.set_stance("force_eager"):
            return self._step()

    def _find_inputs(self, captured: object) -> None:
        """Raises _NotComparableError where the function raises when it is called in eager mode."""
        if self._inputs is not None:
            return
        self._phase("reference")
        try:
            inputs = StaticInputs(
                self._eager,
                self._capturer.device,
                declared=self._declared,
                owner=self._owner,
                results=captured,
            )
            self._eager()
            inputs.classify()
        except Exception as error:
            why = f"the function raises in eager mode, outside of a capture: {_sentence(error)}"
            raise _NotComparableError(why) from error
        self._inputs = inputs
        inputs.restore()
        self.answer = replace(self.answer, inputs=inputs.described)

    def _compile_for_half(self) -> None:
        name = self._read.halve(self._eager)
        if not name:
            raise _NotComparableError(
                "no input can be half as long in its first dimension while the others stay"
            )
        self.answer = replace(
            self.answer, notes=(f"compiled with the first dimension of {name} halved",)
        )
        self._phase("warm-up")
        for setting in SKIPS_GUARDS:
            # else a shape that changes in place is not seen
            if hasattr(torch._dynamo.config, setting):
                setattr(torch._dynamo.config, setting, False)
        for _ in range(self.case.warmups):
            self._marked()
        self._read.restore()

    # ---------------------------------------------------------------- right or wrong

    def _rounds(
        self, call: Callable[[int], object], *, move: bool, vary: bool = True
    ) -> list[Tensors]:
        inputs = self._read
        inputs.restore()
        seed_everything(self._options.seed)
        results: list[Tensors] = []
        for number in range(ROUNDS):
            if vary:
                inputs.vary(number, move=move)
            results.append(inputs.results(call(number)))
        return results

    def _judged(self, call: Callable[[int], object], *, copied: bool = False) -> m.CaptureAnswer:
        """``copied``: ``call`` itself is given the inputs of each round."""
        move = self.case.rebound
        seed_everything(self._options.seed)
        before = _random_state(self._capturer.device)
        expected = self._rounds(self._eager, move=move)
        drawn = _random_state(self._capturer.device) != before
        again = self._rounds(self._eager, move=move)
        self._phase("replay")
        got = self._rounds(call, move=move, vary=not copied)
        seen = bool(self._read.inputs) and _differing(worst(expected[:1], expected[1:2]))
        self.answer = replace(self.answer, random=drawn, blind=not seen)
        if move and not seen:
            raise _NotComparableError(BLIND)
        if not any(expected):
            raise _NotComparableError(
                "the function neither returns nor writes a tensor, so there is nothing to compare"
            )
        frozen = worst(expected, again)
        if _differing(frozen):
            return self._unrepeatable(frozen, got, call, copied=copied)
        difference = worst(expected, got)
        # as-is may hold a compiled function
        if _differing(difference) and self.case.mode != m.EAGER and not move:
            if drawn and self.case.way is m.CaptureWay.CALL:
                why = (
                    "the function draws random numbers, and compiled code draws different ones "
                    "from the same seed"
                )
                raise _NotComparableError(why)
            if self.case.way is not m.CaptureWay.CALL:
                difference = self._against_compiled(difference, got)
        if _differing(difference):
            stale = not _differing(worst([expected[0]] * (ROUNDS - 1), got[1:]))
            return self._ended(m.CaptureOutcome.WRONG, difference, stale=stale)
        return self._timed(self._ended(m.CaptureOutcome.CORRECT, difference), call)

    def _unrepeatable(
        self,
        frozen: m.CaptureDifference | None,
        got: list[Tensors],
        call: Callable[[int], object],
        *,
        copied: bool,
    ) -> m.CaptureAnswer:
        """Eager mode gives other results from equal tensors. Where the replays do not, they repeat
        what a call of the capture took from somewhere else."""
        repeated = self._rounds(call, move=self.case.rebound, vary=not copied)
        if self.case.way is m.CaptureWay.CALL or _differing(worst(got, repeated)):
            raise _NotComparableError(
                "two calls in eager mode from the same tensors and seed give different results"
            )
        why = (
            "the result depends on something besides tensors (Python state, a clock), "
            "which is frozen in the graph"
        )
        return replace(self._ended(m.CaptureOutcome.WRONG, frozen), why=why)

    def _against_compiled(
        self, difference: m.CaptureDifference | None, got: list[Tensors]
    ) -> m.CaptureDifference | None:
        """A difference that the compiled function has outside of the graph as well is none of the
        capture's."""
        outside = worst(self._rounds(lambda number: self._called(), move=False), got)
        if not _differing(outside):
            note = (
                "equal to the compiled function outside of a graph, which itself differs "
                "from eager mode"
            )
            drawn = (
                "compared with the compiled function outside of a graph: it draws different "
                "random numbers from eager"
            )
            self.answer = replace(
                self.answer, notes=(*self.answer.notes, drawn if self.answer.random else note)
            )
            return outside
        return difference

    def _ended(
        self,
        outcome: m.CaptureOutcome,
        difference: m.CaptureDifference | None,
        *,
        stale: bool = False,
    ) -> m.CaptureAnswer:
        return replace(self.answer, outcome=outcome, difference=difference, stale=stale)

    def _timed(self, answer: m.CaptureAnswer, call: Callable[[int], object]) -> m.CaptureAnswer:
        self.answer = answer
        self._phase("timing")
        self._read.restore()
        timed = replace(answer, phase="timing", call_us=self._cost(lambda: call(ROUNDS - 1)))
        if self.case.way is m.CaptureWay.CAPTURE and self._read.inputs:
            return replace(timed, copies_us=self._cost(self._read.copies))
        return timed

    def _cost(self, call: Step) -> m.Spread | m.Skipped:
        device = self._capturer.device
        once = min(wall_us(call, device) for _ in range(3))
        count = max(1, min(MOST_CALLS, int(SAMPLE_US / max(once, 1.0))))

        def group() -> None:
            for _ in range(count):
                call()

        group()
        samples = [each / count for each in timed_steps(group, clock_for(device), SAMPLES)]
        return spread(samples, unit="us")

    # ---------------------------------------------------------------- raised

    def raised(self, error: Exception) -> m.CaptureAnswer:
        shown = error.__cause__ if isinstance(error, _NotComparableError) else error
        text = "".join(traceback.format_exception(shown))[-_TRACEBACK:] if shown is not None else ""
        if isinstance(error, _NotComparableError):
            return replace(
                self.answer, outcome=m.CaptureOutcome.NOT_APPLICABLE, why=str(error), traceback=text
            )
        outcome = m.CaptureOutcome.RAISED
        why = _sentence(error)
        if self.answer.phase == "warm-up" and not self.case.compiled:
            outcome = m.CaptureOutcome.NOT_APPLICABLE
            why = f"the function raises in its warm-up, before anything is captured: {why}"
        return replace(self.answer, outcome=outcome, why=why, at=self._line(error), traceback=text)

    def _line(self, error: BaseException) -> m.Location | None:
        """The innermost line of the project; of several exceptions the first one's."""
        chain = reversed(list(_chain(error)))
        lines = (own_line(raised, self._project.holds) for raised in chain)
        return next(filter(None, lines), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = getattr(seen, "inner_exception", None) or seen.__cause__ or seen.__context__


def _sentence(error: BaseException) -> str:
    """torch's words. The end of a capture raises once more, and what it raises says only that
    something was before."""
    chain = [raised for raised in _chain(error) if isinstance(raised, RuntimeError)]
    first = chain[-1] if chain else error
    # Dynamo's wrapping of a backend's exception says nothing of its own
    if hasattr(error, "inner_exception"):
        return first_line(first)
    return "; then ".join(dict.fromkeys((first_line(first), first_line(error))))


def _differing(difference: m.CaptureDifference | None) -> bool:
    return difference is not None and bool(difference.differing)


def _random_state(device: torch.device) -> tuple[object, ...]:
    drawn = torch.get_rng_state().numpy().tobytes()
    return (drawn, torch.cuda.get_rng_state().numpy().tobytes() if device.type == "cuda" else b"")


def _beside(step: Step, what: m.Beside, device: torch.device) -> Step:
    """The function with an operator more, as a program has it that does both in one capture."""
    if what is m.Beside.RNG:
        return lambda: (step(), torch.rand(64, device=device))
    if what is m.Beside.SYNC:
        return lambda: (step(), torch.ones((), device=device).item())
    return step


def _allocate_elsewhere(device: torch.device) -> None:
    """In another thread, as a data loader's does. Raises what it raised there."""
    failed = []

    def allocate() -> None:
        try:
            torch.empty(ELSEWHERE_BYTES, dtype=torch.uint8, device=device)
        except BaseException as error:  # noqa: BLE001  it is raised where the capture is
            failed.append(error)

    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
