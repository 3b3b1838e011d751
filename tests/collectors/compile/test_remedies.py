"""Each remedy is applied: the program then has fewer graphs (or none runs eagerly) and no longer
the finding."""

from __future__ import annotations

import contextlib
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from torch._dynamo.utils import counters
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

import kgprof
from kgprof.collectors.compile.input_sizes import InputSize
from kgprof.collectors.compile.remedies import REMEDIES, Cause, as_code, room_for_all
from kgprof.collectors.guard_text import parse
from kgprof.model import Finding, Level
from kgprof.reading.source_text import SourceText

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
PROGRAMS = Path(__file__).parents[2] / "reports" / "programs"
CALLS = 20
SETTINGS = (
    "allow_unspec_int_on_nn_module",
    "allow_rnn",
    "capture_scalar_outputs",
    "force_parameter_static_shapes",
    "recompile_limit",
)
RECOMPILES = ("KGP103", "KGP104", "KGP105")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Programs change torch's settings, and the process's."""
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch._dynamo.reset()
    counters.clear()
    with torch._dynamo.config.patch(
        {name: getattr(torch._dynamo.config, name) for name in SETTINGS}
    ):
        yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)
    torch._dynamo.reset()


def graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


def watched(name: str) -> tuple[Finding, ...]:
    """What kgprof finds in CALLS steps of a program."""
    step: Callable[[], object] = runpy.run_path(str(PROGRAMS / f"{name}.py"))["step"]
    watch = kgprof.watch(step, warmup=3, device="cpu")
    try:
        for _ in range(CALLS):
            with contextlib.suppress(RuntimeError, ConstraintViolationError):
                watch()
        return watch.findings
    finally:
        watch.stop()


def of_recompiles(findings: tuple[Finding, ...]) -> list[Finding]:
    """Those that cost a compilation after the warm-up, or that reached the limit."""
    return [
        each
        for each in findings
        if each.rule in RECOMPILES and (each.level is not Level.NOTE or each.one_off)
    ]


MORE_GRAPHS = ("grad_mode", "training", "shared_wrapper", "models_in_turn")
# other programs of the same remedies
ALSO = ("enum_argument", "float_attribute", "global_number", "labels_of_a_batch")


def test_a_module_is_set_to_evaluation_only_if_it_is_the_only_one() -> None:
    guard = parse("0/0: self.body.1.training == True")
    cause = Cause(guards=(guard,), function="Net.forward")

    assert as_code(cause) == ""  # model and model.body are switched apart, say
    assert as_code(msgspec.structs.replace(cause, switched="net")).startswith("net.eval()")


def test_there_is_room_for_as_many_modules_as_torch_keeps_entries_of() -> None:
    """Tried: with recompile_limit = 300 torch stops at 256 entries of one code object."""
    wrapped = Cause(
        guards=(parse("0/0: fn.act is relu"),), function="inner", wraps=True, modules=257
    )

    assert (bool(room_for_all(256)), room_for_all(257)) == (True, "")
    assert "recompile_limit" not in as_code(wrapped)


def test_a_number_of_a_float64_program_becomes_a_float64_tensor() -> None:
    """Tried: torch.tensor(0.1) is a float32, and a float64 program then has other results."""
    guard = parse("0/0: scale == 0.1")
    cause = Cause(guards=(guard,), function="blend", only_computed=True, is_argument=True)

    assert "float64" in as_code(cause)


# a state may be None first, and then a tuple
TUPLE = "0/1: ___check_type_id(state, 9441), type=<class 'tuple'>"


def test_no_tensor_is_offered_in_place_of_a_tuple() -> None:
    none = parse("0/0: state is None")

    assert as_code(Cause(guards=(none,), function="encode"))
    assert as_code(Cause(guards=(none, parse(TUPLE)), function="encode")) == ""


NOT_ON_A_CPU = "device"  # a tensor of the only other device here, meta, has no data
OFFERED = [remedy.name for remedy in REMEDIES if remedy.name != NOT_ON_A_CPU]


@pytest.mark.parametrize("name", [*OFFERED, *ALSO])
def test_a_remedy_is_offered_and_helps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = of_recompiles(watched(f"remedy_{name}"))
    before = graphs()

    assert found.fix
    assert not found.tried  # watch tries none
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setenv("FIX", "1")
    assert of_recompiles(watched(f"remedy_{name}")) == []
    # Some make as many graphs or more, in the warm-up or per model: none is made later, and nothing
    # runs eagerly.
    assert graphs() < before or name in MORE_GRAPHS


@pytest.mark.parametrize(
    ("name", "rule", "line", "code"),
    [
        ("remedy_layer_drop", "KGP101", 14, "torch.rand((), device=...)"),
        ("remedy_scalar", "KGP101", 15, ""),  # untried, it is torch's own hint
        ("remedy_rnn", "KGP102", 18, ""),
        ("remedy_custom_op", "KGP107", 22, "@halve.register_fake"),
        ("remedy_marked_and_fixed", "KGP107", 14, "torch._dynamo.maybe_mark_dynamic(batch, 1)"),
        ("remedy_marked_number", "KGP107", 12, "torch._dynamo.maybe_mark_dynamic(signal, 0)"),
    ],
)
def test_the_fix_of_a_break_or_an_error_helps(
    name: str, rule: str, line: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # other tests of this process do, and the whole project's text is looked at
    monkeypatch.setattr(SourceText, "packs_sequences", False)
    (found,) = (each for each in watched(name) if each.rule == rule)

    assert found.location is not None
    assert found.location.line == line
    assert found.fix.partition("  #")[0] == code
    torch._dynamo.reset()
    monkeypatch.setenv("FIX", "1")
    assert [each for each in watched(name) if each.rule == rule] == []


def test_what_torch_where_does_to_the_gradients_of_the_side_left_out_is_said() -> None:
    (found,) = (each for each in watched("remedy_layer_drop") if each.rule == "KGP101")
    left_out = torch.nn.Linear(2, 2)
    x = torch.ones(2)
    torch.where(torch.tensor(False), left_out(x), x.requires_grad_()).sum().backward()

    assert left_out.weight.grad is not None
    assert not left_out.weight.grad.any()
    assert found.fix.endswith(
        "both sides are computed, and weights of the one left out get gradients of 0, not None"
    )


MODULE = """
import torch

