"""Recording: run a workload and write down what happened. The parent, and so this import, is free
of torch."""

from kgprof.record.processes.recorder import (
    default_folder,
    folder_name,
    record,
    refuse_other_platforms,
)

__all__ = ["default_folder", "folder_name", "record", "refuse_other_platforms"]
