"""Which rules a clean report may say it looked for."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.collectors import RULES
from kgprof.model import CompileSummary, Evaluation, Profile, RunAgreement, ScriptRun, Skipped, Unavailable, Witness
from kgprof.render import by_name
from kgprof.render.rules_page import checked_rules
from tests.render import profiles

NOT_THERE = Skipped(reason="a TORCH_TRACE directory does not contain it")
UNSEEN = ("frame hook", "graph hook", "cuda graph log", "torch logs")


# Every way of being seen; a rule that comes later is seen in one of these, or its own test says in what.
NUMBERS = (*range(101, 108), *range(201, 204), *range(301, 306), *range(401, 407), *range(501, 505), *range(601, 604))
KNOWN = tuple(rule for rule in RULES if rule.id in {f"KGP{number}" for number in NUMBERS})


def without_findings(**fields: object) -> Profile:
    """One run in which everything but COMPILE is missing, with every rule of this version."""
    profile = profiles.clean()
    compiled = CompileSummary(
        first_call_s=NOT_THERE, steady=NOT_THERE, compilations=(), capture_unavailable=fields.pop("lost", ())
    )
    nothing = dict.fromkeys(("step", "evaluation", "agreement", "kernels", "memory"), NOT_THERE)
    bare = msgspec.structs.replace(profile.runs[0], **{**nothing, "compile": compiled, "script": None, **fields})
    return msgspec.structs.replace(profile, runs=(bare,), findings=(), rules=KNOWN, device="cpu", gate=None)


def ids(profile: Profile) -> list[str]:
    return [rule.id for rule in checked_rules(profile)]


def test_a_rule_that_only_the_profile_knows_is_looked_for_where_it_says() -> None:
    stranger = msgspec.structs.replace(RULES[0], id="KGP999", seen_in=((Witness.CUDA, Witness.COMPILE),))
    on_cpu = msgspec.structs.replace(without_findings(), rules=(stranger,))

    assert ids(on_cpu) == []
    assert ids(msgspec.structs.replace(on_cpu, device="cuda")) == ["KGP999"]


def test_a_trace_directory_shows_what_torch_writes_and_no_more() -> None:
    directory = ScriptRun(step="", steps=0, counted={})
    lost = tuple(Unavailable(capture=name, why=NOT_THERE.reason) for name in UNSEEN)

    traced = without_findings(script=directory, lost=lost)

    assert ids(traced) == ["KGP101", "KGP102", "KGP103", "KGP104", "KGP106", "KGP107", "KGP504"]
    checked = "rules checked: KGP101, KGP102, KGP103, KGP104, KGP106, KGP107, KGP504)."
    assert checked in by_name("markdown").render(traced)


@pytest.mark.parametrize(
    ("device", "seen"),
    [("cpu", {"KGP301"}), ("cuda", {"KGP301", "KGP302", "KGP304"})],
)
def test_compile_alone_sees_no_read_no_address_and_no_result(device: str, seen: set[str]) -> None:
    compiled = msgspec.structs.replace(without_findings(), device=device)

    of_compilation = {f"KGP10{n}" for n in range(1, 8)}
    assert set(ids(compiled)) == {*of_compilation, *seen, "KGP406", "KGP503", "KGP504"}


def test_a_script_is_not_looked_at_for_where_its_tensors_lie() -> None:
    seen = profiles.watched().runs[0].memory
    script = ScriptRun(step="a step of the optimizer", steps=4, counted={"a step of the optimizer": 4})
    step, program = without_findings(memory=seen), without_findings(memory=seen, script=script)

    assert set(ids(step)) - set(ids(program)) == {"KGP305", *(f"KGP40{n}" for n in range(1, 6))}
    assert {"KGP201", "KGP202", "KGP203"} <= set(ids(program))


def test_results_are_looked_at_where_they_were_compared() -> None:
    run = profiles.clean().runs[0]
    assert isinstance(run.agreement, RunAgreement)
    assert isinstance(run.evaluation, Evaluation)

    compared = without_findings(agreement=run.agreement, evaluation=run.evaluation)

    assert set(ids(compared)) - set(ids(without_findings())) == {"KGP501", "KGP502"}


def test_what_was_found_was_looked_for() -> None:
    found = msgspec.structs.replace(profiles.findings(), rules=RULES)

    assert {finding.rule for finding in found.findings} <= set(ids(found))
