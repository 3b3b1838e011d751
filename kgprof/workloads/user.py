"""A user's own workload: a function without arguments (one step), or an object with strategies.

    class Attention:                                  # kgprof profile file.py:attention
        strategies = {"naive": naive, "fused": fused}     # name -> function, or object with step()
        baseline = "naive"                                # optional: what speed-ups are relative to
        alternatives = {"naive": "fused"}                 # optional: work behind a read, the same
                                                          # work in every step
        unit, units_per_step = "token", 4096              # optional: what the work is counted in;
                                                          # or a function of none
    attention = Attention()

For a single function, ``unit`` and ``units_per_step`` are its own attributes or names of its
module. A metric that ``evaluate`` returns is a number or ``{"value": 0.91, "unit": "%", "better":
"higher", "tolerance": 0.01}``; the count under ``units`` says how many the job was. ``buffers``, a
mapping from name to tensor or a method that gives one, says which tensors live from step to step;
an nn.Module says so by its registered buffers.

A strategy with ``evaluate(tick)`` runs whole evaluations, one with ``result()`` gives its own named
arrays. Otherwise the result of a run is what its *first* step returned: every run starts from the
same seed and the same state, and what later steps return depends on how many there were.

Modes: ``as-is`` runs it as it stands and compiles nothing. ``eager`` runs it with torch.compile
switched off by torch's ``force_eager`` stance, the workload's own calls of it included.
``default``, ``reduce-overhead`` and ``max-autotune`` wrap the step in torch.compile(mode=...); a
strategy with ``evaluate`` calls its step itself, where nothing can be wrapped, so it has the first
two modes only.
"""

import functools
import inspect
import math
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch

from kgprof import model as m
from kgprof.errors import UsageError
from kgprof.workloads.protocol import Session, Step, Tick, Workload

RANDOM = "kgprof.draws_random_numbers"  # a flag among a result's arrays
DTYPE = "kgprof.dtype."  # before a name: the torch dtype of an array that numpy has no dtype for

# torch.testing.assert_close's defaults, (relative, absolute) by dtype; integers and booleans must
# be equal.
TOLERANCES: Mapping[str, tuple[float, float]] = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}

UNNAMED = m.WorkUnit()  # of a workload that says nothing about it
HEADLINES = 4  # metrics that stand in the table of runs
# share of a metric by which two recordings of one program may differ: sums in another order
TOLERANCE = 1e-4
_WORD = re.compile(r"[^\W\d_][\w -]{0,39}")

# Functions whose call only makes an object, in which the code runs later.
_RUNS_NOTHING: Sequence[tuple[Callable[[object], bool], str, str]] = (
    (
        inspect.iscoroutinefunction,
        "a coroutine function",
        "wrap it: def run(): return asyncio.run(step())",
    ),
    (
        inspect.isgeneratorfunction,
        "a generator function",
        "wrap it: def run(): return list(step())",
    ),
    (
        inspect.isasyncgenfunction,
        "an asynchronous generator function",
        "wrap it in a function that runs it to its end",
    ),
)

Arrays = Mapping[str, np.ndarray]


def as_workload(found: object, *, name: str, module: object = None) -> Workload:
    """The workload in a user's object, from ``module``. Raises UsageError saying what kgprof would
    have run."""
    if all(
        callable(getattr(found, member, None))
        for member in ("strategies", "default_runs", "baseline", "prepare")
    ):
        return found  # type: ignore[return-value]  # the whole protocol, as linkpred has it
    strategies = getattr(found, "strategies", None)
    if isinstance(strategies, Mapping):
        declared = {key: getattr(found, key, None) for key in ("baseline", "alternatives")}
        return UserWorkload(name, strategies, **declared, unit=declared_unit(name, found))
    if strategies is not None:
        raise UsageError(
            f"{name}: strategies is a {type(strategies).__name__}, not a mapping from name to "
            "function"
        )
    label = getattr(found, "__name__", None) or name.rpartition(":")[2]
    holder = module if inspect.isroutine(found) and not hasattr(found, "units_per_step") else found
    return UserWorkload(name, {str(label): found}, baseline=None, unit=declared_unit(name, holder))


