"""What the HTML page shows, as text, tables and geometry: the templates only lay it out.

Every string from outside passes ``one_line`` or ``visible`` here and jinja's autoescape there.
Limits say how much of everything there may be; html.py lowers them until the page fits.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from msgspec.structs import replace

from kgprof import coverage
from kgprof import model as m
from kgprof.document import (
    breakdown,
    compare_words,
    compile_table,
    economics_table,
    environment_facts,
    failures,
    gate_table,
    kernel_table,
    memory_table,
    plot,
    practices,
    region_table,
    roofline_table,
    source_view,
    summary,
    timeline_chart,
    trace_table,
)
from kgprof.document.compare_part import compare_part
from kgprof.document.environment_facts import logs
from kgprof.document.escaping import one_line
from kgprof.document.finding_list import Anchors, FindingList, finding_list, not_applied, to_do
from kgprof.document.first_screen import first_screen
from kgprof.document.flame_chart import (
    DIFFERENCES,
    differing,
    drawable,
    flame_difference_folds,
    flame_folds,
)
from kgprof.document.limits import (
    FIRST_RUNS,
    MORE_KERNELS,
    TOP_KERNELS,
    Limits,
    anchor,
    importance,
    kept,
)
from kgprof.document.quantity import count, figure
from kgprof.document.run_parts import having
from kgprof.document.table import Block, Facts, Shown, Texts, View, bounded
from kgprof.render.embedded_profile import Packed, TraceFile, trace_links
from kgprof.wording import plural

# ok, attention, failed, inconclusive
SYMBOLS = dict(zip(m.VerdictStatus, "\u2713!\u2715?", strict=True))
METHOD = "Method"
# The sections of each chapter; those that are not here are about how it was measured.
CHAPTERS = {
    "Comparison": ("compare",),
    "Budgets": ("gate",),
    "Traces": ("traces",),
    "Failure": ("failure",),
    "Results": ("results", "steps", "trade-offs"),
    "Findings": ("findings", "checklist"),
    "Source": ("source",),
    "Kernels": ("time", "kernels", "roofline"),
    "Timeline": ("trace-files", "step"),
    "CPU": ("host", "flame", "flame-difference"),
    "Compile": ("compile", "economics"),
    "Memory": ("memory",),
}
# below the verdict: the findings follow on the same page, and the table must still be in sight
REASONS = 3
# Their texts keep their lines or lengths, and are within the limits already.
AS_THEY_ARE = (
    *("failure", "findings", "source", "logs", "environment"),
    *("trace-files", "step", "roofline"),
)


class Section(View, kw_only=False):
    """``anchor`` is also the name of the partial that lays out the content by its names."""

    anchor: str
    title: str
    tally: str
    content: Mapping[str, object]

    @property
    def chapter(self) -> str:
        named = (name for name, anchors in CHAPTERS.items() if self.anchor in anchors)
        return next(named, METHOD)


class Page(View):
    # for what is no text of others: its versions, its device, what was asked for
    profile: m.Profile
    head: Shown  # and the first screen
    sections: Sequence[Section]
    hand_off: Sequence[Shown]
    own: Packed
    blob: str

    @property
    def chapters(self) -> list[tuple[str, list[Section]]]:
        """Sections that follow each other in one chapter stand together."""
        return [
            (name, [*parts])
            for name, parts in groupby(self.sections, key=lambda each: each.chapter)
        ]


def build(
    profile: m.Profile,
    limits: Limits,
    own: Packed,
    traces: Sequence[TraceFile] = (),
    blob: str = "",
) -> Page:
    """It links to the traces and carries none. ``blob``: what a link to a file of the repository
    begins with."""
    links = trace_links(traces, (), limits)
    left_out = (*_left_out(profile, limits), *own.missing)
    contents = _section(
        "contents",
        environment_facts.CONTENTS,
        held=environment_facts.contents(profile),
        links=links,
        packed=bool(own.text),
    )
    profile = replace(profile, runs=profile.runs[: limits.runs])
    found = finding_list(profile, limits)
    verdict = profile.verdict
    if profile.comparison:
        verdict = compare_words.headline(profile)
    reasons, more_reasons = summary.reasons(profile, at_most=REASONS)
    tone = summary.tone(profile)
    warned_of = verdict.status in ("ok", "attention") and profile.findings
    sections = (*_sections(profile, found, left_out, links, limits), contents)
    head = Shown(
        workload=profile.workload,
        title=_heading(profile),
        tone=tone,
        symbol=SYMBOLS[tone],
        status_word=_status_word(profile, found),
        reasons=reasons,
        more_reasons=count(more_reasons) if more_reasons else "",
        reason_count=plural(len(profile.verdict.reasons), "reason"),
        explains=not warned_of,
        runs=[(anchor(at), profile.runs[at].slug) for at in importance(profile.runs)],
        facts=_facts(profile),
    )
    most = 4 * limits.name
    said = Shown(
        lead=one_line(verdict.lead, most),
        verdict=one_line(verdict.text, most),
        trust=one_line(verdict.trust, most),
    )
    top = said | bounded(head | first_screen(profile, found), limits)
    for step, action in zip(top["steps"], profile.actions, strict=False):
        step["remedy"] = one_line(to_do(profile, action), most)
    return Page(
        profile=profile,
        head=top,
        sections=[
            section if section.anchor in AS_THEY_ARE else bounded(section, limits)
            for section in sections
        ],
        hand_off=links,
        own=own,
        blob=blob,
    )


def _status_word(profile: m.Profile, found: FindingList) -> str:
    word = summary.status_word(profile)
    if profile.verdict.status is not m.VerdictStatus.OK or profile.comparison:
        return word
    groups = [group for group in found.groups if group.level is m.Level.WARNING]
    warned = sum(not line.finding.accepted for group in groups for line in group.lines)
    if not warned:
        return word
    return f"{word}, {plural(warned, 'warning')}"


def _heading(profile: m.Profile) -> str:
    if not profile.comparison:
        return profile.workload
    base, head = compare_words.sides(profile.comparison)
    return f"{profile.workload}: {base} \N{RIGHTWARDS ARROW} {head}"


def _facts(profile: m.Profile) -> Texts:
    """The machine, the version and how many processes; the rest of the environment has a
    section."""
    environment = profile.environment
    facts = [environment.device_name, f"torch {environment.torch.partition('+')[0]}"]
    rounds = [len(found.numbers) for *_, found in having(profile.runs, "rounds", m.Rounds)]
    if rounds and not profile.comparison:
        facts.append(plural(max(rounds), "process", "processes"))
    if isinstance(environment.git_commit, str):
        facts.append(f"commit {environment.git_commit[:10]}")
        if environment.git_dirty is True:
            facts[-1] += " with changes"
    if profile.comparison and not profile.comparison.environment:
        facts.append("same kind of machine, same versions")
    return facts


def carrying(page: Page, links: Sequence[Shown]) -> Page:
    """The page with these traces."""
    sections = []
    for section in page.sections:
        if "links" in section.content:
            section = replace(section, content={**section.content, "links": links})
        sections.append(section)
    return replace(page, sections=sections, hand_off=links)


# ---------------------------------------------------------------- sections


def _section(anchor: str, title: str, tally: str = "", /, **content: object) -> Section:
    made = {name: [*part] if isinstance(part, Iterator) else part for name, part in content.items()}
    return Section(anchor, title, tally, made)


def _sections(
    profile: m.Profile,
    found: FindingList,
    left_out: Texts,
    links: Sequence[Shown],
    limits: Limits,
) -> Iterator[Section]:
    """In reading order: what decides, then what explains it, then what it stands on.

    What was not asked for has no section; what was, and failed, has one that says so.
    """
    if failed := failures.failed(profile):
        yield _section("failure", "Where it failed", failed=failed)
    if failures.measured_nothing(profile) and not profile.gate:
        yield _logs(profile, limits)
        yield _environment(profile, limits)
        return
    runs, timed, gate, files = profile.runs, profile.timed, profile.gate, profile.trace_files
    offered = profile.findings
    if profile.actions and not profile.comparison:  # it stands below the actions
        offered = ()
    findings = _section(
        "findings",
        "Findings",
        count(sum(len(group.lines) for group in found.groups)),  # one in several runs once
        findings=found.groups,
        rules=[
            (f"{rule.id} {rule.name}", rule.summary)
            for rule in coverage.checked(profile.coverage, profile.rules)
        ],
        checked=coverage.tally(profile.coverage, profile.rules),
        not_applied=not_applied(offered),
    )
    if profile.comparison:
        compared = compare_part(profile, profile.comparison, found.anchors, limits)
        yield _section("compare", "Comparison", **compared)
    if gate:
        yield _section(
            "gate",
            "Budgets",
            backend=gate_table.backend_words(gate),
            fails_on=gate_table.FAILS_ON[gate.fail_on],
            shown=gate_table.gate_blocks(gate),
        )
        yield findings
    # Without times the table is worth its room only for how a run ended or what is noted on it.
    noted = summary.footnotes(profile) or any(summary.ended(run) or run.notes for run in runs)
    if files:
        yield _traces(profile, limits)
    elif timed or noted:
        yield _results(profile)
        if plot.timed_steps(runs):
            yield _section("steps", "Step times", folds=plot.step_time_folds(runs, limits))
    if profile.rank_balance and not files:
        yield _traces(profile, limits)
    if profile.trade_offs:
        weighings = practices.weighings(profile)
        yield _section("trade-offs", "Is the sync worth it?", weighings=weighings)
    traced = timed or (not profile.options.for_a_gate and profile.options.wants(m.PassName.TRACE))
    if not gate:
        yield findings
    if profile.checklist:
        shown = practices.practices(profile.checklist, found.anchors)
        tally = practices.tally(profile.checklist)
        yield _section("checklist", "Checklist", practices=shown, tally_of_all=tally)
    if views := source_view.source_view(profile, found.anchors, limits):
        yield _section("source", "Source", runs=views, left_out=source_view.left_out(profile))
    yield from _kernels_and_host(profile, traced, timed, links, limits)
    yield from _compiled_and_watched(profile, found.anchors, limits)
    yield from _method(profile, timed, left_out, limits)
    if not files:
        yield _logs(profile, limits)


def _logs(profile: m.Profile, limits: Limits) -> Section:
    return _section("logs", "Logs", logs=logs(profile.runs, limits))


def _environment(profile: m.Profile, limits: Limits) -> Section:
    return _section(
        "environment",
        "Environment",
        command=one_line(" ".join(profile.command), 4 * limits.name),
        environment=bounded(environment_facts.environment(profile), limits),
        options=bounded(environment_facts.options(profile), limits),
    )


def _traces(profile: m.Profile, limits: Limits) -> Section:
    """Or, of the ranks of one launch, what stands in place of files."""
    shown = profile.differences[: limits.runs]
    content: dict[str, object] = {"files": "", "balance": "", "ranks": ()}
    title = "Ranks"
    number = 0
    if balance := profile.rank_balance:
        number = len(balance.ranks)
        content |= {"balance": balance.text, "ranks": trace_table.rank_blocks(balance)}
    if profile.trace_files:
        title = "Traces"
        number = len(profile.trace_files)
        content["files"] = trace_table.file_table(profile)
    differences = [trace_table.difference(each) for each in shown]
    return _section("traces", title, count(number), differences=differences, **content)


def _results(profile: m.Profile) -> Section:
    runs = profile.runs
    notes: list[Block] = [(run.slug, note) for run in runs for note in run.notes]
    notes += summary.footnotes(profile)
    if strategies := summary.strategies(profile):
        notes.append(Facts(strategies))
    table, alike = summary.without_constants(
        summary.run_table(runs, summary.columns(profile), "Results per run", anchored=True)
    )
    return _section(
        "results",
        "Results",
        table=table,
        alike=alike,
        baseline=profile.baseline.slug if profile.baseline else "",
        rounds=any(isinstance(run.rounds, m.Rounds) for run in runs),
        notes=notes,
        evaluation=summary.evaluation_folds(profile.unit.plural, runs),
    )


def _time(profile: m.Profile, limits: Limits) -> Section:
    runs = profile.runs
    return _section(
        "time",
        "Time per step by kind",
        table=breakdown.time_table(runs),
        devices=kernel_table.device_folds(runs, limits),
        phases=breakdown.phase_table(runs),
        overrides=breakdown.overrides(profile),
        kinds=[(name, meaning) for _, name, meaning in breakdown.KINDS],
    )


def _kernels_and_host(
    profile: m.Profile, traced: bool, timed: bool, links: Sequence[Shown], limits: Limits
) -> Iterator[Section]:
    runs = profile.runs
    root = profile.source_root
    at = {run.key: anchor(index) for index, run in enumerate(runs)}
    compared = profile.comparison.runs if profile.comparison else ()
    if traced:
        yield _section(
            "kernels",
            "Kernels",
            folds=kernel_table.kernel_folds(runs, root, limits),
            fused=region_table.fusion_blocks(runs, limits),
            generators=region_table.generator_table(runs),
            places=region_table.place_table(runs, root, limits),
        )
    if roofline_table.placed(runs):
        shown = roofline_table.roofline_blocks(runs, limits)
        yield _section("roofline", "Roofline", shown=shown)
    if traced:
        yield _time(profile, limits)
    if links:
        slugs = {key.slug: place for key, place in at.items()}
        workload = one_line(profile.workload, limits.name)
        yield _section("trace-files", "Trace files", links=links, workload=workload, at=slugs)
    if timeline_chart.known(runs):
        folds = bounded([*timeline_chart.step_folds(runs, limits)], limits)
        events = timeline_chart.events(runs, limits)
        yield _section("step", "Timeline of one step", folds=folds, events=events)
    if timed:
        yield _section("host", "Python functions", folds=kernel_table.host_folds(runs, limits))
    if differing(compared):
        stacks = (DIFFERENCES, *flame_difference_folds(compared, root, limits, at))
        yield _section("flame-difference", "CPU stacks, base and head", folds=stacks)
    if drawable(runs):
        yield _section("flame", "CPU stacks", folds=flame_folds(runs, root, limits))


def _compiled_and_watched(
    profile: m.Profile, anchors: Anchors, limits: Limits
) -> Iterator[Section]:
    runs = profile.runs
    root = profile.source_root
    if not profile.trace_files:
        probe = profile.vector_isa_probe_s
        if isinstance(probe, m.Skipped):
            isa_probe = f"not measured: {probe.reason}"
        else:
            isa_probe = f"{figure(probe)} s"
        yield _section(
            "compile",
            "Compilation",
            drawn=compile_table.stage_bars(runs),
            keys=compile_table.LEGEND,
            isa_probe=isa_probe,
            table=compile_table.compile_table(runs),
            scale_s=figure(compile_table.bar_scale_s(runs)),
            stages=compile_table.stage_table(runs),
            recompiled=compile_table.recompile_summary(runs),
            recompiles=compile_table.recompile_blocks(runs, root, limits),
            folds=compile_table.compilation_folds(runs, limits),
            tuning=region_table.tuning_blocks(runs, limits),
        )
    if weighed := economics_table.weighed(profile):
        units = profile.unit.plural
        yield _section(
            "economics",
            "Is compiling worth it?",
            plots=economics_table.break_even_plots(weighed, units),
            table=economics_table.economics_table(profile),
            units=units,
        )
    columns = memory_table.columns(runs)
    if columns or any(isinstance(run.memory_curve, m.MemoryCurve) for run in runs):
        yield _section(
            "memory",
            "Syncs and memory",
            curves=memory_table.memory_folds(runs, limits),
            measured=bool(columns),
            table=summary.run_table(runs, columns, "Syncs and memory per run"),
            missing=memory_table.unknown(runs),
            contract=practices.memory_contract(profile, anchors) if columns else (),
            buffers=region_table.buffer_blocks(runs),
        )


def _method(profile: m.Profile, timed: bool, left_out: Texts, limits: Limits) -> Iterator[Section]:
    options = profile.options
    gaps = environment_facts.gap_table(profile.omissions)
    yield _section("gaps", "Not measured", table=gaps, left_out=left_out)
    yield _environment(profile, limits)
    passes = environment_facts.passes(profile)
    yield _section("method", "Method", passes=passes, steps=options.steps, warmup=options.warmup)
    if timed:
        overhead = environment_facts.observer_table(profile.runs, drawn=limits.timelines > 0)
        yield _section("cost", "Profiling overhead", table=overhead)
    if checks := trace_table.holistic_folds(profile.runs, limits):
        yield _section("holistic", "Cross-check with HTA", folds=checks)


def _left_out(profile: m.Profile, limits: Limits) -> Iterator[str]:
    """What this page does not show of the Profile because of its own limits."""
    for total, most, what in (
        (len(profile.runs), limits.runs, "runs"),
        (len(profile.findings), limits.findings, "findings"),
    ):
        if total > most:
            yield f"{count(total - most)} of {count(total)} {what}"
    if not limits.log_chars and any(run.log.text for run in profile.runs):
        yield "the logs"
    if profile.sources and not limits.source_rows:
        yield "the source view"
    runs = profile.runs[: limits.runs]
    drawn = kept(runs, limits.timelines)
    traced = breakdown.broken_down(runs)
    timelines = [at for at, _, each in traced if isinstance(each.timeline, m.StepTimeline)]
    if undrawn := sum(at not in drawn for at in timelines):
        yield f"the timelines of {plural(undrawn, 'run')}"
    compared = profile.comparison.runs[: limits.runs] if profile.comparison else ()
    trees = (len(drawable(runs)), len(differing(compared)))
    if undrawn := sum(max(0, number - limits.flames) for number in trees):
        yield plural(undrawn, "flame graph")
    if not limits.host_rows and any(isinstance(run.host, m.HostBreakdown) for run in profile.runs):
        yield "the Python functions"
    first = kept(runs, FIRST_RUNS)
    names = 0
    for at, _, each in traced:
        shown = limits.kernels_of(at, first)
        if shown:
            shown += limits.more_kernels
        names += max(0, min(len(each.rows), TOP_KERNELS + MORE_KERNELS) - shown)
    if names:
        yield f"{count(names)} kernel names (their sum stands in each table's last rows)"
