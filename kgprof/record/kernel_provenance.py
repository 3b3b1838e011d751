"""Which source lines each generated kernel came from, as Inductor itself wrote it down while it fused them.

Inductor keeps this with ``trace.provenance_tracking_level`` 1 (INDUCTOR_PROVENANCE=1) and emits it as an artifact of
the structured trace: "kernel name:number of the call" -> stacks, one for each operation that went into the kernel. Its
names are the trace's names. Watched in the second process of a run, because it makes compiling longer.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from kgprof import model as m
from kgprof.reading.project import ProjectFiles
from kgprof.record.kernel_work import KernelWatch
from kgprof.record.source import LogListener, Source, replace

TRACE_LOGGER = "torch.__trace"
ARTIFACT = "inductor_provenance_tracking_kernel_stack_traces"
HANDLE = "_inductor_kernel_provenance_debug_handle"  # counts what Inductor noted
MAX_ORIGINS = 5_000  # calls of kernels; a graph of the evaluator has 40
MAX_LINES = 64  # of one kernel
_FRAME = re.compile(r'^ *File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)$', re.MULTILINE)


class KernelProvenance(Source):
    """One KernelOrigin for each call of a kernel in the code that was generated while it listened."""

    name = "kernel provenance"

    def __init__(self, project: ProjectFiles) -> None:
        self.left_out = 0
        self._project = project
        self.origins: list[m.KernelOrigin] = []
        self._work: dict[str, m.KernelWork] = {}  # of the compilation that is going on

    def answer(self, eager: Sequence[m.KernelOrigin] = ()) -> m.KernelOrigins | m.Skipped:
        """For the Recording. ``eager``: of what is called outside of compiled code."""
        if self.unavailable:
            return m.Skipped(reason=self.unavailable)
        if not self.origins:
            return m.Skipped(reason="Inductor generated no code")
        return m.KernelOrigins(origins=(*self.origins, *eager), left_out=self.left_out)

    def listen(self, undo: ExitStack) -> None:
        try:
            from torch._inductor import config

            before = config.trace.provenance_tracking_level
        except (ImportError, AttributeError) as error:
            self.unavailable = f"this torch keeps no provenance of kernels ({error})"
            return
        LogListener(self._take).stand_first(logging.getLogger(TRACE_LOGGER), undo)
        undo.callback(setattr, config.trace, "provenance_tracking_level", before)
        config.trace.provenance_tracking_level = max(1, before)
        undo.enter_context(KernelWatch(self._work.__setitem__))
        undo.enter_context(FallbackProvenance())

    def _take(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", None)
        artifact = metadata.get("artifact") if isinstance(metadata, dict) else None
        if metadata is None or not isinstance(artifact, dict) or artifact.get("name") != ARTIFACT:
            return
        payload = getattr(record, "payload", None) or ""
        compile_id = f"{metadata.get('frame_id')}/{metadata.get('frame_compile_id')}"
        work = dict(self._work)
        self._work.clear()
        for origin in origins(compile_id, payload, self._project, work):
            if len(self.origins) < MAX_ORIGINS:
                self.origins.append(origin)
            else:
                self.left_out += 1


def origins(
    compile_id: str, payload: str, project: ProjectFiles, work: Mapping[str, m.KernelWork]
) -> Iterator[m.KernelOrigin]:
    """The artifact's entries in the order of their calls; a line is the innermost one of the project's in a stack."""
    for key, stacks in json.loads(payload or "{}").items():
        kernel, _, number = key.rpartition(":")
        lines = dict.fromkeys(line for stack in stacks if (line := innermost(stack, project)) is not None)
        yield m.KernelOrigin(
            compile_id=compile_id,
            kernel=kernel or key,
            number=int(number) if kernel and number.isdigit() else 0,
            lines=tuple(lines)[:MAX_LINES],
            work=work.get(key),
        )


def innermost(stack: str, project: ProjectFiles) -> m.SourceLine | None:
    """The last frame of a stack, as Python prints it, that lies in the project."""
    inside = [frame for frame in _FRAME.finditer(stack) if project.holds(frame["file"])]
    if not inside:
        return None
    last = inside[-1]
    return m.SourceLine(file=last["file"], line=int(last["line"]), function=last["function"])


class FallbackProvenance(Source):
    """While entered, no call of an ATen operator in generated code is left without its origin.

    Inductor notes where a kernel came from in the ``codegen`` of its nodes, and those of scatters and indexed writes in
    place have one of their own that does not. Each call for which nothing was noted is noted here, by Inductor's own
    function, so that it stands in the same artifact.
    """

    def listen(self, undo: ExitStack) -> None:
        try:
            debug = importlib.import_module("torch._inductor.debug")
            scheduler = importlib.import_module("torch._inductor.scheduler").Scheduler
            original = scheduler.codegen_extern_call
            getattr(debug, HANDLE)
        except (ImportError, AttributeError) as error:
            self.unavailable = f"this torch does not say what it leaves out of the provenance of kernels ({error})"
            return

        def watched(this: Any, scheduler_node: Any) -> Any:
            before = getattr(debug, HANDLE)
            result = original(this, scheduler_node)
            node = getattr(scheduler_node, "node", None)
            name = getattr(node, "python_kernel_name", None)
            if getattr(debug, HANDLE) == before and isinstance(name, str) and name.startswith(("aten.", "torch.ops.")):
                debug.set_kernel_post_grad_provenance_tracing(node, name, is_extern=True)
            return result

        replace(scheduler, "codegen_extern_call", watched, undo)
