"""What torch says about CUDA graphs: skipped, recorded, recorded again, partitioned. It says so in
its log alone.

A filter stands on the three loggers themselves, so it hears them whatever the user's log shows. The
function that logged is kept with each message: it tells what a message is about, where the wording
changes from release to release.

torch computes the reason of a recording again for this log alone, and in torch 2.11 to 2.13 that
raises for a partitioned graph, whose inputs are not those that were recorded: while this listens,
there is no reason then.
"""

import logging
import sys
from contextlib import ExitStack
from typing import Any

import msgspec

from kgprof import model as m
from kgprof.record.ground.kept_records import Lines
from kgprof.record.ground.source import Source, aside, replace, when_imported
from kgprof.record.listeners.call_index import CallIndex

LOGGERS = tuple(
    f"torch._inductor.{module}.__cudagraphs"
    for module in ("cudagraph_trees", "cudagraph_utils", "scheduler")
)
ROWS = 5000
TEXT = 8000  # characters of one message: a recording lists every input
_TREES = "torch._inductor.cudagraph_trees"


class CudaGraphLog(Source):
    """Messages of all levels; a logger that was off is put back to where it was."""

    name = "cuda graph log"

    def __init__(self, calls: CallIndex) -> None:
        self.messages: list[m.LogLine] = []
        self.left_out = 0
        self._calls = calls

    def lines(self) -> Lines:
        """For the file of records."""
        yield from ({"log": msgspec.to_builtins(message)} for message in self.messages)
        if self.left_out:
            yield {"left_out": self.left_out, "limit_rows": ROWS}

    def listen(self, undo: ExitStack) -> None:
        # Inductor need not be imported for this: its loggers are the same objects when it is.
        for logger in map(logging.getLogger, LOGGERS):
            level = logger.getEffectiveLevel()

            def heard(record: logging.LogRecord, level: int = level) -> bool:
                """As a filter, which also says what goes on to the handlers: what went there
                before."""
                self.take(record)
                return record.levelno >= level

            undo.callback(logger.setLevel, logger.level)
            undo.callback(logger.removeFilter, heard)
            logger.setLevel(logging.DEBUG)
            logger.addFilter(heard)
        replaced = undo.enter_context(ExitStack())  # ``undo`` is handed on before the import
        when_imported(_TREES, lambda: _give_reasons_without_raising(replaced), undo)

    @aside
    def take(self, record: logging.LogRecord) -> None:
        if len(self.messages) >= ROWS:
            self.left_out += 1
            return
        from torch._guards import CompileContext

        self.messages.append(
            m.LogLine(
                call=self._calls.current,
                logger=record.name,
                level=record.levelname,
                function=record.funcName or "",
                # empty when a compiled graph is running
                compile_id=str(CompileContext.current_compile_id() or ""),
                text=record.getMessage()[:TEXT],
            )
        )


def _give_reasons_without_raising(undo: ExitStack) -> None:
    trees = sys.modules[_TREES]
    reason = trees.log_data_ptr_mismatch

    def given(*args: Any) -> str:
        try:
            return str(reason(*args))
        except Exception:  # noqa: BLE001
            return f"{args[-1]}."  # what changed, without the inputs

    replace(trees, "log_data_ptr_mismatch", given, undo)
