"""What each tool's own words name on the programs of tests/reports: the cause, the line, the
remedy.

    python benchmarks/first_words.py              # FAMILIES; keeps results/first_words.json
    python benchmarks/first_words.py --all        # all programs, which takes hours
    python benchmarks/first_words.py --only NAME  # these take their place in what is kept

| tool | how it is used | what is read |
|---|---|---|
| kgprof, step | kgprof check-graphs FILE:step | stdout and stderr |
| kgprof, script | kgprof check-graphs SCRIPT | stdout and stderr |
| torch alone | python SCRIPT | stdout and stderr |
| TORCH_LOGS | the same under TORCH_LOGS=graph_breaks,recompiles,perf_hints | stdout and stderr |
| tlparse | on the TORCH_TRACE of SCRIPT | its index and its pages of failures, breaks, recompiles |

SCRIPT is the program itself; where it only defines step(), a copy that calls it STEPS times at its
end, so that all lines keep their numbers. All tools see the same programs with the default backend:
of a truth's options for check-graphs, --backend is left out.

The marks are the same for all tools and come from the truth beside each program. ``cause`` and
``remedy``: one of its regular expressions matches what the tool says. ``line``: the tool writes
FILE:LINE, or FILE and "line LINE" behind it. A healthy program is left alone by a tool that says
none of ALARMS, lines left out that torch alone prints as well. False is an alarm about a healthy
program, or the words that a gate has passed about a program that must fail it.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the truths, which no wheel holds

from tests.reports.truth import Program, programs  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "first_words.json"
# What public reports are about, with the programs that stand for it in the table.
FAMILIES = {
    "calls that run eagerly at the limit": ("adapters_per_stage", "heads_in_a_dictionary"),
    "no graph at all": ("hooked_sequential", "ddp_of_a_trunk", "sequential_compiled_in_place"),
    "a stance": ("stance_with_new_sizes",),
    "compiled at import": ("import_break_branch", "import_break_logger", "import_limit_lengths"),
    "compiled in worker processes": ("script_workers",),
    "a tensor subclass": ("subclass_page_number",),
    "the guard's words": ("remedy_layer_drop", "remedy_changing_options", "remedy_closure"),
    "torch's own remedy": (
        *("remedy_rnn", "remedy_int_attribute", "remedy_marked_and_fixed", "remedy_custom_op"),
        *("remedy_static_sizes", "remedy_shared_wrapper"),
    ),
    "a break in the program and in torch": ("compiled_training_step", "import_break_marks"),
    "one cause": ("sparse_input", "sparse_argument", "per_sample_gradient"),
    "healthy": (
        *(
            "warmed_at_import",
            "subclass_packed_weight",
            "reset_between_widths",
            "scheduled_optimizer",
        ),
        *("saliency_along_a_path", "lazy_image_encoder", "sizes_from_input"),
    ),
}
STEPS = 20  # as check-graphs makes by default
TIME_LIMIT_S = 600.0
LOGS = "graph_breaks,recompiles,perf_hints"
# Of the machine, not of the words: no tool waits for a probe of the CPU, for worker processes or
# for torch's threads.
QUICK = {
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
ALARMS = re.compile(
    r"Graph break in user code|Graph Break Reason|^FAILED|^INCONCLUSIVE"
    r"|: KGP\d{3} |: (?:warning|error) KGP\d{3} "
    r"|hit config\.recompile_limit|Traceback \(most recent call last\)",
    re.MULTILINE,
)
DENIAL = re.compile(r"^OK: gate passed", re.MULTILINE)  # false of a program that has to fail
READ_OF_TLPARSE = (
    "index",
    "failures_and_restarts",
    "compilation_metrics",
    "graph_break_reason",
    "recompile_reasons",
)
_TAGS = re.compile(r"<(?:style|script)\b.*?</(?:style|script)>|<[^>]+>", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a tool said of one program; ``impossible``: why it cannot be used on it."""

    text: str = ""
    exit_code: int = 0
    seconds: float = 0.0
    impossible: str = ""


@dataclass(frozen=True, kw_only=True)
class Marks:
    """None: nothing was to be named, or the tool cannot be used on this program."""

    cause: bool | None = None
    line: bool | None = None
    remedy: bool | None = None
    left_alone: bool | None = None
    false: bool | None = None
    exit_code: int = 0
    seconds: float = 0.0
    impossible: str = ""


