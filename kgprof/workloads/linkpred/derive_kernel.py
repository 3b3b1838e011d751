# mypy: allow-untyped-defs, allow-incomplete-defs
"""The Triton kernel that derives the children of a state, as ``Engine.derive`` does with torch.

    derive ─► select    the atoms of a state, and which of them is the goal
           ─► match     the facts, then the rules, that the goal may unify with: one in each place
           ─► unify     which of them do, and the renaming that makes them equal
           ─► resolve   what is left of each child without its facts, packed
           ─► list_new  which of these are different children, in order

A program derives one state. A block of ``PLACES`` numbers has one for each fact or rule, and so for
each child. ``atoms`` are the predicates, the first and the second arguments of a state. A
``renaming`` is two replacements of terms, one after the other: old, new, old, new.

Triton compiles these functions: their values have no types of Python's, only the tuples that a
kernel gets have (level_layout.py).
"""

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from triton.language import constexpr, int32, int64

from kgprof.workloads.linkpred import graph, level_layout
from kgprof.workloads.linkpred.level_layout import Graph, Sizes, Table

jit: Callable[..., Callable[..., Any]] = triton.jit
next_power_of_2 = triton.next_power_of_2

TRUE = constexpr(graph.TRUE)
FALSE = constexpr(graph.FALSE)
MIXER = constexpr(level_layout.MIXER)
COUNTERS = constexpr(level_layout.COUNTERS)


@jit
def derive(
    ids, table: Table, counter, starts, numbers, parents, children, knowledge: Graph, sizes: Sizes
):  # fmt: skip
    b = tl.program_id(0)
    state = tl.load(ids + b).to(int64)
    key = table.keys + state * (sizes.WORDS + 1)
    own = tl.load(key + sizes.WORDS)
    atoms, chosen = select(key, knowledge, sizes)
    goal = atom_at(atoms, chosen)
    place = tl.arange(0, sizes.PLACES)
    matches, is_rule, column, head, unseen = match(goal, own, place, knowledge, sizes)
    unified, renaming = unify(goal, head, matches, knowledge.constants)
    body = (is_rule, column, renaming)
    packed, size = resolve(unified, body, atoms, chosen, own, knowledge, sizes)
    valid = unified & (size <= sizes.ATOMS)
    found = list_new(packed, valid, size, key, place, knowledge.most, sizes)
    real, rank, total, kept, packed = found
    number = tl.maximum(kept, 1)
    begin = tl.atomic_add(counter, number)
    tl.store(starts + b, begin)
    tl.store(numbers + b, number)
    facts_unseen, rules_unseen = unseen
    lost = table.lost + state * COUNTERS
    too_long = unified & (valid == 0)
    tl.store(lost, tl.sum(too_long.to(int64), 0))
    tl.store(lost + 1, (total - kept).to(int64))
    tl.store(lost + 2, facts_unseen.to(int64))
    tl.store(lost + 3, rules_unseen.to(int64))
    child = begin + rank - 1
    tl.store(parents + child, b, real)
    word = tl.arange(0, packed.shape[1])[None, :]
    to = children + child[:, None] * sizes.WORDS + word
    tl.store(to, packed, real[:, None] & (word < sizes.WORDS))


# ---------------------------------------------------------------- packed states and keys


@jit
def read_field(key, fields, field, mask):
    """Read a field of packed states."""
    word = tl.load(fields.words + field)
    packed = tl.load(key + word, mask, 0)
    shifted = packed >> tl.load(fields.shifts + field)
    value = shifted & tl.load(fields.masks + field)
    return value.to(int32)


@jit
def write_field(packed, fields, field, value, mask):
    """Write a field of packed states."""
    words = tl.load(fields.words + field, mask, 0)
    shifted = value.to(int64) << tl.load(fields.shifts + field, mask, 0)
    word = tl.arange(0, packed.shape[1])
    here = mask[:, None] & (words[:, None] == word[None, :])
    return packed | tl.where(here, shifted[:, None], 0)


@jit
def word_of(packed, w):
    word = tl.arange(0, packed.shape[1])
    return sum_of(word[None, :] == w, packed, 1)


@jit
def key_of(predicate, first, second, constants):
    """Make one number of an atom whose arguments are constants or 0, as ``Engine._keys``."""
    base = (constants + 1).to(int64)
    return (predicate * base + first) * base + second


@jit
def slot_of(key, last):
    hashed = (key ^ (key >> 29)) * MIXER
    return ((hashed ^ (hashed >> 32)) & last).to(int32)


@jit
def atom_at(atoms, place):
    """Take one atom of a state."""
    predicates, firsts, seconds = atoms
    here = tl.arange(0, predicates.shape[0]) == place
    return sum_of(here, predicates, 0), sum_of(here, firsts, 0), sum_of(here, seconds, 0)


