"""How long an answer takes: a workload under two trees of kgprof, or programs under kgprof and
without it.

    python benchmarks/time_to_answer.py trees BEFORE AFTER --turns 3 -- profile linkpred
    python benchmarks/time_to_answer.py scripts      # those of tests/programs/scripts that run here
    python benchmarks/time_to_answer.py scripts SCRIPT.py --passes compile,memory,trace -- ARGS
    python benchmarks/time_to_answer.py phases -- profile linkpred --strategy fused
    python benchmarks/time_to_answer.py starts -- profile my_model.py:step
    python benchmarks/time_to_answer.py table        # the scripts' results as Markdown

Wall seconds are from start to end. CPU seconds are user and system time of the command and of
everything that it started, orphans included: this process adopts and awaits them. On a busy machine
CPU seconds can be trusted and wall seconds cannot. OMP_NUM_THREADS=1 for both sides: a thread of
OpenMP spins while it waits for one without a core.

``trees``: a turn is one run of each, and the order changes from turn to turn. Each tree runs with
its own .venv/bin/python. ``scripts``: `python X` with private, cold caches of Inductor and Triton,
then `kgprof profile X` on caches as cold, with the passes that a program of less than a minute has
by default: they are named, because on a busy machine it takes longer. After each turn or program
the results are written, and a later call of ``scripts`` leaves out what stands there. ``phases``:
where one command's seconds go, by child process and what it said it was doing; a line is written
when a phase ends, so that a run that is stopped has its table up to there. ``starts``: which
children were forked from a process that has imported torch, and their seconds from their start
until they are prepared (not of those that run two at a time); then the same command with new
processes only.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.metadata
import json
import multiprocessing
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from msgspec.structs import replace

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
PASSES = ("--passes", "compile,memory,trace,timing")
WALL, CPU = "wall_s", "cpu_s"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    trees = verbs.add_parser("trees")
    trees.add_argument("before", type=Path)
    trees.add_argument("after", type=Path)
    trees.add_argument("--turns", type=int, default=3)
    trees.add_argument("-o", "--output", type=Path, default=RESULTS / "time_to_answer.json")
    trees.add_argument("command", nargs="+", help="of kgprof, without its output folder")
    for verb in ("scripts", "table"):
        scripts = verbs.add_parser(verb)
        scripts.add_argument("names", nargs="*", help="and paths of other programs")
        scripts.add_argument("--passes", default=PASSES[1])
        scripts.add_argument("-o", "--output", type=Path, default=RESULTS / "script_cost.json")
    phases = verbs.add_parser("phases")
    phases.add_argument("command", nargs="+", help="of kgprof")
    starts = verbs.add_parser("starts")
    starts.add_argument("-o", "--output", type=Path, default=RESULTS / "starts.json")
    starts.add_argument("command", nargs="+", help="of kgprof, without its output folder")
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given and given[0] == "scripts" else len(given)
    asked, arguments = parser.parse_args(given[:cut]), given[cut + 1 :]
    if asked.verb == "phases":
        sys.exit(where_it_goes(asked.command))
    if asked.verb == "starts":
        compare_starts(asked.command, asked.output)
        return
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if asked.verb == "trees":
        compare_trees(asked.before, asked.after, asked.turns, asked.command, asked.output)
    elif asked.verb == "scripts":
        compare_scripts(asked.names, asked.output, asked.passes, arguments)
    print(table(json.loads(asked.output.read_text("utf-8"))))


def compare_trees(
    before: Path, after: Path, turns: int, command: Sequence[str], output: Path
) -> None:
    found: dict[str, Any] = {**conditions(), "command": ["kgprof", *command], "trees": {}}
    for name, tree in (("before", before), ("after", after)):
        commit = subprocess.run(
            ["git", "-C", tree, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
        found["trees"][name] = {"commit": commit.stdout.strip(), "runs": []}
    for turn in range(turns):
        for name, tree in [("before", before), ("after", after)][:: -1 if turn % 2 else 1]:
            with tempfile.TemporaryDirectory() as folder:
                python = str(tree.resolve() / ".venv" / "bin" / "python")
                spent = run(
                    [python, "-m", "kgprof", *command, "-o", f"{folder}/out"], tree, ENVIRONMENT
                )
                timed = Path(folder).glob("out/recording/runs/*/timing.json")
                evaluations = {
                    path.parent.name: json.loads(path.read_text("utf-8")) for path in timed
                }
            spent["evaluations"] = {
                name: len(one.get("evaluation_s", ())) for name, one in evaluations.items()
            }
            found["trees"][name]["runs"].append(spent)
            print(
                f"{name} {spent[WALL]:.0f} s, {spent[CPU]:.0f} CPU s", file=sys.stderr, flush=True
            )
            output.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def compare_scripts(
    names: Sequence[str], output: Path, passes: str, arguments: Sequence[str]
) -> None:
    sys.path.insert(0, str(ROOT))
    from tests.programs.run import missing
    from tests.programs.truth import programs

    found = (
        json.loads(output.read_text("utf-8"))
        if output.is_file()
        else {**conditions(), "command": ["kgprof", "profile", "X", *PASSES], "programs": {}}
    )
    paths = [Path(name).resolve() for name in names if name.endswith(".py")]
    own = (
        []
        if paths
        else [
            one.path for one in programs() if not missing(one) and (not names or one.name in names)
        ]
    )
    for program in (*own, *paths):
        one = found["programs"].setdefault(program.stem, {})
        if passes != PASSES[1] or arguments:
            one["command"] = [
                "kgprof",
                "profile",
                program.name,
                "--passes",
                passes,
                "--",
                *arguments,
            ]
        with tempfile.TemporaryDirectory() as folder:
            caches = {
                "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
                "TRITON_CACHE_DIR": f"{folder}/triton",
            }
            path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
            environment = {**ENVIRONMENT, "PYTHONPATH": path}
            if "plain" not in one:
                plain = [sys.executable, str(program), *arguments]
                one["plain"] = run(plain, Path(folder), {**environment, **caches})
            if "kgprof" not in one:
                command = [
                    sys.executable,
                    "-m",
                    "kgprof",
                    "profile",
                    str(program),
                    "--passes",
                    passes,
                ]
                one["kgprof"] = run(
                    [*command, "-o", f"{folder}/out", "--", *arguments], Path(folder), environment
                )
        output.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        print(program.stem, one, file=sys.stderr, flush=True)


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    before, began = _cpu_of_children(), time.monotonic()
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("KGPROF_") and key != "CI"
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    wall_s = time.monotonic() - began
    while True:
        try:
            os.waitpid(-1, 0)  # orphans
        except ChildProcessError:
            break
    return {
        WALL: round(wall_s, 2),
        CPU: round(_cpu_of_children() - before, 2),
        "exit_code": done.returncode,
    }


def where_it_goes(command: Sequence[str]) -> int:
    """kgprof runs in this process, which hears of each phase what the user would see; its exit
    code."""
    os.environ.update(ENVIRONMENT)
    sys.path.insert(0, str(ROOT))
    from kgprof.cli import main as kgprof
    from kgprof.record.processes import children

    original, original_beside = children.run, children.run_beside
    now, began, since = "kgprof", _cpu_of_tree(), time.monotonic()

    def enters(phase: str) -> None:
        nonlocal now, began, since
        spent, at = _cpu_of_tree(), time.monotonic()
        print(f"| {now} | {at - since:.1f} | {spent - began:.1f} |", file=sys.stderr, flush=True)
        now, began, since = phase, spent, at

    def watched(given: children.Start, **settings: Any) -> Any:
        job = given.job
        whose = job.task.value if job.key is None else f"{job.key.slug}: {job.task.value}"
        enters(f"{whose}: start, imports")

        def heard(name: str) -> None:
            enters(f"{whose}: {name}")
            given.on_phase(name)

        ended = original(replace(given, on_phase=heard), **settings)
        enters("kgprof")
        return ended

    def watched_beside(starts: Any) -> Any:
        enters(f"{len(starts)} children, two at a time")
        ended = original_beside(starts)
        enters("kgprof")
        return ended

    children.run, children.run_beside = watched, watched_beside
    print("| child, phase | wall s | CPU s |\n|---|---|---|", file=sys.stderr)
    sys.argv[1:] = command
    try:
        kgprof()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    finally:
        enters("")


def compare_starts(command: Sequence[str], output: Path) -> None:
    """Each way in a process of its own, as kgprof is one."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    found: dict[str, Any] = {**conditions(), "gpu": gpu, "command": ["kgprof", *command]}
    for way in ("forked", "new"):
        with (
            multiprocessing.get_context("spawn").Pool(1) as pool,
            tempfile.TemporaryDirectory() as folder,
        ):
            found[way] = pool.apply(
                starts_of_children, ((*command, "-o", f"{folder}/out"), way == "forked")
            )
        output.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        print(way, json.dumps(found[way]), flush=True)


