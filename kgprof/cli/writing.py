"""Everything that leaves kgprof: report files, formats on stdout, the job summary, errors on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgprof import model as m
from kgprof.cli.ci import Job, inert
from kgprof.cli.options import Output
from kgprof.errors import (
    EXIT_GATE_FAILED,
    EXIT_INCONCLUSIVE,
    EXIT_NOTHING_MEASURED,
    EXIT_OK,
    UsageError,
)
from kgprof.progress import discard, tell
from kgprof.wording import plural

if TYPE_CHECKING:
    from kgprof import model as m
    from kgprof.gate import Settings
    from kgprof.record.kept_traces import KeptTrace
    from kgprof.render import Renderer
    from kgprof.render.hand_off import TraceToHandOff


BASELINE_DAYS = 90  # how long a finding that --update-baseline adds is accepted


def say(message: str, hint: str = "") -> None:
    """The one form of an error: what happened, and what to do next."""
    tell(inert(f"kgprof: error: {message}" + (f"\n  hint: {hint}" if hint else "")))


def write_report(folder: Path, found: m.Profile, recording: Path | None) -> Path:
    """report.json and report.html; the path of the latter."""
    from kgprof import render

    for name in ("json", "html"):
        write_rendered(folder / f"report.{name}", render.by_name(name), found, recording)
    return folder / "report.html"


def write_rendered(path: Path, renderer: Renderer, found: m.Profile, recording: Path | None) -> None:
    """A page that stands elsewhere than its Recording gets the traces that it does not carry beside it."""
    from kgprof.record import store
    from kgprof.render.html import Html

    if store.is_stream(path):
        store.write_report(path.parent, path.name, rendered(renderer, found, recording, Job()))
        return
    if not isinstance(renderer, Html):
        store.write_report(path.parent, path.name, renderer.render(found))
        return
    kept = traces_of(found, recording)
    private = private_of(found, recording)
    page = renderer.with_traces(found, [trace_to_hand_off(trace, path.parent, private) for trace in kept])
    for trace in kept:
        if trace.key not in page.carried and not inside(trace.path, path.parent):
            store.copy_trace(trace.path, path.parent / trace.file_name)
    store.write_report(path.parent, path.name, page.text)


def rendered(renderer: Renderer, found: m.Profile, recording: Path | None, job: Job) -> str:
    """For stdout: beside a page there is nothing, and a job that reads commands there gets none that a run wrote."""
    from kgprof.cli.ci import inert_document
    from kgprof.render.html import Html

    if isinstance(renderer, Html):
        private = private_of(found, recording)
        traces = [trace_to_hand_off(trace, None, private) for trace in traces_of(found, recording)]
        text = renderer.with_traces(found, traces).text
    else:
        text = renderer.render(found)
    return inert_document(text, renderer.suffix) if job.parses_log else text


def private_of(found: m.Profile, recording: Path | None) -> m.RecordingHeader | None:
    """What names the traces must not say either; None where the report may say everything."""
    from kgprof.reading import recordings

    redacted = found.contents is not None and found.contents.redaction
    return recordings.load_header(recording) if redacted and recording is not None else None


def traces_of(found: m.Profile, recording: Path | None) -> tuple[KeptTrace, ...]:
    """None where there is no Recording: a comparison of two reports."""
    from kgprof.record import kept_traces

    return () if recording is None else kept_traces.kept_traces(recording, [run.key for run in found.runs])


def trace_to_hand_off(trace: KeptTrace, folder: Path | None, private: m.RecordingHeader | None) -> TraceToHandOff:
    """``folder``: where the page stands, if it stands anywhere. ``private``: what the page must not carry."""
    from urllib.parse import quote

    from kgprof.render.hand_off import CARRIED_BYTES, TraceToHandOff

    link = ""
    if folder is not None:
        near = inside(trace.path, folder)
        link = quote(trace.path.resolve().relative_to(folder.resolve()).as_posix() if near else trace.file_name)
    return TraceToHandOff(
        run=trace.key,
        measured_in=trace.measured_in,
        size_bytes=trace.size_bytes,
        data=carried_bytes(trace.path, private) if trace.size_bytes <= CARRIED_BYTES else None,
        file_name=trace.file_name,
        link=link,
    )


def carried_bytes(path: Path, private: m.RecordingHeader | None) -> bytes | None:
    """The trace as a page may carry it, gzipped; None for one that is damaged, which cannot be looked through."""
    import gzip
    import zlib

    from kgprof.analysis.redaction import redacted_trace

    data = path.read_bytes()
    if private is None:
        return data
    try:
        text = gzip.decompress(data).decode("utf-8", errors="replace")
    except (OSError, EOFError, zlib.error):
        return None
    safe = redacted_trace(text, private.private, root=private.plan.environment.source_root)
    return data if safe == text else gzip.compress(safe.encode("utf-8"), mtime=0)


def inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def speedscope_file(kept: KeptTrace) -> bytes:
    """Raises InputError where the trace cannot be read; what of it could not is said on stderr."""
    from kgprof.errors import InputError
    from kgprof.export.speedscope import speedscope
    from kgprof.measures.nesting import nesting
    from kgprof.reading import kineto

    trace = kineto.read(kept.path)
    nested = nesting(trace.columns)
    if not nested.tracks:
        raise InputError("the trace holds no event of the host's or the device's", path=kept.path)
    for warning in trace.warnings:
        inform(f"{kept.path.name}: {warning}")
    return speedscope(nested, name=f"{kept.key.slug}, {kept.measured_in.upper()}")


def add_to_job_summary(found: m.Profile, job: Job) -> None:
    """Where a CI job shows one. Whatever becomes of it, the report stands."""
    if job.summary is None:
        return
    from kgprof.cli.ci import append_summary
    from kgprof.render.markdown import Markdown

    url = job.run_url
    wrong = append_summary(job.summary, lambda room: Markdown(limit=room, in_bytes=True, report_url=url).render(found))
    inform(
        f"warning: {wrong}" if wrong else f"the summary is added to the job's: {job.summary} (--no-ci leaves it out)"
    )


def inform(text: str) -> None:
    """What is no error, on stderr."""
    tell(inert(f"kgprof: {text}"))


def emit(outputs: Sequence[Output], found: m.Profile, recording: Path | None, *, otherwise: str, job: Job) -> None:
    """Files first; on stdout the one format that was asked for there, or else one line."""
    for output in outputs:
        if output.path is not None:
            write_rendered(output.path, output.renderer, found, recording)
    on_stdout = [output for output in outputs if output.path is None]
    text = rendered(on_stdout[0].renderer, found, recording, job) if on_stdout else otherwise
    if text:
        to_stdout(text)


def to_stdout(text: str) -> None:
    """With one newline at its end. A reader that has gone away (`| head`) is no error and no exit code.

    Raises UsageError where it is a file that cannot be written, as for a file that was named.
    """
    if sys.stdout is None:  # closed by who started us
        return
    try:
        click.echo(in_words_of(sys.stdout.encoding, text.removesuffix("\n")))
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
    except OSError as error:
        discard(sys.stdout)
        raise UsageError(
            f"cannot write to stdout: {error.strerror or error}", hint="make room, or send it elsewhere"
        ) from error


def in_words_of(encoding: str, text: str) -> str:
    """What a terminal's encoding has no character for as Python writes it, as on stderr: ``\\u2013``."""
    return text.encode(encoding, errors="backslashreplace").decode(encoding)


