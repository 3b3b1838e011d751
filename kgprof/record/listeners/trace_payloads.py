"""What torch computes for its structured trace: nothing that a Recording does not keep, and nothing
that can raise.

torch computes a record's payload as soon as anybody listens to the trace. Some payloads print whole
dataclasses, and so the tensors in them: a tensor subclass without a ``__repr__`` of its own then
runs its operators inside the compilation, which may raise there, or break the graph. While kgprof
alone listens, such a payload is not computed. Where the user listens as well (TORCH_TRACE), it is,
and what it raises is kept from the compilation and told as incomplete.

Every module of torch has imported ``trace_structured`` by its name, so its code is exchanged, and
not the function.
"""

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from types import FunctionType
from typing import Any

from kgprof.record.ground.source import LogListener, Source, not_compiled, replace, words

GUARDED = "_kgprof_trace_structured"  # in the module of torch's function
METADATA = "fw_metadata"  # what a payload of AOTAutograd prints, as the payload's function names it
ARTIFACT = "artifact"


class TracePayloads(Source):
    """Stands before ``trace_structured`` while it listens."""

    name = "trace payloads"

    def listen(self, undo: ExitStack) -> None:
        from torch._logging import _internal

        function = _internal.trace_structured
        log = _internal.trace_log
        if not isinstance(function, FunctionType) or function.__closure__:
            self.unavailable = "torch's trace_structured has been replaced"
            return
        original = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__
        )
        original.__kwdefaults__ = function.__kwdefaults__
        guarded = self._guarding(original, log)
        replace(_internal, GUARDED, guarded, undo)

        def exchanged(*args: Any, **named: Any) -> None:
            # torch's global
            _kgprof_trace_structured(*args, **named)  # type: ignore[name-defined]  # noqa: F821

        # a backward is compiled where Dynamo looks at every frame
        not_compiled(exchanged, guarded)
        undo.callback(setattr, function, "__code__", function.__code__)
        function.__code__ = exchanged.__code__

    def _guarding(self, original: Callable[..., None], log: logging.Logger) -> Callable[..., None]:
        def guarded(name: str, metadata_fn: Callable[[], Any] = dict, **named: Any) -> None:
            alone = not any(map(_is_a_users, log.handlers))
            try:
                if alone and name != ARTIFACT and not _is_wanted(name, log):
                    return
                metadata = metadata_fn()
                what = str(metadata.get("name")) if name == ARTIFACT else name
                if alone and not _is_wanted(what, log):
                    return
                if "payload_fn" in named:
                    named["payload_fn"] = self._payload(what, named["payload_fn"], alone)
                original(name, lambda: metadata, **named)
            # it would fail the compilation, which can do without a record
            except Exception as error:  # noqa: BLE001
                self._lost(name, error)

        return guarded

    def _payload(self, what: str, compute: Callable[[], Any], alone: bool) -> Callable[[], Any]:
        def payload() -> Any:
            try:
                printed = _without_tensors(compute) if alone else None
                return compute() if printed is None else printed
            except Exception as error:  # noqa: BLE001  of the program's own __repr__
                self._lost(what, error)
                return None

        not_compiled(payload)
        return payload

    def _lost(self, what: str, error: Exception) -> None:
        told = f"torch could not print {what}: {words(error)}"
        if os.environ.get("TORCH_TRACE"):
            told += "; TORCH_TRACE is set, and without kgprof torch lets this fail the compilation"
        self.lost = self.lost or told


def _is_wanted(name: str, log: logging.Logger) -> bool:
    return any(name in getattr(handler, "wanted", ()) for handler in log.handlers)


def _is_a_users(handler: logging.Handler) -> bool:
    """torch's own handler stands there until its first record, and writes nothing without a
    folder."""
    return not isinstance(handler, LogListener) and getattr(handler, "root_dir", "") is not None


def _without_tensors(compute: Callable[[], Any]) -> str | None:
    """Of AOTAutograd's metadata that which a reader looks for, in torch's words; None where it
    prints something else.

    The metadata holds tensors, and a tensor subclass may run any code when it is printed.
    """
    names = getattr(getattr(compute, "__code__", None), "co_freevars", ())
    cells = getattr(compute, "__closure__", None)
    if not cells or METADATA not in names:
        return None
    metadata = cells[names.index(METADATA)].cell_contents
    types = ", ".join(f"output_type={info.output_type!r}" for info in metadata.output_info)
    return f"static_input_indices={list(metadata.static_input_indices)}, {types}"
