"""Where and how the recording was made, in which passes, and what watching cost; what was not
measured; the logs; and what a report holds that somebody might not want to publish."""

from collections.abc import Sequence

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.escaping import one_line
from kgprof.document.limits import Limits
from kgprof.document.quantity import DASH, count, figure, if_known, ratio, size
from kgprof.document.run_parts import collected
from kgprof.document.table import Cell, Cells, Fact, Table, Texts, plain, written
from kgprof.wording import plural, visible

# in git's own words
_NO_COMMITS = ("not a git repository", "ambiguous argument 'HEAD'", "unknown revision")


def environment(profile: m.Profile) -> Sequence[Fact]:
    machine = profile.environment
    commit = machine.git_commit
    memory = m.skippable(lambda: size(m.known(machine.memory_bytes)))
    if isinstance(commit, str):
        if machine.git_dirty is True:
            commit += " with uncommitted changes"
    elif any(words in commit.reason for words in _NO_COMMITS):
        commit = m.Skipped("not a git repository")
    usable = if_known(machine.cpu_count, "{} cores usable".format)
    threads = if_known(machine.torch_threads, "{} threads".format)
    facts: dict[str, str | m.Skipped] = {
        "device": f"{profile.device}: {machine.device_name}",
        "CPU": ", ".join((machine.cpu_name, *usable)),
        "memory": memory(),
        "torch": ", ".join((machine.torch, *threads)),
        "Triton": machine.triton,
        "CUDA": machine.cuda,
        "driver": machine.driver,
        "Python": machine.python,
        "C++ compiler": machine.compiler,
        "platform": machine.platform,
        "git commit": commit,
        "kgprof": f"recorded with {machine.kgprof}, read with {profile.kgprof_version}",
    }
    return (*facts.items(), *machine.flags.items())


@m.otherwise(())
def cores(machine: m.Environment) -> Texts:
    """Empty where the machine is known from a TORCH_TRACE directory alone."""
    return (f"{m.known(machine.cpu_count)} cores, {m.known(machine.torch_threads)} torch threads",)


def options(profile: m.Profile) -> Sequence[Fact]:
    asked = profile.options
    return (
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


def observer_table(runs: m.Runs, *, drawn: bool = True) -> Table:
    """``drawn``: with a bar in each cell."""
    costs = [cost for run in runs for cost in run.observers]
    seen = {cost.observer for cost in costs} - {m.PassName.TIMING}
    passes = [name for name in m.PassName if name in seen]
    ratios = [cost.ratio for cost in costs if isinstance(cost.ratio, float)]
    most = max(ratios, default=1.0)
    rows: list[Cells] = []
    for run in runs:
        cells = dict.fromkeys(passes, Cell(DASH, ("no such pass",)))
        for cost in run.observers:
            cell = written(cost.ratio, ratio, plural(cost.samples, "step"))
            if not cell.measured:
                cell = Cell(DASH, (cell.title,))
            elif drawn and cell.value is not None:
                cell = replace(cell, bar=cell.value / most)
            cells[cost.observer] = cell
        if run.observers:
            rows.append((run.slug, *(cells[name] for name in passes)))
    table = plain("Profiling overhead per run", ("run", *(name.upper() for name in passes)), rows)
    if not rows or not drawn:
        return table
    return replace(table, notes=(f"Bars: 0 to {ratio(most)}.",))


def passes(profile: m.Profile) -> list[str]:
    """Those that left steps in any run; where none did, those that were asked for."""
    seen = {cost.observer for run in profile.runs for cost in run.observers}
    times = (time for run in profile.runs for time in (run.step, run.evaluation_time))
    if any(isinstance(time, m.Spread) for time in times):
        seen.add(m.PassName.TIMING)
    return sorted(name.upper() for name in seen or profile.options.passes or m.PassName)


# what is missing, why, and the slugs of the runs; none where it concerns the whole recording
Gap = tuple[Texts, str, Texts]


def gathered(omissions: Sequence[m.Omission]) -> Sequence[Gap]:
    """First the runs that lack the same thing for the same reason, then the things that one cause
    took from them."""
    by_thing = collected(((each.what, each.reason), each.run) for each in omissions)
    by_cause = collected(
        ((reason, tuple(run.slug for run in runs if run)), what)
        for (what, reason), runs in by_thing.items()
    )
    return [(what, reason, runs) for (reason, runs), what in by_cause.items()]


def gap_table(omissions: Sequence[m.Omission]) -> Table:
    rows = [
        (", ".join(what), reason, ", ".join(slugs) or "all")
        for what, reason, slugs in gathered(omissions)
    ]
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
            cut = count(len(text) - 2 * half)
            text = f"{text[:half]}\n[... {cut} characters left out ...]\n{text[-half:]}"
        whole = size(size_bytes + run.log.left_out_bytes)
        shown.append((one_line(run.slug, limits.name), whole, text))
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
    files = "repository files from the top folder, others by the end of their paths"
    lines = "from every named file"
    left_out = "nothing: this report is not redacted"
    if not held or not held.redaction:
        files = "full paths"
    elif held.redacted:
        left_out = ", ".join(f"{each.category} ({each.count:,})" for each in held.redacted)
    else:
        left_out = "nothing needed redaction"
    if held:
        lines = f"{plural(held.source_lines, 'line')}, {_SOURCE.get(held.source, held.source)}"
        if held.source_lines_left_out:
            lines += f"; {plural(held.source_lines_left_out, 'line')} left out"
    logs = "none"
    if logged := sum(bool(run.log.text) for run in profile.runs):
        logs = f"output of torch and the workload in {plural(logged, 'run')}"
    variables = "versions and the type of machine; no variables"
    if names := profile.environment.flags:
        known = f"{plural(len(names), 'variable')}: {', '.join(names)}"
        variables = f"versions, the type of machine, and {known}"
    return (
        ("Names", "functions, kernels, modules and the workload"),
        ("Files", files),
        ("Source lines", lines),
        ("Command line", "the full command with the workload's options"),
        ("Logs", logs),
        ("Environment", variables),
        ("Left out", left_out),
    )
