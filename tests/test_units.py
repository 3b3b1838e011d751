"""A user's own unit of work, from the workload to every report."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kgprof.analysis import analyse
from kgprof.model import Evaluation, Profile, Spread, WorkUnit
from kgprof.reading import recordings
from kgprof.render import by_name
from tests import commands

ROOT = Path(__file__).resolve().parent.parent
TOKENS = ROOT / "fixtures" / "workloads" / "tokens.py"
FOR_PEOPLE = ("html", "markdown", "text")


def kgprof(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return commands.run(*args, cwd=cwd, environment=commands.without_settings())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a step of 4,096 tokens, and one of a whole job."""
    made = tmp_path_factory.mktemp("tokens")
    quick = ("--mode", "eager", "--steps", "5", "--passes", "compile,timing")
    for name, workload in (("base", "step"), ("job", "job")):
        done = kgprof("profile", f"{TOKENS}:{workload}", *quick, "-o", name, cwd=made)
        assert done.returncode == 0, done.stderr
    return made


def profile_of(folder: Path, name: str) -> Profile:
    return analyse(recordings.load(folder / name))


@pytest.mark.long
def test_a_step_of_so_many_tokens_has_the_time_of_a_token(folder: Path) -> None:
    (run,) = profile_of(folder, "base").runs

    assert run.unit == WorkUnit(name="token", plural="tokens", per_step=4096)
    assert isinstance(run.step, Spread)
    assert isinstance(run.per_unit, Spread)
    assert isinstance(run.throughput, Spread)
    assert (run.per_unit.unit, run.throughput.unit) == ("ms/token", "tokens/s")
    assert run.per_unit.median == pytest.approx(run.step.median / 1000 / 4096)
    assert run.throughput.median == pytest.approx(4096e6 / run.step.median)
    assert run.throughput.maximum == pytest.approx(1000 / run.per_unit.minimum)


def test_a_whole_job_says_how_many_it_was_and_how_good(folder: Path) -> None:
    (run,) = profile_of(folder, "job").runs

    assert isinstance(run.evaluation, Evaluation)
    assert isinstance(run.evaluation_time, Spread)
    assert isinstance(run.per_unit, Spread)
    assert (run.evaluation.units, run.evaluation.steps) == (1000, 4)
    # s for 1,000 are ms for one
    assert run.per_unit.median == pytest.approx(run.evaluation_time.median)
    (accuracy,) = run.evaluation.metrics
    assert (accuracy.label, accuracy.value, accuracy.unit, accuracy.better) == (
        "accuracy",
        91.0,
        "%",
        "higher",
    )


@pytest.mark.parametrize("name", ["base", "job"])
@pytest.mark.parametrize("form", FOR_PEOPLE)
def test_every_table_of_runs_has_the_users_unit(name: str, form: str, folder: Path) -> None:
    shown = by_name(form).render(profile_of(folder, name))

    assert "ms/token" in shown
    assert "tokens/s" in shown
    assert ("accuracy" in shown, "91.0 %" in shown) == (name == "job", name == "job")


def test_a_comparison_and_its_json_have_it_too(folder: Path) -> None:
    forms = (*FOR_PEOPLE, "json")

    done = kgprof(
        *("compare", "base", "base", "--max-regression", "unit=1000%"),
        *(word for form in forms for word in ("--format", f"{form}=compared.{form}")),
        cwd=folder,
    )

    assert done.returncode == 6, done.stderr  # one process a side settles nothing
    written = {form: (folder / f"compared.{form}").read_text("utf-8") for form in forms}
    for text in written.values():
        assert "ms/token" in text
        assert "tokens/s" in text
    (run,) = json.loads(written["json"])["comparison"]["runs"]
    (metric,) = [metric for metric in run["metrics"] if metric["time_of"] == "unit"]
    assert (metric["name"], metric["rate"], metric["decides"]) == ("ms/token", "tokens/s", True)


def test_a_number_of_units_that_is_none_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("unit = 'token'\nunits_per_step = 0\ndef step(): ...\n")

    done = kgprof("profile", "bad.py:step", "--mode", "eager", cwd=tmp_path)

    assert done.returncode == 2
    assert "units_per_step must be a whole number" in done.stderr
