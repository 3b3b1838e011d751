"""Families of damaged files, each a seeded list of cases: a name, and a function that gives what is
wrong with kgprof's answer, or an empty text.

    python -m tests.attack.families numbers --share 0.1 --seed 7 -o benchmarks/results/NAME.json
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.attack import documents

Case = tuple[str, Callable[[], str]]


def numbers(rng: random.Random) -> Iterator[Case]:
    """Every numeric field of every format, with each of 18 values."""
    for document in documents.numbered():
        value = json.loads(document.path.read_bytes())
        for shape, path in documents.number_fields(value).items():
            for literal in documents.VALUES:
                name = f"{document.name}: {'.'.join(shape)} = {literal[:12]}"
                yield name, partial(_numeric, document, value, path, literal)


def _numeric(
    document: documents.Document, value: Any, path: documents.Path_, literal: str
) -> str:
    return document.with_bytes(documents.with_literal(value, path, literal)).fault


FAMILIES: dict[str, Callable[[random.Random], Iterator[Case]]] = {"numbers": numbers}


def sampled(family: str, *, seed: int, share: float = 1.0, most: int | None = None) -> list[Case]:
    """A share of all its cases, in an order of chance."""
    rng = random.Random(seed)
    cases = list(FAMILIES[family](rng))
    rng.shuffle(cases)
    count = round(share * len(cases))
    return cases[: count if most is None else min(count, most)]


def faults(cases: Sequence[Case], until_s: float = float("inf")) -> tuple[int, list[tuple[str, str]]]:
    """How many were tried by ``until_s`` seconds of a processor, and what fell."""
    found = []
    tried = 0
    began = time.process_time()
    for name, case in cases:
        if time.process_time() - began > until_s:
            break
        tried += 1
        if fault := case():
            found.append((name, fault))
    return tried, found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    cases = sampled(asked.family, seed=asked.seed)
    chosen = [each for each in cases if asked.only in each[0]]
    chosen = chosen[: round(asked.share * len(chosen))]
    began = time.process_time()
    tried, found = faults(chosen)
    for name, fault in found:
        print(f"{name}: {fault}")
    kinds = Counter(name.partition(":")[0] for name, _ in found)
    summary = {
        "family": asked.family,
        "seed": asked.seed,
        "cases": len(cases),
        "tried": tried,
        "failed": len(found),
        "failed_by_document": dict(kinds),
        "cpu_s": round(time.process_time() - began),
    }
    print(json.dumps(summary))
    if asked.output is not None:
        asked.output.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
