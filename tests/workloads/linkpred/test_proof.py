"""Derivation and proof in plain Python, by examples small enough to work out by hand."""

from __future__ import annotations

import pytest

from kgprof.workloads.linkpred.caps import Caps, Dropped
from kgprof.workloads.linkpred.graph import FIRST_PREDICATE, KnowledgeGraph
from kgprof.workloads.linkpred.proof import (
    FAILED,
    FALSE_STATE,
    OVERFLOW,
    PROVED,
    TRUE_STATE,
    TRUNCATED,
    Proof,
    Prover,
    State,
)
from tests.workloads.linkpred import written

FAMILY = """
    father(abe, homer). father(homer, bart). father(homer, lisa). mother(marge, bart).
"""
ROOMY = Caps(atoms=4, children=20, width=20, facts=20, rules=20)
# make p to u and a to e known in every graph
NAMES = "p(a, b). q(b, c). r(c, d). s(d, e). t(e, a). u(a, a)."
NOTHING = "u(e, e)"  # an own atom that plays no part


def capped(**caps: int) -> Caps:
    return Caps(**{"atoms": 4, "children": 20, "width": 20, "facts": 20, "rules": 20, **caps})


def derived(
    facts: str,
    rules: str,
    state: str,
    *,
    own: str = NOTHING,
    caps: Caps = ROOMY,
    selection: str = "most-bound",
) -> tuple[list[str], Dropped]:
    """The children of ``state`` as text, and the counters."""
    graph = written.graph(facts, rules, questions=NAMES)
    children, dropped = Prover(graph, caps, selection).derive(
        written.state(graph, state), written.atom(graph, own)
    )
    return [written.text(graph, child) for child in children], dropped


def children(
    facts: str, rules: str, state: str, *, own: str = NOTHING, selection: str = "most-bound"
) -> list[str]:
    found, dropped = derived(facts, rules, state, own=own, selection=selection)
    assert dropped == Dropped()
    return found


def test_a_goal_unifies_with_facts_in_order_and_then_with_rules_in_file_order() -> None:
    facts = "p(b, a). p(a, c). p(a, b). r(a, a)."
    rules = "p(X, Y) :- r(X, Y), q(Y, Y). s(X, Y) :- q(X, Y). p(X, Y) :- q(Y, X)."

    # The fact's constant goes to the other goal; the first rule brings its body first, in its own
    # order.
    assert children(facts, rules, "p(a, V1), s(V1, b)") == [
        "s(b, b)",
        "s(c, b)",
        "r(a, V1), q(V1, V1), s(V1, b)",
        "q(V1, a), s(V1, b)",
    ]


def test_the_other_atoms_keep_their_order_after_the_body() -> None:
    rules = "p(X, Y) :- s(X, Y)."

    assert children("", rules, "r(V1, a), p(a, b), s(V1, V1)") == ["s(a, b), r(V1, a), s(V1, V1)"]


@pytest.mark.parametrize(
    ("selection", "child"),
    [
        ("most-bound", "s(b, c), p(a, V1), t(d, e)"),  # r(b, c), the leftmost of two ground atoms
        ("leftmost", "s(a, V1), r(b, c), t(d, e)"),
    ],
)
def test_selection_takes_the_most_bound_atom_or_the_leftmost(selection: str, child: str) -> None:
    rules = "p(X, Y) :- s(X, Y). r(X, Y) :- s(X, Y). t(X, Y) :- s(X, Y)."

    assert children("", rules, "p(a, V1), r(b, c), t(d, e)", selection=selection) == [child]


def test_every_ground_train_fact_goes_and_repeated_atoms_stay() -> None:
    # p(a, V1) with p(a, b): r(b, c) is a fact and goes, both s(b, b) stay.
    facts = "p(a, b). r(b, c)."

    assert children(facts, "", "p(a, V1), s(V1, V1), r(V1, c), s(V1, V1)") == ["s(b, b), s(b, b)"]


