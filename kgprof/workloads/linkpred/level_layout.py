"""What a level of `levels` keeps in memory, for torch (strategies/levels.py) and for the kernels.

    level_table.py ─► fills these tuples once or for each level
                   ─► derive_kernel.py, level_kernels.py: read them as arguments

A kernel gets such a tuple as one argument: a tensor is the address of its first number there, and
what ``Sizes`` holds is known when the kernel is compiled. A packed state is a row of int64 words.
``own``, the last word of a key, is the key of the atom that is being proved, 0 where it is no fact.
"""

from typing import Any, NamedTuple

from torch import Tensor

# an odd multiplier that spreads bits (S. Vigna, ACM TOMS 42, 2016: xorshift64*)
MIXER = 0x2545F4914F6CDD1D
BLOCK = 128  # rows per program of a kernel that works row by row, one for each thread
CONTENDED = 16  # states per program of ``contend``
COUNTERS = 5  # of what was lost: the caps' four, then NaN logits

# A level's counts: children, those that were kept, new states, states that are left open for
# float32, and what it encodes for them.
KEPT, NEW, OPEN, EXACT = 1, 2, 3, 4
COUNTS = 5


class Table(NamedTuple):
    """A row for each state that a level reached; that of its first time has its successor."""

    keys: Tensor  # int64 [R, words + 1]
    next: Tensor  # integer [R]
    ends: Tensor  # int32 [R], the state's first predicate: TRUE, FALSE or another
    lost: Tensor  # int64 [R, COUNTERS], by deriving its children


class Walk(NamedTuple):
    """Where each candidate is and what it met on its way; changed in place."""

    outcome: Tensor  # int8
    depths: Tensor  # int32
    at: Tensor  # int64, the table's row of its state
    live: Tensor  # bool
    overflowed: Tensor  # bool
    tally: Tensor  # int64 [COUNTERS], of all candidates, as Table.lost


class Sizes(NamedTuple):
    """Each is a constexpr."""

    ATOMS: Any  # of a state
    WORDS: Any  # of a packed state
    BODY: Any  # atoms of the longest rule's body
    FACTS: Any  # that a goal looks at
    RULES: Any
    PLACES: Any  # power of 2 from FACTS + RULES on
    NAMES: Any  # power of 2 from the number of variables on
    PROBES: Any  # slots that a key of ``Patterns`` may be in, from its own on
    LEFTMOST: Any  # whether the goal is the first atom
    CHILDREN: Any  # power of 2 from the number of a state's children on
    LAYERS: Any
    WIDTH: Any  # of an encoding


class Fields(NamedTuple):
    """Where a packed state has each field; an atom has three: predicate and both arguments."""

    words: Tensor
    shifts: Tensor
    masks: Tensor


class Patterns(NamedTuple):
    """The look-ups that find facts: a hash table."""

    keys: Tensor
    starts: Tensor  # their first column in ``facts``
    lengths: Tensor
    last: int  # slot


class Rules(NamedTuple):
    starts: Tensor  # int64, by predicate
    heads: Tensor  # int32 [2, columns]
    predicates: Tensor  # int32 [BODY, columns]
    terms: Tensor  # int32 [BODY, 2, columns]
    columns: int  # the last one is zeros


class Graph(NamedTuple):
    """What states are derived with: the tables of the engine."""

    facts: Tensor  # int32 [2, fact_columns], their arguments
    fact_columns: int  # the last one is zeros
    patterns: Patterns
    rules: Rules
    fields: Fields
    constants: int
    most: int  # children that are kept


class Network(NamedTuple):
    """The policy without the matrices of its layers, of which each look has its own."""

    predicates: Tensor
    terms: Tensor
    bias: Tensor
    biases: Tensor
    gains: Tensor
    shifts: Tensor
    epsilon: float
    fields: Fields  # of the states that it encodes


class Contest(NamedTuple):
    """The children that can still win, and what their parents become."""

    ids: Tensor  # of each state of the frontier: its row of the table
    sources: Tensor  # its row of ``parents``
    parents: Tensor  # encoded
    starts: Tensor  # where its children begin in ``kept``
    numbers: Tensor  # how many they are
    kept: Tensor  # rows of ``children``
    children: Tensor
    encoded: Tensor  # those that are in ``kept``
    table: Table
    chosen: Tensor  # of each state: its place in ``kept``
    counts: Tensor
    open_states: Tensor  # that float32 decides
    open_starts: Tensor  # of each of these: where it has what it encodes
