"""The unification engine: proof.py's ``derive`` for a batch of states at once, in static shapes.

Every tensor's size is known when the engine is built, nothing reads a value back to the host, and no operation's
output size depends on data, so ``derive`` compiles as one graph (``fullgraph=True, dynamic=False``) on CPU and CUDA.

Layout. Inside, an atom's place in its child is the *leading* dimension: ``Atoms`` holds [N, B, K] columns for the N
atoms of K children of B states, so a loop over places works on whole contiguous [B, K] planes, which Inductor turns
into vector code. Terms: 0 pad, constants 1..C, state variables C+1..C+2A, and above them the rules' variables, shifted
there once when the engine is built: a rule never shares a variable with a canonical state, so standardising apart costs
nothing. K is the K_f facts and then the K_r rules that a goal may look at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from kgprof.errors import UsageError
from kgprof.workloads.linkpred.caps import Caps, Selection
from kgprof.workloads.linkpred.graph import FALSE, FIRST_PREDICATE, PAD, TRUE, KnowledgeGraph

__all__ = ["Caps", "Derived", "Engine"]

NO_KEY = np.iinfo(np.int64).max  # above every key: ends each sorted table, so a look-up never runs past it
WORD_BITS = 63  # of an int64, the sign left alone


class Derived(NamedTuple):
    """``children`` int32 [B, W, A, 3], zero from ``counts`` (int64 [B], at least 1) on; ``dropped`` int64 [B, 4] in the
    order of ``caps.Dropped``."""

    children: Tensor
    counts: Tensor
    dropped: Tensor


class Atoms(NamedTuple):
    """N atoms a child: int32 [N, B, K] (or broadcastable to it); predicate PAD marks a place without an atom."""

    predicate: Tensor
    first: Tensor
    second: Tensor


class Goal(NamedTuple):
    """The selected atom of each state: int32 [B, 1]."""

    predicate: Tensor
    first: Tensor
    second: Tensor


class Resolvents(NamedTuple):
    """``atoms`` [N, B, K] before any is pruned; ``valid`` bool [B, K], whether the goal unified; ``unseen`` int64 [B],
    what the cap on this kind of look-up left out."""

    atoms: Atoms
    valid: Tensor
    unseen: Tensor


class Engine(nn.Module):
    """Derives children over one graph; the tables are buffers, so ``.to(device)`` moves the whole engine."""

    def __init__(self, graph: KnowledgeGraph, caps: Caps, selection: str) -> None:
        """Raises UsageError for a graph whose atoms do not fit a 63-bit key."""
        super().__init__()
        self.caps = caps
        self.selection = Selection(selection)
        self.constants = len(graph.constants)
        self.term_limit = self.constants + 1 + 2 * caps.atoms  # state variables end before it
        self.packing = _Packing(FIRST_PREDICATE + len(graph.predicates), self.term_limit, caps.atoms)
        predicates = len(graph.predicates)
        if (predicates + FIRST_PREDICATE) * (self.constants + 1) ** 2 >= NO_KEY:
            raise UsageError(f"{predicates} predicates over {self.constants} constants do not fit 64-bit keys")
        tables = {**_fact_tables(graph), **_rule_tables(graph, self.term_limit)}
        for name, table in tables.items():
            self.register_buffer(name, torch.from_numpy(table), persistent=False)
        self.body_atoms = tables["rule_body"].shape[1]

    fact_rows: Tensor  # int32 [2, 2F + 1]: arguments by (predicate, arg0, arg1), then by (predicate, arg1, arg0)
    fact_keys: Tensor  # int64 [F + 1]: keys of the facts, sorted
    pattern_keys: Tensor  # int64 [U + 1]: keys of all look-ups that find something, sorted; an unbound argument is 0
    pattern_start: Tensor  # int64 [U + 1]: where in fact_rows their facts begin
    pattern_length: Tensor  # int64 [U + 1]
    rule_start: Tensor  # int64 [predicates + 1]: where in rule_head a predicate's rules begin
    rule_head: Tensor  # int32 [2, R + 1]: the head's arguments
    rule_body: Tensor  # int32 [3, M, R + 1]

    def forward(self, states: Tensor, own: Tensor) -> Derived:
        return self.derive(states, own)

    def derive(self, states: Tensor, own: Tensor) -> Derived:
        """The children of ``states`` (int32 [B, A, 3]; canonical, PAD last) while ``own`` (int32 [B, 3]) is proved."""
        goal, rest = self._select(states)
        query = Goal(*own.unsqueeze(-1).unbind(1))
        facts = self._resolve_with_facts(goal, rest, query)
        rules = self._resolve_with_rules(goal, rest)
        pruned = [self._prune(found.atoms, query) for found in (facts, rules)]
        valid = torch.cat([facts.valid, rules.valid], dim=1)
        places = self._compact(Atoms(*(torch.cat(field, dim=2) for field in zip(*pruned, strict=True))))
        size = torch.stack([atom.predicate != PAD for atom in places]).sum(0)
        short = valid & (size <= self.caps.atoms)
        words = self.packing.pack(self._canonical(places[: self.caps.atoms]))
        parent = self.packing.pack([Atoms(*column.unsqueeze(-1).unbind(1)) for column in states.unbind(1)])
        new = short & ~_repeated(words, short) & ~_equal(words, parent)
        proved = (short & (size == 0)).any(1)
        found = torch.where(proved, 0, new.sum(1))
        count = found.clamp(max=self.caps.children)
        dropped = torch.stack([(valid & ~short).sum(1), found - count, facts.unseen, rules.unseen], dim=1)
        kept = self._take(words, new)
        return Derived(self._finish(kept, count, proved), count.clamp(min=1), dropped)

    def _select(self, states: Tensor) -> tuple[Goal, Atoms]:
        """The goal, and the other atoms [A-1, B, 1] in order."""
        place = torch.arange(self.caps.atoms, device=states.device)
        free = 2 - self._is_constant(states[:, :, 1:]).sum(2)
        if self.selection is Selection.LEFTMOST:
            free = torch.zeros_like(free)
        # The least (unbound arguments, place), in one number so that ties need no promise of argmin's.
        order = torch.where(states[:, :, 0] == PAD, 3, free) * self.caps.atoms + place
        chosen = (order.amin(1, keepdim=True) % self.caps.atoms).unsqueeze(-1)
        goal = states.gather(1, chosen.expand(-1, -1, 3))
        rest = torch.where(place[:-1, None] >= chosen, states[:, 1:], states[:, :-1])
        return Goal(*goal.unbind(2)), Atoms(*rest.permute(2, 1, 0).unsqueeze(-1).unbind(0))

    def _resolve_with_facts(self, goal: Goal, rest: Atoms, own: Goal) -> Resolvents:
        """Facts in the range that the goal's constants choose; both constants make it a range of one or none."""
        key = self._key(
            goal.predicate,
            torch.where(self._is_constant(goal.first), goal.first, 0),
            torch.where(self._is_constant(goal.second), goal.second, 0),
        )
        entry = torch.searchsorted(self.pattern_keys, key)
        length = torch.where(self.pattern_keys[entry] == key, self.pattern_length[entry], 0)
        offset = torch.arange(self.caps.facts, device=key.device)
        in_range = offset < length
        row = torch.where(in_range, self.pattern_start[entry] + offset, self.fact_rows.shape[1] - 1)
        first, second = self.fact_rows[0][row], self.fact_rows[1][row]
        is_own = (goal.predicate == own.predicate) & (first == own.first) & (second == own.second)
        unifies = (goal.first != goal.second) | (first == second)

        def substitute(terms: Tensor) -> Tensor:
            # A goal's constant equals the fact's, so replacing it changes nothing and needs no test of its own.
            return torch.where(terms == goal.first, first, torch.where(terms == goal.second, second, terms))

        padding = rest.predicate.new_zeros(()).expand(self.body_atoms, *row.shape)
        predicate = rest.predicate.expand(-1, *row.shape)
        atoms = Atoms(
            torch.cat([padding, predicate]),
            torch.cat([padding, substitute(rest.first)]),
            torch.cat([padding, substitute(rest.second)]),
        )
        unseen = (length.squeeze(1) - self.caps.facts).clamp(min=0)
        return Resolvents(atoms, in_range & unifies & ~is_own, unseen)

    def _resolve_with_rules(self, goal: Goal, rest: Atoms) -> Resolvents:
        """Unification of two flat atoms is two replacements in sequence: the second sees what the first made of it."""
        predicate = goal.predicate.long()
        start, end = self.rule_start[predicate], self.rule_start[predicate + 1]
        offset = torch.arange(self.caps.rules, device=start.device)
        in_range = offset < end - start
        row = torch.where(in_range, start + offset, self.rule_head.shape[1] - 1)
        head_first, head_second = self.rule_head[0][row], self.rule_head[1][row]

        replaced0, by0, unifies0 = self._unify(goal.first, head_first)
        goal_second = torch.where(goal.second == replaced0, by0, goal.second)
        head_second = torch.where(head_second == replaced0, by0, head_second)
        replaced1, by1, unifies1 = self._unify(goal_second, head_second)

        def substitute(terms: Tensor) -> Tensor:
            terms = torch.where(terms == replaced0, by0, terms)
            return torch.where(terms == replaced1, by1, terms)

        body = self.rule_body[:, :, row]
        atoms = Atoms(
            torch.cat([body[0], rest.predicate.expand(-1, *row.shape)]),
            substitute(torch.cat([body[1], rest.first.expand(-1, *row.shape)])),
            substitute(torch.cat([body[2], rest.second.expand(-1, *row.shape)])),
        )
        unseen = (end - start).squeeze(1).sub(self.caps.rules).clamp(min=0)
        return Resolvents(atoms, in_range & unifies0 & unifies1, unseen)

    def _unify(self, goal: Tensor, head: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(term to replace, what by, whether they unify); the head's variable goes first, then the goal's."""
        head_is_variable = head > self.constants
        return (
            torch.where(head_is_variable, head, goal),
            torch.where(head_is_variable, goal, head),
            head_is_variable | (goal > self.constants) | (goal == head),
        )

    def _prune(self, atoms: Atoms, own: Goal) -> Atoms:
        """PAD in place of every ground atom that is a train fact, except the query's own."""
        ground = self._is_constant(atoms.first) & self._is_constant(atoms.second)
        key = torch.where(ground, self._key(*atoms), 0)
        is_fact = self.fact_keys[torch.searchsorted(self.fact_keys, key)] == key
        is_own = (atoms.predicate == own.predicate) & (atoms.first == own.first) & (atoms.second == own.second)
        return atoms._replace(predicate=torch.where(is_fact & ~is_own, PAD, atoms.predicate))

    def _compact(self, atoms: Atoms) -> list[Atoms]:
        """Atoms move up over the places that were pruned, in order; a PAD's arguments become 0."""
        places = [
            Atoms(predicate, torch.where(predicate == PAD, 0, first), torch.where(predicate == PAD, 0, second))
            for predicate, first, second in zip(*(field.unbind(0) for field in atoms), strict=True)
        ]
        for hole in reversed(range(len(places) - 1)):
            empty = places[hole].predicate == PAD
            for place in range(hole, len(places) - 1):
                places[place] = _choose(empty, places[place + 1], places[place])
            last = places[-1]
            places[-1] = Atoms(*(torch.where(empty, 0, field) for field in last))
        return places

    def _canonical(self, places: list[Atoms]) -> list[Atoms]:
        """Variables renamed C+1, C+2, ... by first occurrence."""
        terms = [term for atom in places for term in atom[1:]]
        named: list[Tensor] = []
        next_name = torch.full_like(terms[0], self.constants + 1)
        for index, term in enumerate(terms):
            is_variable = term > self.constants
            name = torch.where(is_variable, next_name, term)
            for earlier, given in zip(terms[:index], named, strict=True):
                name = torch.where(term == earlier, given, name)
            next_name = torch.where(is_variable & (name == next_name), next_name + 1, next_name)
            named.append(name)
        return [Atoms(atom.predicate, *named[2 * i : 2 * i + 2]) for i, atom in enumerate(places)]

    def _take(self, words: list[Tensor], new: Tensor) -> list[Tensor]:
        """The first S children marked ``new``, in order, then zeros: int64 [B, W]."""
        capacity, width = self.caps.children, self.caps.width
        batch, slots = new.shape
        position = torch.cumsum(new, dim=1) - 1
        # Children not kept all write to one slot past the end, which is cut off: what stands there is of no matter.
        target = torch.where(new & (position < capacity), position, width)
        source = torch.arange(slots, device=new.device).expand(batch, -1)
        index = torch.full((batch, width + 1), slots, device=new.device).scatter(1, target, source)[:, :width]
        return [torch.cat([word, word.new_zeros(batch, 1)], dim=1).gather(1, index) for word in words]

    def _finish(self, kept: list[Tensor], count: Tensor, proved: Tensor) -> Tensor:
        """Unpacked states [B, W, A, 3], with TRUE or FALSE in slot 0 where that is all there is."""
        fields = self.packing.unpack(kept)
        marker = torch.where(proved, TRUE, FALSE).to(torch.int32)[:, None, None]
        slot = torch.arange(self.caps.width, device=count.device)[None, :, None]
        field = torch.arange(3 * self.caps.atoms, device=count.device)[None, None, :]
        alone = torch.where((slot == 0) & (field == 0), marker, 0).to(torch.int32)
        return torch.where((count == 0)[:, None, None], alone, fields).view(-1, self.caps.width, self.caps.atoms, 3)

    def _key(self, predicate: Tensor, first: Tensor, second: Tensor) -> Tensor:
        terms = self.constants + 1
        return (predicate.long() * terms + first) * terms + second

    def _is_constant(self, terms: Tensor) -> Tensor:
        return (terms > 0) & (terms <= self.constants)


class _Packing:
    """Children as a few int64 words: each field in bits of its own, so equal words mean equal children and back."""

    def __init__(self, predicate_limit: int, term_limit: int, atoms: int) -> None:
        """Predicates are below ``predicate_limit``, terms below ``term_limit``."""
        predicate_bits, term_bits = (predicate_limit - 1).bit_length(), (term_limit - 1).bit_length()
        self.fields: list[tuple[int, int, int]] = []  # (word, shift, mask), atom by atom
        word = shift = 0
        for bits in (predicate_bits, term_bits, term_bits) * atoms:
            if shift + bits > WORD_BITS:
                word, shift = word + 1, 0
            self.fields.append((word, shift, (1 << bits) - 1))
            shift += bits
        self.words = word + 1

    def pack(self, places: list[Atoms]) -> list[Tensor]:
        """A atoms of [B, K] -> words of int64 [B, K]."""
        words: list[Tensor] = []
        terms = [field for atom in places for field in atom]
        for (word, shift, _), term in zip(self.fields, terms, strict=True):
            bits = term.long() << shift
            words[word:] = [words[word] | bits if word < len(words) else bits]
        return words

    def unpack(self, words: list[Tensor]) -> Tensor:
        """Words of [B, W] -> int32 [B, W, 3A]."""
        return torch.stack([((words[word] >> shift) & mask).to(torch.int32) for word, shift, mask in self.fields], 2)


def _repeated(words: list[Tensor], valid: Tensor) -> Tensor:
    """bool [B, K]: equal to an earlier valid child."""
    slots = valid.shape[1]
    same = valid.unsqueeze(1) & torch.ones(slots, slots, dtype=torch.bool, device=valid.device).tril(-1)
    for word in words:
        same = same & (word.unsqueeze(2) == word.unsqueeze(1))
    return same.any(2)


def _equal(words: list[Tensor], others: list[Tensor]) -> Tensor:
    return torch.stack([word == other for word, other in zip(words, others, strict=True)]).all(0)


def _choose(condition: Tensor, yes: Atoms, no: Atoms) -> Atoms:
    return Atoms(*(torch.where(condition, *fields) for fields in zip(yes, no, strict=True)))


def _fact_tables(graph: KnowledgeGraph) -> dict[str, npt.NDArray[np.generic]]:
    """Facts in both orders, and where each pattern of bound arguments finds its range."""
    facts = graph.train
    by_first = facts[np.lexsort((facts[:, 2], facts[:, 1], facts[:, 0]))]
    by_second = facts[np.lexsort((facts[:, 1], facts[:, 2], facts[:, 0]))]
    terms = len(graph.constants) + 1

    def keys(rows: npt.NDArray[np.int64], first: int, second: int) -> npt.NDArray[np.int64]:
        return (rows[:, 0] * terms + rows[:, 1] * first) * terms + rows[:, 2] * second

    patterns = [
        (keys(by_first, 1, 1), 0),
        (keys(by_first, 1, 0), 0),
        (keys(by_second, 0, 1), len(facts)),
        (keys(by_first, 0, 0), 0),
    ]
    tables = []
    for pattern, offset in patterns:
        unique, start, length = np.unique(pattern, return_index=True, return_counts=True)
        tables.append(np.stack([unique, start + offset, length]))
    table = np.concatenate([*tables, [[NO_KEY], [0], [0]]], axis=1)
    table = table[:, np.argsort(table[0])]
    rows = np.concatenate([by_first, by_second, np.zeros((1, 3), dtype=np.int64)])
    return {
        "fact_rows": np.ascontiguousarray(rows[:, 1:].T.astype(np.int32)),
        "fact_keys": np.append(np.sort(patterns[0][0]), NO_KEY),
        "pattern_keys": table[0].copy(),
        "pattern_start": table[1].copy(),
        "pattern_length": table[2].copy(),
    }


def _rule_tables(graph: KnowledgeGraph, term_limit: int) -> dict[str, npt.NDArray[np.generic]]:
    """Rules by head predicate, in file order within one; variables -1, -2 become term_limit, term_limit + 1."""
    rules = sorted(graph.rules, key=lambda rule: rule.head[0])
    body_atoms = max((len(rule.body) for rule in rules), default=0)
    heads = np.zeros((len(rules) + 1, 3), dtype=np.int32)
    bodies = np.zeros((len(rules) + 1, body_atoms, 3), dtype=np.int32)
    for row, rule in enumerate(rules):
        heads[row] = rule.head
        bodies[row, : len(rule.body)] = rule.body
    for table in (heads, bodies):
        table[table < 0] = term_limit - 1 - table[table < 0]
    first_predicates = np.arange(len(graph.predicates) + FIRST_PREDICATE + 1)
    return {
        "rule_start": np.searchsorted(heads[:-1, 0], first_predicates).astype(np.int64),
        "rule_head": np.ascontiguousarray(heads[:, 1:].T),
        "rule_body": np.ascontiguousarray(bodies.transpose(2, 1, 0)),
    }