def declared_unit(name: str, holder: object) -> m.WorkUnit:
    """What ``unit`` and ``units_per_step`` of ``holder`` say. Raises UsageError for what they
    cannot be.

    ``unit`` alone counts where it is a word: a module or an nn.Module may have something else of
    that name.
    """
    unit = getattr(holder, "unit", None)
    per_step = getattr(holder, "units_per_step", None)
    if per_step is None and not isinstance(unit, str) and not hasattr(holder, "strategies"):
        return UNNAMED
    hint = 'for example: unit = "token"'
    if unit is not None and not (isinstance(unit, str) and _WORD.fullmatch(unit)):
        raise UsageError(f"{name}: unit must be a word, got {unit!r}", hint=hint)
    if unit in ("step", "evaluation"):
        raise UsageError(f"{name}: unit {unit!r} is redundant: kgprof always times it", hint=hint)
    if callable(per_step):
        try:
            per_step = per_step()
        except Exception as error:
            raise UsageError(
                f"{name}: units_per_step raised {type(error).__name__}: {error}"
            ) from error
    if per_step is not None:
        per_step = _whole(per_step, f"{name}: units_per_step")
    word = unit or "unit"
    # as English has it
    plural = f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        plural = f"{word[:-1]}ies"
    return m.WorkUnit(name=word, plural=plural, per_step=per_step)


