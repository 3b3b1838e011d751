"""Whether two runs compile and do the same, exactly and without a clock, and which line it is due
to if not.

Everything is compared as a number of equal things, in any order: a function that moved, a renamed
variable or a comment changes nothing. A difference is put down to the changed line that it shows
at, that its own line stood at before, or that does what such a difference comes of.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.compile import graph_breaks, recompiles
from kgprof.collectors.time import syncs
from kgprof.compare import changes
from kgprof.compare.metrics import BREAKS, FRAMES, GRAPH_LAUNCHES, READS, RECOMPILES, named
from kgprof.wording import middle_out, plural, relative

MOST = 12  # differences that are told
NAMED = 3  # operators, calls or guards that one difference names
_NAME = 90  # characters of one of them
ALIGNED = 4000  # items of a side that are aligned; of longer ones only the numbers are compared
# the metrics that count something exactly, by aspect
_COUNTED = {
    m.WorkAspect.BREAKS: (BREAKS, FRAMES),
    m.WorkAspect.RECOMPILES: (RECOMPILES,),
    m.WorkAspect.SYNCS: (READS,),
    m.WorkAspect.CUDA_GRAPHS: (GRAPH_LAUNCHES,),
}
_RULES = {
    m.WorkAspect.BREAKS: (graph_breaks.GRAPH_BREAK.id,),
    m.WorkAspect.RECOMPILES: tuple(rule.id for rule in recompiles.RULES),
    m.WorkAspect.SYNCS: tuple(rule.id for rule in syncs.RULES),
}
_SET = r"config|compile|options|mode\b|precision|backend|dynamic|freez|capture_|matmul"
_DOING = {
    m.WorkAspect.CODE: _SET,
    m.WorkAspect.SETTINGS: rf"{_SET}|allow_|set_|autocast|grad|deterministic|threads",
    m.WorkAspect.GRAPHS: rf"{_SET}|disable|graph_break|print\(|item\(|tolist\(|numpy\(",
    m.WorkAspect.OPERATORS: r"\.(?:to|float|half|double|clone|contiguous|bfloat16)\(|dtype",
}
# what takes time in a step; the others are what it is made of, and what is checked before it
_RUNS = frozenset(m.WorkAspect) - {
    m.WorkAspect.GRAPHS,
    m.WorkAspect.OPERATORS,
    m.WorkAspect.GUARDS,
}
_CALLED = ("cpp_", "triton_", "extern_kernels.")
_LAYOUT = re.compile(r"\](?:\[[^\]]*\])?(?:cpu|cuda:\d+|meta)\b")
_STATE = "GLOBAL_STATE"  # torch's kind of guard on its own settings
_FIELD = re.compile(r'"(\w+)":(\w+|\[[^\]]*\])')
_Item = m.WorkItem
_Items = Sequence[_Item]


@m.skippable
def compared_work(
    base: m.RunReport,
    head: m.RunReport,
    compared: m.RunComparison,
    findings: Iterable[m.ComparedFinding],
    changed: Sequence[changes.ChangedLine],
    profile: m.Profile,
) -> m.ComparedWork | m.Skipped:
    """``compared`` has the metrics and the traces' difference of the two, ``findings`` are those of
    the run; ``profile``: head's."""
    before = m.known(base.work)
    after = m.known(head.work)
    trace = compared.trace
    # with the names of C++ kernels on one side alone
    if _traced_in(base) != _traced_in(head):
        trace = None
    rows = (
        *_consists_of(before, after),
        *_does(before, after),
        *_eagerly(before, after),
        *_counted(compared.metrics),
        *_ran(trace),
    )
    found = [
        *_new_findings(findings, rows),
        *_of_operators(before, after),
        *_of_graphs(before, after, rows),
        *_of_eager(before, after, head.kernels),
        *_of_calls(before, after),
        *_of_kernels(trace, head.kernels, rows),
        *_of_settings(before, after),
        *_of_guards(before, after),
    ]
    told = [_put_down(each, changed, profile) for each in _together(found)]
    # What head has at a changed line comes first, then what base had in the place of one.
    told.sort(key=lambda each: (not each.is_at_the_change, each.only_in_base))
    return m.ComparedWork(
        differs=any(row.differs is True for row in rows),
        rows=rows,
        differences=tuple(told[:MOST]),
        left_out=max(0, len(told) - MOST),
    )