Marked = dict[str, dict[str, Marks]]  # by program and tool


# ---------------------------------------------------------------- tools


def ran(command: Sequence[str], folder: Path, **variables: str) -> Said:
    """The command's words and exit code; one that takes too long says what it had said until
    then."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KGPROF_", "TORCH_LOGS"))
    }
    began = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**kept, **QUICK, "PYTHONPATH": str(ROOT), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIME_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode(errors="replace")
        return Said(text=text, exit_code=124, seconds=TIME_LIMIT_S)
    text = done.stdout.decode(errors="replace")
    return Said(text=text, exit_code=done.returncode, seconds=round(time.monotonic() - began, 1))


def script_of(program: Program, folder: Path) -> Path:
    """The program as a script under its own name, with all lines where they are."""
    text = program.path.read_text("utf-8")
    if "script" not in program.starts:
        text += f"\nfor _ in range({STEPS}):\n    step()\n"
    script = folder / program.path.name
    script.write_text(text, "utf-8")
    return script


def options_of(program: Program) -> list[str]:
    """The truth's options without the backend."""
    options = list(program.args)
    if "--backend" in options:
        at = options.index("--backend")
        del options[at : at + 2]
    return options


def gated(workload: str, program: Program, folder: Path) -> Said:
    command = [sys.executable, "-m", "kgprof", "check-graphs", workload, "-o", str(folder / "out")]
    return ran([*command, *options_of(program)], folder)


def kgprof_step(program: Program, folder: Path) -> Said:
    if "step" not in program.starts:
        return Said(impossible="it has no step")
    return gated(f"{script_without_calls(program, folder)}:step", program, folder)


def script_without_calls(program: Program, folder: Path) -> Path:
    copy = folder / program.path.name
    copy.write_bytes(program.path.read_bytes())
    return copy


def kgprof_script(program: Program, folder: Path) -> Said:
    return gated(str(script_of(program, folder)), program, folder)


def torch_alone(program: Program, folder: Path) -> Said:
    return ran([sys.executable, str(script_of(program, folder))], folder)


def torch_logs(program: Program, folder: Path) -> Said:
    return ran([sys.executable, str(script_of(program, folder))], folder, TORCH_LOGS=LOGS)


def tlparse(program: Program, folder: Path) -> Said:
    binary = Path(sys.executable).with_name("tlparse")
    if not binary.is_file():
        return Said(impossible="tlparse is not installed; the extra 'dev' has it")
    traces = folder / "traces"
    traces.mkdir()
    traced = ran([sys.executable, str(script_of(program, folder))], folder, TORCH_TRACE=str(traces))
    pages = []
    for number, log in enumerate(sorted(traces.glob("*.log"))):
        output = folder / f"tlparse-{number}"
        parsed = ran([str(binary), str(log), "-o", str(output), "--no-browser"], folder)
        pages.append(parsed.text)
        pages += [as_text(page) for page in sorted(output.rglob("*")) if is_read(page)]
    return Said(text="\n".join(pages), exit_code=traced.exit_code, seconds=traced.seconds)


def is_read(page: Path) -> bool:
    return page.is_file() and any(name in page.name for name in READ_OF_TLPARSE)


def as_text(page: Path) -> str:
    text = page.read_text("utf-8", errors="replace")
    return html.unescape(_TAGS.sub(" ", text)) if page.suffix == ".html" else text


TOOLS: dict[str, Callable[[Program, Path], Said]] = {
    "kgprof, step": kgprof_step,
    "kgprof, script": kgprof_script,
    "torch alone": torch_alone,
    "TORCH_LOGS": torch_logs,
    "tlparse": tlparse,
}


# ---------------------------------------------------------------- marks


def marks(program: Program, said: Said, alone: Said) -> Marks:
    """``alone``: what the program says without any tool."""
    if said.impossible:
        return Marks(impossible=said.impossible)
    # The file as it is named in a sentence, in a stack, and in JSON.
    place = (
        rf"{re.escape(program.path.name)}"
        rf"(?::{program.line}\b|\\?\"?,? \"?line\"?:? {program.line}\b)"
    )
    alarmed = alarms(said, alone)
    return Marks(
        cause=matches(program.cause, said.text),
        line=matches((place,), said.text) if program.line else None,
        remedy=matches(program.remedy, said.text),
        left_alone=not alarmed if program.healthy else None,
        false=alarmed if program.healthy else denied(program, said),
        exit_code=said.exit_code,
        seconds=said.seconds,
    )


