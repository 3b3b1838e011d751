"""What records a function's work on the device and replays it: torch.cuda's graphs, behind a small
interface."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

from kgprof import model as m


class Capturer(Protocol):
    """One graph. It reads and writes the addresses that the captured function read and wrote."""

    device: torch.device

    def unavailable(self) -> str:
        """Why nothing can be captured here; empty where it can."""

    def warming_up(self) -> contextlib.AbstractContextManager[object]:
        """Around the calls before the capture, which are made on a stream of their own."""

    def capturing(self, case: m.CaptureCase) -> contextlib.AbstractContextManager[object]:
        """Around the call that is captured: what it launches is recorded and not run."""

    def replay(self) -> None: ...

    def callables(
        self, step: Callable[..., object], inputs: Sequence[torch.Tensor]
    ) -> Callable[..., object]:
        """``step`` with arguments that are copied into ``inputs`` before each replay."""


class CudaGraph:
    """torch.cuda.CUDAGraph as torch's documentation captures with it."""

    def __init__(self) -> None:
        self.device = torch.device("cuda")

    def unavailable(self) -> str:
        return "" if torch.cuda.is_available() else "no CUDA device"

    @contextlib.contextmanager
    def warming_up(self) -> Iterator[None]:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield
        torch.cuda.current_stream().wait_stream(stream)

    @contextlib.contextmanager
    def capturing(self, case: m.CaptureCase) -> Iterator[None]:
        self._graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream() if case.own_stream else None  # type: ignore[no-untyped-call]
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode=case.error_mode):
            yield

    def replay(self) -> None:
        self._graph.replay()

    def callables(
        self, step: Callable[..., object], inputs: Sequence[torch.Tensor]
    ) -> Callable[..., object]:
        graphed: Any = torch.cuda.make_graphed_callables(step, tuple(inputs))
        return graphed  # type: ignore[no-any-return]
