"""kgprof: compilation diagnostics and profiling for torch.compile workloads."""

from kgprof._version import __version__

__all__ = ["__version__"]
