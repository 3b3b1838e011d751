"""The sheet of ``kgprof capture``: what to write, what came of each case, and how it was judged."""

from collections import Counter
from collections.abc import Iterator

from kgprof import model as m
from kgprof.document.breakdown import lengths
from kgprof.document.sheet import Code, Section, Sheet
from kgprof.document.table import (
    Block,
    Blocks,
    Cell,
    Column,
    Fold,
    Row,
    Table,
    known,
    missing,
    plain,
    row,
    timed,
)
from kgprof.wording import plural

_DRAWN = 3  # calls of the picture, besides eager
_METHOD = (
    "Each case runs in its own process with a time limit. kgprof compares its results, and every "
    "tensor that the function writes, with eager mode, over three calls that start from the same "
    "tensors and the same seed: first with the original inputs, then twice with other values.",
    "The tolerance is a share of the largest expected value, by type (float32 0.1 %, float16 1 %, "
    "bfloat16 5 %). Rounding stays below it; a result for old inputs does not. If a compiled "
    "function differs from eager mode outside of a graph too, its capture is compared with the "
    "compiled function.",
    "Only correct cases are timed: 15 groups of calls each, by CUDA events on a GPU. Copies is "
    "the time of copy_ into the inputs that the workload declares in buffers, or into all inputs "
    "if it declares none. reduce-overhead, max-autotune and make_graphed_callables copy inside "
    "the call.",
)


def capture_sheet(report: m.CaptureReport) -> Sheet:
    advice = report.advice
    machine = report.environment
    status, verdict = _verdict(report)
    trust = ""
    recommended = list[Section]()
    if isinstance(advice, m.CaptureAdvice):
        warnings = (("Warning", text) for text in advice.warnings)
        blocks: Blocks = (Code(advice.code), *warnings)
        recommended.append(
            Section("Code to write", intro=advice.reason, blocks=blocks, folded=True)
        )
        trust = f"Confidence {advice.confidence}" + (
            f": {'; '.join(advice.because)}." if advice.because else "."
        )
    not_tried = f"{plural(len(report.not_tried), 'case')} not tried ({', '.join(report.not_tried)})"
    left = (f"Interrupted: {not_tried}.",) if report.interrupted else ()
    tally = Counter(result.outcome for result in report.results)
    columns = (
        Column("case", style="", title="name for --case"),
        Column("outcome", style=""),
        Column(
            "against eager",
            style="",
            title="largest difference of any element, or why there is none",
        ),
        Column(
            "call, µs",
            title="TIMING: median of a call; its range from the 10th to the 90th percentile",
            details=2,
        ),
        Column("copies, µs", title="TIMING: median of copy_ into the declared inputs, or into all"),
    )
    cases = Section(
        "Cases",
        intro=", ".join(
            f"{tally[outcome]} {outcome}" for outcome in m.CaptureOutcome if tally[outcome]
        )
        + ".",
        blocks=(
            Table(
                label="cases and their outcomes",
                columns=columns,
                rows=tuple(map(_row, report.results)),
            ),
            *left,
        ),
    )
    # Where no case could be run, all have the reason that the verdict gives.
    sections = (cases, *_details(report), Section("Method", _METHOD)) if report.tried else ()
    return Sheet(
        title=f"capture of {report.workload}, {report.strategy}",
        status=status,
        verdict=verdict,
        trust=trust,
        facts=(
            machine.device_name,
            f"torch {machine.torch}",
            f"Python {machine.python}",
            report.created_utc,
        ),
        pictures=tuple(_pictures(report)) if report.tried else (),
        sections=(*recommended, *sections),
    )


def _verdict(report: m.CaptureReport) -> tuple[m.VerdictStatus, str]:
    if not report.tried:
        why = next((result.why for result in report.results), "nothing was tried")
        return m.VerdictStatus.INCONCLUSIVE, f"No case could be run: {why}."
    if isinstance(report.advice, m.Skipped):
        harmless = (m.CaptureOutcome.CORRECT, m.CaptureOutcome.NOT_APPLICABLE)
        failed = any(result.outcome not in harmless for result in report.results)
        status = m.VerdictStatus.FAILED if failed else m.VerdictStatus.INCONCLUSIVE
        return status, f"No recommendation: {report.advice.reason}."
    sure = report.advice.confidence is m.Confidence.HIGH and not report.interrupted
    return m.VerdictStatus.OK if sure else m.VerdictStatus.ATTENTION, report.advice.summary


