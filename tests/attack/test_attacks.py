"""Each family of attacks: a sample in every test run, all of it in ``make test-long``."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.attack import faults, injection, programs, resources, signals
from tests.attack.family import Family, tried

SAMPLES = (
    (injection.FAMILY, 0.05),
    (signals.FAMILY, 0.04),
    (programs.FAMILY, 0.02),
    (resources.FAMILY, 0.04),
    (faults.WRITES, 0.06),
    (faults.RECORDING, 0.02),
    (faults.ALLOCATED, 0.03),
    (faults.CHILD_WRITING, 0.05),
    (faults.CHILD_ALLOCATED, 0.05),
)


def named(value: object) -> str:
    return value.name if isinstance(value, Family) else ""


@pytest.mark.parametrize(
    ("said", "is_one"),
    [
        ("kgprof: error: no room\n", True),
        ("kgprof: error: no room\nkgprof: error: no room\n", False),
        ("kgprof: error: nothing was measured\nkgprof: error: no room\n", True),
        ("Fatal Python error: init_sys_streams\nOSError: [Errno 9]\n", True),
        ('Traceback\n  File "/x/kgprof/cli/verbs.py", line 3, in <module>\nMemoryError\n', True),
        ('Traceback\n  File "/x/kgprof/cli/verbs.py", line 3, in report\nMemoryError\n', False),
        ("kgprof: error: no room\nTraceback\nMemoryError\n", False),
        ("", False),
    ],
)
def test_no_traceback_of_a_line_of_kgprof_s_is_an_error_well_said(said: str, is_one: bool) -> None:
    assert resources.is_one_error(said) == is_one


@pytest.mark.long
def test_a_signal_is_heard_by_what_a_shell_s_background_starts(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        signals.attack(signals.Case(numbers=[signal.SIGINT], to="group", phase="pass"), tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("family", "share"), SAMPLES, ids=named)
def test_a_sample_of_each_family_holds(family: Family, share: float, tmp_path: Path) -> None:
    count, failed = tried(family, tmp_path, share=share)

    assert count
    assert not failed, "\n\n".join(failed)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("family", [family for family, _ in SAMPLES], ids=named)
def test_a_whole_family_holds(family: Family, tmp_path: Path) -> None:
    count, failed = tried(family, tmp_path)

    assert count
    assert not failed, "\n\n".join(failed)
