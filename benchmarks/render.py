"""Rendering: seconds and memory for a Profile of a trace of a million events and of 500 findings.

    python benchmarks/render.py -o benchmarks/results/render.json

A trace of ``--events`` events is generated from a seed: steps, spans, a compiled region, operators,
launches and kernels of ``--kernels`` names as long as ATen's templates are. kgprof breaks it down
as it does any trace. The result stands in for the kernels of each run of a Profile that comes from
a recording of the evaluator on an H200 (fixtures/recordings/linkpred_h200.tgz), with ``--runs``
such runs and ``--findings`` findings, each at a place of its own. Every part of a report is there,
and each run has as much of it as one trace gives.

Each measurement is a process of its own. ``seconds`` is what `kgprof report` spends on writing the
formats once it has the Profile: the renderers' own imports (jinja2, rich) are inside, reading the
Profile is not. ``peak_bytes`` is the largest resident memory of that whole process, interpreter,
imports and the Profile included. ``cpu_seconds`` is the processor's part of it, and what decides:
rendering is one thread that waits for nothing, so that this is the time on a machine that does
nothing else, also where it was measured on one that does. It fails where one format, or all of them
together, take more than LIMIT_S (median) or LIMIT_BYTES.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

import msgspec
import numpy as np

LIMIT_S = 2.0
LIMIT_BYTES = 500e6
FORMATS = ("html", "json", "text", "markdown", "sarif", "junit", "github")
RECORDING = Path(__file__).resolve().parent.parent / "fixtures" / "recordings" / "linkpred_h200.tgz"
SEED = 20261121
STEPS = 20
BLOCK = 5  # events of one launch: operator, call, flow start, kernel, flow end
MAKE = "make"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--kernels", type=int, default=1_000, help="different names among them")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--findings", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--arm", choices=[MAKE, *FORMATS, "all"], help=argparse.SUPPRESS)
    parser.add_argument("--profile", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.arm == MAKE:
        make(asked)
        return 0
    if asked.arm:
        print(json.dumps(rendered(asked.profile, FORMATS if asked.arm == "all" else (asked.arm,))))
        return 0
    with tempfile.TemporaryDirectory(prefix="kgprof-benchmark-") as folder:
        path = Path(folder) / "profile.json"
        own = (sys.executable, __file__, "--profile", str(path))
        sizes = [
            f"--{name}={getattr(asked, name)}" for name in ("events", "kernels", "runs", "findings")
        ]
        subprocess.run([*own, "--arm", MAKE, *sizes], check=True)
        rows = [measured(own, arm, asked.repeats) for arm in (*FORMATS, "all")]
        profile_bytes = path.stat().st_size
    found = {
        "command": " ".join(sys.argv),
        "environment": environment(),
        "events": asked.events,
        "kernel_names": asked.kernels,
        "runs": asked.runs,
        "findings": asked.findings,
        "profile_bytes": profile_bytes,
        "limits": {"cpu_seconds": LIMIT_S, "peak_bytes": LIMIT_BYTES},
        "load_average": os.getloadavg(),  # what else the machine did
        "rows": rows,
    }
    print(table(rows))
    if asked.output:
        asked.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0 if all(row["held"] for row in rows) else 1


# ---------------------------------------------------------------- the Profile


def make(asked: argparse.Namespace) -> None:
    """Written as JSON: what a process that renders has to begin with."""
    from kgprof.analysis import analyse
    from kgprof.measures import kernels
    from kgprof.model import KernelBreakdown, PassName, encode_json
    from kgprof.reading import kineto, recordings

    with tempfile.TemporaryDirectory(prefix="kgprof-benchmark-") as folder:
        trace = Path(folder) / "trace.json"
        write_trace(trace, asked.events, asked.kernels)
        with tarfile.open(RECORDING) as packed:
            packed.extractall(folder, filter="data")
        recording = recordings.load(Path(folder))
        read = kineto.read(trace)
        kernel_times = kernels.breakdown(
            read,
            device="cuda",
            measured_in=PassName.TRACE,
            cpp_kernel_profile=False,
            compiled=recording.runs[0].compiled_kernels,
            ceilings=recording.ceilings,
        )
        profile = analyse(recording)
    assert isinstance(kernel_times, KernelBreakdown)
    assert len(kernel_times.rows) == asked.kernels
    assert kernel_times.steps == STEPS
    asked.profile.write_bytes(
        encode_json(enlarged(profile, kernel_times, asked.runs, asked.findings))
    )


def enlarged(profile: Any, kernel_times: Any, runs: int, findings: int) -> Any:
    """As many runs and findings as asked for; the rest is as it was recorded."""
    from kgprof.model import Finding, Location, RunKey

    keys = [RunKey(strategy=f"strategy_{number}", mode="default") for number in range(runs)]
    first = profile.runs[0]
    made = tuple(msgspec.structs.replace(first, key=key, kernels=kernel_times) for key in keys)
    found = []
    for number in range(findings):
        rule = profile.rules[number % len(profile.rules)]
        place = Location(
            file=f"/src/package/module_{number % 40}.py",
            line=10 + number,
            function=f"Layer{number}.forward",
            text=(
                f"        scores_{number} = self.weights[{number}] @ inputs.gather(1, "
                f"index_{number})"
            ),
        )
        found.append(
            Finding(
                rule=rule.id,
                level=rule.level,
                message=f"{rule.summary} Seen at call {number} of the step.",
                run=keys[number % runs],
                location=place,
                count=1 + number % 17,
                fingerprint=f"{number:012x}",
                related=(msgspec.structs.replace(place, line=1, function="main"),),
                detail="Detected data-dependent branching.\n" * 6,
            )
        )
    return msgspec.structs.replace(profile, runs=made, findings=tuple(found), baseline=None)


def write_trace(path: Path, events: int, kernels: int) -> None:
    draw = np.random.default_rng(SEED)
    clock = 4_362_513_264_211_304  # nanoseconds
    blocks = max(events // BLOCK, kernels)
    with path.open("w", encoding="utf-8") as out:
        out.write(
            '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {"id": 0, "name": "NVIDIA '
            'H200"}\n  ],\n'
        )
        out.write('  "displayTimeUnit": "ms",\n  "traceEvents": [\n')
        busy = clock
        for step in range(STEPS):
            began = clock
            for block in range(step * blocks // STEPS, (step + 1) * blocks // STEPS):
                gap, length = draw.integers((2_000, 500), (9_000, 12_000)).tolist()
                clock += gap
                busy = max(clock + 4_000, busy)
                write_block(out, block, kernel_name(block % kernels), clock, busy, length)
                busy += length
            clock += 2_000
            write_spans(out, step, began - 1_000, clock)
        out.write(
            '  {"ph": "i", "cat": "Trace", "name": "Record Window End", "pid": "", "tid": "", '
            '"ts": 0}\n'
        )
        out.write('  ],\n  "traceName": "trace.json"\n}\n')


def write_spans(out: TextIO, step: int, start: int, end: int) -> None:
    """A step, inside it a span of the user's, and inside that a compiled region."""
    names = (
        ("user_annotation", f"ProfilerStep#{step}"),
        ("user_annotation", "evaluate"),
        ("cpu_op", "Torch-Compiled Region: 0/0"),
    )
    for inset, (category, name) in enumerate(names):
        at, length = (start + 100 * inset) / 1000, (end - start - 200 * inset) / 1000
        out.write(
            f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": 541, "tid": '
            f'541,\n    "ts": {at:.3f}, "dur": {length:.3f},\n    "args": {{}}\n  }},\n'
        )


