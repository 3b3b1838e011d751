"""Two interpreters that were given on purpose (`compare --record --python A --python B`): what was
upgraded, and what of torch itself changed with it."""

import re
from collections.abc import Iterator, Mapping, Sequence

from kgprof import model as m
from kgprof.compare.causes import CLOCKLESS
from kgprof.compare.changes import ChangedLine, texts_of
from kgprof.wording import clause, plural

_SAID = ("torch", "Python", "C++ compiler")
_ON_A_CARD = ("triton", "CUDA")
# parts of names of settings that nothing on a CPU reads
_OF_CARDS = ("triton", "cuda", "cutlass", "rocm", "xpu", "mtia", "nvgemm", "_bw", "scatter")
_NAMED = 4  # settings in one sentence
_ABSENT = "not there"
_DECOMPOSITION = "decomposition of "
_OPERATOR = re.compile(rf"{_DECOMPOSITION}\w+\.(\w+)")


def interpreters(base: m.Profile, head: m.Profile) -> tuple[m.ChangedFact, ...]:
    """Empty where both sides were recorded with one."""
    if base.in_turn is None or head.in_turn is None or not base.in_turn.python:
        return ()
    return (m.ChangedFact("interpreter", base.in_turn.python, head.in_turn.python),)


def in_words(
    environment: Sequence[m.ChangedFact],
    base: m.Profile,
    head: m.Profile,
    changed: Sequence[ChangedLine],
) -> str:
    """ "torch 2.11.0 -> 2.15.0, same code"."""
    known = {fact.name: fact for fact in environment}
    names = _SAID if head.device == "cpu" else (*_SAID, *_ON_A_CARD)
    said = [_versions(known[name]) for name in names if name in known]
    upgraded = ", ".join(said) or "another interpreter with the same versions"
    if changed:
        return f"{upgraded}, and {plural(len(changed), 'changed line')} of the program"
    if texts_of(base).keys() & texts_of(head).keys():
        return f"{upgraded}, same code"
    return f"{upgraded}, no changed line of the program known"


def _versions(fact: m.ChangedFact) -> str:
    """Without the build, where the version tells them apart; a compiler by its name alone."""
    if fact.name == "C++ compiler":
        return "another C++ compiler"
    one, other = (side.partition("+")[0] for side in (fact.base, fact.head))
    if one == other:
        return f"{fact.name} {fact.base} -> {fact.head}"
    return f"{fact.name} {one} -> {other}"


def told_apart(runs: Sequence[m.RunComparison], changed: Sequence[ChangedLine]) -> str:
    """Where the program changed too: how much of what differs shows where; empty where it did
    not, or the work is the same."""
    works = [run.work for run in runs if isinstance(run.work, m.ComparedWork)]
    places = [each.location for work in works for each in work.differences if each.location]
    if not changed or not places:
        return ""
    at = sum(_is_changed(place, changed) for place in places)
    return (
        f"the environment and the program changed: {at} of {plural(len(places), 'difference')} "
        "with a line show at a changed one, and either may be why; the same code with both "
        "interpreters (`--record . .`) tells them apart"
    )


def _is_changed(place: m.Location, changed: Sequence[ChangedLine]) -> bool:
    lines = [line.place for line in changed]
    return any(place.line == line.line and place.file.endswith(line.file) for line in lines)


# ---------------------------------------------------------------- what changed with torch


def defaults(base: m.Profile, head: m.Profile) -> Iterator[m.ChangedFact]:
    """Settings and decompositions; first those that both sides have."""
    before = base.environment.defaults
    after = head.environment.defaults
    names = [*(name for name in before if name in after), *sorted({*before} ^ {*after})]
    for name in names:
        was = before.get(name, _ABSENT)
        now = after.get(name, _ABSENT)
        if was != now:
            yield m.ChangedFact(name, was, now)


def causes(
    found: Sequence[m.ChangedFact], base: m.Profile, runs: Sequence[m.RunReport]
) -> Iterator[m.Cause]:
    """What may be why the work differs; ``runs``: head's."""
    settings = [fact for fact in found if _ABSENT not in (fact.base, fact.head)]
    if base.device == "cpu":
        settings = [fact for fact in settings if not any(card in fact.name for card in _OF_CARDS)]
    named = [f"{fact.name} {fact.base} -> {fact.head}" for fact in settings]
    if len(named) == 1:
        yield _cause(m.CauseKind.SETTING, f"a default of torch's is another one: {named[0]}")
    elif named:
        text = "; ".join(named[:_NAMED])
        more = clause("; and ", f"{len(named) - _NAMED} more" * (len(named) > _NAMED))
        text = f"{len(named)} defaults of torch's are others, and may be why: {text}{more}"
        yield _cause(m.CauseKind.SETTING, text)
    before = {run.key: run for run in base.runs}
    pairs = [(before[run.key], run) for run in runs if run.key in before]
    called = " ".join(text for pair in pairs for side in pair for text in _texts(side))
    for fact in found:
        operator = _OPERATOR.match(fact.name)
        if operator and re.search(rf"(?<![a-z]){operator[1]}(?![a-z])", called):
            yield _cause(m.CauseKind.SETTING, f"{fact.name}: {fact.base} -> {fact.head}")
    for one, other in pairs:
        was = _passes(one)
        now = _passes(other)
        differing = [
            f"{name} {was.get(name, 0):,} -> {now.get(name, 0):,}"
            for name in {**was, **now}
            if was.get(name, 0) != now.get(name, 0)
        ]
        if differing:
            text = f"Inductor's passes did other work: {'; '.join(differing)}"
            yield _cause(m.CauseKind.COMPILE, text, other.key)


def _cause(kind: m.CauseKind, text: str, run: m.RunKey | None = None) -> m.Cause:
    return m.Cause(cause=kind, run=run, text=text, explains_us=CLOCKLESS)


@m.otherwise(())
def _texts(side: m.RunReport) -> tuple[str, ...]:
    return tuple(item.text for item in m.known(side.work).items)


@m.otherwise({})
def _passes(side: m.RunReport) -> Mapping[str, int]:
    return dict(m.known(side.work).passes)
