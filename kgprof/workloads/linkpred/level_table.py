"""`levels` on CUDA behind a first look: a level is ten launches of the kernels in derive_kernel.py
and level_kernels.py, where torch's operations took 150 and read sizes back four times.

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
from typing import Any

import torch
from torch import Tensor

from kgprof.workloads.linkpred import level_layout as layout
from kgprof.workloads.linkpred.caps import Selection
from kgprof.workloads.linkpred.first_look import FirstLook, apart
from kgprof.workloads.linkpred.level_layout import BLOCK, MIXER, Sizes, Table, Walk
from kgprof.workloads.linkpred.policy import ROUNDING, PolicyNetwork, ResidualBlock
from kgprof.workloads.linkpred.slots import Problem
from kgprof.workloads.linkpred.unification import Engine

kernels: Any
try:  # torch's wheels for CUDA bring Triton
    from kgprof.workloads.linkpred import level_kernels as kernels
except ImportError:
    kernels = None

SECOND_LOOK = 2.0**-18  # the largest difference of its encodings over their length; it was 8.5e-7
# of the kernels that are not compiled with Triton's own; measured on an H100
OPTIONS = {
    "derive": {"num_warps": 2},
    "first_look": {"num_warps": 8, "num_stages": 1},
    "second_look": {"num_warps": 8, "num_stages": 1},
    "choose": {"num_warps": 1},
    "exact_look": {"num_warps": 8},
    "decide": {"num_warps": 1},
}
PLACES = 64  # of a state, at least: for fewer, Triton 3.6 fails to compile `derive`
FIRST_ROWS = 1 << 16  # of the table, at least
# children that are encoded again: so many per state, and at first so many beside
ROOM = 1.5
SPARE = 1024


class UncompiledError(Exception):
    """Triton does not compile one of the kernels for these sizes. Nothing has run then."""


class Launches:
    """Starts the kernels of one table. Each is compiled once. What Triton would look at again with
    every launch (which takes longer than the kernels of a small level) is as at the first: types
    and alignments of pointers, and all integers but those that a kernel names
    (``do_not_specialize``)."""

    def __init__(self) -> None:
        self._compiled: dict[str, Any] = {}

    def __call__(self, kernel: Any, programs: int, *arguments: Any) -> None:
        """Raises UncompiledError, when nothing has run."""
        name = kernel.__name__
        options = OPTIONS.get(name, {})
        if name not in self._compiled:
            try:
                compiled = kernel.warmup(*arguments, grid=(programs,), **options)
                if compiled is not None:
                    compiled[programs, 1, 1]  # is loaded
            except (RuntimeError, kernels.TritonError) as error:
                raise UncompiledError(f"Triton does not compile `{name}`: {error}") from error
            self._compiled[name] = compiled
        compiled = self._compiled[name]
        if compiled is None:  # Triton interprets
            kernel[programs,](*arguments, **options)
        else:
            compiled[programs, 1, 1](*arguments)

    def by_rows(self, kernel: Any, count: int, *arguments: Any) -> None:
        """Start enough programs for ``count`` rows; the kernel gets ``count`` behind the others."""
        self(kernel, cdiv(count, BLOCK), *arguments, count)


def allocate(sizes: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(sizes, dtype=dtype, device=device)


class Looks:
    """Encodes packed states in three ways; how many these are is read on the GPU."""

    def __init__(
        self,
        policy: PolicyNetwork,
        fields: layout.Fields,
        differs: float,
        launch: Launches,
        sizes: Sizes,
    ) -> None:
        look = FirstLook(policy)
        self.launch = launch
        self.sizes = sizes
        self.device = look.bias.device
        linear = [block.linear for block in policy.blocks if isinstance(block, ResidualBlock)]
        self.full = torch.stack([each.weight for each in linear])  # [layers, out, in]
        full = self.full.transpose(1, 2).contiguous()
        self.high = full.half()
        self.low = ((full - self.high) * 2048).half()
        self.network = layout.Network(
            look.predicates,
            look.terms,
            look.bias,
            look.biases,
            look.gains,
            look.shifts,
            look.epsilon,
            fields,
        )
        # Of a logit, over the lengths of both encodings: the first look's of a child by the
        # second's of its parent, and both the second's.
        far = SECOND_LOOK / (1 - SECOND_LOOK)
        self.scale = policy.scale
        self.reach = (differs + far) / (1 - differs) * policy.scale
        self.second_reach = far * (1 + 1 / (1 - SECOND_LOOK)) * policy.scale
        self.width = policy.sizes.hidden
        self.programs = 1
        if self.device.type == "cuda":
            self.programs = torch.cuda.get_device_properties(self.device).multi_processor_count

    def first(
        self, children: Tensor, count: Tensor, parents: Tensor, sources: Tensor, encoded: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Answers the logits of all children and what the first look may be off by; ``encoded`` has
        their parents, in the rows ``sources``."""
        room = len(parents)
        logits = allocate((room,), torch.float32, self.device)
        reaches = torch.empty_like(logits)
        given = (children, count, parents, sources, encoded, logits, reaches)
        self._rows(kernels.first_look, room, *given, self.scale, self.reach)
        return logits, reaches

    def second(
        self, children: Tensor, kept: Tensor, count: Tensor, room: int, apart: Tensor
    ) -> Tensor:
        """Encode the first ``room`` that were kept, and raise ``apart`` to the largest difference
        of a first look."""
        encoded = allocate((room, self.width), torch.float32, self.device)
        self._rows(kernels.second_look, room, children, kept, count, encoded, apart, self.low)
        return encoded

    def _rows(self, kernel: Any, room: int, *given: Any) -> None:
        self.launch(kernel, self.programs, *given, self.high, self.network, room, self.sizes)

    def exact(
        self, children: Tensor, keys: Tensor, rows: Tensor, count: Tensor, room: int
    ) -> Tensor:
        """Encode the first ``room`` rows in float32."""
        encoded = allocate((room, self.width), torch.float32, self.device)
        given = (rows, count, children, keys, encoded, self.full, self.network, room, self.sizes)
        self.launch(kernels.exact_look, 4 * self.programs, *given)
        return encoded


