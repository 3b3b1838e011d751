"""How --help is laid out: verbs and options in groups; -h is a verb's first words and examples."""

import inspect
from collections.abc import Mapping
from typing import Any

import click

VERBS: Mapping[str, Mapping[str, str]] = {
    "Diagnose": {
        "profile": "Is this program slow, why, and which line? One page answers.",
        "check-graphs": "Fail on graph breaks and recompiles: the gate for CI.",
        "trace": "The same page from a trace that torch.profiler wrote.",
    },
    "Fix": {
        "fix": "Try what may make it faster, and write the patch that did.",
    },
    "Decide": {
        "compare": "Is HEAD slower than BASE, and why?",
        "bisect": "Which commit between GOOD and BAD made it worse?",
        "sweep": "Which mode of torch.compile is fastest, and still right?",
        "advise": "Is compiling worth it for so many executions? From a sweep.",
        "capture": "Can this function be captured in a CUDA graph, and how?",
    },
    "Read": {
        "report": "Write the report of a Recording again, without torch.",
        "explain": "Explain a rule: its meaning, its cost, its remedy.",
        "export": "Write the trace of one run for another viewer.",
        "extract": "Write the report.json that is in a report.html.",
        "schema": "Print the JSON Schema of report.json.",
    },
    "Set up": {
        "ci-init": "Write a workflow that compares each pull request.",
        "selftest": "Which captures work on this machine and torch?",
    },
    "Built-in example": {
        "workloads": "List the built-in workloads.",
        "evaluate": "Run linkpred (the built-in link-prediction evaluator) alone.",
        "datasets": "List the graphs of linkpred.",
    },
}
# what other tools call them
MEANT = {
    "analyze": "profile",
    "autofix": "fix",
    "baseline": "check-graphs --update-baseline",
    "bench": "compare --record",
    "check": "check-graphs",
    "diff": "compare",
    "gate": "check-graphs",
    "init": "ci-init",
    "run": "profile",
    "show": "report",
    "test": "check-graphs",
    "tune": "sweep",
}
_OTHER = "Output and CI"
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "The run": (
        *("-m", "--strategy", "--mode", "--backend", "--dynamic", "--precision", "--size"),
        *(
            "--sizes",
            "--ladder",
            "--case",
            "--device",
            "--seed",
            "--workload",
            "--record",
            "--timed",
        ),
        *("--list", "--torch-trace", "--allow", "--again-is-safe", "--apply"),
    ),
    "Measuring": (
        *("--passes", "--steps", "--warmup", "--rounds", "--evaluations", "--timeout"),
        *("--max-steps", "--duration", "--wait-for-idle", "--executions", "--processes"),
        *("--repeats", "--minutes", "--resume", "--rerun-hta", "--memory"),
    ),
    "Limits": (
        *("--max", "--max-regression", "--fail-on", "--accepted", "--update-baseline"),
        "--allow-different-environment",
    ),
    _OTHER: (),
    "Privacy": ("--fail-on-secret", "--no-redact", "--include-source"),
}


class Verb(click.Command):
    """A verb whose options are listed in groups."""

    def __init__(self, *given: Any, **how: Any) -> None:
        super().__init__(*given, **how)
        if self.add_help_option:
            self.params.append(_brief_option())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in OPTIONS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                groups[_group_of(param)].append(record)
        _write(groups, formatter)

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        return ["--help"]

    def brief(self, ctx: click.Context) -> str:
        """Return the usage, what the verb answers, and its examples."""
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        first, *_ = paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        examples = [each for each in paragraphs if each.lstrip().startswith("\b")]
        with formatter.indentation():
            for text in (first, *examples):
                formatter.write_paragraph()
                formatter.write_text(text)
        formatter.write_paragraph()
        formatter.write_text(f"{ctx.command_path} --help lists every option.")
        return formatter.getvalue().rstrip("\n")


def write_verbs(formatter: click.HelpFormatter) -> None:
    """Write what each verb answers, in groups."""
    _write({title: [*verbs.items()] for title, verbs in VERBS.items()}, formatter)


def _brief_option() -> click.Option:
    def show(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
        if asked and not ctx.resilient_parsing:
            assert isinstance(ctx.command, Verb)
            click.echo(ctx.command.brief(ctx))
            ctx.exit()

    return click.Option(
        ["-h"], is_flag=True, is_eager=True, expose_value=False, callback=show, hidden=True
    )


def _group_of(param: click.Parameter) -> str:
    named = (group for group, names in OPTIONS.items() if {*param.opts} & {*names})
    return next(named, _OTHER)


def _write(groups: Mapping[str, list[tuple[str, str]]], formatter: click.HelpFormatter) -> None:
    for title, records in groups.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)
