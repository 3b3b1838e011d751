"""Failed guards as torch 2.11 and 2.13 word them, read into classes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kgprof.collectors.compile.guard_words import in_words, named
from kgprof.collectors.guard_text import OTHER, Guard, parse
from kgprof.model import Location
from tests.corpus.truth import GUARD_CLASSES

CPU = "DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU)"
META = "DispatchKeySet(Meta, BackendSelect, ADInplaceOrView, AutogradMeta)"
INFERENCE = "DispatchKeySet(CPU, BackendSelect, ADInplaceOrView)"
COMMENT = (
    '   # return x * n  # shop/model.py:9 in scale\nUser stack trace:\n  File "/'
    'src/shop/model.py", line 9, in scale'
)


CASES = [
    (
        "tensor 'x' size mismatch at index 1. expected 16, actual 17",
        Guard(kind="size", entry="", source="x", dimension=1, expected="16", actual="17"),
    ),
    (
        "tensor 'args[0]' stride mismatch at index 0. expected 4, actual 1",
        Guard(kind="stride", entry="", source="args[0]", dimension=0, expected="4", actual="1"),
    ),
    (
        "tensor 'self.parts['a']' rank mismatch. expected 1, actual 2",
        Guard(kind="rank", entry="", source="self.parts['a']", expected="1", actual="2"),
    ),
    (
        "tensor 'x' dtype mismatch. expected Float, actual Double",
        Guard(kind="dtype", entry="", source="x", expected="Float", actual="Double"),
    ),
    (
        "tensor 'x' Tensor device index mismatch. Expected device index to be 0, actual 1",
        Guard(kind="device", entry="", source="x", expected="0", actual="1"),
    ),
    (
        f"tensor 'x' dispatch key set mismatch. expected {CPU}, actual {META}",
        Guard(kind="device", entry="", source="x", expected=CPU, actual=META),
    ),
    (
        f"tensor 'x' dispatch key set mismatch. expected {CPU}, actual {INFERENCE}",
        Guard(kind="dispatch-keys", entry="", source="x", expected=CPU, actual=INFERENCE),
    ),
    (
        "tensor 'x' requires_grad mismatch. expected requires_grad=0",
        Guard(kind="requires-grad", entry="", source="x", expected="0"),
    ),
    (
        "expected type of 'mask' to be a tensor type, ' but found <class 'NoneType'>",
        Guard(
            kind="type", entry="", source="mask", expected="a tensor", actual="<class 'NoneType'>"
        ),
    ),
    ('Duplicate tensors found: ["x", "y"]', Guard(kind="aliasing", entry="", source='["x", "y"]')),
    ("GLOBAL_STATE changed: grad_mode ", Guard(kind="grad-mode", entry="", source="grad_mode")),
    (
        "GLOBAL_STATE changed: autocast(cpu)_enabled ",
        Guard(kind="autocast", entry="", source="autocast(cpu)_enabled"),
    ),
    (
        "GLOBAL_STATE changed: default_dtype ",
        Guard(kind="global-state", entry="", source="default_dtype"),
    ),
    ("___check_torch_function_mode_stack()", Guard(kind="global-state", entry="")),
    (
        "BACKEND_MATCH failure: torch.compile detected different backend callables.",
        Guard(kind="backend", entry=""),
    ),
    (
        "___check_type_id(scaler, 94294803232512), type=<class 'shop.Doubling'>",
        Guard(kind="type", entry="", source="scaler", expected="<class 'shop.Doubling'>"),
    ),
    (
        "___check_obj_id(how, 140388418008144), type=<class 'shop.Reduction'>",
        Guard(kind="identity", entry="", source="how", expected="<class 'shop.Reduction'>"),
    ),
    (
        '___check_obj_id(f.__code__, 1399), type=<code object f at 0x7f, file "/src/a.py", line 8>',
        Guard(
            kind="identity",
            entry="",
            source="f.__code__",
            expected='<code object f at 0x7f, file "/src/a.py", line 8>',
        ),
    ),
    (
        "CodeGuardAccessor: Not a function on score_mod.__code__",
        Guard(kind="type", entry="", source="score_mod", expected="a function"),
    ),
    ("___check_obj_id(x, 7)", Guard(kind="identity", entry="", source="x")),
    (
        "___check_obj_id(flag, 9476), type=<class 'bool'>",
        Guard(kind="value", entry="", source="flag", expected="<class 'bool'>"),
    ),
    (
        "___check_obj_id(mask, 9476), type=<class 'NoneType'>",
        Guard(kind="type", entry="", source="mask", expected="<class 'NoneType'>"),
    ),
    ("hop != 1", Guard(kind="value", entry="", source="hop", expected="!= 1")),
    ("2 <= hop", Guard(kind="value", entry="", source="hop", expected="2 <= hop")),
    (
        "not set.__contains__(skip, 0)",
        Guard(kind="keys", entry="", source="skip", expected="no 0"),
    ),
    (
        "list(dict.keys(feats))[0] == 'image'",
        Guard(kind="keys", entry="", source="feats", expected="'image' as key 1"),
    ),
    ("mask is None", Guard(kind="type", entry="", source="mask", expected="None")),
    ("mask is not None", Guard(kind="type", entry="", source="mask", expected="not None")),
    ("n == 2", Guard(kind="value", entry="", source="n", expected="2")),
    ("double is False", Guard(kind="value", entry="", source="double", expected="False")),
    ("G['GAIN'] == 2.0", Guard(kind="value", entry="", source="G['GAIN']", expected="2.0")),
    (
        "f.__closure__[0].cell_contents == 'a  # b'",
        Guard(kind="value", entry="", source="f.__closure__[0].cell_contents", expected="'a  # b'"),
    ),
    (
        "self.calls == 0   # self.calls += 1  # a.py:14 in f (HINT: torch.compile considers "
        "integers static)",
        Guard(kind="value", entry="", source="self.calls", expected="0"),
    ),
    ("other is x", Guard(kind="aliasing", entry="", source="other", expected="x")),
    (
        "KeyError on options['scale']",
        Guard(kind="keys", entry="", source="options", expected="'scale'"),
    ),
    ("len(xs) == 2", Guard(kind="length", entry="", source="xs", expected="2")),
    (
        "len(self._results) != 0",
        Guard(kind="length", entry="", source="self._results", expected="!= 0"),
    ),
    ("not history", Guard(kind="length", entry="", source="history", expected="0")),
    (
        "not ___dict_contains('offset', options)",
        Guard(kind="keys", entry="", source="options", expected="no 'offset'"),
    ),
    (
        "___dict_contains('offset', options)",
        Guard(kind="keys", entry="", source="options", expected="'offset'"),
    ),
    (
        "list(dict.keys(options)) == ['a']",
        Guard(kind="keys", entry="", source="options", expected="['a']"),
    ),
    (
        "list(options.keys()) == ['a']",
        Guard(kind="keys", entry="", source="options", expected="['a']"),
    ),
    (
        "not hasattr(o, 'offset')",
        Guard(kind="attribute", entry="", source="o", expected="no 'offset'"),
    ),
    ("hasattr(o, 'offset')", Guard(kind="attribute", entry="", source="o", expected="'offset'")),
    (
        "2 <= x.size()[0]",
        Guard(kind="size", entry="", source="x", dimension=0, expected="2 <= x.size()[0]"),
    ),
    (
        "Eq(L['x'].stride()[1], 4)",
        Guard(
            kind="stride",
            entry="",
            source="L['x']",
            dimension=1,
            expected="Eq(L['x'].stride()[1], 4)",
        ),
    ),
    ("something that a later torch says", Guard(kind=OTHER, entry="")),
]


def without_comment(guard: Guard) -> Guard:
    return replace(guard, used=None, stack=(), hint="", switches=(), variable="")


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_a_guard_is_read(text: str, expected: Guard) -> None:
    guard = text.partition("   # ")[0].rstrip()
    complete = Guard(
        **{**{name: getattr(expected, name) for name in Guard.__struct_fields__}, "text": guard}
    )

    assert without_comment(parse(text)) == complete
    assert parse(f"3/1: {text}").entry == "3/1"


def test_the_classes_that_are_told_apart_are_those_of_the_corpus() -> None:
    assert {guard.kind for _, guard in CASES} == GUARD_CLASSES | {OTHER}


def test_the_comment_and_the_stack_are_no_part_of_the_guard() -> None:
    found = parse(f"0/0: n == 2{COMMENT}")

    assert (found.kind, found.source, found.expected, found.text) == ("value", "n", "2", "n == 2")
    assert found.used == Location(
        file="shop/model.py", line=9, function="scale", text="return x * n"
    )
    assert found.stack == (Location(file="/src/shop/model.py", line=9, function="scale"),)


def test_torchs_hint_and_the_switch_in_it_are_kept() -> None:
    hint = (
        "integers are static, torch._dynamo.config.allow_unspec_int_on_nn_module = "
        "True, or a tensor"
    )
    found = parse(f"1/2: self.calls == 0     # self.calls += 1  # a.py:14 in f (HINT: {hint})")

    assert found.text == "self.calls == 0"
    assert found.hint == hint
    assert found.switches == ("torch._dynamo.config.allow_unspec_int_on_nn_module = True",)
    assert found.used is not None
    assert (found.used.line, found.used.text) == (14, "self.calls += 1")


def test_a_hint_may_stand_without_a_line() -> None:
    found = parse(
        "___check_type_id(fn, 94224), type=<class 'functools.partial'> (HINT: type partial)"
    )

    assert (found.kind, found.source, found.hint) == ("type", "fn", "type partial")
    assert found.used is None


def test_a_switch_behind_a_size_is_no_part_of_the_size() -> None:
    found = parse(
        "tensor 'fn._parameters['bias']' size mismatch at index 0. expected 3, actual 4. Guard "
        "failed on a parameter, consider using torch._dynamo.config.force_parameter_static_shapes "
        "= False to allow dynamism on parameters."
    )

    assert (found.expected, found.actual) == ("3", "4")
    assert found.switches == ("torch._dynamo.config.force_parameter_static_shapes = False",)


def test_a_switch_behind_an_expected_value_is_no_part_of_it() -> None:
    found = parse(
        "tensor 'self._parameters['bias']' requires_grad mismatch. expected requires_grad=0. Guard "
        "failed on a parameter, consider using torch._dynamo.config.force_parameter_static_shapes "
        "= False to allow dynamism on parameters."
    )

    assert (found.kind, found.expected) == ("requires-grad", "0")


@pytest.mark.parametrize("owner", ["mask", "G['mask']", "L['mask']"])
def test_what_closes_over_a_variable_is_named_as_the_program_does(owner: str) -> None:
    guard = parse(f'{owner}.__closure__[0].cell_contents == 1  # m()  # a.py:2 in f ("w")')

    assert named(replace(guard, variable="w")) == "w, which mask closes over"


def test_a_closures_cell_has_the_variables_name() -> None:
    cell = "mask.__closure__[0].cell_contents"

    assert (
        parse(f'{cell} == 1  # return a < w  # a.py:22 in band (HINT: guard on "w")').variable
        == "w"
    )
    assert (
        parse(
            f"{cell} == 1  # n  # a.py:2 in f (HINT: guard on \"w\".k['a b/c.0']) (HINT: x)"
        ).variable
        == "w.k['a b/c.0']"
    )
    assert (
        parse(f'{cell}.k == 1  # return a < w.k  # a.py:2 in f (HINT: guard on "w".k)').variable
        == "w.k"
    )


def test_a_hash_in_the_used_line_does_not_end_it() -> None:
    found = parse(
        "n == 2     # x = x[n]  # the n-th  # shop/model.py:9 in scale (_dynamo/x.py:26 in "
        "evaluate_expr)"
    )

    assert found.used is not None
    assert (found.used.text, found.used.file, found.used.line) == (
        "x = x[n]  # the n-th",
        "shop/model.py",
        9,
    )


def test_a_mode_on_torch_functions_is_named_as_it_is_written() -> None:
    assert "`with torch.device(...)`" in in_words(
        parse("0/0: ___check_torch_function_mode_stack()")
    )


def test_an_object_that_is_gone_has_no_private_name() -> None:
    gone = "0/0: Cache line invalidated because L['___stack0'] got deallocated"

    assert in_words(parse(gone)).startswith("an object that it was compiled for was deleted")


def test_a_size_behind_a_graph_break_is_told_without_torchs_name_for_it() -> None:
    guard = parse("4/1: ((47 + ___stack0.size()[0]) // 48) == 4  # for part in x.split(48):")

    assert in_words(guard) == (
        "size of the result of a graph break's line, dimension 0: expected ((47 + it) // 48) == 4"
    )


def test_a_size_that_the_framework_sets_apart_has_no_line() -> None:
    at = "  # return x + 1  # m.py:27 in forward "
    hint = "(user code shown is first use of this value--the guard itself is not due user code)"

    assert parse(f"0/1: 2 <= x.size()[0]{at}{hint}").used is None
    assert parse(f"0/1: 2 <= x.size()[0]{at}").used is not None