def test_the_own_atom_is_no_fact_while_it_is_proved() -> None:
    facts = "p(a, b). p(a, c). r(c, d)."

    # p(a, b) does not unify as a fact, and the one that a rule brings back is not pruned.
    assert children(facts, "", "p(a, V1), s(V1, V1)", own="p(a, b)") == ["s(c, c)"]
    assert children(facts, "r(X, Y) :- p(a, b), s(X, Y).", "r(a, b)", own="p(a, b)") == [
        "p(a, b), s(a, b)"
    ]
    assert children(facts, "r(X, Y) :- p(a, b), s(X, Y).", "r(a, b)") == ["s(a, b)"]
    # As the goal it has its rules left, or nothing.
    assert children(facts, "p(X, Y) :- s(X, Y).", "p(a, b)", own="p(a, b)") == ["s(a, b)"]
    assert children(facts, "", "p(a, b)", own="p(a, b)") == ["false"]


def test_true_is_the_only_child_wherever_it_stands() -> None:
    facts = "p(a, b). r(c, d)."
    rules = "p(X, Y) :- s(X, Y)."

    # p(a, b) leaves r(b, d), the rule s(a, V1) and r(V1, d); p(a, c) leaves r(c, d), which is a
    # fact and goes.
    assert children("p(a, b). p(a, c). r(c, d).", rules, "p(a, V1), r(V1, d)") == ["true"]
    assert children(facts, rules, "p(a, b)") == ["true"]


def test_no_child_is_false_and_so_are_the_children_of_nothing_and_of_false() -> None:
    graph = written.graph(FAMILY)
    prover = Prover(graph, ROOMY, "most-bound")
    own = written.atom(graph, "father(abe, bart)")

    assert prover.derive((own,), own) == ((FALSE_STATE,), Dropped())
    assert prover.derive((), own) == ((FALSE_STATE,), Dropped())
    assert prover.derive(FALSE_STATE, own) == ((FALSE_STATE,), Dropped())


def test_variables_are_renamed_by_position_and_a_rules_never_meet_a_states() -> None:
    # The rule's X and Y are its own, whatever the state's variables are called.
    rules = "p(X, Y) :- s(Y, X), s(X, Z)."

    assert children("", rules, "r(V1, V2), p(V2, a)") == ["s(a, V1), s(V1, V2), r(V3, V1)"]


def test_permuted_atoms_are_different_children_and_equal_ones_are_one() -> None:
    rules = """
        p(X, Y) :- s(X, A), t(Y, B).
        p(X, Y) :- t(Y, B), s(X, A).
        p(X, Y) :- s(X, B), t(Y, A).
    """

    assert children("", rules, "p(a, b)") == ["s(a, V1), t(b, V2)", "t(b, V1), s(a, V2)"]


def test_a_child_equal_to_its_parent_goes_and_a_longer_loop_stays() -> None:
    rules = "p(X, Y) :- p(X, Y). p(X, Y) :- p(Y, X)."

    assert children("", rules, "p(a, b)") == ["p(b, a)"]
    assert children("", rules, "p(a, a)") == ["false"]
    # Equal but for the names of variables, before they are renamed.
    assert children("", "p(X, Y) :- p(X, Z).", "p(a, V1)") == ["false"]


@pytest.mark.parametrize(
    ("head", "goal", "body"),
    [
        # a repeated head variable binds the goal's
        ("p(X, X)", "p(a, V1), s(V1, V2)", "t(a, a), s(a, V1)"),
        ("p(X, X)", "p(V1, V2), s(V2, V1)", "t(V1, V1), s(V1, V1)"),  # ... or makes two of them one
        ("p(X, X)", "p(a, b)", None),
        # a head constant reaches both through V1
        ("p(b, X)", "p(V1, V1), s(V1, V1)", "t(b, b), s(b, b)"),
        ("p(b, a)", "p(V1, V1)", None),
        ("p(X, b)", "p(a, V1), s(V1, V1)", "t(a, a), s(b, b)"),
        ("p(X, b)", "p(a, a)", None),
    ],
)
def test_unification_with_a_head(head: str, goal: str, body: str | None) -> None:
    assert children("", f"{head} :- t(X, X)." if "X" in head else f"{head} :- t(a, a).", goal) == [
        body or "false"
    ]


def test_a_goal_with_one_variable_twice_unifies_with_such_facts_only() -> None:
    assert children("p(a, b). p(c, c). p(d, d).", "", "p(V1, V1), s(V1, V2)") == [
        "s(c, V1)",
        "s(d, V1)",
    ]


def test_an_unsafe_head_leaves_its_variable_free() -> None:
    assert children("", "p(X, Y) :- s(X, X).", "p(a, V1), t(V1, b)") == ["s(a, a), t(V1, b)"]


# ---------------------------------------------------------------- caps and their counters


