"""The traced steps of one run on a GPU, for rules about its time: what ran, under which span, when
nothing did, and whether they stand for TIMING's step."""

import dataclasses
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from kgprof import model as m
from kgprof.judge import APART, LEVEL_WITHIN, NOISY
from kgprof.measures.host_time import ACCUMULATES, BACKWARD_SPANS
from kgprof.reading import launches, timeline
from kgprof.reading.evidence import RunEvidence
from kgprof.reading.kineto import Columns
from kgprof.reading.launches import Indices, Launched, Mask
from kgprof.reading.timeline import NOBODY
from kgprof.wording import figure, plural

WORTH_SHARE = 0.05  # of the step: less is not worth a line of the report
# share of the step in which the GPU works: from here on a faster kernel can make the step shorter
MOSTLY_BUSY = 0.5
# Of steps that change their sizes: a few sizes come again, and each has a graph of its own.
MANY_SIZES = 3
MOSTLY_OTHERS = 0.5  # of the steps
# Operators that only sparse tensors have, in torch 2.11 to 2.13.
_SPARSE = (
    "aten::coalesce",
    "aten::_coalesce",
    "aten::_sparse_addmm",
    "aten::_sparse_compressed_tensor",
    "aten::_sparse_coo_tensor",
    "aten::_sparse_mm",
    "aten::_sparse_sum",
)
# Operators of nn.GRU, nn.LSTM and nn.RNN, in torch 2.11 to 2.13.
_RNN = ("aten::gru", "aten::lstm", "aten::rnn_relu", "aten::rnn_tanh")
_CUDNN_RNN = "aten::_cudnn_rnn"  # and its backward


class Extent(m.Model):
    """What figures of a trace are of: its steps, or the whole window where it marks none."""

    steps: int  # 0: none are marked
    per: str = "window"  # or "step"
    words: str = "the traced window"  # the end of "3 kernels in ..."
    # TIMING's median, or the traced steps' GPU work where that is more: the CPU runs ahead. Without
    # TIMING, and where the traced steps are unlike its median step, their mean.
    step_us: float
    whole: str = ""  # what ``step_us`` is, where that is no step
    # why TIMING's median step is none of the traced ones, or these are no steps of the run, so that
    # nothing is set against it
    unlike: str = ""
    measured_in: tuple[m.PassName, ...]

    def cost(
        self, value: float, what: str, measured_in: tuple[m.PassName, ...] = ()
    ) -> m.FindingCost:
        """``measured_in``: where it is not that of the step."""
        return m.FindingCost(
            value=value,
            unit=f"us/{self.per}",
            what=what,
            measured_in=measured_in or self.measured_in,
            samples=max(1, self.steps),
        )

    def share(self, us: float) -> str:
        """Say how much of the step it is, or of what stands for it."""
        whole = self.per
        if m.PassName.TIMING not in self.measured_in:
            whole = f"traced {whole}"
        return f"{100 * us / self.step_us:.0f} % of the {self.whole or whole}"

    def saving(self, us: float, how: str) -> m.Saving | m.Skipped:
        if self.unlike:
            return m.Skipped(self.unlike)
        per = self.per
        if self.whole:
            per = m.MEAN_STEP
        return m.Saving(us_per_step=us, how=how, measured_in=self.measured_in, per=per)


