"""Profiles for the gate: runs of a compile-only recording, and findings put onto them by hand."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kgprof.analysis import analyse
from kgprof.collectors.accepted import Entry
from kgprof.gate.budgets import DEFAULTS, Budget
from kgprof.gate.metrics import BY_NAME
from kgprof.gate.settings import Settings
from kgprof.model import Finding, Level, Location, PassName, Profile, RunKey, RunRecord
from kgprof.model.compile_records import CompileRecords
from tests.analysis.recordings import recording, run

FUSED = RunKey(strategy="fused", mode="default")
BATCHED = RunKey(strategy="batched", mode="default")
ROOT = "/home/somebody/project"
TODAY = "2026-11-21"  # the day of the recording


def profile(*findings: Finding, runs: Sequence[RunRecord] = (), device: str = "cpu", backend: str = "") -> Profile:
    """One run that compiled something and is clean, unless told otherwise."""
    whole = [msgspec.structs.replace(r, records=CompileRecords()) for r in runs or (run(FUSED),)]
    made = recording(*whole, baseline=None)
    options = msgspec.structs.replace(made.header.options, passes=(PassName.COMPILE,), backend=backend)
    header = msgspec.structs.replace(made.header, options=options, created_utc=f"{TODAY}T10:00:00+00:00")
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
) -> Finding:
    return Finding(
        rule=rule,
        level=level,
        message=message,
        run=on,
        location=Location(file=file, line=line, function=function, text="    print(x)"),
        count=count,
        fingerprint=f"{rule}{line:04d}",
    )


def settings(
    *limits: tuple[str, float], scope: str = "", entries: Sequence[Entry] = (), fail_on: str = "error"
) -> Settings:
    """These budgets besides the defaults."""
    budgets = tuple(Budget(metric=BY_NAME[name], limit=limit, scope=scope) for name, limit in limits)
    return Settings(budgets=(*budgets, *DEFAULTS), accepted=tuple(entries), fail_on=fail_on)


def entry(rule: str = "KGP101", *, expires: str = "2027-01-31", function: str = "step", gb: str = "") -> Entry:
    return Entry(
        rule=rule, file="src/model.py", function=function, gb=gb, reason="it is a demo", owner="ana", expires=expires
    )
