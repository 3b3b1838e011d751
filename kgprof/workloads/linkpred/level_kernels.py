"""The Triton kernels of a level of `levels`, in the order in which level_table.py launches them.

    derive       the children of each state of the frontier, as Engine.unify, close and different
    first_look   logits of all children with float16 products, and how far off they may be
    contend      the children of each state that float32 could choose, as ``contenders`` of
                 levels.py
    second_look  encodings of these, nearly float32's, and how far the first look's are from them
    choose       the best child of each state becomes a row of the table, or the state is left open
    exact_look   float32's encodings of what was left open
    decide       the best child in float32, as ``choose`` of levels.py
    enter        each new row gets a slot of a hash table: open addressing, all words are compared
    settle       each state gets its successor, and the next frontier is listed
    follow       each candidate makes one choice, as ``follow`` of levels.py

A list is filled with atomic additions: the children of a state stand together and in order, the
states in any order. No result depends on it, because a state's row is the first row with its key.

A kernel is compiled once for a table (``Launches``), so no integer that differs from launch to
launch is specialized. ``tensor`` is Triton's: a value, or the address of many; a ``group`` is its
tuple:

    fields    Engine.field_word, field_shift, field_mask: where a packed state has what
    facts     Engine.fact_arguments, number of its columns
    patterns  by slot the keys of look-ups, where their facts begin, how many they are; last slot
    rules     Engine.rule_start, rule_head, rule_predicate, rule_terms, number of their columns
    network   a ``Network``
    frontier  rows of the table, where ``encoded`` has each one, encoded
    lists     of each state: where its children begin, how many they are; and the children
    table     keys, successors, ends, and what was lost, by row
    atoms     predicates, first arguments, second arguments; an atom has one of each
    renaming  two replacements of terms, one after the other: old, new, old, new

``own`` is the key of the atom that is being proved, 0 where it is no fact.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import triton
import triton.language as tl
from triton.errors import TritonError
from triton.language import constexpr, float16, float32, int8, int32, int64, tensor
from triton.language import tuple as group

from kgprof.workloads.linkpred import graph, proof

__all__ = ["TritonError"]
jit: Callable[..., Callable[..., Any]] = triton.jit

TRUE = constexpr(graph.TRUE)
FALSE = constexpr(graph.FALSE)
PROVED = constexpr(proof.PROVED)
FAILED = constexpr(proof.FAILED)
TRUNCATED = constexpr(proof.TRUNCATED)
OVERFLOW = constexpr(proof.OVERFLOW)
# an odd multiplier that spreads bits (S. Vigna, ACM TOMS 42, 2016: xorshift64*)
MIXER = constexpr(0x2545F4914F6CDD1D)
COUNTERS = constexpr(5)  # in a row of what was lost: the caps' four, then NaN logits


class Network(NamedTuple):
    """The policy without the matrices of its layers, of which each look has its own."""

    predicates: tensor
    terms: tensor
    bias: tensor
    biases: tensor
    gains: tensor
    shifts: tensor
    epsilon: tensor


# ---------------------------------------------------------------- derive


@jit
def unpacked(key: tensor, fields: group, field: tensor, wanted: tensor) -> tensor:
    """Read a field of packed states."""
    words, shifts, masks = fields
    word = tl.load(key + tl.load(words + field), wanted, 0)
    return ((word >> tl.load(shifts + field)) & tl.load(masks + field)).to(int32)


@jit
def packed_with(
    packed: tensor, fields: group, field: tensor, value: tensor, writes: tensor
) -> tensor:
    """Write a field of packed states."""
    words = tl.load(fields[0] + field, writes, 0)
    shifted = value.to(int64) << tl.load(fields[1] + field, writes, 0)
    word = tl.arange(0, packed.shape[1])
    here = writes[:, None] & (words[:, None] == word[None, :])
    return packed | tl.where(here, shifted[:, None], 0)


@jit
def slot_of(key: tensor, last: tensor) -> tensor:
    hashed = (key ^ (key >> 29)) * MIXER
    return ((hashed ^ (hashed >> 32)) & last).to(int32)


@jit
def one_of(atoms: group, place: tensor) -> group:
    """Take one atom of a state."""
    predicates, firsts, seconds = atoms
    here = tl.arange(0, predicates.shape[0]) == place
    predicate = tl.sum(tl.where(here, predicates, 0), 0)
    first = tl.sum(tl.where(here, firsts, 0), 0)
    second = tl.sum(tl.where(here, seconds, 0), 0)
    return predicate, first, second


@jit
def selected(
    key: tensor, fields: group, constants: tensor, ATOMS: constexpr, ATOMS_UP: constexpr,
    LEFTMOST: constexpr,
) -> group:  # fmt: skip
    """Read the state's atoms, and choose the goal among them."""
    atom = tl.arange(0, ATOMS_UP)
    there = atom < ATOMS
    field = atom % ATOMS * 3
    predicate = unpacked(key, fields, field, there)
    first = unpacked(key, fields, field + 1, there)
    second = unpacked(key, fields, field + 2, there)
    unbound = 2 - ((first > 0) & (first <= constants)).to(int32)
    unbound -= ((second > 0) & (second <= constants)).to(int32)
    if LEFTMOST:
        unbound = unbound * 0
    order = tl.where(there, tl.where(predicate == 0, 3, unbound) * ATOMS + atom, 4 * ATOMS)
    return (predicate, first, second), tl.min(order, 0) % ATOMS


