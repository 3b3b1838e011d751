"""Of the programs whose Recordings are kept: what is found asks for an action, and the healthy ones
pass the gate."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kgprof import collectors, gate
from kgprof import model as m
from kgprof.analysis import analyse
from kgprof.errors import EXIT_OK
from kgprof.gate.settings import Configuration, combined
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from tests.collectors import written_syncs
from tests.corpus import truth as corpus
from tests.programs import live
from tests.programs.advice import given, without_action
from tests.programs.truth import programs

KEPT = Path(__file__).resolve().parents[2] / "fixtures" / "recordings"
CORPUS = "corpus_torch_2.11"
# Others' programs, which tests/programs/test_own.py and test_libraries.py run and judge live each
# time.
HEALTHY_LIVE = (
    *(
        "checkpoint_resume",
        "cleanrl_ppo",
        "compiled_optimizer",
        "evaluate_only",
        "gptfast_generate",
        "hf_generate",
    ),
    *("hf_trainer", "nanogpt_train", "pyg_graph_batches", "pykeen_training", "timm_train"),
    "torchvision_classification",
)
# Programs of fixtures/corpus that carry no mark, as torch 2.11 left them.
HEALTHY_KEPT = (
    *(
        "cond_instead_of_branch",
        "context_manager_traced",
        "dataclass_argument",
        "property_and_methods",
    ),
    *("module_with_submodules", "named_tuple_argument", "numpy_traced", "partial_unchanged"),
    *(
        "print_when_not_compiling",
        "size_marked_dynamic",
        "two_equal_models",
        "where_instead_of_mask",
    ),
)


def _recordings(folder: Path) -> Iterator[m.Recording]:
    for header in sorted(folder.rglob("recording.json")):
        yield recordings.load(header.parent)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    for packed in sorted(KEPT.glob("*.tgz")):
        with tarfile.open(packed) as archive:
            archive.extractall(folder / packed.stem, filter="data")
    return folder


@pytest.fixture(scope="module")
def recorded(unpacked: Path) -> m.Recording:
    (recording,) = _recordings(unpacked / CORPUS)
    return recording


@pytest.mark.parametrize(
    "name", sorted([*(path.stem for path in KEPT.glob("*.tgz")), "cuda_graphs_h200"])
)
def test_every_finding_that_is_no_note_says_what_to_do_and_where(unpacked: Path, name: str) -> None:
    folder = KEPT / name if (KEPT / name).is_dir() else unpacked / name
    found = [
        one for recording in _recordings(folder) for one in collectors.findings(Evidence(recording))
    ]

    assert found
    assert without_action(found) == ()


def test_a_finding_that_lacks_its_operator_or_its_line_is_seen() -> None:
    (read,) = (
        one
        for one in collectors.findings(Evidence(written_syncs.a_read()))
        if one.reads is not None
    )
    unplaced = msgspec.structs.replace(read, location=None, reads=None)

    assert without_action([read]) == ()
    assert without_action([unplaced]) == (
        f"{read.rule} {read.message}: no line of the program, no operator that reads",
    )
    assert without_action([msgspec.structs.replace(unplaced, level=m.Level.NOTE)]) == ()


def test_the_remedy_of_the_rule_is_no_action_in_a_library() -> None:
    (read,) = (
        one
        for one in collectors.findings(Evidence(written_syncs.a_read()))
        if one.reads is not None
    )
    library = m.PackageLine(
        package="shelf", version="1.4.2", file="layers.py", line=12, function="Shelf.forward"
    )
    bare = msgspec.structs.replace(read, library=library)

    assert without_action([bare]) == (
        f"{read.rule} {read.message}: no fix that its owner can write",
    )
    switched = msgspec.structs.replace(bare, fix="Shelf(..., checked=False)")
    note = msgspec.structs.replace(bare, level=m.Level.NOTE, no_fix="shelf has no argument")
    assert without_action([switched, note]) == ()
    counts = {"findings": 4, "with_action": 2, "in_a_library": 1, "notes": 1, "counted": 1}
    assert given([read, bare, switched, note]) == counts
    assert without_action([msgspec.structs.replace(bare, no_fix="shelf has no argument")]) != ()


def test_ten_healthy_programs_of_others_are_judged_live() -> None:
    judged = {program.name for program in programs() if program.gate == "pass"} - live.LONG

    assert set(HEALTHY_LIVE) == judged
    assert len(HEALTHY_LIVE) >= 10


@pytest.mark.parametrize("name", HEALTHY_KEPT)
def test_a_healthy_program_that_was_recorded_passes_the_gate_as_it_is(
    recorded: m.Recording, name: str
) -> None:
    (program,) = (one for one in corpus.programs() if one.name == name)
    runs = tuple(run for run in recorded.runs if run.key.strategy == name)

    profile = gate.judge(
        analyse(msgspec.structs.replace(recorded, runs=runs)), combined(Configuration())
    )

    assert program.marks == ()
    assert (len(runs), profile.exit_code) == (1, EXIT_OK)
    assert without_action(profile.findings) == ()
