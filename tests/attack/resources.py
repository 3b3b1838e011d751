"""Little memory, few descriptors, no room, strange variables and closed streams: kgprof ends with
a result, or with one error that says what is missing."""

from __future__ import annotations

import os
import random
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.attack.family import Family
from tests.record import handmade

ROOT = Path(__file__).resolve().parents[2]
HANGS_S = 120
ORDINARY = (0, 5)  # the harness of ``profile`` measures nothing
GONE = "/nowhere/at/all"
MEASURED_NOTHING = "kgprof: error: nothing was measured\n"  # of the harness, whatever else ends it
# The function of each of kgprof's lines in a traceback: ``<module>`` while it is imported.
OWN_FRAMES = re.compile(r'File "[^"]*/(?:kgprof|tests)/[^"]*", line \d+, in (\S+)')


def limited(what: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(what, (most, most))


def closed(*descriptors: int) -> Callable[[], None]:
    def close() -> None:
        for one in descriptors:
            os.close(one)

    return close


@dataclass(frozen=True, kw_only=True)
class Case:
    """``before`` is called in the process before it becomes kgprof."""

    name: str
    verb: str
    environment: Mapping[str, str | None] = field(default_factory=dict)
    before: Callable[[], object] = lambda: None
    output: str = ""
    may_fail: bool = False


def surroundings(seed: random.Random) -> Sequence[dict[str, object]]:
    files = [seed.randint(low, 3 * low) for low in (8, 16, 24, 64)]
    memory = [seed.randint(low, 2 * low) for low in (1 << 24, 1 << 27, 1 << 30)]
    failing = {"may_fail": True}
    made: list[dict[str, object]] = [
        *({"before": limited(resource.RLIMIT_NOFILE, most), **failing} for most in files),
        *({"before": limited(resource.RLIMIT_AS, most), **failing} for most in memory),
        *({"before": limited(resource.RLIMIT_FSIZE, size), **failing} for size in (0, 100, 5000)),
        {"before": limited(resource.RLIMIT_STACK, 1 << 18), **failing},
        {"before": limited(resource.RLIMIT_CORE, 0)},
        *(
            {"before": closed(*each)}
            for each in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2), (0, 2))
        ),
        {"output": "/dev/full", **failing},
        {"before": lambda: os.umask(0o777), **failing},
        {"before": lambda: os.umask(0)},
        {"before": lambda: os.nice(10)},
        {"before": os.setsid},
    ]
    variables: Sequence[Mapping[str, str | None]] = (
        {"HOME": None},
        {"HOME": ""},
        {"HOME": GONE},
        {"HOME": "/proc"},
        {"TMPDIR": GONE},
        {"TMPDIR": "with blanks and $x"},
        {"TMPDIR": "/dev/null"},
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"},
        {"LC_ALL": "xx_YY.nonsense"},
        {"PYTHONWARNINGS": "error"},
        {"PYTHONSAFEPATH": "1"},
        {"PYTHONHASHSEED": "7", "PYTHONOPTIMIZE": "2"},
        {"PYTHONIOENCODING": "ascii:strict"},
        {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"},
        {"PATH": ""},
        {"PATH": None},
        {"PATH": GONE},
        {"COLUMNS": "0", "TERM": "dumb"},
        {"COLUMNS": "-5", "LINES": "x", "TERM": ""},
        {"CI": "1", "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": GONE},
        {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": "/dev/full"},
        {"USER": "", "LOGNAME": "\udcff", "HOSTNAME": "a\nb"},
        {"TZ": "nonsense/\udcff", "SOURCE_DATE_EPOCH": "x"},
        {"PYTHONBREAKPOINT": "0", "PYTHONDEVMODE": "1"},
    )
    made += [{"environment": each} for each in variables]
    return made


def cases(seed: random.Random) -> Sequence[Case]:
    made = []
    for number, given in enumerate(surroundings(seed)):
        for verb in ("report run", "profile s.py -o out"):
            made.append(Case(name=f"{number}", verb=verb, **given))  # type: ignore[arg-type]
    return made


def attack(case: Case, folder: Path) -> None:
    handmade.write(folder / "run" / "recording")
    (folder / "s.py").touch()
    (folder / "with blanks and $x").mkdir()
    module = "tests.cli.waiting" if case.verb.startswith("profile") else "kgprof"
    given = {**os.environ, "PYTHONPATH": str(ROOT), **case.environment}
    given = {name: value for name, value in given.items() if value is not None}
    with Path(case.output or folder / "printed").open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", module, *case.verb.split()],
            cwd=folder,
            env=given,
            preexec_fn=case.before,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,  # a file would be as small as any other
            check=False,
            timeout=HANGS_S,
        )
    said = done.stderr.decode("utf-8", "replace")
    if done.returncode in ORDINARY:
        page = folder / case.verb.split()[-1] / "report.html"
        assert page.read_text("utf-8").endswith("</html>\n"), said
        assert "Traceback" not in said, said
        return
    assert case.may_fail, (done.returncode, said)
    assert done.returncode in (1, 2, 3, 4, -11, -6), (done.returncode, said)
    assert is_one_error(said), (done.returncode, said)


def is_one_error(said: str) -> bool:
    """One of kgprof's, or Python's own where it could not even import what it begins with."""
    ours = said.replace(MEASURED_NOTHING, "").count("kgprof: error: ")
    if ours or "Error" not in said:
        return ours == 1 and "Traceback" not in said
    return all(function == "<module>" for function in OWN_FRAMES.findall(said))


FAMILY = Family("resources", cases, attack)
