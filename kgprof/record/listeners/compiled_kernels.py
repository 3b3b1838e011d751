"""What Triton made of each kernel that Inductor generated in this process: registers, spills,
shared memory, stages.

Read off the modules of generated code when the passes are over, so that it costs no pass anything,
and in the process that was traced, because another one may choose another configuration of the same
kernel.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from kgprof import model as m


def compiled_kernels(device: torch.device) -> m.CompiledKernels | m.Skipped:
    if device.type != "cuda":
        return m.Skipped("not available for the C++ that Inductor generates on a CPU")
    try:
        found = tuple(dict.fromkeys(kernels_of(generated_modules())))
    except AttributeError as error:
        return m.Skipped(f"capture compiled kernels unavailable: {error}")
    return (
        m.CompiledKernels(kernels=found)
        if found
        else m.Skipped("Inductor generated no Triton kernel")
    )


def kernels_of(modules: Iterable[Any]) -> Iterator[m.CompiledKernel]:
    """Every kernel that has been launched."""
    for tuner in launched(modules):
        (launcher,) = tuner.launchers
        config = getattr(launcher, "config", None)
        yield m.CompiledKernel(
            kernel=name_of(tuner),
            warps=_number(config, "num_warps"),
            stages=_number(config, "num_stages"),
            registers=_number(launcher, "n_regs"),
            spills=_number(launcher, "n_spills"),
            shared_bytes=_number(launcher, "shared"),
        )


def generated_modules() -> tuple[Any, ...]:
    """Return the modules of the code that Inductor generated in this process. It is not imported
    for this: what has not been used has none."""
    inductor = sys.modules.get("torch._inductor.codecache")
    return tuple(inductor.PyCodeCache.modules) if inductor is not None else ()


def launched(modules: Iterable[Any]) -> Iterator[Any]:
    """Yield Inductor's autotuner of each kernel that has been launched: until then it may have
    several configurations to choose from."""
    for module in modules:
        for value in tuple(vars(module).values()):
            launchers = getattr(value, "launchers", None)
            if isinstance(launchers, list) and len(launchers) == 1:
                yield value


def name_of(tuner: Any) -> str:
    return str(getattr(tuner, "inductor_meta", {}).get("kernel_name") or tuner.fn.__name__)


def _number(of: Any, name: str) -> int | None:
    value = getattr(of, name, None)
    return value if isinstance(value, int) else None
