"""``python -m kgprof`` and the ``kgprof`` console script."""

from kgprof.cli import main

if __name__ == "__main__":
    main()
