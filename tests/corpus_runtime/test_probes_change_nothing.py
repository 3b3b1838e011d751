"""Over the whole of both corpora: the same outputs, the same graphs and the same compilations with
the probes of MEMORY and without. What the two runs are is told in outcomes.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.corpus import truth as compile_corpus
from tests.corpus_runtime import outcomes
from tests.corpus_runtime import truth as runtime_corpus
from tests.corpus_runtime.outcomes import Outcome

ROOT = Path(__file__).resolve().parents[2]
SEEN = Outcome(outputs=("0a",), graphs=2, operators=9, compilations=("f.py:3 f 9",))


def outcome_of_all(folder: Path, *options: str) -> dict[str, Outcome]:
    file = folder / "outcomes.json"
    command = [sys.executable, "-m", "tests.corpus_runtime.outcomes", str(file), *options]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=500, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return outcomes.read(file)


def test_the_probes_change_nothing_in_every_sixteenth_program(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    names = [case.path.stem for case in outcomes.cases("cpu")][::16]
    bare = outcome_of_all(tmp_path_factory.mktemp("bare"), *names)
    probed = outcome_of_all(tmp_path_factory.mktemp("probed"), "--probes", *names)

    assert len(bare) >= len(names) > 10
    assert outcomes.compare(bare, probed) == []


@pytest.mark.long
def test_the_probes_change_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    bare = outcome_of_all(tmp_path_factory.mktemp("bare"))
    probed = outcome_of_all(tmp_path_factory.mktemp("probed"), "--probes")

    here = [program for program in runtime_corpus.programs() if program.runs_on("cpu")]
    assert len(bare) == len(compile_corpus.programs()) + len(here)
    assert sum(outcome.graphs for outcome in bare.values()) > len(compile_corpus.programs())
    assert sum(len(outcome.compilations) for outcome in bare.values()) > len(
        compile_corpus.programs()
    )
    assert outcomes.compare(bare, probed) == []


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"outputs": ("0b",)}, "a: outputs: ('0a',) without the probes, ('0b',) with them"),
        ({"graphs": 3}, "a: graphs: 2 without the probes, 3 with them"),
        ({"operators": 8}, "a: operators: 9 without the probes, 8 with them"),
        ({"compilations": ()}, "a: compilations: ('f.py:3 f 9',) without the probes, () with them"),
    ],
)
def test_each_difference_is_told(changed: dict[str, object], line: str) -> None:
    assert outcomes.compare({"a": SEEN}, {"a": msgspec.structs.replace(SEEN, **changed)}) == [line]


def test_a_program_that_is_missing_is_told() -> None:
    assert outcomes.compare({"a": SEEN}, {}) == ["a: only in one of the two"]
