"""`levels` on CUDA behind a first look: a level is eleven launches of the kernels in
level_kernels.py, where torch's operations took 150 and read sizes back four times.

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
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kgprof.workloads.linkpred.caps import Selection
from kgprof.workloads.linkpred.first_look import FirstLook, apart
from kgprof.workloads.linkpred.graph import FALSE, TRUE
from kgprof.workloads.linkpred.policy import ROUNDING, PolicyNetwork, ResidualBlock
from kgprof.workloads.linkpred.proof import FAILED, OVERFLOW, PROVED, TRUNCATED
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
# Rows and warps of a program: of the first look, the second, and columns at a time in float32.
# Measured on an H100.
LOOK, SECOND, EXACT = (64, 8), (64, 8), (32, 8)
DERIVE_WARPS = 2
PLACES = 64  # of a state, at least: for fewer, Triton 3.6 fails to compile `derive`
CONTENDED = 16  # states per program
BLOCK = 128  # rows per program, one for each thread
FIRST_ROWS = 1 << 16  # of the table, at least
# children that are encoded again: so many per state, and at first so many beside
ROOM = 1.5
SPARE = 1024


class UncompiledError(Exception):
    """Triton does not compile one of the kernels for these sizes. Nothing has run then."""


class Launches:
    """Starts kernels. Each is compiled once for its sizes. What Triton would look at again with
    every launch (which takes longer than the kernels of a small level) is as at the first: types
    and alignments of pointers, and all integers but those that level_kernels.py names
    (``do_not_specialize``)."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}

    def __call__(self, kernel: Any, programs: int, *arguments: Any, **sizes: Any) -> None:
        """Raises UncompiledError, when nothing has run."""
        key = kernel.__name__, *sizes.values()
        if key not in self._compiled:
            try:
                compiled = kernel.warmup(*arguments, grid=(programs,), **sizes)
                if compiled is not None:
                    compiled[programs, 1, 1]  # is loaded
            except (RuntimeError, kernels.TritonError) as error:
                raise UncompiledError(
                    f"Triton does not compile `{kernel.__name__}`: {error}"
                ) from error
            self._compiled[key] = (
                compiled,
                tuple(sizes[name] for name in kernel.arg_names[len(arguments) :]),
            )
        compiled, constants = self._compiled[key]
        if compiled is None:  # Triton interprets
            kernel[programs,](*arguments, **sizes)
        else:
            compiled[programs, 1, 1](*arguments, *constants)


