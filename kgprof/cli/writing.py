"""What leaves kgprof: report files, formats on stdout, the job summary, and a workflow for a
repository's CI. The verbs import it when they run."""

import datetime
import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from kgprof import model as m
from kgprof import render
from kgprof._version import __version__
from kgprof.analysis.redaction import (
    SECRET_KINDS,
    fields_with_secrets,
    redacted_text,
    redacted_trace,
)
from kgprof.cli import terminal
from kgprof.cli.options import Context, Sharing
from kgprof.cli.reading import read
from kgprof.cli.saying import Job, append_summary, inert, inert_document, inform, say, to_stdout
from kgprof.collectors.trust import accepted
from kgprof.document import account, failures, practices
from kgprof.document.finding_list import not_applied
from kgprof.document.sheet import Sheet
from kgprof.errors import (
    EXIT_GATE_FAILED,
    EXIT_INCONCLUSIVE,
    EXIT_NOTHING_MEASURED,
    EXIT_OK,
    InputError,
    UsageError,
)
from kgprof.progress import STYLED, is_terminal, tell
from kgprof.reading import files, layout, recordings
from kgprof.reading.files import MAX_EXPANSION, content
from kgprof.record.files import kept_traces
from kgprof.record.ground import store
from kgprof.record.ground.unfinished import Unfinished
from kgprof.render import sheet as sheets
from kgprof.render.embedded_profile import EMBEDDED_BYTES, TraceFile, stay
from kgprof.render.html import directory
from kgprof.render.json import inert_json
from kgprof.render.markdown import Markdown
from kgprof.wording import clause, plural

GITHUB, GITLAB = PLACES = ("github", "gitlab")
PATHS = {GITHUB: Path(".github/workflows/kgprof.yml"), GITLAB: Path(".gitlab/kgprof.yml")}
_OURS = "# Written by `kgprof ci-init "  # the first words of a file that may be replaced
_PLACEHOLDER = re.compile(r"@([A-Z]+)@")


def workflow(place: str, *, workload: str, torch: str, path: Path, source: str = "") -> str:
    """Returns the text of the file ``path``. Every value is a string in double quotes.

    ``torch``: the version to pin, as the package index names it; empty for any. ``source``: where
    pip takes kgprof from; if that is not known it is empty, and the job stops and says so. Raises
    UsageError for a workload that cannot stand in the file.
    """
    _refuse_workload(workload)
    pattern = path.as_posix()
    if path.is_absolute():
        pattern = f"**/{path.name}"
    # What neither ends an HTML comment nor a YAML string; two workloads in one repository have two
    # comments.
    values = {
        "VERSION": __version__,
        "WORKLOAD": _quoted(workload),
        "KGPROF": _quoted(source),
        "INSTALL": _quoted(clause("torch==", torch)),
        "MARKER": re.sub(r"[^A-Za-z0-9._:/ -]", "_", workload).replace("--", "_"),
        "PATH": _quoted(pattern),
    }
    template = (directory("templates") / "ci" / f"{place}.yml").read_text(encoding="utf-8")
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def _quoted(text: str) -> str:
    """Returns ``text`` as a string of YAML; JSON's pairs of surrogates are no characters there."""
    quoted = json.dumps(text, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)


def _refuse_workload(workload: str) -> None:
    if not workload.strip():
        raise UsageError("the workload is empty", "name one with --workload model.py:step")
    if "${{" in workload:
        raise UsageError(
            f"the workload {workload!r} contains ${{{{, which GitHub replaces by secrets and the "
            "like",
            "rename the file or the function",
        )
    if any("\ud800" <= character <= "\udfff" for character in workload):
        raise UsageError(
            f"the workload {workload!r} is not UTF-8", "rename the file or the function"
        )


_AT_A_COMMIT = re.compile(r"git\+https://[A-Za-z0-9.-]+(?::\d+)?/[\w./~-]+@[0-9a-f]{40}")
_FOLDER = re.compile(r"\./[\w./-]+")


