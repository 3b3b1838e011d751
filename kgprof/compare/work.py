"""Whether two runs compile and do the same, exactly and without a clock, and which line it is due
to if not.

Everything is compared as a number of equal things, in any order: a function that moved, a renamed
variable or a comment changes nothing. A difference is put down to the changed line that it shows
at, that its own line stood at before, or that does what such a difference comes of.
"""

import difflib
import json
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
from kgprof.reading.files import json_object
from kgprof.wording import and_more, clause, middle_out, plural, relative

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
RUNS = frozenset(m.WorkAspect) - {
    m.WorkAspect.GRAPHS,
    m.WorkAspect.OPERATORS,
    m.WorkAspect.GUARDS,
}
_CALLED = ("cpp_", "triton_", "extern_kernels.")
_LAYOUT = re.compile(r"\](?:\[[^\]]*\])?(?:cpu|cuda:\d+|meta)\b")
_STATE = "GLOBAL_STATE"  # torch's kind of guard on its own settings
_UNSEEN = m.Skipped("not measured on either side")
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
    trace = _traces(base, head, compared.trace)
    rows = (*_consists_of(before, after), *_counted(compared.metrics), _ran(trace))
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


# ---------------------------------------------------------------- the rows


# a number, and what is compared, where the number alone does not say it
_Part = tuple[float, object]


def _row(
    aspect: m.WorkAspect, name: str, base: _Part | m.Skipped, head: _Part | m.Skipped
) -> m.WorkRow:
    one = m.skippable(_number)(base)
    other = m.skippable(_number)(head)
    differs: bool | m.Skipped = base != head
    for figure in (one, other):
        if isinstance(figure, m.Skipped):
            differs = figure
    return m.WorkRow(aspect, name, one, other, differs)


def _number(part: _Part | m.Skipped) -> float:
    return m.known(part)[0]


def _operators(side: m.CompiledWork) -> _Part:
    return float(len(side.operators)), Counter(side.graphs)


def _calls(side: m.CompiledWork) -> _Part:
    called = side.named(m.known(side.calls))
    return float(len(called)), Counter(item.text for item in called)


def _guards(side: m.CompiledWork) -> _Part:
    """By their kinds; the value and its name are the program's."""
    guards = side.named(m.known(side.guards))
    return float(len(guards)), _kinds(guards)


def _settings(side: m.CompiledWork) -> _Part:
    states = _states(side)
    return float(len(states)), states


def _eager(side: m.CompiledWork) -> _Part:
    called = m.known(side.eager)
    return sum(number for _, number in called), called


def _states(side: m.CompiledWork) -> frozenset[str]:
    """What torch guards of its own settings."""
    guards = side.named(m.known(side.guards))
    return frozenset(item.text for item in guards if _kind(item) == _STATE)


def _kinds(guards: _Items) -> Counter[str]:
    return Counter(_kind(item) for item in guards)


def _kind(guard: _Item) -> str:
    return guard.text.partition(":")[0]


def _figure(of: Callable[[m.CompiledWork], m.Figure]) -> Callable[[m.CompiledWork], _Part]:
    return lambda side: (m.known(of(side)), None)


_PARTS: tuple[tuple[m.WorkAspect, str, Callable[[m.CompiledWork], _Part]], ...] = (
    (m.WorkAspect.GRAPHS, "graphs", _figure(lambda side: float(len(side.graphs)))),
    (m.WorkAspect.OPERATORS, "operators", _operators),
    (m.WorkAspect.CODE, "calls in generated code", _calls),
    (m.WorkAspect.SETTINGS, "states of torch's settings", _settings),
    (m.WorkAspect.GUARDS, "guards on values", _guards),
    (
        m.WorkAspect.LAUNCHES,
        "kernel calls per step, compiled",
        _figure(lambda side: side.calls_per_step),
    ),
    (m.WorkAspect.BYTES, "bytes per step", _figure(lambda side: side.bytes_per_step)),
    (m.WorkAspect.FLOPS, "FLOPs per step", _figure(lambda side: side.flops_per_step)),
    (
        m.WorkAspect.BUFFERS,
        "bytes allocated, each graph called once",
        _figure(lambda side: side.allocated_bytes),
    ),
    (m.WorkAspect.EAGER, "eager operators per step", _eager),
)


def _consists_of(base: m.CompiledWork, head: m.CompiledWork) -> Iterator[m.WorkRow]:
    for aspect, name, of in _PARTS:
        part = m.skippable(of)
        yield _row(aspect, name, part(base), part(head))


