"""The same finding in several runs, said once with all their names; and the page's findings: by
rule, so that each is explained once, and below it each place with what was seen there."""

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.escaping import clip, one_line
from kgprof.document.limits import Limits
from kgprof.document.quantity import count, figure, span
from kgprof.document.run_parts import collected
from kgprof.document.table import Drawing, Texts, View, bounded
from kgprof.wording import clause, relative, visible

Anchors = Mapping[str, str]  # of a page: where a finding stands, by its fingerprint


class Grouped(View, kw_only=False):
    """Findings that have the rule, level, message, place and acceptance of ``first``."""

    members: Sequence[m.Finding]

    @property
    def first(self) -> m.Finding:
        return self.members[0]

    @property
    def runs(self) -> Texts:
        """Slugs; empty where it concerns no run."""
        return tuple(dict.fromkeys(finding.run.slug for finding in self.members if finding.run))

    @property
    def times(self) -> str:
        """How often in a run; empty for once, or where the words say it, as a sync's do."""
        if self.first.reads:
            return ""
        return times(self.members)

    @property
    def cost(self) -> str:
        """ "310 µs per step (CPU wait; MEMORY, n = 17)", a range over the runs; empty where no
        run's is known."""
        known = [member.cost for member in self.members if isinstance(member.cost, m.FindingCost)]
        units = {cost.unit for cost in known}
        if len(units) != 1:
            return ""
        return said_cost(known)

    @property
    def message(self) -> str:
        return f"{clause('', ', '.join(self.runs), ': ')}{self.first.message}"

    def line(self, root: str) -> str:
        """Place, runs, message and how often: "src/step.py:41: fused.default: ... (4 times)"."""
        times = clause(" (", self.times, ")")
        return f"{where(self.first.location, root)}{self.message}{times}"


class Found(Drawing, kw_only=False):
    """Findings, in the line that each printer has for one. ``notes``: what else is to be said of
    each, in the same order."""

    groups: Sequence[Grouped]
    root: str
    notes: Texts = ()
    struck: bool = False  # of those that speak against nothing any more


def grouped(findings: Iterable[m.Finding]) -> Sequence[Grouped]:
    """In the order in which each was first met."""
    groups = collected(
        ((each.rule, each.level, each.location, each.message, each.accepted), each)
        for each in findings
    )
    return [Grouped(tuple(same)) for same in groups.values()]


def failing(profile: m.Profile) -> frozenset[m.Finding]:
    """Those that the gate fails because of."""
    if not profile.gate:
        return frozenset()
    return frozenset(profile.findings[i] for i in profile.gate.failing)


def where(place: m.Location | None, root: str) -> str:
    """ "src/step.py:41: ", with ``root`` cut off; empty where there is no place."""
    if not place:
        return ""
    return f"{line_of(place, root)}: "


def line_of(place: m.Location, root: str) -> str:
    """ "src/step.py:41", with ``root`` cut off."""
    return f"{relative(place.file, root)}:{place.line}"


def times(findings: Sequence[m.Finding]) -> str:
    """ "4 times", or a range over the runs; empty for once, and where the message holds it already.
    What torch refused it met as often while it compiled: calls that run are more, or fewer."""
    counts = [finding.count for finding in findings]
    how_often = f"{span(count(min(counts)), count(max(counts)))} times"
    if max(counts) < 2 or re.search(rf"\b{re.escape(how_often)}\b", findings[0].message):
        return ""
    if findings[0].refusal is not None:
        how_often += " while compiling"
    return how_often


_UNITS = {
    "us/step": "\N{MICRO SIGN}s per step",
    "us/window": "\N{MICRO SIGN}s of the traced window",
}


def said_cost(costs: Sequence[m.FindingCost]) -> str:
    """Of one unit: the range of the values, what it is, where it was measured, and how far all
    samples lie apart."""
    first = costs[0]
    values = [cost.value for cost in costs]
    samples = [cost.samples for cost in costs]
    ends = sorted(end for cost in costs if cost.extremes for end in cost.extremes)
    measured = [name.upper() for name in first.measured_in]
    if ends and ends[0] < ends[-1]:
        measured.append(span(figure(ends[0]), figure(ends[-1])))
    unit = _UNITS.get(first.unit, f"{first.unit}, once")
    number = span(count(min(samples)), count(max(samples)))
    how = ", ".join((*measured, f"n = {number}"))
    return f"{span(figure(min(values)), figure(max(values)))} {unit} ({first.what}; {how})"


