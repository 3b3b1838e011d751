"""Graphs, what was tuned for them, and Triton's stages, as tables."""

from __future__ import annotations

import msgspec
import pytest

from kgprof import model as m
from kgprof.document.quantity import DASH
from kgprof.document.region_table import (
    buffer_blocks,
    fusion_blocks,
    generator_table,
    place_table,
    tuning_blocks,
)
from kgprof.render import by_name
from kgprof.render.html import LEVELS
from tests.render import profiles
from tests.render.tables import notes, tables, texts

LIMITS = LEVELS[0]
NONE = m.Skipped(reason="not here")
# As recorded on an H200: one transformer block, reduce-overhead.
FORWARD = m.FusedGraph(
    work=m.GraphWork(
        compile_id="0/0",
        backward=False,
        eager=m.EagerWork(operators=10, bytes_moved=506_567_696),
        kernels=9,
        generated=4,
        moved_bytes=493_922_320,
        unknown=1,
        needed_bytes=53_517_312,
        buffers=m.BufferPlan(
            allocated=4, allocated_bytes=113_246_208, reused=4, reused_bytes=88_080_384
        ),
    ),
    calls=6,
    us=1452.5,
    bytes_per_s=340e9,
    of_copy=0.08,
)
SAVED = m.SavedForBackward(
    activations=5, activation_bytes=2**20, inputs=3, recomputed=6, operators=15
)


def with_graphs(*graphs: m.FusedGraph, **compiled: object) -> m.RunReport:
    run = profiles.clean().runs[1]
    assert isinstance(run.compile, m.CompileSummary)
    fused = m.Fusion(graphs=graphs, kernels=9.0, eager_kernels=10.0)
    return msgspec.structs.replace(
        run, fusion=fused, compile=msgspec.structs.replace(run.compile, **compiled)
    )


def test_a_graph_beside_eager_mode() -> None:
    blocks = tuple(fusion_blocks((with_graphs(FORWARD),), LIMITS))

    (table,) = tables(blocks)
    assert texts(table) == (
        (
            *("batched.default 0/0", "10", "9", "483 MiB", "\N{GREATER-THAN OR EQUAL TO} 471 MiB"),
            *("\N{GREATER-THAN OR EQUAL TO} 51.0 MiB", DASH, "1,452"),
            *("\N{GREATER-THAN OR EQUAL TO} 340", "\N{GREATER-THAN OR EQUAL TO} 8.0 %"),
        ),
    )
    assert table.rows[0].cells[2].details == ("4 generated", "1 of unknown size")
    assert table.rows[0].cells[6].title == "1 of unknown size"
    assert notes(blocks) == ("batched.default: 9 kernels per step in TRACE; batched.eager: 10",)