def _whole(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value <= 0:
        raise UsageError(f"{what} must be a whole number above 0, got {value!r}")
    return int(value)


class UserWorkload:
    """Strategies that the user wrote down, each a function or an object with ``step``."""

    def __init__(
        self,
        name: str,
        strategies: Mapping[str, object],
        *,
        baseline: object,
        alternatives: object = None,
        unit: m.WorkUnit = UNNAMED,
    ) -> None:
        self.name = name
        self.unit = unit
        self._strategies = dict(strategies)
        self._baseline = baseline
        if not strategies:
            raise UsageError(f"{name}: strategies is empty")
        labels: Sequence[object] = tuple(strategies)
        if no_names := [label for label in labels if not isinstance(label, str)]:
            raise UsageError(
                f"{name}: {no_names[0]!r} in strategies is not a name", hint="use strings as names"
            )
        has = f"it has: {', '.join(strategies)}"
        if baseline is not None and baseline not in strategies:
            raise UsageError(
                f"{name}: baseline {baseline!r} is not one of its strategies", hint=has
            )
        if alternatives is not None and not isinstance(alternatives, Mapping):
            kind = type(alternatives).__name__
            raise UsageError(
                f"{name}: alternatives is a {kind}, not a mapping from the guarded strategy to "
                "the other"
            )
        pairs = tuple((alternatives or {}).items())
        for label in (label for pair in pairs for label in pair):
            if not isinstance(label, str) or label not in strategies:
                raise UsageError(
                    f"{name}: alternatives name {label!r}, which is not one of its strategies",
                    hint=has,
                )
        self._alternatives = tuple(m.Alternative(first, other) for first, other in pairs)
        for label, strategy in strategies.items():
            _require_step(f"{name}: strategy {label!r}" if len(strategies) > 1 else name, strategy)

    def strategies(self) -> Sequence[m.StrategyPlan]:
        plans = []
        for label, strategy in self._strategies.items():
            modes: tuple[str, ...] = (m.AS_IS, m.EAGER)
            if not hasattr(strategy, "evaluate"):
                modes += m.COMPILED_MODES
            summary = (inspect.getdoc(strategy) or "").partition("\n")[0]
            plans.append(m.StrategyPlan(label, modes, summary))
        return plans

    def alternatives(self) -> Sequence[m.Alternative]:
        return self._alternatives

    def default_runs(self, device: torch.device) -> Sequence[m.RunKey]:
        return [m.RunKey(label, m.AS_IS) for label in self._strategies]

    def baseline(self, runs: Sequence[m.RunKey]) -> m.RunKey | None:
        """The declared strategy (eager before as it stands); without one, the first eager run."""
        declared = [run for run in runs if self._baseline in (None, run.strategy)]
        order = (m.EAGER,) if self._baseline is None else (m.EAGER, m.AS_IS, *m.COMPILED_MODES)
        return next((run for mode in order for run in declared if run.mode == mode), None)

    def prepare(self, run: m.RunKey, device: torch.device) -> Session:
        """Switches torch.compile off for this whole process in mode ``eager``: a child runs one
        run."""
        strategy = self._strategies[run.strategy]
        if run.mode == m.EAGER:
            torch.compiler.set_stance("force_eager")
        step = _step(strategy)
        if run.mode in m.COMPILED_MODES:
            step = torch.compile(step, mode=run.mode)
        session = UserSession(step, getattr(strategy, "result", None))
        # On the instance: only some are an EvaluationSession or a BufferSession.
        if (evaluate := getattr(strategy, "evaluate", None)) is not None:
            session.evaluate = functools.partial(  # type: ignore[attr-defined]
                _evaluation, evaluate, self.unit
            )
        if (buffers := _buffers(strategy)) is not None:
            session.buffers = buffers  # type: ignore[attr-defined]
        return session

    def agreement(
        self, results: Mapping[m.RunKey, Arrays], baseline: m.RunKey | None
    ) -> m.Agreement:
        runs = ((run, judge(run, results, baseline)) for run in results)
        return m.Agreement(baseline=baseline, runs=tuple(runs))


def judge(
    run: m.RunKey, results: Mapping[m.RunKey, Arrays], baseline: m.RunKey | None
) -> m.RunAgreement | m.Skipped:
    """A run against the baseline run, within assert_close's tolerance for each dtype."""
    found = results[run]
    expected = results.get(baseline) if baseline else None
    if expected is None:
        return m.Skipped("the baseline left no result to compare with")
    if run == baseline:
        return compare(found, expected, note="the baseline itself")
    if found.get(RANDOM) or expected.get(RANDOM):
        return m.Skipped(
            "its steps draw random numbers, and compiled code may draw others from the same seed"
        )
    return compare(found, expected)


def _require_step(what: str, strategy: object) -> None:
    """Raises UsageError for what is no step."""
    if inspect.isclass(strategy):
        raise UsageError(
            f"{what} is a class", hint="give an instance of it, or a function without arguments"
        )
    step: object = _step(strategy)
    if not callable(step):
        raise UsageError(
            f"{what} is a {type(strategy).__name__}, which cannot be called",
            hint="give a function without arguments, an object with step(), or one with strategies",
        )
    for is_one, kind, hint in _RUNS_NOTHING:
        if is_one(step) or is_one(getattr(step, "__call__", None)):  # noqa: B004
            raise UsageError(f"{what} is {kind}: a call of it runs nothing of it", hint=hint)
    try:
        inspect.signature(step).bind()
    except TypeError as error:
        hint = "wrap it: def step(): return f(x, y)"
        raise UsageError(f"{what} cannot be called without arguments: {error}", hint=hint) from None
    except ValueError:
        pass  # a builtin without a signature: calling it will show


def _step(strategy: object) -> Step:
    step = getattr(strategy, "step", None)
    return step if callable(step) else strategy  # type: ignore[return-value]


def _buffers(strategy: object) -> Callable[[], Mapping[str, torch.Tensor]] | None:
    """A function that gives the declared buffers as they are when it is called; None where none are
    declared."""
    if isinstance(strategy, torch.nn.Module):
        named = strategy.named_buffers
        return (lambda: dict(named())) if any(named()) else None
    if not hasattr(strategy, "buffers"):
        return None

    def declared() -> Mapping[str, torch.Tensor]:
        found = strategy.buffers  # a mapping of its own may be another in each step
        found = found() if callable(found) else found
        if not isinstance(found, Mapping):
            raise UsageError(
                f"buffers is a {type(found).__name__}, not a mapping from name to tensor"
            )
        return {
            str(name): tensor for name, tensor in found.items() if isinstance(tensor, torch.Tensor)
        }

    return declared


# ---------------------------------------------------------------- sessions


class UserSession:
    """One run of a user's step."""

    def __init__(self, step: Step, result: Callable[[], Arrays] | None) -> None:
        self._step = self.unwatched = step
        self._result = result
        self._first: object = None
        self._random = False
        # The first call is watched; from then on nothing stands between the clock and the user's
        # function.
        self.step: Step = self._first_step

    def _first_step(self) -> object:
        before = _random_state()
        self._first = self._step()
        if inspect.isawaitable(self._first) or (
            isinstance(self._first, Future) and not self._first.done()
        ):
            kind = type(self._first).__name__
            raise UsageError(
                f"the step returned a {kind}, whose work is not done: wait for it in the step"
            )
        self._random = _random_state() != before
        self.step = self._step
        return self._first

    def result(self) -> Arrays:
        """The user's own arrays, or what the first step returned."""
        if self._result is not None:
            return {str(name): np.asarray(array) for name, array in self._result().items()}
        arrays = dict(named_arrays(self._first))
        self._first = None  # it would be held through every later step otherwise
        return {**arrays, RANDOM: np.asarray(self._random)} if arrays else {}


def _evaluation(
    evaluate: Callable[[Tick], object], unit: m.WorkUnit, tick: Tick
) -> m.Evaluation | None:
    """What the user's own returns, as an Evaluation. Raises UsageError for a count or a metric that
    is none."""
    steps = 0

    def counting() -> None:
        nonlocal steps
        steps += 1
        tick()

    returned = evaluate(counting)
    if isinstance(returned, m.Evaluation):
        return returned
    given = dict(returned) if isinstance(returned, Mapping) else {}
    units = given.pop("units", None)
    if unit != UNNAMED and isinstance(returned, int | np.integer):
        units = returned
    if units is not None:
        units = _whole(units, "the number of units that evaluate() returns")
    elif unit.per_step:
        units = steps * unit.per_step
    if units is None and not given:
        return None
    metrics = []
    faults = []
    for at, (label, value) in enumerate(given.items()):
        metric = _metric(str(label), value, headline=at < HEADLINES)
        if math.isfinite(metric.value):
            metrics.append(metric)
        else:  # JSON has no such number
            fault = f"{metric.label} is {metric.value}"
            faults.append(m.Tally(fault, 1, kind=m.TallyKind.FAULT))
    return m.Evaluation(
        units=units or 0, steps=steps, metrics=tuple(metrics), tallies=tuple(faults)
    )


def _metric(label: str, given: object, *, headline: bool) -> m.Metric:
    """A number, or a mapping with ``value`` and what is known about it."""
    known: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"value": given}
    try:
        value = float(known.pop("value"))
        better = m.Better(known.pop("better", ""))
        which = f"; {better} is better" if better else ""
        metric = m.Metric(
            label=label,
            value=value,
            unit=str(known.pop("unit", "")),
            better=better,
            headline=headline,
            title=f"as evaluate() returns it{which}",
            tolerance=float(known.pop("tolerance", TOLERANCE * abs(value))),
        )
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        hint = (
            'a metric must be a number or {"value": 0.91, "unit": "%", "better": '
            '"higher", "tolerance": 0.01}'
        )
        raise UsageError(
            f"evaluate() returns {given!r} for the metric {label!r}: {error}", hint=hint
        ) from None
    if known:
        keys = ", ".join(map(repr, known))
        raise UsageError(f"the metric {label!r} that evaluate() returns has unknown keys: {keys}")
    return metric


