"""The options of ``kgprof evaluate``: the workload's own and those of an evaluation. Nothing here
imports torch."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kgprof import model as m
from kgprof.errors import UsageError
from kgprof.workloads.linkpred import options
from kgprof.workloads.loading import options_given

NAME = "kgprof evaluate"
SCORES = ("proved", "probability", "weights")
FORMS = ("text", "json")
CLOSURE = "closure"
# triple, slot, goal, outcome and steps, and what drawing and ranking them hold meanwhile
BYTES_PER_CANDIDATE = 160
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
HELP = """Rank each test triple among its corruptions, and say how well and how fast; nothing is
profiled.

Candidates are searched in chunks, so memory does not grow with their number. With --checkpoint each
finished chunk is kept, and --resume goes on after whatever ended the run. Under torchrun the chunks
are shared among the processes, and the result is the same. The report goes to stdout, progress to
stderr.

Exit code 0: evaluated; 1: --check closure found a proof of something that has none; 2: wrong option
or input, or a place that cannot be written; 4: another process of the evaluation died; 130:
interrupted.

\b
For example:  kgprof evaluate --dataset umls --corruptions 100,500,all
              kgprof evaluate --data my-graph --check closure --json > result.json
              kgprof evaluate --data my-graph --queries all --corruptions all --checkpoint run1
              kgprof evaluate --data my-graph --queries all --corruptions all --resume run1
              torchrun --nproc-per-node 4 -m kgprof evaluate --data my-graph
"""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One command line, under the names of its options. ``runs`` are one set of the workload's
    options for each number of corruptions."""

    runs: tuple[options.LinkpredOptions, ...]
    strategy: str = "levels"
    mode: str = m.EAGER
    device: str = "auto"
    seed: int = 0
    check: str = ""
    prune: str = ""
    score: str = SCORES[0]
    chunk: int = 100_000
    memory: int = 256 * 2**20
    checkpoint: str = ""
    resume: str = ""
    format: str = FORMS[0]
    json: bool = False
    quiet: bool = False

    @property
    def most(self) -> int:
        """Candidates in a chunk."""
        return max(1, min(self.chunk, self.memory // BYTES_PER_CANDIDATE))

    @property
    def folder(self) -> Path | None:
        place = self.resume or self.checkpoint
        return Path(place).resolve() if place else None


def parse(args: Sequence[str]) -> Asked | str:
    """What ``args`` ask for; the help where they ask for that. Raises UsageError."""
    command = _command()
    given = options_given(
        command, NAME, args, f"see {NAME} --help", auto_envvar_prefix="KGPROF_EVALUATE"
    )
    if given.pop("help", False):
        return options.help_of(command, NAME)
    own = {name: given.pop(name) for name in OWN & given.keys()}
    if "corruptions" in given:
        counts = given.pop("corruptions")
        runs = [options.from_given({**given, "corruptions": count}) for count in counts]
    else:
        runs = [options.from_given(given)]
    asked = Asked(runs=tuple(runs), **own)
    if asked.checkpoint and asked.resume:
        raise UsageError(
            "--checkpoint and --resume both name the folder",
            hint="--resume DIR writes there as well",
        )
    return asked


OWN = frozenset(Asked.__dataclass_fields__) - {"runs"}


def _counts(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[Any, ...] | None:
    if value is None:
        return None
    counts = tuple(options.number(context, parameter, part.strip()) for part in value.split(","))
    if len(set(counts)) < len(counts):
        raise click.BadParameter(f"{value!r} names a number twice", context, parameter)
    return counts


def _bytes(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,12})([KMG]?)(i?B)?", value, re.IGNORECASE)
    if match is None or not int(match[1]):
        raise click.BadParameter(
            f"{value!r} is not an amount of memory, such as 512M or 4G", context, parameter
        )
    return int(match[1]) * UNITS[match[2].upper()]


def _command() -> click.Command:
    option = options.option
    seed = click.IntRange(0, 2**32 - 1)
    chunk = click.IntRange(1, 10**options.MOST_DIGITS - 1)
    params: list[click.Parameter] = [
        option("strategy", "NAME", "How the search is made; no result depends on it.  [levels]"),
        option("mode", (m.EAGER, *m.COMPILED_MODES), "How its step is compiled.  [eager]"),
        option("device", ("auto", "cpu", "cuda"), "auto is cuda where torch sees a GPU."),
        option("seed", "N", "Seed of the queries, corruptions and weights.  [0]", type=seed),
        option(
            "corruptions",
            f"N|{options.ALL},...",
            "Corruptions of each query on either side, filtered; several numbers are "
            "evaluated side by side.",
            callback=_counts,
        ),
        option("check", (CLOSURE,), "Hold the result to all that the rules prove, to any depth."),
        option(
            "prune",
            (CLOSURE,),
            "Search nothing that the rules cannot prove; ranks stay the same.",
        ),
        option("score", SCORES, "Score that ranks proved candidates.  [proved]"),
        option("chunk", "N", "Most candidates held at once.  [100000]", type=chunk),
        option("memory", "SIZE", "Memory for them, as in 512M.  [256M]", callback=_bytes),
        option("checkpoint", "DIR", "Keep each finished chunk there."),
        option("resume", "DIR", "Go on with the checkpoint there, or begin it."),
        option("format", FORMS, "Form of the report on stdout.  [text]"),
        click.Option(["--json"], is_flag=True, help="As --format json."),
        click.Option(["-q", "--quiet"], is_flag=True, help="No progress."),
        *(parameter for parameter in options.parameters() if parameter.name != "corruptions"),
        click.Option(["-h", "--help"], is_flag=True, help="Show this message and exit."),
    ]
    return click.Command(
        "evaluate", params=params, help=HELP, add_help_option=False, options_metavar="[options]"
    )