@jit
def replacement(goal: tensor, head: tensor, constants: tensor) -> group:
    """Make two arguments equal: the head's variable goes, else the goal's."""
    variable = head > constants
    unifies = variable | (goal == head) | (head * 0 + goal > constants)
    return unifies, tl.where(variable, head, goal), tl.where(variable, goal, head)


@jit
def matching(
    goal: group, own: tensor, place: tensor, constants: tensor, facts: group, patterns: group,
    rules: group, FACTS: constexpr, RULES: constexpr, PROBES: constexpr,
) -> group:  # fmt: skip
    """Find the facts and then the rules for a goal: which places unify, which hold a rule, the
    rules' rows, the renaming that each place makes, how many facts and rules the caps left out."""
    predicate, goal_first, goal_second = goal
    keys, fact_starts, lengths, last = patterns
    base = (constants + 1).to(int64)
    key = (predicate * base + tl.where(goal_first <= constants, goal_first, 0)) * base
    key += tl.where(goal_second <= constants, goal_second, 0)
    slot = slot_of(key, last) + tl.arange(0, PROBES)
    hit = tl.load(keys + slot) == key
    found = tl.sum(tl.load(lengths + slot, hit, 0), 0)
    is_fact = (place < FACTS) & (place < found)
    facts_lost = tl.maximum(found - FACTS, 0)
    start = tl.sum(tl.load(fact_starts + slot, hit, 0), 0)
    arguments, columns = facts
    row = tl.where(is_fact, start + place, columns - 1)
    first = tl.load(arguments + row)
    second = tl.load(arguments + columns + row)
    is_fact = is_fact & ((predicate * base + first) * base + second != own)
    starts, heads, _, _, columns = rules
    start = tl.load(starts + predicate).to(int32)
    found = tl.load(starts + predicate + 1).to(int32) - start
    offset = place - FACTS
    is_rule = (offset >= 0) & (offset < RULES) & (offset < found)
    rules_lost = tl.maximum(found - RULES, 0)
    row = tl.where(is_rule, start + offset, columns - 1)
    # A fact is a head without variables.
    first = tl.where(is_rule, tl.load(heads + row), first)
    second = tl.where(is_rule, tl.load(heads + columns + row), second)
    first_unifies, old_first, new_first = replacement(goal_first, first, constants)
    goal_second = tl.where(goal_second == old_first, new_first, goal_second)
    second = tl.where(second == old_first, new_first, second)
    second_unifies, old_second, new_second = replacement(goal_second, second, constants)
    unified = (is_fact | is_rule) & first_unifies & second_unifies
    renaming = (old_first, new_first, old_second, new_second)
    return unified, is_rule, row, renaming, facts_lost, rules_lost


