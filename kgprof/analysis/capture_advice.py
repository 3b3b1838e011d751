"""Which way to write it: from the outcomes of ``kgprof capture`` to one recommendation, with code
and confidence."""

import re
from collections.abc import Iterator, Sequence

from kgprof import model as m
from kgprof.judge import Level, Samples, Unknown, judge
from kgprof.wording import and_more, figure

# of the time: a simpler way is recommended that takes no longer than this beyond the fastest
WORTH = 0.05
_CALLED = (
    *(m.EAGER, m.AS_IS, "default"),
    *("reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"),
)
# Ways to write it, the simplest first.
SIMPLEST = (
    *((m.CaptureWay.CALL, mode) for mode in _CALLED),
    *((m.CaptureWay.CALLABLES, mode) for mode in (m.EAGER, "default")),
    *((m.CaptureWay.CAPTURE, mode) for mode in (m.EAGER, m.AS_IS, *m.CAPTURE_MODES[1:])),
)
CORRECT, RAISED = m.CaptureOutcome.CORRECT, m.CaptureOutcome.RAISED
Results = Sequence[m.CaptureResult]
_PLAIN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(\[\d+\])*")  # what can stand in code


def advise(results: Results, function: str) -> m.CaptureAdvice | m.Skipped:
    """``function`` is the step's own name. Skipped where no way that was tried gave correct
    results."""
    ways = [result for result in results if is_a_way(result.case)]
    right = [result for result in ways if result.outcome is CORRECT]
    if not right:
        return m.Skipped(_why_none(ways))
    costs = {result.name: cost for result in right if (cost := result.cost_us) is not None}
    best, near = _best(right, costs)
    confidence, because = _confidence(best, near, results, costs)
    fastest = min(costs.values(), default=0.0)
    plain = next((costs[name] for name in (m.EAGER, m.AS_IS) if name in costs), None)
    cost = costs.get(best.name)
    reason = "Its results equal those of eager mode."
    if cost is not None and plain is not None and cost != plain:
        reason += f" A call takes {figure(cost)} µs, and {figure(plain)} µs in eager mode."
    answer = best.answer
    if answer is not None and isinstance(copies := answer.copies_us, m.Spread):
        declared = any(each.declared for each in answer.inputs)
        which = "not included; at most that, if all inputs are new"
        if declared:
            which = "included for the declared inputs"
        reason += f" Copying new inputs takes {figure(copies.median)} µs ({which})."
    slower = sorted(
        (each, name) for name, each in costs.items() if cost is not None and each > cost
    )
    if slower and slower[0][0] != plain:
        reason += f" The next fastest is {slower[0][1]} with {figure(slower[0][0])} µs."
    if cost is not None and near:
        gain = f"{near[0].name} takes {figure(fastest)} µs"
        reason += f" {gain}: that is within {WORTH:.0%} or the noise, and it is harder to write."
    return m.CaptureAdvice(
        best.name,
        _summary(best.case),
        code(best, function),
        reason,
        confidence,
        because,
        tuple(_warnings(best, results)),
    )


def is_a_way(case: m.CaptureCase) -> bool:
    """Whether somebody would write it so: with the usual warm-up, and nothing that is there to
    provoke a failure."""
    return case == m.CaptureCase(way=case.way, mode=case.mode)


def _why_none(ways: Results) -> str:
    if not ways:
        return "no case was tried that is a way to write it: leave out --case"
    if all(way.outcome is m.CaptureOutcome.NOT_APPLICABLE for way in ways):
        return ways[0].why
    return (
        f"none of the {len(ways)} ways to write it that were tried gave the results of eager mode"
    )


