"""The console script: every way out of kgprof is an exit code and one form of words on stderr."""

import contextlib
import errno
import os
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from kgprof.cli.options import Context
from kgprof.cli.saying import say
from kgprof.cli.verbs import cli
from kgprof.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, KgprofError
from kgprof.progress import tell
from kgprof.signals import ENDING, Signals, words

_NAMES = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def main(args: Sequence[str] | None = None) -> NoReturn:
    context = Context()

    def end(number: signal.Signals) -> None:
        if not context.writing:
            raise KeyboardInterrupt
        context.writing = False
        context.interrupted = True
        again = (
            f"kgprof: {words(number)}: measurement is over and the report is being "
            "written; press again to stop\n"
        )
        # nobody reads it; not by print, which may be at work just now
        with contextlib.suppress(OSError):
            os.write(2, again.encode())

    # Never left: one that comes while the interpreter shuts down must not take the exit code away.
    # The interpreter itself takes handlers of Python away before it is gone, but leaves what is
    # ignored.
    Signals(end, unhandled=True).__enter__()
    code = run(args, context)
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def run(args: Sequence[str] | None = None, context: Context | None = None) -> int:
    """Exit code of one command line; every way out of it says itself on stderr in one form."""
    context = context if context is not None else Context()
    try:
        code = cli.main(args, prog_name="kgprof", standalone_mode=False, obj=context)
        if context.interrupted:
            return EXIT_INTERRUPTED
        return code if isinstance(code, int) else EXIT_OK
    except KgprofError as error:
        say(error.message, "; ".join(filter(None, (error.hint, unfinished(context)))))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted", unfinished(context))
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        # click begins with a capital and ends with a full stop
        text = " ".join(error.format_message().split())
        at = error.ctx if isinstance(error, click.UsageError) else None
        hint = f"see {at.command_path if at else 'kgprof'} --help"
        if at and at.info_name == "profile" and isinstance(error, click.NoSuchOption):
            hint += "; the workload's own options go after --"
        say(text[:1].lower() + text[1:].removesuffix("."), hint)
        return EXIT_USAGE
    except SystemExit:  # click's way out where whoever read --help has gone away
        return EXIT_OK
    except OSError as error:
        # What no code of ours foresaw at this place, and is no fault of its own all the same.
        if error.errno in _NAMES and error.filename is not None:
            say(f"{error.filename}: {error.strerror}", "choose a path that you may read and write")
            return EXIT_USAGE
        if error.errno in _DISK:
            hint = "; ".join(
                filter(None, ("free some disk space and run again", unfinished(context)))
            )
            say(
                f"{error.filename or context.folder or 'stdout'} could not be written in full: "
                f"{error.strerror}",
                hint,
            )
            return EXIT_USAGE
        return internal_error(error, context)
    # the last resort: the traceback goes to a file that is named
    except Exception as error:  # noqa: BLE001
        return internal_error(error, context)


def unfinished(context: Context) -> str:
    """Where that is which was measured and has no report; empty where there is none."""
    work = context.unfinished
    if work is None or not work.begun:
        return ""
    return (
        f"what was measured is in {work.folder}; to report on it: kgprof report "
        f"{shlex.quote(str(work.folder))}"
    )


def internal_error(error: Exception, context: Context) -> int:
    text = "".join(traceback.format_exception(error))
    folder = (
        context.folder
        if context.folder is not None and context.folder.is_dir()
        else Path(tempfile.gettempdir())
    )
    path = folder / f"kgprof-traceback-{os.getpid()}.txt"
    try:
        path.write_text(text, encoding="utf-8")
        hint = f"this is a bug in kgprof; traceback written to {path}"
    except OSError as unwritable:
        hint = f"this is a bug in kgprof; run again with -v for its traceback ({unwritable})"
    say(
        f"internal error: {type(error).__name__}: {error}",
        "; ".join(filter(None, (hint, unfinished(context)))),
    )
    if context.verbose:
        tell(text)
    return EXIT_INTERNAL
