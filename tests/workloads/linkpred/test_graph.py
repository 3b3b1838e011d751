"""Graphs read from directories in either form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgprof.errors import EXIT_USAGE, InputError
from kgprof.render.html import directory
from kgprof.workloads.linkpred.graph import KnowledgeGraph, Triple, build, load_directory
from kgprof.workloads.linkpred.rules import Rule, RuleFormat, parse_rule

KG = Path(str(directory("fixtures"))) / "kg"

COLUMNS = {
    "train.txt": "a1\tp\tb1\n",
    "test.txt": "a1\tq\tb1\n",
    "rules.txt": "r0:1:p(x,y) -> q(x,y)\n",
}
PROLOG = {"train.txt": "p(a1,b1).\n", "test.txt": "q(a1,b1).\n", "rules.txt": "q(X,Y) :- p(X,Y).\n"}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a directory: the files of ``base``, those of ``changes`` (dots for underscores) over
    them."""

    def files(base: dict[str, str], **changes: str | bytes) -> Path:
        for name, content in {
            **base,
            **{key.replace("_", "."): value for key, value in changes.items()},
        }.items():
            (tmp_path / name).write_bytes(
                content if isinstance(content, bytes) else content.encode()
            )
        return tmp_path

    return files


def contents(graph: KnowledgeGraph) -> tuple[object, ...]:
    """All that is comparable about a graph, but for its name and notes."""
    splits = [array.tolist() for array in (graph.train, graph.valid, graph.test)]
    return graph.predicates, graph.constants, *splits, graph.rules


def test_both_forms_say_the_same() -> None:
    columns, prolog = (load_directory(KG / name) for name in ("places_columns", "places_prolog"))

    unweighted = replace(columns, rules=tuple(replace(rule, weight=1.0) for rule in columns.rules))
    assert contents(unweighted) == contents(prolog)


def test_ids_follow_the_names_and_names_are_text() -> None:
    graph = load_directory(KG / "places_columns")

    assert graph.predicates == ("harbour_of", "located_in", "near")
    assert graph.constants == ("06845599", "New York", "USA", "albany", "o'hare", "x1")
    assert graph.train.tolist() == [[3, 1, 2], [3, 1, 4], [4, 2, 3], [4, 4, 3], [5, 5, 2]]
    assert graph.valid.tolist() == [[5, 6, 2]]
    assert graph.test.tolist() == [[4, 1, 3]]
    assert graph.rules == (
        Rule(name="r0", weight=0.5, head=(4, -1, -2), body=((3, -1, -3), (4, -3, -2))),
        Rule(name="r1", weight=23498.5, head=(5, -1, -2), body=((5, -2, -1),)),
        Rule(name="r2", weight=0.0, head=(5, -1, 6), body=((3, -1, 4),)),
        Rule(name="r3", weight=1.0, head=(5, -1, -2), body=((4, -1, 3), (4, -2, 3))),
    )
    assert (graph.name, graph.notes) == ("places_columns", ())
    assert {array.dtype for array in (graph.train, graph.valid, graph.test)} == {np.dtype(np.int64)}


def test_valid_is_optional(write: Write) -> None:
    graph = load_directory(write(COLUMNS))

    assert graph.valid.shape == (0, 3)
    assert graph.test.tolist() == [[4, 1, 2]]


@pytest.mark.parametrize(
    "train",
    [b"\xef\xbb\xbfa1\tp\tb1\r\n\r\n", b"a1\tp\tb1", b" a1 \t p\tb1 \n \t \n", b"\np(a1,b1).\n"],
)
def test_byte_order_mark_line_ends_and_blanks_do_not_matter(write: Write, train: bytes) -> None:
    expected = contents(load_directory(write(COLUMNS)))

    assert contents(load_directory(write(COLUMNS, train_txt=train))) == expected


def test_a_tab_is_allowed_inside_a_prolog_fact(write: Write) -> None:
    expected = contents(load_directory(write(PROLOG)))

    assert (
        contents(load_directory(write(PROLOG, train_txt="\tp(a1,\tb1).\n% a\tcomment\n")))
        == expected
    )


def test_a_name_may_hold_what_splits_lines_elsewhere(write: Write) -> None:
    graph = load_directory(write(COLUMNS, train_txt="a\u2028b\tp\tc\x0bd (e), f.\n"))

    assert graph.constants == ("a1", "a\u2028b", "b1", "c\x0bd (e), f.")


def test_test_may_name_what_train_does_not_know(write: Write) -> None:
    graph = load_directory(write(COLUMNS, test_txt="nobody\tloves\ta1\n"))

    assert graph.predicates == ("loves", "p", "q")
    assert graph.constants == ("a1", "b1", "nobody")


