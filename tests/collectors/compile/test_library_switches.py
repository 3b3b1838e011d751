"""Where a library does it, the library's own switch is the fix; and the library has that switch."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module

import pytest
import torch
from msgspec.structs import replace

from kgprof import gate
from kgprof.analysis import analyse
from kgprof.collectors import RULES, findings
from kgprof.collectors.compile import library_switches
from kgprof.collectors.compile.library_switches import (
    BREAKS,
    CAUSES,
    READS,
    TRAINERS,
    with_switches,
)
from kgprof.collectors.time.syncs import SYNC_DEBUG
from kgprof.document.finding_list import advice
from kgprof.gate.settings import Configuration, combined
from kgprof.model import (
    Finding,
    KernelOrigin,
    KernelOrigins,
    Level,
    Location,
    PackageLine,
    Reads,
    Refusal,
    SourceLine,
)
from kgprof.reading.evidence import Evidence
from kgprof.reading.source_text import SourceText
from tests.collectors import written, written_gpu_time, written_syncs
from tests.collectors.written import CALLER, FILE, LIBRARY, STEP, broken, builtin, compiled
from tests.programs.run import VISION

# Fixes that are no argument of the call: a setting, another operator, another way to call, a method
# of one's own.
_NO_CALL = (
    *(
        "model.config.pad_token_id",
        "torch.distributions.",
        "torch.argmax(",
    ),
    *("class ", "model.backbone.compile()", "self.forward = torch.compile("),
)
WITHOUT_ARGUMENT = {switch.fix for switch in (*READS, *BREAKS) if switch.fix.startswith(_NO_CALL)}
NAN = PackageLine(
    package="transformers",
    version="5.23.0",
    file="trainer.py",
    line=1914,
    function="Trainer._run_epoch",
    text="and (torch.isnan(tr_loss_step) or torch.isinf(tr_loss_step))",
)


# with all that the table names
PROGRAM = f"""{written.PROGRAM}
from shelf import *
USED = Accelerator, GATConv, GCNConv, TrainingArguments, generate, global_add_pool, log, to
"""


def mended(
    library: PackageLine, *chain: PackageLine, text: str = "", operator: str = ""
) -> Finding:
    """A read at ``library``, which the project's line reaches by ``chain``; ``text``: what stands
    on that line; ``operator``: what was seen of the read."""
    recording = written_syncs.a_read()
    run = replace(recording.runs[0], records=written.records(program=PROGRAM))
    evidence = Evidence(replace(recording, runs=(run,)))
    (finding,) = (one for one in findings(evidence) if one.reads is not None)
    assert isinstance(finding.reads, Reads)
    assert finding.location is not None
    own = replace(finding.location, text=text or finding.location.text)
    reads = replace(finding.reads, chain=chain, operator=operator or finding.reads.operator)
    placed: Finding = replace(finding, location=own, library=library, reads=reads)
    return with_switches(evidence, [placed])[0]


def of_read(library: PackageLine, *chain: PackageLine) -> str:
    """The library's switch. Below some other line of it, so that the project's own line is none."""
    return mended(library, *chain, replace(NAN, package="somebody")).fix


def of_break(*inside: tuple[str, int, str], reason: str = "", line: int = 14) -> Finding:
    """A break at the last of ``inside``, which the compiled function of the project calls."""
    stack = (CALLER, (FILE, line, "step"), *inside)
    evidence = Evidence(
        written.recording(*compiled("0/0", STEP), broken("0/0", *stack, reason=reason))
    )
    (finding,) = (one for one in findings(evidence) if one.refusal is not None)
    return finding


def test_a_read_in_a_library_is_mended_by_the_librarys_argument() -> None:
    assert of_read(NAN) == "TrainingArguments(..., logging_nan_inf_filter=False)"
    assert of_read(replace(NAN, text="")) == ""  # some read of this function
    assert of_read(replace(NAN, text="loss = loss.item()")) == ""
    assert of_read(replace(NAN, package="somebody")) == ""


def test_a_read_below_the_line_that_decides_is_its_line() -> None:
    to_item = replace(
        NAN, package="lightning_fabric", file="utilities/apply_func.py", function="to_item", text=""
    )
    result = replace(
        to_item,
        package="pytorch-lightning",
        file="trainer/connectors/logger_connector/result.py",
        function="_ResultCollection.metrics",
    )

    assert of_read(to_item, result).startswith("self.log(..., prog_bar=False)")
    assert of_read(to_item) == ""


def test_the_self_loops_of_a_gcn_are_made_once() -> None:
    loops = replace(
        NAN,
        package="torch-geometric",
        file="utils/loop.py",
        function="add_remaining_self_loops",
        text="",
    )

    made = of_read(loops, replace(loops, file="nn/conv/gcn_conv.py", function="gcn_norm"))
    # with the program's own edge_index the call raises: the weights are of other edges
    assert made.startswith("GCNConv(..., normalize=False)")
    assert "both the edge_index and the edge_weight" in made
    with_attention = replace(loops, file="nn/conv/gat_conv.py", function="GATConv.forward")
    assert of_read(loops, with_attention).startswith("GATConv(..., add_self_loops=False)")
    assert (
        of_read(loops, replace(loops, file="nn/conv/sage_conv.py", function="SAGEConv.forward"))
        == ""
    )


def test_a_copy_of_a_library_that_takes_non_blocking_is_given_it() -> None:
    copies = replace(
        NAN,
        package="torch-geometric",
        file="data/data.py",
        function="<lambda>",
        text="x.to(device=device, non_blocking=non_blocking)",
    )
    to = replace(copies, function="to", text="")
    sends = replace(copies, package="accelerate", file="utils/operations.py")
    loader = replace(sends, file="data_loader.py", function="__iter__", text="")
    theirs = replace(copies, package="somebody")
    wait = mended(theirs, replace(to, package="somebody"), operator=SYNC_DEBUG)

    assert of_read(copies, to).startswith("to(..., non_blocking=True)")
    assert of_read(replace(copies, text="x.item()"), to) == ""
    assert "DataLoaderConfiguration(non_blocking=True)" in of_read(sends, loader)
    pooled = replace(copies, file="nn/pool/glob.py", function="global_add_pool", text="")
    assert of_read(pooled).startswith("global_add_pool(..., size=...)  # ")
    assert of_read(sends) == ""  # a hook of a model that is spread over devices
    assert (wait.fix, wait.no_fix) == ("", library_switches._PASSES)


def test_the_reads_of_generate_and_of_a_distribution_have_a_way_out() -> None:
    generation = replace(
        NAN, file="generation/utils.py", text="bool(unfinished_sequences.max() == 0)"
    )
    checked = replace(
        NAN,
        package="torch",
        file="distributions/distribution.py",
        function="_validate_sample",
        text="x",
    )
    tokens = replace(generation, text="torch.multinomial(probs, num_samples=1)", function="_sample")

    assert "custom_generate=" in of_read(replace(generation, function="StopCheck.__call__"))
    assert "custom_generate=" in of_read(tokens, replace(generation, function="generate"))
    assert of_read(replace(generation, function="generate", text="")) == ""
    assert (
        of_read(checked)
        == "torch.distributions.Distribution.set_default_validate_args(False)  # once, at the start"
    )
    assert of_read(replace(checked, file="distributions/normal.py")) == ""


def test_what_the_trainer_calls_to_evaluate_is_no_matter_of_logging() -> None:
    logs = replace(NAN, function="Trainer._maybe_log_save_evaluate", text="")
    numpify = replace(
        NAN, file="trainer_pt_utils.py", function="nested_numpify", text="t = tensors.cpu()"
    )

    assert of_read(logs) == "TrainingArguments(..., logging_steps=...)  # more than now"
    assert of_read(numpify, replace(NAN, text=""), logs) == ""


SHELF = "/lib/site-packages/shelf/layers.py"


def test_a_read_of_a_library_without_a_switch_is_a_note_that_is_counted_all_the_same() -> None:
    found = mended(
        replace(NAN, package="somebody"), replace(NAN, package="somebody", function="fit")
    )

    assert (found.level, found.fix) == (Level.NOTE, "")
    assert found.no_fix
    assert mended(NAN).level is Level.WARNING


def test_what_a_librarys_function_reads_is_a_note() -> None:
    """Whether the program can do without it is not known."""
    for function in ("to_dense", "Dense.forward", "<genexpr>"):
        found = mended(replace(NAN, package="somebody", function=function))
        assert (found.level, found.fix) == (Level.NOTE, "")
        assert found.no_fix == library_switches._OF_A_LIBRARY


def test_what_only_waits_in_a_library_is_not_called_a_read() -> None:
    """As torch's debug mode tells it: a statement that timeit runs copies to the GPU."""
    called = mended(replace(NAN, package="Python", function="timeit"), operator=SYNC_DEBUG)
    inside = mended(replace(NAN, package="somebody", function="forward"), operator=SYNC_DEBUG)

    assert called.no_fix == inside.no_fix == library_switches._OF_A_LIBRARY
    assert "reads" not in called.no_fix
    # whether some argument avoids it, the table does not know
    assert "no known argument" not in called.no_fix


