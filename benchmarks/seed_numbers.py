"""What the documents' claims need beside the built-in workloads' times: small measurements, each by
itself.

    python benchmarks/seed_numbers.py --device cuda -o benchmarks/results/seed_numbers_h200.json
    --until-s 500
    python benchmarks/seed_numbers.py --device cpu counts tensors

Each item runs in a process of its own, with a cold compiler cache and a limit, and its figures are
written as soon as they are there; a later call goes on where the last one stopped. An item that
failed keeps its error and what it had measured by then. A time is in microseconds: the median, p10
and p90 of blocks of calls that torch.utils.benchmark timed, which awaits the GPU. docs/seeds.toml
names these figures as "item.figure".
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

LIMIT_S = 200
BLOCK_S = 0.3  # of all blocks of one time
DOCUMENT_SIZES = (16, 32, 48, 64)

Figure = dict[str, Any]
Measured = Iterator[tuple[str, Figure]]


class Item(NamedTuple):
    measure: Callable[[Any], Measured]
    cuda: bool  # it needs a GPU


ITEMS: dict[str, Item] = {}


def item(
    name: str, *, cuda: bool = True
) -> Callable[[Callable[[Any], Measured]], Callable[[Any], Measured]]:
    def add(measure: Callable[[Any], Measured]) -> Callable[[Any], Measured]:
        ITEMS[name] = Item(measure, cuda)
        return measure

    return add


# ---------------------------------------------------------------- running


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", help=f"of: {', '.join(ITEMS)}; all that the device can do by default"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--until-s", type=float, default=float("inf"), help="start no item later than this"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("reports/seed_numbers.json"))
    parser.add_argument("--item", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.item:
        measure_here(arguments.item, arguments.device)
        return
    began, kept = (
        time.monotonic(),
        json.loads(arguments.output.read_text()) if arguments.output.exists() else {},
    )
    items = kept.setdefault("items", {})
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or [
        name for name, each in ITEMS.items() if arguments.device == "cuda" or not each.cuda
    ]:
        if name in items or time.monotonic() - began > arguments.until_s:
            continue
        items[name] = in_a_child(name, arguments.device)
        kept["environment"] = items[name].pop("environment", None) or kept.get("environment")
        arguments.output.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(
            f"{name}: {len(items[name]['figures'])} figures, {items[name]['error'] or 'complete'}",
            flush=True,
        )


def in_a_child(name: str, device: str) -> dict[str, Any]:
    """Its figures, also those before an error; ``error`` is empty where there was none."""
    entry: dict[str, Any] = {
        "figures": {},
        "error": "",
        "command": f"{Path(sys.argv[0]).name} --device {device} {name}",
    }
    with tempfile.TemporaryDirectory(prefix="kgprof-seeds-") as folder:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache"}
        lines = Path(folder, "figures")
        with lines.open("w") as written:
            command = [sys.executable, __file__, "--device", device, "--item", name]
            try:
                ran = subprocess.run(
                    command,
                    stdout=written,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=environment,
                    timeout=LIMIT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                entry["error"] = f"not done after {LIMIT_S} s"
            else:
                if ran.returncode:
                    entry["error"] = (
                        ran.stderr.strip().splitlines() or [f"ended with {ran.returncode}"]
                    )[-1][:300]
        for line in lines.read_text().splitlines():
            if line.startswith('{"kgprof": '):
                key, figure = json.loads(line)["kgprof"]
                entry.update({key: figure} if key == "environment" else {})
                entry["figures"].update({} if key == "environment" else {key: figure})
    return entry


def measure_here(name: str, device_name: str) -> None:
    import torch

    torch.manual_seed(0)
    environment = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "gpu": torch.cuda.get_device_name() if device_name == "cuda" else None,
        "threads": torch.get_num_threads(),
    }
    print(json.dumps({"kgprof": ["environment", environment]}), flush=True)
    for key, figure in ITEMS[name].measure(torch.device(device_name)):
        print(json.dumps({"kgprof": [key, figure]}), flush=True)


# ---------------------------------------------------------------- figures


def count(value: float, unit: str) -> Figure:
    return {"value": int(value) if isinstance(value, bool) else value, "unit": unit}


def spread(samples: list[float], unit: str = "us") -> Figure:
    ordered = sorted(samples)
    at = [ordered[round(part * (len(ordered) - 1))] for part in (0.1, 0.9)]
    return {
        "value": statistics.median(ordered),
        "p10": at[0],
        "p90": at[1],
        "samples": len(ordered),
        "unit": unit,
    }


def timed(call: Callable[[], object], seconds: float = BLOCK_S) -> Figure:
    """Microseconds of a call, the GPU's work included."""
    import torch
    from torch.utils.benchmark import Timer

    # With its own default of one thread a compiled function would be compiled again: Dynamo guards
    # on their number.
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return spread([each * 1e6 for each in timer.blocked_autorange(min_run_time=seconds).times])


