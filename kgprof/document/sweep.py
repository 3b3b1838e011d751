"""The sheet of a sweep: the verdict with its code, a row a cell, what compiling costs and earns,
what is missing; the correctness ladder, the policies for varying sizes, and a start with shipped
caches."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.quantity import duration, figure, if_known, percent, ratio, size
from kgprof.document.run_parts import collected
from kgprof.document.sheet import Code, Section, Sections, Sheet
from kgprof.document.table import (
    Block,
    Blocks,
    Cell,
    Cells,
    Fold,
    Table,
    Texts,
    dashed,
    missing,
    number,
    plain,
    several,
    share,
    sized,
    timed,
    whole,
    written,
)
from kgprof.judge import APART
from kgprof.measures.buckets import best_policy
from kgprof.measures.economics import NEVER, NOT_KNOWN
from kgprof.wording import and_more, clause, plural, short

_STAGES = {
    "capture_s": "capture s",
    "frontend_s": "front end s",
    "scheduling_s": "scheduling s",
    "code_generation_s": "codegen s",
    "machine_code_s": "machine code s",
    "caching_s": "caching s",
}
_REFERENCES = (m.Rung.FLOAT64, m.Rung.EAGER)
_LOG_LINES = 40


def sheet(sweep: m.Sweep, further: Sequence[Section] = ()) -> Sheet:
    """``further``: what was tried on the best cell."""
    asked = sweep.question
    worst = max(sweep.verdicts, key=lambda verdict: list(m.VerdictStatus).index(verdict.status))
    codes = [each.code for each in sweep.verdicts]
    code: Blocks = ()
    if any(codes):
        if len(codes) > 1:
            codes = [f"# {_size(sweep, at)}\n{each}" for at, each in enumerate(codes)]
        code = (Code("\n".join(codes)),)
    return Sheet(
        title=f"Sweep of {asked.workload}, strategy {asked.strategy}",
        status=worst.status,
        verdict=_by_size(sweep, [each.text for each in sweep.verdicts]),
        trust=_by_size(sweep, [each.trust for each in sweep.verdicts]),
        facts=(
            asked.device_name,
            "".join(if_known(asked.cpu_count, lambda cores: plural(cores, "CPU core"))),
            f"torch {asked.torch}",
            f"kgprof {sweep.environment.kgprof}",
            sweep.created_utc,
        ),
        sections=(
            Section("Recommended mode", (*code, _cells(sweep)), _TOTAL.format(sweep.executions)),
            Section("Cost of compiling", (_starts(sweep), *_consistency(sweep)), _STARTING),
            Section("Benefit of compiling", (_earnings(sweep),), _EARNINGS),
            *further,
            *_missing(sweep),
        ),
    )


def _starts(sweep: m.Sweep) -> Table:
    rows: list[Cells] = []
    for each in _measured(sweep):
        starts = (timed(each.cold), timed(each.warm), number(each.again_s))
        stages = several(
            each.stages,
            len(_STAGES),
            lambda stages: [number(getattr(stages, name)) for name in _STAGES],
        )
        rows.append((each.cell.name, *starts, *stages))
    headings = ("cell", "cold s", "warm s", "reset s", *_STAGES.values())
    return plain("Cost of a start, and the stages of a cold start", headings, rows)


_TOTAL = (
    "Total: a cold start and {:,} steps. Pays after so many steps: against "
    "eager, and against the next best cell."
)
_STARTING = (
    "Seconds that the warm-up calls take beyond as many steady calls, with cold and with warm disk "
    "caches; the first call after a reset in a process that has compiled before; the stages of a "
    "cold start."
)
_EARNINGS = (
    "Compared with eager, from a cold start. Return: (saved - paid) / paid, 0 at the break-even. "
    "Tiers: excellent is over 5\N{MULTIPLICATION SIGN} faster and pays off within 50 executions, "
    "good 2\N{MULTIPLICATION SIGN} and 100, moderate faster and 500. Memory is the peak of a "
    "process: on a GPU what the CUDA allocator reserved, CUDA-graph pools included; on a CPU the "
    "resident set, compiler included."
)


def _size(sweep: m.Sweep, at: int) -> str:
    return " ".join(list(dict.fromkeys(each.cell.size for each in sweep.cells))[at]) or "as it is"


def _by_size(sweep: m.Sweep, texts: Texts) -> str:
    """What is the same for all sizes once."""
    if len(set(texts)) == 1:
        return texts[0]
    return "; ".join(f"{_size(sweep, at)}: {text}" for at, text in enumerate(texts))


@dashed
def _estimate(value: m.Estimate | m.Skipped, shown: Callable[[float], str]) -> Cell:
    it = m.known(value)
    return written(it.value, shown, f"{shown(it.low)} to {shown(it.high)}")


def _speedup(each: m.CellWorth) -> Cell:
    cell = _estimate(each.speedup, ratio)
    if not cell.measured or each.verdict in (m.Judged.FASTER, m.Judged.SLOWER):
        return cell
    return replace(cell, details=(each.verdict, *cell.details))


@dashed
def _step(step: m.Time) -> Cell:
    spread = m.known(step)
    between = f"{duration(spread.minimum)} to {duration(spread.maximum)}"
    processes = plural(spread.samples, "process", "processes")
    return written(spread.median, duration, between, processes)


def _measured(sweep: m.Sweep) -> list[m.CellWorth]:
    """The others have a line each in the section of what is not measured."""
    return [
        each
        for each in sweep.worth
        if isinstance(each.first_cold, m.Spread) or isinstance(each.step, m.Spread)
    ]


def _cells(sweep: m.Sweep) -> Table:
    """Fastest for the number of executions first."""

    @m.otherwise(float("inf"))
    def total_s(each: m.CellWorth) -> float:
        return m.known(each.total).value

    rows = [
        (
            each.cell.name,
            _step(each.step),
            _speedup(each),
            _estimate(each.total, figure),
            timed(each.first_cold),
            timed(each.first_warm),
            _break_even(each.break_even),
            _break_even(each.break_even_next, against=each.next_best),
        )
        for each in sorted(_measured(sweep), key=total_s)
    ]
    headings = (
        *("cell", "step", "speedup", "total s", "first call, cold s", "first call, warm s"),
        *("pays after", "pays after, next best"),
    )
    label = "Per cell: steady step over fresh processes, first calls, break-even and total"
    return plain(label, headings, rows)


def _break_even(value: m.Estimate | m.Skipped, *, against: m.Cell | None = None) -> Cell:
    if isinstance(value, m.Estimate):
        cell = _estimate(value, partial(short, digits=2))
    elif value in (NEVER, NOT_KNOWN):
        cell = Cell("not known", title=value.reason)
        if value == NEVER:
            cell = replace(cell, text="never")
    else:
        return missing(value)
    if against:
        return replace(cell, details=(*cell.details, f"over {against.name}"))
    return cell


def _consistency(sweep: m.Sweep) -> Iterator[str]:
    """How far cold starts of one cell lie apart."""
    for each in sweep.worth:
        cold = each.cold
        if not isinstance(cold, m.Spread) or not each.cell.compiles:
            continue
        if cold.samples > 1 and cold.median > 0:
            apart = percent((cold.maximum - cold.minimum) / cold.median)
            starts = plural(cold.samples, "cold start")
            took = f"{figure(cold.minimum)} to {figure(cold.maximum)} s"
            yield f"{each.cell.name}: {starts} took {took}, {apart} of the median apart."


def _earnings(sweep: m.Sweep) -> Table:
    rows: list[Cells] = []
    for each in _measured(sweep):
        pays = missing("see above")
        if isinstance(each.break_even, m.Estimate):
            pays = _break_even(each.break_even_warm)
        rows.append(
            (
                each.cell.name,
                _tier(each),
                _estimate(each.returns, figure),
                _estimate(each.of_100, figure),
                pays,
                _memory(each, sweep),
            )
        )
    returns = f"return after {sweep.executions:,}"
    benefit = "benefit of 100 executions s"
    headings = ("cell", "tier", returns, benefit, "pays after, warm disk", "memory")
    return plain("Benefit of each cell over eager", headings, rows, words=2)


@dashed
def _tier(each: m.CellWorth) -> Cell:
    return Cell(m.known(each.tier))


def _memory(each: m.CellWorth, sweep: m.Sweep) -> Cell:
    field = "host_bytes"
    if isinstance(each.device_bytes, int):
        field = "device_bytes"
    eager = (
        one for one in sweep.worth if not one.cell.compiles and one.cell.size == each.cell.size
    )
    base = next(eager, None)
    own = getattr(each, field)
    held = getattr(base, field, None)
    over = []
    if isinstance(own, int) and isinstance(held, int) and held > 0 and each is not base:
        over.append(f"{100 * (own / held - 1):+.0f} % over eager")
    return sized(own, *over)


def _missing(sweep: m.Sweep) -> Sections:
    """Cells that were not run, or died; the end of the log of each of the latter."""
    blocks: list[Block] = []
    for each in sweep.cells:
        if each.not_run:
            blocks.append((each.cell.name, each.not_run))
        if failed := each.failed:
            blocks.append((each.cell.name, failed.words))
            if log := next((process.log for process in each.processes if process.log), ""):
                lines = "\n".join(log.splitlines()[-_LOG_LINES:])
                blocks.append(Fold(f"The end of the log of {each.cell.name}", (Code(lines),)))
    if blocks:
        yield Section("Not measured", blocks)


_TENSORS = 8  # of a rung, in its fold
_ADDS = {
    m.Rung.FLOAT64: "all in float64",
    m.Rung.EAGER: "no compiler",
    m.Rung.CAPTURE: "Dynamo",
    m.Rung.FUNCTIONALISATION: "AOTAutograd",
    m.Rung.DECOMPOSITION: "Inductor's decompositions, partitioner",
    m.Rung.CODE_GENERATION: "Inductor's kernels",
}
_OWN = "the workload's own comparison"
_HEADINGS = ("largest error", "eager's", "relative", "ULP", "NaN, Inf")
_RULE = (
    "Each rung adds one stage of torch.compile, in a fresh process with the same seed. A tensor "
    "differs if an element is further from float64 than torch.testing's tolerance for its dtype "
    "plus 3× eager's largest error (8× for at most 500 elements, 10× for at most 10)."
)


def ladder_section(ladder: m.Ladder | m.Skipped) -> Section:
    title = "Are the results still right?"
    if isinstance(ladder, m.Skipped):
        return Section(title, (("Not checked", ladder.reason),))
    notes = dict.fromkeys(found.note for _, found in _ran(ladder) if found.agreement and found.note)
    parts = [("Compared on", note) for note in notes]
    return Section(title, (*_answer(ladder), *parts, _rungs(ladder), *_tensors(ladder)), _RULE)


def _ran(ladder: m.Ladder) -> list[tuple[m.Rung, m.RungResult]]:
    return [(rung, found) for rung, found in ladder.rungs if isinstance(found, m.RungResult)]


def _answer(ladder: m.Ladder) -> Iterator[Block]:
    """What differs first, and the script that shows it."""
    missed = collected(
        (found.reason, rung) for rung, found in ladder.rungs if isinstance(found, m.Skipped)
    )
    not_compared = [("Not compared", f"{', '.join(rungs)}: {why}") for why, rungs in missed.items()]
    if not ladder.first:
        above = sum(rung not in _REFERENCES for rung, _ in _ran(ladder))
        if not above:
            yield "Not checked", f"no rung of {ladder.cell} could be compared: {'; '.join(missed)}"
            return
        lost = sum(map(len, missed.values()))
        others = clause(", ", lost, " not")
        yield f"No rung differs ({above} compared{others}): {ladder.cell}."
        yield from not_compared
        return
    order = list(m.Rung)
    below = order[: order.index(ladder.first)]
    lost_below = any(rung in below for rungs in missed.values() for rung in rungs)
    rungs = "the rungs below it"
    if lost_below:
        rungs += " that could run"
    yield f"The result of {ladder.cell} changes at {ladder.first}: {rungs} agree with eager."
    yield from not_compared
    minified = ladder.minified
    if isinstance(minified, m.Skipped):
        yield "No smaller program", minified.reason
        return
    operators = plural(len(minified.operators), "operator")
    smallest = f"{operators} of {plural(minified.nodes_before, 'node')}"
    smallest += f": {', '.join(minified.operators)}"
    if not minified.finished:
        smallest += "; time ran out, so a smaller graph may exist"
    yield "Smallest graph that differs", smallest
    if isinstance(minified.checked, m.Skipped):
        yield "Not run alone", minified.checked.reason
    elif not minified.checked.differs:
        yield "The script alone does not differ", "the fault needs the program around the graph"
    yield Code(f"python {minified.script}")
    if isinstance(minified.checked, m.Reproduction):
        yield Fold("Output of the script", (Code(minified.checked.output),))


def _rungs(ladder: m.Ladder) -> Table:
    headings = ("rung", "adds", "result", "worst tensor", *_HEADINGS, _OWN)
    rows: list[Cells] = []
    for rung, found in ladder.rungs:
        adds = Cell(_ADDS.get(rung, ladder.cell))
        if rung in m.BACKEND_OF:
            adds = replace(adds, details=(f'backend="{m.BACKEND_OF[rung]}"',))
        cells = several(found, len(headings) - 2, partial(_rung, rung))
        rows.append((rung, adds, *cells))
    results = [found for _, found in _ran(ladder)]
    hidden: Texts = ()
    if not any(found.agreement for found in results):
        hidden = (_OWN,)
    elif not any(found.tensors for found in results):
        hidden = ("worst tensor", *_HEADINGS)
    table = plain("Each rung of the ladder", headings, rows, words=4)
    return table.only(*(name for name in headings if name not in hidden))


def _rung(rung: m.Rung, found: m.RungResult) -> Sequence[Cell]:
    """Whether it differs, its worst tensor, and the workload's own comparison."""
    result = Cell("agrees")
    if found.differs:
        result = Cell("differs", wrong=True)
    elif rung in _REFERENCES:
        result = Cell("reference")
    if found.tensors:
        return result, *_figures(found.tensors[0]), _own(found)
    why = "no tensor was compared"
    if rung is m.Rung.FLOAT64:
        why = "the reference itself"
    return result, *[missing(why)] * (1 + len(_HEADINGS)), _own(found)


