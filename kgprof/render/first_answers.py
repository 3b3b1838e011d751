"""Between the verdict and the tables: where the time goes, where to look first, and what the figures stand on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render import breakdown
from kgprof.render.escaping import one_line
from kgprof.render.finding_list import FindingList
from kgprof.render.limits import Limits
from kgprof.render.not_measured import gathered
from kgprof.render.quantity import count, span
from kgprof.wording import plural

_LARGEST = 3  # kinds of kernels that are named
_FEWEST_FOR_A_WIDTH = 10  # samples: as many as p10 and p90 need


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    question: str
    text: str
    anchor: str  # where more of it stands
    more: str  # the words of that link


def answers(profile: m.Profile, findings: FindingList, limits: Limits) -> tuple[Answer, ...]:
    """As many as the Profile has an answer to."""
    # Of the traced runs the one with the shortest step: the one that a reader would choose.
    traced = [run for run in profile.runs if isinstance(run.kernels, m.KernelBreakdown)]
    timed = [(run.step.median, i) for i, run in enumerate(traced) if isinstance(run.step, m.Spread)]
    run = traced[min(timed)[1]] if timed else next(iter(traced), None)
    offered = (
        ("Where the time goes", _time(run) if run else "", "time", "All runs"),
        ("Where to look first", *_look(profile, findings, run)),
        ("What it stands on", "; ".join(_trust(profile)), "method", "Method"),
    )
    return tuple(
        Answer(question=question, text=one_line(text, 2 * limits.name), anchor=anchor, more=more)
        for question, text, anchor, more in offered
        if text
    )


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
    words = [breakdown.busy_caption(kernels, run.step), f"of the device's time {shares}" if shares else ""]
    return f"{run.key.slug}: {'; '.join(part for part in words if part)}"


def _look(profile: m.Profile, findings: FindingList, run: m.RunReport | None) -> tuple[str, str, str]:
    """What to look at first, where it stands, and the words of that link: "first of 2 errors, 3 warnings"."""
    if findings.groups:
        group = findings.groups[0]
        line = (*group.lines, *group.folded)[0]
        at = f" at {line.place.where}" if line.place else ""
        counts = Counter(finding.level for finding in profile.findings)
        tally = ", ".join(plural(counts[level], level.value) for level in m.Level if counts[level])
        return f"{group.rule.id} {group.rule.name}{at}: {line.message}", line.anchor, f"first of {tally}"
    rows = run.kernels.rows if run and isinstance(run.kernels, m.KernelBreakdown) else ()
    if run is None or not rows:
        return "", "", ""
    share = f"{_rounded(rows[0].share)} of the kernel time of {run.key.slug} is {rows[0].name}"
    return f"no finding; {share}", "kernels", "Kernels"


def _rounded(share: float) -> str:
    return f"{100 * share:.0f} %"


# ---------------------------------------------------------------- what it stands on


def _trust(profile: m.Profile) -> Iterator[str]:
    runs = profile.runs
    if ill := sum(run.exit.outcome != "ok" for run in runs):
        yield f"{count(ill)} of {plural(len(runs), 'run')} did not end well"
    yield from _agreement(runs)
    yield from _samples(runs)
    about_sources = {rule.id for rule in profile.rules if rule.topic is m.Topic.SOURCES}
    if disagreeing := sum(finding.rule in about_sources for finding in profile.findings):
        yield f"two sources contradict each other on {plural(disagreeing, 'fact')}"
    if gaps := gathered(profile.omissions):
        yield f"{plural(len(gaps), 'reason')} why something was not measured"


def _agreement(runs: tuple[m.RunReport, ...]) -> Iterator[str]:
    verdicts = [run.agreement.verdict for run in runs if isinstance(run.agreement, m.RunAgreement)]
    if different := verdicts.count(m.AgreementVerdict.DIFFERENT):
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
