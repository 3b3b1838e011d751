"""No sentence is read by code: with every sentence of a Recording or a Profile replaced, all else
stays the same.

A sentence becomes another text of another length; equal sentences become equal texts, because a
reason that several runs share is said once. What torch and the workload wrote themselves (records,
logs, source lines) is evidence and stays.
"""

from __future__ import annotations

import ast
import hashlib
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from kgprof.analysis import analyse
from kgprof.compare import compare
from kgprof.document.finding_list import grouped
from kgprof.gate import judge
from kgprof.gate.settings import Configuration, combined
from kgprof.model import Profile, Recording
from kgprof.reading import recordings
from kgprof.render.junit import Junit
from kgprof.render.sarif import Sarif
from tests.regressions.planted import regressions, unchanged

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
# By field, in whatever Struct it stands. Those of EVIDENCE are torch's or the program's own text,
# not kgprof's.
SENTENCES = {
    *(
        "reason",
        "reasons",
        "note",
        "notes",
        "message",
        "detail",
        "why",
        "evidence",
        "text",
        "warnings",
    ),
    *("subject", "missing", "without"),
}
EVIDENCE = {
    *(
        "LogExcerpt.text",
        "Location.text",
        "SourceFile.text",
        "ProjectSource.text",
        "RegistryEntry.text",
        "LogLine.text",
        "Rule.why",
    ),
    *("OfferedFrame.text", "OfferedFrame.why", "SyncRecord.text"),
}


def rewritten(value: Any, write: Callable[[str], str]) -> Any:
    """The same value with each sentence in it replaced by what ``write`` makes of it."""
    if isinstance(value, msgspec.Struct):
        changes = {}
        for name in value.__struct_fields__:
            old = getattr(value, name)
            sentence = name in SENTENCES and f"{type(value).__name__}.{name}" not in EVIDENCE
            new = replaced(old, write) if sentence else rewritten(old, write)
            if new is not old:
                changes[name] = new
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, tuple):
        new_items = tuple(rewritten(item, write) for item in value)
        return (
            new_items if any(a is not b for a, b in zip(value, new_items, strict=True)) else value
        )
    if isinstance(value, dict):
        new_values = {key: rewritten(item, write) for key, item in value.items()}
        return (
            new_values if any(new_values[key] is not item for key, item in value.items()) else value
        )
    return value


def replaced(value: Any, write: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return write(value) if value else value
    if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        return tuple(replaced(item, write) for item in value)
    return rewritten(value, write)


def placeholder(sentence: str) -> str:
    """Another text, of another length; the same for the same sentence."""
    digest = hashlib.sha256(sentence.encode()).hexdigest()[:10]
    return f"placeholder {digest} {'x' * (len(sentence) % 7 + 1)}"


def without_sentences(value: Any) -> Any:
    return rewritten(value, lambda sentence: "")


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    """Recordings that hold findings of many rules, with and without CUDA graphs, whole and cut
    off."""
    named: dict[str, Recording] = {}
    for archive in ("recordings/evaluator_h200.tgz", "recordings/break_even.tgz"):
        for path in sorted(
            unpacked(FIXTURES / archive, tmp_path_factory.mktemp("recorded")).rglob(
                "recording.json"
            )
        ):
            named[f"{archive}:{path.parent.parent.name}"] = recordings.load(path.parent)
    for path in sorted((FIXTURES / "recordings" / "cuda_graphs_h200").rglob("recording.json")):
        named[path.parent.name] = recordings.load(path.parent)
    return named


@pytest.fixture(scope="module")
def profiles(recorded: dict[str, Recording]) -> dict[str, Profile]:
    return {name: analyse(recording) for name, recording in recorded.items()}


def test_a_recordings_sentences_decide_nothing(
    recorded: dict[str, Recording], profiles: dict[str, Profile]
) -> None:
    for name, recording in recorded.items():
        from_placeholders = analyse(rewritten(recording, placeholder))

        assert without_sentences(from_placeholders) == without_sentences(profiles[name]), name


@pytest.mark.parametrize(
    "planted", ["01-queue-head-checked", "05-rounding-by-phase", "13-tally-in-place"]
)
def test_a_profiles_sentences_decide_no_comparison(planted: str, tmp_path: Path) -> None:
    regression = next(each for each in regressions() if each.name == planted)
    archives = (unchanged(regression.setting, 0), regression.recording)
    base, head = (
        analyse(recordings.load(unpacked(archive, tmp_path / str(number)) / "recording"))
        for number, archive in enumerate(archives)
    )

    plain = compare(base, head)
    from_placeholders = compare(rewritten(base, placeholder), rewritten(head, placeholder))

    assert plain.comparison is not None
    assert without_sentences(from_placeholders) == without_sentences(plain)


def test_a_profiles_sentences_decide_no_gate(profiles: dict[str, Profile]) -> None:
    for name, profile in profiles.items():
        settings = combined(Configuration(), None, (), "")

        from_placeholders = judge(rewritten(profile, placeholder), settings)

        assert without_sentences(from_placeholders) == without_sentences(
            judge(profile, settings)
        ), name


def test_a_profiles_sentences_decide_nothing_of_how_it_is_grouped(
    profiles: dict[str, Profile],
) -> None:
    for name, profile in profiles.items():
        other = rewritten(profile, placeholder)

        assert rule_ids(other) == rule_ids(profile), name
        assert cases_of(other) == cases_of(profile), name
        assert group_sizes(other) == group_sizes(profile), name


def rule_ids(profile: Profile) -> list[tuple[str, str]]:
    (run,) = json.loads(Sarif().render(profile))["runs"]
    return [(result["ruleId"], result["level"]) for result in run["results"]]


def cases_of(profile: Profile) -> list[tuple[str, bool]]:
    """Each test case of the JUnit report, and whether it failed."""
    suites = ElementTree.fromstring(Junit().render(profile))
    return [
        (case.get("name", ""), case.find("failure") is not None) for case in suites.iter("testcase")
    ]


def group_sizes(profile: Profile) -> list[tuple[str, int]]:
    return [(group.first.rule, len(group.members)) for group in grouped(profile.findings)]


LONG = 40  # characters, with four blanks: a sentence and no name


def written(path: Path) -> Iterator[str]:
    """The long texts of a module, without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield from (
                part for part in map(str.strip, node.value.splitlines()) if len(part) >= LONG
            )


def test_a_sentence_of_kgprofs_stands_in_one_test_file() -> None:
    """So that it can be improved by changing it, its golden and one test."""
    root = FIXTURES.parent
    own = "\n".join(text for path in (root / "kgprof").rglob("*.py") for text in written(path))
    found: dict[str, set[str]] = {}
    for path in (root / "tests").rglob("test_*.py"):
        for text in written(path):
            if text.count(" ") >= 4 and text in own:
                found.setdefault(text, set()).add(path.name)

    assert len(found) > 50  # it looks where sentences are
    assert {text: files for text, files in found.items() if len(files) > 1} == {}
