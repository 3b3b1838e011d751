"""What kgprof and its peers say of the planted faults in fixtures/corpus, held against the marks.

    python benchmarks/diagnostics.py -o benchmarks/results/diagnostics.json

| tool | how it is used | what counts as said |
|---|---|---|
| kgprof | its COMPILE pass over all calls of the program | its findings |
| explain, first call | torch._dynamo.explain on each callable, first arguments | a reason's stack |
| explain, every call | the same in every call; between calls it resets Dynamo | a reason's stack |
| tlparse | on the TORCH_TRACE of all calls | its files: raw.jsonl and what that points at |

A peer is read by somebody who looks for a line of their own: of a stack the innermost line in
fixtures/corpus counts, wherever torch itself put the blame. tlparse says that a frame fell back to
eager where a row of its failures page belongs to a compilation that has a break reason or a line;
it says that a function recompiled where a compilation has a recompile_reasons file, whose function
its compilation_metrics page names, and the guard's text is taken for its class. A recompile that
converged in warm-up is a fact: whoever lists it has invented nothing, whoever leaves it out has
missed nothing. Lines where compilation itself fails (KGP107) are left out.

A tool's own count of breaks is right if it is the number of sites or the number of torch's records
of them; tlparse's "restart(s) and/or compilation failure(s)" may hold functions that reached the
recompile limit besides. explain's is that of the first call; what it counts in every call holds the
same breaks again.

Each program runs under each tool in a process of its own, forked from one that has imported torch,
and is ended after TIME_LIMIT_S. Answers are kept in --answers and used again while the program,
torch and the tool are the same.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the corpus's own truth, which no wheel holds

from tests.corpus.truth import CORPUS, NOTE, RECOMPILES, Mark, Program, programs  # noqa: E402

TIME_LIMIT_S = 120.0
VERSION = 1  # of what an answer holds and how it is got; another one makes old answers unusable
TOOLS = ("kgprof", "explain, first call", "explain, every call", "tlparse")
RESTARTS = re.compile(r"This run had\s+(\d+)")  # on tlparse's index page
FILE_LINE = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)

Place = tuple[str, int]  # file relative to the corpus, line


@dataclass(kw_only=True)
class Answer:
    """What one tool says of one program."""

    # graph breaks, those that cost the frame among them
    breaks: set[Place] = field(default_factory=set)
    # of these: said that the frame fell back to eager
    skipped: set[Place] = field(default_factory=set)
    # line of the def: classes of the guards
    recompiled: dict[Place, set[str]] = field(default_factory=dict)
    other: list[str] = field(default_factory=list)  # what else is reported as a fault
    own_count: int | None = None  # of breaks, as the tool prints it; None: it prints none
    failed: str = ""  # why there is no answer, or none to some of the calls

    def encoded(self) -> dict[str, Any]:
        return {
            "breaks": sorted(self.breaks),
            "skipped": sorted(self.skipped),
            "recompiled": [
                [*place, sorted(kinds)] for place, kinds in sorted(self.recompiled.items())
            ],
            "other": self.other,
            "own_count": self.own_count,
            "failed": self.failed,
        }

    @classmethod
    def decoded(cls, data: dict[str, Any]) -> Answer:
        return cls(
            breaks={(file, line) for file, line in data["breaks"]},
            skipped={(file, line) for file, line in data["skipped"]},
            recompiled={(file, line): set(kinds) for file, line, kinds in data["recompiled"]},
            other=data["other"],
            own_count=data["own_count"],
            failed=data["failed"],
        )


# ----------------------------------------------- the tools, each in a child that torch is loaded in


def ask_kgprof(program: Program) -> Answer:
    from kgprof.reading import recordings
    from tests.corpus import found, record

    with tempfile.TemporaryDirectory() as folder:
        record.record(Path(folder) / "recording", (program,))
        said = found.of_run(recordings.load(Path(folder) / "recording"), record.key_of(program))
    answer = Answer()
    # a note beside a finding says nothing of its guards
    for finding in sorted(said, key=lambda one: one.rule == NOTE):
        place = (finding.path, finding.line)
        if finding.rule in ("KGP101", "KGP102"):
            answer.breaks.add(place)
            answer.skipped |= {place} if finding.rule == "KGP102" else set()
        elif finding.rule in RECOMPILES or finding.rule == NOTE:
            answer.recompiled.setdefault(place, set(finding.guards))
        elif finding.rule != "KGP107":
            answer.other.append(f"{finding.rule} {finding.path}:{finding.line}")
    answer.own_count = len(answer.breaks)
    return answer


def ask_explain(program: Program, *, every_call: bool) -> Answer:
    """The program's own calls of torch.compile give callables that explain themselves and then run
    in eager."""
    import torch

    answer, inside = Answer(), [False]

    def explained(function: Callable[..., Any]) -> Callable[..., Any]:
        calls = [0]

        @functools.wraps(function, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if not inside[0] and (every_call or calls[0] == 1):
                inside[0] = True
                try:
                    said = torch._dynamo.explain(function)(*args, **kwargs)
                    _add_explanation(answer, said, counted=not every_call)
                except Exception as error:  # noqa: BLE001  whatever it is, explain gave no answer
                    answer.failed = (
                        f"{type(error).__name__}: "
                        f"{str(error).splitlines()[0][:120] if str(error) else ''}"
                    )
                finally:
                    inside[0] = False
            return function(*args, **kwargs)

        return call

    def compile(model: Any = None, **_: Any) -> Any:  # noqa: A001  torch's own name
        if model is None:
            return explained
        return (
            _Standing(model, explained(model))
            if isinstance(model, torch.nn.Module)
            else explained(model)
        )

    before, torch.compile = torch.compile, compile
    try:
        _run(program)
    except Exception as error:  # noqa: BLE001  a program that fails without torch.compile
        answer.failed = answer.failed or f"the program raised {type(error).__name__}"
    finally:
        torch.compile = before
    return answer


class _Standing:
    """In a compiled module's place: explains when it is called, and is the module in everything
    else."""

    def __init__(self, module: Any, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "_module", module)
        object.__setattr__(self, "_call", call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)


def _add_explanation(answer: Answer, said: Any, *, counted: bool) -> None:
    """Counts of several calls hold the same breaks again, so they are not added up."""
    if counted:
        answer.own_count = (answer.own_count or 0) + said.graph_break_count
    for reason in said.break_reasons:
        answer.breaks |= _innermost([(frame.filename, frame.lineno) for frame in reason.user_stack])


def ask_tlparse(program: Program) -> Answer:
    """What TORCH_TRACE=folder does, set up after torch was imported: torch's own handler with its
    own formatter."""
    from torch._logging import _internal

    with tempfile.TemporaryDirectory() as folder:
        handler = _internal.LazyTraceHandler(folder)
        handler.setFormatter(_internal.TorchLogsFormatter(trace=True))
        _internal.trace_log.addHandler(handler)
        failed = ""
        try:
            _run(program)
        except Exception as error:  # noqa: BLE001  the trace up to here is what tlparse gets
            failed = f"the program raised {type(error).__name__}"
        handler.flush()
        logs = list(Path(folder).glob("*.log"))
        if not logs:
            return Answer(failed=failed)  # nothing was compiled: there is nothing to parse
        out = Path(folder) / "out"
        binary = Path(sys.executable).parent / "tlparse"
        command = [str(binary), str(logs[0]), "-o", str(out), "--no-browser"]
        subprocess.run(command, check=True, capture_output=True, timeout=TIME_LIMIT_S)
        answer = read_tlparse(out)
    answer.failed = failed if failed and not any(m.rule == "KGP107" for m in program.marks) else ""
    return answer


def read_tlparse(out: Path) -> Answer:
    answer = Answer(own_count=_restarts(out))
    breaks: dict[str, set[Place]] = {}
    guards: dict[str, str] = {}
    for record in (
        json.loads(line) for line in (out / "raw.jsonl").read_text(encoding="utf-8").splitlines()
    ):
        name = f"{record.get('frame_id')}/{record.get('frame_compile_id')}"
        artifact = (record.get("artifact") or {}).get("name")
        if artifact == "dynamo_graph_break_reason":
            places = _user_places((out / record["payload_filename"]).read_text(encoding="utf-8"))
            breaks.setdefault(name, set()).update(places)
            answer.breaks |= places
        elif artifact == "recompile_reasons":
            guards[name] = (out / record["payload_filename"]).read_text(encoding="utf-8")
        elif metrics := record.get("compilation_metrics"):
            _add_metrics(answer, metrics, breaks.get(name, set()), guards.get(name))
    return answer


def _add_metrics(
    answer: Answer, metrics: dict[str, Any], breaks: set[Place], guard: str | None
) -> None:
    if guard is not None and metrics.get("co_filename"):
        place = _definition(metrics["co_filename"], metrics["co_firstlineno"])
        if place is not None:
            answer.recompiled.setdefault(place, set()).add("text" if guard.strip() else "")
    if metrics.get("fail_type"):
        at = (
            metrics.get("fail_user_frame_filename") or "",
            metrics.get("fail_user_frame_lineno") or 0,
        )
        places = breaks or _innermost([at])
        answer.breaks |= places
        answer.skipped |= places


def _restarts(out: Path) -> int:
    """The number in "This run had N restart(s) and/or compilation failure(s)"; without the sentence
    it is 0."""
    text = re.sub(r"<[^>]*>", "", (out / "index.html").read_text(encoding="utf-8"))
    found = RESTARTS.search(text)
    return int(found[1]) if found else 0


def _user_places(reason: str) -> set[Place]:
    """The innermost line of the corpus in the "User code traceback" of a break reason."""
    _, _, after = reason.partition("User code traceback:")
    stack, _, _ = after.partition("Traceback (most recent call last)")
    return _innermost([(file, int(line)) for file, line in FILE_LINE.findall(stack)])


def _innermost(stack: Sequence[Place]) -> set[Place]:
    """Of a stack, outermost first: its last line that is in the corpus."""
    ours = [
        (str(Path(file).relative_to(CORPUS)), line)
        for file, line in stack
        if file.startswith(f"{CORPUS}/")
    ]
    return set(ours[-1:])


def _definition(file: str, line: int) -> Place | None:
    """The ``def`` line of the innermost function around a line; the line itself where there is none
    (a lambda)."""
    if not file.startswith(f"{CORPUS}/"):
        return None
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and min([node.lineno, *(d.lineno for d in node.decorator_list)])
        <= line
        <= (node.end_lineno or node.lineno)
    ]
    return str(Path(file).relative_to(CORPUS)), max((node.lineno for node in around), default=line)


def _run(program: Program) -> None:
    from tests.corpus import record

    step = record._load(program).build()
    for call in range(program.calls):
        step(call)


ASK: dict[str, Callable[[Program], Answer]] = {
    "kgprof": ask_kgprof,
    "explain, first call": functools.partial(ask_explain, every_call=False),
    "explain, every call": functools.partial(ask_explain, every_call=True),
    "tlparse": ask_tlparse,
}


def in_child(name: str, tool: str, path: str) -> None:
    """The body of a child: one program under one tool, its answer into a file."""
    sys.path.insert(0, str(CORPUS))
    warnings.simplefilter("ignore")
    written = Path(path)
    with written.with_suffix(".log").open("w", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    program = next(p for p in programs() if p.name == name)
    answer = ASK[tool](program)
    part = written.with_suffix(".part")
    part.write_text(json.dumps(answer.encoded()), encoding="utf-8")
    part.replace(written)


# ---------------------------------------------------------------- all programs under all tools


def answers(asked: Sequence[Program], folder: Path) -> dict[str, dict[str, Answer]]:
    """By tool and program; what is in ``folder`` for the same program, torch and tool is not asked
    again."""
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["torch", "torch._dynamo", "tests.corpus.record", "tests.corpus.found"]
    )
    given: dict[str, dict[str, Answer]] = {tool: {} for tool in TOOLS}
    for number, program in enumerate(asked, start=1):
        print(f"{number} of {len(asked)}: {program.name}", file=sys.stderr, flush=True)
        for tool in TOOLS:
            path = folder / f"{program.name}.{fingerprint(program, tool)}.json"
            given[tool][program.name] = _kept(path) or _asked(context, program, tool, path)
    return given


def _kept(path: Path) -> Answer | None:
    return Answer.decoded(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def _asked(context: Any, program: Program, tool: str, path: Path) -> Answer:
    child = context.Process(target=in_child, args=(program.name, tool, str(path)))
    child.start()
    child.join(TIME_LIMIT_S)
    if child.is_alive():
        child.kill()
        child.join()
        return Answer(failed=f"no answer within {TIME_LIMIT_S:.0f} s")
    return _kept(path) or Answer(
        failed=f"the process ended with {child.exitcode}, see {path.stem}.log"
    )


def fingerprint(program: Program, tool: str) -> str:
    """Of everything that an answer depends on; kgprof's own source is part of it for kgprof."""
    hashed = hashlib.sha256(f"{VERSION} {tool} {versions()}".encode())
    sources = [program.path, *sorted((CORPUS / "library").glob("*.py"))]
    if tool == "kgprof":
        sources += [
            *sorted((ROOT / "kgprof").rglob("*.py")),
            *sorted((ROOT / "tests" / "corpus").glob("*.py")),
        ]
    for path in sources:
        hashed.update(path.read_bytes())
    return f"{tool.replace(', ', '-').replace(' ', '-')}.{hashed.hexdigest()[:16]}"


