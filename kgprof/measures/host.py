"""Where Python's own time went, and what the first call cost."""

from __future__ import annotations

from kgprof import model as m
from kgprof.measures.times import spread


def host_functions(host: m.HostPass | m.Skipped) -> m.HostBreakdown | m.Skipped:
    """cProfile's rows, by self time."""
    if isinstance(host, m.Skipped):
        return host
    if not host.rows:
        return m.Skipped(reason="cProfile saw no function")
    return m.HostBreakdown(
        steps=len(host.step_us),
        total_self_us=host.total_self_us or sum(row.self_us for row in host.rows),
        rows=tuple(sorted(host.rows, key=lambda row: (-row.self_us, row.file, row.line, row.function))),
        rows_left_out=host.rows_left_out,
    )


def compile_summary(compiled: m.CompilePass | m.Skipped) -> m.CompileSummary | m.Skipped:
    """The first call on a cold cache, and the calls after warm-up."""
    if isinstance(compiled, m.Skipped):
        return compiled
    if not compiled.call_us and compiled.calls is None:
        return m.Skipped(reason="COMPILE holds no call")
    unseen = m.Skipped(reason="calls were not seen, only what was compiled in them")
    return m.CompileSummary(
        first_call_s=compiled.call_us[0] / 1e6 if compiled.call_us else unseen,
        steady=spread(compiled.call_us[compiled.steady_from :], unit="us", measured_in=m.PassName.COMPILE),
        compilations=compiled.compilations,
        capture_unavailable=compiled.capture_unavailable,
    )
