"""How much the page may hold, what it keeps of the runs longest when bytes are short, and the names
that its parts share."""

from collections.abc import Collection, Sequence
from enum import IntEnum

from kgprof import model as m
from kgprof.measures.times import ranked

TOP_KERNELS = 25  # rows of a kernel table where there is room
MORE_KERNELS = 300  # and below it, in a line each
FIRST_RUNS = 3  # the winner, the baseline and the runner-up: what others lose, these keep


class Share(IntEnum):
    """How much of the Profile a page carries; the order in which it gives way."""

    NOTHING = 0
    COMPARABLE = 1  # all that `kgprof compare` looks at
    WHOLE = 2


class Limits(m.Model):
    """How much of each the page may hold. What is beyond is in report.json, and the page says
    so."""

    log_chars: int  # of all runs together
    host_rows: int  # a run
    kernel_rows: int  # a run
    findings: int
    runs: int
    name: int  # characters of any one name or message
    lines: int  # rows of tables that say how many more there are: compilations, graphs
    other_rows: int = 0  # as kernel_rows, of a run that is not among the first
    more_kernels: int = 0  # of a run, a line each: what the filter finds besides
    # runs whose step is drawn: the winner, the baseline, the runner-up, then others
    timelines: int = 0
    flames: int = 0  # runs whose stacks are drawn, likewise
    flame_rows: int = 0  # of each
    source_rows: int = 0  # lines of the workload's files, of each of the first runs
    code_chars: int = 0  # of the graphs and the generated code of each of those
    carries: Share = Share.NOTHING  # of the Profile itself

    def kernels_of(self, at: int, first: Collection[int]) -> int:
        """Rows of kernels of the run at this index."""
        if at in first:
            return self.kernel_rows
        return min(self.kernel_rows, self.other_rows)

    @property
    def longest(self) -> int:
        """No list and no table of the page has more entries: a few of each run."""
        return 4 * max(self.lines, self.runs)


def anchor(run_index: int) -> str:
    """Run names may hold anything, so anchors count."""
    return f"run-{run_index + 1}"


def importance(runs: m.Runs) -> Sequence[int]:
    """Indices of the runs in the order in which a reader needs their details: the winner, the
    baseline, the runner-up, then the others. Where nothing ranks them the one with the shortest
    step leads."""
    if found := ranked(runs):
        fastest = [run.key for run, _ in found.runs]
    else:
        steps = ((run.step.median, run.key) for run in runs if isinstance(run.step, m.Spread))
        fastest = [key for _, key in sorted(steps, key=lambda step: step[0])[:1]]
    base = [run.key for run in runs if run.is_baseline]
    at = {run.key: index for index, run in reversed(list(enumerate(runs)))}
    first = [at[key] for key in (*fastest[:1], *base, *fastest)]
    return tuple(dict.fromkeys([*first, *range(len(runs))]))


def kept(runs: m.Runs, most: int) -> frozenset[int]:
    """Indices of the ``most`` important ones."""
    return frozenset(importance(runs)[:most])
