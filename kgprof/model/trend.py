"""A history that grows by one file for each recorded commit, and what changed over it."""

from collections.abc import Mapping

from kgprof.model.comparison import ComparedMetric, TimeOf
from kgprof.model.passes import RunKey
from kgprof.model.structs import Amount, Model, Skipped

TREND_SCHEMA_VERSION = 1


class TrendValue(Model, kw_only=False):
    """One metric of one run. Fields as ComparedMetric has them."""

    run: RunKey
    name: str
    unit: str
    value: Amount | Skipped
    time_of: TimeOf | None = None
    rate: str = ""
    # of a time: between them lie eight of ten samples; and in how many processes it was measured
    low: Amount | Skipped = Skipped("a count has no samples")
    high: Amount | Skipped = Skipped("a count has no samples")
    processes: int = 0


class TrendPoint(Model):
    """One recording: a file of the history."""

    trend_version: int
    workload: str
    commit: str  # all digits; empty: not known
    dirty: bool  # recorded with changes on top of it
    committed_utc: str  # empty: not known
    created_utc: str
    environment: Mapping[str, str]  # and what else makes times other times: options, variables
    values: tuple[TrendValue, ...] = ()

    @property
    def named(self) -> str:
        return (self.commit[:7] or "no commit") + "+" * self.dirty

    @property
    def when(self) -> str:
        return self.committed_utc or self.created_utc


class TrendChange(Model, kw_only=False):
    """A step or a drift of one metric, whose base was before it and whose head was after it."""

    commit: str  # of ``first``
    metric: ComparedMetric
    workload: str
    first: int  # place of the first recording after the step; of a drift where it begins
    last: int  # of a drift where it ends; of a step ``first``
    since: int  # the last recording before the step in the same environment


class TrendLine(Model, kw_only=False):
    workload: str
    metric: ComparedMetric  # base: the oldest value, head: the newest
    values: tuple[float | Skipped, ...]  # one a recording
    note: str = ""  # why nothing is known of its newest values


class Trend(Model):
    """`kgprof compare --history`: ``points`` from the oldest to the newest."""

    schema_version: int
    kgprof_version: str
    changes: tuple[TrendChange, ...]  # the newest first
    environment: Mapping[str, str]  # of the newest recording
    sections: tuple[int, ...]  # for each recording the first one in the same environment
    points: tuple[TrendPoint, ...]  # without their values, which the lines have
    lines: tuple[TrendLine, ...]
    unread: tuple[tuple[str, str], ...] = ()  # files of the folder that are no part, and why
