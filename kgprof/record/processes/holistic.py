"""HolisticTraceAnalysis, asked once about each GPU trace of a Recording; its answer is kept beside
the trace.

    python -P -m kgprof.record.processes.holistic ANSWER TRACE

HTA and pandas change their answers with their versions, so reading a Recording again does not run
it again. It runs in a process of its own, one trace at a time, so that the trace which it cannot
take, or takes too long for, costs its own answer alone. An answer that was not given is asked for
again by the next ``kgprof report``.

What has to be done for its figures to be right, found on real traces with HTA 0.5.0:

- ``HTA_DISABLE_NS_ROUNDING``: otherwise starts are rounded up and ends down to whole microseconds.
- ``stream = -1`` on every row that is not the device's: Inductor writes a stream on its host
  events, and HTA adds
  them to the kernels of that name.
- trace files as a dict with absolute paths, and the last step included: its directory mode loses
  ranks, and by
  default the last ProfilerStep is dropped.
- not more than one process: it would fork.
"""

import contextlib
import logging
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata, util
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kgprof import model as m
from kgprof.errors import InputError, KgprofError
from kgprof.reading import files, kineto, layout
from kgprof.reading.launches import DEVICE_CATEGORIES, GRAPH_LAUNCH_PREFIXES
from kgprof.record.ground import store
from kgprof.record.ground.scratch import scratch_folder
from kgprof.record.ground.source import first_line
from kgprof.record.processes.children import BOOTSTRAP, HOME

LIMIT_S = 120.0  # a million events take it 20 s on two quiet cores, 38 s on two busy ones
NOT_INSTALLED = "HolisticTraceAnalysis is not installed here"
ALL_S = 300.0  # for all traces of a Recording
Answer = m.Holistic | m.Skipped
Say = Callable[[str], None]
Rows = Sequence[Mapping[str, Any]]

OK, EMPTY, RAISED, NOT_CALLED = "ok", "empty", "raised", "not called"
COMMUNICATION = "nccl"
PACKAGES = ("HolisticTraceAnalysis", "traceinsight", "pandas", "numpy")
ON_A_CPU = "HTA analyses what ran on a GPU, and the trace has no GPU work"

GRAPHS_UNKNOWN = "it ignores cudaGraphLaunch, so it would miss every kernel of a CUDA graph"
LAUNCHES_UNKNOWN = "it ignores cuLaunchKernel, so it would miss every Triton kernel"
MEMORY_BYTES = 4 * 2**30  # it takes some 1.3 GB for a million events


def asked(
    recording: m.Recording,
    *,
    again: bool = False,
    say: Say = lambda text: None,
    limit_s: float = LIMIT_S,
    all_s: float = ALL_S,
) -> m.Recording:
    """The Recording with HTA's answers. ``again`` asks also where an answer is kept; Ctrl-C leaves
    the rest unasked."""
    answers: dict[m.RunKey, Answer] = {}
    until = time.monotonic() + all_s
    try:
        for run in recording.runs:
            trace = layout.trace_path(recording, run.key, m.PassName.TRACE)
            kept = layout.run_folder(Path(recording.folder), run.key) / layout.HOLISTIC
            on_gpu = recording.header.plan.device == "cuda" and isinstance(run.trace, m.TracePass)
            if (
                on_gpu
                and (again or not kept.exists())
                and files.stands(trace, Path(recording.folder))
            ):
                left_s = min(limit_s, until - time.monotonic())
                if left_s <= 0:
                    why = f"HTA's {all_s:g} s for all traces of this Recording were used up"
                    answers[run.key] = m.Skipped(why)
                    continue
                say(
                    f"HolisticTraceAnalysis reads the trace of {run.key.slug} (at most "
                    f"{left_s:.0f} s)"
                )
                answers[run.key], is_its_own = ask(trace, left_s)
                if is_its_own:
                    # what cannot be written to is read all the same
                    with contextlib.suppress(KgprofError):
                        store.write_json(kept, answers[run.key])
    except KeyboardInterrupt:
        say("interrupted: the report omits the remaining HolisticTraceAnalysis results")
    runs = tuple(
        replace(run, holistic=answers.get(run.key, run.holistic)) for run in recording.runs
    )
    return replace(recording, runs=runs)


