"""Flame graphs written by hand: one line a node, in the order in which a reader sees them."""

from __future__ import annotations

from collections.abc import Iterable

from kgprof.model import FlameGraph, PassName, StackFrame, StackFunction

# How deep, name, file, line, kind, own microseconds a step, calls a step.
Line = tuple[int, str, str, int, str, float, int]

STEP: tuple[Line, ...] = (
    (0, "step", "", 0, "step", 2.0, 1),
    (1, "step", "/src/evaluator.py", 115, "python", 3.0, 1),
    (2, "compile_wrapper", "torch/_dynamo/eval_frame.py", 1076, "torch", 20.0, 1),
    (3, "Torch-Compiled Region: 0/0", "", 0, "region", 5.0, 1),
    (
        4,
        "call",
        "/tmp/i/xu/cxukwsnys7dwncjhhmgm47krwzmvihq2iwm5zsjgd7wmdh7f3bzd.py",
        38,
        "generated",
        10.0,
        1,
    ),
    (5, "<built-in function kernel>", "", 0, "builtin", 400.0, 12),
    (5, "aten::addmm", "", 0, "operator", 60.0, 6),
    (5, "(other)", "", 0, "pruned", 1.0, 40),
    (3, "TorchDynamo Cache Lookup", "", 0, "operator", 12.0, 1),
    (2, "score <of> & a thing", "/src/policy.py", 77, "python", 30.0, 1),
    (3, "nn.Module: Linear_0", "", 0, "module", 4.0, 1),
    (4, "aten::linear", "", 0, "operator", 40.0, 1),
    (1, "step", "torch/profiler/profiler.py", 1150, "profiler", 8.0, 1),
    (1, "(other)", "", 0, "pruned", 0.5, 9),
)

# The kernel slower, the policy's module gone, and something new in its place.
SLOWER: tuple[Line, ...] = (
    *STEP[:5],
    (5, "<built-in function kernel>", "", 0, "builtin", 480.0, 12),
    *STEP[6:10],
    (3, "mask", "/src/policy.py", 90, "python", 30.0, 1),
    *STEP[12:],
)


def flame(
    lines: Iterable[Line] = STEP, *, steps: int = 5, factor: float = 1.0, top: int = 25
) -> FlameGraph:
    """``factor`` times as long."""
    names: dict[str, int] = {"": 0}
    frames: dict[StackFrame, int] = {}
    parent: list[int] = []
    frame: list[int] = []
    self_ns: list[int] = []
    calls: list[int] = []
    open_now: list[int] = []
    for node, (depth, name, file, line, kind, own_us, called) in enumerate(lines):
        del open_now[depth:]
        parent.append(open_now[-1] if open_now else -1)
        open_now.append(node)
        known = StackFrame(
            name=names.setdefault(name, len(names)),
            file=names.setdefault(file, len(names)),
            line=line,
            kind=kind,
        )
        frame.append(frames.setdefault(known, len(frames)))
        self_ns.append(round(own_us * 1000 * factor * steps))
        calls.append(called * steps)
    others = [node for node, of in enumerate(frame) if list(frames)[of].kind == "pruned"]
    largest = sorted(
        set(range(1, len(parent))) - set(others), key=lambda node: (-self_ns[node], node)
    )
    return FlameGraph(
        measured_in=PassName.STACK,
        steps=steps,
        names=tuple(names),
        frames=tuple(frames),
        parent=tuple(parent),
        frame=tuple(frame),
        self_ns=tuple(self_ns),
        calls=tuple(calls),
        pruned_below=0.0005,
        pruned_nodes=17 * len(others),
        pruned_ns=sum(self_ns[node] for node in others),
        top=tuple(
            StackFunction(frame=frame[n], self_ns=self_ns[n], total_ns=self_ns[n], calls=calls[n])
            for n in largest[:top]
        ),
        functions=len(largest) + 30,
    )
