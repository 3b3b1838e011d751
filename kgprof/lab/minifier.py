"""The smallest captured graph in which a rung still differs from eager, by torch's own minifier, as
a script.

What is reduced is Dynamo's graph, so that the script is written in the program's operators. torch's
accuracy minifier (``TORCHDYNAMO_REPRO_AFTER="dynamo"``, ``TORCHDYNAMO_REPRO_LEVEL=4``) does the
same with the root mean square of ``torch._dynamo.utils.same``; here a graph fails by the rule that
named the rung, gradients included.
"""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kgprof import model as m
from kgprof.lab.ladder import Question, prepared
from kgprof.record.processes.trials import CellTrials, Write

if TYPE_CHECKING:
    import torch

REDUCE = "kgprof.lab.minifier:reduce"
CHECK = "kgprof.lab.minifier:check"
DIFFERS = 2  # exit code of a script whose graph differs; 1 is Python's own
SCRIPT_NAME = "smallest_graph.py"
MOST_OUTPUT = 4_000  # characters of a script's that are kept
SCRIPT = '''"""{title}

Run it by itself: exit code {differs} says that it still differs. Its inputs are in {inputs}.
"""

import sys
from math import inf, nan
from pathlib import Path

import numpy as np
import torch
from torch import device
from torch._dynamo.debug_utils import cast_to_fp64
from typing import Any

{imports}{settings}

TOLERANCES = {tolerances}


{functions}

{model}

if __name__ == "__main__":
    inputs = torch.load(Path(__file__).with_name({inputs!r}))
    compiled = torch.compile(Repro(), {compile})
    eager, found = outcome(Repro(), inputs), outcome(compiled, inputs)
    try:
        wide = outcome(*cast_to_fp64(torch.fx.symbolic_trace(Repro()), inputs))
    except Exception as error:
        print("float64 cannot run it:", error)
        wide = {{}}
    differing = 0
    for name, (dtype, theirs) in eager.items():
        ours, other = found[name][1], wide.get(name, ("", None))[1]
        tolerance = TOLERANCES.get(dtype, TOLERANCES["bfloat16"])
        differs, error, by_float64 = beyond(ours, theirs, other, *tolerance)
        differing += int(differs.sum())
        print(f"{{name}}: {{differs.sum()}} of {{differs.size}} elements differ", end="")
        if differs.any():
            error = np.where(differs, np.nan_to_num(error, nan=np.inf), -1)
            at = np.unravel_index(np.argmax(error), differs.shape)
            print(f"; at {{tuple(map(int, at))}} compiled {{ours[at]:.9g}}", end="")
            print(f", eager {{theirs[at]:.9g}}", end="")
            print(f", float64 {{other[at]:.9g}}" if by_float64 else "", end="")
        print()
    sys.exit({differs} if differing else 0)
'''


def smallest(question: Question, of: CellTrials) -> m.Minified | m.Skipped:
    """Of the rung and the run that ``question`` names; its folder takes the script, which is run to
    check it."""
    minified = of.answered(REDUCE, question, m.Minified)
    if isinstance(minified, m.Skipped):
        return minified
    checked = of.answered(CHECK, minified, m.Reproduction)
    script = Path(minified.script)
    if (
        isinstance(checked, m.Reproduction)
        and not checked.differs
        and (own := _import_of(of.options.workload))
    ):
        # It may need what the program registers: operators, backends, settings.
        script.write_text(script.read_text("utf-8").replace(_NO_IMPORTS, own, 1), "utf-8")
        checked = of.answered(CHECK, minified, m.Reproduction)
    return replace(minified, script=script.name, checked=checked)


_NO_IMPORTS = "# (needs nothing from the original program)\n"


def _import_of(workload: str) -> str:
    """Lines that import a user's workload; empty for a built-in."""
    from kgprof.workloads import loading

    target = loading.find(workload)
    if target is None:
        return ""
    folder, module = (
        (target.file.parent, target.file.stem) if target.file else (Path.cwd(), target.module)
    )
    return (
        f"sys.path.insert(0, {str(folder)!r})\nimport {module}  # for the operators, "
        "backends and settings in it\n"
    )


# ---------------------------------------------------------------- from here on in the child


def check(minified_json: bytes, options: m.Options, write: Write) -> None:
    """Run the script by itself."""
    script = m.decode_json(minified_json, m.Minified).script
    ended = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, errors="replace", check=False
    )
    output = (ended.stdout + ended.stderr)[-MOST_OUTPUT:]
    write(m.Reproduction(differs=ended.returncode == DIFFERS, output=output))


