"""Runs programs of the corpus through kgprof's own COMPILE pass, into one Recording with a run for
each program.

    python -m tests.corpus.record FOLDER [PROGRAM ...]

One process for all of them, with ``torch._dynamo.reset()`` and fresh modules between two. What they
print goes to stdout, so a caller should not share it.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import msgspec
import torch

from kgprof.model import (
    Exit,
    Options,
    Outcome,
    PassName,
    Plan,
    RecordingHeader,
    RunKey,
    StrategyPlan,
)
from kgprof.reading import layout
from kgprof.record.ground import store
from kgprof.record.passes.torch_trace import compile_pass
from tests.corpus.truth import CORPUS, WARM_UP, Program, programs
from tests.corpus_runtime.record import cheap_garbage_collection, left_alone
from tests.record import handmade

CPU = torch.device("cpu")


class Calls:
    """A program's step as a session; the program is told which call it is."""

    def __init__(self, step: Callable[[int], object]) -> None:
        self._step = step
        self._next = 0

    def step(self) -> object:
        call, self._next = self._next, self._next + 1
        return self._step(call)


def key_of(program: Program) -> RunKey:
    return RunKey(strategy=program.name, mode="as-is")


def record(folder: Path, chosen: tuple[Program, ...]) -> None:
    store.create(folder, _header(chosen))
    for program in chosen:
        began = time.perf_counter()
        key = key_of(program)
        records = layout.run_folder(folder, key) / layout.TRACE_RECORDS
        # A folder of the user's, so that the corpus is the project also where it is installed.
        options = Options(workload=f"{program.path}:build", steps=program.calls, warmup=WARM_UP)
        torch._dynamo.reset()
        load = partial(Calls, _load(program).build())
        store.write_pass(
            folder, key, PassName.COMPILE, compile_pass(load, CPU, options, records_to=records)
        )
        store.write_exit(
            folder,
            key,
            Exit(outcome=Outcome.OK, exit_code=0, elapsed_s=time.perf_counter() - began),
        )
        del sys.modules[program.name]  # of the next program's modules it is none
        left_alone()


def _header(chosen: tuple[Program, ...]) -> RecordingHeader:
    header = handmade._header()
    runs = tuple(key_of(program) for program in chosen)
    here = msgspec.structs.replace(
        header.plan.environment,
        torch=str(torch.__version__),
        python=platform.python_version(),
        flags={},
    )
    plan = Plan(
        workload="corpus",
        strategies=tuple(StrategyPlan(name=key.strategy, modes=(key.mode,)) for key in runs),
        runs=runs,
        baseline=None,
        device="cpu",
        environment=here,
        vector_isa_probe_s=0.0,
        agreement=False,
    )
    return msgspec.structs.replace(
        header, plan=plan, options=Options(workload="corpus", warmup=WARM_UP)
    )


def _load(program: Program) -> ModuleType:
    """The module anew, and the library beside it with it."""
    for name in [name for name in sys.modules if name == "library" or name.startswith("library.")]:
        del sys.modules[name]
    spec = importlib.util.spec_from_file_location(program.name, program.path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[program.name] = module
    spec.loader.exec_module(module)
    return module


def main(folder: str, *names: str) -> None:
    sys.path.insert(0, str(CORPUS))
    # Some programs make torch warn that it does not know a builtin: that is what they are there
    # for.
    warnings.simplefilter("ignore")
    with cheap_garbage_collection():
        record(
            Path(folder),
            tuple(program for program in programs() if not names or program.name in names),
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
