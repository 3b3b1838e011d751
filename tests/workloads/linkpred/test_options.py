"""The options after ``--``: parsed, checked, and refused with one clear error each."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kgprof.errors import EXIT_USAGE, InputError, UsageError
from kgprof.render.html import directory
from kgprof.workloads.linkpred import options
from kgprof.workloads.linkpred.options import LinkpredOptions, help_text, load_graph, parse

KG = Path(str(directory("fixtures"))) / "kg"
DEFAULTS = LinkpredOptions()


def refused(*args: str) -> UsageError:
    with pytest.raises(UsageError) as error:
        parse(args)
    assert error.value.exit_code == EXIT_USAGE
    return error.value


def test_nothing_given_is_the_default_run() -> None:
    assert parse([]) == DEFAULTS
    assert (DEFAULTS.dataset, DEFAULTS.data, DEFAULTS.preset) == ("family-tree", None, "small")
    assert DEFAULTS.depth >= 6


def test_every_option_is_read(tmp_path: Path) -> None:
    policy = tmp_path / "policy.pt"
    policy.touch()
    numbers = {
        "--queries": "7",
        "--corruptions": "all",
        "--depth": "8",
        "--batch-size": "9",
        "--embedding": "10",
        "--hidden": "11",
        "--layers": "12",
        "--max-atoms": "13",
        "--max-children": "14",
        "--children-width": "15",
        "--fact-fanout": "16",
        "--rule-fanout": "17",
        "--choices": "19",
        "--max-steps": "18",
        "--near-tie-threshold": "0.5",
    }
    words = ["--dataset=family-tree:240", "--dtype=float32", "--selection=leftmost", "--allow-tf32"]
    words += ["--layout=transposed", "--compile=engine", "--mark-steps"]
    args = [*words, *(word for pair in numbers.items() for word in pair)]

    assert parse([*args, "--policy", str(policy)]) == LinkpredOptions(
        dataset="family-tree:240",
        queries=7,
        corruptions=None,
        depth=8,
        batch_size=9,
        embedding=10,
        hidden=11,
        layers=12,
        dtype="float32",
        max_atoms=13,
        max_children=14,
        children_width=15,
        fact_fanout=16,
        rule_fanout=17,
        selection="leftmost",
        policy=policy,
        layout="transposed",
        compile="engine",
        choices=19,
        mark_steps=True,
        max_steps=18,
        allow_tf32=True,
        near_tie_threshold=0.5,
    )


def test_preset_seed_is_the_seed_documents_sizes() -> None:
    assert parse(["--preset", "seed"]) == replace(
        DEFAULTS,
        preset="seed",
        embedding=250,
        hidden=256,
        layers=8,
        max_children=120,
        max_atoms=6,
        depth=20,
        batch_size=256,
        dtype="float32",
    )


def test_what_is_given_overrides_the_preset_on_either_side_of_it() -> None:
    assert parse(["--depth", "7", "--preset", "seed"]).depth == 7
    assert parse(["--preset", "seed", "--max-children", "8", "--dtype=float64"]) == replace(
        parse(["--preset", "seed"]), max_children=8, dtype="float64"
    )


def test_a_directory_starts_from_wider_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(KG.parent)

    given = parse(["--data", "kg/places_prolog"])

    assert given == replace(DEFAULTS, data=KG / "places_prolog", max_atoms=6, max_children=32)
    assert parse(["--data", "kg/places_prolog", "--max-children", "5"]).max_children == 5
    assert parse(["--data", "kg/places_prolog", "--preset", "seed"]).max_children == 120


def test_graphs() -> None:
    assert load_graph(replace(DEFAULTS, data=KG / "places_columns"), 0).name == "places_columns"
    assert load_graph(DEFAULTS, 0).name == "family-tree:600"
    assert load_graph(replace(DEFAULTS, dataset="family-tree:130"), 0).name == "family-tree:130"
    with pytest.raises(InputError, match="no such directory"):
        load_graph(parse(["--data", "no/where"]), 0)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--depht", "3"], "no option '--depht'; did you mean '--depth'?"),
        (["--corruption", "3"], "did you mean '--corruptions'?"),
        (["--zzzzzz"], "no option '--zzzzzz'"),
        (["--depth", "0"], "'--depth': '0' is not a whole number from 1"),
        (["--depth", "2.5"], "'--depth': '2.5' is not a whole number"),
        (["--batch-size", "-1"], "'--batch-size': '-1' is not a whole number"),
        (["--max-atoms", "9" * 5000], "'--max-atoms'"),
        (["--queries", "some"], "'--queries': 'some' is not a whole number"),
        (["--corruptions", "0"], "'--corruptions': '0' is not a whole number"),
        (["--depth"], "'--depth' requires an argument"),
        (["--dtype", "float16"], "'float16' is not one of 'float64', 'float32'"),
        (["--selection", "rightmost"], "'rightmost' is not one of"),
        (["--preset", "large"], "'large' is not one of"),
        (["--near-tie-threshold", "wide"], "'wide' is not a valid float"),
        (["--near-tie-threshold", "-1"], "-1.0 must be 0 or more"),
        (["--near-tie-threshold", "nan"], "nan must be 0 or more"),
        (
            ["--max-children", "20", "--children-width", "19"],
            "--children-width 19 is below --max-children 20",
        ),
        (["--dataset", "famly-tree"], "no dataset 'famly-tree'; did you mean 'family-tree'?"),
        (["--dataset", "fb15k"], "no dataset 'fb15k'"),
        (["--dataset", "family-tree:3"], "people from 120 to 20000"),
        (["--dataset", "family-tree:"], "people from 120 to 20000"),
        (["--dataset", "family-tree:" + "9" * 5000], "people from 120 to 20000"),
        (
            ["--dataset", "family-tree", "--data", "there"],
            "--data and --dataset exclude each other",
        ),
        (["--data", ""], "--data is empty"),
        (["stray"], "unexpected extra argument (stray)"),
        (["--policy", "no/file.pt"], "file not found; expected a state_dict"),
        (["--help"], "`kgprof profile linkpred -- --help` prints it"),
        (["--depth", "3", "-h"], "`kgprof profile linkpred -- --help` prints it"),
    ],
)
def test_bad_values_are_refused(args: list[str], said: str) -> None:
    assert said in str(refused(*args))


@pytest.mark.parametrize(
    "args",
    [
        ["--chunk", "5"],
        ["--chunk-size=5"],
        ["--chunk-bytes", "5"],
        ["--checkpoint", "file"],
        ["--checkpoint-every", "5"],
        ["--resume"],
        ["--gpus", "2"],
        ["--tensordict"],
    ],
)
def test_what_comes_later_is_one_clear_error(args: list[str]) -> None:
    error = refused("--depth", "3", *args)

    assert str(error) == f"kgprof profile linkpred has no option {args[0].partition('=')[0]}"
    assert error.hint


def test_help_lists_every_option_with_its_default() -> None:
    text = help_text()

    for field in LinkpredOptions.__dataclass_fields__:
        assert f"--{field.replace('_', '-')} " in text
    assert "Usage: kgprof profile linkpred -- [options]" in text
    assert "[64, preset seed: 250]" in text
    assert "[8, with --data: 32, preset seed: 120]" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= options.HELP_WIDTH


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        ([], "none (float64)"),
        (["--dtype", "float32"], "0.0002"),
        (["--preset", "seed"], "0.0002"),
        (["--dtype", "float32", "--allow-tf32"], "0.01"),
        (["--dtype", "float32", "--allow-tf32", "--near-tie-threshold", "0.5"], "0.5"),
        (["--dtype", "float32", "--near-tie-threshold", "0"], "0.0"),
        (["--allow-tf32", "--near-tie-threshold", "0.5"], "none (float64)"),
    ],
)
def test_the_near_tie_threshold_is_wider_than_the_noise_of_the_products(
    args: list[str], shown: str
) -> None:
    assert parse(args).as_text()["near_tie_threshold"] == shown
    assert "[0.0002, with --allow-tf32: 0.01]" in " ".join(help_text().split())


def test_options_are_shown_as_text() -> None:
    shown = replace(DEFAULTS, corruptions=None).as_text()
    from_data = replace(
        DEFAULTS, data=Path("/data"), dtype="float32", first_look="float16"
    ).as_text()

    assert {**shown, **from_data}.keys() == LinkpredOptions.__dataclass_fields__.keys()
    assert (shown["dataset"], from_data["data"]) == ("family-tree", "/data")
    assert "data" not in shown
    # it changes no result, and older recordings have no such setting
    assert "first_look" not in shown
    assert "dataset" not in from_data
    assert (shown["corruptions"], shown["queries"], shown["fact_fanout"]) == (
        "all",
        "320",
        "from the data",
    )
    assert (shown["policy"], shown["max_steps"], shown["allow_tf32"]) == (
        "seeded random weights",
        "none",
        "False",
    )


def test_reading_options_and_graphs_needs_no_torch() -> None:
    modules = "options, graph, rules, family_tree, sampler, ranking"
    program = (
        f"import sys; sys.modules['torch'] = None; from kgprof.workloads.linkpred import {modules}"
    )

    subprocess.run(
        [sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3], timeout=60
    )


def test_caps_that_drop_nothing_are_asked_for_by_auto() -> None:
    given = parse(["--max-atoms", "auto", "--max-children=auto"])

    assert (given.max_atoms, given.max_children) == (None, None)
    assert given.as_text()["max_atoms"] == "auto"
    assert "--children-width" in refused("--max-children=auto", "--children-width", "9").message
