"""Profiles for the gate: runs of a compile-only recording, and findings put onto them by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kgprof.analysis import analyse
from kgprof.gate.metrics import OPTION
from kgprof.gate.settings import Configuration, combined
from kgprof.model import (
    AcceptedEntry,
    Budget,
    CallsOfCompiled,
    CompileSummary,
    FailOn,
    Finding,
    Folded,
    GateSettings,
    Level,
    Location,
    PackageLine,
    PassName,
    Profile,
    Refusal,
    RunKey,
    RunRecord,
    TorchCause,
)
from kgprof.model.compile_records import CompiledCalls, CompileRecords
from tests.analysis.recordings import recording, run

FUSED = RunKey(strategy="fused", mode="default")
BATCHED = RunKey(strategy="batched", mode="default")
ROOT = "/home/somebody/project"
TODAY = "2026-11-21"  # the day of the recording


def profile(
    *findings: Finding, runs: Sequence[RunRecord] = (), device: str = "cpu", backend: str = ""
) -> Profile:
    """One run that compiled something and is clean, unless told otherwise."""
    records = CompileRecords(compiled_calls=CompiledCalls())
    whole = [msgspec.structs.replace(r, records=records) for r in runs or (run(FUSED),)]
    made = recording(*whole, baseline=None)
    options = msgspec.structs.replace(
        made.header.options, passes=(PassName.COMPILE,), backend=backend
    )
    header = msgspec.structs.replace(
        made.header, options=options, created_utc=f"{TODAY}T10:00:00+00:00"
    )
    found = analyse(msgspec.structs.replace(made, header=header))
    return msgspec.structs.replace(
        found,
        device=device,
        findings=(*findings, *found.findings),
        environment=msgspec.structs.replace(found.environment, source_root=ROOT),
    )


def finding(
    rule: str = "KGP101",
    *,
    level: Level = Level.WARNING,
    on: RunKey | None = FUSED,
    line: int = 12,
    file: str = f"{ROOT}/src/model.py",
    function: str = "step",
    count: int = 1,
    message: str = "graph break (GB0059): print() is called",
    gb: str = "GB0059",
    library: PackageLine | None = None,
    folded: Folded | None = None,
    hints: tuple[str, ...] = (),
    by_torch: bool = False,
) -> Finding:
    """A break unless another rule is given, of torch's id ``gb``; ``by_torch``: one that torch
    makes on purpose."""
    cause = TorchCause(
        kind="graph break", gb_ids=(gb,), hints=hints, context="builtin print [<class 'str'>] False"
    )
    refusal = Refusal(cause=cause, folded=folded, intended=by_torch)
    return Finding(
        rule=rule,
        level=level,
        message=message,
        run=on,
        location=Location(file=file, line=line, function=function, text="    print(x)"),
        count=count,
        fingerprint=f"{rule}{line:04d}",
        library=library,
        refusal=refusal if rule in ("KGP101", "KGP102") else None,
        no_fix="torch means it" if by_torch else "",
    )


def with_calls(found: Profile, **fields: Any) -> Profile:
    """The same with what is known of the calls of compiled functions, in its first run."""
    first = found.runs[0]
    assert isinstance(first.compile, CompileSummary)
    compiled = msgspec.structs.replace(first.compile, compiled_calls=CallsOfCompiled(**fields))
    return msgspec.structs.replace(
        found, runs=(msgspec.structs.replace(first, compile=compiled), *found.runs[1:])
    )


def settings(
    *limits: tuple[str, float],
    scope: str = "",
    entries: Sequence[AcceptedEntry] = (),
    fail_on: str = "error",
) -> GateSettings:
    """These budgets besides the defaults."""
    budgets = tuple(
        Budget(metric=name, limit=limit, scope=scope, origin=OPTION) for name, limit in limits
    )
    return combined(Configuration(budgets=budgets, fail_on=FailOn(fail_on)), entries=tuple(entries))


def entry(
    rule: str = "KGP101", *, expires: str = "2027-01-31", function: str = "step", gb: str = ""
) -> AcceptedEntry:
    return AcceptedEntry(
        rule=rule,
        file="src/model.py",
        function=function,
        gb=gb,
        reason="it is a demo",
        owner="ana",
        expires=expires,
    )
