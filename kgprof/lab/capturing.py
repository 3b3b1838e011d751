"""What records a function's work on the device and replays it: torch.cuda's graphs, behind a small
interface."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kgprof import model as m


class CudaGraph:
    """torch.cuda.CUDAGraph as torch's documentation captures with it. It reads and writes the
    addresses that the captured function read and wrote."""

    def __init__(self) -> None:
        self.device = torch.device("cuda")

    def unavailable(self) -> str:
        """Why nothing can be captured here; empty where it can."""
        return "" if torch.cuda.is_available() else "no CUDA device"

    @contextlib.contextmanager
    def warming_up(self) -> Iterator[None]:
        """Around the calls before the capture, which are made on a stream of their own."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield
        torch.cuda.current_stream().wait_stream(stream)

    @contextlib.contextmanager
    def capturing(self, case: m.CaptureCase) -> Iterator[None]:
        """Around the call that is captured: what it launches is recorded and not run."""
        self._graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream() if case.own_stream else None  # type: ignore[no-untyped-call]
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode=case.error_mode):
            yield

    def replay(self) -> None:
        self._graph.replay()

    def callables(
        self, step: Callable[..., object], inputs: Sequence[torch.Tensor]
    ) -> Callable[..., object]:
        """``step`` with arguments that are copied into ``inputs`` before each replay."""
        graphed: Any = torch.cuda.make_graphed_callables(step, tuple(inputs))
        return graphed  # type: ignore[no-any-return]
