"""Horn rules over binary predicates: their numbered form, and the two text forms they are read
from.

Numbered: predicates are ids (PAD, TRUE and FALSE come first), constants are ids from 1, and a
rule's variables are -1,
-2, ... by first occurrence, head before body. Text: ``r0:0.93:p(x,z), q(z,y) -> h(x,y)``, where one
  letter of either
case with optional digits is a variable and all else a constant (public rule files write
``p(X,Z)``); or Prolog, ``h(X,Y) :- p(X,Z), q(Z,Y).``, where an initial capital or ``_`` makes a
variable and ``_`` alone is a fresh one each time. Quotes make a constant of anything: ``'x'``,
``'New York'``, with ``''`` or ``\\'`` for a quote inside.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

T = TypeVar("T")
Atom = tuple[int, int, int]  # (predicate, first argument, second argument)

PAD = 0
TRUE = 1
FALSE = 2
FIRST_PREDICATE = 3

ARITY = 2


class MalformedTextError(ValueError):
    """A line does not follow its format; the reader of the file adds which file and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """``body -> head``. ``weight`` is the file's number, kept and not used by the search."""

    name: str
    weight: float
    head: Atom
    body: tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Term:
    """An argument as written. ``text`` has no quotes left; ``_`` alone has been given a name of its
    own."""

    text: str
    is_variable: bool


AtomText = tuple[str, Term, Term]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleText:
    """A rule as written, before predicates and constants have ids."""

    name: str
    weight: float
    head: AtomText
    body: tuple[AtomText, ...]

    @property
    def atoms(self) -> tuple[AtomText, ...]:
        return (self.head, *self.body)

    def numbered(self, predicates: Mapping[str, int], constants: Mapping[str, int]) -> Rule:
        """The rule with ids for names. Raises KeyError for a name that has none."""
        variables: dict[str, int] = {}

        def argument(term: Term) -> int:
            if not term.is_variable:
                return constants[term.text]
            return variables.setdefault(term.text, -1 - len(variables))

        head, *body = [
            (predicates[name], argument(first), argument(second))
            for name, first, second in self.atoms
        ]
        return Rule(name=self.name, weight=self.weight, head=head, body=tuple(body))


