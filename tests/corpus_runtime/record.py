"""Runs programs of the corpus through kgprof's own passes, into one Recording with a run for each
program.

    python -m tests.corpus_runtime.record FOLDER [--device cuda] [--archive FILE.tgz] [PROGRAM ...]

COMPILE and MEMORY, each from a cold start, and on a GPU TRACE on the code that COMPILE compiled.
One process for all programs, with ``torch._dynamo.reset()`` and fresh modules between two.
``--archive`` packs the folder afterwards.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import platform
import sys
import tarfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import msgspec
import torch

from kgprof.model import (
    Environment,
    Exit,
    Options,
    Outcome,
    PassName,
    Plan,
    RecordingHeader,
    RunKey,
    Skipped,
    StrategyPlan,
)
from kgprof.reading import layout
from kgprof.record.ground import project_sources, store
from kgprof.record.ground.job import describe_failure
from kgprof.record.ground.run import seed_everything
from kgprof.record.passes.memory import memory_pass
from kgprof.record.passes.torch_profiler import trace_pass
from kgprof.record.passes.torch_trace import compile_pass
from tests import unprofiled_guards
from tests.corpus_runtime.truth import CORPUS, WARM_UP, Program, programs
from tests.record import handmade


class Calls:
    """A program's step as a session; the program is told which call it is."""

    def __init__(self, step: Callable[[int], object]) -> None:
        self._step = step
        self._next = 0

    def step(self) -> object:
        call, self._next = self._next, self._next + 1
        return self._step(call)


class CallsWithBuffers(Calls):
    """Of a program that declares persistent buffers."""

    def __init__(
        self, step: Callable[[int], object], buffers: Callable[[], Mapping[str, torch.Tensor]]
    ) -> None:
        super().__init__(step)
        self._buffers = buffers

    def buffers(self) -> Mapping[str, torch.Tensor]:
        return self._buffers()


def key_of(program: Program) -> RunKey:
    return RunKey(strategy=program.name, mode="as-is")


def session_of(program: Program, device: torch.device) -> Calls:
    """Prepared as in a process of its own."""
    torch._dynamo.reset()
    seed_everything(0)
    step = load(program).build(device)
    buffers = getattr(step, "buffers", None)
    return Calls(step) if buffers is None else CallsWithBuffers(step, buffers)


def load(program: Program) -> ModuleType:
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


@contextmanager
def cheap_garbage_collection() -> Iterator[None]:
    """Each reset and each measurement of memory collects garbage. What torch has made of its own
    when it has compiled once, a million objects, is not looked at again: a quarter of a second less
    each time."""
    import torch._inductor.compile_fx

    torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
    torch._dynamo.reset()
    unprofiled_guards.keep()
    left_alone()
    try:
        yield
    finally:
        gc.unfreeze()


def left_alone() -> None:
    """What there is by now is looked at no more."""
    gc.collect()
    gc.freeze()


@contextmanager
def corpus_first_on_path() -> Iterator[None]:
    """A program's own folder leads, as Python does for a script."""
    sys.path.insert(0, str(CORPUS))
    try:
        yield
    finally:
        sys.path.remove(str(CORPUS))


def record(folder: Path, chosen: tuple[Program, ...], device: torch.device) -> None:
    store.create(folder, _header(chosen, device))
    for program in chosen:
        _compiled(folder, program, device)
        _watched(folder, program, device)
        del sys.modules[program.name]  # of the next program's modules it is none
        left_alone()


def _options(program: Program) -> Options:
    # A folder of the user's, so that the corpus is the project also where it is installed.
    return Options(workload=f"{program.path}:build", steps=program.calls, warmup=WARM_UP)


def _compiled(folder: Path, program: Program, device: torch.device) -> None:
    """What child A does, without the passes that this corpus does not need."""
    began, key, options = time.perf_counter(), key_of(program), _options(program)
    run = layout.run_folder(folder, key)
    session, during = session_of(program, device), PassName.COMPILE
    try:
        compiled = compile_pass(
            lambda: session, device, options, records_to=run / layout.TRACE_RECORDS
        )
        store.write_pass(folder, key, PassName.COMPILE, compiled)
        if device.type == "cuda":
            during = PassName.TRACE
            traced = trace_pass(session, device, options, run / layout.TRACE_FILES[PassName.TRACE])
            store.write_pass(folder, key, PassName.TRACE, traced)
    # what a program raises is recorded, as a child does it
    except Exception as error:  # noqa: BLE001
        store.write_exit(folder, key, _raised(error, during, began))
    else:
        store.write_exit(
            folder,
            key,
            Exit(outcome=Outcome.OK, exit_code=0, elapsed_s=time.perf_counter() - began),
        )


def _watched(folder: Path, program: Program, device: torch.device) -> None:
    """What child B does."""
    began, key, options = time.perf_counter(), key_of(program), _options(program)
    project = project_sources.project_files(options.workload)
    try:
        watched = memory_pass(lambda: session_of(program, device), device, options, project=project)
    except Exception as error:  # noqa: BLE001  as above
        store.write_exit(folder, key, _raised(error, PassName.MEMORY, began), probe=True)
        return
    store.write_pass(folder, key, PassName.MEMORY, watched)
    store.write_exit(
        folder,
        key,
        Exit(outcome=Outcome.OK, exit_code=0, elapsed_s=time.perf_counter() - began),
        probe=True,
    )


def _raised(error: Exception, during: PassName, began: float) -> Exit:
    failed = describe_failure(error)
    return Exit(
        outcome=Outcome.RAISED,
        message=failed.message,
        traceback=failed.traceback,
        during=during,
        exit_code=1,
        elapsed_s=time.perf_counter() - began,
    )


def _header(chosen: tuple[Program, ...], device: torch.device) -> RecordingHeader:
    header = handmade._header()
    runs = tuple(key_of(program) for program in chosen)
    plan = Plan(
        workload="corpus_runtime",
        strategies=tuple(StrategyPlan(name=key.strategy, modes=(key.mode,)) for key in runs),
        runs=runs,
        baseline=None,
        device=device.type,
        environment=_environment(header.plan.environment, device),
        vector_isa_probe_s=0.0,
        agreement=False,
    )
    return msgspec.structs.replace(
        header, plan=plan, options=Options(workload="corpus_runtime", warmup=WARM_UP)
    )


def _environment(invented: Environment, device: torch.device) -> Environment:
    on_cuda = device.type == "cuda"
    return msgspec.structs.replace(
        invented,
        torch=str(torch.__version__),
        python=platform.python_version(),
        cuda=str(torch.version.cuda) if on_cuda else Skipped(reason="a CPU run"),
        device_name=torch.cuda.get_device_name() if on_cuda else invented.device_name,
        flags={},
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus_runtime.record")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="PROGRAM")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--archive", type=Path)
    asked = parser.parse_intermixed_args(arguments)
    # Some programs make torch warn of what they do: that is what they are there for.
    warnings.simplefilter("ignore")
    chosen = tuple(
        program
        for program in programs()
        if program.runs_on(asked.device) and (not asked.names or program.name in asked.names)
    )
    with cheap_garbage_collection(), corpus_first_on_path():
        record(asked.folder, chosen, torch.device(asked.device))
    if asked.archive is not None:
        with tarfile.open(asked.archive, "w:gz") as archive:
            archive.add(asked.folder, arcname=".")


if __name__ == "__main__":
    main(sys.argv[1:])
