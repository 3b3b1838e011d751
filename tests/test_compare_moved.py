"""What is found in a program before and after its lines moved, and in another checkout: the same,
and nothing new."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
import torch

import kgprof
from kgprof.compare.findings import compared_findings
from kgprof.model import Finding
from tests.analysis.compared import KEY, profile

FAULTS = """
import torch


class Queue:
    def __init__(self):
        self.slots = torch.zeros(8)

    def refill(self, x):
        self.slots = torch.cat([x, x])[:8]
        return self.slots


QUEUE = Queue()


@torch.compile(backend="eager")
def breaks(x, factor):
    torch._dynamo.graph_break()
    return x * factor


@torch.compile(backend="eager")
def writes(x):
    x.add_(1)
    return x


@torch.compile(backend="eager")
def uses(slots, x):
    return slots.sum() + x


def step(x, factor):
    y = breaks(x, factor)
    z = uses(QUEUE.refill(y), y)
    w = writes(z)
    return w.sum().item()
"""
MOVED = "# a licence of several lines\n" * 9 + "\n\nUNUSED = 1\n\n"


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def loaded(path: Path, text: str) -> ModuleType:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("faulty_step", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def found_in(path: Path, text: str) -> tuple[Finding, ...]:
    torch._dynamo.reset()
    watched = kgprof.watch(loaded(path, text).step, warmup=1)
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        for factor in (1, 2, 3, 4):
            watched(torch.ones(8), factor)
    watched.stop()
    return tuple(msgspec.structs.replace(finding, run=KEY) for finding in watched.findings)


def rules(findings: tuple[Finding, ...]) -> set[str]:
    return {finding.rule for finding in findings}


def test_lines_that_moved_leave_every_fingerprint_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "pkg" / "step.py"

    before, after = found_in(file, FAULTS), found_in(file, MOVED + FAULTS)

    assert rules(before) >= {"KGP101", "KGP105", "KGP201", "KGP402", "KGP404"}
    lines = [
        [finding.location.line for finding in side if finding.location] for side in (before, after)
    ]
    assert min(lines[1]) > max(lines[0]) - len(FAULTS.splitlines()) + len(MOVED.splitlines())
    assert [finding.fingerprint for finding in after] == [finding.fingerprint for finding in before]


def test_in_another_checkout_nothing_is_new(tmp_path: Path) -> None:
    sides = []
    for name, text in (("base", FAULTS), ("head", MOVED + FAULTS)):
        root = tmp_path / name
        given = profile(findings=found_in(root / "pkg" / "step.py", text))
        sides.append(
            msgspec.structs.replace(
                given, environment=msgspec.structs.replace(given.environment, source_root=str(root))
            )
        )

    statuses = [(one.status, one.finding.rule) for one in compared_findings(*sides, "warning")]

    assert {rule for _, rule in statuses} >= {"KGP101", "KGP105", "KGP201", "KGP402", "KGP404"}
    assert {status for status, _ in statuses} == {"unchanged"}
