"""Lets torch write the graph-break records that it only writes while its own log of them is on.

A frame that ``convert_frame`` itself refuses gets its record only where the logger of the artifact ``graph_breaks``
is at DEBUG. TorchLogs turns that on, but not where the user has set TORCH_LOGS.
"""

from __future__ import annotations

import logging
from types import TracebackType

LOGGERS = tuple(f"torch._dynamo.{module}.__graph_breaks" for module in ("symbolic_convert", "convert_frame", "exc"))


class SkipRecords:
    """Raises the level of loggers that are off, and keeps from the user's log what the user did not ask for."""

    name = "skip records"

    def __init__(self) -> None:
        self.unavailable = ""
        self._before: list[tuple[logging.Logger, int, bool]] = []

    def __enter__(self) -> SkipRecords:
        missing = [name for name in LOGGERS if name not in logging.Logger.manager.loggerDict]
        if missing:
            import torch._dynamo  # noqa: F401 - they come into being with it

            missing = [name for name in missing if name not in logging.Logger.manager.loggerDict]
        if missing:
            self.unavailable = f"this torch has no logger {', '.join(missing)}"
        for logger in map(logging.getLogger, LOGGERS):
            if not logger.isEnabledFor(logging.DEBUG):
                self._before.append((logger, logger.level, logger.propagate))
                logger.setLevel(logging.DEBUG)
                logger.propagate = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for logger, level, propagate in self._before:
            logger.setLevel(level)
            logger.propagate = propagate
        self._before.clear()