@m.otherwise(None)
def _traced_in(run: m.RunReport) -> m.PassName:
    return m.known(run.kernels).measured_in


# ---------------------------------------------------------------- the rows


def _row(
    aspect: m.WorkAspect,
    name: str,
    base: m.Figure,
    head: m.Figure,
    differs: bool | None = None,
) -> m.WorkRow:
    """``differs``: None where the two numbers say it."""
    for side in (base, head):
        if isinstance(side, m.Skipped):
            return m.WorkRow(aspect, name, base, head, side)
    if differs is None:
        differs = base != head
    return m.WorkRow(aspect, name, base, head, differs)


def _consists_of(base: m.CompiledWork, head: m.CompiledWork) -> Iterator[m.WorkRow]:
    graphs = [Counter(graph.digest for graph in side.graphs) for side in (base, head)]
    yield _row(
        m.WorkAspect.GRAPHS,
        "graphs",
        float(len(base.graphs)),
        float(len(head.graphs)),
    )
    yield _row(
        m.WorkAspect.OPERATORS,
        "operators",
        float(len(base.operators)),
        float(len(head.operators)),
        graphs[0] != graphs[1],
    )
    calls = _both(base, head, lambda side: side.calls)
    yield _row(
        m.WorkAspect.CODE,
        "calls in generated code",
        _number(calls[0]),
        _number(calls[1]),
        _texts(base, calls[0]) != _texts(head, calls[1]),
    )
    guards = _both(base, head, lambda side: side.guards)
    settings = [_settings(base), _settings(head)]
    yield _row(
        m.WorkAspect.SETTINGS,
        "states of torch's settings",
        _states(settings[0]),
        _states(settings[1]),
        settings[0] != settings[1],
    )
    yield _row(
        m.WorkAspect.GUARDS,
        "guards on values",
        _number(guards[0]),
        _number(guards[1]),
        _kinds(base, guards[0]) != _kinds(head, guards[1]),
    )


_Places = tuple[int, ...] | m.Skipped


def _both(
    base: m.CompiledWork, head: m.CompiledWork, of: Callable[[m.CompiledWork], _Places]
) -> tuple[_Places, _Places]:
    return of(base), of(head)


@m.skippable
def _number(places: _Places) -> float:
    return float(len(m.known(places)))


@m.otherwise(Counter())
def _texts(side: m.CompiledWork, places: _Places) -> Counter[str]:
    return Counter(item.text for item in side.named(m.known(places)))


@m.otherwise(Counter())
def _kinds(side: m.CompiledWork, places: _Places) -> Counter[str]:
    """Of guards; the value and its name are the program's."""
    return Counter(_kind(item) for item in side.named(m.known(places)))


@m.skippable
def _settings(side: m.CompiledWork) -> tuple[str, ...]:
    """What torch guards of its own settings, each state once in their order."""
    guards = side.named(m.known(side.guards))
    texts = (item.text for item in guards if _kind(item) == _STATE)
    return tuple(dict.fromkeys(texts))


@m.skippable
def _states(settings: tuple[str, ...] | m.Skipped) -> float:
    return float(len(m.known(settings)))


def _kind(guard: _Item) -> str:
    return guard.text.partition(":")[0]


def _does(base: m.CompiledWork, head: m.CompiledWork) -> Iterator[m.WorkRow]:
    yield _row(
        m.WorkAspect.LAUNCHES,
        "kernel calls per step, compiled",
        base.calls_per_step,
        head.calls_per_step,
    )
    yield _row(m.WorkAspect.BYTES, "bytes per step", base.bytes_per_step, head.bytes_per_step)
    yield _row(m.WorkAspect.FLOPS, "FLOPs per step", base.flops_per_step, head.flops_per_step)
    yield _row(
        m.WorkAspect.BUFFERS,
        "bytes allocated, each graph called once",
        base.allocated_bytes,
        head.allocated_bytes,
    )


