"""The command line: one short function a verb. What a verb needs is imported inside it, so that --help is instant."""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from kgprof._version import __version__
from kgprof.ci import Job, inert, job_of
from kgprof.counted import counted
from kgprof.errors import (
    EXIT_GATE_FAILED,
    EXIT_INCONCLUSIVE,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_NOTHING_MEASURED,
    EXIT_OK,
    EXIT_USAGE,
    EXIT_WORKLOAD,
    KgprofError,
    UsageError,
)
from kgprof.gate.settings import FAIL_ON
from kgprof.model import Options, PassName, Profile, RunReport, Skipped
from kgprof.workloads.backend_names import BACKENDS
from kgprof.workloads.modes import AS_IS, COMPILED_MODES, EAGER

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kgprof.analysis.compare import CompareSettings
    from kgprof.gate import Settings
    from kgprof.gate.accepted import Entry
    from kgprof.gate.settings import Written
    from kgprof.model import GateEntry, KindOverride, Recording, RecordingHeader
    from kgprof.progress import Progress
    from kgprof.record.kept_traces import KeptTrace
    from kgprof.record.ranks import Launch
    from kgprof.render import Renderer
    from kgprof.render.hand_off import TraceToHandOff

DEFAULTS = Options()
MODES = (EAGER, *COMPILED_MODES, AS_IS)
CONFIGURATION = ("kgprof.toml", "pyproject.toml")  # looked for from the working directory up to git's top folder
BASELINE_DAYS = 90  # how long a finding that --update-baseline adds is accepted
HELP_WIDTH = 100
PASSES = tuple(str(name) for name in PassName)
MODULE = "kgprof.module"
SPEEDSCOPE, PERFETTO = VIEWERS = ("speedscope", "perfetto")
TRACED_PASSES = (str(PassName.TRACE), str(PassName.KERNELS), str(PassName.STACK))
LONGEST_TIMEOUT_S = 7 * 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """What of a Recording a report may show."""

    redact: bool = True
    source: str = "repo"


@dataclass
class Context:
    """What an error message needs to know (was -v given, and where does this run write?), and how to report."""

    verbose: bool = False
    folder: Path | None = None
    sharing: Sharing = Sharing()
    job: Job = field(default_factory=Job)  # outside of CI, and with --no-ci, one that offers nothing


def main(args: Sequence[str] | None = None) -> NoReturn:
    """The console script."""
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """Exit code of one command line; every way out of it says itself on stderr in one form."""
    context = Context()
    try:
        code = cli.main(args, prog_name="kgprof", standalone_mode=False, obj=context)
        return code if isinstance(code, int) else EXIT_OK
    except KgprofError as error:
        say(error.message, error.hint)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        say(lower_first(error.format_message()), help_hint(error))
        return EXIT_USAGE
    except Exception as error:  # noqa: BLE001  the last resort: the traceback goes to a file that is named
        return internal_error(error, context)


def say(message: str, hint: str = "") -> None:
    """The one form of an error: what happened, and what to do next."""
    click.echo(inert(f"kgprof: error: {message}" + (f"\n  hint: {hint}" if hint else "")), err=True)


