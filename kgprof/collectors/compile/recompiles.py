"""KGP103, KGP104, KGP105: functions that are compiled again, because of which guard, and whether it
ever ends.

    RunTrace ──recompiled_functions──► RecompiledFunction ──diagnose──► one rule's finding at most,
                                                                        and notes beside it

Of the rules the first that holds speaks: every call brought a new value (KGP105), the limit was
reached (KGP104), it was compiled after the warm-up (KGP103). A recompile that happened once, in the
warm-up, or because of a graph break, which has a finding of its own, is a note of KGP103.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.compile.graph_breaks import numbered
from kgprof.collectors.compile.guard_words import used_in
from kgprof.collectors.compile.recompile_causes import Recompile, cause_of
from kgprof.collectors.compile.recompile_limit import LimitReached
from kgprof.collectors.compile.recompiled_functions import (
    RecompiledFunction,
    known_s,
    recompiled_functions,
)
from kgprof.collectors.compile.remedies import are_of_parameters, room_for_all
from kgprof.collectors.compile.tried_settings import in_vain, is_tried
from kgprof.collectors.event import finding
from kgprof.collectors.fingerprint import grouped
from kgprof.collectors.guard_text import Guard
from kgprof.reading.evidence import Evidence
from kgprof.reading.structured_trace import RunTrace
from kgprof.wording import and_more, clause, in_steps, plural, step_name

IN_STEADY_STATE = m.Rule(
    id="KGP103",
    name="recompile-in-steady-state",
    level=m.Level.WARNING,
    summary=(
        "A function was compiled again after the warm-up calls, because a guard on "
        "its inputs failed."
    ),
    why=(
        "The call with the new value waits for a whole compilation, which takes seconds while a "
        "step takes milliseconds, and later calls have one more cache entry to check. A recompile "
        "that happens only once (the first smaller batch, the first evaluation under no_grad, each "
        "change of a flag) is a note and counts against no budget; so are recompiles in the "
        "warm-up calls (a size that becomes dynamic)."
    ),
    example=(
        "A temperature that is an attribute of the module falls with every epoch: "
        "self.temperature *= 0.9."
    ),
    remedy=(
        "Give the compiled function the same kind of input in every call, or tell torch in "
        "advance: torch._dynamo.mark_dynamic(tensor, dim) or dynamic=True for a size that no line "
        "needs as a number, a 0-d tensor for a number that is only added or multiplied, a "
        "warm-up call with each value of a flag."
    ),
    topic=m.Topic.COMPILATION,
    seen_in=((m.Witness.COMPILE, m.Witness.STEADY_CALLS),),
    can_cost=(m.CostKind.HOST, m.CostKind.COPIES, m.CostKind.LAUNCHES),
    relieves=(m.LimitKind.RECOMPILING, m.LimitKind.HOST),
)
LIMIT_REACHED = m.Rule(
    id="KGP104",
    name="recompile-limit-reached",
    level=m.Level.WARNING,
    summary=(
        "A function reached torch's recompile limit; from then on new inputs silently run eagerly."
    ),
    why=(
        "At the limit (8 per function by default) torch stops compiling the function. Inputs that "
        "fit none of the compiled entries run eagerly, with everything that the function calls, "
        "and no later message says so: the program is as slow as without torch.compile and has "
        "paid for eight compilations."
    ),
    example=(
        "dynamic=False with bucketed sequence lengths: more buckets than "
        "torch._dynamo.config.recompile_limit."
    ),
    remedy=(
        "Reduce the number of different values: a size that no line needs as a number can be "
        "dynamic (torch._dynamo.mark_dynamic, dynamic=True), a number that is only added "
        "or multiplied a 0-d tensor. Or compile separate functions for them. Raising "
        "torch._dynamo.config.recompile_limit only helps if the number of values is known."
    ),
    topic=m.Topic.COMPILATION,
    seen_in=((m.Witness.COMPILE,),),
    can_cost=(m.CostKind.HOST, m.CostKind.LAUNCHES, m.CostKind.COPIES, m.CostKind.REPLACED),
    relieves=(m.LimitKind.RECOMPILING, m.LimitKind.LAUNCHES, m.LimitKind.HOST),
)
UNBOUNDED = m.Rule(
    id="KGP105",
    name="unbounded-recompile",
    level=m.Level.WARNING,
    summary="Every call brings a value that the function was not compiled for.",
    why=(
        "A guard checks something that is new in each call: a counter or step number, a list that "
        "grows, a new string, a size under dynamic=False. Every call compiles until the limit is "
        "reached, no compiled code is used twice, and after that every call runs eagerly."
    ),
    example=(
        "def forward(self, x): self.calls += 1 -- an int attribute of a module is a "
        "constant to torch."
    ),
    remedy=(
        "Keep what changes in every call out of the guards: a counter in the caller; a 0-d tensor "
        "in place of a number that is only added or multiplied; the slice itself in place of "
        "a number that slices or counts the turns of a loop; functions and strings made once, "
        "outside; a size marked dynamic, if no line needs it as a number. An optimizer whose "
        "gradients are None in some calls is better left out of torch.compile, with fused=True."
    ),
    topic=m.Topic.COMPILATION,
    seen_in=((m.Witness.COMPILE, m.Witness.STEADY_CALLS, m.Witness.CALLS),),
    can_cost=(m.CostKind.HOST, m.CostKind.COPIES, m.CostKind.LAUNCHES),
    relieves=(m.LimitKind.RECOMPILING, m.LimitKind.HOST),
)
RULES = (IN_STEADY_STATE, LIMIT_REACHED, UNBOUNDED)
SHOWN = 3  # things that a sentence names
# What tells a note from the rule's finding, as fingerprints have it.
WARM_UP, AFTER_A_BREAK = "converged", "after a break"
UNKNOWN_CALLS = " (calls are not in this recording, so whether it ended is unknown)"


def collect(evidence: Evidence) -> tuple[RecompiledFunction, ...]:
    return tuple(event for trace in evidence.compilers for event in recompiled_functions(trace))


def ledger(events: Sequence[RecompiledFunction], trace: RunTrace) -> tuple[m.RecompileEntry, ...]:
    """Every recompile of a run, and each time that torch's limit stood against one, in the order of
    the calls."""
    own = (event for event in events if event.run == trace.run)
    entries = [entry for event in own for entry in _entries(event)]
    if not trace.calls:  # no call was told from another
        return tuple(replace(entry, call=None, steady=False) for entry in entries)
    return tuple(sorted(entries, key=lambda entry: entry.call or 0))


def _entries(event: RecompiledFunction) -> Iterator[m.RecompileEntry]:
    for recompile in event.recompiles:
        yield m.RecompileEntry(
            compile_id=recompile.compile_id,
            location=event.location,
            call=recompile.call,
            steady=event.is_steady(recompile),
            reason=recompile.words,
            words=recompile.guard.text,
            guard=recompile.guard.kind,
            duration_s=recompile.duration_s,
            call_site=recompile.call_site,
            function=event.function,
            library=event.library,
        )
    if event.limit is not None:
        yield _refused(event, event.limit)


def _refused(event: RecompiledFunction, limit: LimitReached) -> m.RecompileEntry:
    guard = limit.guard or Guard(kind="", entry="")
    return m.RecompileEntry(
        compile_id="",
        location=event.location,
        call=limit.call,
        steady=limit.call >= event.steady_from,
        reason=limit.words,
        words=guard.text,
        guard=guard.kind,
        duration_s=m.Skipped("torch's recompile limit was reached: nothing was compiled"),
        refused=True,
        function=event.function,
        library=event.library,
    )


def diagnose(events: tuple[RecompiledFunction, ...]) -> tuple[m.Finding, ...]:
    return tuple(found for _, found in _judged(events))


def eager_by_finding(evidence: Evidence, run: m.RunKey) -> dict[str, int | m.Skipped]:
    """Calls after warm-up that ran eagerly because of the limit, by the fingerprint of the finding
    that says so. Of a part behind a graph break, calls of the workload in which it did."""
    by_finding: dict[str, int | m.Skipped] = {}
    for event, found in _judged(evidence.once(collect)):
        limit = event.limit
        if event.run == run and limit is not None and limit.eager_steady:
            by_finding[found.fingerprint] = limit.eager_steady
    return by_finding


def _judged(
    events: tuple[RecompiledFunction, ...],
) -> Iterator[tuple[RecompiledFunction, m.Finding]]:
    for event, ordinal in numbered(events):
        for found in _judge(replace(event, identity=f"{event.identity}{ordinal}")):
            yield event, found


def _judge(event: RecompiledFunction) -> Iterator[m.Finding]:
    """One rule at most a function; what recompiled during warm-up is a note of its own."""
    if event.limit is None and not event.calls_known:
        yield _finding(IN_STEADY_STATE, event, UNKNOWN_CALLS, WARM_UP)
    elif event.every_value_new:
        yield _finding(UNBOUNDED, event)
    elif event.limit is not None:
        yield _finding(LIMIT_REACHED, event)
    else:
        yield from _of_breaks(event)
        yield from _of_guards(event)


def _of_breaks(event: RecompiledFunction) -> Iterator[m.Finding]:
    """What the line of a graph break returned is a constant of the code behind it. The break is the
    cause, and has a finding of its own."""
    returned = [recompile for recompile in event.recompiles if recompile.returned_by]
    for same in grouped(returned, lambda recompile: recompile.returned_by):
        yield _finding(IN_STEADY_STATE, _only(event, same), apart=AFTER_A_BREAK)


def _of_guards(event: RecompiledFunction) -> Iterator[m.Finding]:
    again, once, before = [], [], []
    for recompile in event.recompiles:
        if recompile.returned_by:
            continue
        if not event.is_steady(recompile):
            before.append(recompile)
        elif recompile.once:
            once.append(recompile)
        else:
            again.append(recompile)
    if again:
        yield _finding(IN_STEADY_STATE, _only(event, again))
    if once:
        apart = "once" if again else ""
        note = _finding(IN_STEADY_STATE, _only(event, once), apart=apart)
        yield replace(note, level=m.Level.NOTE, one_off=True)
    if before:
        early = _only(event, before)
        yield _finding(IN_STEADY_STATE, early, _first_calls(early), WARM_UP)


def _only(event: RecompiledFunction, recompiles: Sequence[Recompile]) -> RecompiledFunction:
    """The function with those of its recompiles that one finding is about."""
    return replace(event, recompiles=tuple(recompiles))


def _first_calls(event: RecompiledFunction) -> str:
    """Which first calls its recompiles came in."""
    if all(each.call < event.steady_from for each in event.recompiles):
        return ", during warm-up"
    if all(each.begins for each in event.recompiles):
        return ", each in the first steps of its module"
    return ", during warm-up or in the first steps of its module"


# ---------------------------------------------------------------- a finding of all its recompiles


def _finding(
    rule: m.Rule, event: RecompiledFunction, first_calls: str = "", apart: str = ""
) -> m.Finding:
    """``first_calls``: which of them, that end; such a finding is a note, as is what a graph break
    causes, which has a finding of its own. ``apart``: what tells it from another finding of the
    same rule and function."""
    guards = _guards(event)
    identity = [event.identity]
    if apart:
        identity.insert(0, apart)
    if apart not in (WARM_UP, AFTER_A_BREAK):
        identity += sorted({guard.kind for guard in guards})
    level = rule.level
    breaks = [each.returned_by for each in event.recompiles if each.returned_by]
    if first_calls or len(breaks) == len(event.recompiles) > 0:
        level = m.Level.NOTE
    detail = _detail(event)
    fix = _advice(rule, event, apart)
    return finding(
        rule,
        replace(event, location=_location(event)),
        f"{event.name} recompiled {_times(event)}{first_calls}{_because_of(breaks, event)}"
        f"{_why(event)}{_at_the_limit(event)}{in_vain(event.tried, detail)}",
        *identity,
        level=level,
        library=_shown_library(event),
        count=max(1, len(event.recompiles)),
        related=_related(event),
        detail=detail,
        cost=_cost(event.recompiles),
        fix=fix,
        tried=is_tried(fix, event.tried),
        names=tuple(dict.fromkeys(guard.source for guard in guards if guard.source)),
    )


def _guards(event: RecompiledFunction) -> Sequence[Guard]:
    """What its recompiles failed on; without any, the call that the limit stood against."""
    if event.limit is not None and not event.recompiles:
        return event.limit.rejected[:1]
    return [recompile.guard for recompile in event.recompiles]


def _location(event: RecompiledFunction) -> m.Location | None:
    """Of a library's function the line of the project that called it each time, if it is one."""
    lines = {recompile.call_site for recompile in event.recompiles}
    if event.is_of_library and len(lines) == 1:
        return lines.pop() or event.location
    return event.location


