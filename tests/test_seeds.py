"""docs/seeds.md and reports/example/seeds.html follow from docs/seeds.toml and the kept results, by
stated rules."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
# Of the list of what the documents hold: what belongs to captures and to the documents' tables, and
# wrong claims.
ROWS = {
    34,
    77,
    78,
    79,
    82,
    84,
    86,
    91,
    109,
    110,
    112,
    116,
    123,
    124,
    128,
    130,
    131,
    132,
    138,
    158,
    159,
    *range(205, 216),
}
ROWS -= {210}
# What belongs to the sweep.
SWEEP_ROWS = {
    *(
        17,
        18,
        19,
        74,
        75,
        76,
        80,
        81,
        83,
        89,
        94,
        96,
        97,
        98,
        99,
        100,
        101,
        102,
        104,
        113,
        114,
        119,
        120,
        121,
        122,
    ),
    *(
        125,
        129,
        133,
        134,
        137,
        139,
        141,
        142,
        143,
        148,
        149,
        150,
        152,
        153,
        154,
        155,
        156,
        157,
        161,
        162,
        164,
        165,
    ),
    *(166, 168, 193, 210),
}
WRONG_CLAIMS = {
    5,
    7,
    8,
    11,
    14,
    25,
    30,
    35,
    40,
    55,
    70,
    88,
    92,
    93,
    95,
    103,
    111,
    126,
    171,
    179,
    187,
}


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where a dataclass looks for its annotations
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def seeds() -> ModuleType:
    return loaded("seeds")


def test_every_row_of_the_sweep_has_a_figure_or_an_answer_whose_pages_and_tests_are_there(
    seeds: ModuleType,
) -> None:
    answers = seeds.read_answers()

    answered = {row for each in (*seeds.read_claims(), *answers) for row in each.rows}
    assert answered >= SWEEP_ROWS
    assert len(SWEEP_ROWS) == 51
    for pointer in (pointer for each in answers for pointer in each.by):
        name, _, test = pointer.partition("::")
        name, _, heading = name.partition("#")
        path = BENCHMARKS.parent / name
        assert path.exists(), pointer
        if test:
            assert f"\ndef {test}(" in path.read_text(encoding="utf-8"), pointer
        if heading:
            assert f"\n## {heading}\n" in path.read_text(encoding="utf-8"), pointer


def test_triton_templates_ran_in_the_recording_that_is_kept() -> None:
    """By max-autotune's own choice: cuBLAS is among the 19 that it timed."""
    kept = json.loads(
        (BENCHMARKS.parent / "fixtures" / "sweeps" / "h100" / "triton-templates.json").read_text(
            "utf-8"
        )
    )
    (run,) = kept["runs"]
    names = {row["name"]: row["count"] for row in run["kernels"]["rows"]}

    assert names["triton_tem_fused_addmm_t_0"] == 19 * run["kernels"]["steps"]
    assert names["triton_tem_fused_addmm_relu_t_2"] == run["kernels"]["steps"]
    assert run["autotuned"][0]["tried"] == 19
    assert not [flag for flag in kept["environment"]["flags"] if "AUTOTUNE" in flag]


def claim(seeds: ModuleType, **fields: Any) -> Any:
    filled = {
        "id": "a",
        "where": "S0",
        "rows": (1,),
        "says": "a",
        "unit": "x",
        "because": "b",
        "ours": "1",
        **fields,
    }
    return seeds.Claim(**filled)


def test_the_pages_are_what_the_claims_and_the_kept_results_give(seeds: ModuleType) -> None:
    outcomes = [seeds.outcome_of(each) for each in seeds.read_claims()]

    made = seeds.pages(outcomes)

    assert list(seeds.unexplained(outcomes)) == []
    for name, path in seeds.PAGES.items():
        assert path.read_text(encoding="utf-8") == made[name], (
            f"python benchmarks/seeds.py makes {path} again"
        )


def test_every_row_of_the_documents_tables_is_there(seeds: ModuleType) -> None:
    claims = seeds.read_claims()

    assert {row for each in claims for row in each.rows} >= ROWS | WRONG_CLAIMS
    assert len({each.id for each in claims}) == len(claims) >= 40
    assert {each.where[:2] for each in claims} == set(seeds.DOCUMENTS)


