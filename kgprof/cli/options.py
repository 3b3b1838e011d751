"""What can be asked for on the command line: click options, the checks behind them, and what they
come to."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec.structs import replace

from kgprof import model as m
from kgprof.cli.saying import Job, inform, job_of
from kgprof.errors import UsageError
from kgprof.progress import Progress, choose
from kgprof.reading import files, layout
from kgprof.wording import clause

if TYPE_CHECKING:  # --help is instant
    from kgprof.record.ground.unfinished import Unfinished

DEFAULTS = m.Options()
MODES = (m.EAGER, *m.COMPILED_MODES, m.AS_IS)
DEVICES = ("auto", "cpu", "cuda")
PASSES = tuple(str(name) for name in m.PassName)
# of its one run
SCRIPT_PASSES = tuple(sorted(name for name, declared in m.PASSES.items() if declared.listens))
# of a script whose passes were not chosen: a shorter one runs once more for TIMING
TIMED_BELOW_S = 60.0
UNNAMED = (
    f"no workload is named: this is kgprof's own example, {DEFAULTS.workload} "
    "(yours: kgprof {verb} FILE.py:FUNCTION or SCRIPT.py)"
)
_IN_A_FILE = re.compile(r"(.+\.py)(:.*)?")
NEAR = 0.75  # from here on one name may be a slip for another, by difflib
LONGEST_TIMEOUT_S = 7 * 24 * 3600.0
PAIRS = 10  # of `kgprof compare --record`, at most
CASE_TIMEOUT_S = 150.0  # of `kgprof capture`; a cold compilation with autotuning has room in it
SHEET_FORMATS = ("text", "json", "html", "markdown")
RESULTS = ("report", "sweep", "history", "capture", "fix")  # files that are pages and their JSON


class Sharing(m.Model):
    """What of a Recording a report may show."""

    redact: bool = True
    source: str = "repo"


@dataclass
class Context:
    """What an error message needs to know (was -v given, and where does this run write?), and how
    to report."""

    verbose: bool = False
    folder: Path | None = None
    unfinished: Unfinished | None = None  # where a profile is, or was, being made
    writing: bool = False  # all is measured: the first signal that comes now waits for the report
    interrupted: bool = False  # it came
    output: Path | None = None  # the folder of the result, where one is named
    outputs: tuple[Output, ...] = ()
    quiet: bool = False
    wait_for_idle: float = 0.0  # seconds that a busy machine is waited for before it is measured
    sharing: Sharing = field(default_factory=Sharing)
    fail_on_secret: bool = False
    secrets: bool = False  # some were left out of the report, and that is to fail
    # outside of CI, and with --no-ci, one that offers nothing
    job: Job = field(default_factory=Job)
    module: str | None = None  # of -m, in place of a WORKLOAD
    workload_args: tuple[str, ...] = ()  # what stands after ``--``

    @property
    def files(self) -> list[Path]:
        """Those that formats are written to."""
        return [output.path for output in self.outputs if output.path is not None]

    def progress(self, *, live: bool = True) -> Progress:
        return choose(quiet=self.quiet, live=live, verbose=self.verbose)

    def inform(self, text: str) -> None:
        if not self.quiet:
            inform(text)

    def named(self, path: Path | str) -> str:
        """A side as it was given; of a whole path only its end, because a report says nobody's
        folders."""
        given = Path(path)
        if given.is_absolute() and self.sharing.redact:
            return "/".join(given.parts[-2:])
        return str(path)


with_context = click.make_pass_decorator(Context, ensure=True)


class Place(click.Path):
    """A file or folder by its name. Empty it would be the working directory, which a variable that
    is not set asks of nobody."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; give a file or folder", param, ctx)
        return super().convert(value, param, ctx)


PLACE = Place()


REMEMBERED = frozenset(
    ("verbose", "output", "outputs", "quiet", "wait_for_idle", "module", "fail_on_secret")
)


