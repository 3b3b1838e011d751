"""What torch alone says of one program's work: runs step() in this folder, prints JSON.

    python probe.py PROGRAM OUT.json     with the folder of the program as working directory

No part of kgprof is imported. The compiled part comes from torch's own structured log (TORCH_TRACE,
set here): Dynamo's graphs, its guards, Inductor's code. The rest of a step comes from
torch.profiler: operators, calls of compiled regions, bytes that are allocated. Names are undone in
graphs and code, so that equal texts are equal work.
"""

import ast
import collections
import gc
import importlib
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WARM, TIMED = 6, 60
KERNEL = re.compile(r"\bcpp_fused_\w+")
CALLED = re.compile(
    r"^ +(?:\w[\w, ]* = )?"
    r"(cpp_fused_\w+|extern_kernels\.[\w.]+|torch\.ops\.[\w.]+|aten\.[\w.]+)\("
)
ALLOCATED = re.compile(r"= empty_strided_cpu\(\(([^)]*)\), \([^)]*\), torch\.(\w+)\)")
LEAF = re.compile(r"\+- ([A-Z][A-Z_]+)\b:? ?(.*)")
SIZES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bool": 1, "uint8": 1, "int8": 1}
Records = list[tuple[dict[str, Any], str]]


def main() -> None:
    program, out = sys.argv[1], Path(sys.argv[2])
    sys.path[0] = os.getcwd()
    with tempfile.TemporaryDirectory() as logs:
        os.environ["TORCH_TRACE"] = logs
        found = {**measured(program), **compiled(records_of(Path(logs)))}
    out.write_text(json.dumps(found), encoding="utf-8")


# ---------------------------------------------------------------- a step


def measured(program: str) -> dict[str, Any]:
    import torch

    asked: list[str] = []
    compiling = torch.compile

    def listening(model: Any = None, **options: Any) -> Any:
        asked.append(json.dumps(options, sort_keys=True, default=str))
        return compiling(model, **options)

    torch.compile = listening
    step = importlib.import_module(program).step
    for _ in range(WARM):
        step()
    milliseconds = timed(step)
    before = alive()
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    after = alive()
    events = profile.events() or []
    operators = collections.Counter(event.name for event in events)
    return {
        "settings": settings(asked),
        "operators": {name: n for name, n in operators.items() if name.startswith("aten::")},
        "regions": sum(n for name, n in operators.items() if "Compiled Region" in name),
        "allocated": sum(max(event.self_cpu_memory_usage, 0) for event in events),
        "alive": after,
        "growth": after - before,
        "milliseconds": milliseconds,
    }


def timed(step: Any) -> float:
    """The shortest of many steps."""
    took = []
    for _ in range(TIMED):
        began = time.perf_counter()
        step()
        took.append(time.perf_counter() - began)
    return min(took) * 1e3


def alive() -> int:
    """Bytes of the tensors that somebody still holds, each storage once."""
    import torch

    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter):
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def settings(asked: list[str]) -> list[str]:
    import torch
    import torch._dynamo.config
    import torch._inductor.config

    lines = [f"torch.compile {options}" for options in asked]
    for config in (torch._dynamo.config, torch._inductor.config):
        lines += config.codegen_config().splitlines()
    lines.append(f"float32_matmul_precision {torch.get_float32_matmul_precision()}")
    lines.append(f"default_dtype {torch.get_default_dtype()}")
    lines.append(f"deterministic {torch.are_deterministic_algorithms_enabled()}")
    return sorted(line for line in lines if line.strip())


# ---------------------------------------------------------------- what was compiled


