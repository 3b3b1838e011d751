"""What each lever makes of a program's text, and when it is worth trying."""

import ast
import io
import math
import random
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from kgprof import model as m
from kgprof.lab.fix.lever import Lever
from kgprof.lab.fix.levers import levers

FACTS: dict[str, Any] = {
    "device": "cpu",
    "step": "step",
    "modules": ("model",),
    "optimizers": (("opt", "AdamW"),),
    "frames": 1,
    "threads": 2,
    "cores": 8,
    "settings": (("capture_scalar_outputs", True),),
}


def lever(name: str, facts: m.StepFacts) -> Lever:
    return next(each for each in levers(facts) if each.id == name)


def edited(name: str, text: str, **facts: Any) -> str | None:
    known = m.StepFacts(**FACTS | facts)
    return lever(name, known).edit(text, known)


COMPILING = """\
import torch as th
from functools import partial

@th.compile
def loss(x):
    return x.sum()

@th.compile(
    fullgraph=True,  # it has to be
)
def penalty(x):
    return x.abs()

@partial(th.compile, dynamic=False)
def norm(x):
    return x.norm()

model = th.compile(Net(), backend="inductor")
model.head.compile()
"""
COMPILED_WITH = """\
import torch as th
from functools import partial

@th.compile({0})
def loss(x):
    return x.sum()

@th.compile(
    fullgraph=True,  # it has to be
    {0},
)
def penalty(x):
    return x.abs()

@partial(th.compile, dynamic=False, {0})
def norm(x):
    return x.norm()

model = th.compile(Net(), backend="inductor", {0})
model.head.compile({0})
"""
FROM_TORCH = """\
from torch import compile, nn

fast = compile(model, mode=None, dynamic=None)
"""
MODES = ("reduce-overhead", "max-autotune-no-cudagraphs")
# the lever, the program, and what it becomes
EDITS = [
    *((mode, COMPILING, COMPILED_WITH.format(f'mode="{mode}"')) for mode in MODES),
    *((mode, FROM_TORCH, FROM_TORCH.replace("mode=None", f'mode="{mode}"')) for mode in MODES),
    (
        "dynamic",
        COMPILING,
        COMPILED_WITH.format("dynamic=True").replace("=False, dynamic=True", "=False"),
    ),
    ("dynamic", FROM_TORCH, FROM_TORCH.replace("dynamic=None", "dynamic=True")),
    (
        "compile-model",
        """\
        model = Net()
        model = model.to(device)  # there

        pattern = re.compile("x")
        """,
        """\
        model = Net()
        model = model.to(device)  # there
        model.compile()

        pattern = re.compile("x")
        """,
    ),
    (
        "compile-model",  # whose method compiles nothing
        """\
        from torch import device, nn

        model = nn.Sequential(Net(), nn.ReLU())
        model = model.to(device("cpu"))
        x = 1
        """,
        """\
        import torch
        from torch import device, nn

        model = nn.Sequential(Net(), nn.ReLU())
        model = model.to(device("cpu"))
        model = torch.compile(model)
        x = 1
        """,
    ),
    (
        "compile-model",  # of a class that nobody knows
        """\
        import torch

        model: object = nets.make(x)
        """,
        """\
        import torch

        model: object = nets.make(x)
        model = torch.compile(model)
        """,
    ),
    (
        "compile-model",
        """\
        import torch
        import nets
        model = nets.Net("a.b").to(torch.device("cpu"))
        """,
        """\
        import torch
        import nets
        model = nets.Net("a.b").to(torch.device("cpu"))
        model.compile()
        """,
    ),
    (
        "compile-step",
        """\
        from torch import compile as compiled, no_grad

        @no_grad()
        def step():
            return model(x)
        """,
        """\
        from torch import compile as compiled, no_grad

        @no_grad()
        @compiled
        def step():
            return model(x)
        """,
    ),
    (
        "compile-step",
        """\
        import numpy
        from nets import make

        step = make(1)
        """,
        """\
        import numpy
        import torch
        from nets import make

        step = make(1)
        step = torch.compile(step)
        """,
    ),
    (
        "compile-optimizer",
        """\
        import torch
        opt = torch.optim.SGD(model.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(opt, 3)

        def step():
            opt.step()
        """,
        """\
        import torch
        opt = torch.optim.SGD(model.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(opt, 3)
        opt.step = torch.compile(opt.step)

        def step():
            opt.step()
        """,
    ),
    (
        "compile-optimizer",
        """\
        import torch as th

        if th.cuda.is_available():
            opt = one()
        else:
            opt = other()
        """,
        """\
        import torch as th

        if th.cuda.is_available():
            opt = one()
        else:
            opt = other()
        opt.step = th.compile(opt.step)
        """,
    ),
    (
        "fused-optimizer",
        """\
        from torch.optim import AdamW
        from torch import optim

        opt = AdamW(
            model.parameters(),
            lr=1e-3
        )
        others = [optim.SGD(it, foreach=True), optim.RMSprop(it), optim.Adagrad(it)]
        """,
        """\
        from torch.optim import AdamW
        from torch import optim

        opt = AdamW(
            model.parameters(),
            lr=1e-3,
            fused=True,
        )
        others = [optim.SGD(it, foreach=True), optim.RMSprop(it), optim.Adagrad(it, fused=True)]
        """,
    ),
    (
        "fused-optimizer",
        """\
        import torch as th

        def make():
            return th.optim.Adam([{"params": x} for x in it])
        """,
        """\
        import torch as th

        def make():
            return th.optim.Adam([{"params": x} for x in it], fused=True)
        """,
    ),
    (
        "setting-capture_scalar_outputs",
        """\
        import torch._dynamo.config as config

        config.recompile_limit = 3
        x = 1
        """,
        """\
        import torch._dynamo.config as config

        config.recompile_limit = 3
        config.capture_scalar_outputs = True
        x = 1
        """,
    ),
    (
        "setting-capture_scalar_outputs",
        """\
        #!/usr/bin/env python
        import torch

        x = 1
        """,
        """\
        #!/usr/bin/env python
        import torch

        torch._dynamo.config.capture_scalar_outputs = True

        x = 1
        """,
    ),
    (
        "channels-last",
        """\
        import torch
        model: Net = Net(
            3,
        )
        """,
        """\
        import torch
        model: Net = Net(
            3,
        )
        model.to(memory_format=torch.channels_last)
        """,
    ),
    (
        "channels-last",
        """\
        from torch import nn
        with nn.here():
            model = Net()
        """,
        """\
        import torch
        from torch import nn
        with nn.here():
            model = Net()
        model.to(memory_format=torch.channels_last)
        """,
    ),
    (
        "cudnn-benchmark",
        """\
        from torch.backends import cudnn
        x = 1
        """,
        """\
        from torch.backends import cudnn
        cudnn.benchmark = True
        x = 1
        """,
    ),
    (
        "cudnn-benchmark",
        """\
        import torch as th
        th.manual_seed(3)
        x = 1
        """,
        """\
        import torch as th
        th.manual_seed(3)
        th.backends.cudnn.benchmark = True
        x = 1
        """,
    ),
    (
        "tf32",
        """\
        import torch as th
        x = 1
        """,
        """\
        import torch as th
        th.set_float32_matmul_precision("high")
        x = 1
        """,
    ),
    (
        "tf32",
        """\
        from torch import set_float32_matmul_precision as precision

        x = 1
        """,
        """\
        from torch import set_float32_matmul_precision as precision

        precision("high")

        x = 1
        """,
    ),
    (
        "bf16-autocast",
        """\
        import torch

        @torch.compile
        def step():
            return model(x)
        """,
        """\
        import torch

        @torch.autocast("cpu", dtype=torch.bfloat16)
        @torch.compile
        def step():
            return model(x)
        """,
    ),
    (
        "bf16-autocast",
        """\
        from steps import make
        from torch import nn
        step = make(model)
        """,
        """\
        import torch
        from steps import make
        from torch import nn
        step = make(model)
        step = torch.autocast("cpu", dtype=torch.bfloat16)(step)
        """,
    ),
    (
        "one-thread",
        """\
        import torch

        x = 1
        """,
        """\
        import torch

        torch.set_num_threads(1)

        x = 1
        """,
    ),
    (
        "one-thread",
        """\
        import torch as th

        if True:
            th.set_num_threads(4)  # of them
        """,
        """\
        import torch as th

        if True:
            th.set_num_threads(1)  # of them
        """,
    ),
    (
        "all-threads",
        """\
        from torch import set_num_threads
        set_num_threads(1)
        """,
        """\
        from torch import set_num_threads
        set_num_threads(8)
        """,
    ),
    (
        "all-threads",
        """\
        import torch
        x = 1
        """,
        """\
        import torch
        torch.set_num_threads(8)
        x = 1
        """,
    ),
    (
        "loader-workers",
        """\
        import torch

        loader = torch.utils.data.DataLoader(images)  # ours
        """,
        """\
        import torch

        loader = torch.utils.data.DataLoader(images, num_workers=4)  # ours
        """,
    ),
    (
        "loader-workers",
        """\
        from torch.utils.data import DataLoader

        def loader_of(images):
            return DataLoader(
                images,
                num_workers=0,
            )
        """,
        """\
        from torch.utils.data import DataLoader

        def loader_of(images):
            return DataLoader(
                images,
                num_workers=4,
            )
        """,
    ),
    (
        "static-cache",
        """\
        def step():
            return model.generate(ids, max_new_tokens=8)
        """,
        """\
        def step():
            return model.generate(ids, max_new_tokens=8, cache_implementation="static")
        """,
    ),
    (
        "static-cache",
        """\
        def step():
            return model.net.generate(ids, cache_implementation=None)
        """,
        """\
        def step():
            return model.net.generate(ids, cache_implementation="static")
        """,
    ),
    (
        "buckets",
        """\
        import torch

        fast = torch.compile(model, mode="reduce-overhead")
        y = fast(x)
        """,
        """\
        import torch

        fast = torch.compile(model, mode="reduce-overhead")


        def in_buckets(model, rows=32):
            def padded(x):
                more = (0, 0) * (x.dim() - 1) + (0, -len(x) % rows)
                return model(torch.nn.functional.pad(x, more))[: len(x)]

            return padded


        fast = in_buckets(fast)
        y = fast(x)
        """,
    ),
    (
        "buckets",
        """\
        from torch import compile, nn
        model = compile(model, mode="reduce-overhead")
        y = model(x)
        """,
        """\
        from torch import compile, nn
        model = compile(model, mode="reduce-overhead")


        def in_buckets(model, rows=32):
            def padded(x):
                more = (0, 0) * (x.dim() - 1) + (0, -len(x) % rows)
                return model(nn.functional.pad(x, more))[: len(x)]

            return padded


        model = in_buckets(model)
        y = model(x)
        """,
    ),
    (
        "compile-with-graphs",
        """\
        model = Net()
        x = 1
        """,
        """\
        model = Net()
        model.compile(mode="reduce-overhead")
        x = 1
        """,
    ),
    (
        "compile-with-graphs",
        """\
        import torch
        model = torch.nn.Linear(2, 2)
        """,
        """\
        import torch
        model = torch.nn.Linear(2, 2)
        model = torch.compile(model, mode="reduce-overhead")
        """,
    ),
    (
        "gc-freeze",
        """\
        import torch

        def step():
            return 1
        """,
        """\
        import gc

        import torch

        def step():
            return 1


        gc.freeze()
        """,
    ),
    (
        "gc-freeze",
        """\
        import gc
        import torch

        gc.disable()
        step = torch.compile(f)

        if __name__ == "__main__":
            step()
        """,
        """\
        import gc
        import torch

        gc.disable()
        step = torch.compile(f)
        gc.freeze()

        if __name__ == "__main__":
            step()
        """,
    ),
    (
        "freezing",
        """\
        import torch._inductor.config

        x = 1
        """,
        """\
        import torch._inductor.config

        torch._inductor.config.freezing = True

        x = 1
        """,
    ),
    (
        "freezing",
        """\
        from torch._inductor import config as ind
        ind.epilogue_fusion = True
        x = 1
        """,
        """\
        from torch._inductor import config as ind
        ind.epilogue_fusion = True
        ind.freezing = True
        x = 1
        """,
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), EDITS)
def test_a_lever_changes_a_program_as_its_owner_would(name: str, before: str, after: str) -> None:
    new = edited(name, dedent(before))

    assert new == dedent(after)
    assert edited(name, new) is None


