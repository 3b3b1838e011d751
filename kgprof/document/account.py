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
    return f"{duration(account.total_us)} from first line to end: {named} ({measured(account)})"


def lines(profile: m.Profile) -> Sequence[str]:
    """Say where the time of the one script went, and whether its compiling pays, unless an action
    says it."""
    runs = () if profile.comparison else profile.runs
    economics = runs[0].economics if len(runs) == 1 else None
    pays = economics.text if isinstance(economics, m.Economics) else ""
    if any(action.text == pays for action in profile.actions):
        pays = ""
    return [line for line in (sentence(profile), clause("compiled: ", pays)) if line]


def measured(account: m.ScriptAccount) -> str:
    """Say how it was measured; of the compile caches only where something was compiled, which may
    not look into them."""
    compiled = any(each.phase is m.RunPhase.COMPILING for each in account.phases)
    if account.under_listeners:
        how, caches = "with kgprof's listeners on", " and cold compile caches"
    else:
        how, caches = "rerun without instruments", ", with compile caches from the first run"
    return f"{how}{caches if compiled else ''}; torch was imported before"


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


def _account(profile: m.Profile) -> m.ScriptAccount | None:
    """Of ranks each has its own; none of them is the run."""
    if len(profile.runs) != 1 or profile.comparison:
        return None
    account = profile.runs[0].account
    return None if isinstance(account, m.Skipped) else account
