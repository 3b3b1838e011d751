"""The Triton kernels of a level of `levels` (level_table.py), in the order in which they run.

    derive       a state's children, as Engine.unify, close and different; one program for each
                 state
    look         the children's first look: logits with their reach, or held against the second
                 look's encodings
    contend      the children of each state that float32 could choose, as ``contenders`` of
                 levels.py
    second_look  their encodings, nearly float32's
    choose       the best of them, which becomes a row of the table; or the state is left open
    exact_look   float32's encodings for the states that were left open
    decide       their best in float32, as ``choose`` of levels.py
    enter        the new rows' places in a hash table: open addressing, where all words of a key
                 are compared
    settle       each state's successor, and the next frontier
    follow       one choice of every candidate, as ``follow`` of levels.py

Lists are filled with atomic additions, each state's children together and in order, so states stand
in any order from run to run. No result depends on it: a state's row is the first of those that have
its key.

A kernel is compiled once for a table (``Launches``), so no integer that differs from launch to
launch is specialized. ``tensor`` is Triton's: a value, or the address of many.
"""

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from triton.errors import TritonError
from triton.language import constexpr, float16, float32, int8, int32, int64, tensor

__all__ = ["TritonError"]
jit: Callable[..., Callable[..., Any]] = triton.jit


@jit
def unpacked(
    key: tensor, field_word: tensor, field_shift: tensor, field_mask: tensor, field: tensor,
    wanted: tensor,
) -> tensor:  # fmt: skip
    """A field of packed states."""
    word = tl.load(key + tl.load(field_word + field), wanted, 0)
    return ((word >> tl.load(field_shift + field)) & tl.load(field_mask + field)).to(int32)


@jit
def pooled(
    key: tensor, there: tensor, predicates: tensor, terms: tensor, bias: tensor, field_word: tensor,
    field_shift: tensor, field_mask: tensor, column: tensor, ATOMS: constexpr, WIDTH: constexpr,
    ROWS: constexpr,
) -> tensor:  # fmt: skip
    x = tl.zeros((ROWS, WIDTH), float32)
    real = tl.zeros((ROWS,), float32)
    for atom in range(ATOMS):
        predicate = unpacked(key, field_word, field_shift, field_mask, atom * 3, there)
        is_atom = predicate != 0
        first = unpacked(key, field_word, field_shift, field_mask, atom * 3 + 1, is_atom)
        second = unpacked(key, field_word, field_shift, field_mask, atom * 3 + 2, is_atom)
        # The sum of one atom first, so that two that are exchanged make the same sum, as in
        # policy.embed.
        each = tl.load(predicates + predicate[:, None] * WIDTH + column, is_atom[:, None], 0.0)
        each += tl.load(terms + first[:, None] * WIDTH + column, is_atom[:, None], 0.0)
        x += each - tl.load(terms + second[:, None] * WIDTH + column, is_atom[:, None], 0.0)
        real += is_atom.to(float32)
    return x / tl.maximum(real, 1.0)[:, None] + tl.load(bias + column)


@jit
def encoded_from(
    x: tensor, weights: tensor, biases: tensor, gains: tensor, shifts: tensor, epsilon: tensor,
    column: tensor, LAYERS: constexpr, WIDTH: constexpr,
) -> tensor:  # fmt: skip
    for layer in range(LAYERS):
        normal = normalised(x, gains, shifts, layer * WIDTH + column, epsilon, WIDTH)
        square = layer * WIDTH * WIDTH + column[:, None] * WIDTH + column
        x = tl.dot(normal.to(float16), tl.load(weights + square), x) + tl.load(
            biases + layer * WIDTH + column
        )
    return x


