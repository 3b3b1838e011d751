"""Lets torch write the graph-break records that it only writes while its own log of them is on.

A frame that ``convert_frame`` itself refuses gets its record only where the logger of the artifact
``graph_breaks`` is at DEBUG. TorchLogs turns that on, but not where the user has set TORCH_LOGS.
"""

import logging
from contextlib import ExitStack

from kgprof.record.ground.source import Source

LOGGERS = tuple(
    f"torch._dynamo.{module}.__graph_breaks"
    for module in ("symbolic_convert", "convert_frame", "exc")
)


def are_written() -> bool:
    return all(logging.getLogger(name).isEnabledFor(logging.DEBUG) for name in LOGGERS)


class SkipRecords(Source):
    """Raises the level of loggers that are off, and keeps from the user's log what the user did not
    ask for."""

    name = "skip records"

    def listen(self, undo: ExitStack) -> None:
        missing = [name for name in LOGGERS if name not in logging.Logger.manager.loggerDict]
        if missing:
            import torch._dynamo  # noqa: F401 - they come into being with it

            missing = [name for name in missing if name not in logging.Logger.manager.loggerDict]
        if missing:
            self.unavailable = f"this torch has no logger {', '.join(missing)}"
        for logger in map(logging.getLogger, LOGGERS):
            if not logger.isEnabledFor(logging.DEBUG):
                undo.callback(setattr, logger, "propagate", logger.propagate)
                undo.callback(logger.setLevel, logger.level)
                logger.setLevel(logging.DEBUG)
                logger.propagate = False
