"""The Triton kernels of a level of `levels` on CUDA: eight launches, where torch's operations took 150.

    derive    a state's children, as Engine.unify, close and different; one program for each state
    look      the children's first look (first_look.py), as logits with their reach or held against float32's encodings
    contend   the children of each state that float32 could choose, as ``contenders`` of levels.py
    choose    the best of them in float32, as ``choose``; it becomes a row of the table
    enter     those rows' places in a hash table: open addressing, where all words of a key are compared
    settle    each state's successor, and the next frontier
    follow    one choice of every candidate, as ``follow``

Lists are filled with atomic additions, each state's children together and in order, so states stand in any order from
run to run. No result depends on it: a state's row is the first of those that have its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kgprof.workloads.linkpred.caps import Selection
from kgprof.workloads.linkpred.first_look import Looks
from kgprof.workloads.linkpred.graph import FALSE, TRUE
from kgprof.workloads.linkpred.policy import ROUNDING
from kgprof.workloads.linkpred.proof import FAILED, OVERFLOW, PROVED, TRUNCATED
from kgprof.workloads.linkpred.slots import Problem

try:  # torch's wheels for CUDA bring it
    import triton  # type: ignore[import-untyped]
    import triton.language as tl  # type: ignore[import-untyped]
except ImportError:
    triton = None
else:
    from kgprof.workloads.linkpred.first_look import unpacked

MIXER = 0x2545F4914F6CDD1D  # an odd multiplier that spreads bits (S. Vigna, ACM TOMS 42, 2016: xorshift64*)
DERIVE_WARPS = 2
CONTENDED = 16  # states per program
BLOCK = 128  # rows per program, one for each thread

if triton is not None:

    @triton.jit
    def slot_of(key, mixer, last):
        hashed = (key ^ (key >> 29)) * mixer
        return ((hashed ^ (hashed >> 32)) & last).to(tl.int32)

    @triton.jit
    def packed_in(packed, word, field_word, field_shift, field, value, writes):
        shifted = value.to(tl.int64) << tl.load(field_shift + field, writes, 0)
        here = writes[:, None] & (tl.load(field_word + field, writes, 0)[:, None] == word[None, :])
        return packed | tl.where(here, shifted[:, None], 0)

    @triton.jit
    def renamed(term, names, named, name, constants, writes):
        """A term, a variable by its number in order of occurrence; the names so far and how many they are."""
        variable = writes & (term > constants)
        here = (term - constants - 1)[:, None] == name[None, :]
        old = tl.sum(tl.where(here, names, 0), 1)
        new = tl.where(old == 0, named + 1, old)
        names = tl.where(here & variable[:, None], new[:, None], names)
        named = tl.where(variable & (old == 0), named + 1, named)
        return tl.where(variable, constants + new, term), names, named

    @triton.jit
    def select(key, field_word, field_shift, field_mask, constants, ATOMS: tl.constexpr, ATOMS_UP: tl.constexpr, LEFTMOST: tl.constexpr):
        """The state's atoms, and which one is the goal."""
        atom = tl.arange(0, ATOMS_UP)
        there = atom < ATOMS
        field = atom % ATOMS * 3
        predicate = unpacked(key, field_word, field_shift, field_mask, field, there)
        first = unpacked(key, field_word, field_shift, field_mask, field + 1, there)
        second = unpacked(key, field_word, field_shift, field_mask, field + 2, there)
        unbound = 2 - ((first > 0) & (first <= constants)).to(tl.int32) - ((second > 0) & (second <= constants)).to(tl.int32)
        if LEFTMOST:
            unbound = unbound * 0
        order = tl.where(there, tl.where(predicate == 0, 3, unbound) * ATOMS + atom, 4 * ATOMS)
        return predicate, first, second, tl.min(order, 0) % ATOMS

    @triton.jit
    def find_facts(
        goal, goal_first, goal_second, own_predicate, own_first, own_second, place, constants,
        pattern_slots, pattern_start, pattern_length, patterns, mixer, fact_arguments, fact_rows, FACTS: tl.constexpr,
        PATTERN_PROBES: tl.constexpr,
    ):  # fmt: skip
        """The facts for a goal: which places unify, the facts' arguments, and how many the cap left out."""
        base = (constants + 1).to(tl.int64)
        key = (goal * base + tl.where(goal_first <= constants, goal_first, 0)) * base
        key += tl.where(goal_second <= constants, goal_second, 0)
        slot = slot_of(key, mixer, patterns) + tl.arange(0, PATTERN_PROBES)
        hit = tl.load(pattern_slots + slot) == key
        length = tl.sum(tl.load(pattern_length + slot, hit, 0), 0)
        there = (place < FACTS) & (place < length)
        row = tl.where(there, tl.sum(tl.load(pattern_start + slot, hit, 0), 0) + place, fact_rows - 1)
        first = tl.load(fact_arguments + row)
        second = tl.load(fact_arguments + fact_rows + row)
        is_own = (first == own_first) & (second == own_second) & (place * 0 + goal == own_predicate)
        unifies = there & ((first == second) | (place * 0 + goal_first != goal_second)) & (is_own == 0)
        return unifies, first, second, tl.maximum(length - FACTS, 0)

    @triton.jit
    def find_rules(
        goal, goal_first, goal_second, fact_first, fact_second, place, constants,
        rule_start, rule_head, rule_rows, FACTS: tl.constexpr, RULES: tl.constexpr,
    ):  # fmt: skip
        """The rules for a goal: which places hold one and which unify, their rows, how many the cap left out, and what
        two replacements in sequence make of the terms, those of facts too."""
        start = tl.load(rule_start + goal).to(tl.int32)
        length = tl.load(rule_start + goal + 1).to(tl.int32) - start
        offset = place - FACTS
        there = (offset >= 0) & (offset < RULES) & (offset < length)
        row = tl.where(there, start + offset, rule_rows - 1)
        head_first = tl.load(rule_head + row)
        head_second = tl.load(rule_head + rule_rows + row)
        variable = head_first > constants
        unifies = there & (variable | (goal_first == head_first) | (place * 0 + goal_first > constants))
        old_first = tl.where(there & variable, head_first, goal_first)
        new_first = tl.where(there, tl.where(variable, goal_first, head_first), fact_first)
        goal_second = tl.where(goal_second == old_first, new_first, goal_second)
        head_second = tl.where(head_second == old_first, new_first, head_second)
        variable = head_second > constants
        unifies = unifies & (variable | (goal_second > constants) | (goal_second == head_second))
        old_second = tl.where(there & variable, head_second, goal_second)
        new_second = tl.where(there, tl.where(variable, goal_second, head_second), fact_second)
        return there, unifies, row, tl.maximum(length - RULES, 0), old_first, new_first, old_second, new_second

    @triton.jit
    def close(
        unified, is_rule, row, old_first, new_first, old_second, new_second, predicates, firsts, seconds, chosen,
        own_predicate, own_first, own_second, constants, rule_predicate, rule_terms, rule_rows, fact_slots, facts,
        mixer, field_word, field_shift, BODY: tl.constexpr, ATOMS: tl.constexpr, ATOMS_UP: tl.constexpr, PLACES: tl.constexpr,
        WORDS_UP: tl.constexpr, NAMES: tl.constexpr, FACT_PROBES: tl.constexpr,
    ):  # fmt: skip
        """Atom by atom, first the rule's, then the state's others: what is left without facts, packed, and how many."""
        base = (constants + 1).to(tl.int64)
        atom = tl.arange(0, ATOMS_UP)
        word = tl.arange(0, WORDS_UP)
        name = tl.arange(0, NAMES)
        packed = tl.zeros((PLACES, WORDS_UP), tl.int64)
        names = tl.zeros((PLACES, NAMES), tl.int32)
        named = tl.zeros((PLACES,), tl.int32)
        size = tl.zeros((PLACES,), tl.int32)
        for i in range(BODY + ATOMS - 1):
            of_rule = is_rule & (row * 0 + i < BODY)
            other = i - BODY
            other = tl.where(other >= chosen, other + 1, other)
            predicate = tl.sum(tl.where(atom == other, predicates, 0), 0)
            first = tl.sum(tl.where(atom == other, firsts, 0), 0)
            second = tl.sum(tl.where(atom == other, seconds, 0), 0)
            predicate = tl.where(of_rule, tl.load(rule_predicate + i * rule_rows + row, of_rule, 0), predicate)
            first = tl.where(of_rule, tl.load(rule_terms + 2 * i * rule_rows + row, of_rule, 0), first)
            second = tl.where(of_rule, tl.load(rule_terms + (2 * i + 1) * rule_rows + row, of_rule, 0), second)
            first = tl.where(first == old_first, new_first, first)
            first = tl.where(first == old_second, new_second, first)
            second = tl.where(second == old_first, new_first, second)
            second = tl.where(second == old_second, new_second, second)
            present = unified & (predicate != 0)
            ground = present & (first <= constants) & (second <= constants)
            key = (predicate * base + first) * base + second
            slot = slot_of(key, mixer, facts)
            is_fact = ground & (tl.load(fact_slots + slot, ground, -1) == key)
            for probe in tl.static_range(1, FACT_PROBES):
                is_fact = is_fact | (tl.load(fact_slots + slot + probe, ground, -1) == key)
            is_own = (predicate == own_predicate) & (first == own_first) & (second == own_second)
            stays = present & ((is_fact == 0) | is_own)
            writes = stays & (size < ATOMS)
            packed = packed_in(packed, word, field_word, field_shift, size * 3, predicate, writes)
            first, names, named = renamed(first, names, named, name, constants, writes)
            packed = packed_in(packed, word, field_word, field_shift, size * 3 + 1, first, writes)
            second, names, named = renamed(second, names, named, name, constants, writes)
            packed = packed_in(packed, word, field_word, field_shift, size * 3 + 2, second, writes)
            size += stays.to(tl.int32)
        return packed, size

    @triton.jit
    def derive(
        ids, keys, counter, starts, numbers, lost, parents, children, fact_arguments, fact_slots, pattern_slots,
        pattern_start, pattern_length, rule_start, rule_head, rule_predicate, rule_terms, field_word, field_shift,
        field_mask, facts, patterns, fact_rows, rule_rows, constants, most, mixer, ATOMS: tl.constexpr, ATOMS_UP: tl.constexpr,
        BODY: tl.constexpr, FACTS: tl.constexpr, RULES: tl.constexpr, PLACES: tl.constexpr, WORDS: tl.constexpr,
        WORDS_UP: tl.constexpr, NAMES: tl.constexpr, FACT_PROBES: tl.constexpr, PATTERN_PROBES: tl.constexpr,
        LEFTMOST: tl.constexpr, TRUE: tl.constexpr, FALSE: tl.constexpr,
    ):  # fmt: skip
        b = tl.program_id(0)
        state = tl.load(ids + b).to(tl.int64)
        key = keys + state * (WORDS + 1)
        base = (constants + 1).to(tl.int64)
        own = tl.load(key + WORDS)
        own_second = (own % base).to(tl.int32)
        own_first = (own // base % base).to(tl.int32)
        own_predicate = (own // (base * base)).to(tl.int32)
        predicates, firsts, seconds, chosen = select(
            key, field_word, field_shift, field_mask, constants, ATOMS, ATOMS_UP, LEFTMOST
        )
        atom = tl.arange(0, ATOMS_UP)
        goal = tl.sum(tl.where(atom == chosen, predicates, 0), 0)
        goal_first = tl.sum(tl.where(atom == chosen, firsts, 0), 0)
        goal_second = tl.sum(tl.where(atom == chosen, seconds, 0), 0)
        place = tl.arange(0, PLACES)
        of_facts, first, second, facts_lost = find_facts(
            goal, goal_first, goal_second, own_predicate, own_first, own_second, place, constants, pattern_slots,
            pattern_start, pattern_length, patterns, mixer, fact_arguments, fact_rows, FACTS, PATTERN_PROBES,
        )  # fmt: skip
        is_rule, of_rules, row, rules_lost, old_first, new_first, old_second, new_second = find_rules(
            goal, goal_first, goal_second, first, second, place, constants, rule_start, rule_head, rule_rows, FACTS, RULES
        )
        unified = of_facts | of_rules
        packed, size = close(
            unified, is_rule, row, old_first, new_first, old_second, new_second, predicates, firsts, seconds, chosen,
            own_predicate, own_first, own_second, constants, rule_predicate, rule_terms, rule_rows, fact_slots, facts,
            mixer, field_word, field_shift, BODY, ATOMS, ATOMS_UP, PLACES, WORDS_UP, NAMES, FACT_PROBES,
        )  # fmt: skip
        valid = unified & (size <= ATOMS)
        real, rank, total, kept, packed = different(packed, valid, size, key, place, most, PLACES, WORDS, WORDS_UP, TRUE, FALSE)
        number = tl.maximum(kept, 1)
        begin = tl.atomic_add(counter, number)
        tl.store(starts + b, begin)
        tl.store(numbers + b, number)
        tl.store(lost + state * 5, tl.sum((unified & (valid == 0)).to(tl.int64), 0))
        tl.store(lost + state * 5 + 1, (total - kept).to(tl.int64))
        tl.store(lost + state * 5 + 2, facts_lost.to(tl.int64))
        tl.store(lost + state * 5 + 3, rules_lost.to(tl.int64))
        word = tl.arange(0, WORDS_UP)
        to = begin + rank - 1
        tl.store(parents + to, place * 0 + b, real)
        tl.store(children + to[:, None] * WORDS + word[None, :], packed, real[:, None] & (word[None, :] < WORDS))

    @triton.jit
    def different(
        packed, valid, size, key, place, most, PLACES: tl.constexpr, WORDS: tl.constexpr, WORDS_UP: tl.constexpr, TRUE: tl.constexpr,
        FALSE: tl.constexpr,
    ):  # fmt: skip
        """Which places hold children, and which child it is; how many are different and how many are kept; the words."""
        word = tl.arange(0, WORDS_UP)
        as_parent = valid
        for w in tl.static_range(WORDS):
            as_parent = as_parent & (tl.sum(tl.where(word[None, :] == w, packed, 0), 1) == tl.load(key + w))
        # Eight places at a time: all at once are more than the registers hold.
        eight = tl.arange(0, 8)
        group = tl.arange(0, PLACES // 8)[:, None]
        again = place * 0
        for begin in range(PLACES // 8):
            earlier = tl.sum(tl.where(group == begin, tl.reshape(valid.to(tl.int32), (PLACES // 8, 8)), 0), 0)[None, :] > 0
            earlier = earlier & (begin * 8 + eight[None, :] < place[:, None])
            for w in tl.static_range(WORDS):
                each = tl.sum(tl.where(word[None, :] == w, packed, 0), 1)
                those = tl.sum(tl.where(group == begin, tl.reshape(each, (PLACES // 8, 8)), 0), 0)
                earlier = earlier & (each[:, None] == those[None, :])
            again = tl.maximum(again, tl.max(earlier.to(tl.int32), 1))
        new = valid & (again == 0) & (as_parent == 0)
        proved = tl.max((valid & (size == 0)).to(tl.int32), 0) > 0
        total = tl.where(proved, 0, tl.sum(new.to(tl.int32), 0))
        kept = tl.minimum(total, most)
        rank = tl.cumsum(new.to(tl.int32), 0)
        alone = kept == 0
        real = tl.where(alone, place == 0, new & (rank <= most))
        marker = tl.where(proved, TRUE, FALSE).to(tl.int64)
        packed = tl.where(alone, tl.where(word[None, :] == 0, marker, 0), packed)
        return real, tl.where(alone, 1, rank), total, kept, packed

    @triton.jit
    def contend(
        counter, starts, numbers, logits, reaches, kept, kept_starts, kept_numbers, states, grain,
        STATES: tl.constexpr, CHILDREN: tl.constexpr,
    ):  # fmt: skip
        state = tl.program_id(0) * STATES + tl.arange(0, STATES)
        child = tl.arange(0, CHILDREN)
        number = tl.load(numbers + state, state < states, 0)
        there = child[None, :] < number[:, None]
        place = tl.load(starts + state, state < states, 0)[:, None] + child[None, :]
        logit = tl.load(logits + place, there, 0.0)
        reach = tl.load(reaches + place, there, 0.0)
        least = logit - reach
        least = tl.where(there & (least == least), least, float("-inf"))
        loses = logit + reach < tl.max(least, 1)[:, None] - grain
        wins = (there & (loses == 0)).to(tl.int32)
        number = tl.sum(wins, 1)
        ends = tl.cumsum(number, 0)
        begin = tl.atomic_add(counter, tl.sum(number, 0)) + ends - number
        tl.store(kept_starts + state, begin, state < states)
        tl.store(kept_numbers + state, number, state < states)
        tl.store(kept + begin[:, None] + tl.cumsum(wins, 1) - 1, place, wins > 0)

    @triton.jit
    def choose(
        ids, sources, starts, numbers, kept, children, parents_encoded, encoded, keys, ends, lost, chosen, begins,
        first_mask, scale, grain, room, WORDS: tl.constexpr, WORDS_UP: tl.constexpr, WIDTH: tl.constexpr,
    ):  # fmt: skip
        b = tl.program_id(0)
        state = tl.load(ids + b).to(tl.int64)
        column = tl.arange(0, WIDTH)
        parent = tl.load(parents_encoded + tl.load(sources + b).to(tl.int64) * WIDTH + column)
        start = tl.load(starts + b)
        number = tl.minimum(tl.load(numbers + b), room - start)
        best = start * 0.0 - float("inf")
        taken = start * 0
        nans = taken
        for child in range(number):
            row = tl.load(encoded + (start + child).to(tl.int64) * WIDTH + column)
            logit = tl.sum(row * parent, 0) * scale
            nans += (logit != logit).to(tl.int32)
            grains = tl.where(logit == logit, logit, float("-inf")) / grain
            # Half to even: from 2**23 on every float32 is whole.
            size = tl.abs(grains)
            size = tl.where(size < 8388608.0, size + 8388608.0 - 8388608.0, size)
            grains = tl.where(grains < 0, -size, size)
            taken = tl.where(grains > best, child, taken)
            best = tl.maximum(best, grains)
        taken = start + taken
        child = tl.load(kept + taken)
        word = tl.arange(0, WORDS_UP)
        row = (begins + b).to(tl.int64)
        own = tl.load(keys + state * (WORDS + 1) + WORDS)
        words = tl.load(children + child.to(tl.int64) * WORDS + word, word < WORDS, own)
        tl.store(keys + row * (WORDS + 1) + word, words, word < WORDS)
        tl.store(keys + row * (WORDS + 1) + WORDS, own)
        tl.store(ends + row, (tl.sum(tl.where(word == 0, words, 0), 0) & first_mask).to(tl.int32))
        tl.store(lost + state * 5 + 4, nans.to(tl.int64))
        tl.store(chosen + b, tl.minimum(taken, room - 1))

    @triton.jit
    def enter(slots, keys, places, begins, count, last, mixer, WORDS: tl.constexpr, BLOCK: tl.constexpr):
        lane = tl.arange(0, BLOCK)
        i = tl.program_id(0) * BLOCK + lane
        row = begins + i
        pending = i < count
        key = keys + row.to(tl.int64) * (WORDS + 1)
        hashed = tl.load(key, pending, 0)
        for word in tl.static_range(1, WORDS + 1):
            hashed = (hashed ^ (hashed >> 29)) * mixer + tl.load(key + word, pending, 0)
        slot = slot_of(hashed, mixer, last)
        place = slot
        left = tl.sum(pending.to(tl.int32), 0)
        while left > 0:
            # Lanes that are done look at a slot past the end that stays empty.
            at = tl.where(pending, slot, last + 1 + lane)
            there = tl.atomic_cas(slots + at, tl.where(pending, -1, -2), row)
            same = pending & (there >= 0)
            other = keys + there.to(tl.int64) * (WORDS + 1)
            for word in tl.static_range(WORDS + 1):
                same = same & (tl.load(other + word, same, 0) == tl.load(key + word, same, 0))
            tl.atomic_min(slots + at, row, same)
            ends = pending & (same | (there == -1))
            place = tl.where(ends, slot, place)
            pending = pending & (ends == 0)
            slot = (slot + 1) & last
            left = tl.sum(pending.to(tl.int32), 0)
        tl.store(places + i, place, i < count)

    @triton.jit
    def settle(
        slots, places, of, following, ends, chosen, new_ids, new_sources, counter, begins, count, FALSE: tl.constexpr,
        BLOCK: tl.constexpr,
    ):  # fmt: skip
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        there = i < count
        row = begins + i
        first = tl.load(slots + tl.load(places + i, there, 0), there, 0)
        tl.store(following + tl.load(of + i, there, 0), first, there)
        new = there & (first == row) & (tl.load(ends + row, there, 0) > FALSE)
        number = new.to(tl.int32)
        to = tl.atomic_add(counter, tl.sum(number, 0)) + tl.cumsum(number, 0) - 1
        tl.store(new_ids + to, row, new)
        tl.store(new_sources + to, tl.load(chosen + i, new, 0), new)

    @triton.jit
    def follow(
        outcome, depths, at, live, overflowed, tally, following, ends, lost, depth, count, TRUE: tl.constexpr,
        FALSE: tl.constexpr, PROVED: tl.constexpr, FAILED: tl.constexpr, TRUNCATED: tl.constexpr, OVERFLOW: tl.constexpr,
        BLOCK: tl.constexpr,
    ):  # fmt: skip
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        going = (i < count) & (tl.load(live + i, i < count, 0) != 0)
        state = tl.load(at + i, going, 0)
        over = tl.load(overflowed + i, going, 0) != 0
        for counter in tl.static_range(5):
            dropped = tl.load(lost + state * 5 + counter, going, 0)
            tl.atomic_add(tally + counter, tl.sum(dropped, 0))
            if counter < 4:
                over = over | (dropped > 0)
        state = tl.load(following + state, going, 0)
        end = tl.load(ends + state, going, 0)
        steps = tl.load(depths + i, going, 0) + 1
        stops = going & ((end == TRUE) | (end == FALSE) | (steps == depth))
        unproved = tl.where(over, OVERFLOW, tl.where(end == FALSE, FAILED, TRUNCATED))
        tl.store(at + i, state.to(tl.int64), going)
        tl.store(depths + i, steps, going)
        tl.store(overflowed + i, over.to(tl.int8), going)
        tl.store(outcome + i, tl.where(end == TRUE, PROVED, unproved).to(tl.int8), stops)
        tl.store(live + i, (stops == 0).to(tl.int8), going)


def hashed_slots(keys: Tensor) -> tuple[Tensor, int, int]:
    """Where each of different keys stands in an open hash table, int64 [n]; the table's last slot; and how many slots
    from its own on a key may be in. Other slots are free, those past the end too."""
    last = triton.next_power_of_2(8 * len(keys) + 8) - 1
    hashed = (keys ^ (keys >> 29)) * MIXER
    own = (hashed ^ (hashed >> 32)) & last
    place, left = own.clone(), torch.arange(len(keys), device=keys.device)
    taken = torch.full((last + 1 + len(keys),), -1, device=keys.device)
    while len(left):
        free = left[taken[place[left]] < 0]
        taken[place[free]] = free
        left = left[taken[place[left]] != left]
        place[left] += 1
    return place, last, int((place - own).max()) + 1 if len(keys) else 1


def fit(problem: Problem) -> bool:
    """Whether the kernels are for this problem: each child of a state is compared with each, a row is held whole."""
    engine, policy = problem.engine, problem.policy
    width, weight = policy.sizes.hidden, policy.term.weight
    if triton is None or weight.dtype != torch.float32 or not 32 <= width <= 256 or width & (width - 1):
        return False
    if engine.caps.facts + engine.caps.rules > 128:
        return False
    return weight.is_cuda and torch.cuda.get_device_capability(weight.device) >= (8, 0)


class LevelKernels:
    """The table of `levels` and its frontier, on CUDA. ``differs`` as in levels.FIRST_LOOKS."""

    def __init__(self, problem: Problem, differs: float, apart: Tensor) -> None:
        engine, policy = problem.engine, problem.policy
        self.policy, self.engine, self.apart = policy, engine, apart
        self.device, self.words, self.width = problem.goals.device, len(engine.words), policy.sizes.hidden
        places = engine.caps.facts + engine.caps.rules
        self.most = min(engine.caps.children, places)
        variables = max(int(engine.rule_head.max()), int(engine.rule_terms.max())) - engine.constants
        self.fields = (engine.field_word, engine.field_shift, engine.field_mask)
        facts, last_fact, fact_probes = hashed_slots(engine.fact_keys[:-1])
        patterns, last_pattern, pattern_probes = hashed_slots(engine.pattern_keys[:-1])
        probes = triton.next_power_of_2(pattern_probes)
        self.tables = (
            engine.fact_arguments,
            self._at(facts, engine.fact_keys[:-1], last_fact + fact_probes),
            self._at(patterns, engine.pattern_keys[:-1], last_pattern + probes),
            self._at(patterns, engine.pattern_start[:-1].int(), last_pattern + probes),
            self._at(patterns, engine.pattern_length[:-1].int(), last_pattern + probes),
            *(engine.rule_start, engine.rule_head, engine.rule_predicate, engine.rule_terms, *self.fields),
            *(last_fact, last_pattern, engine.fact_arguments.shape[1], engine.rule_head.shape[1]),
            *(engine.constants, engine.caps.children, MIXER),
        )
        up = triton.next_power_of_2
        self.atoms, self.first_mask = engine.caps.atoms, int(engine.field_mask[0, 0, 0])
        self.packs = {"WORDS": self.words, "WORDS_UP": up(self.words)}
        self.derives: dict[str, Any] = {
            **{"ATOMS": self.atoms, "ATOMS_UP": up(self.atoms), "BODY": engine.rule_predicate.shape[0]},
            **{"FACTS": engine.caps.facts, "RULES": engine.caps.rules, "PLACES": max(16, up(places))},
            **{"NAMES": up(max(variables, 2 * self.atoms)), "FACT_PROBES": fact_probes, "PATTERN_PROBES": probes},
            **{"LEFTMOST": engine.selection is Selection.LEFTMOST, "TRUE": TRUE, "FALSE": FALSE, **self.packs},
            "num_warps": DERIVE_WARPS,
        }
        self.looks = Looks(policy, engine, differs)
        self.keys, self.lost = self.empty(0, self.words + 1, dtype=torch.int64), self.empty(0, 5, dtype=torch.int64)
        self.next, self.ends, self.slots = self.empty(0), self.empty(0), self.empty(0)
        self.rows = 0  # of the table
        self.room = 1.5  # for children that are kept, per state

    def _at(self, places: Tensor, values: Tensor, last: int) -> Tensor:
        return torch.full((last + 1,), -1, dtype=values.dtype, device=self.device).index_copy(0, places, values)

    def empty(self, *sizes: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(sizes, dtype=dtype, device=self.device)

    def begin(self, keys: Tensor, ends: Tensor, at: Tensor) -> None:
        """The states that candidates begin with; ``at`` gets the row of each."""
        count = len(keys)
        self.rows = self.children = self.again = 0
        self._grow(count)
        self.slots.fill_(-1)
        self.keys[:count], self.ends[:count] = keys, ends
        row = torch.arange(count, dtype=torch.int32, device=self.device)
        counts = torch.zeros(3, dtype=torch.int32, device=self.device)
        self._settle(row, at, row, counts)
        self.ids = self.ids[: int(counts[2])]
        self.sources = row[: len(self.ids)]
        self.encoded = self.looks.second(keys[:, :-1].contiguous(), self.ids, counts[2:], len(self.ids))

    def level(self, walk: Sequence[Tensor], depth: int) -> int:
        """Every state of the frontier gets its successor and every live candidate makes its choice. The frontier is then
        what was never reached before: so many states, or -1 where there was too little room for children."""
        count = len(self.ids)
        counts = torch.zeros(3, dtype=torch.int32, device=self.device)  # children, those that were kept, new states
        room = int(self.room * count) + 1024
        if count:
            self._grow(count)
            chosen = self._expand(counts, room)
            self._settle(self.ids, self.next, chosen, counts)
        outcome, depths, at, live, overflowed, tally = walk
        follow[(triton.cdiv(len(at), BLOCK),)](
            outcome, depths, at, live.view(torch.int8), overflowed.view(torch.int8), tally, self.next, self.ends,
            self.lost, depth, len(at), TRUE=TRUE, FALSE=FALSE, PROVED=PROVED, FAILED=FAILED, TRUNCATED=TRUNCATED,
            OVERFLOW=OVERFLOW, BLOCK=BLOCK,
        )  # fmt: skip
        children, again, left = counts.tolist()  # the CPU waits for the GPU, which it has given the whole level
        self.children, self.again = self.children + children, self.again + again
        self.ids, self.sources = self.ids[:left], self.sources[:left]
        if again > room:
            self.room *= 2
            return -1
        return left

    def _expand(self, counts: Tensor, room: int) -> Tensor:
        count, most = len(self.ids), len(self.ids) * self.most
        starts, numbers, parents, kept = self.empty(count), self.empty(count), self.empty(most), self.empty(most)
        kept_starts, kept_numbers, chosen = self.empty(count), self.empty(count), self.empty(count)
        children = self.empty(most, self.words, dtype=torch.int64)
        logits, reaches = self.empty(most, dtype=torch.float32), self.empty(most, dtype=torch.float32)
        derive[(count,)](
            self.ids, self.keys, counts, starts, numbers, self.lost, parents, children, *self.tables, **self.derives
        )
        self.looks.first(children, counts, parents, self.sources, self.encoded, logits, reaches)
        contend[(triton.cdiv(count, CONTENDED),)](
            counts[1:], starts, numbers, logits, reaches, kept, kept_starts, kept_numbers, count,
            2 * ROUNDING[torch.float32], STATES=CONTENDED, CHILDREN=triton.next_power_of_2(self.most),
        )  # fmt: skip
        encoded = self.looks.second(children, kept, counts[1:], room)
        self.looks.held(children, kept, counts[1:], encoded, self.apart)
        choose[(count,)](
            self.ids, self.sources, kept_starts, kept_numbers, kept, children, self.encoded, encoded, self.keys,
            self.ends, self.lost, chosen, self.rows, self.first_mask, self.policy.scale, ROUNDING[torch.float32], room,
            WIDTH=self.width, **self.packs, num_warps=1,
        )  # fmt: skip
        self.encoded = encoded
        return chosen

    def _settle(self, of: Tensor, to: Tensor, chosen: Tensor, counts: Tensor) -> None:
        """The new rows of the table get their slots, ``to`` at ``of`` the first row with their key, and those that are
        there for the first time are the next frontier."""
        count, begins = len(of), self.rows
        places = self.empty(count)
        self._enter(places, begins, count)
        self.ids, self.sources = self.empty(count), self.empty(count)
        settle[(triton.cdiv(count, BLOCK),)](
            self.slots, places, of, to, self.ends, chosen, self.ids, self.sources, counts[2:], begins, count,
            FALSE=FALSE, BLOCK=BLOCK,
        )  # fmt: skip
        self.rows += count

    def _enter(self, places: Tensor, begins: int, count: int) -> None:
        last = len(self.slots) - BLOCK - 1
        enter[(triton.cdiv(count, BLOCK),)](
            self.slots, self.keys, places, begins, count, last, MIXER, WORDS=self.words, BLOCK=BLOCK
        )

    def _grow(self, count: int) -> None:
        """Room for so many more rows, and twice as many slots as rows at least."""
        rows = self.rows + count
        if rows <= len(self.next):
            return
        room = triton.next_power_of_2(max(2 * rows, 1 << 16))
        for name in ("keys", "next", "ends", "lost"):
            before = getattr(self, name)
            after = self.empty(room, *before.shape[1:], dtype=before.dtype)
            after[: self.rows] = before[: self.rows]
            setattr(self, name, after)
        self.slots = torch.full((2 * room + BLOCK,), -1, dtype=torch.int32, device=self.device)
        if self.rows:
            self._enter(self.empty(self.rows), 0, self.rows)
