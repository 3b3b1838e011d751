"""How long Triton takes for each stage of a kernel, from its own IR to the binary, one kernel after
the other.

Inductor compiles in worker processes, side by side and with nobody to listen. So each kernel that
has been launched is compiled once more here when everything else is over, in the configuration that
it runs in, past Triton's cache.
"""

import importlib
import time
from typing import Any

import torch

from kgprof import model as m
from kgprof.record.listeners.compiled_kernels import generated_modules, launched, name_of

BUDGET_S = 15.0  # for all kernels of a run


def triton_stages(device: torch.device) -> m.TritonStages | m.Skipped:
    if device.type != "cuda":
        return m.Skipped("not applicable on a CPU: g++ compiles Inductor's C++ in one stage")
    try:
        # Code that is loaded again, for a timing or another graph, has the same kernels in the same
        # configuration.
        tuners = list(
            {
                (name_of(tuner), str(tuner.launchers[0].config)): tuner
                for tuner in launched(generated_modules())
                if hasattr(tuner, "_precompile_config")
            }.values()
        )
        if not tuners:
            return m.Skipped("Inductor generated no Triton kernel")
        knobs = importlib.import_module("triton.knobs")
        kernels = []
        until = time.perf_counter() + BUDGET_S
        with knobs.compilation.scope():
            knobs.compilation.always_compile = True
            # not measured: the first one in a process loads what all of them need
            compiled_again(tuners[0], knobs)
            for tuner in tuners:
                if time.perf_counter() > until:
                    break
                kernels.append(compiled_again(tuner, knobs))
    except Exception as error:  # noqa: BLE001  of parts of torch and Triton that promise nothing
        return m.Skipped(f"capture Triton stages unavailable: {type(error).__name__}: {error}")
    return m.TritonStages(kernels=tuple(kernels), left_out=len(tuners) - len(kernels))


def compiled_again(tuner: Any, knobs: Any) -> m.KernelStages:
    heard = []
    knobs.compilation.listener = lambda *, times, **_: heard.append(times)
    # What came from a worker has no source with it until it is loaded anew.
    fresh = tuner._reload_kernel() if tuner.fn.fn is None else tuner
    fresh._precompile_config(tuner.launchers[0].config)
    (times,) = heard
    lowered = ((stage, us / 1e6) for stage, us in times.lowering_stages)
    return m.KernelStages(
        kernel=name_of(tuner),
        seconds={
            "ir": times.ir_initialization / 1e6,
            **dict(lowered),
            "store": times.store_results / 1e6,
        },
    )