def test_a_break_in_what_a_compiled_function_calls_is_mended_by_calling_it_elsewhere() -> None:
    """With all that depends on its result, gradients too."""
    found = of_break((SHELF, 12, "stamp"))

    assert found.location is not None
    assert (found.level, found.no_fix, found.tried) == (Level.WARNING, "", False)
    assert found.fix == f"{found.location.text.strip()}  # {library_switches._OUTSIDE}"
    assert "gradients too" in found.fix


def test_a_break_in_a_layer_of_a_library_is_a_note_and_still_exceeds_the_budget() -> None:
    found = of_break((SHELF, 12, "forward"))
    lines = (
        *compiled("0/0", STEP),
        broken("0/0", CALLER, (FILE, 14, "step"), (SHELF, 12, "forward")),
    )
    judged = gate.judge(analyse(written.recording(*lines)), combined(Configuration()))

    assert (found.level, found.fix) == (Level.NOTE, "")
    assert found.no_fix
    assert judged.exit_code == 1


def test_a_break_that_the_library_asks_for_is_a_note() -> None:
    reason = builtin().replace(
        "context: builtin print", "context: Called `torch._dynamo.graph_break()` with args `[]`"
    )

    found = of_break((SHELF, 12, "step"), reason=reason)

    assert isinstance(found.refusal, Refusal)
    assert found.refusal.cause.operator == "torch._dynamo.graph_break"
    assert (found.level, found.fix) == (Level.NOTE, "")
    assert "on purpose" in found.no_fix


