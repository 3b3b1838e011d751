"""A kernel that the program wrote is named where much of the GPU's work is in it."""

from __future__ import annotations

import pytest

from kgprof.analysis import analyse
from kgprof.collectors.time.own_kernels import OWN_KERNEL, collect, diagnose
from kgprof.model import Location, Recording, Saving
from kgprof.reading.evidence import Evidence
from tests.collectors.written_gpu_time import own_kernel


def test_it_is_named_with_its_line_its_share_and_all_of_its_time_as_the_bound() -> None:
    (found,) = diagnose(collect(Evidence(own_kernel())))

    assert found.rule == OWN_KERNEL.id
    assert found.location == Location(
        file="/src/shop/model.py",
        line=2,
        function="row_sums",
        text="def row_sums(x, out):",
    )
    assert found.message == (
        "the kernel row_sums does 75 % of the GPU's work: 4 launches in 4 steps, 300 µs each"
    )
    assert found.fix == ""
    assert found.no_fix
    assert isinstance(found.saves, Saving)
    assert found.saves.us_per_step == pytest.approx(300.0)


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param(own_kernel(us=30.0), id="little of the work"),
        pytest.param(own_kernel(text="def row_sums(x, out):\n    pass\n"), id="no kernel"),
        pytest.param(own_kernel(text="@triton.jit\ndef others(x):\n    pass\n"), id="never ran"),
        pytest.param(
            own_kernel(
                text="@triton.jit\ndef row_sums(x):\n    pass\n"
                "class A:\n    @triton.jit\n    def row_sums(x):\n        pass\n"
            ),
            id="two of one name",
        ),
    ],
)
def test_no_other_kernel_is(recorded: Recording) -> None:
    assert diagnose(collect(Evidence(recorded))) == ()


def test_it_is_something_to_do() -> None:
    assert OWN_KERNEL.id in {action.rule for action in analyse(own_kernel()).actions}
