"""Kernels held against ceilings: by hand where every figure is chosen, and on a trace of an
H200."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kgprof.analysis import analyse
from kgprof.measures import kernels
from kgprof.measures.kernels import NOT_COMPILED
from kgprof.measures.roofline import (
    CALLS_DIFFER,
    NO_WORK,
    NOT_GENERATED,
    ON_THE_BUS,
)
from kgprof.model import (
    Bound,
    BoundTotal,
    Ceiling,
    KernelBreakdown,
    KernelLaunches,
    PassName,
    Roofline,
    RunKey,
    Skipped,
)
from kgprof.model.compile_records import (
    CompiledKernel,
    CompiledKernels,
    KernelOrigin,
    KernelWork,
    SourceLine,
)
from kgprof.model.kernels import Ceilings, CeilingSamples
from kgprof.reading import kineto, recordings
from tests.analysis.events import event, write
from tests.measures.test_idle import kernel, launch
from tests.measures.test_origins import region

H200 = Path(__file__).resolve().parents[2] / "fixtures" / "recordings" / "linkpred_h200.tgz"
LINE = SourceLine(file="/p/m.py", line=5, function="step")
POINTWISE, PRODUCT = "triton_poi_fused_add_0", "sm90_xmma_gemm_f32"
SHAPE = {
    "registers per thread": 32,
    "shared memory": 512,
    "blocks per SM": 4.0,
    "warps per SM": 16.0,
    "grid": [528, 1, 1],
    "block": [128, 1, 1],
    "est. achieved occupancy %": 25,
}
# A card that copies 4 TB/s and multiplies 100 TFLOP/s: a byte is worth 25 operations.
CARD = Ceilings(
    device_name="a card",
    measured=(
        CeilingSamples(
            operation="copy", dtype="", unit="bytes/s", per_s=(4e12, 3.9e12, 4.1e12), how="1 GiB"
        ),
        CeilingSamples(
            operation="matmul", dtype="float32", unit="FLOP/s", per_s=(100e12,), how="8192"
        ),
    ),
)


def shaped(
    start: float, duration: float, correlation: int, *, name: str, **shape: object
) -> dict[str, Any]:
    """A kernel event with its launch shape; what is given as None is not in the trace."""
    made = kernel(start, duration, correlation, name=name)
    arguments = {**SHAPE, **shape}
    return {
        **made,
        "args": {
            **made["args"],
            **{key: value for key, value in arguments.items() if value is not None},
        },
    }


def origin(name: str, number: int, work: KernelWork | None) -> KernelOrigin:
    return KernelOrigin(compile_id="0/0", kernel=name, number=number, lines=(LINE,), work=work)


def placed(
    path: Path,
    *events: dict[str, Any],
    origins: tuple[KernelOrigin, ...] = (),
    ceilings: Ceilings | Skipped = CARD,
    compiled: CompiledKernels | Skipped = NOT_COMPILED,
) -> Roofline:
    trace = kineto.read(write(path / "t.json", events))
    found = kernels.breakdown(
        trace,
        device="cuda",
        measured_in=PassName.TRACE,
        cpp_kernel_profile=False,
        origins=origins,
        compiled=compiled,
        ceilings=ceilings,
    )
    assert isinstance(found, KernelBreakdown)
    assert isinstance(found.roofline, Roofline)
    return found.roofline


def generated(
    path: Path, duration_us: float, work: KernelWork | None, **options: Any
) -> KernelLaunches:
    """The one row of a Triton kernel that took ``duration_us``."""
    shape = options.pop("shape", {})
    found = placed(
        path,
        region(0, 10),
        launch(1, 1, 1),
        shaped(3, duration_us, 1, name=POINTWISE, **shape),
        origins=(origin(POINTWISE, 1, work),),
        **options,
    )
    (row,) = found.rows
    return row


MIB_40 = KernelWork(bytes_moved=40_000_000)  # 10 us at the card's 4 TB/s


@pytest.mark.parametrize(
    ("work", "duration_us", "bound", "of_ceiling"),
    [
        pytest.param(MIB_40, 12.5, Bound.MEMORY, 0.8, id="near the copy"),
        pytest.param(MIB_40, 100.0, Bound.MEMORY, 0.1, id="far off, but long"),
        pytest.param(
            KernelWork(bytes_moved=4_000_000), 4.0, Bound.LATENCY, 0.25, id="far off and short"
        ),
        pytest.param(
            KernelWork(bytes_moved=4_000_000),
            2.0,
            Bound.MEMORY,
            0.5,
            id="short, and half of the ceiling",
        ),
        pytest.param(
            MIB_40, 9.5, Bound.MEMORY, 10 / 9.5, id="a little faster than the median copy"
        ),
        pytest.param(MIB_40, 5.0, Bound.IMPOSSIBLE, 2.0, id="faster than the card"),
        pytest.param(
            KernelWork(bytes_moved=4_000_000, flops=2_000_000_000, dtype="float32"),
            25.0,
            Bound.COMPUTE,
            0.8,
            id="a product",
        ),
        pytest.param(
            KernelWork(bytes_moved=80_000_000, flops=2_000_000_000, dtype="float32"),
            25.0,
            Bound.MEMORY,
            0.8,
            id="thin product",
        ),
    ],
)
def test_what_a_launch_is_bound_by(
    tmp_path: Path, work: KernelWork, duration_us: float, bound: str, of_ceiling: float
) -> None:
    row = generated(tmp_path, duration_us, work)

    assert (row.bound, row.of_ceiling) == (bound, pytest.approx(of_ceiling))
    assert row.bytes_per_s == pytest.approx((work.bytes_moved or 0) / duration_us * 1e6)


def test_a_grid_of_fewer_blocks_than_the_card_has_multiprocessors_is_latency_bound_however_long_it_takes(  # noqa: E501
    tmp_path: Path,
) -> None:
    row = generated(tmp_path, 500.0, MIB_40, shape={"blocks per SM": 0.03})

    assert (row.bound, row.of_ceiling) == (Bound.LATENCY, pytest.approx(0.02))


def test_how_it_was_launched_stands_in_the_row(tmp_path: Path) -> None:
    row = generated(tmp_path, 12.5, MIB_40)

    assert (row.name, row.generator, row.count, row.total_us, row.share) == (
        POINTWISE,
        "triton",
        1,
        12.5,
        1.0,
    )
    assert (row.grid, row.block, row.warps, row.blocks_per_sm) == ((528, 1, 1), (128, 1, 1), 4, 4.0)
    assert (row.registers, row.shared_bytes, row.occupancy_percent) == (32, 512, 25.0)


def test_what_the_trace_does_not_hold_is_not_measured(tmp_path: Path) -> None:
    row = generated(tmp_path, 12.5, MIB_40, shape=dict.fromkeys(SHAPE))

    absent = Skipped(reason="the trace does not have it")
    assert {
        row.grid,
        row.block,
        row.registers,
        row.shared_bytes,
        row.warps,
        row.occupancy_percent,
    } == {absent}
    assert row.bound == Bound.MEMORY


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (None, NO_WORK),
        (KernelWork(unknown="a node of another kind"), "a node of another kind"),
        (KernelWork(bytes_moved=1, flops=1, dtype="int8"), "no matmul in int8 was measured"),
    ],
)
def test_what_is_not_known_is_not_placed_and_says_why(
    tmp_path: Path, work: KernelWork | None, reason: str
) -> None:
    row = generated(tmp_path, 12.5, work)

    assert (row.bound, row.of_ceiling) == (Skipped(reason=reason), Skipped(reason=reason))


def test_without_ceilings_the_rates_stand_and_nothing_is_placed(tmp_path: Path) -> None:
    gone = Skipped(reason="their measurement was killed")

    row = generated(tmp_path, 10.0, MIB_40, ceilings=gone)

    assert row.bytes_per_s == pytest.approx(4e12)
    assert row.bound == gone


def test_two_calls_of_one_name_that_move_different_amounts_are_not_told_apart(
    tmp_path: Path,
) -> None:
    found = placed(
        tmp_path,
        region(0, 10),
        launch(1, 1, 1),
        shaped(3, 10, 1, name=POINTWISE),
        origins=(origin(POINTWISE, 1, MIB_40), origin(POINTWISE, 2, KernelWork(bytes_moved=8))),
    )

    assert [row.bytes_moved for row in found.rows] == [Skipped(reason=CALLS_DIFFER)]


# ---------------------------------------------------------------- rows


def test_launches_of_one_kernel_are_one_row_for_each_shape(tmp_path: Path) -> None:
    found = placed(
        tmp_path,
        region(0, 60),
        *(launch(2 * number, 1, number) for number in range(1, 5)),
        *(shaped(70 + 20 * number, 10.0 + number, number, name=POINTWISE) for number in (1, 2, 3)),
        shaped(200, 40.0, 4, name=POINTWISE, grid=[1, 1, 1]),
    )

    assert [(row.grid, row.count, row.total_us, row.median_us) for row in found.rows] == [
        ((1, 1, 1), 1, 40.0, 40.0),
        ((528, 1, 1), 3, 36.0, 12.0),
    ]
    assert sum(row.share for row in found.rows) == pytest.approx(1.0)


PRODUCT_WORK = KernelWork(bytes_moved=4_000_000, flops=2_000_000_000, dtype="float32")


def product(path: Path, *of_the_call: dict[str, Any]) -> Roofline:
    """A matmul that generated code calls, and what the library launches for it."""
    return placed(
        path,
        region(0, 20),
        event("cpu_op", "aten::addmm", 1, 8),
        *(launch(2 + number, 0.5, number) for number in range(1, len(of_the_call) + 1)),
        *of_the_call,
        origins=(origin("extern_kernels.addmm", 1, PRODUCT_WORK),),
    )


def test_a_library_kernel_has_the_work_of_the_call_that_launched_it_and_a_fill_beside_it_its_own(
    tmp_path: Path,
) -> None:
    fill = {**kernel(30, 1, 1, name="Memset (Device)"), "cat": "gpu_memset"}
    fill["args"] = {**fill["args"], "bytes": 64}

    found = product(tmp_path, fill, shaped(40, 25, 2, name=PRODUCT))

    assert {row.name: (row.bytes_moved, row.bound) for row in found.rows} == {
        PRODUCT: (4_000_000, Bound.COMPUTE),
        "Memset (Device)": (64, Bound.LATENCY),
    }
    assert found.placed == (
        BoundTotal(what=Bound.COMPUTE, total_us=25.0),
        BoundTotal(what=Bound.LATENCY, total_us=1.0),
    )
    assert (found.placed_us, found.unplaced) == (26.0, ())


def test_a_call_that_launches_two_kernels_is_no_work_of_either(tmp_path: Path) -> None:
    found = product(
        tmp_path, shaped(30, 20, 1, name=PRODUCT), shaped(60, 5, 2, name="splitKreduce")
    )

    assert {row.bytes_moved for row in found.rows} == {
        Skipped(reason="the call launched 2 kernels, and its bytes are those of all")
    }


def test_what_inductor_did_not_generate_is_not_placed(tmp_path: Path) -> None:
    found = placed(
        tmp_path,
        launch(1, 1, 1),
        shaped(3, 10, 1, name="at::native::elementwise"),
        origins=(origin(POINTWISE, 1, MIB_40),),
    )

    assert [row.bound for row in found.rows] == [Skipped(reason=NOT_GENERATED)]


@pytest.mark.parametrize(
    ("name", "moved", "bound"),
    [
        ("Memcpy DtoD (Device -> Device)", 80_000_000, Bound.MEMORY),
        ("Memcpy HtoD (Pinned -> Device)", 40_000_000, Skipped(reason=ON_THE_BUS)),
    ],
)
def test_a_copy_has_the_size_that_the_trace_says(
    tmp_path: Path, name: str, moved: int, bound: str | Skipped
) -> None:
    copy = {**kernel(3, 25, 1, name=name), "cat": "gpu_memcpy"}
    copy["args"] = {**copy["args"], "bytes": 40_000_000}

    (row,) = placed(tmp_path, launch(1, 1, 1), copy).rows

    assert (row.bytes_moved, row.bound, row.generator) == (moved, bound, "memcpy")
    assert row.registers == Skipped(reason="a copy or fill is not a kernel")


def test_rows_beyond_the_limit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgprof.measures.roofline.ROWS", 1)

    found = placed(
        tmp_path,
        *(launch(number, 0.5, number) for number in (1, 2, 3)),
        *(shaped(10 * number, number, number, name=f"k{number}") for number in (1, 2, 3)),
    )

    assert [row.name for row in found.rows] == ["k3"]
    assert found.unplaced == (BoundTotal(what=NO_WORK, total_us=6.0),)  # those left out count
    assert (found.rows_left_out, found.left_out_us) == (2, 3.0)


# ---------------------------------------------------------------- what Triton made of them


def compiled(
    *, registers: int = 32, warps: int = 4, spills: int = 0, stages: int = 1
) -> CompiledKernel:
    return CompiledKernel(
        kernel=POINTWISE,
        warps=warps,
        stages=stages,
        registers=registers,
        spills=spills,
        shared_bytes=0,
    )


@pytest.mark.parametrize(
    ("kept", "spills"),
    [
        pytest.param((compiled(spills=6),), 6, id="the one of its name"),
        pytest.param((compiled(registers=40), compiled(spills=6)), 6, id="told apart by registers"),
        pytest.param((compiled(warps=8), compiled(spills=6)), 6, id="told apart by warps"),
        pytest.param((compiled(spills=6), compiled(spills=6)), 6, id="twice the same"),
        pytest.param(
            (compiled(spills=6), compiled(spills=0)),
            Skipped(reason="several compiled kernels with this name, registers and warps"),
            id="two that fit",
        ),
        pytest.param(
            (compiled(registers=40),),
            Skipped(reason="no compiled kernel with this name, registers and warps"),
            id="none that fits",
        ),
        pytest.param(
            (),
            Skipped(reason="this Recording has no compiled kernel of this name"),
            id="none at all",
        ),
    ],
)
def test_spills_are_those_of_the_kernel_that_was_launched(
    tmp_path: Path, kept: tuple[CompiledKernel, ...], spills: int | Skipped
) -> None:
    row = generated(tmp_path, 12.5, MIB_40, compiled=CompiledKernels(kernels=kept))

    assert row.spills == spills
    assert row.stages == (1 if isinstance(spills, int) else spills)


# ---------------------------------------------------------------- ceilings, and a real trace


def test_a_ceiling_is_the_median_of_its_samples(tmp_path: Path) -> None:
    found = placed(tmp_path, launch(1, 1, 1), shaped(3, 10, 1, name="k"))

    assert found.ceilings[0] == Ceiling(
        operation="copy",
        dtype="",
        unit="bytes/s",
        median=4e12,
        minimum=3.9e12,
        maximum=4.1e12,
        samples=3,
        how="1 GiB",
    )
    assert found.without == ""


@pytest.fixture(scope="module")
def rooflines(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[RunKey, tuple[KernelBreakdown, Roofline]]:
    folder = tmp_path_factory.mktemp("linkpred")
    with tarfile.open(H200) as archive:
        archive.extractall(folder, filter="data")
    runs = analyse(recordings.load(folder)).runs
    found = {run.key: run.kernels for run in runs if isinstance(run.kernels, KernelBreakdown)}
    return {
        key: (one, one.roofline) for key, one in found.items() if isinstance(one.roofline, Roofline)
    }


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_the_evaluators_rows_add_up_to_its_device_time(
    rooflines: dict[RunKey, tuple[KernelBreakdown, Roofline]], mode: str
) -> None:
    breakdown, roofline = rooflines[RunKey(strategy="batched", mode=mode)]

    assert sum(row.total_us for row in roofline.rows) + roofline.left_out_us == pytest.approx(
        breakdown.total_us
    )
    assert sum(row.count for row in roofline.rows) == sum(row.count for row in breakdown.rows)
    assert roofline.without == "this Recording has no ceilings"


def test_a_kernel_of_the_evaluator_as_cupti_described_it(
    rooflines: dict[RunKey, tuple[KernelBreakdown, Roofline]],
) -> None:
    # given: read by eye in the trace
    _, roofline = rooflines[RunKey(strategy="batched", mode="default")]

    (norm,) = [
        row
        for row in roofline.rows
        if row.name == "triton_per_fused_native_layer_norm_relu_view_27"
    ]
    assert (norm.registers, norm.shared_bytes, norm.grid, norm.block) == (
        31,
        16,
        (2048, 1, 1),
        (64, 1, 1),
    )
    assert (norm.occupancy_percent, norm.warps, norm.count) == (48.0, 2, 20)
    assert msgspec.structs.asdict(norm)["bound"] == Skipped(reason=NO_WORK)