@dataclass(frozen=True, eq=False, kw_only=True)
class TracedSteps:
    """Times are microseconds per step. The traced steps last to the end of their GPU work: a host
    that only launches ends its steps long before the GPU does. Where no steps are marked, the
    window from the first GPU work to the last stands for one step."""

    columns: Columns
    work: Launched
    steps: timeline.Intervals  # shape [n, 2], nanoseconds of the trace
    extent: Extent

    @cached_property
    def work_us(self) -> list[float]:
        """The device time that each step launched, in their order."""
        within = self._step >= 0
        own_us = self.columns.duration_ns[self.work.events] / 1000
        summed = np.bincount(self._step[within], own_us[within], minlength=len(self.steps))
        return [*map(float, summed)]

    @cached_property
    def sizes(self) -> int:
        """Count the sizes that the steps came in: they differ in the grids of kernels, or the bytes
        of copies, of which each step has as many."""
        names = self.columns.name[self.work.events]
        shapes = self.columns.shape[self.work.events]
        launched = [self._step == step for step in range(len(self.steps))]
        counts = [Counter(names[own].tolist()) for own in launched]
        as_many = [name for name, number in counts[0].items() if _is_in_all(name, number, counts)]
        compared = np.isin(names, as_many)
        sizes = set[tuple[tuple[int, int], ...]]()
        for own in launched:
            its = own & compared
            pairs = zip(names[its].tolist(), shapes[its].tolist(), strict=True)
            sizes.add(tuple(sorted(pairs)))
        return len(sizes)

    @property
    def change_their_sizes(self) -> bool:
        """Whether most of them came in a size of their own."""
        return self.sizes >= MANY_SIZES and self.sizes > MOSTLY_OTHERS * len(self.steps)

    @property
    def have_sparse_tensors(self) -> bool:
        """Whether an operator of sparse tensors ran."""
        return bool(self.columns.named(*_SPARSE).any())

    @property
    def gives_gradients(self) -> bool:
        """Whether gradients were computed, and none was written to a parameter's .grad."""
        backward = self.columns.named(*BACKWARD_SPANS).any()
        return bool(backward and not self.columns.named(ACCUMULATES).any())

    @property
    def rnn_calls(self) -> float:
        """How often a step calls nn.GRU, nn.LSTM or nn.RNN; 0 where few of its launches are
        theirs."""
        calls = self.columns.named(*_RNN)
        launched = self.launched_under(calls | self.columns.named(_CUDNN_RNN))
        if launched.mean() < WORTH_SHARE:
            return 0.0
        return int(calls.sum()) / len(self.steps)

    @cached_property
    def _step(self) -> Indices:
        """The step that launched each event of ``work``; negative: none."""
        starts_ns = np.sort(self.steps[:, 0])
        calls = self.work.calls
        launched = np.where(calls == NOBODY, self.work.events, calls)
        found: Indices = (
            np.searchsorted(starts_ns, self.columns.start_ns[launched], side="right") - 1
        )
        return found

    @cached_property
    def busy_us(self) -> float:
        """Two kernels at once count once."""
        busy = timeline.intervals_of(self.columns, self.work.events)
        return timeline.union_ns(busy) / 1000 / len(self.steps)

    @property
    def without_work_us(self) -> float:
        return max(0.0, self.extent.step_us - self.busy_us)

    @property
    def is_mostly_busy(self) -> bool:
        return self.busy_us >= MOSTLY_BUSY * self.extent.step_us

    def device_us(self, which: Mask) -> float:
        """Device time of these events of ``work`` (a mask of shape [events])."""
        return self.columns.lasted_ns(self.work.events[which]) / 1000 / len(self.steps)

    def launched_under(self, spans: Mask) -> Mask:
        """Which events of ``work`` were launched while one of these spans was open on the launching
        thread."""
        under: Mask = launches.innermost(self.columns, spans, self.work.calls) != NOBODY
        return under

    def matching(self, pattern: re.Pattern[str]) -> Mask:
        """Which events of ``work`` have it in their name."""
        matches = [pattern.search(name) is not None for name in self.columns.names]
        found: Mask = np.array(matches, np.bool_)[self.columns.name[self.work.events]]
        return found

    def idle_us(self, spans: Indices) -> float:
        """Time inside these host events in which the GPU did nothing.

        The profiler makes the host slower and so the idle time longer: it is scaled to the idle
        time of ``step_us``.
        """
        traced_ns = max(1, timeline.union_ns(self._idle))
        inside = self._idle_ns(spans)
        return min(inside / 1000 / len(self.steps), self.without_work_us * inside / traced_ns)

    def idle_share(self, spans: Indices) -> float:
        """Of the time inside these host events, in which the GPU did nothing."""
        lasted_ns = timeline.union_ns(timeline.intervals_of(self.columns, spans))
        return min(1.0, self._idle_ns(spans) / max(1, lasted_ns))

    def _idle_ns(self, spans: Indices) -> int:
        return timeline.union_ns(_overlaps(self._idle, timeline.intervals_of(self.columns, spans)))

    @cached_property
    def _idle(self) -> timeline.Intervals:
        """The stretches of the steps without work on the device."""
        window = timeline.window_of(self.steps)
        busy = window.clip(timeline.intervals_of(self.columns, self.work.events))
        busy = busy[np.argsort(busy[:, 0], kind="stable")]
        reached = np.maximum.accumulate(np.append(window.start_ns, busy[:, 1]))
        gaps = np.stack([reached, np.append(busy[:, 0], window.end_ns)], axis=1)
        found: timeline.Intervals = gaps[gaps[:, 0] < gaps[:, 1]]
        return found


def _is_in_all(name: int, number: int, counts: Sequence[Counter[int]]) -> bool:
    return all(each[name] == number for each in counts)


