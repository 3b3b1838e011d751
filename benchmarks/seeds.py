"""docs/seeds.md and reports/example/seeds.html: the documents' claims held against what was
measured.

    python benchmarks/seeds.py            # from docs/seeds.toml and the kept results
    make seeds                            # measures first, on a GPU machine

docs/seeds.toml has a table for each claim. ``id``, ``where`` (document and section), ``rows`` (of
the list of what the documents hold) and ``says``, in our words. What the document has is a
``figure`` in ``unit``, or ``at_least`` and ``at_most``. ``ours`` is an expression over the names of
``of``, each a figure of a kept result, in the same unit; without ``of`` it is arithmetic on the
document's own figures. ``because`` is one sentence on the outcome, and ``status`` the outcome that
it was written for: where figures give another, or a sentence is missing, this program ends with an
error. An ``answer`` is of rows that ask for something in place of claiming a figure: what gives it
here, and ``by`` which pages and tests, each a file, FILE#HEADING or TEST_FILE::TEST.

A ``fact`` is to hold as it stands, ``arithmetic`` within 5 %, a ``figure`` of another card within
25 %, or by the claim's own ``tolerance``. What holds is confirmed; a fact, a sum or a lone bound
that does not hold is refuted; a figure is different, as is a gain that is none, and refuted where a
gain is a loss.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from kgprof import model as m
from kgprof.document.quantity import duration
from kgprof.document.sheet import Section, Sheet
from kgprof.document.table import Cell, Column, Row, Table, missing
from kgprof.render import sheet
from kgprof.wording import figure as digits
from kgprof.wording import plural

ROOT = Path(__file__).resolve().parent.parent
CLAIMS = ROOT / "docs" / "seeds.toml"
RESULTS = ROOT / "benchmarks" / "results"
PAGES = {
    "markdown": ROOT / "docs" / "seeds.md",
    "html": ROOT / "reports" / "example" / "seeds.html",
}
FILES = {
    "examples": ("examples_h200.json", "examples.py"),
    "numbers": ("seed_numbers_h200.json", "seed_numbers.py"),
    "v10": ("published_v10_h200.json", "published_v10.py"),
    "captures": ("captures_h200.json", "kgprof capture"),  # outcomes and times of its recordings
}
ON_A_CPU = "seed_numbers_cpu.json"
DOCUMENTS = {
    "S0": "S0: compiled evaluation",
    "S1": "S1: guide to torch.compile",
    "S2": "S2: the pipeline and what it costs",
    "S3": "S3: the evaluator V10",
    "S4": "S4: compiled functions in CUDA graphs",
}
TOLERANCE = {"fact": 0.0, "arithmetic": 0.05, "figure": 0.25}
NOT_KEPT = "its sitting kept no trace"
NOT_YET = "no GPU time was left for it"
_ENVIRONMENT = {"gpu": "", "torch": "torch ", "python": "Python "}
_TIMES = {"us": 1.0, "ms": 1e3, "s": 1e6}


class Status(StrEnum):
    CONFIRMED = "confirmed"
    DIFFERENT = "different"
    REFUTED = "refuted"
    NOT_MEASURED = "not measured"


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    where: str
    rows: tuple[int, ...]
    says: str
    unit: str
    because: str
    kind: str = "figure"  # of TOLERANCE
    figure: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    tolerance: float | None = None
    of: dict[str, str] = {}
    ours: str = ""
    status: str = ""

    @property
    def claimed(self) -> str:
        if self.figure is not None:
            return in_unit(self.figure, self.unit)
        bounds = [
            (word, value)
            for word, value in (("at least", self.at_least), ("at most", self.at_most))
            if value is not None
        ]
        if len(bounds) == 2:
            return " to ".join(in_unit(value, self.unit) for _, value in bounds)
        return " ".join(f"{word} {in_unit(value, self.unit)}" for word, value in bounds)

    @property
    def command(self) -> str:
        """What measures it."""
        by: dict[str, list[str]] = {}
        for reference in self.of.values():
            file, _, key = reference.partition(":")
            what = {
                "examples": key.partition("/")[0],
                "captures": key.partition("/")[0],
                "numbers": key.partition(".")[0],
            }.get(file, "")
            by.setdefault(FILES[file][1], []).append(what)
        commands = [
            " ".join([program, *dict.fromkeys(filter(None, names))])
            for program, names in by.items()
        ]
        return ", ".join(commands) or f"arithmetic: {self.ours}"


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    where: str
    rows: tuple[int, ...]
    says: str
    answer: str
    by: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    claim: Claim
    status: Status
    ours: float | None = None
    inputs: tuple[str, ...] = ()  # the figures that went into ours, each with its spread
    missing: str = ""  # why there is none
    on_a_cpu: float | None = None


def main() -> None:
    outcomes = [outcome_of(claim) for claim in read_claims()]
    for name, path in PAGES.items():
        path.write_text(pages(outcomes)[name], encoding="utf-8")
    wrong = list(unexplained(outcomes))
    print("\n".join([*wrong, summary(outcomes)]))
    sys.exit(1 if wrong else 0)


def read_claims() -> tuple[Claim, ...]:
    return msgspec.convert(
        tomllib.loads(CLAIMS.read_text(encoding="utf-8"))["claim"], tuple[Claim, ...]
    )


def read_answers() -> tuple[Answer, ...]:
    return msgspec.convert(
        tomllib.loads(CLAIMS.read_text(encoding="utf-8"))["answer"], tuple[Answer, ...]
    )


def unexplained(outcomes: list[Outcome]) -> Iterator[str]:
    """Claims whose sentence was written for another outcome, or is missing."""
    for each in outcomes:
        if each.status is not Status.NOT_MEASURED and (
            each.claim.status != each.status or not each.claim.because
        ):
            figure = "" if each.ours is None else in_unit(each.ours, each.claim.unit)
            yield (
                f"{each.claim.id}: {each.status} ({figure}), explained as "
                f"{each.claim.status or 'nothing'}"
            )


# ---------------------------------------------------------------- figures


def outcome_of(claim: Claim) -> Outcome:
    if not claim.ours:
        return Outcome(claim=claim, status=Status.NOT_MEASURED, missing=claim.because)
    needed = {name: kept(reference) for name, reference in claim.of.items()}
    on_a_cpu = cpu_figure(claim)
    if lacking := [each for each in needed.values() if isinstance(each, str)]:
        if on_a_cpu is not None:
            alone = ("on a CPU alone",)
            return Outcome(
                claim=claim, status=status_of(claim, on_a_cpu), ours=on_a_cpu, inputs=alone
            )
        return Outcome(claim=claim, status=Status.NOT_MEASURED, missing=lacking[0])
    figures = {name: each for name, each in needed.items() if not isinstance(each, str)}
    ours = evaluated(claim.ours, {name: each["value"] for name, each in figures.items()})
    return Outcome(
        claim=claim,
        status=status_of(claim, ours),
        ours=ours,
        inputs=tuple(
            text for name, each in figures.items() if (text := described(name, each, claim))
        ),
        on_a_cpu=on_a_cpu,
    )


def evaluated(expression: str, names: Mapping[str, float]) -> float:
    return float(eval(expression, {"__builtins__": {}, "max": max, "min": min}, dict(names)))


def status_of(claim: Claim, ours: float) -> Status:
    if claim.figure is None:
        low, high = claim.at_least, claim.at_most
        if (low is None or ours >= low) and (high is None or ours <= high):
            return Status.CONFIRMED
        one_bound = low is None or high is None
        # a gain: none at all, or the contrary
        if claim.unit == "x" and low is not None and low >= 1:
            one_bound = ours < 1
        return Status.REFUTED if claim.kind != "figure" or one_bound else Status.DIFFERENT
    tolerance = TOLERANCE[claim.kind] if claim.tolerance is None else claim.tolerance
    if abs(ours - claim.figure) <= tolerance * abs(claim.figure):
        return Status.CONFIRMED
    lost = claim.unit == "x" and ours < 1 < claim.figure
    return Status.REFUTED if claim.kind != "figure" or lost else Status.DIFFERENT


def kept(reference: str, numbers: str = FILES["numbers"][0]) -> dict[str, Any] | str:
    """A kept figure, with its unit and spread, or why there is none."""
    file, _, key = reference.partition(":")
    name = numbers if file == "numbers" else FILES[file][0]
    results = read_results(name)
    if file == "numbers":
        item, _, figure = key.partition(".")
        entry = results.get("items", {}).get(item, {})
        needed = entry.get("figures", {}).get(figure)
        return needed or entry.get("error") or NOT_YET
    if file == "v10":
        part, _, field = key.rpartition(".")
        value = results.get(part, {}).get(field)
        unit = "s" if field == "seconds" else "ms" if field.startswith("ms_") else ""
        return NOT_YET if value is None else {"value": value, "unit": unit}
    cell_name, _, field = key.partition("#")
    cell = results.get("cells" if file == "examples" else "cases", {}).get(cell_name, {})
    if file == "captures" and cell:
        outcome = {
            "value": int(cell["outcome"] == "correct"),
            "unit": "yes/no",
            "note": cell.get("why", ""),
        }
        return {**cell[field], "value": cell[field]["median"], "unit": "us"} if field else outcome
    if not cell or "error" in cell:
        return str(cell.get("error") or NOT_YET)
    if field:
        unit = {"first_call_s": "s", "busy_us_per_step": "us", "peak_bytes": "bytes"}.get(field, "")
        return {"value": cell[field], "unit": unit}
    step = cell["step_us"]
    return {
        "value": step["median"],
        "p10": step["low"],
        "p90": step["high"],
        "samples": step["blocks"],
        "unit": "us",
    }


@cache
def read_results(name: str) -> dict[str, Any]:
    path = RESULTS / name
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return results


def cpu_figure(claim: Claim) -> float | None:
    """The same on a CPU, for what only counts."""
    if not claim.of or not all(reference.startswith("numbers:") for reference in claim.of.values()):
        return None
    needed = {name: kept(reference, ON_A_CPU) for name, reference in claim.of.items()}
    figures = {name: each["value"] for name, each in needed.items() if not isinstance(each, str)}
    return evaluated(claim.ours, figures) if len(figures) == len(needed) else None


# ---------------------------------------------------------------- pages


def in_unit(value: float, unit: str) -> str:
    if unit in _TIMES:
        return duration(value * _TIMES[unit])
    if unit == "yes/no":
        return "yes" if value else "no"
    number = (
        f"{value:,.0f}"
        if value == round(value)
        else digits(value)
        if abs(value) >= 1e-4
        else f"{value:.1e}"
    )
    noun, _, rest = unit.partition(" ")
    unit = f"{noun.removesuffix('s')} {rest}".strip() if value == 1 else unit
    return {"x": f"{digits(value)}\N{MULTIPLICATION SIGN}", "%": f"{number} %"}.get(
        unit, f"{number} {unit}"
    )


def described(name: str, figure: Mapping[str, Any], claim: Claim) -> str:
    """An input with its spread; nothing where it is the figure itself and a count."""
    note = f"torch: {figure['note']}" if "note" in figure and "Error" in figure["note"] else ""
    if "samples" not in figure and (
        claim.ours == name or claim.of[name].startswith(("numbers:", "captures:"))
    ):
        return note
    rate = figure["unit"] in ("bytes/s", "FLOP/s")
    size, unit = (1e12, f"T{figure['unit']}") if rate else (1.0, figure["unit"])
    text = f"{name} {in_unit(figure['value'] / size, unit)}"
    if figure.get("samples", 1) > 1 and not rate:
        low, high = (in_unit(figure[end], figure["unit"]) for end in ("p10", "p90"))
        text += f" ({low} to {high}, n = {figure['samples']})"
    return text.strip() + (f", {note}" if note else "")


def pages(outcomes: list[Outcome]) -> dict[str, str]:
    made = page(outcomes)
    return {"markdown": sheet.markdown(made), "html": sheet.html(made)}


def summary(outcomes: list[Outcome]) -> str:
    by_status = Counter(each.status for each in outcomes)
    counted = ", ".join(f"{by_status[status]} {status}" for status in Status if by_status[status])
    return f"{plural(len(outcomes), 'claim')} of five documents: {counted}"


def page(outcomes: list[Outcome]) -> Sheet:
    environment = read_results(FILES["numbers"][0]).get("environment") or {}
    names = [
        f"{word}{environment[key]}" for key, word in _ENVIRONMENT.items() if environment.get(key)
    ]
    cpu = (read_results(ON_A_CPU).get("environment") or {}).get("torch")
    all_measured = all(each.status is not Status.NOT_MEASURED for each in outcomes)
    intro = (
        "A figure of another card is confirmed within 25 %, arithmetic within 5 %, a count only if "
        "it is the same. What is off is different; a gain that is a loss, a count or a sum that "
        "does not hold is refuted. Times are medians; in brackets p10 and p90 of that many blocks "
        "of calls, or the lowest and highest of nine. Programs are those of benchmarks/, with "
        "--device cuda; the claims and expressions are in docs/seeds.toml, what was measured in "
        "benchmarks/results/."
    )
    sections = [Section(title="How to read this", blocks=(intro,))]
    for short, title in DOCUMENTS.items():
        rows = tuple(row_of(each) for each in outcomes if each.claim.where.startswith(short))
        sections.append(
            Section(title=title, blocks=(Table(label=title, columns=COLUMNS, rows=rows),))
        )
    sections += [
        Section(title="Speed-up by operator mix", blocks=(mixes(),), intro=MIXES),
        Section(title="What kgprof answers", blocks=(answers(),), intro=ANSWERS),
    ]
    return Sheet(
        title="The documents' figures, measured again",
        status=m.VerdictStatus.OK if all_measured else m.VerdictStatus.ATTENTION,
        verdict=summary(outcomes),
        trust=(
            "One card; a document's own card is another, so ratios and counts say more than times."
        )
        + ("" if all_measured else " What is missing, make seeds measures on a GPU machine."),
        facts=(*names, *([f"counts also on a CPU with torch {cpu}"] if cpu else [])),
        sections=tuple(sections),
    )


MIXES = (
    "Each built-in workload in its document's shapes: eager mode's step over the compiled one's. "
    "GPU busy: kernel time in an eager step; in the rest of it the GPU waits for launches, which a "
    "CUDA graph saves. Float32 without TF32."
)
MIX = {  # workload/strategy -> what its step is made of
    "pointwise/sin_cos": "pointwise, 3 operators",
    "pointwise/scaled_relu": "pointwise, 3 operators",
    "pointwise/relu_of_sum": "pointwise, 2 operators",
    "fusion/fusion": "layer norm and pointwise",
    "scorers/three": "small reductions and matmuls",
    "small-ops/layers": "40 small launches, matmul and ReLU",
    "branches/both": "8 tiny launches",
    "matmul-gelu/matmul_bias_gelu": "one large matmul, GELU",
    "transformer-block/forward": "matmuls, attention",
    "transformer/forward": "matmuls, attention, 12 layers",
    "vit/inference": "matmuls, attention, 12 layers",
    "vit/training": "the same with backward and optimizer",
}
ANSWERS = (
    "What a document asks for without a figure, or beside it: what gives it "
    "here, and the pages and tests."
)


def mixes() -> Table:
    cells = read_results(FILES["examples"][0])["cells"]
    rows = []
    for name, mix in MIX.items():
        measured = {
            mode: cells.get(f"{name}/{mode}", {})
            for mode in ("eager", "default", "reduce-overhead", "max-autotune")
        }
        steps = {
            mode: cell["step_us"]["median"] for mode, cell in measured.items() if "step_us" in cell
        }
        kernels = [measured[mode].get("kernels_per_step") for mode in ("eager", "default")]
        busy = measured["eager"].get("busy_us_per_step")
        rows.append(
            Row(
                cells=(
                    Cell(name),
                    Cell(mix),
                    Cell(duration(steps["eager"]), value=steps["eager"]),
                    Cell(f"{min(100.0, 100 * busy / steps['eager']):.0f} %")
                    if busy
                    else missing(NOT_KEPT),
                    Cell(" to ".join(f"{each:.0f}" for each in kernels))
                    if all(kernels)
                    else missing(NOT_KEPT),
                    *(
                        Cell(f"{digits(steps['eager'] / steps[mode])}\N{MULTIPLICATION SIGN}")
                        if mode in steps
                        else missing(NOT_YET)
                        for mode in ("default", "reduce-overhead", "max-autotune")
                    ),
                )
            )
        )
    heads = (
        "Workload",
        "Operators",
        "Eager step",
        "GPU busy",
        "Kernels",
        "default",
        "reduce-overhead",
        "max-autotune",
    )
    columns = tuple(Column(head, style="") for head in heads)
    return Table(
        label="Speed-up over eager mode by operator mix", columns=columns, rows=tuple(rows)
    )


def answers() -> Table:
    rows = tuple(
        Row(
            cells=(
                Cell(each.says, details=(f"{each.where}, {rows_of(each.rows)}",)),
                Cell(each.answer),
                Cell(by(each)),
            )
        )
        for each in read_answers()
    )
    columns = tuple(Column(head, style="") for head in ("The document", "Here", "Pages and tests"))
    return Table(label="What kgprof answers", columns=columns, rows=rows)


def by(answer: Answer) -> str:
    return ", ".join(pointer.replace("#", ", ").replace("::", ", ") for pointer in answer.by)


def rows_of(rows: tuple[int, ...]) -> str:
    return f"row{'s' if len(rows) > 1 else ''} {' and '.join(map(str, rows))}"


COLUMNS = (
    Column("Claim", style=""),
    Column("Document", style=""),
    Column("Measured", style="", title="the expression of the claim; below it what went into it"),
    Column("Ratio", title="measured over the document's"),
    Column("Outcome", style=""),
    Column("Measured by", style=""),
)


def row_of(outcome: Outcome) -> Row:
    claim = outcome.claim
    rows = rows_of(claim.rows)
    why = "" if outcome.status is Status.NOT_MEASURED else f". {claim.because}"
    comparable = claim.figure and claim.unit != "yes/no"
    ratio = (
        outcome.ours / claim.figure
        if outcome.ours is not None and comparable and claim.figure
        else None
    )
    on_a_cpu = (
        (f"CPU: {in_unit(outcome.on_a_cpu, claim.unit)}",) if outcome.on_a_cpu is not None else ()
    )
    cells = (
        Cell(claim.says, details=(f"{claim.where}, {rows}{why}",)),
        Cell(claim.claimed),
        Cell(in_unit(outcome.ours, claim.unit), details=(*outcome.inputs, *on_a_cpu))
        if outcome.ours is not None
        else missing(outcome.missing),
        Cell(digits(ratio)) if ratio is not None else missing("the document has no single figure"),
        Cell(
            f"{outcome.status}: {outcome.missing}" if outcome.missing else str(outcome.status),
            wrong=outcome.status is Status.REFUTED,
        ),
        Cell(claim.command),
    )
    return Row(cells=cells, anchor=claim.id)


if __name__ == "__main__":
    main()
