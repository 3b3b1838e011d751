"""``python -m kgprof`` and the ``kgprof`` console script."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """What it imports takes a moment, in which Ctrl-C is answered as it is later."""
    try:
        from kgprof.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("kgprof: error: interrupted\n")
        sys.exit(130)  # kgprof.errors.EXIT_INTERRUPTED, which may be what was being imported
    run()


if __name__ == "__main__":
    main()