@jit
def sum_of(here, values, axis: constexpr):
    return tl.sum(tl.where(here, values, 0), axis)


# ---------------------------------------------------------------- from a goal to its children


@jit
def select(key, knowledge, sizes):
    """Read the state's atoms, and choose the goal among them."""
    fields = knowledge.fields
    constants = knowledge.constants
    atom = tl.arange(0, next_power_of_2(sizes.ATOMS))
    there = atom < sizes.ATOMS
    field = atom % sizes.ATOMS * 3
    predicate = read_field(key, fields, field, there)
    first = read_field(key, fields, field + 1, there)
    second = read_field(key, fields, field + 2, there)
    unbound = 2 - ((first > 0) & (first <= constants)).to(int32)
    unbound -= ((second > 0) & (second <= constants)).to(int32)
    if sizes.LEFTMOST:
        unbound = unbound * 0
    unbound = tl.where(predicate == 0, 3, unbound)
    order = tl.where(there, unbound * sizes.ATOMS + atom, 4 * sizes.ATOMS)
    return (predicate, first, second), tl.min(order, 0) % sizes.ATOMS


@jit
def match(goal, own, place, knowledge, sizes):
    """Find facts and then rules for a goal. Returns which places hold one, which hold a rule, the
    rules' columns, the heads' arguments, and how many facts and rules the caps left out."""
    predicate, first, second = goal
    constants = knowledge.constants
    patterns = knowledge.patterns
    first = tl.where(first <= constants, first, 0)
    second = tl.where(second <= constants, second, 0)
    key = key_of(predicate, first, second, constants)
    slot = slot_of(key, patterns.last) + tl.arange(0, sizes.PROBES)
    hit = tl.load(patterns.keys + slot) == key
    number = tl.sum(tl.load(patterns.lengths + slot, hit, 0), 0)
    is_fact = (place < sizes.FACTS) & (place < number)
    facts_unseen = tl.maximum(number - sizes.FACTS, 0)
    start = tl.sum(tl.load(patterns.starts + slot, hit, 0), 0)
    columns = knowledge.fact_columns
    column = tl.where(is_fact, start + place, columns - 1)
    first = tl.load(knowledge.facts + column)
    second = tl.load(knowledge.facts + columns + column)
    is_fact = is_fact & (key_of(predicate, first, second, constants) != own)
    rules = knowledge.rules
    start = tl.load(rules.starts + predicate).to(int32)
    number = tl.load(rules.starts + predicate + 1).to(int32) - start
    offset = place - sizes.FACTS
    is_rule = (offset >= 0) & (offset < sizes.RULES) & (offset < number)
    rules_unseen = tl.maximum(number - sizes.RULES, 0)
    column = tl.where(is_rule, start + offset, rules.columns - 1)
    # A fact is a head without variables.
    first = tl.where(is_rule, tl.load(rules.heads + column), first)
    second = tl.where(is_rule, tl.load(rules.heads + rules.columns + column), second)
    return is_fact | is_rule, is_rule, column, (first, second), (facts_unseen, rules_unseen)


@jit
def unify(goal, head, matches, constants):
    """Make the goal's arguments equal to the head's, the second ones after the first."""
    _, goal_first, goal_second = goal
    first, second = head
    unifies, old, new = replacement(goal_first, first, constants)
    unified = matches & unifies
    goal_second = tl.where(goal_second == old, new, goal_second)
    second = tl.where(second == old, new, second)
    unifies, old_second, new_second = replacement(goal_second, second, constants)
    return unified & unifies, (old, new, old_second, new_second)


@jit
def replacement(goal, head, constants):
    """Make two arguments equal: the head's variable goes, else the goal's."""
    variable = head > constants
    unifies = variable | (goal == head) | (head * 0 + goal > constants)
    return unifies, tl.where(variable, head, goal), tl.where(variable, goal, head)


