"""What a derivation and a proof are, in plain Python: the truth that the torch engine
(unification.py) is held to.

A state is a tuple of up to A atoms (predicate, arg0, arg1). A term is a constant 1..C or a variable
above C. Derived states are canonical: variables are C+1, C+2, ... by first occurrence.

Selection. One atom, the goal, is resolved: ``most-bound`` takes the one with most constant
arguments, the leftmost of equals; ``leftmost`` the first.

Children. First the train facts that unify with the goal, by (predicate, arg0, arg1), then the rules
whose head does, in file order. A child is the rule's body in rule order (nothing for a fact), then
the other atoms of the state in order, under the unifier. From it every ground atom that is a train
fact goes; atoms that repeat stay; variables are renamed by position, so permuted atoms make
different states. The query's own atom, ``own``, is not a fact while it is being proved: it neither
unifies as one nor goes as one.

A child with no atom left is TRUE, and where TRUE is among the children it is the only one. A child
equal to its parent is left out, and so is one equal to an earlier child. A state with no child at
all has the one child FALSE; so have the empty state and FALSE itself. States passed in are
canonical and hold no PAD; a ground query is.

Caps, each with a counter (``Dropped``), in the order in which they act:
  facts     the goal's constants choose the look-up: both (is the goal a fact?), the first, the
            second, or neither; of the facts found the first K_f are looked at, before ``own`` and
            p(X, X) turn any away
  rules     of the rules for the goal's predicate the first K_r are looked at
  atoms     children that still have more than A atoms when the facts are gone are dropped, each
            counted, equal or not
  children  of the different children the first S are kept; TRUE alone never exceeds it

A proof begins with the query as step 0; a step derives the children and chooses one. TRUE within
``depth`` choices is PROVED, whatever was dropped on the way; else the outcome is OVERFLOW where a
cap dropped anything on the path (unknown, not refuted), else FAILED where FALSE was reached, else
TRUNCATED. The state after the last choice is not derived again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kgprof.workloads.linkpred.caps import Caps, Dropped, Selection
from kgprof.workloads.linkpred.graph import FALSE, TRUE, Atom, KnowledgeGraph, Rule

# Codes of a result vector (int8). UNFINISHED is for evaluations that stop early; no proof here ends
# so.
UNFINISHED, PROVED, FAILED, TRUNCATED, OVERFLOW = range(5)

State = tuple[Atom, ...]
# (parent, its children) -> the index of the one to go to
Choose = Callable[[State, Sequence[State]], int]

TRUE_STATE: State = ((TRUE, 0, 0),)
FALSE_STATE: State = ((FALSE, 0, 0),)
ANY = 0  # no term: stands for an unbound argument in the keys of the fact index


@dataclass(frozen=True, kw_only=True)
class Proof:
    """``path`` begins with the query; ``steps`` counts the choices made, so ``path`` has ``steps +
    1`` states."""

    outcome: int
    steps: int
    dropped: Dropped
    path: tuple[State, ...]


class Prover:
    """Derives and proves over one graph; rule variables are negative here, so no rule needs
    renaming apart."""

    def __init__(self, graph: KnowledgeGraph, caps: Caps, selection: str) -> None:
        self.caps = caps
        self.selection = Selection(selection)
        self.constants = len(graph.constants)
        self.known = set(map(tuple, graph.train.tolist()))
        # by pattern, ANY where an argument is unbound
        self.facts: dict[Atom, list[Atom]] = defaultdict(list)
        self.rules: dict[int, list[Rule]] = defaultdict(list)  # by head predicate
        for predicate, first, second in graph.train.tolist():
            for pattern in ((first, second), (first, ANY), (ANY, second), (ANY, ANY)):
                self.facts[predicate, *pattern].append((predicate, first, second))
        for rule in graph.rules:
            self.rules[rule.head[0]].append(rule)

    def derive(self, state: State, own: Atom) -> tuple[tuple[State, ...], Dropped]:
        """The children of ``state`` while ``own`` is being proved, and what the caps dropped."""
        if not state:
            return (FALSE_STATE,), Dropped()
        goal, rest = self._selected(state)
        facts, rules = self._matching(goal)
        pruned = [atoms for _, atoms in self._resolvents(goal, rest, own)]
        short = [atoms for atoms in pruned if len(atoms) <= self.caps.atoms]
        different = dict.fromkeys(self._canonical(atoms) for atoms in short)
        if () in different:
            children: tuple[State, ...] = (TRUE_STATE,)
        else:
            different.pop(state, None)
            children = tuple(different) or (FALSE_STATE,)
        dropped = Dropped(
            atoms=len(pruned) - len(short),
            children=max(0, len(children) - self.caps.children),
            facts=max(0, len(facts) - self.caps.facts),
            rules=max(0, len(rules) - self.caps.rules),
        )
        return children[: self.caps.children], dropped

    def prove(self, query: Atom, choose: Choose, depth: int) -> Proof:
        """Follow ``choose`` from ``query`` for at most ``depth`` steps; it is asked even where
        there is one child."""
        path: list[State] = [(query,)]
        dropped = Dropped()
        while len(path) <= depth and path[-1] not in (TRUE_STATE, FALSE_STATE):
            children, lost = self.derive(path[-1], query)
            dropped = dropped.plus(lost)
            path.append(children[choose(path[-1], children)])
        if path[-1] == TRUE_STATE:
            outcome = PROVED
        elif any(dropped):
            outcome = OVERFLOW
        else:
            outcome = FAILED if path[-1] == FALSE_STATE else TRUNCATED
        return Proof(outcome=outcome, steps=len(path) - 1, dropped=dropped, path=tuple(path))

    def resolvents(self, state: State, own: Atom) -> Iterator[tuple[float, State]]:
        """What ``derive`` makes its children from, in its order and canonical; each with its rule's
        weight, a fact's being 1."""
        for weight, atoms in self._resolvents(*self._selected(state), own):
            yield weight, self._canonical(atoms)

    def _selected(self, state: State) -> tuple[Atom, State]:
        """The goal and the other atoms."""
        selected = 0
        if self.selection is Selection.MOST_BOUND:
            selected = max(
                range(len(state)), key=lambda i: sum(map(self._is_constant, state[i][1:]))
            )
        return state[selected], state[:selected] + state[selected + 1 :]

    def _matching(self, goal: Atom) -> tuple[list[Atom], list[Rule]]:
        first, second = (term if self._is_constant(term) else ANY for term in goal[1:])
        return self.facts.get((goal[0], first, second), []), self.rules.get(goal[0], [])

    def _resolvents(self, goal: Atom, rest: State, own: Atom) -> Iterator[tuple[float, State]]:
        facts, rules = self._matching(goal)
        clauses: list[tuple[float, Atom, State]] = [
            (1.0, fact, ()) for fact in facts[: self.caps.facts] if fact != own
        ]
        clauses += [(rule.weight, rule.head, rule.body) for rule in rules[: self.caps.rules]]
        for weight, head, body in clauses:
            atoms = self._resolve(goal, head, body, rest)
            if atoms is not None:
                yield weight, tuple(atom for atom in atoms if atom == own or atom not in self.known)

    def _resolve(self, goal: Atom, head: Atom, body: Iterable[Atom], rest: State) -> State | None:
        """``body`` and ``rest`` under the unifier of ``goal`` and ``head``; None where there is
        none."""
        unifier: dict[int, int] = {}

        def value(term: int) -> int:
            return value(unifier[term]) if term in unifier else term

        for left, right in zip(goal[1:], head[1:], strict=True):
            left = value(left)
            right = value(right)
            if self._is_constant(left) and self._is_constant(right) and left != right:
                return None
            if left != right:
                unifier.update({left: right} if self._is_constant(right) else {right: left})
        return tuple(
            (predicate, value(first), value(second)) for predicate, first, second in (*body, *rest)
        )

    def _canonical(self, atoms: State) -> State:
        """The same state with its variables numbered in the order in which they come."""
        names: dict[int, int] = {}

        def name(term: int) -> int:
            if self._is_constant(term):
                return term
            return names.setdefault(term, self.constants + 1 + len(names))

        return tuple((predicate, name(first), name(second)) for predicate, first, second in atoms)

    def _is_constant(self, term: int) -> bool:
        return 1 <= term <= self.constants
