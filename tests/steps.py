"""Counts the steps of a search, as a backtracking engine takes them; a step is a character looked
at or a way tried."""

import re
import re._constants as c
import re._parser as parser  # type: ignore[import-not-found]
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.rescans import LONG, neighbours, one_character

Then = Callable[[int], int]
# from a place, with what has to follow: where the match ends, or NO_MATCH
Try = Callable[[int, Then], int]
NO_MATCH = -1
SHORTENED = 8


class TooManyStepsError(Exception):
    """The search was given up."""


@contextmanager
def _deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(200_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


class Search:
    """An expression, parsed once for all texts; a search is given up after ``most`` steps."""

    def __init__(self, expression: re.Pattern[Any], most: int) -> None:
        self.text, self.most, self.steps = "", most, 0
        self.groups: dict[int, tuple[int, int]] = {}
        tree = parser.parse(expression.pattern, expression.flags & ~re.DEBUG)
        self.whole = self._chain(list(tree), expression.flags)

    def counted(self, text: str) -> int:
        """Returns the steps of finding every match in the text, at most ``most``."""
        self.text, self.steps = text, 0
        with _deep_recursion(), suppress(TooManyStepsError):
            self._find_all()
        return self.steps

    def _find_all(self) -> None:
        at = 0
        while at <= len(self.text):
            self.groups.clear()
            end = self.whole(at, lambda place: place)
            at = max(end, at + 1)

    def _step(self) -> None:
        self.steps += 1
        if self.steps >= self.most:
            raise TooManyStepsError

    def _chain(self, items: list[Any], flags: int) -> Try:
        if not items:
            return lambda at, then: then(at)
        first = self._item(*items[0], flags)
        if len(items) == 1:
            return first
        rest = self._chain(items[1:], flags)
        return lambda at, then: first(at, lambda place: rest(place, then))

    def _item(self, op: Any, value: Any, flags: int) -> Try:
        if test := one_character(op, value, flags):
            return self._read(test)
        if op is c.BRANCH:
            return self._branch([self._chain(list(branch), flags) for branch in value[1]])
        if op is c.SUBPATTERN:
            group, more, fewer, items = value
            return self._group(group, self._chain(list(items), (flags | more) & ~fewer))
        if op is c.ATOMIC_GROUP:
            return self._atomic(self._chain(list(value), flags))
        if op in (c.MAX_REPEAT, c.MIN_REPEAT):
            return self._repeat(value, flags, greedy=op is c.MAX_REPEAT)
        if op is c.POSSESSIVE_REPEAT:
            return self._atomic(self._repeat(value, flags, greedy=True))
        if op is c.GROUPREF:
            return self._again(value)
        if op is c.GROUPREF_EXISTS:
            group, *branches = value
            taken, other = (self._chain(list(branch or []), flags) for branch in branches)
            return lambda at, then: taken(at, then) if group in self.groups else other(at, then)
        if op is c.AT:
            allowed = neighbours(value, flags)
            return lambda at, then: (
                then(at) if allowed(self._at(at - 1), self._at(at)) else NO_MATCH
            )
        if op in (c.ASSERT, c.ASSERT_NOT):
            return self._look(value[0] < 0, value[1], flags, wanted=op is c.ASSERT)
        raise NotImplementedError(op)

    def _at(self, place: int) -> str:
        return self.text[place] if 0 <= place < len(self.text) else ""

    def _read(self, test: Callable[[str], bool]) -> Try:
        def read(at: int, then: Then) -> int:
            self._step()
            return then(at + 1) if at < len(self.text) and test(self.text[at]) else NO_MATCH

        return read

    def _branch(self, branches: list[Try]) -> Try:
        def branch(at: int, then: Then) -> int:
            for way in branches:
                if (end := way(at, then)) != NO_MATCH:
                    return end
            return NO_MATCH

        return branch

    def _group(self, group: int | None, inside: Try) -> Try:
        if group is None:
            return inside

        def captured(at: int, then: Then) -> int:
            before = self.groups.get(group)

            def close(place: int) -> int:
                self.groups[group] = (at, place)
                return then(place)

            end = inside(at, close)
            if end == NO_MATCH:
                self.groups.pop(group, None)
                if before is not None:
                    self.groups[group] = before
            return end

        return captured

    def _atomic(self, inside: Try) -> Try:
        def atomic(at: int, then: Then) -> int:
            end = inside(at, lambda place: place)
            return NO_MATCH if end == NO_MATCH else then(end)

        return atomic

    def _again(self, group: int) -> Try:
        def again(at: int, then: Then) -> int:
            self._step()
            if group not in self.groups:
                return NO_MATCH
            first, last = self.groups[group]
            known = self.text[first:last]
            return then(at + len(known)) if self.text.startswith(known, at) else NO_MATCH

        return again

    def _look(self, behind: bool, items: Any, flags: int, *, wanted: bool) -> Try:
        inside, width = self._chain(list(items), flags), items.getwidth()[0]

        def look(at: int, then: Then) -> int:
            start = at - width if behind else at
            seen = start >= 0 and inside(start, lambda place: place) != NO_MATCH
            return then(at) if seen == wanted else NO_MATCH

        return look

    def _repeat(self, value: Any, flags: int, *, greedy: bool) -> Try:
        least, most, items = value
        # a text as short as this one does not show where such a limit ends the reading
        if most <= LONG:
            most = max(least, min(most, SHORTENED))
        if len(items) == 1 and greedy and (test := one_character(*items[0], flags)):
            return self._run(test, least, most)
        inside = self._chain(list(items), flags)

        def repeat(at: int, then: Then, done: int = 0) -> int:
            self._step()

            def once_more() -> int:
                if done >= most:
                    return NO_MATCH
                return inside(
                    at, lambda place: NO_MATCH if place == at else repeat(place, then, done + 1)
                )

            if greedy and (end := once_more()) != NO_MATCH:
                return end
            if done >= least and (end := then(at)) != NO_MATCH:
                return end
            return NO_MATCH if greedy else once_more()

        return repeat

    def _run(self, test: Callable[[str], bool], least: int, most: int) -> Try:
        def run(at: int, then: Then) -> int:
            last = at
            while last - at < most and last < len(self.text) and test(self.text[last]):
                self._step()
                last += 1
            for place in range(last, at + least - 1, -1):
                self._step()
                if (end := then(place)) != NO_MATCH:
                    return end
            return NO_MATCH

        return run
