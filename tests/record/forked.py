"""Trials in forks of this process, which has torch imported and has not used it: a second each instead of ten."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch._inductor.compile_fx

from kgprof import model as m
from kgprof.record import trials


def run(function: str, question: m.Model, *, options: m.Options, scratch: Path, **_: Any) -> trials.Trial:
    module, _, name = function.partition(":")
    folder = Path(tempfile.mkdtemp(dir=scratch))
    answer, error = folder / "answer.json", folder / "error.txt"
    pid = os.fork()
    if not pid:
        try:
            warnings.simplefilter("default")  # as in a process of its own
            torch.set_num_threads(1)  # a fork has none of the threads of OpenMP's pool
            asked = getattr(importlib.import_module(module), name)
            asked(m.encode_json(question), options, lambda made: answer.write_bytes(m.encode_json(made)))
        except BaseException as raised:  # noqa: BLE001  the end of the fork
            traceback.print_exc()
            error.write_text(f"{type(raised).__name__}: {raised}")
        finally:
            sys.stderr.flush()
            os._exit(0)
    os.waitpid(pid, 0)
    message = error.read_text() if error.exists() else ""
    outcome = m.Outcome.RAISED if message else m.Outcome.OK
    text = answer.read_bytes() if answer.exists() else None
    return trials.Trial(exit=m.Exit(outcome=outcome, message=message), answer=text, log="")
