"""Where and how the recording was made, in which passes, and what watching cost; what was not
measured; the logs; and what a report holds that somebody might not want to publish."""

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.escaping import one_line, visible
from kgprof.document.limits import Limits
from kgprof.document.quantity import DASH, count, figure, ratio, size
from kgprof.document.table import Cell, Fact, Table, View, plain, row
from kgprof.wording import plural

# in git's own words
_NO_COMMITS = ("not a git repository", "ambiguous argument 'HEAD'", "unknown revision")


def environment(profile: m.Profile, limits: Limits) -> Sequence[Fact]:
    machine = profile.environment
    commit = machine.git_commit
    cpu = machine.cpu_name
    torch = machine.torch
    if isinstance(commit, str):
        commit += " with uncommitted changes" if machine.git_dirty is True else ""
    elif any(words in commit.reason for words in _NO_COMMITS):
        commit = m.Skipped("not a git repository")
    if not isinstance(machine.cpu_count, m.Skipped):
        cpu = f"{cpu}, {machine.cpu_count} cores usable"
    if not isinstance(machine.torch_threads, m.Skipped):
        torch = f"{torch}, {machine.torch_threads} threads"
    pairs: list[tuple[str, str | m.Skipped]] = [
        ("device", f"{profile.device}: {machine.device_name}"),
        ("CPU", cpu),
        (
            "memory",
            machine.memory_bytes
            if isinstance(machine.memory_bytes, m.Skipped)
            else size(machine.memory_bytes),
        ),
        ("torch", torch),
        ("Triton", machine.triton),
        ("CUDA", machine.cuda),
        ("driver", machine.driver),
        ("Python", machine.python),
        ("C++ compiler", machine.compiler),
        ("platform", machine.platform),
        ("git commit", commit),
        ("kgprof", f"recorded with {machine.kgprof}, read with {profile.kgprof_version}"),
        *machine.flags.items(),
    ]
    return [
        Fact(
            name,
            value if isinstance(value, str) else value.reason,
            missing=not isinstance(value, str),
        )
        for name, value in pairs[: limits.lines]
    ]


def cores(machine: m.Environment) -> list[str]:
    """Empty where the machine is known from a TORCH_TRACE directory alone."""
    if isinstance(machine.cpu_count, m.Skipped) or isinstance(machine.torch_threads, m.Skipped):
        return []
    return [f"{machine.cpu_count} cores, {machine.torch_threads} torch threads"]


def options(profile: m.Profile) -> Sequence[Fact]:
    asked = profile.options
    pairs = (
        ("strategies", ", ".join(asked.strategies) or "the workload's default"),
        ("modes", ", ".join(asked.modes) or "the workload's default"),
        ("device", asked.device),
        ("steps, warm-up", f"{asked.steps}, {asked.warmup}"),
        ("TIMING evaluations", f"up to {asked.evaluations}"),
        ("TIMING rounds", str(asked.rounds)),
        ("seed", str(asked.seed)),
        ("time limit per process", f"{figure(asked.timeout_s)} s"),
        ("workload options", " ".join(asked.workload_args) or "none"),
    )
    return [Fact(name, value) for name, value in pairs]


def observer_table(runs: m.Runs, *, drawn: bool = True) -> Table:
    """``drawn``: with a bar in each cell."""
    seen = {cost.observer for run in runs for cost in run.observers}
    passes: list[m.PassName] = [
        name for name in m.PassName if name in seen and name is not m.PassName.TIMING
    ]
    most = max(
        (cost.ratio for run in runs for cost in run.observers if isinstance(cost.ratio, float)),
        default=1.0,
    )
    rows = []
    for run in runs:
        cells = dict.fromkeys(passes, Cell(DASH, details=("no such pass",)))
        for cost in run.observers:
            if isinstance(cost.ratio, m.Skipped):
                cells[cost.observer] = Cell(DASH, details=(cost.ratio.reason,))
            else:
                cells[cost.observer] = Cell(
                    ratio(cost.ratio),
                    details=(plural(cost.samples, "step"),),
                    value=cost.ratio,
                    bar=cost.ratio / most if drawn else None,
                )
        if run.observers:
            rows.append(row(run.key.slug, *(cells[name] for name in passes)))
    table = plain("Profiling overhead per run", ("run", *(name.upper() for name in passes)), rows)
    return replace(table, notes=(f"Bars: 0 to {ratio(most)}.",)) if rows and drawn else table


