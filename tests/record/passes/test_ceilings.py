"""What is timed for the ceilings, tried on the CPU in small, and on a GPU as it stands."""

from __future__ import annotations

import statistics

import pytest
import torch

from kgprof.model import Skipped
from kgprof.model.kernels import Ceilings
from kgprof.record.passes import ceilings
from kgprof.record.passes.ceilings import (
    PRODUCTS,
    Product,
    copy_ceiling,
    matmul_ceiling,
    measure_ceilings,
    timed,
)

CPU = torch.device("cpu")


def test_a_cpu_run_has_none_and_says_why() -> None:
    assert isinstance(measure_ceilings(CPU), Skipped)


def test_a_copy_counts_what_is_read_and_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "timed", lambda call, device: (0.5, 0.25))

    found = copy_ceiling(CPU, 2**20)

    assert found.per_s == (2 * 2**20 / 0.5, 2 * 2**20 / 0.25)
    assert (found.operation, found.dtype, found.unit) == ("copy", "", "bytes/s")
    assert found.how == "1 MiB copied between buffers, counting reads and writes"


def test_a_matmul_counts_two_operations_for_each_of_n_cubed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results: list[torch.Tensor] = []

    def once(call: object, device: torch.device) -> tuple[float, ...]:
        results.append(call())  # type: ignore[operator]
        return (1e-3,)

    monkeypatch.setattr(ceilings, "timed", once)

    found = matmul_ceiling(CPU, Product(name="float64", dtype=torch.float64, side=16))

    assert found.per_s == (2 * 16**3 / 1e-3,)
    assert (found.dtype, found.unit, found.how) == ("float64", "FLOP/s", "16 x 16 times 16 x 16")
    (product,) = results
    assert product.dtype == torch.float64
    assert product.abs().sum() > 0  # random numbers, not the zeros that a card multiplies faster


def test_float8_is_multiplied_into_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[torch.Tensor] = []
    monkeypatch.setattr(
        ceilings, "timed", lambda call, device: (results.append(call()), (1e-3,))[1]
    )

    found = matmul_ceiling(CPU, Product(name="float8", dtype=torch.float8_e4m3fn, side=32))

    assert (found.dtype, found.per_s) == ("float8", (2 * 32**3 / 1e-3,))
    assert results[0].dtype == torch.bfloat16
    assert results[0].abs().sum() > 0


@pytest.mark.parametrize(("name", "during"), [("tf32", "high"), ("float32", "highest")])
def test_float32_runs_on_tensor_cores_for_tf32_alone_and_the_setting_is_put_back(
    monkeypatch: pytest.MonkeyPatch, name: str, during: str
) -> None:
    before, seen = torch.get_float32_matmul_precision(), []

    def fails(call: object, device: torch.device) -> tuple[float, ...]:
        seen.append(torch.get_float32_matmul_precision())
        raise RuntimeError("out of memory")

    monkeypatch.setattr(ceilings, "timed", fails)
    with pytest.raises(RuntimeError):
        matmul_ceiling(CPU, Product(name=name, dtype=torch.float32, side=4))

    assert seen == [during]
    assert torch.get_float32_matmul_precision() == before


def test_a_slow_operation_gives_fewer_samples_but_never_fewer_than_three(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick = timed(lambda: None, CPU)
    monkeypatch.setattr(ceilings, "BUDGET_S", -1.0)
    slow = timed(lambda: None, CPU)

    assert (len(quick), len(slow)) == (ceilings.SAMPLES, ceilings.FEWEST_SAMPLES)


@pytest.mark.gpu
def test_a_gpu_has_them_all_and_they_hold_together() -> None:
    found = measure_ceilings(torch.device("cuda"))

    assert isinstance(found, Ceilings)
    assert found.unavailable == ()
    assert [(one.operation, one.dtype) for one in found.measured] == [
        ("copy", ""),
        *(("matmul", product.name) for product in PRODUCTS),
    ]
    rates = {one.dtype: statistics.median(one.per_s) for one in found.measured}
    assert all(
        len(one.per_s) >= ceilings.FEWEST_SAMPLES and min(one.per_s) > 0 for one in found.measured
    )
    assert 1e11 < rates[""] < 2e13  # a copy on any card of today: 0.1 to 20 TB/s
    assert rates["bfloat16"] > rates["float32"]
    assert rates["tf32"] > rates["float32"]
    assert rates["float8"] > rates["bfloat16"]