def test_every_lever_has_two_shapes() -> None:
    shapes = [name for name, _, _ in EDITS]

    assert {each.id for each in levers(m.StepFacts(**FACTS))} == set(shapes)
    assert not [name for name in shapes if shapes.count(name) < 2]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reduce-overhead", "import torch\nf = torch.compile(f, mode='max-autotune')\n"),
        ("reduce-overhead", "import torch\nf = torch.compile(f, options={'freezing': True})\n"),
        ("reduce-overhead", "import torch\nf = torch.compile(f, backend='eager')\n"),
        ("reduce-overhead", "import torch\nf = torch.compile(f, backend=mine)\n"),
        ("reduce-overhead", "import torch\nf = torch.compile(f, disable=True)\n"),
        ("reduce-overhead", "import torch\nf = torch.compile(f, **given)\n"),
        ("reduce-overhead", "import re\nre.compile('x')\n"),
        ("reduce-overhead", "model.compile(optimizer='adam')\n"),
        ("reduce-overhead", "import torch\ntorch.compile(mode='default', options=None)\n"),
        ("reduce-overhead", "from mine import compile\nf = compile(f)\n"),
        ("dynamic", "import torch\nf = torch.compile(f, dynamic=False)\n"),
        ("dynamic", "import torch\nf = torch.compile(f, disable=True)\n"),
        ("compile-model", "model = Net()\nmodel.compile()\n"),
        ("compile-model", "from nets import model\nmodel.compile(fullgraph=True)\n"),
        ("compile-model", "import torch\nmodel = Net()\nfast = torch.compile(model)\n"),
        (
            "compile-model",
            "model = Net()\nfor each in model.parts:\n    model.parts[0].compile()\n",
        ),
        ("compile-model", "model = None\n"),
        ("compile-step", "import torch\n@torch.compile\ndef f(): ...\ndef step(): ...\n"),
        ("compile-step", "import torch\ndef other(): ...\n"),
        ("compile-optimizer", "import torch\nopt = f()\nfast = torch.compile(opt.step)\n"),
        ("compile-optimizer", "import torch\ndef step():\n    opt = f()\n"),
        ("fused-optimizer", "import torch\nopt = torch.optim.AdamW(p, fused=False)\n"),
        ("fused-optimizer", "import torch\nopt = torch.optim.AdamW(p, foreach=False)\n"),
        ("fused-optimizer", "import torch\nopt = torch.optim.AdamW(p, differentiable=True)\n"),
        ("fused-optimizer", "import torch\nopt = torch.optim.RMSprop(p)\n"),
        ("fused-optimizer", "from mine import AdamW\nopt = AdamW(p)\n"),
        (
            "setting-capture_scalar_outputs",
            "import torch\ntorch._dynamo.config.capture_scalar_outputs = False\n",
        ),
        ("channels-last", "import torch\nmodel = Net().to(memory_format=torch.channels_last)\n"),
        ("cudnn-benchmark", "import torch\ntorch.backends.cudnn.benchmark = False\n"),
        ("tf32", "import torch\ntorch.backends.cuda.matmul.allow_tf32 = False\n"),
        ("tf32", "import torch\nif x:\n    torch.set_float32_matmul_precision('medium')\n"),
        (
            "bf16-autocast",
            "from torch import amp\ndef step():\n    with amp.autocast('cpu'): ...\n",
        ),
        ("one-thread", "import torch\ntorch.set_num_threads(n)\n"),
        ("one-thread", "import torch\ntorch.set_num_threads(2)\ntorch.set_num_threads(4)\n"),
        ("gc-freeze", "import gc\ngc.freeze()\n"),
        ("freezing", "import torch\ntorch._inductor.config.freezing = False\n"),
        ("loader-workers", "import torch\ntorch.utils.data.DataLoader(x, num_workers=2)\n"),
        (
            "loader-workers",
            "import torch\ntorch.utils.data.DataLoader(x, 32, True, None, None, 0)\n",
        ),
        ("buckets", "import torch\nfast = torch.compile(net)\nfast(x, y)\n"),
        ("buckets", "import torch\nfast = torch.compile(net)\nfast(x, scale=2)\n"),
        ("buckets", "import torch\nfast = torch.compile(net)\nfast(x)\nWhole(fast)\n"),
        ("buckets", "import torch\nfast = torch.compile(net)\n"),
        ("loader-workers", "import torch\ntorch.utils.data.DataLoader(x, num_workers=n)\n"),
        ("loader-workers", "import torch\ntorch.utils.data.DataLoader(x, **given)\n"),
        ("loader-workers", "from mine import DataLoader\nDataLoader(x)\n"),
        ("static-cache", "model.generate(x, use_cache=False)\n"),
        ("static-cache", "model.generate(x, past_key_values=cache)\n"),
        ("static-cache", "model.generate(x, cache_implementation='dynamic')\n"),
        ("static-cache", "text.generate(x)\n"),
        ("buckets", "import torch\n@torch.compile\ndef f(x): ...\n"),
        ("buckets", "import torch\nmodel.compile(mode='reduce-overhead')\n"),
        ("max-autotune-no-cudagraphs", "import torch\nf = torch.compile(f, mode='x')\n"),
    ],
)
def test_a_lever_leaves_a_program_that_has_no_place_for_it(name: str, text: str) -> None:
    assert edited(name, text) is None


