"""A long script whose reads have all been seen: what they read is not followed any more, and every
read is counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest
import torch

from kgprof.model import SyncRecord
from kgprof.record.ground import project_sources
from kgprof.record.listeners import syncs
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.sync_hooks import TENSORS
from kgprof.record.listeners.syncs import Syncs

CPU = torch.device("cpu")
STEPS, FOLLOWED = 12, 4
WEIGHT = torch.nn.Parameter(torch.ones(2))
Step = Callable[[int], object]


def seen(
    program: Step, monkeypatch: pytest.MonkeyPatch, followed: int
) -> tuple[list[SyncRecord], list[bool]]:
    """What was recorded, and before each step whether tensors are not followed."""
    monkeypatch.setattr(syncs, "FOLLOWED", followed)
    calls, rests = CallIndex(), []
    hooks = Syncs(calls, CPU, project_sources.project_files(__file__))
    with hooks:
        for number in range(STEPS):
            hooks.step_begins()
            rests.append(TENSORS.rest)
            with calls.call():
                program(number)
    assert not TENSORS.rest
    return list(hooks.records().records), rests


def both_kinds(number: int) -> None:
    host = torch.ones(2, device="cpu") * 2
    host.max().item()
    bool((WEIGHT * number).sum() > 0)


def a_standard_deviation(number: int) -> None:
    (WEIGHT.detach() * number).std().item()  # on a CPU it reads its mean, and on a GPU nothing


def a_sample(number: int) -> None:
    torch.multinomial(WEIGHT.detach(), 1).item()  # reads what it draws from


def anew_in_the_end(number: int) -> None:
    both_kinds(number)
    if number >= STEPS - 3:
        (torch.ones(2, device="cpu") + 1).min().item()


@pytest.mark.parametrize("program", [both_kinds, a_standard_deviation, a_sample, anew_in_the_end])
def test_what_is_recorded_is_the_same(program: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    # Several times: until CPython has specialised its instructions, by which places are told apart.
    *_, followed, rested = (
        seen(program, monkeypatch, steps) for steps in (STEPS, STEPS, STEPS, FOLLOWED)
    )

    assert not any(followed[1])
    # the first step read something new
    assert rested[1][: FOLLOWED + 1] == [False] * (FOLLOWED + 1)
    assert rested[1][FOLLOWED + 1]
    assert rested[0] == followed[0]


@pytest.mark.parametrize(("enough_cpu_s", "rests_from"), [(0.0, 3), (1e9, STEPS)])
def test_fewer_steps_are_enough_if_they_take_much_cpu_time(
    monkeypatch: pytest.MonkeyPatch, enough_cpu_s: float, rests_from: int
) -> None:
    monkeypatch.setattr(syncs, "FEWEST_FOLLOWED", 2)
    monkeypatch.setattr(syncs, "ENOUGH_CPU_S", enough_cpu_s)

    records, rests = seen(both_kinds, monkeypatch, STEPS)

    assert rests == [number >= rests_from for number in range(STEPS)]
    assert sorted((record.tensor, sum(record.calls.values())) for record in records) == [
        ("", STEPS),
        ("host", STEPS),
    ]


def test_a_new_read_has_tensors_followed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _, rests = seen(anew_in_the_end, monkeypatch, FOLLOWED)

    assert rests[STEPS - 3 :] == [True, False, False]


def test_what_nobody_followed_counts_as_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(number: int) -> None:
        if number == STEPS - 1:
            torch.ones(2, device="cpu").max().item()

    (record,), rests = seen(once, monkeypatch, FOLLOWED)

    assert rests[-1]
    assert (record.tensor, record.calls) == (syncs.UNKNOWN, {STEPS - 1: 1})


def test_the_memory_of_an_array_is_the_hosts_though_nobody_followed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = numpy.ones(3)

    def once(number: int) -> None:
        if number == STEPS - 1:
            torch.from_numpy(labels).numpy().sum()

    (record,), rests = seen(once, monkeypatch, FOLLOWED)

    assert rests[-1]
    assert record.tensor == "host"


def test_where_a_line_reads_both_kinds_tensors_are_followed_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def either(number: int) -> None:
        x = torch.ones(2, device="cpu") if number % 2 else WEIGHT.detach()
        x.max().item()

    records, rests = seen(either, monkeypatch, FOLLOWED)

    assert not any(rests)
    assert sorted((record.tensor, len(record.calls)) for record in records) == [
        ("", STEPS // 2),
        ("host", STEPS // 2),
    ]
