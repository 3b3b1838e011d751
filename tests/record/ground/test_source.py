"""A module that is waited for: nothing of it is missed, and nothing is imported for the waiting."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import kgprof.record.ground.source as source_module
from kgprof.record.ground.source import (
    Source,
    aside,
    listeners_in,
    listening,
    unavailable,
    when_imported,
    words,
)
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.cuda_graph_log import CudaGraphLog

NAME = "waited_for_by_a_test"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / f"{NAME}.py").write_text("def f(): return 'its own'\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    importlib.invalidate_caches()
    return NAME


def test_what_is_replaced_then_is_what_the_importer_gets(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(sys.meta_path)

    def then() -> None:
        sys.modules[module].f = lambda: "replaced"  # type: ignore[attr-defined]

    with ExitStack() as undo:
        when_imported(module, then, undo)
        assert module not in sys.modules
        got: dict[str, str] = {}
        exec(f"from {module} import f; answer = f()", got)

    assert sys.meta_path == before
    monkeypatch.delitem(sys.modules, module)
    assert got["answer"] == "replaced"
    # once, though pytest's loader of both is one
    assert importlib.import_module(module).f() == "its own"


def test_one_that_has_been_imported_is_not_waited_for(module: str) -> None:
    importlib.import_module(module)
    came: list[str] = []

    with ExitStack() as undo:
        when_imported(module, lambda: came.append(module), undo)

    assert came == [module]


def test_after_undo_nothing_comes(module: str) -> None:
    came: list[str] = []
    with ExitStack() as undo:
        when_imported(module, lambda: came.append(module), undo)

    importlib.import_module(module)

    assert came == []


def test_one_that_is_not_there_is_missing_as_ever() -> None:
    with ExitStack() as undo:
        when_imported("no_such_module_of_a_test", lambda: None, undo)
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("no_such_module_of_a_test")


def test_a_thread_that_imports_something_else_meanwhile_misses_no_finder(module: str) -> None:
    """importlib walks the list itself and not a copy of it."""
    with ExitStack() as undo:
        when_imported(module, lambda: None, undo)
        behind = sys.meta_path[2:]
        walk = iter(sys.meta_path)
        next(walk), next(walk)
        importlib.import_module(module)

        assert list(walk) == behind


def test_who_asks_only_whether_it_is_there_does_not_end_the_waiting(
    module: str, tmp_path: Path
) -> None:
    """By a name that pytest does not rewrite: each spec of it has a loader of its own."""
    (tmp_path / f"{module}.py").rename(tmp_path / "asked_about.py")
    importlib.invalidate_caches()
    came: list[str] = []
    with ExitStack() as undo:
        when_imported("asked_about", lambda: came.append(module), undo)
        assert importlib.util.find_spec("asked_about") is not None
        assert came == []
        importlib.reload(importlib.import_module("asked_about"))

    del sys.modules["asked_about"]
    assert came == [module]


class Failing(Source):
    name = "failing"

    def __init__(self) -> None:
        self.asked = 0

    def listen(self, undo: ExitStack) -> None:
        return None

    @aside
    def looks(self, at: int) -> int:
        self.asked += 1
        return 10 // at


def test_a_listener_that_fails_gives_up_once_and_the_program_goes_on() -> None:
    with Failing() as source:
        answers = [source.looks(5), source.looks(0), source.looks(5)]

    assert answers == [2, None, None]
    assert source.asked == 2
    (lost,) = unavailable([source])
    assert (lost.capture, lost.incomplete) == ("failing", False)
    assert lost.why.startswith(
        "it raised ZeroDivisionError: integer division or modulo by zero (test_source.py:"
    )
    assert lost.why.endswith(") and was switched off")


def test_a_listener_that_cannot_begin_or_end_costs_its_own_facts_alone() -> None:
    class Beginning(Source):
        name = "beginning"

        def listen(self, undo: ExitStack) -> None:
            raise OSError("no room")

    class Ending(Source):
        name = "ending"

        def listen(self, undo: ExitStack) -> None:
            undo.callback({}.popitem)

    sources, ran = (Beginning(), Ending()), []
    with listening(sources):
        ran.append("once")

    assert ran == ["once"]
    first, second = unavailable(sources)
    assert (first.capture, second.capture) == ("beginning", "ending")
    assert first.why.startswith("it raised OSError: no room (")
    assert second.why.startswith("it raised KeyError: 'popitem(): dictionary is empty' (")


def test_a_source_that_was_switched_off_says_why_and_does_not_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(source_module.switched_off, "failing", "an exception came through it")

    with Failing() as source:
        pass

    assert [(lost.capture, lost.why) for lost in unavailable([source])] == [
        ("failing", "an exception came through it")
    ]


def test_an_exception_names_the_listener_that_it_came_through_last() -> None:
    def of(run: Callable[[], object]) -> tuple[str, ...]:
        try:
            run()
        except Exception as error:  # noqa: BLE001
            return listeners_in(error)
        return ("nothing was raised",)

    with CudaGraphLog(CallIndex()):
        assert of(lambda: 1 // 0) == ()
        assert of(lambda: list(CudaGraphLog.lines(None))) == ("cuda graph log",)  # type: ignore[arg-type]


def test_an_exception_that_cannot_be_told_is_named_by_its_type() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "MuteError" in words(MuteError())
