"""torch computes nothing for its trace that nobody reads, and what it computes cannot fail a
compilation."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch._logging import _internal
from torch.utils._pytree import tree_map_only

from kgprof.record.ground.source import listening, unavailable
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.trace_payloads import GUARDED, TracePayloads
from kgprof.record.passes.torch_trace import TRACE_LOGGER, StructuredTrace

printed: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    printed.clear()
    yield
    torch._dynamo.reset()


class Unprintable(torch.Tensor):
    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Unprintable:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __repr__(self) -> str:  # type: ignore[override]
        printed.append("once")
        raise ArithmeticError("not to be printed")

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(
        parts: dict[str, torch.Tensor], context: object, size: Any, stride: Any
    ) -> Unprintable:
        return Unprintable(parts["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inner = tree_map_only(Unprintable, lambda one: one.inner, args)
        return tree_map_only(torch.Tensor, Unprintable, func(*inner, **(kwargs or {})))


class Users(logging.Handler):
    """As TORCH_TRACE puts one there."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        metadata: dict[str, Any] = getattr(record, "metadata", {})
        self.names += [str(metadata.get("artifact", {}).get("name")), *metadata]


@contextmanager
def nobody_else() -> Iterator[None]:
    """Without the handlers that pytest puts on every logger which does not propagate."""
    log = logging.getLogger(TRACE_LOGGER)
    before, log.handlers = log.handlers, []
    try:
        yield
    finally:
        log.handlers = before


def doubled() -> torch.Tensor:
    compiled = torch.compile(lambda one: one * 2, backend="aot_eager", fullgraph=True)
    result = compiled(Unprintable(torch.ones(2)))
    assert isinstance(result, Unprintable)
    return result.inner


def test_a_subclass_that_cannot_be_printed_compiles_and_is_not_printed() -> None:
    sources = (TracePayloads(), trace := StructuredTrace(CallIndex()))

    with nobody_else(), listening(sources):
        result = doubled()

    assert torch.equal(result, torch.full((2,), 2.0))
    assert printed == []
    assert unavailable(sources) == ()
    artifacts = [record for record in trace.kept.records if "artifact" in record.metadata]
    (metadata,) = [
        one.payload
        for one in artifacts
        if one.metadata["artifact"]["name"] == "aot_forward_graph_fw_metadata"
    ] or ["static_input_indices=[]"]  # an inference graph has no such record in every torch
    assert metadata is not None
    assert "static_input_indices=[" in metadata


def test_where_the_user_listens_all_is_computed_and_what_it_raises_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_TRACE", "/nowhere")
    log, users, sources = logging.getLogger(TRACE_LOGGER), Users(), (TracePayloads(),)
    log.addHandler(users)
    try:
        with listening(sources):
            result = doubled()
    finally:
        log.removeHandler(users)

    assert torch.equal(result, torch.full((2,), 2.0))
    assert printed
    (lost,) = unavailable(sources)
    assert (lost.capture, lost.incomplete) == ("trace payloads", True)
    assert "not to be printed" in lost.why
    assert lost.why.endswith(
        "TORCH_TRACE is set, and without kgprof torch lets this fail the compilation"
    )
    assert "dynamo_output_graph" in users.names


def test_without_torch_trace_the_reason_does_not_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_TRACE", raising=False)
    payloads, log, users = TracePayloads(), logging.getLogger(TRACE_LOGGER), Users()
    log.addHandler(users)
    try:
        with listening((payloads,)):
            _internal.trace_structured(
                "artifact", dict, payload_fn=lambda: 1 // 0, expect_trace_id=False
            )
    finally:
        log.removeHandler(users)

    assert payloads.lost.startswith("torch could not print")
    assert "ZeroDivisionError" in payloads.lost
    assert "TORCH_TRACE" not in payloads.lost


def test_what_no_listener_reads_is_not_computed() -> None:
    computed: list[str] = []

    def payload() -> str:
        computed.append("once")
        return "a long text"

    with nobody_else(), listening((TracePayloads(), trace := StructuredTrace(CallIndex()))):
        _internal.trace_structured("aot_joint_graph", payload_fn=payload, expect_trace_id=False)
        _internal.trace_structured("dynamo_output_graph", payload_fn=payload, expect_trace_id=False)

    assert computed == ["once"]
    assert [text.text for text in trace.kept.texts] == ["a long text"]


def test_torchs_function_is_what_it_was_afterwards() -> None:
    code, names = _internal.trace_structured.__code__, set(vars(_internal))

    with listening((TracePayloads(),)):
        assert _internal.trace_structured.__code__ is not code
        assert GUARDED in vars(_internal)

    assert _internal.trace_structured.__code__ is code
    assert set(vars(_internal)) == names
