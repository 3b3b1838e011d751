"""Where the ranks of a job that did not end well stood: the first collective in which they differ.

The n-th collective of a process group must be the same on all of its ranks. One that leaves one out
takes the next in its place, and the others wait for what never comes, often some calls later.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import PurePath

from kgprof import model as m
from kgprof.reading.evidence import Evidence, RunEvidence

# Collectives behind the first difference that have to be the same again, one place apart.
SHIFTED_BY_ONE = 3
# Whose inputs are as large on all ranks; those of others may differ.
OF_ONE_SIZE = ("all_reduce", "broadcast", "reduce")

# Seconds in one collective: a rank that was stopped before that may have been about to go on.
LONG_S = 10.0
# How a run ends that waits for what never comes, unless that raises.
STOPPED = (m.Outcome.TIMED_OUT, m.Outcome.INTERRUPTED)

DEFAULT_GROUP = "0"  # torch's name for the process group of all ranks

Numbered = Mapping[int, m.CollectiveCall]  # by its number in one process group
Groups = Mapping[str, Numbered]  # by the process group's name


def hang(evidence: Evidence) -> str:
    """Name the ranks, the collective and the lines; empty where none of a launch's ranks waits for
    another, or where nothing was recorded."""
    known = [(run, _by_group(order)) for run in evidence.runs if (order := run.record.collectives)]
    for (one, first), (two, second) in combinations(known, 2):
        for group in sorted(first):
            mine = first[group]
            theirs = second.get(group, {})
            for number in sorted(mine.keys() & theirs.keys()):
                if not _is_like(mine[number], theirs[number]):
                    return _of_difference(number, (one, mine), (two, theirs))
    return _lacking(known)


def _by_group(order: m.CollectiveOrder) -> Groups:
    groups: dict[str, dict[int, m.CollectiveCall]] = {}
    for group, number, place in order.begun:
        groups.setdefault(group, {})[number] = order.calls[place]
    return groups


def _is_like(mine: m.CollectiveCall, theirs: m.CollectiveCall) -> bool:
    if mine.operation != theirs.operation:
        return False
    return mine.operation not in OF_ONE_SIZE or mine.sizes == theirs.sizes


def _of_difference(
    number: int, one: tuple[RunEvidence, Numbered], two: tuple[RunEvidence, Numbered]
) -> str:
    """Say that a rank left one out where its calls are those of the other, one place on."""
    for (run, mine), (other, theirs) in ((one, two), (two, one)):
        if _is_shifted(mine, theirs, number):
            skipped = theirs[number]
            return (
                f"{_rank(run)} did not call {_words(other, skipped)}, which {_rank(other)} called "
                f"as collective {number:,}; {_rank(run)} called {_words(run, mine[number])} "
                "instead"
            )
    (run, mine), (other, theirs) = one, two
    return (
        f"the ranks call different collectives: as collective {number:,} {_rank(run)} "
        f"called {_words(run, mine[number])}, and {_rank(other)} {_words(other, theirs[number])}"
    )


def _is_shifted(mine: Numbered, theirs: Numbered, number: int) -> bool:
    pairs = [
        (mine[place], theirs[place + 1])
        for place in range(number, number + SHIFTED_BY_ONE)
        if place in mine and place + 1 in theirs
    ]
    return bool(pairs) and all(_is_like(*pair) for pair in pairs)


def _lacking(known: Sequence[tuple[RunEvidence, Groups]]) -> str:
    """Say which rank has begun fewer: the others wait in the first that it did not begin.

    A rank that began none of a smaller group's need not be in it.
    """
    for (one, first), (two, second) in combinations(known, 2):
        for group in sorted(first.keys() | second.keys()):
            sides = ((one, first.get(group, {})), (two, second.get(group, {})))
            (behind, fewer), (ahead, more) = sorted(sides, key=lambda side: max(side[1], default=0))
            if not fewer and group != DEFAULT_GROUP:
                continue
            number = max(fewer, default=0) + 1
            if number not in more or behind.record.exit.outcome not in STOPPED:
                continue  # what ended by itself has its own reason
            if _waits(ahead, group, number, more[number]):
                return (
                    f"{_rank(ahead)} waits in {_words(ahead, more[number])}, collective "
                    f"{number:,}, which {_rank(behind)} never called"
                )
    return _alone(known)


def _alone(known: Sequence[tuple[RunEvidence, Groups]]) -> str:
    """Say where one rank waits whose others left nothing."""
    if len(known) != 1:
        return ""
    ((run, groups),) = known
    for group, calls in groups.items():
        number = _next(run, group)
        if number in calls and _waits(run, group, number, calls[number]):
            return (
                f"{_rank(run)} waits in {_words(run, calls[number])}, collective {number:,}; "
                "no other rank left its collectives"
            )
    return ""


def _next(run: RunEvidence, group: str) -> int:
    """The number of the first collective that has not ended."""
    return _order(run).completed.get(group, 0) + 1


def _order(run: RunEvidence) -> m.CollectiveOrder:
    """Only runs that left one come here."""
    order = run.record.collectives
    assert order is not None
    return order


def _waits(run: RunEvidence, group: str, number: int, call: m.CollectiveCall) -> bool:
    """Tell whether a run ended inside of a call, as far as is known."""
    ended = run.record.exit
    if ended.failure is not None:  # to gloo, a collective that raised is over
        at = ended.failure.location
        return any((frame.file, frame.line) == (at.file, at.line) for frame in call.frames)
    if number != _next(run, group) or _order(run).waits_s.get(group, 0.0) < LONG_S:
        return False
    return ended.outcome in (*STOPPED, m.Outcome.KILLED)


def _rank(run: RunEvidence) -> str:
    return f"rank {_order(run).rank}"


def _words(run: RunEvidence, call: m.CollectiveCall) -> str:
    sizes = ", ".join(str([*size] or "one number") for size in call.sizes[:2])
    # The program's own line, else the innermost that is known.
    own = [frame for frame in call.frames if run.source.project.holds(frame.file)]
    at = "".join(f" ({PurePath(f.file).name}:{f.line})" for f in [*own, *call.frames][:1])
    return f"{call.operation} of {sizes or 'nothing'}{at}"
