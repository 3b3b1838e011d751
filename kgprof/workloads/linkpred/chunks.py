"""The results of an evaluation that goes through its candidates chunk by chunk: a file a chunk, so
that memory stays bounded and a run that was killed goes on where it was.

A chunk is a range of whole queries. Its file is written whole under another name and then renamed,
and begins with the SHA-256 of what follows: a file that is there is complete, and one that was
damaged later is seen and computed again. ``evaluation.json`` says which evaluation the folder
belongs to and where its chunks begin and end.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from kgprof import model as m
from kgprof.errors import InputError, OutputError, UsageError, remedy
from kgprof.reading import files
from kgprof.reading.link_prediction import RankMetrics
from kgprof.workloads.linkpred.arrays import Floats, Ints, Outcomes, Steps
from kgprof.workloads.linkpred.caps import Dropped
from kgprof.workloads.linkpred.proof import PROVED
from kgprof.workloads.linkpred.ranking import metrics_of

MANIFEST = "evaluation.json"
# beside the outcomes of proof.py: the closure has no proof of it, so none was searched for
REFUTED = 5
OUTCOMES = ("unfinished", "proved", "failed", "truncated", "overflow", "refuted")


@dataclass(frozen=True, kw_only=True, eq=False)
class ChunkResult:
    """Everything that a chunk adds to the whole. Places are a histogram, int64 [n, 4]: side, first,
    last, how often."""

    outcome: Outcomes
    steps: Steps
    places: Ints
    upper_places: Ints  # ranked by the closure; empty without one
    truth: Ints  # [outcomes, 3]: refuted, provable, not known to the closure
    dropped: Ints  # [4], as in Dropped
    # Calls of the step, NaN scores, slots without a candidate, proved ones whose replay found no
    # proof.
    counts: Ints
    seconds: Floats  # []: the search alone

    def packed(self) -> bytes:
        payload = msgspec.msgpack.encode(
            {
                name: getattr(self, name).astype(dtype).tobytes()
                for name, (dtype, _) in _ARRAYS.items()
            }
        )
        return hashlib.sha256(payload).digest() + payload

    @classmethod
    def unpacked(cls, data: bytes, candidates: int, ranked: tuple[int, int]) -> ChunkResult | None:
        """None where the bytes are not those that were written for so many candidates; ``ranked``:
        how many queries ``places`` and ``upper_places`` have."""
        if hashlib.sha256(data[32:]).digest() != data[:32]:
            return None
        try:
            held = msgspec.msgpack.decode(data[32:], type=dict[str, bytes])
            found = cls(
                **{
                    name: np.frombuffer(held[name], dtype).reshape(shape)
                    for name, (dtype, shape) in _ARRAYS.items()
                }
            )
        except (msgspec.DecodeError, KeyError, ValueError):
            return None
        histograms = zip((found.places, found.upper_places), ranked, strict=True)
        fits = (
            len(found.outcome) == len(found.steps) == candidates
            and _within(found.outcome, len(OUTCOMES) - 1)
            and _within(found.steps, MOST_STEPS)
            and all(_ranks(places, queries, candidates) for places, queries in histograms)
            and all(_within(each, MOST) for each in (found.truth, found.dropped, found.counts))
            and _within(found.seconds, MOST)
        )
        return found if fits else None


# How each is kept: -1 are as many as there are.
_ARRAYS: dict[str, tuple[str, tuple[int, ...]]] = {
    "outcome": ("<i1", (-1,)),
    "steps": ("<i4", (-1,)),
    "places": ("<i8", (-1, 4)),
    "upper_places": ("<i8", (-1, 4)),
    "truth": ("<i8", (len(OUTCOMES), 3)),
    "dropped": ("<i8", (4,)),
    "counts": ("<i8", (4,)),
    "seconds": ("<f8", ()),
}
MOST = 2**43  # of a sum, so that those of a million chunks fit into 64 bits together
MOST_STEPS = 10**6  # of a proof, whose lengths are counted one by one
# 5 of a candidate, and 128 where each is a query of its own
_BYTES_OF_ONE, _BYTES_MORE = 160, 4096


def _ranks(places: Ints, queries: int, most: int) -> bool:
    """Whether each of so many queries has its place on both sides."""
    sides, first, last, often = places.T
    return (
        all(_within(each, most) for each in (first - 1, last - first, last, often))
        and _within(sides, 1)
        and all(often[sides == side].sum() == queries for side in (0, 1))
    )


def _within(values: Ints | Outcomes | Steps | Floats, most: int) -> bool:
    return bool(((values >= 0) & (values <= most)).all())


def histogram(first: Ints, last: Ints) -> Ints:
    """``places`` of ranking.py, int64 [Q, 2] each, as a histogram."""
    sides = np.broadcast_to(np.arange(2), first.shape)
    rows = np.stack([sides.ravel(), first.ravel(), last.ravel()], axis=1)
    rows, counts = np.unique(rows, axis=0, return_counts=True)
    return np.concatenate([rows, counts[:, None]], axis=1)


def added(one: Ints, other: Ints) -> Ints:
    both = np.concatenate([one, other])
    rows, where = np.unique(both[:, :3], axis=0, return_inverse=True)
    counts = np.zeros(len(rows), dtype=np.int64)
    np.add.at(counts, where.ravel(), both[:, 3])
    return np.concatenate([rows, counts[:, None]], axis=1)


def ranked(places: Ints) -> tuple[RankMetrics, ...]:
    """The metrics of the places in a histogram."""
    places = np.repeat(places[:, :3], places[:, 3], axis=0)
    head, tail = (places[places[:, 0] == side] for side in (0, 1))
    _, first, last = np.stack([head, tail], axis=1).T
    return metrics_of(first.T, last.T)


class VectorHash:
    """SHA-256 of a result vector that comes in parts: of the digest of all outcomes (int8) and that
    of all steps (little-endian int32), in the candidates' order."""

    def __init__(self) -> None:
        self._parts = hashlib.sha256(), hashlib.sha256()

    def add(self, outcome: Outcomes, steps: Steps) -> None:
        self._parts[0].update(np.ascontiguousarray(outcome, dtype="<i1").tobytes())
        self._parts[1].update(np.ascontiguousarray(steps, dtype="<i4").tobytes())

    def hexdigest(self) -> str:
        return hashlib.sha256(b"".join(part.digest() for part in self._parts)).hexdigest()


