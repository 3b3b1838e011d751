"""The machine and the versions that a Recording was made on, and Inductor's vector-ISA probe, timed
by itself."""

import importlib
import importlib.metadata
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from kgprof import model as m
from kgprof._version import __version__
from kgprof.errors import UsageError
from kgprof.record.ground.job import VECTOR_ISA_WORKS
from kgprof.record.ground.source import Source, preceded, replace

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
PLAIN = (bool, int, float, str, type(None))
QUICK_S = 20.0  # for git and nvidia-smi, which can hang on a network file system or a sick driver


def choose_device(wanted: str) -> torch.device:
    """``auto`` is cuda where torch sees a GPU. Raises UsageError, in torch's words, for cuda where
    it sees none."""
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        why = "torch.cuda.is_available() is False"
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
        except (AssertionError, RuntimeError) as error:
            why = str(error).splitlines()[0]
        raise UsageError(
            f"--device cuda: torch {torch.__version__} sees no GPU: {why}",
            hint=(
                "run on a machine with an NVIDIA GPU and a CUDA build of torch, or use --device cpu"
            ),
        )
    return torch.device("cuda" if available and wanted != "cpu" else "cpu")


def describe(
    device: torch.device, user_flags: dict[str, str], *, with_defaults: bool = False
) -> m.Environment:
    """``with_defaults``: of torch's own settings too, as they are before a workload is loaded."""
    cpu = _cpu_name()
    on_gpu = device.type == "cuda"
    commit, dirty = _git(Path.cwd())
    top = _ask("git", "rev-parse", "--show-toplevel")
    asked = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    driver = _ask(*asked) if on_gpu else m.Skipped("a CPU run")
    try:
        triton: str | m.Skipped = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = m.Skipped("not installed")
    return m.Environment(
        kgprof=__version__,
        python=platform.python_version(),
        torch=str(torch.__version__),  # a subclass of str that msgspec does not know
        triton=triton,
        cuda=torch.version.cuda or m.Skipped("torch was built without CUDA"),
        driver=driver,
        device_name=torch.cuda.get_device_name(device) if on_gpu else cpu,
        cpu_name=cpu,
        cpu_count=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        torch_threads=torch.get_num_threads(),
        memory_bytes=_memory_bytes(),
        platform=platform.platform(),
        compiler=cpp_compiler(),
        git_commit=commit,
        git_dirty=dirty,
        flags=user_flags,
        source_root=str(Path.cwd()) if isinstance(top, m.Skipped) else top,
        defaults=_defaults() if with_defaults else {},
    )


def _defaults() -> dict[str, str]:
    """By name: "inductor.epilogue_fusion", "decomposition of aten.addr.default"."""
    found = {"float32_matmul_precision": torch.get_float32_matmul_precision()}
    for module in ("_inductor", "_dynamo", "_functorch"):
        config: Any = importlib.import_module(f"torch.{module}.config")
        for name, value in config.get_config_copy().items():
            if isinstance(value, PLAIN):
                found[f"{module[1:]}.{name}"] = repr(value)
    decomposition: Any = importlib.import_module("torch._inductor.decomposition")
    for operator in decomposition.select_decomp_table():
        found[f"decomposition of {operator}"] = "there"
    return found


def _cpu_name() -> str:
    try:
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # no /proc outside Linux: the platform module's word is used
    return platform.processor() or platform.machine()


def _memory_bytes() -> int:
    """What this process may use: the machine's memory, or its control group's limit where that is
    lower."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return physical  # no control groups here
    return min(physical, int(limit)) if limit.isdecimal() else physical


def _git(folder: Path) -> tuple[str | m.Skipped, bool | m.Skipped]:
    commit = _ask("git", "-C", str(folder), "rev-parse", "HEAD")
    if isinstance(commit, m.Skipped):
        return commit, commit
    changes = _ask("git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no")
    return commit, changes if isinstance(changes, m.Skipped) else bool(changes)


def _ask(*command: str) -> str | m.Skipped:
    """The first line that a program answers on stdout."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=QUICK_S, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return m.Skipped(f"{command[0]}: {error}")
    if done.returncode:
        complaint = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return m.Skipped(f"{command[0]}: {complaint[0]}")
    return done.stdout.strip().partition("\n")[0]


# ---------------------------------------------------------------- Inductor on the CPU


def cpp_compiler() -> str | m.Skipped:
    """The C++ compiler that Inductor would call, by its own search, with its version line."""
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler

        compiler = get_cpp_compiler()
    except (ImportError, AttributeError) as error:
        return m.Skipped(f"capture C++ compiler unavailable: {error}")
    except RuntimeError as error:  # torch._inductor.exc.InvalidCxxCompiler
        return m.Skipped(str(error))
    version = _ask(compiler, "--version")
    return compiler if isinstance(version, m.Skipped) or not version else f"{compiler}: {version}"