@pytest.mark.parametrize(
    ("context", "ignored"),
    [
        (
            "method: <Logger shelf (WARNING)>.warning, args: [ConstantVariable(str: 'a')]",
            "logging.Logger.warning",
        ),
        ("module: _warnings, qualname: warn, skip reason: <missing reason>", "warnings.warn"),
    ],
)
def test_a_message_is_left_out_of_compiled_code_whoever_writes_it(
    context: str, ignored: str
) -> None:
    reason = builtin().replace("context: builtin print", f"context: {context}")

    fixes = {of_break(*inside, reason=reason).fix for inside in ((), ((SHELF, 12, "forward"),))}

    assert [fix.partition("  #")[0] for fix in fixes] == [
        f"torch._dynamo.config.ignore_logging_functions.add({ignored})"
    ]


def test_a_method_of_a_logger_that_writes_nothing_leaves_no_message_out() -> None:
    context = "method: <Logger shelf (WARNING)>.isEnabledFor, args: [ConstantVariable(int: 20)]"

    found = of_break(reason=builtin().replace("context: builtin print", f"context: {context}"))

    assert "leaves the message out" not in found.fix


def test_a_method_that_transformers_adds_to_loggers_is_ignored_where_transformers_calls_it() -> (
    None
):
    once = "method: <Logger shelf (WARNING)>.warning_once, args: [ConstantVariable(str: 'a')]"
    reason = builtin().replace("context: builtin print", f"context: {once}")
    of_transformers = ("/lib/site-packages/transformers/modeling_utils.py", 12, "loss_function")

    found, of_others = (
        of_break(inside, reason=reason) for inside in (of_transformers, (SHELF, 12, "forward"))
    )

    assert found.fix.partition("  #")[0] == (
        "torch._dynamo.config.ignore_logging_functions.add(logging.Logger.warning_once)"
    )
    assert found.level is Level.WARNING
    assert "warning_once" not in of_others.fix  # their loggers may have it where Logger has none