def test_a_compiled_module_is_not_compiled_again() -> None:
    text = "import torch\nmodel = Net()\nother = Net()\n"
    new = edited("compile-model", text, modules=("model", "other"), compiled_modules=("model",))

    assert new == f"{text}other.compile()\n"


def test_a_compiled_module_in_buckets_is_the_same_module() -> None:
    text = "import torch\nfast = torch.compile(model)\nopt = SGD(fast.parameters())\nfast(x)\n"
    new = edited("buckets", text, compiled_modules=("fast",))

    assert new is not None
    assert "\nfast.forward = in_buckets(fast.forward)\n" in new


def test_the_function_for_buckets_stands_in_the_file_once() -> None:
    text = "import torch\na = torch.compile(f)\nb = torch.compile(g)\nb(a(x))\n"
    new = edited("buckets", text)

    assert new is not None
    assert new.count("def in_buckets(") == 1


# ---------------------------------------------------------------- when they are worth trying

CPU = {"device": "cpu"}
CUDA = {"device": "cuda"}
TRAINS = {"optimizers": (("opt", "SGD"), ("other", "RMSprop"))}
ONE_THREAD = {"one-thread"}
BOTH = {"has_convolution": True, "has_float32": True}


def test_what_compiles_for_long_comes_last_and_is_given_up() -> None:
    *others, last = levers(m.StepFacts(**FACTS))

    assert last.id == "max-autotune-no-cudagraphs"
    assert last.patience_s < 100
    assert all(each.patience_s == math.inf for each in others)


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        (CPU, set()),
        (CPU | {"collections_late": 1}, {"gc-freeze"}),
        (CPU | {"step": "step"}, {"compile-step"}),
        (CPU | {"modules": ("model",)}, {"compile-model"}),
        (CPU | {"modules": ("model",), "compiled_modules": ("model",)}, set()),
        (
            CPU | {"modules": ("model",), "frames": 1, "returns_gradient": True},
            {"max-autotune-no-cudagraphs"},
        ),
        (CPU | {"frames": 1}, {"max-autotune-no-cudagraphs", "freezing"}),
        (
            CUDA | {"frames": 2, "frames_late": 1} | TRAINS,
            {
                "max-autotune-no-cudagraphs",
                "reduce-overhead",
                "dynamic",
                "fused-optimizer",
                "compile-optimizer",
            },
        ),
        (CPU | TRAINS | {"step": "step"}, {"fused-optimizer", "compile-optimizer"}),
        (CPU | {"optimizers": (("opt", "RMSprop"),)}, {"compile-optimizer"}),
        (CPU | BOTH, {"channels-last"}),
        (CUDA | BOTH, {"reduce-overhead", "channels-last", "cudnn-benchmark", "tf32"}),
        (
            CPU | {"has_float32": True, "step": "step", "frames": 1, "returns_gradient": True},
            {"max-autotune-no-cudagraphs", "bf16-autocast"},
        ),
        (CPU | {"threads": 4, "cores": 8}, {"one-thread", "all-threads"}),
        (CPU | {"threads": 8, "cores": 8}, {"one-thread"}),
        (CUDA | {"threads": 4, "cores": 8}, {"reduce-overhead"}),
        (CPU | {"loaders": (0,), "cores": 2, "threads": 2}, {*ONE_THREAD, "loader-workers"}),
        (CPU | {"loaders": (0,)}, set()),
        (CPU | {"loaders": (2,), "cores": 2, "threads": 2}, ONE_THREAD),
        (CPU | {"generates": True}, {"static-cache"}),
        (
            CUDA | {"modules": ("model",)},
            {"reduce-overhead", "compile-model", "compile-with-graphs"},
        ),
        (CUDA | {"graphs_late": 3}, {"reduce-overhead", "buckets"}),
        (CPU | {"settings": (("a", True), ("b", False))}, {"setting-a", "setting-b"}),
    ],
)
def test_a_program_is_offered_the_levers_it_may_gain_from(
    facts: dict[str, Any], wanted: set[str]
) -> None:
    known = m.StepFacts(**facts)

    assert {each.id for each in levers(known) if each.wanted(known)} == wanted