def sizes_of(engine: Engine, policy: PolicyNetwork, patterns: layout.Patterns) -> Sizes:
    caps = engine.caps
    places = caps.facts + caps.rules
    last_variable = max(int(engine.rule_head.max()), int(engine.rule_terms.max()))
    names = max(last_variable - engine.constants, 2 * caps.atoms)
    numbers = Sizes(
        ATOMS=caps.atoms,
        WORDS=len(engine.words),
        BODY=len(engine.rule_terms),
        FACTS=caps.facts,
        RULES=caps.rules,
        PLACES=max(PLACES, next_power_of_2(places)),
        NAMES=next_power_of_2(names),
        PROBES=len(patterns.keys) - 1 - patterns.last,
        LEFTMOST=engine.selection is Selection.LEFTMOST,
        CHILDREN=next_power_of_2(min(caps.children, places)),
        LAYERS=policy.sizes.layers,
        WIDTH=policy.sizes.hidden,
    )
    return Sizes(*map(kernels.constexpr, numbers))


def graph_of(engine: Engine) -> layout.Graph:
    """The engine's tables, as the kernels read them."""
    arguments = engine.fact_arguments
    head = engine.rule_head
    return layout.Graph(
        arguments,
        arguments.shape[1],
        patterns_of(engine),
        layout.Rules(
            engine.rule_start, head, engine.rule_predicate, engine.rule_terms, head.shape[1]
        ),
        layout.Fields(engine.field_word, engine.field_shift, engine.field_mask),
        engine.constants,
        engine.caps.children,
    )


def patterns_of(engine: Engine) -> layout.Patterns:
    """The engine's look-ups, of which the last one is none, in a hash table."""
    keys = engine.pattern_keys[:-1]
    slots, last, probes = hashed_slots(keys)
    probes = next_power_of_2(probes)

    def by_slot(values: Tensor) -> Tensor:
        return values.new_full((last + probes + 1,), -1).index_copy(0, slots, values)

    starts = by_slot(engine.pattern_start[:-1].int())
    lengths = by_slot(engine.pattern_length[:-1].int())
    return layout.Patterns(by_slot(keys), starts, lengths, last)


