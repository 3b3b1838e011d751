"""How often torch compiled what: counted alike for a run's records and for a process in which
nothing of kgprof's listens."""

from collections.abc import Iterable, Mapping
from typing import Any

from kgprof import model as m


def code_counts(compilations: Iterable[Mapping[str, Any]]) -> tuple[m.CodeCount, ...]:
    """Count torch's metrics of compilations by code object."""
    times: dict[m.SourceLine, int] = {}
    failures: dict[m.SourceLine, set[str]] = {}
    for metrics in compilations:
        code = code_of(metrics)
        failed = metrics.get("fail_type")
        times[code] = times.get(code, 0) + (not failed)
        if failed:
            failures.setdefault(code, set()).add(str(failed))
    return tuple(
        m.CodeCount(code=code, times=count, failures=tuple(sorted(failures.get(code, ()))))
        for code, count in times.items()
    )


def code_of(metrics: Mapping[str, Any]) -> m.SourceLine:
    """The code object; empty where torch refused it before it looked at it."""
    return m.SourceLine(
        file=metrics.get("co_filename") or "",
        line=metrics.get("co_firstlineno") or 0,
        function=metrics.get("co_name") or "",
    )


def graph_count(compilations: Iterable[Mapping[str, Any]]) -> int:
    """Count the compilations whose graph has an operator: torch makes no code of the others."""
    return sum(
        bool(metrics.get("graph_op_count")) and not metrics.get("fail_type")
        for metrics in compilations
    )
