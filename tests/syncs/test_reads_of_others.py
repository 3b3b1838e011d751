"""Programs that read tensors as others write them: which lines of a CPU run would wait on a GPU,
and how often.

Their truth is a comment at each line (README.md beside this file).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from kgprof import model as m
from kgprof.analysis import analyse
from kgprof.collectors.time import syncs
from kgprof.reading import recordings
from kgprof.reading.evidence import Evidence
from tests.record.scripted import ran

HERE = Path(__file__).resolve().parent
PROGRAMS = sorted((HERE / "programs").glob("*.py"))
MARK = re.compile(
    r"  # (?P<cause>[a-z-]+) (?P<events>\d+) in (?P<steps>\d+)(?: at (?P<package>\w+))?$"
)


@dataclass(frozen=True, kw_only=True, order=True)
class Read:
    line: int
    cause: str
    events: int
    in_steps: int
    package: str  # whose line reads, where it is not the program's


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment") / "site-packages"
    shutil.copytree(HERE / "installed", folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def recorded(
    name: str, installed: Path, folder: Path, passes: tuple[m.PassName, ...] = (m.PassName.MEMORY,)
) -> Path:
    text = (HERE / "programs" / f"{name}.py").read_text(encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(installed))
        done = ran(folder, text, passes=(m.PassName.COMPILE, *passes))
    assert done.exit.outcome == "ok", done.run.log
    return done.folder


@pytest.fixture(scope="module")
def once(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The Recording of a program, made when it is first asked for."""
    return cache(lambda name: recorded(name, installed, tmp_path_factory.mktemp(name)))


def marked(path: Path) -> list[Read]:
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    found = ((number, MARK.search(line)) for number, line in lines)
    return [
        Read(
            line=number,
            cause=mark["cause"],
            events=int(mark["events"]),
            in_steps=int(mark["steps"]),
            package=mark["package"] or "",
        )
        for number, mark in found
        if mark
    ]


def found_in(folder: Path) -> list[Read]:
    return sorted(
        Read(
            line=event.location.line,
            cause=event.cause,
            events=event.events,
            in_steps=event.calls,
            package=event.library.package if event.library else "",
        )
        for event in syncs.collect(Evidence(recordings.load(folder)))
    )


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_lines_that_would_wait_on_a_gpu_are_found_and_no_other(
    path: Path, once: Callable[[str], Path]
) -> None:
    assert found_in(once(path.stem)) == marked(path)


def test_a_read_in_a_library_names_its_line_and_the_way_there(once: Callable[[str], Path]) -> None:
    profile = analyse(recordings.load(once("graph_attention")))

    (found,) = [one for one in profile.findings if one.library is not None]
    assert found.location is not None
    assert (found.rule, found.location.line, found.location.function) == (
        "KGP201",
        21,
        "Model.forward",
    )
    assert found.library == m.PackageLine(
        package="geometrics",
        version="0.9.4",
        file="utils/_softmax.py",
        line=6,
        function="softmax",
        text="int(index.max())",
    )
    assert found.reads == m.Reads(
        operator="aten::_local_scalar_dense",
        events=8,
        in_steps=8,
        steps=8,
        chain=(
            m.PackageLine(
                package="geometrics",
                version="0.9.4",
                file="nn/attention.py",
                line=13,
                function="forward",
            ),
        ),
        cause="item",
    )


def test_with_the_profiler_on_for_some_steps_the_same_lines_are_found(
    installed: Path, tmp_path: Path
) -> None:
    folder = recorded("meter", installed, tmp_path, passes=(m.PassName.MEMORY, m.PassName.TRACE))

    assert found_in(folder) == marked(HERE / "programs" / "meter.py")
