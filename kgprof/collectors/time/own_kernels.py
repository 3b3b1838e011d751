"""A kernel that the program wrote itself, and in which much of the GPU's work is done."""

import ast
from collections.abc import Iterator, Mapping

from kgprof import model as m
from kgprof.collectors.event import Event, finding, of_each, on_gpu
from kgprof.measures.traced_steps import Extent, traced_steps
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.source_text import SourceText
from kgprof.wording import figure, plural

MUCH = 0.3  # of the GPU's work

OWN_KERNEL = m.Rule(
    id="KGP611",
    name="own-kernel-leads",
    level=m.Level.NOTE,
    summary="A Triton kernel of the program does much of the GPU's work.",
    why=(
        "torch.compile and the libraries do not change what a kernel of the program does: no other "
        f"finding makes it faster. It is named if it takes at least {100 * MUCH:.0f} % of the "
        "GPU's work. Whether it could be faster is not measured; the bound is all of its time."
    ),
    example=(
        "A @triton.jit kernel that reads down the columns of a row-major matrix, so that "
        "neighbouring threads read addresses far apart."
    ),
    remedy=(
        "Compare its time with the bytes that it must move and the GPU's bandwidth. Let "
        "neighbouring threads read neighbouring addresses, tune its block sizes and warps "
        "(@triton.autotune), or write it in torch and compile that."
    ),
    topic=m.Topic.TIME,
    seen_in=((m.Witness.CUDA, m.Witness.TRACE, m.Witness.OWN_FILES),),
    can_cost=(m.CostKind.KERNEL,),
    judged_from_times=True,
)
RULES = (OWN_KERNEL,)


class OwnKernel(Event):
    """One kernel of one run, with the line that defines it."""

    kernel: str
    device_us: float  # per step, or in the window
    share: float  # of the GPU's work
    launches: int  # in all of ``extent``
    extent: Extent


@on_gpu
def collect(run: RunEvidence) -> Iterator[OwnKernel]:
    """Of the runs on a GPU whose TRACE can be read."""
    traced = run.once(traced_steps)
    kernels = _triton_kernels(run.source)
    if isinstance(traced, m.Skipped) or not kernels:
        return
    columns, work = traced.columns, traced.work
    names, took_ns = columns.name[work.events], columns.duration_ns[work.events]
    for name, location in kernels.items():
        if name not in columns.names:
            continue
        its = names == columns.names.index(name)
        yield OwnKernel(
            run=run.key,
            location=location,
            kernel=name,
            device_us=traced.device_us(its),
            share=float(took_ns[its].sum() / max(1, took_ns.sum())),
            launches=int(its.sum()),
            extent=traced.extent,
        )


def _triton_kernels(source: SourceText) -> Mapping[str, m.Location]:
    """The functions of the project that Triton compiles, by name; not those of one name."""
    found: dict[str, list[m.Location]] = {}
    for file in source.own:
        for node in ast.walk(source.tree(file)):
            if isinstance(node, ast.FunctionDef) and _is_jitted(node):
                found.setdefault(node.name, []).append(source.at(file, node.lineno, node.name))
    return {name: places[0] for name, places in found.items() if len(places) == 1}


def _is_jitted(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(each).startswith("triton.jit") for each in function.decorator_list)


@of_each
def diagnose(event: OwnKernel) -> Iterator[m.Finding]:
    if event.share < MUCH:
        return
    extent, each_us = event.extent, event.device_us * max(1, event.extent.steps) / event.launches
    launches = f"{plural(event.launches, 'launch', 'launches')} in {extent.words}"
    yield finding(
        OWN_KERNEL,
        event,
        f"the kernel {event.kernel} does {100 * event.share:.0f} % of the GPU's work: {launches}, "
        f"{figure(each_us)} µs each",
        event.kernel,
        no_fix=(
            "kgprof does not know what it could take: compare its time with the bytes that it "
            "must move; neighbouring threads have to read neighbouring addresses"
        ),
        cost=extent.cost(event.device_us, "GPU time of the kernel"),
        saves=extent.saving(event.device_us, "all of the kernel's GPU time"),
    )
