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

from kgprof.cli.options import NEAR, Context, unknown
from kgprof.cli.saying import say
from kgprof.cli.verbs import WorkloadCommand, cli
from kgprof.errors import (
    EXIT_GATE_FAILED,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    WORST_FIRST,
    KgprofError,
    remedy,
)
from kgprof.progress import tell
from kgprof.signals import ENDING, Signals, words
from kgprof.wording import clause

_NAMES = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG, errno.EIO, errno.ESTALE)
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
    try:
        Signals(end, unhandled=True).__enter__()
    except (MemoryError, SystemError) as error:  # what Python says of an allocation that failed
        sys.exit(internal_error(error, context))
    code = run(args, context)
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def run(args: Sequence[str] | None = None, context: Context | None = None) -> int:
    """Exit code of one command line; every way out of it says itself on stderr in one form."""
    context = context or Context()
    try:
        code = cli.main(args, prog_name="kgprof", standalone_mode=False, obj=context)
        if context.interrupted:
            return EXIT_INTERRUPTED
        codes = [code or EXIT_OK]
        if context.secrets:
            codes.append(EXIT_GATE_FAILED)
        return next((worst for worst in WORST_FIRST if worst in codes), codes[0])
    except KgprofError as error:
        say(error.message, with_unfinished(error.hint, context))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted", with_unfinished("", context))
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        # click begins with a capital and ends with a full stop
        text = " ".join(_message(error).split())
        hint = "see kgprof --help"
        if isinstance(error, click.UsageError) and error.ctx:
            hint = f"see {error.ctx.command_path} --help"
            if isinstance(error.ctx.command, WorkloadCommand):
                hint += _of_an_option(error)
        say(text[:1].lower() + text[1:].removesuffix("."), hint)
        return EXIT_USAGE
    except SystemExit:  # click's way out where whoever read --help has gone away
        return EXIT_OK
    except OSError as error:
        # What no code of ours foresaw at this place, and is no fault of its own all the same.
        if error.errno in _NAMES and error.filename is not None:
            hint = remedy(error, "choose a path that you may read and write")
            say(f"{error.filename}: {error.strerror}", hint)
            return EXIT_USAGE
        if error.errno in (*_NAMES, *_DISK):
            hint = remedy(error, "free some disk space, or choose a writable place")
            where = error.filename or context.folder or "stdout"
            say(
                f"{where} could not be written in full: {error.strerror}",
                with_unfinished(hint, context),
            )
            return EXIT_USAGE
        return internal_error(error, context)
    # the last resort: the traceback goes to a file that is named
    except Exception as error:  # noqa: BLE001
        return internal_error(error, context)


def _of_an_option(error: click.UsageError) -> str:
    """What else may be meant by an option that the verb has not."""
    ctx = error.ctx
    assert ctx is not None
    if not isinstance(error, click.NoSuchOption):
        return ""
    others = [name for name, verb in cli.commands.items() if _has(verb, error.option_name)]
    where = clause("; it is an option of kgprof ", ", ".join(others))
    return where + "; the workload's own options go after --"


def _message(error: click.ClickException) -> str:
    """In click's words, but with an option that is near, if there is one."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error.format_message()
    known = [name for param in error.ctx.command.params for name in param.opts]
    return unknown("option", error.option_name, known, cutoff=NEAR)


def _has(verb: click.Command, option: str) -> bool:
    return any(option in param.opts for param in verb.params)


def with_unfinished(hint: str, context: Context) -> str:
    """And where that is which was measured and has no report, if there is something."""
    work = context.unfinished
    if work is None or not work.begun:
        return hint
    again = f"kgprof report {shlex.quote(str(work.folder))}"
    where = f"what was measured is in {work.folder}; to report on it: {again}"
    return clause("", hint, "; ") + where


def internal_error(error: Exception, context: Context) -> int:
    text = "".join(traceback.format_exception(error))
    folder = context.folder
    if folder is None or not folder.is_dir():
        folder = Path(tempfile.gettempdir())
    try:
        path = _traceback_file(text, folder)
        hint = f"this is a bug in kgprof; traceback written to {path}"
    # what redacts it may be what is broken
    except Exception as unwritable:  # noqa: BLE001
        hint = f"this is a bug in kgprof; run again with -v for its traceback ({unwritable})"
    what = f"internal error: {type(error).__name__}: {error}"
    say(what, with_unfinished(hint, context))
    if context.verbose:
        tell(text)
    return EXIT_INTERNAL


def _traceback_file(text: str, folder: Path) -> str:
    """Writes a redacted traceback, which is for an issue, and returns its path."""
    from kgprof.analysis.redaction import Redactor
    from kgprof.record.ground import store
    from kgprof.record.ground.private_names import private_names

    redacted = Redactor(private_names(), root=os.getcwd())(text)
    return store.write_private(folder, "kgprof-traceback-", redacted)