@jit
def renamed(term: tensor, renaming: group) -> tensor:
    old_first, new_first, old_second, new_second = renaming
    term = tl.where(term == old_first, new_first, term)
    return tl.where(term == old_second, new_second, term)


@jit
def canonical(
    term: tensor, names: tensor, named: tensor, constants: tensor, writes: tensor
) -> group:
    """Give a variable its number in order of occurrence; ``names`` has the numbers so far, and
    ``named`` says how many they are."""
    name = tl.arange(0, names.shape[1])
    variable = writes & (term > constants)
    here = (term - constants - 1)[:, None] == name[None, :]
    old = tl.sum(tl.where(here, names, 0), 1)
    new = tl.where(old == 0, named + 1, old)
    names = tl.where(here & variable[:, None], new[:, None], names)
    named = tl.where(variable & (old == 0), named + 1, named)
    return tl.where(variable, constants + new, term), names, named


@jit
def closed(
    unified: tensor, is_rule: tensor, row: tensor, renaming: group, atoms: group,
    chosen: tensor, own: tensor, constants: tensor, rules: group, patterns: group,
    fields: group, BODY: constexpr, ATOMS: constexpr, PLACES: constexpr, WORDS_UP: constexpr,
    NAMES: constexpr, PROBES: constexpr,
) -> group:  # fmt: skip
    """Go through the atoms, first the rule's, then the state's others: pack what is left without
    facts, and count it."""
    _, _, bodies, terms, rows = rules
    keys, _, _, last = patterns
    base = (constants + 1).to(int64)
    packed = tl.zeros((PLACES, WORDS_UP), int64)
    names = tl.zeros((PLACES, NAMES), int32)
    named = tl.zeros((PLACES,), int32)
    size = tl.zeros((PLACES,), int32)
    for i in range(BODY - 1 + tl.sum((atoms[0] != 0).to(int32), 0)):
        of_rule = is_rule & (row * 0 + i < BODY)
        other = i - BODY
        other = tl.where(other >= chosen, other + 1, other)
        predicate, first, second = one_of(atoms, other)
        predicate = tl.where(of_rule, tl.load(bodies + i * rows + row, of_rule, 0), predicate)
        first = tl.where(of_rule, tl.load(terms + 2 * i * rows + row, of_rule, 0), first)
        second = tl.where(of_rule, tl.load(terms + (2 * i + 1) * rows + row, of_rule, 0), second)
        first = renamed(first, renaming)
        second = renamed(second, renaming)
        present = unified & (predicate != 0)
        ground = present & (first <= constants) & (second <= constants)
        key = (predicate * base + first) * base + second
        slot = slot_of(key, last)
        is_fact = ground & (tl.load(keys + slot, ground, -1) == key)
        for probe in tl.static_range(1, PROBES):
            is_fact = is_fact | (tl.load(keys + slot + probe, ground, -1) == key)
        stays = present & ((is_fact == 0) | (key == own))
        writes = stays & (size < ATOMS)
        packed = packed_with(packed, fields, size * 3, predicate, writes)
        first, names, named = canonical(first, names, named, constants, writes)
        packed = packed_with(packed, fields, size * 3 + 1, first, writes)
        second, names, named = canonical(second, names, named, constants, writes)
        packed = packed_with(packed, fields, size * 3 + 2, second, writes)
        size += stays.to(int32)
    return packed, size


@jit
def word_of(packed: tensor, w: tensor) -> tensor:
    word = tl.arange(0, packed.shape[1])
    return tl.sum(tl.where(word[None, :] == w, packed, 0), 1)