def _figures(tensor: m.TensorDifference) -> Sequence[Cell]:
    at = clause("[", ", ".join(map(str, tensor.worst)), "]")
    where = f"{at} is {tensor.worst_value}, {tensor.reference} has {tensor.worst_reference}"
    details = (tensor.why or where, f"{tensor.differing:,} of {tensor.elements:,} differ")
    odd = f"{tensor.nans:,}, {tensor.infs:,}"
    expected = f"{tensor.reference_nans:,}, {tensor.reference_infs:,}"
    ulp = missing(f"{tensor.dtype} has no ULP")
    if tensor.max_ulp is not None:
        ulp = whole(tensor.max_ulp)
    counted = Cell(odd)
    if odd != expected:
        counted = Cell(odd, (f"reference {expected}",))
    # errors of float64 have more zeros than a column
    errors = [
        Cell(f"{error:.3g}", value=error)
        for error in (tensor.max_abs, tensor.eager_max_abs, tensor.max_rel)
    ]
    return (
        Cell(f"{tensor.name} ({tensor.dtype})", details),
        *errors,
        ulp,
        counted,
    )


@dashed
def _own(found: m.RungResult) -> Cell:
    """Results that differ, and metrics with how far each is from eager's."""
    if not found.agreement:
        return missing("the workload declares none")
    agreement = m.known(found.agreement)
    differ = f"{agreement.differing:,} of {agreement.compared:,} differ"
    if agreement.near_ties:
        differ += f", {plural(agreement.near_ties, 'near-tie')}"
    metrics = [
        f"{metric.label} {metric.value:.6g} (eager {eager:.6g})" for metric, eager in found.metrics
    ]
    return Cell(differ, metrics)