@pytest.mark.parametrize(("needed", "shown"), [(493_922_320 // 2, "2.00×"), (0, DASH)])
def test_what_is_moved_beside_what_must_be(needed: int, shown: str) -> None:
    work = msgspec.structs.replace(FORWARD.work, unknown=0, needed_bytes=needed)

    (table,) = tables(
        fusion_blocks((with_graphs(msgspec.structs.replace(FORWARD, work=work)),), LIMITS)
    )

    assert (texts(table)[0][6], texts(table)[0][8]) == (shown, "340")


def test_buffers_and_in_training_what_is_saved() -> None:
    backward = msgspec.structs.replace(
        FORWARD,
        work=msgspec.structs.replace(FORWARD.work, backward=True, saved=SAVED, buffers=NONE),
    )

    (alone,) = tables(buffer_blocks((with_graphs(FORWARD),)))
    (both,) = tables(buffer_blocks((with_graphs(FORWARD, backward),)))

    assert texts(alone) == (("batched.default 0/0", "4", "108 MiB", "4", "84.0 MiB"),)
    assert texts(both)[1][0] == "batched.default 0/0 backward"
    assert texts(both)[1][5:] == ("5", "1.00 MiB", "3", "6")
    assert both.rows[1].cells[1].title == "not here"


def test_without_compiled_graphs_there_is_no_table() -> None:
    runs = (profiles.clean().runs[1],)

    made = (fusion_blocks(runs, LIMITS), buffer_blocks(runs), tuning_blocks(runs, LIMITS))

    assert [[*blocks] for blocks in made] == [[], [], []]


def test_what_was_tried_and_chosen_and_the_stages() -> None:
    of_blocks = m.Autotuned(
        call=0,
        kernel="triton_poi_fused_gelu_2",
        inputs="",
        template=False,
        tried=2,
        failed=1,
        slowest_us=194.0,
        choices=(m.TimedChoice(name="XBLOCK: 512", us=194.0),),
        seconds=0.1,
    )
    of_template = m.Autotuned(
        call=0,
        kernel="addmm",
        inputs="8x4 float32",
        template=True,
        tried=18,
        failed=0,
        slowest_us=13_000.0,
        choices=(m.TimedChoice(name="bias_addmm", us=381.0), m.TimedChoice(name="addmm", us=417.0)),
        seconds=4.0,
    )
    stages = m.TritonStages(
        kernels=(
            m.KernelStages(kernel="triton_poi_fused_gelu_2", seconds={"ir": 0.25, "ptx": 0.5}),
        ),
        left_out=2,
    )
    run = with_graphs(autotuned=(of_blocks, of_template), stages=stages)

    blocks = tuple(tuning_blocks((run,), LIMITS))

    tuned, staged = tables(blocks)
    assert texts(tuned) == (
        (
            "batched.default",
            "addmm",
            "8x4 float32",
            "bias_addmm",
            "18",
            "381",
            "417",
            "13,000",
            "4.00",
        ),
        (
            "batched.default",
            "triton_poi_fused_gelu_2",
            "–",  # noqa: RUF001
            "XBLOCK: 512",
            "2",
            "194",
            "–",  # noqa: RUF001
            "194",
            "0.100",
        ),
    )
    assert texts(staged) == (
        ("batched.default", "triton_poi_fused_gelu_2", "0.250", "0.500", "0.750"),
    )
    assert notes(blocks)[0] == "2 searches in 4.10 s."
    assert notes(blocks)[1].endswith("bypassing Triton's cache; 2 kernels left out.")


def test_page_markdown_and_text_share_it() -> None:
    profile = profiles.clean()
    runs = (profile.runs[0], with_graphs(FORWARD), *profile.runs[2:])
    profile = msgspec.structs.replace(profile, runs=runs)

    assert 'id="fusion"' in by_name("html").render(profile)
    assert "operators in eager" in by_name("markdown").render(profile)
    assert "operators in eager" in by_name("text").render(profile)
    assert 'id="fusion"' not in by_name("html").render(profiles.clean())


def test_totals_by_generator() -> None:
    run = profiles.clean().runs[1]
    assert isinstance(run.kernels, m.KernelBreakdown)
    total = m.GeneratorTotal(
        generator="cuBLAS", names=2, count=24, total_us=run.kernels.total_us / 2
    )
    shown = msgspec.structs.replace(
        run, kernels=msgspec.structs.replace(run.kernels, generators=(total,))
    )

    ((of, generator, names, count, _, share),) = texts(generator_table((shown,)))
    assert (of, generator, names, count, share) == (
        "batched.default",
        "cuBLAS",
        "2",
        "24",
        "50.0 %",
    )


def test_time_by_function_a_column_a_run() -> None:
    """Kernels of one function, of one file, of two files, and what has no lines; a run without
    lines has no column."""

    def kernel(name: str, us: float, *places: tuple[str, str], known: float = 1.0) -> m.KernelRow:
        lines = tuple(
            m.Location(file=f"/home/me/{file}", line=7, function=function)
            for file, function in places
        )
        return m.KernelRow(
            name=name,
            kind=m.KernelKind.GEMM,
            generator="triton",
            count=1,
            total_us=us,
            share=us / 100,
            min_us=us,
            median_us=us,
            max_us=us,
            lines=lines,
            lines_us=us * known if lines else 0.0,
        )

    def with_kernels(*rows: m.KernelRow, slug: str = "fused") -> m.RunReport:
        run = profiles.clean().runs[1]
        assert isinstance(run.kernels, m.KernelBreakdown)
        found = msgspec.structs.replace(
            run.kernels, rows=rows, total_us=100.0, lines_us=90.0, steps=2
        )
        return msgspec.structs.replace(
            run, key=m.RunKey(strategy=slug, mode="default"), kernels=found
        )

    one = with_kernels(
        kernel("a", 40.0, ("policy.py", "encode")),
        kernel("b", 20.0, ("policy.py", "encode"), ("policy.py", "score")),
        kernel("c", 30.0, ("policy.py", "encode"), ("engine.py", "derive"), known=0.5),
        kernel("d", 10.0),
    )
    other = with_kernels(kernel("e", 100.0, ("engine.py", "derive")), slug="plain")
    bare = profiles.clean().runs[1]
    assert isinstance(bare.kernels, m.KernelBreakdown)
    unknown = msgspec.structs.replace(bare.kernels, lines_us=NONE)

    table = place_table(
        (one, other, msgspec.structs.replace(bare, kernels=unknown)), "/home/me", LIMITS
    )

    assert [
        (row.cells[0].text, *((cell.text, *cell.details) for cell in row.cells[1:]))
        for row in table.rows
    ] == [
        ("engine.py derive", ("0", "0.0 %"), ("50.0", "100.0 %")),
        ("policy.py encode", ("20.0", "40.0 %"), ("0", "0.0 %")),
        ("policy.py, several functions", ("10.0", "20.0 %"), ("0", "0.0 %")),
        ("fused across engine.py, policy.py", ("7.50", "15.0 %"), ("0", "0.0 %")),
        ("(lines not known)", ("12.5", "25.0 %"), ("0", "0.0 %")),
    ]
