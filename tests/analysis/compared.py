"""Two Profiles to compare, from the ones made by hand: one run, timed in rounds, with the kernels
that a test wants."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kgprof.compare import CompareSettings, compare
from kgprof.measures.times import spread
from kgprof.model import (
    Comparison,
    Finding,
    KernelBreakdown,
    KernelKind,
    KernelRow,
    KindTotal,
    Level,
    Location,
    MachineSpeed,
    PassName,
    Profile,
    Rounds,
    RunComparison,
    RunKey,
    RunReport,
    Skipped,
)
from tests.render import profiles

KEY = RunKey(strategy="fused", mode="default")
ROOT = "/src"
ROUNDS = (1.0, 0.995, 1.005, 0.998, 1.002)  # what the same program gives in five processes
STEP_US = 1000.0
STEPS = 20  # traced


def profile(**changes: object) -> Profile:
    """One run of 1000 us a step in five rounds."""
    run = timed(next(run for run in profiles.clean().runs if run.key == KEY), STEP_US)
    environment = msgspec.structs.replace(profiles.CPU, source_root=ROOT)
    looked_for = profiles.looked_for((KEY,), "")
    given = msgspec.structs.replace(
        profiles.clean(), runs=(run,), environment=environment, coverage=looked_for
    )
    return msgspec.structs.replace(given, **changes)


def with_run(given: Profile, **changes: object) -> Profile:
    return msgspec.structs.replace(given, runs=(msgspec.structs.replace(given.runs[0], **changes),))


def timed(
    run: RunReport,
    step_us: float,
    *,
    evaluation_s: float | None = None,
    rounds: Sequence[float] = ROUNDS,
    machine: MachineSpeed | Skipped | None = None,
) -> RunReport:
    """Evaluations of as many steps as the run says, unless a time is given; on a machine that is as
    it was."""
    assert not isinstance(run.evaluation, Skipped)
    whole = evaluation_s if evaluation_s is not None else run.evaluation.steps * step_us / 1e6
    steps, evaluations = (
        [step_us * factor for factor in rounds],
        [whole * factor for factor in rounds],
    )
    each = [1000 * seconds / run.evaluation.units for seconds in evaluations]
    over = Rounds(
        asked=len(rounds),
        numbers=tuple(range(1, len(rounds) + 1)),
        step_us=tuple(steps),
        evaluation_s=tuple(evaluations),
        warm_first_call_s=(),
        step=_spread(steps, "us"),
        evaluation_time=_spread(evaluations, "s"),
        per_unit=_spread(each, "ms/candidate"),
        warm_first_call=Skipped(reason="not timed"),
        machine=machine_speed(host=(1.0,) * len(rounds)) if machine is None else machine,
    )
    return msgspec.structs.replace(
        run,
        step=_spread(steps, "us"),
        evaluation_time=_spread(evaluations, "s"),
        per_unit=_spread(each, "ms/candidate"),
        rounds=over if len(rounds) > 1 else Skipped(reason="one process"),
    )


def machine_speed(
    host: Sequence[float] = (1.0,) * 5, device: Sequence[float] = (1.0,) * 5
) -> MachineSpeed:
    """How many times as long as usual the loops took in each round; a machine that never changes
    tells no slope."""
    return MachineSpeed(
        host_us=tuple(4.0 * factor for factor in host),
        device_us=tuple(20.0 * each for each in device),
    )


def slower(given: Profile, step_us: float) -> Profile:
    return msgspec.structs.replace(given, runs=tuple(timed(run, step_us) for run in given.runs))


def _spread(samples: Sequence[float], unit: str) -> object:
    return spread(samples, unit=unit, measured_in=PassName.TIMING)


# ---------------------------------------------------------------- compared


def comparison(base: Profile, head: Profile, **settings: object) -> Comparison:
    found = compare(base, head, CompareSettings(**settings)).comparison  # type: ignore[arg-type]
    assert found is not None
    return found


def only_run(base: Profile, head: Profile) -> RunComparison:
    (run,) = comparison(base, head).runs
    return run


def causes(base: Profile, head: Profile) -> list[str]:
    return [cause.cause for cause in comparison(base, head).causes]


# ---------------------------------------------------------------- traces


def kernels(
    *rows: tuple[str, KernelKind, float, float],
    idle_us: float = 400.0,
    device: str = "cpu",
    graphs: int = 0,
) -> KernelBreakdown:
    """Rows of (name, kind, launches a step, us a step); the window is what they and ``idle_us`` add
    up to."""
    total = sum(us for _, _, _, us in rows) * STEPS
    found = tuple(
        KernelRow(
            name=name,
            kind=kind,
            generator="aten",
            count=round(number * STEPS),
            total_us=us * STEPS,
            share=us * STEPS / total,
            min_us=us / number,
            median_us=us / number,
            max_us=us / number,
        )
        for name, kind, number, us in rows
    )
    cuda = device == "cuda"
    return KernelBreakdown(
        device=device,
        measured_in=PassName.TRACE,
        steps=STEPS,
        window_us=total + idle_us * STEPS,
        busy_us=total,
        idle_us=idle_us * STEPS,
        total_us=total,
        launches=sum(row.count for row in found)
        if cuda
        else Skipped(reason="a CPU run launches no GPU kernels"),
        graph_launches=graphs * STEPS
        if cuda
        else Skipped(reason="a CPU run launches no CUDA graphs"),
        kinds=tuple(
            KindTotal(kind=row.kind, count=row.count, total_us=row.total_us) for row in found
        ),
        rows=found,
    )


BEFORE = (
    ("aten::addmm", KernelKind.GEMM, 4.0, 300.0),
    ("aten::index", KernelKind.INDEX, 10.0, 200.0),
    ("aten::copy_", KernelKind.COPY, 2.0, 100.0),
)


def traced(given: Profile, *rows: tuple[str, KernelKind, float, float], **more: object) -> Profile:
    return with_run(given, kernels=kernels(*rows, **more))  # type: ignore[arg-type]


def changed(
    rows: Sequence[tuple[str, KernelKind, float, float]], name: str, number: float, us: float
) -> list[object]:
    return [
        (n, kind, number, us) if n == name else (n, kind, was, took) for n, kind, was, took in rows
    ]


# ---------------------------------------------------------------- findings


def finding(
    rule: str = "KGP201",
    *,
    line: int = 41,
    text: str = "    n = x.item()",
    message: str = "Tensor.item reads 1 value a step",
    file: str = "/src/step.py",
    fingerprint: str = "same",
    level: Level = Level.WARNING,
    count: int = 1,
    run: RunKey | None = KEY,
) -> Finding:
    return Finding(
        rule=rule,
        level=level,
        message=message,
        run=run,
        location=Location(file=file, line=line, function="step", text=text),
        count=count,
        fingerprint=fingerprint,
    )