def _pictures(report: m.CaptureReport) -> Iterator[Fold]:
    """The calls that were timed, the fastest first, and how many cases ended how."""
    timed_calls = sorted(
        (result.answer.call_us.median, result.name)
        for result in report.results
        if result.answer is not None and isinstance(result.answer.call_us, m.Spread)
    )
    if len(timed_calls) > 1:
        shown = timed_calls[:_DRAWN] + [call for call in timed_calls[_DRAWN:] if call[1] == m.EAGER]
        rows = [(name, us) for us, name in shown]
        advised = report.advice.case if isinstance(report.advice, m.CaptureAdvice) else ""
        yield Fold("Time per call", (lengths("case", "\N{MICRO SIGN}s", rows, marked=advised),))
    tally = Counter(result.outcome for result in report.results)
    ended = [(outcome, float(tally[outcome])) for outcome in m.CaptureOutcome if tally[outcome]]
    if ended:
        yield Fold("Outcomes", (lengths("outcome", "cases", ended),))


def _row(result: m.CaptureResult) -> Row:
    answer = result.answer
    bad = result.outcome in (m.CaptureOutcome.WRONG, m.CaptureOutcome.HUNG)
    unmeasured = missing("only correct cases are timed")
    return row(
        Cell(result.name, title=f"the function is {result.case.words}"),
        Cell(str(result.outcome).upper() if bad else str(result.outcome), wrong=bad),
        Cell(_against(result)),
        known(answer.call_us, timed) if answer is not None else unmeasured,
        known(answer.copies_us, timed) if answer is not None else unmeasured,
    )


def _against(result: m.CaptureResult) -> str:
    answer = result.answer
    if (
        result.outcome in (m.CaptureOutcome.CORRECT, m.CaptureOutcome.WRONG)
        and answer is not None
        and answer.difference
    ):
        worst = answer.difference
        if result.outcome is m.CaptureOutcome.CORRECT:
            return f"at most {worst.largest or 0.0:.2g} apart, tolerance {worst.tolerance:.2g}"
        place = f"{worst.of}{list(worst.index) if worst.index else ''}"
        stale = "the result for the old inputs: " if answer.stale else ""
        return (
            f"{stale}{place} is {worst.got}, not {worst.expected}; {worst.differing:,} of "
            f"{worst.elements:,} differ"
        )
    return result.why


def _details(report: m.CaptureReport) -> Iterator[Section]:
    """What is too long for the table: the lines that raised, stacks, and the inputs."""
    folds: list[Block] = []
    for result in report.results:
        blocks = [*_detail(result)]
        if blocks:
            folds.append(Fold(f"{result.name}: {result.outcome}", blocks))
    if folds:
        yield Section("Outcomes in detail", folds)
    inputs = next(
        (r.answer.inputs for r in report.results if r.answer is not None and r.answer.inputs), ()
    )
    if inputs:
        rows = [
            [
                each.name,
                "\N{MULTIPLICATION SIGN}".join(map(str, each.shape)) or "scalar",
                each.dtype,
                "yes" if each.declared else "no",
            ]
            for each in inputs
        ]
        table = plain("inputs", ("input", "shape", "type", "declared by buffers"), rows, words=4)
        intro = (
            "Tensors that the function reads but neither creates nor writes, except its parameters."
        )
        yield Section("Inputs", intro=intro, blocks=(table,))


def _detail(result: m.CaptureResult) -> Iterator[Block]:
    answer = result.answer
    if answer is not None:
        if answer.at is not None:
            yield (
                "Line",
                f"{answer.at.file}:{answer.at.line} in {answer.at.function}: {answer.at.text}",
            )
        if result.outcome is m.CaptureOutcome.WRONG and result.why:
            yield result.why
        yield from answer.notes
        if answer.traceback:
            yield Code(answer.traceback)
    if result.stacks:
        yield Code(result.stacks)
        if isinstance(result.native_stacks, str):
            yield Code(result.native_stacks)
        else:
            yield ("Native stacks", result.native_stacks.reason)
