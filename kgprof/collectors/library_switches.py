"""The switch of a library that mends a finding whose cause lies in it, in place of code that its user cannot change.

Which argument does what was read in the libraries' source: transformers 5.23 and pytorch-lightning 2.6. A test holds
the arguments against what is installed.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.input_pipeline import PAGEABLE_COPY, SLOW_DATA_LOADER
from kgprof.collectors.matmul_precision import FLOAT32_ON_CUDA_CORES, NO_AUTOCAST
from kgprof.collectors.optimizer_steps import UNFUSED_OPTIMIZER
from kgprof.collectors.syncs import HOST_DEVICE_SYNC, WOULD_SYNC
from kgprof.reading.evidence import Evidence

HUGGING_FACE, LIGHTNING = "transformers", "pytorch_lightning"
_TRAINERS = {  # by a file that asks for a training step's operators
    "/transformers/trainer.py": HUGGING_FACE,
    "/pytorch_lightning/": LIGHTNING,
    "/lightning/pytorch/": LIGHTNING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A sync at a line of a library."""

    file: str  # the end of its path
    function: str = ""
    words: tuple[str, ...] = ("",)  # one of them stands in the line
    below: bool = False  # or in what the line calls
    fix: str


READS = (
    Read(
        file="trainer.py",
        words=("isnan(", "isinf("),
        function="_run_epoch",
        fix="TrainingArguments(..., logging_nan_inf_filter=False)",
    ),
    Read(
        file="trainer.py",
        function="_maybe_log_save_evaluate",
        fix="TrainingArguments(..., logging_steps=...)  # more than now",
    ),
    Read(
        file="logger_connector/result.py",
        function="metrics",
        below=True,
        fix="self.log(..., prog_bar=False)  # prog_bar=True reads the value in each step, with and without a bar",
    ),
    Read(
        file="logger_connector/logger_connector.py",
        function="log_metrics",
        below=True,
        fix="Trainer(..., log_every_n_steps=...)  # more than now",
    ),
)
_WITH_READS = (HUGGING_FACE, LIGHTNING, "pytorch-lightning", "lightning", "lightning_fabric", "lightning-fabric")
OF_TRAINERS: dict[tuple[str, str], str] = {
    (HUGGING_FACE, FLOAT32_ON_CUDA_CORES.id): "TrainingArguments(..., tf32=True)",
    (HUGGING_FACE, NO_AUTOCAST.id): "TrainingArguments(..., bf16=True)",
    (HUGGING_FACE, SLOW_DATA_LOADER.id): "TrainingArguments(..., dataloader_num_workers=4)  # or more than now",
    (HUGGING_FACE, PAGEABLE_COPY.id): "TrainingArguments(..., dataloader_pin_memory=True)",
    (HUGGING_FACE, UNFUSED_OPTIMIZER.id): 'TrainingArguments(..., optim="adamw_torch_fused")',
    (LIGHTNING, NO_AUTOCAST.id): 'Trainer(..., precision="bf16-mixed")',
}


def with_switches(evidence: Evidence, findings: list[m.Finding]) -> list[m.Finding]:
    """The findings, with the library's own switch as the fix where there is one."""
    trainers: dict[m.RunKey | None, str] = {run.key: _trainer(run.record.kernel_origins) for run in evidence.runs}
    switches = [_of_read(one) or OF_TRAINERS.get((trainers.get(one.run, ""), one.rule), "") for one in findings]
    return [replace(one, fix=fix) if fix else one for one, fix in zip(findings, switches, strict=True)]


def _of_read(finding: m.Finding) -> str:
    if finding.rule not in (HOST_DEVICE_SYNC.id, WOULD_SYNC.id) or finding.library is None:
        return ""
    chain = finding.reads.chain if finding.reads is not None else ()
    found = (
        read.fix
        for read in READS
        if _is_at(read, finding.library) or (read.below and any(_is_at(read, line) for line in chain))
    )
    return next(found, "")


def _is_at(read: Read, line: m.PackageLine) -> bool:
    return (
        line.package in _WITH_READS
        and line.file.endswith(read.file)
        and line.function.rpartition(".")[2] == read.function
        and any(word in line.text for word in read.words)
    )


def _trainer(origins: m.KernelOrigins | m.Skipped) -> str:
    """The library that takes this run's training steps."""
    if isinstance(origins, m.Skipped):
        return ""
    files = {line.file for origin in origins.origins for line in origin.lines}
    return next((name for part, name in _TRAINERS.items() if any(part in file for file in files)), "")
