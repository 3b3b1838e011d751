"""The graphs that can be asked for by name. Nothing here imports torch.

Three of them are data of the package pykeen (``pip install kgprof[datasets]``), whose files are
read where they lie; pykeen itself is not imported. Their rules are mined.
"""

import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from kgprof.errors import UsageError
from kgprof.workloads.linkpred import family_tree, graph, mining

_IN_PYKEEN = "triples in the package pykeen, which is MIT; the data's own licence is not stated"
PACKAGED: Mapping[str, tuple[str, str]] = {  # licence, source
    "umls": (
        _IN_PYKEEN,
        "Unified Medical Language System's semantic network (McCray 2003), as in pykeen",
    ),
    "kinships": (_IN_PYKEEN, "Alyawarra kinship terms (Denham 1973), as in pykeen"),
    "nations": (_IN_PYKEEN, "dimensions of nations (Rummel 1992), as in pykeen"),
}


def folder(name: str) -> Path:
    """Where the files of a packaged graph are. Raises UsageError where the package is not
    installed."""
    found = importlib.util.find_spec("pykeen")
    if found is not None and found.origin:
        place = Path(found.origin).parent / "datasets" / name
        if (place / "train.txt").is_file():
            return place
    hint = "pip install 'kgprof[datasets]', or give --dataset family-tree or --data DIR"
    raise UsageError(
        f"the graph {name!r} comes with the package pykeen, which is not installed", hint=hint
    )


def listing(form: str) -> str:
    """All of them with their counts, as text or JSON; where a package is missing, that is said in
    place of counts."""
    rows = [*_rows()]
    if form == "json":
        return json.dumps(rows, indent=2)
    lines = []
    for row in rows:
        counts = row["missing"] or (
            f"{row['train']:,} train, {row['valid']:,} valid, {row['test']:,} test triples, "
            f"{row['predicates']} predicates, {row['constants']:,} constants, {row['rules']} rules "
            f"({row['rules_from']})"
        )
        lines += [f"{row['name']}: {counts}", f"    {row['source']}; {row['licence']}"]
    return "\n".join(lines)


def _rows() -> Iterator[dict[str, object]]:
    generated = family_tree.generate(family_tree.DEFAULT_SIZE, 0)
    yield {
        "name": "family-tree",
        "missing": "",
        **_counts(generated),
        "rules_from": "its own",
        "licence": "kgprof's own",
        "source": "generated from a seed; family-tree:SIZE for another number of people",
    }
    for name, (licence, source) in PACKAGED.items():
        row: dict[str, object] = {"name": name, "missing": ""}
        row |= {"licence": licence, "source": source}
        try:
            loaded = graph.load_directory(folder(name))
        except UsageError as error:
            row["missing"] = f"{error.message}; {error.hint}"
        else:
            rules, _ = mining.mined(loaded)
            row |= {**_counts(loaded), "rules": len(rules), "rules_from": "mined"}
        yield row


def _counts(of: graph.KnowledgeGraph) -> dict[str, object]:
    names = ("train", "valid", "test", "predicates", "constants", "rules")
    return {name: len(getattr(of, name)) for name in names}
