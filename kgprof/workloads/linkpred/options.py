"""The workload's own options, those after ``--``. Nothing here imports torch.

kgprof profile linkpred -- --data DIR --queries 100 --corruptions all
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kgprof.errors import InputError, UsageError
from kgprof.workloads.linkpred import datasets, family_tree, graph, mining
from kgprof.workloads.loading import did_you_mean, options_given

SHOWS = (
    "knowledge-graph link prediction: a policy network and a unification engine, "
    "strategy against strategy"
)
SOURCE = "S0 and S3"
FAMILY_TREE = "family-tree"
DTYPES = ("float64", "float32")
LAYOUTS = ("queue", "transposed")
TRANSPOSED = LAYOUTS[1]
PARTS = ("step", "engine", "policy")
FIRST_LOOKS = ("none", "float16")
SELECTIONS = ("most-bound", "leftmost")
HELP_COMMAND = "kgprof profile linkpred -- --help"
HELP_WIDTH = 100
NEAR_TIE_FLOAT32 = 2e-4  # twice policy.ROUNDING in float32
NEAR_TIE_TF32 = 1e-2  # twenty times the rounding of an operand to TF32's 10 bits, 2**-11
MOST_DIGITS = 9  # of a number; the engine's indices are 32-bit


@dataclass(frozen=True, kw_only=True)
class LinkpredOptions:
    """What is evaluated, and how. Defaults are those of preset ``small`` on the family tree. Raises
    UsageError."""

    # "family-tree" or "family-tree:SIZE"; not looked at when ``data`` is given
    dataset: str = FAMILY_TREE
    data: Path | None = None
    queries: int | None = 320  # None: all
    corruptions: int | None = 10  # per query and side; None: all
    depth: int = 10  # most choices on the way from the query to TRUE
    batch_size: int = 256
    preset: str = "small"
    embedding: int = 64
    hidden: int = 64
    layers: int = 2
    dtype: str = "float64"
    max_atoms: int | None = 4  # A; the family tree needs 3; None: no state of this depth has more
    # S; the family tree has at most 4 facts and 2 rules for a goal; None: all
    max_children: int | None = 8
    # slots of the children tensor, of which max_children are used; None: as many
    children_width: int | None = None
    # which candidates a slot takes: the next of all, or those of its own queries
    layout: str = LAYOUTS[0]
    compile: str = PARTS[0]  # what a compiled mode compiles
    choices: int = 4  # of each candidate in one call of `stepped`
    mark_steps: bool = False  # torch.compiler.cudagraph_mark_step_begin before each step
    first_look: str = FIRST_LOOKS[0]  # of `levels`: what children are scored in before float32
    fact_fanout: int | None = None  # None: the most facts that one goal matches in the data
    rule_fanout: int | None = None  # None: the most rules that one predicate heads
    selection: str = "most-bound"
    policy: Path | None = None  # a state_dict; None: seeded random weights
    # for the whole evaluation; what it leaves is reported as unfinished
    max_steps: int | None = None
    allow_tf32: bool = False
    # None: NEAR_TIE_FLOAT32, or NEAR_TIE_TF32 where TF32 is allowed
    near_tie_threshold: float | None = None

    def __post_init__(self) -> None:
        width = self.children_width
        most = self.max_children
        if width is not None and most is None:
            raise UsageError(
                "--children-width needs a number for --max-children",
                hint="auto is as wide as it must be",
            )
        if width is not None and most is not None and width < most:
            raise UsageError(
                f"--children-width {width} is below --max-children {most}",
                hint="the width is padding around the children; --max-children is the cap",
            )
        given = self.near_tie_threshold
        if given is not None and not (math.isfinite(given) and given >= 0):
            raise UsageError(f"--near-tie-threshold {given} must be 0 or more")
        if self.first_look != FIRST_LOOKS[0] and (self.dtype != "float32" or self.allow_tf32):
            excluded = "--allow-tf32" if self.allow_tf32 else f"--dtype {self.dtype}"
            hint = "it gives the results of float32, as --dtype float32 without --allow-tf32 does"
            raise UsageError(
                f"--first-look {self.first_look} and {excluded} exclude each other", hint=hint
            )
        _family_tree_size(self.dataset)

    @property
    def near_tie_gap(self) -> float | None:
        """A gap between the two best logits below which a difference is excused; None in float64,
        where none is."""
        if self.dtype == "float64":
            return None
        if self.near_tie_threshold is not None:
            return self.near_tie_threshold
        return NEAR_TIE_TF32 if self.allow_tf32 else NEAR_TIE_FLOAT32

    def as_text(self) -> dict[str, str]:
        """The options as the report shows them, ``data`` or ``dataset``, whichever counts."""
        values = dict(vars(self))
        values["near_tie_threshold"] = self.near_tie_gap
        values["children_width"] = self.children_width or self.max_children
        del values["data" if self.data is None else "dataset"]
        if self.first_look == FIRST_LOOKS[0]:
            del values["first_look"]
        return {
            name: str(_UNSET[name] if value is None else value) for name, value in values.items()
        }


ALL = "all"
AUTO = "auto"
_UNSET = {
    "max_atoms": AUTO,
    "max_children": AUTO,
    "children_width": AUTO,
    "queries": ALL,
    "corruptions": ALL,
    "fact_fanout": "from the data",
    "rule_fanout": "from the data",
    "policy": "seeded random weights",
    "max_steps": "none",
    "near_tie_threshold": "none (float64)",
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "small": {},
    "seed": {
        "embedding": 250,
        "hidden": 256,
        "layers": 8,
        "dtype": "float32",
        "max_children": 120,
        "max_atoms": 6,
        "depth": 20,
        "batch_size": 256,
    },
}

# What a graph from outside starts from; the family tree's own caps would drop much of its search.
DIRECTORY_CAPS: Mapping[str, int] = {"max_atoms": 6, "max_children": 32}

# Asked for by name and not here yet: a word about each is kinder than "no such option".
LATER: Mapping[str, str] = {
    "--chunk": "kgprof evaluate has it",
    "--checkpoint": "kgprof evaluate has it",
    "--resume": "kgprof evaluate has it",
    "--gpus": "an evaluation runs on one device; choose it with CUDA_VISIBLE_DEVICES",
    "--tensordict": "the state lives in plain tensors",
}


def parse(args: Sequence[str]) -> LinkpredOptions:
    """The options in ``args``. Raises UsageError, InputError for a --policy file that is
    missing."""
    if "--help" in args or "-h" in args:
        raise UsageError(f"help is not an option of the workload here; `{HELP_COMMAND}` prints it")
    for name in (arg.partition("=")[0] for arg in args):
        for later, remark in LATER.items():
            if name == later or name.startswith(f"{later}-"):
                raise UsageError(f"kgprof profile linkpred has no option {name}", hint=remark)
    return from_given(
        options_given(_COMMAND, HELP_COMMAND.rpartition(" ")[0], args, f"see {HELP_COMMAND}")
    )


def parameters() -> Sequence[click.Parameter]:
    return _COMMAND.params


def help_text() -> str:
    """What ``-- --help`` prints: every option with its default."""
    return help_of(_COMMAND, HELP_COMMAND.rpartition(" ")[0])


def help_of(command: click.Command, name: str) -> str:
    return command.get_help(click.Context(command, info_name=name, terminal_width=HELP_WIDTH))


def load_graph(options: LinkpredOptions, seed: int) -> graph.KnowledgeGraph:
    """The graph that ``options`` name. Raises InputError for a directory that cannot be read."""
    if options.data is None and options.dataset not in datasets.PACKAGED:
        return family_tree.generate(_family_tree_size(options.dataset), seed)
    folder = options.data if options.data is not None else datasets.folder(options.dataset)
    loaded = graph.load_directory(folder)
    if (folder / "rules.txt").exists():
        return loaded
    rules, note = mining.mined(loaded)
    if not rules:
        hint = (
            "write rules.txt, one rule a line: r0:1.0:p(x,z), q(z,y) -> h(x,y)  or  "
            "h(X,Y) :- p(X,Z), q(Z,Y)."
        )
        raise InputError(f"no rules.txt, and nothing to mine: {note}", path=folder, hint=hint)
    return dataclasses.replace(loaded, rules=rules, notes=(*loaded.notes, note))


def from_given(given: Mapping[str, Any]) -> LinkpredOptions:
    """Presets and defaults under what was given. Raises UsageError."""
    if "data" in given and "dataset" in given:
        raise UsageError("--data and --dataset exclude each other", hint="give one of them")
    from_outside = "data" in given or given.get("dataset") in datasets.PACKAGED
    caps = DIRECTORY_CAPS if from_outside else {}
    values = {**caps, **PRESETS[given.get("preset", "small")], **given}
    for name in ("queries", "corruptions", "max_atoms", "max_children"):
        if values.get(name) in (ALL, AUTO):
            values[name] = None
    for name in ("data", "policy"):
        if name in values:
            if not values[name]:
                raise UsageError(f"--{name} is empty; expected a path")
            values[name] = Path(values[name]).resolve()
    if "policy" in values and not values["policy"].is_file():
        raise InputError(
            "file not found; expected a state_dict for --policy", path=values["policy"]
        )
    return LinkpredOptions(**values)


def _family_tree_size(dataset: str) -> int:
    """The size in ``family-tree[:size]``. Raises UsageError for any other dataset."""
    name, colon, size = dataset.partition(":")
    if dataset in datasets.PACKAGED:
        return 0
    if name != FAMILY_TREE:
        hint = (
            f"there are {FAMILY_TREE}[:SIZE], {', '.join(datasets.PACKAGED)}; --data DIR "
            "reads a directory of your own"
        )
        raise UsageError(
            f"no dataset {name!r}{did_you_mean(name, (FAMILY_TREE, *datasets.PACKAGED))}", hint=hint
        )
    if not colon:
        return family_tree.DEFAULT_SIZE
    smallest = family_tree.MINIMUM_SIZE
    largest = family_tree.MAXIMUM_SIZE
    if not (is_number(size) and smallest <= int(size) <= largest):
        raise UsageError(
            f"expected a number of people from {smallest} to {largest} in --dataset {dataset!r}"
        )
    return int(size)


def is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def number(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | str | None:
    """From 1 on, or ALL or AUTO where the option takes it."""
    if value is None or (value in (ALL, AUTO) and f"|{value}" in str(parameter.metavar)):
        return value
    if not (is_number(value) and int(value) >= 1):
        raise click.BadParameter(
            f"{value!r} is not a whole number from 1 to {10**MOST_DIGITS - 1}", context, parameter
        )
    return int(value)


def option(name: str, values: str | Sequence[str], meaning: str, **settings: Any) -> click.Option:
    """An option with its help. ``values`` are all that can be given, or one word for them."""
    if isinstance(values, str):
        settings["metavar"] = values
    else:
        settings["type"] = click.Choice(values)
    return click.Option([f"--{name.replace('_', '-')}"], help=meaning, **settings)


def _option(
    name: str, values: str | Sequence[str], meaning: str, default: str = "", **settings: Any
) -> click.Option:
    """No default of click's own: what is given overrides the preset, and nothing else does."""
    help_ = f"{meaning}  [{default or _defaults(name)}]"
    if not isinstance(values, str):
        return option(name, values, help_, metavar="|".join(values))
    if values in ("N", f"N|{ALL}", f"N|{AUTO}"):
        settings["callback"] = number
    return option(name, values, help_, **settings)


