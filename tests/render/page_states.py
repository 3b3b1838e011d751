"""The states in which a browser looks at the page: those of every renderer, and three that only a page cares about."""

from __future__ import annotations

import msgspec

from kgprof.model import Finding, Level, Location, Profile, RunKey, Skipped
from tests.render import profiles

RULES = ("KGP101", "KGP103", "KGP201", "KGP401")


def eight() -> Profile:
    """Eight strategies in one mode."""
    template = profiles.clean()
    keys = [RunKey(strategy=f"strategy_{letter}", mode="default") for letter in "abcdefgh"]
    runs = tuple(
        msgspec.structs.replace(template.runs[i % len(template.runs)], key=key, is_baseline=i == 0)
        for i, key in enumerate(keys)
    )
    return msgspec.structs.replace(template, runs=runs, baseline=keys[0])


def no_baseline() -> Profile:
    """Two runs, neither of them declared as what the other is held against."""
    template = profiles.clean()
    none = Skipped(reason="no run is declared as the baseline")
    runs = tuple(msgspec.structs.replace(run, is_baseline=False, speedup=none) for run in template.runs[:2])
    return msgspec.structs.replace(template, runs=runs, baseline=None)


def five_hundred() -> Profile:
    """As many findings, in a hundred files, with torch's words and other places."""
    found = tuple(
        Finding(
            rule=RULES[i % len(RULES)],
            level=Level.WARNING,
            message=f"the {i}th of them reads a value that is not there yet",
            run=profiles.KEYS[i % 2],
            location=Location(file=f"/src/part_{i // 5}.py", line=1 + i, function="step", text=f"y = x[{i}].item()"),
            count=1 + i % 20,
            fingerprint=f"many{i:03d}",
            related=(Location(file="/src/main.py", line=9, function="main", text="step(x)"),),
            detail="Detected a read.\nHint: keep it on the device.",
        )
        for i in range(500)
    )
    return msgspec.structs.replace(profiles.clean(), runs=profiles.clean().runs[:2], findings=found)


PAGE_STATES = {**profiles.STATES, **{state.__name__: state for state in (eight, no_baseline, five_hundred)}}
