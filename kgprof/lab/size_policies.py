"""A compiled function's input of varying size, under each way to tell torch.compile about it.

What varies is dimension 0 of the first tensor that the program gives to what it compiles: its own
``torch.compile``, or the step itself, whose inputs are then arguments with defaults (``def
step(x=torch.randn(32, 64))``). The program runs once in eager mode to find that function, its
arguments and the sizes it calls it with; given sizes take the place of those, the rows of the first
call repeated or cut. Other tensor arguments that are as long vary with it.

Each policy has a process with cold caches of its own: the whole sequence of calls once, in its
order, then each size alone for its steady state. All of it, eager mode too, runs in the precision
of the cell; ``dynamic`` is the policy's. Results are held to eager's without padding by
``reproduction.beyond``: without float64, and where the cell has another precision than the program
with the program's own as the reference.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kgprof import model as m
from kgprof.errors import UsageError
from kgprof.measures import buckets, times
from kgprof.record.ground.run import seed_everything
from kgprof.record.processes.trials import CellTrials, Write

if TYPE_CHECKING:
    import torch

FUNCTION = "kgprof.lab.size_policies:measure"
LOOK = "kgprof.lab.size_policies:look"
# of one size's steady state: so many, or so long and at least WARM of them
SAMPLES, WARM, BUDGET_S = 20, 3, 0.5
FIXED = (m.SizePolicy.STATIC, m.SizePolicy.BUCKETS, m.SizePolicy.PADDED)
STEPS = 3  # of a workload, to see which sizes it calls with
HINT = "give the step its inputs as arguments with defaults, as in: def step(x=torch.randn(32, 64))"


class Question(m.Model, kw_only=False):
    strategy: str
    mode: str
    device: str
    sizes: tuple[int, ...]
    policy: m.SizePolicy
    precision: m.Precision
    buckets: tuple[int, ...] = ()


class Seen(m.Tagged, kw_only=False):
    """What the program compiles, and the sizes it called it with."""

    function: str
    tensor: str
    sizes: tuple[int, ...]


def compare_policies(of: CellTrials, sizes: Sequence[int] = ()) -> m.Shapes | m.Skipped:
    """In the mode of the cell where it is one that compiles, else default, with its backend and
    precision. Without ``sizes`` those that the program calls with. Raises KeyboardInterrupt where a
    signal came.
    """
    cell = of.cell
    device = of.device
    mode = cell.mode if cell.mode in m.COMPILED_MODES else "default"
    backend = "" if cell.backend == m.INDUCTOR else cell.backend
    of = dataclasses.replace(of, options=replace(of.options, backend=backend))
    question = Question(
        of.strategy, mode, device, tuple(sizes), m.SizePolicy.STATIC, cell.precision
    )
    seen = of.answered(LOOK, question, Seen)
    if isinstance(seen, m.Skipped):
        return seen
    calls = tuple(sizes) or seen.sizes
    if len(set(calls)) < 2:
        return m.Skipped(
            f"the program calls {seen.function} with one size only ({calls[0]}); give "
            "others with --sizes"
        )
    chosen = buckets.recommended(calls)
    policies = []
    for policy in m.SizePolicy:
        of.on_phase(f"sizes: {policy}")
        tops = tops_of(policy, calls, chosen)
        asked = replace(question, sizes=calls, policy=policy, buckets=tops)
        folder = of.caches.folder
        cold = folder.with_name(f"{folder.name}-{policy}")
        caches = dataclasses.replace(of.caches, folder=cold, kept=False)
        policies.append((policy, of.answered(FUNCTION, asked, m.PolicyResult, caches)))
    chosen_policy = buckets.best_policy(policies)
    best = chosen_policy.best if chosen_policy else None
    code = lines_for(best, seen, calls, chosen, replace(cell, mode=mode), device) if best else ""
    return m.Shapes(
        function=seen.function,
        tensor=seen.tensor,
        sizes=calls,
        collected=not sizes,
        buckets=chosen,
        policies=tuple(policies),
        recommended=best,
        code=code,
    )


def tops_of(policy: m.SizePolicy, sizes: Sequence[int], chosen: Sequence[int]) -> tuple[int, ...]:
    """The sizes that a policy pads to; none for one that does not pad."""
    if policy is m.SizePolicy.BUCKETS:
        return tuple(chosen)
    return (max(sizes),) if policy is m.SizePolicy.PADDED else ()


def lines_for(
    policy: m.SizePolicy,
    seen: Seen,
    sizes: Sequence[int],
    chosen: Sequence[int],
    cell: m.Cell,
    device: str,
) -> str:
    """The code that does it, in the program's own names."""
    tensor = seen.tensor
    tops = tops_of(policy, sizes, chosen)
    dynamic = {m.SizePolicy.DYNAMIC: m.Dynamic.TRUE, **dict.fromkeys(FIXED, m.Dynamic.FALSE)}
    cell = replace(cell, dynamic=dynamic.get(policy, m.Dynamic.AS_IS))
    lines = [f"compiled = torch.compile({seen.function}{cell.settings})"]
    if policy is m.SizePolicy.STATIC and len(set(sizes)) > buckets.MOST:
        lines.insert(
            0, f"torch._dynamo.config.recompile_limit = {len(set(sizes))}  # one graph per size"
        )
    if cell.precision is m.Precision.TF32:
        lines.insert(0, m.TF32_LINE)
    call = f"result = compiled({tensor})"
    if tops:
        lines += [f"rows = len({tensor})", f"size = next(size for size in {tops} if size >= rows)"]
        lines.append(f"padding = (0, 0) * ({tensor}.dim() - 1) + (0, size - rows)")
        call = f"result = compiled(torch.nn.functional.pad({tensor}, padding))[:rows]"
    if policy is m.SizePolicy.MARKED:
        lines.append(f"torch._dynamo.mark_dynamic({tensor}, 0)  # on each input, before the call")
    if cell.precision is m.Precision.BF16:
        lines += [m.AUTOCAST_LINE.format(device), f"    {call}"]
    elif tops or policy is m.SizePolicy.MARKED:
        lines.append(call)
    return "\n".join(lines)


