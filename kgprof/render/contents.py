"""What a report holds that somebody might not want to publish, and what was left out of it."""

from __future__ import annotations

from kgprof import model as m
from kgprof.render.table import Fact
from kgprof.wording import plural

TITLE = "What this file contains"

_SOURCE = {
    "none": "none were wanted (--include-source none)",
    "repo": "of the repository only (--include-source repo)",
    "all": "of every file that was named (--include-source all)",
}


def facts(profile: m.Profile) -> tuple[Fact, ...]:
    """One for each kind of thing, whether it is in it or not."""
    return (
        Fact(name="Names", value="of functions, kernels, modules and the workload"),
        Fact(name="Files", value=_files(profile)),
        Fact(name="Source lines", value=_source_lines(profile)),
        Fact(name="Command line", value="the whole command, with the workload's own options"),
        Fact(name="Logs", value=_logs(profile)),
        Fact(name="Environment", value=_environment(profile)),
        Fact(name="Left out", value=left_out(profile)),
    )


def left_out(profile: m.Profile) -> str:
    contents = profile.contents
    if contents is None or not contents.redaction:
        return "nothing: this report is not redacted"
    if not contents.redacted:
        return "nothing had to be"
    return ", ".join(f"{one.category} ({one.count:,})" for one in contents.redacted)


def _files(profile: m.Profile) -> str:
    if profile.contents is None or not profile.contents.redaction:
        return "by their whole paths"
    return "of the repository from its top folder, others by the end of their paths"


def _source_lines(profile: m.Profile) -> str:
    contents = profile.contents
    if contents is None:
        return "of every file that was named"
    missing = contents.source_lines_left_out
    without = f"; {plural(missing, 'line')} left out" if missing else ""
    return f"{plural(contents.source_lines, 'line')}, {_SOURCE.get(contents.source, contents.source)}{without}"


def _logs(profile: m.Profile) -> str:
    logged = sum(bool(run.log.text) for run in profile.runs)
    return f"what torch and the workload wrote in {plural(logged, 'run')}" if logged else "none"


def _environment(profile: m.Profile) -> str:
    names = profile.environment.flags
    if not names:
        return "versions and the machine's kind; no variable"
    return f"versions, the machine's kind, and {plural(len(names), 'variable')}: {', '.join(names)}"
