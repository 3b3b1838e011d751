"""The trend of a history: a recording becomes the file that is added to it, and such files in their
order become lines with their changes.

Times change by ``change_points``, counts and sizes as a comparison says it of two recordings.
Recordings in one environment are a series of their own: what another torch or machine does is no
commit's work. A recording without a value is a gap.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from msgspec.structs import replace

from kgprof import model as m
from kgprof._version import __version__
from kgprof.compare import DEFAULT_BUDGETS, surroundings, workload_of
from kgprof.compare.change_points import FEWEST_VALUES, Change, changes
from kgprof.compare.findings import compared_findings
from kgprof.compare.metrics import COUNTS, TIMES, Count, Sides, metrics
from kgprof.judge import Samples

CHECK_LOOP = "CPU check loop"  # the machine itself: where it changes, no commit need have done it
_ANY = Count("", "", lambda run: 0.0, None)  # of which more is worse: a time
_COUNTS = {count.name: count for count in COUNTS if count.unit != "s"}
_ABSENT = m.Skipped("the recording has no such metric")


def point(profile: m.Profile, committed_utc: str) -> m.TrendPoint:
    """What a history keeps of a recording: what it has as head of a comparison with itself."""
    findings = compared_findings(profile, profile, "never")
    values: list[m.TrendValue] = []
    for run in profile.runs:
        sides = Sides(base=run, head=run, settings=(), coverage=(profile.coverage,) * 2)
        mine = [each for each in findings if each.finding.run == run.key]
        values += [_value(metric, run) for metric in metrics(sides, DEFAULT_BUDGETS, mine)]
        if isinstance(run.rounds, m.Rounds) and isinstance(run.rounds.machine, m.MachineSpeed):
            turns = run.rounds.machine.host_us
            if turns:
                values.append(m.TrendValue(run.key, CHECK_LOOP, "us", median(turns)))
    environment = profile.environment
    commit = environment.git_commit
    if isinstance(commit, m.Skipped):
        commit = ""
    return m.TrendPoint(
        trend_version=m.TREND_SCHEMA_VERSION,
        workload=workload_of(profile),
        commit=commit,
        dirty=environment.git_dirty is True,
        committed_utc=committed_utc,
        created_utc=profile.created_utc,
        environment=surroundings(profile),
        values=tuple(values),
    )


def _value(of: m.ComparedMetric, run: m.RunReport) -> m.TrendValue:
    made = m.TrendValue(of.run, of.name, of.unit, of.head, of.time_of, of.rate)
    if of.time_of is not None:
        samples = TIMES[of.time_of].samples(run)
        if isinstance(samples, Samples):
            processes = len(samples.rounds)
            return replace(made, low=samples.low, high=samples.high, processes=processes)
    return made


def trend(points: Sequence[m.TrendPoint], unread: Sequence[tuple[str, str]]) -> m.Trend:
    """``points``: from the oldest to the newest."""
    environments = [each.environment for each in points]
    sections = [*map(environments.index, environments)]
    by_metric: dict[tuple[str, m.RunKey, str], dict[int, m.TrendValue]] = {}
    for at, each in enumerate(points):
        for value in each.values:
            by_metric.setdefault((each.workload, value.run, value.name), {})[at] = value
    lines: list[m.TrendLine] = []
    changed: list[m.TrendChange] = []
    for (workload, *_), values in by_metric.items():
        known = {at: of for at, of in values.items() if not isinstance(of.value, m.Skipped)}
        if not known:
            continue
        note = ""
        for section in {*map(sections.__getitem__, known)}:
            series = {at: of for at, of in known.items() if sections[at] == section}
            changed += _changes(series, workload, points)
            if section == sections[max(known)] and len(series) < FEWEST_VALUES:
                note = f"{len(series)} of the {FEWEST_VALUES} recordings that a time needs"
        oldest, newest = known[min(known)], known[max(known)]
        if newest.name in _COUNTS:
            note = ""
        whole = _compared(newest, m.known(oldest.value), m.known(newest.value))
        shown = tuple(values[at].value if at in values else _ABSENT for at in range(len(points)))
        lines.append(m.TrendLine(workload, whole, shown, note))
    return m.Trend(
        schema_version=m.TREND_SCHEMA_VERSION,
        kgprof_version=__version__,
        changes=tuple(sorted(changed, key=lambda change: -change.last)),
        environment=environments[-1],
        sections=tuple(sections),
        points=tuple(replace(each, values=()) for each in points),
        lines=tuple(lines),
        unread=tuple(unread),
    )


def _changes(
    series: Mapping[int, m.TrendValue], workload: str, points: Sequence[m.TrendPoint]
) -> Iterator[m.TrendChange]:
    """``series``: by the places of the recordings, of one environment."""
    places = [*series]
    values = [m.known(of.value) for of in series.values()]
    of = series[places[0]]
    count = _COUNTS.get(of.name)
    steps: Sequence[Change] = ()
    if count is not None:
        steps = [*_levels(values, count)]
    elif min(values) > 0:
        steps = changes(values)
    for step in steps:
        metric = _compared(of, step.before, step.now)
        verdict = (count or _ANY).verdict(step.before, step.now)
        metric = replace(metric, verdict=verdict)
        if count is None:
            metric = replace(metric, low=step.low, high=step.high)
        first = places[step.first]
        since = places[max(step.first - 1, 0)]
        yield m.TrendChange(points[first].commit, metric, workload, first, places[step.last], since)


def _levels(values: Sequence[float], count: Count) -> Iterator[Change]:
    """Each value that is no longer what the last change left."""
    level = values[0]
    for at, value in enumerate(values):
        if count.verdict(level, value) is not m.MetricVerdict.SAME:
            yield Change(at, at, level, value, 0.0, 0.0)
            level = value


def _compared(of: m.TrendValue, base: float, head: float) -> m.ComparedMetric:
    ratio: m.Figure = m.Skipped("base is 0")
    if base:
        ratio = head / base
    return m.ComparedMetric(
        name=of.name,
        run=of.run,
        unit=of.unit,
        time_of=of.time_of,
        rate=of.rate,
        base=base,
        head=head,
        ratio=ratio,
        verdict=m.MetricVerdict.SAME,
    )
