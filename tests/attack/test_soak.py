"""A process that makes many reports and profiles holds no more after the last than after the
first; profiles that share one compile cache do not disturb each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attack import soak

ROOT = Path(__file__).resolve().parents[2]
MORE_KIB = 8 * 1024  # of memory, from the second on: what an allocator keeps
COMPILED = """\
import torch

@torch.compile
def f(x):
    return (x.sin() + 1).cos()

def step():
    f(torch.ones(16))
"""
AT_ONCE = 4


def is_flat(rows: list[soak.Held]) -> None:
    first, *others = rows[1:] if len(rows) > 2 else rows  # the first one imports
    assert others
    for one in others:
        assert one.descriptors == first.descriptors
        assert one.children == first.children
        assert one.rss_kib <= first.rss_kib + MORE_KIB
    assert {one.temporary for one in rows} == {0}
    assert {one.shared_memory for one in rows} == {rows[0].shared_memory}


def soaked(reports: int, profiles: int, folder: Path) -> None:
    result = folder / "held.json"
    subprocess.run(
        [sys.executable, "-m", "tests.attack.soak", str(reports), str(profiles), result],
        cwd=ROOT,
        check=True,
    )
    found: dict[str, list[soak.Held]] = {"reports": [], "profiles": []}
    for line in result.read_text("utf-8").splitlines():
        name, *values = json.loads(line)
        found[name].append(soak.Held(*values))

    assert {name: len(rows) for name, rows in found.items()} == {
        "reports": reports,
        "profiles": profiles,
    }
    for name, rows in found.items():
        print(name, len(rows), "first", rows[0], "last", rows[-1])  # noqa: T201
        is_flat(rows)


def test_ten_reports_and_two_profiles_leave_nothing(tmp_path: Path) -> None:
    soaked(10, 2, tmp_path)


@pytest.mark.long
def test_200_reports_and_30_profiles_leave_nothing(tmp_path: Path) -> None:
    soaked(200, 30, tmp_path)


def test_what_grows_is_seen() -> None:
    row = soak.Held(rss_kib=60_000, descriptors=7, temporary=0, shared_memory=0, children=0)
    for change in (
        {"rss_kib": 90_000},
        {"descriptors": 8},
        {"temporary": 1},
        {"shared_memory": 1},
        {"children": 1},
    ):
        with pytest.raises(AssertionError):
            is_flat([row, row, soak.Held(**{**vars(row), **change})])


@pytest.mark.long
@pytest.mark.parametrize("again", ["cold", "warm"])
def test_four_profiles_share_one_inductor_cache(again: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(COMPILED, "utf-8")
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "kgprof", "profile", "program.py:step", "-q", "--no-hta"]
    for _ in range(1 + (again == "warm")):
        started = [
            subprocess.Popen(
                [*command, "-o", f"out{number}"],
                cwd=tmp_path,
                env=environment | {"PYTHONPATH": str(ROOT)},
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(AT_ONCE)
        ]
        ended = [(each.communicate()[1], each.returncode) for each in started]
        assert [code for _, code in ended] == [0] * AT_ONCE, ended

    reports = [
        json.loads((tmp_path / f"out{number}" / "report.json").read_text("utf-8"))
        for number in range(AT_ONCE)
    ]
    outcomes = [[run["exit"]["outcome"] for run in report["runs"]] for report in reports]
    rules = [{each["rule"] for each in report["findings"]} for report in reports]
    of_compiling = [{rule for rule in each if rule < "KGP4"} for each in rules]
    assert outcomes == [outcomes[0]] * AT_ONCE
    assert set(outcomes[0]) == {"ok"}
    assert of_compiling == [of_compiling[0]] * AT_ONCE
    assert not list(tmp_path.glob("out*/recording.unfinished"))
