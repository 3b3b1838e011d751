"""The evaluator as an H200 ran it, read again by this version: its reads, its buffers, and whether
torch.cond pays."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from kgprof.analysis import analyse
from kgprof.judge import APART
from kgprof.model import KernelBreakdown, MemorySummary, Profile, Roofline, RunKey, Skipped, Spread
from kgprof.reading import recordings

RECORDINGS = Path(__file__).resolve().parents[1] / "fixtures" / "recordings"
ARCHIVE = RECORDINGS / "linkpred_torch_cond_h200.tgz"
# with eager, three rounds, and the shapes of library calls
LATER = RECORDINGS / "evaluator_h200.tgz"
COND, FUSED = "torch_cond", "fused"
MODES = ("default", "reduce-overhead")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return read(ARCHIVE, tmp_path_factory.mktemp("linkpred"))


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return read(LATER, tmp_path_factory.mktemp("later"))


def read(archive: Path, folder: Path) -> Profile:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return analyse(recordings.load(folder / "recording"))


def reads(profile: Profile) -> Mapping[RunKey, float]:
    memories = {run.key: run.memory for run in profile.runs}
    return {
        key: memory.syncs_per_step
        for key, memory in memories.items()
        if isinstance(memory, MemorySummary) and isinstance(memory.syncs_per_step, float)
    }


def places(profile: Profile, strategy: str, mode: str) -> list[tuple[str, str, str]]:
    """Rule, file and line of each read."""
    return sorted(
        (found.rule, Path(found.location.file).name, found.location.text.strip())
        for found in profile.findings
        if found.run == RunKey(strategy=strategy, mode=mode)
        and found.rule.startswith("KGP2")
        and found.location
    )


def test_torch_cond_reads_once_more_a_step_than_fused(profile: Profile) -> None:
    expected = {COND: 2.0, FUSED: 1.0}

    assert reads(profile) == {
        RunKey(strategy=strategy, mode=mode): number
        for strategy, number in expected.items()
        for mode in MODES
    }


@pytest.mark.parametrize("mode", MODES)
def test_the_read_that_is_more_is_the_predicates(mode: str, profile: Profile) -> None:
    stated, more = places(profile, FUSED, mode), places(profile, COND, mode)

    assert [(rule, file) for rule, file, _ in stated] == [("KGP201", "evaluator.py")]
    assert [one for one in more if one not in stated] == [
        ("KGP202", "torch_cond.py", "states, number, dropped = torch.cond(")
    ]


def test_no_buffer_moved_nothing_is_shared_and_nothing_disagrees(profile: Profile) -> None:
    rules = {found.rule for found in profile.findings}

    assert not rules & {
        "KGP305",
        "KGP401",
        "KGP402",
        "KGP403",
        "KGP404",
        "KGP405",
        "KGP406",
        "KGP503",
    }


@pytest.mark.parametrize("mode", MODES)
def test_the_trade_off_says_what_the_measured_times_say(mode: str, profile: Profile) -> None:
    # given: one process each
    net = {run.key: run.per_unit for run in profile.runs}
    cond, fused = (net[RunKey(strategy=strategy, mode=mode)] for strategy in (COND, FUSED))
    assert isinstance(cond, Spread)
    assert isinstance(fused, Spread)

    # when
    (weighed,) = (
        one for one in profile.trade_offs if one.guarded == RunKey(strategy=COND, mode=mode)
    )

    # then
    assert fused.maximum < cond.minimum
    assert weighed.verdict == (
        "remove it" if cond.median >= APART * fused.median else "inconclusive"
    )
    assert weighed.syncs_per_step == 1.0
    assert weighed.location is not None
    assert weighed.location.text.strip() == "states, number, dropped = torch.cond("


def test_the_checklist_fails_where_torch_cond_stands(profile: Profile) -> None:
    failed = {item.id for item in profile.checklist if item.status == "fail"}

    assert failed == {
        "no-reads-inside",
        "cond-costs-cuda-graphs",
        "few-reads",
        "reads-weighed",
        "copied-together",
    }


# ---------------------------------------------------------------- kernels


def kernels(profile: Profile, strategy: str, mode: str) -> KernelBreakdown:
    (found,) = (
        run.kernels for run in profile.runs if run.key == RunKey(strategy=strategy, mode=mode)
    )
    assert isinstance(found, KernelBreakdown)
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("strategy", [COND, FUSED])
def test_all_that_inductor_generated_has_its_source_lines(
    strategy: str, mode: str, profile: Profile
) -> None:
    """Also where a CUDA graph replays it. No line is that of a ``def``."""
    generated = [row for row in kernels(profile, strategy, mode).rows if row.generator == "triton"]

    assert generated
    assert sum(row.lines_us for row in generated) == pytest.approx(
        sum(row.total_us for row in generated)
    )
    assert not [
        line for row in generated for line in row.lines if line.text.strip().startswith("def ")
    ]


@pytest.mark.parametrize("strategy", [COND, FUSED])
def test_in_mode_default_almost_all_device_time_has_its_line(
    strategy: str, profile: Profile
) -> None:
    """Library calls and eager copies and scatters too; what the truth of a tensor copies to the
    host has none."""
    found = kernels(profile, strategy, "default")

    assert isinstance(found.lines_us, float)
    assert found.lines_us >= 0.97 * found.total_us
    assert {row.name for row in found.rows if not row.lines} == {"Memcpy DtoH (Device -> Pinned)"}


def test_the_evaluators_own_copies_stand_at_their_line(profile: Profile) -> None:
    (copies,) = (
        row
        for row in kernels(profile, FUSED, "reduce-overhead").rows
        if row.name.startswith("Memcpy DtoD")
    )

    assert [(Path(line.file).name, line.function) for line in copies.lines] == [
        ("slots.py", "SlotStrategy.commit")
    ]
    assert copies.lines_us == pytest.approx(copies.total_us)


def test_the_ten_largest_launches_are_placed_or_say_why(profile: Profile) -> None:
    roofline = kernels(profile, FUSED, "default").roofline
    assert isinstance(roofline, Roofline)
    ten = roofline.rows[:10]

    assert {row.bound for row in ten if isinstance(row.bound, str)} == {"latency-bound"}
    (unplaced,) = (row for row in ten if isinstance(row.bound, Skipped))
    assert "_scatter_gather_elementwise_kernel" in unplaced.name


@pytest.mark.parametrize("strategy", [COND, FUSED])
def test_with_the_shapes_of_library_calls_the_ten_largest_are_placed(
    strategy: str, later: Profile
) -> None:
    roofline = kernels(later, strategy, "default").roofline

    assert isinstance(roofline, Roofline)
    assert {row.bound for row in roofline.rows[:10]} == {"latency-bound"}


def test_nsight_compute_says_the_same_of_one_kernel(profile: Profile) -> None:
    """ncu 2025 on the same card: 31 registers, 1,056,768 bytes from memory (what is written stays
    in the L2 cache), 3,801,136 through L2 with what the caches of the processors fetch twice, 38.8
    % of the warps active."""
    roofline = kernels(profile, FUSED, "default").roofline
    assert isinstance(roofline, Roofline)
    (norm,) = (
        row
        for row in roofline.rows
        if row.name == "triton_per_fused_native_layer_norm_relu_view_27"
    )

    assert (norm.grid, norm.block, norm.registers) == ((2048, 1, 1), (64, 1, 1), 31)
    assert isinstance(norm.bytes_moved, int)
    assert 1_056_768 < norm.bytes_moved < 3_801_136
    assert norm.bytes_moved == pytest.approx(2 * 1_056_768, rel=0.01)