@pytest.mark.parametrize(("own", "is_said"), [(True, True), (False, False)])
def test_a_hook_on_the_whole_is_offered_where_the_programs_own_code_is_compiled(
    own: bool, is_said: bool
) -> None:
    """torch compiles the ``__call__`` of nn.Sequential and the like, which runs their hooks too."""
    reason = (
        "Module-level backwards hooks require compiled autograd.\n  Explanation: \n\n"
        "  Developer debug context: \n\n"
        " For more details about this graph break, please visit: https://a.org/gb/gb0083.html"
    )
    wrapper = ("/lib/site-packages/torch/_dynamo/external_utils.py", 67, "inner")
    stack = (CALLER, (FILE, 14, "step"), ("/lib/site-packages/torch/nn/modules/module.py", 9, "f"))
    evidence = Evidence(
        written.recording(
            *compiled("0/0", STEP if own else wrapper), broken("0/0", *stack, reason=reason)
        )
    )

    (found,) = (one for one in findings(evidence) if one.refusal is not None)

    assert "without it the graph does not break" in found.no_fix
    assert ("compiled as a whole" in found.no_fix) is is_said


def test_a_break_at_a_line_of_the_program_has_the_setting_that_takes_it_into_the_graph() -> None:
    print_, input_ = printed("Constant"), builtin().replace("builtin print", "builtin input")

    assert of_break(reason=print_).fix.startswith(
        "torch._dynamo.config.reorderable_logging_functions.add(print)"
    )
    assert of_break(reason=input_).fix == ""
    # a library's has its own way
    assert "reorderable" not in of_break((SHELF, 12, "forward"), reason=print_).fix


def printed(*classes: str, keywords: bool = False) -> str:
    """The reason of a print, whose context lists what it is given and whether by keyword."""
    listed = ", ".join(
        f"<class 'torch._dynamo.variables.tensor.{each}Variable'>" for each in classes
    )
    return builtin().replace(
        "context: builtin print", f"context: builtin print [{listed}] {keywords}"
    )


@pytest.mark.parametrize(
    ("reason", "offered"),
    [
        (printed("Constant", "Tensor"), True),
        (printed("StringFormat"), True),
        (printed(), True),
        (printed("Constant", "Size"), False),
        (printed("List"), False),
        (printed("Tensor", keywords=True), False),  # torch forgets file=, sep= and end=
    ],
)
def test_a_print_is_put_off_if_torch_can_put_off_what_it_is_given(
    reason: str, offered: bool
) -> None:
    hint = "Hint: try adding it to `torch._dynamo.config.reorderable_logging_functions`."
    found = of_break(reason=reason.replace("Hint: Please report an issue to PyTorch.", hint))

    assert ("reorderable_logging_functions.add(print)" in found.fix) is offered
    assert found.refusal is not None
    assert offered or not any("reorderable" in each for each in found.refusal.cause.hints)


def test_a_print_of_a_number_that_became_a_symbol_is_not_put_off() -> None:
    lines = [
        [
            *compiled(f"0/{number}", STEP),
            broken(f"0/{number}", CALLER, (FILE, 14, "step"), reason=reason),
        ]
        for number, reason in enumerate((printed("Constant"), printed("SymNode")))
    ]

    (found,) = (
        each for each in findings(Evidence(written.recording(*lines))) if each.rule == "KGP101"
    )

    assert found.count == 2
    assert "reorderable" not in found.fix


def test_a_print_in_a_line_with_another_break_is_not_all() -> None:
    read = builtin("item", "0124").replace("Failed to trace builtin operator", "Tensor.item()")
    evidence = Evidence(
        written.recording(
            *compiled("0/0", STEP),
            broken("0/0", CALLER, (FILE, 14, "step"), reason=printed("Constant")),
            broken("0/0", CALLER, (FILE, 14, "step"), reason=read),
        )
    )

    fixes = [each.fix for each in findings(evidence) if each.refusal is not None]

    (of_print,) = (fix for fix in fixes if "reorderable" in fix)
    assert "print tensors themselves" in of_print


@pytest.mark.parametrize(
    ("test", "check"),
    [
        ("mask.any()", "torch.logical_not(mask.any())"),
        ("x.min() < 0", "torch.logical_not(x.min() < 0)"),
        ("not torch.isfinite(x).all()", "torch.isfinite(x).all()"),
        ("any(each.any() for each in masks)", ""),  # Python's own
        ("x.sum()", ""),  # a number: ~ is no opposite of it
        ("(x < 0).sum()", ""),
        ("0 < x.min() < 1", ""),
        ("x.min() < 0 and y.any()", ""),
    ],
)
def test_a_check_is_turned_round_if_it_is_a_bool(test: str, check: str) -> None:
    (branch,) = ast.parse(f"if {test}: raise ValueError").body
    assert isinstance(branch, ast.If)
    written = library_switches._opposite(branch.test)

    assert written.replace("(", "").replace(")", "") == check.replace("(", "").replace(")", "")


