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
    """One command line. ``runs`` are one set of the workload's options for each number of
    corruptions."""

    runs: tuple[options.LinkpredOptions, ...]
    strategy: str
    mode: str
    device: str
    seed: int
    check: bool
    prune: bool
    score: str
    most: int  # candidates in a chunk
    folder: Path | None
    resume: bool
    form: str
    quiet: bool


def parse(args: Sequence[str]) -> Asked | str:
    """What ``args`` ask for; the help where they ask for that. Raises UsageError."""
    command = _command()
    given = options_given(
        command, NAME, args, f"see {NAME} --help", auto_envvar_prefix="KGPROF_EVALUATE"
    )
    if given.pop("help", False):
        return command.get_help(
            click.Context(command, info_name=NAME, terminal_width=options.HELP_WIDTH)
        )
    own = {name: given.pop(name, default) for name, default in _DEFAULTS.items()}
    counts: tuple[Any, ...] = given.pop("corruptions", (None,))
    runs = tuple(
        options.from_given({**given, **({} if count is None else {"corruptions": count})})
        for count in counts
    )
    if own["checkpoint"] and own["resume"]:
        raise UsageError(
            "--checkpoint and --resume both name the folder",
            hint="--resume DIR writes there as well",
        )
    folder = own["resume"] or own["checkpoint"]
    return Asked(
        runs=runs,
        strategy=own["strategy"],
        mode=own["mode"],
        device=own["device"],
        seed=own["seed"],
        check=own["check"] == CLOSURE,
        prune=own["prune"] == CLOSURE,
        score=own["score"],
        most=max(1, min(own["chunk"], own["memory"] // BYTES_PER_CANDIDATE)),
        folder=Path(folder).resolve() if folder else None,
        resume=bool(own["resume"]),
        form="json" if own["json"] else own["format"],
        quiet=own["quiet"],
    )


_DEFAULTS: dict[str, Any] = {
    "strategy": "levels",
    "mode": m.EAGER,
    "device": "auto",
    "seed": 0,
    "check": "",
    "prune": "",
    "score": SCORES[0],
    "chunk": 100_000,
    "memory": 256 * 2**20,
    "checkpoint": "",
    "resume": "",
    "format": FORMS[0],
    "json": False,
    "quiet": False,
}


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
    def choice(*values: str) -> click.Choice[str]:
        return click.Choice(values)

    seed = click.IntRange(0, 2**32 - 1)
    chunk = click.IntRange(1, 10**options.MOST_DIGITS - 1)
    params: list[click.Parameter] = [
        click.Option(
            ["--strategy"],
            metavar="NAME",
            help="How the search is made; no result depends on it.  [levels]",
        ),
        click.Option(
            ["--mode"],
            type=choice(m.EAGER, *m.COMPILED_MODES),
            help="How its step is compiled.  [eager]",
        ),
        click.Option(
            ["--device"],
            type=choice("auto", "cpu", "cuda"),
            help="auto is cuda where torch sees a GPU.",
        ),
        click.Option(
            ["--seed"],
            type=seed,
            metavar="N",
            help="Seed of the queries, corruptions and weights.  [0]",
        ),
        click.Option(
            ["--corruptions"],
            metavar=f"N|{options.ALL},...",
            callback=_counts,
            help=(
                "Corruptions of each query on either side, filtered; several numbers are "
                "evaluated side by side."
            ),
        ),
        click.Option(
            ["--check"],
            type=choice(CLOSURE),
            help="Hold the result to all that the rules prove, to any depth.",
        ),
        click.Option(
            ["--prune"],
            type=choice(CLOSURE),
            help="Search nothing that the rules cannot prove; ranks stay the same.",
        ),
        click.Option(
            ["--score"], type=choice(*SCORES), help="Score that ranks proved candidates.  [proved]"
        ),
        click.Option(
            ["--chunk"], type=chunk, metavar="N", help="Most candidates held at once.  [100000]"
        ),
        click.Option(
            ["--memory"],
            metavar="SIZE",
            callback=_bytes,
            help="Memory for them, as in 512M.  [256M]",
        ),
        click.Option(["--checkpoint"], metavar="DIR", help="Keep each finished chunk there."),
        click.Option(
            ["--resume"], metavar="DIR", help="Go on with the checkpoint there, or begin it."
        ),
        click.Option(
            ["--format"], type=choice(*FORMS), help="Form of the report on stdout.  [text]"
        ),
        click.Option(["--json"], is_flag=True, help="As --format json."),
        click.Option(["-q", "--quiet"], is_flag=True, help="No progress."),
        *(parameter for parameter in options.parameters() if parameter.name != "corruptions"),
        click.Option(["-h", "--help"], is_flag=True, help="Show this message and exit."),
    ]
    return click.Command(
        "evaluate", params=params, help=HELP, add_help_option=False, options_metavar="[options]"
    )
