"""Whether two strided ranges share an element: exactly, against a list of all their elements."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgprof.collectors.tensors.tensor_facts import (
    last_name,
    overlaps_itself,
    relation,
    said,
    share_an_element,
)
from kgprof.model.memory_records import Memory
from tests.collectors.written_tensors import lies, overlap

dimensions = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=3)


def addresses(memory: Memory) -> list[int]:
    """The first byte of each element."""
    ranges = [range(n) for n in memory.shape]
    return [
        memory.address
        + memory.itemsize * sum(i * s for i, s in zip(index, memory.stride, strict=True))
        for index in itertools.product(*ranges)
    ]


def bytes_of(memory: Memory) -> set[int]:
    return {start + offset for start in addresses(memory) for offset in range(memory.itemsize)}


@st.composite
def memories(draw: st.DrawFn) -> Memory:
    """A few elements near each other, of 1, 4 or 8 bytes, at any byte."""
    dims = draw(dimensions)
    return lies(
        4096 + draw(st.integers(0, 40)),
        tuple(n for n, _ in dims),
        tuple(stride for _, stride in dims),
        storage=4096,
        itemsize=draw(st.sampled_from([1, 4, 8])),
    )


@given(memories(), memories())
def test_shared_elements_are_found_exactly(one: Memory, other: Memory) -> None:
    assert share_an_element(one, other) is bool(bytes_of(one) & bytes_of(other))


@given(memories())
def test_elements_of_one_tensor_at_one_place_are_found_exactly(memory: Memory) -> None:
    places = addresses(memory)

    assert overlaps_itself(memory) is (len(set(places)) < len(places))


def test_nothing_is_shared_between_two_devices() -> None:
    assert share_an_element(lies(), lies(device="cuda:0")) is False


def test_what_is_too_hard_is_not_known() -> None:
    strides = (99_991, 99_989, 99_971, 99_961, 99_929, 99_923)
    hard = lies(4096, (40,) * 6, strides, itemsize=1)
    other = lies(4096 + 7, (40,) * 6, tuple(stride + 2 for stride in strides), itemsize=1)

    assert share_an_element(hard, other) is None
    assert overlaps_itself(lies(4096, (2000, 2000), (3, 7))) is None
    assert relation(overlap("input 0", "output 0", hard, other)) == "unknown"


@pytest.mark.parametrize(
    ("one", "other", "same", "words"),
    [
        (lies(), lies(), True, "the same tensor"),
        (lies(4096, (4,), (2,)), lies(4100, (4,), (2,), storage=4096), False, ""),
        (lies(4096, (4,)), lies(4100, (4,), storage=4096), False, "a view of it"),
        (lies(4096, (4,)), lies(4100, (4,)), False, "overlapping memory"),
    ],
)
def test_relations(one: Memory, other: Memory, same: bool, words: str) -> None:
    assert relation(overlap("input 0", "output 0", one, other, same=same)) == words


@pytest.mark.parametrize(
    ("source", "text", "last"),
    [
        ("L['x']", "x", "x"),
        ("G['SCALE']", "SCALE", "SCALE"),
        ("L['self']._buffers['seen']", "self.seen", "seen"),
        ("L['self']._modules['lin']._parameters['weight']", "self.lin.weight", "weight"),
        ("L['batch']['x']", "batch['x']", "x"),
        ("L['xs'][0]", "xs[0]", "0"),
        ("L['self'].plain", "self.plain", "plain"),
        ("___from_numpy(L['wave'])", "wave", "wave"),
    ],
)
def test_sources_as_the_program_has_them(source: str, text: str, last: str) -> None:
    assert (said(source), last_name(source)) == (text, last)
