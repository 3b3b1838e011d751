"""For a change of kgprof's code that must change no figure: every Profile before and after it, and
what one costs.

    python benchmarks/same_profiles.py write BEFORE --tree ../base   a checkout of the commit before
    python benchmarks/same_profiles.py write AFTER
    python benchmarks/same_profiles.py diff BEFORE AFTER --allow named.txt
    python benchmarks/same_profiles.py speed ../base .

``write`` asks a tree's command line for the JSON Profile of all that fixtures hold: Recordings,
planted regressions and pairs without a change, TORCH_TRACE directories, the traces in those
Recordings; and, under ``shared/``, of those in ../shared, which is not committed. They are copied
to one folder for every tree, so that the paths in a Profile are the same; where kgprof makes a
Recording first, the time of day is dropped. ``diff`` names a place by its keys, with ``*`` for an
index and for a key that is no plain word. A line of the allow file is a place and, behind ``#``,
why it may differ; exit code 0: nothing else does. ``speed`` times `kgprof report` on the
evaluator's Recording, in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import itertools
import json
import multiprocessing
import os
import re
import runpy
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
WORK = Path(tempfile.gettempdir()) / "kgprof-same-profiles"
INPUTS, MADE = Path("inputs"), Path("made")  # in WORK, which becomes the working directory
# the unchanged evaluator on several GPUs of one host, as if they were ranks of one job
RANKS = Path("ranks")
ABSENT = object()
# the name of the Profile's file, and the command line that makes it
Job = tuple[str, tuple[str, ...]]


def main() -> int:
    if sys.argv[1:2] == ["run"]:  # a sample of speed
        with contextlib.redirect_stdout(sys.stderr):
            return enter(Path(sys.argv[2]))(sys.argv[3:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    writing, differing, timing = (verbs.add_parser(name) for name in ("write", "diff", "speed"))
    writing.add_argument("out", type=Path)
    writing.add_argument(
        "--tree",
        type=Path,
        default=HERE,
        help="whose kgprof writes; the fixtures are those of here",
    )
    writing.add_argument("--processes", type=int, default=1)
    differing.add_argument("folders", type=Path, nargs=2, metavar="FOLDER")
    differing.add_argument("--allow", type=Path)
    timing.add_argument("trees", type=Path, nargs=2, metavar="TREE")
    timing.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    if asked.verb == "write":
        return write(asked.out.resolve(), asked.tree.resolve(), asked.processes)
    return (
        diff(asked.folders, asked.allow)
        if asked.verb == "diff"
        else speed(asked.trees, asked.repeats)
    )


def write(out: Path, tree: Path, processes: int) -> int:
    """A Profile that cannot be made is a file that says why, and the exit code is 1."""
    if any(out.glob("*")):
        raise SystemExit(f"{out} is not empty")
    WORK.mkdir(exist_ok=True)
    os.chdir(WORK)
    # until the process ends: a second one waits for the folder
    fcntl.flock(os.open(".", os.O_RDONLY), fcntl.LOCK_EX)
    # or this file does not lie in a tree
    todo = [*jobs(HERE if (HERE / "fixtures").is_dir() else tree)]
    making = functools.partial(make, enter(tree), out)
    failed, began = 0, time.monotonic()
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for number, (name, wrong) in enumerate(pool.imap_unordered(making, todo), start=1):
            failed += bool(wrong)
            if wrong or number % 20 == 0 or number == len(todo):
                print(
                    f"{time.monotonic() - began:.1f} s  {number} of {len(todo)}  {name} {wrong}",
                    file=sys.stderr,
                )
    print(
        f"{len(todo) - failed} Profiles of {tree} are in {out}; {failed} could not be made",
        file=sys.stderr,
    )
    return 1 if failed else 0


def copy_inputs(tree: Path) -> None:
    for folder in (INPUTS / "shared", RANKS, MADE):
        shutil.rmtree(folder.parts[0], ignore_errors=True)
        folder.mkdir(parents=True)
    shutil.copytree(tree / "fixtures", INPUTS, dirs_exist_ok=True)
    for archive in sorted(INPUTS.rglob("*.tgz")):
        shutil.unpack_archive(archive, archive.with_suffix(""), filter="data")
    for trace in (tree.parent / "shared" / "traces" / "h200").glob("*.json.gz"):
        shutil.copyfile(trace, INPUTS / "shared" / trace.name)
    for rank, trace in enumerate(
        sorted(INPUTS.glob("regressions/unchanged/fused.default.*cuda*_0/**/trace.json.gz"))
    ):
        shutil.copyfile(trace, RANKS / f"rank_{rank}.json.gz")


def jobs(tree: Path) -> Iterator[Job]:
    """No recording is listed by name; which is compared with which, the tests know."""
    copy_inputs(tree)
    for header in sorted(INPUTS.rglob("recording.json")):
        yield (
            f"report/{header.parent.relative_to(INPUTS)}",
            ("report", str(header.parent), "--no-hta"),
        )
    regressions, planted = (
        INPUTS / "regressions",
        runpy.run_path(str(tree / "tests" / "regressions" / "planted.py")),
    )
    unchanged: Callable[..., Path] = planted["unchanged"]
    heads = sorted(regressions.glob("*/recording"))
    pairs = [
        (unchanged(planted["SETTING_OF"][head.parent.name[:2]], 0).stem, head, False)
        for head in heads
    ]
    for pair in planted["NO_CHANGE"]:
        head = regressions / "unchanged" / unchanged(*pair.head).stem
        pairs.append((unchanged(*pair.base).stem, head, pair.allow_different_environment))
    for name, head, allow in pairs:
        base, place = regressions / "unchanged" / name, f"{name}/{head.relative_to(regressions)}"
        yield (
            f"compare/{place}",
            ("compare", str(base), str(head), *["--allow-different-environment"] * allow),
        )
        before, after = (
            [str(trace) for trace in side.rglob("trace.json.gz")] for side in (base, head)
        )
        if before and after:
            yield f"against/{place}", ("trace", *after, "--against", *before, "-q", "--no-hta")
    for folder in sorted({log.parent for log in (INPUTS / "torch_trace").rglob("*.log.gz")}):
        for number, verb in enumerate(
            (("report",), ("check-graphs",), ("check-graphs", "--max", "graph-breaks=1"))
        ):
            yield f"torch_trace/{folder.name}/{number}", (*verb, "--torch-trace", str(folder))
    for trace in (RANKS, *sorted(INPUTS.rglob("*.json.gz"))):
        place = str(trace).removeprefix(f"{INPUTS}/").removesuffix(".json.gz")
        yield (
            place if place.startswith("shared/") else f"trace/{place}",
            ("trace", str(trace), "-q", "--no-hta"),
        )


def enter(tree: Path) -> Callable[[list[str]], int]:
    """The command line of ``tree``, whichever kgprof is installed; the environment has no say in
    it."""
    for name in [name for name in os.environ if name.startswith(("KGPROF_", "GITHUB_", "CI"))]:
        del os.environ[name]
    sys.path.insert(0, str(tree))
    # its templates
    sys.meta_path[:] = [one for one in sys.meta_path if "__editable___kgprof" not in str(one)]
    from kgprof import cli

    if not Path(cli.__file__).is_relative_to(tree):
        raise SystemExit(f"{tree} holds no kgprof: {cli.__file__} was imported")
    return cli.run


def make(run: Callable[[list[str]], int], out: Path, job: Job) -> tuple[str, str]:
    """The job's name, and what went wrong with it."""
    name, arguments = job
    made, kept = MADE / f"{name}.json", out / f"{name}.json"
    # a Recording, which keeps its command
    records = arguments[0] == "trace" or "--torch-trace" in arguments
    sys.argv = [
        "kgprof",
        *arguments,
        *("-o", str(MADE / name)) * records,
        "--no-ci",
        "--format",
        f"json={made}",
    ]
    with (
        tempfile.TemporaryFile("w+") as said,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        code = run(sys.argv[1:])
        said.seek(0)
        wrong = "" if made.is_file() else f"exit code {code}: {said.read()}"
        text = json.dumps({"not_made": wrong}) if wrong else made.read_text(encoding="utf-8")
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(
        re.sub('("created_utc": *)"[^"]*"', r'\1""', text, count=1) if records else text,
        encoding="utf-8",
    )
    shutil.rmtree(MADE / name, ignore_errors=True)
    return name, wrong


def diff(folders: Sequence[Path], allow: Path | None) -> int:
    text = allow.read_text(encoding="utf-8") if allow else ""
    # no reason: it is not named
    named = dict(re.findall(r"^([^#\s][^#\n]*?) *# *(\S.*)$", text, re.MULTILINE))
    names = sorted(
        {path.relative_to(folder) for folder in folders for path in folder.rglob("*.json")}
    )
    # by kind and place: in which files, and one example of each
    found: dict[tuple[str, str], dict[Path, str]] = {}
    for name in names:
        sides = (
            json.loads(path.read_bytes()) if (path := top / name).is_file() else ABSENT
            for top in folders
        )
        for kind, place, example in differences(next(sides), next(sides), ""):
            found.setdefault((kind, place), {}).setdefault(name, f"{name}: {example}")
    for (kind, place), where in sorted(found.items(), key=lambda one: (one[0][1] in named, one[0])):
        title = f"named changes, {kind}" if place in named else kind
        print(
            f"{title}: {place}  in {len(where)} files  {named.get(place, '')}\n    "
            f"{next(iter(where.values()))}"
        )
    unnamed, unmet = (
        {place for _, place in found} - named.keys(),
        named.keys() - {place for _, place in found},
    )
    print(
        f"{len(names)} Profiles: {len(unnamed)} places differ and are not named; named and not "
        f"met: {sorted(unmet)}"
    )
    return 1 if unnamed or not names else 0


def differences(before: Any, after: Any, place: str) -> Iterator[tuple[str, str, str]]:
    """Kind, place and example. Of lists of two lengths what is the same at their ends is left out
    first."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            deeper = f"{place}.{key if key.isidentifier() else '*'}".removeprefix(".")
            yield from differences(before.get(key, ABSENT), after.get(key, ABSENT), deeper)
    elif isinstance(before, list) and isinstance(after, list):
        for _ in range(2 if len(before) != len(after) else 0):  # from the start, then from the end
            same = equal_at_start(before, after)
            before, after = before[same:][::-1], after[same:][::-1]
        for one, other in itertools.zip_longest(before, after, fillvalue=ABSENT):
            yield from differences(one, other, f"{place}.*")
    elif before is not after:
        texts = [
            "nothing" if side is ABSENT else json.dumps(side, ensure_ascii=False)
            for side in (before, after)
        ]
        if texts[0] != texts[1]:  # 1, 1.0 and true are three things
            at = max(0, equal_at_start(*texts) - 40)
            kind = "added" if before is ABSENT else "removed" if after is ABSENT else "changed"
            yield (
                kind,
                place or "(the whole file)",
                " -> ".join(text[at : at + 100] for text in texts),
            )


def equal_at_start(one: Sequence[Any], other: Sequence[Any]) -> int:
    unlike = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if repr(a) != repr(b))
    return next(unlike, min(len(one), len(other)))


def speed(trees: Sequence[Path], repeats: int) -> int:
    """Of each tree one sample more than counts, so that both have compiled their modules."""
    taken: list[list[tuple[float, ...]]] = [[], []]
    with tempfile.TemporaryDirectory(prefix="kgprof-speed-") as scratch:
        shutil.unpack_archive(
            trees[0] / "fixtures" / "recordings" / "evaluator_h200.tgz", scratch, filter="data"
        )
        command = (
            "report",
            f"{scratch}/recording",
            "--no-hta",
            "--no-ci",
            "-o",
            f"{scratch}/report",
        )
        for _, (tree, samples) in itertools.product(
            range(repeats + 1), zip(trees, taken, strict=True)
        ):
            arguments = [sys.executable, __file__, "run", str(tree.resolve()), *command]
            began = time.perf_counter()
            _, status, usage = os.wait4(os.spawnv(os.P_NOWAIT, sys.executable, arguments), 0)
            samples.append(
                (
                    time.perf_counter() - began,
                    usage.ru_utime + usage.ru_stime,
                    usage.ru_maxrss * 1024 / 1e6,
                )
            )
            if status:
                raise SystemExit(
                    f"kgprof report of {tree} ended with exit code "
                    f"{os.waitstatus_to_exitcode(status)}"
                )
            print(f"{tree}  {samples[-1]}", file=sys.stderr)
    for at, unit in enumerate(("seconds", "CPU seconds", "peak MB")):
        columns = [[one[at] for one in samples[1:]] for samples in taken]
        for tree, column in zip(trees, columns, strict=True):
            print(
                f"{unit}: median {statistics.median(column):.3f}, {min(column):.3f} to "
                f"{max(column):.3f}  {tree}"
            )
        medians, least = (
            [found(column) for column in columns] for found in (statistics.median, min)
        )
        print(
            f"{unit}: ratio {medians[1] / medians[0]:.3f} of the medians, "
            f"{least[1] / least[0]:.3f} of the minima"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
