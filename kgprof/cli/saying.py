"""The words of the command line: an error or a remark on stderr, and what was asked for on stdout;
and what a CI job offers and takes for a command: the job summary, the run's page, the log that is
parsed.

The command line hands over its environment; nothing here reads it.
"""

import contextlib
import re
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click
import msgspec

from kgprof.errors import UsageError
from kgprof.progress import discard, tell
from kgprof.wording import clause

# GitHub drops the whole summary of a step above 1 MiB, and other tools write there too
SUMMARY_BYTES = 900 * 1024
SMALLEST_SUMMARY_BYTES = 4 * 1024  # below it there is no room for a verdict and a table

Write = Callable[[bytes], None]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """``parses_log``: lines of the log that look like ``::error::`` are commands to it."""

    parses_log: bool = False
    summary: Path | None = None
    run_url: str = ""  # the page that lists the artifacts
    source_url: str = ""  # the repository's page


def job_of(environment: Mapping[str, str]) -> Job:
    """The CI job that these variables describe; a Job of nothing outside of one."""
    summary = environment.get("GITHUB_STEP_SUMMARY", "")
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    server, repository, run = (environment.get(name, "") for name in names)
    page = environment.get("CI_JOB_URL", "")
    # GitLab's pages of files stand behind it
    source = clause("", environment.get("CI_PROJECT_URL", ""), "/-")
    if server.startswith("https://") and repository and run.isdecimal():
        page = f"{server}/{repository}/actions/runs/{run}"
        source = f"{server}/{repository}"
    return Job(
        parses_log=environment.get("GITHUB_ACTIONS") == "true",
        summary=Path(summary) if summary else None,
        run_url=_https(page),
        source_url=_https(source),
    )


def _https(address: str) -> str:
    """Empty if it is no such address."""
    if address.startswith("https://"):
        return address
    return ""


# ---------------------------------------------------------------- the job summary


def append_summary(path: Path, made: Callable[[int], str]) -> str:
    """``made(bytes)`` gives a text of at most so many; what went wrong, in a sentence, or nothing.

    Never raises: the report stands whatever becomes of the summary.
    """
    try:
        taken = 0
        if path.exists():
            taken = path.stat().st_size
        room = SUMMARY_BYTES - taken
        if room < SMALLEST_SUMMARY_BYTES:
            return (
                f"the job summary is full ({taken:,} bytes), so this run was left out of it: {path}"
            )
        text = made(room - 1)
        with path.open("ab") as file:
            file.write(f"{text}\n".encode("utf-8", errors="replace"))
    except OSError as error:
        return f"the job summary could not be written: {path}: {error.strerror or error}"
    return ""


# ---------------------------------------------------------------- the log


@contextlib.contextmanager
def fenced(write: Write, job: Job) -> Iterator[Write]:
    """What a workload prints, between a line that stops commands and one that only the holder of
    its token can write.

    Opened at the first byte, so that a workload that prints nothing leaves no trace of it. What
    comes after the block is dropped: a process that the workload left behind may still hold the
    pipe.
    """
    if not job.parses_log:
        yield write
        return
    token = secrets.token_hex(16)
    state = {"opened": False, "closed": False}
    turn = threading.Lock()  # stdout and stderr are read by a thread each

    def inside(data: bytes) -> None:
        with turn:
            if state["closed"]:
                return
            if not state["opened"]:
                state["opened"] = True
                write(f"\n::stop-commands::{token}\n".encode())
            write(data)

    try:
        yield inside
    finally:
        with turn:
            state["closed"] = True
            if state["opened"]:  # the workload may have ended in the middle of a line
                write(f"\n::{token}::\n".encode())


_COMMAND = re.compile(r"^([^\S\n]*)::", re.MULTILINE)


def inert(text: str) -> str:
    """A message of ours that quotes a workload: none of its lines is a command."""
    return _COMMAND.sub(r"\1\\::", text).replace("##[", "#\\#[")


def inert_document(text: str, form: str) -> str:
    """A whole document on stdout: the same JSON, XML or HTML, without a line that is a command."""
    if form in ("json", "sarif"):
        return text.replace("##[", "#\\u0023[")  # in JSON only a string can hold it
    if form in ("junit", "html"):
        return _KNOWN_COMMAND.sub(r"\1&#58;:", text).replace("##[", "&#35;#[")
    return text


# In a style sheet "::" begins lines as well; there nothing may change, its hash is in the page's
# policy.
_KNOWN_COMMAND = re.compile(
    r"^([^\S\n]*)::(?=(?:error|warning|notice|debug|group|endgroup|add-mask|add-path|add-matcher|"
    r"remove-matcher|echo|set-env|set-output|save-state|stop-commands|internal-[a-z-]+)\b)",
    re.MULTILINE | re.IGNORECASE,
)


def say(message: str, hint: str = "") -> None:
    """The one form of an error: what happened, and what to do next."""
    tell(inert(f"kgprof: error: {message}" + clause("\n  hint: ", hint)))


def inform(text: str) -> None:
    """What is no error, on stderr."""
    tell(inert(f"kgprof: {text}"))


def to_stdout(text: str) -> None:
    """With one newline at its end. A reader that has gone away (`| head`) is no error and no exit
    code.

    Raises UsageError where it is a file that cannot be written, as for a file that was named.
    """
    if sys.stdout is None:  # closed by who started us
        return
    try:
        # What a terminal's encoding has no character for is written as Python does, as on stderr:
        # \u2013.
        shown = text.removesuffix("\n").encode(sys.stdout.encoding, errors="backslashreplace")
        click.echo(shown.decode(sys.stdout.encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
    except OSError as error:
        discard(sys.stdout)
        raise UsageError(
            f"cannot write to stdout: {error.strerror or error}",
            "free some disk space, or send it elsewhere",
        ) from error
