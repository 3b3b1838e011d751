"""The built-in workloads by name: what each shows, where it comes from, and its shapes. Nothing
here imports torch.

Beside the evaluator these are the programs of the documents that kgprof grew from, in the
documents' own shapes: S1 is their guide to torch.compile, S2 their account of its pipeline and
cost, S4 their diagnosis of a CUDA graph.

    kgprof profile fusion -- --small
    kgprof profile small-ops -- --layers 1000
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from kgprof.errors import UsageError

EVALUATOR = "linkpred"
HELP_WIDTH = 100


@dataclass(frozen=True)
class Example:
    """One of them. ``shapes`` are the document's; ``small`` is what a CPU does in a second, by
    ``--small``."""

    shows: str
    source: str  # the document and its chapter
    shapes: Mapping[str, int]
    small: Mapping[str, int]
    module: str = ""  # in kgprof.workloads.examples; empty: as it is called


_BLOCK = {"batch": 32, "tokens": 128, "width": 768, "heads": 12, "layers": 1}
_SMALL_BLOCK = {"batch": 2, "tokens": 8, "width": 32, "heads": 2, "layers": 1}
EXAMPLES: Mapping[str, Example] = {
    "fusion": Example(
        (
            "LayerNorm, GELU, a scale and a bias: how much of four kernels' memory "
            "traffic fusion saves"
        ),
        "S2, workload and table",
        shapes={"batch": 64, "rows": 128, "width": 512},
        small={"batch": 2, "rows": 4, "width": 32},
    ),
    "pointwise": Example(
        (
            "sin + cos, relu(x + 1) and relu(x + y) * 2: several kernels in eager mode, "
            "one when compiled"
        ),
        "S1, chapters 1 and 7",
        shapes={"rows": 4096, "columns": 4096},
        small={"rows": 16, "columns": 16},
    ),
    "branches": Example(
        "a Python condition in forward: one graph for each of its values",
        "S2, stage 1",
        shapes={"batch": 1},
        small={"batch": 1},
    ),
    "small-ops": Example(
        (
            "Linear and ReLU, 20 times on a small batch: the time goes to launches; "
            "--layers 10 to 1000"
        ),
        "S1, chapters 2 and 3",
        shapes={"batch": 8, "width": 256, "layers": 20},
        small={"batch": 2, "width": 16, "layers": 4},
    ),
    "matmul-gelu": Example(
        "a matmul, a bias and GELU: how many kernels are left in each mode",
        "S1, chapter 7",
        shapes={"rows": 4096, "inner": 1024, "columns": 4096},
        small={"rows": 16, "inner": 16, "columns": 16},
    ),
    "transformer-block": Example(
        module="transformer",
        shows=(
            "one transformer block, 768 wide with 12 heads: what each mode gains where "
            "matmuls dominate"
        ),
        source="S1, chapter 2",
        shapes=_BLOCK,
        small=_SMALL_BLOCK,
    ),
    "transformer": Example(
        (
            "twelve transformer blocks, 1,024 wide: seconds of compilation by mode, and "
            "what they buy"
        ),
        "S1, chapter 2",
        shapes={"batch": 64, "tokens": 512, "width": 1024, "heads": 16, "layers": 12},
        small={**_SMALL_BLOCK, "layers": 2},
    ),
    "scorers": Example(
        (
            "three relevance scorers over 196 patches, and the query scorer as written "
            "and without its CPU tensor"
        ),
        "S1, chapter 8",
        shapes={"batch": 32, "patches": 196, "width": 768},
        small={"batch": 2, "patches": 4, "width": 16},
    ),
    "silu-mul": Example(
        (
            "two matmuls, SiLU and a product: as functions, in float8, and as a "
            "hand-made CUDA graph for each shape"
        ),
        "S4, code",
        shapes={"m": 256, "n": 4096, "k": 4096},
        small={"m": 8, "n": 16, "k": 16},
    ),
    "training": Example(
        (
            "a training step: float32, autocast, accumulated gradients, a compiled "
            "optimizer, recomputed activations"
        ),
        "S1, chapters 6 and 7",
        shapes={**_BLOCK, "batch": 8, "layers": 12, "vocabulary": 50_000},
        small={**_SMALL_BLOCK, "layers": 2, "vocabulary": 64},
    ),
    "variable-length": Example(
        "batches of four sizes: one graph a size, one for all, or padding to the largest",
        "S1, chapter 4",
        shapes={**_BLOCK, "batch": 64},
        small={**_SMALL_BLOCK, "batch": 8},
    ),
    "vit": Example(
        (
            "a vision transformer of 224 by 224 images: stands in for a model that the "
            "document does not hold"
        ),
        "S1, chapter 8",
        shapes={
            "batch": 8,
            "side": 224,
            "patch": 16,
            "width": 768,
            "heads": 12,
            "layers": 12,
            "classes": 1000,
        },
        small={
            "batch": 1,
            "side": 16,
            "patch": 8,
            "width": 32,
            "heads": 2,
            "layers": 2,
            "classes": 10,
        },
    ),
}
BUILT_IN = (EVALUATOR, *EXAMPLES)


def shapes_of(name: str, args: Sequence[str]) -> dict[str, int]:
    """The shapes that the options after ``--`` give. Raises UsageError for a wrong one."""
    try:
        given = dict(_command(name).make_context(name, list(args), resilient_parsing=False).params)
    except click.ClickException as error:
        hint = f"kgprof profile {name} -- --help lists the options"
        raise UsageError(f"{name}: {error.format_message()}", hint=hint) from None
    example = EXAMPLES[name]
    chosen = example.small if given.pop("small") else example.shapes
    return {shape: given[shape] or size for shape, size in chosen.items()}


def help_text(name: str) -> str:
    """What ``kgprof profile NAME -- --help`` prints."""
    command = _command(name)
    return command.get_help(
        click.Context(command, info_name=f"kgprof profile {name} --", max_content_width=HELP_WIDTH)
    )


def _command(name: str) -> click.Command:
    example = EXAMPLES[name]
    sizes: list[click.Parameter] = [
        click.Option(
            [f"--{shape}"], type=click.IntRange(min=1), metavar="N", help=f"[default: {size:,}]"
        )
        for shape, size in example.shapes.items()
    ]
    small = ", ".join(f"{shape} {size:,}" for shape, size in example.small.items())
    few = click.Option(["--small"], is_flag=True, help=f"Shapes for a CPU: {small}.")
    summary = f"{example.shows[0].upper()}{example.shows[1:]}. Source: {example.source}."
    return click.Command(name, params=[*sizes, few], help=summary, add_help_option=False)