def hashed_slots(keys: Tensor) -> tuple[Tensor, int, int]:
    """Where each of different keys stands in an open hash table, int64 [n]; the table's last slot;
    and how many slots from its own on a key may be in. Other slots are free, those past the end
    too."""
    last = next_power_of_2(8 * len(keys) + 8) - 1
    hashed = (keys ^ (keys >> 29)) * MIXER
    own = (hashed ^ (hashed >> 32)) & last
    place = own.clone()
    left = torch.arange(len(keys), device=keys.device)
    taken = torch.full((last + 1 + len(keys),), -1, device=keys.device)
    while len(left):
        free = left[taken[place[left]] < 0]
        taken[place[free]] = free
        left = left[taken[place[left]] != left]
        place[left] += 1
    if not len(keys):
        return place, last, 1
    return place, last, int((place - own).max()) + 1


def unfit(problem: Problem) -> str:
    """Why the kernels are not for this problem, or ''. Each child of a state is compared with each,
    a row is held whole."""
    engine = problem.engine
    weight = problem.policy.term.weight
    width = problem.policy.sizes.hidden
    on_gpu = kernels is not None and weight.is_cuda
    if not on_gpu or torch.cuda.get_device_capability(weight.device) < (8, 0):
        return "they need Triton and a GPU of compute capability 8.0"
    if weight.dtype != torch.float32 or width not in (32, 64, 128, 256):
        return "they are for float32 policies of 32, 64, 128 or 256 hidden units"
    places = engine.caps.facts + engine.caps.rules
    if places > 128:
        return "they are for at most 128 facts and rules per state"
    # Words of the children of a level, and rows of the table.
    numbers = max(places * len(engine.words), 8 * (problem.depth + 1))
    most = (2**31 - 1) // numbers
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
        self.apart, self.second_apart = apart, second_apart
        self.device = problem.goals.device
        self.launch = Launches()
        self.graph = graph_of(engine)
        self.sizes = sizes_of(engine, problem.policy, self.graph.patterns)
        self.looks = Looks(problem.policy, self.graph.fields, differs, self.launch, self.sizes)
        self.most = min(caps.children, caps.facts + caps.rules)
        self.first_mask = int(engine.field_mask[0, 0, 0])
        self.words = len(engine.words)
        self.table = Table(
            self.wide(0, self.words + 1),
            self.empty(0),
            self.empty(0),
            self.wide(0, layout.COUNTERS),
        )
        self.rows = 0  # of the table
        self.slots = self.empty(0)
        # of the frontier: rows, and where ``encoded`` has each
        self.ids, self.sources = self.empty(0), self.empty(0)
        self.spare = SPARE
        # children, those encoded again, states in float32
        self.looked_at: tuple[int, ...] = (0, 0, 0)

    def empty(self, *sizes: int) -> Tensor:
        return allocate(sizes, torch.int32, self.device)

    def wide(self, *sizes: int) -> Tensor:
        return allocate(sizes, torch.int64, self.device)

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
        counts = self.empty(layout.COUNTS).zero_()
        self._settle(row, first, row, counts)
        at.copy_(first)
        left = int(counts[layout.NEW])
        self.ids, self.sources = self.ids[:left], row[:left]
        states = keys[:, :-1].contiguous()
        unused = torch.zeros_like(self.apart)  # nobody takes a first look at these
        self.encoded = self.looks.second(states, self.ids, counts[layout.NEW :], left, unused)
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
        counts = self.empty(layout.COUNTS).zero_()
        expected = int(ROOM * count)
        room = expected + self.spare
        if count:
            self._grow(count)
            chosen = self._expand(counts, room)
            self._settle(self.ids, self.table.next, chosen, counts)
        live, overflowed = walk.live.view(torch.int8), walk.overflowed.view(torch.int8)
        bytewise = walk._replace(live=live, overflowed=overflowed)
        self.launch.by_rows(kernels.follow, len(walk.at), bytewise, self.table, depth)
        # The CPU waits for the GPU here, where it has given it the whole level.
        children, kept, left, _, exact = counts.tolist()
        self.looked_at = tuple(map(operator.add, self.looked_at, (children, kept, exact)))
        self.ids, self.sources = self.ids[:left], self.sources[:left]
        needed = max(kept, exact)
        if needed > room:
            self.spare = max(2 * self.spare, needed - expected)
            return -1
        return int(left)

    def _expand(self, counts: Tensor, room: int) -> Tensor:
        """Choose a child of each state of the frontier, which becomes the next row of the table.
        Answers where ``encoded`` has each."""
        count = len(self.ids)
        contest = self._contest(counts, room)
        looks = self.looks
        grain = ROUNDING[torch.float32]
        # Rows that nothing is written to, where there is too little room, are the table's first
        # row.
        rows = self.empty(room).fill_(-1)
        begins = (self.rows, self.first_mask, looks.scale)
        self.launch(
            kernels.choose, count, contest, rows, *begins, looks.second_reach, 2 * grain, room,
            self.sizes,
        )  # fmt: skip
        to_encode = counts[layout.EXACT :]
        exact = looks.exact(contest.children, self.table.keys, rows, to_encode, room)
        self.launch(
            kernels.decide, looks.programs, contest, exact, self.second_apart, *begins, grain, room,
            self.sizes,
        )  # fmt: skip
        self.encoded = contest.encoded
        return contest.chosen

    def _contest(self, counts: Tensor, room: int) -> layout.Contest:
        """Derive the children of the frontier, and encode those that can still win."""
        count = len(self.ids)
        most = count * self.most
        begins, lengths, parents = self.empty(count), self.empty(count), self.empty(most)
        children = self.wide(most, self.words)
        self.launch(
            kernels.derive, count, self.ids, self.table, counts, begins, lengths, parents, children,
            self.graph, self.sizes,
        )  # fmt: skip
        looked_at = (children, counts, parents, self.sources, self.encoded)
        logits, reaches = self.looks.first(*looked_at)
        starts, numbers, kept = self.empty(count), self.empty(count), self.empty(most)
        kept_count = counts[layout.KEPT :]
        grain = ROUNDING[torch.float32]
        self.launch(
            kernels.contend, cdiv(count, layout.CONTENDED), kept_count, begins, lengths,
            logits, reaches, starts, numbers, kept, count, 2 * grain, self.sizes,
        )  # fmt: skip
        encoded = self.looks.second(children, kept, kept_count, room, self.apart)
        return layout.Contest(
            self.ids, self.sources, self.encoded, starts, numbers, kept, children, encoded,
            self.table, self.empty(count), counts, self.empty(count), self.empty(count),
        )  # fmt: skip

    def _settle(self, of: Tensor, to: Tensor, chosen: Tensor, counts: Tensor) -> None:
        """The new rows of the table get their slots, ``to`` at ``of`` the first row with their key,
        and those that are there for the first time are the next frontier."""
        count = len(of)
        places = self._entered(self.rows, count)
        self.ids, self.sources = self.empty(count), self.empty(count)
        new = (self.ids, self.sources, counts[layout.NEW :], self.rows)
        ends = self.table.ends
        self.launch.by_rows(kernels.settle, count, self.slots, places, of, to, ends, chosen, *new)
        self.rows += count

    def _entered(self, begins: int, count: int) -> Tensor:
        """Enter ``count`` rows into the hash table. Answers their slots."""
        places = self.empty(count)
        last = len(self.slots) - BLOCK - 1
        self.launch(
            kernels.enter, cdiv(count, BLOCK), self.slots, self.table.keys, places, last, begins,
            count, self.sizes,
        )  # fmt: skip
        return places

    def _grow(self, count: int) -> None:
        """Make room for so many more rows, and twice as many slots as rows at least."""
        rows = self.rows + count
        if rows <= len(self.table.next):
            return
        room = next_power_of_2(max(2 * rows, FIRST_ROWS))
        self.table = Table(*(self._longer(column, room) for column in self.table))
        self.slots = self.empty(2 * room + BLOCK).fill_(-1)
        if self.rows:
            self._entered(0, self.rows)

    def _longer(self, before: Tensor, room: int) -> Tensor:
        after = allocate((room, *before.shape[1:]), before.dtype, self.device)
        after[: self.rows] = before[: self.rows]
        return after


def next_power_of_2(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def cdiv(number: int, by: int) -> int:
    return -(-number // by)