@jit(do_not_specialize=["room"])
def second_look(
    children: tensor, kept: tensor, counter: tensor, encoded: tensor, predicates: tensor,
    terms: tensor, bias: tensor, high: tensor, low: tensor, biases: tensor, gains: tensor,
    shifts: tensor, field_word: tensor, field_shift: tensor, field_mask: tensor, epsilon: tensor,
    room: tensor, ATOMS: constexpr, WORDS: constexpr, LAYERS: constexpr, WIDTH: constexpr,
    ROWS: constexpr,
) -> None:  # fmt: skip
    """Encodings of those that were kept, with products of float16 halves: high + low / 2048. Low
    times low is below float32's rounding."""
    column = tl.arange(0, WIDTH)
    count = tl.minimum(tl.load(counter), room)
    for block in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
        row = block * ROWS + tl.arange(0, ROWS)
        there = row < count
        key = children + tl.load(kept + row, there, 0).to(int64) * WORDS
        x = pooled(
            key, there, predicates, terms, bias, field_word, field_shift, field_mask, column, ATOMS,
            WIDTH, ROWS,
        )  # fmt: skip
        for layer in range(LAYERS):
            normal = normalised(x, gains, shifts, layer * WIDTH + column, epsilon, WIDTH)
            upper = normal.to(float16)
            lower = ((normal - upper.to(float32)) * 2048.0).to(float16)
            square = layer * WIDTH * WIDTH + column[:, None] * WIDTH + column
            total = tl.dot(upper, tl.load(low + square))
            weights = tl.load(high + square)
            total = tl.dot(lower, weights, total) * (1.0 / 2048.0)
            x += tl.dot(upper, weights, total) + tl.load(biases + layer * WIDTH + column)
        tl.store(encoded + row.to(int64)[:, None] * WIDTH + column, x, there[:, None])


@jit
def normalised(
    x: tensor, gains: tensor, shifts: tensor, place: tensor, epsilon: tensor, WIDTH: constexpr,
) -> tensor:  # fmt: skip
    """relu(LayerNorm(x))."""
    centred = x - tl.sum(x, 1)[:, None] / WIDTH
    variance = tl.sum(centred * centred, 1) / WIDTH
    normal = centred * tl.rsqrt(variance + epsilon)[:, None] * tl.load(gains + place)
    return tl.maximum(normal + tl.load(shifts + place), 0.0)


@jit
def note(apart: tensor, away: tensor, squared: tensor) -> None:
    """Raises ``apart`` to a difference over the length of what was looked for, of their squares."""
    share = tl.sqrt(away) / tl.maximum(tl.sqrt(squared), 1e-30)
    tl.atomic_max(apart, tl.where(share == share, share, float("inf")))


@jit(do_not_specialize=["room"])
def exact_look(
    rows: tensor, counter: tensor, children: tensor, keys: tensor, encoded: tensor,
    predicates: tensor, terms: tensor, bias: tensor, weights: tensor, biases: tensor, gains: tensor,
    shifts: tensor, field_word: tensor, field_shift: tensor, field_mask: tensor, epsilon: tensor,
    room: tensor, ATOMS: constexpr, WORDS: constexpr, LAYERS: constexpr, WIDTH: constexpr,
    PART: constexpr,
) -> None:  # fmt: skip
    """float32's encodings, each by one program: of children, and of states of the table, whose rows
    are negative."""
    column = tl.arange(0, WIDTH)
    part = tl.arange(0, PART)
    one = tl.arange(0, 1)
    for i in range(tl.program_id(0), tl.minimum(tl.load(counter), room), tl.num_programs(0)):
        row = tl.load(rows + i).to(int64)
        key = children + row * WORDS
        if row < 0:
            key = keys + (-1 - row) * (WORDS + 1)
        x = pooled(
            key + one, one == 0, predicates, terms, bias, field_word, field_shift, field_mask,
            column, ATOMS, WIDTH, 1,
        )  # fmt: skip
        x = tl.sum(x, 0)
        place = encoded + (row * 0 + i) * WIDTH
        for layer in range(LAYERS):
            centred = x - tl.sum(x, 0) / WIDTH
            root = tl.rsqrt(tl.sum(centred * centred, 0) / WIDTH + epsilon)
            normal = centred * root * tl.load(gains + layer * WIDTH + column)
            normal = tl.maximum(normal + tl.load(shifts + layer * WIDTH + column), 0.0)
            for begin in range(0, WIDTH, PART):
                square = layer * WIDTH * WIDTH + (begin + part[:, None]) * WIDTH + column
                tl.store(place + begin + part, tl.sum(tl.load(weights + square) * normal, 1))
            tl.debug_barrier()
            x += tl.load(place + column) + tl.load(biases + layer * WIDTH + column)
            tl.debug_barrier()
        tl.store(place + column, x)


