"""Where a line or an argument is added to a program's text."""

import ast
from collections.abc import Callable, Sequence
from textwrap import dedent

import pytest

from kgprof.lab.fix.edits import Edit, Program

Edits = Callable[[Program], Sequence[Edit]]


def edited(text: str, edits: Edits) -> str | None:
    program = Program(text)
    return program.edited(edits(program))


def check(edits: Edits, before: str, after: str | None) -> None:
    new = edited(dedent(before), edits)

    assert new == (None if after is None else dedent(after))
    ast.parse(new or "")


# ---------------------------------------------------------------- after an assignment


def after_model(program: Program) -> list[Edit]:
    return program.after_assignment("model", "model.eval()")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            """\
            model = Net()  # of ours
            model = model.to("cpu")  # here
            x = 1
            """,
            """\
            model = Net()  # of ours
            model = model.to("cpu")  # here
            model.eval()
            x = 1
            """,
        ),
        (
            """\
            model: Net = Net(
                1,
            )

            x = 1
            """,
            """\
            model: Net = Net(
                1,
            )
            model.eval()

            x = 1
            """,
        ),
        (
            """\
            with device:
                model, x = make()
                y = 1
            x = 1
            """,
            """\
            with device:
                model, x = make()
                y = 1
            model.eval()
            x = 1
            """,
        ),
        (
            """\
            model = Net()
            if wide:
                model = Wide()
            else:
                pass
            """,
            """\
            model = Net()
            if wide:
                model = Wide()
            else:
                pass
            model.eval()
            """,
        ),
        (
            """\
            model = Net(); y = (
                1
            )
            x = 1
            """,
            """\
            model = Net(); y = (
                1
            )
            model.eval()
            x = 1
            """,
        ),
        (
            """\
            import os
            from nets import model

            x = model(1)
            """,
            """\
            import os
            from nets import model

            model.eval()

            x = model(1)
            """,
        ),
        (
            """\
            if (model := Net()):
                pass
            if __name__ == "__main__":
                model = Other()
            """,
            """\
            if (model := Net()):
                pass
            model.eval()
            if __name__ == "__main__":
                model = Other()
            """,
        ),
    ],
    ids=["last", "annotated", "with", "if", "one line", "import", "script"],
)
def test_a_line_stands_after_the_last_assignment(before: str, after: str) -> None:
    check(after_model, before, after)


@pytest.mark.parametrize(
    "before",
    [
        "x = 1\n",
        "model = None\n",
        "model: Net\n",
        "model: Net | None = None\ndef build():\n    global model\n    model = Net()\n",
        "model = None\ndef step():\n    global model\n    if not model:\n        model = Net()\n",
        "def make(): global model; model = Net()\nmake()\nmodel = model.cuda()\n",
        "def build():\n    model = Net()\n    return model\n",
        "class Nets:\n    model = Net()\n",
        "x = [model for model in nets]\n",
        'if __name__ == "__main__":\n    model = Net()\n',
    ],
    ids=[
        "nothing",
        "None",
        "annotation",
        "in a function",
        "at the first call",
        "in a line",
        "local",
        "class",
        "loop",
        "script",
    ],
)
def test_no_line_stands_where_the_module_has_no_such_name(before: str) -> None:
    check(after_model, before, None)


def test_a_line_stands_after_the_last_use_while_the_module_is_imported() -> None:
    before = """\
        opt = make()
        scheduler = StepLR(opt, 30)
        warm = Warmup(optimizer=opt)

        def step():
            use(opt)
        """
    after = """\
        opt = make()
        scheduler = StepLR(opt, 30)
        warm = Warmup(optimizer=opt)
        opt.x = 1

        def step():
            use(opt)
        """

    check(lambda it: it.after_assignment("opt", "opt.x = 1", used=True), before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model = Net()", "model = Net()\nmodel.eval()"),
        ("model = Net()\r\nx = 1\r\n", "model = Net()\r\nmodel.eval()\r\nx = 1\r\n"),
        ("\ufeffmodel = Net()\n", "\ufeffmodel = Net()\nmodel.eval()\n"),
        (
            'x = "é\x0c\u2028"\nmodel = 2 * "é"\n',
            'x = "é\x0c\u2028"\nmodel = 2 * "é"\nmodel.eval()\n',
        ),
    ],
    ids=["no end", "CRLF", "byte order mark", "separators"],
)
def test_the_ends_of_lines_stay_as_they_are(before: str, after: str) -> None:
    assert edited(before, after_model) == after