def kernel_name(kind: int) -> str:
    if kind % 3 == 0:
        return (
            f"triton_poi_fused_add_gather_index_mul_native_layer_norm_sigmoid_sub_unsqueeze_{kind}"
        )
    return (
        f"void at::native::vectorized_elementwise_kernel<{kind}, at::native::(anonymous "
        "namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() "
        "const::{lambda()#4}, std::array<char*, 2ul> >(int, at::native::(anonymous "
        "namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}, std::array<char*, 2>)"
    )


def write_block(out: TextIO, number: int, name: str, clock: int, start: int, length: int) -> None:
    """An operator, its launch, the kernel, and the two ends of the arrow between them, as Kineto
    lays them out."""
    host, device, arrow = (
        '"pid": 541, "tid": 541',
        '"pid": 0, "tid": 7',
        '"cat": "ac2g", "name": "ac2g"',
    )
    correlation = 100_000 + number
    operator, called, ran = clock / 1000, (clock + 500) / 1000, start / 1000
    out.write(
        f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "aten::op_{number % 97}", {host},\n    '
        f'"ts": {operator:.3f}, "dur": 1.900,\n    "args": {{\n      "External id": '
        f'{number},"Record function id": 0, "Ev Idx": {number}\n'
        "    }\n  },\n"
        f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", {host},\n    '
        f'"ts": {called:.3f}, "dur": 0.800,\n    "args": {{\n      "External id": {number},   '
        f'"cbid": 211, "correlation": {correlation}\n'
        "    }\n  },\n"
        f'  {{\n    "ph": "s", "id": {correlation}, {host}, "ts": {called:.3f},\n    {arrow}\n  '
        "},\n"
        f'  {{\n    "ph": "X", "cat": "kernel", "name": "{name}", {device},\n    "ts": {ran:.3f}, '
        f'"dur": {length / 1000:.3f},\n    "args": {{\n      "External id": {number},      '
        '"queued": 0, "device": 0, '
        f'"context": 1,      "stream": 7, "correlation": {correlation},      "registers per '
        'thread": 32,      '
        '"shared memory": 0,      "blocks per SM": 2.060606,      "warps per SM": 32.969696,     '
        ' "grid": [272, 1, 1],'
        '      "block": [512, 1, 1],      "est. achieved occupancy %": 52\n    }\n  },\n'
        f'  {{\n    "ph": "f", "id": {correlation}, {device}, "ts": {ran:.3f},\n    {arrow}, '
        '"bp": "e"\n  },\n'
    )


