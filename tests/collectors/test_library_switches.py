"""Where a library does it, the library's own switch is the fix; and the library has that switch."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

import pytest
from msgspec.structs import replace

from kgprof.collectors import findings
from kgprof.collectors.library_switches import OF_TRAINERS, READS, with_switches
from kgprof.model import Finding, KernelOrigin, KernelOrigins, PackageLine, Reads, SourceLine
from kgprof.reading.evidence import Evidence
from tests.collectors import written_gpu_time, written_syncs

NAN = PackageLine(
    package="transformers",
    version="5.23.0",
    file="trainer.py",
    line=1914,
    function="Trainer._run_epoch",
    text="and (torch.isnan(tr_loss_step) or torch.isinf(tr_loss_step))",
)


def of_read(library: PackageLine, *chain: PackageLine) -> str:
    evidence = Evidence(written_syncs.a_read())
    (finding,) = (one for one in findings(evidence) if one.reads is not None)
    assert isinstance(finding.reads, Reads)
    placed: Finding = replace(finding, library=library, reads=replace(finding.reads, chain=chain))
    return with_switches(evidence, [placed])[0].fix


def test_a_read_in_a_library_is_mended_by_the_librarys_argument() -> None:
    assert of_read(NAN) == "TrainingArguments(..., logging_nan_inf_filter=False)"
    assert of_read(replace(NAN, text="")) == ""  # some read of this function
    assert of_read(replace(NAN, text="loss = loss.item()")) == ""
    assert of_read(replace(NAN, package="somebody")) == ""


def test_a_read_below_the_line_that_decides_is_its_line() -> None:
    to_item = replace(NAN, package="lightning_fabric", file="utilities/apply_func.py", function="to_item", text="")
    result = replace(
        to_item,
        package="pytorch-lightning",
        file="trainer/connectors/logger_connector/result.py",
        function="_ResultCollection.metrics",
    )

    assert of_read(to_item, result).startswith("self.log(..., prog_bar=False)")
    assert of_read(to_item) == ""


def test_the_self_loops_of_a_gcn_are_made_once() -> None:
    loops = replace(NAN, package="torch-geometric", file="utils/loop.py", function="add_remaining_self_loops", text="")

    assert of_read(loops, replace(loops, file="nn/conv/gcn_conv.py", function="gcn_norm")).startswith(
        "GCNConv(..., cached"
    )
    assert of_read(loops, replace(loops, file="nn/conv/gat_conv.py", function="GATConv.forward")) == ""


def test_what_the_trainer_calls_to_evaluate_is_no_matter_of_logging() -> None:
    logs = replace(NAN, function="Trainer._maybe_log_save_evaluate", text="")
    numpify = replace(NAN, file="trainer_pt_utils.py", function="nested_numpify", text="t = tensors.cpu()")

    assert of_read(logs) == "TrainingArguments(..., logging_steps=...)  # more than now"
    assert of_read(numpify, replace(NAN, text=""), logs) == ""


@pytest.mark.parametrize(
    ("file", "fix"),
    [
        ("/v/site-packages/transformers/trainer.py", 'TrainingArguments(..., optim="adamw_torch_fused")'),
        ("/v/site-packages/pytorch_lightning/core/module.py", "torch.optim.AdamW(..., fused=True)"),
        ("/home/me/transformers_trainer.py", "torch.optim.AdamW(..., fused=True)"),
    ],
)
def test_a_library_that_takes_the_steps_is_told_by_its_arguments(file: str, fix: str) -> None:
    line = SourceLine(file=file, line=1, function="training_step")
    origins = KernelOrigins(origins=(KernelOrigin(compile_id="", kernel="torch.ops.aten.mm", number=1, lines=(line,)),))
    recording = written_gpu_time.unfused_optimizer()
    run = replace(recording.runs[0], kernel_origins=origins)

    found = findings(Evidence(replace(recording, runs=(run,))))

    assert [one.fix for one in found if one.rule == "KGP609"] == [fix]


def test_the_libraries_have_these_arguments_and_functions() -> None:
    transformers = pytest.importorskip("transformers")
    lightning = pytest.importorskip("pytorch_lightning")
    pyg = pytest.importorskip("torch_geometric.nn")
    taking = {
        "TrainingArguments": inspect.signature(transformers.TrainingArguments.__init__).parameters,
        "Trainer": inspect.signature(lightning.Trainer.__init__).parameters,
        "GCNConv": inspect.signature(pyg.GCNConv.__init__).parameters,
        "self.log": inspect.signature(lightning.LightningModule.log).parameters,
    }
    sources = "".join(
        inspect.getsource(import_module(name))
        for name in (
            "transformers.trainer",
            "torch_geometric.nn.conv.gcn_conv",
            "pytorch_lightning.trainer.connectors.logger_connector.result",
            "pytorch_lightning.trainer.connectors.logger_connector.logger_connector",
        )
    )

    for fix in (*(read.fix for read in READS), *OF_TRAINERS.values()):
        called, argument = re.findall(r"([\w.]+)\(\.\.\., (\w+)=", fix)[0]
        assert argument in taking[called]
    for read in READS:
        assert f"def {read.function}(" in sources
        assert any(word in sources for word in read.words)