def _tensors(ladder: m.Ladder) -> Iterator[Fold]:
    for rung, found in _ran(ladder):
        if len(found.tensors) > 1:
            title = f"Tensors of {rung}"
            rows = [_figures(tensor) for tensor in found.tensors[:_TENSORS]]
            note = clause("; ", found.note)
            shown = f"{found.compared:,} tensors, the worst first{note}"
            yield Fold(title, (plain(title, ("tensor", *_HEADINGS), rows), shown))


# ---------------------------------------------------------------- sizes

_POLICIES = {
    m.SizePolicy.STATIC: "dynamic=False, one graph per size",
    m.SizePolicy.AUTOMATIC: "torch.compile's default",
    m.SizePolicy.DYNAMIC: "dynamic=True",
    m.SizePolicy.MARKED: "torch._dynamo.mark_dynamic(input, 0)",
    m.SizePolicy.BUCKETS: "padded to the next bucket",
    m.SizePolicy.PADDED: "padded to the largest",
}


def shapes_section(shapes: m.Shapes | m.Skipped) -> Section:
    title = "Varying sizes"
    if isinstance(shapes, m.Skipped):
        return Section(title, (("Not measured", shapes.reason),))
    sizes = ", ".join(map(str, dict.fromkeys(shapes.sizes[:12])))
    more = and_more(set(shapes.sizes), 12)
    whose = "--sizes"
    if shapes.collected:
        whose = "the program's own calls"
    intro = (
        f"Dimension 0 of {shapes.tensor}, an input of {shapes.function}, in "
        f"{plural(len(shapes.sizes), 'call')} with {sizes}{more} ({whose}). Buckets: "
        f"{', '.join(map(str, shapes.buckets))}."
    )
    return Section(title, (*_recommended(shapes), _policies(shapes), _sizes(shapes)), intro)


