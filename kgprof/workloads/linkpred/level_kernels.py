# mypy: allow-untyped-defs, allow-incomplete-defs
"""The Triton kernels of a level of `levels`, in the order in which level_table.py launches them
after ``derive`` (derive_kernel.py).

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

level_table.py compiles a kernel once for a table (``Launches``), so no integer that differs from
launch to launch is specialized. Triton compiles these functions: their values have no types of
Python's, only the tuples that a kernel gets have (level_layout.py).
"""

import triton.language as tl
from triton.errors import TritonError
from triton.language import constexpr, float16, float32, int8, int32, int64

from kgprof.workloads.linkpred import level_layout, proof
from kgprof.workloads.linkpred.derive_kernel import (
    COUNTERS,
    FALSE,
    MIXER,
    TRUE,
    derive,
    jit,
    next_power_of_2,
    read_field,
    slot_of,
    sum_of,
)
from kgprof.workloads.linkpred.level_layout import Contest, Network, Sizes, Table, Walk

__all__ = ["TritonError", "constexpr", "derive"]

PROVED = constexpr(proof.PROVED)
FAILED = constexpr(proof.FAILED)
TRUNCATED = constexpr(proof.TRUNCATED)
OVERFLOW = constexpr(proof.OVERFLOW)
OPEN = constexpr(level_layout.OPEN)
EXACT = constexpr(level_layout.EXACT)
BLOCK = constexpr(level_layout.BLOCK)
CONTENDED = constexpr(level_layout.CONTENDED)
# Rows of a program that encodes, and columns at a time in float32. Measured on an H100.
ROWS = constexpr(64)
PART = constexpr(32)


# ---------------------------------------------------------------- looks


@jit(do_not_specialize=["room"])
def first_look(
    children, counter, parents, sources, encoded, logits, reaches, scale, reach, high,
    network: Network, room, sizes: Sizes,
):  # fmt: skip
    count = tl.minimum(tl.load(counter), room)
    for block in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
        row = block * ROWS + tl.arange(0, ROWS)
        there = row < count
        key = children + row.to(int64) * sizes.WORDS
        x = encode_float16(key, there, high, network, sizes)
        source = tl.load(sources + tl.load(parents + row, there, 0), there, 0)
        parent = rows_of(encoded, source.to(int64), there, sizes.WIDTH)
        squared = tl.sum(parent * parent, 1)
        tl.store(logits + row, tl.sum(x * parent, 1) * scale, there)
        lengths = tl.sqrt(tl.sum(x * x, 1) * squared)
        tl.store(reaches + row, lengths * reach, there)


@jit(do_not_specialize=["room"])
def second_look(
    children, kept, counter, encoded, apart, low, high, network: Network, room, sizes: Sizes
):
    column = tl.arange(0, sizes.WIDTH)
    count = tl.minimum(tl.load(counter), room)
    for block in range(tl.program_id(0), tl.cdiv(count, ROWS), tl.num_programs(0)):
        row = block * ROWS + tl.arange(0, ROWS)
        there = row < count
        key = children + tl.load(kept + row, there, 0).to(int64) * sizes.WORDS
        x = encode_halves(key, there, high, low, network, sizes)
        to = encoded + row.to(int64)[:, None] * sizes.WIDTH + column
        tl.store(to, x, there[:, None])
        tl.debug_barrier()
        seen = encode_float16(key, there, high, network, sizes)
        wanted = rows_of(encoded, row.to(int64), there, sizes.WIDTH)
        shares = tl.where(there, share(seen, wanted, 1), 0.0)
        tl.atomic_max(apart, tl.max(shares, 0))


