"""The command line: what is asked for, what is recorded or read for it, and what is written."""

from kgprof.cli.entry import main, run

__all__ = ["main", "run"]