def probe_vector_isa(cache: Path) -> tuple[float | m.Skipped, bool]:
    """Seconds that Inductor's vector-ISA probe takes with ``cache`` as its (fresh) cache, and
    whether to skip it later.

    The probe compiles and loads one or two files for every instruction set that the CPU has: 8 s of
    CPU time, which the files of an earlier probe save (``_kept``). With
    ``TORCHINDUCTOR_VEC_ISA_OK=1`` torch takes them all for working without a try, and picks the
    widest. That gives the same pick only if every one of them did work here, so only then may the
    children be told so.
    """
    if "TORCHINDUCTOR_VEC_ISA_OK" in os.environ:
        value = os.environ["TORCHINDUCTOR_VEC_ISA_OK"]
        return m.Skipped(f"TORCHINDUCTOR_VEC_ISA_OK={value} is set, so torch does not probe"), False
    try:
        from torch._inductor import cpu_vec_isa

        if cpu_vec_isa.valid_vec_isa_list.cache_info().currsize:
            return m.Skipped(
                "the workload compiled while it was imported, and torch probed then"
            ), False
        kept = _kept()
        if kept is not None:
            try:
                shutil.copytree(kept, cache, dirs_exist_ok=True)
            except OSError:  # half a library would be one that does not work
                shutil.rmtree(cache, ignore_errors=True)
        before = _libraries(cache)
        began = time.perf_counter()
        # asked for each file's place
        with mock.patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": str(cache)}):
            picked = cpu_vec_isa.pick_vec_isa()
            working = cpu_vec_isa.valid_vec_isa_list()
        elapsed_s: float | m.Skipped = time.perf_counter() - began
        if before and before == _libraries(cache):
            elapsed_s = m.Skipped(f"an earlier run of kgprof compiled its files, kept in {kept}")
        elif kept is not None:
            with suppress(OSError):  # the next run compiles them again
                for file in (file for file in cache.rglob("*") if file.is_file()):
                    there = kept / file.relative_to(cache)
                    there.parent.mkdir(parents=True, exist_ok=True)
                    # another kgprof may be reading
                    half = there.with_name(f"{there.name}.{os.getpid()}")
                    shutil.copy2(file, half)
                    half.replace(there)
        offered = [
            isa
            for isa in cpu_vec_isa.supported_vec_isa_list
            if set(str(isa).split()) <= set(cpu_vec_isa.x86_isa_checker())
        ]
    except (ImportError, AttributeError, RuntimeError) as error:
        return m.Skipped(f"capture vector-ISA probe unavailable: {error}"), False
    # Off x86 torch offers one instruction set without a try; only there is the list of offered ones
    # empty.
    return elapsed_s, bool(picked) and all(isa in working for isa in offered)


def _libraries(cache: Path) -> set[Path]:
    return set(cache.rglob("*.so"))


def _kept() -> Path | None:
    """The folder for the probe's files between runs: beside torch's precompiled headers, which are
    kept likewise. Torch names its files by the compiler, its flags and torch itself, so a folder
    never answers for another machine.

    None where this torch has no such folder, it cannot be written, or somebody else could put
    something in it or in its place: what lies in it is loaded.
    """
    try:
        from torch._inductor.runtime.cache_dir_utils import default_cache_dir

        kept = Path(default_cache_dir()) / "kgprof_vector_isa"
        kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = kept.resolve()
        found = kept.stat()
        own = found.st_uid == os.getuid() and not found.st_mode & OTHERS_WRITE
        if own and os.access(kept, os.W_OK) and all(map(_is_safe, kept.parents)):
            return kept
    except (ImportError, OSError):
        return None
    return None


def _is_safe(folder: Path) -> bool:
    """Return whether nobody but this user and root can rename what lies in the folder."""
    found = folder.stat()
    sticky = bool(found.st_mode & stat.S_ISVTX)
    return found.st_uid in (0, os.getuid()) and (sticky or not found.st_mode & OTHERS_WRITE)


class ProbeWhenAsked(Source):
    """Makes the probe when a program or a function first asks torch.compile for Inductor: not in
    the seconds of a compilation, and not at all where nothing is compiled. A later process on the
    same caches is told how it went by a file in them."""

    name = "vector-ISA probe"

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._probed = False
        self.took_s = 0.0  # so far: whoever times what asks for Inductor takes it off

    def listen(self, undo: ExitStack) -> None:
        wrapper: Any = torch._TorchCompileInductorWrapper
        later = undo.enter_context(ExitStack())

        def asked() -> None:
            if not self._probed:
                self._probed = True
                began = time.perf_counter()
                # which are no part of what the program compiles
                with tempfile.TemporaryDirectory() as files:
                    works = probe_vector_isa(Path(files))[1]
                if works:
                    self._cache.mkdir(parents=True, exist_ok=True)
                    (self._cache / VECTOR_ISA_WORKS).touch()
                    # As a later process is told: the setting is a part of the key of a cached graph
                    cpp = importlib.import_module("torch._inductor.config").cpp
                    later.callback(setattr, cpp, "vec_isa_ok", cpp.vec_isa_ok)
                    cpp.vec_isa_ok = True
                self.took_s = time.perf_counter() - began

        replace(wrapper, "__init__", preceded(asked, wrapper.__init__), undo)