def complain(found: m.Profile, recording: Path) -> None:
    """One error a run that did not end well, and one when nothing was measured."""
    complain_of_runs(found, recording)
    if found.exit_code == EXIT_NOTHING_MEASURED:
        say("nothing was measured", "the report says why")


def complain_of_runs(found: m.Profile, recording: Path) -> None:
    from kgprof.reading import layout

    for failed in found.runs:
        if failed.exit.outcome != "ok":
            say(how_it_ended(failed), f"its log: {layout.run_folder(recording, failed.key) / layout.LOG}")
    for timed in found.runs:
        for lost in () if isinstance(timed.rounds, m.Skipped) else timed.rounds.lost:
            say(f"{timed.key.slug}: {lost}", f"its log: {layout.run_folder(recording, timed.key) / 'round_*_log.txt'}")


def how_it_ended(failed: m.RunReport) -> str:
    code = failed.exit.exit_code
    suffix = f" (exit code {code})" if code is not None else ""
    return f"{failed.key.slug} {failed.exit.words}{suffix}"


def say_outcome(outputs: Sequence[Output], found: m.Profile, recording: Path | None, *, job: Job) -> None:
    """The gate's text on stdout, unless another format was asked for there."""
    from kgprof import render

    to_files_only = all(output.path is not None for output in outputs)
    otherwise = render.by_name("text").render(found) if to_files_only else ""
    emit(outputs, found, recording, otherwise=otherwise, job=job)


def write_baseline(found: m.Profile, settings: Settings, *, whole: bool) -> int:
    """The file of accepted findings as of now; what is new waits there for a reason and an owner.

    Nothing is written when a run died or compiled nothing: its findings are not known. Entries that match nothing are
    dropped only when every run was there, and every budget observed, to match them.
    """
    import datetime

    from kgprof.collectors import accepted
    from kgprof.record import store

    if found.exit_code not in (EXIT_OK, EXIT_GATE_FAILED, EXIT_INCONCLUSIVE) or found.gate is None:
        say("the baseline is left as it is", "not every run could be checked")
        return found.exit_code
    root, failing = found.environment.source_root, found.gate.failing
    to_accept = [f for i, f in enumerate(found.findings) if i in failing or f.accepted]
    expires = (datetime.date.today() + datetime.timedelta(days=BASELINE_DAYS)).isoformat()
    keep_unused = not whole or found.exit_code == EXIT_INCONCLUSIVE
    entries = accepted.updated(settings.accepted, to_accept, root=root, expires=expires, keep_unused=keep_unused)
    path = Path(settings.accepted_path)
    store.write_report(path.parent, path.name, accepted.write(entries))
    new = sum(not entry.reason for entry in entries)
    need = "needs" if new == 1 else "need"
    left = f"; {new} of them {need} a reason and an owner before the gate runs again" if new else ""
    if not entries:
        left = ": nothing fails, so there is nothing to accept, and the file may be deleted"
    inform(f"{path}: {plural(len(entries), 'accepted finding')}{left}")
    return EXIT_OK
