"""The plan of the house: one ordered list of rooms, and what only some of them may do."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "kgprof"
MODULES = sorted(PACKAGE.rglob("*.py"))

# A room imports only rooms that stand before it, at module level and inside functions.
ROOMS = (
    *("_version", "errors", "wording", "model"),
    "judge",  # which of two times is shorter: nobody else decides it
    *("progress", "signals"),
    "coverage",  # what a Profile says of its rules: seen, not seen, could not be seen
    # a Recording's layout, its traces, records and sources; Evidence: each of them read once
    "reading",
    "measures",  # what the passes of one run measured
    "limits",  # what limits a run, by the shares of its step
    "workloads",  # imports torch
    "record",  # imports torch, starts processes
    "lab",  # one function in many ways, each in a process of its own
    "collectors",  # Evidence -> events -> findings
    "analysis",  # Evidence and events -> Profile
    *("compare", "gate"),  # of Profiles
    "document",  # what a reader sees of a Profile, said once
    *("render", "export"),  # its printers
    *("watching", "cli", "__init__", "__main__"),
)
# Modules of the vocabulary, each importing only those before it.
MODEL = (
    *(
        "structs",
        "accounts",
        "compile_records",
        "compiled_work",
        "collective_calls",
        "memory_records",
        "passes",
        "evaluation",
        "findings",
        "times",
        "kernels",
        "limits",
    ),
    *("bisect", "recording", "comparison", "trend", "profile", "capturing", "sweep", "fix"),
)
BUILT_IN_NAMED = "linkpred (the built-in link-prediction evaluator"  # the help of `kgprof profile`
MAY_IMPORT_TORCH = ("record", "lab", "workloads")
# Rooms of record/, each importing only those before it.
RECORD = ("ground", "files", "listeners", "passes", "processes")
COLLECTORS = ("tensors", "compile", "graphs", "time", "trust")
PURE = (
    "judge",
    "reading",
    "measures",
    "collectors",
    "analysis",
    "compare",
    "gate",
    "document",
    "render",
    "export",
)
OPENS = "reading/files.py"  # the one module that opens files of others, for which it needs os
# Who reads only through it: all that stands right of the wall, and the modules of record/ that read
# what others left.
READERS = (*PURE, "watching", "cli")
READERS_AMONG_RECORDERS = ("kineto_files", "torch_trace_files", "project_sources", "kept_traces")
OWN_FILES = {  # kgprof's own, from its package
    ("measures/kernel_kinds.py", "read_text"),
    ("render/html.py", "read_text"),
    ("analysis/secrets.py", "read_text"),
    ("collectors/compile/library_switches.py", "read_text"),
    ("cli/writing.py", "read_text"),
    ("cli/selftest.py", "read_text"),
    ("record/ground/project_sources.py", "read_text"),  # torch's registry of graph breaks
}
IMPURE = {"time", "os", "datetime", "socket", "urllib.request", "random", "subprocess"}


def room_of(module: Path) -> str:
    inside = module.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def name_of(module: Path) -> str:
    return module.relative_to(PACKAGE).as_posix()


@functools.cache
def text_of(module: Path) -> str:
    return module.read_text(encoding="utf-8")


def importing(package: str, modules: Iterable[Path]) -> list[str]:
    """The names of the modules that import ``package`` or something in it."""
    return [
        name_of(module)
        for module in modules
        if any(f"{name}.".startswith(f"{package}.") for name in imports(text_of(module)))
    ]


@functools.cache
def imports(text: str) -> frozenset[str]:
    """Every name imported anywhere in a module: ``kgprof.reading`` and ``kgprof.reading.kineto``
    alike."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the room that they lead to"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def wrong_imports(room: str, text: str) -> Iterator[str]:
    """What a module of ``room`` imports from a room that does not stand before it."""
    allowed = {*ROOMS[: ROOMS.index(room)], room, "__version__"}
    for name in sorted(imports(text)):
        parts = name.split(".")
        if parts[0] == "kgprof" and len(parts) > 1 and parts[1] not in allowed:
            yield name


