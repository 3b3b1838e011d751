"""The first start of a program: is it safe to start it again, and what is there to change?

Python's audit hook hears every file that Python opens to write, renames or removes, every
connection and every process, also in forked workers. Native code raises no audit event
(``torch.save(obj, "w.pt")`` raises none), so the folder is compared as well (``trees``).
"""

import gc
import os
import statistics
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import torch
from msgspec.structs import replace
from torch.utils.data import DataLoader, IterableDataset

from kgprof import model as m
from kgprof.lab import referee
from kgprof.lab.fix import results
from kgprof.record.ground.environment import choose_device
from kgprof.record.ground.run import seed_everything
from kgprof.record.passes.timing import frames_seen_by_dynamo, synchronize
from kgprof.record.processes.trials import Write
from kgprof.workloads import loading

FUNCTION = "kgprof.lab.fix.first_start:look"
MOST_EFFECTS = 50  # of different ones that are kept
LEAST_SHARE, OF_IMAGES = 0.01, 4
_STANDARD = str(Path(os.__file__).parent)  # what is installed lies in a folder below it
_INSTALLED = ("site-packages", "dist-packages")
_TRACKER = "multiprocessing/resource_tracker.py"  # starts a process that writes nothing
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# What torch writes and starts in order to compile is its own, and goes to private caches.
_COMPILER = ("/torch/_inductor/", "/torch/_dynamo/", "/torch/_functorch/", "/triton/")
_LOOPBACK = ("127.", "::1", "localhost")
# Of each event what it does to a path, at which place of its arguments the path stands, and at
# which the descriptor of the folder that it is seen from (Python's table of audit events).
_PATHS: Mapping[str, tuple[tuple[str, int, int | None], ...]] = {
    "os.remove": (("removes", 0, 1),),
    "os.rename": (("renames", 0, 2), ("writes", 1, 3)),
    "os.rmdir": (("removes", 0, 1),),
    "os.mkdir": (("makes", 0, 2),),
    "os.link": (("makes", 1, 3),),
    "os.symlink": (("makes", 1, 2),),
    "os.truncate": (("writes", 0, None),),
    "os.chmod": (("changes the mode of", 0, 2),),
    "os.chown": (("changes the owner of", 0, 3),),
    "sqlite3.connect": (("opens the database", 0, None),),
}
_CONNECTS = ("socket.connect", "socket.sendto", "socket.sendmsg")
_STREAMS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/pts/", "/proc/")
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")


class Question(m.Model, kw_only=False):
    """``folder``: the program's copy; what is written elsewhere is not, but for ``free``."""

    folder: str
    free: tuple[str, ...]  # folders in which whatever is written is thrown away
    results: results.Question  # what the steps return is kept, too


class Seen(m.Model, kw_only=False):
    """The facts are there where no step raised."""

    effects: tuple[m.Effect, ...]
    facts: m.StepFacts | None = None
    step_s: float = 0.0  # the median of the second half
    has_results: bool = False


def look(question_json: bytes, options: m.Options, write: Write) -> None:
    """Take the steps of the program as it is, listening to what it does outside of itself."""
    question = m.decode_json(question_json, Question)
    effects = Effects(question)
    device = choose_device(options.device)
    seed_everything(options.seed)
    effects.listen()
    seen = Seen(())
    try:
        with torch._inductor.config.patch(fallback_random=True):
            seen = _steps(question, options, device)
    finally:
        effects.ends()
        write(replace(seen, effects=effects.found()))


def _steps(question: Question, options: m.Options, device: torch.device) -> Seen:
    workload = loading.load(options.workload, options.workload_args, options.seed)
    (key,) = workload.default_runs(device)[:1]
    session = workload.prepare(key, device)
    kept = results.Kept(question.results, options.workload)
    count = max(options.steps, m.FIX_RESULT_STEPS)
    half = count // 2
    early = _counts()
    took_s = []
    has_results = True
    for number in range(count):
        if number == half:
            early = _counts()
        began = time.perf_counter()
        returned = session.step()
        synchronize(device)
        took_s.append(time.perf_counter() - began)
        has_results = has_results and _is_taken(kept, returned)
    late = _counts()
    modules = results.modules_in(results.names_of_the_module(options.workload))
    facts = replace(
        _facts(options, device, modules, returned),
        frames=late[0],
        frames_late=late[0] - early[0],
        graphs_late=late[1] - early[1],
        collections_late=late[2] - early[2],
    )
    if not late[0]:  # torch.compile would look into a hook, and so may the program
        called = _called(modules)
        for _ in range(count - half):
            session.step()
        facts = replace(facts, modules=tuple(name for name in modules if name in called))
    return Seen((), facts, statistics.median(took_s[half:]), has_results)