# torch's hints that name nothing to do in the program, and those that were tried: they leave the
# break, name what does not exist, or take more than a message out (logger.isEnabledFor).
_NO_HINTS = (
    "Set torch._dynamo.trace_autograd_ops",
    "Avoid calling the function",  # which may do what the program needs, as zero_grad()
    "Ensure the input tensor to `tolist()`",
    "Apply `@torch._dynamo.dont_skip_tracing`",
    "Add the logging method to",
    "Remove mutations from the generator.",
    "It may be possible to write",
    "Please ",
    "This graph break is ",
    "This graph break may be ",
    "If it is a ",  # builtin or extension, please file or wrap it
    "Report an issue to ",
    "This is likely to be a Dynamo bug",
    "Your code may result in an error when running in eager",  # it raises what it means to raise
)
_HINTS = 3


def fix_label(offered: m.Finding | m.Action) -> str:
    """Code is called a fix only where a trial of it in this program helped."""
    if offered.tried:
        return "fix"
    return "to try"


def advice(finding: m.Finding, remedy: str = "") -> Texts:
    """What to do, a line each: the fix as code, or why there is none, or torch's hints, or else the
    rule's remedy."""
    if finding.fix:
        first, *others = finding.fix.splitlines()
        label = f"{fix_label(finding)}: "
        return (label + first, *(" " * len(label) + line for line in others))
    if finding.no_fix:
        return (f"no fix as code: {finding.no_fix}",)
    if hints := _hints(finding):
        return [f"torch's hint: {hint}" for hint in hints]
    if remedy:
        return (f"what to do: {remedy}",)
    return ()


def _hints(finding: m.Finding) -> Texts:
    if not finding.refusal:
        return ()
    given = finding.refusal.cause.hints
    return [hint for hint in given if not hint.startswith(_NO_HINTS)][:_HINTS]


def to_do(profile: m.Profile, action: m.Action) -> str:
    """Of an action without a fix: why there is none, or torch's hints, or the rule's remedy."""
    findings = (each for each in profile.findings if each.fingerprint == action.finding)
    hints = (hint for finding in findings for hint in _hints(finding))
    hinted = clause("torch's hint: ", " ".join(dict.fromkeys(hints)))
    return action.no_fix or hinted or profile.remedy(action.rule)


# Also true of a fix that names a mode which was measured.
_NOT_APPLIED = "No fix was applied, nor tried unless it says so"


def not_applied(shown: Iterable[m.Finding | m.Action]) -> str:
    """Say it of the fixes that these offer; nothing where none of them offers one."""
    if any(map(_offers_a_fix, shown)):
        return _NOT_APPLIED
    return ""


def _offers_a_fix(one: m.Finding | m.Action) -> bool:
    """An action without a fix of its own offers the rule's remedy."""
    if isinstance(one, m.Finding):
        return bool(one.fix) and not one.accepted
    return bool(one.fix) or not one.no_fix


def level_in_ci(finding: m.Finding, gate: m.Gate | None, fails: frozenset[m.Finding]) -> m.Level:
    """Of a gate, what fails it is an error, and nothing else is one."""
    if not gate:
        return finding.level
    if finding in fails:
        return m.Level.ERROR
    if finding.level is m.Level.ERROR:
        return m.Level.WARNING
    return finding.level


def way_in(finding: m.Finding) -> Texts:
    """Of what happened in a library: its line, and those between it and the project's."""
    known = finding.refusal or finding.reads
    line = finding.library
    said = []
    if line:
        text = clause(": ", line.text)
        said.append(f"In {line.words}{text}")
    if known and known.chain:
        said.append(f"Through {' > '.join(each.words for each in known.chain)}")
    return said


def with_advice(finding: m.Finding) -> str:
    """The message, what it was measured to cost, and what to do, over several lines."""
    cost = clause("; costs ", Grouped((finding,)).cost)
    return "\n".join((f"{finding.alone}{cost}", *advice(finding)))


def cost_order(findings: Iterable[m.Finding]) -> tuple[bool, float]:
    """Sorts what each step pays before what is paid once, the costlier first, and what nobody
    measured last."""
    each_step, value = max(weights(findings), default=(False, 0.0))
    return not each_step, -value


def weights(findings: Iterable[m.Finding]) -> Sequence[tuple[bool, float]]:
    """Of those whose cost is known; a larger one is costlier."""
    return [finding.cost.weight for finding in findings if isinstance(finding.cost, m.FindingCost)]


_RELATED = 8  # other places of one finding
_WORDS = 3000  # characters of torch's own
_TEXT = 400  # of a place, and of its line
_NOT_AN_ID = re.compile(r"[^A-Za-z0-9_-]+")


class Place(Drawing):
    """It is within limits of its own: the spaces of a line of code stay."""

    where: str  # "src/step.py:41 forward"
    source: str  # the line itself; empty where it could not be read


