"""What the probes of the MEMORY pass wrote down of syncs, addresses, aliases and versions, before
it is interpreted.

``call`` counts the calls of the workload in this pass from 0; -1 stands for anything before the
first. The size of TensorRecords is bounded by graphs x tensors x distinct states, never by calls:
see the constants of ``record/listeners/tensor_probe.py``.

What cannot be seen in here: a write through ``.data``, through numpy or by a fused optimizer leaves
no trace in a tensor's version, and an inference tensor has none.
"""

from kgprof.model.structs import Model, Tagged


class Frame(Model, kw_only=False):
    """One Python frame above a read."""

    file: str
    line: int
    function: str
    first_line: int = 0  # of the code object


EXPRESSION_KEPT = 200  # characters of what a line evaluates


class SyncRecord(Model):
    """One place from which something read a tensor's value on the host or waited for the device, as
    a source saw it."""

    source: str  # "dispatch", "sync-debug", "python-call", "captured graph"
    op: str  # "aten::_local_scalar_dense", "Tensor.cpu", "cuda.synchronize", ...
    device: str  # of the tensor that was read: "cpu", "cuda"; of the process, where there is none
    frames: tuple[Frame, ...]  # of the project, innermost first
    calls: dict[int, int]  # call -> how often in it
    compile_id: str = ""  # of the compiled graph that was running, empty outside
    operator: str = ""  # in it: what Dynamo captured that reads, "item", "cond", "getitem"
    # of the innermost frame: Python's name for what it was doing, "CALL", "POP_JUMP_IF_FALSE"
    instruction: str = ""
    expression: str = ""  # and the source of it
    waited_us: dict[int, float] = {}  # call -> microseconds that the host spent in it; CUDA only
    text: str = ""  # torch's own words (sync-debug)
    chain: tuple[Frame, ...] = ()  # of libraries between the read and ``frames``, innermost first
    library_instruction: str = ""  # of the innermost of them, as ``instruction``
    library_expression: str = ""
    # On a CPU, of what was read: "host" if it would lie there on a machine with a GPU as well,
    # "unnamed" if it was made without a device; empty for the GPU's, for what is not known, and on
    # a GPU.
    tensor: str = ""
    loads: bool = False  # a DataLoader called it, for an item or a batch of the program's dataset


class SyncRecords(Tagged, tag="syncs"):
    records: tuple[SyncRecord, ...] = ()
    left_out: int = 0
    names_a_device: bool = False  # on a CPU: the program says somewhere where its tensors lie


class GraphTensor(Model, kw_only=False):
    """A tensor of a CUDA graph that the program recorded: read by its replays though freed or
    rebound, or kept."""

    what: str  # "freed", "rebound", "kept"
    name: str  # the variable that held it in the capture; empty where none is known
    shape: tuple[int, ...]
    at: Frame  # the line of the capture that read it, or made it
    replays: int  # in which it was seen so


REPLAYS_WATCHED = 64  # what is wrong is wrong from the first replays on


class HandmadeGraph(Model):
    """One capture of ``torch.cuda.CUDAGraph`` by the program; its first 64 replays were looked
    at."""

    captured_in: int  # call
    frames: tuple[Frame, ...]  # of the project where it was captured, innermost first
    replays: dict[int, int]  # call -> how many
    wrong: tuple[GraphTensor, ...] = ()


class Memory(Model):
    """Where a strided tensor lies. ``address`` and ``storage`` are bytes from 0; ``stride`` counts
    elements."""

    address: int
    storage: int  # address of the first byte of its storage
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    itemsize: int
    dtype: str
    device: str  # "cpu", "cuda:0"

    @property
    def size_bytes(self) -> int:
        """Of its elements, without what lies between them."""
        elements = 1
        for length in self.shape:
            elements *= length
        return elements * self.itemsize


