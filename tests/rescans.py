"""Finds regular expressions that read a run of text again from each of its characters.

A search for ``[0-9]+x`` in "000...0" reads to the end from the first zero, fails, and begins again
at the second zero: time grows with the square of the length. An expression does so when some word
both leads from its start to a loop and goes once around that loop. ``rescanned`` looks for such a
word in the parsed expression:

    expression ── re._parser ──► _Automaton: one state per set of characters, edges with conditions
    on neighbours
               ── words ──► words that lead to a loop and around it
               ── steps.Search ──► words of which four times as many take more than ``GROWTH`` times the steps

No clock is read.
"""  # noqa: E501

import functools
import itertools
import re
import re._constants as c
import re._parser as parser  # type: ignore[import-not-found]
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

# A repetition with a higher limit takes as long as one without; those below are read again at most
# so many times.
LONG = 1024
REPEATED = 12
ENDS = 3
# Four times the text takes 4 times the steps if each character is read once, and up to 16 times if
# not.
GROWTH = 8
MOST_STEPS = 300_000
_MOST_VISITED = 100_000
_ALPHABET = "".join(map(chr, range(128))) + "\u00e9\u0661\u4e16\u00a0\u2502\u2192\u200b\ufeff"

Test = Callable[[str], bool]
# the state that follows, and the pairs of neighbours between which that is so
Edges = dict[int, int]


def rescanned(expression: re.Pattern[Any]) -> str | None:
    """Returns a word of which ``expression`` reads a long repetition again and again, or None."""
    from tests.steps import Search

    search = Search(expression, MOST_STEPS)
    automaton = _Automaton(expression)
    for word in sorted({_first_rotation(word) for word in automaton.words()}, key=len):
        for end in itertools.islice(_uncovered(expression, word, automaton.classes), ENDS):
            few = search.counted(word * REPEATED + end)
            many = search.counted(word * REPEATED * 4 + end)
            if many == MOST_STEPS or many > GROWTH * few:
                return word
    return None


def _first_rotation(word: str) -> str:
    return min(word[at:] + word[:at] for at in range(len(word)))


def _uncovered(expression: re.Pattern[Any], word: str, ends: list[str]) -> Iterator[str]:
    """Yields ends before which the first match does not cover at least half of the repeated
    word."""
    pairs = ("".join(pair) for pair in itertools.product(ends, repeat=2))
    for end in ("", *ends, *pairs):
        text = word * 6 + end
        match = expression.search(text.encode() if isinstance(expression.pattern, bytes) else text)
        if match is None or match.start() > len(word) or match.end() < 3 * len(word):
            yield end


_CATEGORIES: dict[Any, Callable[[str, bool], bool]] = {
    c.CATEGORY_DIGIT: lambda character, plain: (
        character.isdigit() and (character.isascii() or not plain)
    ),
    c.CATEGORY_SPACE: lambda character, plain: (
        character.isspace() and (character.isascii() or not plain)
    ),
    c.CATEGORY_WORD: lambda character, plain: (
        _in_a_word(character) and (character.isascii() or not plain)
    ),
}
_NEGATED = {
    c.CATEGORY_NOT_DIGIT: c.CATEGORY_DIGIT,
    c.CATEGORY_NOT_SPACE: c.CATEGORY_SPACE,
    c.CATEGORY_NOT_WORD: c.CATEGORY_WORD,
}


def _in_a_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _in_category(category: Any, character: str, flags: int) -> bool:
    plain = bool(flags & re.ASCII) or not flags & re.UNICODE
    if category in _NEGATED:
        return not _CATEGORIES[_NEGATED[category]](character, plain)
    return _CATEGORIES[category](character, plain)


def one_character(op: Any, value: Any, flags: int) -> Test | None:
    """Returns what the parsed item says of one character; None if it is not about one."""
    if op is c.ANY:
        return lambda character: bool(flags & re.DOTALL) or character != "\n"
    if op is c.LITERAL:
        return _either_case(lambda character: ord(character) == value, flags)
    if op is c.NOT_LITERAL:
        equal = _either_case(lambda character: ord(character) == value, flags)
        return lambda character: not equal(character)
    if op is c.IN:
        return _of_a_set(value, flags)
    return None


def _of_a_set(items: list[tuple[Any, Any]], flags: int) -> Test:
    negated = items[0][0] is c.NEGATE

    def holds(character: str) -> bool:
        for op, value in items:
            if op is c.LITERAL and ord(character) == value:
                return True
            if op is c.RANGE and value[0] <= ord(character) <= value[1]:
                return True
            if op is c.CATEGORY and _in_category(value, character, flags):
                return True
        return False

    either = _either_case(holds, flags)
    return functools.cache(lambda character: either(character) != negated)