def first_call(call: Callable[[], object]) -> Figure:
    """Seconds until a first call's result is there: what compiles is compiled."""
    import torch

    began = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return {"value": time.perf_counter() - began, "samples": 1, "unit": "s"}


def issuing(call: Callable[[], object], samples: int = 50) -> Figure:
    """Microseconds until the CPU is free again, the GPU being idle when the call begins."""
    import torch

    taken = []
    for _ in range(samples):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        taken.append((time.perf_counter() - began) * 1e6)
    torch.cuda.synchronize()
    return spread(taken)


class Traced(NamedTuple):
    kernels: list[str]  # of one call, copies among them
    graph_launches: float  # a call


def traced(call: Callable[[], object], calls: int = 4) -> Traced:
    import torch

    kinds = torch.profiler.ProfilerActivity
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as profiled:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    events = profiled.events()
    on_gpu = [
        each.name
        for each in events
        if each.device_type.name == "CUDA" and not each.is_user_annotation
    ]
    launches = sum(each.name == "cudaGraphLaunch" for each in events)
    return Traced(sorted(on_gpu)[::calls], launches / calls)


def captured(call: Callable[[], Any], warm_up: int = 3) -> tuple[Any, Any]:
    """A CUDA graph of the call, and its output."""
    import torch

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm_up):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = call()
    return graph, output


def compilations(
    function: Callable[..., object], inputs: list[tuple[Any, ...]], **options: Any
) -> tuple[int, int]:
    """How many graphs were compiled over the calls with ``inputs``, and of how many operations; no
    code is made."""
    import torch
    from torch._dynamo.testing import CompileCounter

    torch.compiler.reset()
    counter = CompileCounter()
    compiled = torch.compile(function, backend=counter, **options)
    for each in inputs:
        compiled(*each)
    return counter.frame_count, counter.op_count


# ---------------------------------------------------------------- items