def _shown_library(event: RecompiledFunction) -> m.PackageLine | None:
    """torch's own function around modules says nothing to their owner."""
    library = event.library
    if event.modules and library is not None and library.package == "torch":
        return None
    return library


def _times(event: RecompiledFunction) -> str:
    words = plural(len(event.recompiles), "time")
    if event.recompiles and event.calls_known:
        words += f" {in_steps({recompile.call for recompile in event.recompiles})}"
    seconds = known_s(event.recompiles)
    if seconds:
        words += f", {sum(seconds):.2f} s"
    return words


def _because_of(breaks: Sequence[m.Location], event: RecompiledFunction) -> str:
    """Names the lines of the breaks, which lie in the file of the function itself."""
    if not breaks:
        return ""
    lines = dict.fromkeys(str(place.line) for place in breaks)
    words = f"because of the graph break at line {', '.join(lines)}"
    if event.library:
        words += f" of {event.library.file}"
    if len(breaks) < len(event.recompiles):
        return f", in part {words}"
    return f", {words}"


def _why(event: RecompiledFunction) -> str:
    """What failed, the first guard on each thing and dimension, with the line that used its
    value. What the others on it expected and got is not said."""
    if event.limit is not None and not event.recompiles:
        return f": {event.limit.words}"
    firsts = [same[0] for same in grouped(event.recompiles, lambda each: cause_of(each.guard))]
    # what the line of a break holds is told where it comes from, if that is known
    told = {_change(each.guard) for each in firsts if not each.guard.is_held}
    words: dict[str, None] = {}
    for first in firsts:
        if first.guard.is_held and _change(first.guard) in told:
            continue
        used = "" if first.returned_by else used_in(first.used, event.location)
        words[f"{first.words}{used}"] = None
    lead = "; among the causes: " if len(event.recompiles) > 1 else ": "
    return f"{lead}{'; '.join([*words][:SHOWN])}{and_more(words, SHOWN)}"