def test_duplicates_are_counted_and_noted(write: Write) -> None:
    path = write(
        PROLOG,
        train_txt="p(a1,b1).\np( a1, b1 ).\np('a1','b1').\nq(a1,b1).\n",
        valid_txt="p(a1,b1).\np(a1,b1).\n",
        rules_txt="q(X,Y) :- p(X,Y).\nq(U,V) :- p(U,V).\n",
    )

    graph = load_directory(path)

    assert graph.train.tolist() == [[3, 1, 2], [4, 1, 2]]
    assert len(graph.rules) == 2
    assert graph.notes == (
        "train: 2 duplicate triples counted once",
        "valid: 1 duplicate triples counted once",
        "rules: 1 repeat an earlier one; all are kept",
        "test: 1 triples are also facts of train; a triple is not used as a fact in its own proof",
    )


@pytest.mark.parametrize(
    ("base", "file", "content", "line", "said"),
    [
        (
            COLUMNS,
            "train.txt",
            "a1\tp\tb1\nb1\tp\n",
            2,
            "expected `head<TAB>relation<TAB>tail`: found 2 columns",
        ),
        (COLUMNS, "train.txt", "a1\tp\tb1\tc1\n", 1, "found 4 columns"),
        (COLUMNS, "train.txt", "a1\tp\tb1\n\nb1 p c1\n", 3, "found 1 column"),
        (COLUMNS, "train.txt", "a1\t\tb1\n", 1, "column 2 is empty"),
        (COLUMNS, "train.txt", "a1\tp\tb1\n# x\tp\tb1\n", 2, "a comment, or a triple?"),
        (COLUMNS, "train.txt", "# x\tp\tb1\n", 1, "expected"),
        (
            COLUMNS,
            "valid.txt",
            "% note\na1\tp\tb1\np(a1,b1).\n",
            3,
            "as on line 2, found `relation(head,tail).`",
        ),
        (
            PROLOG,
            "train.txt",
            "p(a1,b1).\na1\tp\tb1\n",
            2,
            "as on line 1, found `head<TAB>relation<TAB>tail`",
        ),
        (
            PROLOG,
            "test.txt",
            "p(a1,b1).\np(a1).\n",
            2,
            "expected `relation(head,tail).`: expected two arguments",
        ),
        (
            PROLOG,
            "test.txt",
            "a1 p b1\n",
            1,
            "expected `relation(head,tail).`: expected `(` after 'a1'",
        ),
        (PROLOG, "test.txt", "p(a1,Bob).\n", 1, "'Bob' is a Prolog variable"),
        (PROLOG, "test.txt", "p(a1,b1)", 1, "`.` after the fact"),
        (PROLOG, "rules.txt", "q(X,Y) :- p(X,Y).\n\nq(X,Y).\n", 3, "a rule without a body"),
        (
            PROLOG,
            "rules.txt",
            "q(X,Y) :- p(X,Y).\nr0:1:p(x,y) -> q(x,y)\n",
            2,
            "one form of rules, not both",
        ),
        (PROLOG, "rules.txt", "q(X,Y) :- p(X,Y)\n", 1, "`.` after the body"),
        (
            COLUMNS,
            "rules.txt",
            "r0:x:p(x,y) -> q(x,y)\n",
            1,
            "a number as the rule's weight, found 'x'",
        ),
        (COLUMNS, "rules.txt", "q(x,y)\n", 1, "expected a rule"),
    ],
)
def test_a_bad_line_is_named(
    write: Write, base: dict[str, str], file: str, content: str, line: int, said: str
) -> None:
    path = write(base, **{file.replace(".", "_"): content})

    with pytest.raises(InputError) as error:
        load_directory(path)

    assert str(error.value).startswith(f"{path / file}:{line}: ")
    assert said in str(error.value)
    assert error.value.exit_code == EXIT_USAGE


def test_what_is_not_utf8_is_an_error_with_its_line(write: Write) -> None:
    path = write(COLUMNS, train_txt=b"a1\tp\tb1\na1\tp\t\xff\n")

    with pytest.raises(InputError) as error:
        load_directory(path)

    assert str(error.value) == f"{path / 'train.txt'}:2: expected UTF-8, found byte 0xff"


@pytest.mark.parametrize("file", ["train.txt", "test.txt", "valid.txt", "rules.txt"])
@pytest.mark.parametrize("content", ["", "\n\n% nothing\n"])
def test_an_empty_file_is_an_error(write: Write, file: str, content: str) -> None:
    path = write(PROLOG, **{file.replace(".", "_"): content})

    with pytest.raises(InputError) as error:
        load_directory(path)

    assert str(error.value).startswith(f"{path / file}: no ")


