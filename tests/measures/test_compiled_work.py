"""A run's graphs, code and guards become items with their lines, and numbers of a step."""

from __future__ import annotations

import msgspec
import pytest

from kgprof import model as m
from kgprof.measures import compiled_work as measured
from kgprof.measures.compiled_work import compiled_work
from kgprof.reading.evidence import Evidence
from tests.analysis.recordings import COMPILED, recording, run
from tests.reading.test_compiled_text import CODE, GRAPH, read

LINE = m.SourceLine(file="/w/model.py", line=12, function="forward")
ORIGINS = m.KernelOrigins(
    origins=(
        m.KernelOrigin(compile_id="0/0", kernel="cpp_fused_add_mul_sin_0", number=1, lines=(LINE,)),
        m.KernelOrigin(
            compile_id="0/0",
            kernel="extern_kernels.mm",
            number=2,
            lines=(),
            work=m.KernelWork(bytes_moved=100, flops=64),
        ),
    ),
    graphs=(
        m.GraphWork(
            compile_id="0/0",
            backward=False,
            eager=m.EagerWork(operators=4, bytes_moved=900),
            kernels=2,
            generated=1,
            moved_bytes=300,
            unknown=0,
            needed_bytes=200,
            buffers=m.BufferPlan(allocated=1, allocated_bytes=128),
        ),
    ),
)
GUARDS = m.CompiledGuards(
    compile_id="0/0",
    values=(
        "EQUALS_MATCH: L['self'].scale == 2.5   # y = x * self.scale  # w/model.py:11 in forward",
        "TYPE_STATE: f(L['x'], 140384720511872) (HINT: type tuple)",
    ),
)
RECORDS = m.CompileRecords(
    frames=(
        m.OfferedFrame(
            call=0,
            function="forward",
            qualified="Model.forward",
            file="/w/model.py",
            first_line=10,
            outcome="compiled",
            compile_id="0/0",
        ),
    ),
    # call 0 is warm-up; twice in each of the three others
    graphs=(m.GraphRuns(compile_id="0/0", runs={0: 1, 1: 2, 2: 2, 3: 2}),),
    texts=(
        m.CompiledText(compile_id="0/0", what=m.GRAPH, text=GRAPH),
        m.CompiledText(compile_id="0/0", what=m.CODE, text=CODE),
    ),
    guards=(GUARDS,),
)


def work(records: m.CompileRecords = RECORDS, **changed: object) -> m.CompiledWork | m.Skipped:
    fields = {"records": records, "kernel_origins": ORIGINS, **changed}
    one = msgspec.structs.replace(run(COMPILED), **fields)
    return compiled_work(Evidence(recording(one)).runs[0])


def known(found: m.CompiledWork | m.Skipped) -> m.CompiledWork:
    assert isinstance(found, m.CompiledWork)
    return found


def test_a_run_is_its_graphs_its_calls_and_its_guards() -> None:
    found = known(work())

    assert found.graphs == (read(GRAPH)[1],)
    assert [len(item.lines) for item in found.named(found.operators)] == [1, 1, 1]
    assert not isinstance(found.calls, m.Skipped)
    kernel, library = found.named(found.calls)
    assert [line.line for line in kernel.lines] == [12]
    assert library.text.startswith("extern_kernels.mm(")


def test_numbers_are_of_a_step_after_warm_up() -> None:
    found = known(work())

    assert found.calls_per_step == 4.0
    assert found.bytes_per_step == 600.0
    assert found.flops_per_step == 128.0
    assert found.allocated_bytes == 128.0


def test_a_guard_has_its_line_and_no_address() -> None:
    found = known(work())

    assert not isinstance(found.guards, m.Skipped)
    value, other = found.named(found.guards)
    assert value.text == "EQUALS_MATCH: L['self'].scale == 2.5"
    (line,) = value.lines
    assert (line.file, line.line, line.text) == ("w/model.py", 11, "y = x * self.scale")
    assert other.text == "TYPE_STATE: f(L['x'], _)"


def test_a_hash_in_a_guarded_value_is_a_part_of_it() -> None:
    text = "EQUALS_MATCH: L['mode'] == 'a # b'  # if mode:  # w/model.py:11 in forward"
    guards = m.CompiledGuards(compile_id="0/0", values=(text,))

    found = known(work(msgspec.structs.replace(RECORDS, guards=(guards,))))

    assert not isinstance(found.guards, m.Skipped)
    (value,) = found.named(found.guards)
    assert value.text == "EQUALS_MATCH: L['mode'] == 'a # b'"
    assert [line.text for line in value.lines] == ["if mode:"]


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (m.CompileRecords(), "this Recording holds no graphs"),
        (
            msgspec.structs.replace(
                RECORDS, texts=(msgspec.structs.replace(RECORDS.texts[0], cut=5),)
            ),
            "1 of 1 texts of what was compiled are cut",
        ),
    ],
)
def test_without_whole_texts_there_is_nothing_to_compare(
    records: m.CompileRecords, why: str
) -> None:
    found = work(records)

    assert isinstance(found, m.Skipped)
    assert why in found.reason


def test_what_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "CHARACTERS", 100)
    found = work()

    assert isinstance(found, m.Skipped)
    assert "100 are read" in found.reason


@pytest.mark.parametrize(
    ("guards", "why"),
    [
        ((), "this Recording holds no guards"),
        ((msgspec.structs.replace(GUARDS, left_out=1),), "more guards than a Recording holds"),
        ((msgspec.structs.replace(GUARDS, missing="AttributeError"),), "could not be read"),
    ],
)
def test_guards_that_are_not_all_there_are_not_compared(
    guards: tuple[m.CompiledGuards, ...], why: str
) -> None:
    found = known(work(msgspec.structs.replace(RECORDS, guards=guards)))

    assert isinstance(found.guards, m.Skipped)
    assert why in found.guards.reason


def test_without_provenance_there_are_calls_but_no_numbers() -> None:
    found = known(work(kernel_origins=m.Skipped("not asked for")))

    assert not isinstance(found.calls, m.Skipped)
    assert found.bytes_per_step == m.Skipped("not asked for")
    assert found.allocated_bytes == m.Skipped("not asked for")


@pytest.mark.parametrize("part", ["operators", "calls", "guards"])
@pytest.mark.parametrize("place", [-1, 99])
def test_a_report_that_names_an_item_that_is_not_there_is_refused(part: str, place: int) -> None:
    written = msgspec.to_builtins(known(work()))
    written[part] = [place]

    with pytest.raises(msgspec.ValidationError, match="an item that it does not hold"):
        msgspec.convert(written, m.CompiledWork)
