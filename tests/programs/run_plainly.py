"""What torch itself says of a program, without kgprof: the ground on which the truth beside each
program was written.

    python -m tests.programs.run_plainly NAME            # breaks and recompiles, by torch's log and counters
    python -m tests.programs.run_plainly NAME --reads    # reads of tensors by the CPU, in eager, by the line that reads

The second run switches torch.compile off and counts by torch's dispatch which operators read a
value and which methods copy to the CPU. On a CPU every such tensor is one of the CPU: which of them
would be on a GPU is for a person to judge.
"""  # noqa: E501

from __future__ import annotations

import argparse
import atexit
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent / "scripts"
READS = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "_unique",
    "unique_",
    "bincount",
    "equal.default",
)
# reach a dispatch mode as they are under inference_mode
COMPOSED = ("item.", "is_nonzero.", "where.default")
METHODS = ("cpu", "numpy", "tolist", "__array__")
TORCH = ("/torch/", "/runpy.py", __file__, "<frozen", "/contextlib.py")


def watched(program: Path, out: Path, *, reads: bool) -> None:
    """In the process of the program: run it, and write down at its end what torch counted."""
    sys.path.insert(0, str(program.parent))
    found: Counter[tuple[str, ...]] = Counter()
    import torch  # here: TORCH_LOGS is read when torch is imported

    def leave() -> None:
        counters = {name: dict(values) for name, values in torch._dynamo.utils.counters.items()}
        rows = [[*site, count] for site, count in found.most_common()]
        out.write_text(json.dumps({"counters": counters, "reads": rows}, indent=1), "utf-8")

    atexit.register(leave)
    if reads:
        _listen(torch, found)
    sys.argv = [str(program)]
    runpy.run_path(str(program), run_name="__main__")


def _listen(torch: Any, found: Counter[tuple[str, ...]]) -> None:
    """Count in eager: with fullgraph=True torch would refuse to run under a dispatch mode."""
    torch.compile = lambda model=None, **options: model or (lambda model: model)
    torch.nn.Module.compile = lambda module, **options: None
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = str(func).removeprefix("aten.")
            masked = name.startswith("index") and any(
                isinstance(index, torch.Tensor) and index.dtype == torch.bool
                for index in _indices(args)
            )
            if masked or name.startswith((*READS, *COMPOSED)):
                found[name, *_place()] += 1
            return func(*args, **(kwargs or {}))

    for method in METHODS:
        setattr(torch.Tensor, method, _counted(getattr(torch.Tensor, method), method, found))
    Mode().__enter__()


def _indices(args: Sequence[Any]) -> Sequence[Any]:
    return args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ()


def _counted(
    original: Callable[..., Any], name: str, found: Counter[tuple[str, ...]]
) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        found[f"Tensor.{name}", *_place()] += 1
        return original(self, *args, **kwargs)

    return method


def _place() -> tuple[str, ...]:
    """The innermost line of the program, and the innermost one that is not torch's, if that is
    another."""
    stack = traceback.extract_stack()
    own = next(
        (frame for frame in reversed(stack) if frame.filename.startswith(str(SCRIPTS))), None
    )
    inner = next(
        (frame for frame in reversed(stack) if not any(part in frame.filename for part in TORCH)),
        None,
    )
    inner_torch = next((frame for frame in reversed(stack) if __file__ not in frame.filename), None)
    lines = [f"{Path(own.filename).name}:{own.lineno} {own.line}" if own else "-"]
    for frame in (inner, inner_torch):
        if frame is not None and frame is not own:
            file = frame.filename.rpartition("site-packages/")[2]
            lines.append(f"{file}:{frame.lineno} {frame.name}: {frame.line}")
    return tuple(dict.fromkeys(lines))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.programs.run_plainly", description=__doc__
    )
    parser.add_argument("name")
    parser.add_argument("--reads", action="store_true")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    program = SCRIPTS / f"{asked.name}.py"
    if asked.inside:
        watched(program, asked.inside, reads=asked.reads)
        return
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder, "counted.json"), Path(folder, "log")
        how = (
            {"TORCH_COMPILE_DISABLE": "1"}
            if asked.reads
            else {"TORCH_LOGS": "graph_breaks,recompiles"}
        )
        command = [
            sys.executable,
            "-m",
            "tests.programs.run_plainly",
            asked.name,
            "--inside",
            str(out),
        ]
        with log.open("w") as file:
            subprocess.run(
                [*command, *(["--reads"] if asked.reads else [])],
                env={**os.environ, **how, "OMP_NUM_THREADS": "1"},
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        print(log.read_text("utf-8"))
        print(out.read_text("utf-8"))


if __name__ == "__main__":
    main(sys.argv[1:])