def _change(guard: Guard) -> tuple[str, int | None, str, str]:
    return guard.kind, guard.dimension, guard.expected, guard.actual


def _at_the_limit(event: RecompiledFunction) -> str:
    if event.limit is None:
        return ""
    words = "; torch's limit was reached"
    if event.calls_known:
        words += f" {in_steps([event.limit.call])}{_eager_calls(event.limit)}"
    if event.wraps:
        words += "; everything that is called through this wrapper of torch's shares the limit"
    return words


def _eager_calls(limit: LimitReached) -> str:
    if limit.idle_calls:
        return f"; no graph of it ran in the {plural(limit.idle_calls, 'call')} since then"
    if isinstance(limit.eager_calls, m.Skipped):
        return "; how often it ran eagerly since then is not known"
    if not limit.eager_calls:
        return ""
    if limit.calls_since is None:
        since = plural(limit.eager_calls, "call")
        return f"; in {since} since then it, or a part of it, ran eagerly or was not called"
    calls = plural(limit.calls_since, "call")
    since = f"{in_steps([limit.call])} and later"  # with those of that step before the limit
    which = clause(": ", limit.eager_names)
    return f"; {limit.eager_calls:,} of its {calls} {since} ran eagerly{which}"


def _detail(event: RecompiledFunction) -> str:
    """torch's own sentence for each, one a line, and below them its hints."""
    lines = []
    for recompile in event.recompiles:
        call = f"{step_name(recompile.call)}, " if event.calls_known else ""
        lines.append(f"{call}{recompile.compile_id}: {recompile.guard.text}")
    lines += dict.fromkeys(f"Hint: {guard.hint}" for guard in _guards(event) if guard.hint)
    return "\n".join(lines)