def starts_of_children(command: Sequence[str], may_fork: bool) -> dict[str, Any]:
    os.environ.update(ENVIRONMENT)
    sys.path.insert(0, str(ROOT))
    from kgprof.cli import main as kgprof
    from kgprof.record.processes import children, fork_server

    began, cpu, found = time.monotonic(), _cpu_of_tree(), []
    run, forked = children.run, fork_server.forked
    code: Any = None

    def watched_run(given: children.Start, **settings: Any) -> Any:
        job, spent, at = given.job, _cpu_of_tree(), time.monotonic()
        child = {
            "child": job.task.value if job.key is None else f"{job.key.slug}: {job.task.value}",
            "forked": False,
        }
        found.append(child)

        def heard(name: str) -> None:
            if name not in ("plan", "prepare") and WALL not in child:
                child[WALL], child[CPU] = (
                    round(time.monotonic() - at, 2),
                    round(_cpu_of_tree() - spent, 2),
                )
            given.on_phase(name)

        return run(replace(given, on_phase=heard), **settings)

    def watched_forked(*given: Any) -> Any:
        made = forked(*given)
        found[-1]["forked"] = made is not None
        return made

    sys.argv[1:] = command
    ways = () if may_fork else (mock.patch.object(children, "FORKED", ()),)
    patches = (
        mock.patch.object(children, "run", watched_run),
        mock.patch.object(fork_server, "forked", watched_forked),
    )
    with contextlib.ExitStack() as stack:
        for patch in (*ways, *patches):
            stack.enter_context(patch)
        try:
            kgprof()
        except SystemExit as ended:
            code = ended.code
    spent_s = {WALL: round(time.monotonic() - began, 2), CPU: round(_cpu_of_tree() - cpu, 2)}
    return {"exit_code": code, **spent_s, "children": found}


