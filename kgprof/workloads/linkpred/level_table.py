"""`levels` on CUDA behind a first look: a level is ten launches of the kernels in
level_kernels.py, where torch's operations took 150 and read sizes back four times.

    Levels.restart ─► begin: the candidates' first states become rows of the table
    Levels.advance ─► level: derive ─► first look ─► contend ─► second look ─► choose ─► exact look
                             ─► decide ─► settle: a successor for each state of the frontier
                             ─► follow: each candidate makes its choice from the table

A first look scores all children with float16 products. Those that can still win are encoded again,
with products of float16 halves (high + low / 2048), which are off by about as much as float32's.
Where these are too close to decide, float32 does. Each step bounds what the one before it may be
off by: an encoding by a share of its length, and so, by the Cauchy-Schwarz inequality, a logit by a
share of both encodings' lengths. ``apart`` and ``second_apart`` are these shares as measured, on
all that were encoded again.

How long lists are is known on the GPU alone until a level is over, so there is room for more than
is expected. Where that was too little, all begins again with more. Where Triton does not compile a
kernel, torch does it all.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kgprof.workloads.linkpred.caps import Selection
from kgprof.workloads.linkpred.first_look import FirstLook, apart
from kgprof.workloads.linkpred.policy import ROUNDING, PolicyNetwork, ResidualBlock
from kgprof.workloads.linkpred.slots import Problem
from kgprof.workloads.linkpred.unification import Engine

kernels: Any
try:  # torch's wheels for CUDA bring Triton
    from kgprof.workloads.linkpred import level_kernels as kernels
except ImportError:
    kernels = None

SECOND_LOOK = 2.0**-18  # the largest difference of its encodings over their length; it was 8.5e-7
# an odd multiplier that spreads bits (S. Vigna, ACM TOMS 42, 2016: xorshift64*)
MIXER = 0x2545F4914F6CDD1D
# Rows of a program that encodes, columns at a time in float32, and warps of both. Measured on an
# H100.
ROWS = 64
PART = 32
WARPS = 8
DERIVE_WARPS = 2
PLACES = 64  # of a state, at least: for fewer, Triton 3.6 fails to compile `derive`
CONTENDED = 16  # states per program
BLOCK = 128  # rows per program, one for each thread
FIRST_ROWS = 1 << 16  # of the table, at least
# children that are encoded again: so many per state, and at first so many beside
ROOM = 1.5
SPARE = 1024


class Table(NamedTuple):
    """A row for each state that a level reached; that of its first time has its successor."""

    keys: Tensor  # int64 [R, words + 1]
    next: Tensor  # integer [R]
    ends: Tensor  # int32 [R], the state's first predicate: TRUE, FALSE or another
    lost: Tensor  # int64 [R, 5], by deriving its children: the caps' counters, then NaN logits


class Walk(NamedTuple):
    """Where each candidate is and what it met on its way; changed in place."""

    outcome: Tensor  # int8
    depths: Tensor  # int32
    at: Tensor  # int64, the table's row of its state
    live: Tensor  # bool
    overflowed: Tensor  # bool
    tally: Tensor  # int64 [5], of all candidates, as Table.lost


class UncompiledError(Exception):
    """Triton does not compile one of the kernels for these sizes. Nothing has run then."""


class Launches:
    """Starts kernels. Each is compiled once for its sizes. What Triton would look at again with
    every launch (which takes longer than the kernels of a small level) is as at the first: types
    and alignments of pointers, and all integers but those that level_kernels.py names
    (``do_not_specialize``)."""

    def __init__(self) -> None:
        # by a kernel's name and sizes: compiled, and its constants
        self._compiled: dict[object, tuple[Any, Any]] = {}

    def __call__(self, kernel: Any, programs: int, *arguments: Any, **sizes: Any) -> None:
        """Raises UncompiledError, when nothing has run."""
        key = kernel.__name__, *sizes.values()
        if key not in self._compiled:
            try:
                compiled = kernel.warmup(*arguments, grid=(programs,), **sizes)
                if compiled is not None:
                    compiled[programs, 1, 1]  # is loaded
            except (RuntimeError, kernels.TritonError) as error:
                why = f"Triton does not compile `{kernel.__name__}`: {error}"
                raise UncompiledError(why) from error
            constants = tuple(sizes[name] for name in kernel.arg_names[len(arguments) :])
            self._compiled[key] = (compiled, constants)
        compiled, constants = self._compiled[key]
        if compiled is None:  # Triton interprets
            kernel[programs,](*arguments, **sizes)
        else:
            compiled[programs, 1, 1](*arguments, *constants)


def allocate(sizes: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(sizes, dtype=dtype, device=device)


class Looks:
    """Encodes packed states in three ways; how many these are is read on the GPU."""

    def __init__(
        self, policy: PolicyNetwork, engine: Engine, differs: float, launch: Launches
    ) -> None:
        look = FirstLook(policy)
        self.launch = launch
        self.device = look.bias.device
        linear = [block.linear for block in policy.blocks if isinstance(block, ResidualBlock)]
        self.full = torch.stack([each.weight for each in linear])  # [layers, out, in]
        full = self.full.transpose(1, 2).contiguous()
        self.high = full.half()
        self.low = ((full - self.high) * 2048).half()
        norm = (look.gains, look.shifts, look.epsilon)
        network = kernels.Network(look.predicates, look.terms, look.bias, look.biases, *norm)
        self.policy = (network, engine.fields)
        # Of a logit, over the lengths of both encodings: the first look's of a child by the
        # second's of its parent, and both the second's.
        far = SECOND_LOOK / (1 - SECOND_LOOK)
        self.scale = policy.scale
        self.reach = (differs + far) / (1 - differs) * policy.scale
        self.second_reach = far * (1 + 1 / (1 - SECOND_LOOK)) * policy.scale
        layers, self.width, _ = full.shape
        self.sizes: dict[str, Any] = {
            "ATOMS": engine.caps.atoms,
            "WORDS": len(engine.words),
            "LAYERS": layers,
            "WIDTH": self.width,
        }
        self.programs = 1
        if self.device.type == "cuda":
            card = torch.cuda.get_device_properties(self.device)
            self.programs = card.multi_processor_count

    def first(self, children: Tensor, count: Tensor, parents: Tensor, *others: Tensor) -> None:
        """Fill the logits of all children and what the first look may be off by; ``others`` are
        where ``encoded`` has each parent, encoded, logits and reaches."""
        given = (children, count, parents, *others, self.scale, self.reach)
        self._rows(kernels.first_look, len(parents), given)

    def second(
        self, children: Tensor, kept: Tensor, count: Tensor, room: int, apart: Tensor
    ) -> Tensor:
        """Encode the first ``room`` that were kept, and raise ``apart`` to the largest difference
        of a first look."""
        encoded = allocate((room, self.width), torch.float32, self.device)
        given = (children, kept, count, encoded, apart, self.low)
        self._rows(kernels.second_look, room, given)
        return encoded

    def _rows(self, kernel: Any, room: int, given: tuple[Any, ...]) -> None:
        arguments = (*given, self.high, *self.policy, room)
        sizes = {**self.sizes, "ROWS": ROWS, "num_warps": WARPS, "num_stages": 1}
        self.launch(kernel, self.programs, *arguments, **sizes)

    def exact(
        self, children: Tensor, keys: Tensor, rows: Tensor, count: Tensor, room: int
    ) -> Tensor:
        """Encode the first ``room`` rows in float32."""
        encoded = allocate((room, self.width), torch.float32, self.device)
        arguments = (rows, count, children, keys, encoded, self.full, *self.policy, room)
        sizes = {**self.sizes, "PART": PART, "num_warps": WARPS}
        self.launch(kernels.exact_look, 4 * self.programs, *arguments, **sizes)
        return encoded


def hashed_slots(keys: Tensor) -> tuple[Tensor, int, int]:
    """Where each of different keys stands in an open hash table, int64 [n]; the table's last slot;
    and how many slots from its own on a key may be in. Other slots are free, those past the end
    too."""
    last = next_power_of_2(8 * len(keys) + 8) - 1
    hashed = (keys ^ (keys >> 29)) * MIXER
    own = (hashed ^ (hashed >> 32)) & last
    place = own.clone()
    left = torch.arange(len(keys), device=keys.device)
    taken = left.new_full((last + 1 + len(keys),), -1)
    while len(left):
        free = left[taken[place[left]] < 0]
        taken[place[free]] = free
        left = left[taken[place[left]] != left]
        place[left] += 1
    if not len(keys):
        return place, last, 1
    return place, last, int((place - own).max()) + 1


def by_slot(slots: Tensor, values: Tensor, size: int) -> Tensor:
    return values.new_full((size,), -1).index_copy(0, slots, values)


def unfit(problem: Problem) -> str:
    """Why the kernels are not for this problem, or ''. Each child of a state is compared with each,
    a row is held whole."""
    engine = problem.engine
    width = problem.policy.sizes.hidden
    weight = problem.policy.term.weight
    if (
        kernels is None
        or not weight.is_cuda
        or torch.cuda.get_device_capability(weight.device) < (8, 0)
    ):
        return "they need Triton and a GPU of compute capability 8.0"
    if weight.dtype != torch.float32 or not 32 <= width <= 256 or width & (width - 1):
        return "they are for float32 policies of 32, 64, 128 or 256 hidden units"
    places = engine.caps.facts + engine.caps.rules
    if places > 128:
        return "they are for at most 128 facts and rules per state"
    # Words of the children of a level, and rows of the table.
    most = (2**31 - 1) // max(places * len(engine.words), 8 * (problem.depth + 1))
    if problem.size > most:
        return f"they count in 32 bits, which is enough for {most:,} candidates at a time"
    return ""


class LevelTable:
    """The table of `levels` and its frontier, kept by kernels. ``differs`` as in
    levels.FIRST_LOOKS."""

    def __init__(
        self, problem: Problem, differs: float, apart: Tensor, second_apart: Tensor
    ) -> None:
        engine = problem.engine
        caps = engine.caps
        self.apart = apart
        self.second_apart = second_apart
        self.device = problem.goals.device
        self.launch = Launches()
        self.looks = Looks(problem.policy, engine, differs, self.launch)
        places = caps.facts + caps.rules
        self.most = min(caps.children, places)
        self.first_mask = int(engine.field_mask[0, 0, 0])
        words = len(engine.words)
        self.words = {"WORDS": words, "WORDS_UP": next_power_of_2(words)}
        keys = engine.pattern_keys[:-1]
        slots, last, probes = hashed_slots(keys)
        probes = next_power_of_2(probes)
        size = last + probes + 1
        begins = by_slot(slots, engine.pattern_start[:-1].int(), size)
        lengths = by_slot(slots, engine.pattern_length[:-1].int(), size)
        patterns = (by_slot(slots, keys, size), begins, lengths, last)
        facts = (engine.fact_arguments, engine.fact_arguments.shape[1])
        head = engine.rule_head
        terms = engine.rule_terms
        rules = (engine.rule_start, head, engine.rule_predicate, terms, head.shape[1])
        self.engine = (facts, patterns, rules, engine.fields, engine.constants, caps.children)
        variables = max(int(head.max()), int(terms.max())) - engine.constants
        self.derives: dict[str, Any] = {
            "ATOMS": caps.atoms,
            "ATOMS_UP": next_power_of_2(caps.atoms),
            "BODY": len(terms),
            "FACTS": caps.facts,
            "RULES": caps.rules,
            "PLACES": max(PLACES, next_power_of_2(places)),
            "NAMES": next_power_of_2(max(variables, 2 * caps.atoms)),
            "PROBES": probes,
            "LEFTMOST": engine.selection is Selection.LEFTMOST,
            **self.words,
            "num_warps": DERIVE_WARPS,
        }
        none = self.empty(0)
        table_keys = self.empty(0, words + 1, dtype=torch.int64)
        lost = self.empty(0, 5, dtype=torch.int64)
        self.table = Table(table_keys, none, none, lost)
        self.rows = 0  # of the table
        self.slots = none
        # of the frontier: rows, and where ``encoded`` has each
        self.ids = none
        self.sources = none
        self.spare = SPARE
        # children, those encoded again, states in float32
        self.looked_at: tuple[int, ...] = (0, 0, 0)

    def empty(self, *sizes: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return allocate(sizes, dtype, self.device)

    def begin(self, keys: Tensor, ends: Tensor, at: Tensor) -> int:
        """Take the states that candidates begin with; ``at`` gets the row of each. Answers how many
        are not at their end."""
        count = len(keys)
        self.rows = 0
        self.looked_at = (0, 0, 0)
        self._grow(count)
        self.slots.fill_(-1)
        self.table.keys[:count] = keys
        self.table.ends[:count] = ends
        row = torch.arange(count, dtype=torch.int32, device=self.device)
        first = self.empty(count)
        counts = row.new_zeros(5)
        self._settle(row, first, row, counts)
        at.copy_(first)
        left = int(counts[2])
        self.ids = self.ids[:left]
        self.sources = row[:left]
        states = keys[:, :-1].contiguous()
        unused = torch.zeros_like(self.apart)  # nobody takes a first look at these
        self.encoded = self.looks.second(states, self.ids, counts[2:], left, unused)
        # A sample in float32, for float32 may have nothing to decide later.
        sample = self.ids[: self.looks.programs]
        number = len(sample)
        keys = self.table.keys
        exact = self.looks.exact(keys, keys, -1 - sample, torch.full_like(counts, number), number)
        if number:
            self.second_apart.copy_(apart(self.encoded[:number], exact))
        return left

    def level(self, walk: Walk, depth: int) -> int:
        """Every state of the frontier gets its successor and every live candidate makes its choice.
        The frontier is then what was never reached before: so many states, or -1 where there was
        too little room for children: the next time there is more."""
        count = len(self.ids)
        # Children, those that were kept, new states; states that float32 decides, and what it
        # encodes for them.
        counts = self.empty(5).zero_()
        expected = int(ROOM * count)
        room = expected + self.spare
        if count:
            self._grow(count)
            chosen = self._expand(counts, room)
            self._settle(self.ids, self.table.next, chosen, counts)
        live = walk.live.view(torch.int8)
        overflowed = walk.overflowed.view(torch.int8)
        candidates = tuple(walk._replace(live=live, overflowed=overflowed))
        self._launch_rows(kernels.follow, len(walk.at), candidates, tuple(self.table), depth)
        # The CPU waits for the GPU here, where it has given it the whole level.
        children, kept, left, _, again = counts.tolist()
        self.looked_at = tuple(map(operator.add, self.looked_at, (children, kept, again)))
        self.ids = self.ids[:left]
        self.sources = self.sources[:left]
        needed = max(kept, again)
        if needed > room:
            self.spare = max(2 * self.spare, needed - expected)
            return -1
        return int(left)

    def _expand(self, counts: Tensor, room: int) -> Tensor:
        """Choose a child of each state of the frontier, which becomes the next row of the table.
        Answers where ``encoded`` has each."""
        count = len(self.ids)
        most = count * self.most
        looks = self.looks
        table = tuple(self.table)
        starts = self.empty(count)
        numbers = self.empty(count)
        chosen = self.empty(count)
        parents = self.empty(most)
        children = self.empty(most, self.words["WORDS"], dtype=torch.int64)
        lists = (counts, starts, numbers, parents, children)
        self.launch(kernels.derive, count, self.ids, table, *lists, *self.engine, **self.derives)
        logits = self.empty(most, dtype=torch.float32)
        reaches = torch.empty_like(logits)
        looks.first(children, counts, parents, self.sources, self.encoded, logits, reaches)
        kept = self.empty(most)
        contenders = (self.empty(count), self.empty(count), kept)
        grain = ROUNDING[torch.float32]
        self.launch(
            kernels.contend, cdiv(count, CONTENDED), counts[1:], starts, numbers, logits, reaches,
            contenders, count, 2 * grain, STATES=CONTENDED, CHILDREN=next_power_of_2(self.most),
        )  # fmt: skip
        encoded = looks.second(children, kept, counts[1:], room, self.apart)
        frontier = (self.ids, self.sources, self.encoded)
        opened = (self.empty(count), self.empty(count))
        states = (frontier, contenders, children, encoded, table, chosen, counts, *opened)
        # Rows that nothing is written to, where there is too little room, are the table's first
        # row.
        rows = self.empty(room).fill_(-1)
        begins = (self.rows, self.first_mask, looks.scale)
        sizes: dict[str, Any] = {**self.words, "WIDTH": looks.width, "num_warps": 1}
        bounds = (looks.second_reach, 2 * grain, room)
        self.launch(kernels.choose, count, *states, rows, *begins, *bounds, **sizes)
        exact = looks.exact(children, self.table.keys, rows, counts[4:], room)
        given = (*states, exact, self.second_apart, *begins, grain, room)
        self.launch(kernels.decide, looks.programs, *given, **sizes)
        self.encoded = encoded
        return chosen

    def _settle(self, of: Tensor, to: Tensor, chosen: Tensor, counts: Tensor) -> None:
        """The new rows of the table get their slots, ``to`` at ``of`` the first row with their key,
        and those that are there for the first time are the next frontier."""
        count = len(of)
        places = self._entered(self.rows, count)
        self.ids = self.empty(count)
        self.sources = self.empty(count)
        states = (self.slots, places, of, to, self.table.ends, chosen)
        new = (self.ids, self.sources, counts[2:], self.rows)
        self._launch_rows(kernels.settle, count, *states, *new)
        self.rows += count

    def _entered(self, begins: int, count: int) -> Tensor:
        """Enter ``count`` rows into the hash table. Answers their slots."""
        places = self.empty(count)
        last = len(self.slots) - BLOCK - 1
        given = (self.slots, self.table.keys, places, last, begins)
        self._launch_rows(kernels.enter, count, *given, WORDS=self.words["WORDS"])
        return places

    def _launch_rows(self, kernel: Any, count: int, *arguments: Any, **sizes: Any) -> None:
        self.launch(kernel, cdiv(count, BLOCK), *arguments, count, **sizes, BLOCK=BLOCK)

    def _grow(self, count: int) -> None:
        """Make room for so many more rows, and twice as many slots as rows at least."""
        rows = self.rows + count
        if rows <= len(self.table.next):
            return
        room = next_power_of_2(max(2 * rows, FIRST_ROWS))
        columns = []
        for before in self.table:
            after = self.empty(room, *before.shape[1:], dtype=before.dtype)
            after[: self.rows] = before[: self.rows]
            columns.append(after)
        self.table = Table(*columns)
        self.slots = self.empty(2 * room + BLOCK).fill_(-1)
        if self.rows:
            self._entered(0, self.rows)


def next_power_of_2(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def cdiv(number: int, by: int) -> int:
    return -(-number // by)
