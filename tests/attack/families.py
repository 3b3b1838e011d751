"""Families of damaged files, each a seeded list of cases: a name, and a function that gives what is
wrong with kgprof's answer, or an empty text.

    python -m tests.attack.families numbers --share 0.1 --seed 7 -o benchmarks/results/NAME.json
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.attack import checkpoints as checkpoints_of
from tests.attack import damage, documents

Case = tuple[str, Callable[[], str]]


def numbers(rng: random.Random) -> Iterator[Case]:
    """Every numeric field of every format, with each of 18 values."""
    for document in documents.numbered():
        value = json.loads(document.path.read_bytes())
        for shape, path in documents.number_fields(value).items():
            for literal in documents.VALUES:
                name = f"{document.name}: {'.'.join(shape)} = {literal[:12]}"
                yield name, partial(_numeric, document, value, path, literal)


def _numeric(document: documents.Document, value: Any, path: documents.Path_, literal: str) -> str:
    return document.with_bytes(documents.with_literal(value, path, literal)).fault


def corruptions(rng: random.Random) -> Iterator[Case]:
    """Each file of a Recording: missing, damaged, with other values, and not a file; read by
    `report` and by `compare`."""
    for document in documents.recorded():
        kinds = [*damage.of_bytes(rng)]
        if document.file.endswith(".json"):
            kinds += damage.of_json(rng, 6)
        for name, make in kinds:
            yield f"{document.name}: {name}", partial(_damaged, document, make)
        for place in documents.NO_FILES:
            yield f"{document.name}: {place.__name__}", partial(_moved, document, place)


def _damaged(document: documents.Document, make: Callable[[bytes], bytes]) -> str:
    return document.with_bytes(make(document.path.read_bytes())).fault


def _moved(document: documents.Document, place: Callable[[Path], None]) -> str:
    return document.with_in_place(place).fault


def sweeps(rng: random.Random) -> Iterator[Case]:
    """sweep.json: damaged, and with several values changed; and far too large."""
    for document in documents.numbered():
        if document.name.startswith("sweep/"):
            for name, make in (*damage.of_bytes(rng), *damage.of_json(rng, 500)):
                yield f"{document.name}: {name}", partial(_damaged, document, make)
            large = partial(_damaged, document, documents.with_long_name)
            yield f"{document.name}: a name of 7 MB", large


def traces(rng: random.Random) -> Iterator[Case]:
    """Kineto traces: damaged, and with events and fields changed."""
    document = next(each for each in documents.numbered() if each.name == "trace")
    for name, make in (*damage.of_bytes(rng), *damage.of_json(rng, 529)):
        yield f"{document.name}: {name}", partial(_damaged, document, make)


def checkpoints(rng: random.Random) -> Iterator[Case]:
    """Chunks and manifests of `kgprof evaluate`: what reads them takes them as they are, or says
    that they are damaged."""
    for name, chunk in checkpoints_of.chunks(rng):
        yield f"chunk: {name}", partial(checkpoints_of.chunk_fault, chunk)
    for name, manifest in checkpoints_of.manifests(rng):
        yield f"manifest: {name}", partial(checkpoints_of.manifest_fault, manifest)
    for name, make in checkpoints_of.live(rng):
        yield f"live: {name}", make


FAMILIES: dict[str, Callable[[random.Random], Iterator[Case]]] = {
    "numbers": numbers,
    "corruptions": corruptions,
    "sweeps": sweeps,
    "traces": traces,
    "checkpoints": checkpoints,
}


def sampled(family: str, *, seed: int, share: float = 1.0, most: int | None = None) -> list[Case]:
    """A share of all its cases, in an order of chance."""
    rng = random.Random(seed)
    cases = list(FAMILIES[family](rng))
    rng.shuffle(cases)
    count = round(share * len(cases))
    return cases[: count if most is None else min(count, most)]


def faults(
    cases: Sequence[Case], until_s: float = float("inf")
) -> tuple[int, list[tuple[str, str]]]:
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
        sys.stdout.write(f"{name}: {fault}\n")
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
    sys.stdout.write(json.dumps(summary) + "\n")
    if asked.output is not None:
        asked.output.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
