"""The sheet of ``kgprof capture``: what to write, what came of each case, and how it was judged."""

from collections import Counter
from collections.abc import Iterator, Sequence

from kgprof import model as m
from kgprof.document.breakdown import lengths
from kgprof.document.sheet import Code, Section, Sections, Sheet
from kgprof.document.table import (
    Block,
    Cell,
    Cells,
    Column,
    Fold,
    missing,
    plain,
    timed,
)
from kgprof.wording import clause, plural

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
    sections = []
    pictures: Sequence[Fold] = ()
    if isinstance(advice, m.CaptureAdvice):
        warnings = [("Warning", text) for text in advice.warnings]
        code = Code(advice.code)
        sections.append(Section("Code to write", [code, *warnings], advice.reason, folded=True))
        because = clause(": ", "; ".join(advice.because))
        trust = f"Confidence {advice.confidence}{because}."
    # Where no case could be run, all have the reason that the verdict gives.
    if report.tried:
        sections += [_cases(report), *_details(report), Section("Method", _METHOD)]
        pictures = [*_pictures(report)]
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
        pictures=pictures,
        sections=sections,
    )


def _cases(report: m.CaptureReport) -> Section:
    headings = (
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
    rows = [_row(result) for result in report.results]
    blocks: list[Block] = [plain("cases and their outcomes", headings, rows, style="")]
    if report.interrupted:
        cases = plural(len(report.not_tried), "case")
        blocks.append(f"Interrupted: {cases} not tried ({', '.join(report.not_tried)}).")
    tally = ", ".join(f"{number} {outcome}" for outcome, number in _tally(report).items())
    return Section("Cases", blocks, f"{tally}.")


def _tally(report: m.CaptureReport) -> dict[m.CaptureOutcome, int]:
    """Of the outcomes that there were, in their order."""
    tally = Counter(result.outcome for result in report.results)
    return {outcome: tally[outcome] for outcome in m.CaptureOutcome if tally[outcome]}


def _verdict(report: m.CaptureReport) -> tuple[m.VerdictStatus, str]:
    if not report.tried:
        why = next((result.why for result in report.results), "nothing was tried")
        return m.VerdictStatus.INCONCLUSIVE, f"No case could be run: {why}."
    if isinstance(report.advice, m.Skipped):
        harmless = (m.CaptureOutcome.CORRECT, m.CaptureOutcome.NOT_APPLICABLE)
        status = m.VerdictStatus.INCONCLUSIVE
        if any(result.outcome not in harmless for result in report.results):
            status = m.VerdictStatus.FAILED
        return status, f"No recommendation: {report.advice.reason}."
    if report.advice.confidence is m.Confidence.HIGH and not report.interrupted:
        return m.VerdictStatus.OK, report.advice.summary
    return m.VerdictStatus.ATTENTION, report.advice.summary


def _pictures(report: m.CaptureReport) -> Iterator[Fold]:
    """The calls that were timed, the fastest first, and how many cases ended how."""
    timed_calls = sorted(
        (result.answer.call_us.median, result.name)
        for result in report.results
        if result.answer and isinstance(result.answer.call_us, m.Spread)
    )
    if len(timed_calls) > 1:
        shown = timed_calls[:_DRAWN] + [call for call in timed_calls[_DRAWN:] if call[1] == m.EAGER]
        rows = [(name, us) for us, name in shown]
        advised = getattr(report.advice, "case", "")
        yield Fold("Time per call", (lengths("case", "\N{MICRO SIGN}s", rows, marked=advised),))
    if ended := [(outcome, float(number)) for outcome, number in _tally(report).items()]:
        yield Fold("Outcomes", (lengths("outcome", "cases", ended),))


def _row(result: m.CaptureResult) -> Cells:
    answer = result.answer
    bad = result.outcome in (m.CaptureOutcome.WRONG, m.CaptureOutcome.HUNG)
    call = copies = missing("only correct cases are timed")
    if answer:
        call, copies = timed(answer.call_us), timed(answer.copies_us)
    outcome: str = result.outcome
    if bad:
        outcome = outcome.upper()
    return (
        Cell(result.name, title=f"the function is {result.case.words}"),
        Cell(outcome, wrong=bad),
        _against(result),
        call,
        copies,
    )


def _against(result: m.CaptureResult) -> str:
    answer = result.answer
    judged = result.outcome in (m.CaptureOutcome.CORRECT, m.CaptureOutcome.WRONG)
    if not judged or not answer or not answer.difference:
        return result.why
    worst = answer.difference
    if result.outcome is m.CaptureOutcome.CORRECT:
        return f"at most {worst.largest or 0.0:.2g} apart, tolerance {worst.tolerance:.2g}"
    place = worst.of
    if worst.index:
        place += f"{list(worst.index)}"
    if answer.stale:
        place = f"the result for the old inputs: {place}"
    differ = f"{worst.differing:,} of {worst.elements:,} differ"
    return f"{place} is {worst.got}, not {worst.expected}; {differ}"


def _details(report: m.CaptureReport) -> Sections:
    """What is too long for the table: the lines that raised, stacks, and the inputs."""
    folds = []
    for result in report.results:
        if blocks := [*_detail(result)]:
            folds.append(Fold(f"{result.name}: {result.outcome}", blocks))
    if folds:
        yield Section("Outcomes in detail", folds)
    answers = (result.answer for result in report.results)
    inputs = next((answer.inputs for answer in answers if answer and answer.inputs), ())
    if inputs:
        rows = []
        for each in inputs:
            shape = "\N{MULTIPLICATION SIGN}".join(map(str, each.shape)) or "scalar"
            declared = "no"
            if each.declared:
                declared = "yes"
            rows.append((each.name, shape, each.dtype, declared))
        table = plain("inputs", ("input", "shape", "type", "declared by buffers"), rows, words=4)
        intro = (
            "Tensors that the function reads but neither creates nor writes, except its parameters."
        )
        yield Section("Inputs", (table,), intro)


def _detail(result: m.CaptureResult) -> Iterator[Block]:
    answer = result.answer
    if answer:
        if at := answer.at:
            yield "Line", f"{at.file}:{at.line} in {at.function}: {at.text}"
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
            yield "Native stacks", result.native_stacks.reason