def _either_case(holds: Test, flags: int) -> Test:
    if not flags & re.IGNORECASE:
        return holds
    return lambda character: any(map(holds, {character, character.lower(), character.upper()[:1]}))


@dataclass
class _Automaton:
    """The states of an expression. State 0 is the start, state 1 the end; each other one reads a
    character.

    Characters are classes: those that no set of the expression tells apart are one. A condition is
    an integer with a bit for each pair (class before, class after); the last class stands for the
    edge of the text.
    """

    expression: re.Pattern[Any]
    sets: dict[int, frozenset[int]] = field(default_factory=dict)
    edges: dict[int, Edges] = field(default_factory=dict)
    classes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.flags = self.expression.flags
        self.alphabet = _ALPHABET + "".join(
            sorted(set(str(self.expression.pattern)) - set(_ALPHABET))
        )
        tree = parser.parse(self.expression.pattern, self.flags & ~re.DEBUG)
        tests = [_in_a_word, lambda character: character == "\n", *_tests_in(tree, self.flags)]
        signatures: dict[tuple[bool, ...], str] = {}
        for character in sorted(
            self.alphabet, key=lambda each: (not each.isalnum(), not each.isprintable())
        ):
            signatures.setdefault(tuple(test(character) for test in tests), character)
        self.classes = list(signatures.values())
        self.width = len(self.classes) + 1
        self.always = (1 << self.width * self.width) - 1
        self.groups: dict[int, Any] = {}
        self._free: dict[int, Edges] = {}
        self._count = 2
        self._chain(tree, 0, 1, self.flags)
        self._remove_free_edges()

    # ------------------------------------------------ from the parsed expression

    def _new(self) -> int:
        self._count += 1
        return self._count - 1

    def _join(self, before: int, after: int, condition: int | None = None) -> None:
        free = self._free.setdefault(before, {})
        free[after] = free.get(after, 0) | (self.always if condition is None else condition)

    def _chain(self, items: Any, before: int, after: int, flags: int) -> None:
        """Puts the items one behind the other between two states."""
        at = before
        for op, value in items:
            following = self._new()
            self._item(op, value, at, following, flags)
            at = following
        self._join(at, after)

    def _item(self, op: Any, value: Any, before: int, after: int, flags: int) -> None:
        if test := one_character(op, value, flags):
            self._read(test, before, after)
        elif op is c.BRANCH:
            for branch in value[1]:
                self._chain(branch, before, after, flags)
        elif op is c.SUBPATTERN:
            group, more, fewer, items = value
            self.groups[group] = items
            self._chain(items, before, after, (flags | more) & ~fewer)
        elif op is c.ATOMIC_GROUP:
            self._chain(value, before, after, flags)
        elif op in (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT):
            self._repeat(value, before, after, flags)
        elif op is c.GROUPREF:
            self._chain(self.groups[value], before, after, flags)
        elif op is c.GROUPREF_EXISTS:
            for branch in value[1:]:
                self._chain(branch or [], before, after, flags)
        elif op is c.AT:
            self._join(before, after, self._pairs(neighbours(value, flags)))
        elif op in (c.ASSERT, c.ASSERT_NOT):
            self._look(op is c.ASSERT_NOT, value[0] < 0, value[1], before, after, flags)
        else:
            raise NotImplementedError(f"{op} in {self.expression.pattern!r}")

    def _read(self, test: Test, before: int, after: int) -> None:
        state = self._new()
        self.sets[state] = frozenset(
            i for i, character in enumerate(self.classes) if test(character)
        )
        self._join(before, state)
        self._join(state, after)

    def _repeat(self, value: Any, before: int, after: int, flags: int) -> None:
        least, most, items = value
        inside, end = self._new(), self._new()
        self._join(before, inside)
        self._chain(items, inside, end, flags)
        self._join(end, after)
        if most > LONG:
            self._join(end, inside)
        if least == 0:
            self._join(before, after)

    def _look(
        self, negated: bool, behind: bool, items: Any, before: int, after: int, flags: int
    ) -> None:
        """Adds a condition if a look at one character is asked for. A longer look ahead is read and
        leads nowhere."""
        branches = [[item] for item in items]
        if len(items) == 1 and items[0][0] is c.BRANCH:
            branches = [list(branch) for branch in items[0][1][1]]
        tests = [
            one_character(*branch[0], flags)
            for branch in branches
            if len(branch) == 1 and len(items) == 1
        ]
        if len(tests) == len(branches) and all(tests):

            def allowed(one: str, two: str) -> bool:
                character = one if behind else two
                return any(test(character) for test in tests if test and character) != negated

            self._join(before, after, self._pairs(allowed))
            return
        if behind and not negated and (test := one_character(*items[-1], flags)):
            self._join(before, after, self._pairs(lambda one, _: bool(one) and test(one)))
            return
        if not behind:
            self._chain(items, before, self._new(), flags)
        self._join(before, after)

    def _pairs(self, allowed: Callable[[str, str], bool]) -> int:
        characters, condition = [*self.classes, ""], 0
        for i, one in enumerate(characters):
            for j, two in enumerate(characters):
                condition |= allowed(one, two) << i * self.width + j
        return condition

    def _remove_free_edges(self) -> None:
        """Leaves edges between states that read, each with the condition of the way between
        them."""
        for state in (0, *self.sets):
            reached: Edges = {}
            queue = deque(self._free.get(state, {}).items())
            while queue:
                at, condition = queue.popleft()
                grown = reached.get(at, 0) | condition
                if not condition or grown == reached.get(at):
                    continue
                reached[at] = grown
                if at not in self.sets:
                    queue.extend(
                        (then, grown & more) for then, more in self._free.get(at, {}).items()
                    )
            self.edges[state] = {
                at: condition for at, condition in reached.items() if at in self.sets
            }

    # ------------------------------------------------ words

    def words(self) -> Iterator[str]:
        """Yields words that lead from the start to a state and from that state back to it."""
        around = self._around()
        for state, circle in around.items():
            for first in sorted(self.sets[state]):
                word = self._word(state, first, circle)
                if word:
                    yield word

    def _around(self) -> dict[int, frozenset[int]]:
        """For each state on a loop, the states of its loops."""
        reach: dict[int, set[int]] = {}
        for state in self.sets:
            seen: set[int] = set()
            stack = list(self.edges[state])
            while stack:
                at = stack.pop()
                if at not in seen:
                    seen.add(at)
                    stack.extend(self.edges[at])
            reach[state] = seen
        return {
            state: frozenset(at for at in seen if state in reach[at])
            for state, seen in reach.items()
            if state in seen
        }

    def _word(self, state: int, last: int, circle: frozenset[int]) -> str:
        """Two readers read the same word: one from the start, one around the loop; both end in
        ``state``.

        The word before it was the same, so that both begin behind its last character.
        """
        target = (state, state, last)
        came: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        queue = deque([(0, state, last)])
        while queue and len(came) < _MOST_VISITED:
            here = one, two, before = queue.popleft()
            for then_one, condition_one in self.edges[one].items():
                for then_two, condition_two in self.edges[two].items():
                    if then_two not in circle:
                        continue
                    both = condition_one & condition_two
                    for read in self.sets[then_one] & self.sets[then_two]:
                        then = (then_one, then_two, read)
                        if then not in came and both >> before * self.width + read & 1:
                            came[then] = here
                            queue.append(then)
                            if then == target:
                                return self._spelled(came, target)
        return ""

    def _spelled(
        self, came: dict[tuple[int, int, int], tuple[int, int, int]], target: tuple[int, int, int]
    ) -> str:
        word, at = "", target
        while at[0] != 0:
            word = self.classes[at[2]] + word
            at = came[at]
        return word


