"""What a report holds that somebody might not want to publish, and what was left out of it."""

from __future__ import annotations

from kgprof import model as m
from kgprof.render.table import Fact
from kgprof.wording import plural

TITLE = "Contents of this file"

_SOURCE = {
    "none": "none (--include-source none)",
    "repo": "only from the repository (--include-source repo)",
    "all": "from every named file (--include-source all)",
}


def facts(profile: m.Profile) -> tuple[Fact, ...]:
    """One for each kind of thing, whether it is in it or not."""
    held, names = profile.contents, profile.environment.flags
    files = "repository files from the top folder, others by the end of their paths"
    lines, left_out = "from every named file", "nothing: this report is not redacted"
    if held is None or not held.redaction:
        files = "full paths"
    elif not held.redacted:
        left_out = "nothing needed redaction"
    else:
        left_out = ", ".join(f"{each.category} ({each.count:,})" for each in held.redacted)
    if held is not None:
        missing = held.source_lines_left_out
        without = f"; {plural(missing, 'line')} left out" if missing else ""
        lines = f"{plural(held.source_lines, 'line')}, {_SOURCE.get(held.source, held.source)}{without}"
    logged = sum(bool(run.log.text) for run in profile.runs)
    variables = f"versions, the type of machine, and {plural(len(names), 'variable')}: {', '.join(names)}"
    return (
        Fact(name="Names", value="functions, kernels, modules and the workload"),
        Fact(name="Files", value=files),
        Fact(name="Source lines", value=lines),
        Fact(name="Command line", value="the full command with the workload's options"),
        Fact(name="Logs", value=f"output of torch and the workload in {plural(logged, 'run')}" if logged else "none"),
        Fact(name="Environment", value=variables if names else "versions and the type of machine; no variables"),
        Fact(name="Left out", value=left_out),
    )