class Scaled(torch.nn.Module):
    def forward(self, x, factor):
        return x * factor

net = torch.compile(Scaled(), backend="eager", dynamic=False)
factors = iter(range(2, 99))

def step():
    return net(torch.ones(4), next(factors) / 4)
"""


def test_a_fix_calls_a_module_by_its_name_and_not_its_forward(tmp_path: Path) -> None:
    program = tmp_path / "scaled.py"
    program.write_text(MODULE, "utf-8")
    watch = kgprof.watch(runpy.run_path(str(program))["step"], warmup=3, device="cpu")

    for _ in range(CALLS):
        watch()
    watch.stop()

    (found,) = of_recompiles(watch.findings)
    assert found.fix.partition("  #")[0] == "net(..., factor=torch.tensor(factor))"


def test_a_switch_that_only_moves_the_break_is_not_offered() -> None:
    found = watched("loop_with_condition")

    assert "KGP102" in [each.rule for each in found]
    assert [each.fix for each in found if "capture_scalar_outputs" in each.fix] == []
    torch._dynamo.reset()
    counters.clear()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        still = [each.rule for each in watched("loop_with_condition")]
    assert "KGP102" in still  # the truth: it does not help


def test_a_switch_with_which_the_call_raises_is_not_offered() -> None:
    found = watched("hooked_sequential")

    (of_hook,) = (each for each in found if each.rule == "KGP101")
    assert of_hook.refusal is not None
    assert any("compiled_autograd" in hint for hint in of_hook.refusal.cause.hints)
    assert of_hook.fix == ""
    assert of_hook.no_fix
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(5, 5))
    model[0].register_full_backward_hook(lambda module, given, come: None)
    with torch._dynamo.config.patch(compiled_autograd=True):
        out = torch.compile(model, backend="aot_eager")(torch.ones(3, 5, requires_grad=True))
        with pytest.raises(AssertionError, match="BackwardState requires CompiledAutograd"):
            out.sum().backward()


INT = (
    "self.k == 3   # x (HINT: torch._dynamo.config.allow_unspec_int_on_nn_module "
    "= True, or a tensor)"
)


@pytest.mark.parametrize(
    ("text", "only_computed"),
    [
        (INT, False),
        (INT.replace("self.k", "G['metric'].k"), True),
        ("scale == 0.5", False),
        ("name == 'a'", True),
        ("self.param_groups[0]['betas'][0] == 0.9", False),
        ("2 <= x.size()[0]", False),
        ("something that a later torch says", False),
        ("set.__contains__(skip, 'first')", False),
    ],
)
def test_what_would_not_help_is_not_offered(text: str, only_computed: bool) -> None:
    cause = Cause(guards=(parse(text),), function="Model.step", only_computed=only_computed)

    assert as_code(cause) == ""


@pytest.mark.parametrize("text", ["fn.keywords['how'] == 'a'", "fn.p == 0.5"])
def test_room_is_offered_for_many_modules_and_not_for_many_values(text: str) -> None:
    many_values = Cause(guards=(parse(text),), function="partial", wraps=True)
    many_modules = Cause(guards=(parse("fn.p == 'a'"),), function="Linear", wraps=True, modules=11)

    assert as_code(many_values) == ""
    assert as_code(many_modules).startswith(
        "torch._dynamo.config.recompile_limit = 11  # one entry for each of the 11"
    )


def test_a_parameter_that_begins_to_require_gradients_has_no_remedy_of_sizes() -> None:
    text = (
        "0/0: tensor 'self._parameters['bias']' {} mismatch{}. Guard failed on a parameter, "
        "consider using torch._dynamo.config.force_parameter_static_shapes = False to allow "
        "dynamism on parameters."
    )
    thawed = text.format("requires_grad", ". expected requires_grad=0")
    resized = text.format("size", " at index 0. expected 3, actual 4")
    tried = {"force_parameter_static_shapes": "tried: compiled 2 times instead of 4"}
    cause = Cause(guards=(parse(resized),), function="Tuned.forward")
    again = parse(text.format("size", " at index 0. expected 4, actual 5"))

    assert as_code(Cause(guards=(parse(thawed),), function="Tuned.forward")) == ""
    assert as_code(cause) == ""  # torch compiles for the second size with the setting, too
    assert as_code(msgspec.structs.replace(cause, guards=(*cause.guards, again))).endswith(
        "force_parameter_static_shapes = False  # not tried"
    )
    assert as_code(msgspec.structs.replace(cause, tried=dict.fromkeys(tried, ""))) == ""
    assert as_code(msgspec.structs.replace(cause, tried=tried)) == (
        "torch._dynamo.config.force_parameter_static_shapes = False  # tried: compiled 2 times "
        "instead of 4"
    )


def test_a_list_of_another_length_has_no_remedy() -> None:
    assert as_code(Cause(guards=(parse("0/0: len(G['norms']) == 1"),), function="keep_norm")) == ""
    past = Cause(guards=(parse("0/0: len(past) == 1"),), function="blend")
    assert as_code(past) == ""  # nothing says what it does with the items


def test_the_answer_to_a_comparison_is_passed_only_in_place_of_more_than_two_values() -> None:
    guards = (parse("0/0: pool == 'mean'"),)
    two = Cause(guards=guards, function="encode", comparison="pool == 'mean'", values=2)

    assert as_code(two) == ""
    assert as_code(msgspec.structs.replace(two, values=3)).startswith("encode(..., pool == 'mean')")


def test_options_are_named_in_the_call_where_only_the_function_gathers_them() -> None:
    guard = parse("0/0: not ___dict_contains('gain', extra)")
    given = Cause(guards=(guard,), function="Mixer.fuse")

    assert as_code(given).startswith("extra = {'gain': ..., **extra}  # before the call: ")
    rest = as_code(msgspec.structs.replace(given, is_rest=True))
    assert rest.startswith("fuse(..., gain=...)  # every key each time")


def test_what_only_the_function_gathers_takes_no_mark() -> None:
    guard = parse("0/0: tensor 'tensors[0]' size mismatch at index 0. expected 6, actual 7")
    varied = InputSize(frame_id="0", source=guard.source, dimension=0, sizes=(6, 7))
    cause = Cause(guards=(guard,), function="cat", together=(varied,), is_rest=True)

    assert as_code(cause).startswith("torch.compile(..., dynamic=True)")


def test_an_array_takes_no_mark() -> None:
    size = "tensor '___from_numpy(L['a'])' size mismatch at index 0. expected 6, actual 7"
    guard = parse(f"0/0: {size}")
    varied = InputSize(frame_id="0", source=guard.source, dimension=0, sizes=(6, 7))
    cause = Cause(guards=(guard,), function="from_numpy", together=(varied,))

    assert as_code(cause).startswith("torch.compile(..., dynamic=True)")


@pytest.mark.parametrize(("first", "code"), [("CUDA", 'x = x.to("cuda")'), ("Meta", "")])
def test_no_data_is_moved_to_a_device_without_data(first: str, code: str) -> None:
    keys = f"DispatchKeySet({first}, BackendSelect), actual DispatchKeySet(CPU, BackendSelect)"
    guard = parse(f"0/0: tensor 'x' dispatch key set mismatch. expected {keys}")

    assert as_code(Cause(guards=(guard,), function="pool")).partition("  #")[0] == code


@pytest.mark.parametrize(
    "text",
    [
        "scale == 0.5",
        "tensor 'scale' dtype mismatch. expected Float, actual Double",
        "tensor 'scale' stride mismatch at index 0. expected 4, actual 1",
        "scale is None",
    ],
)
def test_what_a_function_closes_over_is_no_argument(text: str) -> None:
    given = Cause(guards=(parse(f"0/0: {text}"),), function="loss", only_computed=True)
    closed_over = as_code(msgspec.structs.replace(given, is_argument=False))

    assert as_code(given)
    assert "loss(" not in closed_over
    assert "before the call" not in closed_over


@pytest.mark.parametrize("text", ["args[0]", "x_l"])
def test_no_fix_names_what_only_a_library_has(text: str) -> None:
    size = f"0/0: tensor '{text}' size mismatch at index 1. expected 6, actual 9"
    varied = InputSize(frame_id="0", source=text, dimension=1, sizes=(6, 9))
    cause = Cause(guards=(parse(size),), function="forward", together=(varied,))

    assert "mark_dynamic" in as_code(cause)
    assert as_code(msgspec.structs.replace(cause, library=True)) == ""


@pytest.mark.parametrize(
    ("expected", "actual", "dtype"),
    [
        ("Float", "Double", "float32"),
        ("Half", "Double", "float16"),
        ("Int", "Long", "int64"),
        ("Long", "Float", ""),  # indices and weights, say
        ("Half", "Int", ""),
        ("Bool", "Float", ""),  # a mask that keeps, and one that is added
        ("Bool", "Byte", ""),
        ("Byte", "Float", ""),  # pixels up to 255, and up to 1
        ("Byte", "Char", ""),
        ("ComplexFloat", "Float", ""),
    ],
)
def test_one_dtype_is_offered_only_for_numbers_of_one_kind(
    expected: str, actual: str, dtype: str
) -> None:
    text = f"0/0: tensor 'y' dtype mismatch. expected {expected}, actual {actual}"
    code = as_code(Cause(guards=(parse(text),), function="loss_of")).partition("  #")[0]

    assert code == (f"y = y.to(torch.{dtype})" if dtype else "")


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        (
            "tensor 'self._modules['l']._parameters['weight']' size mismatch at index 0. "
            "expected 8, actual 4",
            True,
        ),
        ("len(self._modules['hidden']._modules) != 1", True),
        # the same model compiled anew for each input: a reset would compile in each call
        ("tensor 'x' size mismatch at index 0. expected 8, actual 4", False),
    ],
)
def test_what_differs_between_models_asks_for_a_reset(text: str, offered: bool) -> None:
    cause = Cause(guards=(parse(f"0/0: {text}"),), function="Net.forward", in_turn=True)

    assert ("torch.compiler.reset()" in as_code(cause)) is offered


def test_an_optimizer_of_the_owners_own_may_need_a_number_for_its_rate() -> None:
    lr = (parse("0/0: self.param_groups[0]['lr'] == 0.1"),)
    step = "Optimizer.profile_hook_step.<locals>.wrapper"

    assert as_code(Cause(guards=lr, function=step, library=True)) == ""
    assert as_code(Cause(guards=lr, function="SGD.step")) == ""


def test_what_a_library_has_a_setting_for_is_still_offered() -> None:
    lr = (parse("0/0: self.param_groups[0]['lr'] == 0.1"),)

    assert "lr=torch.tensor" in as_code(Cause(guards=lr, function="SGD.step", library=True))


@pytest.mark.parametrize(
    "text",
    [
        "0/0: tensor 'x' rank mismatch. expected 3, actual 2",
        "0/0: tensor 'self.table' rank mismatch. expected 1, actual 2",
        "0/0: x is not None",
        "0/0: tensor 'self._parameters['bias']' requires_grad mismatch. expected requires_grad=0",
        '0/0: Duplicate tensors found: ["self.a", "self.b"]',
    ],
)
def test_a_remedy_of_the_new_kinds_is_offered_for_plain_names_alone(text: str) -> None:
    assert as_code(Cause(guards=(parse(text),), function="f")) == ""


@pytest.mark.parametrize(
    "text",
    [
        "0/0: tensor 'w' dtype mismatch. expected Float, actual Double",
        "0/0: tensor 'w' rank mismatch. expected 2, actual 3",
        "0/0: tensor 'w' dispatch key set mismatch. expected DispatchKeySet(CPU, BackendSelect), "
        "actual DispatchKeySet(CUDA, BackendSelect)",
    ],
)
def test_what_a_tensor_is_computed_with_changes_with_it(text: str) -> None:
    """torch names the first argument that differs: with that one alone changed, ``x @ w`` raises,
    of which both have become float64, say."""
    guard = parse(text)

    effect = as_code(Cause(guards=(guard,), function="f")).partition("  # ")[2]

    assert effect.startswith("before the call, and the same for what it is computed with, if ")


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ("num_threads", "torch.set_num_threads(...)"),
        (
            "deterministic_algorithms num_threads",
            "torch.use_deterministic_algorithms(...); torch.set_num_threads(...)",
        ),
        ("num_threads unknown_setting", ""),
        ("autocast(cpu)_enabled", "with torch.autocast(...): f(...)"),
        ("autocast(cpu)_enabled num_threads", ""),
        ("autocast(cpu)_dtype", ""),  # it is around every call already
        ("grad_mode", "with torch.no_grad(): ..."),
        ("grad_mode num_threads", ""),
    ],
)
def test_a_fix_is_for_all_settings_that_changed_together_or_none(settings: str, fix: str) -> None:
    guards = (parse(f"0/0: GLOBAL_STATE changed: {settings} "),)

    assert as_code(Cause(guards=guards, function="f")).partition("  #")[0] == fix