@functools.cache
def versions() -> dict[str, str]:
    packages = {name: importlib.metadata.version(name) for name in ("torch", "kgprof", "tlparse")}
    return {**packages, "python": platform.python_version()}


# ---------------------------------------------------------------- the score


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The marks of one program that hold for this torch and Python."""

    breaks: frozenset[Place]
    skipped: frozenset[Place]
    records: int | None  # of torch's, for all sites; None where a mark leaves it open
    recompiled: dict[Place, frozenset[str]]  # findings alone: a note may be left out
    converged: frozenset[Place]
    # functions that reach the recompile limit, which tlparse lists as failures
    limited: frozenset[Place]
    fails: bool


def truth(program: Program) -> Truth:
    here = versions()
    marks = program.expected(torch=here["torch"], python=here["python"])
    breaking = [mark for mark in marks if mark.rule in ("KGP101", "KGP102")]
    counted = [mark.records for mark in breaking]
    return Truth(
        breaks=frozenset(place(mark) for mark in breaking),
        skipped=frozenset(place(mark) for mark in breaking if mark.rule == "KGP102"),
        records=None if None in counted else sum(n or 0 for n in counted),
        recompiled={place(m): frozenset({m.guard}) for m in marks if m.rule in RECOMPILES},
        converged=frozenset(place(mark) for mark in marks if mark.rule == NOTE),
        limited=frozenset(place(mark) for mark in marks if mark.rule in ("KGP104", "KGP105")),
        fails=any(mark.rule == "KGP107" for mark in marks),
    )


def place(mark: Mark) -> Place:
    return str(mark.path.relative_to(CORPUS)), mark.line


def score(tool: str, asked: Sequence[Program], given: dict[str, Answer]) -> dict[str, Any]:
    rows = [(program, truth(program), given[program.name]) for program in asked]
    failing_lines = {
        program.name: {place(m) for m in program.marks if m.rule == "KGP107"} for program in asked
    }
    said = {
        program.name: answer.breaks - failing_lines[program.name] for program, _, answer in rows
    }
    wrong_breaks = [
        program.name for program, known, _ in rows if said[program.name] != known.breaks
    ]
    invented = [
        f"{program.name}: {file}:{line}"
        for program, known, answer in rows
        for file, line in sorted(
            answer.recompiled.keys() - known.recompiled.keys() - known.converged
        )
    ]
    return {
        "programs": len(rows),
        "break_lines_exact": len(rows) - len(wrong_breaks),
        "break_lines_wrong_in": wrong_breaks,
        "breaks": sum(len(known.breaks) for _, known, _ in rows),
        "breaks_missed": sum(len(known.breaks - said[program.name]) for program, known, _ in rows),
        "breaks_invented": sum(
            len(said[program.name] - known.breaks) for program, known, _ in rows
        ),
        "breaks_invented_at": [
            f"{program.name}: {file}:{line}"
            for program, known, _ in rows
            for file, line in sorted(said[program.name] - known.breaks)
        ],
        "skipped_frames": sum(len(known.skipped) for _, known, _ in rows),
        "skipped_frames_named": sum(
            len(known.skipped & answer.skipped) for _, known, answer in rows
        ),
        "skipped_frames_invented": sum(
            len(answer.skipped - known.skipped - failing_lines[program.name])
            for program, known, answer in rows
        ),
        "recompiling_functions": sum(len(known.recompiled) for _, known, _ in rows),
        "recompiling_functions_named": sum(
            len(known.recompiled.keys() & a.recompiled) for _, known, a in rows
        ),
        "recompiling_functions_invented": invented,
        "guards_right": sum(
            answer.recompiled.get(where) in (set(kinds), {"text"})
            for _, known, answer in rows
            for where, kinds in known.recompiled.items()
        ),
        "counts": sum(answer.own_count is not None for _, _, answer in rows),
        "own_count_wrong_in": [
            program.name for program, known, answer in rows if count_is_wrong(known, answer)
        ],
        "clean_programs": sum(program.is_clean for program in asked),
        "clean_programs_accused": [
            program.name
            for program, _, answer in rows
            if program.is_clean
            and (answer.breaks or answer.skipped or answer.recompiled or answer.other)
        ],
        "other": {program.name: answer.other for program, _, answer in rows if answer.other},
        "no_answer": {program.name: answer.failed for program, _, answer in rows if answer.failed},
    }


def count_is_wrong(known: Truth, answer: Answer) -> bool:
    """Not where compilation itself fails: there is no telling what a count of breaks should be."""
    if answer.own_count is None or known.fails:
        return False
    allowed = {len(known.breaks)} | ({known.records} if known.records is not None else set())
    return not any(answer.own_count in (n, n + len(known.limited)) for n in allowed)


COLUMNS: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("break lines exact, programs", lambda s: f"{s['break_lines_exact']} of {s['programs']}"),
    (
        "breaks missed, invented",
        lambda s: f"{s['breaks_missed']} of {s['breaks']}, {s['breaks_invented']}",
    ),
    ("frames in eager named", lambda s: f"{s['skipped_frames_named']} of {s['skipped_frames']}"),
    (
        "recompiling functions named",
        lambda s: f"{s['recompiling_functions_named']} of {s['recompiling_functions']}",
    ),
    ("guard shown", lambda s: f"{s['guards_right']} of {s['recompiling_functions']}"),
    (
        "own count of breaks wrong, programs",
        lambda s: str(len(s["own_count_wrong_in"])) if s["counts"] else "none",
    ),
    (
        "clean programs accused",
        lambda s: f"{len(s['clean_programs_accused'])} of {s['clean_programs']}",
    ),
    ("programs without an answer", lambda s: str(len(s["no_answer"]))),
)


def stated(answer: Answer) -> str:
    """In one line; what a tool said nothing of is left out."""
    return json.dumps(
        {key: value for key, value in answer.encoded().items() if value not in ([], "", None)}
    )


def table(scores: dict[str, dict[str, Any]]) -> str:
    lines = ["| | " + " | ".join(scores) + " |", "|---" * (len(scores) + 1) + "|"]
    lines += [
        f"| {name} | " + " | ".join(cell(scores[tool]) for tool in scores) + " |"
        for name, cell in COLUMNS
    ]
    return "\n".join(lines)


def chosen(names: Sequence[str]) -> Iterator[Program]:
    known = {program.name: program for program in programs()}
    for name in names or known:
        if name not in known:
            raise SystemExit(f"no program {name!r} in {CORPUS}")
        yield known[name]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "programs", nargs="*", metavar="PROGRAM", help="of fixtures/corpus; all of them without one"
    )
    parser.add_argument("--answers", type=Path, default=ROOT / "reports" / "diagnostics")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    if shutil.which("tlparse", path=str(Path(sys.executable).parent)) is None:
        raise SystemExit("tlparse is not installed: pip install -c constraints.txt tlparse")
    corpus = tuple(chosen(asked.programs))
    given = answers(corpus, asked.answers)
    scores = {tool: score(tool, corpus, given[tool]) for tool in TOOLS}
    print(table(scores))
    if asked.output:
        kept = {
            tool: {name: stated(answer) for name, answer in said.items()}
            for tool, said in given.items()
        }
        command = " ".join(["python", "benchmarks/diagnostics.py", *sys.argv[1:]])
        found = {"command": command, "versions": versions(), "scores": scores, "answers": kept}
        asked.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
