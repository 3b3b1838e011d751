"""What the sync hooks of the MEMORY pass wrote down, before anyone has made sense of it.

``call`` counts the calls of the workload in this pass from 0; -1 stands for anything before the first.
"""

from __future__ import annotations

import msgspec


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One Python frame above a read."""

    file: str
    line: int
    function: str
    first_line: int = 0  # of the code object


class SyncRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One place from which something read a tensor's value on the host or waited for the device, as a source saw it."""

    source: str  # "dispatch", "sync-debug", "python-call", "captured graph"
    op: str  # "aten::_local_scalar_dense", "Tensor.cpu", "cuda.synchronize", ...
    device: str  # of the tensor that was read: "cpu", "cuda"; of the process, where there is none
    frames: tuple[Frame, ...]  # of the project, innermost first
    calls: dict[int, int]  # call -> how often in it
    compile_id: str = ""  # of the compiled graph that was running, empty outside
    operator: str = ""  # in it: what Dynamo captured that reads, "item", "cond", "getitem"
    instruction: str = ""  # of the innermost frame: Python's name for what it was doing, "CALL", "POP_JUMP_IF_FALSE"
    expression: str = ""  # and the source of it
    waited_us: dict[int, float] = {}  # call -> microseconds that the host spent in it; CUDA only
    text: str = ""  # torch's own words (sync-debug)
    chain: tuple[Frame, ...] = ()  # of libraries between the read and ``frames``, innermost first
    library_instruction: str = ""  # of the innermost of them, as ``instruction``
    library_expression: str = ""
    # On a CPU, of what was read: "host" if it would lie there on a machine with a GPU as well, "unnamed" if it was made
    # without a device; empty for the GPU's, for what is not known, and on a GPU.
    tensor: str = ""


class SyncRecords(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="syncs"):
    """All of one MEMORY pass."""

    records: tuple[SyncRecord, ...] = ()
    left_out: int = 0
    names_a_device: bool = False  # on a CPU: the program says somewhere where its tensors lie
