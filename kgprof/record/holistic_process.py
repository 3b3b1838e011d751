"""HolisticTraceAnalysis on the GPU traces of a Recording, and its figures beside ours.

    python -P -m kgprof.record.holistic_process ANSWER TRACE [TRACE ...]

HTA and pandas change their answers with their versions, so HTA runs once, in a process of its own under the caller's
time limit, and its answer is kept (``Holistic``); reading a Recording again does not run it again. It is imported
here and nowhere else, and only in that process.

What has to be done for its figures to be right, found on real traces with HTA 0.5.0:

- ``HTA_DISABLE_NS_ROUNDING``: otherwise starts are rounded up and ends down to whole microseconds.
- ``stream = -1`` on every row that is not the device's: Inductor writes a stream on its host events, and HTA adds
  them to the kernels of that name.
- trace files as a dict with absolute paths, and the last step included: its directory mode loses ranks, and by
  default the last ProfilerStep is dropped.
- not more than one process: it would fork.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from kgprof import model as m
from kgprof.errors import InputError
from kgprof.reading import kineto
from kgprof.reading.launches import DEVICE_CATEGORIES, GRAPH_LAUNCH_PREFIXES

OK, EMPTY, RAISED, NOT_CALLED = "ok", "empty", "raised", "not called"
COMMUNICATION = "nccl"
PACKAGES = ("HolisticTraceAnalysis", "traceinsight", "pandas", "numpy")
ON_A_CPU = "HTA analyses what ran on a GPU, and the trace holds nothing that did"

GRAPHS_UNKNOWN = "it does not know cudaGraphLaunch and would leave out every kernel of a CUDA graph"
LAUNCHES_UNKNOWN = "it does not know cuLaunchKernel and would leave out every kernel that Triton launched"
MEMORY_BYTES = 4 * 2**30  # it takes some 1.3 GB for a million events

Rows = Sequence[Mapping[str, Any]]


def main(answer: str, *traces: str) -> None:
    """Writes a Holistic, or Skipped with its reason, as JSON to ``answer``; raises ImportError without HTA."""
    if sys.platform == "linux":  # what it asks for beyond that raises MemoryError, whoever else needs the machine
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    Path(answer).write_bytes(m.encode_json(analysed([Path(trace) for trace in traces])))


def analysed(traces: Sequence[Path]) -> m.Holistic | m.Skipped:
    """One rank a trace, in the order given."""
    try:
        found = [_Contents.of(trace) for trace in traces]
    except InputError as error:
        return m.Skipped(reason=error.message)
    if not all(contents.device_events for contents in found):
        return m.Skipped(reason=ON_A_CPU)
    session = _Session()
    if failed := session.load(traces):
        return m.Skipped(reason=f"HTA could not load the trace: {failed}")
    session.ask(found)
    ranks = tuple(session.rank(number) for number in range(len(traces)))
    installed = {distribution.metadata["Name"].lower() for distribution in metadata.distributions()}
    versions = {name: metadata.version(name) for name in PACKAGES if name.lower() in installed}
    return m.Holistic(versions=versions, calls=tuple(session.calls), ranks=ranks)


@dataclass(frozen=True, kw_only=True)
class _Contents:
    """What decides which calls make sense."""

    device_events: int
    graph_launches: int
    communication: int

    @classmethod
    def of(cls, trace: Path) -> _Contents:
        columns = kineto.read(trace).columns
        on_device = columns.of_category(*DEVICE_CATEGORIES)
        return cls(
            device_events=int(on_device.sum()),
            graph_launches=int(columns.named(*GRAPH_LAUNCH_PREFIXES).sum()),
            communication=int((on_device & columns.named(COMMUNICATION)).sum()),
        )


class _Session:
    """HTA with the traces in it: what it was asked, and what it answered, as rows of its tables."""

    def __init__(self) -> None:
        self.calls: list[m.HolisticCall] = []
        self._analysis: Any = None
        self._answers: dict[str, Rows] = {}

    def load(self, traces: Sequence[Path]) -> str:
        """Why it could not; empty when it did."""
        os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
        warnings.simplefilter("ignore")  # of HTA and pandas about each other
        from hta.common.trace import Trace
        from hta.trace_analysis import TraceAnalysis

        logging.getLogger("hta").setLevel(logging.CRITICAL)
        files = {number: str(trace.resolve()) for number, trace in enumerate(traces)}
        try:
            loaded = Trace(trace_files=files, trace_dir=str(traces[0].resolve().parent))
            loaded.load_traces(include_last_profiler_step=True, use_multiprocessing=False, use_memory_profiling=False)
        except Exception as error:  # noqa: BLE001  HTA raises whatever the line that met the trace raises
            return _words(error)
        self._analysis = TraceAnalysis.__new__(TraceAnalysis)  # its constructor would load them in several processes
        self._analysis.t = loaded
        ids = loaded.symbol_table.get_sym_id_map()
        device = [ids[name] for name in DEVICE_CATEGORIES if name in ids]
        for rows in loaded.traces.values():
            rows.loc[~rows["cat"].isin(device), "stream"] = -1
        return ""

    def ask(self, found: Sequence[_Contents]) -> None:
        """Every call that can be right on these traces; for the others, why it was not made."""
        hta, every = self._analysis, list(range(len(found)))
        graphs = any(contents.graph_launches for contents in found)
        communicates = any(contents.communication for contents in found)
        self._ask("get_gpu_kernel_breakdown", lambda: _kernels(hta))
        self._ask("get_temporal_breakdown", lambda: hta.get_temporal_breakdown(visualize=False))
        self._ask("get_idle_time_breakdown", lambda: hta.get_idle_time_breakdown(every, visualize=False)[0])
        self._ask("get_memory_bw_summary", lambda: hta.get_memory_bw_summary(every))
        self._ask(
            "get_queue_length_summary",
            lambda: hta.get_queue_length_summary(every),
            unless=GRAPHS_UNKNOWN if graphs else "",
        )
        self._ask(
            "get_comm_comp_overlap",
            lambda: hta.get_comm_comp_overlap(visualize=False),
            unless="" if communicates else "the trace holds no communication",
        )
        self._ask("get_cuda_kernel_launch_stats", unless=GRAPHS_UNKNOWN if graphs else LAUNCHES_UNKNOWN)
        self._ask("critical_path_analysis", unless=GRAPHS_UNKNOWN if graphs else "it needs an annotation to start from")

    def _ask(self, name: str, call: Callable[[], Any] | None = None, *, unless: str = "") -> None:
        if unless or call is None:
            self.calls.append(m.HolisticCall(name=name, outcome=NOT_CALLED, reason=unless))
            return
        try:
            rows = _rows(call())
        except Exception as error:  # noqa: BLE001  and what it raised is the answer
            self.calls.append(m.HolisticCall(name=name, outcome=RAISED, reason=_words(error)))
            return
        self._answers[name] = rows
        self.calls.append(m.HolisticCall(name=name, outcome=OK if rows else EMPTY))

    def rank(self, number: int) -> m.HolisticRank:
        """The answers that are about one rank."""
        window = next(iter(self._of("get_temporal_breakdown", number)), {})
        return m.HolisticRank(
            rank=number,
            kernels={str(row["name"]): float(row["sum (us)"]) for row in self._of("get_gpu_kernel_breakdown", number)},
            window_us=_figure(window, "kernel_time(us)"),
            idle_us=_figure(window, "idle_time(us)"),
            compute_us=_figure(window, "compute_time(us)"),
            idle_causes=tuple(
                m.HolisticIdle(
                    stream=int(row["stream"]), cause=str(row["idle_category"]), total_us=float(row["idle_time"])
                )
                for row in self._of("get_idle_time_breakdown", number)
            ),
            queue_length={
                str(int(row["stream"])): float(row["queue_length max"])
                for row in self._of("get_queue_length_summary", number)
            },
            bandwidth_gb_per_s={
                str(row["name"]): float(row["memory_bw_gbps mean"]) for row in self._of("get_memory_bw_summary", number)
            },
            overlap_percent=_figure(
                next(iter(self._of("get_comm_comp_overlap", number)), {}), "comp_comm_overlap_pctg"
            ),
        )

    def _of(self, name: str, number: int) -> Rows:
        return [row for row in self._answers.get(name, ()) if row.get("rank") == number]


def _rows(table: Any) -> Rows:
    """A table, or None, as its rows; of columns with two names both, "memory_bw_gbps mean"."""
    if table is None:
        return []
    return [
        {" ".join(filter(None, name)) if isinstance(name, tuple) else name: value for name, value in row.items()}
        for row in table.reset_index().to_dict("records")
    ]


def _kernels(hta: Any) -> Any:
    # With its default of ten, the other names' figures become figures of their sum.
    return hta.get_gpu_kernel_breakdown(visualize=False, num_kernels=10**6, duration_ratio=1.0)[1]


def _figure(row: Mapping[str, Any], name: str) -> float | m.Skipped:
    value = row.get(name)
    if value is None or value != value:  # NaN where it divided nothing by nothing
        return m.Skipped(reason="HTA gave no such figure")
    return float(value)


def _words(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"MemoryError: it may take {MEMORY_BYTES / 2**30:g} GiB"
    first = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first[0]}".removesuffix(": ")


if __name__ == "__main__":
    main(*sys.argv[1:])