def _recommended(shapes: m.Shapes) -> Iterator[Block]:
    best = shapes.recommended
    chosen = best_policy(shapes.policies)
    if not best or not chosen:
        yield "No policy ran with eager's results."
        return
    fastest = chosen.fastest
    noise = ""
    if fastest is not best:
        noise = f" As fast as {fastest} within noise, and compiles sooner."
    yield f"Recommended: {best} ({_POLICIES[best]}).{noise}"
    yield Code(shapes.code)
    if chosen.unknown:
        yield (
            f"One process each cannot tell {fastest} from what is less than {APART:g}× "
            f"slower, or varies: {', '.join(chosen.unknown)}."
        )


def _policies(shapes: m.Shapes) -> Table:
    rows: list[Cells] = []
    for policy, found in shapes.policies:
        results = Cell("as eager")
        if isinstance(found, m.Skipped):
            results = Cell(found.reason)
        elif found.differs:
            results = Cell(found.differs, wrong=True)
        rows.append((policy, _POLICIES[policy], *several(found, 4, _policy), results))
    headings = (
        "policy",
        "setting",
        "graphs compiled",
        "compiling s",
        "all calls, steady ms",
        "padding",
        "results",
    )
    return plain("Each policy over the same calls", headings, rows, words=2)


def _policy(found: m.PolicyResult) -> Sequence[Cell]:
    times = (number(found.compile_s), number(found.steady_ms))
    return whole(found.graphs), *times, share(found.wasted)


