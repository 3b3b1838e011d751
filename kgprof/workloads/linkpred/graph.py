"""A knowledge graph with rules, and the directory it is read from.

``train.txt``, ``test.txt`` and, where present, ``valid.txt`` hold one triple a line, either
tab-separated (``head<TAB>relation<TAB>tail``) or as a Prolog fact (``relation(head,tail).``); each
file is wholly one or the other. ``rules.txt`` holds one rule a line (see rules.py),
``domain2constants.txt`` a domain a line with its constants. UTF-8; names are text, so ``06845599``
keeps its zero; blanks around a name do not belong to it. Blank lines are passed over, and so are
comments, lines that begin with ``%`` or ``#``. In a tab-separated file such a line with a tab in it
might be meant as a triple: that is an error, and the Prolog form, where names can be quoted, is the
way to write it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from kgprof.errors import InputError
from kgprof.wording import and_more
from kgprof.workloads.linkpred.arrays import Ints
from kgprof.workloads.linkpred.rules import (
    FALSE,
    FIRST_PREDICATE,
    PAD,
    TRUE,
    Atom,
    MalformedTextError,
    Rule,
    RuleFormat,
    RuleText,
    parse_fact,
    parse_rule,
    rule_format,
)

__all__ = [
    "FALSE",
    "FIRST_PREDICATE",
    "PAD",
    "TRUE",
    "Atom",
    "KnowledgeGraph",
    "Rule",
    "build",
    "load_directory",
]

Triple = tuple[str, str, str]  # (head, relation, tail)

COMMENT_MARKS = ("%", "#")


@dataclass(frozen=True, kw_only=True, eq=False)
class KnowledgeGraph:
    """Facts and rules with ids for names. Ids follow the names' order, so they do not depend on the
    files' order.

    ``train``, ``valid`` and ``test`` are int64 [n, 3] of (predicate, arg0, arg1): unique rows,
    sorted. ``notes`` say what a reader of the report should know about the input, such as
    duplicates that were counted once.
    """

    name: str
    predicates: tuple[str, ...]  # sorted; the id of the first is FIRST_PREDICATE
    constants: tuple[str, ...]  # sorted; the id of the first is 1
    train: Ints
    valid: Ints
    test: Ints
    rules: tuple[Rule, ...]  # in file order
    notes: tuple[str, ...] = ()
    # int64 [C + 1], the domain of each constant; corruptions stay within one
    domains: Ints | None = None

    def predicate_text(self, predicate: int) -> str:
        return self.predicates[predicate - FIRST_PREDICATE]

    def constant_text(self, constant: int) -> str:
        return self.constants[constant - 1]


def build(
    *,
    name: str,
    train: Iterable[Triple],
    test: Iterable[Triple],
    valid: Iterable[Triple] = (),
    rules: Sequence[RuleText] = (),
    notes: Sequence[str] = (),
) -> KnowledgeGraph:
    """A graph from triples (head, relation, tail) and rules in words. Triples given twice count
    once and are noted."""
    splits = {"train": list(train), "valid": list(valid), "test": list(test)}
    atoms = [atom for rule in rules for atom in rule.atoms]
    triples = [triple for split in splits.values() for triple in split]
    predicates = sorted({relation for _, relation, _ in triples} | {name for name, _, _ in atoms})
    named = {term.text for atom in atoms for term in atom[1:] if not term.is_variable}
    constants = sorted({text for head, _, tail in triples for text in (head, tail)} | named)
    predicate_ids = {text: number for number, text in enumerate(predicates, FIRST_PREDICATE)}
    constant_ids = {text: number for number, text in enumerate(constants, 1)}
    rows: dict[str, Ints] = {}
    for split, given in splits.items():
        ids = [
            (predicate_ids[relation], constant_ids[head], constant_ids[tail])
            for head, relation, tail in given
        ]
        rows[split] = np.unique(np.array(ids, dtype=np.int64).reshape(-1, 3), axis=0)
    numbered = tuple(rule.numbered(predicate_ids, constant_ids) for rule in rules)
    return KnowledgeGraph(
        name=name,
        predicates=tuple(predicates),
        constants=tuple(constants),
        **rows,
        rules=numbered,
        notes=(*_notes(splits, rows, numbered), *notes),
    )


def _notes(
    splits: Mapping[str, list[Triple]], rows: Mapping[str, Ints], rules: Sequence[Rule]
) -> Iterator[str]:
    for split, triples in splits.items():
        if len(triples) > len(rows[split]):
            yield f"{split}: {len(triples) - len(rows[split])} duplicate triples counted once"
    repeated = len(rules) - len({(rule.head, rule.body) for rule in rules})
    if repeated:
        yield f"rules: {repeated} repeat an earlier one; all are kept"
    train_and_test = np.concatenate([rows["train"], rows["test"]])
    both = len(train_and_test) - len(np.unique(train_and_test, axis=0))
    if both:
        yield (
            f"test: {both} triples are also facts of train; a triple is not used as a "
            "fact in its own proof"
        )


def load_directory(path: Path) -> KnowledgeGraph:
    """The graph in ``path``. Raises InputError with file and line where a file is missing or a line
    malformed."""
    if not path.is_dir():
        state = "is not a directory" if path.exists() else "no such directory"
        raise InputError(f"{state}; expected one with train.txt and test.txt", path=path)
    train = _read_triples(path / "train.txt")
    test = _read_triples(path / "test.txt")
    valid = _read_triples(path / "valid.txt") if (path / "valid.txt").exists() else []
    held = {text for head, _, tail in (*train, *test, *valid) for text in (head, tail)}
    # Without a file of rules there are none, and whoever asked for the graph mines them.
    rules: list[RuleText] = []
    notes: list[str] = []
    if (path / "rules.txt").exists():
        rules, notes = _read_rules(path / "rules.txt", held)
    graph = build(
        name=path.resolve().name, train=train, test=test, valid=valid, rules=rules, notes=notes
    )
    domains = path / "domain2constants.txt"
    return replace(graph, domains=_read_domains(domains, graph)) if domains.exists() else graph


def _read_domains(path: Path, graph: KnowledgeGraph) -> Ints:
    """``domain constant constant ...`` on each line, apart by blanks; int64 [C + 1]. Names may be
    quoted."""
    numbers = {text: number for number, text in enumerate(graph.constants, 1)}
    domains: Ints = np.zeros(len(numbers) + 1, dtype=np.int64)
    with _located(path) as at:
        for domain, (at.line, line) in enumerate(_data_lines(_text(path)), start=1):
            name, *constants = _WORD.findall(line)
            if not constants:
                raise MalformedTextError(
                    f"expected `domain constant constant ...`, found {name!r} alone"
                )
            for word in constants:
                text = word[1:-1] if word[0] == "'" else word
                number = numbers.get(text, 0)  # it may list constants that this graph does not hold
                if number and domains[number] not in (0, domain):
                    raise MalformedTextError(f"{text!r} is in a domain already; a constant has one")
                if number:
                    domains[number] = domain
        if missing := [text for text, number in numbers.items() if not domains[number]]:
            raise MalformedTextError(
                f"{missing[0]!r} is in no domain ({len(missing)} of {len(numbers)} constants)"
            )
    return domains


_WORD = re.compile(r"'[^']*'|\S+")


def _read_rules(path: Path, held: Set[str]) -> tuple[list[RuleText], list[str]]:
    """The rules, and notes about those that may not mean what they say; ``held``: the constants of
    the triples."""
    lines = _data_lines(_text(path))
    if not lines:
        raise InputError("no rule found; expected at least one", path=path)
    with _located(path) as at:
        at.line, first = lines[0]
        form = rule_format(first)
        rules: list[RuleText] = []
        unknown: list[str] = []
        ground: list[str] = []
        for at.line, line in lines:
            if rule_format(line) is not form:
                wanted = f"expected `{form.value}` as on line {lines[0][0]}"
                raise MalformedTextError(f"{wanted}; a file holds one form of rules, not both")
            rules.append(rule := parse_rule(line, form, index=len(rules)))
            terms = {term for atom in rule.atoms for term in atom[1:]}
            for term in sorted(terms, key=lambda term: term.text):
                if term.is_variable and term.text in held and form is RuleFormat.ARROW:
                    raise MalformedTextError(
                        f"{term.text!r} reads as a variable, and a triple holds it as a constant; "
                        f"quote it for the constant ('{term.text}'), or give the variable another "
                        "letter"
                    )
                if not term.is_variable and term.text not in held:
                    unknown.append(f"line {at.line} names {term.text!r}")
            if not any(term.is_variable for term in terms):
                ground.append(f"line {at.line}")
    notes = []
    if unknown:
        notes.append(f"{path.name}: constants that no triple holds: {_first(unknown)}")
    if ground:
        notes.append(f"{path.name}: rules without a variable: {_first(ground)}")
    return rules, notes


def _first(places: Sequence[str], most: int = 3) -> str:
    return ", ".join(places[:most]) + and_more(places, most)


def _read_triples(path: Path) -> list[Triple]:
    lines = _data_lines(_text(path), keep=lambda comment: "\t" in comment)
    if not lines:
        raise InputError("no triple found; expected at least one", path=path)
    # The first line that is surely no comment shows the form.
    facts = [(number, line) for number, line in lines if not line.startswith(COMMENT_MARKS)]
    form_line, shown = (facts or lines)[0]
    form, other = TripleForm.COLUMNS, TripleForm.PROLOG
    if "\t" not in shown.strip() or _reads_as(shown, TripleForm.PROLOG):
        form, other = other, form
        lines = facts
    triples = []
    with _located(path) as at:
        for at.line, line in lines:
            try:
                triples.append(_READ[form](line))
            except MalformedTextError as error:
                if at.line == form_line or not _reads_as(line, other):
                    raise MalformedTextError(f"expected `{form.value}`: {error}") from None
                wanted = f"expected `{form.value}` as on line {form_line}, found `{other.value}`"
                raise MalformedTextError(f"{wanted}; a file holds one form, not both") from None
    return triples


class TripleForm(Enum):
    """The two forms of train.txt and its like; the value is what an error message shows as
    expected."""

    COLUMNS = "head<TAB>relation<TAB>tail"
    PROLOG = "relation(head,tail)."


def _reads_as(line: str, form: TripleForm) -> bool:
    try:
        _READ[form](line)
    except MalformedTextError:
        return False
    return True


_PLAIN_FACT = re.compile(r"(\w[^\s(),'\"]*)\(\s*(\w[^\s(),'\"]*)\s*,\s*(\w[^\s(),'\"]*)\s*\)\s*\.")


def _read_fact(line: str) -> Triple:
    """A Prolog fact: the common form by one regular expression, everything else (and every error)
    by the parser."""
    match = _PLAIN_FACT.fullmatch(line)
    if match is None or not all(
        match[name][0].isdigit() or match[name][0].islower() for name in (2, 3)
    ):
        return parse_fact(line)
    return match[2], match[1], match[3]


def _read_columns(line: str) -> Triple:
    if line.startswith(COMMENT_MARKS):
        quote = "a name that begins with % or # can be written in a file of Prolog facts, quoted"
        raise MalformedTextError(f"a comment, or a triple? A comment holds no tab; {quote}")
    columns = [column.strip() for column in line.split("\t")]
    if len(columns) != 3:
        raise MalformedTextError(f"found {len(columns)} column{'s' * (len(columns) > 1)}")
    if "" in columns:
        raise MalformedTextError(f"column {columns.index('') + 1} is empty")
    head, relation, tail = columns
    return head, relation, tail


_READ: dict[TripleForm, Callable[[str], Triple]] = {
    TripleForm.COLUMNS: _read_columns,
    TripleForm.PROLOG: _read_fact,
}


@contextmanager
def _located(path: Path) -> Iterator[SimpleNamespace]:
    """Turns a MalformedTextError into an InputError that says where; the body keeps ``line`` up to
    date."""
    place = SimpleNamespace(line=0)
    try:
        yield place
    except MalformedTextError as error:
        raise InputError(str(error), path=path, line=place.line) from None


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError("file not found", path=path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"expected UTF-8, found byte 0x{data[error.start]:02x}", path=path, line=line
        ) from None


def _data_lines(text: str, keep: Callable[[str], bool] = lambda _: False) -> list[tuple[int, str]]:
    """(number from 1, line) of the lines that are neither blank nor a comment, unless ``keep``
    wants the comment."""
    # Only "\n" ends a line: str.splitlines would also split at U+2028 and its like inside a name.
    lines = ((number, line.strip(" \r")) for number, line in enumerate(text.split("\n"), start=1))
    return [
        (n, line)
        for n, line in lines
        if line.strip() and (not line.startswith(COMMENT_MARKS) or keep(line))
    ]