def neighbours(at: Any, flags: int) -> Callable[[str, str], bool]:
    """Returns which characters may stand before and after ``^``, ``$``, ``\\b`` and the like; "" is the text's edge."""  # noqa: E501
    lines = bool(flags & re.MULTILINE)
    return {
        c.AT_BEGINNING: lambda one, _: one == "" or (lines and one == "\n"),
        c.AT_BEGINNING_STRING: lambda one, _: one == "",
        c.AT_END: lambda _, two: two in ("", "\n"),
        c.AT_END_STRING: lambda _, two: two == "",
        c.AT_BOUNDARY: lambda one, two: _in_a_word(one) != _in_a_word(two),
        c.AT_NON_BOUNDARY: lambda one, two: _in_a_word(one) == _in_a_word(two),
    }[at]


def _tests_in(items: Any, flags: int) -> Iterator[Test]:
    """Yields what the expression says of single characters, at any depth."""
    for op, value in items:
        if test := one_character(op, value, flags):
            yield test
        elif op is c.BRANCH:
            for branch in value[1]:
                yield from _tests_in(branch, flags)
        elif op is c.SUBPATTERN:
            yield from _tests_in(value[3], (flags | value[1]) & ~value[2])
        elif op is c.ATOMIC_GROUP:
            yield from _tests_in(value, flags)
        elif op in (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT):
            yield from _tests_in(value[2], flags)
        elif op is c.GROUPREF_EXISTS:
            for branch in value[1:]:
                yield from _tests_in(branch or [], flags)
        elif op in (c.ASSERT, c.ASSERT_NOT):
            yield from _tests_in(value[1], flags)