def _defaults(name: str) -> str:
    """The default of a field, and where it is another one."""
    value = LinkpredOptions.__dataclass_fields__[name].default
    sources = {"with --data": DIRECTORY_CAPS}
    sources |= {f"preset {preset}": values for preset, values in PRESETS.items()}
    defaults = [str(value)]
    for source, values in sources.items():
        if values.get(name, value) != value:
            defaults.append(f"{source}: {values[name]}")
    return ", ".join(defaults)


def _flag(name: str, meaning: str) -> click.Option:
    return click.Option([name], is_flag=True, help=f"{meaning}  [off]")


_COMMAND = click.Command(
    name="linkpred",
    add_help_option=False,
    options_metavar="[options]",
    help="Knowledge-graph link prediction by proof search: each test triple is ranked "
    "among its corruptions by "
    "whether a policy network finds a proof of it. Defaults are in brackets.",
    params=[
        _option(
            "dataset",
            "NAME",
            f"Graph by name (kgprof datasets): {FAMILY_TREE}[:SIZE] with SIZE people, "
            f"{', '.join(datasets.PACKAGED)}.",
        ),
        _option(
            "data",
            "DIR",
            "Directory with train.txt, test.txt, perhaps valid.txt, rules.txt (else mined), "
            "domain2constants.txt.",
            "none",
        ),
        _option("queries", "N|all", "Test triples to evaluate, a seeded choice."),
        _option("corruptions", "N|all", "Corruptions of each query on either side, filtered."),
        _option("depth", "N", "Most choices in a proof."),
        _option("batch_size", "N", "Candidates that are searched at once (B)."),
        _option("preset", tuple(PRESETS), "Defaults of the sizes below."),
        _option("embedding", "N", "Width of the policy's embeddings."),
        _option("hidden", "N", "Width of the policy's layers."),
        _option("layers", "N", "Residual blocks of the policy."),
        _option("dtype", DTYPES, "Number format of the policy."),
        _option("policy", "FILE", "The policy's state_dict.", _UNSET["policy"]),
        _option("selection", SELECTIONS, "Which atom of a state is resolved."),
        _option(
            "max_atoms",
            "N|auto",
            "Cap on the atoms of a state (A); auto: none can be dropped at this depth.",
        ),
        _option(
            "max_children",
            "N|auto",
            "Cap on the children of a state (S); auto: none can be dropped.",
        ),
        _option(
            "children_width", "N", "Slots for children; more do not change results.", "max-children"
        ),
        _option(
            "fact_fanout", "N", "Cap on the facts matched with one goal.", _UNSET["fact_fanout"]
        ),
        _option(
            "rule_fanout", "N", "Cap on the rules matched with one goal.", _UNSET["rule_fanout"]
        ),
        _option("layout", LAYOUTS, "Candidates of a slot: the next ones, or its own."),
        _option("compile", PARTS, "Part of a step that a compiled mode compiles."),
        _option("choices", "N", "Choices in one call of the strategy stepped."),
        _flag("--mark-steps", "Tell CUDA graphs where each step begins."),
        _option(
            "max_steps", "N", "Stop the evaluation here; what is left counts as unfinished.", "none"
        ),
        _flag("--allow-tf32", "Let float32 products on a GPU use TF32."),
        _option(
            "first_look",
            FIRST_LOOKS,
            "Strategy levels: score in float16 first, then in float32 the children that could "
            "still win.",
        ),
        _option(
            "near_tie_threshold",
            "X",
            "Two float32 logits closer than this are a near-tie; float64 has none.",
            f"{NEAR_TIE_FLOAT32:g}, with --allow-tf32: {NEAR_TIE_TF32:g}",
            type=float,
        ),
    ],
)
