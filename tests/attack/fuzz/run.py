"""Coverage-guided fuzzing of readers with atheris.

    python -m tests.attack.fuzz.run GROUP SECONDS FOUND    # new inputs and crashes go to FOUND
    python -m tests.attack.fuzz.run GROUP keep FOUND       # those that reach more, to the corpus

An input's first line names its reader; in the corpus its folder does.
"""

from __future__ import annotations

import hashlib
import random
import resource
import sys
from pathlib import Path

import atheris  # type: ignore[import-not-found,unused-ignore]

from tests.attack.fuzz.corpus_files import CORPUS, GROUPS, LARGEST, inputs, neutral

# The rooms that read: counting in all the others makes an input three times as slow.
ROOMS = ("cli", "collectors", "compare", "gate", "measures", "reading", "record", "workloads")
INSTRUMENTED = [f"kgprof.{room}" for room in (*ROOMS, "render.embedded_profile")]
SECONDS_EACH = 60  # of a clock, on a machine that others use: hundreds of times what one takes
MEMORY_MIB = 3000


def main(group: str, what: str, found: Path) -> None:
    with atheris.instrument_imports(include=INSTRUMENTED, enable_loader_override=False):
        from tests.attack.fuzz import readers
    from tests.attack.fuzz.mutations import mutated

    def by_token_or_byte(data: bytes, most: int, seed: int) -> bytes:
        draw = random.Random(seed)
        name, _, content = data.partition(b"\n")
        room = most - len(name) - 1
        if draw.random() < 0.3:
            return name + b"\n" + bytes(atheris.Mutate(content, room))
        return name + b"\n" + mutated(content, draw, room)

    def read(data: bytes) -> None:
        name, _, content = data.partition(b"\n")
        if name.decode("utf-8", errors="replace") in GROUPS[group]:
            readers.ends_well(name.decode(), content, rarely=True)

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MIB * 2**21, MEMORY_MIB * 2**21))
    begun = found / "begun"
    begun.mkdir(parents=True, exist_ok=True)
    for number, (name, content) in enumerate(inputs(GROUPS[group])):
        (begun / f"{number:04}").write_bytes(name.encode() + b"\n" + content)
    new = found / "new"
    new.mkdir(exist_ok=True)
    limits = [f"-rss_limit_mb={MEMORY_MIB}", f"-timeout={SECONDS_EACH}", f"-max_len={LARGEST}"]
    task = [f"-max_total_time={what}", f"-artifact_prefix={found}/crash-", "-print_final_stats=1"]
    atheris.Setup(
        [sys.argv[0], *limits, *task, str(new), str(begun)], read, custom_mutator=by_token_or_byte
    )
    atheris.Fuzz()


def keep(found: Path) -> None:
    """Put what was found into the corpus, under the reader it is of."""
    for path in sorted((found / "new").iterdir()):
        name, _, content = neutral(path.read_bytes()).partition(b"\n")
        digest = hashlib.sha256(content).hexdigest()[:12]
        (CORPUS / name.decode() / digest).write_bytes(content)


if __name__ == "__main__":
    if sys.argv[2] == "keep":
        keep(Path(sys.argv[3]))
    else:
        main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
