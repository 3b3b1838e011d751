"""New, fixed, moved, unchanged, not looked for: the findings of two Profiles, matched without line
numbers.

Findings of one fingerprint are the same. Of those that are left, two are the same where rule, run,
function, the text of the line and the message agree (a checkout in another folder); after those,
where all but the line's text does (the line was edited, and what is wrong with it was there
before); and last, where all but file and function does: the line moved. Files are named from each
side's own repository, and figures in messages do not count. What only one side has is new or fixed
if the other side looked for it (its coverage says so), else it is not known to be either.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable

from msgspec.structs import replace

from kgprof import coverage
from kgprof import model as m
from kgprof.collectors import rule_of
from kgprof.wording import shared

_LEVELS = {"error": (m.Level.ERROR,), "warning": (m.Level.ERROR, m.Level.WARNING), "never": ()}
_SEVERITY = {m.Level.ERROR: 0, m.Level.WARNING: 1, m.Level.NOTE: 2}
_STATUS = {status: order for order, status in enumerate(m.FindingStatus)}
_FIGURES = re.compile(r"(?<!\d)\d[\d,.]*(?P<noun> \w+?)?s?\b")  # with its noun, which has a plural

_Name = Callable[[m.Finding, str], Hashable]
_NOWHERE = m.Location("", 0)


def compared_findings(
    base: m.Profile, head: m.Profile, fail_on: str
) -> tuple[m.ComparedFinding, ...]:
    """Of runs that both sides have, and of whole Profiles; new ones first, of those the severest
    first."""
    common = {None, *({run.key for run in base.runs} & {run.key for run in head.runs})}
    before, after = (
        [finding for finding in side.findings if finding.run in common] for side in (base, head)
    )
    pairs: list[tuple[m.Finding, m.Finding]] = []
    for name in (_by_fingerprint, _by_line, _by_function):
        matched, before, after = _matched(before, after, name, base, head)
        pairs += matched
    moved: list[tuple[m.Finding, m.Finding]] = []
    for name in (_by_text, _by_text_without_names):
        matched, before, after = _matched(before, after, name, base, head)
        moved += matched
    compared = []
    for finding in after:
        row = _judged(m.FindingStatus.NEW, finding, 0, finding.count, base)
        is_new = row.is_new
        compared.append(replace(row, fails=is_new and would_fail(finding, fail_on)))
    new = {
        finding.fingerprint: _SEVERITY[finding.level] for finding in after if finding.fingerprint
    }
    for finding in before:
        # what became severer is new, and was not fixed
        if new.get(finding.fingerprint, _SEVERITY[finding.level]) < _SEVERITY[finding.level]:
            continue
        compared.append(_judged(m.FindingStatus.FIXED, finding, finding.count, 0, head))
    for was, finding in pairs:
        compared.append(_judged(m.FindingStatus.UNCHANGED, finding, was.count, finding.count))
    for was, finding in moved:
        row = _judged(m.FindingStatus.MOVED, finding, was.count, finding.count)
        place = was.location or _NOWHERE
        place = replace(place, file=shared(place.file, base.source_root))
        compared.append(replace(row, moved_from=place))

    def order(each: m.ComparedFinding) -> tuple[object, ...]:
        finding = each.finding
        return (
            _STATUS[each.status],
            _SEVERITY[finding.level],
            finding.rule,
            *_order_within(finding),
        )

    return tuple(sorted(compared, key=order))


def would_fail(finding: m.Finding, fail_on: str) -> bool:
    """Say whether it fails the comparison, if it is new."""
    severe = finding.level in _LEVELS[fail_on] and not finding.accepted
    return severe and not rule_of(finding).judged_from_times


def _judged(
    status: m.FindingStatus,
    finding: m.Finding,
    base_count: int,
    head_count: int,
    other: m.Profile | None = None,
) -> m.ComparedFinding:
    """``other``: the side that does not have it; None where both have."""
    row = m.ComparedFinding(status, finding, base_count, head_count)
    missing = other and coverage.missing(other.coverage, finding.run, finding.rule)
    if not missing:
        return row
    side = "head" if base_count else "base"
    return replace(row, status=m.FindingStatus.NOT_LOOKED_FOR, escaped=side, missing=missing)


def _matched(
    before: m.Findings,
    after: m.Findings,
    name: _Name,
    base: m.Profile,
    head: m.Profile,
) -> tuple[list[tuple[m.Finding, m.Finding]], list[m.Finding], list[m.Finding]]:
    """Pairs of one name, and what is left of either side. Several of one name are paired in a fixed
    order."""
    there: dict[Hashable, list[m.Finding]] = defaultdict(list)
    for finding in sorted(before, key=_order_within):
        there[name(finding, base.source_root)].append(finding)
    pairs: list[tuple[m.Finding, m.Finding]] = []
    new: list[m.Finding] = []
    for finding in sorted(after, key=_order_within):
        named = name(finding, head.source_root)
        if named is not None and there[named]:
            pairs.append((there[named].pop(0), finding))
        else:
            new.append(finding)
    return pairs, [finding for left in there.values() for finding in left], new


def _by_fingerprint(finding: m.Finding, root: str) -> Hashable:
    """With the level: a note that has become a warning is one note less and a new warning."""
    if not finding.fingerprint:
        return _by_line(finding, root)
    return finding.fingerprint, finding.level


def _by_line(finding: m.Finding, root: str) -> Hashable:
    place = finding.location or _NOWHERE
    return *_by_function(finding, root), place.text.strip()


def _by_function(finding: m.Finding, root: str) -> tuple[Hashable, ...]:
    place = finding.location or _NOWHERE
    where = (shared(place.file, root), place.function)
    message = _FIGURES.sub(r"#\g<noun>", finding.message)
    return finding.rule, finding.level, finding.run, *where, message


def _by_text(finding: m.Finding, root: str) -> Hashable:
    """Wherever the line is; None without a line's text: it is like no other."""
    place = finding.location or _NOWHERE
    if not place.text.strip():
        return None
    message = _FIGURES.sub(r"#\g<noun>", finding.message)
    return finding.rule, finding.level, finding.run, place.text.strip(), message


def _by_text_without_names(finding: m.Finding, root: str) -> Hashable:
    """The names of its own function and file in a message say where it is, not what it is."""
    place = finding.location or _NOWHERE
    names = (place.function, place.function.rpartition(".")[2], shared(place.file, root))
    own = "|".join(re.escape(name) for name in names if name) or "$"
    message = re.sub(rf"(?<!\w)(?:{own})(?!\w)", "_", finding.message)
    return _by_text(replace(finding, message=message), root)


def _order_within(finding: m.Finding) -> tuple[object, ...]:
    place = finding.location or _NOWHERE
    slug = ""
    if finding.run:
        slug = finding.run.slug
    return slug, place.file, place.line, place.function, finding.message, finding.fingerprint
