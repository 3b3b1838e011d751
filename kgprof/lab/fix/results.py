"""Does a lever change what the program computes? Seeded starts that time nothing, compared.

What every step returned, and after the last one the parameters, buffers and gradients of every
module, of the program as it is (twice), of the program in float64 without compiling, and of the
program with the lever. Inductor draws eager's random numbers (``fallback_random``). How far an
element may be from float64: ``kgprof.lab.ladder``.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
FACTOR = 4
MOST = 0.1  # of a parameter's size, where steps went to the other side
LEAST = 1e-6  # of its size: float32 rounds to 6e-8
FIRST = "result of step 1:"
LARGEST = 1_000_000  # elements of an array of which every step's is kept; of larger ones the last

Arrays = Mapping[str, np.ndarray]


class Question(m.Model, kw_only=False):
    """``name``: under which the arrays are kept in ``folder``."""

    folder: str
    name: str
    in_float64: bool = False


class Kept:
    """What the first steps return and leave, which is written behind the last of them."""

    def __init__(self, question: Question, workload: str) -> None:
        self._question, self._workload = question, workload
        self._arrays: dict[str, np.ndarray] = {}
        self._taken = 0

    def take(self, returned: object) -> None:
        self._taken += 1
        if self._taken > m.FIX_RESULT_STEPS:
            return
        last = self._taken == m.FIX_RESULT_STEPS
        for name, array in named_arrays(returned, f"result of step {self._taken}:"):
            if last or array.size <= LARGEST:
                self._arrays[name] = array
        if last:
            for name, tensor in _left(self._workload):
                self._arrays |= dict(named_arrays(tensor, name))
            key = m.RunKey(self._question.name, m.AS_IS)
            store.write_result(Path(self._question.folder), key, self._arrays, compressed=False)


def measure(question_json: bytes, options: m.Options, write: Write) -> None:
    """Take the steps, and keep what they returned and left."""
    question = m.decode_json(question_json, Question)
    device = choose_device(options.device)
    with ExitStack() as stack:
        stack.enter_context(torch._inductor.config.patch(fallback_random=True))
        seed_everything(options.seed)
        workload = loading.load(options.workload, options.workload_args, options.seed)
        (key,) = workload.default_runs(device)[:1]
        session = workload.prepare(key, device)
        kept = Kept(question, options.workload)
        if question.in_float64:
            torch.compiler.set_stance("force_eager")
            referee.widen(referee.live(torch.Tensor))
            stack.enter_context(referee.in_float64())
        for _ in range(m.FIX_RESULT_STEPS):
            kept.take(session.step())
    write(question)  # it was answered


def _left(workload: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters and buffers of the modules that the workload's module has names for, and the
    gradients; compiled or not, they have the same names."""
    for name, module in modules_in(names_of_the_module(workload)).items():
        one = getattr(module, "_orig_mod", module)
        for part, parameter in one.named_parameters():
            yield f"parameter {name}.{part}", parameter
            if parameter.grad is not None:
                yield f"gradient {name}.{part}", parameter.grad
        for part, buffer in one.named_buffers():
            yield f"buffer {name}.{part}", buffer


def modules_in(names: Mapping[str, object]) -> dict[str, torch.nn.Module]:
    """Those with parameters that are part of no other one there."""
    modules = {name: one for name, one in names.items() if isinstance(one, torch.nn.Module)}
    return {
        name: one
        for name, one in modules.items()
        if not _is_part(one, modules) and next(one.parameters(), None) is not None
    }


def names_of_the_module(workload: str) -> dict[str, object]:
    """The names of the module that the workload is in, each object under its first one."""
    target = loading.find(workload)
    if target is None:
        return {}
    module = sys.modules.get(target.module)
    for found in tuple(sys.modules.values()):
        file = getattr(found, "__file__", None)
        if target.file is not None and file and Path(file) == target.file:
            module = found
    by_id: dict[int, str] = {}
    for name, value in vars(module).items() if module is not None else ():
        by_id.setdefault(id(value), name)
    return {name: vars(module)[name] for name in by_id.values()}


def _is_part(one: torch.nn.Module, others: dict[str, torch.nn.Module]) -> bool:
    wholes = [other for other in others.values() if other is not one]
    return any(one is child for other in wholes for child in other.modules())


# ---------------------------------------------------------------- comparing, in the parent


def compared(found: Arrays, as_is: Arrays, again: Arrays, wide: Arrays) -> m.Results:
    """``again``: of a second start of the program as it is; ``wide``: of it in float64, which may
    lack some or all.

    What the first step returned is held to float64 element by element, by the rule of
    ``kgprof.lab.ladder``. What comes after it has been through an optimizer, in which a gradient
    that is nearly 0 becomes a whole step to one side or to the other (Adam): it is held to float64
    by kind, as a whole, and may be FACTOR times as far from it as the program as it is.
    """
    if not as_is or not are_same(as_is, again):
        return m.Results.NOT_COMPARABLE
    if are_same(found, as_is):
        return m.Results.SAME
    if found.keys() != as_is.keys() or any(map(_are_unlike, found.values(), _of(found, as_is))):
        return m.Results.DIFFERENT
    is_trained = any(name.startswith("gradient") for name in as_is)
    later = [name for name in as_is if is_trained and not name.startswith(FIRST) and name in wide]
    at_once = [name for name in as_is if name not in set(later)]
    strictly = ({n: side[n] for n in at_once if n in side} for side in (found, as_is, wide))
    if any(each.differing for each in differences(*strictly)):
        return m.Results.DIFFERENT
    kinds = {name.partition(" ")[0] for name in later}
    for kind in kinds:
        names = [name for name in later if name.startswith(kind)]
        if not _is_as_near(names, found, as_is, wide):
            return m.Results.DIFFERENT
    return m.Results.ROUNDED


def _of(names: Iterable[str], side: Arrays) -> list[np.ndarray]:
    return [side[name] for name in names]


def _are_unlike(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape != other.shape or one.dtype != other.dtype


def _is_as_near(names: Sequence[str], found: Arrays, as_is: Arrays, wide: Arrays) -> bool:
    """Whether these are together no more than FACTOR times as far from float64 as those of the
    program as it is, or than LEAST, in parts of their own size; and none by itself more than that
    and MOST."""
    ours = _away(names, found, wide)
    theirs = _away(names, as_is, wide)
    if ours > FACTOR * max(theirs, LEAST):
        return False
    return all(
        _away([name], found, wide) <= max(FACTOR * _away([name], as_is, wide), MOST)
        for name in names
    )


def _away(names: Sequence[str], side: Arrays, wide: Arrays) -> float:
    """The root mean square of the relative distances; infinite where only one of two is finite."""
    squares = 0.0
    count = 0
    for name in names:
        x = side[name].astype(np.float64).ravel()
        r = wide[name].astype(np.float64).ravel()
        if x.shape != r.shape or not np.array_equal(np.isfinite(x), np.isfinite(r)):
            return math.inf
        finite = np.isfinite(r)
        size = math.sqrt(float(np.mean(r[finite] ** 2))) if finite.any() else 0.0
        squares += float(np.sum(((x - r)[finite] / (size or 1.0)) ** 2))
        count += x.size
    return math.sqrt(squares / max(count, 1))


def are_same(one: Arrays, other: Arrays) -> bool:
    """Bit for bit, but that a NaN is as good as another."""
    if one.keys() != other.keys():
        return False
    return all(_is_same(one[name], other[name]) for name in one if not name.startswith(DTYPE))


def _is_same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))
