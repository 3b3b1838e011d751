"""What the report says about the machine is read from the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._inductor import config

from kgprof.model import Skipped
from kgprof.record.ground import environment
from kgprof.record.ground.flags import flags
from kgprof.record.ground.job import VECTOR_ISA_WORKS


def test_the_environment_is_this_machines() -> None:
    found = environment.describe(torch.device("cpu"), {"TORCH_LOGS": "x"})

    assert found.python == ".".join(str(part) for part in sys.version_info[:3])
    assert found.torch == torch.__version__
    assert found.cpu_count == len(os.sched_getaffinity(0))
    assert 0 < found.memory_bytes <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found.device_name == found.cpu_name != ""
    assert found.driver == Skipped(reason="a CPU run")
    assert isinstance(found.compiler, str)
    assert found.flags == {"TORCH_LOGS": "x"}


def test_the_commit_is_the_working_directorys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*args: str) -> str:
        author = ["-c", "user.name=n", "-c", "user.email=e"]
        done = subprocess.run(
            ["git", *author, *args], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    (tmp_path / "file").write_text("one", encoding="utf-8")
    git("add", "file")
    git("commit", "-qm", "first")
    monkeypatch.chdir(tmp_path)

    assert environment._git(tmp_path) == (git("rev-parse", "HEAD"), False)
    (tmp_path / "file").write_text("two", encoding="utf-8")
    assert environment._git(tmp_path) == (git("rev-parse", "HEAD"), True)


def test_a_folder_without_a_commit_says_so(tmp_path: Path) -> None:
    commit, dirty = environment._git(tmp_path)

    assert commit == dirty
    assert isinstance(commit, Skipped)
    assert commit.reason.startswith("git: ")


def test_a_program_that_is_missing_is_a_reason() -> None:
    answer = environment._ask("no-such-program-anywhere")

    assert isinstance(answer, Skipped)
    assert answer.reason.startswith("no-such-program-anywhere: ")


def test_the_flags_are_those_that_change_torch() -> None:
    user = {
        "TORCH_LOGS": "+dynamo",
        "OMP_NUM_THREADS": "1",
        "CXX": "clang++",
        "HOME": "/root",
        "AWS_SECRET": "s",
    }

    assert flags({**user, "KMP_INIT_AT_FORK": "FALSE"}) == flags(user)  # scikit-learn's doing
    assert flags(user) == {"CXX": "clang++", "OMP_NUM_THREADS": "1", "TORCH_LOGS": "+dynamo"}


@pytest.mark.parametrize(
    "name",
    ["OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "MKL_NUM_THREADS"],
)
def test_what_sets_how_many_threads_wait_and_how_is_among_the_flags(name: str) -> None:
    assert flags({name: "4"}) == {name: "4"}


def test_a_vector_isa_that_is_taken_for_granted_is_not_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")

    found = environment.probe_vector_isa(tmp_path / "probe")

    assert found == (
        Skipped(reason="TORCHINDUCTOR_VEC_ISA_OK=1 is set, so torch does not probe"),
        False,
    )
    assert not (tmp_path / "probe").exists()


def test_an_isa_that_does_not_work_is_not_passed_on_as_working(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: a CPU that offers AVX-512 and AVX2, and a compiler that knows AVX2 only
    from torch._inductor import cpu_vec_isa
    from torch._inductor.runtime import cache_dir_utils

    monkeypatch.setattr(
        cache_dir_utils, "default_cache_dir", lambda: str(tmp_path / "torchinductor")
    )
    narrow, wide = cpu_vec_isa.VecAVX2(), cpu_vec_isa.VecAVX512()
    monkeypatch.delenv("TORCHINDUCTOR_VEC_ISA_OK", raising=False)
    monkeypatch.setattr(cpu_vec_isa, "supported_vec_isa_list", [wide, narrow])
    monkeypatch.setattr(cpu_vec_isa, "x86_isa_checker", lambda: ["avx2", "avx512"])
    monkeypatch.setattr(type(narrow), "__bool__", lambda self: True)

    for works, expected in (([narrow], False), ([wide, narrow], True)):
        working = _Memo(works)
        monkeypatch.setattr(cpu_vec_isa, "valid_vec_isa_list", working)
        monkeypatch.setattr(cpu_vec_isa, "pick_vec_isa", lambda: narrow)

        elapsed_s, may_be_skipped = environment.probe_vector_isa(tmp_path)

        assert isinstance(elapsed_s, float)
        assert may_be_skipped is expected


def test_the_files_of_a_probe_are_kept_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: a torch whose probe compiles one file where it is not there yet
    from torch._inductor import cpu_vec_isa
    from torch._inductor.runtime import cache_dir_utils

    isa, compiled = cpu_vec_isa.VecAVX2(), []
    monkeypatch.delenv("TORCHINDUCTOR_VEC_ISA_OK", raising=False)
    monkeypatch.setattr(
        cache_dir_utils, "default_cache_dir", lambda: str(tmp_path / "torchinductor")
    )

    def pick() -> cpu_vec_isa.VecISA:
        library = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "ab" / "isa.so"
        if not library.exists():
            library.parent.mkdir(parents=True)
            library.write_text("machine code", encoding="utf-8")
            compiled.append(library)
        return isa

    monkeypatch.setattr(cpu_vec_isa, "pick_vec_isa", pick)
    monkeypatch.setattr(cpu_vec_isa, "valid_vec_isa_list", _Memo([isa]))

    # when
    first, _ = environment.probe_vector_isa(tmp_path / "first")
    second, _ = environment.probe_vector_isa(tmp_path / "second")
    monkeypatch.setattr(os, "getuid", lambda: -1)  # what lies there is somebody else's
    third, _ = environment.probe_vector_isa(tmp_path / "third")

    # then
    kept = tmp_path / "torchinductor" / "kgprof_vector_isa"
    assert [path.parent.parent.name for path in compiled] == ["first", "third"]
    assert isinstance(first, float)
    assert second == Skipped(reason=f"an earlier run of kgprof compiled its files, kept in {kept}")
    assert isinstance(third, float)


class _Memo:
    """Stands for a functools.cache that has not been asked yet."""

    currsize = 0

    def __init__(self, value: list[object]) -> None:
        self._value = value

    def __call__(self) -> list[object]:
        return self._value

    def cache_info(self) -> _Memo:
        return self


def test_a_program_that_never_asks_for_inductor_pays_for_no_probe_and_one_that_does_pays_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_it = config.cpp.vec_isa_ok
    probed: list[Path] = []

    def probe(cache: Path) -> tuple[float, bool]:
        probed.append(cache)
        return 1.0, True

    monkeypatch.setattr(environment, "probe_vector_isa", probe)
    with environment.ProbeWhenAsked(tmp_path):
        torch.compile(torch.sin, backend="eager")
        before = list(probed)
        torch.compile(torch.sin)
        torch.compile(torch.cos, mode="reduce-overhead")
        known = config.cpp.vec_isa_ok
    torch.compile(torch.sin)

    assert (before, len(probed)) == ([], 1)
    # as in a later process, which is told so: it is a part of the key of each graph in the caches
    assert (known, config.cpp.vec_isa_ok) == (True, before_it)
    assert not probed[0].exists()  # its files are none of the program's
    assert (tmp_path / VECTOR_ISA_WORKS).is_file()


def test_a_probe_that_failed_leaves_word_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "probe_vector_isa", lambda cache: (1.0, False))

    with environment.ProbeWhenAsked(tmp_path):
        torch.compile(torch.sin)

    assert not list(tmp_path.iterdir())
