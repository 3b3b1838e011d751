"""docs/ladder.md and docs/ladder.svg: the evaluator's strategies as a ladder, each rung with its
own gain.

    python benchmarks/ladder.py          # from evaluator.json and evaluator_sequential_h200.json
    python benchmarks/ladder.py FILE...  # of several files the first that has a run

A rung that no file has, or that was measured on another card than the first file's, is "not
measured".
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MEASURED = [
    ROOT / "benchmarks" / "results" / name
    for name in ("evaluator.json", "evaluator_sequential_h200.json")
]
PAGE, PICTURE = ROOT / "docs" / "ladder.md", ROOT / "docs" / "ladder.svg"
RUNGS = (
    ("sequential.eager", "V0", "one candidate at a time"),
    ("batched.eager", "V1-V5", "lockstep batches of 256"),
    ("recycled.eager", "V6-V9", "finished slots are refilled from one queue"),
    ("torch_cond.eager", "V10", "refilled slots are derived behind `torch.cond`"),
    ("torch_cond.default", "V10", "compiled"),
    ("fused.default", "ours", "continuing and refilled slots in one engine call"),
    ("fused.reduce-overhead", "ours", "CUDA graphs"),
    ("stepped.reduce-overhead", "ours", "several steps per CUDA graph"),
    ("levels.default", "ours", "each distinct state once, only real children"),
    ("levels.default+first-look=float16", "ours", "float16 first, float32 where it decides"),
)
WIDTH, ROW, LABEL = 900, 26, 330


class Rung(NamedTuple):
    run: str
    version: str
    lever: str
    ms: float | None = None  # per candidate
    candidates: int = 0
    sha256: str = ""
    gain: float | None = None  # over the rung before it that was measured


def main() -> None:
    files = [Path(name) for name in sys.argv[1:]] or MEASURED
    results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    card = results[0]["environment"]["processor"]
    rungs = ladder([each for each in results if each["environment"]["processor"] == card])
    PAGE.write_text(page(rungs, card, results[0]), encoding="utf-8")
    PICTURE.write_text(picture(rungs), encoding="utf-8")


def ladder(results: list[dict[str, Any]]) -> list[Rung]:
    rungs: list[Rung] = []
    before = None
    for run, version, lever in RUNGS:
        found = next(
            (each["runs"][run] for each in results if run in each["ms_per_candidate"]), None
        )
        if found is None:
            rungs.append(Rung(run, version, lever))
            continue
        ms = found["ms_per_candidate"]
        gain = before / ms if before else None
        rungs.append(Rung(run, version, lever, ms, found["candidates"], found["sha256"], gain))
        before = ms
    return rungs


def page(rungs: list[Rung], card: str, result: dict[str, Any]) -> str:
    question = result["question"]
    measured = [rung for rung in rungs if rung.ms]
    lines = [
        "# The ladder",
        "",
        f"Time per candidate on one {card}, torch {result['environment']['torch']}: "
        f"{question['data']},",
        f"preset {question['preset']}, {question['queries']} queries, {question['corruptions']} "
        "corruptions per side. A gain is over the measured",
        "rung before it. Runs with equal results have the same sha256; a run of fewer candidates "
        "has another.",
        "`python benchmarks/ladder.py` makes this page of what `benchmarks/evaluator.py` measured.",
        "",
        "| version | run | what is new | µs/candidate | gain | gain in all | candidates | sha256 |",
        "|---|---|---|---:|---:|---:|---:|---|",
    ]
    for rung in rungs:
        cells = ["not measured", "", "", "", ""]
        if rung.ms:
            total = measured[0].ms / rung.ms if measured[0].ms else 0
            cells = [
                rounded(rung.ms * 1e3),
                f"{rung.gain:.2f}×" if rung.gain else "",
                f"{rounded(total)}×",
            ]
            cells += [f"{rung.candidates:,}", rung.sha256[:8]]
        lines.append(f"| {rung.version} | `{rung.run}` | {rung.lever} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "![Time per candidate, on a logarithmic scale](ladder.svg)", ""])


def rounded(number: float) -> str:
    """Three digits, and zeros."""
    return f"{float(f'{number:.3g}'):,g}"


def picture(rungs: list[Rung]) -> str:
    """Bars on a logarithmic scale of µs."""
    measured = [rung for rung in rungs if rung.ms]
    low = min(math.log10(rung.ms or 1) for rung in measured) - 0.3
    high = max(math.log10(rung.ms or 1) for rung in measured)
    bars = []
    for place, rung in enumerate(measured):
        y = place * ROW + 4
        length = (math.log10(rung.ms or 1) - low) / (high - low) * (WIDTH - LABEL - 170)
        figure = f"{rounded((rung.ms or 0) * 1e3)} µs" + (
            f", {rung.gain:.2f}×" if rung.gain else ""
        )
        bars.append(f'<text x="{LABEL - 8}" y="{y + 14}" text-anchor="end">{rung.run}</text>')
        bars.append(
            f'<rect x="{LABEL}" y="{y}" width="{length:.0f}" height="{ROW - 8}" fill="#3366cc"/>'
        )
        bars.append(f'<text x="{LABEL + length + 6:.0f}" y="{y + 14}">{figure}</text>')
    size = f'width="{WIDTH}" height="{len(measured) * ROW + 8}"'
    style = 'font-family="sans-serif" font-size="13" fill="#777"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>' + "\n".join(bars) + "</svg>\n"


if __name__ == "__main__":
    main()
