"""Between the verdict and the tables: where the time goes, where to look first, and what the figures stand on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render import breakdown
from kgprof.render.finding_list import FindingLine, FindingList
from kgprof.render.limits import Limits
from kgprof.render.not_measured import gathered
from kgprof.render.quantity import count, span
from kgprof.render.visible import one_line
from kgprof.wording import plural

_LARGEST = 3  # kinds of kernels that are named
_FEWEST_FOR_A_WIDTH = 10  # samples: as many as p10 and p90 need


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    question: str
    text: str
    anchor: str  # where more of it stands
    more: str  # the words of that link


def answers(profile: m.Profile, found: FindingList, limits: Limits) -> tuple[Answer, ...]:
    """As many as the Profile has an answer to."""
    run = _quickest(profile)
    offered = (
        _answer("Where the time goes", _time(run), "time", "All runs", limits) if run else None,
        _look(profile, found, run, limits),
        _answer("What it stands on", "; ".join(_trust(profile)), "method", "Method", limits),
    )
    return tuple(answer for answer in offered if answer and answer.text)


def _answer(question: str, text: str, anchor: str, more: str, limits: Limits) -> Answer:
    return Answer(question=question, text=one_line(text, 2 * limits.name), anchor=anchor, more=more)


# ---------------------------------------------------------------- where the time goes


def _quickest(profile: m.Profile) -> m.RunReport | None:
    """Of the traced runs the one with the shortest step: the one that a reader would choose."""
    traced = [run for run in profile.runs if isinstance(run.kernels, m.KernelBreakdown)]
    timed = [(run.step.median, i) for i, run in enumerate(traced) if isinstance(run.step, m.Spread)]
    return traced[min(timed)[1]] if timed else next(iter(traced), None)


def _time(run: m.RunReport) -> str:
    kernels = run.kernels
    assert isinstance(kernels, m.KernelBreakdown)
    parts = sorted(breakdown.parts(kernels), key=lambda part: -part.per_step_us)
    on_device = kernels.device == "cuda"
    if on_device:
        parts = [part for part in parts if part.kind != breakdown.IDLE]
    whole = sum(part.per_step_us for part in parts) or 1.0
    shares = ", ".join(
        f"{breakdown.NAMES[part.kind]} {_rounded(part.per_step_us / whole if on_device else part.share)}"
        for part in parts[:_LARGEST]
    )
    if not on_device:
        return f"{run.key.slug}, traced step: {shares}" if shares else ""
    said = [breakdown.busy_caption(kernels, run.step), f"of the device's time {shares}" if shares else ""]
    return f"{run.key.slug}: {'; '.join(part for part in said if part)}"


def _rounded(share: float) -> str:
    return f"{100 * share:.0f} %"


# ---------------------------------------------------------------- where to look


def _look(profile: m.Profile, found: FindingList, run: m.RunReport | None, limits: Limits) -> Answer | None:
    question = "Where to look first"
    if found.groups:
        group = found.groups[0]
        line = (*group.lines, *group.folded)[0]
        text = f"{group.rule.id} {group.rule.name}{_at(line)}: {line.message}"
        return Answer(question=question, text=one_line(text, 2 * limits.name), anchor=line.anchor, more=_tally(profile))
    rows = run.kernels.rows if run and isinstance(run.kernels, m.KernelBreakdown) else ()
    if run is None or not rows:
        return None
    text = f"no finding; {_rounded(rows[0].share)} of the kernel time of {run.key.slug} is {rows[0].name}"
    return _answer(question, text, "kernels", "Kernels", limits)


def _at(line: FindingLine) -> str:
    return f" at {line.place.where}" if line.place else ""


def _tally(profile: m.Profile) -> str:
    """ "first of 2 errors, 3 warnings"."""
    counts = Counter(finding.level for finding in profile.findings)
    return "first of " + ", ".join(plural(counts[level], level.value) for level in m.Level if counts[level])


# ---------------------------------------------------------------- what it stands on


def _trust(profile: m.Profile) -> Iterator[str]:
    runs = profile.runs
    ill = sum(run.exit.outcome != "ok" for run in runs)
    if ill:
        yield f"{count(ill)} of {plural(len(runs), 'run')} did not end well"
    yield from _agreement(runs)
    yield from _samples(runs)
    about_sources = {rule.id for rule in profile.rules if rule.topic is m.Topic.SOURCES}
    disagreeing = sum(finding.rule in about_sources for finding in profile.findings)
    if disagreeing:
        yield f"two sources contradict each other on {plural(disagreeing, 'fact')}"
    gaps = gathered(profile.omissions)
    if gaps:
        yield f"{plural(len(gaps), 'reason')} why something was not measured"


def _agreement(runs: tuple[m.RunReport, ...]) -> Iterator[str]:
    verdicts = [run.agreement.verdict for run in runs if isinstance(run.agreement, m.RunAgreement)]
    different = verdicts.count(m.AgreementVerdict.DIFFERENT)
    if different:
        yield f"results DIFFER in {count(different)} of {plural(len(verdicts), 'run')}"
    elif verdicts:
        of_all = "all " if len(verdicts) > 1 else ""
        yield f"results equal in {of_all}{plural(len(verdicts), 'run')} that were compared"


def _samples(runs: tuple[m.RunReport, ...]) -> Iterator[str]:
    """How many times the shortest and the longest series hold, and how wide the widest is."""
    steps = [run.step for run in runs if isinstance(run.step, m.Spread)]
    if not steps:
        return
    least, most = min(step.samples for step in steps), max(step.samples for step in steps)
    rounds = [len(run.rounds.numbers) for run in runs if isinstance(run.rounds, m.Rounds)]
    of = f"the first of {span(count(min(rounds)), count(max(rounds)))} processes" if rounds else "one process"
    yield f"steps timed {span(count(least), count(most))} times a run, in {of} each"
    widths = [
        (step.p90 - step.p10) / step.median for step in steps if step.samples >= _FEWEST_FOR_A_WIDTH and step.median
    ]
    if widths:
        yield f"p10 to p90 at most {_rounded(max(widths))} of the median"
