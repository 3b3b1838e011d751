"""Small programs as somebody else writes them, some of them around an installed library: sites,
causes and functions.

The truth is truth.toml, which was written down from torch's own logs before kgprof was run on any
of these.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kgprof import model as m
from kgprof.analysis import analyse
from kgprof.collectors.compile import recompiles
from kgprof.gate import judge
from kgprof.gate.settings import Configuration, combined
from kgprof.reading import recordings
from tests.record.scripted import ran

HERE = Path(__file__).resolve().parent
TRUTH = tomllib.loads((HERE / "truth.toml").read_text(encoding="utf-8"))
# by the name it is imported by
PACKAGES = {"shelf": ("shelf", "1.4.2"), "formers": ("formers", "4.57")}
RECOMPILES = {rule.id for rule in recompiles.RULES}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two libraries as pip leaves them."""
    folder = tmp_path_factory.mktemp("environment") / "site-packages"
    shutil.copytree(HERE / "installed", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for imported, (name, version) in PACKAGES.items():
        information = folder / f"{name}-{version}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        (information / "top_level.txt").write_text(f"{imported}\n")
    return folder


@pytest.fixture(scope="module", params=sorted(TRUTH))
def judged(
    request: pytest.FixtureRequest, installed: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, m.Profile]:
    """The program's name, and its Profile as check-graphs judges it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(installed))
        text = (HERE / "programs" / f"{request.param}.py").read_text(encoding="utf-8")
        done = ran(tmp_path_factory.mktemp(request.param), text, passes=(m.PassName.COMPILE,))
    assert done.exit.outcome == "ok", done.run.log
    profile = analyse(recordings.load(done.folder))
    return request.param, judge(profile, combined(Configuration(), None, (), ""))


def test_each_site_and_cause_is_a_finding_of_its_own(judged: tuple[str, m.Profile]) -> None:
    name, profile = judged
    actual = []
    for finding in profile.findings:
        if finding.refusal is not None and finding.location is not None:
            refusal, library = finding.refusal, finding.library
            site: dict[str, Any] = {"rule": finding.rule, "line": finding.location.line}
            if library is not None:
                site["library"] = f"{library} {library.function}"
            site |= {
                "operator": refusal.cause.operator,
                "gb": refusal.cause.gb_id,
                "records": finding.count,
            }
            actual.append(site)

    assert in_order(actual) == in_order(TRUTH[name].get("sites", []))


def test_each_function_that_recompiled_is_named(judged: tuple[str, m.Profile]) -> None:
    name, profile = judged
    (run,) = profile.runs
    assert isinstance(run.compile, m.CompileSummary)
    assert not isinstance(run.compile.recompiles, m.Skipped)
    actual = []
    for function, entries in grouped(run.compile.recompiles).items():
        place, library = entries[0].location, entries[0].library
        assert place is not None
        found: dict[str, Any] = {"function": function, "line": place.line, "times": len(entries)}
        if library is not None:
            found["library"] = str(library).rpartition(":")[0]
        found["guards"] = sorted({entry.guard for entry in entries})
        failing = (
            [profile.findings[index] for index in profile.gate.failing] if profile.gate else []
        )
        found["fails"] = any(
            f.rule in RECOMPILES and (f.location, f.library) == (place, library) for f in failing
        )
        actual.append(found)

    assert in_order(actual) == in_order(TRUTH[name].get("recompiled", []))


def grouped(entries: tuple[m.RecompileEntry, ...]) -> dict[str, list[m.RecompileEntry]]:
    by_function: dict[str, list[m.RecompileEntry]] = {}
    for entry in entries:
        by_function.setdefault(entry.function, []).append(entry)
    return by_function


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((dict(sorted(each.items())) for each in found), key=str)


def test_a_budget_counts_sites(judged: tuple[str, m.Profile]) -> None:
    name, profile = judged
    assert profile.gate is not None
    counted = {budget.metric: budget.observed for budget in profile.gate.budgets}

    for metric, rule in (("graph-breaks", "KGP101"), ("skipped-frames", "KGP102")):
        assert counted[metric] == sum(site["rule"] == rule for site in TRUTH[name].get("sites", []))


def test_every_finding_has_a_fingerprint_of_its_own(judged: tuple[str, m.Profile]) -> None:
    _, profile = judged
    fingerprints = [finding.fingerprint for finding in profile.findings if finding.rule != "KGP504"]

    assert len(set(fingerprints)) == len(fingerprints)
