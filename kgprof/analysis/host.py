"""Where Python's own time went, and what the first call cost."""

from __future__ import annotations

from kgprof.analysis.comparison import spread
from kgprof.model import CompilePass, CompileSummary, HostBreakdown, HostPass, PassName, Skipped


def host_functions(host: HostPass | Skipped) -> HostBreakdown | Skipped:
    """cProfile's rows, by self time."""
    if isinstance(host, Skipped):
        return host
    if not host.rows:
        return Skipped(reason="cProfile saw no function")
    return HostBreakdown(
        steps=len(host.step_us),
        total_self_us=host.total_self_us or sum(row.self_us for row in host.rows),
        rows=tuple(sorted(host.rows, key=lambda row: (-row.self_us, row.file, row.line, row.function))),
        rows_left_out=host.rows_left_out,
    )


def compile_summary(compiled: CompilePass | Skipped) -> CompileSummary | Skipped:
    """The first call on a cold cache, and the calls after warm-up."""
    if isinstance(compiled, Skipped):
        return compiled
    if not compiled.call_us and compiled.calls is None:
        return Skipped(reason="COMPILE holds no call")
    unseen = Skipped(reason="calls were not seen, only what was compiled in them")
    return CompileSummary(
        first_call_s=compiled.call_us[0] / 1e6 if compiled.call_us else unseen,
        steady=spread(compiled.call_us[compiled.steady_from :], unit="us", measured_in=PassName.COMPILE),
        compilations=compiled.compilations,
        capture_unavailable=compiled.capture_unavailable,
    )