class Held(Model):
    """One input of one graph in the same one of the graph's runs of each call."""

    run: int  # which of the graph's runs in a call, from 0
    watched: int  # calls in which it was looked at
    first: Memory
    last: Memory
    # calls in which it was another storage, or another address in it, than the time before
    moved: tuple[int, ...] = ()
    # of those: graph output of an earlier call ("0/0 output 1") -> how often
    made_before: dict[str, int] = {}
    made_now: dict[str, int] = {}  # likewise, of the same call: what one graph hands to the next
    written: tuple[int, ...] = ()  # calls in which its version rose while the graph ran
    # above the graph when it moved last (when it first ran, if it never did)
    frames: tuple[Frame, ...] = ()
    # behind a graph break: source of the input of an earlier graph of this call with its storage
    lies_in: str = ""


class GraphInput(Model, kw_only=False):
    name: str  # Dynamo's source: "L['x']"
    # "parameter" or "fixed": Dynamo told the backend that its address never changes
    static: str = ""
    held: tuple[Held, ...] = ()
    is_made: bool = False  # by Dynamo in each call, from a number or an array of numpy's


class InPlace(Model, kw_only=False):
    """One operator of the captured graph that writes into an input or a view of it."""

    input: int
    operator: str
    frames: tuple[Frame, ...] = ()  # of the user's program, innermost first


class Overlap(Model, kw_only=False):
    """Two tensors of one run whose ranges of addresses meet. Whether they share an element is for
    the reader to say."""

    left: str  # "input 0"
    right: str  # "output 1"
    same_object: bool
    left_memory: Memory
    right_memory: Memory
    runs: int
    first_call: int


class HeldOutput(Model, kw_only=False):
    """An output that was still alive when the call after its own had ended."""

    output: int
    calls: tuple[int, ...]  # in which it was made


class WatchedGraph(Model):
    compile_id: str
    function: str
    file: str
    first_line: int  # of the code object
    # of the code object; a function that goes on after a break has its locals here
    arguments: tuple[str, ...] = ()
    returns: bool  # it ends the function; False where a graph break follows
    # Inductor was asked for CUDA graphs; None where another backend compiled
    cuda_graphs: bool | None
    inputs: tuple[GraphInput, ...] = ()
    outputs: int = 0
    in_place: tuple[InPlace, ...] = ()
    returned_inputs: tuple[str, ...] = ()  # sources of inputs that the function returns as they are
    # Outputs that the function returns; the others are assigned to something. None: not recorded.
    returned_outputs: tuple[int, ...] | None = None
    # names of tensors that stand at two places of what it returns
    returned_twice: tuple[str, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    held_outputs: tuple[HeldOutput, ...] = ()
    runs: int = 0  # that were watched
    left_out: int = 0  # overlapping pairs beyond the limit
    # the graph of its gradients; inputs are named as the forward's, or INCOMING, or not at all
    backward: bool = False


# an input of a backward; with a number from 0 on where there are several
INCOMING = "the incoming gradient"


class WatchedBuffer(Model):
    """A tensor that the workload declares to be persistent, looked at before and after each watched
    call."""

    name: str
    watched: int
    first: Memory
    last: Memory
    # calls in which another tensor object came to stand under the name
    rebound: tuple[int, ...] = ()
    # calls in which it came to lie in another storage or at another address
    moved: tuple[int, ...] = ()
    made_by: dict[str, int] = {}  # graph output that became the buffer -> how often
    # calls in which its version rose while a watched graph ran
    written_inside: tuple[int, ...] = ()
    written_outside: tuple[int, ...] = ()  # calls in which its version rose at another time


class TensorRecords(Tagged, tag="tensors"):
    graphs: tuple[WatchedGraph, ...] = ()
    buffers: tuple[WatchedBuffer, ...] | None = None  # None: the workload declares none
    watched: tuple[int, ...] = ()  # calls of the workload in which tensors were looked at
    steps_marked: int = 0  # torch.compiler.cudagraph_mark_step_begin() while they ran
    left_out: int = 0  # graphs beyond the limit
    backwards: tuple[WatchedGraph, ...] = ()  # of ``graphs``, as far as they ran
