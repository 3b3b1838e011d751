"""``kgprof.watch``: what a REPL or a test is told of code that runs in its own process."""

from __future__ import annotations

import gc
import logging
import os
import re
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo import convert_frame
from torch._dynamo.output_graph import OutputGraph

import kgprof
from kgprof.errors import UsageError
from kgprof.model import Finding, Skipped


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="eager")


def said(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    """Each rule with the text of the line that it is at."""
    return [
        (found.rule, found.location.text.strip() if found.location else "") for found in findings
    ]


def line_with(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(
        number for number, line in enumerate(lines, 1) if text in line and "line_with" not in line
    )


def reads_its_sum(x: torch.Tensor) -> float:
    return x.sum().item()  # the read


# ---------------------------------------------------------------- what is found


def test_a_clean_function_has_no_finding_and_no_note() -> None:
    watched = kgprof.watch(compiled(lambda x: x * 2))
    x = torch.ones(4)

    for _ in range(3):
        result = watched(x)
    watched.stop()

    assert torch.equal(result, torch.full((4,), 2.0))
    assert (watched.findings, watched.notes, watched.syncs_per_step) == ((), (), 0)
    assert re.search(r"no finding \(\d+ of \d+ rules checked\) in 3 steps", repr(watched))
    looked_for = {rule for row in watched.coverage if not row.missing for rule in row.rules}
    assert {"KGP101", "KGP103", "KGP201", "KGP401"} <= looked_for
    assert looked_for.isdisjoint({"KGP306", "KGP603", "KGP604"})


def test_after_one_step_nothing_is_said_of_steps_after_warm_up() -> None:
    watched = kgprof.watch(compiled(lambda x: x * 2))
    watched(torch.ones(4))
    watched.stop()

    missing = {rule: row.missing for row in watched.coverage for rule in row.rules}
    assert missing["KGP101"] == ""
    assert missing["KGP103"] == "kgprof counted 1 step, and --warmup is 1"
    assert missing["KGP201"] == "MEMORY watched 1 step, and warm-up takes 1"


def test_a_read_is_found_at_its_line_with_its_count_a_step() -> None:
    @kgprof.watch
    def step(x: torch.Tensor) -> float:
        return reads_its_sum(x) + reads_its_sum(x)

    for _ in range(4):
        step(torch.ones(4))
    step.stop()

    assert said(step.findings) == [("KGP201", "return x.sum().item()  # the read")]
    assert step.syncs_per_step == 2
    assert step.notes == (
        "nothing was compiled while it was watched; code compiled earlier is not analysed",
    )


def test_breaks_and_recompiles_are_found_as_in_a_report() -> None:
    @compiled
    def step(x: torch.Tensor, factor: int) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x * torch.ones(factor).sum()

    watched = kgprof.watch(step, warmup=1)
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        for factor in (1, 2, 3):
            watched(torch.ones(4), factor)
    watched.stop()

    # what the recompile cost was measured, what the break costs was not
    assert [rule for rule, _ in said(watched.findings)][:2] == ["KGP103", "KGP101"]
    assert said(watched.findings)[1] == ("KGP101", "torch._dynamo.graph_break()")


def test_each_call_of_step_is_a_step_of_a_block_and_a_rebound_buffer_is_seen() -> None:
    state = {"rows": torch.zeros(4)}
    advance = compiled(lambda rows: rows + 1)

    with kgprof.watch(state) as watched:
        for _ in range(4):
            kgprof.step()
            state["rows"] = advance(state["rows"])  # rebound

    assert watched.steps == 4
    assert [found.rule for found in watched.findings] == ["KGP401"]
    assert watched.findings[0].location is not None
    assert watched.findings[0].location.line == line_with("  # rebound")


@pytest.mark.parametrize("by_name", [True, False])
def test_a_block_of_a_module_counts_the_steps_that_it_marks(by_name: bool) -> None:
    head = torch.nn.Linear(3, 2)

    with kgprof.watch(head) as watched:
        for _ in range(3):
            kgprof.step()
            out = head(torch.ones(5, 3)) if by_name else watched(torch.ones(5, 3))
            reads_its_sum(out.detach())

    assert (watched.steps, watched.syncs_per_step) == (3, 1)


def test_in_a_block_calls_of_the_watched_function_are_steps_if_they_come_first() -> None:
    with kgprof.watch(reads_its_sum) as watched:
        for _ in range(3):
            watched(torch.ones(4))
            kgprof.step()

    assert (watched.steps, watched.syncs_per_step) == (3, 1)


def test_a_buffer_that_is_copied_into_is_stable() -> None:
    rows = torch.zeros(4)
    advance = compiled(lambda rows: rows + 1)

    with kgprof.watch(rows) as watched:
        for _ in range(4):
            kgprof.step()
            rows.copy_(advance(rows))

    assert watched.findings == ()


def test_a_result_that_is_its_argument_and_a_write_into_one_are_found() -> None:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)  # the write
        return x

    watched, x = kgprof.watch(step), torch.ones(4)
    for _ in range(3):
        watched(x)
    watched.stop()

    assert [rule for rule, _ in said(watched.findings)] == ["KGP402", "KGP404"]
    assert ("KGP404", "x.mul_(2)  # the write") in said(watched.findings)


def test_what_was_read_in_warm_up_alone_is_no_finding_and_one_step_proves_nothing() -> None:
    watched = kgprof.watch(reads_its_sum)

    watched(torch.ones(4))
    watched.stop()

    assert watched.findings == ()
    assert isinstance(watched.syncs_per_step, Skipped)
    assert "1 step taken, but warm-up takes 1" in watched.notes


def test_findings_can_be_asked_for_while_it_goes_on() -> None:
    watched = kgprof.watch(reads_its_sum)

    counts = []
    for _ in range(3):
        watched(torch.ones(4))
        counts.append(len(watched.findings))
    watched.stop()

    assert counts == [0, 1, 1]


def test_before_the_first_step_it_says_that_nothing_has_run() -> None:
    watched = kgprof.watch(reads_its_sum)

    assert (watched.findings, watched.notes) == ((), ("nothing has run yet",))
    assert watched.syncs_per_step == Skipped(reason="nothing has run yet")


def test_its_words_name_file_line_rule_and_cause() -> None:
    watched = kgprof.watch(reads_its_sum)
    for _ in range(2):
        watched(torch.ones(4))
    watched.stop()

    head, finding, *_ = repr(watched).splitlines()

    assert head == "kgprof.watch reads_its_sum: 1 finding in 2 steps, 1 sync per step"
    assert finding == (
        f"{__file__}:{line_with('  # the read')}: KGP201 with the tensor on a GPU, converting a "
        "tensor to a number would force a sync, once per step"
    )
    assert (
        f"<td>{__file__}:{line_with('  # the read')}</td><td>KGP201</td>" in watched._repr_html_()
    )


# ---------------------------------------------------------------- what it leaves behind


def hooks() -> dict[str, object]:
    """All that a source touches."""
    return {
        "install": OutputGraph.__dict__["install_global_unsafe"],
        "compile": OutputGraph.__dict__["call_user_compiler"],
        "subgraph": OutputGraph.__dict__["compile_subgraph"],
        "frames": convert_frame.CatchErrorsWrapper.__dict__["__call__"],
        "methods": [torch.Tensor.cpu, torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.to],
        "trace": list(logging.getLogger("torch.__trace").handlers),
        "levels": [
            (name, logging.getLogger(name).level, logging.getLogger(name).propagate)
            for name in logging.Logger.manager.loggerDict
            if name.startswith("torch")
        ],
        "step": kgprof._on_step,
        "dispatcher": torch._C._dispatch_has_kernel_for_dispatch_key(
            "aten::_local_scalar_dense", "BackendSelect"
        ),
        "warnings": list(warnings.filters),
    }


def warmed_up() -> dict[str, object]:
    """torch makes loggers of its own when it first compiles."""
    compiled(lambda x: x + 1)(torch.ones(2))
    return hooks()


def test_everything_is_restored_after_a_block() -> None:
    before = warmed_up()

    with kgprof.watch(torch.ones(4)):
        kgprof.step()
        compiled(reads_its_sum)(torch.ones(4))
        assert hooks() != before

    assert hooks() == before


def test_everything_is_restored_after_an_exception_which_goes_on() -> None:
    before = warmed_up()
    watched = kgprof.watch(compiled(lambda x: x.view(3)))

    with pytest.raises((RuntimeError, torch._dynamo.exc.TorchRuntimeError)), watched:
        watched(torch.ones(4))

    assert hooks() == before
    assert watched.steps == 1
    assert watched.recording is not None
    assert watched.recording.runs[0].exit.outcome == "raised"


def test_a_step_that_raises_does_not_end_the_watching() -> None:
    @kgprof.watch
    def step(x: torch.Tensor) -> float:
        if not x.numel():
            raise ValueError("empty")
        return reads_its_sum(x)

    step(torch.ones(4))
    with pytest.raises(ValueError, match="empty"):
        step(torch.ones(0))
    step(torch.ones(4))
    step.stop()

    assert step.steps == 3
    assert step.syncs_per_step == 0.5


def test_two_at_a_time_are_refused_and_the_first_goes_on() -> None:
    first, second = kgprof.watch(reads_its_sum), kgprof.watch(lambda x: x)

    with first:
        with pytest.raises(UsageError, match="reads_its_sum is already being watched"):
            second(torch.ones(4))
        for _ in range(3):
            first(torch.ones(4))

    assert first.syncs_per_step == 1
    with second:
        second(torch.ones(4))
    assert second.steps == 1


def test_the_second_run_of_a_cell_replaces_the_first_and_says_so() -> None:
    first = kgprof.watch(reads_its_sum)
    for _ in range(3):
        first(torch.ones(4))
    second = kgprof.watch(reads_its_sum)

    with pytest.warns(
        UserWarning, match="reads_its_sum is watched from now on instead of reads_its_sum"
    ):
        second(torch.ones(4))
    for _ in range(3):
        second(torch.ones(4))
        assert first(torch.ones(4)) == 4.0
    second.stop()

    # then: what the first found until then stays, and it says that it ended
    assert (first.steps, second.steps) == (3, 4)
    assert first.syncs_per_step == 1
    assert "reads_its_sum has been watched instead since step 3" in first.notes
    assert not [note for note in second.notes if "in its place" in note]
    with pytest.raises(UsageError, match="watched already"):
        first.__enter__()


def test_a_decorator_that_runs_again_watches_the_function_and_not_the_watch() -> None:
    step = kgprof.watch(reads_its_sum)
    step(torch.ones(4))

    with pytest.warns(UserWarning, match="reads_its_sum was watched already"):
        again = kgprof.watch(step)
    for _ in range(3):
        again(torch.ones(4))
    again.stop()

    assert (step.steps, again.steps, again.syncs_per_step) == (1, 3, 1)


@pytest.mark.parametrize("begun", ["by a call", "as a block, by an error"])
def test_a_watch_that_nobody_holds_any_longer_frees_its_place(begun: str) -> None:
    first = kgprof.watch(reads_its_sum)
    first(torch.ones(4))
    if begun != "by a call":
        with pytest.raises(ValueError, match="in the cell"), first:
            raise ValueError("in the cell")
    gone = weakref.ref(first)

    del first
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is replaced
        second = kgprof.watch(reads_its_sum)
        for _ in range(3):
            second(torch.ones(4))
    second.stop()

    assert gone() is None
    assert (second.steps, second.syncs_per_step) == (3, 1)


def test_a_function_that_calls_itself_takes_one_step() -> None:
    @kgprof.watch
    def countdown(x: torch.Tensor, times: int) -> torch.Tensor:
        return countdown(x + 1, times - 1) if times else x

    for _ in range(2):
        countdown(torch.ones(4), 3)
    countdown.stop()

    assert countdown.steps == 2


def test_a_decorated_method_is_bound() -> None:
    class Model:
        @kgprof.watch
        def step(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    assert torch.equal(Model().step(torch.zeros(1)), torch.ones(1))
    Model.step.stop()
    assert Model.step.steps == 1


def test_after_stop_the_function_still_runs_and_takes_no_step() -> None:
    watched = kgprof.watch(reads_its_sum)
    watched(torch.ones(4))
    watched.stop()

    assert watched(torch.ones(4)) == 4.0
    assert watched.steps == 1


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (3, {}, "kgprof.watch takes a function or tensors, not int"),
        ({"rows": 3}, {}, "'rows' must be a tensor, got int"),
        ([torch.ones(1)], {"buffers": {}}, "given twice"),
        (len, {"warmup": -1}, "warmup must be a number of steps"),
    ],
)
def test_what_cannot_be_watched_is_refused(
    given: object, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        kgprof.watch(given, **options)


# ---------------------------------------------------------------- where it runs


def test_importing_kgprof_brings_no_torch() -> None:
    code = "import sys, kgprof, kgprof.watching.pytest_plugin; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_typed_into_a_repl_is_found_by_its_line() -> None:
    typed = (
        "import kgprof, torch\n"
        "watched = kgprof.watch(lambda x: x.sum().item())\n"
        "_ = [watched(torch.ones(3)) for _ in range(3)]\n"
        "print(watched)\n"
    )

    done = subprocess.run(
        [sys.executable, "-i", "-q"], input=typed, capture_output=True, text=True, check=True
    )

    assert "<stdin>:1: KGP201 with the tensor on a GPU, converting" in done.stdout


A_KERNELS_FILES = """
from IPython.core.compilerop import CachingCompiler


class InFiles(CachingCompiler):
    def get_code_name(self, raw_code, code, number):
        return f"/tmp/ipykernel_12/{sum(raw_code.encode())}.py"


shell.compile = InFiles()
"""
NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
{files}
for cell in (
    "import kgprof, torch",
    "def size_of(x):\\n    return x.sum().item()",
    "@torch.compile(backend='eager')\\ndef twice(x):\\n    print(0)\\n    return x * 2",
    "def step():\\n    return size_of(twice(torch.ones(3)))",
    "watched = kgprof.watch(step)\\nfor _ in range(3):\\n    watched()",
    "watched.stop(); print(watched)",
    "watched = kgprof.watch(step)\\nfor _ in range(3):\\n    watched()",
    "print(watched)",
):
    shell.run_cell(cell, store_history=True).raise_error()
"""


@pytest.mark.parametrize(
    "files",
    [
        pytest.param("", id="ipython", marks=pytest.mark.long),
        pytest.param(A_KERNELS_FILES, id="a notebook's kernel"),
    ],
)
def test_a_cell_of_a_notebook_is_named_by_its_number(tmp_path: Path, files: str) -> None:
    script = tmp_path / "notebook.py"
    script.write_text(NOTEBOOK.format(files=files))

    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
    )

    assert "In [2]:2: KGP201 with the tensor on a GPU, converting" in done.stdout
    assert "In [3]:3: KGP101 print breaks the graph in twice" in done.stdout
    assert re.search(r"unavailable: .*\(In \[[34]\]:\d\).*compiled before", done.stdout)
    assert "ipython-input" not in done.stdout
    assert "ipykernel" not in done.stdout


def test_the_example_of_the_documentation_finds_what_it_says(tmp_path: Path) -> None:
    text = (Path(__file__).parent.parent / "docs" / "watching.md").read_text(encoding="utf-8")
    example = text.partition("```python\n")[2].partition("```")[0]
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "example"}

    exec(compile(example, str(script), "exec"), names)

    branch = "return x / x.norm() if x.sum() > 0 else x  # a branch on a value"
    assert ("KGP101", branch) in said(names["watched"].findings)
    assert ("KGP201", branch) in said(names["watched"].findings)
    assert names["watched"].syncs_per_step == 1
    assert said(names["block"].findings) == [("KGP401", 'state["x"] = state["x"] * 2  # rebound')]


def test_in_a_program_that_is_profiled_it_stands_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kgprof, "_profiled", True)
    aside = (
        "kgprof runs and measures this program itself, so nothing is watched here; see its report"
    )

    watched = kgprof.watch(reads_its_sum)
    with kgprof.watch([torch.ones(2)]) as block:
        result = watched(torch.ones(4))
        kgprof.step()

    assert result == 4
    assert (watched.steps, block.steps) == (0, 0)
    assert (watched.findings, watched.notes, watched.syncs_per_step) == (
        (),
        (aside,),
        Skipped(reason=aside),
    )
    assert f"{watched!r}".endswith(
        f"reads_its_sum: no finding in 0 steps, syncs per step not observed\nnote: {aside}"
    )


# ---------------------------------------------------------------- it harms nobody


def test_lazy_modules_are_made_and_initialised_while_it_watches() -> None:
    x = torch.ones(3, 4)

    def trained() -> torch.Tensor:
        model = torch.nn.Sequential(torch.nn.LazyLinear(2), torch.nn.LazyBatchNorm1d())
        model.register_buffer("scale", torch.nn.parameter.UninitializedBuffer())
        result = model(x)
        model.to("cpu")
        return result.sum() * len(list(model.parameters()))  # type: ignore[no-any-return]

    watched = kgprof.watch(trained)
    results = [watched(), watched()]
    watched.stop()

    assert all(result.shape == () for result in results)
    assert watched.unavailable == ()


def test_a_listener_that_fails_is_switched_off_and_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise LookupError("a fault of the probe's")

    monkeypatch.setattr("kgprof.record.listeners.tensor_probe._Graph.before", broken)
    watched = kgprof.watch(compiled(lambda x: x * 2))

    results = [watched(torch.ones(2)) for _ in range(4)]
    watched.stop()

    assert all(torch.equal(result, torch.full((2,), 2.0)) for result in results)
    (note,) = [note for note in watched.notes if "tensor probe" in note]
    assert "it raised LookupError: a fault of the probe's (test_watch.py:" in note
    assert note.endswith("and was switched off")


def test_a_fault_in_looking_where_tensors_lie_leaves_the_program_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise LookupError("a fault of the hook's")

    monkeypatch.setattr("kgprof.record.listeners.tensor_places.TensorPlaces._remember", broken)
    watched = kgprof.watch(reads_its_sum, device="cpu")

    results = [watched(torch.ones(3)) for _ in range(3)]
    watched.stop()

    assert results == [3.0, 3.0, 3.0]
    assert [
        note
        for note in watched.unavailable
        if "where tensors would be on a GPU is not known" in note
    ]
