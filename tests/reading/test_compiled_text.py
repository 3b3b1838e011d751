"""The same work reads the same, whatever its author calls things; other work does not."""

from __future__ import annotations

import re

import pytest

from kgprof.model import Skipped
from kgprof.reading import compiled_text

GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[8, 4][4, 1]cpu", L_self_parameters_weight_: "f32[4][1]cpu"):
        l_x_ = L_x_
        l_self_parameters_weight_ = L_self_parameters_weight_

        # File: /w/model.py:11 in forward, code: y = x * self.weight
        y: "f32[8, 4][4, 1]cpu" = l_x_ * l_self_parameters_weight_;  l_self_parameters_weight_ = None

        # File: /w/model.py:12 in forward, code: return y.sin() + x
        sin: "f32[8, 4][4, 1]cpu" = y.sin();  y = None
        add: "f32[8, 4][4, 1]cpu" = sin + l_x_;  sin = l_x_ = None
        return (add,)
"""  # noqa: E501
CODE = '''
# AOT ID: ['0_inference']
import torch
async_compile = AsyncCompile()
cpp_fused_add_mul_sin_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r"""
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) { out_ptr0[0] = in_ptr0[0]; }
""")
async_compile.wait(globals())

class Runner:
    def call(self, args):
        arg0_1, arg1_1 = args
        args.clear()
        buf0 = empty_strided_cpu((8, 4), (4, 1), torch.float32)
        # Topologically Sorted Source Nodes: [y], Original ATen: [aten.mul]
        cpp_fused_add_mul_sin_0(arg0_1, buf0)
        extern_kernels.mm(buf0, reinterpret_tensor(arg1_1, (4, 4), (1, 4), 0), out=buf0)
        return (buf0,)
'''


def read(text: str) -> tuple[tuple[compiled_text.Operator, ...], str]:
    found = compiled_text.graph(text)
    assert not isinstance(found, Skipped)
    return found


def test_operators_have_their_types_and_their_lines() -> None:
    operators = read(GRAPH)[0]

    assert [text for text, _ in operators] == [
        "f32[8, 4][4, 1]cpu * f32[4][1]cpu -> f32[8, 4][4, 1]cpu",
        "f32[8, 4][4, 1]cpu.sin() -> f32[8, 4][4, 1]cpu",
        "f32[8, 4][4, 1]cpu + f32[8, 4][4, 1]cpu -> f32[8, 4][4, 1]cpu",
    ]
    assert [line and line.line for _, line in operators] == [11, 12, 12]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y", "scaled"),
        ("L_self_parameters_weight_", "L_gain_"),
        ("l_x_", "l_inputs_"),
        ("model.py:11", "moved.py:93"),
    ],
)
def test_a_graph_with_other_names_is_the_same(old: str, new: str) -> None:
    other = re.sub(rf"\b{re.escape(old)}\b", new, GRAPH)

    assert other != GRAPH
    assert read(other)[1] == read(GRAPH)[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sin + l_x_;", "sin + sin;"),  # the same operators, connected otherwise
        ("y.sin()", "y.cos()"),
        ("f32[8, 4]", "f64[8, 4]"),
        ("[4, 1]cpu", "[1, 8]cpu"),
        ("return (add,)", "return (add, sin)"),
    ],
)
def test_a_graph_that_computes_otherwise_is_another(old: str, new: str) -> None:
    assert old in GRAPH
    other = read(GRAPH.replace(old, new))

    assert other[1] != read(GRAPH)[1]


def test_statements_in_another_order_are_the_same_graph() -> None:
    one = GRAPH.replace("sin + l_x_", "sin + cos").replace(
        "        sin:", '        cos: "f32[8, 4][4, 1]cpu" = l_x_.cos()\n        sin:'
    )
    other = GRAPH.replace("sin + l_x_", "sin + cos").replace(
        "        add:", '        cos: "f32[8, 4][4, 1]cpu" = l_x_.cos()\n        add:'
    )

    assert read(one)[1] == read(other)[1]


def test_symbols_of_sizes_are_numbered_as_they_come() -> None:
    text = GRAPH.replace("f32[8, 4]", "f32[s77, 4]").replace("(self, ", '(self, s77: "Sym(s77)", ')

    other = read(text.replace("s77", "s12"))

    assert other == read(text)
    assert "f32[s0, 4]" in other[0][0][0]


def test_calls_have_the_digest_of_their_source_and_no_names() -> None:
    calls = compiled_text.calls(CODE)

    assert not isinstance(calls, Skipped)
    kernel, library = calls
    assert kernel[0] == "cpp_fused_add_mul_sin_0"
    assert kernel[1].startswith("cpp_fused_add_mul_sin ")
    assert kernel[1].endswith("(_, _)")
    assert library[1] == ("extern_kernels.mm(_, reinterpret_tensor(_, (4, 4), (1, 4), 0), out=_)")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("_sin_0", "_sin_7"),
        ("buf0", "buf31"),
        ("[y]", "[scaled]"),
        ("0_inference", "4_inference"),
        ("arg0_1", "primals_2"),
    ],
)
def test_code_with_other_numbers_is_the_same(old: str, new: str) -> None:
    assert old in CODE
    other = compiled_text.calls(CODE.replace(old, new))
    assert not isinstance(other, Skipped)

    first = compiled_text.calls(CODE)
    assert not isinstance(first, Skipped)
    assert [text for _, text in other] == [text for _, text in first]


@pytest.mark.parametrize(
    ("old", "new"),
    [("in_ptr0[0];", "in_ptr0[1];"), ("(4, 4)", "(2, 8)"), ("kernels.mm", "kernels.bmm")],
)
def test_code_that_does_otherwise_is_another(old: str, new: str) -> None:
    assert old in CODE
    assert compiled_text.calls(CODE.replace(old, new)) != compiled_text.calls(CODE)


@pytest.mark.parametrize("code", ["this is no Python", "x = 1", "def call(args:\n"])
def test_what_is_no_generated_code_is_skipped(code: str) -> None:
    assert isinstance(compiled_text.calls(code), Skipped)


# ---------------------------------------------------------------- what hides easily


def body(*rows: str) -> str:
    """A graph of two inputs with these rows."""
    lines = "\n".join(f"        {row}" for row in rows)
    return (
        "class GraphModule(torch.nn.Module):\n"
        '    def forward(self, L_x_: "f32[8][1]cpu", L_p_: "b8[][]cpu"):\n'
        f"        x = L_x_\n{lines}\n"
    )


SIN = 'y: "f32[8][1]cpu" = x.sin()'
TWICE = 'z: "f32[8][1]cpu" = y * 2'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            [SIN, 'y += 1;  y_1: "f32[8][1]cpu" = y;  y = None', "return (y_1,)"],
            [SIN, 'y *= 7;  y_1: "f32[8][1]cpu" = y;  y = None', "return (y_1,)"],
            id="in place",
        ),
        pytest.param(
            [SIN, "y[0] = 1;  setitem = y;  setitem = None", "return (y,)"],
            [SIN, "y[1:3] = 5;  setitem = y;  setitem = None", "return (y,)"],
            id="setitem",
        ),
        pytest.param(
            [SIN, 'a: "f32[8][1]cpu" = y.add_(1)', TWICE, "return (z,)"],
            [SIN, TWICE, 'a: "f32[8][1]cpu" = y.add_(1)', "return (z,)"],
            id="order of a change in place",
        ),
        pytest.param(
            ["off = torch._C._set_grad_enabled(False);  off = None", SIN, TWICE, "return (z,)"],
            [SIN, "off = torch._C._set_grad_enabled(False);  off = None", TWICE, "return (z,)"],
            id="grad mode",
        ),
        pytest.param(
            ['s1: "f32[8][1]cpu" = x.sin()', 's2: "f32[8][1]cpu" = x.cos()', "return (s1 - s2,)"],
            ['s1: "f32[8][1]cpu" = x.sin()', 's2: "f32[8][1]cpu" = x.cos()', "return (s2 - s1,)"],
            id="names like symbols",
        ),
        pytest.param(
            ["torch._assert_async(L_p_)", "return (x,)"],
            ["torch._check(L_p_)", "return (x,)"],
            id="without a result",
        ),
    ],
)
def test_what_is_done_without_a_new_variable_counts(one: list[str], other: list[str]) -> None:
    assert read(body(*one))[1] != read(body(*other))[1]


def test_variables_that_are_called_like_symbols_may_be_renamed() -> None:
    rows = ['s1: "f32[8][1]cpu" = x.sin()', 's2: "f32[8][1]cpu" = x.cos()', "return (s1 - s2,)"]
    renamed = [row.replace("s1", "a").replace("s2", "b") for row in rows]

    assert read(body(*rows)) == read(body(*renamed))


def nested(name: str, operator: str) -> str:
    return (
        f"\n    class {name}(torch.nn.Module):\n"
        '        def forward(self, L_x_: "f32[8][1]cpu"):\n'
        f'            r: "f32[8][1]cpu" = L_x_.{operator}()\n'
        "            return (r,)\n"
    )


def test_branches_that_are_exchanged_are_another_graph() -> None:
    rows = body(
        "cond_true_0 = self.cond_true_0",
        "cond_false_0 = self.cond_false_0",
        "cond = torch.ops.higher_order.cond(L_p_, cond_true_0, cond_false_0, (x,))",
        "return (cond[0],)",
    )
    one = rows + nested("cond_true_0", "sin") + nested("cond_false_0", "cos")
    other = rows + nested("cond_true_0", "cos") + nested("cond_false_0", "sin")

    assert read(one)[1] != read(other)[1]
    assert len(read(one)[0]) == 5


MAKER = "cpp_pybinding(['const float*', 'float*'], "
TRITON = CODE.replace(MAKER, "triton('cpp_fused_add_mul_sin_0', ").replace(
    'extern "C" void kernel(const float* in_ptr0, float* out_ptr0) { out_ptr0[0] = in_ptr0[0]; }',
    "x1 = xindex // 4  # a divisor",
)
RETURN = "        return (buf0,)"
COPIED = f"        buf0.copy_(arg0_1, False)\n{RETURN}"
BRANCH = f"        if arg0_1.item():\n            extern_kernels.mm(buf0, buf0)\n{RETURN}"


@pytest.mark.parametrize(
    ("text", "old", "new", "same"),
    [
        (TRITON, "// 4", "// 8", False),
        (TRITON, "# a divisor", "# another", True),
        (CODE, "in_ptr0[0]; }", "in_ptr0[0]; }  // why", True),
        (CODE, "out=buf0)", "out=buf0, alpha=2)", False),
        (CODE, RETURN, COPIED, False),
        (CODE, RETURN, BRANCH, False),
        (CODE, RETURN, f"        del arg0_1\n{RETURN}", True),
    ],
)
def test_code_is_read_to_its_last_number(text: str, old: str, new: str, same: bool) -> None:
    assert old in text
    found = compiled_text.calls(text.replace(old, new))

    assert (found == compiled_text.calls(text)) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            ["p = x.split(4)", 'y: "f32[8][1]cpu" = x.sin()', "return (p, y)"],
            ['y: "f32[8][1]cpu" = x.sin()', "p = x.split(4)", "return (p, y)"],
            id="a tuple has no type",
        ),
    ],
)
def test_independent_rows_may_stand_in_any_order(one: list[str], other: list[str]) -> None:
    assert read(body(*one))[1] == read(body(*other))[1]


def test_what_is_changed_through_a_view_is_another_value() -> None:
    rows = ['v: "f32[8][1]cpu" = x.sin()', "u = v[0]"]
    change = 'a: "f32[8][1]cpu" = v.add_(1)'
    use = 'z: "f32[][]cpu" = u.sin()'

    one = read(body(*rows, change, use, "return (z,)"))
    other = read(body(*rows, use, change, "return (z,)"))

    assert one[1] != other[1]


@pytest.mark.parametrize("text", ["", "no class at all", "class G(M):\n    pass\n"])
def test_what_is_no_graph_is_skipped(text: str) -> None:
    assert isinstance(compiled_text.graph(text), Skipped)


def test_a_copy_into_a_view_is_a_call() -> None:
    copied = f"        reinterpret_tensor(buf0, (4, 4), (1, 4), 0).copy_(arg0_1, False)\n{RETURN}"
    found = compiled_text.calls(CODE.replace(RETURN, copied))

    assert not isinstance(found, Skipped)
    assert found[-1][1] == ".copy_(_, False)"