class Effects:
    """What an audit hook heard. It cannot be taken off again, only told to be still.

    A forked worker hears too; a file of the parent's takes what all of them hear.
    """

    def __init__(self, question: Question) -> None:
        self._folder = question.folder
        self._free = (*(f"{folder}{os.sep}" for folder in question.free), *_STREAMS)
        self._is_listening = False
        self._within = threading.local()
        self._lines: list[bytes] = []
        reading, self._writing = os.pipe()
        self._heard = threading.Thread(target=self._collect, args=(reading,), daemon=True)

    def listen(self) -> None:
        self._heard.start()
        self._is_listening = True
        self._hear_spawns()
        sys.addaudithook(self._hear)

    def ends(self) -> None:
        self._is_listening = False
        os.close(self._writing)
        self._heard.join(5.0)

    def found(self) -> tuple[m.Effect, ...]:
        kept = [msgspec.json.decode(line, type=m.Effect) for line in dict.fromkeys(self._lines)]
        return tuple(kept[:MOST_EFFECTS])

    def _collect(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                self._lines.append(line)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._is_listening or getattr(self._within, "it", False):
            return
        self._within.it = True
        try:
            what, path = self._what(event, args)
            if what:
                self._tell(what, path)
        finally:
            self._within.it = False

    def _tell(self, what: str, path: str = "") -> None:
        frames = list(_frames(sys._getframe(2)))
        files = [frame.f_code.co_filename for frame in frames]
        own = [at for at, file in enumerate(files) if file.startswith(self._folder + os.sep)]
        doing = next((file for file in files if not _is_standard(file)), "")
        if any(part in doing for part in _COMPILER):
            return
        effect = m.Effect(what=_in_utf8(what), path=_in_utf8(path))
        if own:
            at = frames[own[0]]
            file = os.path.relpath(at.f_code.co_filename, self._folder)
            effect = replace(effect, file=_in_utf8(file), line=at.f_lineno)
        with suppress(OSError):  # a worker that outlives the steps
            os.write(self._writing, msgspec.json.encode(effect) + b"\n")

    def _what(self, event: str, args: tuple[Any, ...]) -> tuple[str, str]:
        """What an event does, and to which path; empty for what concerns nobody."""
        if event == "open":
            path, mode, flags = args
            writes = set(mode or "") & set("wax+") or (flags or 0) & _WRITES
            named = ""
            if writes:
                named = self._named("writes", path)
            if not named:
                return "", ""
            return "writes", named
        if event in _PATHS:
            for verb, at, folder_at in _PATHS[event]:
                if path := self._of_path(args, verb, at, folder_at):
                    return verb, path
        if event in _CONNECTS:
            address = args[1]
            if isinstance(address, tuple) and not str(address[0]).startswith(_LOOPBACK):
                return f"connects to {address[0]}:{address[1]}", ""
        if event in _PROCESSES:
            return f"starts a process ({str(args[0])[:80]})", ""
        return "", ""

    def _of_path(self, args: tuple[Any, ...], verb: str, at: int, folder_at: int | None) -> str:
        path = args[at]
        seen_from = args[folder_at] if folder_at is not None and len(args) > folder_at else -1
        if isinstance(path, str | bytes | os.PathLike) and isinstance(seen_from, int):
            path = os.fsdecode(path)
            if seen_from >= 0 and not os.path.isabs(path):
                path = os.path.join(os.path.realpath(f"/proc/self/fd/{seen_from}"), path)
            if verb == "makes" and os.path.isdir(path):
                return ""  # makedirs of what is there
        return self._named(verb, path)

    def _named(self, verb: str, path: object) -> str:
        """Empty for what is written where it is thrown away, or to a descriptor."""
        if not isinstance(path, str | bytes | os.PathLike):
            return ""
        text = os.fsdecode(path)
        if text in (":memory:", ""):
            return ""
        # of a link itself, and not of what it leads to
        above = os.path.realpath(os.path.dirname(os.path.abspath(text)))
        whole = os.path.join(above, os.path.basename(text))
        if verb == "writes":
            whole = os.path.realpath(text)
        own = whole.startswith(self._folder + os.sep)
        if "__pycache__" in whole or (whole.startswith(self._free) and not own):
            return ""
        if own:
            whole = os.path.relpath(whole, self._folder)
        return whole

    def _hear_spawns(self) -> None:
        """multiprocessing's own way to start a process tells no audit hook."""
        import _posixsubprocess

        start = _posixsubprocess.fork_exec

        def heard(*args: Any) -> Any:
            if self._is_listening and not sys._getframe(2).f_code.co_filename.endswith(_TRACKER):
                self._tell("starts a process (multiprocessing)")
            return start(*args)

        _posixsubprocess.fork_exec = heard


def _is_standard(file: str) -> bool:
    """Tell a file of Python's own library, or code that is in none."""
    is_installed = any(folder in file for folder in _INSTALLED)
    return file.startswith("<") or (file.startswith(_STANDARD) and not is_installed)


def _in_utf8(text: str) -> str:
    """A name of a file may be any bytes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


# ---------------------------------------------------------------- what there is to change


def _facts(
    options: m.Options,
    device: torch.device,
    whole: Mapping[str, torch.nn.Module],
    returned: object,
) -> m.StepFacts:
    names = results.names_of_the_module(options.workload)
    parameters = [each for one in whole.values() for each in one.parameters()]
    return m.StepFacts(
        device=device.type,
        step=options.workload.rpartition(":")[2],
        modules=tuple(whole),
        compiled_modules=tuple(name for name, one in whole.items() if _is_compiled(one)),
        optimizers=tuple(
            (name, type(one).__name__)
            for name, one in names.items()
            if isinstance(one, torch.optim.Optimizer)
        ),
        has_convolution=_has_convolutions(parameters),
        has_float32=any(each.dtype is torch.float32 for each in parameters),
        loaders=tuple(_workers()),
        generates=any(hasattr(one, "generation_config") for one in whole.values()),
        returns_gradient=_requires_gradient(returned),
        threads=torch.get_num_threads(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,
    )


def _is_taken(kept: results.Kept, returned: object) -> bool:
    """What cannot be kept is told by a start for the results alone."""
    try:
        kept.take(returned)
    except Exception:  # noqa: BLE001
        return False
    return True


def _counts() -> tuple[int, int, int]:
    """Of frames, of sizes with a CUDA graph, and of the garbage collector's looks at all there
    is."""
    return frames_seen_by_dynamo(), _sizes_with_a_graph(), gc.get_stats()[-1]["collections"]


def _sizes_with_a_graph() -> int:
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return 0
    manager = trees.get_manager(torch.cuda.current_device(), create_if_none_exists=False)
    return len(manager.ids_to_funcs) if manager is not None else 0


def _workers() -> Iterator[int]:
    """The workers of each DataLoader; none where one has an IterableDataset, which each worker
    would give out whole."""
    loaders = list(referee.live(DataLoader))
    if not any(isinstance(each.dataset, IterableDataset) for each in loaders):
        yield from (each.num_workers for each in loaders)


def _called(modules: Mapping[str, torch.nn.Module]) -> set[str]:
    """The names of those whose ``forward`` runs from now on, as far as it has. With a hook torch
    may compute in another way."""
    names: set[str] = set()
    for name, one in modules.items():
        one.register_forward_pre_hook(lambda *_, name=name: names.add(name))
    return names


def _is_compiled(one: torch.nn.Module) -> bool:
    return hasattr(one, "_orig_mod") or getattr(one, "_compiled_call_impl", None) is not None


def _has_convolutions(parameters: Collection[torch.nn.Parameter]) -> bool:
    """Tell whether weights of four dimensions, which can have the channels last, are a part of the
    parameters worth naming: those that only make patches of an image are not."""
    weights = sum(each.numel() for each in parameters if each.dim() == OF_IMAGES)
    return weights > LEAST_SHARE * sum(each.numel() for each in parameters)


def _requires_gradient(returned: object) -> bool:
    leaves = torch.utils._pytree.tree_leaves(returned)
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)
