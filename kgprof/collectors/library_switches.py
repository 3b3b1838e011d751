"""What the owner of a program can do about a finding whose cause lies in a library, whose code he cannot change.

That is the library's own argument (library_switches.toml), or his own line, if that is what calls it. Where it is
neither, the finding is a note and says so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from importlib import resources

import msgspec
from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors import input_pipeline, matmul_precision, optimizer_steps
from kgprof.reading.evidence import Evidence
from kgprof.reading.source_text import user_function

HUGGING_FACE, LIGHTNING = "transformers", "lightning"
# By a file that asks for a training step's operators.
_LIGHTNING = dict.fromkeys(("/pytorch_lightning/", "/lightning/pytorch/"), LIGHTNING)
_TRAINERS = {"/transformers/trainer.py": HUGGING_FACE, **_LIGHTNING}


class Switch(m.Model, frozen=True, kw_only=True):
    """What to write where a line of a library syncs or breaks the graph; the fields are explained in the table."""

    packages: tuple[str, ...]
    file: str
    functions: tuple[str, ...]
    words: tuple[str, ...] = ("",)
    below: bool = False
    fix: str


_TABLE = tomllib.loads(resources.files(__package__).joinpath("library_switches.toml").read_text(encoding="utf-8"))
READS, BREAKS = (tuple(msgspec.convert(each, Switch) for each in _TABLE[kind]) for kind in ("read", "break"))
OF_TRAINERS = {
    (HUGGING_FACE, matmul_precision.FLOAT32_ON_CUDA_CORES.id): "TrainingArguments(..., tf32=True)",
    (HUGGING_FACE, matmul_precision.NO_AUTOCAST.id): "TrainingArguments(..., bf16=True)",
    (HUGGING_FACE, input_pipeline.SLOW_DATA_LOADER.id): "TrainingArguments(..., dataloader_num_workers=4)  # or more",
    (HUGGING_FACE, input_pipeline.PAGEABLE_COPY.id): "TrainingArguments(..., dataloader_pin_memory=True)",
    (HUGGING_FACE, optimizer_steps.UNFUSED_OPTIMIZER.id): 'TrainingArguments(..., optim="adamw_torch_fused")',
    (LIGHTNING, matmul_precision.NO_AUTOCAST.id): 'Trainer(..., precision="bf16-mixed")',
}
_ON_PURPOSE, _WARNS = "torch._dynamo.graph_break", "_warnings.warn"
_OF_MODULES = ("forward", "__call__")  # a layer's own work: nobody can call it elsewhere or less often
_UNAVOIDABLE_READ = (
    "no argument of the library is known that avoids this read; what is left is to call what leads there less often, "
    "to write that part yourself, or to change the library"
)
_UNAVOIDABLE_BREAK = (
    "no argument of the library is known that avoids this break; what is left is to compile the parts around it "
    "instead of the whole, to keep it out with torch.compiler.disable, or to change the library"
)
_INTENDED = "the library breaks the graph here on purpose; what stands before and behind it is compiled"
_ELSEWHERE = "call it before the loop or every N steps, or use a function that reads nothing"
_OUTSIDE = "outside of what is compiled: pass its result in, or call it afterwards"
_SUPPRESSED = "torch._dynamo.config.suppress_errors = True  # what cannot be compiled then runs in eager"


def with_switches(evidence: Evidence, findings: list[m.Finding]) -> list[m.Finding]:
    """The findings, with what their owner can do where the rule's remedy is none; a note where that is nothing."""
    trainers: dict[m.RunKey | None, str] = {run.key: _trainer(run.record.kernel_origins) for run in evidence.runs}
    compiled = {
        (trace.run, frame.file, _last(user_function(frame.function)))
        for trace in evidence.compilers_and_cut_off
        for each in trace.compiled
        if (frame := each.frame) is not None and trace.source.project.holds(frame.file)
    }
    fixes = (_known(one) or OF_TRAINERS.get((trainers.get(one.run, ""), one.rule), one.fix) for one in findings)
    pairs = zip(findings, fixes, strict=True)
    return [replace(one, fix=fix) if fix else _without_switch(one, compiled) for one, fix in pairs]


def _known(finding: m.Finding) -> str:
    way = finding.reads or finding.refusal
    if way is None:
        return ""
    called = finding.refusal.cause.operator if finding.refusal else ""
    if called == _WARNS or called.startswith("Logger."):  # in whatever package
        message = "warnings.warn" if called == _WARNS else f"logging.{called}"
        return f"torch._dynamo.config.ignore_logging_functions.add({message})  # compiled code leaves the message out"
    places = [(line, here) for line, here in ((finding.library, True), *((line, False) for line in way.chain)) if line]
    table = READS if finding.refusal is None else (*BREAKS, *READS)
    at = ((one, line) for one in table for line, here in places if (here or one.below) and _is_at(one, line))
    return next((one.fix.replace("{function}", _last(line.function)) for one, line in at), "")


def _is_at(switch: Switch, line: m.PackageLine) -> bool:
    here = line.package in switch.packages and line.file.endswith(switch.file)
    return here and _last(line.function) in switch.functions and any(word in line.text for word in switch.words)


# ---------------------------------------------------------------- where no switch is known


def _without_switch(finding: m.Finding, compiled: Collection[tuple[m.RunKey, str, str]]) -> m.Finding:
    """A sync, a break or a failure in a library: the owner's own line, if that asks for it, else nothing of his."""
    way, library, place = finding.reads or finding.refusal, finding.library, finding.location
    if way is None or library is None or finding.level is m.Level.NOTE:
        return finding
    own = place.text.partition("  #")[0].strip() if place else ""
    direct = own and not any(_last(line.function) in _OF_MODULES for line in (library, *way.chain))
    if isinstance(way, m.Reads):
        if direct and not way.chain:
            return replace(finding, fix=f"{own}  # {_last(library.function)}() reads: {_ELSEWHERE}")
        return replace(finding, level=m.Level.NOTE, no_fix=_UNAVOIDABLE_READ)
    inside = any((finding.run, at.file, _last(at.function)) in compiled for at in way.stack)
    wanted = way.cause.operator == _ON_PURPOSE
    if inside and own and not wanted and (direct or finding.level is m.Level.ERROR):
        return replace(finding, fix=f"{own}  # {_OUTSIDE}")
    if finding.level is m.Level.ERROR:
        return replace(finding, fix=_SUPPRESSED)
    return replace(finding, level=m.Level.NOTE, no_fix=_INTENDED if wanted else _UNAVOIDABLE_BREAK)


def _last(function: str) -> str:
    return function.rpartition(".")[2]


def _trainer(origins: m.KernelOrigins | m.Skipped) -> str:
    """The library that takes this run's training steps."""
    made = () if isinstance(origins, m.Skipped) else origins.origins
    files = {line.file for origin in made for line in origin.lines}
    return next((name for part, name in _TRAINERS.items() if any(part in file for file in files)), "")
