"""The machine of files that another program left, as far as they tell; nothing of the one that reads them."""

from __future__ import annotations

from kgprof import model as m
from kgprof._version import __version__

NO_VERSION = "(version not in the trace)"
NOT_TOLD = "(not in the trace)"


def environment(
    *,
    reason: str,
    device_name: str,
    python: str = "",
    torch: str = "",
    cuda: str = "",
    driver: str = "",
) -> m.Environment:
    """``reason``: why whatever is empty here, and all else, is not known."""
    unknown = m.Skipped(reason=reason)
    return m.Environment(
        kgprof=__version__,
        python=python or NO_VERSION,
        torch=torch or NO_VERSION,
        triton=unknown,
        cuda=cuda or unknown,
        driver=driver or unknown,
        device_name=device_name,
        cpu_name=NOT_TOLD,
        cpu_count=unknown,
        torch_threads=unknown,
        memory_bytes=unknown,
        platform=NOT_TOLD,
        compiler=unknown,
        git_commit=unknown,
        git_dirty=unknown,
        flags={},
    )
