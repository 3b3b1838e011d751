"""What ``kgprof evaluate`` prints: a column an evaluation, as text or as JSON. Nothing here imports
torch."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from kgprof.reading.link_prediction import RankMetrics
from kgprof.workloads.linkpred.chunks import OUTCOMES, Total, ranked
from kgprof.workloads.linkpred.proof import FAILED, OVERFLOW, PROVED, TRUNCATED, UNFINISHED

VERSION = 1
# What lets a cap drop nothing.
DROPPING_NOTHING = {
    "atoms": "--max-atoms auto",
    "children": "--max-children auto",
    "facts": "--fact-fanout as large as the data",
    "rules": "no --rule-fanout",
}
# a greedy search that finds no proof has not shown there is none
UNDECIDED = (UNFINISHED, FAILED, TRUNCATED, OVERFLOW)


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluated:
    total: Total
    settings: dict[str, str]
    notes: tuple[str, ...]
    queries: int
    corruptions: str
    slots: int | None  # choices that a step has room for; None where a step is no batch
    chunks: int
    processes: int
    elapsed_s: float  # from when all processes are ready to the sum of their results
    peak_bytes: int  # of the first process
    peak_gpu_bytes: int | None
    closure: tuple[int, int, bool] | None  # triples, rounds, whether it is whole
    closure_seconds: float

    @property
    def classes(self) -> dict[str, int]:
        return dict(zip(OUTCOMES, self.total.outcomes.tolist(), strict=True))

    @property
    def impossible(self) -> int:
        """Candidates that were proved and have no proof."""
        return int(self.total.truth[PROVED, 0])

    @property
    def undecided(self) -> dict[str, int]:
        """Those the search left open, by what the closure says of them."""
        counts = self.total.truth[list(UNDECIDED)].sum(axis=0).tolist()
        return dict(zip(("refuted", "provable", "unknown"), counts, strict=True))

    @property
    def occupancy(self) -> float | None:
        """The share of the slots' steps that went forward with a candidate; None where a step is no
        batch."""
        return self.total.slot_steps / self.room if self.room else None

    @property
    def room(self) -> int:
        """Slot-steps of the whole search; 0 where a step is no batch."""
        return int(self.total.counts[0]) * (self.slots or 0)

    @property
    def search_s(self) -> float:
        """Of the process that searched longest."""
        return max(self.total.seconds.values(), default=0.0)

    @property
    def candidates_per_second(self) -> float | None:
        """None while any is unfinished: a time of work that was cut short compares with nothing."""
        finished = not self.classes["unfinished"]
        return self.total.candidates / self.search_s if finished and self.search_s else None


def as_json(evaluations: Sequence[Evaluated]) -> str:
    return json.dumps({"version": VERSION, "evaluations": [*map(_plain, evaluations)]}, indent=2)


def _plain(of: Evaluated) -> dict[str, object]:
    total = of.total
    closure = None
    if of.closure is not None:
        triples, rounds, complete = of.closure
        closure = {
            "triples": triples,
            "rounds": rounds,
            "complete": complete,
            "seconds": of.closure_seconds,
            "proved_without_a_proof": of.impossible,
            "undecided": of.undecided,
            "metrics": [msgspec.structs.asdict(each) for each in ranked(total.upper_places)],
        }
    calls, nans, invalid, unlike = total.counts.tolist()
    return {
        "settings": of.settings,
        "notes": list(of.notes),
        "queries": of.queries,
        "corruptions": of.corruptions,
        "candidates": total.candidates,
        "classes": of.classes,
        "invalid": invalid,
        "dropped": total.dropped._asdict(),
        "nan_scores": nans,
        "replays_without_proof": unlike,
        "metrics": [msgspec.structs.asdict(each) for each in ranked(total.places)],
        "closure": closure,
        "steps": calls,
        "proof_lengths": {
            str(length): count for length, count in enumerate(total.proof_lengths.tolist()) if count
        },
        "occupancy": of.occupancy,
        "seconds": of.search_s,
        "elapsed_seconds": of.elapsed_s,
        "candidates_per_second": of.candidates_per_second,
        "peak_bytes": of.peak_bytes,
        "peak_gpu_bytes": of.peak_gpu_bytes,
        "chunks": of.chunks,
        "processes": of.processes,
        "sha256": total.vector.hexdigest(),
        "sha256_proved": total.proved_vector.hexdigest(),
    }


def as_text(evaluations: Sequence[Evaluated]) -> str:
    """One table of names and values, then what does not go into a table."""
    rows = [[name, *cells] for name, *cells in _rows(evaluations)]
    widths = [
        max(len(row[column]) for row in rows if len(row) > 1)
        for column in range(1 + len(evaluations))
    ]
    lines = []
    for name, *cells in rows:
        if not cells:
            lines += ["", name]
        else:
            values = "  ".join(
                cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)
            )
            lines.append(f"{name.ljust(widths[0])}  {values}")
    first = evaluations[0]
    lines += [
        "",
        *(
            f"note: {note}"
            for note in dict.fromkeys(note for of in evaluations for note in of.notes)
        ),
    ]
    undecided = sum(first.classes[name] for name in ("truncated", "overflow", "unfinished"))
    if first.classes["overflow"] * 10 > first.total.candidates:
        share = first.classes["overflow"] / first.total.candidates
        dropped = first.total.dropped._asdict()
        free = [option for cap, option in DROPPING_NOTHING.items() if dropped[cap]]
        lines.append(
            f"note: {share:.0%} of the candidates hit a size limit, so results and times are of "
            f"truncated work; with {' '.join(free)} none does"
        )
    if undecided and first.closure is None:
        lines.append(
            "note: --check closure says how many of the undecided candidates the rules prove or "
            "refute"
        )
    for of in evaluations:
        if of.impossible:
            lines.append(
                f"error: {of.impossible:,} candidates were proved that the rules do not prove"
            )
        if of.closure is not None and not of.closure[2]:
            lines.append(
                f"note: the rules prove more than {of.closure[0]:,} triples, so the closure is not "
                "whole; what it lacks is unknown"
            )
    return "\n".join(lines).rstrip()


def _rows(evaluations: Sequence[Evaluated]) -> Iterator[tuple[str, ...]]:
    def row(name: str, cell: Callable[[Evaluated], object]) -> tuple[str, ...]:
        return (name, *(_cell(cell(of)) for of in evaluations))

    settings = evaluations[0].settings
    yield row(
        f"{settings['graph'].partition(', ')[0]}, {settings['strategy']}.{settings['mode']}",
        lambda of: "",
    )
    yield row("corruptions per side", lambda of: of.corruptions)
    yield row("queries", lambda of: of.queries)
    yield row("candidates", lambda of: of.total.candidates)
    for side, ties in (("both", "realistic"), ("head", "realistic"), ("tail", "realistic")):
        yield (f"Ranks, {side}, {ties} ties",)
        for name in ("MRR", "Hits@1", "Hits@3", "Hits@10"):
            of_rank = name.lower().replace("@", "_at_")
            yield (
                f"  {name}",
                *(_cell(getattr(_metrics(of, side, ties), of_rank)) for of in evaluations),
            )
    yield ("MRR by ties, both sides",)
    for ties in ("optimistic", "realistic", "pessimistic", "expected"):
        yield row(f"  {ties}", lambda of, ties=ties: _metrics(of, "both", ties).mrr)  # type: ignore[misc]
    if evaluations[0].closure is not None:
        yield row(
            "  closure, realistic", lambda of: _metrics(of, "both", "realistic", upper=True).mrr
        )
    yield ("Classes",)
    for name in OUTCOMES[1:] + OUTCOMES[:1]:
        if name != "refuted" or any(of.classes[name] for of in evaluations):
            yield row(f"  {name}", lambda of, name=name: of.classes[name])  # type: ignore[misc]
    if evaluations[0].closure is not None:
        yield ("Without a proof, by the closure",)
        for name in ("refuted", "provable", "unknown"):
            yield row(f"  {name}", lambda of, name=name: of.undecided[name])  # type: ignore[misc]
        yield row("  closure (s)", lambda of: f"{of.closure_seconds:.3g}")
    yield ("Dropped by a cap",)
    for at, name in enumerate(evaluations[0].total.dropped._fields):
        yield row(f"  {name}", lambda of, at=at: of.total.dropped[at])  # type: ignore[misc]
    longest = max(len(of.total.proof_lengths) for of in evaluations)
    lengths = np.zeros((len(evaluations), longest), dtype=np.int64)
    for line, of in zip(lengths, evaluations, strict=True):
        line[: len(of.total.proof_lengths)] = of.total.proof_lengths
    yield ("Proofs by their steps",)
    for length in np.flatnonzero(lengths.any(axis=0)):
        yield (f"  {length}", *(f"{count:,}" for count in lengths[:, length].tolist()))
    yield ("Work",)
    yield row("  calls of the step", lambda of: int(of.total.counts[0]))
    yield row("  occupancy", lambda of: "-" if of.occupancy is None else f"{of.occupancy:.1%}")
    yield row(
        "  idle slot-steps",
        lambda of: "-" if of.occupancy is None else of.room - of.total.slot_steps,
    )
    yield row("  search (s)", lambda of: f"{of.search_s:.4g}")
    yield row("  with drawing, ranking and adding up (s)", lambda of: f"{of.elapsed_s:.4g}")
    yield row(
        "  candidates/s",
        lambda of: "-" if not (speed := of.candidates_per_second) else f"{speed:,.0f}",
    )
    yield row("  chunks", lambda of: of.chunks)
    yield row("  processes", lambda of: of.processes)
    yield row("  peak memory (MiB)", lambda of: of.peak_bytes >> 20)
    if evaluations[0].peak_gpu_bytes is not None:
        yield row("  peak GPU memory (MiB)", lambda of: (of.peak_gpu_bytes or 0) >> 20)
    for at, name in ((1, "  NaN scores"), (3, "  replays without proof")):
        if any(of.total.counts[at] for of in evaluations):
            yield row(name, lambda of, at=at: int(of.total.counts[at]))  # type: ignore[misc]
    yield row("  sha256 of outcomes, steps", lambda of: of.total.vector.hexdigest()[:16])
    yield row("  sha256 of the proved", lambda of: of.total.proved_vector.hexdigest()[:16])


def _metrics(of: Evaluated, side: str, ties: str, *, upper: bool = False) -> RankMetrics:
    metrics = ranked(of.total.upper_places if upper else of.total.places)
    return next(each for each in metrics if (each.side, each.ties) == (side, ties))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
