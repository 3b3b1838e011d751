"""The rules as a page, and each rule on a real case that it finds beside one that it does not.

A rule's case is a program of the corpus (its recording is kept) or a recording from an H200, named
in tests/contract/rule_cases.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kgprof import cli, collectors
from kgprof.collectors import RULES
from kgprof.model import FindingCost, Level, PassName, Recording, Rule
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from kgprof.render.rules_page import rules_page
from tests.archives import unpacked
from tests.contract.rule_cases import CASES

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "fixtures" / "recordings"
H200 = RECORDINGS / "cuda_graphs_h200"
PAGE = ROOT / "RULES.md"


GRAVITY = (Level.NOTE, Level.WARNING, Level.ERROR)

Load = Callable[[str], Recording]


@pytest.fixture(scope="module")
def load() -> Load:
    """One program's run, of the corpora as torch 2.11 left them or from the H200."""
    kept = [recordings.load(one) for one in sorted(H200.iterdir()) if one.is_dir()]
    for corpus in ("corpus_torch_2.11", "corpus_runtime_h200", "linkpred_h200"):
        kept.append(recordings.load(unpacked(f"{corpus}.tgz")))
    folder = unpacked("gpu_time_h200.tgz")
    kept += [recordings.load(folder / "recording"), recordings.load(folder / "graphs")]
    return lambda name: next(
        msgspec.structs.replace(recording, runs=(run,))
        for recording in kept
        for run in recording.runs
        if name in (run.key.strategy, run.key.slug)
    )


def test_a_remedy_is_read_alone() -> None:
    """It stands as the fix under "What to do next": another rule's id is a hint, no part of the
    sentence."""
    assert [
        rule.id for rule in RULES if re.search(r"\bKGP\d", re.sub(r" \(.*?\)", "", rule.remedy))
    ] == []


def found(recording: Recording) -> dict[str, int]:
    """The gravest level at which each rule is found: 0 for a note, which is told and need be no
    fault."""
    gravest: dict[str, int] = {}
    for finding in collectors.findings(Evidence(recording)):
        gravest[finding.rule] = max(gravest.get(finding.rule, 0), GRAVITY.index(finding.level))
    return gravest


@pytest.mark.parametrize(
    "rule",
    [rule for rule in RULES if rule.id in CASES and CASES[rule.id].dirty],
    ids=lambda rule: rule.id,
)
def test_it_is_found_in_its_dirty_program_and_not_in_its_clean_one(rule: Rule, load: Load) -> None:
    case = CASES[rule.id]

    dirty, clean = found(load(case.dirty)), found(load(case.clean))
    assert rule.id in dirty
    assert clean.get(rule.id, -1) < min(dirty[rule.id], GRAVITY.index(Level.WARNING))


@pytest.mark.parametrize(
    ("rule", "program", "unit", "passes"),
    [
        ("KGP103", "dtype_changes", "s", (PassName.COMPILE,)),
        ("KGP104", "size_changes_every_other_call", "s", (PassName.COMPILE,)),
        ("KGP105", "module_counts_calls", "s", (PassName.COMPILE,)),
        ("KGP201", "read_item", "us/step", (PassName.MEMORY,)),
        ("KGP202", "while_loop_predicate", "us/step", (PassName.MEMORY,)),
        ("KGP305", "replay_copies_input", "us/step", (PassName.TRACE,)),
        ("KGP604", "exact_float32", "us/step", (PassName.TRACE,)),
        ("KGP607", "loaded_in_the_step", "us/step", (PassName.TIMING, PassName.TRACE)),
        ("KGP609", "adamw", "us/step", (PassName.TIMING, PassName.TRACE)),
        ("KGP602", "batched.default", "us/step", (PassName.TIMING, PassName.TRACE)),
    ],
)
def test_what_it_costs_was_measured_in_a_pass_of_the_recording(
    rule: str, program: str, unit: str, passes: tuple[PassName, ...], load: Load
) -> None:
    (cost,) = {
        finding.cost
        for finding in collectors.findings(Evidence(load(program)))
        if finding.rule == rule
    }

    assert isinstance(cost, FindingCost), cost
    assert (cost.unit, cost.measured_in) == (unit, passes)
    assert cost.value > 0
    assert cost.samples > 0


# ---------------------------------------------------------------- what a rule states


@pytest.mark.parametrize("fact", ["topic", "seen_in", "can_cost"])
def test_a_rule_that_does_not_state_a_fact_does_not_load(fact: str) -> None:
    stated = msgspec.structs.asdict(RULES[0])
    assert Rule(**stated) == RULES[0]

    del stated[fact]
    with pytest.raises(TypeError, match=fact):
        Rule(**stated)


def test_a_symptom_is_of_rules_that_there_are_and_not_of_itself() -> None:
    ids = {rule.id for rule in RULES}

    for rule in RULES:
        assert set(rule.symptom_of) <= ids - {rule.id}
        assert not (rule.symptom_of and rule.can_cost), "a symptom is the reason of nothing"


def literals(text: str) -> list[str]:
    """Texts with the id of a rule in them: but for docstrings, and for a rule's own definition."""
    tree = ast.parse(text)
    free = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("m.Rule", "Rule"):
            free |= {id(keyword.value) for keyword in node.keywords if keyword.arg == "id"}
    texts = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return [
        node.value for node in texts if id(node) not in free and re.search(r"\bKGP\d", node.value)
    ]


def test_no_rule_is_named_by_a_literal() -> None:
    """Elsewhere its facts decide, or the Rule itself is imported."""
    package = Path(collectors.__file__).parents[1]
    found = {
        path.name: texts
        for path in package.rglob("*.py")
        if (texts := literals(path.read_text("utf-8")))
    }

    assert found == {}
    assert literals(
        '"""KGP101 is a docstring."""\nR = m.Rule(id="KGP101", why=f"As KGP201: {x}")\nS = '
        '("KGP3",)'
    ) == [
        "KGP3",
        "As KGP201: ",
    ]


# ---------------------------------------------------------------- the page


def test_the_page_is_what_todays_code_makes() -> None:
    """After a change of a rule: kgprof explain --format markdown > RULES.md"""
    assert PAGE.read_text(encoding="utf-8") == rules_page(RULES)


def test_the_command_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "--format", "markdown"]) == 0
    assert capsys.readouterr().out == rules_page(RULES)


def test_each_rule_has_a_section_that_its_row_links_to() -> None:
    page = rules_page(RULES)
    for rule in RULES:
        assert f"(#{rule.id.lower()}-{rule.name})" in page
        assert page.count(f"\n## {rule.id} {rule.name}\n") == 1, rule.id


def test_a_single_rule_is_no_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "KGP101", "--format", "markdown"]) == 2
    assert "prints every rule" in capsys.readouterr().err


def test_an_example_shows_where_the_tensor_that_it_returns_comes_from() -> None:
    for rule in RULES:
        for found in re.finditer(r"return ([a-z][\w.]*\w|[a-z])", rule.example):
            name = re.sub(r"\.(view|t)$", "", found[1])
            before = rule.example[: found.start()]

            assert re.search(rf"\b{re.escape(name)}\b", before), (rule.id, found[0])
