"""The states in which a browser looks at the page: those of every renderer, and four that only a
page cares about."""

from __future__ import annotations

import msgspec

from kgprof.model import (
    CompiledText,
    CompileSummary,
    Finding,
    KernelBreakdown,
    Level,
    Location,
    MemorySummary,
    Profile,
    ProjectSource,
    RunKey,
    Skipped,
)
from tests.render import profiles

TEXT = "".join(f"line_{number} = {number}\n" for number in range(1, 41))
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
    runs = tuple(
        msgspec.structs.replace(run, is_baseline=False, speedup=none) for run in template.runs[:2]
    )
    return msgspec.structs.replace(template, runs=runs, baseline=None)


def five_hundred() -> Profile:
    """As many findings, in a hundred files, with torch's words and other places."""
    found = tuple(
        Finding(
            rule=RULES[i % len(RULES)],
            level=Level.WARNING,
            message=f"the {i}th of them reads a value that is not there yet",
            run=profiles.KEYS[i % 2],
            location=Location(
                file=f"/src/part_{i // 5}.py",
                line=1 + i,
                function="step",
                text=f"y = x[{i}].item()",
            ),
            count=1 + i % 20,
            fingerprint=f"many{i:03d}",
            related=(Location(file="/src/main.py", line=9, function="main", text="step(x)"),),
            detail="Detected a read.\nHint: keep it on the device.",
        )
        for i in range(500)
    )
    return msgspec.structs.replace(profiles.clean(), runs=profiles.clean().runs[:2], findings=found)


def annotated(text: str = TEXT) -> Profile:
    """A GPU run: line 20 is computed by the first kernel and syncs, line 21 by the same kernel."""
    profile = profiles.cuda()
    run, file = profile.runs[0], "src/step.py"
    assert isinstance(run.kernels, KernelBreakdown)
    first, *others = run.kernels.rows
    places = tuple(
        Location(file=file, line=line, text=f"line_{line} = {line}") for line in (20, 21)
    )
    rows = (
        msgspec.structs.replace(first, lines=places, lines_us=first.total_us),
        *(msgspec.structs.replace(row, lines=(), lines_us=0.0) for row in others),
    )
    assert isinstance(run.compile, CompileSummary)
    texts = (
        CompiledText(compile_id="0/0", what="graph", text="class GraphModule:\n    pass\n"),
        CompiledText(compile_id="0/0", what="code", text="x" * 300_000, cut=7),
    )
    finding = Finding(
        rule="KGP201",
        level=Level.WARNING,
        message="a sync",
        run=run.key,
        location=places[0],
        fingerprint="a" * 12,
    )
    memory = run.memory
    if isinstance(memory, MemorySummary):
        memory = msgspec.structs.replace(memory, reads={finding.fingerprint: 2.0})
    run = msgspec.structs.replace(
        run,
        kernels=msgspec.structs.replace(run.kernels, rows=rows),
        compile=msgspec.structs.replace(run.compile, texts=texts, recompiles=()),
        memory=memory,
    )
    source = ProjectSource(file=file, sha256="", text=text)
    return msgspec.structs.replace(profile, runs=(run,), findings=(finding,), sources=(source,))


PAGE_STATES = {
    **profiles.STATES,
    **{state.__name__: state for state in (eight, no_baseline, five_hundred, annotated)},
}