def _sizes(shapes: m.Shapes) -> Fold:
    ran = [
        (policy, found) for policy, found in shapes.policies if isinstance(found, m.PolicyResult)
    ]
    rows: list[Cells] = []
    for length in dict.fromkeys(shapes.sizes):
        costs = [cost for _, found in ran for cost in found.sizes if cost.size == length]
        rows.append((figure(length), *(timed(cost.steady) for cost in costs)))
    headings = ("size", *(policy for policy, _ in ran))
    table = plain("Steady call of each size, ms", headings, rows)
    return Fold("Steady time of each size, ms per call", (table,))


def shipped_section(shipped: m.ShippedCache | m.Skipped) -> Section:
    title = "Start with shipped caches"
    if isinstance(shipped, m.Skipped):
        return Section(title, (("Not measured", shipped.reason),))
    cold = shipped.cold
    loaded = shipped.loaded
    saved = "saves nothing"
    if shipped.saved_s > 0:
        saved = f"saves {figure(shipped.saved_s)} s"
    answer = (
        f"Shipping {size(shipped.artifact_bytes)} of compiler caches {saved} of the first call of "
        f"{shipped.cell}: it takes {figure(cold.first_call_s)} s on empty caches "
        f"({plural(cold.graphs_compiled, 'graph')} compiled) and, loading included, "
        f"{figure(loaded.load_s + loaded.first_call_s)} s with them ({loaded.graphs_compiled} "
        "compiled)."
    )
    before, after = shipped.code
    lines = f"{before}  # after the first calls here\n{after}  # before the first call there"
    return Section(
        title,
        (answer, Code(lines)),
        intro=("One fresh process each, so there is no spread."),
    )
