"""What Inductor timed to choose from: templates of a matmul or convolution while it compiles
(max-autotune), and block sizes of a Triton kernel at the first call that launches it (in every
mode).

Both functions have these names in torch 2.11 to 2.13. They are patched once torch itself has
imported their modules: importing Inductor here would take that time out of the first call.
"""

import functools
import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from kgprof import model as m
from kgprof.record.ground.source import Source, replace, when_imported
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.compiled_kernels import name_of

MAX_KERNELS = 500
MAX_CHOICES = 12  # that are kept of one kernel, the fastest

Timings = Mapping[Any, float]  # milliseconds
Choice = tuple[str, str, Timings, int]  # kernel, inputs, each choice by name, how many were timed


class Autotuning(Source):
    """One Autotuned for each choice that was timed while it listened, choices from a cache on disk
    included."""

    name = "autotuning"

    def __init__(self, calls: CallIndex) -> None:
        self._calls = calls
        self.kernels: list[m.Autotuned] = []

    def answer(self) -> tuple[m.Autotuned, ...] | m.Skipped:
        return (
            m.Skipped(self.unavailable)
            if self.unavailable and not self.kernels
            else tuple(self.kernels)
        )

    def listen(self, undo: ExitStack) -> None:
        for module, owner, method, note in (
            (
                "torch._inductor.select_algorithm",
                "AlgorithmSelectorCache",
                "do_autotuning",
                _template,
            ),
            (
                "torch._inductor.runtime.triton_heuristics",
                "CachingAutotuner",
                "benchmark_all_configs",
                _blocks,
            ),
        ):
            then = functools.partial(
                self._put_on, module, owner, method, note, undo.enter_context(ExitStack())
            )
            when_imported(module, then, undo)

    def _put_on(
        self, module: str, owner: str, method: str, note: Callable[..., Choice], undo: ExitStack
    ) -> None:
        found = getattr(sys.modules[module], owner, None)
        if (original := getattr(found, method, None)) is None:
            self.unavailable = f"this torch has no {owner}.{method}"
            return

        def timed(this: Any, *args: Any, **named: Any) -> Any:
            began = time.perf_counter()
            timings = original(this, *args, **named)
            seconds = time.perf_counter() - began
            try:
                # None where torch times in the background; one choice is none.
                if (
                    isinstance(timings, Mapping)
                    and len(timings) > 1
                    and len(self.kernels) < MAX_KERNELS
                ):
                    chosen = note(timings, this, *args)
                    self.kernels.append(self._autotuned(*chosen, note is _template, seconds))
            # in the middle of the workload's own compilation
            except Exception as error:  # noqa: BLE001
                self.unavailable = (
                    f"what was timed could not be read: {type(error).__name__}: {error}"
                )
            return timings

        replace(found, method, timed, undo)

    def _autotuned(
        self, kernel: str, inputs: str, ms: Timings, tried: int, template: bool, seconds: float
    ) -> m.Autotuned:
        finite = sorted((each, name) for name, each in ms.items() if math.isfinite(each))
        return m.Autotuned(
            call=self._calls.current,
            kernel=kernel,
            inputs=inputs[:200],
            template=template,
            tried=tried,
            failed=len(ms) - len(finite),
            slowest_us=finite[-1][0] * 1e3 if finite else None,
            choices=tuple(
                m.TimedChoice(name[:300], each * 1e3) for each, name in finite[:MAX_CHOICES]
            ),
            seconds=seconds,
        )


def _template(timings: Timings, _: Any, *args: Any) -> Choice:
    name, inputs = args[:2]
    sizes = (f"{'x'.join(map(str, one.get_size()))} {str(one.get_dtype())[6:]}" for one in inputs)
    named = {
        f"{choice.name} {choice.description or ''}".strip(): ms for choice, ms in timings.items()
    }
    return str(name), ", ".join(sizes), named, len(timings)


def _blocks(timings: Timings, this: Any, *_: Any) -> Choice:
    named = {
        str(launcher.config).replace(", num_ctas: 1", "").replace(", maxnreg: None", ""): ms
        for launcher, ms in timings.items()
    }
    return name_of(this), "", named, len(timings)