def test_lower_precision_and_numbers_drawn_elsewhere_change_the_meaning() -> None:
    changes = {each.id: each.changes for each in levers(m.StepFacts(**FACTS))}
    nothing = {name for name, kind in changes.items() if kind is m.Changes.NOTHING}

    assert {name for name, kind in changes.items() if kind is m.Changes.MEANING} == {
        "tf32",
        "bf16-autocast",
        "loader-workers",
    }
    assert nothing == {"reduce-overhead", "gc-freeze"}


def test_a_setting_has_the_value_that_was_asked_for() -> None:
    settings = (("a", True), ("b", False))
    new = edited("setting-b", "import torch\n", settings=settings)

    assert new == "import torch\ntorch._dynamo.config.b = False\n"


# ---------------------------------------------------------------- mixtures

HEADS = [
    ("import torch\n", "torch."),
    ("# of ours\nimport math\nimport torch as th  # short\n\n", "th."),
    (
        '"""Doc."""\n\nfrom __future__ import annotations\n\nimport torch\nimport numpy as np\n',
        "torch.",
    ),
    ("import os\n\nfrom torch import compile, no_grad, optim\n\nos.environ['A'] = 'é'\n\n", ""),
    ("import torch\n\ntry:\n    import numpy\nexcept ImportError:\n    raise\n", "torch."),
]
MODELS = [
    "model = Net()\n",
    "model: Net = Net(  # it\n    1,\n)\n",
    "if wide:\n    model = Net()  # wide\nelse:\n    model = Net(1)\n",
    "with device:\n\tmodel, x = make()\n",
    "model = None\ndef setup():\n    global model\n    model = Net()\nsetup()\n",
    "model = Net(); x = (1,\n  2)\n",
    "model = {0}compile(Net(), mode='default', )\n",
    "model = Net()\nmodel.compile(dynamic=None)\n",
    "model = Net()\nfast = {0}compile(function)\ny = fast(1)\n",
]
OPTIMIZERS = [
    "opt = {0}optim.AdamW(model.parameters(), lr=1)  # slow\n",
    "opt = {0}optim.SGD(\n    model.parameters(),\n    lr=1  # é\n)\nlater = StepLR(opt, 1)\n",
    "opt: object = {0}optim.Adam([\n    'é'\n], lr=1); y = 2\n",
    "",
]
STEPS = [
    "@{0}no_grad()\ndef step():\n    return model(x)\n",
    "@{0}compile\n# why\ndef step():\n    return model(x)",
    "@{0}compile(\n    fullgraph=True\n)\ndef step(): return model(x)\n",
    "def step():\n    # nothing\n    é = 1; f = {0}compile(model)\n    return f(é)\n",
    "step = make('é')",
    "loader = {0}utils.data.DataLoader(x)\n"
    "def step():\n    return model.generate(next(iter(loader)), do_sample=False)\n",
]
TAILS = ["", "\n# the end\n", "\n\nif __name__ == '__main__':\n    step()\n"]


