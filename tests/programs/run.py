"""Runs programs of scripts/ through kgprof, as their owners would, and says how far it is from the
truth.

python -m tests.programs.run FOLDER [NAME ...]         # a table of precision and recall by family, and of the advice
python -m tests.programs.run FOLDER --again            # of what already lies in FOLDER
"""  # noqa: E501

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kgprof import gate
from kgprof import model as m
from kgprof.analysis import analyse
from kgprof.gate.settings import Configuration, combined
from kgprof.reading import layout, recordings
from kgprof.record.ground import store
from kgprof.record.ground.job import Job, Task
from kgprof.record.processes import children
from kgprof.record.processes.children import Caches
from tests.programs import advice, found
from tests.programs.truth import Program, programs
from tests.record import one_server
from tests.record.handmade import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
KEY = m.RunKey(strategy="program", mode="as-is")
WATCHED = (m.PassName.COMPILE, m.PassName.MEMORY, m.PassName.TRACE)  # as a script is by default
VISION = Path(sys.prefix) / "vision" / "site-packages"  # see scripts/cpu_torchvision.py
FAMILIES = ("breaks", "recompiles", "syncs")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What kgprof says of one program."""

    exit_code: int
    profile: m.Profile  # judged by the default gate
    recording: m.Recording
    screen: str

    @property
    def gate(self) -> str:
        return {0: "pass", 1: "fail"}.get(self.profile.exit_code, "error")

    def scores(self, program: Program) -> dict[str, found.Score]:
        findings = self.profile.findings
        return {
            "breaks": found.breaks(program, findings),
            "recompiles": found.recompiled(program, self.recording, findings),
            "syncs": found.read(program, findings),
        }


def missing(program: Program) -> tuple[str, ...]:
    """The packages that the program needs and that are not installed."""
    return tuple(
        name
        for name in program.needs
        if importlib.util.find_spec(name) is None and not (VISION / name / "__init__.py").is_file()
    )


def profiled(program: Program, folder: Path, *arguments: str) -> Answer:
    """A whole run, with the settings that nobody chose unless ``arguments`` do."""
    command = [
        sys.executable,
        "-m",
        "kgprof",
        "profile",
        str(program.path),
        "-o",
        str(folder),
        *arguments,
    ]
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("KGPROF_") and key != "CI"
    }
    environment = {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    folder.with_suffix(".screen").write_text(done.stdout + done.stderr, "utf-8")
    folder.with_suffix(".code").write_text(f"{done.returncode}\n", "utf-8")
    assert (folder / "report.json").is_file(), done.stderr
    return read(folder)


def watched(program: Program, folder: Path) -> Answer:
    """The same without the command line: the program in its child, analysed here. It costs half the
    processor time."""
    options = m.Options(workload=str(program.path), passes=WATCHED, timeout_s=300.0)
    header = m.RecordingHeader(
        schema_version=m.RECORDING_SCHEMA_VERSION,
        created_utc="2026-01-02T03:04:05+00:00",
        command=("kgprof",),
        options=options,
        plan=m.Plan(
            workload=options.workload,
            strategies=(m.StrategyPlan(name=KEY.strategy, modes=(KEY.mode,)),),
            runs=(KEY,),
            baseline=None,
            device="cpu",
            environment=ENVIRONMENT,
            vector_isa_probe_s=m.Skipped(reason="not probed"),
            agreement=False,
        ),
    )
    recording = folder / layout.FOLDER
    store.create(recording, header)
    job = Job(
        task=Task.SCRIPT,
        options=options,
        parent_pid=os.getpid(),
        recording=str(recording),
        key=KEY,
        plan=header.plan,
    )
    log = layout.run_folder(recording, KEY) / layout.LOG
    printed: list[bytes] = []
    given = children.Start(
        job=job, scratch=folder, log=log, caches=Caches(folder=folder / "caches")
    )
    with one_server.imports_shared():
        ended = children.run(given, echo=printed.append)
    store.write_exit(recording, KEY, ended.exit)
    return _answer(
        recordings.load(recording), ended.exit.exit_code or 0, b"".join(printed).decode()
    )


def read(folder: Path) -> Answer:
    code = int(folder.with_suffix(".code").read_text("utf-8"))
    screen = folder.with_suffix(".screen").read_text("utf-8")
    return _answer(recordings.load(folder), code, screen)


def _answer(recording: m.Recording, exit_code: int, screen: str) -> Answer:
    profile = gate.judge(analyse(recording), combined(Configuration()))
    return Answer(exit_code=exit_code, profile=profile, recording=recording, screen=screen)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.run")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--details", action="store_true")
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    chosen = [
        one
        for one in programs()
        if (not asked.names or one.name in asked.names) and not missing(one)
    ]
    if asked.again:
        chosen = [one for one in chosen if (asked.folder / f"{one.name}.code").is_file()]
    right, truths, findings = (
        dict.fromkeys(FAMILIES, 0),
        dict.fromkeys(FAMILIES, 0),
        dict.fromkeys(FAMILIES, 0),
    )
    advised: Counter[str] = Counter()
    print("| program | gate | breaks | recompiles | syncs | advice |\n|---|---|---|---|---|---|")
    for program in chosen:
        folder = asked.folder / program.name
        answer = read(folder) if asked.again else profiled(program, folder)
        scores = answer.scores(program)
        cells = [
            f"{s.right} right, {len(s.missed)} missed, {len(s.wrong)} wrong"
            for s in scores.values()
        ]
        verdict = (
            answer.gate if answer.gate == program.gate else f"{answer.gate}, not {program.gate}"
        )
        given = advice.given(answer.profile.findings)
        advised += given
        print(
            f"| {program.name} | {verdict} | {' | '.join(cells)} | {advice.words(given)} |",
            flush=True,
        )
        for family, score in scores.items():
            right[family] += score.right
            truths[family] += score.right + len(score.missed)
            findings[family] += score.right + len(score.wrong)
            if asked.details:
                print("".join(f"    missed {text}\n" for text in score.missed), end="")
                print("".join(f"    wrong {text}\n" for text in score.wrong), end="")
    for family in FAMILIES:
        print(
            f"{family}: precision {right[family]} of {findings[family]}, recall {right[family]} of "
            f"{truths[family]}"
        )
    print(f"advice: {advice.words(advised)}")


if __name__ == "__main__":
    main(sys.argv[1:])