def matches(patterns: Sequence[str], text: str) -> bool | None:
    return any(re.search(pattern, text, re.MULTILINE) for pattern in patterns) if patterns else None


def alarms(said: Said, alone: Said) -> bool:
    known = {*alone.text.splitlines()}
    own = "\n".join(line for line in said.text.splitlines() if line not in known)
    return ALARMS.search(own) is not None


def denied(program: Program, said: Said) -> bool:
    return program.exit != 0 and DENIAL.search(said.text) is not None


def marked(program: Program) -> dict[str, Marks]:
    """By tool. Each has a folder of its own."""
    said = {}
    for tool, use in TOOLS.items():
        with tempfile.TemporaryDirectory(prefix="first-words-") as folder:
            said[tool] = use(program, Path(folder))
    print(
        f"{program.name}: {sum(each.seconds for each in said.values()):.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return {tool: marks(program, each, said["torch alone"]) for tool, each in said.items()}


# ---------------------------------------------------------------- table


COLUMNS = {
    "cause": "cause",
    "line": "line",
    "remedy": "remedy",
    "left_alone": "healthy left alone",
    "false": "false",
}


def sums(by_program: Marked) -> dict[str, dict[str, list[int]]]:
    """By tool and column: how many of how many."""
    table: dict[str, dict[str, list[int]]] = {}
    for tool in TOOLS:
        table[tool] = {}
        for column in COLUMNS:
            known = [
                mark
                for each in by_program.values()
                if (mark := getattr(each[tool], column)) is not None
            ]
            table[tool][column] = [sum(known), len(known)]
    return table


def behind(by_program: Marked) -> list[str]:
    """Where a peer names something and kgprof does not."""
    rows = []
    for name, by_tool in by_program.items():
        for column in ("cause", "line", "remedy"):
            ours = [
                tool
                for tool in TOOLS
                if tool.startswith("kgprof") and getattr(by_tool[tool], column) is False
            ]
            peers = [
                tool
                for tool in TOOLS
                if not tool.startswith("kgprof") and getattr(by_tool[tool], column)
            ]
            rows += [
                f"{name}: {tool} names no {column}, {', '.join(peers)} does"
                for tool in ours
                if peers
            ]
    return rows


def printed(by_program: Marked) -> str:
    lines = [f"| tool | {' | '.join(COLUMNS.values())} |", f"|---|{'--:|' * len(COLUMNS)}"]
    for tool, by_column in sums(by_program).items():
        cells = [f"{number} of {most}" for number, most in by_column.values()]
        lines.append(f"| {tool} | {' | '.join(cells)} |")
    return "\n".join(lines)


def keep(by_program: Marked, output: Path) -> None:
    """Write all marks that are known, with their sums."""
    kept: dict[str, Any] = {
        "command": "python benchmarks/first_words.py",
        "environment": environment(),
        "sums": sums(by_program),
        "behind": behind(by_program),
        "programs": {
            name: {tool: asdict(each) for tool, each in by_tool.items()}
            for name, by_tool in by_program.items()
        },
    }
    output.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")


def kept_in(output: Path) -> Marked:
    """Read the marks of an earlier run."""
    if not output.exists():
        return {}
    programs_kept = json.loads(output.read_text("utf-8"))["programs"]
    return {
        name: {tool: Marks(**each) for tool, each in by_tool.items()}
        for name, by_tool in programs_kept.items()
    }


def environment() -> dict[str, str]:
    import torch

    commit = ran(["git", "rev-parse", "HEAD"], ROOT).text.strip()
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "commit": commit,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python benchmarks/first_words.py")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="repeatable")
    parser.add_argument("--all", action="store_true", help="all programs of tests/reports")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs at a time")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, help="where marks are kept")
    options = parser.parse_args()
    known = {program.name: program for program in programs()}
    names = options.only or (list(known) if options.all else list(chain(*FAMILIES.values())))
    if unknown := {*names} - {*known}:
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    by_program = kept_in(options.output) if options.only else {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, by_tool in zip(names, pool.map(marked, map(known.get, names)), strict=True):
            by_program[name] = by_tool
            keep(by_program, options.output)
    print(printed(by_program))
    print("\n".join(behind(by_program)))


if __name__ == "__main__":
    main()
