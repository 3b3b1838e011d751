"""The verbs, one short function each; what one needs is imported inside it, so that --help is
instant."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from kgprof import model as m
from kgprof._version import __version__
from kgprof.cli import helping, options
from kgprof.cli.helping import Verb
from kgprof.cli.options import DEFAULTS, PLACE, Context, Spelt, with_context
from kgprof.cli.saying import inert, inform, to_stdout
from kgprof.errors import EXIT_GATE_FAILED, EXIT_OK, EXIT_USAGE, UsageError
from kgprof.export import EXPORTERS
from kgprof.progress import tell
from kgprof.reading import layout

HELP_WIDTH = 100
VIEWERS = tuple(exporter.name for exporter in EXPORTERS)
TRACED_PASSES = tuple(str(name) for name in layout.TRACE_FILES)


def fail_on_option(words: str) -> Callable[[Any], Any]:
    return click.option(
        "--fail-on", type=click.Choice([str(level) for level in m.FailOn]), help=words
    )


form_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)


def _hint_of(name: str) -> str:
    from kgprof.workloads.catalog import BUILT_IN

    file = f"{name.replace('.', '/')}.py"
    if name in BUILT_IN:
        return f"it is kgprof profile {name}"
    if Path(file).is_file():
        return f"it is kgprof profile {file}"
    return "see kgprof --help"


class Verbs(click.Group):
    """Takes a workload in place of a verb for one to profile, and suggests the nearest verb,
    whichever click is installed."""

    command_class = Verb

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        helping.write_verbs(formatter)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            if ":" in args[0] or args[0].endswith(".py"):
                return super().resolve_command(ctx, ["profile", *args])
            if args[0] in helping.MEANT:
                verb = helping.MEANT[args[0]]
                raise UsageError(f"no command {args[0]!r}", f"it is kgprof {verb}")
            known = self.list_commands(ctx)
            raise UsageError(options.unknown("command", args[0], known), _hint_of(args[0]))
        return super().resolve_command(ctx, args)


class WorkloadCommand(Verb):
    """Keeps what stands after ``--`` for the workload; click would take its first word for an
    argument of ours. With ``-- --help`` nothing runs but that."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.ensure_object(Context).workload_args = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        from kgprof.workloads import loading

        workload = ctx.params.get("workload")
        args = ctx.ensure_object(Context).workload_args
        if workload is None or not loading.asks_for_help(workload, args):
            return super().invoke(ctx)
        to_stdout(inert(loading.help_text(workload)))
        return EXIT_OK

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- the workload's own options]"]


