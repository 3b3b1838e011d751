"""HTA's figures of several ranks beside ours: those of each trace, put together; and what it cannot say of all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from kgprof import cli
from kgprof.analysis import analyse
from kgprof.analysis.rank_balance import HTA_STRAGGLERS, rank_balance
from kgprof.measures.holistic_check import figure
from kgprof.model import HolisticCheck, Profile, RankBalance, RanksByHolistic, Skipped
from kgprof.reading import recordings
from kgprof.render import RENDERERS
from tests.record.test_kineto_files import COLLECTIVE, saved, work

STRAGGLERS = (
    "import sys; from hta.common.trace import Trace; from hta.trace_analysis import TraceAnalysis\n"
    "loaded = Trace(trace_files=dict(enumerate(sys.argv[1:])), trace_dir='/')\n"
    "loaded.load_traces(include_last_profiler_step=True, use_multiprocessing=False, use_memory_profiling=False)\n"
    "asked = TraceAnalysis.__new__(TraceAnalysis); asked.t = loaded\n"
    "try: print(asked.get_potential_stragglers(num_candidates=1))\n"
    "except Exception as error: print(f'{type(error).__name__}: {error}')\n"
)


@pytest.fixture
def two_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Profile:
    """Rank 1 computes twice as long, so rank 0 waits for it."""
    for rank, (compute_us, talk_us) in enumerate(((300.0, 500.0), (600.0, 200.0))):
        saved(tmp_path / f"rank{rank}.json", work(compute_us=compute_us, talk_us=talk_us), rank=rank)
    code = cli.run(["trace", "--no-hta", "-q", "-o", str(tmp_path / "out"), *map(str, tmp_path.glob("rank*.json"))])
    assert code == 0
    capsys.readouterr()
    return analyse(recordings.load(tmp_path / "out"))


def answered(profile: Profile, *of_ranks: HolisticCheck | Skipped) -> RankBalance:
    reports = [
        msgspec.structs.replace(report, holistic=check) for report, check in zip(profile.runs, of_ranks, strict=True)
    ]
    balance = rank_balance(profile.trace_files, reports)
    assert balance is not None
    return balance


def said(computing_us: float) -> HolisticCheck:
    figures = figure("device computing", "us", computing_us, computing_us), figure("device busy", "us", 1.0, 1.0)
    return HolisticCheck(
        versions={}, calls=(), tolerance_percent=0.5, figures=figures, kernels=0, kernels_differing=0, differing=()
    )


def test_htas_figures_of_each_rank_stand_together(two_ranks: Profile) -> None:
    balance = answered(two_ranks, said(600.0), said(1200.0))

    assert balance.hta == RanksByHolistic(
        figures=(
            figure("rank 0, device computing", "us", 600.0, 600.0),
            figure("rank 1, device computing", "us", 1200.0, 1200.0),
        ),
        calls=(HTA_STRAGGLERS,),
    )
    whole = msgspec.structs.replace(two_ranks, rank_balance=balance)
    for renderer in RENDERERS:
        if renderer.name in ("text", "markdown", "html"):
            shown = " ".join(renderer.render(whole).split())
            assert "rank 1, device computing" in shown
            assert "1.20 ms" in shown
            assert "it looks for kernels named ncclKernel" in shown


def test_where_hta_was_not_asked_the_reason_stands_there(two_ranks: Profile) -> None:
    assert answered(two_ranks, Skipped(reason="not asked"), Skipped(reason="nor here")).hta == Skipped(
        reason="not asked"
    )
    assert isinstance(two_ranks.rank_balance, RankBalance)
    assert isinstance(two_ranks.rank_balance.hta, Skipped)


@pytest.mark.parametrize(
    ("collective", "candidates"),
    [
        (COLLECTIVE, "ValueError: attempt to get argmax of an empty sequence"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "[1]"),  # NCCL of before: the one that starts last
    ],
)
def test_hta_finds_stragglers_by_the_names_of_an_older_nccl(tmp_path: Path, collective: str, candidates: str) -> None:
    traces = []
    for rank, (compute_us, talk_us) in enumerate(((300.0, 500.0), (600.0, 200.0))):
        events = work(compute_us=compute_us, talk_us=talk_us, steps=3)
        named = [{**one, "name": collective} if one["name"] == COLLECTIVE else one for one in events]
        traces.append(saved(tmp_path / f"rank{rank}.json", named, rank=rank))

    command = [sys.executable, "-P", "-c", STRAGGLERS, *map(str, traces)]
    ended = subprocess.run(
        command, check=True, timeout=120, capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )

    assert ended.stdout.strip().splitlines()[-1] == candidates