def records_of(logs: Path) -> Records:
    """Each record of the structured log with its payload."""
    records: list[tuple[dict[str, Any], list[str]]] = []
    for path in sorted(logs.glob("*.log")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("\t"):
                records[-1][1].append(line[1:])
                continue
            records.append((json.loads(line[line.index("{") :]), []))
    return [(record, "\n".join(lines)) for record, lines in records]


def compiled(records: Records) -> dict[str, Any]:
    graphs = [text for record, text in records if "dynamo_output_graph" in record]
    codes = [text for record, text in records if "inductor_output_code" in record]
    guards = [text for record, text in records if "dynamo_cpp_guards_str" in record]
    ids = [record for record, _ in records if "compilation_metrics" in record]
    breaks = [text for record, text in records if graph_break(record)]
    normal = [normal_graph(text) for text in graphs]
    return {
        "graphs": [text for text, _ in normal],
        "graph_operators": sum(count for _, count in normal),
        "graph_outputs": sum(map(outputs, graphs)),
        "code": [normal_code(text) for text in codes],
        "kernels": sum(text.count("async_compile.cpp") for text in codes),
        "launches": sum(len(launches(text)) for text in codes),
        "buffer_bytes": sum(buffer_bytes(text) for text in codes),
        "guards": [normal_guards(text) for text in guards],
        "guard_count": sum(len(LEAF.findall(text)) for text in guards),
        "compilations": len(ids),
        "breaks": len(breaks),
        "recompiles": sum(record.get("frame_compile_id", 0) > 0 for record in ids),
    }


def graph_break(record: dict[str, Any]) -> bool:
    return "dynamo_graph_break_reason" in record.get("artifact", {}).values()


class Renamed(ast.NodeTransformer):
    """Names of values, arguments and attributes of the module by their first appearance."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def name_of(self, name: str) -> str:
        return self.names.setdefault(name, f"v{len(self.names)}")

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self.name_of(node.arg)
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if isinstance(node.ctx, ast.Store) or node.id in self.names:
            node.id = self.name_of(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and self.names.get(node.value.id) == "v0":
            node.attr = self.name_of(f"self.{node.attr}")
        return self.generic_visit(node)


def normal_graph(text: str) -> tuple[str, int]:
    """The graph with its names undone, and how many operators it calls."""
    tree = Renamed().visit(ast.parse(text))
    lines = []
    count = 0
    for line in ast.unparse(tree).splitlines():
        if re.fullmatch(r" *v\d+ = (v\d+|None)| *v\d+ = v\d+ = .*None", line):
            continue
        count += bool(re.match(r" +v\d+(: \S.*?)? = ", line))
        lines.append(line)
    return "\n".join(lines), count


def outputs(graph: str) -> int:
    """How many values the graph returns."""
    returned = [node.value for node in ast.walk(ast.parse(graph)) if isinstance(node, ast.Return)]
    return sum(len(value.elts) for value in returned if isinstance(value, ast.Tuple))


def normal_code(text: str) -> str:
    """Inductor's code without comments and with kernels numbered by their first appearance."""
    text = re.sub(r'"""[^"]*"""', "", text)
    lines = [re.sub(r"(^|\s+)#(?!include|pragma).*", "", line) for line in text.splitlines()]
    names: dict[str, str] = {}

    def name_of(found: re.Match[str]) -> str:
        return names.setdefault(found.group(), f"kernel_{len(names)}")

    return KERNEL.sub(name_of, "\n".join(line for line in lines if line.strip()))


def launches(code: str) -> list[str]:
    """The kernels that call() starts, whether generated or a library's."""
    return [found.group(1) for line in code.splitlines() if (found := CALLED.match(line))]


def buffer_bytes(code: str) -> int:
    """Of the buffers that call() allocates; a size that is a name counts as one."""
    total = 0
    for sizes, dtype in ALLOCATED.findall(code):
        elements = SIZES.get(dtype, 2)
        for size in sizes.split(","):
            elements *= int(size) if size.strip().isdigit() else 1
        total += elements
    return total


def normal_guards(text: str) -> list[str]:
    """The kinds of the guards, with shapes and values, without whose they are."""
    guards = []
    for kind, rest in LEAF.findall(text):
        rest = re.sub(r"  +# .*", "", rest)
        values = re.findall(r"size=.*|== .*|against .*|len\(.*\) .*", rest)
        guards.append(" ".join([kind, *values]))
    return sorted(guards)


if __name__ == "__main__":
    main()