# ---------------------------------------------------------------- from here on in the child


@dataclass
class Called:
    """A function that the program compiles, with the arguments of its first call."""

    function: Any
    arguments: inspect.BoundArguments | None = None
    sizes: tuple[int, ...] = ()

    def varying(self) -> dict[str, torch.Tensor]:
        """The tensors among its arguments that are as long as the first of them."""
        import torch

        given = self.arguments.arguments if self.arguments else {}
        flat = {
            name: value
            for name, value in given.items()
            if isinstance(value, torch.Tensor) and value.dim()
        }
        flat |= {
            f"{name}[{at}]": value
            for name, values in given.items()
            if isinstance(values, tuple)
            for at, value in enumerate(values)
            if isinstance(value, torch.Tensor) and value.dim()
        }
        first = next(iter(flat.values()), None)
        return {
            name: value
            for name, value in flat.items()
            if first is not None and len(value) == len(first)
        }

    def see(self, *args: Any, **kwargs: Any) -> None:
        bound = inspect.signature(getattr(self.function, "forward", self.function)).bind(
            *args, **kwargs
        )
        bound.apply_defaults()
        before = self.arguments
        self.arguments = bound
        if varying := self.varying():
            self.sizes += (len(next(iter(varying.values()))),)
        self.arguments = before if before is not None and self.sizes[1:] else bound

    def of_size(self, size: int) -> inspect.BoundArguments:
        """Its arguments with so many rows."""
        import torch

        assert self.arguments is not None
        varying = {id(tensor) for tensor in self.varying().values()}

        def resized(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(resized, value))
            if id(value) not in varying:
                return value
            rows = value.detach()[torch.arange(size, device=value.device) % len(value)]
            return rows.requires_grad_(value.requires_grad)

        given = {name: resized(value) for name, value in self.arguments.arguments.items()}
        return inspect.BoundArguments(self.arguments.signature, given)