def kgprof_source(source: str | None) -> str:
    """Returns where pip takes kgprof from: as given, or the git address and commit that this kgprof
    was installed from.

    Empty if it was installed otherwise. Raises UsageError for anything that another person could
    replace.
    """
    if source is None:
        try:
            text = metadata.distribution("kgprof").read_text("direct_url.json")
        except metadata.PackageNotFoundError:
            text = None
        known = json.loads(text or "{}")
        source = f"git+{known.get('url', '')}@{known.get('vcs_info', {}).get('commit_id', '')}"
        if not _AT_A_COMMIT.fullmatch(source):
            return ""
        return source
    if _AT_A_COMMIT.fullmatch(source) or (
        _FOLDER.fullmatch(source) and ".." not in source.split("/")
    ):
        return source
    raise UsageError(
        f"--from {source!r} names no commit",
        (
            "use git+https://HOST/OWNER/REPOSITORY@COMMIT with all 40 digits, or a "
            "folder of the repository: ./PATH"
        ),
    )


def refuse_what_is_no_file(path: Path) -> None:
    """Raises UsageError for a FIFO, a device or a symbolic link, and for a link among a relative
    path's folders."""
    links = [
        part
        for part in (path, *path.parents)
        if part.is_symlink() and (part == path or not path.is_absolute())
    ]
    if links:
        raise UsageError(
            f"cannot write to {path}: {links[-1]} is a symbolic link",
            "name the file that it leads to with -o",
        )
    if path.exists() and not path.is_file():
        raise UsageError(
            f"cannot write to {path}: it is not a regular file", "name another file with -o"
        )


def refuse_to_replace(path: Path) -> None:
    """Raises UsageError where another hand than ours wrote the file."""
    try:
        ours = files.content(path, files.TOML_BYTES).startswith(_OURS.encode())
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}", "name another file with -o"
        ) from error
    if not ours:
        raise UsageError(
            f"{path} was not written by `kgprof ci-init`",
            "name another file with -o, or replace it with --force",
        )


# what a page is made of that is no report
Shown = m.Sweep | m.CaptureReport | m.History | m.Trend | m.Fix
BASELINE_DAYS = 90  # how long a finding that --update-baseline adds is accepted
LOOKED_THROUGH_BYTES = 2**29  # of a trace that leaves the machine, unpacked


def finished(
    work: Unfinished, context: Context, *, hta: bool | None = False
) -> tuple[m.Profile, Path]:
    """The Profile of what is in ``work``, and its page: everything is in its place."""
    profile = read(work.recording, hta=hta, quiet=context.quiet, sharing=context.sharing)
    write_report(work.folder, profile, work.recording, context.job)
    folder = work.finish()
    complain_of_runs(profile, folder / layout.FOLDER)
    return profile, folder / "report.html"


def reported(work: Unfinished, context: Context, *, hta: bool | None) -> int:
    """The exit code of a Recording whose report is put in its place, and wherever else it was asked
    for."""
    profile, page = finished(work, context, hta=hta)
    if profile.exit_code == EXIT_NOTHING_MEASURED:
        say("nothing was measured", "the report says why")
    return ended(profile, page, context)


def ended(profile: m.Profile, page: Path, context: Context) -> int:
    """The exit code of what was recorded just now, its result told in short and in every form that
    was asked for."""
    # What a program raised is said already.
    raised = profile.runs and all(run.exit.failure is not None for run in profile.runs)
    if not context.quiet and is_terminal(sys.stderr) and not raised:
        show_ending(profile, page, context)
    elif not context.quiet:
        sentences = [f"{what}; {advice}" for what, advice, _ in practices.next_steps(profile)]
        if not raised:
            sentences = [*profile.verdict.sentences, *account.lines(profile), *sentences]
        for sentence in filter(None, (*sentences, not_applied(profile.actions))):
            inform(sentence)
    add_to_job_summary(profile, context.job)
    emit(profile, page.parent / layout.FOLDER, context, otherwise=str(page))
    return profile.exit_code


