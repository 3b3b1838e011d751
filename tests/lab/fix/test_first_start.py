"""What a program does outside of itself is heard in its first start, and what is torch's own is
not."""

import os
from pathlib import Path
from unittest import mock

import pytest

from kgprof import model as m
from kgprof.lab.fix import first_start, results
from kgprof.reading import recordings
from kgprof.record.ground.job import Checkout
from kgprof.record.processes import trials
from kgprof.record.processes.children import Caches
from tests.record import one_server

EFFECTS = """
import multiprocessing, os, pathlib, socket, sqlite3, subprocess, sys, tempfile, threading
import torch
from torch import nn

here = pathlib.Path(__file__).parent
model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU())
head = nn.Linear(4, 1)
parts = [head]
load = torch.utils.data.DataLoader
loaders = [load(parts), load(parts, num_workers=2)]
opt = torch.optim.AdamW(model.parameters())
outside = pathlib.Path(sys.argv[1])
calls = 0


def worker():
    (here / "by_a_thread.txt").write_text("x")


def step():
    global calls
    calls += 1
    if calls == 2:
        open(here / "log.csv", "a").close()
        os.rename(here / "log.csv", here / "log.old")
        torch.save({}, outside / "weights.pt")
        subprocess.run([sys.executable, "-c", ""])
        with tempfile.TemporaryDirectory() as free:
            open(free + "/scratch.bin", "w").close()
        os.makedirs(here, exist_ok=True)
        handle, name = tempfile.mkstemp()
        os.replace(name, outside / "atomic.csv")
        sqlite3.connect(outside / "study.db").close()
        multiprocessing.get_context("spawn").Process(target=print).start()
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 9))
        open(here / "train.py").close()
        one = socket.socket()
        one.connect_ex(("127.0.0.1", 9))
        one.close()
        thread = threading.Thread(target=worker)
        thread.start()
        thread.join()
        if os.fork() == 0:
            (outside / "by_a_child.txt").write_text("x")
            os._exit(0)
        os.wait()
    return model(torch.ones(1, 2, 3))
"""
COMPILED = """
import torch
from torch import nn


class Scorer(nn.Linear):
    def forward(self, x):
        return super().forward(x).relu()


model = Scorer(4, 4)
model.compile()


def step():
    with torch.no_grad():
        return model(torch.ones(3, 4)).sum()
"""


def seen(text: str, tmp_path: Path, *args: str, steps: int = 4) -> first_start.Seen:
    """Forked from a process with torch, as `kgprof fix` starts it; without torch's precompiled
    headers: in a new temporary folder they take ten seconds."""
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "train.py").write_text(text)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    question = first_start.Question(
        folder=str(copy),
        free=(str(temporary), str(tmp_path / "scratch")),
        results=results.Question(str(tmp_path / "scratch"), "as it is"),
    )
    (tmp_path / "scratch").mkdir()
    without_headers = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
    caches = Caches(folder=tmp_path / "scratch" / "caches", extra={"TMPDIR": str(temporary)})
    options = m.Options(
        workload="train.py:step", workload_args=args, steps=steps, device="cpu", timeout_s=300
    )
    with (
        mock.patch.dict(os.environ, without_headers),
        one_server.imports_shared(runs_functions=True),
    ):
        trial = trials.run(
            first_start.FUNCTION,
            question,
            options=options,
            scratch=tmp_path / "scratch",
            caches=caches,
            checkout=Checkout(folder=str(copy)),
        )
    assert trial.answer is not None, trial.log
    found = m.decode_json(trial.answer, first_start.Seen)
    assert found.facts is not None, trial.log
    return found


@pytest.fixture(scope="module")
def at_first(tmp_path_factory: pytest.TempPathFactory) -> tuple[first_start.Seen, Path]:
    """What is seen of the program with effects, and the folder in which it ran."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "outside").mkdir()
    return seen(EFFECTS, folder, str(folder / "outside")), folder


def test_effects_are_named_with_their_lines(at_first: tuple[first_start.Seen, Path]) -> None:
    found, folder = at_first
    outside = folder / "outside"

    said = {(f"{effect.what} {effect.path}", effect.file, effect.line) for effect in found.effects}
    assert ("writes log.csv", "train.py", 25) in said
    assert ("renames log.csv", "train.py", 26) in said
    assert ("writes by_a_thread.txt", "train.py", 18) in said
    whats = [f"{effect.what} {effect.path}".rstrip() for effect in found.effects]
    assert f"writes {outside}/by_a_child.txt" in whats
    assert f"writes {outside}/atomic.csv" in whats
    assert f"opens the database {outside}/study.db" in whats
    assert "starts a process (multiprocessing)" in whats
    assert "connects to 192.0.2.1:9" in whats
    assert not any("scratch.bin" in what or what.startswith("makes") for what in whats)
    assert any(what.startswith("starts a process (/") for what in whats)
    assert not any("train.py" in what or "127.0.0.1" in what for what in whats)
    assert len(whats) == len(set(whats))
    # torch.save writes in native code: the folder is compared for that
    assert (outside / "weights.pt").is_file()


def test_beside_a_stream_no_loader_is_said_to_take_workers(tmp_path: Path) -> None:
    stream = """
class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(())


loaders += [load(Endless()), load(Endless(), num_workers=2)]
opt ="""
    facts = seen(EFFECTS.replace("\nopt =", stream), tmp_path, str(tmp_path), steps=1).facts

    assert facts is not None
    assert facts.loaders == ()


def test_facts_of_an_eager_program(at_first: tuple[first_start.Seen, Path]) -> None:
    facts, folder = at_first[0].facts, at_first[1]

    assert facts is not None
    assert facts.modules == ("model",)  # a step does not call the other one
    assert facts.compiled_modules == ()
    assert facts.optimizers == (("opt", "AdamW"),)
    assert facts.has_convolution
    assert facts.has_float32
    assert facts.returns_gradient
    assert facts.frames == 0
    assert sorted(facts.loaders) == [0, 2]
    assert not facts.generates
    assert facts.graphs_late == 0
    kept = recordings.read_result(folder / "scratch", m.RunKey("as it is", m.AS_IS))
    assert kept is not None
    assert {f"result of step {m.FIX_RESULT_STEPS}:", "parameter model.0.weight"} <= kept.keys()


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_what_torch_writes_in_order_to_compile_is_no_effect(tmp_path: Path, backend: str) -> None:
    text = COMPILED.replace("compile()", f"compile(backend={backend!r})")

    found = seen(text, tmp_path)

    assert found.effects == ()
    assert found.facts is not None
    assert found.facts.compiled_modules == ("model",)
    assert found.facts.frames > 0
    assert found.facts.frames_late == 0
    assert not found.facts.returns_gradient


def test_what_cannot_be_kept_is_left_to_a_start_for_the_results(tmp_path: Path) -> None:
    text = """
import torch

model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.Linear(40, 40))


class Returned(list):
    def __iter__(self):
        raise ValueError


def step():
    model[0](torch.ones(1, 1, 2, 2))
    return Returned()
"""

    found = seen(text, tmp_path)

    assert found.facts is not None
    assert not found.has_results
    assert found.step_s > 0
    assert not found.facts.has_convolution  # 2 of 1,644 parameters


def test_a_name_that_is_no_utf8_does_not_come_to_the_program(tmp_path: Path) -> None:
    text = """
import torch


def step():
    open(b"by\\xff.txt", "w").close()
    return torch.ones(1)
"""

    found = seen(text, tmp_path)

    assert [effect.path for effect in found.effects] == [r"by\udcff.txt"]
