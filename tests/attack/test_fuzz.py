"""Readers of files that others made, under coverage-guided fuzzing. What it has found is kept in
fuzz/corpus, and read again in each run of the tests."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attack.fuzz import corpus_files, mutations, readers

ROOT = Path(__file__).resolve().parents[2]
SEED = 20261130
SECONDS = 600  # of all groups together
EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


@pytest.mark.parametrize("name", sorted(readers.READERS))
def test_kept_inputs_and_some_changes_of_them_end_well(name: str) -> None:
    kept = [data for _, data in corpus_files.inputs([name])]
    draw = random.Random(SEED)
    changed = (mutations.mutated(draw.choice(kept), draw, corpus_files.LARGEST) for _ in range(8))

    for data in (*kept, *changed):
        readers.ends_well(name, data, rarely=True)


def test_every_reader_is_in_one_group_and_the_corpus_stays_small() -> None:
    grouped = [name for names in corpus_files.GROUPS.values() for name in names]
    sizes = [len(data) for _, data in corpus_files.inputs(grouped)]

    assert sorted(grouped) == sorted(readers.READERS)
    assert sum(sizes) <= corpus_files.MOST_BYTES
    assert max(sizes) <= corpus_files.LARGEST


def test_the_corpus_names_no_folder_of_whom_it_was_made_by() -> None:
    grouped = [name for names in corpus_files.GROUPS.values() for name in names]
    own = re.compile(rb"/work/|/root/|" + re.escape(bytes(ROOT)))

    assert [name for name, data in corpus_files.inputs(grouped) if own.search(data)] == []
    assert corpus_files.neutral(b"x" + bytes(ROOT) + b"/tests") == b"x/home/project/tests"


@pytest.mark.long
@pytest.mark.parametrize("group", corpus_files.GROUPS)
def test_ten_minutes_of_fuzzing_find_no_fault(group: str, tmp_path: Path) -> None:
    seconds = os.environ.get("KGPROF_FUZZ_SECONDS") or SECONDS // len(corpus_files.GROUPS)
    done = subprocess.run(
        [sys.executable, "-m", "tests.attack.fuzz.run", group, str(seconds), tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )

    crashes = [(path.name, path.read_bytes()[:2000]) for path in tmp_path.glob("crash-*")]
    assert done.returncode == 0, (crashes, done.stderr[-3000:])
    executed = EXECUTED.search(done.stderr)
    assert executed
    print(f"{group}: {executed[1]} inputs in {seconds} s, 0 faults")  # noqa: T201