@jit(do_not_specialize=["room"])
def exact_look(
    rows, counter, children, keys, encoded, full, network: Network, room, sizes: Sizes
):  # fmt: skip
    """One program encodes one of ``rows``: a child, or a state of the table, whose row is
    negative."""
    column = tl.arange(0, sizes.WIDTH)
    part = tl.arange(0, PART)
    one = tl.arange(0, 1)
    count = tl.minimum(tl.load(counter), room)
    for i in range(tl.program_id(0), count, tl.num_programs(0)):
        row = tl.load(rows + i).to(int64)
        key = children + row * sizes.WORDS
        if row < 0:
            key = keys + (-1 - row) * (sizes.WORDS + 1)
        x = tl.sum(pooled(key + one, one == 0, network, sizes), 0)
        to = encoded + (row * 0 + i) * sizes.WIDTH
        for layer in range(sizes.LAYERS):
            of_layer = layer * sizes.WIDTH + column
            centred = x - tl.sum(x, 0) / sizes.WIDTH
            variance = tl.sum(centred * centred, 0) / sizes.WIDTH
            normal = centred * tl.rsqrt(variance + network.epsilon)
            normal = normal * tl.load(network.gains + of_layer)
            normal = tl.maximum(normal + tl.load(network.shifts + of_layer), 0.0)
            for begin in range(0, sizes.WIDTH, PART):
                weights = weights_of(full, layer, begin + part, sizes.WIDTH)
                tl.store(to + begin + part, tl.sum(weights * normal, 1))
            tl.debug_barrier()
            x += tl.load(to + column) + tl.load(network.biases + of_layer)
            tl.debug_barrier()
        tl.store(to + column, x)


@jit
def encode_float16(key, there, high, network, sizes):
    """Encode packed states with float16 products."""
    column = tl.arange(0, sizes.WIDTH)
    x = pooled(key, there, network, sizes)
    for layer in range(sizes.LAYERS):
        normal = normalised(x, network, layer, sizes.WIDTH)
        biases = tl.load(network.biases + layer * sizes.WIDTH + column)
        x = tl.dot(normal.to(float16), weights_of(high, layer, column, sizes.WIDTH), x) + biases
    return x


@jit
def encode_halves(key, there, high, low, network, sizes):
    """Encode packed states with products of float16 halves: high + low / 2048. Low times low is
    below float32's rounding."""
    column = tl.arange(0, sizes.WIDTH)
    x = pooled(key, there, network, sizes)
    for layer in range(sizes.LAYERS):
        normal = normalised(x, network, layer, sizes.WIDTH)
        upper = normal.to(float16)
        lower = ((normal - upper.to(float32)) * 2048.0).to(float16)
        total = tl.dot(upper, weights_of(low, layer, column, sizes.WIDTH))
        weights = weights_of(high, layer, column, sizes.WIDTH)
        total = tl.dot(lower, weights, total) * (1.0 / 2048.0)
        biases = tl.load(network.biases + layer * sizes.WIDTH + column)
        x += tl.dot(upper, weights, total) + biases
    return x


@jit
def pooled(key, there, network, sizes):
    """Embed packed states: the mean of their atoms, projected."""
    fields = network.fields
    terms = network.terms
    x = tl.zeros((key.shape[0], sizes.WIDTH), float32)
    real = tl.zeros((key.shape[0],), float32)
    for atom in range(sizes.ATOMS):
        field = atom * 3
        predicate = read_field(key, fields, field, there)
        is_atom = predicate != 0
        first = read_field(key, fields, field + 1, is_atom)
        second = read_field(key, fields, field + 2, is_atom)
        # The sum of one atom first, so that two that are exchanged make the same sum, as in
        # policy.embed.
        each = rows_of(network.predicates, predicate, is_atom, sizes.WIDTH)
        each += rows_of(terms, first, is_atom, sizes.WIDTH)
        x += each - rows_of(terms, second, is_atom, sizes.WIDTH)
        real += is_atom.to(float32)
    mean = x / tl.maximum(real, 1.0)[:, None]
    return mean + tl.load(network.bias + tl.arange(0, sizes.WIDTH))


@jit
def normalised(x, network, layer, WIDTH: constexpr):
    """relu(LayerNorm(x))."""
    of_layer = layer * WIDTH + tl.arange(0, WIDTH)
    centred = x - tl.sum(x, 1)[:, None] / WIDTH
    variance = tl.sum(centred * centred, 1) / WIDTH
    normal = centred * tl.rsqrt(variance + network.epsilon)[:, None]
    normal = normal * tl.load(network.gains + of_layer)
    return tl.maximum(normal + tl.load(network.shifts + of_layer), 0.0)


@jit
def rows_of(matrix, row, there, WIDTH: constexpr):
    column = tl.arange(0, WIDTH)
    return tl.load(matrix + row[:, None] * WIDTH + column, there[:, None], 0.0)


