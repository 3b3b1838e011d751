"""The sheet of a sweep: the verdict with its code, a row a cell, what compiling costs and earns, what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from kgprof import model as m
from kgprof.measures.economics import NEVER, NOT_KNOWN
from kgprof.render.quantity import duration, figure, percent, ratio, size
from kgprof.render.sheet import Code, Section, Sheet
from kgprof.render.table import Block, Cell, Fold, Table, known, missing, number, plain, timed
from kgprof.wording import plural, short

_STAGES = ("capture_s", "frontend_s", "scheduling_s", "code_generation_s", "machine_code_s", "caching_s")
_LOG_LINES = 40


def sheet(sweep: m.Sweep, further: Sequence[Section] = ()) -> Sheet:
    """``further``: what was tried on the best cell."""
    asked, machine = sweep.question, sweep.environment
    several = len(sweep.verdicts) > 1
    worst = max(sweep.verdicts, key=lambda verdict: list(m.VerdictStatus).index(verdict.status))
    codes = [f"# {_size(sweep, at)}\n{each.code}" if several else each.code for at, each in enumerate(sweep.verdicts)]
    code: tuple[Block, ...] = (Code(text="\n".join(codes)),) if any(each.code for each in sweep.verdicts) else ()
    sections = (
        Section(title="Recommended mode", blocks=(*code, _cells(sweep)), intro=_TOTAL.format(sweep.executions)),
        Section(title="Cost of compiling", blocks=(_starts(sweep), *_consistency(sweep)), intro=_STARTING),
        Section(title="Benefit of compiling", blocks=(_earnings(sweep),), intro=_EARNINGS),
        *further,
        *_missing(sweep),
    )
    return Sheet(
        title=f"Sweep of {asked.workload}, strategy {asked.strategy}",
        status=worst.status,
        verdict=_by_size(sweep, [each.text for each in sweep.verdicts]),
        trust=_by_size(sweep, [each.trust for each in sweep.verdicts]),
        facts=(
            asked.device_name,
            plural(asked.cpu_count, "CPU core") if isinstance(asked.cpu_count, int) else "",
            f"torch {asked.torch}",
            f"kgprof {machine.kgprof}",
            sweep.created_utc,
        ),
        sections=sections,
    )


_TOTAL = "Total: a cold start and {:,} steps. Pays after so many steps: against eager, and against the next best cell."
_STARTING = (
    "Seconds that the warm-up calls take beyond as many steady calls, with cold and with warm disk caches; the first "
    "call after a reset in a process that has compiled before; the stages of a cold start."
)
_EARNINGS = (
    "Compared with eager, from a cold start. Return: (saved - paid) / paid, 0 at the break-even. Tiers: excellent is "
    "over 5\N{MULTIPLICATION SIGN} faster and pays off within 50 executions, good 2\N{MULTIPLICATION SIGN} and 100, "
    "moderate faster and 500. Memory is the peak of a process: on a GPU what the CUDA allocator reserved, CUDA-graph "
    "pools included; on a CPU the resident set, compiler included."
)


def _size(sweep: m.Sweep, at: int) -> str:
    return " ".join(list(dict.fromkeys(each.cell.size for each in sweep.cells))[at]) or "as it is"


def _by_size(sweep: m.Sweep, texts: Sequence[str]) -> str:
    """What is the same for all sizes once."""
    if len(set(texts)) == 1:
        return texts[0]
    return "; ".join(f"{_size(sweep, at)}: {text}" for at, text in enumerate(texts))


def _estimate(value: m.Estimate | m.Skipped, shown: Callable[[float], str]) -> Cell:
    return known(
        value, lambda it: Cell(shown(it.value), details=(f"{shown(it.low)} to {shown(it.high)}",), value=it.value)
    )


def _step(step: m.Spread | m.Skipped) -> Cell:
    def cell(spread: m.Spread) -> Cell:
        between = f"{duration(spread.minimum)} to {duration(spread.maximum)}"
        details = between, plural(spread.samples, "process", "processes")
        return Cell(duration(spread.median), details=details, value=spread.median)

    return known(step, cell)


def _measured(sweep: m.Sweep) -> list[m.CellWorth]:
    """The others have a line each in the section of what is not measured."""
    return [each for each in sweep.worth if isinstance(each.first_cold, m.Spread) or isinstance(each.step, m.Spread)]


def _cells(sweep: m.Sweep) -> Table:
    """Fastest for the number of executions first."""

    def total_s(each: m.CellWorth) -> float:
        return each.total.value if isinstance(each.total, m.Estimate) else float("inf")

    rows = [
        (
            each.cell.name,
            _step(each.step),
            _estimate(each.speedup, ratio),
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
    return plain("Per cell: steady step over fresh processes, first calls, break-even and total", headings, rows)


def _break_even(value: m.Estimate | m.Skipped, *, against: m.Cell | None = None) -> Cell:
    over = (f"over {against.name}",) if against is not None else ()
    if isinstance(value, m.Estimate):
        cell = _estimate(value, lambda steps: f"{steps:,.0f}" if steps >= 10 else short(steps, 2))
        return msgspec.structs.replace(cell, details=(*cell.details, *over))
    if value in (NEVER, NOT_KNOWN):
        return Cell("never" if value == NEVER else "not known", title=value.reason, details=over)
    return missing(value)


def _starts(sweep: m.Sweep) -> Table:
    def stages(found: m.CompileStages | m.Skipped) -> Iterator[Cell]:
        return (number(found if isinstance(found, m.Skipped) else getattr(found, name)) for name in _STAGES)

    rows: list[tuple[Cell | str, ...]] = [
        (each.cell.name, timed(each.cold), timed(each.warm), number(each.again_s), *stages(each.stages))
        for each in _measured(sweep)
    ]
    headings = ("cell", "cold s", "warm s", "reset s")
    named = ("capture s", "front end s", "scheduling s", "codegen s", "machine code s", "caching s")
    return plain("Cost of a start, and the stages of a cold start", (*headings, *named), rows)


def _consistency(sweep: m.Sweep) -> Iterator[str]:
    """How far cold starts of one cell lie apart."""
    for each in sweep.worth:
        if isinstance(each.cold, m.Spread) and each.cold.samples > 1 and each.cold.median > 0 and each.cell.compiles:
            low, high = each.cold.minimum, each.cold.maximum
            apart = percent((high - low) / each.cold.median)
            starts = plural(each.cold.samples, "cold start")
            yield f"{each.cell.name}: {starts} took {figure(low)} to {figure(high)} s, {apart} of the median apart."


def _earnings(sweep: m.Sweep) -> Table:
    def memory(each: m.CellWorth) -> Cell:
        eager = next((one for one in sweep.worth if not one.cell.compiles and one.cell.size == each.cell.size), None)
        field = "device_bytes" if isinstance(each.device_bytes, int) else "host_bytes"
        own, base = getattr(each, field), getattr(eager, field, None)
        if isinstance(own, m.Skipped):
            return missing(own)
        over = isinstance(base, int) and base > 0 and each is not eager
        return Cell(size(own), details=(f"{100 * (own / base - 1):+.0f} % over eager",) if over else (), value=own)

    rows: list[tuple[Cell | str, ...]] = [
        (
            each.cell.name,
            known(each.tier, Cell),
            _estimate(each.returns, figure),
            _estimate(each.of_100, figure),
            _break_even(each.break_even_warm) if isinstance(each.break_even, m.Estimate) else missing("see above"),
            memory(each),
        )
        for each in _measured(sweep)
    ]
    returns, benefit = f"return after {sweep.executions:,}", "benefit of 100 executions s"
    headings = ("cell", "tier", returns, benefit, "pays after, warm disk", "memory")
    return plain("Benefit of each cell over eager", headings, rows, words=2)


def _missing(sweep: m.Sweep) -> Iterator[Section]:
    """Cells that were not run, or died; the end of the log of each of the latter."""
    blocks: list[Block] = []
    for each in sweep.cells:
        if each.not_run:
            blocks.append((each.cell.name, each.not_run))
        if (failed := each.failed) is not None:
            blocks.append((each.cell.name, failed.words))
            if log := next((process.log for process in each.processes if process.log), ""):
                lines = "\n".join(log.splitlines()[-_LOG_LINES:])
                blocks.append(Fold(f"The end of the log of {each.cell.name}", blocks=(Code(text=lines),)))
    if blocks:
        yield Section(title="Not measured", blocks=tuple(blocks))