def passes(profile: m.Profile) -> frozenset[str]:
    """Those that left steps in any run; where none did, those that were asked for."""
    seen = {cost.observer for run in profile.runs for cost in run.observers}
    if any(
        isinstance(time, m.Spread)
        for run in profile.runs
        for time in (run.step, run.evaluation_time)
    ):
        seen.add(m.PassName.TIMING)
    return frozenset(name.upper() for name in seen or profile.options.passes or m.PassName)


class Gap(View):
    what: Sequence[str]
    reason: str
    runs: Sequence[str]  # slugs; empty where it concerns the whole recording


def gathered(omissions: Sequence[m.Omission]) -> Sequence[Gap]:
    """First the runs that lack the same thing for the same reason, then the things that one cause
    took from them."""
    runs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for omission in omissions:
        runs[omission.what, omission.reason] += [omission.run.slug] if omission.run else []
    things: dict[tuple[str, Sequence[str]], list[str]] = defaultdict(list)
    for (what, reason), slugs in runs.items():
        things[reason, tuple(slugs)].append(what)
    return [
        Gap(what=tuple(what), reason=reason, runs=slugs) for (reason, slugs), what in things.items()
    ]


def gap_table(omissions: Sequence[m.Omission], limits: Limits) -> Table:
    rows = (
        (
            ", ".join(gap.what[: limits.lines]),
            gap.reason,
            ", ".join(gap.runs[: limits.lines]) or "all",
        )
        for gap in gathered(omissions)[: limits.lines]
    )
    return plain("Not measured, with reasons", ("what", "why", "runs"), rows, style="", words=3)


def logs(runs: m.Runs, limits: Limits) -> Sequence[tuple[str, str, str]]:
    """Run, size and text of each."""
    if not limits.log_chars:
        return ()
    written = [run for run in runs if run.log.text]
    each = limits.log_chars // max(1, len(written))
    half = each // 2
    shown = []
    for run in written:
        text = visible(run.log.text, keep="\n\t")
        size_bytes = len(run.log.text.encode("utf-8", errors="replace"))
        if len(text) > each:
            text = (
                f"{text[:half]}\n[... {count(len(text) - 2 * half)} characters left out "
                f"...]\n{text[-half:]}"
            )
        whole = size(size_bytes + run.log.left_out_bytes)
        shown.append((one_line(run.key.slug, limits.name), whole, text))
    return shown


CONTENTS = "Contents of this file"

_SOURCE = {
    "none": "none (--include-source none)",
    "repo": "only from the repository (--include-source repo)",
    "all": "from every named file (--include-source all)",
}


def contents(profile: m.Profile) -> Sequence[Fact]:
    """One for each kind of thing, whether it is in it or not."""
    held = profile.contents
    names = profile.environment.flags
    files = "repository files from the top folder, others by the end of their paths"
    lines = "from every named file"
    left_out = "nothing: this report is not redacted"
    if held is None or not held.redaction:
        files = "full paths"
    elif not held.redacted:
        left_out = "nothing needed redaction"
    else:
        left_out = ", ".join(f"{each.category} ({each.count:,})" for each in held.redacted)
    if held is not None:
        missing = held.source_lines_left_out
        without = f"; {plural(missing, 'line')} left out" if missing else ""
        lines = (
            f"{plural(held.source_lines, 'line')}, {_SOURCE.get(held.source, held.source)}{without}"
        )
    logged = sum(bool(run.log.text) for run in profile.runs)
    variables = (
        f"versions, the type of machine, and {plural(len(names), 'variable')}: {', '.join(names)}"
    )
    return (
        Fact("Names", "functions, kernels, modules and the workload"),
        Fact("Files", files),
        Fact("Source lines", lines),
        Fact("Command line", "the full command with the workload's options"),
        Fact(
            "Logs",
            f"output of torch and the workload in {plural(logged, 'run')}" if logged else "none",
        ),
        Fact(
            "Environment",
            variables if names else "versions and the type of machine; no variables",
        ),
        Fact("Left out", left_out),
    )