class FindingLine(View):
    anchor: str
    finding: m.Finding
    fix_label: str
    runs: Texts
    times: str  # how often, where more than once
    cost: str  # as it was measured; empty where it was not
    weight: int  # of the cost: a larger number is costlier; -1 where it is not known
    # that the gate fails because of it, and in which runs where not in all of them; empty: it does
    # not
    fails: str
    place: Place | None
    related: Sequence[Place | None]
    words: Texts  # torch's own, a paragraph each


class FindingGroup(View):
    """Findings of one rule on one level."""

    rule: m.Rule
    level: m.Level
    lines: Sequence[FindingLine]


class FindingList(View):
    groups: Sequence[FindingGroup]
    anchors: dict[str, str]  # of a fingerprint: the anchor of the line that stands for it


def finding_list(profile: m.Profile, limits: Limits) -> FindingList:
    """Rules in the Profile's order, which is by level first; what fails the gate comes first, what
    is accepted last."""
    rules = {rule.id: rule for rule in profile.rules}
    fails = failing(profile)
    ranks = {weight: rank for rank, weight in enumerate(sorted(set(weights(profile.findings))))}
    anchors: dict[str, str] = {}
    lines = []
    used: set[str] = set()
    for same in _ordered(grouped(profile.findings[: limits.findings]), fails):
        first = same.first
        # An id of HTML that no other finding of the page has.
        anchor = _NOT_AN_ID.sub("-", f"{first.rule}-{first.fingerprint}")
        base = anchor = clip(anchor, 80).rstrip("\u2026")
        number = 1
        while anchor in used:
            number += 1
            anchor = f"{base}-{number}"
        used.add(anchor)
        line = _line(same, anchor, fails, profile, limits, ranks)
        lines.append(((first.rule, first.level), line))
        anchors |= {mark: anchor for each in same.members if (mark := each.fingerprint)}
    groups = [
        FindingGroup(
            # A Profile of another version may hold findings whose rule it does not list.
            rule=rules.get(rule, m.unknown_rule(one_line(rule, limits.name), level)),
            level=level,
            lines=of_rule,
        )
        for (rule, level), of_rule in collected(lines).items()
    ]
    return FindingList(groups=groups, anchors=anchors)


_FILE_AND_LINE = attrgetter("file", "line")
_NOWHERE = m.Location(file="", line=0)


def _ordered(groups: Sequence[Grouped], fails: frozenset[m.Finding]) -> list[Grouped]:
    """By level, then as they weigh; within one rule by cost, else by place: what one line does
    stands together."""
    rules = list(dict.fromkeys((same.first.rule, same.first.level) for same in groups))
    return sorted(
        groups,
        key=lambda same: (
            rules.index((same.first.rule, same.first.level)),
            bool(same.first.accepted),
            fails.isdisjoint(same.members),
            *cost_order(same.members),
            *_FILE_AND_LINE(same.first.location or _NOWHERE),
        ),
    )


def _line(
    same: Grouped,
    anchor: str,
    failing: frozenset[m.Finding],
    profile: m.Profile,
    limits: Limits,
    ranks: Mapping[tuple[bool, float], int],
) -> FindingLine:
    finding = same.first
    root = profile.source_root
    said = [*way_in(finding), finding.detail]
    if finding.refusal:
        said.insert(-1, clause("Developer debug context: ", finding.refusal.cause.context))
    detail = visible(clip("\n".join(filter(None, said)), min(_WORDS, 8 * limits.name)), keep="\n\t")
    # A budget may stand for some of the runs that have the same finding.
    members = [member for member in same.members if member in failing]
    fails = ""
    if members:
        fails = "Fails the gate."
    if 0 < len(members) < len(same.members):
        fails = f"Fails the gate in {', '.join(Grouped(members).runs)}."
    line = FindingLine(
        anchor=anchor,
        finding=finding,
        fix_label=fix_label(finding),
        runs=same.runs,
        times=same.times,
        cost=same.cost,
        weight=max((ranks[weight] for weight in weights(same.members)), default=-1),
        fails=fails,
        place=place(finding.location, root),
        related=[place(other, root) for other in finding.related[:_RELATED]],
        words=(),
    )
    words = [shown for line in detail.splitlines() if (shown := " ".join(line.split()))]
    return replace(bounded(line, limits), words=words)


def place(location: m.Location | None, root: str) -> Place | None:
    if not location:
        return None
    where = f"{line_of(location, root)} {location.function}".strip()
    return Place(where=one_line(where, _TEXT), source=clip(visible(location.text.strip()), _TEXT))