# ---------------------------------------------------------------- an argument


def of_first_call(name: str, value: str) -> Edits:
    def edits(program: Program) -> list[Edit]:
        call = next(node for node in program.nodes if isinstance(node, ast.Call))
        return program.argument(call, name, value)

    return edits


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(a=1)"),
        ("f(  # why\n)", "f(a=1  # why\n)"),
        ("f(x)", "f(x, a=1)"),
        ("f((x))", "f((x), a=1)"),
        ("f(x, )", "f(x, a=1 )"),
        ("f(*x, b=2)", "f(*x, b=2, a=1)"),
        ("é = f('é', b='é'); y = 'é' + z", "é = f('é', b='é', a=1); y = 'é' + z"),
        ("f(\n    x,  # why\n)", "f(\n    x,  # why\n    a=1,\n)"),
        ("f(\n    x  # why\n)", "f(\n    x,  # why\n    a=1,\n)"),
        ("f(x,\n  y)", "f(x,\n  y, a=1)"),
        ("f([\n    x,\n])", "f([\n    x,\n], a=1)"),
        ("f(a=None)", "f(a=1)"),
        ("f(x, a='default')", "f(x, a=1)"),
    ],
)
def test_an_argument_is_the_last_one(before: str, after: str) -> None:
    check(of_first_call("a", "1"), before, after)


@pytest.mark.parametrize("before", ["f(a=2)", "f(**given)", "f(x for x in y)"])
def test_an_argument_is_not_added_where_it_may_not_stand(before: str) -> None:
    check(of_first_call("a", "1"), before, None)


# ---------------------------------------------------------------- after imports, and at the end


def seeded(program: Program) -> list[Edit]:
    return program.after_imports(f"{program.written('torch.manual_seed')}(0)")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            """\
            import torch
            x = 1
            """,
            """\
            import torch
            torch.manual_seed(0)
            x = 1
            """,
        ),
        (
            """\
            import os

            os.environ["A"] = "1"
            import torch as th

            x = 1
            """,
            """\
            import os

            os.environ["A"] = "1"
            import torch as th

            th.manual_seed(0)

            x = 1
            """,
        ),
        (
            """\
            from torch import manual_seed, set_num_threads

            set_num_threads(1)

            def f():
                import os
            """,
            """\
            from torch import manual_seed, set_num_threads

            set_num_threads(1)
            manual_seed(0)

            def f():
                import os
            """,
        ),
        (
            '''\
            """Doc."""

            from __future__ import annotations

            import abc
            import numpy as np
            from torch import nn

            x = 1
            ''',
            '''\
            """Doc."""

            from __future__ import annotations

            import abc
            import numpy as np
            import torch
            from torch import nn

            torch.manual_seed(0)

            x = 1
            ''',
        ),
        (
            """\
            from nets import model

            def f():
                import torch
            """,
            """\
            import torch
            from nets import model

            torch.manual_seed(0)

            def f():
                import torch
            """,
        ),
        (
            """\
            import os
            import torch

            os.environ["A"] = "1"
            torch.backends.cudnn.benchmark = True
            print(torch.__version__)
            x = 1
            """,
            """\
            import os
            import torch

            os.environ["A"] = "1"
            torch.backends.cudnn.benchmark = True
            print(torch.__version__)
            torch.manual_seed(0)
            x = 1
            """,
        ),
    ],
    ids=["plain", "alias", "from", "from alone", "of a function", "environment"],
)
def test_a_setting_stands_after_the_imports(before: str, after: str) -> None:
    check(seeded, before, after)


