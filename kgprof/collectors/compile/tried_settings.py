"""What a setting of torch does for one run's finding, where it was tried: the same program ran with
it, in a process in which nothing of kgprof's listened.

A setting that torch's hint names may also end the program, or move a break to the next line. So it
is offered only where the trial shows that it helps, and then the fix says what it did.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from kgprof import model as m
from kgprof.collectors.compile.graph_breaks import break_records, outside_dynamo
from kgprof.reading.code_counts import code_counts, code_of, graph_count
from kgprof.reading.dynamo_settings import settings_in
from kgprof.reading.structured_trace import Compiled, RunTrace
from kgprof.wording import clause, plural

NOT_TRIED = "not tried"
COMMENT = "  # "  # between the code of a fix and what it changes
# a run without a setting and one with it differ by so much by chance
SLOWER = 1.25
SLOWER_S = 0.05
LIMIT = 8  # torch._dynamo.config.recompile_limit, if the program does not set it
_Line = tuple[str, int]
_Failure = tuple[m.SourceLine, str]


class TriedSettings:
    """The trials of one run beside its COMPILE pass."""

    def __init__(self, trace: RunTrace) -> None:
        self._trace = trace

    def of_break(
        self, finding: m.Finding, *, falls_back: bool, doubted: Collection[str] = ()
    ) -> Mapping[str, str]:
        """Return for each setting that was tried what it does for a break; empty where that is no
        help. ``falls_back``: the function ran eagerly, so that more graphs are no loss;
        ``doubted``: settings that the text of the program speaks against, of which the trial has
        to show more than a break less."""
        effects = {}
        for name, control in self._by_name:
            helps = self._mends(control, finding, falls_back=falls_back)
            is_shown = name not in doubted or self._is_better(control)
            effects[name] = self._words(control) if helps and is_shown else ""
        return effects

    def of_code(self, compiled: Sequence[Compiled]) -> Mapping[str, str]:
        """The same for a function that is compiled again and again."""
        before = sum(count.times for count in code_counts(each.metrics for each in compiled))
        codes = {code_of(each.metrics) for each in compiled if not each.failed}
        return {
            name: self._compiled_less(control, codes, before) for name, control in self._by_name
        }

    def _mends(self, control: m.Control, finding: m.Finding, *, falls_back: bool) -> bool:
        lines = {(line.file, line.line) for line in control.breaks}
        return (
            self._ends_as_well(control)
            and not lines & _lines_of(finding)
            and len(lines) < len(self._broken)
            and (falls_back or control.graphs <= self._graphs)
        )

    def _is_better(self, control: m.Control) -> bool:
        """Tell whether no break is left, or graphs were joined. Else the next break may stand
        before the line that needs the value, and hide what the setting does to it."""
        return not control.breaks or control.graphs < self._graphs

    def _words(self, control: m.Control) -> str:
        graphs = plural(control.graphs, "graph")
        if control.graphs < self._graphs:
            return f"tried: {graphs} instead of {self._graphs:,}"
        return f"tried: {graphs}, no break at this line"

    def _compiled_less(self, control: m.Control, codes: Iterable[m.SourceLine], before: int) -> str:
        if not self._ends_as_well(control):
            return ""
        times = {count.code: count.times for count in control.counts}
        after = sum(times.get(code, 0) for code in codes)
        if not 0 < after < before:
            return ""
        return f"tried: compiled {plural(after, 'time')} instead of {before:,}"

    def _ends_as_well(self, control: m.Control) -> bool:
        """Tell whether nothing fails that did not fail before, which a program may catch, nothing
        else is compiled up to torch's limit, as a function that a mended break is now part of, and
        what is compiled runs no longer than without the setting."""
        is_whole = control.exit.outcome is m.Outcome.OK
        is_bounded = _at_the_limit(control.counts) <= _at_the_limit(self._counts)
        fails_as_before = _failures(control.counts) <= _failures(self._counts)
        return is_whole and is_bounded and fails_as_before and not self._is_slower(control)

    def _is_slower(self, control: m.Control) -> bool:
        """Tell whether the run took longer than the one without a setting, or whether that is not
        known, because the latter did not end well. Old Recordings have none."""
        without = [each for each in self._trace.setting_trials if each.setting is None]
        return any(
            each.exit.outcome is not m.Outcome.OK
            or control.compiled_s > each.compiled_s * SLOWER + SLOWER_S
            for each in without
        )

    @property
    def _by_name(self) -> Iterator[tuple[str, m.Control]]:
        for control in self._trace.setting_trials:
            if control.setting is not None:
                yield control.setting.name, control

    @cached_property
    def _broken(self) -> frozenset[_Line]:
        stopped = [record.stopped for record in break_records(self._trace)]
        return frozenset((place.file, place.line) for place in stopped if place is not None)

    @cached_property
    def _graphs(self) -> int:
        return graph_count(each.metrics for each in self._trace.compiled)

    @cached_property
    def _counts(self) -> tuple[m.CodeCount, ...]:
        return code_counts(each.metrics for each in self._trace.compiled)


def where_it_helped(fix: str, tried: Mapping[str, str], untried: str = "") -> str:
    """Return a fix; of one that makes a setting the code and what that did here, and nothing where
    a trial showed no help. ``untried``: what is said where none ran; empty: nothing is returned."""
    code, _, comment = fix.partition(COMMENT)
    effects = [tried.get(setting.name, untried) for setting in settings_in(code)]
    if not all(effects):
        return ""
    return code + clause(COMMENT, "; ".join(effects) or comment)


def is_tried(fix: str, tried: Mapping[str, str]) -> bool:
    """Tell whether a fix's comment says what a trial of its setting did."""
    return any(effect and effect in fix for effect in tried.values())


def in_vain(tried: Mapping[str, str], text: str) -> str:
    """What a sentence adds about the settings that torch names in ``text`` and of which no trial
    alone showed that they are enough: one may have been cut off by its time limit, and another
    may mend a part of the line."""
    names = (name for name, effect in tried.items() if not effect and name in text)
    return clause("; tried alone, and not offered: ", ", ".join(names))


def _lines_of(finding: m.Finding) -> set[_Line]:
    """The line of the program, and that at which torch stopped."""
    stack = outside_dynamo(finding.refusal.stack) if finding.refusal is not None else ()
    places = (finding.location, *stack[-1:])
    return {(place.file, place.line) for place in places if place is not None}


def _at_the_limit(counts: Iterable[m.CodeCount]) -> frozenset[m.SourceLine]:
    return frozenset(count.code for count in counts if count.times >= LIMIT)


def _failures(counts: Iterable[m.CodeCount]) -> frozenset[_Failure]:
    return frozenset((count.code, kind) for count in counts for kind in count.failures)