@jit(do_not_specialize=["room"])
def look(
    children: tensor, kept: tensor, counter: tensor, parents: tensor, sources: tensor,
    encoded: tensor, logits: tensor, reaches: tensor, apart: tensor, predicates: tensor,
    terms: tensor, bias: tensor, weights: tensor, biases: tensor, gains: tensor, shifts: tensor,
    field_word: tensor, field_shift: tensor, field_mask: tensor, epsilon: tensor, scale: tensor,
    reach: tensor, room: tensor, ATOMS: constexpr, WORDS: constexpr, LAYERS: constexpr,
    WIDTH: constexpr, ROWS: constexpr, HELD: constexpr,
) -> None:  # fmt: skip
    """Logits of all children and their reach, or HELD: how far those that were kept are from their
    encodings."""
    column = tl.arange(0, WIDTH)
    count = tl.minimum(tl.load(counter), room)
    for block in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
        row = block * ROWS + tl.arange(0, ROWS)
        there = row < count
        child = row
        other = row
        if HELD:
            child = tl.load(kept + row, there, 0)
        else:
            other = tl.load(sources + tl.load(parents + row, there, 0), there, 0)
        key = children + child.to(int64) * WORDS
        x = pooled(
            key, there, predicates, terms, bias, field_word, field_shift, field_mask, column, ATOMS,
            WIDTH, ROWS,
        )  # fmt: skip
        x = encoded_from(x, weights, biases, gains, shifts, epsilon, column, LAYERS, WIDTH)
        others = tl.load(encoded + other.to(int64)[:, None] * WIDTH + column, there[:, None], 0.0)
        squared = tl.sum(others * others, 1)
        if HELD:
            share = tl.sqrt(tl.sum((x - others) * (x - others), 1)) / tl.maximum(
                tl.sqrt(squared), 1e-30
            )
            share = tl.where(there, tl.where(share == share, share, float("inf")), 0.0)
            tl.atomic_max(apart, tl.max(share, 0))
        else:
            tl.store(logits + row, tl.sum(x * others, 1) * scale, there)
            tl.store(reaches + row, tl.sqrt(tl.sum(x * x, 1) * squared) * reach, there)


@jit
def slot_of(key: tensor, mixer: tensor, last: tensor) -> tensor:
    hashed = (key ^ (key >> 29)) * mixer
    return ((hashed ^ (hashed >> 32)) & last).to(int32)


@jit
def packed_in(
    packed: tensor, word: tensor, field_word: tensor, field_shift: tensor, field: tensor,
    value: tensor, writes: tensor,
) -> tensor:  # fmt: skip
    shifted = value.to(int64) << tl.load(field_shift + field, writes, 0)
    here = writes[:, None] & (tl.load(field_word + field, writes, 0)[:, None] == word[None, :])
    return packed | tl.where(here, shifted[:, None], 0)


@jit
def renamed(
    term: tensor, names: tensor, named: tensor, name: tensor, constants: tensor, writes: tensor,
) -> tl.tuple:  # fmt: skip
    """A term, a variable by its number in order of occurrence; the names so far and how many they
    are."""
    variable = writes & (term > constants)
    here = (term - constants - 1)[:, None] == name[None, :]
    old = tl.sum(tl.where(here, names, 0), 1)
    new = tl.where(old == 0, named + 1, old)
    names = tl.where(here & variable[:, None], new[:, None], names)
    named = tl.where(variable & (old == 0), named + 1, named)
    return tl.where(variable, constants + new, term), names, named


