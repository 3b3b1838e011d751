"""The console script: every way out of kgprof is an exit code and one form of words on stderr."""

from __future__ import annotations

import errno
import os
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

_NAMES = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG)
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def main(args: Sequence[str] | None = None) -> NoReturn:
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """Exit code of one command line; every way out of it says itself on stderr in one form."""
    context = Context()
    try:
        code = cli.main(args, prog_name="kgprof", standalone_mode=False, obj=context)
        return code if isinstance(code, int) else EXIT_OK
    except KgprofError as error:
        say(error.message, error.hint)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        text = error.format_message()  # click begins its messages with a capital and ends them with a full stop
        at = error.ctx if isinstance(error, click.UsageError) else None
        hint = f"see {at.command_path if at else 'kgprof'} --help"
        if at and at.info_name == "profile" and isinstance(error, click.NoSuchOption):
            hint += "; the workload's own options stand after --"
        say(text[:1].lower() + text[1:].removesuffix("."), hint)
        return EXIT_USAGE
    except SystemExit:  # click's way out where whoever read --help has gone away
        return EXIT_OK
    except OSError as error:
        # What no code of ours foresaw at this place, and is no fault of its own all the same.
        if error.errno in _NAMES and error.filename is not None:
            say(f"{error.filename}: {error.strerror}", "name a file or folder that you may use")
            return EXIT_USAGE
        if error.errno in _DISK:
            say(
                f"{error.filename or context.folder or 'stdout'} is not whole: {error.strerror}",
                "make room and run again",
            )
            return EXIT_USAGE
        return internal_error(error, context)
    except Exception as error:  # noqa: BLE001  the last resort: the traceback goes to a file that is named
        return internal_error(error, context)


def internal_error(error: Exception, context: Context) -> int:
    text = "".join(traceback.format_exception(error))
    folder = context.folder if context.folder is not None and context.folder.is_dir() else Path(tempfile.gettempdir())
    path = folder / f"kgprof-traceback-{os.getpid()}.txt"
    try:
        path.write_text(text, encoding="utf-8")
        hint = f"this is a fault of kgprof's; its traceback is in {path}"
    except OSError as unwritable:
        hint = f"this is a fault of kgprof's; run again with -v for its traceback ({unwritable})"
    say(f"internal error: {type(error).__name__}: {error}", hint)
    if context.verbose:
        tell(text)
    return EXIT_INTERNAL
