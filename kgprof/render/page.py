"""What the HTML page shows, as text and geometry: the template only lays it out.

Every string from outside passes ``one_line`` or ``visible`` here and jinja's autoescape there. Limits say how much of
everything there may be; html.py lowers them until the page fits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from kgprof import model as m
from kgprof.render import (
    breakdown,
    chart,
    contents_box,
    economics_table,
    environment_facts,
    evaluation_table,
    gaps,
    glance,
    holistic_table,
    kernel_table,
    memory_table,
    origin_table,
    practices,
    summary,
    timeline_chart,
)
from kgprof.render.carried import Packed
from kgprof.render.chart import Bar, LegendEntry, TimeTable
from kgprof.render.compare_part import ComparePart, compare_part
from kgprof.render.compile_table import CompileTable, compile_table
from kgprof.render.evaluation_table import Fact, Table
from kgprof.render.finding_list import FindingGroup, finding_list
from kgprof.render.flame_chart import FlameChart, drawable, flame_charts
from kgprof.render.flame_difference_chart import LEGEND as FLAME_DIFFERENCES
from kgprof.render.flame_difference_chart import FlameDifferenceChart, differing, flame_difference_charts
from kgprof.render.gate_table import GateTable, gate_table
from kgprof.render.hand_off import HandOffLine, TraceToHandOff, hand_off
from kgprof.render.holistic_table import HolisticTable
from kgprof.render.kernel_table import HostTable, KernelTable
from kgprof.render.limits import TOP_KERNELS, Limits
from kgprof.render.log_text import Log, logs
from kgprof.render.looked_for import looked_for
from kgprof.render.observer_table import ObserverTable, observers, passes
from kgprof.render.own_copy import OwnCopy, not_carried, own_copy
from kgprof.render.practices import Practice, Weighing
from kgprof.render.quantity import count, figure, milliseconds
from kgprof.render.recompile_table import RecompileTable, recompile_table
from kgprof.render.roofline_table import RooflinePart, placed, roofline_part
from kgprof.render.run_table import Heading, MissingFigure, RunLine, headings, missing_figures, run_lines, strategies
from kgprof.render.trace_table import TracesPart, traces_part
from kgprof.render.visible import one_line
from kgprof.wording import plural

SYMBOLS = {"ok": "\u2713", "attention": "!", "failed": "\u2715", "inconclusive": "?"}
REASONS = 3  # below the verdict: the findings follow on the same page, and the table must still be in sight
STATUS_WORDS = {"ok": "OK", "attention": "Attention", "failed": "Failed", "inconclusive": "Inconclusive"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """``anchor`` is also the name of the partial that lays it out."""

    anchor: str
    title: str
    tally: str = ""
    short: str = ""  # in the navigation, where the title is too long for it; "-": not there

    @property
    def name(self) -> str:
        return self.short or self.title


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    workload: str
    version: str
    schema_version: int
    created_utc: str
    status: str
    status_word: str
    symbol: str
    verdict: str
    reasons: tuple[str, ...]
    more_reasons: str
    reason_count: str
    explains: bool  # the reasons say more than the findings below them do
    glance: tuple[glance.Answer, ...]
    facts: tuple[str, ...]
    sections: tuple[Section, ...]
    gate: GateTable | None
    timed: bool
    rounds: bool  # some run was timed in more than one process
    traces: TracesPart
    headings: tuple[Heading, ...]
    runs: tuple[RunLine, ...]
    footnotes: tuple[str, ...]
    strategies: tuple[Fact, ...]
    baseline: str
    bars: tuple[Bar, ...]
    bar_scale_ms: str
    legend: tuple[LegendEntry, ...]
    time_table: TimeTable
    findings: tuple[FindingGroup, ...]
    rules: tuple[m.Rule, ...]
    trade_offs: tuple[Weighing, ...]
    checklist: tuple[Practice, ...]
    checklist_tally: str
    memory_headings: tuple[Heading, ...]
    memory: tuple[RunLine, ...]
    memory_missing: tuple[MissingFigure, ...]
    devices: tuple[origin_table.DeviceTable, ...]
    step_charts: tuple[timeline_chart.StepChart, ...]
    kernels: tuple[KernelTable, ...]
    roofline: RooflinePart | None
    hosts: tuple[HostTable, ...]
    flames: tuple[FlameChart, ...]
    flame_differences: tuple[FlameDifferenceChart, ...]
    flame_legend: tuple[tuple[str, str, str], ...]
    holistic: tuple[HolisticTable, ...]
    hand_off: tuple[HandOffLine, ...]
    own: OwnCopy
    compare: ComparePart | None
    units: str  # what the workload counts its work in
    evaluations: Table
    metrics: Table
    metrics_notes: tuple[str, ...]
    settings: tuple[Fact, ...]
    compiles: CompileTable
    recompiles: RecompileTable
    contract: tuple[Practice, ...]
    isa_probe: str
    economics: economics_table.EconomicsTable
    observers: ObserverTable
    gaps: tuple[gaps.Gap, ...]
    environment: tuple[Fact, ...]
    contents: tuple[Fact, ...]
    options: tuple[Fact, ...]
    command: str
    kinds: tuple[tuple[str, str], ...]
    kind_overrides: tuple[tuple[str, str], ...]  # pattern; kind, how many kernels, from where
    logs: tuple[Log, ...]
    left_out: tuple[str, ...]
    device: str
    passes: frozenset[str]
    steps: int
    warmup: int


def build(
    profile: m.Profile,
    limits: Limits,
    own: Packed,
    traces: Sequence[TraceToHandOff] = (),
    carried: Collection[m.RunKey] = (),
) -> Page:
    runs = profile.runs[: limits.runs]
    columns = summary.columns(profile)
    memory_columns = memory_table.columns(runs)
    found = finding_list(profile, limits)
    verdict = profile.verdict
    reasons, more_reasons = summary.reasons(profile, at_most=REASONS)
    return Page(
        workload=one_line(profile.workload, limits.name),
        version=profile.kgprof_version,
        schema_version=profile.schema_version,
        created_utc=_when(profile.created_utc),
        status=verdict.status if verdict.status in SYMBOLS else "inconclusive",
        status_word=STATUS_WORDS.get(verdict.status, one_line(verdict.status, limits.name)),
        symbol=SYMBOLS.get(verdict.status, "?"),
        verdict=one_line(verdict.text, 4 * limits.name),
        reasons=tuple(one_line(reason, 2 * limits.name) for reason in reasons),
        more_reasons=count(more_reasons) if more_reasons else "",
        reason_count=plural(len(verdict.reasons), "reason"),
        explains=verdict.status not in ("ok", "attention") or not profile.findings or profile.comparison is not None,
        glance=glance.answers(profile, found, limits),
        facts=environment_facts.headline(profile, limits),
        sections=_sections(profile, handed_off=bool(traces)),
        gate=gate_table(profile.gate, limits),
        timed=not profile.options.untimed,
        rounds=any(isinstance(run.rounds, m.Rounds) for run in runs),
        traces=traces_part(profile, limits),
        headings=headings(columns),
        runs=run_lines(runs, columns, limits),
        strategies=strategies(profile, limits),
        footnotes=tuple(one_line(note, 2 * limits.name) for note in summary.footnotes(profile)[: limits.lines]),
        baseline=one_line(profile.baseline.slug, limits.name) if profile.baseline else "",
        bars=chart.bars(runs, limits),
        bar_scale_ms=milliseconds(chart.scale_us(runs)),
        legend=chart.legend(runs),
        time_table=chart.time_table(runs, limits),
        findings=found.groups,
        rules=looked_for(profile),
        trade_offs=practices.weighings(profile, limits),
        checklist=practices.practices(profile, found.anchors, limits),
        checklist_tally=practices.tally(profile.checklist),
        memory_headings=headings(memory_columns),
        memory=run_lines(runs, memory_columns, limits) if memory_columns else (),
        memory_missing=missing_figures(runs, limits) if memory_columns else (),
        kernels=kernel_table.kernel_tables(runs, profile.environment.source_root, limits),
        devices=origin_table.device_tables(runs, limits),
        step_charts=timeline_chart.step_charts(runs, limits),
        roofline=roofline_part(runs, limits),
        hosts=kernel_table.host_tables(runs, limits),
        flames=flame_charts(runs, profile.environment.source_root, limits),
        flame_differences=flame_difference_charts(_compared_runs(profile), profile.environment.source_root, limits),
        flame_legend=FLAME_DIFFERENCES,
        holistic=holistic_table.holistic_tables(runs, limits),
        hand_off=hand_off(traces, carried, limits),
        own=own_copy(own, profile),
        compare=compare_part(profile, found.anchors, limits),
        units=one_line(profile.unit.plural, limits.name),
        evaluations=evaluation_table.outcomes(runs, limits),
        metrics=evaluation_table.metrics(runs, limits),
        metrics_notes=evaluation_table.metrics_notes(runs, limits),
        settings=evaluation_table.settings(runs, limits),
        compiles=compile_table(runs, limits),
        recompiles=recompile_table(runs, profile.environment.source_root, limits),
        contract=practices.memory_contract(profile, found.anchors, limits),
        isa_probe=_isa_probe(profile.vector_isa_probe_s, limits),
        economics=economics_table.economics_table(profile, limits),
        observers=observers(runs, limits),
        gaps=gaps.bounded(profile.omissions, limits),
        environment=environment_facts.environment(profile, limits),
        contents=tuple(
            Fact(name=fact.name, value=one_line(fact.value, 2 * limits.name)) for fact in contents_box.facts(profile)
        ),
        options=environment_facts.options(profile, limits),
        command=one_line(" ".join(profile.command), 4 * limits.name),
        kinds=tuple((name, meaning) for _, name, meaning in breakdown.KINDS),
        kind_overrides=tuple(breakdown.overrides(profile, limits)),
        logs=logs(runs, limits),
        left_out=(*_left_out(profile, limits), *not_carried(own)),
        device=one_line(profile.device, limits.name),
        passes=passes(profile),
        steps=profile.options.steps,
        warmup=profile.options.warmup,
    )


def _sections(profile: m.Profile, *, handed_off: bool) -> tuple[Section, ...]:
    """In reading order: what decides, then what explains it, then what it stands on.

    What was not asked for has no section; what was, and failed, has one that says so.
    """
    gated, timed = profile.gate is not None, not profile.options.untimed
    findings = Section(anchor="findings", title="Findings", tally=count(len(profile.findings)))
    results = Section(anchor="results", title="Results")
    traced = not profile.options.for_a_gate and profile.options.wants(m.PassName.TRACE)
    taken_in = bool(profile.trace_files)  # torch.profiler ran elsewhere, and nothing else did
    memory = bool(memory_table.columns(profile.runs))
    offered: tuple[tuple[bool, Section], ...] = (
        (profile.comparison is not None, Section(anchor="compare", title="Comparison")),
        (gated, Section(anchor="gate", title="Budgets")),
        (gated, findings),
        (taken_in, Section(anchor="traces", title="Traces", tally=count(len(profile.trace_files)))),
        (not taken_in and (timed or _noteworthy(profile)), results),
        (timed or traced, Section(anchor="time", title="Where the time went", short="Time")),
        (not gated, findings),
        (bool(profile.trade_offs), Section(anchor="trade-offs", title="Trade-offs")),
        (timed or traced, Section(anchor="kernels", title="Kernels")),
        (
            bool(placed(profile.runs)),
            Section(anchor="roofline", title="Kernels against the card", short="Against the card"),
        ),
        (timeline_chart.known(profile.runs), Section(anchor="step", title="One step")),
        (timed, Section(anchor="host", title="Host functions", short="Host")),
        (
            bool(differing(_compared_runs(profile))),
            Section(anchor="flame-difference", title="Host stacks, base and head", short="Stacks, both"),
        ),
        (bool(drawable(profile.runs)), Section(anchor="flame", title="Host stacks", short="Stacks")),
        (not taken_in, Section(anchor="compile", title="Compilation")),
        (bool(economics_table.weighed(profile)), Section(anchor="economics", title="Economics")),
        (memory, Section(anchor="memory", title="Reads and memory", short="Memory")),
        (bool(profile.checklist), Section(anchor="checklist", title="Checklist")),
        (True, Section(anchor="environment", title="Environment")),
        (True, Section(anchor="method", title="Method")),
        (timed, Section(anchor="cost", title="What watching cost", short="-")),
        (True, Section(anchor="gaps", title="Not measured")),
        (
            bool(holistic_table.compared(profile.runs)),
            Section(anchor="holistic", title="Held against HTA", short="HTA"),
        ),
        (handed_off, Section(anchor="trace-files", title="The traces themselves", short="Trace files")),
        (not taken_in, Section(anchor="logs", title="Logs")),
        (True, Section(anchor="contents", title=contents_box.TITLE, short="-")),
    )
    return tuple(section for shown, section in offered if shown)


def _compared_runs(profile: m.Profile) -> tuple[m.RunComparison, ...]:
    return profile.comparison.runs if profile.comparison is not None else ()


def _noteworthy(profile: m.Profile) -> bool:
    """Without times the table of results is worth its room only for how a run ended or what is noted on it."""
    return bool(summary.footnotes(profile)) or any(summary.ended(run) or run.notes for run in profile.runs)


def _when(created_utc: str) -> str:
    """ISO 8601 to the minute, as people write it."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)", created_utc)
    return f"{found[1]} {found[2]} UTC" if found else one_line(created_utc, 60)