@jit
def select(
    key: tensor, field_word: tensor, field_shift: tensor, field_mask: tensor, constants: tensor,
    ATOMS: constexpr, ATOMS_UP: constexpr, LEFTMOST: constexpr,
) -> tl.tuple:  # fmt: skip
    """The state's atoms, and which one is the goal."""
    atom = tl.arange(0, ATOMS_UP)
    there = atom < ATOMS
    field = atom % ATOMS * 3
    predicate = unpacked(key, field_word, field_shift, field_mask, field, there)
    first = unpacked(key, field_word, field_shift, field_mask, field + 1, there)
    second = unpacked(key, field_word, field_shift, field_mask, field + 2, there)
    unbound = 2 - ((first > 0) & (first <= constants)).to(int32)
    unbound -= ((second > 0) & (second <= constants)).to(int32)
    if LEFTMOST:
        unbound = unbound * 0
    order = tl.where(there, tl.where(predicate == 0, 3, unbound) * ATOMS + atom, 4 * ATOMS)
    return predicate, first, second, tl.min(order, 0) % ATOMS


@jit
def find_facts(
    goal: tensor, goal_first: tensor, goal_second: tensor, own_predicate: tensor, own_first: tensor,
    own_second: tensor, place: tensor, constants: tensor, pattern_slots: tensor,
    pattern_start: tensor, pattern_length: tensor, patterns: tensor, mixer: tensor,
    fact_arguments: tensor, fact_rows: tensor, FACTS: constexpr, PATTERN_PROBES: constexpr,
) -> tl.tuple:  # fmt: skip
    """The facts for a goal: which places unify, the facts' arguments, and how many the cap left
    out."""
    base = (constants + 1).to(int64)
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


@jit
def find_rules(
    goal: tensor, goal_first: tensor, goal_second: tensor, fact_first: tensor, fact_second: tensor,
    place: tensor, constants: tensor, rule_start: tensor, rule_head: tensor, rule_rows: tensor,
    FACTS: constexpr, RULES: constexpr,
) -> tl.tuple:  # fmt: skip
    """The rules for a goal: which places hold one and which unify, their rows, how many the cap
    left out, and what two replacements in sequence make of the terms, those of facts too."""
    start = tl.load(rule_start + goal).to(int32)
    length = tl.load(rule_start + goal + 1).to(int32) - start
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
    return (
        there,
        unifies,
        row,
        tl.maximum(length - RULES, 0),
        old_first,
        new_first,
        old_second,
        new_second,
    )


@jit
def close(
    unified: tensor, is_rule: tensor, row: tensor, old_first: tensor, new_first: tensor,
    old_second: tensor, new_second: tensor, predicates: tensor, firsts: tensor, seconds: tensor,
    chosen: tensor, own_predicate: tensor, own_first: tensor, own_second: tensor, constants: tensor,
    rule_predicate: tensor, rule_terms: tensor, rule_rows: tensor, fact_slots: tensor,
    facts: tensor, mixer: tensor, field_word: tensor, field_shift: tensor, BODY: constexpr,
    ATOMS: constexpr, ATOMS_UP: constexpr, PLACES: constexpr, WORDS_UP: constexpr, NAMES: constexpr,
    FACT_PROBES: constexpr,
) -> tl.tuple:  # fmt: skip
    """Atom by atom, first the rule's, then the state's others: what is left without facts, packed,
    and how many."""
    base = (constants + 1).to(int64)
    atom = tl.arange(0, ATOMS_UP)
    word = tl.arange(0, WORDS_UP)
    name = tl.arange(0, NAMES)
    packed = tl.zeros((PLACES, WORDS_UP), int64)
    names = tl.zeros((PLACES, NAMES), int32)
    named = tl.zeros((PLACES,), int32)
    size = tl.zeros((PLACES,), int32)
    for i in range(BODY - 1 + tl.sum((predicates != 0).to(int32), 0)):
        of_rule = is_rule & (row * 0 + i < BODY)
        other = i - BODY
        other = tl.where(other >= chosen, other + 1, other)
        predicate = tl.sum(tl.where(atom == other, predicates, 0), 0)
        first = tl.sum(tl.where(atom == other, firsts, 0), 0)
        second = tl.sum(tl.where(atom == other, seconds, 0), 0)
        predicate = tl.where(
            of_rule, tl.load(rule_predicate + i * rule_rows + row, of_rule, 0), predicate
        )
        first = tl.where(of_rule, tl.load(rule_terms + 2 * i * rule_rows + row, of_rule, 0), first)
        second = tl.where(
            of_rule, tl.load(rule_terms + (2 * i + 1) * rule_rows + row, of_rule, 0), second
        )
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
        size += stays.to(int32)
    return packed, size


