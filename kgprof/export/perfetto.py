"""Perfetto's UI and chrome://tracing read Kineto JSON as torch.profiler writes it, also gzipped."""

from pathlib import Path


class Perfetto:
    name = "perfetto"

    def export(self, trace: Path, title: str) -> tuple[Path, tuple[str, ...]]:
        return trace, ()