def _isa_probe(probe: float | m.Skipped, limits: Limits) -> str:
    if isinstance(probe, m.Skipped):
        return f"not measured: {one_line(probe.reason, limits.name)}"
    return f"{figure(probe)} s"


def _left_out(profile: m.Profile, limits: Limits) -> tuple[str, ...]:
    """What this page does not show of the Profile because of its own limits."""
    found = []
    if len(profile.runs) > limits.runs:
        found.append(f"{count(len(profile.runs) - limits.runs)} of {count(len(profile.runs))} runs")
    if len(profile.findings) > limits.findings:
        found.append(f"{count(len(profile.findings) - limits.findings)} of {count(len(profile.findings))} findings")
    if not limits.log_chars and any(run.log.text for run in profile.runs):
        found.append("the logs")
    broken_down = [run.kernels for run in profile.runs[: limits.runs] if isinstance(run.kernels, m.KernelBreakdown)]
    undrawn = sum(isinstance(kernels.timeline, m.StepTimeline) for kernels in broken_down[limits.timelines :])
    if undrawn:
        found.append(f"the timelines of {count(undrawn)} runs")
    trees = len(drawable(profile.runs[: limits.runs])), len(differing(_compared_runs(profile)[: limits.runs]))
    if undrawn := sum(max(0, of_a_kind - limits.flames) for of_a_kind in trees):
        found.append(plural(undrawn, "flame graph"))
    if not limits.host_rows and any(isinstance(run.host, m.HostBreakdown) for run in profile.runs):
        found.append("the host functions")
    found += _cut_tables(profile.runs, limits)
    return tuple(found)


def _cut_tables(runs: Iterable[m.RunReport], limits: Limits) -> list[str]:
    if limits.kernel_rows >= TOP_KERNELS:
        return []  # the table is of the top ones, and says itself how many more there are
    kernels = sum(
        max(0, min(len(run.kernels.rows), TOP_KERNELS) - limits.kernel_rows)  # the rest is in no page, however small
        for run in runs
        if isinstance(run.kernels, m.KernelBreakdown)
    )
    return [f"{count(kernels)} kernel names (their sum stands in each table's last rows)"] if kernels else []
