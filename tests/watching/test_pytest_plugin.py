"""The fixture kgprof_guard, in test files of their own that pytest runs in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import kgprof.watching

pytest_plugins = ("pytester",)

HEAD = """
import torch

def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="eager")
"""
CLEAN = """
def test_step(kgprof_guard):
    watched, x = kgprof_guard(compiled(lambda x: x * 2)), torch.ones(4)
    for _ in range(3):
        watched(x)
    kgprof_guard.{demand}()
"""
PLANTED = {
    "no_syncs": """
def step(x):
    return x.sum().item()  # planted

def test_step(kgprof_guard):
    watched = kgprof_guard(step)
    for _ in range(3):
        watched(torch.ones(4))
    kgprof_guard.no_syncs()
""",
    "no_recompiles": """
def step(x, scale):
    return x * scale

def test_step(kgprof_guard):
    watched = kgprof_guard(compiled(step))  # planted at the def
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        for scale in (1, 2, 3):
            watched(torch.ones(4), scale)
    kgprof_guard.no_recompiles()
""",
    "no_graph_breaks": """
def step(x):
    torch._dynamo.graph_break()  # planted
    return x + 1

def test_step(kgprof_guard):
    watched = kgprof_guard(compiled(step))
    for _ in range(2):
        watched(torch.ones(4))
    kgprof_guard.no_graph_breaks()
""",
    "stable_addresses": """
def test_step(kgprof_guard):
    state = {"rows": torch.zeros(4)}
    advance = compiled(lambda rows: rows + 1)
    with kgprof_guard(state):
        for _ in range(3):
            __import__("kgprof").step()
            state["rows"] = advance(state["rows"])  # planted
    kgprof_guard.stable_addresses()
""",
    "no_aliasing": """
def step(x):  # planted
    return x[:2]

def test_step(kgprof_guard):
    watched = kgprof_guard(compiled(step))
    for _ in range(2):
        watched(torch.ones(4))
    kgprof_guard.no_aliasing()
""",
    "no_mutation": """
def step(x):
    x.mul_(2)  # planted
    return x + 1

def test_step(kgprof_guard):
    watched = kgprof_guard(compiled(step))
    for _ in range(2):
        watched(torch.ones(4))
    kgprof_guard.no_mutation()
