"""``kgprof.watch``: the findings of the passes COMPILE and MEMORY about code that runs in this
process.

watched = kgprof.watch(step)            # each call of ``watched`` is a step
with kgprof.watch(buffers) as watched:  # each kgprof.step() in the block begins one
"""

from __future__ import annotations

import functools
import html
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import MethodType, TracebackType
from typing import Any, NamedTuple

import kgprof
from kgprof import collectors, coverage
from kgprof import model as m
from kgprof.analysis import memory
from kgprof.collectors.trust import nothing_measured, witnesses
from kgprof.errors import UsageError
from kgprof.reading.evidence import Evidence
from kgprof.record.ground.source import replace
from kgprof.record.passes.in_process import InProcess, device_of, is_tensor
from kgprof.watching import cells
from kgprof.wording import plural

ASIDE = "kgprof runs and measures this program itself, so nothing is watched here; see its report"
# then nothing more is listened to: what is known of each place grows with the steps
STEPS = 100_000


def watch(
    fn_or_tensors: Callable[..., Any] | Mapping[str, Any] | Iterable[Any] | Any | None = None,
    *,
    buffers: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    warmup: int = 1,
    device: str = "auto",
) -> Watch:
    """Watch a function or a with-block of this process.

    ``fn_or_tensors``: a function (a step is a call of what is returned; works as a decorator) or
    tensors, the declared buffers: one, several, or a mapping from a name, which is looked at again
    in each step, so that a tensor rebound in it is seen. ``buffers`` declares them beside a
    function. The first ``warmup`` steps may compile and read what they like. ``device`` is whose
    synchronisations count: "auto" is that of the first tensor that is known.

    In a program that ``kgprof profile`` or ``check-graphs`` runs it stands aside: nothing listens
    but they.

    Watch from the first call on: what was compiled before is not looked into. One thing is watched
    at a time: the first step of a second watch replaces the first, with a warning, as when a
    notebook's cell is run again. Raises UsageError where the arguments are of other types, and on a
    first step inside another watch's block or step.
    """
    # step = kgprof.watch(step), again
    while isinstance(fn_or_tensors, Watch) and fn_or_tensors._function is not None:
        fn_or_tensors.stop()
        warnings.warn(
            f"kgprof.watch: {fn_or_tensors._name} was watched already; this watch takes over",
            stacklevel=2,
        )
        fn_or_tensors = fn_or_tensors._function
    function, declared = _told_apart(fn_or_tensors, buffers)
    if warmup < 0:
        raise UsageError(f"warmup must be a number of steps, got {warmup}")
    inner = getattr(function, "_torchdynamo_orig_callable", function)
    code = getattr(inner, "__code__", None)
    files = {sys._getframe(1).f_code.co_filename}
    if code is not None:
        files.add(code.co_filename)
    return Watch(function, declared, warmup, device, tuple(files))


def _told_apart(
    given: Any, buffers: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None
) -> tuple[Callable[..., Any] | None, Callable[[], Mapping[str, Any]] | None]:
    """The function, and what its buffers are in each step."""
    function = None
    tensors = given
    if callable(given) and not is_tensor(given):
        function = given
        tensors = None
    if tensors is not None and buffers is not None:
        raise UsageError(
            "the tensors to watch were given twice", hint="Give a function, tensors or buffers=."
        )
    if tensors is None:
        named = buffers
    elif isinstance(tensors, Mapping):
        named = tensors
    elif is_tensor(tensors):
        named = {"tensor": tensors}
    elif isinstance(tensors, Iterable):
        named = {f"tensor {index}": tensor for index, tensor in enumerate(tensors)}
    else:
        raise UsageError(f"kgprof.watch takes a function or tensors, not {type(tensors).__name__}")
    if named is None:
        return function, None
    declared = functools.partial(_now, named)
    for name, tensor in declared().items():
        if not is_tensor(tensor):
            raise UsageError(f"{name!r} must be a tensor, got {type(tensor).__name__}")
    return function, declared


