"""Which uses of a number may take a tensor in its place."""

import ast
from textwrap import dedent

import pytest

from kgprof.reading.number_uses import (
    Function,
    needs_what_is_read,
    only_appends,
    only_computed_with,
    only_flows_into_a_graph,
)

TENSORS = {"x", "y", "self.weight"}


def answer(text: str, name: str, *, is_symbol: bool = False) -> bool:
    """For the first function of a text."""
    tree = ast.parse(dedent(text))
    function = next(node for node in ast.walk(tree) if isinstance(node, Function))
    return only_computed_with(tree, function, name, TENSORS, is_symbol=is_symbol)


def of_body(*lines: str, name: str = "k", is_symbol: bool = False) -> bool:
    return answer(
        "\n    ".join((f"def step(x, y, {name.partition('.')[0]}):", *lines)),
        name,
        is_symbol=is_symbol,
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("return x * k",),
        ("return x.sin() + k * y.sum()",),
        ("return (x @ self.weight) / k",),
        ("return x > k",),
        ("return torch.where(x > 0, x, k)",),
        ("return torch.clamp(x, max=k)",),
        ("return x.clamp(min=-k)",),
        ("return torch.mul(x, k)",),
        ("scale = 2.0 / (k + 2)", "return x * scale"),
        ("h = linear(x)", "return h * k"),
        ("h, rest = split(x)", "return h * k"),
        ("h = x", "h += k", "return h"),
        ("z = x.T[0]", "return z - k"),
        ("n = x.shape", "return z(x) * k"),
    ],
)
def test_an_operation_with_a_tensor_takes_a_tensor(lines: tuple[str, ...]) -> None:
    assert of_body(*lines)


@pytest.mark.parametrize(
    "lines",
    [
        ("return F.dropout(x, k)",),
        ("return x.clamp(0.0, k)",),
        ("return torch.clamp(x, min=0.0, max=k)",),
        ("return torch.add(x, y, alpha=k)",),
        ("return F.avg_pool1d(x, k)",),
        ("return x[:, :k]",),
        ("return x.view(-1, k)",),
        ("return x * int(k)",),
        ("return x * math.sqrt(k)",),
        ("return x * min(k, 1.0)",),
        ("n = abs(bias)", "return n * k"),
        ("n = sum(weights)", "return n * k"),
        ("n = np.log(bias)", "return n * k"),
        ("n = os.cpu_count()", "return n * k"),
        ("if k > 2:", "    x = x.sin()", "return x * k"),
        ("half = k / 2", "if half > 1:", "    x = x.sin()", "return x * half"),
        ("while k:", "    x = x.sin()", "return x"),
        ("return x.sin() if k > 1 else x * k",),
        ("for _ in range(k):", "    x = x.sin()", "return x"),
        ("print(f'{k}')", "return x * k"),
        ("self.kept = k", "return x * k"),
        ("return {'k': k, 'x': x * k}",),
        ("return unknown(x, k)",),
        ("return x * (not k)",),
        ("return x * (0 < k < 1)",),
        ("return k",),
        ("n = x.shape[0]", "return x.view(n * k)"),
        ("return x",),
    ],
)
def test_what_needs_the_number_or_may_need_it(lines: tuple[str, ...]) -> None:
    assert not of_body(*lines)


def test_a_long_chain_of_variables_is_followed_once() -> None:
    chain = [f"n{at} = n{at - 1} + n{at - 1}" for at in range(1, 60)]
    function = first_function(
        "\n    ".join(("def step(x, y):", "n0 = x.sum().item()", *chain, "return y * n59"))
    )

    assert not of_body("n0 = 2", *chain, "return n59 * k")
    assert of_body("n0 = linear(x)", *chain, "return n59 * k")
    assert only_flows_into_a_graph(function, 2)


def test_the_smallest_of_symbols_is_a_symbol_and_of_tensors_a_question() -> None:
    body = "return x * min(1.0, k / 100)"

    assert of_body(body, is_symbol=True)
    assert not of_body(body)


@pytest.mark.parametrize(
    ("helper", "holds"),
    [("return h.sin() + sigma * h.cos()", True), ("return h.sin() if sigma > 1 else h", False)],
)
def test_a_number_is_followed_into_functions_of_the_file(helper: str, holds: bool) -> None:
    text = f"""
    def step(x, k):
        return noisy(x, sigma=k)

    def noisy(h, sigma):
        {helper}
    """

    assert answer(text, "k") is holds