def versions(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    import platform

    packages = ", ".join(
        f"{package} {options.installed(package)}" for package in ("torch", "triton")
    )
    to_stdout(f"kgprof {__version__} ({packages}, Python {platform.python_version()})")
    ctx.exit()


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "KGPROF",
        "max_content_width": HELP_WIDTH,
    },
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=versions,
    help="Print the version and exit.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Is this torch.compile'd program slow, why, and where do I look? One HTML report answers.

    \b
    Start here:  kgprof profile linkpred             the built-in evaluator
                 kgprof profile my_model.py:step     a function without arguments
                 kgprof profile train.py -- ARGS     a script, unmodified

    Every option can also be set by an environment variable: KGPROF_PROFILE_STEPS=50 for --steps 50.
    """
    if ctx.invoked_subcommand is None:
        tell(ctx.get_help())
        ctx.exit(EXIT_USAGE)


@cli.command(cls=WorkloadCommand)
@options.workload_argument
@options.run_options
@options.wait_option
@options.passes_option
@options.evaluations_option
@options.number(
    "--rounds",
    DEFAULTS.rounds,
    "Repeat TIMING in N fresh processes, interleaved across runs, for the intervals of `kgprof "
    "compare`. Caches are warm from the second on. Not available for scripts.",
    most=m.MOST_ROUNDS,
)
@click.option(
    "--accepted",
    metavar="PATH",
    help=(
        "File of accepted findings, which the report strikes through.  [default: "
        "kgprof-accepted.toml]"
    ),
)
@options.hta_option
@options.secret_option
@options.report_options
@with_context
def profile(
    context: Context, /, workload: str, hta: bool | None, accepted: str | None, **given: Any
) -> int:
    """Run WORKLOAD, measure it, and write report.html and report.json.

    WORKLOAD is linkpred (the built-in link-prediction evaluator, and the default if [tool.kgprof]
    names no workload), another built-in (kgprof workloads lists them), pkg.mod:name or
    path/file.py:name, where name is a function without arguments (one step) or an object with
    strategies. Each strategy runs in each mode in its own process. Or it is a whole script.py (-m
    pkg.mod for a module), which runs once, unmodified, with the arguments after --. The last line
    on stdout is the report's path.

    \b
    For example:  kgprof profile linkpred --strategy fused -- --queries 100
                  kgprof profile my_model.py:step --mode eager --mode default
                  kgprof profile train.py --max-steps 200 -- --epochs 1
                  kgprof profile linkpred -- --help        the workload's own options
    """
    from kgprof.cli.reading import accepted_here, configuration, kernel_kinds
    from kgprof.cli.recording import run_here
    from kgprof.cli.writing import reported
    from kgprof.record import refuse_other_platforms
    from kgprof.record.ground import store

    refuse_other_platforms()
    asked = options.asked_for(workload, context.workload_args, **given)
    kernel_kinds()  # a fault in them is told before anything runs
    known = accepted_here(accepted)
    with run_here(asked, configuration(accepted), context) as ran:
        if isinstance(ran, int):
            return ran
        store.write_json(ran.recording / layout.ACCEPTED, known)
        return reported(ran, context, hta=hta)


@cli.command("check-graphs", cls=WorkloadCommand)
@options.workload_argument
@options.run_options
@options.many(
    "--max",
    "budgets",
    "[STRATEGY[.MODE]:]METRIC=N",
    "A budget: graph-breaks, skipped-frames, recompiles, eager-calls, cache-bypasses, "
    "cudagraph-skips, compile-seconds or syncs-per-step. Repeatable.  [default: graph-breaks=0, "
    "skipped-frames=0, recompiles=0; more than 0 eager-calls warn]",
)
@fail_on_option(
    "Lowest severity that fails the check, for findings no budget covers.  [default: error]"
)
@click.option(
    "--backend",
    type=click.Choice(m.BACKENDS),
    help=(
        "Backend to use instead of Inductor, if no budget needs generated code.  "
        "[default: inductor]"
    ),
)
@options.accepted_option
@click.option(
    "--update-baseline",
    is_flag=True,
    help="Write what fails now into that file, for you to add reasons.",
)
@options.torch_trace_option
@options.secret_option
@options.report_options
@with_context
def check_graphs(
    context: Context,
    /,
    workload: str,
    budgets: tuple[str, ...],
    fail_on: str | None,
    backend: str | None,
    accepted: str | None,
    update_baseline: bool,
    torch_trace: Path | None,
    **given: Any,
) -> int:
    """Fail when WORKLOAD breaks graphs, falls back to eager or recompiles: the gate for CI.

    Only the COMPILE pass runs, and MEMORY if syncs-per-step has a budget. Budgets, --fail-on,
    --backend and the file of accepted findings can also be set in kgprof.toml, or in pyproject.toml
    under [tool.kgprof]. Exit code 0: passed; 1: failed; 2: wrong option or file; 4: the workload
    died; 5: nothing was compiled; 6: something with a budget was not observed.

    \b
    For example:  kgprof check-graphs my_model.py:step --backend aot_eager
                  kgprof check-graphs --max recompiles=1 --max fused.default:compile-seconds=60
                  kgprof check-graphs --format sarif=kgprof.sarif --format junit=kgprof.xml
                  kgprof check-graphs --torch-trace DIR        logs of a run under TORCH_TRACE=DIR
    """
    from kgprof.cli import reading, writing
    from kgprof.cli.recording import run_here, torch_trace_read
    from kgprof.gate.settings import parse_options, passes
    from kgprof.reading import recordings
    from kgprof.record import refuse_other_platforms
    from kgprof.record.ground import store

    faults: list[str] = []
    settings = reading.gate_settings(
        parse_options(budgets, fail_on, backend, accepted, faults), faults
    )
    if torch_trace is not None:
        asked = options.traced_options(context, torch_trace)
        making: Any = torch_trace_read(asked, torch_trace, context)
    else:
        refuse_other_platforms()
        asked = options.asked_for(
            workload,
            context.workload_args,
            **given,
            passes=passes(settings),
            backend=settings.backend,
        )
        making = run_here(asked, reading.configuration(accepted), context)
    with making as ran:
        if isinstance(ran, int):
            return ran
        store.write_json(ran.recording / layout.GATE, settings)
        found, report = writing.finished(ran, context)
    recording = report.parent / layout.FOLDER
    context.inform(f"the report is {report}")
    writing.add_to_job_summary(found, context.job)
    writing.emit(found, recording, context)
    if update_baseline:
        judged = reading.judged_profile(recordings.load(recording), reading.kernel_kinds())
        return writing.write_baseline(
            judged, settings, whole=not asked.strategies and not asked.modes
        )
    return found.exit_code


@cli.command(cls=WorkloadCommand)
@options.workload_argument
@click.option(
    "--minutes",
    type=options.Above0(options.LONGEST_TIMEOUT_S / 60),
    default=m.FIX_MINUTES,
    show_default=True,
    help="Begin no other lever, and no other pair for one, after so long.",
)
@click.option(
    "--allow",
    type=click.Choice([str(m.Changes.MEANING)]),
    help="Put into the patch, too, what lowers the precision on purpose, or draws other numbers.",
)
@click.option(
    "--again-is-safe",
    is_flag=True,
    help=(
        "Go on although the program writes files, connects or starts processes: each start does it "
        "again."
    ),
)
@click.option(
    "--apply",
    is_flag=True,
    help="Change the file, if the patch was shown to help and git has the file as it is.",
)
@options.device_option
@options.number("--steps", DEFAULTS.steps, "Steps per timed group.")
@options.number("--warmup", DEFAULTS.warmup, "Warm-up calls per process.", least=0)
@options.seed_option
@options.timeout_option
@options.wait_option
@options.output_option
@options.sheet_format_option
@options.quiet_option
@options.report_options
@with_context
def fix(
    context: Context,
    /,
    workload: str,
    minutes: float,
    allow: str | None,
    again_is_safe: bool,
    apply: bool,
    **given: Any,
) -> int:
    """Try changes of WORKLOAD that may make a step faster, and write the patch of those that did.

    WORKLOAD is path/file.py:name or pkg.mod:name, where name is a function without arguments that
    makes one step. Every start is in a copy of its folder (of a git repository what git knows or
    would add); the files themselves are changed by --apply alone. The first start is watched: a
    program that writes files, connects or starts processes is not started again, and exit code 2
    says what it did. Then each change is timed by pairs of processes in turn, on top of those that
    were kept before it. One that is more than 3 % faster (the whole 95 % interval), or more than
    10 % in both of the first two pairs, stays if the results of 20 seeded steps are the same, or
    another rounding of them. The patch is measured once more as a whole, and this is the gain that
    the result gives. The last line on stdout is the patch's path.

    Exit code 0: a patch, or nothing to do; 2: wrong option, or not safe to start again; 4: the
    program as it is fails; 5: it has no step to call; 6: not decided (too little time, or too much
    noise).

    \b
    For example:  kgprof fix my_model.py:step
                  kgprof fix my_model.py:step --minutes 3 --apply
                  kgprof fix train.py:step --allow meaning -- --batch 64
    """
    from kgprof.cli.fixing import fixed
    from kgprof.record import refuse_other_platforms

    refuse_other_platforms()
    asked = options.asked_for(workload, context.workload_args, **given)
    return fixed(
        asked,
        minutes=minutes,
        allowed=m.Changes(allow or m.Changes.ROUNDING),
        again_is_safe=again_is_safe,
        apply=apply,
        context=context,
    )


@cli.command()
@click.argument("recording", type=PLACE, required=False)
@options.folder_option("Write the report to this folder instead.")
@options.torch_trace_option
@options.hta_option
@options.format_option
@options.quiet_option
@options.secret_option
@options.report_options
@with_context
def report(
    context: Context, recording: Path | None, torch_trace: Path | None, hta: bool | None
) -> int:
    """Write the report of a Recording again; torch is not needed.

    RECORDING is the folder that `kgprof profile` wrote, or anything in it: recording/, report.html,
    report.json. A recording of `kgprof check-graphs` is judged again by its own budgets and
    accepted findings. A comparison, or a report.html without its recording, is printed as it stands
    with --format. Exit code 0 means that the report was written; the result of the run or gate
    is in it (exit_code in report.json).

    \b
    For example:  kgprof report reports/linkpred-20260102T030405Z
                  kgprof report my-run --format markdown
                  kgprof report report.html --format text        a page that came alone
                  kgprof report --torch-trace DIR        logs of a run under TORCH_TRACE=DIR
    """
    from kgprof.cli import reading, writing
    from kgprof.cli.recording import torch_trace_read
    from kgprof.record.ground.unfinished import refuse_overwriting

    if (recording is None) == (torch_trace is None):
        raise UsageError("report needs exactly one input", "give a RECORDING, or --torch-trace DIR")
    page = None
    if torch_trace is not None:
        asked = options.traced_options(context, torch_trace)
        with torch_trace_read(asked, torch_trace, context) as work:
            found, page = writing.finished(work, context, hta=hta)
        folder = page.parent / layout.FOLDER
    else:
        assert recording is not None
        carried = reading.carried(recording, context.sharing)
        if carried is not None and context.output is None:
            return _as_it_stands(carried, recording, context)
        folder = layout.resolve(recording)
        where = context.output
        if where is None and not context.outputs:
            where = layout.output_folder(folder)
        written = []
        if where is not None:
            written = [where / name for name in layout.REPORTS]
        refuse_overwriting([], [*written, *context.files], folder)
        found = reading.read(folder, hta=hta, quiet=context.quiet, sharing=context.sharing)
        context.folder = where
        if where is not None:
            page = writing.write_report(where, found, folder, context.job)
    writing.add_to_job_summary(found, context.job)
    if page is not None and not context.outputs:
        writing.show_ending(found, page, context)
    writing.emit(found, folder, context, otherwise=str(page or ""))
    return EXIT_OK


def _as_it_stands(found: m.Profile, path: Path, context: Context) -> int:
    """Print the Profile that a report carries. Raises UsageError where nothing is asked for, or a
    result would replace the report."""
    from kgprof.cli import writing
    from kgprof.record.ground.unfinished import refuse_overwriting, results

    what = "a report without its Recording"
    if found.comparison is not None:
        what = "a comparison, which head's own report would replace"
    if not context.outputs:
        hint = "print it with --format text, markdown or json"
        raise UsageError(f"{path} is {what}", hint)
    refuse_overwriting(results(path), context.files)
    writing.add_to_job_summary(found, context.job)
    writing.emit(found, None, context)
    return EXIT_OK


@cli.command()
@click.argument("traces", nargs=-1, required=True, metavar="FILE|DIR...", type=PLACE)
@click.option(
    "--against",
    multiple=True,
    type=PLACE,
    metavar="FILE|DIR",
    help=(
        "Compare with this trace (or these, rank by rank): µs per step by kernel, "
        "kind and span. Repeatable."
    ),
)
@options.folder_option("Folder for the report.  [default: reports/NAME-TIME]")
@options.hta_option
@options.format_option
@options.quiet_option
@options.secret_option
@options.report_options
@with_context
def trace(
    context: Context, traces: tuple[Path, ...], against: tuple[Path, ...], hta: bool | None
) -> int:
    """Write a report about traces that torch.profiler wrote in any program; runs nothing.

    FILE is a Kineto trace, plain or gzip; in a DIR all .json and .json.gz files are read, one per
    rank. The rank comes from the trace's distributedInfo, otherwise from the file name. A truncated
    file is read as far as possible, and the report says so. The traces are copied into the
    Recording, so that `kgprof report` can read it again without them. Exit code 0: the report was
    written; 2: no trace could be read; 5: they have nothing to measure. The last line on stdout is
    the report's path.

    \b
    For example:  kgprof trace trace.json.gz
                  kgprof trace profiles/     one trace per rank: who computes longest, who waits
                  kgprof trace new.json --against old.json --format text
    """
    from kgprof.cli.reading import kernel_kinds
    from kgprof.cli.recording import making
    from kgprof.cli.writing import reported
    from kgprof.record import default_folder
    from kgprof.record.files import kineto_files

    kernel_kinds()  # a fault in them is told before anything is read
    where = context.output or default_folder(kineto_files.title(traces[:1]))
    asked = m.Options(kineto_files.title(traces), passes=(m.PassName.TRACE,))
    named = (*traces, *against)
    files = [
        path
        for path in kineto_files.find(named)
        if path in named or path.name not in layout.REPORTS
    ]
    with making(where, files, context, worth_keeping=False) as work:
        with context.progress() as shown_progress:
            _, unread = kineto_files.record_files(
                traces, work.folder, asked, shown_progress, against=against
            )
            shown_progress.phase("analysis", None)
        for sentence in unread:
            inform(f"left out: {sentence}")
        return reported(work, context, hta=hta)


@cli.command()
@click.argument("recording", type=PLACE)
@click.option(
    "--to",
    "viewer",
    type=click.Choice((*VIEWERS, m.GRAPH, m.CODE)),
    required=True,
    help=(
        "Viewer to write the trace for; graph: the FX graphs that Dynamo captured; "
        "code: what Inductor generated."
    ),
)
@click.option(
    "--run",
    "slug",
    metavar="STRATEGY.MODE",
    help="Run to export.  [default: the only one that has a trace]",
)
@click.option(
    "--pass",
    "name",
    cls=Spelt,
    type=click.Choice(TRACED_PASSES),
    help=(
        "Trace of the run to export.  [default: kernels if there is one, as in the "
        "report; otherwise trace]"
    ),
)
@click.option("-o", "--output", type=PLACE, required=True, metavar="FILE", help="File to write.")
@options.redact_option
@options.source_option
@options.verbose_option
@with_context
def export(
    context: Context,
    recording: Path,
    viewer: str,
    slug: str | None,
    name: str | None,
    output: Path,
) -> int:
    """Write the trace of one run for another viewer (speedscope, Perfetto), or its FX graphs or
    generated code.

    RECORDING is the folder that `kgprof profile` or `kgprof trace` wrote, or anything in it. For
    perfetto FILE is the trace as torch.profiler wrote it (gzipped JSON; chrome://tracing reads it
    too). For speedscope it is the nesting of spans, operators and CUDA calls on each thread, of
    Python functions if the trace was recorded with stacks, and of the work on each stream. graph
    and code write the text of every compilation of the run. All are redacted like a report. The
    last line on stdout is FILE.

    \b
    For example:  kgprof export my-run --to speedscope --run fused.default -o fused.speedscope.json
                  kgprof export my-run --to perfetto --run fused.eager -o fused.trace.json.gz
                  kgprof export my-run --to code --run fused.default -o fused.py
    """
    from kgprof.cli.writing import write_texts, write_trace
    from kgprof.reading import recordings
    from kgprof.record.files import kept_traces
    from kgprof.record.ground.unfinished import refuse_overwriting, results

    options.refuse_unwritable(output)
    refuse_overwriting([recording, *results(recording)], [output], layout.resolve(recording))
    loaded = recordings.load(recording)
    if viewer in (m.GRAPH, m.CODE):
        write_texts(output, loaded, slug, viewer, context.sharing)
        to_stdout(str(output))
        return EXIT_OK
    kept = kept_traces.asked_for(loaded, slug, m.PassName(name) if name else None)
    exporter = EXPORTERS[VIEWERS.index(viewer)]
    file, warnings = exporter.export(kept.path, f"{kept.key.slug}, {kept.measured_in.upper()}")
    for warning in warnings:
        inform(warning)
    write_trace(output, file, loaded.header if context.sharing.redact else None)
    to_stdout(str(output))
    return EXIT_OK


@cli.command(cls=WorkloadCommand)
@options.workload_argument
@options.strategy_option
@options.many(
    "--mode",
    "modes",
    "MODE",
    f"Only these modes: {', '.join(options.MODES)}. Repeatable.",
    callback=options.checked_modes,
)
@options.many(
    "--backend",
    "backends",
    "NAME",
    "inductor, eager, aot_eager, cudagraphs, or any that torch has registered. Repeatable.  "
    "[default: inductor]",
)
@options.many(
    "--dynamic",
    "dynamic",
    None,
    "torch.compile(dynamic=...). Repeatable.",
    type=click.Choice(list(map(str, m.Dynamic))),
)
@options.many(
    "--precision",
    "precisions",
    None,
    "bf16 means autocast around every step. Repeatable.",
    type=click.Choice(list(map(str, m.Precision))),
)
@options.many(
    "--size",
    "size",
    "'OPTIONS'",
    "Sweep once with these options of the workload, for example --size '--batch 64'. Repeatable.",
)
@click.option(
    "--ladder/--no-ladder",
    default=True,
    help=(
        "Check the best cell's results against float64, and time a start with "
        "shipped caches.  [default: on]"
    ),
)
@click.option(
    "--sizes",
    "varying",
    cls=Spelt,
    metavar="N,N,...",
    callback=options.checked_sizes,
    help="Try static and dynamic shapes, buckets and padding with these row counts, "
    "in this order; own: the sizes "
    "the program itself uses.",
)
@options.number(
    "--executions",
    m.SWEEP_EXECUTIONS,
    "Steps per start of your program; the verdict is for this number.",
)
@options.number(
    "--processes",
    m.TURNS,
    "Fresh processes per cell, interleaved across cells; the first has cold caches.",
    "turns",
    most=m.MOST_ROUNDS,
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1, max=m.MOST_ROUNDS),
    default=1,
    help=(
        f"Cold starts per cell.  [default: {m.COLD_STARTS} for the best, the "
        "runner-up and eager, otherwise 1]"
    ),
)
@click.option(
    "--minutes",
    type=options.Above0(options.LONGEST_TIMEOUT_S / 60),
    default=m.SWEEP_MINUTES,
    show_default=True,
    help=(
        "Start no process that would probably end after MINUTES; a third of them is for the ladder."
    ),
)
@click.option(
    "--resume",
    is_flag=True,
    help="Reuse the cells that an earlier sweep into the same folder finished.",
)
@options.device_option
@options.number("--steps", DEFAULTS.steps, "Steps per timed group.")
@options.number("--warmup", DEFAULTS.warmup, "Warm-up calls per process.")
@options.seed_option
@options.time_limit(DEFAULTS.timeout_s, "Time limit per process, in seconds (at most 7 days).")
@options.output_option
@options.sheet_format_option
@options.quiet_option
@options.report_options
@with_context
def sweep(
    context: Context,
    /,
    workload: str,
    modes: tuple[str, ...],
    backends: tuple[str, ...],
    dynamic: tuple[str, ...],
    precisions: tuple[str, ...],
    size: tuple[str, ...],
    timeout: float,
    **given: Any,
) -> int:
    """Which mode of torch.compile should WORKLOAD use, and is compiling worth it? Runs it in all of
    them.

    Each cell (a mode or backend, with its dynamic shapes and precision) runs in fresh processes,
    interleaved across cells: first with cold caches, then with warm ones. The answer names the mode
    to use, the line to write, and when each cell has paid for its compilation. After --minutes the
    best cell's results are checked against float64, stage by stage of torch.compile. WORKLOAD is
    what `kgprof profile` takes; for a script, kgprof changes the settings of its own torch.compile
    calls. If a cell dies, the others still run. Exit code 0: cells were measured; 4: all cells
    died; 5: nothing was compiled; 130: interrupted, and what was measured is kept. The last line on
    stdout is the page's path.

    \b
    For example:  kgprof sweep my_model.py:step --executions 50000
                  kgprof sweep train.py --mode default --mode reduce-overhead -- --epochs 1
                  kgprof sweep small-ops --backend inductor --backend aot_eager --precision bf16
    """
    import shlex

    from kgprof.cli.sweeping import swept
    from kgprof.lab.sweep import Grid
    from kgprof.record import refuse_other_platforms
    from kgprof.workloads import loading

    refuse_other_platforms()
    grid = Grid(
        modes=modes,
        backends=backends,
        dynamic=tuple(map(m.Dynamic, dynamic)),
        precisions=tuple(map(m.Precision, precisions)),
        sizes=tuple(tuple(shlex.split(each)) for each in size),
    )
    if given["resume"] and context.output is None:
        raise UsageError("--resume needs the folder of the earlier sweep", "name it with -o")
    loading.find(workload)
    loading.refuse_from_its_text(workload)
    options.tell_of_the_default(workload)
    for each in grid.sizes or ((),):
        loading.check_arguments(workload, (*context.workload_args, *each))
    measured = ("strategies", "device", "steps", "warmup", "seed")
    of_options = {name: given.pop(name) for name in measured}
    asked = m.Options(
        workload, workload_args=context.workload_args, timeout_s=timeout, **of_options
    )
    return swept(asked, grid, **given, context=context)


@cli.command()
@click.argument("sweep_dir", type=PLACE)
@click.option(
    "--executions",
    type=click.IntRange(min=1),
    required=True,
    help="Steps per start of your program.",
)
@click.option(
    "--memory",
    "memory_bytes",
    cls=Spelt,
    type=click.IntRange(min=1),
    metavar="BYTES",
    help="Recommend only cells that fit into BYTES, with a margin of 25 %.  [default: any amount]",
)
@options.sheet_format_option
@options.quiet_option
@options.redact_option
@options.verbose_option
@with_context
def advise(context: Context, sweep_dir: Path, executions: int, memory_bytes: int | None) -> int:
    """Should this workload be compiled, and how? Answer from a sweep, for so many executions and so
    much memory.

    SWEEP_DIR is the folder that `kgprof sweep` wrote. Nothing is run. Memory is the GPU's where
    there is one, else the process's.

    \b
    For example:  kgprof advise reports/sweep-my_model-step-20260102T030405Z --executions 200
                  kgprof advise my-sweep --executions 1000000 --memory 8000000000
    """
    from kgprof.cli.sweeping import advised

    return advised(sweep_dir, executions, memory_bytes, context)


@cli.command(cls=WorkloadCommand)
@click.argument("sides", nargs=-1, metavar="BASE HEAD [...]", type=PLACE)
@click.option(
    "--history",
    cls=Spelt,
    type=PLACE,
    metavar="FOLDER",
    help=(
        "Add the recordings named to FOLDER, one file each, and show how each metric changed "
        "over all that is there."
    ),
)
@click.option(
    "--record",
    is_flag=True,
    help=(
        "BASE and HEAD are checkouts (folders, or commits of the repository here): "
        "record WORKLOAD in both, in turn."
    ),
)
@click.option(
    "--work-only",
    is_flag=True,
    help=(
        "With --record: compare only what is compiled and run, exactly: each side is recorded "
        "once, and nothing is timed."
    ),
)
@click.option(
    "--python",
    multiple=True,
    metavar="PATH",
    help=(
        "With --record: the interpreter to record with. Given twice: BASE with the first, HEAD "
        "with the second, to compare two versions of torch."
    ),
)
@options.number(
    "--rounds",
    options.PAIRS,
    "With --record: time each side in at most N fresh processes; it stops as soon as every limit "
    "is decided.",
    least=2,
    most=m.MOST_ROUNDS,
)
@options.regression_option
@fail_on_option("Lowest severity of a new finding that fails.  [default: warning]")
@click.option(
    "--allow-different-environment",
    is_flag=True,
    help="Compare times even if the GPU, torch version or flags differ.",
)
@options.accepted_option
@options.folder_option(
    "Write report.html and report.json to this folder.  [default with --record: "
    "reports/compare-WORKLOAD-TIME]"
)
@options.format_option
@options.recorded_options
@options.wait_option
@options.secret_option
@options.report_options
@with_context
def compare(
    context: Context,
    /,
    sides: tuple[Path, ...],
    history: Path | None,
    record: bool,
    work_only: bool,
    python: tuple[str, ...],
    rounds: int,
    budgets: tuple[str, ...],
    fail_on: str | None,
    allow_different_environment: bool,
    accepted: str | None,
    **given: Any,
) -> int:
    """Is HEAD slower than BASE, and why? Compares two recordings of one workload, or records two
    checkouts in turn.

    Without --record nothing runs: BASE and HEAD are each what `kgprof profile` or `kgprof
    check-graphs` wrote, the folder, its recording/, its report.json, or only the report.html from a
    pull request. Findings are matched even if their lines moved. A time is worse if its whole 95 %
    interval is above the limit, unchanged if all of it is below, otherwise inconclusive. Intervals
    are over rounds, so record both sides with --rounds 5 or more.

    With --record both sides are recorded here by pairs of processes that take turns, so that what
    drifts on this machine drifts under both. It ends when every limit is decided, after at most
    --rounds processes per side.

    More than two recordings A B C ... are shown as a history in that order: each metric as a line
    and a table, with its change against the first and the previous one (history.html and
    history.json with -o; exit code 0).

    With --history FOLDER the recordings named are added to FOLDER, and all that is there is shown
    in the order of the commits: when each metric changed, by how much, the newest change first
    (trend.html and trend.json with -o; exit code 0). Without a recording nothing is added.

    Limits and --fail-on can also be set in kgprof.toml, or in pyproject.toml under [tool.kgprof].
    Exit code 0: no regression; 1: a time or a limited metric is worse, results changed, or a
    finding is new; 2: wrong option or file; 4: the workload died in HEAD; 5: no run is on both
    sides, or BASE lacks the workload; 6: inconclusive (noise, too few rounds, another environment,
    the machine itself changed, or a side was interrupted).

    \b
    For example:  kgprof compare --record HEAD^ . my_model.py:step
                  kgprof compare --record ../v1 . linkpred --max-regression step=2% -- --queries 100
                  kgprof compare --record . . linkpred --python v1/bin/python --python v2/bin/python
                  kgprof compare base-run head-run
                  kgprof compare main/report.html report.html --format markdown
                  kgprof compare v1 v2 v3 -o history
                  kgprof compare --history perf-history head-run -o trend
    """
    from kgprof.cli import reading
    from kgprof.cli.comparing import Comparing

    options.refuse_unless_recorded(context, sides, history, record=record)
    if len(python) > 2:
        raise UsageError(f"--python was given {len(python)} times", "give it once or twice")
    settings, entries = reading.compare_settings(
        budgets, fail_on, accepted, allow_different_environment
    )
    comparing = Comparing(settings, entries, reading.configuration(accepted), context)
    if history is not None:
        return comparing.trend(history, sides)
    if not record and len(sides) == 2:
        return comparing.recordings(*sides)
    if not record:
        return comparing.history(sides)
    base, head, *named = map(str, sides)
    workload = options.compared_workload(named, f"kgprof compare --record {base} {head}")
    if work_only:
        given["passes"] = options.work_only(given["passes"])
    ask = partial(options.asked_for, workload, context.workload_args, **given)
    return comparing.checkouts(base, head, workload, ask, most=rounds, pythons=python)


@cli.command(cls=WorkloadCommand)
@click.argument("good")
@click.argument("bad")
@click.argument("workload", required=False)
@click.option(
    "--timed",
    is_flag=True,
    help="Time each commit in pairs with GOOD, although what is compiled and run may tell.",
)
@options.number(
    "--rounds",
    options.PAIRS,
    "With times: at most N pairs per commit.",
    least=2,
    most=m.MOST_ROUNDS,
)
@options.regression_option
@options.folder_option(
    "Write the result here, and go on with the recordings that are here.  [default: "
    "reports/bisect-WORKLOAD-TIME]"
)
@options.format_option
@options.step_options
@options.evaluations_option
@options.seed_option
@options.timeout_option
@options.quiet_option
@options.wait_option
@options.report_options
@with_context
def bisect(
    context: Context,
    /,
    good: str,
    bad: str,
    workload: str | None,
    timed: bool,
    rounds: int,
    budgets: tuple[str, ...],
    **given: Any,
) -> int:
    """Which commit between GOOD and BAD made WORKLOAD worse? Records those that halve the way, and
    nothing twice.

    GOOD is an ancestor of BAD. Each commit is recorded once, in a temporary work tree, and has what
    GOOD or what BAD compiles and runs: 8 recordings for 64 commits, without a clock. Commits are
    timed in pairs with GOOD, as `kgprof compare --record` does it, if GOOD and BAD do the same
    work, if a time has a limit, and with --timed. A commit in which the workload dies, or has
    neither's work, is skipped, as `git bisect skip` does.

    The report compares the first bad commit with its parent. Started again with the same -o, what
    was recorded is not recorded again. Exit code 0: found; 2: wrong option, or GOOD is not an
    ancestor of BAD; 4: the workload died in GOOD or BAD; 5: GOOD lacks the workload; 6: not
    decided, and the commits that remain are named.

    \b
    For example:  kgprof bisect v1.0 HEAD my_model.py:step
                  kgprof bisect HEAD~64 HEAD my_model.py:step --max-regression bytes-per-step=1%
                  kgprof bisect v1.0 HEAD my_model.py:step --timed -o reports/slower
    """
    from kgprof.cli import reading
    from kgprof.cli.bisecting import Search, bisected
    from kgprof.cli.comparing import Comparing

    settings, _ = reading.compare_settings(budgets, None, None, False)
    named = options.compared_workload([*filter(None, [workload])], f"kgprof bisect {good} {bad}")
    search = Search(
        Comparing(settings, (), reading.configuration(None), context),
        named,
        partial(options.asked_for, named, context.workload_args, **given),
        m.encode_json([named, context.workload_args, given]),
        timed=timed or any(each.partition("=")[0] in [*m.TimeOf] for each in budgets),
        pairs=rounds,
        limited=bool(budgets),
    )
    return bisected(search, good, bad)


@cli.command(cls=WorkloadCommand)
@click.argument("workload", required=False)
@options.many(
    "--case",
    "cases",
    "NAME",
    "Try only cases that match this pattern (capture-default*). Repeatable.",
)
@click.option("--list", "listing", is_flag=True, help="Print the cases and exit.")
@options.strategy_option
@options.time_limit(
    options.CASE_TIMEOUT_S,
    "Time limit per case; after it the case counts as hung. Native stacks (with py-spy or gdb) "
    "may take 30 s more.",
)
@options.seed_option
@options.output_option
@options.sheet_format_option
@options.quiet_option
@options.report_options
@with_context
def capture(
    context: Context,
    /,
    workload: str | None,
    cases: tuple[str, ...],
    listing: bool,
    timeout: float,
    **given: Any,
) -> int:
    """Can WORKLOAD be captured in a CUDA graph, and how is it best written? Tries it and compares
    with eager mode.

    WORKLOAD is a built-in (kgprof workloads lists them), pkg.mod:name or path/file.py:name, where
    name is a function without arguments or an object with strategies. kgprof finds the tensors that
    it reads, changes their values between replays, and compares results. Each case runs in its own
    process and is correct, wrong, raised, hung or not applicable; one recommendation follows, as
    code. A failed case is also an answer. Exit code 0: the cases were tried; 4: none could be run,
    for example without a CUDA device. The last line on stdout is the page's path.

    \b
    For example:  kgprof capture silu-mul
                  kgprof capture my_model.py:step --case 'capture-default*'
                  kgprof capture --list
    """
    from kgprof.cli import capturing
    from kgprof.record import refuse_other_platforms
    from kgprof.workloads import loading

    chosen = capturing.cases_of(workload or "", cases)
    if listing:
        to_stdout(capturing.listed(chosen))
        return EXIT_OK
    refuse_other_platforms()
    if workload is None:
        raise UsageError(
            "kgprof capture needs a WORKLOAD", "for example: kgprof capture my_model.py:step"
        )
    loading.find(workload)
    loading.refuse_from_its_text(workload)
    loading.check_arguments(workload, context.workload_args)
    asked = m.Options(workload, workload_args=context.workload_args, timeout_s=timeout, **given)
    return capturing.captured(asked, chosen, context)


@cli.command()
@click.argument("report", type=PLACE, metavar="REPORT")
@click.option(
    "-o", "--output", type=PLACE, metavar="FILE", help="File to write.  [default: stdout]"
)
@options.verbose_option
def extract(report: Path, output: Path | None) -> int:
    """Write the report.json that is embedded in a report.html.

    REPORT is only the page, as attached or downloaded. If parts were omitted from it to stay under
    1 MB, kgprof names them on stderr. Exit code 0: written; 2: not a kgprof report, truncated,
    without a Profile, or from a newer kgprof.

    \b
    For example:  kgprof extract report.html -o report.json
                  kgprof extract report.html | jq .verdict
    """
    from kgprof.record.ground import store
    from kgprof.record.ground.unfinished import refuse_overwriting
    from kgprof.render import embedded_profile
    from kgprof.render.json import Json

    if output is not None:
        options.refuse_unwritable(output)
        refuse_overwriting([report], [output])
    embedded = embedded_profile.read(report)
    text = Json().render(embedded.profile)
    for words in embedded.left_out:
        inform(f"not in this report's copy: {words}")
    if output is None:
        to_stdout(text)
        return EXIT_OK
    store.write_export(output, text.encode())
    to_stdout(str(output))
    return EXIT_OK


@cli.command()
@click.argument(
    "document",
    metavar="DOCUMENT",
    type=click.Choice(options.RESULTS),
    default=options.RESULTS[0],
)
def schema(document: str) -> int:
    """Print the JSON Schema of report.json (of a comparison, too), sweep.json, capture.json,
    history.json or fix.json.

    \b
    For example:  kgprof schema > kgprof.schema.json
                  kgprof schema sweep > sweep.schema.json
    """
    from kgprof.render import json

    to_stdout(m.encode_json(json.schema(document)).decode())
    return EXIT_OK


@cli.command()
@options.device_option
@form_option
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
@options.verbose_option
def selftest(device: str, form: str, quiet: bool) -> int:
    """Check every capture on this machine and torch against a workload with known answers.

    Each capture works, is unavailable (with the reason), or is WRONG (expected, got). An
    unavailable capture is not a failure. Exit code 0: no answer is wrong; 1: at least one is.

    \b
    For example:  kgprof selftest --device cpu
    """
    from kgprof import progress
    from kgprof.cli.selftest import lines
    from kgprof.cli.selftest import selftest as answers_here
    from kgprof.render.json import inert_json

    with progress.choose(quiet=quiet) as shown_progress:
        answers = answers_here(device, shown_progress, timeout_s=DEFAULTS.timeout_s)
    if form == "json":
        to_stdout(inert_json(answers))
    else:
        to_stdout("\n".join(lines(answers)))
    if answers.wrong:
        return EXIT_GATE_FAILED
    return EXIT_OK


@cli.command()
@click.argument("rule", required=False)
@click.option(
    "--format", "form", type=click.Choice(["text", "markdown"]), default="text", show_default=True
)
def explain(rule: str | None, form: str) -> int:
    """Explain a rule: what it means, why it costs time, an example, the fix. Without RULE, list
    all.

    \b
    For example:  kgprof explain KGP501
                  kgprof explain --format markdown > RULES.md        every rule in full
    """
    from kgprof.collectors import RULES
    from kgprof.render.rules_page import rules_page

    if form == "markdown":
        if rule is not None:
            raise UsageError("--format markdown prints every rule", "leave out RULE or --format")
        to_stdout(rules_page(RULES))
        return EXIT_OK
    if rule is None:
        to_stdout("\n".join(f"{known.id}  {known.name:<28} {known.summary}" for known in RULES))
        return EXIT_OK
    named = {name: known for known in RULES for name in (known.id, known.name)}
    name = rule.lower()
    if name.isdecimal() and len(name) == len("201"):
        name = f"kgp{name}"
    if name.startswith("kgp"):
        name = name.upper()
    if name not in named:
        raise UsageError(
            options.unknown("rule", rule, tuple(named), near=name, cutoff=options.NEAR),
            "`kgprof explain` lists them all",
        )
    shown = named[name]
    to_stdout(
        f"{shown.id} {shown.name} ({shown.level})\n\n{shown.summary}\n\n"
        f"Why\n  {shown.why}\n\nExample\n  {shown.example}\n\nWhat to do\n  {shown.remedy}"
    )
    return EXIT_OK


@cli.command()
@form_option
def workloads(form: str) -> int:
    """List the built-in workloads: what each shows and the document it comes from.

    S0 and S3 are about the evaluator, S1 is a guide to torch.compile, S2 an account of its stages
    and cost, S4 a diagnosis of a CUDA graph that could not be captured.

    \b
    For example:  kgprof profile small-ops
                  kgprof profile small-ops -- --layers 1000
                  kgprof profile small-ops -- --help          its shapes
    """
    from kgprof.workloads import loading

    listed = list(loading.listing())
    if form == "json":
        rows = [dict(zip(("name", "shows", "source"), row, strict=True)) for row in listed]
        to_stdout(m.encode_json(rows).decode())
        return EXIT_OK
    width = max(len(name) for name, _, _ in listed)
    to_stdout("\n".join(f"{name:<{width}}  {shows} ({source})" for name, shows, source in listed))
    return EXIT_OK


@cli.command(
    add_help_option=False,
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": [],
    },
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def evaluate(args: tuple[str, ...]) -> int:
    """Run linkpred (the built-in link-prediction evaluator) alone, without profiling, and print how
    well it ranks."""
    from kgprof.workloads import loading

    text, code = loading.evaluate(args)
    if text:
        to_stdout(inert(text))
    return code


@cli.command()
@form_option
def datasets(form: str) -> int:
    """List the graphs of linkpred (the built-in link-prediction evaluator): counts, licence and
    source.

    \b
    For example:  kgprof datasets --format json
    """
    from kgprof.workloads import loading

    to_stdout(inert(loading.datasets(form)))
    return EXIT_OK


@cli.command("ci-init")
@click.argument("place", metavar="github|gitlab", type=click.Choice(["github", "gitlab"]))
@click.option(
    "--workload",
    help="Workload that the workflow profiles.  [default: what [tool.kgprof] names]",
)
@click.option(
    "-o",
    "--output",
    type=PLACE,
    metavar="PATH",
    help="File to write.  [default: .github/workflows/kgprof.yml or .gitlab/kgprof.yml]",
)
@click.option(
    "--from",
    "source",
    metavar="SOURCE",
    help="Where pip takes kgprof from: git+https://HOST/OWNER/REPOSITORY@COMMIT, or ./"
    "FOLDER of the repository. "
    " [default: the commit that this kgprof was installed from]",
)
@click.option("--force", is_flag=True, help="Overwrite a file that kgprof did not write.")
@options.verbose_option
def write_ci(
    place: str, workload: str | None, output: Path | None, source: str | None, force: bool
) -> int:
    """Write a workflow that records a pull request's base and head in turn on one runner and
    compares them.

    Actions and kgprof are pinned by commit, torch by the version that is installed here. Check what
    it installs before you commit it. On GitHub, no code of the pull request runs in the job whose
    token can comment. The last line on stdout is the file's path.

    \b
    For example:  kgprof ci-init github --workload my_model.py:step
                  kgprof ci-init gitlab -o ci/kgprof.yml
    """
    from kgprof.cli.writing import (
        PATHS,
        kgprof_source,
        refuse_to_replace,
        refuse_what_is_no_file,
        workflow,
    )
    from kgprof.record.ground import store

    if workload is None:
        workload = options.compared_workload([], f"kgprof ci-init {place} --workload")
    path = output or PATHS[place]
    options.refuse_unwritable(path)
    refuse_what_is_no_file(path)
    if not force:
        refuse_to_replace(path)
    address = kgprof_source(source)
    torch = options.installed("torch").partition("+")[0]
    if not torch[:1].isdecimal():
        torch = ""
    text = workflow(place, workload=workload, torch=torch, path=path, source=address)
    store.write_export(path, text.encode())
    if not address:
        inform(
            "fill in KGPROF before you commit the file, or use --from: no package index has kgprof"
        )
    to_stdout(str(path))
    return EXIT_OK