@contextmanager
def capturing() -> Iterator[list[Called]]:
    """Within, ``torch.compile`` compiles nothing: what it is given runs in eager mode, and its
    calls are seen."""
    import torch

    calls = []
    compile_ = torch.compile
    hooks = []

    def hook(called: Called) -> Callable[..., None]:
        return lambda module, args, kwargs: called.see(*args, **kwargs)

    def compiling(function: Any = None, **settings: Any) -> Any:
        if function is None:
            return functools.partial(compiling, **settings)
        calls.append(called := Called(function))
        if isinstance(function, torch.nn.Module):
            hooks.append(function.register_forward_pre_hook(hook(called), with_kwargs=True))
            return function

        @functools.wraps(function)
        def seeing(*args: Any, **kwargs: Any) -> Any:
            called.see(*args, **kwargs)
            return function(*args, **kwargs)

        return seeing

    torch.compile = compiling  # type: ignore[assignment]
    try:
        yield calls
    finally:
        torch.compile = compile_
        for each in hooks:
            each.remove()  # else it would be compiled with the module


def captured(question: Question, options: m.Options) -> Called:
    """The first compiled function that takes a tensor; where the program compiles none, its step.
    Raises UsageError."""
    import torch

    from kgprof.workloads import loading, programs

    for mode in dict.fromkeys((m.AS_IS, question.mode, "default")):
        seed_everything(options.seed)
        with capturing() as calls:
            if programs.is_program(options.workload):
                code, module = programs.prepared(
                    programs.find(options.workload), options.workload_args
                )
                programs.become_main(module)
                exec(code, module.__dict__)
            else:
                workload = loading.load(options.workload, options.workload_args, options.seed)
                plan = next(
                    plan for plan in workload.strategies() if plan.name == question.strategy
                )
                if mode not in plan.modes:
                    continue
                key = m.RunKey(question.strategy, mode)
                session = workload.prepare(key, torch.device(question.device))
                for _ in range(STEPS):
                    session.step()
        for called in calls:
            if called.sizes:
                return called
    raise UsageError(f"{options.workload} passes no tensor to its compiled function", hint=HINT)


def look(question_json: bytes, options: m.Options, write: Write) -> None:
    called = captured(m.decode_json(question_json, Question), options)
    name = getattr(called.function, "__name__", type(called.function).__name__)
    sizes = tuple(size for size in called.sizes if size)
    write(Seen(name, next(iter(called.varying())), sizes))


def measure(question_json: bytes, options: m.Options, write: Write) -> None:
    """One policy, in the cell's precision. A workload may have set its own when it was loaded."""
    import torch

    from kgprof.workloads.backend import as_in

    question = m.decode_json(question_json, Question)
    called = captured(question, options)
    inputs = {size: called.of_size(size) for size in dict.fromkeys(question.sizes)}

    def results() -> dict[int, Any]:
        return {
            size: called.function(*given.args, **given.kwargs) for size, given in inputs.items()
        }

    own = question.precision is m.Precision.AS_IS
    precise = {} if own else results()
    cell = m.Cell(m.AS_IS, backend=options.backend or m.INDUCTOR, precision=question.precision)
    with as_in(cell, torch.device(question.device).type):
        write(_measured(question, called, inputs, results(), precise))