@pytest.mark.parametrize(
    ("fields", "ours", "status"),
    [
        ({"figure": 2.0}, 2.4, "confirmed"),
        ({"figure": 2.0}, 1.4, "different"),
        ({"figure": 2.0}, 0.9, "refuted"),  # a gain that is a loss
        ({"figure": 2.0, "unit": "ms"}, 0.9, "different"),
        ({"figure": 2.0, "tolerance": 0.5}, 1.4, "confirmed"),
        ({"figure": 3.0, "kind": "fact", "unit": "graphs"}, 2.0, "refuted"),
        ({"figure": 3.0, "kind": "fact", "unit": "graphs"}, 3.0, "confirmed"),
        ({"figure": 100.0, "kind": "arithmetic", "unit": "s"}, 104.0, "confirmed"),
        ({"figure": 100.0, "kind": "arithmetic", "unit": "s"}, 106.0, "refuted"),
        ({"at_least": 5.0, "at_most": 15.0, "unit": "%"}, 16.0, "different"),
        ({"at_least": 5.0, "at_most": 15.0, "unit": "%"}, 15.0, "confirmed"),
        ({"at_least": 1.5, "at_most": 3.0}, 0.9, "refuted"),
        ({"at_least": 1.05}, 1.0, "different"),  # no gain
        ({"at_least": 1.05}, 0.97, "refuted"),
        ({"at_least": 3.0, "unit": "calls"}, 2.0, "refuted"),
        ({"at_most": 312.0, "unit": "TFLOP/s"}, 311.0, "confirmed"),
    ],
)
def test_an_outcome_follows_from_the_figures(
    seeds: ModuleType, fields: dict[str, Any], ours: float, status: str
) -> None:
    assert seeds.status_of(claim(seeds, **fields), ours) == status


def test_a_figure_that_is_not_kept_is_not_measured_and_a_new_outcome_needs_a_new_sentence(
    seeds: ModuleType,
) -> None:
    missing = seeds.outcome_of(
        claim(seeds, figure=1.0, of={"a": "examples:fusion/fusion/nowhere"}, ours="a")
    )
    other = seeds.outcome_of(
        claim(seeds, figure=16.5, ours="8 / 2", kind="arithmetic", status="confirmed")
    )

    assert (missing.status, missing.ours, missing.missing) == ("not measured", None, seeds.NOT_YET)
    assert list(seeds.unexplained([missing, other])) == [
        "a: refuted (4.00\N{MULTIPLICATION SIGN}), explained as confirmed"
    ]


def test_an_item_that_fails_ends_no_other_and_a_later_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, results = loaded("seed_numbers"), tmp_path / "numbers.json"
    arguments = ["seed_numbers.py", "--device", "cpu", "-o", str(results), "ceilings", "tensors"]
    monkeypatch.setattr(sys, "argv", arguments)

    numbers.main()
    first = json.loads(results.read_text())
    monkeypatch.setattr(numbers, "in_a_child", lambda *_: pytest.fail("what is measured is kept"))
    numbers.main()

    failed, whole = first["items"]["ceilings"], first["items"]["tensors"]
    assert "a CPU run has no GPU kernels" in failed["error"]
    assert (whole["error"], whole["figures"]["copy_returns_self"]) == (
        "",
        {"unit": "true", "value": 1},
    )
    assert first["environment"]["torch"] == torch.__version__


def test_the_published_step_is_capped_and_loses_what_lies_behind_its_stale_children() -> None:
    published = loaded("published_v10")
    sizes = [
        "--queries",
        "6",
        "--corruptions",
        "4",
        "--batch-size",
        "8",
        "--depth",
        "6",
        "--dtype",
        "float32",
    ]

    with torch.no_grad():
        found = published.measured(sizes, torch.device("cpu"), ["eager"], None)

    shown, right = found["published"], found["fused.eager"]
    assert shown["steps"] == shown["cap"] == (found["candidates"] // 8 + 2) * 6
    assert shown["finished"] < found["candidates"] == right["finished"]
    assert shown["engine_steps"] < shown["steps"] // 2
    assert shown["proved"] < right["proved"]