@jit
def resolve(unified, body, atoms, chosen, own, knowledge, sizes):
    """Go through the atoms, first the rule's, then the state's others: pack what is left without
    facts, and count it."""
    fields = knowledge.fields
    patterns = knowledge.patterns
    constants = knowledge.constants
    packed = tl.zeros((sizes.PLACES, next_power_of_2(sizes.WORDS)), int64)
    names = tl.zeros((sizes.PLACES, sizes.NAMES), int32)
    named = tl.zeros((sizes.PLACES,), int32)
    size = tl.zeros((sizes.PLACES,), int32)
    for i in range(tl.sum((atoms[0] != 0).to(int32), 0) + (sizes.BODY - 1)):
        predicate, first, second = atom_of_child(i, body, atoms, chosen, knowledge, sizes)
        present = unified & (predicate != 0)
        ground = present & (first <= constants) & (second <= constants)
        key = key_of(predicate, first, second, constants)
        slots = patterns.keys + slot_of(key, patterns.last)
        is_fact = ground & (tl.load(slots, ground, -1) == key)
        for probe in tl.static_range(1, sizes.PROBES):
            is_fact = is_fact | (tl.load(slots + probe, ground, -1) == key)
        stays = present & ((is_fact == 0) | (key == own))
        writes = stays & (size < sizes.ATOMS)
        field = size * 3
        packed = write_field(packed, fields, field, predicate, writes)
        first, names, named = canonical(first, names, named, constants, writes)
        packed = write_field(packed, fields, field + 1, first, writes)
        second, names, named = canonical(second, names, named, constants, writes)
        packed = write_field(packed, fields, field + 2, second, writes)
        size += stays.to(int32)
    return packed, size


@jit
def atom_of_child(i, body, atoms, chosen, knowledge, sizes):
    """Take the atom with this number: of a rule's body, or of the state's without its goal."""
    is_rule, column, renaming = body
    rules = knowledge.rules
    of_rule = is_rule & (column * 0 + i < sizes.BODY)
    other = chosen * 0 + i - sizes.BODY
    other = tl.where(other >= chosen, other + 1, other)
    predicate, first, second = atom_at(atoms, other)
    of_body = tl.load(rules.predicates + i * rules.columns + column, of_rule, 0)
    predicate = tl.where(of_rule, of_body, predicate)
    of_body = tl.load(rules.terms + 2 * i * rules.columns + column, of_rule, 0)
    first = tl.where(of_rule, of_body, first)
    of_body = tl.load(rules.terms + (2 * i + 1) * rules.columns + column, of_rule, 0)
    second = tl.where(of_rule, of_body, second)
    return predicate, renamed(first, renaming), renamed(second, renaming)


@jit
def renamed(term, renaming):
    old, new, old_second, new_second = renaming
    term = tl.where(term == old, new, term)
    return tl.where(term == old_second, new_second, term)


@jit
def canonical(term, names, named, constants, writes):
    """Give a variable its number in order of occurrence; ``names`` has the numbers so far, and
    ``named`` says how many they are."""
    name = tl.arange(0, names.shape[1])
    variable = writes & (term > constants)
    here = (term - constants - 1)[:, None] == name[None, :]
    old = sum_of(here, names, 1)
    is_new = old == 0
    new = tl.where(is_new, named + 1, old)
    names = tl.where(here & variable[:, None], new[:, None], names)
    named = tl.where(variable & is_new, named + 1, named)
    return tl.where(variable, constants + new, term), names, named


@jit
def list_new(packed, valid, size, key, place, most, sizes):
    """List the children that count. Returns which places hold one, its number among them, how many
    there are without and with the cap, and the words. A state without any has one child, which is
    TRUE or FALSE."""
    as_parent = valid
    for w in tl.static_range(sizes.WORDS):
        as_parent = as_parent & (word_of(packed, w) == tl.load(key + w))
    again = repeated(packed, valid, place, sizes)
    new = valid & (again == 0) & (as_parent == 0)
    proves = valid & (size == 0)
    proved = tl.max(proves.to(int32), 0) > 0
    count = new.to(int32)
    total = tl.where(proved, 0, tl.sum(count, 0))
    kept = tl.minimum(total, most)
    alone = kept == 0
    rank = tl.cumsum(count, 0)
    real = tl.where(alone, place == 0, new & (rank <= most))
    marker = tl.where(proved, TRUE, FALSE).to(int64)
    word = tl.arange(0, packed.shape[1])
    only = tl.where(word[None, :] == 0, marker, 0)
    packed = tl.where(alone, only, packed)
    return real, tl.where(alone, 1, rank), total, kept, packed


@jit
def repeated(packed, valid, place, sizes):
    """Say in which places stands what is valid in an earlier one."""
    # Eight places at a time: all at once are more than the registers hold.
    groups: constexpr = sizes.PLACES // 8
    eight = tl.arange(0, 8)
    group = tl.arange(0, groups)[:, None]
    again = place * 0
    for begin in range(groups):
        in_group = group == begin
        here = sum_of(in_group, tl.reshape(valid.to(int32), (groups, 8)), 0)
        earlier = here[None, :] > 0
        earlier = earlier & (begin * 8 + eight[None, :] < place[:, None])
        for w in tl.static_range(sizes.WORDS):
            each = word_of(packed, w)
            those = sum_of(in_group, tl.reshape(each, (groups, 8)), 0)
            earlier = earlier & (each[:, None] == those[None, :])
        again = tl.maximum(again, tl.max(earlier.to(int32), 1))
    return again
