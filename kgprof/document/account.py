"""Where the time of a script went, as one sentence and one bar."""

from collections.abc import Sequence

from kgprof import model as m
from kgprof.document.breakdown import Bar, LegendEntry, Part
from kgprof.document.quantity import duration, rounded
from kgprof.document.table import Shown
from kgprof.wording import clause

TITLE = "Where the time of the run went"
NAMED_FROM = 0.01  # of the run: smaller phases are left out of the sentence, not of the bar
# The colours of the kernel kinds, which stand further down.
COLOURS = {
    m.RunPhase.START: "framework",
    m.RunPhase.START_AND_STEP: "framework",
    m.RunPhase.COMPILING: "pointwise",
    m.RunPhase.RECORDING: "copy",
    m.RunPhase.BESIDE_COMPILING: "normalisation",
    m.RunPhase.STEPS: "gemm",
    m.RunPhase.EVALUATION: "reduction",
}


def sentence(profile: m.Profile) -> str:
    """Say where the time of the one script went; empty where that was not measured."""
    account = _account(profile)
    if not account:
        return ""
    phases = [each for each in account.phases if each.share >= NAMED_FROM]
    phases.sort(key=lambda each: -each.us)
    named = ", ".join(f"{account.words(each.phase)} {rounded(each.share)}" for each in phases)
    how = measured(account, looked=_looks_into_caches(profile))
    return f"{duration(account.total_us)} from first line to end: {named} ({how})"


def lines(profile: m.Profile) -> Sequence[str]:
    """Say where the time of the one script went, and whether its compiling pays, unless an action
    says it."""
    said = [sentence(profile)]
    acted = [action.text for action in profile.actions]
    for run in _only_run(profile):
        if isinstance(run.economics, m.Economics) and run.economics.text not in acted:
            said.append(clause("compiled: ", run.economics.text))
    return [line for line in said if line]


def measured(account: m.ScriptAccount, *, looked: bool) -> str:
    """Say how it was measured; of the compile caches only where something was compiled, and the
    compiler ``looked`` into them: most backends but Inductor do not."""
    how, caches = "rerun without instruments", ", with compile caches from the first run"
    if account.under_listeners:
        how, caches = "with kgprof's listeners on", " and cold compile caches"
    if looked and any(each.phase is m.RunPhase.COMPILING for each in account.phases):
        how += caches
    return f"{how}; torch was imported before"


def picture(profile: m.Profile) -> Shown | None:
    account = _account(profile)
    if not account:
        return None
    parts = []
    entries = []
    for each in account.phases:
        colour = COLOURS.get(each.phase, "other")
        name = account.words(each.phase)
        took = duration(each.us)
        parts.append(Part(colour, "", each.share, each.share, f"{name}: {took}"))
        entries.append(LegendEntry("k", colour, f"{name} {took}"))
    words = sentence(profile)
    return Shown(title=TITLE, sentence=words, bar=Bar(words, parts), legend=entries)


def _looks_into_caches(profile: m.Profile) -> bool:
    for run in _only_run(profile):
        if isinstance(run.compile, m.CompileSummary) and isinstance(run.compile.caches, tuple):
            return any(each.hits or each.misses for each in run.compile.caches)
    return False


def _only_run(profile: m.Profile) -> m.Runs:
    """Of ranks each has its own account; none of them is the run."""
    if len(profile.runs) != 1 or profile.comparison:
        return ()
    return profile.runs


@m.otherwise(None)
def _account(profile: m.Profile) -> m.ScriptAccount | None:
    for run in _only_run(profile):
        return m.known(run.account)
    return None
