"""Two interpreters that were given on purpose (`compare --record --python A --python B`): what was
upgraded, and what of torch itself changed with it."""

import re
from collections.abc import Iterable, Iterator, Sequence

from kgprof import model as m
from kgprof.compare.causes import CLOCKLESS
from kgprof.compare.changes import ChangedLine, texts_of
from kgprof.wording import and_more, plural

ABSENT = "not there"
_SAID = ("torch", "Python")
_ON_A_CARD = ("triton", "CUDA")
# settings that change no code, and overloads of an operator that no compiled graph has
_NO_CODE = (
    r"_(?:dir|path|root|threads)$|ignore|(?:ductor|dynamo|torch)\._|\.trace\.|\.test_|TESTING"
    r"|[Nn]ame|[._]out$"
)
# and settings that only another kind of device reads
_UNREAD = {
    "cpu": re.compile(
        f"{_NO_CODE}|triton|cuda|cutlass|rocm|xpu|mtia|nvgemm|_bw|scatter|distributed"
    ),
    "cuda": re.compile(rf"{_NO_CODE}|\.cpp\."),
}
BOTH = (
    "the program changed as well, and either may be why; the same code with both interpreters "
    "(`--record . .`) shows what the environment does"
)
_NAMED = 4  # settings in one sentence
_OPERATOR = re.compile(r"decomposition of \w+\.(\w+)")


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
    names = _SAID if head.device == "cpu" else (*_SAID, *_ON_A_CARD)
    said = [_versions(fact) for fact in environment if fact.name in names]
    code = "no changed line of the program known"
    if changed:
        code = f"and {plural(len(changed), 'changed line')} of the program"
    elif texts_of(base).keys() & texts_of(head).keys():
        code = "same code"
    return f"{', '.join(said) or 'another interpreter with the same versions'}, {code}"


def _versions(fact: m.ChangedFact) -> str:
    """Without the build, where the version tells them apart."""
    sides = fact.base, fact.head
    short = [side.partition("+")[0] for side in sides]
    return f"{fact.name} {' -> '.join(short if len({*short}) > 1 else sides)}"


def causes(
    defaults: Sequence[m.ChangedFact], passes: Sequence[m.ChangedFact], items: Sequence[m.WorkItem]
) -> Iterator[m.Cause]:
    """What may be why the work differs. ``items``: of all runs of both sides."""
    settings = [fact for fact in defaults if ABSENT not in (fact.base, fact.head)]
    what = "a default of torch's is another one"
    if len(settings) > 1:
        what = f"{len(settings)} defaults of torch's are others, and may be why"
    yield from _told(what, settings)
    text = " ".join(item.text for item in items)
    used = []
    for fact in defaults:
        operator = _OPERATOR.match(fact.name)
        if operator and re.search(rf"(?<![a-z]){operator[1]}(?![a-z])", text):
            used.append(fact)
    yield from _told("Inductor decomposes other operators", used)
    yield from _told("Inductor's passes did other work", passes)


def of_the_device(defaults: Iterable[m.ChangedFact], device: str) -> tuple[m.ChangedFact, ...]:
    """Without what changes no code there."""
    return tuple(fact for fact in defaults if not _UNREAD[device].search(fact.name))


def _told(what: str, facts: Sequence[m.ChangedFact]) -> Iterator[m.Cause]:
    if facts:
        named = "; ".join(f"{each.name} {each.base} -> {each.head}" for each in facts[:_NAMED])
        said = f"{what}: {named}{and_more(facts, _NAMED)}"
        yield m.Cause(cause=m.CauseKind.SETTING, text=said, explains_us=CLOCKLESS)
