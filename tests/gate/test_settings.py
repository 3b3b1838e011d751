"""Budgets and configuration: where each may stand, which wins, and every fault told at once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kgprof.errors import InputError, UsageError
from kgprof.gate.metrics import in_force, parse_option
from kgprof.gate.settings import (
    Configuration,
    check_recorded,
    combined,
    parse_file,
    parse_options,
    passes,
    refuse,
)
from kgprof.model import (
    Budget,
    GateSettings,
    KernelKind,
    KindOverride,
    PassName,
    decode_json,
    encode_json,
)
from tests.gate.gated import BATCHED, FUSED, entry


def limits(settings: GateSettings, run: object = FUSED) -> dict[str, float]:
    return {budget.metric: budget.limit for budget in in_force(settings.budgets, run)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("graph-breaks=2", Budget(metric="graph-breaks", limit=2, scope="", origin="--max")),
        ("fused:recompiles=0", Budget(metric="recompiles", limit=0, scope="fused", origin="--max")),
        (
            "fused.default:compile-seconds=1.5",
            Budget(metric="compile-seconds", limit=1.5, scope="fused.default", origin="--max"),
        ),
        (
            "a:b=c.as-is:recompiles=1",
            Budget(metric="recompiles", limit=1, scope="a:b=c.as-is", origin="--max"),
        ),
    ],
)
def test_a_budget_is_a_metric_and_a_limit(text: str, expected: Budget) -> None:
    faults: list[str] = []

    assert parse_option(text, faults) == expected
    assert faults == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("graph-breaks", "a budget must be METRIC=N"),
        ("graph-braeks=0", "no metric 'graph-braeks' (did you mean graph-breaks?)"),
        ("x=0", "no metric 'x' (there are graph-breaks, skipped-frames, recompiles"),
        ("recompiles=-1", "a limit must be 0 or more, got -1.0"),
        ("recompiles=nan", "a limit must be 0 or more, got nan"),
        ("recompiles=inf", "a limit must be 0 or more, got inf"),
        ("recompiles=many", "a limit must be 0 or more, got 'many'"),
        ("recompiles=0.5", "the limit must be a whole number, got 0.5"),
    ],
)
def test_a_wrong_budget_is_said(text: str, expected: str) -> None:
    faults: list[str] = []

    assert parse_option(text, faults) is None
    assert len(faults) == 1
    assert expected in faults[0]


PYPROJECT = """
[tool.kgprof]
fail-on = "warning"
backend = "aot_eager"
accepted = "ci/accepted.toml"
[tool.kgprof.max]
graph-breaks = 1
[tool.kgprof.max.fused]
recompiles = 3
[tool.kgprof.max."fused.default"]
recompiles = 4
"""


def test_pyproject_and_kgprof_toml_say_the_same() -> None:
    faults: list[str] = []
    own = PYPROJECT.replace("tool.kgprof.", "").replace("[tool.kgprof]\n", "")

    one = parse_file("/p/pyproject.toml", PYPROJECT, faults)
    other = parse_file("/p/kgprof.toml", own, faults)

    assert faults == []
    assert one is not None
    assert other is not None
    assert (one.fail_on, one.backend, one.accepted) == ("warning", "aot_eager", "ci/accepted.toml")
    assert (other.fail_on, other.backend, other.accepted) == (
        one.fail_on,
        one.backend,
        one.accepted,
    )
    for written in (one, other):
        assert limits(combined(Configuration(), written, (), "")) == {
            "graph-breaks": 1,
            "skipped-frames": 0,
            "recompiles": 4,
            "eager-calls": 0,
        }
        assert limits(combined(Configuration(), written, (), ""), BATCHED)["recompiles"] == 0


@pytest.mark.parametrize("text", ["", "[tool.other]\nx = 1\n"])
def test_a_pyproject_without_kgprof_says_nothing(text: str) -> None:
    faults: list[str] = []

    assert parse_file("pyproject.toml", text, faults) is None
    assert faults == []


def test_the_command_line_wins_over_the_file_of_the_same_scope() -> None:
    faults: list[str] = []
    file = parse_file("kgprof.toml", "max = {graph-breaks = 5}\nfail-on = 'never'", faults)
    options = parse_options(["graph-breaks=2"], "error", None, None, faults)

    settings = combined(options, file, (), "")

    assert limits(settings)["graph-breaks"] == 2
    assert settings.fail_on == "error"


def test_every_fault_is_told_at_once_each_with_its_place() -> None:
    text = (
        "fail_on = 'error'\nbackend = 'inducter'\naccepted = 3\n[max]\nrecompile = "
        "0\ngraph-breaks = true\n"
    )
    faults: list[str] = []
    parse_options(["skipped=1"], None, None, None, faults)
    parse_file("kgprof.toml", text, faults)

    with pytest.raises(UsageError) as raised:
        refuse(faults)

    assert raised.value.exit_code == 2
    assert raised.value.message.splitlines() == [
        "6 faults in the gate's settings:",
        "  - --max skipped=1: no metric 'skipped' (did you mean skipped-frames?)",
        "  - kgprof.toml: unknown key 'fail_on' (did you mean fail-on?)",
        "  - kgprof.toml: max.recompile: no metric 'recompile' (did you mean recompiles?)",
        "  - kgprof.toml: max.graph-breaks: a limit must be 0 or more, got True",
        "  - kgprof.toml: backend must be one of inductor, aot_eager, eager, got 'inducter'",
        "  - kgprof.toml: accepted must be a string, got 3",
    ]


@pytest.mark.parametrize("text", ["max = 3", "[tool\n", "max = {a = {b = 1}}", "kernel-kinds = 3"])
def test_a_file_of_another_shape_is_one_fault(text: str) -> None:
    faults: list[str] = []

    parse_file("kgprof.toml", text, faults)

    assert len(faults) == 1
    assert faults[0].startswith("kgprof.toml: ")


def test_kinds_of_kernels_keep_the_files_order() -> None:
    faults: list[str] = []
    text = '[tool.kgprof.kernel-kinds]\n"^my_scan" = "sort"\n"my_" = "attention"\n'

    written = parse_file("/p/pyproject.toml", text, faults)

    assert faults == []
    assert written is not None
    assert written.kernel_kinds == (
        KindOverride(pattern="^my_scan", kind=KernelKind.SORT, origin="pyproject.toml"),
        KindOverride(pattern="my_", kind=KernelKind.ATTENTION, origin="pyproject.toml"),
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            '"(" = "sort"',
            "kernel-kinds.'(' is not a regular expression: missing ), unterminated subpattern at "
            "position 0",
        ),
        (
            '"" = "sort"',
            "kernel-kinds.'' is not a regular expression: an empty pattern matches every name",
        ),
        ('x = "sorted"', "kernel-kinds.'x': 'sorted' is not a kind (did you mean sort?)"),
        (
            "x = 3",
            "kernel-kinds.'x': 3 is not a kind (there are gemm, attention, convolution, "
            "normalisation, pointwise, reduction, index, sort, copy, communication, framework, "
            "other)",
        ),
    ],
)
def test_a_wrong_kind_names_its_file_and_key(text: str, fault: str) -> None:
    faults: list[str] = []

    parse_file("/p/kgprof.toml", f"[kernel-kinds]\n{text}\n", faults)

    assert faults == [f"/p/kgprof.toml: {fault}"]


def test_no_fault_raises_nothing() -> None:
    refuse([])


def test_inductor_stays_where_a_budget_needs_its_code() -> None:
    faults: list[str] = []
    swapped = combined(parse_options([], None, "eager", None, faults), None, (), "")
    kept = combined(parse_options(["compile-seconds=9"], None, "eager", None, faults), None, (), "")

    assert (swapped.backend, swapped.notes) == ("eager", ())
    assert kept.backend == ""
    assert kept.notes == (
        "a budget on compile-seconds needs Inductor's generated code, so --backend eager is "
        "ignored",
    )


def test_reads_may_be_a_fraction_of_a_step_and_alone_need_a_second_process() -> None:
    faults: list[str] = []
    usual = combined(parse_options(["recompiles=1"], None, "eager", None, faults), None, (), "")
    asked = combined(
        parse_options([], None, "eager", None, faults), watched_in_a_file(faults), (), ""
    )

    assert faults == []
    assert passes(usual) == (PassName.COMPILE,)
    assert (passes(asked), asked.backend) == ((PassName.COMPILE, PassName.MEMORY), "eager")
    assert limits(asked)["syncs-per-step"] == 0.25
    assert "syncs-per-step" not in limits(asked, BATCHED)


def watched_in_a_file(faults: list[str]) -> Configuration | None:
    text = '[tool.kgprof.max."fused.default"]\nsyncs-per-step = 0.25\n'
    return parse_file("pyproject.toml", text, faults)


# ---------------------------------------------------------------- in the Recording


def test_what_the_gate_was_told_comes_back_from_the_recording() -> None:
    faults: list[str] = []
    options = parse_options(
        ["fused.default:recompiles=2", "compile-seconds=1.5"], "never", "eager", None, faults
    )
    told = combined(
        options, Configuration(backend="aot_eager"), (entry(gb="GB0059"),), "accepted.toml"
    )

    kept = decode_json(encode_json(told), GateSettings)

    check_recorded(kept, Path("gate.json"))
    assert (kept, faults) == (told, [])


def test_a_metric_of_another_version_is_refused_by_name() -> None:
    recorded = combined(Configuration())
    newer = msgspec.structs.replace(recorded.budgets[0], metric="graph-beaks")

    with pytest.raises(
        InputError, match=r"gate\.json: no metric 'graph-beaks' \(did you mean graph-breaks\?\)"
    ):
        check_recorded(msgspec.structs.replace(recorded, budgets=(newer,)), Path("gate.json"))
