"""One analyse() reads each trace once, collects each topic once and parses each source once; and
everything that it says of kernels follows the project's own kinds."""

from __future__ import annotations

import ast
import gc
import tarfile
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kgprof.analysis import analyse
from kgprof.collectors import COLLECTORS
from kgprof.compare import compare
from kgprof.model import (
    CompileRecords,
    KernelBreakdown,
    KernelKind,
    KindOverride,
    PassName,
    Profile,
    Recording,
    Skipped,
    TracePass,
)
from kgprof.reading import evidence, kineto, layout, recordings, source_text

RECORDINGS = Path(__file__).resolve().parents[2] / "fixtures" / "recordings"
MULTI_TENSOR = "multi_tensor_apply_kernel"  # what copies the input before each replay


def unpacked(name: str, folder: Path) -> Recording:
    with tarfile.open(RECORDINGS / f"{name}.tgz") as archive:
        archive.extractall(folder, filter="data")
    return recordings.load(folder)


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return unpacked("evaluator_h200", tmp_path_factory.mktemp("evaluator"))


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A program on an H200 whose CUDA graph copies its input before each replay."""
    whole = unpacked("corpus_runtime_h200", tmp_path_factory.mktemp("copying"))
    return msgspec.structs.replace(
        whole, runs=tuple(run for run in whole.runs if run.key.strategy == "replay_copies_input")
    )


def counting(
    function: Callable[..., Any], name: Callable[..., Any], counts: Counter[Any]
) -> Callable[..., Any]:
    def counted(*given: Any, **more: Any) -> Any:
        counts[name(*given)] += 1
        return function(*given, **more)

    return counted


def test_each_trace_is_read_once(evaluator: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: Counter[Path] = Counter()
    monkeypatch.setattr(kineto, "read", counting(kineto.read, lambda path, within: path, reads))

    analyse(evaluator)

    made = {
        layout.trace_path(evaluator, run.key, name)
        for run in evaluator.runs
        for name, traced in (
            (PassName.TRACE, run.trace),
            (PassName.STACK, run.stack),
            (PassName.KERNELS, run.kernels),
        )
        if isinstance(traced, TracePass)
    }
    assert len(made) >= len(evaluator.runs) == 6
    assert reads == Counter(made)


def test_no_trace_outlives_the_analysis(
    evaluator: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, traces = kineto.read, list[weakref.ref[kineto.Columns]]()

    def kept(path: Path, within: Path) -> kineto.Trace:
        trace = read(path, within)
        traces.append(weakref.ref(trace.columns))
        return trace

    monkeypatch.setattr(kineto, "read", kept)
    gc.disable()  # which would find them, but only when it comes by
    try:
        analyse(evaluator)
        alive = [trace() for trace in traces]
    finally:
        gc.enable()

    assert alive == [None] * 12


def test_each_topic_is_collected_once(
    evaluator: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: Counter[str] = Counter()
    for collector in COLLECTORS:
        name: Callable[[object], str] = lambda _, collector=collector: collector.__name__  # noqa: E731
        monkeypatch.setattr(collector, "collect", counting(collector.collect, name, collected))

    analyse(evaluator)

    assert collected == Counter(collector.__name__ for collector in COLLECTORS)  # type: ignore[attr-defined]


def test_the_compilers_records_and_each_source_are_taken_apart_once(
    evaluator: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces: Counter[object] = Counter()
    parses: Counter[str] = Counter()
    source_text._parsed.cache_clear()  # which other tests may have filled
    with monkeypatch.context() as patched:
        patched.setattr(
            evidence, "RunTrace", counting(evidence.RunTrace, lambda key, _: key, traces)
        )
        patched.setattr(ast, "parse", counting(ast.parse, lambda text: text, parses))
        analyse(evaluator)

    assert traces == Counter(run.key for run in evaluator.runs)
    texts = {
        source.text
        for run in evaluator.runs
        if isinstance(run.records, CompileRecords)
        for source in run.records.sources.files.values()
        if source.text
    }
    assert texts & parses.keys()
    assert {text: times for text, times in parses.items() if text in texts and times > 1} == {}


# ---------------------------------------------------------------- the project's own kinds


def breakdown(profile: Profile) -> KernelBreakdown:
    (run,) = profile.runs
    assert isinstance(run.kernels, KernelBreakdown)
    return run.kernels


def copies(profile: Profile) -> tuple[object, object]:
    """What the copies took, in microseconds, as the table of kernels says and as the finding's cost
    says, a step."""
    (finding,) = (finding for finding in profile.findings if finding.rule == "KGP305")
    table = breakdown(profile).input_copies
    assert not isinstance(table, Skipped)
    cost = 0.0 if isinstance(finding.cost, Skipped) else finding.cost.value
    return table.total_us / breakdown(profile).steps, cost


def test_a_kernel_that_the_project_calls_no_copy_is_none_in_any_figure(copying: Recording) -> None:
    override = KindOverride(pattern=MULTI_TENSOR, kind=KernelKind.POINTWISE, origin="kgprof.toml")

    plain, overridden = analyse(copying), analyse(copying, (override,))

    assert copies(plain) == (pytest.approx(1.01975), pytest.approx(1.01975))
    assert copies(overridden) == (0.0, 0.0)
    compared = compare(plain, overridden).comparison
    assert compared is not None
    (run,) = compared.runs
    assert run.trace is not None
    per_step = {change.name: change.delta_us for change in run.trace.kinds}
    assert per_step == {
        "gemm": 0.0,
        "copy": pytest.approx(-1.01975),
        "pointwise": pytest.approx(1.01975),
    }