def _now(buffers: Mapping[str, Any] | Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    if callable(buffers):
        return buffers()
    return buffers


class _Collected(NamedTuple):
    recording: m.Recording | None = None  # before the first step
    findings: tuple[m.Finding, ...] = ()
    coverage: tuple[m.Coverage, ...] = ()


class Watch:
    """What ``kgprof.watch`` returns: calls the function, and knows what was found up to now."""

    def __init__(
        self,
        function: Callable[..., Any] | None,
        buffers: Callable[[], Mapping[str, Any]] | None,
        warmup: int,
        device: str,
        files: tuple[str, ...],
    ) -> None:
        self._function = function
        self._buffers = buffers
        self.declares_buffers = buffers is not None
        self._warmup = warmup
        self._device = device
        self._files = files
        self._name = "block"
        if function is not None:
            self._name = getattr(function, "__name__", type(function).__name__)
            functools.update_wrapper(self, function, updated=())
        self._listening: InProcess | None = None
        self._over = self._aside = kgprof._profiled
        self._inside = False  # a function that calls itself takes one step
        self._marks_steps = function is None  # the block does, by kgprof.step()
        self._undo = ExitStack()
        self._known: tuple[tuple[int, bool], _Collected] | None = None

    # ------------------------------------------------------------ as a function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is None:
            raise UsageError("watched tensors need a with-block and cannot be called")
        if self._over or self._inside or self._marks_steps:
            return self._function(*args, **kwargs)
        listening = self._listening or self._begin((*args, *kwargs.values()))
        if listening.over:  # something else is watched in its place
            return self._function(*args, **kwargs)
        self._inside = True
        listening.step_begins()
        try:
            result = self._function(*args, **kwargs)
        except BaseException as error:
            listening.step_ends(error)
            raise
        else:
            listening.step_ends()
            return result
        finally:
            self._inside = False
            if listening.steps >= STEPS:
                self.stop()

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """A decorated method is bound like any."""
        if instance is None:
            return self
        return MethodType(self, instance)

    # ------------------------------------------------------------ as a block

    def __enter__(self) -> Watch:
        if self._aside:
            return self
        if self._over or (self._listening is not None and self._listening.over):
            raise UsageError(f"{self._name} was watched already", hint="Call kgprof.watch again.")
        begun = self._listening is not None
        listening = self._listening or self._begin(())
        listening.in_block = True
        if begun:
            return self

        def stepped() -> None:
            if self._inside or (listening.steps and not self._marks_steps):
                return  # calls of the function are the steps
            self._marks_steps = True
            listening.step_ends()
            if listening.steps >= STEPS:
                self.stop()
            else:
                listening.step_begins()

        replace(kgprof, "_on_step", stepped, self._undo)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._listening is not None and error is not None:
            self._listening.failed(error)
        if self._listening is not None and self._marks_steps:
            self._listening.step_ends(error)
        self.stop()

    def _begin(self, values: tuple[object, ...]) -> InProcess:
        known = [*values, self._function]
        if self._buffers is not None:
            known.append(self._buffers())
        device = device_of(self._device, known)
        listening = InProcess(
            self._name, device=device, warmup=self._warmup, files=self._files, buffers=self._buffers
        )
        listening.begin()
        self._listening = listening
        # who drops the last name of it watches no longer
        weakref.finalize(self, listening.end).atexit = False
        return listening

    def stop(self) -> None:
        """Everything as it was before; calls go straight to the function from here on. What was
        found stays."""
        self._over = True
        self._undo.close()
        if self._listening is not None:
            self._listening.end()

    # ------------------------------------------------------------ what was found

    @property
    def steps(self) -> int:
        """That are over."""
        if self._listening is None:
            return 0
        return self._listening.steps

    @property
    def steps_after_warmup(self) -> int:
        return max(0, self.steps - self._warmup)

    @property
    def recording(self) -> m.Recording | None:
        """What was recorded up to now, of the run ``as-is``; None before the first step."""
        return self._collected().recording

    @property
    def findings(self) -> tuple[m.Finding, ...]:
        """As a report has them: errors first, then by rule. That nothing was compiled is told by
        ``notes``."""
        return self._collected().findings

    @property
    def coverage(self) -> tuple[m.Coverage, ...]:
        """Each rule: seen, not seen, or why it could not be seen."""
        return self._collected().coverage

    @property
    @m.skippable
    def syncs_per_step(self) -> float | m.Skipped:
        """Reads after warm-up for which the host waits, or would on CUDA (KGP201, KGP202)."""
        recording = self.recording
        if recording is None:
            return m.Skipped(self._why_none)
        (run,) = Evidence(recording).runs
        return m.known(memory.summary(run)).syncs_per_step

    @property
    @m.otherwise(0)
    def compilations(self) -> int:
        """That ended while it was watched, the failed ones among them."""
        if self.recording is None:
            return 0
        return len(m.known(self.recording.runs[0].compile).compilations)

    @property
    def _why_none(self) -> str:
        """Why there is no recording."""
        if self._aside:
            return ASIDE
        return "nothing has run yet"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know before an empty list of findings is good news."""
        if self._listening is None:
            return (self._why_none,)
        found = [*self.unavailable]
        if self._listening.replaced_by:
            found.append(
                f"{self._listening.replaced_by} has been watched instead since step {self.steps}"
            )
        if not self.steps_after_warmup:
            found.append(f"{plural(self.steps, 'step')} taken, but warm-up takes {self._warmup}")
        if not self.compilations:
            found.append(
                "nothing was compiled while it was watched; code compiled earlier is not analysed"
            )
        return tuple(found)

    @property
    def unavailable(self) -> tuple[str, ...]:
        """What this torch does not offer to listen to, and why."""
        if self.recording is None:
            return ()
        run = self.recording.runs[0]
        words: list[str] = []
        for found in (run.compile, run.memory):
            if not isinstance(found, m.Skipped):
                words += (lost.words for lost in found.capture_unavailable)
        return cells.named(tuple(words), tuple[str, ...])

    def _collected(self) -> _Collected:
        if self._listening is None:
            return _Collected()
        state = (self.steps, self._over)
        if self._known is None or self._known[0] != state:
            recording = self._listening.recording()
            evidence = Evidence(recording)
            not_about_code = {rule.id for rule in nothing_measured.RULES}
            found = tuple(f for f in collectors.findings(evidence) if f.rule not in not_about_code)
            covered = witnesses.coverage(evidence, collectors.RULES, found)
            found = cells.named(found, tuple[m.Finding, ...])
            self._known = state, _Collected(recording, found, covered)
        return self._known[1]

    def __repr__(self) -> str:
        return "\n".join(
            (self._head(), *map(line_of, self.findings), *(f"note: {note}" for note in self.notes))
        )

    def _head(self) -> str:
        reads = self.syncs_per_step
        words = "syncs per step not observed"
        if not isinstance(reads, m.Skipped):
            words = f"{plural(reads, 'sync')} per step"
        findings = "no finding"
        if self.findings:
            findings = plural(len(self.findings), "finding")
        elif self.coverage:
            findings += f" ({coverage.tally(self.coverage, collectors.RULES)})"
        return f"kgprof.watch {self._name}: {findings} in {plural(self.steps, 'step')}, {words}"

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(self._head())}</p>"]
        if self.findings:
            parts.append("<table><tr><th>line</th><th>rule</th><th>level</th><th>finding</th></tr>")
            for each in self.findings:
                texts = (place_of(each), each.rule, each.level, each.message)
                row = "".join(f"<td>{html.escape(text)}</td>" for text in texts)
                parts.append(f"<tr>{row}</tr>")
            parts.append("</table>")
        parts += (f"<p>{html.escape(note)}</p>" for note in self.notes)
        return "".join(parts)


def line_of(finding: m.Finding) -> str:
    """``file:line: RULE message``."""
    return f"{place_of(finding)}: {finding.rule} {finding.message}"


def place_of(finding: m.Finding) -> str:
    place = finding.location
    if place is None:
        return "line unknown"
    return f"{place.file}:{place.line}"
