"""The limits of one run's step on a GPU: one line for each share, and why no limit is named where
none is."""

from collections.abc import Sequence

from kgprof import limits, wording
from kgprof import model as m
from kgprof.document.finding_list import line_of
from kgprof.document.limits import importance
from kgprof.document.quantity import duration, percent
from kgprof.document.table import Blocks, plain

SECTION = "Limits"  # of the step and of the run: each sentence says of which
SMALLEST = 0.01  # of the step: smaller shares stand together in the last row
_HEADINGS = ("what", "line", "share")
WHOLE_TITLE = "Limits of the run"


def limit_blocks(runs: m.Runs, root: str) -> Blocks:
    """Show the run that a reader would choose: all of it, if it is a script, and its step, if one
    was traced on a GPU."""
    order = importance(runs)
    if not order:
        return ()
    run = runs[order[0]]
    return (*_whole_blocks(run, root), *_step_blocks(run, root))


@m.otherwise(())
def _whole_blocks(run: m.RunReport, root: str) -> Blocks:
    """Show what is paid once beside the steps; nothing where nothing is."""
    found = m.known(run.whole)
    if not found.once:
        return ()
    rows = [_cells(share, root) for share in found.shares if share.share >= SMALLEST]
    steps = wording.plural(found.steps, "step")
    took = duration(found.total_us)
    said = f"{run.slug}: {steps} took {took}, with cold caches and kgprof's listeners on"
    return said, plain(WHOLE_TITLE, (*_HEADINGS, "in all"), rows, style="", words=2)


@m.otherwise(())
def _step_blocks(run: m.RunReport, root: str) -> Blocks:
    found = m.known(run.limits)
    kinds = [share.limit for share in found.by_kind]
    shown = [share for share in found.shares if share.share >= SMALLEST]
    shown.sort(key=lambda share: kinds.index(share.limit))
    rows = [_cells(share, root) for share in shown]
    rest = [share for share in found.shares if share.share < SMALLEST]
    if rest:
        us = sum(each.us for each in rest)
        share = sum(each.share for each in rest)
        rows.append((wording.plural(len(rest), "smaller share"), "", percent(share), duration(us)))
    leads = limits.step_words(run) or f"not decided: {found.undecided}"
    title, per = "Limits of the step", "per traced step"
    if not m.known(run.kernels).steps:
        title, per = "Limits of the traced window", "in the window"
    if isinstance(run.step, m.Spread) and found.step_us in (run.step.median, found.busy_us):
        per = "per step"
    table = plain(title, (*_HEADINGS, per), rows, style="", words=2)
    return f"{run.slug}: {leads}", table


def _cells(share: m.LimitShare, root: str) -> Sequence[str]:
    what = f"{share.limit}{wording.clause(': ', share.name)}"
    line = ""
    if share.location:
        line = line_of(share.location, root)
    return what, line, percent(share.share), duration(share.us)