def test_children_of_too_many_atoms_are_counted_after_the_facts_went_and_before_equals_are_merged() -> (  # noqa: E501
    None
):
    rules = """
        p(X, Y) :- s(X, Y), s(Y, X), r(c, d).
        p(X, Y) :- s(X, Y), s(Y, Y), s(X, X).
        p(X, Y) :- s(X, Y), s(Y, Y), s(X, X).
    """

    found, dropped = derived("r(c, d).", rules, "p(a, b)", caps=capped(atoms=2))

    assert found == ["s(a, b), s(b, a)"]
    assert dropped == Dropped(atoms=2)


def test_the_first_different_children_stay_and_the_rest_are_counted() -> None:
    facts = "p(a, b). p(a, c). p(a, d). p(a, e)."

    # The four facts all leave t(a, V1): one child. The second rule's is the third.
    found, dropped = derived(
        facts,
        "p(X, Y) :- s(X, X). p(X, Y) :- s(Y, Y).",
        "p(a, V1), t(a, V2)",
        caps=capped(children=2, width=3),
    )

    assert found == ["t(a, V1)", "s(a, a), t(a, V1)"]
    assert dropped == Dropped(children=1)


def test_true_beyond_the_cap_of_children_is_found_and_drops_none() -> None:
    facts = "p(a, b). p(a, c). r(c, c)."

    assert derived(facts, "", "p(a, V1), r(V1, V1)", caps=capped(children=1)) == (
        ["true"],
        Dropped(),
    )


@pytest.mark.parametrize(
    ("goal", "found", "unseen"),
    [
        ("p(a, V1)", ["s(b, V1)"], 2),  # of p(a, b), p(a, c), p(a, d)
        ("p(V1, d)", ["s(d, V1)"], 1),  # of p(a, d), p(b, d)
        ("p(V1, V2)", ["s(b, V1)"], 4),  # of all five
        ("p(V1, V1)", ["false"], 4),  # of all five: p(c, c) is not looked at
        ("p(a, d)", ["s(d, V1)"], 0),
    ],
)
def test_facts_beyond_the_cap_are_counted_in_the_range_that_the_constants_choose(
    goal: str, found: list[str], unseen: int
) -> None:
    facts = "p(a, b). p(a, c). p(a, d). p(b, d). p(c, c)."
    last = {"p(a, V1)": "V1", "p(V1, V2)": "V2", "p(V1, V1)": "V1"}.get(goal, "d")

    assert derived(facts, "", f"{goal}, s({last}, V3)", caps=capped(facts=1)) == (
        found,
        Dropped(facts=unseen),
    )


def test_the_own_atom_uses_up_a_look_up() -> None:
    facts = "p(a, b). p(a, c)."

    found = derived(facts, "", "p(a, V1), s(V1, V1)", own="p(a, b)", caps=capped(facts=1))

    assert found == (["false"], Dropped(facts=1))


def test_rules_beyond_the_cap_are_counted_whether_they_would_unify_or_not() -> None:
    rules = (
        "p(b, Y) :- s(Y, Y). p(X, Y) :- t(X, Y). p(X, Y) :- u(X, Y). p(b, Y) :- u(Y, "
        "Y). t(X, Y) :- s(X, Y)."
    )

    assert derived("", rules, "p(a, b)", caps=capped(rules=2)) == (["t(a, b)"], Dropped(rules=2))


# ---------------------------------------------------------------- proofs

ANCESTORS = """
    parent(X, Y) :- father(X, Y).
    parent(X, Y) :- mother(X, Y).
    ancestor(X, Y) :- parent(X, Y).
    ancestor(X, Y) :- parent(X, Z), ancestor(Z, Y).
"""


def first(_parent: State, _children: object) -> int:
    return 0


def last(_parent: State, children: tuple[State, ...]) -> int:
    return len(children) - 1


@pytest.fixture
def family() -> KnowledgeGraph:
    return written.graph(FAMILY, ANCESTORS)


def path(graph: KnowledgeGraph, proof: Proof) -> list[str]:
    return [written.text(graph, state) for state in proof.path]


