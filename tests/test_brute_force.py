"""benchmarks/brute_force.py: whether a verdict is right, from what every cell took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgprof.measures.sweep import weighed
from tests.sweeps import DEFAULT, EAGER, TUNED, cell, sweep
from tests.test_seeds import BENCHMARKS, loaded

SWEEP = weighed(
    sweep(
        cell(EAGER, *[900] * 3, cold_s=[0.0]),
        cell(DEFAULT, *[100] * 3, cold_s=[1.0]),
        cell(TUNED, *[99] * 3, cold_s=[9.0]),
    ),
    10_000,
)


def measured(start_s: float, *step_us: float, failed: str = "") -> dict[str, Any]:
    return {"start_s": [start_s], "step_us": list(step_us), "failed": failed}


@pytest.mark.parametrize(
    ("recommended", "tuned", "right"),
    [
        (measured(1.0, 100, 101, 99), measured(9.0, 90, 91, 89), True),  # 2 s against 9.9 s
        (measured(1.0, 900, 901, 899), measured(1.0, 100, 101, 99), False),
        (measured(1.0, 104, 104, 104), measured(1.0, 100, 100, 100), True),  # within 5 %
        (measured(1.0, 100, 900, 120), measured(1.0, 300, 100, 80), True),  # within noise
        (measured(1.0, 800, 801, 799), measured(1.0, 100, 101, 99, failed="raised"), True),
    ],
)
def test_a_verdict_is_wrong_if_another_cell_takes_less_beyond_noise(
    recommended: dict[str, Any], tuned: dict[str, Any], right: bool
) -> None:
    cells = {EAGER.name: measured(0.0, 950, 950, 950), DEFAULT.name: recommended, TUNED.name: tuned}

    found = loaded("brute_force").judged(SWEEP, {"cells": cells})

    assert (found["recommended"], found["right"], found["rounds"]) == (DEFAULT.name, right, 3)


def test_the_same_processes_judge_what_is_advised_for_other_numbers_of_executions() -> None:
    """At 100,000 executions and more a start is paid back, and the last step decides."""
    cells = {EAGER.name: measured(0.0, 900, 901, 899), DEFAULT.name: measured(1.0, 100, 101, 99)}

    found = loaded("brute_force").advised(
        SWEEP, {"cells": {**cells, TUNED.name: measured(9.0, 50, 51, 49)}}
    )

    chosen = {n: (each["recommended"], each["fastest"], each["right"]) for n, each in found.items()}
    assert chosen == {
        "1000": (EAGER.name, EAGER.name, True),
        "100000": (DEFAULT.name, DEFAULT.name, True),  # 11 s against 14 s
        # 99 us against 100 us pays 8 s back after 8 million
        "1000000": (DEFAULT.name, TUNED.name, False),
    }


def test_before_three_rounds_of_every_cell_nothing_is_judged() -> None:
    cells = {EAGER.name: measured(0.0, 950, 950, 950), DEFAULT.name: measured(1.0, 100, 100)}

    assert loaded("brute_force").judged(SWEEP, {"cells": cells}) == {}


def test_what_several_cores_measured_is_one_file_and_no_workload_stands_in_two(
    tmp_path: Path,
) -> None:
    late, early = tmp_path / "late.json", tmp_path / "early.json"
    late.write_text(
        json.dumps({"sittings": [{"at": "2026-02"}], "workloads": {"fusion": {"cells": {}}}})
    )
    early.write_text(
        json.dumps({"sittings": [{"at": "2026-01"}], "workloads": {"layers": {"cells": {}}}})
    )
    merged = loaded("brute_force").merged

    found = merged([late, early])

    assert [sitting["at"] for sitting in found["sittings"]] == ["2026-01", "2026-02"]
    assert [*found["workloads"]] == ["fusion", "layers"]
    with pytest.raises(SystemExit, match="fusion"):
        merged([late, early, late])


def test_the_kept_verdicts_of_eight_workloads_are_right() -> None:
    """For the number of executions that was asked for; each by three rounds or more."""
    kept = json.loads((BENCHMARKS / "results" / "brute_force_cpu.json").read_text("utf-8"))[
        "workloads"
    ]

    found = {name: each["found"] for name, each in kept.items()}

    assert len(found) == 8
    assert [name for name, each in found.items() if not each["right"]] == []
    assert [name for name, each in found.items() if each["recommended"] != each["fastest"]] == [
        "scaled-relu"
    ]
    assert min(each["rounds"] for each in found.values()) >= 3
