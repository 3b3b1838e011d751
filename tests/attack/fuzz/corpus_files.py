"""The kept inputs of the fuzzer: a folder for each reader, a file for each input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
MOST_BYTES = 300_000  # of all of them
LARGEST = 20_000  # of one

# Each is one process: to instrument kgprof takes it a quarter of a minute.
GROUPS: Mapping[str, Sequence[str]] = {
    "small": (
        "accepted",
        "checkpoint",
        "chunk",
        "configuration",
        "record",
        "report_html",
        "result",
        "sweep",
    ),
    "recording": ("recording", "records"),
    "kineto": ("kineto",),
    "torch_trace": ("torch_trace",),
    "report": ("report_json",),
}


def neutral(data: bytes) -> bytes:
    """Without the folder of this checkout."""
    return data.replace(bytes(Path(__file__).resolve().parents[3]), b"/home/project")


def inputs(names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """The reader's name and the bytes."""
    for name in names:
        for path in sorted((CORPUS / name).iterdir()):
            yield name, path.read_bytes()