@item("counts", cuda=False)
def counts(device: Any) -> Measured:
    """What is compiled how often, and what breaks a graph: by counting, so on any device."""
    import torch
    from torch import nn

    from kgprof.workloads.examples.branches import Branches

    x = torch.randn(16, 10, device=device)
    rows = [(torch.randn(size, 7, device=device),) for size in (10, 20, 30, 40)]
    functions: dict[str, tuple[Callable[..., object], list[tuple[Any, ...]], dict[str, Any]]] = {
        "three_sizes": (lambda x: x + 1, rows[:3], {}),
        "three_sizes_static": (lambda x: x + 1, rows[:3], {"dynamic": False}),
        "four_buckets_static": (torch.relu, rows, {"dynamic": False}),
        "four_buckets": (torch.relu, rows, {}),
        "four_sizes_dynamic": (torch.relu, rows, {"dynamic": True}),
        "half_of_own_shape": (lambda x: x[: x.shape[0] // 2] * 2, [(x,)] * 3, {}),
        "with_print": (_with_print, [(x,)], {}),
        "elementwise_mask": (lambda x: x * (x.abs() > 0.5).float(), [(x,)] * 3, {}),
        "list_and_loop": (_list_and_loop, [(x,)] * 3, {}),
        "shape_condition": (
            _shape_condition,
            [(torch.randn(n, 2, device=device),) for n in (12, 4, 14, 5, 16)],
            {},
        ),
        "both_branches": (Branches().to(device), [(x[:, :10], True), (x[:, :10], False)], {}),
        "one_branch": (Branches().to(device), [(x[:, :10], True)], {}),
    }
    for name, (function, inputs, options) in functions.items():
        graphs, operations = compilations(function, inputs, **options)
        yield f"{name}.graphs", count(graphs, "graphs")
        yield f"{name}.operations", count(operations, "operations")
    model = nn.Linear(10, 10).to(device)
    torch.compiler.reset()
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    for _ in range(3):  # as a training script that compiles in each epoch
        torch.compile(model, backend=counter)(x)
    yield "compiled_each_epoch.graphs", count(counter.frame_count, "graphs")
    many = compilations(_thousand_operations, [(x,)])
    torch.compiler.reset()
    taken = first_call(lambda: torch.compile(_thousand_operations, backend="eager")(x))
    yield "capture_per_operation", {**taken, "value": taken["value"] * 1e6 / many[1], "unit": "us"}
    for name, function in {
        "item": lambda x: x * x.sum().item(),
        "nonzero": lambda x: x.nonzero() + 1,
    }.items():
        torch.compiler.reset()
        whole = torch.compile(function, fullgraph=True, backend="eager")
        yield f"fullgraph_{name}", outcome(functools.partial(whole, x))


def outcome(call: Callable[[], object]) -> Figure:
    """1 where the call ends well, 0 where it raises, with the first line of the error."""
    try:
        call()
    except Exception as error:  # noqa: BLE001  which error it is, is what is measured
        return {
            **count(0, "ends well"),
            "note": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}",
        }
    return count(1, "ends well")


def _with_print(x: Any) -> Any:
    y = x * 2
    print(x.shape)
    return y + 1


def _list_and_loop(x: Any) -> Any:
    import torch

    result = []
    for i in range(x.shape[0]):
        result.append(x[i] * 2)
    return torch.stack(result)


def _shape_condition(x: Any) -> Any:
    if x.shape[0] > 10:
        return x * 2
    return x + 1


def _thousand_operations(x: Any) -> Any:
    for _ in range(1000):
        x = x + 1
    return x


@item("tensors", cuda=False)
def tensors(device: Any) -> Measured:
    """Claims about tensors, optimizers and options that are true or false."""
    import torch
    from torch import nn

    x, z = torch.randn(3, device=device), torch.empty(3, device=device)
    yield "copy_returns_self", count(z.copy_(x) is z, "true")
    yield "fill_out_of_place_exists", count(hasattr(x, "fill"), "true")
    yield "zero_out_of_place_exists", count(hasattr(x, "zero"), "true")
    whole = torch.arange(4.0, device=device)
    left, right = whole[:2], whole[2:]
    right.fill_(9)
    yield (
        "halves_share_storage",
        count(left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr(), "true"),
    )
    yield "halves_overlap", count(left.max().item() == 9, "true")
    optimizer = torch.optim.AdamW(nn.Linear(3, 3).to(device).parameters())
    yield "optimizer_can_be_compiled", outcome(lambda: torch.compile(optimizer))  # type: ignore[call-overload]
    yield "optimizer_step_can_be_compiled", outcome(torch.compile(optimizer.step, backend="eager"))
    weights = [_trained(device, first=first) for first in ("model", "optimizer")]
    yield (
        "order_of_compile_and_optimizer.difference",
        count((weights[0] - weights[1]).abs().max().item(), "difference"),
    )
    modes = torch._inductor.list_mode_options()
    yield (
        "reduce_overhead_is_cuda_graphs",
        count(modes["reduce-overhead"] == {"triton.cudagraphs": True}, "true"),
    )
    before = torch.get_float32_matmul_precision()
    torch.compile(lambda x: x @ x, backend="eager")(torch.randn(8, 8, device=device))
    yield "compiling_turns_tf32_on", count(torch.get_float32_matmul_precision() != before, "true")
    yield "torch_backends_triton_exists", count(hasattr(torch.backends, "triton"), "true")
    # torch raises its own error
    config = torch._dynamo.config
    yield "dynamo_config_cache_dir_exists", outcome(lambda: getattr(config, "cache_dir"))  # noqa: B009
    yield "recompile_limit", count(torch._dynamo.config.recompile_limit, "graphs of one function")
    yield (
        "mark_dynamic_inside",
        outcome(
            lambda: torch.compile(_marks_itself, backend="eager", fullgraph=True)(
                torch.randn(4, 2, device=device)
            )
        ),
    )


def _marks_itself(x: Any) -> Any:
    import torch

    torch._dynamo.mark_dynamic(x, 0)
    return x + 1


def _trained(device: Any, *, first: str) -> Any:
    """The weights after three steps; ``first`` is what comes first, compiling the model or making
    the optimizer."""
    import torch
    from torch import nn

    torch.compiler.reset()
    torch.manual_seed(0)
    model: Any = nn.Linear(4, 4).to(device)
    weight, x = model.weight, torch.randn(8, 4, device=device)
    if first == "model":
        model = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    if first == "optimizer":
        model = torch.compile(model, backend="aot_eager")
    for _ in range(3):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return weight.detach()


@item("fusion")
def fusion(device: Any) -> Measured:
    """S2's table: times, what compiling takes cold and with a warm disk cache, and what is still
    allocated."""
    import torch

    from kgprof.workloads.examples.fusion import FusionDemo

    model, x = FusionDemo(512).to(device).eval(), torch.randn(64, 128, 512, device=device)
    output_bytes = x.numel() * x.element_size()
    with torch.no_grad():
        yield "eager", timed(lambda: model(x))
        yield "eager_peak", _peak(lambda: model(x))
        compiled: Any = torch.compile(model)
        before = torch.cuda.memory_allocated()
        output = compiled(x)
        yield "held_after_first_call", count(torch.cuda.memory_allocated() - before, "bytes")
        yield "output", count(output_bytes, "bytes")
        del output
        yield "left_by_compiling", count(torch.cuda.memory_allocated() - before, "bytes")
        yield "compiled_peak", _peak(lambda: compiled(x))
        yield "compiled", timed(lambda: compiled(x))
        torch.compiler.reset()
        again: Any = torch.compile(model)
        yield "first_call_after_reset", first_call(lambda: again(x))
        yield "difference", count((model(x) - again(x)).abs().max().item(), "difference")


def _peak(call: Callable[[], object]) -> Figure:
    """Bytes above what was allocated before the call."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return count(torch.cuda.max_memory_allocated() - before, "bytes")


@item("small-graphs")
def small_graphs(device: Any) -> Measured:
    """10, 100 and 1,000 kernels launched one by one, and as one graph: the CPU's time, and the
    whole time."""
    import torch

    x = torch.zeros(256, device=device)
    for kernels in (10, 100, 1000):

        def launch(kernels: int = kernels) -> None:
            for _ in range(kernels):
                x.add_(1)

        graph, _ = captured(launch)
        yield f"eager_issue_{kernels}", issuing(launch)
        yield f"graph_issue_{kernels}", issuing(graph.replay)
        yield f"eager_{kernels}", timed(launch)
        yield f"graph_{kernels}", timed(graph.replay)


@item("small-ops")
def small_ops(device: Any) -> Measured:
    """20 times Linear and ReLU on [8, 256]: by hand-made graph and in TF32, and why compiling in
    float32 is slower."""
    import torch

    from kgprof.workloads.examples.small_ops import ManySmallOps

    model, x = (
        ManySmallOps(20, 256).to(device).requires_grad_(False),
        torch.randn(8, 256, device=device),
    )
    layer: Any = model.layers[0]
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        torch.compiler.reset()
        yield f"eager_{precision}", timed(lambda: model(x))
        graph, _ = captured(lambda: model(x))
        yield f"hand_made_graph_{precision}", timed(graph.replay)
        for mode in ("default", "reduce-overhead"):
            torch.compiler.reset()
            compiled: Any = torch.compile(model, mode=mode)
            for _ in range(4):
                compiled(x)
            yield f"{mode}_{precision}", timed(functools.partial(compiled, x))
        yield f"addmm_{precision}", _on_gpu(lambda: torch.addmm(layer.bias, x, layer.weight.t()))
        yield f"mm_{precision}", _on_gpu(lambda: torch.mm(x, layer.weight.t()))


def _on_gpu(call: Callable[[], object]) -> Figure:
    """Microseconds of the GPU for one call, from 50 in a graph."""

    def many() -> None:
        for _ in range(50):
            call()

    graph, _ = captured(many)
    whole = timed(graph.replay)
    return {**whole, **{key: whole[key] / 50 for key in ("value", "p10", "p90")}}


@item("cuda-graphs")
def cuda_graphs(device: Any) -> Measured:
    """What mode reduce-overhead does with each of these: graph launches, other kernels, and whether
    it stays right."""
    import torch

    buffer, weight = torch.zeros(64, device=device), torch.randn(64, 64, device=device)

    def mutates_a_global(x: Any) -> Any:
        buffer.add_(x.sum(0))
        return x + buffer

    def mutates_its_argument(x: Any) -> Any:
        x.mul_(2)
        return x @ weight

    def branch(x: Any) -> Any:
        return torch.cond((x > 3).any(), lambda x: x.sin(), lambda x: x.cos(), (x,))

    cases: dict[str, Callable[[Any], Any]] = {
        "plain": lambda x: torch.relu(x @ weight),
        "mutates_a_global": mutates_a_global,
        "mutates_its_argument": mutates_its_argument,
        "elementwise_mask": lambda x: (x @ weight) * (x.abs() > 0.5).float(),
        "allocates": lambda x: x @ weight + torch.zeros(x.shape[0], 64, device=device),
        "half_of_own_shape": lambda x: x[: x.shape[0] // 2] @ weight,
        "with_print": _with_print,
        "cond": branch,
    }
    for name, function in cases.items():
        torch.compiler.reset()
        inputs = [torch.randn(32, 64, device=device) for _ in range(8)]
        buffer.zero_()
        expected = [function(x.clone()).clone() for x in inputs]
        buffer.zero_()
        compiled: Any = torch.compile(function, mode="reduce-overhead")
        try:
            apart = 0.0
            for x, right in zip(inputs, expected, strict=True):
                torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
                apart = max(apart, (compiled(x.clone()) - right).abs().max().item())
            seen = traced(functools.partial(_on_a_copy, compiled, inputs[0]))
        except Exception as error:  # noqa: BLE001  one of them shall not end the others
            yield (
                f"{name}.error",
                {**count(1, "raised"), "note": str(error).strip().splitlines()[0][:200]},
            )
            continue
        yield f"{name}.difference", count(apart, "difference")
        yield f"{name}.graph_launches", count(seen.graph_launches, "graph launches a call")
        yield f"{name}.kernels", count(len(seen.kernels), "kernels a call")


def _on_a_copy(function: Callable[[Any], Any], x: Any) -> Any:
    return function(x.clone())


@item("sync")
def sync(device: Any) -> Measured:
    """A read of one bool with an idle GPU, and behind about 8 ms of queued work: it waits for the
    work."""
    import torch

    flags = torch.zeros(256, dtype=torch.bool, device=device)
    square = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    yield "read_idle", issuing(lambda: bool(flags.any()))
    yield "work", timed(lambda: [square @ square for _ in range(5)])
    taken = []
    for _ in range(20):
        torch.cuda.synchronize()
        for _ in range(5):
            square @ square
        began = time.perf_counter()
        bool(flags.any())
        taken.append((time.perf_counter() - began) * 1e6)
    yield "read_behind_work", spread(taken)


@item("foreach-copy")
def foreach_copy(device: Any) -> Measured:
    """Ten state tensors of the evaluator copied one by one and together, of one type and of
    three."""
    import torch

    shapes = [
        (256, 6, 3),
        (256, 120, 6, 3),
        (256,),
        (256, 120),
        (256,),
        (256,),
        (256,),
        (20200,),
        (256,),
        (256,),
    ]
    for name, kinds in {
        "one_type": (torch.int64,),
        "three_types": (torch.int64, torch.bool, torch.int32),
    }.items():
        into = [
            torch.zeros(shape, dtype=kinds[number % len(kinds)], device=device)
            for number, shape in enumerate(shapes)
        ]
        source = [torch.ones_like(each) for each in into]

        def one_by_one(into: list[Any] = into, source: list[Any] = source) -> None:
            for target, each in zip(into, source, strict=True):
                target.copy_(each)

        together = functools.partial(torch._foreach_copy_, into, source)
        calls: dict[str, Callable[[], object]] = {"one_by_one": one_by_one, "together": together}
        for how, call in calls.items():
            yield f"{name}.{how}", timed(call)
            yield f"{name}.{how}_kernels", count(len(traced(call).kernels), "kernels")


@item("shapes")
def shapes(device: Any) -> Measured:
    """S1's benchmark: a block 768 wide over four batch sizes, one graph each, one for all, or as
    torch decides."""
    import torch

    from kgprof.workloads.examples.transformer import TransformerBlock

    model = TransformerBlock(768, 12).to(device).requires_grad_(False)
    batches = {size: torch.randn(size, 128, 768, device=device) for size in DOCUMENT_SIZES}
    for name, dynamic in {"static": False, "dynamic": True, "automatic": None}.items():
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        compiled: Any = torch.compile(model, dynamic=dynamic)
        for size, x in batches.items():
            yield f"{name}_{size}.first_call", first_call(functools.partial(compiled, x))
        for size, x in batches.items():
            yield f"{name}_{size}", timed(functools.partial(compiled, x))
        yield (
            f"{name}.graphs",
            count(torch._dynamo.utils.counters["stats"]["unique_graphs"], "graphs"),
        )


@item("matmul-kernels")
def matmul_kernels(device: Any) -> Measured:
    """Kernels of gelu(x @ weight + bias) in bfloat16, 4096 by 1024 by 4096, in each mode."""
    import torch
    from torch.nn.functional import gelu

    x, weight = (
        torch.randn(shape, device=device, dtype=torch.bfloat16)
        for shape in ((4096, 1024), (1024, 4096))
    )
    bias = torch.randn(4096, device=device, dtype=torch.bfloat16)

    def function(x: Any, weight: Any, bias: Any) -> Any:
        return gelu(torch.matmul(x, weight) + bias)

    yield "eager.kernels", count(len(traced(lambda: function(x, weight, bias)).kernels), "kernels")
    yield "eager", timed(lambda: function(x, weight, bias))
    for mode in ("default", "max-autotune-no-cudagraphs"):
        torch.compiler.reset()
        compiled: Any = torch.compile(function, mode=mode)
        yield f"{mode}.first_call", first_call(functools.partial(compiled, x, weight, bias))
        names = traced(functools.partial(compiled, x, weight, bias)).kernels
        yield f"{mode}.kernels", {**count(len(names), "kernels"), "note": ", ".join(names)[:200]}
        yield mode, timed(functools.partial(compiled, x, weight, bias))


@item("kernel-names")
def kernel_names(device: Any) -> Measured:
    """relu(layer_norm(linear(x) + x)): the kernel that has addmm in its name, and the matmul beside
    it."""
    import torch
    from torch import nn

    linear, norm = nn.Linear(256, 256).to(device), nn.LayerNorm(256).to(device)

    @torch.compile
    def compiled(x: Any) -> Any:
        return torch.relu(norm(linear(x) + x))

    x = torch.randn(4096, 256, device=device)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        names = traced(lambda: compiled(x)).kernels
    triton = [name for name in names if name.startswith("triton_")]
    yield "kernels", {**count(len(names), "kernels"), "note": ", ".join(names)[:300]}
    yield "named_addmm", count(sum("addmm" in name for name in triton), "Triton kernels")
    yield "library_matmuls", count(len(names) - len(triton), "kernels")


@item("training")
def training(device: Any) -> Measured:
    """A step of 12 layers, 768 wide, on [8, 128]: its parts, its precision, and what recomputing
    saves."""
    import torch

    for name, precision, autocast, compiled, recompute in (
        ("eager_float32", "highest", False, False, False),
        ("default_float32", "highest", False, True, False),
        ("eager_tf32", "high", False, False, False),
        ("default_tf32", "high", False, True, False),
        ("eager_bfloat16", "high", True, False, False),
        ("default_bfloat16", "high", True, True, False),
        ("eager_recomputed", "highest", False, False, True),
    ):
        torch.compiler.reset()
        torch.cuda.empty_cache()
        torch.set_float32_matmul_precision(precision)
        parts, peak, first = _training_parts(
            device, autocast=autocast, compiled=compiled, recompute=recompute
        )
        yield f"{name}.first_call", first
        for part, samples in parts.items():
            yield f"{name}.{part}", spread(samples)
        yield f"{name}.peak", count(peak, "bytes")


def _training_parts(
    device: Any, *, autocast: bool, compiled: bool, recompute: bool
) -> tuple[dict[str, list[float]], int, Figure]:
    """Microseconds of forward, backward, optimizer and the whole step by CUDA events; peak bytes;
    the first step."""
    import torch
    from torch.nn.functional import cross_entropy

    from kgprof.workloads import catalog
    from kgprof.workloads.examples.training import LanguageModel

    sizes = SimpleNamespace(**catalog.EXAMPLES["training"].shapes)
    torch.manual_seed(0)
    whole: Any = LanguageModel(sizes, recompute=recompute).to(device)
    optimizer = torch.optim.AdamW(whole.parameters(), lr=1e-4)
    model = torch.compile(whole) if compiled else whole
    shape = (sizes.batch, sizes.tokens)
    tokens, targets = (torch.randint(0, sizes.vocabulary, shape, device=device) for _ in range(2))

    def step() -> list[Any]:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]  # type: ignore[no-untyped-call]
        marks[0].record()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast):
            loss = cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        marks[1].record()
        loss.backward()  # type: ignore[no-untyped-call]
        marks[2].record()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        marks[3].record()
        return marks

    first = first_call(step)
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    taken = [step() for _ in range(20)]
    torch.cuda.synchronize()
    parts = {
        name: [marks[begin].elapsed_time(marks[end]) * 1e3 for marks in taken]
        for name, begin, end in (
            ("forward", 0, 1),
            ("backward", 1, 2),
            ("optimizer", 2, 3),
            ("step", 0, 3),
        )
    }
    return parts, torch.cuda.max_memory_allocated(), first


@item("optimizer")
def optimizer(device: Any) -> Measured:
    """AdamW over twelve transformer layers: torch's own step, its fused one, and optimizer.step
    compiled."""
    import torch

    from kgprof.workloads.examples.transformer import TransformerBlock

    def made(**options: Any) -> Any:
        parameters = [
            each for _ in range(12) for each in TransformerBlock(768, 12).to(device).parameters()
        ]
        for each in parameters:
            each.grad = torch.randn_like(each)
        return torch.optim.AdamW(parameters, lr=1e-4, **options)

    yield "eager", timed(made().step)
    yield "fused", timed(made(fused=True).step)
    own = made()
    compiled: Any = torch.compile(own.step)
    yield "compiled.first_call", first_call(compiled)
    for _ in range(3):
        compiled()
    yield "compiled", timed(compiled)


@item("graph-cache")
def graph_cache(device: Any) -> Measured:
    """S4's cache, one captured graph for each (m, n, k): right for each, and its time beside the
    functions'."""
    import torch

    from kgprof.workloads.examples.silu_mul import GraphCache, silu_mul

    cache, graphs = GraphCache(), 0
    for m, n, k in ((128, 4096, 4096), (256, 4096, 4096), (256, 2048, 4096)):
        a = torch.randn(m, k, device=device, dtype=torch.bfloat16)
        b1, b2 = (
            torch.randn(n, k, device=device, dtype=torch.bfloat16).t() / k**0.5 for _ in range(2)
        )
        cache(a, b1, b2)
        fresh = torch.randn_like(a)
        apart = (cache(fresh, b1, b2) - silu_mul(fresh, b1, b2)).abs().max().item()
        name = f"{m}_{n}_{k}"
        yield f"{name}.difference", count(apart, "difference")
        yield f"{name}.graph", timed(functools.partial(cache, a, b1, b2))
        yield f"{name}.functions", timed(functools.partial(silu_mul, a, b1, b2))
        graphs += 1
    yield "graphs", count(graphs, "graphs")


@item("tf32")
def tf32(device: Any) -> Measured:
    """The query scorer's matmul and a large one in float32, with and without TF32."""
    import torch

    query, content = (
        torch.randn(32, 1, 768, device=device),
        torch.randn(32, 196, 768, device=device),
    )
    square = torch.randn(4096, 4096, device=device)
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        yield f"query_{precision}", _on_gpu(lambda: torch.matmul(query, content.transpose(-2, -1)))
        yield f"square_{precision}", timed(lambda: square @ square)


@item("ceilings")
def ceilings(device: Any) -> Measured:
    """What kgprof holds kernels against: a copy and a matmul of each type."""
    from kgprof import model as m
    from kgprof.record.passes.ceilings import measure_ceilings

    entry = measure_ceilings(device)
    assert not isinstance(entry, m.Skipped), entry.reason
    for each in entry.measured:
        yield each.dtype or each.operation, spread(list(each.per_s), each.unit)
    yield (
        "unavailable",
        {**count(len(entry.unavailable), "types"), "note": "; ".join(entry.unavailable)[:200]},
    )


def _capture(device: Any, *, mode: str, warm_up: int, new_shape: bool = False) -> Measured:
    """silu(a) * b to half: captured by hand after ``warm_up`` calls, replayed on fresh inputs, held
    to eager mode."""
    import torch
    from torch.nn.functional import silu

    def eager(a: Any, b: Any) -> Any:
        return (silu(a) * b).half()

    function: Any = (
        eager
        if mode == "eager"
        else torch.compile(eager, mode=mode, dynamic=False if new_shape else None)
    )
    a, b = (torch.randn(256, 4096, device=device) for _ in range(2))
    try:
        for _ in range(warm_up):
            function(*((a[:128], b[:128]) if new_shape else (a, b)))
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = function(a, b)
        for each in (a, b):
            each.copy_(torch.randn_like(each))
        graph.replay()
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001  which error it is, is what is measured
        sentence = next(iter(str(error).strip().splitlines()), "")
        yield (
            "correct",
            {**count(0, "correct"), "note": f"{type(error).__name__}: {sentence[:200]}"},
        )
        return
    apart = (output.float() - eager(a, b).float()).abs().max().item()
    yield "correct", count(apart < 0.01, "correct")
    yield "difference", count(apart, "difference")
    yield "replay", timed(graph.replay)


CAPTURES: dict[str, dict[str, Any]] = {
    "eager-cold": {"mode": "eager", "warm_up": 0},
    "default-cold": {"mode": "default", "warm_up": 0},
    "default-5": {"mode": "default", "warm_up": 5},
    "default-new-shape": {"mode": "default", "warm_up": 3, "new_shape": True},
    "reduce-overhead-5": {"mode": "reduce-overhead", "warm_up": 5},
    "max-autotune-5": {"mode": "max-autotune", "warm_up": 5},
    "max-autotune-no-cudagraphs-cold": {"mode": "max-autotune-no-cudagraphs", "warm_up": 0},
}
for _name, _options in CAPTURES.items():
    item(f"capture-{_name}")(functools.partial(_capture, **_options))


if __name__ == "__main__":
    main()
