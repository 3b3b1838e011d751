"""The argument of a library that mends a finding whose cause lies in it, in place of code that its user cannot change.

As the source of transformers 5.23, pytorch-lightning 2.6, PyG 2.8 and torch 2.13 has them; a test holds them against
what is installed.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors import input_pipeline, matmul_precision, optimizer_steps, syncs
from kgprof.reading.evidence import Evidence

HUGGING_FACE, LIGHTNING = "transformers", "lightning"
_TRAINERS = {  # by a file that asks for a training step's operators
    "/transformers/trainer.py": HUGGING_FACE,
    "/pytorch_lightning/": LIGHTNING,
    "/lightning/pytorch/": LIGHTNING,
}


class Read(NamedTuple):
    """A sync or a graph break at a line of a library."""

    file: str  # the end of its path
    function: str
    words: tuple[str, ...]  # one of them stands in the line
    below: bool  # or in what the line calls
    fix: str


_LOGS, _LOGGER = "_maybe_log_save_evaluate", "logger_connector/logger_connector.py"
_BAR = "self.log(..., prog_bar=False)  # prog_bar=True reads the value in each step, with and without a bar"
_SAME_GRAPH = "GCNConv(..., cached=True)  # if every step has the same graph; else T.GCNNorm() before the loop"
_SELF_LOOPS = "GATConv(..., add_self_loops=False)  # after T.AddRemainingSelfLoops() on the data"
_SIZE = "global_mean_pool(..., size=data.num_graphs)  # else the largest index in batch is read"
_POOLING = "global_mean_pool(..., size=data.num_graphs)  # not TopKPooling, which reads how many nodes stay"
_DECODING = (
    "model.generate(..., custom_generate=decode)  # your own loop: draws by argmax(probs / exponential noise) "
    "and looks for the end every N tokens"
)
_PADDING = "model.config.pad_token_id = None  # generation_config keeps its own; the check is of prompts without a mask"
_PER_CALL = "model.generate(prompts)  # more of them per call: this is read once per call"
_UNCHECKED = "torch.distributions.Distribution.set_default_validate_args(False)  # once, at the start"
_HISTORY = "torch.optim.LBFGS(..., history_size=10)  # it reads twice per iteration and entry of its history"
_LBFGS = "torch.optim.AdamW(..., fused=True)  # in place of LBFGS, which decides on the CPU"
_GENERATION, _POOLS = "generation/utils.py", "nn/pool/glob.py"
READS = (
    Read("modeling_utils.py", "warn_if_padding_and_no_attention_mask", ("",), False, _PADDING),
    *(Read(_GENERATION, name, ("",), False, _DECODING) for name in ("_sample", "_beam_search")),
    Read(_GENERATION, "__call__", ("unfinished_sequences",), False, _DECODING),
    *(
        Read(_GENERATION, name, ("",), False, _PER_CALL)
        for name in ("generate", "_prepare_special_tokens", "_get_logits_processor")
    ),
    *(
        Read(f"nn/conv/{name}.py", "forward", ("",), True, _SELF_LOOPS.replace("GATConv", convolution))
        for name, convolution in (("gat_conv", "GATConv"), ("gatv2_conv", "GATv2Conv"))
    ),
    *(
        Read(_POOLS, name, ("",), True, _SIZE.replace("global_mean_pool", name))
        for name in ("global_add_pool", "global_mean_pool", "global_max_pool")
    ),
    *(
        Read(f"nn/pool/{name}.py", "forward", ("",), True, _POOLING.replace("TopKPooling", pooling))
        for name, pooling in (("topk_pool", "TopKPooling"), ("sag_pool", "SAGPooling"))
    ),
    *(
        Read("distributions/distribution.py", name, ("",), False, _UNCHECKED)
        for name in ("__init__", "_validate_sample")
    ),
    Read("distributions/categorical.py", "sample", ("",), False, f"{syncs.DRAWN}, for sample()"),
    Read("optim/lbfgs.py", "step", ("al[i]",), False, _HISTORY),
    Read("optim/lbfgs.py", "step", ("",), False, _LBFGS),
    Read(
        "trainer.py", "_run_epoch", ("isnan(", "isinf("), False, "TrainingArguments(..., logging_nan_inf_filter=False)"
    ),
    Read("trainer.py", _LOGS, ("",), False, "TrainingArguments(..., logging_steps=...)  # more than now"),
    Read("logger_connector/result.py", "metrics", ("",), True, _BAR),
    Read("nn/conv/gcn_conv.py", "gcn_norm", ("",), True, _SAME_GRAPH),
    Read(_LOGGER, "log_metrics", ("",), True, "Trainer(..., log_every_n_steps=...)  # more than now"),
)
_WITH_READS = (
    HUGGING_FACE,
    LIGHTNING,
    "pytorch_lightning",
    "pytorch-lightning",
    "torch_geometric",
    "torch-geometric",
    "torch",
)
OF_TRAINERS = {
    (HUGGING_FACE, matmul_precision.FLOAT32_ON_CUDA_CORES.id): "TrainingArguments(..., tf32=True)",
    (HUGGING_FACE, matmul_precision.NO_AUTOCAST.id): "TrainingArguments(..., bf16=True)",
    (HUGGING_FACE, input_pipeline.SLOW_DATA_LOADER.id): "TrainingArguments(..., dataloader_num_workers=4)  # or more",
    (HUGGING_FACE, input_pipeline.PAGEABLE_COPY.id): "TrainingArguments(..., dataloader_pin_memory=True)",
    (HUGGING_FACE, optimizer_steps.UNFUSED_OPTIMIZER.id): 'TrainingArguments(..., optim="adamw_torch_fused")',
    (LIGHTNING, matmul_precision.NO_AUTOCAST.id): 'Trainer(..., precision="bf16-mixed")',
}


def with_switches(evidence: Evidence, findings: list[m.Finding]) -> list[m.Finding]:
    """The findings, with the library's own argument as the fix where there is one."""
    trainers: dict[m.RunKey | None, str] = {run.key: _trainer(run.record.kernel_origins) for run in evidence.runs}
    fixes = [_of_read(one) or OF_TRAINERS.get((trainers.get(one.run, ""), one.rule), one.fix) for one in findings]
    return [replace(one, fix=fix) for one, fix in zip(findings, fixes, strict=True)]


def _of_read(finding: m.Finding) -> str:
    way = finding.reads or finding.refusal
    if way is None or finding.library is None:
        return ""
    places = [(finding.library, True), *((line, False) for line in way.chain)]
    return next(
        (read.fix for read in READS for line, here in places if (here or read.below) and _is_at(read, line)), ""
    )


def _is_at(read: Read, line: m.PackageLine) -> bool:
    here = line.package in _WITH_READS and line.file.endswith(read.file)
    named = line.function.rpartition(".")[2] == read.function
    return here and named and any(word in line.text for word in read.words)


def _trainer(origins: m.KernelOrigins | m.Skipped) -> str:
    """The library that takes this run's training steps."""
    lines = () if isinstance(origins, m.Skipped) else (line for origin in origins.origins for line in origin.lines)
    files = {line.file for line in lines}
    return next((name for part, name in _TRAINERS.items() if any(part in file for file in files)), "")