def _counted(metrics: Sequence[m.ComparedMetric]) -> Iterator[m.WorkRow]:
    for aspect, names in _COUNTED.items():
        for name in names:
            metric = named(metrics, name)
            if metric is not None:
                yield _row(aspect, name, _part(metric.base), _part(metric.head))
            # on a CPU there are no launches of CUDA graphs, which is no gap
            elif aspect is not m.WorkAspect.CUDA_GRAPHS:
                yield _row(aspect, name, _UNSEEN, _UNSEEN)


@m.skippable
def _part(figure: m.Figure) -> _Part:
    return m.known(figure), None


def _ran(trace: m.TraceDifference | m.Skipped) -> m.WorkRow:
    """What the trace of a step has, compiled or not."""
    name = "kernels and operators per step"
    if isinstance(trace, m.Skipped):
        return _row(m.WorkAspect.KERNELS, name, trace, trace)
    kernels = [kernel for kernel in trace.kernels if kernel.kind is not m.KernelKind.FRAMEWORK]
    return _row(
        m.WorkAspect.KERNELS,
        name,
        (sum(kernel.before for kernel in kernels), [kernel.before for kernel in kernels]),
        (sum(kernel.after for kernel in kernels), [kernel.after for kernel in kernels]),
    )


def _traces(
    base: m.RunReport, head: m.RunReport, trace: m.TraceDifference | None
) -> m.TraceDifference | m.Skipped:
    """Skipped where they do not show the same kinds of events of a step."""
    if trace is None:
        return m.Skipped("there is no trace")
    if trace.missing or trace.per != "step":
        return m.Skipped(trace.missing or "the traces mark no steps")
    if m.known(base.kernels).measured_in != m.known(head.kernels).measured_in:
        return m.Skipped("the sides were traced in two passes")
    return trace


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
    """By name, where each side has one state that the other has not."""
    was = _states(base) - _states(head)
    now = _states(head) - _states(base)
    if not was and not now:
        return ()
    if len(was) != 1 or len(now) != 1:
        number = f"{plural(len(_states(head)), 'state')} of torch's settings"
        text = f"{number}, {plural(len(_states(base)), 'state')} in base"
        return (m.WorkDifference(m.WorkAspect.SETTINGS, text),)
    before = _fields(next(iter(was)))
    after = _fields(next(iter(now)))
    told = []
    for name in sorted({**before, **after}):
        sides = [side.get(name, "not guarded") for side in (before, after)]
        if sides[0] != sides[1]:
            text = f"setting {name}: {' -> '.join(sides)}"
            told.append(m.WorkDifference(m.WorkAspect.SETTINGS, text))
    return tuple(told)


def _fields(state: str) -> dict[str, str]:
    """torch's settings as it prints them, JSON, by name: "autocast_state.enabled"."""
    fields = {}
    settings = json_object(state.partition("against ")[2])
    for name, value in settings.items():
        if not isinstance(value, dict):
            fields[name] = json.dumps(value)
            continue
        fields.update({f"{name}.{inner}": json.dumps(each) for inner, each in value.items()})
    return fields