def programs(seed: int) -> Iterator[str]:
    generator = random.Random(seed)
    for _ in range(60):
        head, prefix = generator.choice(HEADS)
        parts = [generator.choice(kind) for kind in (MODELS, OPTIMIZERS, STEPS, TAILS)]
        text = head + "".join(parts).replace("{0}", prefix)
        yield text.replace("\n", generator.choice(["\n", "\n", "\r\n"]))


def comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def holds(new: Any, old: Any) -> bool:
    """Whether a tree is another one with statements, keywords and decorators added."""
    match new, old:
        case list(), list():
            rest = iter(new)
            return all(any(holds(each, its) for each in rest) for its in old)
        case ast.Call(func=function), ast.Name() | ast.Attribute():  # a decorator with arguments
            return holds(function, old)
        case ast.Constant(), ast.Constant(value=None | "default"):
            return True
        case ast.AST(), ast.AST():
            fields = type(old)._fields
            same = (holds(getattr(new, name, 0), getattr(old, name, 0)) for name in fields)
            return type(new) is type(old) and all(same)
    return bool(new == old)


def test_a_tree_that_lacks_something_is_seen() -> None:
    old = ast.parse("@a\ndef f(): g(x)\ny = 1")

    assert holds(ast.parse("@b\n@a(c=1)\ndef f(): g(x, z=2)\ny = 1\nw = 2"), old)
    for text in ("@a\ndef f(): g(x)", "def f(): g(x)\ny = 1", "@a\ndef f(): g(z)\ny = 1"):
        assert not holds(ast.parse(text), old)


