"""What a step takes more than before, in parts that the two traces can tell apart. Microseconds a step of the trace.

Kernels of one name are launched n times and take t each: the difference of n·t is (change of n)·(mean t) for the
launches and (mean n)·(change of t) for the kernel, which add up to it. Inductor numbers its kernels, so the numbers are
taken off before names are matched; kernels that only one side has are one pool, because fusion gives new names to old
work. What is left of the window is the host's: on a GPU the time in which the device had nothing to do, on a CPU the
time in no operator, and in both the frames of Dynamo and of compiled regions. Of the host's part a launch more is taken
to cost what each of base's launches left the device waiting (on a CPU: cost outside of the operators), no more than
there is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from kgprof import model as m
from kgprof.wording import plural, relative, short, short_name

KERNEL, REPLACED, LAUNCHES, COPIES, HOST = "kernel", "replaced", "launches", "copies", "host"
LEAST_MORE = 0.5  # launches a step: below it is one in some steps only, which the traced ones may have met by chance
CALLS_SHARE = 0.10  # of base's calls a step: steps differ in what they meet, and a profile leaves small functions out

NAME = 70  # characters of a kernel's name in a sentence

_GRAPH = re.compile(r"^graph_\d+_")
_NUMBER = re.compile(r"_\d+$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """``what``: kernel (same launches, slower), replaced (by other kernels), launches, copies, host."""

    what: str
    us: float  # a step, of the trace; negative: less than before
    text: str
    more: float = 0.0  # launches a step
    location: m.Location | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kernel:
    name: str
    kind: m.KernelKind | None
    before_us: float
    after_us: float
    before: float  # launches a step
    after: float

    @property
    def delta_us(self) -> float:
        return self.after_us - self.before_us

    @property
    def more(self) -> float:
        return self.after - self.before

    @property
    def on_both(self) -> bool:
        return self.before > 0 and self.after > 0

    @property
    def launches_us(self) -> float:
        return self.more * (self.before_us / self.before + self.after_us / self.after) / 2

    @property
    def slower_us(self) -> float:
        return self.delta_us - self.launches_us


def parts(trace: m.TraceDifference, base: m.RunReport, head: m.RunReport, root: str) -> tuple[Part, ...]:
    """They add up to the change of the window, but for what runs at the same time. Empty without comparable traces."""
    if trace.total is None:
        return ()
    kernels = _merged(trace.kernels)
    worked = [one for one in kernels if one.kind is not m.KernelKind.FRAMEWORK]
    copies = [one for one in worked if one.kind is m.KernelKind.COPY]
    computing = [one for one in worked if one.kind is not m.KernelKind.COPY]
    place = _places(head)
    work = (
        *_copies(copies, place),
        *_launches([one for one in computing if one.on_both], place),
        *_slower([one for one in computing if one.on_both], place),
        *_pool([one for one in computing if not one.on_both], place),
    )
    host = _host(trace, [one for one in kernels if one.kind is m.KernelKind.FRAMEWORK], base, head, root)
    each = _launching(base, sum(one.before for one in worked))
    return tuple(part for part in _with_launching(work, host, each) if part.us or part.more)


def _launching(base: m.RunReport, launched: float) -> float:
    """What a launch costs the host in base. Kernels in a CUDA graph are launched by one call, so calls count there."""
    kernels = base.kernels
    assert isinstance(kernels, m.KernelBreakdown)  # or there is no difference of traces
    calls = 0.0 if isinstance(kernels.launches, m.Skipped) else kernels.launches / (kernels.steps or 1)
    waited = kernels.idle_us / (kernels.steps or 1)
    return waited / (calls or launched) if calls or launched else 0.0


def _with_launching(work: Sequence[Part], host: Part, each: float) -> Iterable[Part]:
    """Moves to what is launched more often what launching it costs the host."""
    left = host.us
    for part in work:
        us = min(max(0.0, part.more) * each, max(0.0, left)) if part.what in (LAUNCHES, COPIES) else 0.0
        left -= us
        yield replace(part, us=part.us + us)
    yield replace(host, us=left)


def plain_name(name: str) -> str:
    """Without the numbers that Inductor gives to graphs and kernels in the order in which it makes them."""
    return _NUMBER.sub("", _GRAPH.sub("", name))


def _merged(rows: Iterable[m.Change]) -> tuple[_Kernel, ...]:
    found: dict[tuple[str, m.KernelKind | None], _Kernel] = {}
    for row in rows:
        key = (plain_name(row.name), row.kind)
        was = found.get(key)
        found[key] = _Kernel(
            name=key[0],
            kind=row.kind,
            before_us=row.before_us + (was.before_us if was else 0.0),
            after_us=row.after_us + (was.after_us if was else 0.0),
            before=(row.before_count or 0.0) + (was.before if was else 0.0),
            after=(row.after_count or 0.0) + (was.after if was else 0.0),
        )
    return tuple(sorted(found.values(), key=lambda one: (-abs(one.delta_us), one.name)))


_Place = Callable[[str], m.Location | None]


def _places(run: m.RunReport) -> _Place:
    """Of a kernel the first line that it computes."""
    rows = run.kernels.rows if isinstance(run.kernels, m.KernelBreakdown) else ()
    lines = {plain_name(row.name): row.lines[0] for row in reversed(rows) if row.lines}
    return lines.get


# ---------------------------------------------------------------- work


def _copies(copies: Sequence[_Kernel], place: _Place) -> Iterable[Part]:
    if not copies:
        return
    more, us = sum(one.more for one in copies), sum(one.delta_us for one in copies)
    largest = max(copies, key=lambda one: one.delta_us)
    how_many = f"{_signed(more)} a step ({_number(copies, 'before')} -> {_number(copies, 'after')})"
    said = f"copies and fills: {how_many}" if abs(more) >= LEAST_MORE else "the same copies and fills take longer"
    yield Part(what=COPIES, us=us, more=more, text=f"{said}, {_short(largest)} first", location=place(largest.name))


def _launches(kernels: Sequence[_Kernel], place: _Place) -> Iterable[Part]:
    """Kernels that were there and are launched more often, or less."""
    changed = [one for one in kernels if one.more]
    if not changed:
        return
    more, largest = sum(one.more for one in changed), max(changed, key=lambda one: one.launches_us)
    text = (
        f"{_signed(more)} launches a step of {plural(len(changed), 'kernel')} that were there, {_short(largest)} first"
    )
    us = sum(one.launches_us for one in changed)
    yield Part(what=LAUNCHES, us=us, more=more, text=text, location=place(largest.name))


def _slower(kernels: Sequence[_Kernel], place: _Place) -> Iterable[Part]:
    for one in kernels:
        each = f"{short(one.before_us / one.before)} -> {short(one.after_us / one.after)} us a launch"
        text = f"{_short(one)}: {each}, {short(one.after)} launches a step"
        yield Part(what=KERNEL, us=one.slower_us, text=text, location=place(one.name))


def _pool(kernels: Sequence[_Kernel], place: _Place) -> Iterable[Part]:
    """Kernels that only one side has: more launches, or other kernels for the work of those that are gone."""
    if not kernels:
        return
    new, gone = [one for one in kernels if one.after], [one for one in kernels if not one.after]
    more, us = sum(one.more for one in kernels), sum(one.delta_us for one in kernels)
    said = f"{_number(new, 'after')} launches a step of {plural(len(new), 'new kernel')}"
    said += f" in the place of {_number(gone, 'before')} of {len(gone)}" if gone else ""
    largest = max(new, key=lambda one: one.after_us, default=None)
    said += f", {_short(largest)} first" if largest else ""
    what = LAUNCHES if more >= LEAST_MORE else REPLACED
    yield Part(what=what, us=us, more=more, text=said, location=place(largest.name) if largest else None)


def _short(kernel: _Kernel) -> str:
    return short_name(kernel.name, NAME)


def _number(kernels: Iterable[_Kernel], side: str) -> str:
    return short(sum(getattr(one, side) for one in kernels), 4)


def _signed(value: float) -> str:
    return short(value, sign="+")


# ---------------------------------------------------------------- the host


def _host(
    trace: m.TraceDifference, framework: Sequence[_Kernel], base: m.RunReport, head: m.RunReport, root: str
) -> Part:
    idle = next((row.delta_us for row in trace.window if row.name == "idle"), 0.0)
    us = idle + sum(one.delta_us for one in framework)
    where = "the device waits longer" if trace.device == "cuda" else "more time outside of operators"
    grown = _grown_function(base, head, root)
    named = f"; of Python's functions {grown.name} grew most" if grown else ""
    return Part(what=HOST, us=us, text=f"{where}{named}", location=grown.location if grown else None)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Grown:
    name: str
    location: m.Location | None


def _grown_function(base: m.RunReport, head: m.RunReport, root: str) -> _Grown | None:
    """The function whose own time under cProfile grew most; its place where it lies in the repository."""
    if (
        isinstance(base.host, m.Skipped)
        or isinstance(head.host, m.Skipped)
        or not base.host.steps
        or not head.host.steps
    ):
        return None
    before = {name: row.self_us / base.host.steps for name, row in _by_name(base.host).items()}
    after = _by_name(head.host)
    grown = [(row.self_us / head.host.steps - before.get(name, 0.0), row) for name, row in after.items()]
    most, row = max(grown, key=lambda one: one[0], default=(0.0, None))
    if row is None or most <= 0:
        return None
    ours = _in_repository(row.file, root)
    where = m.Location(file=row.file, line=row.line, function=row.function) if ours else None
    return _Grown(name=f"{row.function} (+{short(most)} us a step under cProfile)", location=where)


def _in_repository(file: str, root: str) -> bool:
    """Below ``root``, or named from there already, as a report that is to be shared names it."""
    path = relative(file, root)
    return path.endswith(".py") and not path.startswith(("/", "<", "~")) and path[1:2] != ":"


def _name(row: m.HostRow) -> tuple[str, str]:
    """Base and head may lie in two folders, so of the path only the file's name counts."""
    return row.file.replace("\\", "/").rpartition("/")[2], row.function


