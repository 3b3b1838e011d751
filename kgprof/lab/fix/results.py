"""Does a lever change what the program computes? Seeded starts that time nothing, compared.

What every step returned, and after the last one the parameters, buffers and gradients of every
module, of the program as it is (twice), of the program in float64 without compiling, and of the
program with the lever. Inductor draws eager's random numbers (``fallback_random``). How far an
element may be from float64: ``kgprof.lab.ladder``.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from kgprof import model as m
from kgprof.lab import referee
from kgprof.lab.tensor_differences import differences
from kgprof.record.ground import store
from kgprof.record.ground.environment import choose_device
from kgprof.record.ground.run import seed_everything
from kgprof.record.processes.trials import Write
from kgprof.workloads import loading
from kgprof.workloads.user import DTYPE, named_arrays

FUNCTION = "kgprof.lab.fix.results:measure"
LARGEST = 1_000_000  # elements of an array of which every step's is kept; of larger ones the last

Arrays = Mapping[str, np.ndarray]


class Question(m.Model, kw_only=False):
    """``name``: under which the arrays are kept in ``folder``."""

    folder: str
    name: str
    in_float64: bool = False


class Answer(m.Model, kw_only=False):
    arrays: int


def measure(question_json: bytes, options: m.Options, write: Write) -> None:
    """Take the steps, and keep what they returned and left."""
    question = m.decode_json(question_json, Question)
    device = choose_device(options.device)
    arrays: dict[str, np.ndarray] = {}
    with ExitStack() as stack:
        stack.enter_context(torch._inductor.config.patch(fallback_random=True))
        seed_everything(options.seed)
        workload = loading.load(options.workload, options.workload_args, options.seed)
        (key,) = workload.default_runs(device)[:1]
        session = workload.prepare(key, device)
        if question.in_float64:
            torch.compiler.set_stance("force_eager")
            referee.widen(referee.live(torch.Tensor))
            stack.enter_context(referee.in_float64())
        for number in range(options.steps):
            last = number == options.steps - 1
            returned = dict(named_arrays(session.step(), f"result of step {number + 1}"))
            arrays |= {
                name: array for name, array in returned.items() if last or array.size <= LARGEST
            }
        for name, tensor in _left():
            arrays |= dict(named_arrays(tensor, name))
    store.write_result(Path(question.folder), m.RunKey(question.name, m.AS_IS), arrays)
    write(Answer(len(arrays)))


def _left() -> list[tuple[str, torch.Tensor]]:
    """The parameters and buffers of the modules that are no part of others, and the gradients."""
    modules = [each for each in referee.live(torch.nn.Module) if not hasattr(each, "_orig_mod")]
    inner = {id(child) for module in modules for child in module.children()}
    roots = [module for module in modules if id(module) not in inner]
    found: list[tuple[str, torch.Tensor]] = []
    for number, root in enumerate(roots):
        label = f"{type(root).__name__} {number + 1}"
        for name, parameter in root.named_parameters():
            found.append((f"{label}.{name}", parameter))
            if parameter.grad is not None:
                found.append((f"gradient of {label}.{name}", parameter.grad))
        found += [(f"{label}.{name}", buffer) for name, buffer in root.named_buffers()]
    return found


# ---------------------------------------------------------------- comparing, in the parent


def compared(found: Arrays, as_is: Arrays, again: Arrays, wide: Arrays) -> m.Results:
    """``again``: of a second start of the program as it is; ``wide``: of it in float64, which may
    lack some or all."""
    if not as_is or not _are_same(as_is, again):
        return m.Results.NOT_COMPARABLE
    if _are_same(found, as_is):
        return m.Results.SAME
    if any(each.differing for each in differences(found, as_is, wide)):
        return m.Results.DIFFERENT
    return m.Results.ROUNDED


def _are_same(one: Arrays, other: Arrays) -> bool:
    """Bit for bit, but that a NaN is as good as another."""
    if one.keys() != other.keys():
        return False
    return all(_is_same(one[name], other[name]) for name in one if not name.startswith(DTYPE))


def _is_same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))
