"""Tries families of attacks and prints what was tried and what failed.

python -m tests.attack [FAMILY ...] [--seed N] [--share 0.1]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.attack.family import SEED, tried
from tests.attack.test_attacks import SAMPLES

FAMILIES = {family.name: family for family, _ in SAMPLES}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--share", type=float, default=1.0, help="of the cases, at random")
    given = parser.parse_args()
    lost = 0
    for name in given.families or FAMILIES:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            _, failed = tried(FAMILIES[name], Path(folder), seed=given.seed, share=given.share)
        lost += len(failed)
        for one in failed:
            print(one)  # noqa: T201
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
