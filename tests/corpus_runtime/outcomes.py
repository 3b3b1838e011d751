"""What every program of both corpora computes and how often it is compiled, with the probes of
MEMORY or without.

    python -m tests.corpus_runtime.outcomes FILE.json [--probes] [--device cuda] [--compare
    BARE.json] [PROGRAM ...]

One process for all of them. torch's own counters are read, which count alike both ways: no hook of
kgprof's stands in the bare run. ``compare(bare, probed)`` says in words where two such files
differ.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import torch
from torch._dynamo.utils import counters, get_compilation_metrics, set_compilation_metrics_limit
from torch.utils._pytree import tree_flatten

from kgprof.model import Options
from kgprof.record.ground import project_sources
from kgprof.record.ground.run import seed_everything
from kgprof.record.passes.memory import memory_pass
from tests.corpus import truth as compile_corpus
from tests.corpus_runtime import truth as runtime_corpus
from tests.corpus_runtime.record import CallsWithBuffers, cheap_garbage_collection

COMPILATIONS = 1024  # that torch remembers of one program; 64 without being told
_ADDRESS = re.compile(r"0x[0-9a-f]+|\b\d{9,}\b")  # identities of objects in reprs and in guards


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One program of either corpus."""

    name: str  # "corpus/print_between_ops"
    path: Path
    calls: int
    build: Callable[[ModuleType, torch.device], Callable[[int], object]]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Of one program."""

    outputs: tuple[str, ...]  # a digest for each call, or the exception that it raised
    graphs: int  # that were captured
    operators: int  # in them
    # "file:line function", with the reason if it was a recompile or failed
    compilations: tuple[str, ...]


class Calls:
    """The program's step as a session that remembers what came out of the first ``calls`` and does
    nothing after them: the pass goes on without the probes, to measure memory."""

    def __init__(self, step: Callable[[int], object], calls: int) -> None:
        self._step = step
        self._calls = calls
        self.outputs: list[str] = []

    def step(self) -> object:
        if len(self.outputs) == self._calls:
            return None
        try:
            result = self._step(len(self.outputs))
        except Exception as error:  # noqa: BLE001  a program may raise: so must it under the probes
            self.outputs.append(f"{type(error).__name__}: {_steady(str(error))}")
            return None
        self.outputs.append(digest(result))
        return result


def cases(device: str) -> tuple[Case, ...]:
    both = [
        Case(
            name=f"corpus/{p.name}",
            path=p.path,
            calls=p.calls,
            build=lambda module, device: module.build(),
        )
        for p in compile_corpus.programs()
        if device == "cpu"
    ]
    both += [
        Case(
            name=f"corpus_runtime/{p.name}",
            path=p.path,
            calls=p.calls,
            build=lambda module, d: module.build(d),
        )
        for p in runtime_corpus.programs()
        if p.runs_on(device)
    ]
    return tuple(both)


def digest(value: object) -> str:
    """The same for equal results: structure, dtypes, shapes and bytes; never an address."""
    leaves, structure = tree_flatten(value)
    text = hashlib.sha256(_steady(str(structure)).encode())
    for leaf in leaves:
        text.update(_described(leaf))
    return text.hexdigest()[:16]


def _described(leaf: object) -> bytes:
    if not isinstance(leaf, torch.Tensor):
        return _steady(repr(leaf)).encode()
    described = (
        f"{leaf.dtype} {tuple(leaf.shape)} {leaf.device} {leaf.layout} {leaf.requires_grad}"
    ).encode()
    if leaf.device.type == "meta":
        return described  # it has no data
    dense = leaf.detach().to_dense() if leaf.is_sparse else leaf.detach()
    return (
        described
        + dense.cpu()
        .resolve_conj()
        .resolve_neg()
        .contiguous()
        .reshape(-1)
        .view(torch.uint8)
        .numpy()
        .tobytes()
    )


def _steady(text: str) -> str:
    return _ADDRESS.sub("...", text)


def outcome(case: Case, device: torch.device, *, probes: bool) -> Outcome:
    torch._dynamo.reset()
    counters.clear()
    set_compilation_metrics_limit(0)
    set_compilation_metrics_limit(COMPILATIONS)
    seed_everything(0)
    step = case.build(_module(case), device)
    session = Calls(step, case.calls)
    if probes:
        _under_probes(case, session, step, device)
    else:
        for _ in range(case.calls):
            session.step()
    return Outcome(
        outputs=tuple(session.outputs),
        graphs=counters["stats"]["unique_graphs"],
        operators=counters["stats"]["calls_captured"],
        compilations=tuple(_compilations(case)),
    )


def _under_probes(case: Case, session: Calls, step: object, device: torch.device) -> None:
    options = Options(
        workload=f"{case.path}:build", steps=case.calls, warmup=runtime_corpus.WARM_UP
    )
    project = project_sources.project_files(options.workload)
    buffers = getattr(step, "buffers", None)
    watched = session if buffers is None else _with_buffers(session, buffers)
    memory_pass(lambda: watched, device, options, project=project)


def _with_buffers(session: Calls, buffers: Any) -> CallsWithBuffers:
    return CallsWithBuffers(lambda call: session.step(), buffers)


def _compilations(case: Case) -> Iterator[str]:
    """Of the corpus' own functions: what torch compiles of itself is no program's."""
    for metrics in get_compilation_metrics():
        place = str(metrics.co_filename)
        if place.startswith(str(case.path.parent)) and metrics.co_name:
            why = metrics.recompile_reason or metrics.fail_type or ""
            line = (
                f"{Path(place).name}:{metrics.co_firstlineno} {metrics.co_name} "
                f"{metrics.graph_op_count}"
            )
            yield f"{line} {_steady(str(why))}".rstrip()


def _module(case: Case) -> ModuleType:
    """The module anew, and the library beside it with it."""
    for name in [name for name in sys.modules if name == "library" or name.startswith("library.")]:
        del sys.modules[name]
    spec = importlib.util.spec_from_file_location(case.path.stem, case.path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[case.path.stem] = module
    with folder_first_on_path(case.path.parent):
        spec.loader.exec_module(module)
    return module


@contextmanager
def folder_first_on_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def compare(bare: dict[str, Outcome], probed: dict[str, Outcome]) -> list[str]:
    """One line for each thing that differs."""
    lines = [f"{name}: only in one of the two" for name in sorted(bare.keys() ^ probed.keys())]
    for name in sorted(bare.keys() & probed.keys()):
        for field in Outcome.__struct_fields__:
            one, other = getattr(bare[name], field), getattr(probed[name], field)
            if one != other:
                lines.append(f"{name}: {field}: {one} without the probes, {other} with them")
    return lines


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus_runtime.outcomes")
    parser.add_argument("file", type=Path)
    parser.add_argument("names", nargs="*", metavar="PROGRAM")
    parser.add_argument("--probes", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--compare", type=Path)
    asked = parser.parse_intermixed_args(arguments)
    warnings.simplefilter("ignore")
    chosen = [
        case for case in cases(asked.device) if not asked.names or case.path.stem in asked.names
    ]
    device = torch.device(asked.device)
    with cheap_garbage_collection():
        found = {case.name: outcome(case, device, probes=asked.probes) for case in chosen}
    asked.file.write_bytes(msgspec.json.encode(found))
    if asked.compare is not None and (differences := compare(read(asked.compare), found)):
        sys.exit("\n".join(differences))


def read(file: Path) -> dict[str, Outcome]:
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Outcome])


if __name__ == "__main__":
    main(sys.argv[1:])
