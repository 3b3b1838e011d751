"""HolisticTraceAnalysis, asked once about each GPU trace of a Recording; its answer is kept beside the trace.

It runs in a process of its own, one trace at a time, so that the trace which it cannot take, or takes too long for,
costs its own answer alone. An answer that was not given is asked for again by the next ``kgprof report``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import util
from pathlib import Path

import msgspec

from kgprof import model as m
from kgprof.errors import KgprofError
from kgprof.reading import layout
from kgprof.record import store
from kgprof.record.children import BOOTSTRAP, HOME

LIMIT_S = 120.0  # a million events take it 20 s on two quiet cores, 38 s on two busy ones
NOT_INSTALLED = "HolisticTraceAnalysis is not installed here"
Answer = m.Holistic | m.Skipped
Say = Callable[[str], None]


def asked(
    recording: m.Recording, *, again: bool = False, say: Say = lambda text: None, limit_s: float = LIMIT_S
) -> m.Recording:
    """The Recording with HTA's answers. ``again`` asks also where an answer is kept; Ctrl-C leaves the rest unasked."""
    answers: dict[m.RunKey, Answer] = {}
    try:
        for run in recording.runs:
            trace = layout.trace_path(recording, run.key, m.PassName.TRACE)
            kept = layout.run_folder(Path(recording.folder), run.key) / layout.HOLISTIC
            on_gpu = recording.header.plan.device == "cuda" and isinstance(run.trace, m.TracePass) and trace.is_file()
            if on_gpu and (again or not kept.exists()):
                say(f"HolisticTraceAnalysis reads the trace of {run.key.slug}")
                answers[run.key], is_its_own = ask(trace, limit_s)
                if is_its_own:
                    with contextlib.suppress(KgprofError):  # what cannot be written to is read all the same
                        store.write_json(kept, answers[run.key])
    except KeyboardInterrupt:
        say("interrupted: the report goes without the rest of HolisticTraceAnalysis")
    runs = tuple(msgspec.structs.replace(run, holistic=answers.get(run.key, run.holistic)) for run in recording.runs)
    return msgspec.structs.replace(recording, runs=runs)


def ask(trace: Path, limit_s: float = LIMIT_S) -> tuple[Answer, bool]:
    """HTA's answer about one trace; or, with False, why it gave none."""
    if util.find_spec("hta") is None:
        return m.Skipped(reason=NOT_INSTALLED), False
    with tempfile.TemporaryDirectory(prefix="kgprof-hta-") as folder:
        answer = Path(folder) / layout.HOLISTIC
        try:
            ended = subprocess.run(
                [sys.executable, "-P", "-c", BOOTSTRAP.format("holistic_process"), str(HOME), str(answer), str(trace)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=limit_s,
                # A pool of threads would take its memory, and it multiplies no matrix.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return m.Skipped(reason=f"HTA gave no answer within {limit_s:g} s"), False
        except OSError as error:
            return m.Skipped(reason=f"HTA's process could not be started: {error.strerror or error}"), False
        if ended.returncode == 0:
            return m.decode_json(answer.read_bytes(), Answer), True  # type: ignore[arg-type]
    said = ended.stderr.decode("utf-8", errors="replace").strip().splitlines() or ["it said nothing"]
    return m.Skipped(reason=f"HTA's process ended with code {ended.returncode}: {said[-1]}"), False