@pytest.mark.parametrize(
    ("otherwise", "hinted"), [("x = -x", True), ("return -x", False), ("raise ValueError", False)]
)
def test_a_branch_that_leaves_its_function_on_either_side_is_none_for_cond(
    otherwise: str, hinted: bool
) -> None:
    above = "\n" * (written.STEP_DEF - 1)
    branch = f"    if x.sum() > 0:\n        x = x + 1\n    else:\n        {otherwise}\n"
    text = f"{above}def step(x):\n{branch}"
    reason = builtin(gb_id="0170").replace("report an issue to PyTorch", "use torch.cond")
    found = of_break(reason=reason)
    assert found.refusal is not None
    assert any("torch.cond" in each for each in found.refusal.cause.hints)

    mended = library_switches._of_branch(found, SourceText(written.sources(text)))

    assert mended.refusal is not None
    assert any("torch.cond" in each for each in mended.refusal.cause.hints) is hinted


def test_the_hint_to_join_conditions_leaves_the_branch_that_raises() -> None:
    above = "\n" * (written.STEP_DEF - 1)
    branch = "    if x.isnan().any() or x.sum() < 0:\n        raise ValueError\n"
    hint = "Note: Python `or`/`and` between tensor expressions triggers"
    reason = builtin(gb_id="0170").replace("Avoid calling", f"{hint}. Avoid calling")
    found = of_break(reason=reason)
    assert found.refusal is not None
    assert any(hint in each for each in found.refusal.cause.hints)

    text = f"{above}def step(x):\n{branch}"
    mended = library_switches._of_branch(found, SourceText(written.sources(text)))

    assert mended.refusal is not None
    assert not any(hint in each for each in mended.refusal.cause.hints)


@pytest.mark.parametrize(("first", "fixed"), [("if flag: x = -x\n    if", True), ("elif", False)])
def test_what_only_the_else_of_another_if_asks_is_no_assert(first: str, fixed: bool) -> None:
    above = "\n" * (written.STEP_DEF - 3)
    branch = f"    if x is None: return\n    {first} x.sum() > 0:\n        raise ValueError\n"
    text = f"{above}def step(x):\n{branch}"
    line = text[: text.index("x.sum()")].count("\n") + 1
    found = of_break(reason=builtin(gb_id="0170"), line=line)

    mended = library_switches._of_branch(found, SourceText(written.sources(text)))

    assert mended.fix.startswith("torch._assert_async(") is fixed


def test_no_rnn_is_traced_where_sequences_are_packed() -> None:
    hint = "Set torch._dynamo.config.allow_rnn=True to enable it"
    reason = builtin(gb_id="0014").replace("report an issue to PyTorch", hint)
    packs = "from torch.nn.utils.rnn import pack_padded_sequence\n"
    found = replace(of_break(reason=reason), fix="")

    def mended(text: str) -> Finding:
        return library_switches._mended(found, SourceText(written.sources(text)), {}, set())

    def hints(finding: Finding) -> tuple[str, ...]:
        assert finding.refusal is not None
        return finding.refusal.cause.hints

    assert mended("").fix == mended(packs).fix == ""
    assert any(hint in each for each in hints(mended("")))
    assert not any(hint in each for each in hints(mended(packs)))


def test_a_function_of_logging_is_ignored_by_its_own_name() -> None:
    """``logging.info`` breaks the graph in its own lines, before a logger is called."""
    info = ("/lib/site-packages/python/logging/__init__.py", 2146, "info")

    found = of_break(info, reason=builtin())
    assert "ignore_logging_functions.add(logging.info)" in found.fix
    # the method of a logger that was compiled by itself
    assert found.library is not None
    method = replace(found.library, text="if self.isEnabledFor(INFO):")
    written = library_switches._written_by(replace(found, library=method), "")
    assert written == "logging.Logger.info"


def test_a_number_read_inside_of_an_operator_is_captured_by_no_setting() -> None:
    """Applied to an autograd.Function, torch's own hint ends the program."""
    inside = (
        "Higher Order Operator: autograd.Function\n  Explanation: It reads.\n"
        "  Hint: Set `torch._dynamo.config.capture_scalar_outputs = True`.\n\n"
        "  Developer debug context: call_method TensorVariable() item () {}\n\n"
        " For more details about this graph break, please visit: https://a.org/gb/gb0124.html"
    )

    found = of_break(reason=inside, line=17)
    assert found.fix == ""
    assert found.refusal is not None
    assert found.refusal.cause.hints == ()