@pytest.mark.parametrize("file", ["train.txt", "test.txt"])
def test_a_missing_file_is_an_error(write: Write, file: str) -> None:
    path = write(PROLOG)
    (path / file).unlink()

    with pytest.raises(InputError) as error:
        load_directory(path)

    assert str(error.value) == f"{path / file}: file not found"


def test_without_a_file_of_rules_there_are_none(write: Write) -> None:
    path = write(COLUMNS)
    (path / "rules.txt").unlink()

    assert load_directory(path).rules == ()


def test_domains_are_read_and_hold_every_constant(write: Write) -> None:
    path = write(UPPER, domain2constants_txt="regions s elsewhere\n\ncountries  a\t'b'\n")

    graph = load_directory(path)

    assert graph.domains is not None
    assert graph.constants == ("a", "b", "s")
    assert graph.domains.tolist() == [0, 2, 2, 1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "regions s\ncountries a b s\n",
            "domain2constants.txt:2: 's' is in a domain already; a constant has one",
        ),
        (
            "regions s\ncountries a\n",
            "domain2constants.txt:2: 'b' is in no domain (1 of 3 constants)",
        ),
        (
            "regions\n",
            "domain2constants.txt:1: expected `domain constant constant ...`, found 'regions' "
            "alone",
        ),
    ],
)
def test_a_wrong_domain_is_named(write: Write, content: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        load_directory(write(UPPER, domain2constants_txt=content))

    assert str(error.value).endswith(said)


UPPER = {
    "train.txt": "neighbor(a,b).\nlocatedInCS(b,s).\n",
    "test.txt": "locatedInCS(a,s).\n",
    "rules.txt": "r0:0.9:locatedInCS(X,W), neighbor(Y,X) -> locatedInCS(Y,W)\n",
}


def test_upper_case_letters_of_arrow_rules_are_variables(write: Write) -> None:
    graph = load_directory(write(UPPER))

    assert graph.constants == ("a", "b", "s")
    assert graph.rules[0].body == ((3, -3, -2), (4, -1, -3))
    assert graph.notes == ()


@pytest.mark.parametrize("name", ["X", "x1"])
def test_a_letter_that_is_a_variable_and_a_constant_is_an_error_that_names_both(
    write: Write, name: str
) -> None:
    path = write(UPPER, train_txt=f"'{name}'\tneighbor\tb\n{name}\tneighbor\tb\n")
    (path / "rules.txt").write_text(
        f"r:1:neighbor(A,B) -> p(A,B)\nr:1:neighbor({name},B) -> p({name},B)\n"
    )

    with pytest.raises(InputError) as error:
        load_directory(path)

    assert str(error.value) == (
        f"{path / 'rules.txt'}:2: '{name}' reads as a variable, and a triple holds it as a "
        f"constant; quote it for the constant ('{name}'), or give the variable another letter"
    )


def test_a_constant_that_no_triple_holds_and_a_rule_without_variables_are_noted_with_their_lines(
    write: Write,
) -> None:
    rules = "r:1:neighbor(X,Here) -> p(X,'b')\n\nr:1:neighbor('a','b') -> p('a','b')\n"

    assert load_directory(write(UPPER, rules_txt=rules)).notes == (
        "rules.txt: constants that no triple holds: line 1 names 'Here'",
        "rules.txt: rules without a variable: line 3",
    )


def test_a_missing_directory_a_file_and_a_directory_as_file(write: Write, tmp_path: Path) -> None:
    write(COLUMNS)
    (tmp_path / "valid.txt").mkdir()

    for path, said in (
        (tmp_path / "nowhere", "nowhere: no such directory"),
        (tmp_path / "train.txt", "train.txt: is not a directory"),
        (tmp_path, "valid.txt: cannot be read"),
    ):
        with pytest.raises(InputError) as error:
            load_directory(path)
        assert said in str(error.value)


NAMES = st.text(
    st.characters(exclude_characters="\t\n", exclude_categories=["Cs"]), min_size=1, max_size=6
).filter(lambda text: text == text.strip() and not text.startswith("\ufeff"))
TRIPLES = st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=6)
RULES = (parse_rule("h(X,Y) :- p(X,Z), 'q r'(Z,Y), p(Y,'Z').", RuleFormat.PROLOG),)


def as_columns(triples: Sequence[Triple]) -> str:
    return "".join("\t".join(triple) + "\n" for triple in triples)


def as_facts(triples: Sequence[Triple]) -> str:
    quoted = ([*map(always_quoted, triple)] for triple in triples)
    return "".join(f"{relation}({head}, {tail}).\n" for head, relation, tail in quoted)


