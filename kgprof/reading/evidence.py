"""What a Recording holds, each thing read once: its traces, records and sources, and whatever is
derived from them.

    Evidence ──runs──► RunEvidence ──trace(pass)──► kineto.Trace | Skipped
        │                   ├──compiler──► RunTrace | None torch's structured records of COMPILE
        │                   ├──source──► SourceText        the project's files as they were recorded
        └──once(derive)     └──once(derive)                derive(evidence), computed once

Collectors turn Evidence into events; analysis takes Evidence and asks for their events by
``evidence.once(collect)``. Nothing to the right of this room opens a file of a Recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

from kgprof import model as m
from kgprof.errors import InputError
from kgprof.reading import kineto, layout
from kgprof.reading.source_text import SourceText
from kgprof.reading.structured_trace import RunTrace

T = TypeVar("T")


class _Derived:
    """Keeps what was computed from it, by the function that computed it."""

    def __init__(self) -> None:
        self._derived: dict[Callable[..., Any], Any] = {}

    def once(self, derive: Callable[[Self], T]) -> T:
        """``derive(self)``, computed at the first call and kept; ``derive`` is told apart by
        identity."""
        if derive not in self._derived:
            self._derived[derive] = derive(self)
        found: T = self._derived[derive]
        return found


class Evidence(_Derived):
    """One Recording. ``kind_overrides``: the project's own kinds of kernels, for every figure of
    every kernel."""

    def __init__(
        self, recording: m.Recording, kind_overrides: Sequence[m.KindOverride] = ()
    ) -> None:
        super().__init__()
        self.recording = recording
        self.kind_overrides = tuple(kind_overrides)
        self.device = recording.header.plan.device
        self.runs = tuple(RunEvidence(self, run) for run in recording.runs)

    def forget(self) -> None:
        """What was read and computed. It and its runs know each other, so that the traces would
        else stay in memory until Python looks for such circles."""
        self._derived.clear()
        self.runs = ()

    def run(self, key: m.RunKey) -> RunEvidence | None:
        return next((run for run in self.runs if run.key == key), None)

    @property
    def on_gpu(self) -> tuple[RunEvidence, ...]:
        """Its runs, unless they ran on a CPU."""
        return self.runs if self.device == "cuda" else ()

    @property
    def compilers(self) -> tuple[RunTrace, ...]:
        """Of every run whose COMPILE pass came to its end."""
        return tuple(trace for run in self.runs if (trace := run.compiler) is not None)

    @property
    def compilers_and_cut_off(self) -> tuple[RunTrace, ...]:
        """Then also of the runs that raised within COMPILE."""
        return (
            *self.compilers,
            *(trace for run in self.runs if (trace := run.cut_off_compiler) is not None),
        )


class RunEvidence(_Derived):
    """One run of a Recording."""

    def __init__(self, whole: Evidence, record: m.RunRecord) -> None:
        super().__init__()
        self.whole = whole
        self.record = record
        self.key = record.key
        self._traces: dict[m.PassName, kineto.Trace | m.Skipped] = {}

    def trace(self, name: m.PassName = m.PassName.TRACE) -> kineto.Trace | m.Skipped:
        """The Kineto trace of TRACE, STACK or KERNELS; Skipped where the pass is, or its file
        cannot be read."""
        made = {m.PassName.TRACE: self.record.trace, m.PassName.STACK: self.record.stack}.get(
            name, self.record.kernels
        )
        if isinstance(made, m.Skipped):
            return made
        if name not in self._traces:
            try:
                path = layout.trace_path(self.whole.recording, self.key, name)
                within = self.whole.recording.folder
                self._traces[name] = kineto.read(path, Path(within))
            except InputError as error:
                self._traces[name] = m.Skipped(error.message)
        return self._traces[name]

    @cached_property
    def trace_head(self) -> dict[str, Any]:
        """What stands before TRACE's events; empty without TRACE."""
        if isinstance(self.trace(m.PassName.TRACE), m.Skipped):
            return {}
        recording = self.whole.recording
        return kineto.metadata(
            layout.trace_path(recording, self.key, m.PassName.TRACE), Path(recording.folder)
        )

    @cached_property
    def compute_capability(self) -> tuple[int, int]:
        """Of the first GPU that TRACE names, (9, 0) for an H100; (0, 0) where it names none."""
        cards = self.trace_head.get("deviceProperties")
        card = cards[0] if isinstance(cards, list) and cards and isinstance(cards[0], dict) else {}
        major = card.get("computeMajor")
        minor = card.get("computeMinor")
        return (major, minor) if type(major) is int and type(minor) is int else (0, 0)

    @cached_property
    def source(self) -> SourceText:
        """What COMPILE and MEMORY brought along: the second process names files that the first does
        not."""
        passes = (self.record.records, self.record.memory)
        compiled, watched = (
            m.Sources() if isinstance(each, m.Skipped) else each.sources for each in passes
        )
        return SourceText(
            m.Sources(
                libraries=compiled.libraries or watched.libraries,
                own=compiled.own or watched.own,
                files={**watched.files, **compiled.files},
                registry=compiled.registry,
                packages={**watched.packages, **compiled.packages},
            )
        )

    @cached_property
    def compiler(self) -> RunTrace | None:
        """None where the COMPILE pass did not come to its end."""
        run = self.record
        if isinstance(run.records, m.Skipped) or isinstance(run.compile, m.Skipped):
            return None
        compiled = run.compile
        changed = self.changed_by_listening
        calls = compiled.made
        steady_from = compiled.steady_from
        tried = run.setting_trials
        trials = tried if isinstance(tried, tuple) else ()
        return RunTrace(
            run.key,
            run.records,
            calls=calls,
            steady_from=steady_from,
            source=self.source,
            changed=changed,
            setting_trials=trials,
        )

    @cached_property
    def changed_by_listening(self) -> tuple[m.BackendFailure, ...]:
        """The first failure of a backend for each code object that torch compiled without any
        listener."""
        run = self.record
        if isinstance(run.records, m.Skipped) or not isinstance(run.control, m.Control):
            return ()
        compiled = {(code.file, code.line, code.function) for code in run.control.compiled}
        failed = {
            (each.file, each.first_line, each.function): each
            for each in reversed(run.records.backends)
        }
        return tuple(failure for code, failure in failed.items() if code in compiled)

    @cached_property
    def cut_off_compiler(self) -> RunTrace | None:
        """Of a run that raised within COMPILE, as torch does that was asked for a full graph and
        cannot give it.

        What it says has happened; which calls would have come after it is not known, so nothing is
        in steady state.
        """
        run = self.record
        if not isinstance(run.compile, m.Skipped) or isinstance(run.records, m.Skipped):
            return None
        changed = self.changed_by_listening
        return RunTrace(
            run.key, run.records, calls=0, steady_from=0, source=self.source, changed=changed
        )