def ask(trace: Path, limit_s: float = LIMIT_S) -> tuple[Answer, bool]:
    """HTA's answer about one trace; or, with False, why it gave none."""
    if util.find_spec("hta") is None:
        return m.Skipped(NOT_INSTALLED), False
    with scratch_folder("kgprof-hta-") as folder:
        answer = folder / layout.HOLISTIC
        try:
            ended = subprocess.run(
                [
                    sys.executable,
                    "-P",
                    "-c",
                    BOOTSTRAP.format("kgprof.record.processes.holistic"),
                    str(HOME),
                    str(answer),
                    str(trace),
                ],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=limit_s,
                # A pool of threads would take its memory, and it multiplies no matrix.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "KGPROF_SCRATCH": str(folder)},
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return m.Skipped(f"HTA timed out after {limit_s:.0f} s"), False
        except OSError as error:
            return m.Skipped(
                f"HTA's process could not be started: {error.strerror or error}"
            ), False
        if ended.returncode == 0:
            return m.decode_json(answer.read_bytes(), Answer), True  # type: ignore[arg-type]
    said = ended.stderr.decode("utf-8", errors="replace").strip().splitlines() or [
        "it printed nothing"
    ]
    return m.Skipped(f"HTA's process ended with code {ended.returncode}: {said[-1]}"), False


# ---------------------------------------------------------------- in its own process


def main(answer: str, trace: str) -> None:
    """Writes a Holistic, or Skipped with its reason, as JSON to ``answer``; raises ImportError
    without HTA."""
    # what it asks for beyond that raises MemoryError, whoever else needs the machine
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    Path(answer).write_bytes(m.encode_json(analysed(Path(trace))))


def analysed(trace: Path) -> m.Holistic | m.Skipped:
    try:
        columns = kineto.read(trace).columns
    except InputError as error:
        return m.Skipped(error.message)
    on_device = columns.of_category(*DEVICE_CATEGORIES)
    if not on_device.any():
        return m.Skipped(ON_A_CPU)
    hta = _loaded(trace)
    if isinstance(hta, m.Skipped):
        return hta
    graphs = GRAPHS_UNKNOWN if columns.named(*GRAPH_LAUNCH_PREFIXES).any() else ""
    alone = (
        "" if (on_device & columns.named(COMMUNICATION)).any() else "the trace has no communication"
    )
    answers = {}
    calls = []
    # With its default of ten names, the others' figures become figures of their sum.
    each = {"visualize": False, "num_kernels": 10**6, "duration_ratio": 1.0}
    for name, call, unless in (  # and why it is not called where it cannot be right
        ("get_gpu_kernel_breakdown", lambda: hta.get_gpu_kernel_breakdown(**each)[1], ""),
        ("get_temporal_breakdown", lambda: hta.get_temporal_breakdown(visualize=False), ""),
        (
            "get_idle_time_breakdown",
            lambda: hta.get_idle_time_breakdown([0], visualize=False)[0],
            "",
        ),
        ("get_memory_bw_summary", lambda: hta.get_memory_bw_summary([0]), ""),
        ("get_queue_length_summary", lambda: hta.get_queue_length_summary([0]), graphs),
        ("get_comm_comp_overlap", lambda: hta.get_comm_comp_overlap(visualize=False), alone),
        ("get_cuda_kernel_launch_stats", lambda: None, graphs or LAUNCHES_UNKNOWN),
        ("critical_path_analysis", lambda: None, graphs or "it needs an annotation to start from"),
    ):
        outcome = NOT_CALLED
        reason = unless
        if not unless:
            try:
                answers[name] = _rows(call())
                outcome = OK if answers[name] else EMPTY
            except Exception as error:  # noqa: BLE001  and what it raised is the answer
                outcome = RAISED
                reason = _words(error)
        calls.append(m.HolisticCall(name, outcome, reason))
    installed = {distribution.metadata["Name"].lower() for distribution in metadata.distributions()}
    versions = {name: metadata.version(name) for name in PACKAGES if name.lower() in installed}
    return m.Holistic(versions=versions, calls=tuple(calls), ranks=(_figures(answers),))


def _loaded(trace: Path) -> Any:
    """HTA with the trace in it, or Skipped where it could not take it."""
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    warnings.simplefilter("ignore")  # of HTA and pandas about each other
    from hta.common.trace import Trace
    from hta.trace_analysis import TraceAnalysis

    logging.getLogger("hta").setLevel(logging.CRITICAL)
    try:
        loaded = Trace(trace_files={0: str(trace.resolve())}, trace_dir=str(trace.resolve().parent))
        loaded.load_traces(
            include_last_profiler_step=True, use_multiprocessing=False, use_memory_profiling=False
        )
    # HTA raises whatever the line that met the trace raises
    except Exception as error:  # noqa: BLE001
        return m.Skipped(f"HTA could not load the trace: {_words(error)}")
    ids = loaded.symbol_table.get_sym_id_map()
    device = [ids[name] for name in DEVICE_CATEGORIES if name in ids]
    for rows in loaded.traces.values():
        rows.loc[~rows["cat"].isin(device), "stream"] = -1
    # its constructor would load them in several processes
    hta = TraceAnalysis.__new__(TraceAnalysis)
    hta.t = loaded
    return hta


def _figures(answers: Mapping[str, Rows]) -> m.HolisticRank:
    def figure(name: str, column: str) -> float | m.Skipped:
        value = next(iter(answers.get(name, ())), {}).get(column)
        if value is None or value != value:  # NaN where it divided nothing by nothing
            return m.Skipped("HTA gave no such figure")
        return float(value)

    def column(name: str, key: str, value: str) -> dict[str, float]:
        return {str(row[key]): float(row[value]) for row in answers.get(name, ())}

    return m.HolisticRank(
        rank=0,
        kernels=column("get_gpu_kernel_breakdown", "name", "sum (us)"),
        window_us=figure("get_temporal_breakdown", "kernel_time(us)"),
        idle_us=figure("get_temporal_breakdown", "idle_time(us)"),
        compute_us=figure("get_temporal_breakdown", "compute_time(us)"),
        idle_causes=tuple(
            m.HolisticIdle(
                stream=int(row["stream"]),
                cause=str(row["idle_category"]),
                total_us=float(row["idle_time"]),
            )
            for row in answers.get("get_idle_time_breakdown", ())
        ),
        queue_length=column("get_queue_length_summary", "stream", "queue_length max"),
        bandwidth_gb_per_s=column("get_memory_bw_summary", "name", "memory_bw_gbps mean"),
        overlap_percent=figure("get_comm_comp_overlap", "comp_comm_overlap_pctg"),
    )


def _rows(table: Any) -> Rows:
    """A table, or None, as its rows; of columns with two names both, "memory_bw_gbps mean"."""
    if table is None:
        return []
    return [
        {
            " ".join(filter(None, name)) if isinstance(name, tuple) else name: value
            for name, value in row.items()
        }
        for row in table.reset_index().to_dict("records")
    ]


def _words(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"MemoryError: it may take {MEMORY_BYTES / 2**30:g} GiB"
    return first_line(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
