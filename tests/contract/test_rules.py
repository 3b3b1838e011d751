"""The rules as a page, and each rule on a real case that it finds beside one that it does not.

A rule's case is a program of the corpus (its recording is kept), a recording from an H200, or, where none is kept, the
Recording written by hand of tests/contract/test_collectors.py.
"""

from __future__ import annotations

import ast
import re
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from kgprof import cli, collectors
from kgprof.collectors import RULES
from kgprof.model import FindingCost, Level, PassName, Recording, Rule
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from kgprof.render.carried import FACTS
from kgprof.render.rules_page import rules_page
from tests.contract.test_collectors import CLEAN, DIRTY

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "fixtures" / "recordings"
H200 = RECORDINGS / "cuda_graphs_h200"
PAGE = ROOT / "RULES.md"


@dataclass(frozen=True, kw_only=True)
class Case:
    """Programs of either corpus, runs of cuda_graphs_h200, or "strategy.mode" of linkpred_h200; both empty: written."""

    dirty: str = ""
    clean: str = ""


WRITTEN = Case()
CASES: dict[str, Case] = {
    "KGP101": Case(dirty="print_between_ops", clean="print_when_not_compiling"),
    "KGP102": Case(dirty="break_in_loop", clean="two_breaks"),
    "KGP103": Case(dirty="dtype_changes", clean="two_equal_models"),
    "KGP104": Case(dirty="size_changes_every_other_call", clean="size_dynamic"),
    "KGP105": Case(dirty="module_counts_calls", clean="size_changes_every_other_call"),
    "KGP106": Case(dirty="cond", clean="normalised"),
    "KGP107": Case(dirty="fullgraph_refused", clean="break_in_loop"),
    "KGP201": Case(dirty="read_item", clean="shape_questions"),
    "KGP202": Case(dirty="cond_predicate", clean="where_in_compiled"),
    "KGP203": WRITTEN,
    "KGP301": Case(dirty="buffer_written", clean="normalised"),
    "KGP302": Case(dirty="scalar_on_cpu", clean="normalised"),
    "KGP303": Case(dirty="cond", clean="normalised"),
    "KGP304": Case(dirty="parameter_moved", clean="normalised"),
    "KGP305": Case(dirty="replay_copies_input", clean="replay_of_static_input"),
    "KGP401": Case(dirty="loop_carried_state", clean="view_made_anew"),
    "KGP402": Case(dirty="returns_view_of_input", clean="same_shape_output"),
    "KGP403": Case(dirty="result_and_its_view", clean="halves_of_result"),
    "KGP404": Case(dirty="argument_assigned_by_index", clean="locals_written"),
    "KGP405": Case(dirty="inputs_overlap", clean="rows_interleaved"),
    "KGP406": Case(dirty="cond_returns_operand", clean="cond_returns_clones"),
    "KGP501": WRITTEN,
    "KGP502": WRITTEN,
    "KGP503": WRITTEN,
    "KGP504": WRITTEN,
    "KGP601": Case(dirty="item_read", clean="normalised"),
    "KGP602": Case(dirty="batched.default", clean="batched.reduce-overhead"),
    "KGP603": WRITTEN,
}

GRAVITY = (Level.NOTE, Level.WARNING, Level.ERROR)

Load = Callable[[str], Recording]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """One program's run, of the corpora as torch 2.11 left them or from the H200."""
    kept = [recordings.load(one) for one in sorted(H200.iterdir()) if one.is_dir()]
    for corpus in ("corpus_torch_2.11", "corpus_runtime_h200", "linkpred_h200"):
        folder = tmp_path_factory.mktemp("corpus")
        with tarfile.open(RECORDINGS / f"{corpus}.tgz") as archive:
            archive.extractall(folder, filter="data")
        kept.append(recordings.load(folder))
    return lambda name: next(
        msgspec.structs.replace(recording, runs=(run,))
        for recording in kept
        for run in recording.runs
        if name in (run.key.strategy, run.key.slug)
    )