def _eagerly(base: m.CompiledWork, head: m.CompiledWork) -> Iterator[m.WorkRow]:
    yield _row(
        m.WorkAspect.EAGER,
        "eager operators per step",
        _sum(base.eager),
        _sum(head.eager),
        base.eager != head.eager,
    )


@m.skippable
def _sum(eager: tuple[tuple[str, float], ...] | m.Skipped) -> float:
    return sum(number for _, number in m.known(eager))


def _counted(metrics: Sequence[m.ComparedMetric]) -> Iterator[m.WorkRow]:
    for aspect, names in _COUNTED.items():
        for name in names:
            metric = named(metrics, name)
            if metric is not None:
                yield _row(aspect, name, metric.base, metric.head)


def _ran(trace: m.TraceDifference | None) -> Iterator[m.WorkRow]:
    """What the trace of a step has, compiled or not."""
    if trace is None or trace.missing or trace.per != "step":
        return
    kernels = [kernel for kernel in trace.kernels if kernel.kind is not m.KernelKind.FRAMEWORK]
    yield _row(
        m.WorkAspect.KERNELS,
        "kernels and operators per step",
        sum(kernel.before for kernel in kernels),
        sum(kernel.after for kernel in kernels),
        any(kernel.more for kernel in kernels),
    )


# ---------------------------------------------------------------- what differs


def _differs(rows: Iterable[m.WorkRow], aspect: m.WorkAspect) -> bool:
    return any(row.aspect is aspect and row.differs is True for row in rows)


def _new_findings(
    findings: Iterable[m.ComparedFinding], rows: Sequence[m.WorkRow]
) -> Iterator[m.WorkDifference]:
    for each in findings:
        for aspect, rules in _RULES.items():
            grown = each.is_new or each.grew
            if grown and each.finding.rule in rules and _differs(rows, aspect):
                yield m.WorkDifference(
                    aspect=aspect,
                    text=f"new {each.finding.rule}: {each.finding.message}",
                    location=each.finding.location,
                )


def _of_operators(base: m.CompiledWork, head: m.CompiledWork) -> Iterator[m.WorkDifference]:
    """One for each line at which operators came or went."""
    yield from _aligned(
        m.WorkAspect.OPERATORS, base.named(base.operators), head.named(head.operators)
    )


def _of_graphs(
    base: m.CompiledWork, head: m.CompiledWork, rows: Iterable[m.WorkRow]
) -> Iterator[m.WorkDifference]:
    """Where the operators are the same ones: they are divided or connected otherwise."""
    alike = Counter(item.text for item in base.named(base.operators)) == Counter(
        item.text for item in head.named(head.operators)
    )
    if alike and _differs(rows, m.WorkAspect.OPERATORS):
        text = "the same operators, connected otherwise"
        if len(base.graphs) != len(head.graphs):
            before = plural(len(base.graphs), "graph")
            text = f"the same operators in {plural(len(head.graphs), 'graph')}, {before} in base"
        yield m.WorkDifference(m.WorkAspect.GRAPHS, text)


@m.otherwise(())
def _of_calls(base: m.CompiledWork, head: m.CompiledWork) -> tuple[m.WorkDifference, ...]:
    before = base.named(m.known(base.calls))
    after = head.named(m.known(head.calls))
    return tuple(_aligned(m.WorkAspect.CODE, before, after))


@m.otherwise(())
def _of_settings(base: m.CompiledWork, head: m.CompiledWork) -> tuple[m.WorkDifference, ...]:
    """By name: a setting of a compiled function that has another value."""
    sides = m.known(_settings(base)), m.known(_settings(head))
    found: list[str] = []
    for before, after in zip(*sides, strict=False):
        was = dict(_FIELD.findall(before))
        now = dict(_FIELD.findall(after))
        found += (
            f"{name}: {was[name]} -> {now[name]}"
            for name in was.keys() & now.keys()
            if was[name] != now[name]
        )
    return tuple(
        m.WorkDifference(m.WorkAspect.SETTINGS, f"setting {text}") for text in sorted(set(found))
    )


