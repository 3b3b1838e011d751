"""Whether the owner of a program can act on a finding: it says what to do, and to which line, call
or operator.

Where the cause lies in a library, the rule's remedy is of code that the owner cannot change: it has
to say what to write in the program, or it is a note that says why there is nothing to write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from kgprof import collectors
from kgprof import model as m
from kgprof.collectors.compile import graph_breaks, skipped_frames
from kgprof.collectors.graphs import cuda_graphs, small_cuda_graphs
from kgprof.collectors.time import syncs
from kgprof.collectors.trust import disagreements

READING = frozenset(rule.id for rule in syncs.RULES)
REFUSING = frozenset(rule.id for rule in (*graph_breaks.RULES, *skipped_frames.RULES))
# What these find is about the run, not about a line of it.
OF_THE_RUN = frozenset(
    {
        *(cuda_graphs.NONE_LAUNCHED.id, disagreements.SOURCES_DISAGREE.id),
        *(rule.id for rule in small_cuda_graphs.RULES),
        *(
            rule.id
            for rule in collectors.RULES
            if rule.topic in {m.Topic.COVERAGE, m.Topic.RESULTS, m.Topic.TIME}
        ),
    }
)


def given(findings: Collection[m.Finding]) -> Counter[str]:
    """What the owner can do about them, counted."""
    asking = [one for one in findings if one.level is not m.Level.NOTE]
    return Counter(
        findings=len(findings),
        with_action=len(asking) - len(without_action(asking)),
        in_a_library=sum(one.library is not None and bool(one.fix) for one in asking),
        notes=len(findings) - len(asking),
        counted=sum(one.level is m.Level.NOTE and one.counts for one in findings),
    )


def words(advice: Counter[str]) -> str:
    actions = (
        f"{advice['with_action']} with an action ({advice['in_a_library']} in a library, as code)"
    )
    notes = f"{advice['notes']} notes ({advice['counted']} that budgets count)"
    return f"{advice['findings']} findings, {actions}, {notes}"


def without_action(findings: Iterable[m.Finding]) -> tuple[str, ...]:
    """The findings that ask for something and lack what to do or where; a note asks for nothing."""
    return tuple(
        f"{one.rule} {one.message}: no {', no '.join(lacking)}"
        for one in findings
        if (one.level is not m.Level.NOTE or one.no_fix) and (lacking := (*_lacking(one),))
    )


def _lacking(finding: m.Finding) -> Iterator[str]:
    if finding.no_fix:
        # of a line of the program it may be what to do, in words
        if finding.level is not m.Level.NOTE and finding.library is not None:
            yield "level of a note, though nothing can be done"
        return
    if not (finding.fix or collectors.rule_of(finding).remedy):
        yield "fix"
    if finding.location is None and finding.rule not in OF_THE_RUN:
        yield "line of the program"
    if finding.library is not None and not (finding.library.line and finding.library.file):
        yield "line of the library"
    if finding.library is not None and not finding.fix:
        yield "fix that its owner can write"
    if finding.rule in READING and not (finding.reads and finding.reads.operator):
        yield "operator that reads"
    if finding.rule in REFUSING and not (
        finding.refusal and (finding.refusal.cause.operator or finding.refusal.cause.kind)
    ):
        yield "call that torch refused"