@pytest.mark.parametrize(
    ("imports", "written"),
    [
        ("import torch\nfrom torch import manual_seed as seed\n", "seed(0)\n"),
        ("import torch\nfrom torch import manual\n", "torch.manual_seed(0)\n"),
    ],
)
def test_a_name_is_written_as_shortly_as_the_program_can(imports: str, written: str) -> None:
    check(seeded, imports, imports + written)


@pytest.mark.parametrize("before", ["x = 1\n", "def f():\n    import torch\n", ""])
def test_a_program_without_imports_has_no_place_for_a_setting(before: str) -> None:
    check(seeded, before, None)


def collected(program: Program) -> list[Edit]:
    return program.at_end(f"{program.written('gc.collect')}()")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            """\
            import torch
            x = 1
            """,
            """\
            import gc

            import torch
            x = 1
            gc.collect()
            """,
        ),
        (
            """\
            import abc
            import os

            import torch

            def step():
                return 1
                # done


            if __name__ == "__main__":
                step()
            """,
            """\
            import abc
            import gc
            import os

            import torch

            def step():
                return 1


            gc.collect()
                # done


            if __name__ == "__main__":
                step()
            """,
        ),
        (
            """\
            import os

            from gc import collect
            """,
            """\
            import os

            from gc import collect
            collect()
            """,
        ),
        (
            """\
            from __future__ import annotations

            import torch
            """,
            """\
            from __future__ import annotations

            import gc

            import torch
            gc.collect()
            """,
        ),
    ],
    ids=["first", "among others", "imported", "from the future"],
)
def test_a_line_at_the_end_stands_before_what_a_script_runs(before: str, after: str) -> None:
    check(collected, before, after)


# ---------------------------------------------------------------- a function


@pytest.mark.parametrize(
    ("before", "outside", "inside"),
    [
        (
            "@a\n# why\n@b(\n    1\n)\ndef step(): pass\n",
            "@new\n@a\n# why\n@b(\n    1\n)\ndef step(): pass\n",
            "@a\n# why\n@b(\n    1\n)\n@new\ndef step(): pass\n",
        ),
        (
            "def step(): pass\n\ndef step(): pass\n",
            "def step(): pass\n\n@new\ndef step(): pass\n",
            "def step(): pass\n\n@new\ndef step(): pass\n",
        ),
        (
            "step = make()\n",
            "step = make()\nstep = new(step)\n",
            "step = make()\nstep = new(step)\n",
        ),
    ],
    ids=["decorators", "last", "value"],
)
def test_a_function_is_wrapped(before: str, outside: str, inside: str) -> None:
    check(lambda it: it.wrapped("step", "new"), before, outside)
    check(lambda it: it.wrapped("step", "new", inside=True), before, inside)


def test_a_function_of_another_one_is_not_wrapped() -> None:
    check(lambda it: it.wrapped("step", "new"), "def make():\n    def step(): pass\n", None)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("text", "dotted"),
    [
        ("import torch\ntorch.optim.Adam", "torch.optim.Adam"),
        ("import torch.optim as o\no.Adam", "torch.optim.Adam"),
        ("from torch.optim import Adam as A\nA", "torch.optim.Adam"),
        ("def f():\n    from torch import optim\noptim.Adam", "torch.optim.Adam"),
        ("from torch import optim\noptim = optim.Adam()\noptim.Adam", "torch.optim.Adam"),
        ("from .torch import compile\ncompile", ""),
        ("torch.compile", ""),
        ("import torch\nf().compile", ""),
    ],
)
def test_a_part_of_torch_is_known_by_its_import(text: str, dotted: str) -> None:
    program = Program(text)
    last = program.tree.body[-1]

    assert isinstance(last, ast.Expr)
    assert program.dotted(last.value) == dotted
    assert program.mentions("Adam") == (dotted == "torch.optim.Adam")