@jit
def derive(
    ids: tensor, keys: tensor, counter: tensor, starts: tensor, numbers: tensor, lost: tensor,
    parents: tensor, children: tensor, fact_arguments: tensor, fact_slots: tensor,
    pattern_slots: tensor, pattern_start: tensor, pattern_length: tensor, rule_start: tensor,
    rule_head: tensor, rule_predicate: tensor, rule_terms: tensor, field_word: tensor,
    field_shift: tensor, field_mask: tensor, facts: tensor, patterns: tensor, fact_rows: tensor,
    rule_rows: tensor, constants: tensor, most: tensor, mixer: tensor, ATOMS: constexpr,
    ATOMS_UP: constexpr, BODY: constexpr, FACTS: constexpr, RULES: constexpr, PLACES: constexpr,
    WORDS: constexpr, WORDS_UP: constexpr, NAMES: constexpr, FACT_PROBES: constexpr,
    PATTERN_PROBES: constexpr, LEFTMOST: constexpr, TRUE: constexpr, FALSE: constexpr,
) -> None:  # fmt: skip
    b = tl.program_id(0)
    state = tl.load(ids + b).to(int64)
    key = keys + state * (WORDS + 1)
    base = (constants + 1).to(int64)
    own = tl.load(key + WORDS)
    own_second = (own % base).to(int32)
    own_first = (own // base % base).to(int32)
    own_predicate = (own // (base * base)).to(int32)
    predicates, firsts, seconds, chosen = select(
        key, field_word, field_shift, field_mask, constants, ATOMS, ATOMS_UP, LEFTMOST
    )
    atom = tl.arange(0, ATOMS_UP)
    goal = tl.sum(tl.where(atom == chosen, predicates, 0), 0)
    goal_first = tl.sum(tl.where(atom == chosen, firsts, 0), 0)
    goal_second = tl.sum(tl.where(atom == chosen, seconds, 0), 0)
    place = tl.arange(0, PLACES)
    of_facts, first, second, facts_lost = find_facts(
        goal, goal_first, goal_second, own_predicate, own_first, own_second, place, constants,
        pattern_slots, pattern_start, pattern_length, patterns, mixer, fact_arguments, fact_rows,
        FACTS, PATTERN_PROBES,
    )  # fmt: skip
    is_rule, of_rules, row, rules_lost, old_first, new_first, old_second, new_second = find_rules(
        goal, goal_first, goal_second, first, second, place, constants, rule_start, rule_head,
        rule_rows, FACTS, RULES,
    )  # fmt: skip
    unified = of_facts | of_rules
    packed, size = close(
        unified, is_rule, row, old_first, new_first, old_second, new_second, predicates, firsts,
        seconds, chosen, own_predicate, own_first, own_second, constants, rule_predicate,
        rule_terms, rule_rows, fact_slots, facts, mixer, field_word, field_shift, BODY, ATOMS,
        ATOMS_UP, PLACES, WORDS_UP, NAMES, FACT_PROBES,
    )  # fmt: skip
    valid = unified & (size <= ATOMS)
    real, rank, total, kept, packed = different(
        packed, valid, size, key, place, most, PLACES, WORDS, WORDS_UP, TRUE, FALSE
    )
    number = tl.maximum(kept, 1)
    begin = tl.atomic_add(counter, number)
    tl.store(starts + b, begin)
    tl.store(numbers + b, number)
    tl.store(lost + state * 5, tl.sum((unified & (valid == 0)).to(int64), 0))
    tl.store(lost + state * 5 + 1, (total - kept).to(int64))
    tl.store(lost + state * 5 + 2, facts_lost.to(int64))
    tl.store(lost + state * 5 + 3, rules_lost.to(int64))
    word = tl.arange(0, WORDS_UP)
    to = begin + rank - 1
    tl.store(parents + to, place * 0 + b, real)
    tl.store(
        children + to[:, None] * WORDS + word[None, :],
        packed,
        real[:, None] & (word[None, :] < WORDS),
    )


@jit
def different(
    packed: tensor, valid: tensor, size: tensor, key: tensor, place: tensor, most: tensor,
    PLACES: constexpr, WORDS: constexpr, WORDS_UP: constexpr, TRUE: constexpr, FALSE: constexpr,
) -> tl.tuple:  # fmt: skip
    """Which places hold children, and which one; how many are different and how many of these are
    kept; the words."""
    word = tl.arange(0, WORDS_UP)
    as_parent = valid
    for w in tl.static_range(WORDS):
        as_parent = as_parent & (
            tl.sum(tl.where(word[None, :] == w, packed, 0), 1) == tl.load(key + w)
        )
    # Eight places at a time: all at once are more than the registers hold.
    eight = tl.arange(0, 8)
    group = tl.arange(0, PLACES // 8)[:, None]
    again = place * 0
    for begin in range(PLACES // 8):
        earlier = (
            tl.sum(tl.where(group == begin, tl.reshape(valid.to(int32), (PLACES // 8, 8)), 0), 0)[
                None, :
            ]
            > 0
        )
        earlier = earlier & (begin * 8 + eight[None, :] < place[:, None])
        for w in tl.static_range(WORDS):
            each = tl.sum(tl.where(word[None, :] == w, packed, 0), 1)
            those = tl.sum(tl.where(group == begin, tl.reshape(each, (PLACES // 8, 8)), 0), 0)
            earlier = earlier & (each[:, None] == those[None, :])
        again = tl.maximum(again, tl.max(earlier.to(int32), 1))
    new = valid & (again == 0) & (as_parent == 0)
    proved = tl.max((valid & (size == 0)).to(int32), 0) > 0
    total = tl.where(proved, 0, tl.sum(new.to(int32), 0))
    kept = tl.minimum(total, most)
    rank = tl.cumsum(new.to(int32), 0)
    alone = kept == 0
    real = tl.where(alone, place == 0, new & (rank <= most))
    marker = tl.where(proved, TRUE, FALSE).to(int64)
    packed = tl.where(alone, tl.where(word[None, :] == 0, marker, 0), packed)
    return real, tl.where(alone, 1, rank), total, kept, packed


@jit(do_not_specialize=["states"])
def contend(
    counter: tensor, starts: tensor, numbers: tensor, logits: tensor, reaches: tensor, kept: tensor,
    kept_starts: tensor, kept_numbers: tensor, states: tensor, grain: tensor, STATES: constexpr,
    CHILDREN: constexpr,
) -> None:  # fmt: skip
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
    wins = (there & (loses == 0)).to(int32)
    number = tl.sum(wins, 1)
    ends = tl.cumsum(number, 0)
    begin = tl.atomic_add(counter, tl.sum(number, 0)) + ends - number
    tl.store(kept_starts + state, begin, state < states)
    tl.store(kept_numbers + state, number, state < states)
    tl.store(kept + begin[:, None] + tl.cumsum(wins, 1) - 1, place, wins > 0)


@jit
def succeed(
    b: tensor, state: tensor, taken: tensor, nans: tensor, kept: tensor, children: tensor,
    keys: tensor, ends: tensor, lost: tensor, chosen: tensor, begins: tensor, first_mask: tensor,
    WORDS: constexpr, WORDS_UP: constexpr,
) -> None:  # fmt: skip
    """The child that was taken becomes a row of the table."""
    word = tl.arange(0, WORDS_UP)
    row = keys + (begins + b).to(int64) * (WORDS + 1)
    words = tl.load(children + tl.load(kept + taken).to(int64) * WORDS + word, word < WORDS, 0)
    tl.store(row + word, words, word < WORDS)
    tl.store(row + WORDS, tl.load(keys + state * (WORDS + 1) + WORDS))
    tl.store(ends + begins + b, (tl.sum(tl.where(word == 0, words, 0), 0) & first_mask).to(int32))
    tl.store(lost + state * 5 + 4, nans.to(int64))
    tl.store(chosen + b, taken)


@jit(do_not_specialize=["begins", "room"])
def choose(
    ids: tensor, sources: tensor, starts: tensor, numbers: tensor, kept: tensor, children: tensor,
    parents_encoded: tensor, encoded: tensor, keys: tensor, ends: tensor, lost: tensor,
    chosen: tensor, counts: tensor, opened: tensor, open_starts: tensor, rows: tensor,
    begins: tensor, first_mask: tensor, scale: tensor, reach: tensor, grain: tensor, room: tensor,
    WORDS: constexpr, WORDS_UP: constexpr, WIDTH: constexpr,
) -> None:  # fmt: skip
    b = tl.program_id(0)
    state = tl.load(ids + b).to(int64)
    column = tl.arange(0, WIDTH)
    parent = tl.load(parents_encoded + tl.load(sources + b).to(int64) * WIDTH + column)
    squared = tl.sum(parent * parent, 0)
    start = tl.load(starts + b)
    number = tl.maximum(tl.minimum(tl.load(numbers + b), room - start), 0)
    # The largest that a logit is at least, the most that this child's is, and the most that
    # another's is.
    least = start * 0.0 - float("inf")
    most = least
    others = least
    taken = start * 0
    nans = taken
    for child in range(number):
        row = tl.load(encoded + (start + child).to(int64) * WIDTH + column)
        logit = tl.sum(row * parent, 0) * scale
        nans += (logit != logit).to(int32)
        away = tl.sqrt(tl.sum(row * row, 0) * squared) * reach
        better = logit - away > least
        others = tl.maximum(others, tl.where(better, most, logit + away))
        most = tl.where(better, logit + away, most)
        taken = tl.where(better, child, taken)
        least = tl.maximum(least, logit - away)
    first = room
    if (others >= least - grain) | (nans > 0):
        first = tl.atomic_add(counts + 4, number + 1)
    if first + number < room:
        at = tl.atomic_add(counts + 3, 1)
        tl.store(opened + at, b)
        tl.store(open_starts + at, first)
        tl.store(rows + first, -1 - state.to(int32))
        for child in range(number):
            tl.store(rows + first + 1 + child, tl.load(kept + start + child))
    else:
        taken = tl.minimum(start + taken, room - 1)
        succeed(
            b, state, taken, nans, kept, children, keys, ends, lost, chosen, begins, first_mask,
            WORDS, WORDS_UP,
        )  # fmt: skip


@jit(do_not_specialize=["begins", "room"])
def decide(
    ids: tensor, sources: tensor, starts: tensor, numbers: tensor, kept: tensor, children: tensor,
    parents_encoded: tensor, encoded: tensor, keys: tensor, ends: tensor, lost: tensor,
    chosen: tensor, counts: tensor, opened: tensor, open_starts: tensor, exact: tensor,
    apart: tensor, begins: tensor, first_mask: tensor, scale: tensor, grain: tensor, room: tensor,
    WORDS: constexpr, WORDS_UP: constexpr, WIDTH: constexpr,
) -> None:  # fmt: skip
    """``choose`` in float32, and how far the second look's encodings are from float32's."""
    column = tl.arange(0, WIDTH)
    for i in range(tl.program_id(0), tl.load(counts + 3), tl.num_programs(0)):
        b = tl.load(opened + i)
        first = tl.load(open_starts + i).to(int64)
        parent = tl.load(exact + first * WIDTH + column)
        seen = tl.load(parents_encoded + tl.load(sources + b).to(int64) * WIDTH + column)
        note(apart, tl.sum((seen - parent) * (seen - parent), 0), tl.sum(parent * parent, 0))
        start = tl.load(starts + b)
        best = start * 0.0 - float("inf")
        taken = start
        nans = start * 0
        for child in range(tl.minimum(tl.load(numbers + b), room - start)):
            row = tl.load(exact + (first + 1 + child) * WIDTH + column)
            seen = tl.load(encoded + (start + child).to(int64) * WIDTH + column)
            note(apart, tl.sum((seen - row) * (seen - row), 0), tl.sum(row * row, 0))
            logit = tl.sum(row * parent, 0) * scale
            nans += (logit != logit).to(int32)
            grains = tl.where(logit == logit, logit, float("-inf")) / grain
            # Half to even: from 2**23 on every float32 is whole.
            size = tl.abs(grains)
            size = tl.where(size < 8388608.0, size + 8388608.0 - 8388608.0, size)
            grains = tl.where(grains < 0, -size, size)
            taken = tl.where(grains > best, start + child, taken)
            best = tl.maximum(best, grains)
        state = tl.load(ids + b).to(int64)
        succeed(
            b, state, taken, nans, kept, children, keys, ends, lost, chosen, begins, first_mask,
            WORDS, WORDS_UP,
        )  # fmt: skip


@jit(do_not_specialize=["begins", "count", "last"])
def enter(
    slots: tensor, keys: tensor, places: tensor, begins: tensor, count: tensor, last: tensor,
    mixer: tensor, WORDS: constexpr, BLOCK: constexpr,
) -> None:  # fmt: skip
    lane = tl.arange(0, BLOCK)
    i = tl.program_id(0) * BLOCK + lane
    row = begins + i
    pending = i < count
    key = keys + row.to(int64) * (WORDS + 1)
    hashed = tl.load(key, pending, 0)
    for word in tl.static_range(1, WORDS + 1):
        hashed = (hashed ^ (hashed >> 29)) * mixer + tl.load(key + word, pending, 0)
    slot = slot_of(hashed, mixer, last)
    place = slot
    left = tl.sum(pending.to(int32), 0)
    while left > 0:
        # Lanes that are done look at a slot past the end that stays empty.
        at = tl.where(pending, slot, last + 1 + lane)
        there = tl.atomic_cas(slots + at, tl.where(pending, -1, -2), row)
        same = pending & (there >= 0)
        other = keys + there.to(int64) * (WORDS + 1)
        for word in tl.static_range(WORDS + 1):
            same = same & (tl.load(other + word, same, 0) == tl.load(key + word, same, 0))
        tl.atomic_min(slots + at, row, same)
        ends = pending & (same | (there == -1))
        place = tl.where(ends, slot, place)
        pending = pending & (ends == 0)
        slot = (slot + 1) & last
        left = tl.sum(pending.to(int32), 0)
    tl.store(places + i, place, i < count)


@jit(do_not_specialize=["begins", "count"])
def settle(
    slots: tensor, places: tensor, of: tensor, following: tensor, ends: tensor, chosen: tensor,
    new_ids: tensor, new_sources: tensor, counter: tensor, begins: tensor, count: tensor,
    TRUE: constexpr, FALSE: constexpr, BLOCK: constexpr,
) -> None:  # fmt: skip
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = i < count
    row = begins + i
    first = tl.load(slots + tl.load(places + i, there, 0), there, 0)
    tl.store(following + tl.load(of + i, there, 0), first, there)
    end = tl.load(ends + row, there, FALSE)
    new = there & (first == row) & (end != TRUE) & (end != FALSE)
    number = new.to(int32)
    to = tl.atomic_add(counter, tl.sum(number, 0)) + tl.cumsum(number, 0) - 1
    tl.store(new_ids + to, row, new)
    tl.store(new_sources + to, tl.load(chosen + i, new, 0), new)


@jit(do_not_specialize=["depth", "count"])
def follow(
    outcome: tensor, depths: tensor, at: tensor, live: tensor, overflowed: tensor, tally: tensor,
    following: tensor, ends: tensor, lost: tensor, depth: tensor, count: tensor, TRUE: constexpr,
    FALSE: constexpr, PROVED: constexpr, FAILED: constexpr, TRUNCATED: constexpr,
    OVERFLOW: constexpr, BLOCK: constexpr,
) -> None:  # fmt: skip
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
    tl.store(at + i, state.to(int64), going)
    tl.store(depths + i, steps, going)
    tl.store(overflowed + i, over.to(int8), going)
    tl.store(outcome + i, tl.where(end == TRUE, PROVED, unproved).to(int8), stops)
    tl.store(live + i, (stops == 0).to(int8), going)
