"""The workload's own options, those after ``--``. Nothing here imports torch.

kgprof profile linkpred -- --data DIR --queries 100 --corruptions all
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from kgprof.errors import UsageError
from kgprof.workloads.linkpred import family_tree, graph

FAMILY_TREE = "family-tree"
DATASETS = (FAMILY_TREE,)
MINED_DATASETS = ("umls", "kinships", "nations")  # graphs without rules


@dataclass(frozen=True, kw_only=True)
class LinkpredOptions:
    """What is evaluated, and how. The defaults here are those of preset ``small``."""

    dataset: str = FAMILY_TREE  # "family-tree" or "family-tree:SIZE"; not looked at when ``data`` is given
    data: Path | None = None
    queries: int | None = 300  # None: all
    corruptions: int | None = 10  # per query and side; None: all
    depth: int = 10
    batch_size: int = 256
    preset: str = "small"
    embedding: int = 64
    hidden: int = 64
    layers: int = 2
    dtype: str = "float64"
    max_atoms: int = 6
    max_children: int = 32
    children_width: int = 32  # slots of the children tensor; those beyond max_children stay empty
    fact_fanout: int | None = None  # None: the most that one goal matches in the data
    rule_fanout: int | None = None  # None: the most rules that one predicate heads
    selection: str = "most-bound"
    policy: Path | None = None  # a state_dict; None: seeded random weights
    max_steps: int | None = None  # for the whole evaluation; what it leaves is reported as unfinished
    allow_tf32: bool = False
    near_tie_threshold: float = 1e-6  # a top-2 gap of logits below it makes a difference in fp32 a near-tie


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "small": {},
    "seed": {
        "embedding": 250,
        "hidden": 256,
        "layers": 8,
        "max_children": 120,
        "max_atoms": 6,
        "depth": 20,
        "batch_size": 256,
        "dtype": "float32",
    },
}


def load_graph(options: LinkpredOptions, seed: int) -> graph.KnowledgeGraph:
    """The graph that ``options`` name. Raises InputError for a directory that cannot be read."""
    if options.data is not None:
        return graph.load_directory(options.data)
    size = options.dataset.partition(":")[2]
    return family_tree.generate(int(size) if size else family_tree.DEFAULT_SIZE, seed)