def test_a_proof_follows_the_choices_and_counts_them(family: KnowledgeGraph) -> None:
    query = written.atom(family, "ancestor(abe, bart)")
    seen: list[tuple[str, list[str]]] = []

    def choose(parent: State, children: tuple[State, ...]) -> int:
        seen.append(
            (written.text(family, parent), [written.text(family, child) for child in children])
        )
        return len(children) - 1 if len(seen) == 1 else 0

    proof = Prover(family, ROOMY, "leftmost").prove(query, choose, depth=9)

    assert seen == [
        ("ancestor(abe, bart)", ["parent(abe, bart)", "parent(abe, V1), ancestor(V1, bart)"]),
        (
            "parent(abe, V1), ancestor(V1, bart)",
            ["father(abe, V1), ancestor(V1, bart)", "mother(abe, V1), ancestor(V1, bart)"],
        ),
        ("father(abe, V1), ancestor(V1, bart)", ["ancestor(homer, bart)"]),
        ("ancestor(homer, bart)", ["parent(homer, bart)", "parent(homer, V1), ancestor(V1, bart)"]),
        ("parent(homer, bart)", ["true"]),
    ]
    assert (proof.outcome, proof.steps, proof.dropped) == (PROVED, 5, Dropped())
    assert path(family, proof) == [*(parent for parent, _ in seen), "true"]
    assert proof.path[-1] == TRUE_STATE


def test_true_after_the_last_choice_is_proved_and_one_choice_fewer_truncates(
    family: KnowledgeGraph,
) -> None:
    query = written.atom(family, "ancestor(homer, bart)")
    prover = Prover(family, ROOMY, "most-bound")

    assert (
        prover.prove(query, first, depth=2).outcome,
        prover.prove(query, first, depth=1).outcome,
    ) == (
        PROVED,
        TRUNCATED,
    )
    truncated = prover.prove(query, first, depth=1)
    assert path(family, truncated) == ["ancestor(homer, bart)", "parent(homer, bart)"]
    assert truncated.steps == 1
    assert prover.prove(query, first, depth=0) == Proof(
        outcome=TRUNCATED, steps=0, dropped=Dropped(), path=((query,),)
    )


def test_a_state_without_children_fails(family: KnowledgeGraph) -> None:
    proof = Prover(family, ROOMY, "most-bound").prove(
        written.atom(family, "father(abe, bart)"), first, depth=9
    )

    assert (proof.outcome, proof.steps, proof.path[-1]) == (FAILED, 1, FALSE_STATE)


def test_a_train_fact_is_not_its_own_proof(family: KnowledgeGraph) -> None:
    proof = Prover(family, ROOMY, "most-bound").prove(
        written.atom(family, "father(abe, homer)"), first, depth=9
    )

    assert proof.outcome == FAILED


def test_what_a_cap_dropped_on_the_path_makes_the_outcome_unknown_unless_it_is_proved(
    family: KnowledgeGraph,
) -> None:
    prover = Prover(family, capped(rules=1), "most-bound")
    outcomes = {
        query: prover.prove(written.atom(family, query), first, depth=depth)
        for query, depth in (
            ("ancestor(homer, bart)", 9),
            ("ancestor(abe, bart)", 9),
            ("ancestor(abe, lisa)", 1),
        )
    }

    # ancestor has two rules and parent has two: the second of each is never looked at.
    assert {
        query: (proof.outcome, proof.steps, proof.dropped) for query, proof in outcomes.items()
    } == {
        "ancestor(homer, bart)": (PROVED, 2, Dropped(rules=2)),
        "ancestor(abe, bart)": (OVERFLOW, 3, Dropped(rules=2)),  # FALSE was reached
        "ancestor(abe, lisa)": (OVERFLOW, 1, Dropped(rules=1)),  # a live state was left
    }


def test_only_drops_on_the_path_count() -> None:
    # With two atoms at most, the detour by q ends where r would need three; the way by s simply
    # ends.
    rules = "p(X, Y) :- s(X, Y). p(X, Y) :- q(X, Y). q(X, Y) :- r(X, Y), r(Y, X), r(X, X)."
    graph = written.graph("", rules, questions=NAMES)
    prover = Prover(graph, capped(atoms=2), "most-bound")
    query = written.atom(graph, "p(a, b)")

    assert prover.prove(query, first, depth=9).outcome == FAILED
    assert prover.prove(query, last, depth=9).outcome == OVERFLOW


def test_ids_begin_where_the_contract_says(family: KnowledgeGraph) -> None:
    assert written.state(family, "ancestor(abe, V1)") == (
        (FIRST_PREDICATE, 1, len(family.constants) + 1),
    )