# ---------------------------------------------------------------- one process


def rendered(path: Path, formats: tuple[str, ...]) -> dict[str, Any]:
    from kgprof import render
    from kgprof.model import Profile, decode_json

    profile = decode_json(path.read_bytes(), Profile)
    began, worked = time.perf_counter(), time.process_time()
    sizes = [
        len(render.by_name(name).render(profile).encode("utf-8", errors="replace"))
        for name in formats
    ]
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - worked,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "bytes": sum(sizes),
    }


def measured(own: tuple[str, ...], arm: str, repeats: int) -> dict[str, Any]:
    runs: list[dict[str, Any]] = []
    whole = []
    for _ in range(repeats):
        began = time.perf_counter()
        runs.append(
            json.loads(
                subprocess.run([*own, "--arm", arm], check=True, stdout=subprocess.PIPE).stdout
            )
        )
        whole.append(time.perf_counter() - began)
    seconds, peak = [run["seconds"] for run in runs], max(run["peak_bytes"] for run in runs)
    (size,) = {run["bytes"] for run in runs}  # the same Profile gives the same bytes
    worked = [run["cpu_seconds"] for run in runs]
    held = statistics.median(worked) <= LIMIT_S and peak <= LIMIT_BYTES
    return {
        "format": arm,
        "seconds": seconds,
        "cpu_seconds": worked,
        "whole_process_seconds": whole,  # the interpreter's start and reading the Profile too
        "peak_bytes": peak,
        "bytes": size,
        "held": held,
    }


def environment() -> dict[str, str]:
    names = ("kgprof", "jinja2", "markupsafe", "msgspec", "rich")
    return {
        "python": platform.python_version(),
        "cpus": str(len(os.sched_getaffinity(0))),
        **{name: metadata.version(name) for name in names},
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| format | median | least to most | of it processor | whole process | peak | written |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        seconds = row["seconds"]
        cells = (
            row["format"],
            f"{statistics.median(seconds):.2f} s",
            f"{min(seconds):.2f} to {max(seconds):.2f} s",
            f"{statistics.median(row['cpu_seconds']):.2f} s",
            f"{statistics.median(row['whole_process_seconds']):.2f} s",
            f"{row['peak_bytes'] / 1e6:,.0f} MB",
            f"{row['bytes']:,}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