""",
}
RULES = {
    "no_syncs": "KGP201 with the tensor on a GPU, converting",
    "no_recompiles": "KGP103 step recompiled",
    "no_graph_breaks": "KGP101 torch._dynamo.graph_break breaks the graph",
    "stable_addresses": "KGP401 the declared buffer rows",
    "no_aliasing": "KGP402",
    "no_mutation": "KGP404",
}


@pytest.fixture(autouse=True, scope="module")
def loaded_once() -> None:
    """pytester takes every module away that a test file brought along, and torch's own cannot be
    loaded twice."""
    watched = kgprof.watch(torch.compile(lambda x: x + 1, backend="eager"))
    for size in (1, 2, 3):
        watched(torch.ones(size))
    watched.stop()
    assert watched.findings


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def ran(pytester: pytest.Pytester, text: str) -> pytest.RunResult:
    pytester.makepyfile(test_inner=HEAD + text)
    # Each plugin of this process is there already; the cache of files would be written beside the
    # test.
    return pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")


def test_what_is_demanded_of_clean_code_holds(pytester: pytest.Pytester) -> None:
    demands = "()\n    kgprof_guard.".join(PLANTED)

    ran(pytester, CLEAN.format(demand=demands)).assert_outcomes(passed=1)


@pytest.mark.parametrize("demand", PLANTED)
def test_a_planted_fault_fails_with_its_line_and_cause(
    pytester: pytest.Pytester, demand: str
) -> None:
    text = HEAD + PLANTED[demand]
    planted = "def step" if "at the def" in text else "# planted"
    line = next(number for number, row in enumerate(text.strip().splitlines(), 1) if planted in row)

    result = ran(pytester, PLANTED[demand])

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E *AssertionError: expected: *", f"E *test_inner.py:{line}: {RULES[demand]}*"]
    )


def test_what_nothing_was_compiled_for_is_not_passed(pytester: pytest.Pytester) -> None:
    eager = CLEAN.replace("compiled(lambda x: x * 2)", "lambda x: x * 2")
    demands = ("no_recompiles", "no_graph_breaks", "no_aliasing", "no_mutation", "stable_addresses")

    tests = [
        eager.format(demand=demand).replace("test_step", f"test_{demand}") for demand in demands
    ]
    result = ran(pytester, "".join(tests))

    result.assert_outcomes(failed=len(demands))
    unseen = ["E *this was not observed*", "E *nothing was compiled while it was watched*"]
    result.stdout.fnmatch_lines(unseen * len(demands))


def test_one_step_proves_nothing(pytester: pytest.Pytester) -> None:
    result = ran(pytester, CLEAN.replace("range(3)", "range(1)").format(demand="no_syncs"))

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *1 step taken, none of them after warm-up*"])


def test_a_guard_that_watched_nothing_fails(pytester: pytest.Pytester) -> None:
    result = ran(pytester, "def test_step(kgprof_guard):\n    kgprof_guard.no_syncs()\n")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *nothing was watched*"])


def test_watching_ends_with_the_test_also_where_it_failed(pytester: pytest.Pytester) -> None:
    first = PLANTED["no_syncs"].replace("test_step", "test_fails")

    ran(pytester, first + CLEAN.format(demand="no_syncs")).assert_outcomes(failed=1, passed=1)


def test_a_note_counts_where_it_is_asked_for(pytester: pytest.Pytester) -> None:
    fresh_batches = CLEAN.replace(
        "watched(x)", "batch = torch.ones(4); watched(batch); kept.append(batch)"
    ).replace("    watched, x", "    kept = []\n    watched, x")

    without = fresh_batches.format(demand="stable_addresses")

    ran(pytester, without).assert_outcomes(passed=1)
    ran(pytester, without.replace("addresses()", "addresses(notes=True)")).assert_outcomes(failed=1)


WARMED_BEFORE = {
    "a session fixture": """
import pytest

@pytest.fixture(scope="session")
def model():
    made = torch.compile(torch.nn.Linear(3, 3).requires_grad_(False), backend="eager")
    made(torch.ones(2, 3))
    return made
""",
    "the module itself": """
import pytest

MODEL = torch.compile(lambda rows: rows.tanh() * 2, backend="eager")
MODEL(torch.ones(2, 3))

@pytest.fixture
def model():
    return MODEL
""",
    "a class fixture": """
import pytest

class Norm:
    @torch.compile(backend="eager")
    def __call__(self, rows):
        return rows / rows.norm()

@pytest.fixture(scope="class")
def model():
    norm = Norm()
    norm(torch.ones(2, 3))
    return norm
""",
}
USES_THE_MODEL = """
@torch.compile(backend="eager")
def loss(rows):
    return rows.mean()

def test_model(kgprof_guard, model):
    rows = torch.ones(2, 3)
    watched = kgprof_guard(lambda: loss(model(rows)))
    for _ in range(3):
        watched()
    kgprof_guard.no_graph_breaks()
"""


@pytest.mark.parametrize("place", WARMED_BEFORE)
def test_a_model_that_was_compiled_before_the_guard_is_not_passed_over(
    pytester: pytest.Pytester, place: str
) -> None:
    result = ran(pytester, WARMED_BEFORE[place] + USES_THE_MODEL)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E *this was not observed*", "E *compiled before kgprof listened; that code ran in 3*"]
    )


@pytest.mark.parametrize("place", WARMED_BEFORE)
def test_after_a_reset_the_guard_sees_that_model(pytester: pytest.Pytester, place: str) -> None:
    text = USES_THE_MODEL.replace("    rows = torch", "    torch._dynamo.reset()\n    rows = torch")

    ran(pytester, WARMED_BEFORE[place] + text).assert_outcomes(passed=1)
