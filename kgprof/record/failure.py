"""What a child tells its parent about an exception, without the frames of kgprof that led to the user's code."""

from __future__ import annotations

import traceback
from pathlib import Path

from kgprof.errors import KgprofError, WorkloadError
from kgprof.record.job import Failed

PACKAGE = Path(__file__).resolve().parent.parent
PLUMBING = (  # kgprof's way to the workload (linkpred is a workload)
    str(PACKAGE / "record"),
    *(str(PACKAGE / "workloads" / f"{name}.py") for name in ("loading", "programs", "user")),
)


def describe_failure(error: BaseException) -> Failed:
    """The exception as the workload's author wants it: without the frames of kgprof that called them."""
    shown: BaseException = error.__cause__ if isinstance(error, WorkloadError) and error.__cause__ else error
    frames = shown.__traceback__
    while frames is not None and frames.tb_next is not None:
        if not frames.tb_frame.f_code.co_filename.startswith((*PLUMBING, "<frozen importlib")):
            break
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(shown), shown, frames))
    if isinstance(error, KgprofError):
        return Failed(message=error.message, hint=error.hint, traceback=text, exit_code=error.exit_code)
    last = traceback.format_exception_only(type(error), error)[-1].strip()
    return Failed(message=last, traceback=text)
