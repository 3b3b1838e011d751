"""The correctness ladder: where, between Python and generated code, does a program's result change?

Each rung is a fresh process that loads the workload anew from the same seed, so each starts from
the same state and the same random numbers (``fallback_random`` makes Inductor draw eager's).
Compared are what the last step returned, the buffers after it and the gradients: those that the
program computed, or else those of a weighted sum of its result.

A tensor differs where an element x, against its value r in float64 and the largest error E of eager
in that tensor, has

    |x - r| > factor * E + absolute + relative * |r|

The tolerances are ``torch.testing.assert_close``'s for the dtype. The factor is that of
``torch._dynamo.utils.same``: 3, for at most 500 elements 8 and for at most 10 elements 10, because
so few may be exact in eager by luck. ``same`` holds the root mean square to it, which one wrong
element in a million passes; here it is every element. NaN and infinity differ where neither eager
nor float64 has them; integers where both agree on another value. ``reproduction.beyond`` is this
rule.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from msgspec.structs import replace

from kgprof import model as m
from kgprof.reading import recordings
from kgprof.record.ground import store
from kgprof.record.ground.run import seed_everything
from kgprof.record.processes.trials import TIME_UP, CellTrials, Write

if TYPE_CHECKING:
    import numpy as np
    import torch

    from kgprof.workloads.protocol import ComparableWorkload, Session, Workload

FUNCTION = "kgprof.lab.ladder:measure"
REPLAYED = ("reduce-overhead", "max-autotune")  # on a GPU: warm-up, capture, replay
STEPS = 3  # of those, so that a replay is compared
KEPT = 20  # tensors of a rung that are kept, the worst first

Arrays = Mapping[str, "np.ndarray"]


class Question(m.Model, kw_only=False):
    """One rung of one run. ``folder`` takes its arrays, and holds those of the rungs before it."""

    rung: m.Rung
    strategy: str
    cell: m.Cell  # whose rung it is
    device: str
    folder: str
    steps: int


def climb(of: CellTrials, output: Path) -> m.Ladder | m.Skipped:
    """All rungs of one compiled cell, and where one differs the smallest graph that does, as a
    script in ``output``.

    Raises KeyboardInterrupt where a signal came.
    """
    from kgprof.lab import minifier
    from kgprof.workloads import programs

    cell = of.cell
    if not cell.compiles:
        return m.Skipped("eager mode compiles nothing")
    if programs.is_program(of.options.workload):
        return m.Skipped("a script has no step to call; name one of its functions: file.py:name")
    own = cell.backend != m.INDUCTOR or cell.mode not in (m.AS_IS, "default")
    steps = STEPS if cell.mode in REPLAYED and of.device.startswith("cuda") else 1
    question = Question(m.Rung.FLOAT64, of.strategy, cell, of.device, str(of.scratch), steps)
    wanted = [rung for rung in m.Rung if rung is not m.Rung.MODE or own]
    rungs: dict[m.Rung, m.RungResult | m.Skipped] = dict.fromkeys(wanted, TIME_UP)
    # What the program itself will run before the rungs between: if the time is up, that one has
    # been compared.
    soonest = (m.Rung.FLOAT64, m.Rung.EAGER, wanted[-1])
    for rung in sorted(rungs, key=lambda rung: rung not in soonest):
        of.on_phase(f"correctness ladder: {rung}")
        rungs[rung] = of.answered(FUNCTION, replace(question, rung=rung), m.RungResult)
    found = rungs.items()
    different = [r for r, one in found if isinstance(one, m.RungResult) and one.differs]
    first = different[0] if different else None
    minified: m.Minified | m.Skipped = m.Skipped("no rung differs")
    if first is not None:
        of.on_phase(f"smallest graph that differs: {first}")
        minified = minifier.smallest(replace(question, rung=first, folder=str(output)), of)
    return m.Ladder(of.strategy, cell.name, steps, tuple(rungs.items()), first, minified)


# ---------------------------------------------------------------- from here on in the child


def measure(question_json: bytes, options: m.Options, write: Write) -> None:
    """Take the steps of one rung, keep what they left, and compare it with eager and float64."""
    import torch

    from kgprof.lab import referee
    from kgprof.lab.tensor_differences import differences
    from kgprof.workloads.protocol import BufferSession, EvaluationSession, ResultSession
    from kgprof.workloads.user import named_arrays

    question = m.decode_json(question_json, Question)
    with ExitStack() as stack:
        workload, session, part = stack.enter_context(prepared(question, options))
        gradients = stack.enter_context(Gradients())
        if question.rung is m.Rung.FLOAT64:
            referee.widen(referee.live(torch.Tensor))
            stack.enter_context(referee.in_float64())
        began, returned, job = time.perf_counter(), None, None
        if isinstance(session, EvaluationSession):
            job = session.evaluate(lambda: None)
        else:
            for _ in range(question.steps):
                returned = session.step()
            gradients.of_result(returned)
        arrays = dict(session.result()) if isinstance(session, ResultSession) else {}
        if not has_its_own_comparison(workload):
            arrays |= dict(named_arrays(returned))
            buffers = session.buffers() if isinstance(session, BufferSession) else {}
            tensors = {f"buffer {name}": tensor for name, tensor in buffers.items()}
            tensors |= {f"gradient of {name}": tensor for name, tensor in gradients.seen.items()}
            for name, tensor in tensors.items():
                arrays |= dict(named_arrays(tensor, name))
        seconds = time.perf_counter() - began  # named_arrays waits for the GPU
    folder = Path(question.folder)
    at = m.RunKey(question.strategy, question.rung)
    store.write_result(folder, at, arrays)
    if job is not None:
        store.write_json(folder / f"{at.slug}.json", job)
    wide, eager = (left_by(question, rung) for rung in (m.Rung.FLOAT64, m.Rung.EAGER))
    if not arrays or (question.rung is not m.Rung.FLOAT64 and not eager):
        nothing = (
            "the step leaves nothing to compare: no tensor that it returns, no buffer, no gradient"
        )
        write(m.Skipped("eager mode left nothing to compare with" if arrays else nothing))
        return
    found = []
    note = part or gradients.note
    result = m.RungResult(differs=False, seconds=seconds, compared=0, note=note)
    if has_its_own_comparison(workload):
        agreement, metrics = _own_comparison(workload, question, arrays, job)
        result = replace(result, agreement=agreement, metrics=tuple(metrics))
    elif question.rung is not m.Rung.FLOAT64:
        found = list(differences(arrays, eager, wide))
        found.sort(key=lambda each: (-each.differing, -each.max_abs))
        result = replace(result, compared=len(found), tensors=tuple(found[:KEPT]))
    judged = result.agreement
    is_judged_different = (
        isinstance(judged, m.RunAgreement) and judged.verdict is m.AgreementVerdict.DIFFERENT
    )
    if question.rung not in (m.Rung.FLOAT64, m.Rung.EAGER):
        differs = is_judged_different or any(each.differing for each in found)
        result = replace(result, differs=differs)
    write(result)


@contextmanager
def prepared(
    question: Question, options: m.Options, instead: Callable[..., object] | str = ""
) -> Iterator[tuple[Workload, Session, str]]:
    """The workload as the rung runs it (or with another backend), with eager's random numbers;
    within, it can step.

    The string says which part of it, if a part is enough.
    """
    import torch
    from torch._inductor import config

    from kgprof.workloads import loading
    from kgprof.workloads.backend import as_in, in_place_of_inductor
    from kgprof.workloads.protocol import DivisibleWorkload

    cell = question.cell
    rung = question.rung
    if rung in (m.Rung.FLOAT64, m.Rung.EAGER):
        precision = cell.precision if rung is m.Rung.EAGER else m.Precision.AS_IS
        cell = replace(cell, mode=m.EAGER, backend=m.EAGER, precision=precision)
    elif rung is not m.Rung.MODE:
        mode = m.AS_IS if cell.mode == m.AS_IS else "default"
        cell = replace(cell, mode=mode, backend=m.BACKEND_OF.get(rung, m.INDUCTOR))
    device = torch.device(question.device)
    recording = in_place_of_inductor(instead, chosen_too=True)
    with recording, as_in(cell, device.type), config.patch(fallback_random=True):
        seed_everything(options.seed)
        workload = loading.load(
            options.workload, (*options.workload_args, *cell.size), options.seed
        )
        workload, part = (
            workload.part() if isinstance(workload, DivisibleWorkload) else (workload, "")
        )
        offered = {
            mode
            for plan in workload.strategies()
            if plan.name == question.strategy
            for mode in plan.modes
        }
        key = m.RunKey(question.strategy, cell.mode if cell.mode in offered else m.AS_IS)
        yield workload, workload.prepare(key, device), part


class Gradients:
    """The gradients of named leaf tensors, as each ``backward()`` within leaves them; steps may
    clear them afterwards.

    A leaf has its module's name for it; a tensor that no module holds is numbered in the order of
    creation.
    """

    def __init__(self) -> None:
        import torch

        from kgprof.lab import referee

        # compiled ones
        modules = [each for each in referee.live(torch.nn.Module) if not hasattr(each, "_orig_mod")]
        inner = {id(child) for module in modules for child in module.children()}
        roots = [module for module in modules if id(module) not in inner]
        self.leaves: dict[str, torch.Tensor] = {}
        for number, root in enumerate(roots):
            for name, parameter in root.named_parameters():
                self.leaves[f"{type(root).__name__}{f'#{number + 1}' if number else ''}.{name}"] = (
                    parameter
                )
        named = {id(leaf) for leaf in self.leaves.values()}
        kinds = (torch.Tensor, torch.nn.Parameter)  # no subclass of them, such as a fake tensor
        live = (
            tensor
            for tensor in referee.live(torch.Tensor)
            if type(tensor) in kinds and id(tensor) not in named
        )
        others = (tensor for tensor in live if tensor.is_leaf and tensor.requires_grad)
        self.leaves |= {f"input {number + 1}": tensor for number, tensor in enumerate(others)}
        self.seen: dict[str, torch.Tensor] = {}
        self.note = ""

    def __enter__(self) -> Gradients:
        import torch

        self._backward = torch.autograd.backward

        def backward(*args: Any, **settings: Any) -> None:
            self._backward(*args, **settings)
            found = ((name, leaf.grad) for name, leaf in self.leaves.items())
            self.seen |= {
                name: gradient.detach().clone() for name, gradient in found if gradient is not None
            }

        torch.autograd.backward = backward
        return self

    def __exit__(self, *_: object) -> None:
        import torch

        torch.autograd.backward = self._backward

    def of_result(self, returned: object) -> None:
        """Where the program called no ``backward()``: of a weighted sum of its result."""
        import torch
        from torch.utils._pytree import tree_flatten

        from kgprof.lab.reproduction import weighted_backward

        results = [
            leaf
            for leaf in tree_flatten(returned)[0]
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        if self.seen or not results:
            return
        try:
            weighted_backward(results)
        except RuntimeError as error:  # the program has freed the graph
            self.note = f"no gradients: {next(iter(str(error).splitlines()), '')}"


# ---------------------------------------------------------------- comparing


def has_its_own_comparison(workload: Workload) -> TypeGuard[ComparableWorkload]:
    """It judges results itself, against a reference of its own."""
    from kgprof.workloads.example import ExampleWorkload
    from kgprof.workloads.protocol import ComparableWorkload
    from kgprof.workloads.user import UserWorkload

    return isinstance(workload, ComparableWorkload) and not isinstance(
        workload, UserWorkload | ExampleWorkload
    )


def _own_comparison(
    workload: ComparableWorkload, question: Question, arrays: Arrays, job: m.Evaluation | None
) -> tuple[m.RunAgreement | m.Skipped, list[tuple[m.Metric, float]]]:
    """With eager, and of each metric eager's value."""
    baseline = m.RunKey(question.strategy, m.EAGER)
    own = m.RunKey(question.strategy, "default")
    own = own if question.rung not in (m.Rung.FLOAT64, m.Rung.EAGER) else baseline
    eager = left_by(question, m.Rung.EAGER) or arrays
    judged = dict(workload.agreement({baseline: eager, own: arrays}, baseline).runs)[own]
    path = Path(question.folder) / f"{m.RunKey(baseline.strategy, m.Rung.EAGER).slug}.json"
    before = m.decode_json(path.read_bytes(), m.Evaluation).metrics if path.exists() else ()
    pairs = zip(job.metrics if job else (), before, strict=False)
    return judged, [(metric, other.value) for metric, other in pairs if metric.label == other.label]


def left_by(question: Question, rung: m.Rung) -> Arrays:
    """Nothing where that rung's process left nothing."""
    key = m.RunKey(question.strategy, rung)
    return recordings.read_result(Path(question.folder), key) or {}