def allocate(sizes: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(sizes, dtype=dtype, device=device)


class Looks:
    """Encodings of packed states; how many these are is read on the GPU."""

    def __init__(
        self, policy: PolicyNetwork, engine: Engine, differs: float, launch: Launches
    ) -> None:
        look = FirstLook(policy)
        self.launch = launch
        device = look.bias.device
        linear = [block.linear for block in policy.blocks if isinstance(block, ResidualBlock)]
        self.full = torch.stack([each.weight for each in linear])  # [layers, out, in]
        full = self.full.transpose(1, 2).contiguous()
        self.high = full.half()
        self.low = ((full - self.high) * 2048).half()
        self.tables = (look.predicates, look.terms, look.bias)
        self.others = (look.biases, look.gains, look.shifts)
        self.fields = (engine.field_word, engine.field_shift, engine.field_mask, look.epsilon)
        # Of a logit, over the lengths of both encodings: the first look's of a child by the
        # second's of its parent, and both the second's.
        far = SECOND_LOOK / (1 - SECOND_LOOK)
        self.scale, self.reach = policy.scale, (differs + far) / (1 - differs) * policy.scale
        self.second_reach = far * (1 + 1 / (1 - SECOND_LOOK)) * policy.scale
        layers, width, _ = full.shape
        self.sizes: dict[str, Any] = {
            "ATOMS": engine.caps.atoms,
            "WORDS": len(engine.words),
            "LAYERS": layers,
            "WIDTH": width,
        }
        self.width = width
        self.programs = 1
        if device.type == "cuda":
            self.programs = torch.cuda.get_device_properties(device).multi_processor_count

    def first(
        self, children: Tensor, count: Tensor, parents: Tensor, sources: Tensor, encoded: Tensor,
        logits: Tensor, reaches: Tensor,
    ) -> None:  # fmt: skip
        """Logits of all children and what the first look may be off by."""
        room = len(parents)
        self._look(
            children,
            children,
            count,
            parents,
            sources,
            encoded,
            logits,
            reaches,
            logits,
            room=room,
            held=False,
        )

    def held(
        self, children: Tensor, kept: Tensor, count: Tensor, encoded: Tensor, apart: Tensor
    ) -> None:
        """Raises ``apart`` to the largest difference of a first look."""
        room = len(encoded)
        self._look(
            children,
            kept,
            count,
            kept,
            kept,
            encoded,
            encoded,
            encoded,
            apart,
            room=room,
            held=True,
        )

    def _look(
        self, children: Tensor, kept: Tensor, count: Tensor, *others: Tensor, room: int, held: bool
    ) -> None:  # fmt: skip
        self.launch(
            kernels.look, self.programs,
            children, kept, count, *others, *self.tables, self.high, *self.others, *self.fields,
            self.scale, self.reach, room, **self.sizes, ROWS=LOOK[0], HELD=held, num_warps=LOOK[1],
            num_stages=1,
        )  # fmt: skip

    def second(self, children: Tensor, kept: Tensor, count: Tensor, room: int) -> Tensor:
        """Encodings of the first ``room`` that were kept."""
        encoded = allocate((room, self.width), torch.float32, children.device)
        self.launch(
            kernels.second_look, self.programs,
            children, kept, count, encoded, *self.tables, self.high, self.low, *self.others,
            *self.fields, room, **self.sizes, ROWS=SECOND[0], num_warps=SECOND[1], num_stages=1,
        )  # fmt: skip
        return encoded

    def exact(
        self, children: Tensor, keys: Tensor, rows: Tensor, count: Tensor, room: int
    ) -> Tensor:
        """float32's encodings of the first ``room`` rows."""
        encoded = allocate((room, self.width), torch.float32, children.device)
        self.launch(
            kernels.exact_look, 4 * self.programs,
            rows, count, children, keys, encoded, *self.tables, self.full, *self.others,
            *self.fields, room, **self.sizes, PART=EXACT[0], num_warps=EXACT[1],
        )  # fmt: skip
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
    taken = torch.full((last + 1 + len(keys),), -1, device=keys.device)
    while len(left):
        free = left[taken[place[left]] < 0]
        taken[place[free]] = free
        left = left[taken[place[left]] != left]
        place[left] += 1
    return place, last, int((place - own).max()) + 1 if len(keys) else 1


def unfit(problem: Problem) -> str:
    """Why the kernels are not for this problem, or ''. Each child of a state is compared with each,
    a row is held whole."""
    engine = problem.engine
    policy = problem.policy
    width = policy.sizes.hidden
    weight = policy.term.weight
    card = torch.cuda.get_device_capability(weight.device) if weight.is_cuda else (0, 0)
    if kernels is None or card < (8, 0):
        return "they need Triton and a GPU of compute capability 8.0"
    if weight.dtype != torch.float32 or not 32 <= width <= 256 or width & (width - 1):
        return "they are for float32 policies of 32, 64, 128 or 256 hidden units"
    if engine.caps.facts + engine.caps.rules > 128:
        return "they are for at most 128 facts and rules per state"
    # Words of the children of a level, and rows of the table.
    each = max((engine.caps.facts + engine.caps.rules) * len(engine.words), 8 * (problem.depth + 1))
    most = (2**31 - 1) // each
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
        policy = problem.policy
        self.policy, self.apart, self.second_apart = policy, apart, second_apart
        self.device, self.words, self.width = (
            problem.goals.device,
            len(engine.words),
            policy.sizes.hidden,
        )
        places = engine.caps.facts + engine.caps.rules
        self.most = min(engine.caps.children, places)
        variables = (
            max(int(engine.rule_head.max()), int(engine.rule_terms.max())) - engine.constants
        )
        self.fields = (engine.field_word, engine.field_shift, engine.field_mask)
        facts, last_fact, fact_probes = hashed_slots(engine.fact_keys[:-1])
        patterns, last_pattern, pattern_probes = hashed_slots(engine.pattern_keys[:-1])
        probes = next_power_of_2(pattern_probes)
        self.tables = (
            engine.fact_arguments,
            self._at(facts, engine.fact_keys[:-1], last_fact + fact_probes),
            self._at(patterns, engine.pattern_keys[:-1], last_pattern + probes),
            self._at(patterns, engine.pattern_start[:-1].int(), last_pattern + probes),
            self._at(patterns, engine.pattern_length[:-1].int(), last_pattern + probes),
            *(
                engine.rule_start,
                engine.rule_head,
                engine.rule_predicate,
                engine.rule_terms,
                *self.fields,
            ),
            *(last_fact, last_pattern, engine.fact_arguments.shape[1], engine.rule_head.shape[1]),
            *(engine.constants, engine.caps.children, MIXER),
        )
        up = next_power_of_2
        self.atoms, self.first_mask = engine.caps.atoms, int(engine.field_mask[0, 0, 0])
        self.packs = {"WORDS": self.words, "WORDS_UP": up(self.words)}
        self.derives: dict[str, Any] = {
            "ATOMS": self.atoms,
            "ATOMS_UP": up(self.atoms),
            "BODY": engine.rule_predicate.shape[0],
            "FACTS": engine.caps.facts,
            "RULES": engine.caps.rules,
            "PLACES": max(PLACES, up(places)),
            "NAMES": up(max(variables, 2 * self.atoms)),
            "FACT_PROBES": fact_probes,
            "PATTERN_PROBES": probes,
            "LEFTMOST": engine.selection is Selection.LEFTMOST,
            "TRUE": TRUE,
            "FALSE": FALSE,
            **self.packs,
            "num_warps": DERIVE_WARPS,
        }
        self.launch = Launches()
        self.looks = Looks(policy, engine, differs, self.launch)
        self.keys, self.lost = (
            self.empty(0, self.words + 1, dtype=torch.int64),
            self.empty(0, 5, dtype=torch.int64),
        )
        self.next, self.ends, self.slots = self.empty(0), self.empty(0), self.empty(0)
        # of the frontier: rows, and where ``encoded`` has each
        self.ids, self.sources = self.empty(0), self.empty(0)
        self.rows = 0  # of the table
        self.spare = SPARE
        # children, those encoded again, states in float32
        self.looked_at: tuple[int, ...] = (0, 0, 0)

    def _at(self, places: Tensor, values: Tensor, last: int) -> Tensor:
        return torch.full((last + 1,), -1, dtype=values.dtype, device=self.device).index_copy(
            0, places, values
        )

    def empty(self, *sizes: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return allocate(sizes, dtype, self.device)

    def begin(self, keys: Tensor, ends: Tensor, at: Tensor) -> int:
        """The states that candidates begin with; ``at`` gets the row of each. How many are not at
        their end."""
        count = len(keys)
        self.rows = 0
        self.looked_at = (0, 0, 0)
        self._grow(count)
        self.slots.fill_(-1)
        self.keys[:count], self.ends[:count] = keys, ends
        row = torch.arange(count, dtype=torch.int32, device=self.device)
        first = self.empty(count)
        counts = torch.zeros(5, dtype=torch.int32, device=self.device)
        self._settle(row, first, row, counts)
        at.copy_(first)
        self.ids = self.ids[: int(counts[2])]
        self.sources = row[: len(self.ids)]
        self.encoded = self.looks.second(
            keys[:, :-1].contiguous(), self.ids, counts[2:], len(self.ids)
        )
        # A sample in float32, for float32 may have nothing to decide later.
        sample = self.ids[: self.looks.programs]
        exact = self.looks.exact(
            self.keys, self.keys, -1 - sample, torch.full_like(counts, len(sample)), len(sample)
        )
        if len(sample):
            self.second_apart.copy_(apart(self.encoded[: len(sample)], exact))
        return len(self.ids)

    def level(self, walk: Sequence[Tensor], depth: int) -> int:
        """Every state of the frontier gets its successor and every live candidate makes its choice.
        The frontier is then what was never reached before: so many states, or -1 where there was
        too little room for children: the next time there is more."""
        count = len(self.ids)
        # Children, those that were kept, new states; states that float32 decides, and what it
        # encodes for them.
        counts = torch.zeros(5, dtype=torch.int32, device=self.device)
        room = int(ROOM * count) + self.spare
        if count:
            self._grow(count)
            chosen = self._expand(counts, room)
            self._settle(self.ids, self.next, chosen, counts)
        outcome, depths, at, live, overflowed, tally = walk
        self.launch(
            kernels.follow, cdiv(len(at), BLOCK),
            outcome, depths, at, live.view(torch.int8), overflowed.view(torch.int8), tally,
            self.next, self.ends, self.lost, depth, len(at), TRUE=TRUE, FALSE=FALSE, PROVED=PROVED,
            FAILED=FAILED, TRUNCATED=TRUNCATED, OVERFLOW=OVERFLOW, BLOCK=BLOCK,
        )  # fmt: skip
        # The CPU waits for the GPU here, where it has given it the whole level.
        children, kept, left, _, again = counts.tolist()
        self.looked_at = tuple(map(operator.add, self.looked_at, (children, kept, again)))
        self.ids, self.sources = self.ids[:left], self.sources[:left]
        if max(kept, again) > room:
            self.spare = max(2 * self.spare, max(kept, again) - int(ROOM * count))
            return -1
        return int(left)

    def _expand(self, counts: Tensor, room: int) -> Tensor:
        count = len(self.ids)
        most = len(self.ids) * self.most
        starts, numbers, parents, kept = (
            self.empty(count),
            self.empty(count),
            self.empty(most),
            self.empty(most),
        )
        kept_starts, kept_numbers, chosen = self.empty(count), self.empty(count), self.empty(count)
        children = self.empty(most, self.words, dtype=torch.int64)
        logits = self.empty(most, dtype=torch.float32)
        reaches = self.empty(most, dtype=torch.float32)
        self.launch(
            kernels.derive, count, self.ids, self.keys, counts, starts, numbers, self.lost, parents,
            children, *self.tables, **self.derives,
        )  # fmt: skip
        self.looks.first(children, counts, parents, self.sources, self.encoded, logits, reaches)
        self.launch(
            kernels.contend, cdiv(count, CONTENDED),
            counts[1:], starts, numbers, logits, reaches, kept, kept_starts, kept_numbers, count,
            2 * ROUNDING[torch.float32], STATES=CONTENDED, CHILDREN=next_power_of_2(self.most),
        )  # fmt: skip
        encoded = self.looks.second(children, kept, counts[1:], room)
        # Rows that nothing is written to, where there is too little room, are the table's first
        # row.
        opened, open_starts, rows = self.empty(count), self.empty(count), self.empty(room).fill_(-1)
        self.looks.held(children, kept, counts[1:], encoded, self.apart)
        states = (
            *(
                self.ids,
                self.sources,
                kept_starts,
                kept_numbers,
                kept,
                children,
                self.encoded,
                encoded,
                self.keys,
            ),
            *(self.ends, self.lost, chosen, counts, opened, open_starts),
        )
        scale = self.policy.scale
        grain = ROUNDING[torch.float32]
        sizes: dict[str, Any] = {"WIDTH": self.width, **self.packs, "num_warps": 1}
        self.launch(
            kernels.choose, count, *states, rows, self.rows, self.first_mask, scale,
            self.looks.second_reach, 2 * grain, room, **sizes,
        )  # fmt: skip
        exact = self.looks.exact(children, self.keys, rows, counts[4:], room)
        self.launch(
            kernels.decide, self.looks.programs, *states, exact, self.second_apart, self.rows,
            self.first_mask, scale, grain, room, **sizes,
        )  # fmt: skip
        self.encoded = encoded
        return chosen

    def _settle(self, of: Tensor, to: Tensor, chosen: Tensor, counts: Tensor) -> None:
        """The new rows of the table get their slots, ``to`` at ``of`` the first row with their key,
        and those that are there for the first time are the next frontier."""
        count = len(of)
        begins = self.rows
        places = self.empty(count)
        self._enter(places, begins, count)
        self.ids, self.sources = self.empty(count), self.empty(count)
        self.launch(
            kernels.settle, cdiv(count, BLOCK),
            self.slots, places, of, to, self.ends, chosen, self.ids, self.sources, counts[2:],
            begins, count, TRUE=TRUE, FALSE=FALSE, BLOCK=BLOCK,
        )  # fmt: skip
        self.rows += count

    def _enter(self, places: Tensor, begins: int, count: int) -> None:
        last = len(self.slots) - BLOCK - 1
        self.launch(
            kernels.enter,
            cdiv(count, BLOCK),
            self.slots,
            self.keys,
            places,
            begins,
            count,
            last,
            MIXER,
            WORDS=self.words,
            BLOCK=BLOCK,
        )

    def _grow(self, count: int) -> None:
        """Room for so many more rows, and twice as many slots as rows at least."""
        rows = self.rows + count
        if rows <= len(self.next):
            return
        room = next_power_of_2(max(2 * rows, FIRST_ROWS))
        for name in ("keys", "next", "ends", "lost"):
            before = getattr(self, name)
            after = self.empty(room, *before.shape[1:], dtype=before.dtype)
            after[: self.rows] = before[: self.rows]
            setattr(self, name, after)
        self.slots = torch.full((2 * room + BLOCK,), -1, dtype=torch.int32, device=self.device)
        if self.rows:
            self._enter(self.empty(self.rows), 0, self.rows)


def next_power_of_2(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def cdiv(number: int, by: int) -> int:
    return -(-number // by)
