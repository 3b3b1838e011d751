"""``python -m kgprof`` and the ``kgprof`` console script."""

import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """What it imports takes a moment, in which Ctrl-C is answered as it is later."""
    _open_standard_streams()
    try:
        from kgprof.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("kgprof: error: interrupted\n")
        sys.exit(130)  # kgprof.errors.EXIT_INTERRUPTED, which may be what was being imported
    except (ImportError, OSError, MemoryError) as error:  # no memory, no descriptor, half installed
        sys.stderr.write(f"kgprof: error: kgprof cannot be loaded: {str(error) or 'no memory'}\n")
        sys.exit(3)  # EXIT_INTERNAL; Python's own would be that of a gate that failed
    run()


def _open_standard_streams() -> None:
    """Whoever started this process may have closed some: the next file that is opened would be
    written to as if it were stdout or stderr, and a child's pipe would close it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


if __name__ == "__main__":
    main()
