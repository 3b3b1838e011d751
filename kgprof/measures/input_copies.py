"""What the replay of a CUDA graph copies first: inputs that do not stay where the graph was
recorded to read them.

Such a copy is launched by ``copy_`` or ``_foreach_copy_`` that Inductor's wrapper of the compiled
code calls itself (no other operator around it, none of the user's code), before a graph launch of
the same call of that wrapper.
"""

import numpy as np

from kgprof import model as m
from kgprof.measures.collectives import GENERATED_CODE_PREFIX, REGION_PREFIX
from kgprof.measures.kernel_kinds import Kinds, kinds_of
from kgprof.reading import launches
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import LAUNCH_CATEGORIES, Launched
from kgprof.reading.timeline import NOBODY, STEP_PREFIX

COPIES = ("aten::copy_", "aten::_foreach_copy_")
TO_AND_FROM_THE_HOST = ("Memcpy HtoD", "Memcpy DtoH")


@m.skippable
def input_copies_in_trace(run: RunEvidence) -> m.InputCopies | m.Skipped:
    """In TRACE, by the kinds of the project; Skipped also where there is no TRACE or its file
    cannot be read."""
    work = m.known(run.once(launches.launched_in_trace))
    return input_copies(m.known(run.trace()).columns, work, run.whole.once(kinds_of))


def input_copies(columns: Columns, work: Launched, kinds: Kinds) -> m.InputCopies | m.Skipped:
    """Of the whole trace."""
    replays = np.flatnonzero(
        columns.named(*launches.GRAPH_LAUNCH_PREFIXES) & columns.of_category(*LAUNCH_CATEGORIES)
    )
    if not len(replays):
        return m.Skipped("the trace has no CUDA-graph launch")
    known = work.calls != NOBODY
    events = work.events[known]
    calls = work.calls[known]
    frames = columns.named(GENERATED_CODE_PREFIX, REGION_PREFIX)
    frame = launches.innermost(columns, frames, calls)
    elsewhere = columns.named(*TO_AND_FROM_THE_HOST) | columns.of_category("gpu_memset")
    copied = kinds.are(columns, events, m.KernelKind.COPY) & ~elsewhere[events]
    # Launched in a frame of compiled code by a copy that no other operator within the frame called.
    copying = launches.innermost(columns, columns.named(*COPIES), calls)
    operators = columns.of_category("cpu_op") & ~frames & ~columns.named(*COPIES, STEP_PREFIX)
    other = launches.innermost(columns, operators, calls)
    inside = (
        (frame != NOBODY)
        & (copying != NOBODY)
        & (columns.start_ns[copying] >= columns.start_ns[frame])
    )
    by_wrapper = inside & ((other == NOBODY) | (columns.start_ns[other] < columns.start_ns[frame]))
    # When the last graph launch of each frame began, before everything where there was none. NOBODY
    # as an index finds the last place, whose value counts for nothing.
    last_replay_ns = np.full(len(columns), -1, np.int64)
    replayed_in = launches.innermost(columns, frames, replays)
    known = replayed_in != NOBODY
    np.maximum.at(last_replay_ns, replayed_in[known], columns.start_ns[replays[known]])
    found = copied & by_wrapper & (columns.start_ns[calls] < last_replay_ns[frame])
    copies = events[found]
    total_ns = columns.lasted_ns(work.events)
    spent_ns = columns.lasted_ns(copies)
    share = spent_ns / (total_ns or 1)
    return m.InputCopies(len(replays), len(copies), spent_ns / 1000, share)