@jit
def weights_of(matrices, layer, row, WIDTH: constexpr):
    column = tl.arange(0, WIDTH)
    return tl.load(matrices + layer * WIDTH * WIDTH + row[:, None] * WIDTH + column)


@jit
def share(seen, wanted, axis: constexpr):
    """The difference of encodings over the length of those that were looked for."""
    away = seen - wanted
    away = tl.sum(away * away, axis)
    squared = tl.sum(wanted * wanted, axis)
    of_length = tl.sqrt(away) / tl.maximum(tl.sqrt(squared), 1e-30)
    return tl.where(of_length == of_length, of_length, float("inf"))


# ---------------------------------------------------------------- choose


@jit(do_not_specialize=["states"])
def contend(
    counter, starts, numbers, logits, reaches, kept_starts, kept_numbers, kept, states, grain,
    sizes: Sizes,
):  # fmt: skip
    state = tl.program_id(0) * CONTENDED + tl.arange(0, CONTENDED)
    child = tl.arange(0, sizes.CHILDREN)
    is_state = state < states
    number = tl.load(numbers + state, is_state, 0)
    there = child[None, :] < number[:, None]
    place = tl.load(starts + state, is_state, 0)[:, None] + child[None, :]
    logit = tl.load(logits + place, there, 0.0)
    reach = tl.load(reaches + place, there, 0.0)
    least = logit - reach
    least = tl.where(there & (least == least), least, float("-inf"))
    loses = logit + reach < tl.max(least, 1)[:, None] - grain
    wins = (there & (loses == 0)).to(int32)
    number = tl.sum(wins, 1)
    ends = tl.cumsum(number, 0)
    begin = tl.atomic_add(counter, tl.sum(number, 0)) + ends - number
    tl.store(kept_starts + state, begin, is_state)
    tl.store(kept_numbers + state, number, is_state)
    to = kept + begin[:, None] + tl.cumsum(wins, 1) - 1
    tl.store(to, place, wins > 0)


@jit(do_not_specialize=["begins", "room"])
def choose(
    contest: Contest, rows, begins, first_mask, scale, reach, grain, room, sizes: Sizes
):  # fmt: skip
    b = tl.program_id(0)
    state = tl.load(contest.ids + b).to(int64)
    parent = encoding(contest.parents, tl.load(contest.sources + b), sizes)
    squared = tl.sum(parent * parent, 0)
    start = tl.load(contest.starts + b)
    number = tl.maximum(tl.minimum(tl.load(contest.numbers + b), room - start), 0)
    # The largest that a logit is at least, the most that this child's is, and the most that
    # another's is.
    least = start * 0.0 - float("inf")
    most = least
    others = least
    taken = start * 0
    nans = taken
    for child in range(number):
        row = encoding(contest.encoded, start + child, sizes)
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
        first = tl.atomic_add(contest.counts + EXACT, number + 1)
    if first + number < room:
        at = tl.atomic_add(contest.counts + OPEN, 1)
        tl.store(contest.open_states + at, b)
        tl.store(contest.open_starts + at, first)
        tl.store(rows + first, -1 - state.to(int32))
        for child in range(number):
            tl.store(rows + first + 1 + child, tl.load(contest.kept + start + child))
    else:
        taken = tl.minimum(start + taken, room - 1)
        succeed(b, state, taken, nans, contest, begins, first_mask, sizes)


@jit(do_not_specialize=["begins", "room"])
def decide(
    contest: Contest, exact, apart, begins, first_mask, scale, grain, room, sizes: Sizes
):  # fmt: skip
    """Choose in float32, and measure how far the second look's encodings are from float32's."""
    count = tl.load(contest.counts + OPEN)
    for i in range(tl.program_id(0), count, tl.num_programs(0)):
        b = tl.load(contest.open_states + i)
        first = tl.load(contest.open_starts + i).to(int64)
        parent = encoding(exact, first, sizes)
        seen = encoding(contest.parents, tl.load(contest.sources + b), sizes)
        tl.atomic_max(apart, share(seen, parent, 0))
        start = tl.load(contest.starts + b)
        best = start * 0.0 - float("inf")
        taken = start
        nans = start * 0
        for child in range(tl.minimum(tl.load(contest.numbers + b), room - start)):
            row = encoding(exact, first + 1 + child, sizes)
            near = encoding(contest.encoded, start + child, sizes)
            tl.atomic_max(apart, share(near, row, 0))
            logit = tl.sum(row * parent, 0) * scale
            nans += (logit != logit).to(int32)
            grains = tl.where(logit == logit, logit, float("-inf")) / grain
            # Half to even: from 2**23 on every float32 is whole.
            size = tl.abs(grains)
            size = tl.where(size < 8388608.0, size + 8388608.0 - 8388608.0, size)
            grains = tl.where(grains < 0, -size, size)
            taken = tl.where(grains > best, start + child, taken)
            best = tl.maximum(best, grains)
        state = tl.load(contest.ids + b).to(int64)
        succeed(b, state, taken, nans, contest, begins, first_mask, sizes)