@given(
    train=TRIPLES,
    valid=TRIPLES,
    test=TRIPLES,
    form=st.sampled_from([as_columns, as_facts]),
    order=st.permutations([0, 1, 2]),
)
@settings(deadline=None)
def test_what_was_written_is_read_in_any_order_of_lines(
    tmp_path_factory: pytest.TempPathFactory,
    train: list[Triple],
    valid: list[Triple],
    test: list[Triple],
    form: Callable[[Sequence[Triple]], str],
    order: list[int],
) -> None:
    if form is as_columns:  # such a head would be taken for a comment, which is an error of its own
        train, valid, test = (
            [(head.lstrip("%#").strip() or "a", relation, tail) for head, relation, tail in triples]
            for triples in (train, valid, test)
        )
    path = tmp_path_factory.mktemp("graph")
    for name, triples in (("train", train), ("valid", valid), ("test", test)):
        shuffled = [
            triples[index]
            for index in sorted(range(len(triples)), key=lambda index: (order[index % 3], index))
        ]
        (path / f"{name}.txt").write_bytes(form(shuffled).encode())
    (path / "rules.txt").write_text("h(X,Y) :- p(X,Z), 'q r'(Z,Y), p(Y,'Z').\n", encoding="utf-8")

    graph = load_directory(path)

    assert contents(graph) == contents(
        build(name="any", train=train, valid=valid, test=test, rules=RULES)
    )


def always_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def rule_as_arrow(graph: KnowledgeGraph, rule: Rule) -> str:
    def atom(predicate: int, *arguments: int) -> str:
        terms = [
            always_quoted(graph.constant_text(term)) if term > 0 else f"v{-term}"
            for term in arguments
        ]
        return f"{always_quoted(graph.predicate_text(predicate))}({','.join(terms)})"

    return (
        f"{rule.name}:{rule.weight!r}:{', '.join(atom(*each) for each in rule.body)} "
        f"-> {atom(*rule.head)}"
    )


@given(
    names=st.lists(NAMES, min_size=1, max_size=4, unique=True),
    atoms=st.lists(
        st.tuples(NAMES, st.integers(-4, 3), st.integers(-4, 3)), min_size=2, max_size=4
    ),
    weight=st.floats(min_value=0, allow_infinity=False),
)
@settings(deadline=None)
def test_a_rule_that_was_written_is_read_back(
    names: list[str], atoms: list[tuple[str, int, int]], weight: float
) -> None:
    """Variables are renumbered by first occurrence, so the second reading is compared with the
    first."""

    def text(atom: tuple[str, int, int]) -> str:
        terms = [
            always_quoted(names[term % len(names)]) if term >= 0 else f"w{-term}"
            for term in atom[1:]
        ]
        return f"{always_quoted(atom[0])}({terms[0]}, {terms[1]})"

    line = f"r0:{weight!r}:{', '.join(map(text, atoms[1:]))} -> {text(atoms[0])}"
    graph = build(
        name="any",
        train=[(name, "p", name) for name in names],
        test=[],
        rules=[parse_rule(line, RuleFormat.ARROW)],
    )

    again = parse_rule(rule_as_arrow(graph, graph.rules[0]), RuleFormat.ARROW)

    predicates = {name: 3 + index for index, name in enumerate(graph.predicates)}
    constants = {name: 1 + index for index, name in enumerate(graph.constants)}
    assert again.numbered(predicates, constants) == graph.rules[0]
    assert graph.rules[0].weight == weight


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "predicates", "constants", "train", "test", "rules"),
    [("family", 12, 2968, 19845, 5626, 143), ("wn18rr", 11, 40559, 86835, 2924, 42)],
)
def test_the_real_graphs_load_whole_and_soon(
    shared: Path, name: str, predicates: int, constants: int, train: int, test: int, rules: int
) -> None:
    start = perf_counter()
    graph = load_directory(shared / "data" / name)
    elapsed = perf_counter() - start

    sizes = [
        len(part)
        for part in (graph.predicates, graph.constants, graph.train, graph.test, graph.rules)
    ]
    assert sizes == [predicates, constants, train, test, rules]
    assert not [note for note in graph.notes if "duplicate" in note]
    assert elapsed < 10  # 0.1 s and 0.5 s on two quiet cores; ten times that is a mistake of order


@pytest.mark.shared
def test_the_real_rules_keep_their_weights_and_zeros(shared: Path) -> None:
    graph = load_directory(shared / "data" / "wn18rr")

    assert graph.rules[0].weight == 23498.557678762823
    assert "06845599" in graph.constants
    predicate, *variables = graph.rules[0].body[0]
    assert graph.predicate_text(predicate) == "derivationally_related_form"
    assert variables == [-2, -1]