def found(recording: Recording) -> dict[str, int]:
    """The gravest level at which each rule is found: 0 for a note, which is told and need be no fault."""
    gravest: dict[str, int] = {}
    for finding in collectors.findings(Evidence(recording)):
        gravest[finding.rule] = max(gravest.get(finding.rule, 0), GRAVITY.index(finding.level))
    return gravest


def test_every_rule_has_its_case() -> None:
    """A new rule: name its programs here, or say WRITTEN and write its Recording in test_collectors.DIRTY."""
    assert set(CASES) == {rule.id for rule in RULES}


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if CASES.get(rule.id, WRITTEN).dirty], ids=lambda rule: rule.id
)
def test_it_is_found_in_its_dirty_program_and_not_in_its_clean_one(rule: Rule, load: Load) -> None:
    case = CASES[rule.id]

    dirty, clean = found(load(case.dirty)), found(load(case.clean))
    assert rule.id in dirty
    assert clean.get(rule.id, -1) < min(dirty[rule.id], GRAVITY.index(Level.WARNING))


@pytest.mark.parametrize("rule", [rule for rule in RULES if CASES.get(rule.id) is WRITTEN], ids=lambda rule: rule.id)
def test_it_is_found_in_its_written_recording_and_not_in_the_clean_one(rule: Rule) -> None:
    assert rule.id in {finding.rule for finding in collectors.findings(Evidence(DIRTY[rule.id]))}
    assert rule.id not in {finding.rule for finding in collectors.findings(Evidence(CLEAN))}


@pytest.mark.parametrize(
    ("rule", "program", "unit", "passes"),
    [
        ("KGP103", "dtype_changes", "s", (PassName.COMPILE,)),
        ("KGP104", "size_changes_every_other_call", "s", (PassName.COMPILE,)),
        ("KGP105", "module_counts_calls", "s", (PassName.COMPILE,)),
        ("KGP201", "read_item", "us/step", (PassName.MEMORY,)),
        ("KGP202", "while_loop_predicate", "us/step", (PassName.MEMORY,)),
        ("KGP305", "replay_copies_input", "us/step", (PassName.TRACE,)),
        ("KGP602", "batched.default", "us/step", (PassName.TIMING, PassName.TRACE)),
    ],
)
def test_what_it_costs_was_measured_in_a_pass_of_the_recording(
    rule: str, program: str, unit: str, passes: tuple[PassName, ...], load: Load
) -> None:
    (cost,) = {finding.cost for finding in collectors.findings(Evidence(load(program))) if finding.rule == rule}

    assert isinstance(cost, FindingCost), cost
    assert (cost.unit, cost.measured_in) == (unit, passes)
    assert cost.value > 0
    assert cost.samples > 0


# ---------------------------------------------------------------- what a rule states


@pytest.mark.parametrize("fact", FACTS)
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
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [node.value for node in texts if id(node) not in free and re.search(r"\bKGP\d", node.value)]


def test_no_rule_is_named_by_a_literal() -> None:
    """Elsewhere its facts decide, or the Rule itself is imported."""
    package = Path(collectors.__file__).parents[1]
    found = {path.name: texts for path in package.rglob("*.py") if (texts := literals(path.read_text("utf-8")))}

    assert found == {}
    assert literals('"""KGP101 is a docstring."""\nR = m.Rule(id="KGP101", why=f"As KGP201: {x}")\nS = ("KGP3",)') == [
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


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_each_rule_has_a_section_that_its_row_links_to(rule: Rule) -> None:
    page = rules_page(RULES)

    assert f"(#{rule.id.lower()}-{rule.name})" in page
    assert page.count(f"\n## {rule.id} {rule.name}\n") == 1


def test_a_single_rule_is_no_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explain", "KGP101", "--format", "markdown"]) == 2
    assert "page of every rule" in capsys.readouterr().err