@m.otherwise(())
def _of_guards(base: m.CompiledWork, head: m.CompiledWork) -> tuple[m.WorkDifference, ...]:
    """Of a kind of which there are more, those that base has not in these words. Other graphs have
    guards of their own, which say nothing."""
    if len(base.graphs) != len(head.graphs):
        return ()
    before = base.named(m.known(base.guards))
    after = head.named(m.known(head.guards))
    kinds = _kinds(before)
    grown = _kinds(after) - kinds
    fallen = kinds - _kinds(after)
    found = []
    for side, other, more, sign in ((after, before, grown, "+"), (before, after, fallen, "-")):
        left = Counter(item.text for item in other)
        for item in side:
            left[item.text] -= 1
            if left[item.text] < 0 and more[_kind(item)]:
                text = f"{sign} guard {middle_out(item.text.partition(': ')[2], _NAME)}"
                gone = sign == "-"
                found.append(
                    m.WorkDifference(m.WorkAspect.GUARDS, text, _line([item]), only_in_base=gone)
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
            place = places.get(called.partition("(")[0])
            found.append(m.WorkDifference(m.WorkAspect.EAGER, _per_step(called, was, now), place))
    return tuple(found)


def _of_kernels(
    trace: m.TraceDifference | m.Skipped, ran: m.Kernels, rows: Iterable[m.WorkRow]
) -> Iterator[m.WorkDifference]:
    """What runs more or less often, by its name, where that is all that is known of it."""
    told = (m.WorkAspect.EAGER, m.WorkAspect.CODE, m.WorkAspect.LAUNCHES)
    if isinstance(trace, m.Skipped) or any(_differs(rows, aspect) for aspect in told):
        return
    places = _places(ran)
    for kernel in trace.kernels:
        if kernel.more and kernel.kind is not m.KernelKind.FRAMEWORK:
            text = _per_step(kernel.name, kernel.before, kernel.after)
            yield m.WorkDifference(m.WorkAspect.KERNELS, text, places.get(kernel.name))


def _per_step(name: str, before: float, after: float) -> str:
    return f"{middle_out(name, _NAME)}: {before:g} -> {after:g} per step"


@m.otherwise({})
def _places(ran: m.Kernels) -> dict[str, m.Location]:
    """The first line of each kernel or operator."""
    return {row.name: row.lines[0] for row in m.known(ran).rows if row.lines}


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
    # An operator that only moved stands on both sides.
    come = Counter(after) - Counter(before)
    left = Counter(before) - Counter(after)
    matcher = difflib.SequenceMatcher(None, before[first:], after[first:], autojunk=False)
    for tag, low, high, new_low, new_high in matcher.get_opcodes():
        if tag == "equal":
            continue
        gone = _of_these(left, base[first + low : first + high])
        new = _of_these(come, head[first + new_low : first + new_high])
        yield from _by_line(aspect, gone, new)


def _of_these(left: Counter[str], items: _Items) -> list[_Item]:
    """As many of ``items`` as ``left`` has of each, which are taken off it."""
    found = []
    for item in items:
        if left[item.text] > 0:
            left[item.text] -= 1
            found.append(item)
    return found


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
        names = _kernels(mine)
        if new and aspect is m.WorkAspect.CODE and names == _kernels(gone):
            text = f"other code or sizes of {', '.join(names[:NAMED])}{and_more(names, NAMED)}"
        yield m.WorkDifference(aspect, text, _line(mine), only_in_base=not new)


def _names(items: _Items) -> str:
    names = [middle_out(_shown(item.text), _NAME) for item in items[:NAMED]]
    more = len(items) - NAMED
    return ", ".join(names) + f" and {more:,} more" * (more > 0)


def _kernels(items: _Items) -> list[str]:
    """Their names without the digests of their sources."""
    return [_shown(item.text).partition(" ")[0] for item in items]


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
    if line is None:
        return difference
    return replace(difference, changed=line.place, was=line.was)


# ---------------------------------------------------------------- in words


def in_words(compared: m.Comparison, root: str) -> str:
    """Of all runs in one sentence. ``root``: of head's sources."""
    runs = [run for run in compared.runs if run.status is m.Presence.BOTH]
    works = [run.work for run in runs if isinstance(run.work, m.ComparedWork)]
    if not works:
        why = dict.fromkeys(run.work.reason for run in runs if isinstance(run.work, m.Skipped))
        why.pop(m.NOT_KEPT, None)
        return clause("what is compiled and run was not compared: ", "; ".join(why))
    rows = [row for work in works for row in work.rows]
    in_runs = plural(len(works), "run")
    if len(works) < len(runs):
        in_runs = f"{len(works)} of {len(runs)} runs"
    if not any(work.differs for work in works):
        return _the_same(rows, in_runs)
    differing = [row for row in rows if row.differs is True]
    aspects = ", ".join(dict.fromkeys(row.aspect for row in differing))
    text = f"what is compiled and run differs ({aspects})"
    if all(row.differs is False for row in rows if row.aspect in RUNS):
        text = f"the same code runs in {in_runs}, and what it is made of differs ({aspects})"
    if compared.environment and not compared.upgrade:
        return f"{text}, and so do the environments, which may be why"
    for first in compared.differences[:1]:
        text = f"{text}; {_where(first, root)}{first.text}"
    return text


def _where(difference: m.WorkDifference, root: str) -> str:
    """``model.py:12: ``; empty where only base has the line."""
    place = difference.place
    if place is None or (difference.only_in_base and difference.changed is None):
        return ""
    return f"{relative(place.file, root)}:{place.line}: "


def _the_same(rows: Sequence[m.WorkRow], in_runs: str) -> str:
    """Only of what was seen on both sides."""
    unseen = dict.fromkeys(row.name for row in rows if isinstance(row.differs, m.Skipped))
    if not unseen:
        return f"the same work in {in_runs}: all {len(rows)} things that were counted are equal"
    seen = sum(row.differs is False for row in rows)
    equal = f"{seen} of {len(rows)} things that are counted are equal"
    return (
        f"the same work in {in_runs}, as far as it was seen: {equal}; "
        f"not compared: {', '.join(unseen)}"
    )
