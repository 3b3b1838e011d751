"""``kgprof capture`` from its options to its page: the cases that were asked for, the report, and
its formats."""

import datetime
import shlex
import sys
from collections.abc import Sequence

from kgprof import model as m
from kgprof.analysis.capture_advice import advise
from kgprof.cli import terminal
from kgprof.cli.options import Context
from kgprof.cli.reading import shown_report
from kgprof.cli.recording import making
from kgprof.cli.saying import say
from kgprof.cli.writing import emit_sheet, write_sheet
from kgprof.document.capture_sheet import capture_sheet
from kgprof.errors import EXIT_OK, EXIT_WORKLOAD, UsageError
from kgprof.lab import captures
from kgprof.record import default_folder
from kgprof.record.ground.scratch import scratch_folder
from kgprof.workloads import catalog, loading, programs

FILES = ("capture.json", "capture.html")


def cases_of(workload: str, names: Sequence[str]) -> tuple[m.CaptureCase, ...]:
    """Raises UsageError for a case or a workload that cannot be."""
    if programs.is_program(workload):
        why = f"{workload} is a script, so nothing in it can be captured"
        raise UsageError(why, "name one of its functions: file.py:name")
    return captures.chosen(names, built_in=workload in catalog.BUILT_IN)


def captured(options: m.Options, cases: Sequence[m.CaptureCase], context: Context) -> int:
    """Try them, write capture.json and capture.html, print what was asked for; the exit code."""
    folder = context.output or default_folder(options.workload)
    inputs = loading.files_of(options.workload)
    with making(folder, inputs, context, worth_keeping=False, names=FILES) as work:
        question = m.CaptureQuestion(case=cases[0], strategy=next(iter(options.strategies), ""))
        with scratch_folder("kgprof-capture-") as scratch, context.progress() as phases:
            trying = captures.Captures(options, scratch, phases, question)
            survey = trying.survey()
            results: list[m.CaptureResult] = []
            try:
                results += trying.results(cases, survey)
            except KeyboardInterrupt:  # between two cases
                trying.interrupted = True
        context.interrupted = trying.interrupted
        report = m.CaptureReport(
            created_utc=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            command=tuple(sys.argv),
            workload=options.workload,
            strategy=survey.strategy,
            environment=survey.environment,
            timeout_s=options.timeout_s,
            results=tuple(results),
            advice=advise(results, options.workload.rpartition(":")[2].replace("-", "_")),
            not_tried=tuple(case.name for case in cases[len(results) :]),
            interrupted=trying.interrupted,
        )
        report = shown_report(report, context.sharing)
        shown = capture_sheet(report)
        write_sheet(work.folder, FILES, report, shown)
        page = work.finish() / FILES[1]
    text = terminal.sheet(shown, sys.stdout).rstrip()
    emit_sheet(shown, report, context, otherwise=f"{text}\n\n{page}")
    if not report.tried and not report.interrupted:
        why = next(iter(dict.fromkeys(result.why for result in report.results)), "")
        say(f"no case could be run: {why}", f"the page names each case: {shlex.quote(str(page))}")
        return EXIT_WORKLOAD
    if any(output.path is None for output in context.outputs):
        context.inform(f"the page is {page}")
    return EXIT_OK


def listed(cases: Sequence[m.CaptureCase]) -> str:
    width = max(len(case.name) for case in cases)
    return "\n".join(f"{case.name:<{width}}  The function is {case.words}." for case in cases)