def show_ending(profile: m.Profile, page: Path, context: Context) -> None:
    """On a terminal the result in short, and what to run next; stdout gets the page's path as
    ever."""
    if is_terminal(sys.stderr):
        shown = terminal.text(profile, verbose=context.verbose, stream=sys.stderr)
        tell(shown, kept=STYLED)
        tell(f"next: {terminal.next_command(profile, page.parent)}")


def write_report(folder: Path, profile: m.Profile, recording: Path | None, job: Job) -> Path:
    """report.json and report.html, both or none; the path of the latter."""
    texts = {
        f"report.{form}": rendered(form, profile, recording, folder, job)
        for form in ("json", "html")
    }
    store.write_reports(folder, texts)
    return folder / "report.html"


def rendered(
    form: str,
    profile: m.Profile,
    recording: Path | None,
    folder: Path | None,
    job: Job,
) -> str:
    """``folder``: where the document will stand; None where nothing can stand beside it, as on
    stdout. ``job``: whose pages a comment may link."""
    if form == Markdown.name:
        return Markdown(job.run_url, job.source_url).render(profile)
    traces = partial(trace_files, profile, recording, folder)
    return render.by_name(form, traces, job.source_url).render(profile)


def trace_files(profile: m.Profile, recording: Path | None, folder: Path | None) -> list[TraceFile]:
    """Each run's trace, for a page that stands in ``folder``. One that is elsewhere than its
    Recording gets those that it does not carry beside it; a comparison of two reports has no
    Recording, and none."""
    if recording is None:
        return []
    private = None
    if profile.contents and profile.contents.redaction:
        private = recordings.load_header(recording)
    files = []
    for trace in kept_traces.kept_traces(recording, [run.key for run in profile.runs]):
        link = ""
        place = stay
        if folder is not None:
            link, path, here = trace.file_name, trace.path.resolve(), folder.resolve()
            if path.is_relative_to(here):
                link = path.relative_to(here).as_posix()
            else:
                place = partial(write_trace, folder / trace.file_name, trace.path, private)
        file = TraceFile(
            run=trace.key,
            measured_in=trace.measured_in,
            size_bytes=trace.size_bytes,
            read=partial(looked_through, trace.path, private),
            file_name=trace.file_name,
            link=quote(link),
            place=place,
        )
        files.append(file)
    return files


def looked_through(
    path: Path, private: m.RecordingHeader | None, most_bytes: int = EMBEDDED_BYTES
) -> bytes | None:
    """A gzipped trace of at most ``most_bytes`` as it may leave the machine; None for one that
    cannot be looked through, because it is larger, damaged, or no trace's size once unpacked.

    ``private`` names what must not be in it; None where the report may say everything.
    """
    unpacked_bytes = min(most_bytes * MAX_EXPANSION, LOOKED_THROUGH_BYTES)
    try:
        data = content(path, most_bytes)
        if private is None:
            return data
        whole = gzip.GzipFile(fileobj=io.BytesIO(data)).read(unpacked_bytes + 1)
    except (OSError, EOFError, zlib.error):
        return None
    if len(whole) > unpacked_bytes:
        return None
    text = whole.decode("utf-8", errors="replace")
    safe = redacted_trace(text, private.private, root=private.plan.environment.source_root)
    if safe == text:
        return data
    return gzip.compress(safe.encode("utf-8"), mtime=0)


def write_trace(path: Path, file: Path | bytes, private: m.RecordingHeader | None) -> None:
    """A trace, or what an exporter made of one, as it may leave the machine. Raises InputError for
    a damaged one, and UsageError where it cannot be written."""
    if isinstance(file, bytes):
        if private:
            root = private.plan.environment.source_root
            file = redacted_trace(file.decode(), private.private, root=root).encode()
        return store.write_export(path, file)
    if private is None:
        return store.copy_trace(file, path)
    safe = looked_through(file, private, LOOKED_THROUGH_BYTES)
    if safe is None:
        most = f"{LOOKED_THROUGH_BYTES:,} bytes"
        message = f"cannot be searched for secrets: it is truncated, or larger than {most}"
        raise InputError(message, path=file, hint="--no-redact copies it unchanged")
    return store.write_export(path, safe)


