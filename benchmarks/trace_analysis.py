"""Reading a Kineto trace: kgprof against HolisticTraceAnalysis, the same trace in and the same
figures out.

    python benchmarks/trace_analysis.py -o benchmarks/results/trace_analysis.json

The traces are generated from a seed, with the mix of events that a compiled loop on a GPU has, and
the generator counts the true figures as it writes. Each measurement is a process of its own:
imports are excluded from the time, and the peak is the resident memory over what the imports took.
Both tools give the device time of every kernel, busy and idle time and the causes of the idle; a
figure that is off by more than 0.1 % of the truth fails the benchmark.

HTA gets its fastest case: no ProfilerStep in the trace, one rank, no plots, and the two settings
without which its figures are wrong (nanosecond rounding off, host rows taken off the streams).
kgprof attributes every kernel to step, region and span on top; it is not asked to leave that out.
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
import tempfile
import time
import warnings
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

import numpy as np

KGPROF, HTA = "kgprof", "hta"
TOLERANCE = 0.001
CEILINGS = {"time": 10.0, "memory": 4.0}  # how many times less kgprof has to take
LARGEST_BYTES = 4e9  # kgprof's peak on the largest trace
FIRST_CORRELATION = 100_000  # HTA 0.5.0 raises where the ids fit in 16 bits and the events do not
BLOCK = 5  # events of one launch: operator, call, flow start, kernel, flow end
STREAMS = (7, 7, 7, 20)
SEED = 20260101

Figures = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument(
        "--largest", type=int, default=10_000_000, help="events that kgprof reads alone; 0: none"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--arm", choices=[KGPROF, HTA], help=argparse.SUPPRESS)
    parser.add_argument("--trace", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.arm:
        print(json.dumps({KGPROF: kgprof_figures, HTA: hta_figures}[asked.arm](asked.trace)))
        return 0
    with tempfile.TemporaryDirectory(prefix="kgprof-benchmark-") as folder:
        rows = [compared(Path(folder), events, asked.repeats) for events in asked.events]
        if asked.largest:
            rows.append(alone(Path(folder), asked.largest))
    found = {"command": " ".join(sys.argv), "environment": environment(), "rows": rows}
    print(table(rows))
    if asked.output:
        asked.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0 if all(row["held"] for row in rows) else 1


# ---------------------------------------------------------------- the trace and its truth


def write_trace(path: Path, events: int) -> Figures:
    """``events`` of them, and what is true about them: microseconds of each kernel, busy, idle,
    window."""
    draw = np.random.default_rng(SEED)
    truth: Counter[str] = Counter()
    busy = dict.fromkeys(STREAMS, 0)
    spans: list[tuple[int, int]] = []
    clock = 4_362_513_264_211_304
    with path.open("w", encoding="utf-8") as out:
        out.write(
            '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {"id": 0, "name": "NVIDIA '
            'H200"}\n  ],\n'
        )
        out.write('  "displayTimeUnit": "ms",\n  "traceEvents": [\n')
        for block in range(events // BLOCK):
            kind, gap, length, stream = draw.integers(
                (0, 2_000, 500, 0), (40, 9_000, 12_000, len(STREAMS))
            ).tolist()
            clock += gap
            start = max(clock + 4_000, busy[STREAMS[stream]])
            busy[STREAMS[stream]] = start + length
            spans.append((start, start + length))
            truth[kernel_name(kind)] += length
            write_block(out, block, kind, clock, start, length, STREAMS[stream])
        out.write(
            '  {"ph": "i", "cat": "Trace", "name": "Record Window End", "pid": "", "tid": "", '
            '"ts": 0}\n'
        )
        out.write('  ],\n  "traceName": "trace.json"\n}\n')
    return {**{f"kernel {name}": ns / 1000 for name, ns in truth.items()}, **window_figures(spans)}


def window_figures(spans: list[tuple[int, int]]) -> Figures:
    """Counted one interval after the other, unlike either tool."""
    covered, reached = 0, 0
    for start, end in sorted(spans):
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    window = max(end for _, end in spans) - min(start for start, _ in spans)
    return {"busy": covered / 1000, "idle": (window - covered) / 1000}


def kernel_name(kind: int) -> str:
    if kind % 4 == 0:
        return f"triton_poi_fused_add_mul_{kind}"
    return (
        f"void at::native::vectorized_elementwise_kernel<{kind}, "
        "at::native::CUDAFunctor_add<float> >(int, float)"
    )


def write_block(
    out: TextIO, number: int, kind: int, clock: int, start: int, length: int, stream: int
) -> None:
    """An operator, its launch, the kernel, and the two ends of the arrow between them, as Kineto
    lays them out."""
    host, device, arrow = (
        '"pid": 541, "tid": 541',
        f'"pid": 0, "tid": {stream}',
        '"cat": "ac2g", "name": "ac2g"',
    )
    correlation = FIRST_CORRELATION + number
    operator, called, ran = clock / 1000, (clock + 1_000) / 1000, start / 1000
    out.write(
        f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "aten::op_{kind}", {host},\n    "ts": '
        f'{operator:.3f}, "dur": 1.900,\n    "args": {{\n      "External id": {number},"Record '
        f'function id": 0, "Ev Idx": {number}\n'
        "    }\n  },\n"
        f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", {host},\n    '
        f'"ts": {called:.3f}, "dur": 0.800,\n    "args": {{\n      "External id": {number},   '
        f'"cbid": 211, "correlation": {correlation}\n'
        "    }\n  },\n"
        f'  {{\n    "ph": "s", "id": {correlation}, {host}, "ts": {called:.3f},\n    {arrow}\n  '
        "},\n"
        f'  {{\n    "ph": "X", "cat": "kernel", "name": "{kernel_name(kind)}", {device},\n    '
        f'"ts": {ran:.3f}, '
        f'"dur": {length / 1000:.3f},\n    "args": {{\n      "External id": {number},      '
        '"queued": 0, "device": 0, '
        f'"context": 1,      "stream": {stream}, "correlation": {correlation},      "registers '
        'per thread": 32,      '
        '"shared memory": 0,      "blocks per SM": 2.060606,      "warps per SM": 32.969696,     '
        ' "grid": [272, 1, 1],'
        '      "block": [512, 1, 1],      "est. achieved occupancy %": 52\n    }\n  },\n'
        f'  {{\n    "ph": "f", "id": {correlation}, {device}, "ts": {ran:.3f},\n    {arrow}, '
        '"bp": "e"\n  },\n'
    )


# ------------------------------------------------------ the two tools, each in a process of its own


def kgprof_figures(trace: Path) -> dict[str, Any]:
    from kgprof.measures import kernels
    from kgprof.model import DeviceIdle, KernelBreakdown, PassName
    from kgprof.reading import kineto

    before, began = peak_bytes(), time.perf_counter()
    found = kernels.breakdown(
        kineto.read(trace), device="cuda", measured_in=PassName.TRACE, cpp_kernel_profile=False
    )
    took = time.perf_counter() - began
    assert isinstance(found, KernelBreakdown)
    assert isinstance(found.idle, DeviceIdle)
    figures = {f"kernel {row.name}": row.total_us for row in found.rows}
    figures |= {"busy": found.busy_us, "idle": found.idle_us}
    causes = {"host": found.idle.host_us, "launch": found.idle.launch_us}
    return {
        "seconds": took,
        "peak_bytes": peak_bytes() - before,
        "figures": figures,
        "idle_causes_us": causes,
    }


def hta_figures(trace: Path) -> dict[str, Any]:
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    warnings.simplefilter("ignore")  # HTA and pandas warn about each other
    import logging

    from hta.trace_analysis import TraceAnalysis

    logging.getLogger("hta").setLevel(logging.CRITICAL)
    before, began = peak_bytes(), time.perf_counter()
    # Its directory mode loses ranks; its default drops the last step.
    analysis = TraceAnalysis(
        trace_files={0: str(trace)}, trace_dir=str(trace.parent), include_last_profiler_step=True
    )
    rows, symbols = analysis.t.traces[0], analysis.t.symbol_table.get_sym_id_map()
    device = [symbols[name] for name in ("kernel", "gpu_memcpy", "gpu_memset") if name in symbols]
    rows.loc[~rows["cat"].isin(device), "stream"] = -1
    _, kernels = analysis.get_gpu_kernel_breakdown(
        visualize=False, num_kernels=10**6, duration_ratio=1.0
    )
    (window,) = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
    idle, _ = analysis.get_idle_time_breakdown(visualize=False, show_idle_interval_stats=True)
    took = time.perf_counter() - began
    figures = {
        f"kernel {row['name']}": float(row["sum (us)"]) for row in kernels.to_dict("records")
    }
    figures |= {
        "busy": float(window["kernel_time(us)"] - window["idle_time(us)"]),
        "idle": float(window["idle_time(us)"]),
    }
    causes = {
        f"{row['stream']} {row['idle_category']}": float(row["idle_time"])
        for row in idle.to_dict("records")
    }
    return {
        "seconds": took,
        "peak_bytes": peak_bytes() - before,
        "figures": figures,
        "idle_causes_us": causes,
    }


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---------------------------------------------------------------- side by side


def compared(folder: Path, events: int, repeats: int) -> dict[str, Any]:
    """Both tools on one trace, one after the other, the order alternating."""
    trace = folder / f"{events}.json"
    truth = write_trace(trace, events)
    found: dict[str, list[dict[str, Any]]] = {KGPROF: [], HTA: []}
    for number in range(repeats):
        for arm in (KGPROF, HTA) if number % 2 == 0 else (HTA, KGPROF):
            found[arm].append(measured(arm, trace, truth))
    size = trace.stat().st_size
    trace.unlink()
    # Least over least is the fairest to the other one; the interval is over the pairs.
    ratios = [
        hta["seconds"] / ours["seconds"]
        for ours, hta in zip(found[KGPROF], found[HTA], strict=True)
    ]
    least = {arm: min(run["seconds"] for run in runs) for arm, runs in found.items()}
    peaks = {arm: max(run["peak_bytes"] for run in runs) for arm, runs in found.items()}
    row = {
        "events": events,
        "trace_bytes": size,
        "repeats": repeats,
        "seconds": {arm: [run["seconds"] for run in runs] for arm, runs in found.items()},
        "peak_bytes": peaks,
        "times_faster": least[HTA] / least[KGPROF],
        "times_faster_in_pairs": [min(ratios), statistics.median(ratios), max(ratios)],
        "times_less_memory": peaks[HTA] / peaks[KGPROF],
        "largest_error": {arm: max(run["error"] for run in runs) for arm, runs in found.items()},
    }
    row["held"] = (
        row["times_faster"] >= CEILINGS["time"] and row["times_less_memory"] >= CEILINGS["memory"]
    )
    return row


def alone(folder: Path, events: int) -> dict[str, Any]:
    trace = folder / f"{events}.json"
    truth = write_trace(trace, events)
    run = measured(KGPROF, trace, truth)
    size = trace.stat().st_size
    trace.unlink()
    return {
        "events": events,
        "trace_bytes": size,
        "repeats": 1,
        "seconds": {KGPROF: [run["seconds"]]},
        "peak_bytes": {KGPROF: run["peak_bytes"]},
        "largest_error": {KGPROF: run["error"]},
        "held": run["peak_bytes"] <= LARGEST_BYTES,
    }


def measured(arm: str, trace: Path, truth: Figures) -> dict[str, Any]:
    """One process. Raises SystemExit for a figure that is not the truth."""
    command = [sys.executable, __file__, "--arm", arm, "--trace", str(trace)]
    run: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    )
    figures = run.pop("figures")
    if figures.keys() != truth.keys():
        sys.exit(
            f"{arm}: other figures than there are: {sorted(figures.keys() ^ truth.keys())[:4]}"
        )
    run["error"] = max(abs(figures[name] - true) / true for name, true in truth.items() if true)
    if run["error"] > TOLERANCE:
        sys.exit(f"{arm} is off by {run['error']:.2%}")
    return run


def environment() -> dict[str, str]:
    names = ("kgprof", "HolisticTraceAnalysis", "pandas", "numpy", "msgspec")
    return {
        "python": platform.python_version(),
        "cpus": str(len(os.sched_getaffinity(0))),
        **{name: metadata.version(name) for name in names},
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| events | kgprof | HTA | times faster | kgprof's peak | HTA's peak | times less |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours, peak = min(row["seconds"][KGPROF]), row["peak_bytes"][KGPROF] / 1e6
        cells = [f"{row['events']:,}", f"{ours:.2f} s", "-", "-", f"{peak:,.0f} MB", "-", "-"]
        if HTA in row["seconds"]:
            cells[2:4] = [f"{min(row['seconds'][HTA]):.2f} s", f"{row['times_faster']:.1f}"]
            cells[5:] = [
                f"{row['peak_bytes'][HTA] / 1e6:,.0f} MB",
                f"{row['times_less_memory']:.1f}",
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