def _overlaps(disjoint: timeline.Intervals, others: timeline.Intervals) -> timeline.Intervals:
    """The part of every one of ``others`` that each of the disjoint, ordered intervals holds; shape
    [k, 2]."""
    if not len(disjoint) or not len(others):
        return np.empty((0, 2), np.int64)
    first = np.searchsorted(disjoint[:, 1], others[:, 0], side="right")
    last = np.searchsorted(disjoint[:, 0], others[:, 1], side="left")
    counts = np.maximum(0, last - first)
    mine = np.repeat(np.arange(len(others)), counts)
    its = (
        np.arange(counts.sum())
        - np.repeat(np.cumsum(counts) - counts, counts)
        + np.repeat(first, counts)
    )
    starts = np.maximum(disjoint[its, 0], others[mine, 0])
    return np.stack([starts, np.minimum(disjoint[its, 1], others[mine, 1])], axis=1)


@m.skippable
def traced_steps(run: RunEvidence) -> TracedSteps | m.Skipped:
    """Skipped without TRACE, or where nothing ran on a GPU in it."""
    columns = m.known(run.trace()).columns
    work = m.known(run.once(launches.launched_in_trace))
    if not len(work.events):
        return m.Skipped("nothing ran on a GPU in the traced steps")
    intervals = timeline.intervals_of(columns, work.events)
    steps = timeline.profiler_steps(columns)
    number = len(steps)
    samples: list[float] = []
    # TIMING times steps
    if number and isinstance(run.record.timing, m.TimingPass):
        samples = run.record.timing.every_us
    if not number:
        all_work = timeline.window_of(intervals)
        steps = timeline.as_intervals([(all_work.start_ns, all_work.end_ns)])
    window = timeline.window_of(steps)
    ends_ns = max(window.end_ns, int(intervals[:, 1].max()))
    traced_us = (ends_ns - window.start_ns) / 1000 / len(steps)
    extent = Extent(steps=number, step_us=traced_us, measured_in=(m.PassName.TRACE,))
    if samples:
        both = m.PassName.TIMING, m.PassName.TRACE
        extent = replace(extent, step_us=statistics.median(samples), measured_in=both)
    if number:
        extent = replace(extent, per="step", words=plural(number, "step"))
    found = TracedSteps(columns=columns, work=work, steps=steps, extent=extent)
    another = _another_kind(run)
    if not samples and not another:
        return found
    if unlike := another or _unlike(found, run.record.trace, samples):
        extent = replace(extent, step_us=traced_us, whole="traced steps", unlike=unlike)
    elif found.busy_us > extent.step_us:
        extent = replace(extent, step_us=found.busy_us, whole="traced steps' GPU work")
    else:
        return found
    return dataclasses.replace(found, extent=replace(extent, measured_in=(m.PassName.TRACE,)))


@m.otherwise("")
def unlike(run: RunEvidence) -> str:
    """Say why the traced steps do not stand for TIMING's median step, or are no steps of the run;
    empty where they do, or where one of them is missing."""
    return m.known(run.once(traced_steps)).extent.unlike


def _another_kind(run: RunEvidence) -> str:
    script = run.record.script
    if script is None or not script.traced:
        return ""
    return f"a step of TRACE is {script.traced}, a step of the run {script.step}"


def _unlike(found: TracedSteps, trace: m.TracePass | m.Skipped, samples: list[float]) -> str:
    """The traced steps are a few in a row, and TIMING's are many of another process."""
    mean_us = statistics.fmean(found.work_us)
    median_us = statistics.median(found.work_us)
    if max(mean_us, median_us) > LEVEL_WITHIN * min(mean_us, median_us):
        each = f"{_ms(mean_us)} ms of GPU work on average, {_ms(median_us)} ms in the median one"
        return f"the traced steps differ: {each}"
    step_us = statistics.median(samples)
    low, high = np.percentile(samples, (10, 90))
    if high > NOISY * low > 0 and found.busy_us < m.GPU_BOUND * step_us:
        return f"step times varied {high / low:.1f}× within the run (p90 over p10)"
    bare_us = None
    if isinstance(trace, m.TracePass):
        bare_us = trace.bare_us
    # kgprof's listeners may make the steps of TRACE's process longer, but never shorter; where the
    # CPU runs ahead, the GPU's work is the longer one
    if bare_us is not None and step_us >= APART * max(bare_us, found.busy_us):
        shorter = f"{_ms(bare_us)} ms each without torch.profiler just before"
        return f"the traced steps are shorter than most: {shorter}, the median {_ms(step_us)} ms"
    return ""


def _ms(us: float) -> str:
    return figure(us / 1e3)