def _by_name(host: m.HostBreakdown) -> Mapping[tuple[str, str], m.HostRow]:
    """Lines move and folders differ, so two lambdas of a function, or ``main`` of two ``__init__.py``, are one."""
    found: dict[tuple[str, str], m.HostRow] = {}
    for row in host.rows:
        was = found.get(_name(row))
        found[_name(row)] = row if was is None else _together(was, row)
    return found


def _together(one: m.HostRow, other: m.HostRow) -> m.HostRow:
    return msgspec.structs.replace(
        one,
        calls=one.calls + other.calls,
        self_us=one.self_us + other.self_us,
        cumulative_us=one.cumulative_us + other.cumulative_us,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class MoreCalls:
    """Calls of Python's functions in a step, as cProfile counts them. ``location``: see more_calls."""

    before: float
    after: float
    largest: str  # the function with the most time of its own among those that are called more often
    location: m.Location | None


def more_calls(base: m.RunReport, head: m.RunReport, root: str) -> MoreCalls | None:
    """None where there are no more, or where a side was not profiled.

    A profile holds the functions with the most own time: one that base's does not list was called there 0 times only
    if head's is well above what base's leaves out. ``location``: of the project's own functions the one whose time with
    all that it calls grew most, as a share of the whole.
    """
    before, after = base.host, head.host
    if isinstance(before, m.Skipped) or isinstance(after, m.Skipped) or not before.steps or not after.steps:
        return None
    there, steps = _by_name(before), (before.steps, after.steps)
    left_out_us = 2 * min((row.self_us for row in before.rows), default=0.0) / steps[0] if before.rows_left_out else 0.0
    listed = {
        name: row for name, row in _by_name(after).items() if name in there or row.self_us / steps[1] >= left_out_us
    }
    calls = sum(row.calls for row in before.rows) / steps[0]
    more = [(_more(row, there.get(name), steps), row) for name, row in listed.items()]
    grown = [(number, row) for number, row in more if number >= LEAST_MORE]
    number = sum(number for number, _ in grown)
    if not grown or number < CALLS_SHARE * calls:
        return None
    largest = max((row for _, row in grown), key=lambda row: row.self_us)
    return MoreCalls(
        before=calls,
        after=calls + number,
        largest=largest.function,
        location=_grown_inside(before, after, root),
    )


def _more(row: m.HostRow, was: m.HostRow | None, steps: tuple[int, int]) -> float:
    return row.calls / steps[1] - (was.calls / steps[0] if was else 0.0)


def _grown_inside(before: m.HostBreakdown, after: m.HostBreakdown, root: str) -> m.Location | None:
    """By its share of the profile: the machine may have been slower on a side as a whole."""
    there = {name: row.cumulative_us for name, row in _by_name(before).items()}
    own = [row for row in _by_name(after).values() if _in_repository(row.file, root)]
    totals = before.total_self_us or 1.0, after.total_self_us or 1.0

    def grown(row: m.HostRow) -> float:
        return row.cumulative_us / totals[1] - there.get(_name(row), 0.0) / totals[0]

    most = max(own, key=grown, default=None)
    return m.Location(file=most.file, line=most.line, function=most.function) if most and grown(most) > 0 else None