def _best(
    right: Results, costs: dict[str, float]
) -> tuple[m.CaptureResult, tuple[m.CaptureResult, ...]]:
    """The simplest of those that are level with the fastest, or within WORTH of it; and the fastest
    one where that is another."""

    def simplicity(result: m.CaptureResult) -> int:
        return SIMPLEST.index((result.case.way, result.case.mode))

    timed = [result for result in right if result.name in costs]
    if not timed:
        return min(right, key=simplicity), ()
    fastest = min(timed, key=lambda result: costs[result.name])
    enough = costs[fastest.name] * (1 + WORTH)
    level = [r for r in timed if isinstance(judge(_samples(fastest), _samples(r)), Level)]
    best = min((*level, *(r for r in timed if costs[r.name] <= enough)), key=simplicity)
    if best is fastest:
        return best, ()
    return best, (fastest,)


def _open(one: m.CaptureResult, other: m.CaptureResult) -> bool:
    return isinstance(judge(_samples(one), _samples(other)), Unknown)


def _samples(result: m.CaptureResult) -> Samples:
    """Of a call with its copies, in a process of its own."""
    assert result.answer is not None
    time = result.answer.call_us
    assert isinstance(time, m.Spread)
    copies = (result.cost_us or 0.0) - time.median
    return Samples(
        median=time.median + copies,
        low=time.p10 + copies,
        high=time.p90 + copies,
        count=time.samples,
    )


def _confidence(
    best: m.CaptureResult,
    near: Results,
    results: Results,
    costs: dict[str, float],
) -> tuple[m.Confidence, tuple[str, ...]]:
    low = []
    medium = []
    if best.name not in costs:
        low.append("nothing was timed, so the simplest way is recommended")
    if best.answer is not None and best.answer.blind:
        low.append(
            "other inputs did not change the result, so a replay with old values could not be "
            "detected"
        )
    kin = [
        r
        for r in results
        if (r.case.way, r.case.mode) == (best.case.way, best.case.mode) and r is not best
    ]
    tried = [r for r in kin if not r.case.rebound and r.case.beside is m.Beside.NOTHING]
    harmless = (CORRECT, m.CaptureOutcome.NOT_APPLICABLE)
    # That a first call raises in a capture is told among the warnings: the recommended code makes
    # warm-up calls.
    failed = [
        r
        for r in tried
        if r.outcome not in harmless and (r.case.warmups or r.outcome is not RAISED)
    ]
    ended = {m.CaptureOutcome.WRONG: "gave wrong results", RAISED: "raised"}
    medium += [f"{r.name} {ended.get(r.outcome, 'hung')}" for r in failed]
    if near:
        medium.append(f"{near[0].name} has the lower median")
    eager = [r for r in results if r.name == m.EAGER and {r.name, best.name} <= {*costs}]
    medium += [f"one process each cannot tell it from {r.name}" for r in eager if _open(best, r)]
    agreeing = [r.name for r in tried if r.outcome is CORRECT]
    if best.case.way is m.CaptureWay.CAPTURE and not agreeing:
        medium.append("no other number of warm-up calls, shape or stream was tried with success")
    because = [*low, *medium]
    if agreeing:
        because.append(f"also correct: {', '.join(agreeing[:2])}{and_more(agreeing, 2)}")
    level = m.Confidence.HIGH
    if low:
        level = m.Confidence.LOW
    elif medium:
        level = m.Confidence.MEDIUM
    return level, tuple(because)


def _summary(case: m.CaptureCase) -> str:
    compiled = "torch.compile"
    if case.mode != "default":
        compiled = f"torch.compile with mode={case.mode!r}"
    own = {m.EAGER: "without torch.compile", m.AS_IS: "as it stands"}.get(
        case.mode, f"with {compiled}"
    )
    match case.way:
        case m.CaptureWay.CAPTURE:
            return (
                f"Capture the function {own} in torch.cuda.graph after {case.warmups} warm-up "
                "calls."
            )
        case m.CaptureWay.CALLABLES:
            return f"Give the function {own} to torch.cuda.make_graphed_callables."
    if case.mode in m.OWN_GRAPHS:
        return (
            f"Call the function with {compiled}, which replays CUDA graphs of its own, "
            "and do not capture it yourself."
        )
    return f"Call the function {own}, without a CUDA graph."


# ---------------------------------------------------------------- code


