"""Reads marks out of the comments of planted faults: what both corpora have in common. No torch, no
program runs.

A mark is ``WORD field=value ... [condition, ...]``; several on one line are separated by ``;``.
Which words and fields there are is a corpus' own Grammar.
"""

from __future__ import annotations

import ast
import operator
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_COMPARISONS = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_MARK = re.compile(
    r"(?P<word>KGP\d{3}|note=[a-z]+)(?P<fields>(?: [a-z]+=[^ ;\[\]]+)*)(?: \[(?P<where>[^]]+)\])?"
)
_CONDITION = re.compile(
    r"(?P<subject>torch|python)(?P<comparison><=|>=|==|<|>)(?P<version>\d+(?:\.\d+)*)"
)
DEVICES = ("cpu", "cuda")


class MarkError(ValueError):
    """A mark that cannot be read; the message starts with file:line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """``torch<2.13`` or ``cuda``: the mark counts only there. A device has neither comparison nor
    version."""

    subject: str
    comparison: str = ""
    version: tuple[int, ...] = ()

    def holds(self, versions: Mapping[str, tuple[int, ...]], device: str) -> bool:
        if self.subject in DEVICES:
            return self.subject == device
        actual = versions[self.subject][: len(self.version)]
        return bool(_COMPARISONS[self.comparison](actual, self.version))


def hold(conditions: tuple[Condition, ...], *, torch: str, python: str, device: str) -> bool:
    versions = {"torch": version(torch), "python": version(python)}
    return all(condition.holds(versions, device) for condition in conditions)


@dataclass(frozen=True, kw_only=True, slots=True)
class Grammar:
    """``fields_of``: word -> the fields it may have. ``resembles``: a comment that is meant to be a
    mark."""

    fields_of: Mapping[str, frozenset[str]]
    resembles: re.Pattern[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenMark:
    """One mark as it is written."""

    word: str
    text: str
    path: Path
    line: int
    fields: dict[str, str]
    conditions: tuple[Condition, ...]

    def error(self, why: object) -> MarkError:
        return MarkError(f"{self.path}:{self.line}: {self.text!r}: {why}")


def written_marks(path: Path, grammar: Grammar) -> Iterator[WrittenMark]:
    """The marks in one file, in the order of their lines. Raises MarkError."""
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type == tokenize.COMMENT and grammar.resembles.search(token.string):
                for text in token.string.removeprefix("#").split(";"):
                    yield _written(text.strip(), path, token.start[0], grammar)


def _written(text: str, path: Path, line: int, grammar: Grammar) -> WrittenMark:
    found = _MARK.fullmatch(text)
    if found is None:
        raise MarkError(f"{path}:{line}: {text!r} looks like a mark and is none")
    word = found["word"]
    pairs = [field.split("=", 1) for field in found["fields"].split()]
    fields = dict(pairs)
    known = word in grammar.fields_of and fields.keys() <= grammar.fields_of[word]
    if not known or len(fields) != len(pairs):
        raise MarkError(f"{path}:{line}: {text!r}: unknown rule or field, or a field twice")
    try:
        conditions = tuple(
            _condition(part.strip()) for part in (found["where"] or "").split(",") if part
        )
    except ValueError as error:
        raise MarkError(f"{path}:{line}: {text!r}: {error}") from error
    return WrittenMark(
        word=word, text=text, path=path, line=line, fields=fields, conditions=conditions
    )


def _condition(text: str) -> Condition:
    if text in DEVICES:
        return Condition(subject=text)
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no condition such as torch<2.13 or cuda")
    return Condition(
        subject=found["subject"], comparison=found["comparison"], version=version(found["version"])
    )


def version(text: str) -> tuple[int, ...]:
    """``2.13.0+cpu`` -> (2, 13, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0]))


def one_of(known: frozenset[str], word: str | None) -> str:
    """The word, an empty string for none. Raises ValueError for an unknown one."""
    if word is not None and word not in known:
        raise ValueError(f"{word!r} is none of {', '.join(sorted(known))}")
    return word or ""


def constant(tree: ast.Module, name: str, default: Any) -> Any:
    """What a program says at its top level, such as CALLS."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            return ast.literal_eval(node.value)
    return default