def test_a_room_imports_only_rooms_before_it() -> None:
    assert {room_of(module) for module in MODULES} == set(ROOMS)
    wrong = {
        name_of(module): list(wrong_imports(room_of(module), text_of(module))) for module in MODULES
    }

    assert not {name: found for name, found in wrong.items() if found}


@pytest.mark.parametrize(
    ("room", "text"),
    [
        ("reading", "from kgprof.measures import kernels"),
        ("model", "from kgprof import reading"),
        ("collectors", "import kgprof.analysis.verdict"),
        ("collectors", "def late():\n    from kgprof.analysis import analyse"),
        ("analysis", "if TYPE_CHECKING:\n    from kgprof.gate import Settings"),
        ("render", "from kgprof import model as m, cli"),
    ],
    ids=[
        "module level",
        "from the package",
        "plain import",
        "in a function",
        "for types",
        "among others",
    ],
)
def test_a_wrong_import_of_each_kind_is_seen(room: str, text: str) -> None:
    assert list(wrong_imports(room, text))


def test_torch_is_imported_left_of_the_wall_only() -> None:
    right = [module for module in MODULES if room_of(module) not in MAY_IMPORT_TORCH]

    assert importing("torch", MODULES)
    assert not importing("torch", right)


def test_the_profiler_never_imports_the_evaluator() -> None:
    profiler = [module for module in MODULES if room_of(module) != "workloads"]

    assert not importing("kgprof.workloads.linkpred", profiler)


def test_right_of_the_wall_there_is_no_clock_and_no_environment() -> None:
    pure = [module for module in MODULES if room_of(module) in PURE]
    impure = {name_of(module): imports(text_of(module)) & IMPURE for module in pure}

    assert {name: set(found) for name, found in impure.items() if found} == {OPENS: {"os"}}