def _related(event: RecompiledFunction) -> tuple[m.Location, ...]:
    """The break that a value came from, the lines that used one, the calls that recompiled. A break
    in a library is no place of the project."""
    places = [each.returned_by for each in event.recompiles if not event.library]
    places += [each.used for each in event.recompiles]
    places += [each.call_site for each in event.recompiles]
    return tuple(dict.fromkeys(place for place in places if place))


def _cost(recompiles: Sequence[Recompile]) -> m.FindingCost | m.Skipped:
    """The compilations that the finding counts; calls that ran in eager since are not in it."""
    if not recompiles:
        return m.Skipped("it was not compiled again")
    known = known_s(recompiles)
    lacking = len(recompiles) - len(known)
    if lacking:
        return m.Skipped(f"torch gave no duration for {plural(lacking, 'compilation')}")
    what = "compile time in all"
    return m.FindingCost(
        value=sum(known), unit="s", what=what, measured_in=(m.PassName.COMPILE,), samples=len(known)
    )


def _advice(rule: m.Rule, event: RecompiledFunction, apart: str) -> str:
    """The remedy for what failed; at the limit, if there is none or the modules that share the code
    have parameters of several sizes, room for all of these."""
    if apart == WARM_UP and event.calls_known:
        return ""
    if rule is not LIMIT_REACHED or event.limit is None:
        return _fix(event)
    room = room_for_all(event.limit.modules)
    if room and are_of_parameters([recompile.guard for recompile in event.recompiles]):
        return room
    return _fix(event) or room


def _fix(event: RecompiledFunction) -> str:
    """For the cause of most of the recompiles, and of half of them at least: a fix for another one
    would leave most of them. What it leaves is said."""
    if event.limit is not None and not event.recompiles:
        return event.limit.fix
    causes = Counter(each.fix or cause_of(each.guard) for each in event.recompiles)
    most = max(causes.values())
    if 2 * most < len(event.recompiles):
        return ""
    for fix, times in causes.items():
        if isinstance(fix, str) and times == most:
            alone = "; other causes may stay" if len(causes) > 1 else ""
            return f"{fix}{alone}"
    return ""