@pytest.mark.parametrize(
    "hint",
    [
        # tried: the next line of what it then traces breaks
        "Apply `@torch._dynamo.dont_skip_tracing` to it.",
        "Set torch._dynamo.trace_autograd_ops=True",  # of the module: nothing reads it
        "Ensure the input tensor to `tolist()` is an integer type (e.g., int8).",
        # of logger.isEnabledFor: what it guards is then never done
        "Add the logging method to `torch._dynamo.config.ignore_logging_functions`.",
    ],
)
def test_a_hint_of_torchs_that_was_tried_and_is_false_is_not_shown(hint: str) -> None:
    reason = builtin().replace("Hint: Avoid calling builtin `print`.", f"Hint: {hint}")
    found = of_break(reason=reason.replace("builtin print", "builtin seed"))

    assert found.refusal is not None
    assert hint in found.refusal.cause.hints
    assert [line for line in advice(found) if hint[:20] in line] == []


def test_a_backward_is_called_outside_as_it_is_written() -> None:
    """It may be of a loss times a scale, which what follows divides by."""
    code, _, effect = library_switches.CAUSES["GB0123", ""].partition("  # ")

    assert code == "(...).backward()"
    assert effect.startswith("this call, outside of what is compiled")


def test_no_break_is_left_for_another_by_its_advice() -> None:
    """torch breaks the graph at what torch.compiler.disable keeps out, too."""
    assert "disable" not in of_break((SHELF, 12, "forward")).no_fix


def test_a_setting_with_which_results_may_differ_is_no_fix() -> None:
    hint = "Set `torch._dynamo.config.enable_faithful_generator_behavior = False`. Note that this"
    reason = builtin().replace("Hint: Avoid calling builtin `print`.", f"Hint: {hint}")

    assert of_break(reason=reason.replace("builtin print", "builtin next")).fix == ""


def test_a_setting_for_a_case_that_may_not_be_this_one_stays_torchs_hint() -> None:
    hint = "Hint: If it is checkpoint, set torch._dynamo.config.skip_it_there = True"
    reason = builtin("sorted").replace("Hint: Avoid calling builtin `sorted`.", hint)

    found = of_break(reason=reason)

    assert found.fix == ""
    assert found.refusal is not None
    assert found.refusal.cause.hints[0] == hint.removeprefix("Hint: ")


def test_a_setting_that_torch_hints_at_is_named_where_a_library_breaks_the_graph() -> None:
    hint = "Hint: Set torch._dynamo.config.allow_it = True to enable it."
    reason = builtin("sorted").replace("Hint: Avoid calling builtin `sorted`.", hint)

    inside = of_break((LIBRARY, 12, "forward"), reason=reason)

    assert (inside.fix, inside.level) == ("", Level.NOTE)
    assert inside.no_fix.endswith("; torch hints at torch._dynamo.config.allow_it = True")


def test_what_a_library_does_with_a_size_is_not_known() -> None:
    hint = "Hint: Set `torch._dynamo.config.capture_dynamic_output_shape_ops = True`"
    reason = builtin("nonzero").replace("Hint: Avoid calling builtin `nonzero`.", hint)

    own = of_break(reason=reason, line=17)
    inside = of_break((LIBRARY, 12, "forward"), reason=reason, line=17)

    assert own.fix == ""  # nobody tried whether torch raises at the next line: it is torch's hint
    assert own.refusal is not None
    assert own.refusal.cause.hints[0] == hint.removeprefix("Hint: ")
    assert (inside.fix, inside.level) == ("", Level.NOTE)


@pytest.mark.parametrize(
    ("operator", "is_traced"), [("aten.nonzero.default", True), ("aten._ctc_loss.Tensor", False)]
)
def test_the_hint_for_sizes_is_kept_for_what_torch_can_trace(
    operator: str, is_traced: bool
) -> None:
    reason = (
        "Dynamic shape operator\n"
        f"  Explanation: Operator `{operator}`'s output shape depends on input Tensor data.\n"
        "  Hint: Enable tracing of dynamic shape operators with "
        "`torch._dynamo.config.capture_dynamic_output_shape_ops = True`\n\n"
        f"  Developer debug context: {operator}\n\n"
        " For more details about this graph break, please visit: "
        "https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0036.html"
    )

    found = of_break(reason=reason, line=17)

    assert found.refusal is not None
    hints = " ".join(found.refusal.cause.hints)
    assert ("capture_dynamic_output_shape_ops = True" in hints) is is_traced
    assert found.refusal is not None
    assert bool(found.refusal.cause.hints) is is_traced