def test_a_call_that_compiles_nothing_is_changed_once() -> None:
    new = edited("dynamic", "import torch\ntorch.compile()\n")

    assert new == "import torch\ntorch.compile(dynamic=True)\n"


@pytest.mark.parametrize("seed", range(6))
def test_a_lever_adds_to_any_program_and_takes_nothing(seed: int) -> None:
    facts = m.StepFacts(**FACTS)
    changed = set()
    for text in programs(seed):
        for each in levers(facts):
            new = each.edit(text, facts)
            if new is None:
                continue
            changed.add(each.id)
            assert holds(ast.parse(new), ast.parse(text)), (each.id, text, new)
            assert comments(new) == comments(text), (each.id, text, new)
            assert each.edit(new, facts) is None, (each.id, text, new)
            assert new.count("\r") in (0, new.count("\n")), (each.id, text, new)

    assert changed == {each.id for each in levers(facts)}


# ---------------------------------------------------------------- the programs run

NET = """\
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))


model = Net()
x = torch.randn(2, 1, 8, 8)
"""
TRAINING = """\
opt = torch.optim.AdamW(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(opt, 2)


def step():
    opt.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    scheduler.step()
    return loss.detach()
"""
INFERENCE = """\
fast = torch.compile(model)


@torch.no_grad()
def step():
    return fast(x)
"""
EAGER = """\
@torch.no_grad()
def step():
    return model(x)
"""
LOADER = "loader = torch.utils.data.DataLoader([each for each in x], batch_size=2)\n\n\n"
GRAPHS = "torch._dynamo.utils.counters['stats']['unique_graphs']"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "rest", "shows", "value"),
    [
        ("compile-model", TRAINING, GRAPHS, "1"),
        ("compile-model", f"model = nn.Sequential(model, nn.ReLU())\n{TRAINING}", GRAPHS, "1"),
        ("compile-step", EAGER, GRAPHS, "1"),
        ("compile-optimizer", TRAINING, f"{GRAPHS} > 0", "True"),
        ("fused-optimizer", TRAINING, "program.opt.defaults['fused']", "True"),
        ("dynamic", INFERENCE, GRAPHS, "1"),
        ("setting-capture_scalar_outputs", INFERENCE,
         "torch._dynamo.config.capture_scalar_outputs", "True"),
        ("channels-last", TRAINING,
         "program.model.conv.weight.is_contiguous(memory_format=torch.channels_last)", "True"),
        ("bf16-autocast", EAGER, "result.dtype", "torch.bfloat16"),
        ("one-thread", EAGER, "torch.get_num_threads()", "1"),
        ("all-threads", EAGER, "torch.get_num_threads()", "8"),
        ("max-autotune-no-cudagraphs", INFERENCE, GRAPHS, "1"),
        ("loader-workers", f"{LOADER}{EAGER.replace('(x)', '(next(iter(loader)))')}",
         "program.loader.num_workers", "4"),
        ("buckets", INFERENCE, "len(program.fast(program.x))", "2"),
        ("gc-freeze", EAGER, "__import__('gc').get_freeze_count() > 1000", "True"),
        ("freezing", INFERENCE, "torch._inductor.config.freezing", "True"),
    ],
)  # fmt: skip
def test_a_program_runs_after_the_change(
    name: str, rest: str, shows: str, value: str, tmp_path: Path
) -> None:
    text = f"{NET}\n{rest}"
    new = edited(name, text)
    assert new is not None
    results = []
    for version in (text, new):
        (tmp_path / "program.py").write_text(version)
        run = (
            "import torch, program\n"
            "for _ in range(4):\n    result = program.step()\n"
            f"print(result.float().sum().item())\nprint({shows})\n"
        )
        command = [sys.executable, "-B", "-c", run]
        out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        results.append(out.stdout.split())

    (was, _), (now, shown) = results
    assert shown == value
    assert float(now) == pytest.approx(float(was), rel=2e-2)
