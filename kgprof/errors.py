"""Errors that reach the user, each with the exit code the command line documents.

KgprofError                 3  kgprof itself failed
├── UsageError              2  an option, name or configuration is wrong
│   ├── InputError          2  a file the user named is missing, unreadable or malformed
│   └── OutputError         2  a place that cannot be written, or a disk that is full or fails
├── WorkloadError           4  the workload raised, was killed or timed out
├── NoStepError             5  the workload has no step that could be called
└── NoBaseError             5  the base of a comparison cannot run the workload
"""

import errno
from pathlib import Path

EXIT_OK = 0
EXIT_GATE_FAILED = 1  # also where --fail-on-secret finds one
EXIT_USAGE = 2
EXIT_INTERNAL = 3
EXIT_WORKLOAD = 4
EXIT_NOTHING_MEASURED = 5
EXIT_INCONCLUSIVE = 6
EXIT_INTERRUPTED = 130

# Where several keep a verdict from passing, the first of these leads.
WORST_FIRST = (
    EXIT_INTERRUPTED,
    EXIT_WORKLOAD,
    EXIT_GATE_FAILED,
    EXIT_NOTHING_MEASURED,
    EXIT_INCONCLUSIVE,
)


class KgprofError(Exception):
    """What happened, to which input; ``hint`` says what to do next."""

    exit_code = EXIT_INTERNAL

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(KgprofError):
    """An option, a name or a configuration value is wrong."""

    exit_code = EXIT_USAGE


class InputError(UsageError):
    """A file is missing, unreadable or malformed; ``path`` and ``line`` (from 1) say where."""

    def __init__(
        self, message: str, *, path: Path | str, line: int | None = None, hint: str = ""
    ) -> None:
        place = f"{path}:{line}" if line is not None else str(path)
        super().__init__(f"{place}: {message}", hint)


class OutputError(UsageError):
    """What is to be written cannot be: no room, no right, a file system that is read-only, a device
    that fails."""


class NoBaseError(KgprofError):
    """The workload is new, or cannot be loaded in the base: there is nothing to compare the head
    with."""

    exit_code = EXIT_NOTHING_MEASURED


class NoStepError(KgprofError):
    """What is asked for calls a step, and the workload is a whole program."""

    exit_code = EXIT_NOTHING_MEASURED


class WorkloadError(KgprofError):
    """The workload under measurement raised, was killed or ran out of time."""

    exit_code = EXIT_WORKLOAD


def remedy(error: OSError, usual: str) -> str:
    """The hint for what could not be read or written: a fault of a device is no matter of rights or
    of room."""
    if error.errno == errno.EIO:
        return "the system reports a fault of the disk or of its connection; dmesg may say more"
    return usual