def code(best: m.CaptureResult, function: str) -> str:
    """What to write in place of a plain call."""
    case = best.case
    shown = []
    if best.answer is not None:
        shown = [_in_code(number, each.name) for number, each in enumerate(best.answer.inputs)]
    lines = []
    step = function
    if case.mode not in (m.EAGER, m.AS_IS):
        mode = ""
        if case.mode != "default":
            mode = f", mode={case.mode!r}"
        lines.append(f"compiled = torch.compile({function}{mode})")
        step = "compiled"
    match case.way:
        case m.CaptureWay.CAPTURE:
            lines += _capture(step, shown, case.warmups)
        case m.CaptureWay.CALLABLES:
            names = "".join(f"{name}, " for name in shown)[:-1]
            given = ", ".join(map(_new, shown))
            lines += [
                f"graphed = torch.cuda.make_graphed_callables(lambda *_: {step}(), ({names}))",
                f"output = graphed({given})  # copies its arguments in, replays",
            ]
        case m.CaptureWay.CALL if case.mode in m.OWN_GRAPHS:
            lines += [
                "torch.compiler.cudagraph_mark_step_begin()  # before each step",
                f"output = {step}()",
                "kept = output.clone()  # the next step overwrites output",
            ]
        case m.CaptureWay.CALL:
            lines.append(f"output = {step}()")
    return "\n".join(lines)


def _in_code(number: int, name: str) -> str:
    """The input's own name, where that can stand in code."""
    if _PLAIN.fullmatch(name):
        return name
    return f"input_{number}"


def _capture(step: str, inputs: Sequence[str], warmups: int) -> list[str]:
    lines = [
        "stream = torch.cuda.Stream()",
        "stream.wait_stream(torch.cuda.current_stream())",
        "with torch.cuda.stream(stream):",
        f"    for _ in range({warmups}):",
        f"        {step}()",
        "torch.cuda.current_stream().wait_stream(stream)",
        "graph = torch.cuda.CUDAGraph()",
        "with torch.cuda.graph(graph):",
        f"    output = {step}()",
        "",
        "# for each call:",
    ]
    lines += [
        f"{name}.copy_({_new(name)})  # never {name} = ...: the graph reads this memory"
        for name in inputs
    ]
    return [*lines, "graph.replay()", "kept = output.clone()  # the next replay overwrites output"]


def _new(name: str) -> str:
    return "new_" + re.sub(r"\W+", "_", name).strip("_")


# ---------------------------------------------------------------- what else to know


def _warnings(best: m.CaptureResult, results: Results) -> Iterator[str]:
    """A wrong result anywhere near comes first: nothing tells of it when it happens."""
    by_name = {result.name: result for result in results}
    for result in results:
        if result.outcome is m.CaptureOutcome.WRONG:
            what = "a wrong result"
            if result.answer and result.answer.stale:
                what = "the result for the old inputs"
            yield (
                f"{result.name} gave {what} without an error. In that case the function is "
                f"{result.case.words}."
            )
    for result in results:
        if result.outcome is m.CaptureOutcome.HUNG:
            yield f"{result.name} hung. In that case the function is {result.case.words}."
    if best.case.way is m.CaptureWay.CALL:
        return
    raised = [r for r in results if r.outcome is RAISED and is_a_way(r.case)]
    modes = [r.case.mode for r in raised if r.case.way is m.CaptureWay.CAPTURE]
    if modes:
        yield f"Do not capture it with mode {' or '.join(modes)}: that raised."
    threads = [r for r in results if r.case.beside is m.Beside.THREAD]
    refused = [r.case.error_mode for r in threads if r.outcome is RAISED]
    allowed = [r.case.error_mode for r in threads if r.outcome is CORRECT]
    if refused and allowed:
        yield (
            "Another thread must not allocate GPU memory during the capture with "
            f"capture_error_mode={refused[0]!r}; with {allowed[0]!r} it may."
        )
    cold = by_name.get(f"capture-{best.case.mode}-cold")
    if cold is not None and cold.outcome is RAISED:
        yield f"Never skip the warm-up: {cold.name} raised."