@m.otherwise(())
def _of_guards(base: m.CompiledWork, head: m.CompiledWork) -> tuple[m.WorkDifference, ...]:
    """Of a kind of which there are more, those that base has not in these words."""
    before = base.named(m.known(base.guards))
    after = head.named(m.known(head.guards))
    kinds = _kinds(base, base.guards)
    grown = _kinds(head, head.guards) - kinds
    fallen = kinds - _kinds(head, head.guards)
    found = []
    for side, other, more, sign in ((after, before, grown, "+"), (before, after, fallen, "-")):
        left = Counter(item.text for item in other)
        for item in side:
            left[item.text] -= 1
            if left[item.text] < 0 and more[_kind(item)]:
                text = f"{sign} guard {middle_out(item.text.partition(': ')[2], _NAME)}"
                found.append(
                    m.WorkDifference(
                        aspect=m.WorkAspect.GUARDS,
                        text=text,
                        location=next(iter(item.lines), None),
                        only_in_base=sign == "-",
                    )
                )
    return tuple(found)


@m.otherwise(())
def _of_eager(
    base: m.CompiledWork, head: m.CompiledWork, ran: m.Kernels
) -> tuple[m.WorkDifference, ...]:
    """What is called more or less often outside of compiled code, by its name and types."""
    before = dict(m.known(base.eager))
    after = dict(m.known(head.eager))
    places = _places(ran)
    found = []
    for called in {**before, **after}:
        was = before.get(called, 0.0)
        now = after.get(called, 0.0)
        if was != now:
            text = f"{middle_out(called, _NAME)}: {was:g} -> {now:g} per step"
            place = places.get(called.partition("(")[0])
            found.append(m.WorkDifference(m.WorkAspect.EAGER, text, place))
    return tuple(found)


def _of_kernels(
    trace: m.TraceDifference | None, ran: m.Kernels, rows: Iterable[m.WorkRow]
) -> Iterator[m.WorkDifference]:
    """What runs more or less often, by its name, where that is all that is known of it."""
    told = (m.WorkAspect.EAGER, m.WorkAspect.CODE, m.WorkAspect.LAUNCHES)
    if trace is None or any(_differs(rows, aspect) for aspect in told):
        return
    places = _places(ran)
    for kernel in trace.kernels:
        if kernel.more and kernel.kind is not m.KernelKind.FRAMEWORK:
            number = f"{kernel.before:g} -> {kernel.after:g} per step"
            text = f"{middle_out(kernel.name, _NAME)}: {number}"
            yield m.WorkDifference(m.WorkAspect.KERNELS, text, places.get(kernel.name))


def _places(ran: m.Kernels) -> dict[str, m.Location]:
    """The first line of each kernel or operator."""
    if isinstance(ran, m.Skipped):
        return {}
    return {row.name: row.lines[0] for row in ran.rows if row.lines}


def _aligned(aspect: m.WorkAspect, base: _Items, head: _Items) -> Iterator[m.WorkDifference]:
    """Both sides beside each other in their order: what only one of them has, by its first line."""
    before = [item.text for item in base]
    after = [item.text for item in head]
    if Counter(before) == Counter(after):
        return
    first = 0
    while before[first : first + 1] == after[first : first + 1] != []:
        first += 1
    if max(len(before), len(after)) - first > ALIGNED:
        text = f"{len(before):,} -> {len(after):,}; they are too many to be held line by line"
        yield m.WorkDifference(aspect, text, _line(head[first:]))
        return
    matcher = difflib.SequenceMatcher(None, before[first:], after[first:], autojunk=False)
    for tag, low, high, new_low, new_high in matcher.get_opcodes():
        if tag == "equal":
            continue
        gone = base[first + low : first + high]
        new = head[first + new_low : first + new_high]
        yield from _by_line(aspect, gone, new)