NO_PLACES: Ints = np.empty((0, 4), dtype=np.int64)


class Total:
    """The sum of all chunks, added in their order."""

    def __init__(self) -> None:
        self.candidates = 0
        self.outcomes: Ints = np.zeros(len(OUTCOMES), dtype=np.int64)
        self.proof_lengths: Ints = np.zeros(0, dtype=np.int64)
        self.slot_steps = 0
        self.places = NO_PLACES
        self.upper_places = NO_PLACES
        self.truth: Ints = np.zeros((len(OUTCOMES), 3), dtype=np.int64)
        self.dropped = Dropped()
        self.counts: Ints = np.zeros(4, dtype=np.int64)
        self.seconds: dict[int, float] = {}  # of searching, by process
        self.vector = VectorHash()
        self.proved_vector = VectorHash()

    def add(self, chunk: ChunkResult, process: int = 0) -> None:
        proved = chunk.outcome == PROVED
        lengths = np.bincount(chunk.steps[proved], minlength=len(self.proof_lengths))
        lengths[: len(self.proof_lengths)] += self.proof_lengths
        self.proof_lengths = lengths
        self.outcomes += np.bincount(chunk.outcome, minlength=len(OUTCOMES))
        self.candidates += len(chunk.outcome)
        self.slot_steps += int(chunk.steps.sum(dtype=np.int64))
        self.places = added(self.places, chunk.places)
        self.upper_places = added(self.upper_places, chunk.upper_places)
        self.truth += chunk.truth
        self.dropped = self.dropped.plus(Dropped(*chunk.dropped.tolist()))
        self.counts += chunk.counts
        self.seconds[process] = self.seconds.get(process, 0.0) + float(chunk.seconds)
        self.vector.add(chunk.outcome, chunk.steps)
        # What pruning does not change: which candidates are proved, and in how many steps.
        self.proved_vector.add(
            proved.astype(np.int8), np.where(proved, chunk.steps, 0).astype(np.int32)
        )


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    settings: dict[str, str]  # what the result depends on
    bounds: list[int]  # chunk i holds the queries from bounds[i] to bounds[i + 1]