class RuleFormat(Enum):
    """The two forms of rules.txt; the value is what an error message shows as expected."""

    ARROW = "name:weight:p(x,z), q(z,y) -> h(x,y)"
    PROLOG = "h(X,Y) :- p(X,Z), q(Z,Y)."


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<quoted>'(?:[^'\\]|\\.|'')*')
    | (?P<neck>:-) | (?P<arrow>->) | (?P<open>\() | (?P<comma>,) | (?P<close>\))
    | (?P<end>\.(?=\s|%|$))
    | (?P<comment>%.*)
    | (?P<word>[^\s(),'"]+)
    )""",
    re.VERBOSE,
)
_ARROW_VARIABLE = re.compile(r"[A-Za-z][0-9]*", re.ASCII)
_ESCAPE = re.compile(r"\\(.)|''")
_END_OF_LINE = ("nothing", "the end of the line")


def rule_format(line: str) -> RuleFormat:
    """The form that ``line`` is written in. Raises MalformedTextError when it is neither."""
    kinds = [kind for kind, _ in _tokens(line, lenient=True)]
    if "neck" in kinds:
        return RuleFormat.PROLOG
    if "arrow" in kinds:
        return RuleFormat.ARROW
    if kinds and kinds[-1] == "end":
        raise MalformedTextError(f"a rule without a body; expected `{RuleFormat.PROLOG.value}`")
    raise MalformedTextError(
        f"expected a rule, `{RuleFormat.ARROW.value}` or `{RuleFormat.PROLOG.value}`"
    )


def parse_rule(line: str, form: RuleFormat, *, index: int = 0) -> RuleText:
    """One rule; ``index`` names a Prolog rule, which has no name of its own (and weight 1)."""
    if form is RuleFormat.ARROW:
        return _parse_arrow(line)
    reader = _AtomReader(line, _is_prolog_variable)
    head = reader.atom()
    reader.expect("neck", "`:-` after the head")
    if reader.at("end"):
        raise MalformedTextError("a rule without a body; expected `h(X,Y) :- p(X,Z), q(Z,Y).`")
    body = reader.listed(reader.atom)
    reader.expect("end", "`.` after the body")
    reader.expect_nothing()
    return RuleText(name=f"r{index}", weight=1.0, head=head, body=body)


def parse_fact(line: str) -> tuple[str, str, str]:
    """``p(a,b).`` as (head, relation, tail) texts. A variable is an error: a fact is ground."""
    atoms = _AtomReader(line, _is_prolog_variable)
    name, first, second = atoms.atom()
    atoms.expect("end", "`.` after the fact")
    atoms.expect_nothing()
    for term in (first, second):
        if term.is_variable:
            hint = f"a fact needs constants; quote it: '{term.text}'"
            raise MalformedTextError(f"{term.text!r} is a Prolog variable, {hint}")
    return first.text, name, second.text


def _parse_arrow(line: str) -> RuleText:
    parts = [part.strip() for part in line.split(":", 2)]
    if len(parts) < 3 or not parts[0]:
        raise MalformedTextError(
            f"expected `{RuleFormat.ARROW.value}`, a name and a weight before the body"
        )
    name, number, clause = parts
    try:
        weight = float(number)
    except ValueError:
        raise MalformedTextError(
            f"expected a number as the rule's weight, found {number!r}"
        ) from None
    if not math.isfinite(weight) or weight < 0:
        raise MalformedTextError(f"expected a finite weight that is not negative, found {number!r}")
    reader = _AtomReader(clause, lambda word: _ARROW_VARIABLE.fullmatch(word) is not None)
    if reader.at("arrow"):
        raise MalformedTextError(
            "a rule without a body; expected `name:weight:p(x,z), q(z,y) -> h(x,y)`"
        )
    body = reader.listed(reader.atom)
    reader.expect("arrow", "`->` after the body")
    head = reader.atom()
    reader.expect_nothing()
    return RuleText(name=name, weight=weight, head=head, body=body)


def _is_prolog_variable(word: str) -> bool:
    return word[0] == "_" or word[0].isupper() or word[0].istitle()


def _tokens(text: str, *, lenient: bool = False) -> Iterator[tuple[str, str]]:
    """(kind, text) of each token; a comment ends the line. ``lenient`` stops at what is no token
    instead of raising."""
    text = text.rstrip()
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            if lenient:
                return
            raise MalformedTextError(
                f"expected a name or a closed quote at {text[position:].strip()[:20]!r}"
            )
        position = match.end()
        assert match.lastgroup is not None
        if match.lastgroup != "comment":
            yield match.lastgroup, match[match.lastgroup]


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1] or "'"
    if escaped not in ("'", "\\"):
        raise MalformedTextError(f"expected \\' or \\\\ after the backslash, found {match[0]!r}")
    return escaped


class _AtomReader:
    """Reads atoms off one line, one token of look-ahead."""

    def __init__(self, text: str, is_variable: Callable[[str], bool]) -> None:
        self._is_variable = is_variable
        self._tokens = [*_tokens(text), _END_OF_LINE]
        self._next = 0
        self._anonymous = 0

    def at(self, kind: str) -> bool:
        return self._tokens[self._next][0] == kind

    def expect(self, kind: str, meaning: str) -> str:
        found = self._tokens[self._next][1]
        if not self.at(kind):
            raise MalformedTextError(f"expected {meaning}, found {found!r}")
        self._next += 1
        return found

    def expect_nothing(self) -> None:
        token = self._tokens[self._next]
        if token != _END_OF_LINE:
            raise MalformedTextError(
                f"expected one clause on a line, found {token[1]!r} after its end"
            )

    def listed(self, read: Callable[[], T]) -> tuple[T, ...]:
        """One or more of what ``read`` reads, with commas between them."""
        found = [read()]
        while self.at("comma"):
            self._next += 1
            found.append(read())
        return tuple(found)

    def atom(self) -> AtomText:
        name = self._name("a predicate")
        self.expect("open", f"`(` after {name!r}")
        terms = self.listed(self._term)
        self.expect("close", f"`)` after the arguments of {name!r}")
        if len(terms) != ARITY:
            raise MalformedTextError(f"expected two arguments of {name!r}, found {len(terms)}")
        return name, terms[0], terms[1]

    def _term(self) -> Term:
        is_variable = self.at("word")  # a quoted one is a constant
        text = self._name("an argument")
        is_variable = is_variable and self._is_variable(text)
        if is_variable and text == "_":
            self._anonymous += 1
            text = f"_ {self._anonymous}"  # the space keeps it apart from any written name
        return Term(text, is_variable)

    def _name(self, meaning: str) -> str:
        if self.at("quoted"):
            text = _ESCAPE.sub(_unescaped, self.expect("quoted", meaning)[1:-1])
            if not text:
                raise MalformedTextError(f"expected {meaning}, found an empty quoted name")
            return text
        return self.expect("word", meaning)