def opening(text: str) -> Iterator[str]:
    """The names of the calls of a module that open a file to read it."""
    by_name = {"read_bytes", "read_text", "memmap", "loadtxt", "fromfile", "fdopen"}
    packers = {"gzip", "tarfile", "zipfile", "io", "os", "lzma", "bz2"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module in packers:
            yield f"{node.module}.{node.names[0].name}"
        if not isinstance(node, ast.Call):
            continue
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        modes = [str(each.value) for each in given if isinstance(each, ast.Constant)]
        from_open_file = any(keyword.arg == "fileobj" for keyword in node.keywords)
        if name == "open" and not any(re.fullmatch("[wax]b?", mode) for mode in modes):
            yield ast.unparse(node.func)
        elif name in by_name or (name in ("GzipFile", "ZipFile", "TarFile") and not from_open_file):
            yield name


def reads_what_others_wrote(module: Path) -> bool:
    return room_of(module) in READERS or (
        room_of(module) == "record" and module.stem in READERS_AMONG_RECORDERS
    )


def test_one_module_opens_the_files_of_others() -> None:
    readers = [module for module in MODULES if reads_what_others_wrote(module)]
    found = {(name_of(module), call) for module in readers for call in opening(text_of(module))}

    assert {module for module, _ in found - OWN_FILES} == {OPENS}


@pytest.mark.parametrize(
    "text",
    [
        "open(path)",
        "with path.open('rb') as file: pass",
        "path.open(mode='r')",
        "Path(name).read_bytes()",
        "path.read_text(encoding='utf-8')",
        "gzip.open(path)",
        "gzip.GzipFile(path)",
        "tarfile.open(path)",
        "zipfile.ZipFile(path)",
        "io.open(path)",
        "os.open(path, 0)",
        "from gzip import open as unpacked",
        "def late():\n    return open(path).read()",
    ],
)
def test_each_way_to_open_a_file_is_seen(text: str) -> None:
    assert list(opening(text))


@pytest.mark.parametrize(
    "text", ["path.open('ab')", "open(path, 'w')", "gzip.GzipFile(fileobj=raw)", "opened(path)"]
)
def test_what_writes_or_is_open_is_no_violation(text: str) -> None:
    assert not list(opening(text))


def test_hta_is_imported_in_its_own_process_only() -> None:
    assert importing("hta", MODULES) == ["record/processes/holistic.py"]
    outside_of_functions = "\n".join(
        ast.unparse(node)
        for node in ast.parse(text_of(PACKAGE / "record" / "processes" / "holistic.py")).body
        if not isinstance(node, ast.FunctionDef)
    )  # one of them is what that process calls
    assert "hta" not in {name.split(".")[0] for name in imports(outside_of_functions)}


@pytest.mark.parametrize(("house", "order"), [("record", RECORD), ("collectors", COLLECTORS)])
def test_a_room_within_a_room_imports_those_before_it_only(
    house: str, order: tuple[str, ...]
) -> None:
    modules = [module for module in MODULES if room_of(module) == house]
    rooms = {module: module.parent.name for module in modules if module.parent.name != house}
    later = {room: order[order.index(room) + 1 :] for room in order}
    wrong = {
        name_of(module): sorted(
            name
            for name in imports(text_of(module))
            if name.startswith(f"kgprof.{house}.") and name.split(".")[2] in later[room]
        )
        for module, room in rooms.items()
    }

    assert set(rooms.values()) == set(order)
    assert not {name: found for name, found in wrong.items() if found}


def test_only_the_commands_reach_the_laboratory() -> None:
    others = [module for module in MODULES if room_of(module) not in ("lab", "cli")]

    assert not importing("kgprof.lab", others)


def test_a_module_of_the_vocabulary_imports_those_before_it_only() -> None:
    for place, name in enumerate(MODEL):
        names = imports(text_of(PACKAGE / "model" / f"{name}.py"))
        ours = {each.split(".")[2] for each in names if each.startswith("kgprof.model.")}

        assert ours <= set(MODEL[:place]), name


def test_the_vocabulary_is_all_known_and_has_one_door() -> None:
    through_the_wall = {
        name_of(module): names
        for module in MODULES
        if room_of(module) != "model"
        and (
            names := {
                n for n in imports(module.read_text("utf-8")) if n.startswith("kgprof.model.")
            }
        )
    }

    assert {module.stem for module in MODULES if room_of(module) == "model"} == {"__init__", *MODEL}
    assert not through_the_wall


# What only the built-in workload speaks of; general rooms know units of work, outcomes and metrics.
# A comparison has a head, and a log a head and a tail, so these two stand in it only beside the
# word for what they are of.
LINK_PREDICTION = re.compile(
    r"(?<![a-z])(candidates?|(un)?proved|mrr|hits_?(@|at)|corruptions?|triples?|reciprocal ranks?|ranking metrics?)"  # noqa: E501
    r"(?![a-z])|\b(head and )?tail sides?\b|\blink[ -]prediction\b|\bknowledge[ -]graphs?\b",
    re.IGNORECASE,
)
MAY_SPEAK_OF_IT = ("workloads/linkpred/", "reading/link_prediction.py")
GENERAL = [
    file
    for folder in (PACKAGE, PACKAGE.parent / "templates")
    for file in sorted(folder.rglob("*"))
    if file.suffix in (".py", ".jinja", ".js", ".css", ".yml")
    and not file.relative_to(folder).as_posix().startswith(MAY_SPEAK_OF_IT)
]


def test_the_general_rooms_have_no_word_of_link_prediction() -> None:
    assert len(GENERAL) > 100
    assert not [
        (file.relative_to(PACKAGE.parent).as_posix(), line)
        for file in GENERAL
        for line in text_of(file).splitlines()
        if LINK_PREDICTION.search(line) and BUILT_IN_NAMED not in line
    ]


@pytest.mark.parametrize(
    "line",
    [
        'unit="ms/candidate"',
        "all 12 candidates finished",
        "of candidates where both runs finished theirs",
        'plural(n, "candidate")',
        "a proved one",
        "Hits@10",
        "run.hits_at_10",
        "10 corruptions a side",
        "evaluates a link prediction",
    ],
)
def test_a_word_of_link_prediction_is_seen(line: str) -> None:
    assert LINK_PREDICTION.search(line)


def test_no_module_is_named_after_nothing() -> None:
    nothing = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}

    assert not [name_of(module) for module in MODULES if module.stem in nothing]
