"""The words of the command line: an error or a remark on stderr, and what was asked for on stdout."""

from __future__ import annotations

import sys

import click

from kgprof.cli.ci import inert
from kgprof.errors import UsageError
from kgprof.progress import discard, tell


def say(message: str, hint: str = "") -> None:
    """The one form of an error: what happened, and what to do next."""
    tell(inert(f"kgprof: error: {message}" + (f"\n  hint: {hint}" if hint else "")))


def inform(text: str) -> None:
    """What is no error, on stderr."""
    tell(inert(f"kgprof: {text}"))


def to_stdout(text: str) -> None:
    """With one newline at its end. A reader that has gone away (`| head`) is no error and no exit code.

    Raises UsageError where it is a file that cannot be written, as for a file that was named.
    """
    if sys.stdout is None:  # closed by who started us
        return
    try:
        # What a terminal's encoding has no character for is written as Python does, as on stderr: \u2013.
        shown = text.removesuffix("\n").encode(sys.stdout.encoding, errors="backslashreplace")
        click.echo(shown.decode(sys.stdout.encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
    except OSError as error:
        discard(sys.stdout)
        raise UsageError(
            f"cannot write to stdout: {error.strerror or error}", hint="free some disk space, or send it elsewhere"
        ) from error
