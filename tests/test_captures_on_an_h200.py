"""What one H200 gave: the sheet is made from it, and the page of the documentation says the
same."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgprof import model as m
from kgprof.analysis.capture_advice import advise
from kgprof.document.capture_sheet import capture_sheet
from kgprof.model import CaptureOutcome
from kgprof.render import sheet
from tests.gathering import for_all
from tests.lab.test_captures import TRUTH

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "fixtures" / "captures" / "h200"
WORKLOADS = ("silu-mul", "small-ops", "fusion", "seed-s4")


def report(name: str) -> m.CaptureReport:
    return m.decode_json((KEPT / f"{name}.json").read_bytes(), m.CaptureReport)


def outcomes(name: str) -> dict[str, CaptureOutcome]:
    return {result.name: result.outcome for result in report(name).results}


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_sheet_is_made_from_what_was_recorded(name: str) -> None:
    kept = report(name)
    page, text = (form(capture_sheet(kept)) for form in (sheet.html, sheet.text))

    assert isinstance(kept.advice, m.CaptureAdvice)
    for words in (
        "NVIDIA H200",
        "torch 2.11.0+cu130",
        kept.advice.summary,
        *(result.name for result in kept.results),
    ):
        assert words in page
        assert words in " ".join(text.split())


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_recommendation_is_the_one_of_these_rules(name: str) -> None:
    kept = report(name)

    assert kept.advice == advise(kept.results, kept.workload.rpartition(":")[2].replace("-", "_"))


@for_all(sorted(TRUTH))
def test_programs_of_known_outcome_had_it_on_the_card(program: str) -> None:
    (result,) = report(f"program-{program}").results

    assert (result.name, result.outcome) == TRUTH[program]


def test_a_warm_default_compile_was_captured_right_and_modes_with_own_graphs_raised() -> None:
    for name in ("silu-mul", "fusion"):
        assert outcomes(name)["capture-default"] is CaptureOutcome.CORRECT
        assert outcomes(name)["capture-default-cold"] is CaptureOutcome.RAISED
    assert outcomes("seed-s4")["capture-as-is"] is CaptureOutcome.CORRECT
    assert outcomes("seed-s4")["capture-reduce-overhead"] is CaptureOutcome.RAISED
    assert outcomes("silu-mul")["capture-eager-cold"] is CaptureOutcome.RAISED
    hung = [
        name
        for name in WORKLOADS
        for outcome in outcomes(name).values()
        if outcome is CaptureOutcome.HUNG
    ]
    assert hung == []


def test_the_documentation_has_every_recorded_outcome_and_median() -> None:
    text = (ROOT / "docs" / "capture.md").read_text(encoding="utf-8")
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 1 + len(WORKLOADS):
            rows[cells[0]] = dict(zip(WORKLOADS, cells[1:], strict=True))

    for name in WORKLOADS:
        for result in report(name).results:
            call = result.answer.call_us if result.answer is not None else None
            median = f" {call.median:.3g} µs" if isinstance(call, m.Spread) else ""
            assert rows[result.name][name] == f"{result.outcome}{median}", result.name