def test_every_setting_for_a_cause_is_one_of_torchs() -> None:
    settings = re.findall(
        r"^torch\._dynamo\.config\.(\w+)", "\n".join(CAUSES.values()), re.MULTILINE
    )

    assert [name for name in settings if not hasattr(torch._dynamo.config, name)] == []
    assert len(settings) == 1


def test_a_failure_to_compile_a_library_has_a_way_to_go_on() -> None:
    evidence = Evidence(written.recording(*written.a_failure()))
    (failed,) = findings(evidence)
    assert failed.refusal is not None
    library = PackageLine(
        package="shelf", version="1.4.2", file="layers.py", line=12, function="Shelf.forward"
    )

    (found,) = with_switches(evidence, [replace(failed, library=library, location=None, fix="")])

    assert (found.level, found.no_fix) == (Level.ERROR, "")
    assert found.fix.startswith("torch._dynamo.config.suppress_errors = True")


@pytest.mark.parametrize(
    ("file", "fix"),
    [
        (
            "/v/site-packages/transformers/trainer.py",
            'TrainingArguments(..., optim="adamw_torch_fused")',
        ),
        ("/v/site-packages/pytorch_lightning/core/module.py", "torch.optim.AdamW(..., fused=True)"),
        ("/home/me/transformers_trainer.py", "torch.optim.AdamW(..., fused=True)"),
    ],
)
def test_a_library_that_takes_the_steps_is_told_by_its_arguments(file: str, fix: str) -> None:
    line = SourceLine(file=file, line=1, function="training_step")
    origins = KernelOrigins(
        origins=(KernelOrigin(compile_id="", kernel="torch.ops.aten.mm", number=1, lines=(line,)),)
    )
    recording = written_gpu_time.unfused_optimizer()
    run = replace(recording.runs[0], kernel_origins=origins)

    found = findings(Evidence(replace(recording, runs=(run,))))

    assert [one.fix for one in found if one.rule == "KGP609"] == [fix]


def test_a_trainers_argument_stands_in_place_of_code_alone() -> None:
    proposed = Finding(
        rule="KGP606", level=Level.NOTE, message="", fix="with torch.autocast(...): ..."
    )

    found, without = (
        library_switches._mended(replace(proposed, fix=fix), None, {"KGP606": "Trainer(bf16)"}, ())
        for fix in (proposed.fix, "")
    )

    assert (found.fix, without.fix) == ("Trainer(bf16)", "")