def write_texts(
    path: Path, recording: m.Recording, slug: str | None, what: str, sharing: Sharing
) -> None:
    """The graphs or the code of one run, a heading before each. Raises UsageError where several
    runs have some and none was named, or the run is not there; InputError where it has none."""
    if sharing.source == "none":
        raise UsageError(f"--include-source none leaves nothing of a {what}", "give repo or all")
    known = {run.key.slug: run.records for run in recording.runs}
    if slug is not None and slug not in known:
        raise UsageError(f"no run {slug!r} in this Recording", f"its runs are {', '.join(known)}")
    texts = {
        name: [text for text in records.texts if text.what == what]
        for name, records in known.items()
        if isinstance(records, m.CompileRecords) and slug in (None, name)
    }
    having = [name for name, found in texts.items() if found]
    if not having:
        hint = "give --passes compile when recording"
        if slug:
            hint = "nothing was compiled, or an older kgprof recorded it"
        raise InputError(f"no {what} was recorded", path=slug or recording.folder, hint=hint)
    if len(having) > 1:
        raise UsageError(
            f"{len(having)} runs have a {what}", f"choose one with --run: {', '.join(having)}"
        )
    parts = []
    for text in texts[having[0]]:
        safe = redacted_text(text, recording.header, source=sharing.source, redact=sharing.redact)
        title = f"# {having[0]}, compilation {safe.compile_id or 'unknown'}"
        if safe.cut:
            title += f", {safe.cut:,} characters left out at its end"
        parts.append(f"{title}\n{safe.text.rstrip()}\n")
    store.write_export(path, "\n\n".join(parts).encode())


def add_to_job_summary(profile: m.Profile, job: Job) -> None:
    """Where a CI job shows one. Whatever becomes of it, the report stands."""
    if job.summary is None:
        return

    def made(room: int) -> str:
        summary = Markdown(job.run_url, job.source_url, limit=room, in_bytes=True)
        return summary.render(profile)

    added = f"the summary was added to the job summary: {job.summary} (--no-ci leaves it out)"
    inform(clause("warning: ", append_summary(job.summary, made)) or added)


def emit(
    profile: m.Profile, recording: Path | None, context: Context, *, otherwise: str | None = None
) -> None:
    """Files first; on stdout the one format that was asked for there, or ``otherwise``, or else the
    text.

    A job that takes commands from its log gets none that a run wrote.
    """

    def made(form: str, path: Path | None) -> str:
        folder = None
        if path is not None and not store.is_stream(path):
            folder = path.parent
        return rendered(form, profile, recording, folder, context.job)

    if context.fail_on_secret:
        context.secrets = _complain_of_secrets(profile)
    text = _emitted(context, made)
    if text is None and otherwise is None:
        text = terminal.text(profile, verbose=context.verbose)
    elif text is None and otherwise:
        text = terminal.linked(otherwise)
    if text:
        to_stdout(text)


def _complain_of_secrets(profile: m.Profile) -> bool:
    """Says on stderr how many secrets were left out of a report and in which fields, and nothing of
    themselves."""
    contents = profile.contents
    if contents is None:
        return False
    kinds = [each for each in contents.redacted if each.category in SECRET_KINDS]
    if not kinds:
        return False
    places = islice(fields_with_secrets(profile), 10)
    counted = ", ".join(f"{each.category} ({each.count:,})" for each in kinds)
    say(
        f"secrets were left out of the report: {counted}"
        f"{clause('; <secret>, <token> or <credentials> stands in ', ', '.join(places))}",
        "remove them from the program or its environment, or run without --fail-on-secret",
    )
    return True


def _emitted(context: Context, made: Callable[[str, Path | None], str]) -> str | None:
    """What is asked for on stdout, when the files are written."""
    text = None
    for output in context.outputs:
        document = made(output.form, output.path)
        if output.path is not None:
            store.write_reports(output.path.parent, {output.path.name: document})
        elif context.job.parses_log:
            text = inert_document(document, output.form)
        else:
            text = document
    return text


