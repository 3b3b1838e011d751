"""From options to a Recording on disk: which folder, how progress is shown, what a signal does."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from kgprof import model as m
from kgprof import progress
from kgprof.analysis.redaction import Redactor
from kgprof.cli.ci import fenced
from kgprof.cli.options import Context
from kgprof.cli.reading import read
from kgprof.cli.writing import complain_of_runs
from kgprof.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_WORKLOAD
from kgprof.reading import layout
from kgprof.record import default_folder, folder_name, ranks, record
from kgprof.record.private_names import private_names
from kgprof.workloads import programs


def read_torch_trace(options: m.Options, torch_trace: Path, output: Path | None, context: Context) -> tuple[Path, Path]:
    """The output folder and the Recording in it."""
    from kgprof.record import torch_trace_files  # looks for torch, which no other verb's parent process does

    context.folder = output if output is not None else default_folder(torch_trace.absolute().name)
    return context.folder, torch_trace_files.record_directory(torch_trace, context.folder, options)


def run_here(options: m.Options, output: Path | None, quiet: bool, context: Context) -> tuple[Path, Path] | int:
    """The output folder and the Recording in it; an exit code on a rank that leaves the rest to rank 0.

    For a script this process may be one of torchrun's ranks.
    """
    is_program = programs.is_program(options.workload)
    launched = ranks.launch(os.environ) if is_program else None
    if output is None:
        agreed = launched and ranks.agreed_folder(folder_name(options.workload), launched)
        output = agreed or default_folder(options.workload)
    context.folder = output
    # A live line and what a script prints would write over each other.
    shown = progress.choose(quiet=quiet, live=not is_program)
    with sigterm_as_ctrl_c():
        if launched is not None:
            ranks.begin(output, launched)
        with shown as phases, fenced(echo(quiet), context.job) as printed:
            folder = launched.folder(output) if launched else output
            redact = Redactor(private_names(), root=str(Path.cwd())) if context.sharing.redact else str
            recording = record(options, folder, phases, echo=printed, redact=redact)
        if launched is None:
            return output, recording
        ranks.done(output, launched)
        if launched.rank == 0:
            return output, ranks.gather(output, launched)
    # Rank 0 gives the verdict, this one says only how its own program ended.
    own = launched.folder(output) / layout.FOLDER
    profile = read(own)
    complain_of_runs(profile, own)
    return profile.exit_code if profile.exit_code in (EXIT_WORKLOAD, EXIT_INTERRUPTED) else EXIT_OK


def echo(quiet: bool) -> Callable[[bytes], None]:
    """What a script prints goes to stderr: stdout is for the report."""

    def to_stderr(data: bytes) -> None:
        if quiet:
            return
        with contextlib.suppress(OSError):  # nobody reads it any more; the log has it
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()

    return to_stderr


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """A terminated recording ends its child and is rendered like an interrupted one."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
