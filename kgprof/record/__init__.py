"""Recording: run a workload and write down what happened. The parent, and so this import, is free of torch."""

from kgprof.record.recorder import Progress, record

__all__ = ["Progress", "record"]