def _random_state() -> tuple[object, ...]:
    """Everything that a step could draw random numbers from, as values that can be compared."""
    numpy_state = np.random.get_state(legacy=True)
    on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda = [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()] if on_gpu else []
    return (
        torch.get_rng_state().numpy().tobytes(),
        tuple(cuda),
        random.getstate(),
        (numpy_state[1].tobytes(), numpy_state[2:]),  # type: ignore[index]
    )


# ---------------------------------------------------------------- results


def named_arrays(value: object, name: str = "result") -> Iterable[tuple[str, np.ndarray]]:
    """Tensors, arrays and numbers in ``value`` and in its lists, tuples and dicts; anything else is
    not compared."""
    if isinstance(value, torch.Tensor):
        dense = value.detach()
        if dense.layout is not torch.strided:
            dense = dense.to_dense()
        dense = dense.resolve_conj().resolve_neg().cpu()
        try:
            yield name, dense.numpy().copy()
        except TypeError:  # bfloat16 and the eight-bit floats: numpy has none of them
            yield name, dense.to(torch.float32).numpy()
            yield f"{DTYPE}{name}", np.asarray(str(value.dtype).removeprefix("torch."))
    elif isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        array = np.asarray(value)
        if array.dtype.kind in "biufc":
            yield name, array
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from named_arrays(entry, f"{name}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            yield from named_arrays(entry, f"{name}[{index}]")


def _own_arrays(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if not name.startswith("kgprof.")}


def compare(found: Arrays, expected: Arrays, *, note: str = "") -> m.RunAgreement:
    """Entry by entry. Another set of names, another shape or another dtype is a difference of every
    entry there."""
    ours = _own_arrays(found)
    theirs = _own_arrays(expected)
    compared = differing = 0
    remarks = [note] if note else []
    for name in sorted(ours.keys() | theirs.keys()):
        mine = ours.get(name)
        other = theirs.get(name)
        size = max(array.size for array in (mine, other) if array is not None)
        compared += size
        wrong = max(1, size)
        if mine is None or other is None:
            remark = f"{name} exists in only one of the two"
        elif mine.shape != other.shape:
            remark = f"{name}: shape {mine.shape}, but {other.shape} in the baseline"
        elif mine.dtype != other.dtype:
            remark = f"{name}: dtype {mine.dtype}, but {other.dtype} in the baseline"
        else:
            wrong, remark = _differences(mine, other, str(found.get(f"{DTYPE}{name}", mine.dtype)))
            if len(ours) > 1:
                remark = f"{name}: {remark}"
        differing += wrong
        remarks.append(remark)
    if len(remarks) > 4:
        remarks[4:] = [f"and {len(remarks) - 4} more"]
    return m.RunAgreement(
        verdict=m.AgreementVerdict.DIFFERENT if differing else m.AgreementVerdict.EQUAL,
        compared=compared,
        differing=differing,
        near_ties=0,
        reference_compared=0,
        reference_differing=0,
        reference_near_ties=0,
        note="; ".join(remarks),
    )


def _differences(ours: np.ndarray, theirs: np.ndarray, dtype: str) -> tuple[int, str]:
    """How many entries differ, and by how much at most; NaN equals NaN."""
    if ours.dtype.kind not in "fc":
        return int((ours != theirs).sum()), f"{dtype}, exact"
    relative, absolute = TOLERANCES.get(dtype, TOLERANCES["bfloat16"])
    wide = np.complex128 if ours.dtype.kind == "c" else np.float64
    ours = ours.astype(wide)
    theirs = theirs.astype(wide)
    close = np.isclose(ours, theirs, rtol=relative, atol=absolute, equal_nan=True)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    largest = float(np.abs(ours[finite] - theirs[finite]).max(initial=0.0))
    tolerance = f"{dtype} within relative {relative:g} and absolute {absolute:g}"
    return int((~close).sum()), f"{tolerance}, largest difference {largest:.3g}"
