"""Between the verdict and the tables: where the time goes, where to look first, and what the figures stand on."""

from __future__ import annotations

import math
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
from kgprof.render.spread import FEWEST_FOR_PERCENTILES
from kgprof.wording import plural

_LARGEST = 3  # kinds of kernels that are named


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    question: str
    text: str
    anchor: str  # where more of it stands
    more: str  # the words of that link


def answers(profile: m.Profile, findings: FindingList, limits: Limits) -> tuple[Answer, ...]:
    # Of the traced runs the one with the shortest step: the one that a reader would choose.
    traced = [(run, run.kernels) for run in profile.runs if isinstance(run.kernels, m.KernelBreakdown)]
    chosen = min(
        traced, key=lambda each: each[0].step.median if isinstance(each[0].step, m.Spread) else math.inf, default=None
    )
    offered = (
        ("Where the time goes", _time(*chosen) if chosen else "", "time", "All runs"),
        ("Where to look first", *_look(profile, findings, chosen)),
        ("What it stands on", "; ".join(_trust(profile)), "method", "Method"),
    )
    return tuple(
        Answer(question=question, text=one_line(text, 2 * limits.name), anchor=anchor, more=more)
        for question, text, anchor, more in offered
        if text
    )


def _time(run: m.RunReport, kernels: m.KernelBreakdown) -> str:
    parts = sorted(breakdown.parts(kernels), key=lambda part: -part.per_step_us)
    if kernels.device != "cuda":
        shares = ", ".join(f"{breakdown.NAMES[part.kind]} {_rounded(part.share)}" for part in parts[:_LARGEST])
        return f"{run.key.slug}, traced step: {shares}" if shares else ""
    parts = [part for part in parts if part.kind != breakdown.IDLE]
    whole = sum(part.per_step_us for part in parts)
    of_all = [f"{breakdown.NAMES[part.kind]} {_rounded(part.per_step_us / whole)}" for part in parts[:_LARGEST]]
    busy = breakdown.busy_caption(kernels, run.step)
    return f"{run.key.slug}: {busy}" + (f"; of the device's time {', '.join(of_all)}" if of_all else "")


def _look(
    profile: m.Profile, findings: FindingList, chosen: tuple[m.RunReport, m.KernelBreakdown] | None
) -> tuple[str, str, str]:
    """What to look at first, where it stands, and the words of that link: "first of 2 errors, 3 warnings"."""
    if profile.actions:
        return profile.actions[0].text, "next", "What to do next"
    if findings.groups:
        group = findings.groups[0]
        line = group.lines[0]
        at = f" at {line.place.where}" if line.place else ""
        counts = Counter(finding.level for finding in profile.findings)
        tally = ", ".join(plural(counts[level], level.value) for level in m.Level if counts[level])
        return f"{group.rule.id} {group.rule.name}{at}: {line.message}", line.anchor, f"first of {tally}"
    if chosen is None or not chosen[1].rows:
        return "", "", ""
    run, kernels = chosen
    share = f"{_rounded(kernels.rows[0].share)} of the kernel time of {run.key.slug} is {kernels.rows[0].name}"
    return f"no finding; {share}", "kernels", "Kernels"


def _rounded(share: float) -> str:
    return f"{100 * share:.0f} %"


def _trust(profile: m.Profile) -> Iterator[str]:
    runs = profile.runs
    if ill := sum(run.exit.outcome != "ok" for run in runs):
        yield f"{count(ill)} of {plural(len(runs), 'run')} did not end well"
    verdicts = [run.agreement.verdict for run in runs if isinstance(run.agreement, m.RunAgreement)]
    if different := verdicts.count(m.AgreementVerdict.DIFFERENT):
        yield f"results DIFFER in {count(different)} of {plural(len(verdicts), 'run')}"
    elif verdicts:
        of_all = "all " if len(verdicts) > 1 else ""
        yield f"results equal in {of_all}{plural(len(verdicts), 'run')} that were compared"
    # How many times the shortest and the longest series hold, and how wide the widest is.
    steps = [run.step for run in runs if isinstance(run.step, m.Spread)]
    samples = [step.samples for step in steps]
    rounds = [len(run.rounds.numbers) for run in runs if isinstance(run.rounds, m.Rounds)]
    of = f"the first of {span(count(min(rounds)), count(max(rounds)))} processes" if rounds else "one process"
    if steps:
        times = f"step {'time' if max(samples) == 1 else 'times'}"
        yield f"{span(count(min(samples)), count(max(samples)))} {times} per run, in {of} each"
    if wide := [step for step in steps if step.samples >= FEWEST_FOR_PERCENTILES and step.median]:
        yield f"p10 to p90 at most {_rounded(max((step.p90 - step.p10) / step.median for step in wide))} of the median"
    about_sources = {rule.id for rule in profile.rules if rule.topic is m.Topic.SOURCES}
    if disagreeing := sum(finding.rule in about_sources for finding in profile.findings):
        yield f"two sources contradict each other on {plural(disagreeing, 'fact')}"
    if gaps := gathered(profile.omissions):
        yield f"{plural(len(gaps), 'reason')} why something was not measured"
