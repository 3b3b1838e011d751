"""Rules and facts as text."""

from __future__ import annotations

import pytest

from kgprof.workloads.linkpred.rules import (
    MalformedTextError,
    Rule,
    RuleFormat,
    RuleText,
    Term,
    parse_fact,
    parse_rule,
    rule_format,
)

ARROW, PROLOG = RuleFormat.ARROW, RuleFormat.PROLOG


def variable(text: str) -> Term:
    return Term(text, True)


def constant(text: str) -> Term:
    return Term(text, False)


def test_an_arrow_rule_with_name_and_weight() -> None:
    rule = parse_rule("r7:0.93:p(x,z), q(z,y) -> h(x,y)", ARROW)

    x, y, z = map(variable, "xyz")
    assert rule == RuleText(
        name="r7", weight=0.93, head=("h", x, y), body=(("p", x, z), ("q", z, y))
    )


def test_a_prolog_rule_is_named_by_its_place_and_weighs_one() -> None:
    rule = parse_rule("h(X,Y) :- p(X,Z), q(Z,Y).", PROLOG, index=4)

    x, y, z = map(variable, "XYZ")
    assert rule == RuleText(
        name="r4", weight=1.0, head=("h", x, y), body=(("p", x, z), ("q", z, y))
    )


@pytest.mark.parametrize(
    "spacing", ["h(X,Y):-p(X,Y).", "  h ( X , Y )  :-  p( X,Y ) . % why", "h(X,Y) :- p(X,Y).%"]
)
def test_spaces_and_a_comment_do_not_matter_in_prolog(spacing: str) -> None:
    assert parse_rule(spacing, PROLOG) == parse_rule("h(X,Y) :- p(X,Y).", PROLOG)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("x", variable("x")),
        ("x12", variable("x12")),
        ("xy", constant("xy")),
        ("X", variable("X")),
        ("X12", variable("X12")),
        ("Xy", constant("Xy")),
        ("_", constant("_")),
        ("0123", constant("0123")),
        ("é", constant("é")),
        ("'x'", constant("x")),
        ("'it''s \\'1\\' \\\\'", constant("it's '1' \\")),
    ],
)
def test_arrow_arguments(text: str, term: Term) -> None:
    assert parse_rule(f"r:1:p({text},b2b) -> h(a,{text})", ARROW).body == (
        ("p", term, constant("b2b")),
    )


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("X", variable("X")),
        ("_x", variable("_x")),
        ("Élan", variable("Élan")),
        ("x", constant("x")),
        ("0123", constant("0123")),
        ("'X'", constant("X")),
        ("'New York'", constant("New York")),
    ],
)
def test_prolog_arguments(text: str, term: Term) -> None:
    assert parse_rule(f"h(A,{text}) :- p({text},A).", PROLOG).body == (("p", term, variable("A")),)


def test_each_lone_underscore_is_a_variable_of_its_own() -> None:
    rule = parse_rule("h(X,_) :- p(X,_), q(_,_1).", PROLOG)

    numbered = rule.numbered({"h": 3, "p": 4, "q": 5}, {})
    assert numbered == Rule(
        name="r0", weight=1.0, head=(3, -1, -2), body=((4, -1, -3), (5, -4, -5))
    )


def test_variables_are_numbered_by_first_occurrence_head_first() -> None:
    rule = parse_rule("r0:1:p(z,y), q(x,ann) -> h(x,y)", ARROW)

    numbered = rule.numbered({"h": 3, "p": 4, "q": 5}, {"ann": 1})
    assert numbered == Rule(name="r0", weight=1.0, head=(3, -1, -2), body=((4, -3, -2), (5, -1, 1)))


def test_a_fact() -> None:
    assert parse_fact("born_in('Ada L.', london). % 1815") == ("Ada L.", "born_in", "london")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("p(a,b)", "`.` after the fact"),
        ("p(a).", "two arguments of 'p', found 1"),
        ("p(a,b,c).", "two arguments of 'p', found 3"),
        ("p(a,B).", "'B' is a Prolog variable"),
        ("p(_,b).", "is a Prolog variable"),
        ("p(a,b). p(b,c).", "one clause on a line"),
        ("p(a,b) :- q(a,b).", "`.` after the fact, found ':-'"),
        ("p a b", "`(` after 'p'"),
        ("p(a b, c).", "`)` after the arguments of 'p', found 'b'"),
        ("p('a,b).", "closed quote"),
        ("p('',b).", "empty quoted name"),
        ('p("a",b).', "closed quote"),
        ("p(f(a),b).", "`)` after the arguments of 'p', found '('"),
        (r"p('a\n',b).", "after the backslash"),
        ("(a,b).", "expected a predicate"),
        ("p(,b).", "expected an argument"),
    ],
)
def test_malformed_facts(line: str, said: str) -> None:
    with pytest.raises(MalformedTextError) as error:
        parse_fact(line)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("line", "form", "said"),
    [
        ("r0:0.5: -> h(x,y)", ARROW, "without a body"),
        ("r0:0.5:p(x,y) -> ", ARROW, "expected a predicate, found 'the end of the line'"),
        ("r0:0.5:p(x,y) -> h(x,y) -> h(x,y)", ARROW, "one clause on a line"),
        ("r0:0.5:p(x,y), -> h(x,y)", ARROW, "expected a predicate, found '->'"),
        ("r0:half:p(x,y) -> h(x,y)", ARROW, "a number as the rule's weight, found 'half'"),
        ("r0:-1:p(x,y) -> h(x,y)", ARROW, "not negative, found '-1'"),
        ("r0:nan:p(x,y) -> h(x,y)", ARROW, "found 'nan'"),
        ("r0:inf:p(x,y) -> h(x,y)", ARROW, "found 'inf'"),
        ("0.5:p(x,y) -> h(x,y)", ARROW, "a name and a weight"),
        (":0.5:p(x,y) -> h(x,y)", ARROW, "a name and a weight"),
        ("r0:0.5:p(x) -> h(x,y)", ARROW, "two arguments of 'p', found 1"),
        ("h(X,Y) :- .", PROLOG, "without a body"),
        ("h(X,Y) :- p(X,Y)", PROLOG, "`.` after the body"),
        ("h(X,Y) :- p(X,Y), .", PROLOG, "expected a predicate, found '.'"),
        ("h(X,Y) :- p(X,Y). h(X,Y) :- q(X,Y).", PROLOG, "one clause on a line"),
    ],
)
def test_malformed_rules(line: str, form: RuleFormat, said: str) -> None:
    assert rule_format(line) is form
    with pytest.raises(MalformedTextError) as error:
        parse_rule(line, form)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("h(a,b).", "without a body"),
        ("h(a,b)", "expected a rule"),
        ("p\tq\tr", "expected a rule"),
        ("'", "a rule"),
    ],
)
def test_what_is_no_rule_at_all(line: str, said: str) -> None:
    with pytest.raises(MalformedTextError) as error:
        rule_format(line)
    assert said in str(error.value)


def test_an_arrow_inside_quotes_does_not_make_an_arrow_rule() -> None:
    assert rule_format("h(X,'->') :- p(X,'->').") is PROLOG
    assert rule_format("r0:1:p(x,':-') -> h(x,':-')") is ARROW


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("albany", "albany"),
        ("x1", "x1"),
        ("0123", "0123"),
        ("USA", "'USA'"),
        ("_x", "'_x'"),
        ("o'hare", r"'o\'hare'"),
    ],
)
def test_a_name_is_read_with_and_without_quotes(text: str, written: str) -> None:
    assert parse_fact(f"p({written},b).") == (text, "p", "b")