@pytest.mark.parametrize(
    ("other", "holds"), [("x * self.k", True), ("x if self.k % 3 else y", False)]
)
def test_an_attribute_is_looked_at_in_all_methods(other: str, holds: bool) -> None:
    text = f"""
    class Net:
        def forward(self, x):
            return self.tail(x * self.k, x)

        def tail(self, x, y):
            return {other}
    """

    assert answer(text, "self.k") is holds


def test_an_object_that_is_passed_on_may_be_asked_there() -> None:
    assert of_body("return x * cfg.k", name="cfg.k")
    assert not of_body("return x * cfg.k + penalty(cfg)", name="cfg.k")


def test_a_counter_that_only_counts_is_a_symbol_without_a_guard() -> None:
    assert of_body("self.calls += 1", "return x", name="self.calls", is_symbol=True)


def first_function(text: str) -> Function:
    return next(node for node in ast.walk(ast.parse(text)) if isinstance(node, Function))


@pytest.mark.parametrize(
    ("lines", "needs"),
    [
        (("n = x.sum().item()", "return y / n"), False),
        (("n = int(x.sum())", "return y[:n]"), False),
        (("n = int(x.sum())", "return y.narrow(0, 0, n)"), False),
        (("return y, {'loss': x.item()}",), False),
        (("m = x > 0", "return y[m]"), False),
        (("rows = x.nonzero()", "return y[rows]"), False),
        (("n = x.sum().item()", "if n > 3: y = y + 1", "return y"), True),
        (("n = int(x.sum())", "if n is None: n = 3", "return y[:n]"), False),
        (
            ("n = x.sum().item()", "half = n / 2", "while half > 1: half = half / 2", "return y"),
            True,
        ),
        (("n = int(x.sum())", "for _ in range(n): y = y.sin()", "return y"), True),
        (("n = int(x.argmax())", "return y, names[n]"), True),
        (("return y, names[int(x.argmax())]",), True),
        (("return y * math.log(x.sum().item())",), True),
        (("n = x.sum().item()", "k = max(n, 1)", "return y * math.sqrt(k)"), True),
        (("rows = x.nonzero()", "if rows.numel() == 0: return y", "return y[rows]"), True),
        (("if x.any(): y = y + 1", "return y"), True),
    ],
)
def test_whether_python_needs_what_the_first_line_reads(
    lines: tuple[str, ...], needs: bool
) -> None:
    function = first_function("\n    ".join(("def step(x, y):", *lines)))

    assert needs_what_is_read(function, 2) is needs


@pytest.mark.parametrize(
    ("line", "appends"),
    [
        ("self.kept.append(x)", True),
        ("self.kept.append(x); return torch.stack(self.kept)", False),
        ("self.kept[0] = x", False),
        ("return sum(self.kept)", False),
        ("self.kept += [x]; self.kept.append(x)", False),
        ("return x + self.kept.setdefault(len(x), x)", False),
        ("self.kept.update({len(x): x})", False),
    ],
)
def test_whether_a_function_only_appends(line: str, appends: bool) -> None:
    function = first_function(f"def step(self, x):\n    {line}")

    assert only_appends(function, "self.kept") is appends


@pytest.mark.parametrize(
    ("lines", "flows"),
    [
        (("return y * x.sum().item()",), True),
        (("return y, {'loss': x.mean().item()}",), True),
        (("n = int(x.sum())", "return y[:n]"), True),
        (("n = max(x.max().item(), 1e-3)", "return y / n"), True),
        (("return torch.zeros(int(x.sum()))",), True),
        (("return y.narrow(0, 0, int(x.sum().item()))",), True),
        (("x = x.sum().item()", "return y * x"), True),
        (("meter.update(x.sum().item())", "return y"), False),  # keeps a new number in each call
        (("meter.add(x.sum().item())", "return y"), False),
        (("self.last = x.sum().item()", "return y"), False),
        (("losses.append(float(x.sum()))", "return y"), False),
        (("print(x.sum().item())", "return y"), False),
        (("n = x.sum().item()", "kept.append(n)", "return y * n"), False),
        (("n = x.tolist()", "return torch.split(y, n)"), False),  # into pieces of symbols
        (("n = int(x.max()) + 1", "y = y if n is None else y[:n]", "return y"), True),
        (("return y[int(x.argmax())]",), False),
        (("return y",), False),
    ],
)
def test_whether_what_the_first_line_reads_stays_in_the_graph(
    lines: tuple[str, ...], flows: bool
) -> None:
    function = first_function("\n    ".join(("def step(x, y):", *lines)))

    assert only_flows_into_a_graph(function, 2) is flows