def write_sheet(
    folder: Path,
    names: Sequence[str],
    data: Shown,
    page: Sheet,
) -> None:
    """Its JSON and its page, both or none."""
    texts = (inert_json(data), sheets.html(page))
    store.write_reports(folder, dict(zip(names, texts, strict=True)))


def emit_sheet(
    page: Sheet,
    data: Shown,
    context: Context,
    *,
    otherwise: str,
) -> None:
    """As ``emit``, of a verb that shows a sheet; ``data`` is what the sheet was made from."""
    printers = {"html": sheets.html, "markdown": sheets.markdown}

    def made(form: str, path: Path | None) -> str:
        if form == "json":
            return inert_json(data)
        if form != "text":
            return printers[form](page)
        if path is None:
            return terminal.sheet(page, sys.stdout)
        return sheets.text(page)

    text = _emitted(context, made)
    if text is None:
        text = otherwise
    to_stdout(text)


def complain_of_runs(profile: m.Profile, recording: Path) -> None:
    """Three lines for each line of the program that raised, one error for every other run that did
    not end well, and one a round."""
    for one in failures.failed(profile):
        log = layout.run_folder(recording, one.run) / layout.LOG
        tell(inert("\n".join(failures.lines(one, log))))
    for run in profile.runs:
        if run.exit.outcome == "ok" or run.exit.failure is not None:
            continue
        words = f"{run.slug} {run.exit.words}"
        if run.exit.exit_code is not None:
            words += f" (exit code {run.exit.exit_code})"
        log = layout.run_folder(recording, run.key) / layout.LOG
        hint = ""
        if run.was_stopped and run.exit.outcome is m.Outcome.TIMED_OUT and run.script is not None:
            shown = f"the report shows its first {run.script.steps:,} steps"
            hint = f"{shown}; a smaller --timeout ends it sooner"
        elif log.exists():
            hint = f"its log: {log}"
        say(words, hint)
    for run in profile.runs:
        if isinstance(run.rounds, m.Rounds):
            logs = layout.run_folder(recording, run.key) / "round_*_log.txt"
            for lost in run.rounds.lost:
                say(f"{run.slug}: {lost}", f"its log: {logs}")


def write_baseline(profile: m.Profile, settings: m.GateSettings, *, whole: bool) -> int:
    """The file of accepted findings as of now; what is new waits there for a reason and an owner.

    Nothing is written when a run died or compiled nothing: its findings are not known. Entries that
    match nothing are dropped only when every run was there, and every budget observed, to match
    them.
    """
    if (
        profile.exit_code not in (EXIT_OK, EXIT_GATE_FAILED, EXIT_INCONCLUSIVE)
        or profile.gate is None
    ):
        say("the baseline is left as it is", "not every run could be checked")
        return profile.exit_code
    root = profile.source_root
    failing = profile.gate.failing
    to_accept = [f for i, f in enumerate(profile.findings) if i in failing or f.accepted]
    expires = (datetime.date.today() + datetime.timedelta(days=BASELINE_DAYS)).isoformat()
    keep_unused = not whole or profile.exit_code == EXIT_INCONCLUSIVE
    entries = accepted.updated(
        settings.accepted, to_accept, root=root, expires=expires, keep_unused=keep_unused
    )
    path = Path(settings.accepted_path)
    store.write_reports(path.parent, {path.name: accepted.write(entries)})
    new = sum(not entry.reason for entry in entries)
    left = ""
    if not entries:
        left = ": nothing fails, so there is nothing to accept, and the file can be deleted"
    elif new == 1:
        left = "; 1 of them needs a reason and an owner before the gate runs again"
    elif new:
        left = f"; {new} of them need a reason and an owner before the gate runs again"
    inform(f"{path}: {plural(len(entries), 'accepted finding')}{left}")
    return EXIT_OK
