"""What ``kgprof evaluate`` prints: a column an evaluation, as text or as JSON. Nothing here imports
torch."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from kgprof.workloads.linkpred.chunks import OUTCOMES, Total, ranked
from kgprof.workloads.linkpred.closure import Closure
from kgprof.workloads.linkpred.proof import FAILED, OVERFLOW, PROVED, TRUNCATED, UNFINISHED

VERSION = 1
# What lets a cap drop nothing.
DROPPING_NOTHING = {
    "atoms": "--max-atoms auto",
    "children": "--max-children auto",
    "facts": "--fact-fanout as large as the data",
    "rules": "no --rule-fanout",
}
# Rows that are left out where no evaluation has any; so are lengths that no proof has.
RARE = ("refuted", "NaN scores", "replays without proof")
# a greedy search that finds no proof has not shown there is none
UNDECIDED = (UNFINISHED, FAILED, TRUNCATED, OVERFLOW)


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluated:
    total: Total
    settings: dict[str, str]
    notes: tuple[str, ...]
    queries: int
    corruptions: str
    slots: int  # choices that a step has room for; 0 where a step is no batch
    chunks: int
    processes: int
    elapsed_s: float  # from when all processes are ready to the sum of their results
    peak_bytes: int  # of the first process
    peak_gpu_bytes: int | None
    closure: Closure | None

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
        return int(self.total.counts[0]) * self.slots

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
        closure = {
            "triples": of.closure.size,
            "rounds": of.closure.rounds,
            "complete": of.closure.complete,
            "seconds": of.closure.seconds,
            "proved_without_a_proof": of.impossible,
            "undecided": of.undecided,
            "metrics": [*map(msgspec.structs.asdict, ranked(total.upper_places))],
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
        "metrics": [*map(msgspec.structs.asdict, ranked(total.places))],
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
    longest = max(len(of.total.proof_lengths) for of in evaluations)
    rows = []
    for cells in zip(*(_column(of, longest) for of in evaluations), strict=True):
        name = cells[0][0]
        values = [value for _, value in cells]
        if None in values:
            rows.append([name])
        elif any(values) or not (name.strip() in RARE or name.strip().isdigit()):
            rows.append([name, *map(_cell, values)])
    wide = [row for row in rows if len(row) > 1]
    widths = [max(map(len, column)) for column in zip(*wide, strict=True)]
    lines = []
    for name, *values in rows:
        if not values:
            lines += ["", name]
        else:
            padded = [cell.rjust(width) for cell, width in zip(values, widths[1:], strict=True)]
            lines.append("  ".join([name.ljust(widths[0]), *padded]))
    notes = dict.fromkeys(note for of in evaluations for note in of.notes)
    lines += ["", *(f"note: {note}" for note in notes)]
    first = evaluations[0]
    overflow, candidates = first.classes["overflow"], first.total.candidates
    undecided = overflow + first.classes["truncated"] + first.classes["unfinished"]
    if overflow * 10 > candidates:
        dropped = first.total.dropped._asdict()
        free = " ".join(option for cap, option in DROPPING_NOTHING.items() if dropped[cap])
        lines.append(
            f"note: {overflow / candidates:.0%} of the candidates hit a size limit, so results and "
            f"times are of truncated work; with {free} none does"
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
        if of.closure is not None and not of.closure.complete:
            lines.append(
                f"note: the rules prove more than {of.closure.size:,} triples, so the closure is "
                "not whole; what it lacks is unknown"
            )
    return "\n".join(lines).rstrip()


def _column(of: Evaluated, longest: int) -> Iterator[tuple[str, object]]:
    """The rows of one evaluation, the same for all; a heading has no value."""
    total = of.total
    name = of.settings["graph"].partition(", ")[0]
    yield f"{name}, {of.settings['strategy']}.{of.settings['mode']}", ""
    yield "corruptions per side", of.corruptions
    yield "queries", of.queries
    yield "candidates", total.candidates
    metrics = {(each.side, each.ties): each for each in ranked(total.places)}
    for side in ("both", "head", "tail"):
        yield f"Ranks, {side}, realistic ties", None
        realistic = metrics[side, "realistic"]
        yield "  MRR", realistic.mrr
        yield "  Hits@1", realistic.hits_at_1
        yield "  Hits@3", realistic.hits_at_3
        yield "  Hits@10", realistic.hits_at_10
    yield "MRR by ties, both sides", None
    for ties in ("optimistic", "realistic", "pessimistic", "expected"):
        yield f"  {ties}", metrics["both", ties].mrr
    if of.closure is not None:
        upper = {(each.side, each.ties): each for each in ranked(total.upper_places)}
        yield "  closure, realistic", upper["both", "realistic"].mrr
    yield "Classes", None
    for name in OUTCOMES[1:] + OUTCOMES[:1]:
        yield f"  {name}", of.classes[name]
    if of.closure is not None:
        yield "Without a proof, by the closure", None
        for name, count in of.undecided.items():
            yield f"  {name}", f"{count:,}"  # a text, which is printed where it is 0 too
        yield "  closure (s)", f"{of.closure.seconds:.3g}"
    yield "Dropped by a cap", None
    for name, count in total.dropped._asdict().items():
        yield f"  {name}", count
    yield "Proofs by their steps", None
    lengths = total.proof_lengths.tolist()
    for length, count in enumerate(lengths + [0] * (longest - len(lengths))):
        yield f"  {length}", count
    calls, nans, _, unlike = total.counts.tolist()
    yield "Work", None
    yield "  calls of the step", calls
    in_slots = of.occupancy is not None
    yield "  occupancy", f"{of.occupancy:.1%}" if in_slots else "-"
    yield "  idle slot-steps", of.room - total.slot_steps if in_slots else "-"
    yield "  search (s)", f"{of.search_s:.4g}"
    yield "  with drawing, ranking and adding up (s)", f"{of.elapsed_s:.4g}"
    speed = of.candidates_per_second
    yield "  candidates/s", f"{speed:,.0f}" if speed else "-"
    yield "  chunks", of.chunks
    yield "  processes", of.processes
    yield "  peak memory (MiB)", of.peak_bytes >> 20
    if of.peak_gpu_bytes is not None:
        yield "  peak GPU memory (MiB)", of.peak_gpu_bytes >> 20
    yield "  NaN scores", nans
    yield "  replays without proof", unlike
    yield "  sha256 of outcomes, steps", total.vector.hexdigest()[:16]
    yield "  sha256 of the proved", total.proved_vector.hexdigest()[:16]


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