@jit
def different(
    packed: tensor, valid: tensor, size: tensor, key: tensor, place: tensor, most: tensor,
    PLACES: constexpr, WORDS: constexpr,
) -> group:  # fmt: skip
    """List the children: which places hold one, and its number; how many are different and how
    many of these are kept; the words."""
    as_parent = valid
    for w in tl.static_range(WORDS):
        as_parent = as_parent & (word_of(packed, w) == tl.load(key + w))
    # Eight places at a time: all at once are more than the registers hold.
    eight = tl.arange(0, 8)
    group = tl.arange(0, PLACES // 8)[:, None]
    again = place * 0
    for begin in range(PLACES // 8):
        here = tl.where(group == begin, tl.reshape(valid.to(int32), (PLACES // 8, 8)), 0)
        earlier = tl.sum(here, 0)[None, :] > 0
        earlier = earlier & (begin * 8 + eight[None, :] < place[:, None])
        for w in tl.static_range(WORDS):
            each = word_of(packed, w)
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
    word = tl.arange(0, packed.shape[1])
    packed = tl.where(alone, tl.where(word[None, :] == 0, marker, 0), packed)
    return real, tl.where(alone, 1, rank), total, kept, packed


@jit
def derive(
    ids: tensor, table: group, counter: tensor, starts: tensor, numbers: tensor,
    parents: tensor, children: tensor, facts: group, patterns: group, rules: group,
    fields: group, constants: tensor, most: tensor, ATOMS: constexpr, ATOMS_UP: constexpr,
    BODY: constexpr, FACTS: constexpr, RULES: constexpr, PLACES: constexpr, WORDS: constexpr,
    WORDS_UP: constexpr, NAMES: constexpr, PROBES: constexpr, LEFTMOST: constexpr,
) -> None:  # fmt: skip
    keys, _, _, lost = table
    b = tl.program_id(0)
    state = tl.load(ids + b).to(int64)
    key = keys + state * (WORDS + 1)
    own = tl.load(key + WORDS)
    atoms, chosen = selected(key, fields, constants, ATOMS, ATOMS_UP, LEFTMOST)
    goal = one_of(atoms, chosen)
    place = tl.arange(0, PLACES)
    unified, is_rule, row, renaming, facts_lost, rules_lost = matching(
        goal, own, place, constants, facts, patterns, rules, FACTS, RULES, PROBES
    )
    packed, size = closed(
        unified, is_rule, row, renaming, atoms, chosen, own, constants, rules, patterns, fields,
        BODY, ATOMS, PLACES, WORDS_UP, NAMES, PROBES,
    )  # fmt: skip
    valid = unified & (size <= ATOMS)
    real, rank, total, kept, packed = different(
        packed, valid, size, key, place, most, PLACES, WORDS
    )
    number = tl.maximum(kept, 1)
    begin = tl.atomic_add(counter, number)
    tl.store(starts + b, begin)
    tl.store(numbers + b, number)
    lost += state * COUNTERS
    tl.store(lost, tl.sum((unified & (valid == 0)).to(int64), 0))
    tl.store(lost + 1, (total - kept).to(int64))
    tl.store(lost + 2, facts_lost.to(int64))
    tl.store(lost + 3, rules_lost.to(int64))
    word = tl.arange(0, WORDS_UP)[None, :]
    to = begin + rank - 1
    tl.store(parents + to, place * 0 + b, real)
    tl.store(children + to[:, None] * WORDS + word, packed, real[:, None] & (word < WORDS))


# ---------------------------------------------------------------- looks


@jit
def rows_of(matrix: tensor, row: tensor, there: tensor, WIDTH: constexpr) -> tensor:
    column = tl.arange(0, WIDTH)
    return tl.load(matrix + row[:, None] * WIDTH + column, there[:, None], 0.0)


@jit
def pooled(
    key: tensor, there: tensor, network: group, fields: group, ATOMS: constexpr,
    WIDTH: constexpr, ROWS: constexpr,
) -> tensor:  # fmt: skip
    """Embed packed states: the mean of their atoms, projected."""
    x = tl.zeros((ROWS, WIDTH), float32)
    real = tl.zeros((ROWS,), float32)
    for atom in range(ATOMS):
        predicate = unpacked(key, fields, atom * 3, there)
        is_atom = predicate != 0
        first = unpacked(key, fields, atom * 3 + 1, is_atom)
        second = unpacked(key, fields, atom * 3 + 2, is_atom)
        # The sum of one atom first, so that two that are exchanged make the same sum, as in
        # policy.embed.
        each = rows_of(network.predicates, predicate, is_atom, WIDTH)
        each += rows_of(network.terms, first, is_atom, WIDTH)
        x += each - rows_of(network.terms, second, is_atom, WIDTH)
        real += is_atom.to(float32)
    return x / tl.maximum(real, 1.0)[:, None] + tl.load(network.bias + tl.arange(0, WIDTH))


@jit
def normalised(x: tensor, network: group, layer: tensor, WIDTH: constexpr) -> tensor:
    """relu(LayerNorm(x))."""
    place = layer * WIDTH + tl.arange(0, WIDTH)
    centred = x - tl.sum(x, 1)[:, None] / WIDTH
    variance = tl.sum(centred * centred, 1) / WIDTH
    normal = centred * tl.rsqrt(variance + network.epsilon)[:, None]
    normal = normal * tl.load(network.gains + place)
    return tl.maximum(normal + tl.load(network.shifts + place), 0.0)


@jit
def weights_of(matrices: tensor, layer: tensor, row: tensor, WIDTH: constexpr) -> tensor:
    column = tl.arange(0, WIDTH)
    return tl.load(matrices + layer * WIDTH * WIDTH + row[:, None] * WIDTH + column)


@jit
def glanced(
    key: tensor, there: tensor, high: tensor, network: group, fields: group,
    ATOMS: constexpr, LAYERS: constexpr, WIDTH: constexpr, ROWS: constexpr,
) -> tensor:  # fmt: skip
    """Encode packed states with float16 products."""
    column = tl.arange(0, WIDTH)
    x = pooled(key, there, network, fields, ATOMS, WIDTH, ROWS)
    for layer in range(LAYERS):
        normal = normalised(x, network, layer, WIDTH)
        biases = tl.load(network.biases + layer * WIDTH + column)
        x = tl.dot(normal.to(float16), weights_of(high, layer, column, WIDTH), x) + biases
    return x


@jit(do_not_specialize=["room"])
def first_look(
    children: tensor, counter: tensor, parents: tensor, sources: tensor, encoded: tensor,
    logits: tensor, reaches: tensor, scale: tensor, reach: tensor, high: tensor,
    network: group, fields: group, room: tensor, ATOMS: constexpr, WORDS: constexpr,
    LAYERS: constexpr, WIDTH: constexpr, ROWS: constexpr,
) -> None:  # fmt: skip
    count = tl.minimum(tl.load(counter), room)
    for block in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
        row = block * ROWS + tl.arange(0, ROWS)
        there = row < count
        key = children + row.to(int64) * WORDS
        x = glanced(key, there, high, network, fields, ATOMS, LAYERS, WIDTH, ROWS)
        source = tl.load(sources + tl.load(parents + row, there, 0), there, 0)
        parent = rows_of(encoded, source.to(int64), there, WIDTH)
        squared = tl.sum(parent * parent, 1)
        tl.store(logits + row, tl.sum(x * parent, 1) * scale, there)
        tl.store(reaches + row, tl.sqrt(tl.sum(x * x, 1) * squared) * reach, there)


@jit
def share(away: tensor, squared: tensor) -> tensor:
    """A difference over the length of what was looked for, given their squares."""
    of_length = tl.sqrt(away) / tl.maximum(tl.sqrt(squared), 1e-30)
    return tl.where(of_length == of_length, of_length, float("inf"))


@jit(do_not_specialize=["states"])
def contend(
    counter: tensor, starts: tensor, numbers: tensor, logits: tensor, reaches: tensor,
    lists: group, states: tensor, grain: tensor, STATES: constexpr, CHILDREN: constexpr,
) -> None:  # fmt: skip
    kept_starts, kept_numbers, kept = lists
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


@jit(do_not_specialize=["room"])
def second_look(
    children: tensor, kept: tensor, counter: tensor, encoded: tensor, apart: tensor, low: tensor,
    high: tensor, network: group, fields: group, room: tensor, ATOMS: constexpr, WORDS: constexpr,
    LAYERS: constexpr, WIDTH: constexpr, ROWS: constexpr,
) -> None:  # fmt: skip
    """Products are of float16 halves: high + low / 2048. Low times low is below float32's
    rounding."""
    column = tl.arange(0, WIDTH)
    count = tl.minimum(tl.load(counter), room)
    for block in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
        row = block * ROWS + tl.arange(0, ROWS)
        there = row < count
        key = children + tl.load(kept + row, there, 0).to(int64) * WORDS
        x = pooled(key, there, network, fields, ATOMS, WIDTH, ROWS)
        for layer in range(LAYERS):
            normal = normalised(x, network, layer, WIDTH)
            upper = normal.to(float16)
            lower = ((normal - upper.to(float32)) * 2048.0).to(float16)
            total = tl.dot(upper, weights_of(low, layer, column, WIDTH))
            weights = weights_of(high, layer, column, WIDTH)
            total = tl.dot(lower, weights, total) * (1.0 / 2048.0)
            biases = tl.load(network.biases + layer * WIDTH + column)
            x += tl.dot(upper, weights, total) + biases
        tl.store(encoded + row.to(int64)[:, None] * WIDTH + column, x, there[:, None])
        tl.debug_barrier()
        seen = glanced(key, there, high, network, fields, ATOMS, LAYERS, WIDTH, ROWS)
        wanted = rows_of(encoded, row.to(int64), there, WIDTH)
        away = tl.sum((seen - wanted) * (seen - wanted), 1)
        shares = tl.where(there, share(away, tl.sum(wanted * wanted, 1)), 0.0)
        tl.atomic_max(apart, tl.max(shares, 0))


@jit(do_not_specialize=["room"])
def exact_look(
    rows: tensor, counter: tensor, children: tensor, keys: tensor, encoded: tensor, full: tensor,
    network: group, fields: group, room: tensor, ATOMS: constexpr, WORDS: constexpr,
    LAYERS: constexpr, WIDTH: constexpr, PART: constexpr,
) -> None:  # fmt: skip
    """One program encodes one of ``rows``: a child, or a state of the table, whose row is
    negative."""
    column = tl.arange(0, WIDTH)
    part = tl.arange(0, PART)
    one = tl.arange(0, 1)
    for i in range(tl.program_id(0), tl.minimum(tl.load(counter), room), tl.num_programs(0)):
        row = tl.load(rows + i).to(int64)
        key = children + row * WORDS
        if row < 0:
            key = keys + (-1 - row) * (WORDS + 1)
        x = tl.sum(pooled(key + one, one == 0, network, fields, ATOMS, WIDTH, 1), 0)
        place = encoded + (row * 0 + i) * WIDTH
        for layer in range(LAYERS):
            of_layer = layer * WIDTH + column
            centred = x - tl.sum(x, 0) / WIDTH
            root = tl.rsqrt(tl.sum(centred * centred, 0) / WIDTH + network.epsilon)
            normal = centred * root * tl.load(network.gains + of_layer)
            normal = tl.maximum(normal + tl.load(network.shifts + of_layer), 0.0)
            for begin in range(0, WIDTH, PART):
                weights = weights_of(full, layer, begin + part, WIDTH)
                tl.store(place + begin + part, tl.sum(weights * normal, 1))
            tl.debug_barrier()
            x += tl.load(place + column) + tl.load(network.biases + of_layer)
            tl.debug_barrier()
        tl.store(place + column, x)


# ---------------------------------------------------------------- choose


@jit
def succeed(
    b: tensor, state: tensor, taken: tensor, nans: tensor, kept: tensor, children: tensor,
    table: group, chosen: tensor, begins: tensor, first_mask: tensor, WORDS: constexpr,
    WORDS_UP: constexpr,
) -> None:  # fmt: skip
    """Make the child that was taken a row of the table."""
    keys, _, ends, lost = table
    word = tl.arange(0, WORDS_UP)
    row = keys + (begins + b).to(int64) * (WORDS + 1)
    words = tl.load(children + tl.load(kept + taken).to(int64) * WORDS + word, word < WORDS, 0)
    tl.store(row + word, words, word < WORDS)
    tl.store(row + WORDS, tl.load(keys + state * (WORDS + 1) + WORDS))
    tl.store(ends + begins + b, (tl.sum(tl.where(word == 0, words, 0), 0) & first_mask).to(int32))
    tl.store(lost + state * COUNTERS + 4, nans.to(int64))
    tl.store(chosen + b, taken)


@jit(do_not_specialize=["begins", "room"])
def choose(
    frontier: group, lists: group, children: tensor, encoded: tensor, table: group,
    chosen: tensor, counts: tensor, opened: tensor, open_starts: tensor, rows: tensor,
    begins: tensor, first_mask: tensor, scale: tensor, reach: tensor, grain: tensor, room: tensor,
    WORDS: constexpr, WORDS_UP: constexpr, WIDTH: constexpr,
) -> None:  # fmt: skip
    ids, sources, parents = frontier
    starts, numbers, kept = lists
    b = tl.program_id(0)
    state = tl.load(ids + b).to(int64)
    column = tl.arange(0, WIDTH)
    parent = tl.load(parents + tl.load(sources + b).to(int64) * WIDTH + column)
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
            b, state, taken, nans, kept, children, table, chosen, begins, first_mask, WORDS,
            WORDS_UP,
        )  # fmt: skip


@jit
def note(apart: tensor, seen: tensor, wanted: tensor) -> None:
    """Raise ``apart`` to what an encoding differs by from the one that was looked for."""
    away = tl.sum((seen - wanted) * (seen - wanted), 0)
    tl.atomic_max(apart, share(away, tl.sum(wanted * wanted, 0)))


@jit(do_not_specialize=["begins", "room"])
def decide(
    frontier: group, lists: group, children: tensor, encoded: tensor, table: group,
    chosen: tensor, counts: tensor, opened: tensor, open_starts: tensor, exact: tensor,
    apart: tensor, begins: tensor, first_mask: tensor, scale: tensor, grain: tensor, room: tensor,
    WORDS: constexpr, WORDS_UP: constexpr, WIDTH: constexpr,
) -> None:  # fmt: skip
    """Choose in float32, and measure how far the second look's encodings are from float32's."""
    ids, sources, parents = frontier
    starts, numbers, kept = lists
    column = tl.arange(0, WIDTH)
    for i in range(tl.program_id(0), tl.load(counts + 3), tl.num_programs(0)):
        b = tl.load(opened + i)
        first = tl.load(open_starts + i).to(int64)
        parent = tl.load(exact + first * WIDTH + column)
        seen = tl.load(parents + tl.load(sources + b).to(int64) * WIDTH + column)
        note(apart, seen, parent)
        start = tl.load(starts + b)
        best = start * 0.0 - float("inf")
        taken = start
        nans = start * 0
        for child in range(tl.minimum(tl.load(numbers + b), room - start)):
            row = tl.load(exact + (first + 1 + child) * WIDTH + column)
            note(apart, tl.load(encoded + (start + child).to(int64) * WIDTH + column), row)
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
            b, state, taken, nans, kept, children, table, chosen, begins, first_mask, WORDS,
            WORDS_UP,
        )  # fmt: skip


# ---------------------------------------------------------------- settle


@jit(do_not_specialize=["begins", "count", "last"])
def enter(
    slots: tensor, keys: tensor, places: tensor, last: tensor, begins: tensor, count: tensor,
    WORDS: constexpr, BLOCK: constexpr,
) -> None:  # fmt: skip
    lane = tl.arange(0, BLOCK)
    i = tl.program_id(0) * BLOCK + lane
    row = begins + i
    pending = i < count
    key = keys + row.to(int64) * (WORDS + 1)
    hashed = tl.load(key, pending, 0)
    for word in tl.static_range(1, WORDS + 1):
        hashed = (hashed ^ (hashed >> 29)) * MIXER + tl.load(key + word, pending, 0)
    slot = slot_of(hashed, last)
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
    BLOCK: constexpr,
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
def follow(walk: group, table: group, depth: tensor, count: tensor, BLOCK: constexpr) -> None:
    outcome, depths, at, live, overflowed, tally = walk
    _, following, ends, lost = table
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    going = (i < count) & (tl.load(live + i, i < count, 0) != 0)
    state = tl.load(at + i, going, 0)
    over = tl.load(overflowed + i, going, 0) != 0
    for counter in tl.static_range(COUNTERS):
        dropped = tl.load(lost + state * COUNTERS + counter, going, 0)
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
