"""Compilations are counted by code object, as torch's metrics name it."""

from __future__ import annotations

from typing import Any

from kgprof.model import CodeCount, SourceLine
from kgprof.reading.code_counts import code_counts, code_of, graph_count


def metrics(name: str | None = "step", **more: Any) -> dict[str, Any]:
    named = {"co_filename": name and "model.py", "co_firstlineno": name and 3, "co_name": name}
    return {**named, "graph_op_count": 2, **more}


STEP = SourceLine(file="model.py", line=3, function="step")


def test_compilations_of_one_code_object_are_counted_together() -> None:
    made = [metrics(), metrics(), metrics(fail_type="Unsupported"), metrics(fail_type="Other")]

    (count,) = code_counts(made)

    assert count == CodeCount(code=STEP, times=2, failures=("Other", "Unsupported"))


def test_what_torch_refused_at_its_limit_has_no_name() -> None:
    refused = metrics(None, fail_type="Unsupported")

    (count,) = code_counts([refused])

    assert count == CodeCount(code=SourceLine(file="", line=0), times=0, failures=("Unsupported",))
    assert code_of(refused) == SourceLine(file="", line=0)


def test_a_graph_has_an_operator_and_did_not_fail() -> None:
    made = [metrics(), metrics(graph_op_count=0), metrics(fail_type="Unsupported"), {}]

    assert graph_count(made) == 1
