"""Which side a commit between GOOD and BAD belongs to: by the exact difference that those two show,
or by the limits that BAD exceeds. Pure."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from kgprof import model as m
from kgprof.compare.verdict import metric_words
from kgprof.compare.work import RUNS, in_words
from kgprof.errors import EXIT_INCONCLUSIVE, EXIT_OK
from kgprof.wording import and_more, clause, plural, short

LISTED = 10  # commits and files that a sentence names

Key = tuple[m.RunKey, str]  # of a row or a metric: the run, and its name
Verdict = tuple[m.BisectVerdict, str]  # and what it stands on, if there is more to say


def next_commit(halving: Sequence[str], bad: str, skipped: Collection[str]) -> str | None:
    """The one that leaves the fewest. Beside skipped ones it is further away the more there are,
    since what broke one commit broke its neighbours. None where no other one is left."""
    usable = [each for each in halving if each != bad and each not in skipped]
    passed_over = sum(each in skipped for each in halving)
    return next(iter(usable[2**passed_over - 1 :] or usable[-1:]), None)


# ---------------------------------------------------------------- without a clock


def deciding_rows(found: m.Comparison) -> dict[Key, m.WorkRow]:
    """Of GOOD and BAD: the rows in which they differ. Numbers of what runs are enough where there
    are some: other commits change what stands behind a number more often than the number."""
    differing = {key: row for key, row in _rows(found).items() if row.differs is True}
    running = {key: row for key, row in differing.items() if row.aspect in RUNS}
    numbers = {key: row for key, row in running.items() if row.base != row.head}
    return numbers or running or differing


def by_work(
    deciding: Collection[Key], against_good: m.Comparison, against_bad: m.Comparison
) -> Verdict:
    """Bad: it has BAD's in one of the rows, so that a change lies before it; good: it has GOOD's in
    all of them."""
    if against_good.environment:
        changed = ", ".join(each.name for each in against_good.environment)
        return m.BisectVerdict.SKIPPED, f"another environment than GOOD's: {changed}"
    if _equal(against_bad).intersection(deciding):
        return m.BisectVerdict.BAD, ""
    others = set(deciding) - _equal(against_good)
    if others:
        names = ", ".join(sorted({name for _, name in others}))
        return m.BisectVerdict.SKIPPED, f"neither as in GOOD nor as in BAD: {names}"
    return m.BisectVerdict.GOOD, ""


def _rows(found: m.Comparison) -> dict[Key, m.WorkRow]:
    return {
        (run.run, row.name): row
        for run in found.runs
        if isinstance(run.work, m.ComparedWork)
        for row in run.work.rows
    }


def _equal(found: m.Comparison) -> set[Key]:
    return {key for key, row in _rows(found).items() if row.differs is False}


def row_words(row: m.WorkRow) -> str:
    """Of one in which two known sides differ."""
    if row.base == row.head:
        return f"{row.name} (as many, but others)"
    base, head = (short(m.known(side), 4) for side in (row.base, row.head))
    return f"{row.name} {base} -> {head}"


# ---------------------------------------------------------------- by limits


def worse_metrics(found: m.Comparison) -> dict[Key, m.ComparedMetric]:
    """Those in which BAD exceeds a limit."""
    metrics = _limited(found)
    return {key: each for key, each in metrics.items() if each.verdict is m.MetricVerdict.WORSE}


def _limited(found: m.Comparison) -> dict[Key, m.ComparedMetric]:
    return {
        (run.run, metric.name): metric
        for run in found.runs
        for metric in run.metrics
        if metric.decides
    }


def by_limits(deciding: Collection[Key], against_good: m.Comparison) -> Verdict:
    """By the worst of the metrics."""
    metrics = [each for key, each in _limited(against_good).items() if key in deciding]
    words = {metric.verdict: metric_words(metric) for metric in reversed(metrics)}
    if m.MetricVerdict.WORSE in words:
        return m.BisectVerdict.BAD, words[m.MetricVerdict.WORSE]
    if m.MetricVerdict.INCONCLUSIVE in words:
        return m.BisectVerdict.INCONCLUSIVE, words[m.MetricVerdict.INCONCLUSIVE]
    if m.MetricVerdict.NOT_OBSERVED in words or len(metrics) < len(deciding):
        return m.BisectVerdict.SKIPPED, "not everything with a limit was measured"
    return m.BisectVerdict.GOOD, ", ".join(words.values())


# ---------------------------------------------------------------- in words


def changed_line(found: m.Comparison) -> m.Location | None:
    """The first that a difference is put down to."""
    return next(filter(None, (each.changed for each in found.differences)), None)


def told(profile: m.Profile, found: m.Bisect) -> m.Profile:
    """The comparison of a good commit and the first bad one that is known, with the bisect's
    verdict and exit code."""
    compared = profile.comparison
    assert compared is not None
    recorded = plural(sum(each.recorded for each in found.tried), "recording")
    if found.why_open:
        verdict = m.Verdict(
            status=m.VerdictStatus.INCONCLUSIVE, text=f"not decided: {found.why_open}"
        )
        if found.looked_for:  # else BAD is not known to be bad
            remaining = [commit[: m.SHORT_COMMIT] for commit in found.remaining]
            one_of = f"one of {plural(len(remaining), 'commit')}: {_listed(remaining)}"
            verdict = replace(verdict, reasons=(one_of,))
    else:
        last = [each.named for each in found.tried if each.verdict is m.BisectVerdict.BAD][-1]
        verdict = m.Verdict(
            status=m.VerdictStatus.OK,
            text=f"{last} is the first bad commit",
            reasons=(f"authored {found.authored}", f"it changed {_listed(found.files)}"),
        )
    sure = f"{recorded}{clause('; between GOOD and BAD: ', _listed(found.looked_for))}"
    work = filter(None, [in_words(compared, profile.source_root)])
    notes = [each.words for each in found.tried]
    return replace(
        profile,
        comparison=replace(compared, bisect=found, notes=(*notes, *compared.notes)),
        verdict=replace(verdict, trust=sure, reasons=(*verdict.reasons, *work)),
        exit_code=EXIT_INCONCLUSIVE if found.why_open else EXIT_OK,
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED]) + and_more(names, LISTED)