def _measured(
    question: Question,
    called: Called,
    inputs: Mapping[int, Any],
    expected: Mapping[int, Any],
    precise: Mapping[int, Any],
) -> m.PolicyResult:
    """The whole sequence once, then each of its sizes alone. ``precise``: the results in the
    program's own precision, if that is another one."""
    import torch
    from torch._dynamo.utils import counters

    policy, counts, mode = question.policy, Counter(question.sizes), question.mode
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = max(buckets.MOST, len(counts))
    dynamic = {**dict.fromkeys(FIXED, False), m.SizePolicy.DYNAMIC: True}.get(policy)
    compiled: Callable[..., Any] = torch.compile(called.function, mode=mode, dynamic=dynamic)
    tops = {
        size: min((top for top in question.buckets if top >= size), default=size) for size in counts
    }

    def call(size: int) -> Any:
        given = inputs[size]
        top = tops[size]
        if mode != "default":
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        if policy is m.SizePolicy.MARKED and size > 1:
            for tensor in Called(called.function, given).varying().values():
                torch._dynamo.mark_dynamic(tensor, 0)
        given = with_rows(given, size, top)
        return of_rows(compiled(*given.args, **given.kwargs), top, size)

    def clocked(size: int) -> tuple[float, Any]:
        began = time.perf_counter()
        made = call(size)
        if question.device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter() - began, made

    first = []  # calls that compiled
    differs = ""
    graphs = 0
    for size in question.sizes:
        before = counters["stats"]["unique_graphs"]
        seconds, made = clocked(size)
        if counters["stats"]["unique_graphs"] > before:
            first.append((size, seconds))
            graphs += counters["stats"]["unique_graphs"] - before
        differs = differs or _unlike(made, expected[size], precise.get(size), size)
    costs = []
    for size, calls in counts.items():
        samples: list[float] = []
        began = time.perf_counter()
        while len(samples) < WARM + SAMPLES and (
            len(samples) <= 2 * WARM or time.perf_counter() - began < BUDGET_S
        ):
            samples.append(1e3 * clocked(size)[0])
        steady = times.spread(samples[WARM:], unit="ms")
        costs.append(m.SizeCost(size, calls, tops[size], steady))
    medians = {
        cost.size: cost.steady.median / 1e3 for cost in costs if isinstance(cost.steady, m.Spread)
    }
    compile_s = sum(seconds - medians[size] for size, seconds in first)
    return m.PolicyResult(graphs=graphs, compile_s=compile_s, sizes=tuple(costs), differs=differs)


def with_rows(given: inspect.BoundArguments, size: int, top: int) -> inspect.BoundArguments:
    """The arguments with ``top`` rows where they have ``size``; the new ones are zero."""
    import torch
    from torch.nn.functional import pad

    def padded(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(padded, value))
        if not isinstance(value, torch.Tensor) or not value.dim() or len(value) != size:
            return value
        return pad(value, (0, 0) * (value.dim() - 1) + (0, top - size))

    if top == size:
        return given
    return inspect.BoundArguments(
        given.signature, {name: padded(value) for name, value in given.arguments.items()}
    )


def of_rows(made: Any, top: int, size: int) -> Any:
    """Of each tensor in a result that has ``top`` rows the first ``size``."""
    import torch
    from torch.utils._pytree import tree_map

    if top == size:
        return made
    return tree_map(
        lambda leaf: (
            leaf[:size]
            if isinstance(leaf, torch.Tensor) and leaf.dim() and len(leaf) == top
            else leaf
        ),
        made,
    )


def _unlike(made: Any, expected: Any, precise: Any, size: int) -> str:
    """How a result differs from eager's; empty where it does not. ``precise``: the reference of
    both, if not None."""
    from kgprof.lab.tensor_differences import differences
    from kgprof.workloads.user import named_arrays

    found = dict(named_arrays(made))
    eager = dict(named_arrays(expected))
    reference = {} if precise is None else dict(named_arrays(precise))
    unlike = [each for each in differences(found, eager, reference) if each.differing]
    if not unlike:
        return ""
    by = unlike[0].why or f"by up to {unlike[0].max_abs:.3g}"
    return f"at size {size} {unlike[0].name} differs from eager's without padding, {by}"