def remembered(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """What concerns every verb is no parameter of any: it goes to the Context."""
    context = ctx.ensure_object(Context)
    if param.name in REMEMBERED:
        setattr(context, param.name, value)
    elif param.name == "no_redact":
        context.sharing = replace(context.sharing, redact=not value)
    elif param.name == "include_source":
        context.sharing = replace(context.sharing, source=value)
    elif param.name == "no_ci":
        context.job = Job()
        if not value:
            context.job = job_of(os.environ)
    else:
        raise AssertionError(f"nothing remembers {param.name}")
    if context.fail_on_secret and not context.sharing.redact:
        raise UsageError(
            "--fail-on-secret looks for what redaction leaves out, and --no-redact turns that off",
            "use one of the two",
        )


def checked_modes(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    for value in values:
        if "," in value and {*value.split(",")} <= {*MODES}:
            each = " ".join(f"--mode {mode}" for mode in value.split(","))
            raise UsageError(f"no mode {value!r}", f"name each by itself: {each}")
        if value not in MODES:
            raise UsageError(unknown("mode", value, MODES), f"the modes are {', '.join(MODES)}")
    return values


def checked_sizes(
    _: click.Context, __: click.Parameter, given: str | None
) -> tuple[int, ...] | None:
    """Empty for ``own``; None where the option was not given."""
    if given is None:
        return None
    if given == "own":
        return ()
    try:
        sizes = tuple(int(size) for size in given.split(","))
    except ValueError:
        sizes = (0,)
    if min(sizes) < 1 or len(set(sizes)) < 2:
        raise UsageError(
            f"--sizes must be two or more sizes, got {given}",
            ("for example --sizes 8,16,24, or --sizes own"),
        )
    return sizes


class Above0(click.FloatRange):
    """Of time. NaN, which is in every range of click's, is none."""

    def __init__(self, most: float | None = None) -> None:
        super().__init__(min=0, min_open=True, max=most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if (number := super().convert(value, param, ctx)) != number:
            self.fail(f"{value} is not in the range {self._describe_range()}", param, ctx)
        return number


class Spelt(click.Option):
    """Its variable is spelt as the option is, whatever its parameter is called: KGPROF_PROFILE_MODE
    for --mode."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        name = self.opts[-1].removeprefix("--").replace("-", "_").upper()
        self.envvar = f"{ctx.auto_envvar_prefix}_{name}"
        return super().resolve_envvar_value(ctx)


def in_order(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """All of them as one decorator, in the order in which --help lists them."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def many(name: str, into: str, metavar: str | None, words: str, **how: Any) -> Callable[[Any], Any]:
    """An option that can be given more than once."""
    return click.option(name, into, cls=Spelt, multiple=True, metavar=metavar, help=words, **how)


def only_one(_: click.Context, __: click.Parameter, name: str | None) -> tuple[str, ...]:
    """As many as Options holds; empty where none is named."""
    return tuple(filter(None, [name]))


strategy_option = click.option(
    "--strategy",
    "strategies",
    cls=Spelt,
    metavar="NAME",
    callback=only_one,
    help="Strategy of the workload.  [default: its first]",
)


def number(
    name: str, default: int, words: str, *into: str, least: int = 1, most: int | None = None
) -> Callable[[Any], Any]:
    within = click.IntRange(min=least, max=most)
    return click.option(
        name, *into, cls=Spelt, type=within, default=default, show_default=True, help=words
    )


def time_limit(default: float, words: str) -> Callable[[Any], Any]:
    within = Above0(LONGEST_TIMEOUT_S)
    return click.option(
        "--timeout", type=within, default=default, show_default=True, metavar="SECONDS", help=words
    )


remembered_option = partial(click.option, expose_value=False, callback=remembered)
verbose_option = remembered_option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show every phase, all details of the result, and the traceback of a crash.",
)

redact_option = remembered_option(
    "--no-redact",
    is_flag=True,
    help="Do not remove what identifies a machine or a person, or secrets, from the "
    "report: names, home directories, "
    "tokens.",
)

secret_option = remembered_option(
    "--fail-on-secret",
    is_flag=True,
    help="Exit with 1 if a secret, or what looks like one, was left out of the report; stderr says "
    "in which fields.",
)

source_option = remembered_option(
    "--include-source",
    type=click.Choice(["none", "repo", "all"]),
    default="repo",
    show_default=True,
    help="Whose source may be in it: none, only files in this git repository, or all.",
)

# What every verb takes that makes a report.
report_options = in_order(
    redact_option,
    source_option,
    remembered_option(
        "--no-ci",
        is_flag=True,
        help=(
            "Do not detect CI: write no job summary, and do not fence off what the workload prints."
        ),
    ),
    verbose_option,
)


class Output(m.Model, kw_only=False):
    """One ``--format``: to a file, or to stdout."""

    form: str
    path: Path | None


class FormatOption(Spelt):
    """Its help names every format, those of ``sheet`` or of a Profile; the renderers are imported
    only when somebody reads it or names one."""

    def __init__(self, *given: Any, sheet: bool = False, **how: Any) -> None:
        super().__init__(*given, **how)
        self._sheet = sheet

    def formats(self) -> Sequence[str]:
        if self._sheet:
            return SHEET_FORMATS
        from kgprof.render import RENDERERS

        return [renderer.name for renderer in RENDERERS]

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        *names, last = self.formats()
        self.help = (
            f"Print the result as {', '.join(names)} or {last}, on stdout or into PATH. Repeatable."
        )
        return super().get_help_record(ctx)


def parse_formats(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> None:
    """Raises UsageError for an unknown format or a second one on stdout, before anything has been
    measured."""
    assert isinstance(param, FormatOption)
    outputs = [_output(value, param) for value in values]
    if sum(output.path is None for output in outputs) > 1:
        raise UsageError(
            "two formats cannot share stdout", "write one to a file: --format json=report.json"
        )
    places = [os.path.realpath(output.path) for output in outputs if output.path is not None]
    if len({*places}) < len(places):
        raise UsageError("two formats cannot share a file", "give each a PATH of its own")
    if outputs:
        remembered(ctx, param, tuple(outputs))


def _output(value: str, option: FormatOption) -> Output:
    name, _, path = value.partition("=")
    if name not in (known := option.formats()):
        raise UsageError(unknown("format", name, known), f"one of {', '.join(known)}")
    if not path:
        return Output(name, None)
    file = Path(path)
    refuse_unwritable(file)
    if file.stem in RESULTS and file.suffix in (".html", ".json") and file.suffix != f".{name}":
        raise UsageError(f"{file} is the name of another format than {name}", "choose another name")
    return Output(name, file)


_format_option = partial(
    click.option,
    "--format",
    "outputs",
    cls=FormatOption,
    multiple=True,
    metavar="FORMAT[=PATH]",
    callback=parse_formats,
    expose_value=False,
)
format_option = _format_option()
sheet_format_option = _format_option(sheet=True)


def named_once(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The WORKLOAD, or the module that -m names in its place (that option is eager)."""
    from kgprof.workloads.programs import MODULE_OPTION

    module = ctx.ensure_object(Context).module
    if module is None:
        is_named = ctx.get_parameter_source("workload") is not ParameterSource.DEFAULT
        return value if is_named else (_configured(Path.cwd()) or value)
    if value != param.get_default(ctx):
        raise UsageError(f"-m {module} and WORKLOAD {value} are two workloads", "name one of them")
    return f"{MODULE_OPTION}{module}"


def _configured(seen_from: Path) -> str:
    """The workload that the project's configuration names; of a file the path from a folder. Empty
    where it names none.

    Raises UsageError with every fault of the configuration, and where the file is not there.
    """
    from kgprof.cli.reading import gate_configuration
    from kgprof.gate.settings import refuse

    faults: list[str] = []
    configuration = gate_configuration(faults)
    refuse(faults, hint="nothing has been run", where="kgprof's configuration")
    workload = configuration.workload or ""
    in_a_file = _IN_A_FILE.fullmatch(workload)
    if in_a_file is None:
        return workload
    file = Path(configuration.folder, in_a_file[1])
    if not file.is_file():
        hint = "the project's configuration names it as workload"
        raise UsageError(f"{file}: file not found", hint)
    return os.path.relpath(file, seen_from) + (in_a_file[2] or "")


def compared_workload(named: Sequence[str], verb: str) -> str:
    """What two versions of a project are to be compared by: what is named, else what its
    configuration names, and kgprof's own example in kgprof's own checkout only. A file is seen from
    the top of the repository.

    Raises UsageError, which says what might be meant.
    """
    from kgprof.cli.reading import repository
    from kgprof.workloads.offered import has_the_example, workloads_in

    folder = repository(Path.cwd()) or Path.cwd()
    workload = next(iter(named), None) or _configured(folder)
    if workload:
        return workload
    if has_the_example(folder):
        return DEFAULTS.workload
    found = ", ".join(workloads_in(folder))
    hint = f"name it: {verb} FILE.py:FUNCTION or SCRIPT.py, or once as workload under [tool.kgprof]"
    raise UsageError("no workload is named", hint + clause("; here may be meant: ", found))


def parsed_passes(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[m.PassName, ...]:
    names = [name.strip().lower() for name in (value or "").split(",") if name.strip()]
    for name in names:
        if name not in PASSES:
            raise UsageError(unknown("pass", name, PASSES), f"one of {', '.join(PASSES)}")
    if value is not None and not names:
        raise UsageError("--passes is empty", f"one of {', '.join(PASSES)}")
    return tuple(m.PassName(name) for name in dict.fromkeys(names))


def passes_help() -> str:
    """The help of ``--passes``, from the list of passes."""
    left_out = [str(name) for name, declared in m.PASSES.items() if not declared.by_default]
    reruns = [str(name) for name, declared in m.PASSES.items() if declared.reruns]
    return (
        f"Passes to run: {', '.join(PASSES)}.  [default: "
        f"all{clause(' but ', ', '.join(left_out))}; scripts: "
        f"{','.join(SCRIPT_PASSES)} from one run, and timing if that took less than "
        f"{TIMED_BELOW_S:.0f} s; {', '.join(reruns[:-1])} and {reruns[-1]} each run the script "
        "once more]"
    )


workload_argument = in_order(
    click.argument("workload", default=DEFAULTS.workload, callback=named_once),
    remembered_option(
        "-m",
        "module",
        metavar="MODULE",
        is_eager=True,
        help="Run a module as a program, like python -m, instead of WORKLOAD.",
    ),
)


hta_option = click.option(
    "--rerun-hta/--no-hta",
    "hta",
    default=None,
    help="Re-run HolisticTraceAnalysis on every GPU trace, or skip it. Default: run "
    "once and reuse the result (about "
    "1 s per trace).",
)
torch_trace_option = click.option(
    "--torch-trace",
    type=PLACE,
    metavar="DIR",
    help="Run nothing: read what torch wrote to DIR under TORCH_TRACE=DIR, one run per process.",
)


def checked_device(_: click.Context, __: click.Parameter, value: str) -> str:
    if value in DEVICES:
        return value
    hint = f"one of {', '.join(DEVICES)}"
    if value == "gpu":
        hint = "a GPU is --device cuda"
    if (number := value.removeprefix("cuda:")).isdecimal():
        hint = f"it is CUDA_VISIBLE_DEVICES={number} and --device cuda"
    raise UsageError(f"no device {value!r}", hint)


device_option = click.option(
    "--device",
    callback=checked_device,
    metavar=f"[{'|'.join(DEVICES)}]",
    default=DEFAULTS.device,
    show_default=True,
    help="auto means cuda if torch sees a GPU.",
)
quiet_option = remembered_option(
    "-q", "--quiet", is_flag=True, help="Print errors and the last line only."
)
wait_option = remembered_option(
    "--wait-for-idle",
    type=click.FloatRange(min=0, max=LONGEST_TIMEOUT_S),
    default=0.0,
    metavar="SECONDS",
    help="Wait so long at most until other processes leave the machine idle, then measure. "
    "[default: measure at once]",
)
accepted_option = click.option(
    "--accepted", metavar="PATH", help="File of accepted findings.  [default: kgprof-accepted.toml]"
)


def folder_option(words: str) -> Callable[[Any], Any]:
    """Of a verb whose result is a folder."""
    return remembered_option("-o", "--output", type=PLACE, metavar="DIR", help=words)


output_option = folder_option("Folder for the report.  [default: reports/WORKLOAD-TIME]")
seed_option = number(
    "--seed", DEFAULTS.seed, "Seed for all random number generators.", least=0, most=2**32 - 1
)

# What every verb takes that runs a workload step by step, and some at once.
timeout_option = time_limit(
    DEFAULTS.timeout_s, "Time limit per child process, in seconds (at most 7 days)."
)
step_options = in_order(
    many("--strategy", "strategies", "NAME", "Run only this strategy. Repeatable."),
    many(
        "--mode",
        "modes",
        "MODE",
        f"Run only this mode: {', '.join(MODES)}. Repeatable.",
        callback=checked_modes,
    ),
    device_option,
    number(
        "--steps",
        DEFAULTS.steps,
        "Steps of the compile, trace and host passes (stack: at most 5), and of each timed group "
        "if the workload has no evaluations.",
    ),
    number("--warmup", DEFAULTS.warmup, "How many of these steps are warm-up.", least=0),
)
run_options = in_order(
    step_options,
    output_option,
    seed_option,
    timeout_option,
    click.option(
        "--max-steps",
        type=click.IntRange(min=1),
        metavar="N",
        help="Scripts only: stop recording after N steps; the program continues.",
    ),
    click.option(
        "--duration",
        "duration_s",
        cls=Spelt,
        type=Above0(),
        metavar="SECONDS",
        help="Scripts only: stop recording at the first step after SECONDS.",
    ),
    format_option,
    quiet_option,
)


passes_option = click.option(
    "--passes", metavar="PASS,...", callback=parsed_passes, help=passes_help()
)
regression_option = many(
    "--max-regression",
    "budgets",
    "METRIC=PERCENT",
    "How much worse than base a metric may be: step, evaluation, unit, peak-allocated, "
    "kernels-per-step ... Repeatable.  [default: step=5%, evaluation=5%]",
)
evaluations_option = number(
    "--evaluations",
    DEFAULTS.evaluations,
    "Whole evaluations to time; after two, more run only if those differ by over 3 % and time "
    "allows.",
)
# What `kgprof compare --record` takes beside its own.
recorded_options = in_order(
    step_options, passes_option, evaluations_option, seed_option, timeout_option, quiet_option
)


def _given_among(names: Iterable[str], context: Context) -> list[str]:
    """Those that the command line itself names, and the workload's own options."""
    source = click.get_current_context().get_parameter_source
    given = [name for name in names if source(name) is click.core.ParameterSource.COMMANDLINE]
    return given + ["--"] * bool(context.workload_args)


def work_only(passes: tuple[m.PassName, ...]) -> tuple[m.PassName, ...]:
    """Those that say what is compiled and run. Raises UsageError where some were named."""
    if passes:
        raise UsageError("--work-only chooses the passes", "leave out --passes or --work-only")
    return m.OF_THE_WORK


def refuse_unless_recorded(
    context: Context, sides: Sequence[Path], history: Path | None, *, record: bool
) -> None:
    """Raises UsageError for too many sides or too few, and for an option of a run without
    --record."""
    if record and history is not None:
        raise UsageError(
            "--history takes recordings that exist", "record first, then add what was recorded"
        )
    if record and not 2 <= len(sides) <= 3:
        raise UsageError(
            f"--record needs BASE HEAD [WORKLOAD], got {len(sides)} arguments",
            "for example: kgprof compare --record HEAD^ . my_model.py:step",
        )
    if record:
        return
    if len(sides) < 2 and history is None:
        raise UsageError(
            "compare needs BASE and HEAD", "give two folders that `kgprof profile` wrote"
        )
    own = (
        "work_only",
        "python",
        "rounds",
        "strategies",
        "modes",
        "device",
        "steps",
        "warmup",
        "passes",
        "evaluations",
        "seed",
        "timeout",
    )
    if given := _given_among(own, context):
        raise UsageError(
            f"compare runs nothing, so {' and '.join(given)} cannot be used", "add --record"
        )


def refuse_unwritable(path: Path) -> None:
    """Raises UsageError for a folder, for a file with anything but folders above it (the missing
    ones are made when it is written), and for the name of a stream that says something else: stdout
    is asked for by no name; and for a file of a Recording that is there."""
    real = Path(os.path.realpath(path))
    if real.exists() and real.name not in layout.REPORTS:
        for folder in real.parents:
            if _is_recording(folder / layout.HEADER):
                raise UsageError(
                    f"{path} would be overwritten: it is in {folder}", "choose another place"
                )
    above = next((parent for parent in path.absolute().parents if parent.exists()), None)
    if (
        str(path) in ("-", "/dev/stdout", "/dev/stderr")
        or path.is_dir()
        or above is None
        or not above.is_dir()
    ):
        hint = (
            "choose a file in a writable folder; --format and extract write to stdout if "
            "no path is given"
        )
        raise UsageError(f"cannot write to {path}", hint)


def _is_recording(header: Path) -> bool:
    """Also where it is damaged; a file of that name may be a program's own."""
    if not header.is_file():
        return False
    try:
        known = files.json_object(files.content(header))
    except OSError:
        return True
    return not known or {"schema_version", "plan"} <= known.keys()


def tell_of_the_default(workload: str) -> None:
    """What runs where no workload is named."""
    ctx = click.get_current_context()
    if ctx.get_parameter_source("workload") is not ParameterSource.DEFAULT:
        return
    words = f"the workload is {workload}, as the project's configuration says"
    if workload == DEFAULTS.workload:
        words = UNNAMED.format(verb=ctx.info_name)
    ctx.ensure_object(Context).inform(words)


def asked_for(
    workload: str, workload_args: tuple[str, ...], *, timeout: float, **given: Any
) -> m.Options:
    """``given`` are fields of Options, which the parameters of ``run_options`` are named after (all
    but --timeout).

    Raises UsageError for a workload that cannot be one, before a child is started for it.
    """
    from kgprof.workloads import loading, programs

    loading.find(workload)
    loading.refuse_from_its_text(workload)
    loading.check_arguments(workload, workload_args)
    _refuse_without_cuda(given["device"])
    if given["warmup"] >= given["steps"]:
        lacking = f"--warmup {given['warmup']} leaves no steady step of --steps {given['steps']}"
        raise UsageError(lacking, "use more --steps")
    rounds = given.get("rounds", DEFAULTS.rounds)
    passes = given.get("passes", ())
    if programs.is_program(workload):
        refuse_for_a_script(workload, rounds, given.get("modes", ()), passes)
        if not passes:
            given |= {"passes": SCRIPT_PASSES, "timing_below_s": TIMED_BELOW_S}
    else:
        for name, option in (("max_steps", "--max-steps"), ("duration_s", "--duration")):
            if given.get(name) is not None:
                only = f"{option} is for scripts, but {workload} is not one"
                raise UsageError(only, "a script is script.py, or -m pkg.mod")
    if rounds > 1 and passes and m.PassName.TIMING not in passes:
        raise UsageError(
            f"--rounds {rounds} repeats TIMING, but --passes leaves it out",
            "add timing to --passes",
        )
    return m.Options(workload, workload_args=workload_args, timeout_s=timeout, **given)


def _refuse_without_cuda(device: str) -> None:
    """Raises UsageError where the version of torch shows that it can use no GPU."""
    version = installed("torch")
    if device == "cuda" and version.endswith("+cpu"):
        hint = "install a CUDA build of torch, or use --device cpu"
        raise UsageError(f"--device cuda: torch {version} is a build for CPUs", hint)


def installed(package: str) -> str:
    """A version without importing the package."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def refuse_for_a_script(
    workload: str, rounds: int, modes: Sequence[str], passes: Sequence[m.PassName]
) -> None:
    """Raises UsageError for what only a workload with steps of its own has."""
    if any(mode != m.AS_IS for mode in modes):
        raise UsageError(
            f"--mode does not work for a script ({workload}), which kgprof profiles as it stands",
            (
                f"write model = torch.compile(model) in it; kgprof sweep {workload} then "
                "tries its modes"
            ),
        )
    for name in passes:
        if not (m.PASSES[name].listens or m.PASSES[name].reruns):
            raise UsageError(f"a script has no {name.upper()} pass", m.PASSES[name].not_in_script)
    if rounds > 1:
        raise UsageError(
            f"--rounds {rounds} does not work for a script ({workload})",
            "profile one of its functions (file.py:name), or profile the script several times",
        )


def traced_options(context: Context, torch_trace: Path) -> m.Options:
    """Raises UsageError for what asks for a run as well."""
    run_only = (
        "workload",
        "strategies",
        "modes",
        "device",
        "steps",
        "warmup",
        "max_steps",
        "duration_s",
        "backend",
    )
    given = _given_among(run_only, context)
    if given or context.module:
        raise UsageError(
            f"--torch-trace runs nothing, so {' and '.join(given) or '-m'} cannot be used with it",
            "use one of the two",
        )
    return m.Options(f"TORCH_TRACE={torch_trace}", passes=(m.PassName.COMPILE,))


def unknown(
    kind: str, name: str, known: Sequence[str], *, near: str = "", cutoff: float = 0.5
) -> str:
    for nearest in difflib.get_close_matches(near or name, known, 1, cutoff):
        return f"no {kind} {name!r}; did you mean {nearest!r}?"
    return f"no {kind} {name!r}"
