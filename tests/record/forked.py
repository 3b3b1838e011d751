"""Trials in forks of a process that has imported torch and does nothing else: a second each instead
of ten.

A fork of the tests' own process would wait for ever for a lock that one of torch's threads held.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch._inductor.compile_fx

from kgprof import model as m
from kgprof.record.processes import trials

LIMIT_S = 300.0


def run(
    function: str, question: m.Model, *, options: m.Options, scratch: Path, **_: Any
) -> trials.Trial:
    folder = Path(tempfile.mkdtemp(dir=scratch))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    asked = (
        function,
        m.encode_json(question),
        m.encode_json(options),
        str(folder),
        dict(os.environ),
    )
    fork = context.Process(target=_answer, args=asked, daemon=True)
    fork.start()
    fork.join(LIMIT_S)
    hung = fork.is_alive()
    fork.kill()
    fork.join()
    answer, error = folder / "answer.json", folder / "error.txt"
    message = "timed out" if hung else error.read_text() if error.exists() else ""
    outcome = m.Outcome.RAISED if message else m.Outcome.OK
    text = answer.read_bytes() if answer.exists() else None
    return trials.Trial(exit=m.Exit(outcome=outcome, message=message), answer=text, log="")


def _answer(
    function: str, question: bytes, options: bytes, folder: str, environment: dict[str, str]
) -> None:
    os.environ.update(environment)
    warnings.simplefilter("default")  # as in a process of its own
    torch._inductor.config.compile_threads = 1  # a pool of processes would outlive the fork
    module, _, name = function.partition(":")
    try:
        asked = getattr(importlib.import_module(module), name)
        answer = Path(folder) / "answer.json"
        asked(
            question,
            m.decode_json(options, m.Options),
            lambda made: answer.write_bytes(m.encode_json(made)),
        )
    except BaseException as raised:  # noqa: BLE001  the end of the fork
        traceback.print_exc()
        (Path(folder) / "error.txt").write_text(f"{type(raised).__name__}: {raised}")