def reduce(question_json: bytes, options: m.Options, write: Write) -> None:
    """Take the first graph of one run that differs when it is compiled by itself, and make it
    smaller.

    A graph that is smaller and still differs is written at once, so that a time limit costs the
    rest alone.
    """
    import torch
    from torch._dynamo import config
    from torch._functorch.fx_minifier import minifier

    question = m.decode_json(question_json, Question)
    graphs = recorded(question, options)
    rung = question.rung
    backend = m.BACKEND_OF.get(rung, question.cell.backend if rung is m.Rung.MODE else m.INDUCTOR)
    settings: dict[str, Any] = {"backend": backend, "dynamic": False}
    if rung is m.Rung.MODE and backend == m.INDUCTOR:
        settings = {"mode": question.cell.mode, "dynamic": False}
    attempts = 0

    def differs(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
        nonlocal attempts
        attempts += 1
        try:
            return differs_compiled(graph, list(inputs), settings)
        # torch's minifier tries graphs that cannot run; the log has why
        except Exception:  # noqa: BLE001
            traceback.print_exc()
            return False

    script = Path(question.folder) / SCRIPT_NAME
    script.parent.mkdir(parents=True, exist_ok=True)
    name = options.workload.rpartition("/")[2]
    title = (
        f"The smallest graph of {name}, strategy {question.strategy}, that differs "
        f"from eager: {rung}."
    )
    with (
        config.patch(automatic_dynamic_shapes=False),
        torch._inductor.config.patch(fallback_random=True),
    ):
        graph, inputs = next((each for each in graphs if differs(*each)), (None, []))
        if graph is None:
            none = (
                f"none of its {len(graphs)} captured graphs differs when it is compiled by itself"
            )
            write(
                m.Skipped(
                    none if graphs else "no graph was captured from what the program compiles"
                )
            )
            return
        before = len(graph.graph.nodes)

        def keep(
            smaller: torch.fx.GraphModule, left: Sequence[Any], finished: bool = False
        ) -> None:
            save(script, title, smaller, list(left), settings)
            targets = [node.target for node in smaller.graph.nodes if node.op.startswith("call_")]
            names = tuple(getattr(each, "__name__", str(each)) for each in targets)
            write(m.Minified(str(script), names, before, attempts, finished))

        keep(graph, inputs)
        smaller, left = minifier(graph, inputs, differs, keep)
        keep(smaller, left, finished=True)


def recorded(
    question: Question, options: m.Options
) -> list[tuple[torch.fx.GraphModule, list[Any]]]:
    """Each graph that Dynamo captures in the steps of the run, with the inputs of its first
    call."""
    from torch._dynamo.debug_utils import clone_inputs_retaining_gradness

    from kgprof.workloads.protocol import EvaluationSession

    graphs = {}

    def recording(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        kept = copy.deepcopy(graph)

        def call(*inputs: Any) -> Any:
            if id(kept) not in graphs:
                graphs[id(kept)] = (kept, clone_inputs_retaining_gradness(inputs))
            return graph(*inputs)

        return call

    with prepared(question, options, recording) as (_, session, _):
        if isinstance(session, EvaluationSession):
            session.evaluate(lambda: None)
        else:
            for _ in range(question.steps):
                session.step()
    return list(graphs.values())


def differs_compiled(
    graph: torch.fx.GraphModule, inputs: list[Any], settings: dict[str, Any]
) -> bool:
    """Whether the compiled graph, by itself, differs from the graph in eager mode and float64."""
    import torch
    from torch._dynamo.debug_utils import clone_inputs_retaining_gradness

    from kgprof.lab.referee import in_float64, widen
    from kgprof.lab.reproduction import beyond, outcome
    from kgprof.workloads.user import TOLERANCES

    torch._dynamo.reset()
    eager = outcome(graph, inputs)
    found = outcome(torch.compile(copy.deepcopy(graph), **settings), inputs)
    wide_graph = copy.deepcopy(graph)
    wide_inputs = clone_inputs_retaining_gradness(inputs)
    tensors = (each for each in wide_inputs if isinstance(each, torch.Tensor))
    widen([*wide_graph.parameters(), *wide_graph.buffers(), *tensors])
    try:
        with in_float64():
            wide = outcome(wide_graph, wide_inputs)
    except RuntimeError:
        traceback.print_exc()
        wide = {}
    for name, (dtype, theirs) in eager.items():
        tolerances = TOLERANCES.get(dtype, TOLERANCES["bfloat16"])
        if beyond(found[name][1], theirs, wide.get(name, ("", None))[1], *tolerances)[0].any():
            return True
    return False


def save(
    script: Path,
    title: str,
    graph: torch.fx.GraphModule,
    inputs: list[Any],
    settings: dict[str, Any],
) -> None:
    """The script and, beside it, the tensors that its graph takes."""
    import torch
    from torch._dynamo.debug_utils import (
        NNModuleToString,
        clone_inputs_retaining_gradness,
        generate_config_string,
    )

    from kgprof.lab import reproduction
    from kgprof.workloads.user import TOLERANCES

    tensors = script.with_suffix(".pt")
    torch.save(clone_inputs_retaining_gradness(inputs), tensors)
    text = SCRIPT.format(
        title=f"{title} torch {torch.__version__}.",
        differs=DIFFERS,
        inputs=tensors.name,
        imports=_NO_IMPORTS,
        settings="\n".join(line for line in generate_config_string().splitlines() if line.strip()),
        tolerances=dict(TOLERANCES),
        functions="\n\n".join(
            inspect.getsource(each)
            for each in (
                reproduction.beyond,
                reproduction.weighted_backward,
                reproduction.outcome,
            )
        ),
        model=NNModuleToString.convert(graph).strip(),
        compile=", ".join(f"{name}={value!r}" for name, value in settings.items()),
    )
    script.write_text(text, "utf-8")
