"""From options to a Recording on disk: which folder, what it must not overwrite, how progress is
shown."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from kgprof import model as m
from kgprof.analysis.redaction import Redactor
from kgprof.cli.options import Context, tell_of_the_default
from kgprof.cli.reading import read
from kgprof.cli.saying import fenced
from kgprof.cli.writing import complain_of_runs
from kgprof.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_WORKLOAD
from kgprof.reading import layout, recordings
from kgprof.record import default_folder, folder_name, record
from kgprof.record.ground import ranks
from kgprof.record.ground.load import wait_for_idle
from kgprof.record.ground.private_names import private_names
from kgprof.record.ground.unfinished import Unfinished, refuse_in_the_way, refuse_overwriting
from kgprof.workloads import loading, programs


def refuse(
    output: Path, inputs: Iterable[Path], context: Context, names: Sequence[str] = layout.REPORTS
) -> None:
    """Raises UsageError where the result would take the place of an input, of another output or of
    no result."""
    files = context.files
    folders = [output / layout.FOLDER, output / layout.UNFINISHED]
    refuse_overwriting(inputs, [*folders, *(output / name for name in names), *files])
    refuse_overwriting(files, folders)
    refuse_in_the_way(output, names)


@contextlib.contextmanager
def making(
    output: Path,
    inputs: Iterable[Path],
    context: Context,
    *,
    worth_keeping: bool = True,
    names: Sequence[str] = layout.REPORTS,
) -> Iterator[Unfinished]:
    """The unfinished folder of ``output``, for a result of these files. Raises UsageError where an
    input or somebody's file would be overwritten, or somebody writes."""
    refuse(output, inputs, context, names)
    context.folder = output
    with Unfinished(output, worth_keeping=worth_keeping) as work:
        context.unfinished = work if worth_keeping else None
        yield work


@contextlib.contextmanager
def torch_trace_read(
    options: m.Options, torch_trace: Path, context: Context
) -> Iterator[Unfinished]:
    """With the Recording of what torch wrote in it."""
    # looks for torch, which no other verb's parent process does
    from kgprof.record.files import torch_trace_files

    output = context.output or default_folder(torch_trace.absolute().name)
    read = [torch_trace, *torch_trace.glob("*")]
    with making(output, read, context, worth_keeping=False) as work:
        torch_trace_files.record_directory(torch_trace, work.folder, options)
        yield work


def load_before(options: m.Options, context: Context) -> m.Load | m.Skipped | None:
    """What other processes take of the machine, after a wait for less if one was asked for; None
    where no times are to be measured."""
    if options.untimed and options.timing_below_s is None:
        return None

    def told(load: m.Load, passed_s: float) -> None:
        waited = f"{passed_s:.0f} of {context.wait_for_idle:.0f} s"
        context.inform(f"{load.words}; waiting, {waited}")

    load = wait_for_idle(context.wait_for_idle, told)
    if isinstance(load, m.Load) and load.is_high:
        how = "--wait-for-idle SECONDS waits"
        if context.wait_for_idle:
            how = "measured anyway"
        context.inform(f"{load.words}: times may not hold; {how}")
    return load


def redactor(context: Context, root: str) -> Callable[[str], str]:
    """What a Recording's texts go through; --no-redact leaves them as they are."""
    if context.sharing.redact:
        return Redactor(private_names(), root=root)
    return str


@contextlib.contextmanager
def run_here(
    options: m.Options, inputs: Iterable[Path], context: Context
) -> Iterator[Unfinished | int]:
    """With the Recording of a run in it; an exit code on a rank that leaves the rest to rank 0.

    For a script this process may be one of torchrun's ranks.
    """
    is_program = programs.is_program(options.workload)
    launched = ranks.launch() if is_program else None
    output = context.output
    if output is None:
        agreed = launched and ranks.agreed_folder(folder_name(options.workload), launched)
        output = agreed or default_folder(options.workload)
    named = loading.files_of(options.workload)
    named += [Path(arg.rpartition("=")[2]) for arg in options.workload_args]
    # which takes any text for a path
    inputs = [*inputs, *(path for path in named if os.path.exists(path))]
    own = launched.folder(output) if launched is not None else output
    # else the place of the whole would be looked at when the program has run
    if launched is not None:
        refuse(output, inputs, context)
    # A live line and what a script prints would write over each other.
    shown = context.progress(live=not is_program)
    with making(own, inputs, context) as work:
        tell_of_the_default(options.workload)
        load = load_before(options, context) if launched is None else None
        if launched is not None:
            ranks.begin(output, launched)
        with shown as phases, fenced(echo(context.quiet), context.job) as printed:
            phases.phase(f"until it is complete, the result is in {work.folder}", None)
            redact = redactor(context, str(Path.cwd()))
            try:
                record(options, work.folder, phases, echo=printed, redact=redact, load=load)
            except KeyboardInterrupt:
                if not work.begun:
                    raise
                context.interrupted = True
            finally:
                work.check()
        context.interrupted = (
            context.interrupted or recordings.load_header(work.recording).interrupted
        )
        if launched is None:
            context.writing = not context.interrupted
            yield work
            return
        work.finish()
    ranks.done(output, launched)
    if launched.rank == 0:
        with making(output, inputs, context) as work:
            ranks.gather(output, launched, work.folder)
            context.writing = not context.interrupted
            yield work
        return
    # Rank 0 gives the verdict, this one says only how its own program ended.
    profile = read(own / layout.FOLDER)
    complain_of_runs(profile, own / layout.FOLDER)
    failed = profile.exit_code in (EXIT_WORKLOAD, EXIT_INTERRUPTED)
    if failed and not context.interrupted:
        ranks.await_first(output, launched)
    yield profile.exit_code if failed else EXIT_OK


def echo(quiet: bool) -> Callable[[bytes], None]:
    """What a script prints goes to stderr: stdout is for the report."""

    def to_stderr(data: bytes) -> None:
        if quiet or sys.stderr is None:
            return
        with contextlib.suppress(OSError):  # nobody reads it any more; the log has it
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()

    return to_stderr