@jit
def encoding(encoded, row, sizes):
    column = tl.arange(0, sizes.WIDTH)
    return tl.load(encoded + row.to(int64) * sizes.WIDTH + column)


@jit
def succeed(b, state, taken, nans, contest, begins, first_mask, sizes):
    """Make the child that was taken a row of the table."""
    table = contest.table
    word = tl.arange(0, next_power_of_2(sizes.WORDS))
    row = table.keys + (begins + b).to(int64) * (sizes.WORDS + 1)
    child = contest.children + tl.load(contest.kept + taken).to(int64) * sizes.WORDS
    words = tl.load(child + word, word < sizes.WORDS, 0)
    tl.store(row + word, words, word < sizes.WORDS)
    own = tl.load(table.keys + state * (sizes.WORDS + 1) + sizes.WORDS)
    tl.store(row + sizes.WORDS, own)
    first = sum_of(word == 0, words, 0)
    tl.store(table.ends + begins + b, (first & first_mask).to(int32))
    tl.store(table.lost + state * COUNTERS + 4, nans.to(int64))
    tl.store(contest.chosen + b, taken)


# ---------------------------------------------------------------- settle


@jit(do_not_specialize=["begins", "count", "last"])
def enter(slots, keys, places, last, begins, count, sizes: Sizes):
    key_words: constexpr = sizes.WORDS + 1
    lane = tl.arange(0, BLOCK)
    i = tl.program_id(0) * BLOCK + lane
    row = begins + i
    pending = i < count
    key = keys + row.to(int64) * key_words
    hashed = tl.load(key, pending, 0)
    for word in tl.static_range(1, key_words):
        hashed = (hashed ^ (hashed >> 29)) * MIXER + tl.load(key + word, pending, 0)
    slot = slot_of(hashed, last)
    place = slot
    left = tl.sum(pending.to(int32), 0)
    while left > 0:
        # Lanes that are done look at a slot past the end that stays empty.
        at = tl.where(pending, slot, last + 1 + lane)
        there = tl.atomic_cas(slots + at, tl.where(pending, -1, -2), row)
        same = pending & (there >= 0)
        other = keys + there.to(int64) * key_words
        for word in tl.static_range(key_words):
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
    slots, places, of, following, ends, chosen, new_ids, new_sources, counter, begins, count
):
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
def follow(walk: Walk, table: Table, depth, count):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = i < count
    going = there & (tl.load(walk.live + i, there, 0) != 0)
    state = tl.load(walk.at + i, going, 0)
    over = tl.load(walk.overflowed + i, going, 0) != 0
    for counter in tl.static_range(COUNTERS):
        dropped = tl.load(table.lost + state * COUNTERS + counter, going, 0)
        tl.atomic_add(walk.tally + counter, tl.sum(dropped, 0))
        if counter < 4:
            over = over | (dropped > 0)
    state = tl.load(table.next + state, going, 0)
    end = tl.load(table.ends + state, going, 0)
    steps = tl.load(walk.depths + i, going, 0) + 1
    stops = going & ((end == TRUE) | (end == FALSE) | (steps == depth))
    unproved = tl.where(over, OVERFLOW, tl.where(end == FALSE, FAILED, TRUNCATED))
    outcome = tl.where(end == TRUE, PROVED, unproved)
    tl.store(walk.at + i, state.to(int64), going)
    tl.store(walk.depths + i, steps, going)
    tl.store(walk.overflowed + i, over.to(int8), going)
    tl.store(walk.outcome + i, outcome.to(int8), stops)
    tl.store(walk.live + i, (stops == 0).to(int8), going)
