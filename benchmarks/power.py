"""How small a slow-down `kgprof compare --record` finds: power by pairs that were measured.

    python benchmarks/power.py [-o benchmarks/results/power.json]

takes the pairs of the unchanged programs that benchmarks/in_turn.py kept (KEPT),
puts 0, 1 and 2 % on the second side of each, draws as many of them as a recording of ten or thirty
minutes has (a pair took 17 to 25 s there), and asks the judge of the verb at its looks. *Found*:
the interval lies above "no change" at one of them; of 0 % that is a false alarm. 1,000 draws each;
the standard error of 90 % is then 0.9 points. Drawn with replacement, pairs have lost what one has
to do with the next: a machine that drifts from pair to pair is not in it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kgprof.compare.metrics import STEP
from kgprof.judge import InTurn, Pair, could_have_seen, looks, paired

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
KEPT = tuple(RESULTS / f"{name}.json" for name in ("in_turn", "in_turn_2", "in_turn_h200"))
FEWEST = 10  # pairs to draw from
AGAIN = "as it is, again"
DRAWS = 1000
SEED = 0
# ten and thirty minutes of pairs; and the most that --rounds has by default
PAIRS = {"10 pairs": 10, "10 minutes": 24, "30 minutes": 72}
SLOWER = (0.0, 0.01, 0.02)


def kept(paths: Sequence[Path]) -> dict[str, list[Pair]]:
    """By program: the pairs of its step, of all comparisons of the program with itself; without
    programs that have few."""
    series: dict[str, Any] = {}
    for path in paths:
        series |= json.loads(path.read_text(encoding="utf-8"))["series"]
    found: dict[str, list[Pair]] = {}
    for name, one in series.items():
        again = [each for each in one["found"] if each["head"] == AGAIN]
        pairs = [Pair(*pair[STEP]) for each in again for pair in each["pairs"]]
        if len(pairs) >= FEWEST:
            found[name.removesuffix(".json")] = pairs
    return found


def is_found(drawn: Sequence[Pair], planned: int) -> tuple[bool, float]:
    """Whether a look says that it is slower, and what it could have seen when it ended."""
    seen = 0.0
    for look in looks(planned):
        interval = paired(drawn[:look], InTurn(planned=planned, made=look))
        assert interval is not None
        seen = could_have_seen(interval.low, interval.high)
        if interval.low > 1:
            return True, seen
    return False, seen


def power(pairs: Sequence[Pair], planned: int, more: float) -> Mapping[str, float]:
    chance = random.Random(SEED)
    slower = [Pair(one, other * (1 + more), ratio * (1 + more)) for one, other, ratio in pairs]
    found = [is_found(chance.choices(slower, k=planned), planned) for _ in range(DRAWS)]
    whole = sorted(seen for was_found, seen in found if not was_found)
    could = {}
    if whole:
        could = {"could_have_seen_percent": round(100 * whole[len(whole) // 2], 2)}
    return {"found_percent": 100 * sum(was_found for was_found, _ in found) / DRAWS, **could}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    rows = []
    for program, pairs in kept(KEPT).items():
        for label, planned in PAIRS.items():
            for more in SLOWER:
                row = {"program": program, "measured_pairs": len(pairs), "drawn": label}
                row |= {"pairs": planned, "slower_percent": 100 * more}
                row |= power(pairs, planned, more)
                rows.append(row)
                print(json.dumps(row), flush=True)
    if given.output is not None:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        command = "python benchmarks/power.py -o benchmarks/results/power.json"
        kept_rows = {"command": command, "commit": commit, "draws": DRAWS, "seed": SEED}
        text = json.dumps(
            kept_rows | {"source": [path.name for path in KEPT], "rows": rows}, indent=1
        )
        given.output.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
