"""The list of passes: what stands in it is there, and what reads it follows it."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
from msgspec.structs import replace

from kgprof import model as m
from kgprof.cli.options import SCRIPT_PASSES, passes_help
from kgprof.reading import layout, recordings
from kgprof.record.ground import store
from kgprof.record.ground.run import Run
from kgprof.record.passes.reruns import INSTRUMENTS
from tests.analysis.recordings import run
from tests.record import handmade


def test_every_name_is_declared_once() -> None:
    assert set(m.PASSES) == set(m.PassName)
    assert all(declared.name is name for name, declared in m.PASSES.items())


@pytest.mark.parametrize("name", m.PassName)
def test_its_module_measures_a_run(name: m.PassName) -> None:
    measure = importlib.import_module(f"kgprof.record.passes.{m.PASSES[name].module}").measure

    parameters = inspect.signature(measure, eval_str=True).parameters.values()
    assert [parameter.annotation for parameter in parameters] == [Run]


def test_a_pass_that_reruns_a_script_has_an_instrument_for_it() -> None:
    reruns = {name for name, declared in m.PASSES.items() if declared.reruns}
    # TRACE reruns a script that has no steps
    assert reruns | {m.PassName.TRACE} == set(INSTRUMENTS)


def test_no_two_passes_share_a_trace_file() -> None:
    assert len(set(layout.TRACE_FILES.values())) == len(layout.TRACE_FILES) == 3


def test_one_run_of_a_script_gives_what_listens() -> None:
    assert SCRIPT_PASSES == (m.PassName.COMPILE, m.PassName.MEMORY, m.PassName.TRACE)


def test_a_pass_that_is_not_usual_is_made_where_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(
        m.PASSES, m.PassName.STACK, replace(m.PASSES[m.PassName.STACK], by_default=False)
    )

    assert [name for name in m.PassName if not m.Options().wants(name)] == [m.PassName.STACK]
    assert m.Options(passes=(m.PassName.STACK,)).wants(m.PassName.STACK)
    assert "all but stack;" in passes_help()


def test_a_run_has_what_each_pass_left_by_name() -> None:
    record = run(handmade.FUSED)

    left = {name: record.left_by(name) for name in m.PassName}

    assert left[m.PassName.TIMING] is record.timing
    assert left[m.PassName.KERNELS] is record.kernels
    assert all(isinstance(value, (m.PASSES[name].kind, m.Skipped)) for name, value in left.items())


def test_a_pass_without_a_field_of_its_own_is_read_as_the_list_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handmade.write(tmp_path)
    monkeypatch.setitem(
        m.PASSES, "garbage", m.Pass(name="garbage", kind=m.HostPass, module="garbage")
    )
    left = m.HostPass(step_us=(1.0, 2.0), rows=())
    store.write_pass(tmp_path, handmade.FUSED, "garbage", left)

    by_key = {record.key: record for record in recordings.load(tmp_path).runs}

    assert by_key[handmade.FUSED].left_by("garbage") == left
    assert by_key[handmade.BATCHED].left_by("garbage") == m.Skipped(
        reason="this Recording has no GARBAGE pass"
    )
    assert by_key[handmade.LOST].left_by("garbage") == by_key[handmade.LOST].timing