class Checkpoint:
    """A folder of chunk files. ``folder`` None: a temporary one, which is gone in the end."""

    def __init__(
        self,
        folder: Path | None,
        settings: Mapping[str, str],
        bounds: Sequence[int],
        sizes: Ints,
        *,
        resume: bool,
    ) -> None:
        self._sizes = sizes  # the candidates of each query
        self._closed = settings["closure"] != "none"  # ranked by the closure too
        self.kept = folder is not None
        self._temporary = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="kgprof-chunks-")
            folder = Path(self._temporary.name)
        self.folder = folder
        wanted = Manifest(version=2, settings=dict(settings), bounds=list(bounds))
        path = folder / MANIFEST
        if not (self.kept and path.exists()):
            self.bounds = wanted.bounds
            self._write(MANIFEST, msgspec.json.format(msgspec.json.encode(wanted)))
            return
        if not resume:
            hint = f"continue it with --resume {folder}, or name another folder"
            raise UsageError(f"{folder} already holds a checkpoint", hint=hint)
        known = _manifest(path)
        self.bounds = known.bounds
        another = [
            (name, known.settings.get(name, "none"), now)
            for name, now in wanted.settings.items()
            if now != known.settings.get(name)
        ]
        if known.version != wanted.version:
            another.append(("the version", str(known.version), str(wanted.version)))
        if another:
            name, before, now = another[0]
            hint = "give the options that it was begun with, or begin another one with --checkpoint"
            raise UsageError(
                f"{folder} is of another evaluation: {name} was {before}, and is {now}", hint=hint
            )
        rising = all(low < high for low, high in itertools.pairwise(known.bounds))
        ends = (known.bounds[:1], known.bounds[1:][-1:])
        if not rising or ends != (wanted.bounds[:1], wanted.bounds[-1:]):
            hint = "begin another evaluation with --checkpoint"
            raise InputError("is damaged: its chunks do not hold the queries", path=path, hint=hint)

    @property
    def chunks(self) -> int:
        return len(self.bounds) - 1

    @cached_property
    def candidates(self) -> list[int]:
        """Of each chunk."""
        sizes: list[int] = np.add.reduceat(self._sizes, self.bounds[:-1]).tolist()
        return sizes

    def load(self, chunk: int) -> ChunkResult | None:
        """None where it is not there yet. Raises InputError where it is damaged."""
        path = self._path(chunk)
        candidates = self.candidates[chunk]
        try:
            data = files.content(path, _BYTES_MORE + _BYTES_OF_ONE * candidates, self.folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}", path=path) from None
        begin, end = self.bounds[chunk : chunk + 2]
        upper = end - begin if self._closed else 0
        result = ChunkResult.unpacked(data, candidates, (end - begin, upper))
        if result is None:
            raise InputError("is damaged", path=path)
        return result

    def save(self, chunk: int, result: ChunkResult) -> None:
        self._write(self._path(chunk).name, result.packed())

    def close(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def _path(self, chunk: int) -> Path:
        return self.folder / f"chunk-{chunk:06}.bin"

    def _write(self, name: str, data: bytes) -> None:
        """Raises OutputError. Afterwards the file is there whole, or as it was before."""
        partial = self.folder / f"{name}.{os.getpid()}.partial"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            partial.unlink(missing_ok=True)  # a link there would be followed
            with partial.open("xb") as file:
                file.write(data)
                if self.kept:
                    file.flush()
                    os.fsync(file.fileno())
            partial.replace(self.folder / name)
        except OSError as error:
            with contextlib.suppress(OSError):  # where the folder is a file there is none
                partial.unlink()
            hint = remedy(error, "make room and run again")
            if self.kept:
                again = f"--resume {self.folder} goes on with the chunks that are finished"
                hint = f"{remedy(error, 'make room')}; {again}"
            raise OutputError(
                f"{self.folder} cannot be written: {error.strerror}", hint=hint
            ) from None


def _manifest(path: Path) -> Manifest:
    try:
        return m.decode_json(files.content(path, within=path.parent), Manifest)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path) from None
    except msgspec.MsgspecError as error:
        hint = (
            "the chunks beside it cannot be told apart without it; begin another one "
            "with --checkpoint"
        )
        raise InputError(f"is damaged: {error}", path=path, hint=hint) from None


def bounds(counts: Ints, most: int) -> list[int]:
    """Where chunks begin and end so that each has whole queries and at most ``most`` candidates, or
    one query; ``counts`` int64 [Q, 2] are the corruptions."""
    found = [0]
    held = 0
    for query, size in enumerate((counts + 1).sum(axis=1).tolist()):
        if held and held + size > most:
            found.append(query)
            held = 0
        held += size
    return [*found, len(counts)]