def help_hint(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return "see kgprof --help"
    if isinstance(error, click.NoSuchOption) and context.info_name == "profile":
        return f"see {context.command_path} --help; the workload's own options stand after --"
    return f"see {context.command_path} --help"


def lower_first(text: str) -> str:
    """click begins its messages with a capital and ends them with a full stop."""
    return text[:1].lower() + text[1:].removesuffix(".")


def internal_error(error: Exception, context: Context) -> int:
    text = "".join(traceback.format_exception(error))
    folder = context.folder if context.folder is not None and context.folder.is_dir() else Path(tempfile.gettempdir())
    path = folder / f"kgprof-traceback-{os.getpid()}.txt"
    try:
        path.write_text(text, encoding="utf-8")
        hint = f"this is a fault of kgprof's; its traceback is in {path}"
    except OSError as unwritable:
        hint = f"this is a fault of kgprof's; run again with -v for its traceback ({unwritable})"
    say(f"internal error: {type(error).__name__}: {error}", hint)
    if context.verbose:
        click.echo(text, err=True)
    return EXIT_INTERNAL


# ---------------------------------------------------------------- the verbs


class Verbs(click.Group):
    """Suggests the nearest verb, whichever click is installed."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise UsageError(unknown("command", args[0], self.list_commands(ctx)), hint="see kgprof --help")
        return super().resolve_command(ctx, args)


class WorkloadCommand(click.Command):
    """Keeps what stands after ``--`` for the workload; click would take its first word for an argument of ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[WORKLOAD_ARGS] = args[:at], tuple(args[at + 1 :])
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- the workload's own options]"]


WORKLOAD_ARGS = "kgprof.workload_args"


def versions(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    import platform

    text = f"kgprof {__version__} (torch {installed('torch')}, triton {installed('triton')}, Python "
    click.echo(f"{text}{platform.python_version()})")
    ctx.exit()


def installed(package: str) -> str:
    """A version without importing the package."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "KGPROF",
        "max_content_width": HELP_WIDTH,
    },
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=versions, help="Say it and stop.")
@click.pass_context
def cli(ctx: click.Context) -> int | None:
    """Is this torch.compile'd program slow, why, and where do I look? One HTML report says it.

    \b
    Start here:  kgprof profile                      the built-in evaluator
                 kgprof profile my_model.py:step     a function of yours that takes no arguments
                 kgprof profile train.py -- ARGS     a script as it stands

    Every option can also be set by an environment variable, KGPROF_PROFILE_STEPS=50 for --steps 50.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(EXIT_USAGE)
    return None


def be_verbose(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.ensure_object(Context).verbose = value


def parsed_formats(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[Output, ...]:
    return parse_formats(values)


def checked_modes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if value not in MODES:
            raise UsageError(unknown("mode", value, MODES), hint=f"the modes are {', '.join(MODES)}")
    return values


def checked_timeout(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if not value <= LONGEST_TIMEOUT_S:  # NaN is in every range of click's
        longest = f"{LONGEST_TIMEOUT_S:.0f} s (7 days)"
        raise UsageError(f"--timeout {value:g} is no time limit", hint=f"give seconds, {longest} at most")
    return value


verbose_option = click.option(
    "-v", "--verbose", is_flag=True, expose_value=False, callback=be_verbose, help="Show the traceback of a crash."
)


def be_in_no_ci(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.ensure_object(Context).job = Job() if value else job_of(os.environ)


def be_unredacted(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    context = ctx.ensure_object(Context)
    context.sharing = replace(context.sharing, redact=not value)


def show_source(ctx: click.Context, param: click.Parameter, value: str) -> None:
    context = ctx.ensure_object(Context)
    context.sharing = replace(context.sharing, source=value)


def sharing_options(command: Any) -> Any:
    """What every verb takes that makes a report."""
    options = (
        click.option(
            "--no-redact",
            is_flag=True,
            expose_value=False,
            callback=be_unredacted,
            help="Leave in the report what identifies a machine or a person: names, home directories, tokens.",
        ),
        click.option(
            "--include-source",
            type=click.Choice(["none", "repo", "all"]),
            default="repo",
            show_default=True,
            expose_value=False,
            callback=show_source,
            help="Whose lines of source the report may show: nobody's, those below git's top folder, or everybody's.",
        ),
        click.option(
            "--no-ci",
            is_flag=True,
            expose_value=False,
            callback=be_in_no_ci,
            help="Do not look whether this is a CI job: no job summary, no fence around what the workload prints.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def format_option(verb: str) -> Callable[[Any], Any]:
    """``--format`` of one verb. Where a parameter has another name than its option, its variable is named here."""
    return click.option(
        "--format",
        "outputs",
        envvar=f"KGPROF_{verb}_FORMAT",
        multiple=True,
        metavar="FORMAT[=PATH]",
        callback=parsed_formats,
        help="Say it as text, json, markdown, html, sarif, junit or github, on stdout or into PATH. Repeatable.",
    )


def named_module(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.meta[MODULE] = value


def named_once(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The WORKLOAD, or the module that -m names in its place (that option is eager)."""
    from kgprof.workloads.programs import MODULE_OPTION

    module = ctx.meta.get(MODULE)
    if module is None:
        return value
    if value != param.get_default(ctx):
        raise UsageError(f"-m {module} and WORKLOAD {value} are two workloads", hint="name one of them")
    return f"{MODULE_OPTION}{module}"


def parsed_passes(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[PassName, ...]:
    names = [name.strip().lower() for name in (value or "").split(",") if name.strip()]
    for name in names:
        if name not in PASSES:
            raise UsageError(unknown("pass", name, PASSES), hint=f"one of {', '.join(PASSES)}")
    if value is not None and not names:
        raise UsageError("--passes names no pass", hint=f"one of {', '.join(PASSES)}")
    return tuple(PassName(name) for name in dict.fromkeys(names))


module_option = click.option(
    "-m",
    "module",
    metavar="MODULE",
    is_eager=True,
    expose_value=False,
    callback=named_module,
    help="Run a module as a program, as python -m does; in place of WORKLOAD.",
)


def hta_option(verb: str) -> Callable[[Any], Any]:
    return click.option(
        "--rerun-hta/--no-hta",
        "hta",
        envvar=f"KGPROF_{verb}_HTA",
        default=None,
        help="Ask HolisticTraceAnalysis about each GPU trace, again or not at all; by default once, and the answer is "
        "kept. It takes about a second a trace.",
    )


def torch_trace_option(verb: str) -> Callable[[Any], Any]:
    return click.option(
        "--torch-trace",
        envvar=f"KGPROF_{verb}_TORCH_TRACE",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Run nothing: read what torch wrote under TORCH_TRACE=DIR, a run for each process.",
    )


def run_options(verb: str) -> Callable[[Any], Any]:
    """What every verb that runs a workload takes."""
    options: tuple[Callable[[Any], Any], ...] = (
        click.option(
            "--strategy",
            "strategies",
            envvar=f"KGPROF_{verb}_STRATEGY",
            multiple=True,
            metavar="NAME",
            help="Run this one only. Repeatable.",
        ),
        click.option(
            "--mode",
            "modes",
            envvar=f"KGPROF_{verb}_MODE",
            multiple=True,
            metavar="MODE",
            callback=checked_modes,
            help=f"Run in this mode only: {', '.join(MODES)}. Repeatable.",
        ),
        click.option(
            "--device",
            type=click.Choice(["auto", "cpu", "cuda"]),
            default=DEFAULTS.device,
            show_default=True,
            help="auto is cuda where torch sees a GPU.",
        ),
        click.option(
            "--steps",
            type=click.IntRange(min=1),
            default=DEFAULTS.steps,
            show_default=True,
            help="Steps of the compile, trace and host passes (stack takes five at most); and of each group that the "
            "timing pass times where the workload has no evaluations.",
        ),
        click.option(
            "--warmup",
            type=click.IntRange(min=0),
            default=DEFAULTS.warmup,
            show_default=True,
            help="How many of them come before steady state.",
        ),
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Where the report goes.  [default: reports/WORKLOAD-TIME]",
        ),
        click.option(
            "--seed",
            type=click.IntRange(min=0, max=2**32 - 1),
            default=DEFAULTS.seed,
            show_default=True,
            help="Of every random number.",
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            default=DEFAULTS.timeout_s,
            show_default=True,
            metavar="SECONDS",
            callback=checked_timeout,
            help="What one child process may take, 7 days at most.",
        ),
        click.option(
            "--max-steps",
            type=click.IntRange(min=1),
            metavar="N",
            help="Of a script: stop recording after so many steps. The program runs on.",
        ),
        click.option(
            "--duration",
            "duration_s",
            envvar=f"KGPROF_{verb}_DURATION",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="Of a script: stop recording at the first step after so long.",
        ),
        format_option(verb),
        click.option("-q", "--quiet", is_flag=True, help="No progress; errors and the last line only."),
    )

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@cli.command(cls=WorkloadCommand)
@click.argument("workload", default=DEFAULTS.workload, callback=named_once)
@module_option
@run_options("PROFILE")
@click.option(
    "--passes",
    envvar="KGPROF_PROFILE_PASSES",
    metavar="PASS,...",
    callback=parsed_passes,
    help="Which passes to make.  [default: all; of a script compile,memory,trace, which come from one run of it. "
    "timing, host and stack run it once more each]",
)
@click.option(
    "--evaluations",
    type=click.IntRange(min=1),
    default=DEFAULTS.evaluations,
    show_default=True,
    help="Whole evaluations that TIMING aims at. Those beyond the second run only while there is time for them.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=DEFAULTS.rounds,
    show_default=True,
    help="In how many fresh processes TIMING is made, in turn over all runs. `kgprof compare` takes its intervals over "
    "them; from the second on a run's compiler caches are warm. Not of a script.",
)
@click.option(
    "--accepted",
    metavar="PATH",
    help="The file of accepted findings, which the report strikes through.  [default: kgprof-accepted.toml]",
)
@hta_option("PROFILE")
@sharing_options
@verbose_option
@click.pass_context
def profile(
    ctx: click.Context,
    /,
    workload: str,
    output: Path | None,
    outputs: tuple[Output, ...],
    quiet: bool,
    hta: bool | None,
    accepted: str | None,
    **given: Any,
) -> int:
    """Run WORKLOAD, measure it, and write report.html and report.json.

    WORKLOAD is linkpred (the built-in link-prediction evaluator, and the default), pkg.mod:name or path/file.py:name,
    where name is a function without arguments (one step) or an object with strategies. Each strategy runs in each mode
    in a process of its own. Or it is a whole script.py (-m pkg.mod for a module), which runs once and as it stands,
    with what follows -- as its arguments. The last line on stdout is the report's path.

    \b
    For example:  kgprof profile linkpred --strategy fused -- --queries 100
                  kgprof profile my_model.py:step --mode eager --mode default
                  kgprof profile train.py --max-steps 200 -- --epochs 1
                  kgprof profile linkpred -- --help        the workload's own options
    """
    from kgprof.record import refuse_other_platforms, store
    from kgprof.workloads import loading

    refuse_other_platforms()
    workload_args = ctx.meta.get(WORKLOAD_ARGS, ())
    if loading.asks_for_help(workload, workload_args):
        to_stdout(inert(loading.help_text(workload)))
        return EXIT_OK
    options = asked_for(workload, workload_args, **given)
    kernel_kinds()  # a fault in them is told before anything runs
    known = accepted_here(accepted)
    launched = launch_of(workload)
    folder = output_folder(output, workload, launched)
    ctx.ensure_object(Context).folder = folder
    context = ctx.ensure_object(Context)
    recording = recorded(options, folder, quiet, launched, context.job)
    if recording is None:
        return rank_exit_code(folder, launched)
    store.write_accepted(recording, known)
    found = read(recording, hta=hta, quiet=quiet, sharing=context.sharing)
    report = write_report(folder, found, recording)
    complain(found, recording)
    if not quiet:
        inform(found.verdict.text)
    add_to_job_summary(found, context.job)
    emit(outputs, found, recording, otherwise=str(report), job=context.job)
    return found.exit_code


@cli.command("check-graphs", cls=WorkloadCommand)
@click.argument("workload", default=DEFAULTS.workload, callback=named_once)
@module_option
@run_options("CHECK_GRAPHS")
@click.option(
    "--max",
    "budgets",
    envvar="KGPROF_CHECK_GRAPHS_MAX",
    multiple=True,
    metavar="[STRATEGY[.MODE]:]METRIC=N",
    help="A budget: graph-breaks, skipped-frames, recompiles, cache-bypasses, cudagraph-skips, compile-seconds or "
    "syncs-per-step. Repeatable.  [default: graph-breaks=0, skipped-frames=0, recompiles=0]",
)
@click.option(
    "--fail-on", type=click.Choice(FAIL_ON), help="Which findings fail that no budget counts.  [default: error]"
)
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    help="What compiles in Inductor's place, where no budget needs generated code.  [default: inductor]",
)
@click.option("--accepted", metavar="PATH", help="The file of accepted findings.  [default: kgprof-accepted.toml]")
@click.option("--update-baseline", is_flag=True, help="Write what fails now into that file, for you to give reasons.")
@torch_trace_option("CHECK_GRAPHS")
@sharing_options
@verbose_option
@click.pass_context
def check_graphs(
    ctx: click.Context,
    /,
    workload: str,
    output: Path | None,
    outputs: tuple[Output, ...],
    quiet: bool,
    budgets: tuple[str, ...],
    fail_on: str | None,
    backend: str | None,
    accepted: str | None,
    update_baseline: bool,
    torch_trace: Path | None,
    **given: Any,
) -> int:
    """Fail when WORKLOAD breaks graphs, falls back to eager or recompiles: the gate for CI.

    Only the COMPILE pass runs, and MEMORY where syncs-per-step has a budget. Budgets, --fail-on, --backend and the file
    of accepted findings can also stand in kgprof.toml, or in pyproject.toml under [tool.kgprof]. Exit code 0: passed;
    1: failed; 2: wrong option or file; 4: the workload died; 5: nothing was compiled; 6: something that has a budget
    was not observed.

    \b
    For example:  kgprof check-graphs my_model.py:step --backend aot_eager
                  kgprof check-graphs --max recompiles=1 --max fused.default:compile-seconds=60
                  kgprof check-graphs --format sarif=kgprof.sarif --format junit=kgprof.xml --format github
                  kgprof check-graphs --torch-trace DIR        what a run under TORCH_TRACE=DIR left
    """
    from kgprof.gate.settings import parse_options, to_record
    from kgprof.record import refuse_other_platforms, store

    workload_args = ctx.meta.get(WORKLOAD_ARGS, ())
    faults: list[str] = []
    settings = gate_settings(parse_options(budgets, fail_on, backend, accepted, faults), faults)
    context = ctx.ensure_object(Context)
    if torch_trace is not None:
        options = traced_options(ctx, torch_trace, workload_args)
        folder = traced_folder(output, torch_trace)
        ctx.ensure_object(Context).folder = folder
        recording: Path | None = read_torch_trace(options, torch_trace, folder)
    else:
        refuse_other_platforms()
        gates_own = {"passes": settings.passes, "backend": settings.backend}
        options = asked_for(workload, workload_args, **{**given, **gates_own})
        launched = launch_of(workload)
        folder = output_folder(output, workload, launched)
        ctx.ensure_object(Context).folder = folder
        recording = recorded(options, folder, quiet, launched, context.job)
    if recording is None:
        return rank_exit_code(folder, launched)
    store.write_gate(recording, to_record(settings))
    found = read(recording, sharing=context.sharing)
    report = write_report(folder, found, recording)
    complain_of_runs(found, recording)
    if not quiet:
        inform(f"the report is {report}")
    add_to_job_summary(found, context.job)
    say_outcome(outputs, found, recording, job=context.job)
    if update_baseline:
        # That file names files as they were recorded, not as a report may show them.
        judged = judged_profile(store.load(recording), kernel_kinds())
        return write_baseline(judged, settings, whole=not options.strategies and not options.modes)
    return found.exit_code


@cli.command()
@click.argument("recording", type=click.Path(path_type=Path), required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help="Write the report here instead.")
@torch_trace_option("REPORT")
@hta_option("REPORT")
@format_option("REPORT")
@sharing_options
@verbose_option
@click.pass_context
def report(
    ctx: click.Context,
    recording: Path | None,
    output: Path | None,
    torch_trace: Path | None,
    hta: bool | None,
    outputs: tuple[Output, ...],
) -> int:
    """Read a Recording again and write its report again; torch is not needed.

    RECORDING is the folder that `kgprof profile` wrote, or anything in it: recording/, report.html, report.json. One of
    `kgprof check-graphs` is judged again, by the budgets and accepted findings that it was held to. Exit code 0 says
    that the report was written; how the gate or the run ended stands in it (exit_code in report.json).

    \b
    For example:  kgprof report reports/linkpred-20260102T030405Z
                  kgprof report my-run --format markdown
                  kgprof report --torch-trace DIR        what a run under TORCH_TRACE=DIR left
    """
    from kgprof.record import store

    if (recording is None) == (torch_trace is None):
        raise UsageError("report reads one thing", hint="name a RECORDING, or give --torch-trace DIR")
    if torch_trace is not None:
        output = traced_folder(output, torch_trace)
        recording = read_torch_trace(traced_options(ctx, torch_trace, ()), torch_trace, output)
    assert recording is not None
    folder = store.resolve(recording)
    context = ctx.ensure_object(Context)
    found = read(folder, hta=hta, sharing=context.sharing)
    add_to_job_summary(found, context.job)
    if output is None and outputs:
        emit(outputs, found, folder, otherwise="", job=context.job)
        return EXIT_OK
    where = output if output is not None else store.output_folder(folder)
    ctx.ensure_object(Context).folder = where
    emit(outputs, found, folder, otherwise=str(write_report(where, found, folder)), job=context.job)
    return EXIT_OK


@cli.command()
@click.argument("traces", nargs=-1, required=True, metavar="FILE|DIR...", type=click.Path(path_type=Path))
@click.option(
    "--against",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="Compare with this trace, or rank by rank with these: microseconds per step by kernel, kind and span. "
    "Repeatable.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the report goes.  [default: reports/NAME-TIME]",
)
@hta_option("TRACE")
@format_option("TRACE")
@click.option("-q", "--quiet", is_flag=True, help="No progress; errors and the last line only.")
@sharing_options
@verbose_option
@click.pass_context
def trace(
    ctx: click.Context,
    traces: tuple[Path, ...],
    against: tuple[Path, ...],
    output: Path | None,
    hta: bool | None,
    outputs: tuple[Output, ...],
    quiet: bool,
) -> int:
    """Read traces that torch.profiler wrote, in whatever program, and write a report about them. Runs nothing.

    FILE is a Kineto trace, plain or gzip; of a DIR those in it that end in .json or .json.gz are read, one a rank. The
    rank is the one that a trace gives in distributedInfo, or else the one in its file's name. A file that breaks off is
    read up to there, and the report says so. The traces are copied into the Recording, so that `kgprof report` can read
    it again without them. Exit code 0: the report was written; 2: no trace could be read; 5: there is nothing in them
    to measure. The last line on stdout is the report's path.

    \b
    For example:  kgprof trace trace.json.gz
                  kgprof trace profiles/                     one trace a rank: who computes longest, who waits
                  kgprof trace new.json --against old.json --format text
    """
    from kgprof import progress
    from kgprof.record import default_folder, kineto_files

    kernel_kinds()  # a fault in them is told before anything is read
    where = output if output is not None else default_folder(kineto_files.title(traces[:1]))
    ctx.ensure_object(Context).folder = where
    options = Options(workload=kineto_files.title(traces), passes=(PassName.TRACE,))
    with progress.choose(quiet=quiet) as shown_progress:
        recording, unread = kineto_files.record_files(traces, where, options, shown_progress, against=against)
        shown_progress.phase("analysis", None)
    for sentence in unread:
        click.echo(f"kgprof: left out: {sentence}", err=True)
    context = ctx.ensure_object(Context)
    found = read(recording, hta=hta, quiet=quiet, sharing=context.sharing)
    report = write_report(where, found, recording)
    complain(found, recording)
    if not quiet:
        inform(found.verdict.text)
    add_to_job_summary(found, context.job)
    emit(outputs, found, recording, otherwise=str(report), job=context.job)
    return found.exit_code


@cli.command()
@click.argument("recording", type=click.Path(path_type=Path))
@click.option("--to", "viewer", type=click.Choice(VIEWERS), required=True, help="Which viewer the file is for.")
@click.option("--run", "slug", metavar="STRATEGY.MODE", help="Which run.  [default: the only one that has a trace]")
@click.option(
    "--pass",
    "name",
    envvar="KGPROF_EXPORT_PASS",
    type=click.Choice(TRACED_PASSES),
    help="Which of its traces.  [default: kernels where there is one, as in the report; else trace]",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Where it is written."
)
@verbose_option
@click.pass_context
def export(ctx: click.Context, recording: Path, viewer: str, slug: str | None, name: str | None, output: Path) -> int:
    """Write the trace of one run for another viewer: speedscope, or Perfetto.

    RECORDING is the folder that `kgprof profile` or `kgprof trace` wrote, or anything in it. For perfetto FILE is the
    trace as torch.profiler wrote it (gzipped JSON; chrome://tracing reads it too). For speedscope it is the nesting of
    spans, operators and CUDA calls on each thread, of Python functions where the trace was recorded with stacks, and of
    what ran on each stream. The last line on stdout is FILE.

    \b
    For example:  kgprof export my-run --to speedscope --run fused.default -o fused.speedscope.json
                  kgprof export my-run --to perfetto --run fused.eager -o fused.trace.json.gz
    """
    from kgprof.record import kept_traces, store

    if not could_be_written(output):
        raise UsageError(f"cannot write to {output}", hint="name a file in a folder that can be written")
    kept = kept_traces.asked_for(store.load(recording), slug, PassName(name) if name is not None else None)
    if viewer == PERFETTO:
        store.copy_trace(kept.path, output)
    else:
        store.write_export(output, speedscope_file(kept))
    to_stdout(str(output))
    return EXIT_OK


@cli.command()
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("head", type=click.Path(path_type=Path))
@click.option(
    "--max-regression",
    "budgets",
    envvar="KGPROF_COMPARE_MAX_REGRESSION",
    multiple=True,
    metavar="METRIC=PERCENT",
    help="How much worse a metric may be, of what base has: step, evaluation, peak-allocated, kernels-a-step ... "
    "Repeatable.  [default: step=5%, evaluation=5%]",
)
@click.option("--fail-on", type=click.Choice(FAIL_ON), help="Which new findings fail.  [default: warning]")
@click.option(
    "--allow-different-environment", is_flag=True, help="Judge times although GPU, torch, flags or the like differ."
)
@click.option("--accepted", metavar="PATH", help="The file of accepted findings.  [default: kgprof-accepted.toml]")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="DIR", help="Write report.html and report.json there."
)
@format_option("COMPARE")
@sharing_options
@verbose_option
@click.pass_context
def compare(
    ctx: click.Context,
    base: Path,
    head: Path,
    budgets: tuple[str, ...],
    fail_on: str | None,
    allow_different_environment: bool,
    accepted: str | None,
    output: Path | None,
    outputs: tuple[Output, ...],
) -> int:
    """Is HEAD worse than BASE, and why? Two recordings of one workload beside each other; runs nothing.

    BASE and HEAD are each what `kgprof profile` or `kgprof check-graphs` wrote: the folder, its recording/, its
    report.json, or the report.html alone, as it was attached to a pull request. Findings are new, fixed or unchanged
    whatever lines they moved to. A time is worse when the whole of its 95 % interval is above the budget, the same when
    all of it is below, and else inconclusive; intervals are over rounds, so record both sides with --rounds 5 or more.
    Budgets and --fail-on can also stand in kgprof.toml, or in pyproject.toml under [tool.kgprof] (max-regression =
    {step = 5}). Exit code 0: not worse; 1: a time or a budgeted metric is surely worse, results changed, or a finding
    is new; 2: wrong option or file; 4: the workload died in HEAD; 5: no run is on both sides; 6: it cannot be said,
    from noise, too few rounds or another environment.

    \b
    For example:  kgprof compare base-run head-run
                  kgprof compare main/report.html report.html --format markdown
                  kgprof compare base-run head-run --max-regression step=2% -o comparison
    """
    from kgprof.analysis.compare import compare as compared

    context = ctx.ensure_object(Context)
    settings, entries = compare_settings(budgets, fail_on, accepted, allow_different_environment)
    before, after = (with_accepted(side(path, context.sharing), entries) for path in (base, head))
    sources = (named_side(base, context.sharing), named_side(head, context.sharing))
    recording = recording_of(head)
    found = fit_to_show(compared(before, after, settings, sources=sources), context.sharing)
    add_to_job_summary(found, context.job)
    if output is not None:
        context.folder = output
        click.echo(f"kgprof: the report is {write_report(output, found, recording)}", err=True)
    say_outcome(outputs, found, recording, job=context.job)
    return found.exit_code


@cli.command()
@click.argument("report", type=click.Path(path_type=Path), metavar="REPORT")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where it is written.  [default: stdout]"
)
@verbose_option
def extract(report: Path, output: Path | None) -> int:
    """Write the Profile that a report.html carries as JSON: what report.json was beside it.

    REPORT is the page alone, as it was attached or downloaded. A page that had to leave parts of its copy out, to stay
    below 1 MB, names them on stderr. Exit code 0: written; 2: no report of kgprof's, or it breaks off, or it carries
    no Profile, or one of a newer kgprof.

    \b
    For example:  kgprof extract report.html -o report.json
                  kgprof extract report.html | jq .verdict
    """
    from kgprof import carried
    from kgprof.model import encode_json
    from kgprof.record import store

    if output is not None and not could_be_written(output):
        raise UsageError(f"cannot write to {output}", hint="name a file in a folder that can be written")
    found = carried.read(report)
    text = encode_json(found.profile).decode()
    for words in found.left_out:
        click.echo(f"kgprof: not in this report's copy: {words}", err=True)
    if output is None:
        to_stdout(text)
        return EXIT_OK
    store.write_report(output.parent, output.name, text)
    to_stdout(str(output))
    return EXIT_OK


@cli.command()
def schema() -> int:
    """Print the JSON Schema of report.json.

    \b
    For example:  kgprof schema > kgprof.schema.json
    """
    from kgprof.model import encode_json
    from kgprof.render import json

    to_stdout(encode_json(json.schema()).decode())
    return EXIT_OK


@cli.command()
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default=DEFAULTS.device,
    show_default=True,
    help="auto is cuda where torch sees a GPU.",
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@verbose_option
def selftest(device: str, form: str, quiet: bool) -> int:
    """Run a workload with known answers through every capture, on this machine and this torch, and compare.

    Says of each capture: works, unavailable (and why), or WRONG (expected, got). An unavailable capture is no failure.
    Exit code 0: no answer is wrong; 1: one is.

    \b
    For example:  kgprof selftest --device cpu
    """
    from kgprof import progress
    from kgprof.model import encode_json
    from kgprof.selftest import lines
    from kgprof.selftest import selftest as answers_here

    with sigterm_as_ctrl_c(), progress.choose(quiet=quiet) as shown_progress:
        answers = answers_here(device, shown_progress, timeout_s=DEFAULTS.timeout_s)
    to_stdout(encode_json(answers).decode() if form == "json" else "\n".join(lines(answers)))
    return EXIT_GATE_FAILED if answers.wrong else EXIT_OK


@cli.command()
@click.argument("rule", required=False)
@click.option("--format", "form", type=click.Choice(["text", "markdown"]), default="text", show_default=True)
def explain(rule: str | None, form: str) -> int:
    """Explain a rule: what it means, why it costs, an example, what to do. Without RULE, list them all.

    \b
    For example:  kgprof explain KGP501
                  kgprof explain --format markdown > RULES.md        every rule in full
    """
    from kgprof.collectors import RULES
    from kgprof.render.rules_page import rules_page

    if form == "markdown":
        if rule is not None:
            raise UsageError("--format markdown is the page of every rule", hint="leave out RULE or the format")
        to_stdout(rules_page(RULES))
        return EXIT_OK
    if rule is None:
        to_stdout("\n".join(f"{known.id}  {known.name:<28} {known.summary}" for known in RULES))
        return EXIT_OK
    for known in RULES:
        if rule.upper() == known.id or rule.lower() == known.name:
            to_stdout(
                f"{known.id} {known.name} ({known.level})\n\n{known.summary}\n\n"
                f"Why\n  {known.why}\n\nExample\n  {known.example}\n\nWhat to do\n  {known.remedy}"
            )
            return EXIT_OK
    names = [name for known in RULES for name in (known.id, known.name)]
    raise UsageError(
        unknown("rule", rule, names, near=rule.upper() if rule[:3].lower() == "kgp" else rule.lower()),
        hint="`kgprof explain` lists them all",
    )


@cli.command("ci-init")
@click.argument("place", metavar="github|gitlab", type=click.Choice(["github", "gitlab"]))
@click.option("--workload", default=DEFAULTS.workload, show_default=True, help="What the workflow profiles.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Where it is written.  [default: .github/workflows/kgprof.yml or .gitlab/kgprof.yml]",
)
@click.option("--force", is_flag=True, help="Replace a file that kgprof did not write.")
@verbose_option
def write_ci(place: str, workload: str, output: Path | None, force: bool) -> int:
    """Write a workflow that profiles a pull request's base and head on one runner and compares them.

    Actions are pinned by commit, kgprof and torch by the versions that are installed here. Look at what it installs
    before you commit it. The last line on stdout is the file's path.

    \b
    For example:  kgprof ci-init github --workload my_model.py:step
                  kgprof ci-init gitlab -o ci/kgprof.yml
    """
    from kgprof.ci_init import PATHS, Wanted, refuse_to_replace, workflow
    from kgprof.record import store

    path = output if output is not None else PATHS[place]
    if not could_be_written(path):
        raise UsageError(f"cannot write to {path}", hint="name a file in a folder that can be written")
    if not force:
        refuse_to_replace(path)
    torch = installed("torch").partition("+")[0]
    pinned = torch if torch[:1].isdecimal() else ""
    text = workflow(Wanted(place=place, workload=workload, torch=pinned, path=path))
    store.write_export(path, text.encode())
    to_stdout(str(path))
    return EXIT_OK


# ---------------------------------------------------------------- what they share


@dataclass(frozen=True, kw_only=True)
class Output:
    """One ``--format``: to a file, or to stdout."""

    renderer: Renderer
    path: Path | None


def parse_formats(values: Sequence[str]) -> tuple[Output, ...]:
    """Raises UsageError for an unknown format or a second one on stdout, before anything has been measured."""
    if not values:
        return ()
    from kgprof import render

    outputs = []
    for value in values:
        name, _, path = value.partition("=")
        outputs.append(Output(renderer=render.by_name(name), path=Path(path) if path else None))
    if sum(output.path is None for output in outputs) > 1:
        raise UsageError("two formats cannot share stdout", hint="write one to a file: --format json=report.json")
    for output in outputs:
        if output.path is not None and not could_be_written(output.path):
            raise UsageError(f"cannot write to {output.path}", hint="name a file in a folder that can be written")
    return tuple(outputs)


def could_be_written(path: Path) -> bool:
    """No folder itself, and nothing but folders above it; the missing ones are made when it is written."""
    above = next((parent for parent in path.absolute().parents if parent.exists()), None)
    return not path.is_dir() and above is not None and above.is_dir()


def asked_for(workload: str, workload_args: tuple[str, ...], *, timeout: float, **given: Any) -> Options:
    """``given`` are fields of Options, which the parameters of ``run_options`` are named after (all but --timeout).

    Raises UsageError for a workload that cannot be one, before a child is started for it.
    """
    from kgprof.workloads import loading

    loading.find(workload)
    loading.check_arguments(workload, workload_args)
    checked_warmup(given["warmup"], given["steps"])
    given["passes"] = passes_of(workload, given)
    checked_rounds(workload, given.get("rounds", DEFAULTS.rounds), given["passes"])
    return Options(workload=workload, workload_args=workload_args, timeout_s=timeout, **given)


def traced_options(ctx: click.Context, torch_trace: Path, workload_args: tuple[str, ...]) -> Options:
    """Raises UsageError for what asks for a run as well."""
    run_only = ("workload", "strategies", "modes", "device", "steps", "warmup", "max_steps", "duration_s", "backend")
    given = [name for name in run_only if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE] + [
        "--"
    ] * bool(workload_args)
    if given or ctx.meta.get(MODULE):
        raise UsageError(
            f"--torch-trace runs nothing, so {' and '.join(given) or '-m'} has no meaning beside it",
            hint="leave one of them out",
        )
    return Options(workload=f"TORCH_TRACE={torch_trace}", passes=(PassName.COMPILE,))


def traced_folder(output: Path | None, torch_trace: Path) -> Path:
    from kgprof.record import default_folder

    return output if output is not None else default_folder(torch_trace.absolute().name)


def read_torch_trace(options: Options, torch_trace: Path, folder: Path) -> Path:
    from kgprof.record import torch_trace_files

    return torch_trace_files.record_directory(torch_trace, folder, options)


def passes_of(workload: str, given: dict[str, Any]) -> tuple[PassName, ...]:
    """Those asked for, or what one run of a script gives. Raises UsageError for a script's option elsewhere."""
    from kgprof.workloads import programs

    passes: tuple[PassName, ...] = given.get("passes", ())
    if programs.is_program(workload):
        if PassName.KERNELS in passes:
            raise UsageError("a script has no KERNELS pass", hint="it is not compiled a second time for it")
        return passes or (PassName.COMPILE, PassName.MEMORY, PassName.TRACE)
    alone = {"--max-steps": given.get("max_steps"), "--duration": given.get("duration_s")}
    for option, value in alone.items():
        if value is not None:
            raise UsageError(
                f"{option} is for scripts, and {workload} is none", hint="a script is script.py, or -m pkg.mod"
            )
    return passes


def launch_of(workload: str) -> Launch | None:
    """This process's place among torchrun's ranks, for a script."""
    from kgprof.record import ranks
    from kgprof.workloads import programs

    return ranks.launch(os.environ) if programs.is_program(workload) else None


def output_folder(output: Path | None, workload: str, launched: Launch | None) -> Path:
    from kgprof.record import default_folder, folder_name, ranks

    if output is not None:
        return output
    return ranks.agreed_folder(folder_name(workload), launched) if launched else default_folder(workload)


def recorded(options: Options, folder: Path, quiet: bool, launched: Launch | None, job: Job) -> Path | None:
    """The Recording's folder; None on a rank that leaves the rest to rank 0."""
    from kgprof.ci import fenced
    from kgprof.record import ranks, record

    with sigterm_as_ctrl_c():
        if launched is None:
            with shown(options, quiet) as progress, fenced(echo(quiet), job) as printed:
                return record(options, folder, progress, echo=printed)
        ranks.begin(folder, launched)
        with shown(options, quiet) as progress, fenced(echo(quiet), job) as printed:
            record(options, launched.folder(folder), progress, echo=printed)
        ranks.done(folder, launched)
        return ranks.gather(folder, launched) if launched.rank == 0 else None


def shown(options: Options, quiet: bool) -> AbstractContextManager[Progress]:
    """A live line and what a script prints would write over each other."""
    from kgprof import progress
    from kgprof.workloads import programs

    return progress.choose(quiet=quiet, live=not programs.is_program(options.workload))


def echo(quiet: bool) -> Callable[[bytes], None]:
    """What a script prints goes to stderr: stdout is for the report."""

    def to_stderr(data: bytes) -> None:
        if quiet:
            return
        with contextlib.suppress(OSError):  # nobody reads it any more; the log has it
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()

    return to_stderr


def rank_exit_code(folder: Path, launched: Launch | None) -> int:
    """Of a rank that is not the first: rank 0 gives the verdict, this one says only how its own program ended."""
    from kgprof.record import store

    assert launched is not None
    recording = launched.folder(folder) / store.FOLDER
    found = read(recording)
    complain_of_runs(found, recording)
    return found.exit_code if found.exit_code in (EXIT_WORKLOAD, EXIT_INTERRUPTED) else EXIT_OK


def read(recording: Path, *, hta: bool | None = False, quiet: bool = False, sharing: Sharing | None = None) -> Profile:
    """The Profile, without what must not be shown; of a Recording that check-graphs made, with the gate it was held to.

    ``hta``: ask HolisticTraceAnalysis about GPU traces (None: those that it has not been asked about).
    """
    from kgprof.analysis.redaction import redacted
    from kgprof.record import store

    sharing = sharing or Sharing()
    kinds = kernel_kinds()
    loaded = store.load(recording)
    if hta is not False:
        loaded = with_holistic(loaded, again=bool(hta), quiet=quiet)
    found = judged_profile(loaded, kinds)
    return redacted(found, loaded.header.private, source=sharing.source, redact=sharing.redact)


def judged_profile(loaded: Recording, kinds: tuple[KindOverride, ...]) -> Profile:
    """As it was recorded: what must not be shown is still in it."""
    from kgprof.analysis import analyse
    from kgprof.gate import judge
    from kgprof.gate.settings import from_record
    from kgprof.record import store

    found = analyse(loaded, kinds)
    if loaded.gate is None:
        return found
    return judge(found, from_record(loaded.gate, Path(loaded.folder) / store.GATE))


def with_holistic(loaded: Recording, *, again: bool, quiet: bool) -> Recording:
    from kgprof.record import holistic

    def tell(text: str) -> None:
        if not quiet:
            click.echo(f"kgprof: {text}", err=True)

    return holistic.asked(loaded, again=again, say=tell)


def write_report(folder: Path, found: Profile, recording: Path | None) -> Path:
    """report.json and report.html; the path of the latter."""
    from kgprof import render

    for name in ("json", "html"):
        write_rendered(folder / f"report.{name}", render.by_name(name), found, recording)
    return folder / "report.html"


def write_rendered(path: Path, renderer: Renderer, found: Profile, recording: Path | None) -> None:
    """A page that stands elsewhere than its Recording gets the traces that it does not carry beside it."""
    from kgprof.record import store
    from kgprof.render.html import Html

    if not isinstance(renderer, Html):
        store.write_report(path.parent, path.name, renderer.render(found))
        return
    kept = traces_of(found, recording)
    private = private_of(found, recording)
    page = renderer.with_traces(found, [trace_to_hand_off(trace, path.parent, private) for trace in kept])
    for trace in kept:
        if trace.key not in page.carried and not inside(trace.path, path.parent):
            store.copy_trace(trace.path, path.parent / trace.file_name)
    store.write_report(path.parent, path.name, page.text)


def rendered(renderer: Renderer, found: Profile, recording: Path | None, job: Job) -> str:
    """For stdout: beside a page there is nothing, and a job that reads commands there gets none that a run wrote."""
    from kgprof.ci import inert_document
    from kgprof.render.html import Html

    if isinstance(renderer, Html):
        private = private_of(found, recording)
        traces = [trace_to_hand_off(trace, None, private) for trace in traces_of(found, recording)]
        text = renderer.with_traces(found, traces).text
    else:
        text = renderer.render(found)
    return inert_document(text, renderer.suffix) if job.parses_log else text


def private_of(found: Profile, recording: Path | None) -> RecordingHeader | None:
    """What names the traces must not say either; None where the report may say everything."""
    from kgprof.record import store

    redacted = found.contents is not None and found.contents.redaction
    return store.load_header(recording) if redacted and recording is not None else None


def traces_of(found: Profile, recording: Path | None) -> tuple[KeptTrace, ...]:
    """None where there is no Recording: a comparison of two reports."""
    from kgprof.record import kept_traces

    return () if recording is None else kept_traces.kept_traces(recording, [run.key for run in found.runs])


def trace_to_hand_off(trace: KeptTrace, folder: Path | None, private: RecordingHeader | None) -> TraceToHandOff:
    """``folder``: where the page stands, if it stands anywhere. ``private``: what the page must not carry."""
    from urllib.parse import quote

    from kgprof.render.hand_off import CARRIED_BYTES, TraceToHandOff

    link = ""
    if folder is not None:
        near = inside(trace.path, folder)
        link = quote(trace.path.resolve().relative_to(folder.resolve()).as_posix() if near else trace.file_name)
    return TraceToHandOff(
        run=trace.key,
        measured_in=trace.measured_in,
        size_bytes=trace.size_bytes,
        data=carried_bytes(trace.path, private) if trace.size_bytes <= CARRIED_BYTES else None,
        file_name=trace.file_name,
        link=link,
    )


def carried_bytes(path: Path, private: RecordingHeader | None) -> bytes | None:
    """The trace as a page may carry it, gzipped; None for one that is damaged, which cannot be looked through."""
    import gzip
    import zlib

    from kgprof.analysis.redaction import redacted_trace

    data = path.read_bytes()
    if private is None:
        return data
    try:
        text = gzip.decompress(data).decode("utf-8", errors="replace")
    except (OSError, EOFError, zlib.error):
        return None
    safe = redacted_trace(text, private.private, root=private.plan.environment.source_root)
    return data if safe == text else gzip.compress(safe.encode("utf-8"), mtime=0)


def inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def speedscope_file(kept: KeptTrace) -> bytes:
    """Raises InputError where the trace cannot be read; what of it could not is said on stderr."""
    from kgprof.analysis import kineto
    from kgprof.analysis.nesting import nesting
    from kgprof.errors import InputError
    from kgprof.render.speedscope import speedscope

    trace = kineto.read(kept.path)
    nested = nesting(trace.columns)
    if not nested.tracks:
        raise InputError("the trace holds no event of the host's or the device's", path=kept.path)
    for warning in trace.warnings:
        click.echo(f"kgprof: {kept.path.name}: {warning}", err=True)
    return speedscope(nested, name=f"{kept.key.slug}, {kept.measured_in.upper()}")


def add_to_job_summary(found: Profile, job: Job) -> None:
    """Where a CI job shows one. Whatever becomes of it, the report stands."""
    if job.summary is None:
        return
    from kgprof.ci import append_summary
    from kgprof.render.markdown import Markdown

    url = job.run_url
    wrong = append_summary(job.summary, lambda room: Markdown(limit=room, in_bytes=True, report_url=url).render(found))
    inform(
        f"warning: {wrong}" if wrong else f"the summary is added to the job's: {job.summary} (--no-ci leaves it out)"
    )


def inform(text: str) -> None:
    """What is no error, on stderr."""
    click.echo(inert(f"kgprof: {text}"), err=True)


def emit(outputs: Sequence[Output], found: Profile, recording: Path | None, *, otherwise: str, job: Job) -> None:
    """Files first; on stdout the one format that was asked for there, or else one line."""
    for output in outputs:
        if output.path is not None:
            write_rendered(output.path, output.renderer, found, recording)
    on_stdout = [output for output in outputs if output.path is None]
    text = rendered(on_stdout[0].renderer, found, recording, job) if on_stdout else otherwise
    if text:
        to_stdout(text)


def to_stdout(text: str) -> None:
    """With one newline at its end. A reader that has gone away (`| head`) is no error and no exit code."""
    try:
        click.echo(text.removesuffix("\n"))
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered would raise once more when Python closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(found: Profile, recording: Path) -> None:
    """One error a run that did not end well, and one when nothing was measured."""
    complain_of_runs(found, recording)
    if found.exit_code == EXIT_NOTHING_MEASURED:
        say("nothing was measured", "the report says why")


def complain_of_runs(found: Profile, recording: Path) -> None:
    from kgprof.record import store

    for failed in found.runs:
        if failed.exit.outcome != "ok":
            say(how_it_ended(failed), f"its log: {store.run_folder(recording, failed.key) / store.LOG}")
    for timed in found.runs:
        for lost in () if isinstance(timed.rounds, Skipped) else timed.rounds.lost:
            say(f"{timed.key.slug}: {lost}", f"its log: {store.run_folder(recording, timed.key) / 'round_*_log.txt'}")


def how_it_ended(failed: RunReport) -> str:
    code = failed.exit.exit_code
    suffix = f" (exit code {code})" if code is not None else ""
    return f"{failed.key.slug} {failed.exit.words}{suffix}"


def checked_warmup(warmup: int, steps: int) -> None:
    if warmup >= steps:
        raise UsageError(
            f"--warmup {warmup} leaves none of --steps {steps} for steady state", hint="ask for more --steps"
        )


def checked_rounds(workload: str, rounds: int, passes: tuple[PassName, ...]) -> None:
    from kgprof.workloads import programs

    if rounds == 1:
        return
    if programs.is_program(workload):
        raise UsageError(
            f"--rounds {rounds} repeats steps, and {workload} is a script, which runs from its first line to its last",
            hint="profile a function of it, file.py:name, or the script several times",
        )
    if passes and PassName.TIMING not in passes:
        raise UsageError(f"--rounds {rounds} repeats TIMING, which --passes leaves out", hint="add timing to --passes")


def unknown(kind: str, name: str, known: Sequence[str], *, near: str = "") -> str:
    nearest = difflib.get_close_matches(near or name, known, n=1, cutoff=0.5)
    return f"no {kind} {name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else "")


# ---------------------------------------------------------------- the gate's own


def gate_settings(options: Written, faults: list[str]) -> Settings:
    """Options, the configuration file and the file of accepted findings. Raises UsageError with every fault of all."""
    from kgprof.gate import accepted
    from kgprof.gate.settings import combined, refuse

    folder, written = gate_configuration(faults)
    if options.accepted is not None:
        path = Path(options.accepted)
    elif written is not None and written.accepted is not None:
        path = folder / written.accepted
    else:
        path = folder / accepted.FILE
    text = text_of(path, faults)
    if text is None and options.accepted is not None:
        click.echo(f"kgprof: there is no {path}: nothing is accepted", err=True)
    entries = accepted.parse(text, str(path), faults) if text is not None else ()
    refuse(faults)
    settings = combined(options, written, entries, str(path))
    if text is None or entries:
        return settings
    empty = f"{path.name} accepts nothing: --update-baseline writes what fails now into it; else it may be deleted"
    return replace(settings, notes=(*settings.notes, empty))


def gate_configuration(faults: list[str]) -> tuple[Path, Written | None]:
    """What the nearest folder says that says anything, and that folder (the working directory when none does)."""
    from kgprof.gate.settings import File, parse_file

    here = Path.cwd()
    for folder in (here, *here.parents):
        files = [File(path=str(folder / name), text=text_of(folder / name, faults)) for name in CONFIGURATION]
        found = [written for file in files if (written := parse_file(file, faults)) is not None]
        if len(found) > 1:
            faults.append(f"{folder}: {' and '.join(CONFIGURATION)} both configure kgprof; keep one")
        if found:
            return folder, found[0]
        if (folder / ".git").exists():
            break
    return here, None


def kernel_kinds() -> tuple[KindOverride, ...]:
    """The project's own rules for kinds of kernels. Raises UsageError with every fault of the configuration."""
    from kgprof.gate.settings import refuse

    faults: list[str] = []
    _, written = gate_configuration(faults)
    refuse(faults, hint="kgprof reads its configuration for every report", where="kgprof's configuration")
    return written.kernel_kinds if written is not None else ()


def text_of(path: Path, faults: list[str]) -> str | None:
    """None where there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f"{path}: cannot be read: {error}")
        return None


def say_outcome(outputs: Sequence[Output], found: Profile, recording: Path | None, *, job: Job) -> None:
    """The gate's text on stdout, unless another format was asked for there."""
    from kgprof import render

    to_files_only = all(output.path is not None for output in outputs)
    otherwise = render.by_name("text").render(found) if to_files_only else ""
    emit(outputs, found, recording, otherwise=otherwise, job=job)


# ---------------------------------------------------------------- the comparison's own


def side(path: Path, sharing: Sharing) -> Profile:
    """BASE or HEAD. A file is read as it stands; of a folder the Recording, or the report.json where there is none.

    Raises InputError.
    """
    from kgprof import carried
    from kgprof.errors import InputError
    from kgprof.record import store

    file = path / "report.json" if path.is_dir() else path
    if (path.is_dir() and (recording_of(path) or not file.is_file())) or file.name == store.HEADER:
        return read(store.resolve(path), sharing=sharing)
    if file.suffix.lower() in (".html", ".htm"):
        return carried.read(file).profile
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        hint = "give the folder that `kgprof profile` wrote, or a report of it"
        raise InputError("no such file or folder", path=path, hint=hint) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path) from error
    return carried.decoded(data, file)


def named_side(path: Path, sharing: Sharing) -> str:
    """As it was given; of a whole path only its end, because a report says nobody's folders."""
    return "/".join(path.parts[-2:]) if path.is_absolute() and sharing.redact else str(path)


def fit_to_show(found: Profile, sharing: Sharing) -> Profile:
    """A side that came as a report may have been made with --no-redact, and the other side's page would say it."""
    from kgprof.analysis.redaction import redacted
    from kgprof.record.private_names import private_names

    return redacted(found, private_names(), source=sharing.source, redact=sharing.redact)


def recording_of(path: Path) -> Path | None:
    """The Recording in a folder, from which a page takes its traces; None for a file that stands for itself."""
    from kgprof.errors import InputError
    from kgprof.record import store

    if not path.is_dir():
        return None
    try:
        return store.resolve(path)
    except InputError:
        return None


def compare_settings(
    budgets: tuple[str, ...], fail_on: str | None, accepted_path: str | None, allow_different_environment: bool
) -> tuple[CompareSettings, tuple[Entry, ...]]:
    """Options over the configuration file over the defaults. Raises UsageError with every fault of all."""
    from kgprof.analysis.compare import FAIL_ON as NEW_FINDINGS
    from kgprof.analysis.compare import CompareSettings
    from kgprof.analysis.compare_metrics import BUDGETED
    from kgprof.gate import regressions
    from kgprof.gate.settings import refuse

    faults: list[str] = []
    folder, written = gate_configuration(faults)
    table = written.max_regression if written is not None else None
    from_file = regressions.parse_table(table, str(folder), BUDGETED, faults) if table is not None else {}
    from_options = regressions.parse_options(budgets, BUDGETED, faults)
    entries = accepted_entries(accepted_path, folder, written, faults)
    refuse(faults, hint="`kgprof compare --help` shows every form", where="what compare is told")
    settings = CompareSettings(
        budgets={**from_file, **from_options},
        fail_on=fail_on or (written.fail_on if written is not None else None) or NEW_FINDINGS,
        allow_different_environment=allow_different_environment,
    )
    return settings, entries


def accepted_entries(given: str | None, folder: Path, written: Written | None, faults: list[str]) -> tuple[Entry, ...]:
    from kgprof.gate import accepted

    path = Path(given) if given is not None else folder / ((written and written.accepted) or accepted.FILE)
    text = text_of(path, faults)
    if text is None and given is not None:
        faults.append(f"{path}: there is no such file")
    return accepted.parse(text, str(path), faults) if text is not None else ()


def accepted_here(given: str | None) -> tuple[GateEntry, ...]:
    """What the project accepts, as a Recording keeps it. Raises UsageError with every fault of the files."""
    from dataclasses import asdict

    from kgprof.gate.settings import refuse
    from kgprof.model import GateEntry

    faults: list[str] = []
    folder, written = gate_configuration(faults)
    entries = accepted_entries(given, folder, written, faults)
    refuse(faults, hint="nothing has been run", where="what the project accepts")
    return tuple(GateEntry(**asdict(entry)) for entry in entries)


def with_accepted(found: Profile, entries: Sequence[Entry]) -> Profile:
    """Its findings, marked where the project accepts them."""
    import msgspec

    from kgprof.gate import accepted

    if not entries:
        return found
    root, today = found.environment.source_root, found.created_utc[:10]
    findings, _ = accepted.apply(entries, found.findings, root=root, today=today)
    return msgspec.structs.replace(found, findings=findings)


def write_baseline(found: Profile, settings: Settings, *, whole: bool) -> int:
    """The file of accepted findings as of now; what is new waits there for a reason and an owner.

    Nothing is written when a run died or compiled nothing: its findings are not known. Entries that match nothing are
    dropped only when every run was there, and every budget observed, to match them.
    """
    import datetime

    from kgprof.gate import accepted
    from kgprof.record import store

    if found.exit_code not in (EXIT_OK, EXIT_GATE_FAILED, EXIT_INCONCLUSIVE) or found.gate is None:
        say("the baseline is left as it is", "not every run could be checked")
        return found.exit_code
    root, failing = found.environment.source_root, found.gate.failing
    to_accept = [f for i, f in enumerate(found.findings) if i in failing or f.accepted]
    expires = (datetime.date.today() + datetime.timedelta(days=BASELINE_DAYS)).isoformat()
    keep_unused = not whole or found.exit_code == EXIT_INCONCLUSIVE
    entries = accepted.updated(settings.accepted, to_accept, root=root, expires=expires, keep_unused=keep_unused)
    path = Path(settings.accepted_path)
    store.write_report(path.parent, path.name, accepted.write(entries))
    new = sum(not entry.reason for entry in entries)
    need = "needs" if new == 1 else "need"
    left = f"; {new} of them {need} a reason and an owner before the gate runs again" if new else ""
    if not entries:
        left = ": nothing fails, so there is nothing to accept, and the file may be deleted"
    click.echo(f"kgprof: {path}: {counted(len(entries), 'accepted finding')}{left}", err=True)
    return EXIT_OK


class sigterm_as_ctrl_c:  # noqa: N801  used as a statement
    """A terminated recording ends its child and is rendered like an interrupted one."""

    def __enter__(self) -> None:
        self._before: Any = signal.signal(signal.SIGTERM, self._interrupt)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)

    def _interrupt(self, number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt
