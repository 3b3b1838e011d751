"""silu(a @ b1) * (a @ b2) for [m, k] and two [k, n]: compiled, in float8, and as a CUDA graph for
each shape."""

import torch
from torch.nn.functional import silu

from kgprof import model as m
from kgprof.workloads.example import Compile, Shapes, Step, Strategy

WARM_UP = 3  # calls before a capture, on a stream of their own, as torch's documentation asks


def silu_mul(a: torch.Tensor, b1: torch.Tensor, b2: torch.Tensor) -> torch.Tensor:
    return silu(a @ b1) * (a @ b2)


def scaled_silu_mul(
    a: torch.Tensor, b1: torch.Tensor, b2: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """Operands are float8_e4m3fn; the products are accumulated and returned in bfloat16."""
    one = torch._scaled_mm(a, b1, scale, scale, out_dtype=torch.bfloat16)
    two = torch._scaled_mm(a, b2, scale, scale, out_dtype=torch.bfloat16)
    return silu(one) * two


def _operands(
    shapes: Shapes, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """[m, k] and two [k, n] that lie by columns, in bfloat16."""
    rows, columns, inner = shapes.m, shapes.n, shapes.k
    a = torch.randn(rows, inner, device=device, dtype=torch.bfloat16)
    b1, b2 = (
        torch.randn(columns, inner, device=device, dtype=torch.bfloat16).t() / inner**0.5
        for _ in range(2)
    )
    return a, b1, b2


def functions(shapes: Shapes, device: torch.device, compiled: Compile) -> Step:
    operands, function = _operands(shapes, device), compiled(silu_mul)
    return lambda: function(*operands)


def float8(shapes: Shapes, device: torch.device, compiled: Compile) -> Step:
    operands = [tensor.to(torch.float8_e4m3fn) for tensor in _operands(shapes, device)]
    scale, function = torch.ones((), device=device), compiled(scaled_silu_mul)
    return lambda: function(*operands, scale)


class GraphCache:
    """One captured CUDA graph for each (m, n, k); a call copies its input in and replays."""

    def __init__(self) -> None:
        self._graphs: dict[
            tuple[int, int, int], tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]
        ] = {}

    def __call__(self, a: torch.Tensor, b1: torch.Tensor, b2: torch.Tensor) -> torch.Tensor:
        """A copy of the output: the next replay writes over the graph's own."""
        key = (a.shape[0], b1.shape[1], a.shape[1])
        if key not in self._graphs:
            self._graphs[key] = self._captured(a.clone(), b1, b2)
        graph, kept, output = self._graphs[key]
        kept.copy_(a)
        graph.replay()
        return output.clone()

    def _captured(
        self, a: torch.Tensor, b1: torch.Tensor, b2: torch.Tensor
    ) -> tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                silu_mul(a, b1, b2)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = silu_mul(a, b1, b2)
        return graph, a, output


def graph(shapes: Shapes, device: torch.device, compiled: Compile) -> Step:
    operands, cache = _operands(shapes, device), GraphCache()
    return lambda: cache(*operands)


STRATEGIES = {
    "functions": Strategy(functions, "In bfloat16, by torch's own functions."),
    "graph": Strategy(
        graph,
        "A hand-made CUDA graph of the functions, captured once for the shape.",
        modes=(m.EAGER,),
        cuda=True,
    ),
    "float8": Strategy(float8, "The matmuls in float8.", float8=True),
}
