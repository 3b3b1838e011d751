"""The unification engine: proof.py's ``derive`` for a batch of states at once, in static shapes.

Every tensor's size is known when the engine is built, nothing reads a value back to the host, and
no operation's output size depends on data, so ``derive`` compiles as one graph (``fullgraph=True,
dynamic=False``) on CPU and CUDA.

Layout. K is the K_f facts and then the K_r rules that a goal may look at. An atom's place in its
child is a *leading* dimension: ``Atoms`` holds [N, B, K] for N places of K children of B states, so
whatever is done place by place works on contiguous [B, K] planes, which Inductor turns into vector
code. Terms: 0 pad, constants 1..C, state variables C+1..C+2A, and above them the rules' variables,
shifted there once when the engine is built: a rule never shares a variable with a canonical state,
so standardising apart costs nothing.

Equal children. A child is packed into a few int64 words, each field in bits of its own, and words
are compared: that is exact, where a hash would only be likely. Up to ``PAIRWISE_CHILDREN`` every
pair is compared; above, a stable sort by all words brings equal children together.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from kgprof.errors import UsageError
from kgprof.workloads.linkpred.caps import Caps, Selection
from kgprof.workloads.linkpred.graph import FALSE, FIRST_PREDICATE, PAD, TRUE, KnowledgeGraph

# above every key: ends each sorted table, so a look-up never runs past it
NO_KEY = np.iinfo(np.int64).max
WORD_BITS = 63  # of an int64, the sign left alone
# above it the sort is faster, eager and compiled (measured on one CPU core, B = 128)
PAIRWISE_CHILDREN = 64


class Children(NamedTuple):
    """What ``Engine.derive`` answers for B states."""

    states: Tensor  # int32 [B, W, A, 3], zero from ``number`` on
    number: Tensor  # int64 [B], how many of W, at least 1
    dropped: Tensor  # int64 [B, 4], in the order of ``caps.Dropped``


class Atoms(NamedTuple):
    """``predicate`` int32 [N, B, K], ``terms`` int32 [N, 2, B, K]; predicate PAD marks a place
    without an atom. Sizes of 1 broadcast: the selected goals are one atom [1, B, 1], the query's
    own atoms too."""

    predicate: Tensor
    terms: Tensor


class Resolvents(NamedTuple):
    """``atoms`` before any is pruned; ``valid`` bool [B, K], whether the goal unified; ``unseen``
    int64 [B, 1], what the cap on this kind of look-up left out."""

    atoms: Atoms
    valid: Tensor
    unseen: Tensor


class Listed(NamedTuple):
    """Children in the places where they were found: packed in ``words`` (int64 [words, B, K]) where
    ``real`` (bool [B, K]); ``dropped`` as in Children."""

    words: Tensor
    real: Tensor
    dropped: Tensor


class Engine(nn.Module):
    """Derives children over one graph; the tables are buffers, so ``.to(device)`` moves the whole
    engine."""

    # int32 [2, 2F + 1]: by (predicate, arg0, arg1), then by (predicate, arg1, arg0), then zeros
    fact_arguments: Tensor
    fact_keys: Tensor  # int64 [F + 1]: keys of the facts, sorted
    # int64 [U + 1]: keys of all look-ups that find something, sorted; an unbound argument is 0
    pattern_keys: Tensor
    pattern_start: Tensor  # int64 [U + 1]: where in fact_arguments their facts begin
    pattern_length: Tensor  # int64 [U + 1]
    rule_start: Tensor  # int64 [predicates + 1]: where a predicate's rules begin
    rule_head: Tensor  # int32 [2, R + 1]: the head's arguments, then zeros
    rule_predicate: Tensor  # int32 [M, R + 1]: the body's, M the longest
    rule_terms: Tensor  # int32 [M, 2, R + 1]
    # int64 [3A]: the word, the shift and the mask of each field of a packed child
    field_word: Tensor
    field_shift: Tensor  # int64 [3A, 1, 1]
    field_mask: Tensor  # int64 [3A, 1, 1]

    def __init__(self, graph: KnowledgeGraph, caps: Caps, selection: str) -> None:
        """Raises UsageError for a graph whose atoms do not fit a 63-bit key."""
        super().__init__()
        self.caps = caps
        self.selection = Selection(selection)
        self.constants = len(graph.constants)
        predicate_limit = FIRST_PREDICATE + len(graph.predicates)
        # state variables end before it, rule variables begin there
        term_limit = self.constants + 1 + 2 * caps.atoms
        if predicate_limit * (self.constants + 1) ** 2 >= NO_KEY:
            raise UsageError(
                f"{len(graph.predicates)} predicates over {self.constants} constants do not fit "
                "64-bit keys"
            )
        tables = {
            **_fact_tables(graph),
            **_rule_tables(graph, predicate_limit, term_limit),
            **_field_tables(caps.atoms, predicate_limit, term_limit),
        }
        for name, table in tables.items():
            self.register_buffer(name, torch.from_numpy(table), persistent=False)
        # Which fields each word holds.
        field_word = tables["field_word"]
        starts = np.searchsorted(field_word, np.arange(int(field_word[-1]) + 2)).tolist()
        self.words = [slice(start, end) for start, end in itertools.pairwise(starts)]

    @property
    def fields(self) -> tuple[Tensor, Tensor, Tensor]:
        """The word, the shift and the mask of each field."""
        return self.field_word, self.field_shift, self.field_mask

    def derive(self, states: Tensor, own: Tensor) -> Children:
        """The children of ``states`` (int32 [B, A, 3]; canonical, PAD last) while ``own`` (int32
        [B, 3]) is proved."""
        unified = self.unify(states, own)
        listed = self.different(states, unified, *self._closed(unified.atoms, own))
        counts = listed.real.sum(1)
        place = torch.where(listed.real, listed.real.cumsum(1) - 1, self.caps.width)
        taken = _scatter(listed.words, place.expand_as(listed.words), 2, self.caps.width)
        return Children(self.unpack(taken), counts, listed.dropped)

    def unify(self, states: Tensor, own: Tensor) -> Resolvents:
        """What the goal of each state unifies with: K_f facts, then K_r rules."""
        goal, rest = self._select(states)
        facts = self._resolve_with_facts(goal, rest, _places(own.unsqueeze(1)))
        rules = self._resolve_with_rules(goal, rest)
        return Resolvents(
            Atoms(
                *(torch.cat(pair, dim=-1) for pair in zip(facts.atoms, rules.atoms, strict=True))
            ),
            torch.cat([facts.valid, rules.valid], dim=1),
            torch.cat([facts.unseen, rules.unseen], dim=1),
        )

    def close(self, unified: Resolvents, own: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Of the children in ``places`` (int64 [N] of B x K) what is left without facts: packed,
        int64 [words, B, K], and the number of atoms, int64 [B, K]. What stands in other places
        counts for nothing."""
        parent = places // unified.valid.shape[1]
        atoms = Atoms(*(fields.flatten(-2)[..., places].unsqueeze(-1) for fields in unified.atoms))
        words, sizes = self._closed(atoms, own[parent])
        answers = torch.cat([words[..., 0], sizes.T])
        answers = answers.new_zeros(len(answers), unified.valid.numel()).index_copy(
            1, places, answers
        )
        answers = answers.view(-1, *unified.valid.shape)
        return answers[:-1], answers[-1]

    def _closed(self, atoms: Atoms, own: Tensor) -> tuple[Tensor, Tensor]:
        closed, sizes = self._prune(atoms, _places(own.unsqueeze(1)))
        return self._pack(self._canonical(closed)), sizes

    def different(
        self, states: Tensor, unified: Resolvents, words: Tensor, sizes: Tensor
    ) -> Listed:
        """The children that count: neither too long nor equal to an earlier one or to their parent,
        and TRUE alone."""
        valid = unified.valid & (sizes <= self.caps.atoms)
        new = valid & ~_repeated(words, valid) & (words != self.pack(states)).any(0)
        proved = (valid & (sizes == 0)).any(1)
        found = torch.where(proved, 0, new.sum(1))
        kept = found.clamp(max=self.caps.children)
        lost = torch.stack([(unified.valid & ~valid).sum(1), found - kept], dim=1)
        real = new & (new.cumsum(1) <= self.caps.children)
        return Listed(
            *self._mark(words, real, kept == 0, proved), torch.cat([lost, unified.unseen], dim=1)
        )

    def _mark(
        self, words: Tensor, real: Tensor, alone: Tensor, proved: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Where ``alone``, TRUE or FALSE is the only child."""
        # In the first place, and there in the lowest bits of the first word, which hold the first
        # predicate.
        first = (torch.arange(words[:, 0].numel(), device=words.device) == 0).view_as(words[:, :1])
        marker = torch.where(proved, TRUE, FALSE).unsqueeze(1) * first
        alone = alone.unsqueeze(1)
        return torch.where(alone, marker, words), torch.where(alone, first[0], real)

    def taken(self, listed: Listed, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The children in ``places`` (int64 [N] of B x K): parents, packed (int64 [words, N]),
        int32 [N, A, 3]."""
        words = listed.words.flatten(1)[:, places]
        return (
            places // listed.real.shape[1],
            words,
            self.unpack(words.unsqueeze(1))[0].contiguous(),
        )

    def pack(self, states: Tensor) -> Tensor:
        """[B, A, 3] -> int64 [words, B, 1]."""
        return self._pack(_places(states))

    def unpack(self, words: Tensor) -> Tensor:
        """int64 [words, B, K] -> int32 [B, K, A, 3]."""
        fields = (
            ((words[self.field_word] >> self.field_shift) & self.field_mask)
            .permute(1, 2, 0)
            .to(torch.int32)
        )
        return fields.reshape(*fields.shape[:2], -1, 3)

    def _select(self, states: Tensor) -> tuple[Atoms, Atoms]:
        """The goal, and the other A-1 atoms in order."""
        place = torch.arange(self.caps.atoms, device=states.device)
        unbound = 2 - self._is_constant(states[:, :, 1:]).sum(2)
        if self.selection is Selection.LEFTMOST:
            unbound = torch.zeros_like(unbound)
        # The least (unbound arguments, place), in one number: no promise about argmin's ties is
        # needed.
        order = torch.where(states[:, :, 0] == PAD, 3, unbound) * self.caps.atoms + place
        chosen = (order.amin(1) % self.caps.atoms)[:, None, None]
        goal = states.gather(1, chosen.expand(-1, 1, 3))
        rest = torch.where(place[:-1, None] >= chosen, states[:, 1:], states[:, :-1])
        return _places(goal), _places(rest)

    def _resolve_with_facts(self, goal: Atoms, rest: Atoms, own: Atoms) -> Resolvents:
        """Facts in the range that the goal's constants choose; two constants make it a range of one
        or none."""
        key = self._keys(
            goal._replace(terms=torch.where(self._is_constant(goal.terms), goal.terms, 0))
        )[0]
        entry = torch.searchsorted(self.pattern_keys, key)
        length = torch.where(self.pattern_keys[entry] == key, self.pattern_length[entry], 0)
        offset = torch.arange(self.caps.facts, device=key.device)
        row = torch.where(
            offset < length, self.pattern_start[entry] + offset, self.fact_arguments.shape[1] - 1
        )
        fact = self.fact_arguments[:, row]
        (first, second), (goal_first, goal_second) = fact, goal.terms[0]
        is_own = _same(Atoms(goal.predicate, fact.unsqueeze(0)), own)[0]
        unifies = (goal_first != goal_second) | (first == second)
        # A constant of the goal's equals the fact's, so replacing it changes nothing and needs no
        # test of its own.
        terms = torch.where(
            rest.terms == goal_first,
            first,
            torch.where(rest.terms == goal_second, second, rest.terms),
        )
        no_body = Atoms(*(table[..., -1:].unsqueeze(-1) for table in self._bodies()))
        atoms = _joined(no_body, rest._replace(terms=terms), row.shape)
        return Resolvents(
            atoms, (offset < length) & unifies & ~is_own, _excess(length, self.caps.facts)
        )

    def _resolve_with_rules(self, goal: Atoms, rest: Atoms) -> Resolvents:
        """Unifying two flat atoms takes two replacements in sequence: the second pair of arguments
        is compared, and the second replacement made, after the first."""
        predicate = goal.predicate[0].long()
        start = self.rule_start[predicate]
        length = self.rule_start[predicate + 1] - start
        offset = torch.arange(self.caps.rules, device=start.device)
        row = torch.where(offset < length, start + offset, self.rule_head.shape[1] - 1)
        first = self._replacement(goal.terms[0, 0], self.rule_head[0][row])
        second = self._replacement(
            first.apply(goal.terms[0, 1]), first.apply(self.rule_head[1][row])
        )
        body = Atoms(*(table[..., row] for table in self._bodies()))
        atoms = _joined(body, rest, row.shape)
        atoms = atoms._replace(terms=second.apply(first.apply(atoms.terms)))
        valid = (offset < length) & first.unifies & second.unifies
        return Resolvents(atoms, valid, _excess(length, self.caps.rules))

    def _replacement(self, goal: Tensor, head: Tensor) -> _Replacement:
        """What makes two arguments equal: the head's variable goes, else the goal's."""
        is_variable = head > self.constants
        unifies = is_variable | (goal > self.constants) | (goal == head)
        return _Replacement(
            torch.where(is_variable, head, goal), torch.where(is_variable, goal, head), unifies
        )

    def _bodies(self) -> Atoms:
        return Atoms(self.rule_predicate, self.rule_terms)

    def _prune(self, atoms: Atoms, own: Atoms) -> tuple[Atoms, Tensor]:
        """The first A atoms that are left, closed up, when ground train facts other than ``own``
        are gone; and int64 [B, K], how many are left."""
        key = torch.where(self._is_constant(atoms.terms).all(1), self._keys(atoms), 0)
        is_fact = self.fact_keys[torch.searchsorted(self.fact_keys, key)] == key
        stays = (atoms.predicate != PAD) & (~is_fact | _same(atoms, own))
        rank = stays.cumsum(0)
        # Atoms that go, and those past A, all write to one place past the end, which is cut off.
        place = torch.where(stays, rank - 1, self.caps.atoms).clamp(max=self.caps.atoms)
        places = place.unsqueeze(1).expand_as(atoms.terms)
        closed = Atoms(
            _scatter(atoms.predicate, place, 0, self.caps.atoms),
            _scatter(atoms.terms, places, 0, self.caps.atoms),
        )
        return closed, rank[-1]

    def _canonical(self, atoms: Atoms) -> Atoms:
        """Variables renamed C+1, C+2, ... by first occurrence."""
        terms = atoms.terms.flatten(0, 1)
        places = terms.shape[0]
        place = torch.arange(places, device=terms.device, dtype=torch.int32)
        not_later = (place <= place.unsqueeze(1))[:, :, None, None]
        first = torch.where(
            not_later & (terms.unsqueeze(1) == terms), place[:, None, None], places
        ).amin(1)
        is_variable = terms > self.constants
        rank = (is_variable & (first == place[:, None, None])).cumsum(0, dtype=torch.int32)
        named = torch.where(is_variable, self.constants + rank.gather(0, first.long()), terms)
        return atoms._replace(terms=named.view_as(atoms.terms))

    def _pack(self, atoms: Atoms) -> Tensor:
        """A atoms -> words, int64 [words, B, K]."""
        fields = torch.cat([atoms.predicate.unsqueeze(1), atoms.terms], dim=1).flatten(0, 1)
        shifted = fields.long() << self.field_shift
        return torch.stack([shifted[word].sum(0) for word in self.words])

    def _keys(self, atoms: Atoms) -> Tensor:
        """int64, one for each (predicate, arg0, arg1) whose arguments are constants or 0."""
        base = self.constants + 1
        return (atoms.predicate.long() * base + atoms.terms[:, 0]) * base + atoms.terms[:, 1]

    def _is_constant(self, terms: Tensor) -> Tensor:
        return (terms > 0) & (terms <= self.constants)


class _Replacement(NamedTuple):
    """Makes two terms equal by putting ``by`` for ``replaced``; ``unifies`` says where that is
    allowed. All [B, K]."""

    replaced: Tensor
    by: Tensor
    unifies: Tensor

    def apply(self, terms: Tensor) -> Tensor:
        return torch.where(terms == self.replaced, self.by, terms)


def _places(rows: Tensor) -> Atoms:
    """[B, N, 3] -> N atoms of one child each."""
    fields = rows.permute(1, 2, 0).unsqueeze(-1)
    return Atoms(fields[:, 0], fields[:, 1:])


def _joined(body: Atoms, rest: Atoms, shape: torch.Size) -> Atoms:
    """The atoms of ``body``, then those of ``rest``, for [B, K] children."""
    pairs = zip(body, rest, strict=True)
    return Atoms(
        *(torch.cat([part.expand(*part.shape[:-2], *shape) for part in pair]) for pair in pairs)
    )


def _same(atoms: Atoms, others: Atoms) -> Tensor:
    return (atoms.predicate == others.predicate) & (atoms.terms == others.terms).all(1)


def _excess(length: Tensor, cap: int) -> Tensor:
    return (length - cap).clamp(min=0)


def _scatter(source: Tensor, place: Tensor, dim: int, size: int) -> Tensor:
    """``source`` put at ``place`` along ``dim`` of a zero tensor of that ``size``; what goes to
    place ``size`` is lost.

    Only the lost place is written more than once, so the result is the same on every device.
    """
    shape = list(source.shape)
    shape[dim] = size + 1
    return source.new_zeros(shape).scatter(dim, place, source).narrow(dim, 0, size)


def _repeated(words: Tensor, valid: Tensor) -> Tensor:
    """bool [B, K]: a valid child with the same words stands earlier."""
    pairwise = valid.shape[1] <= PAIRWISE_CHILDREN
    return (_repeated_by_pairs if pairwise else _repeated_by_sorting)(words, valid)


def _repeated_by_pairs(words: Tensor, valid: Tensor) -> Tensor:
    slot = torch.arange(valid.shape[1], device=valid.device)
    same = valid.unsqueeze(1) & (slot < slot.unsqueeze(1))
    for word in words.unbind(0):
        same = same & (word.unsqueeze(2) == word.unsqueeze(1))
    return same.any(2)


def _repeated_by_sorting(words: Tensor, valid: Tensor) -> Tensor:
    """Sorting by the last word first and stably, as one sorts by hand, leaves equal children
    adjacent and in order."""
    words = torch.where(valid, words, -1)  # no packed word is negative
    order = torch.arange(valid.shape[1], device=valid.device).expand_as(valid)
    for word in reversed(words.unbind(0)):
        order = order.gather(1, word.gather(1, order).argsort(dim=1, stable=True))
    ordered = words.gather(2, order.expand_as(words))
    same = (ordered[:, :, 1:] == ordered[:, :, :-1]).all(0)
    return torch.zeros_like(valid).scatter(1, order[:, 1:], same)


def _field_tables(
    atoms: int, predicate_limit: int, term_limit: int
) -> dict[str, npt.NDArray[np.generic]]:
    """How a child is packed: each field takes the bits that its largest value needs, a word holds
    only whole fields."""
    predicate_bits = (predicate_limit - 1).bit_length()
    term_bits = (term_limit - 1).bit_length()
    fields = []
    word = shift = 0
    for bits in (predicate_bits, term_bits, term_bits) * atoms:
        if shift + bits > WORD_BITS:
            word = word + 1
            shift = 0
        fields.append((word, shift, (1 << bits) - 1))
        shift += bits
    table = np.array(fields, dtype=np.int64)
    return {
        "field_word": table[:, 0].copy(),
        "field_shift": table[:, 1].reshape(-1, 1, 1).copy(),
        "field_mask": table[:, 2].reshape(-1, 1, 1).copy(),
    }


def _fact_tables(graph: KnowledgeGraph) -> dict[str, npt.NDArray[np.generic]]:
    """Facts in both orders, and where each pattern of bound arguments finds its range."""
    facts = graph.train
    terms = len(graph.constants) + 1
    by_first = facts[np.lexsort((facts[:, 2], facts[:, 1], facts[:, 0]))]
    by_second = facts[np.lexsort((facts[:, 1], facts[:, 2], facts[:, 0]))]
    tables = []
    for first, second in ((1, 1), (1, 0), (0, 1), (0, 0)):
        rows, offset = (by_second, len(facts)) if second > first else (by_first, 0)
        keys = (rows[:, 0] * terms + rows[:, 1] * first) * terms + rows[:, 2] * second
        unique, start, length = np.unique(keys, return_index=True, return_counts=True)
        tables.append(np.stack([unique, start + offset, length]))
    facts_alone = tables[0][0]
    table = np.concatenate([*tables, [[NO_KEY], [0], [0]]], axis=1)
    keys, starts, lengths = table[:, np.argsort(table[0])]
    rows = np.concatenate([by_first, by_second, np.zeros((1, 3), dtype=np.int64)])
    return {
        "fact_arguments": np.ascontiguousarray(rows[:, 1:].T.astype(np.int32)),
        "fact_keys": np.append(facts_alone, NO_KEY),
        "pattern_keys": keys.copy(),
        "pattern_start": starts.copy(),
        "pattern_length": lengths.copy(),
    }


def _rule_tables(
    graph: KnowledgeGraph, predicate_limit: int, term_limit: int
) -> dict[str, npt.NDArray[np.generic]]:
    """Rules by head predicate, in file order within one, then a row of PAD; variables -1, -2 become
    term_limit, + 1."""
    rules = sorted(graph.rules, key=lambda rule: rule.head[0])
    longest = max((len(rule.body) for rule in rules), default=1)
    atoms = np.zeros((len(rules) + 1, 1 + longest, 3), dtype=np.int32)
    for row, rule in zip(atoms, rules, strict=False):
        row[: 1 + len(rule.body)] = (rule.head, *rule.body)
    atoms = np.where(atoms < 0, term_limit - 1 - atoms, atoms).transpose(1, 2, 0)
    starts = np.searchsorted(atoms[0, 0, :-1], np.arange(predicate_limit + 1))
    return {
        "rule_start": starts.astype(np.int64),
        "rule_head": np.ascontiguousarray(atoms[0, 1:]),
        "rule_predicate": np.ascontiguousarray(atoms[1:, 0]),
        "rule_terms": np.ascontiguousarray(atoms[1:, 1:]),
    }