def _by_line(aspect: m.WorkAspect, gone: _Items, new: _Items) -> Iterator[m.WorkDifference]:
    """One difference for each line of the side that has more to show."""
    shown = new or gone
    for _, alike in groupby(shown, key=lambda item: item.lines[:1]):
        mine = list(alike)
        text = f"- {_names(mine)}"
        if new:
            text = f"+ {_names(mine)}"
        if new and gone:
            text = f"{text} in place of {_names(gone)}"
        yield m.WorkDifference(aspect, text, _line(mine), only_in_base=not new)


def _names(items: _Items) -> str:
    names = [middle_out(_shown(item.text), _NAME) for item in items[:NAMED]]
    more = len(items) - NAMED
    return ", ".join(names) + f" and {more:,} more" * (more > 0)


def _shown(text: str) -> str:
    """Without strides and devices, and without what a call is given."""
    if text.startswith(_CALLED):
        return text.partition("(")[0]
    return _LAYOUT.sub("]", text)


def _line(items: _Items) -> m.Location | None:
    return next((line for item in items for line in item.lines), None)


def _together(found: Iterable[m.WorkDifference]) -> Iterator[m.WorkDifference]:
    """Each once, with how often it is there: a layer is compiled as often as there are layers."""
    times = Counter(found)
    for difference, number in times.items():
        yield replace(difference, times=number)


def _put_down(
    difference: m.WorkDifference, changed: Sequence[changes.ChangedLine], head: m.Profile
) -> m.WorkDifference:
    """With the changed line that it is due to."""
    at = list(filter(None, [difference.location]))
    doing = _DOING.get(difference.aspect, "")
    if difference.only_in_base:
        line = changes.line_of((), doing, changed, head, gone=at)
    else:
        line = changes.line_of(at, doing, changed, head)
    return replace(difference, changed=line)


# ---------------------------------------------------------------- in words


def in_words(compared: m.Comparison, root: str) -> str:
    """Of all runs in one sentence; empty where none was compared. ``root``: of head's sources."""
    works = [run.work for run in compared.runs if isinstance(run.work, m.ComparedWork)]
    if not works:
        return ""
    differing = [work for work in works if work.differs]
    if not differing:
        return _the_same(works)
    first = differing[0]
    aspects = dict.fromkeys(row.aspect for row in first.rows if row.differs is True)
    text = f"what is compiled and run differs ({', '.join(aspects)})"
    if not _RUNS.intersection(aspects) and _has(first, m.WorkAspect.CODE, differs=False):
        text = f"the same code runs, and what it is made of differs ({', '.join(aspects)})"
    if compared.environment:
        text = f"{text}, and so do the environments, which may be why"
    elif first.differences:
        told = first.differences[0]
        place = ""
        if told.place is not None:
            place = f"{relative(told.place.file, root)}:{told.place.line}: "
        text = f"{text}; {place}{told.text}"
    return text


def _the_same(works: Sequence[m.ComparedWork]) -> str:
    """Only of what was seen on both sides."""
    rows = [row for work in works for row in work.rows]
    unseen = dict.fromkeys(row.name for row in rows if isinstance(row.differs, m.Skipped))
    in_runs = f"the same work in {plural(len(works), 'run')}"
    if not unseen:
        return f"{in_runs}: all {len(rows)} things that were counted are equal"
    seen = sum(row.differs is False for row in rows)
    equal = f"{seen} of {len(rows)} things that are counted are equal"
    return f"{in_runs}, as far as it was seen: {equal}; not compared: {', '.join(unseen)}"


def _has(work: m.ComparedWork, aspect: m.WorkAspect, differs: bool | None = None) -> bool:
    """``differs``: None for either."""
    rows = [row for row in work.rows if row.aspect is aspect]
    return any(differs is None or row.differs is differs for row in rows)