def _cpu_of_tree() -> float:
    """Of this process, of what it started and is still there, and of what either has awaited."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = stat.read_text("utf-8", "replace").rpartition(")")[2].split()
            # proc(5): parent, times
            found[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    tree = {os.getpid()}
    while more := {pid for pid, (parent, _) in found.items() if parent in tree} - tree:
        tree |= more
    return sum(found[pid][1] for pid in tree) / os.sysconf("SC_CLK_TCK")


def _cpu_of_children() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def conditions() -> dict[str, Any]:
    return {
        "torch": importlib.metadata.version("torch"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "environment": ENVIRONMENT,
        "load_average": os.getloadavg(),
    }


def table(found: Mapping[str, Any]) -> str:
    if "programs" in found:
        rows = [
            (name, one["plain"][CPU], one["kgprof"][CPU])
            for name, one in sorted(found["programs"].items())
        ]
        lines = [
            f"| {name} | {plain:.0f} | {kgprof:.0f} | {kgprof / plain:.1f} |"
            for name, plain, kgprof in rows
        ]
        return "\n".join(
            (
                "| program | python, CPU s | kgprof profile, CPU s | ratio |",
                "|---|---|---|---|",
                *lines,
            )
        )
    lines = ["| | commit | median | range | runs |", "|---|---|---|---|---|"]
    for quantity, unit in ((WALL, "wall s"), (CPU, "CPU s")):
        medians = {}
        for name, tree in found["trees"].items():
            values = [one[quantity] for one in tree["runs"]]
            if values:
                medians[name] = statistics.median(values)
                spread = f"{min(values):.0f} to {max(values):.0f}"
                lines.append(
                    f"| {name}, {unit} | {tree['commit'][:7]} | {medians[name]:.0f} | {spread} | "
                    f"{len(values)} |"
                )
        if len(medians) == len(found["trees"]):
            lines.append(f"| ratio of {unit} | | {medians['after'] / medians['before']:.2f} | | |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