def test_the_libraries_have_these_arguments_and_functions() -> None:
    transformers = pytest.importorskip("transformers")
    lightning = pytest.importorskip("pytorch_lightning")
    pyg = pytest.importorskip("torch_geometric.nn")
    accelerate = pytest.importorskip("accelerate")
    data = pytest.importorskip("torch_geometric.data")
    taking = {
        "TrainingArguments": inspect.signature(transformers.TrainingArguments.__init__).parameters,
        "Trainer": inspect.signature(lightning.Trainer.__init__).parameters,
        "GCNConv": inspect.signature(pyg.GCNConv.__init__).parameters,
        **{
            name: inspect.signature(getattr(pyg, name).__init__).parameters
            for name in ("GATConv", "GATv2Conv")
        },
        **{
            name: inspect.signature(getattr(pyg, name)).parameters
            for name in ("global_add_pool", "global_mean_pool", "global_max_pool")
        },
        "scatter": inspect.signature(import_module("torch_geometric.utils").scatter).parameters,
        "generate": {
            **inspect.signature(transformers.GenerationMixin.generate).parameters,
            **vars(transformers.GenerationConfig()),
        },
        "torch.optim.LBFGS": inspect.signature(torch.optim.LBFGS.__init__).parameters,
        **{
            name: inspect.signature(getattr(torch.optim, name).__init__).parameters
            for name in ("Adam", "AdamW", "SGD")
        },
        "model": inspect.signature(transformers.BertModel.forward).parameters,
        "self.log": inspect.signature(lightning.LightningModule.log).parameters,
        "to": inspect.signature(data.Data.to).parameters,
        "cuda": inspect.signature(data.Data.cuda).parameters,
        "Accelerator": inspect.signature(accelerate.Accelerator.__init__).parameters,
        "DataLoaderConfiguration": inspect.signature(
            accelerate.utils.DataLoaderConfiguration.__init__
        ).parameters,
        "DataLoader": inspect.signature(torch.utils.data.DataLoader.__init__).parameters,
    }
    sources = "".join(
        inspect.getsource(import_module(name))
        for name in (
            "transformers.trainer",
            "transformers.modeling_utils",
            "transformers.generation.utils",
            *(f"torch_geometric.nn.conv.{name}" for name in ("gcn_conv", "gat_conv", "gatv2_conv")),
            *(f"torch_geometric.nn.pool.{name}" for name in ("glob", "topk_pool", "sag_pool")),
            "torch_geometric.utils._scatter",
            *("torch_geometric.data.data", "accelerate.data_loader"),
            *(
                "torch.distributions.distribution",
                "torch.distributions.categorical",
                "torch.optim.lbfgs",
            ),
            *(
                "transformers.masking_utils",
                "torch.amp.grad_scaler",
                "pykeen.training.training_loop",
            ),
            *("torch_geometric.utils._negative_sampling", "pytorch_lightning.core.module"),
            "pytorch_lightning.trainer.connectors.logger_connector.result",
            "pytorch_lightning.trainer.connectors.logger_connector.logger_connector",
        )
    )

    # its wheel is for CUDA
    sources += (VISION / "torchvision/models/detection/retinanet.py").read_text("utf-8")

    fixes = [
        switch.fix.replace("{function}", name)
        for switch in (*READS, *BREAKS)
        for name in switch.functions
        if not switch.no_fix
    ]
    assert {rule for trainer in TRAINERS for rule in trainer.get("fixes", {})} <= {
        rule.id for rule in RULES
    }
    fixes += [fix for trainer in TRAINERS for fix in trainer.get("fixes", {}).values()]
    for fix in fixes:
        arguments = re.findall(r"([\w.]+)\(\.\.\., (\w+)=", fix)
        assert all(argument in taking[called] for called, argument in arguments)
        assert arguments or fix in WITHOUT_ARGUMENT
    for switch in (*READS, *BREAKS):
        assert all(f"def {name}(" in sources for name in switch.functions)
        assert any(word in sources for word in switch.words)
    assert "self.config.pad_token_id is None" in inspect.getsource(
        transformers.PreTrainedModel.warn_if_padding_and_no_attention_mask
    )
    assert callable(torch.distributions.Distribution.set_default_validate_args)


GENERATE = "out = model.generate(ids, max_new_tokens=64)"


@pytest.mark.parametrize(
    ("source", "text", "fix"),
    [
        (
            "kwargs['past_key_values'].layers[0].keys",
            GENERATE,
            'generate(..., cache_implementation="static")',
        ),
        (
            "kwargs['past_key_values'].layers[0].keys",
            "out = model(ids, past_key_values=cache)",
            "StaticCache(",
        ),
        ("kwargs['input_ids']", GENERATE, ""),
    ],
)
def test_a_cache_that_grows_has_a_static_one_of_its_library(
    source: str, text: str, fix: str
) -> None:
    finding = Finding(
        rule="KGP103",
        level=Level.NOTE,
        message="",
        location=Location(file=FILE, line=1, text=text),
        library=PackageLine(package="transformers", version="5.23.0", file="g.py", line=1),
        names=("kwargs['input_ids']", source),
    )
    evidence = Evidence(written_syncs.a_read())

    (mended_one,) = with_switches(evidence, [finding])
    (other_rule,) = with_switches(evidence, [replace(finding, rule="KGP602")])

    assert mended_one.fix.startswith(fix)
    assert bool(mended_one.fix) == bool(fix)
    assert other_rule.fix == ""


def test_what_lbfgs_reads_is_a_part_of_it_and_no_other_optimizer_is_offered() -> None:
    inside = replace(
        NAN,
        package="torch",
        file="optim/lbfgs.py",
        function="LBFGS.step",
        text="q.add_(old_dirs[i], alpha=-al[i])",
    )

    found = mended(inside, text="optimizer.step(closure)")

    assert (found.level, found.fix) == (Level.NOTE, "")
    assert found.no_fix == "LBFGS decides on the CPU how far to go, in each of its iterations"
