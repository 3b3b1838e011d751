"""KGP402, 403, 405, 406: memory that is shared, exactly, at the def; and what only looks like
it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
import torch

from kgprof.collectors.compile import compilations
from kgprof.collectors.tensors import aliases
from kgprof.collectors.tensors.aliases import Alias
from kgprof.model import Level
from kgprof.model.memory_records import HeldOutput
from kgprof.reading.evidence import Evidence
from kgprof.record.ground.job import describe_failure
from tests.analysis import recordings
from tests.collectors import written, written_tensors
from tests.collectors.watched import lines_with, recording, watch
from tests.collectors.written_tensors import ALL, given, graph, held, lies, overlap

Step = Callable[[int], object]


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def events(step: Step) -> tuple[Alias, ...]:
    return aliases.collect(Evidence(recording(watch(step), __file__)))


def kinds(step: Step) -> list[tuple[str, str]]:
    return [(event.rule, event.kind) for event in events(step)]


def compiled(function: Callable[..., object], backend: str = "aot_eager") -> Callable[..., object]:
    return torch.compile(function, backend=backend)


# ---------------------------------------------------------------- around compiled graphs


def identity(x: torch.Tensor) -> object:
    return x, x * 2


def in_place(x: torch.Tensor) -> object:
    return x.mul_(0.5)


def view(x: torch.Tensor) -> object:
    return x.view(-1), x * 2


def behind_a_break(x: torch.Tensor) -> object:
    y = x + 1
    torch._dynamo.graph_break()
    return x[0], y


def cut_out_of_a_view_behind_a_break(x: torch.Tensor) -> object:
    y, z = x.view(-1), x + 1
    torch._dynamo.graph_break()
    return y[0], z * 2


def twice(x: torch.Tensor) -> object:
    y = x * 2
    return {"a": y, "b": y}


def and_transposed(x: torch.Tensor) -> object:
    y = x * 2
    return y, y.t()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    ("function", "rule", "kind"),
    [
        (identity, "KGP402", "identity"),
        (in_place, "KGP402", "identity"),
        (view, "KGP402", "view"),
        (behind_a_break, "KGP402", "view"),
        (cut_out_of_a_view_behind_a_break, "KGP402", "view"),
        (twice, "KGP403", "identity"),
        (and_transposed, "KGP403", "view"),
    ],
)
def test_what_shares_memory_is_told_at_the_def(
    function: Callable[..., object], rule: str, kind: str, backend: str
) -> None:
    region, x = compiled(function, backend), torch.ones(2, 2)

    (event,) = events(lambda call: region(x))

    assert (event.rule, event.kind, event.function) == (rule, kind, function.__name__)
    assert event.location is not None
    assert event.location.line == function.__code__.co_firstlineno


def interleaved(x: torch.Tensor) -> object:
    y = x * 2
    return y[0::2], y[1::2]


def copies(x: torch.Tensor) -> object:
    return x.clone(), x.view(-1).clone()


def handed_on(x: torch.Tensor) -> object:
    y = x * 2
    z = y.view(-1)
    torch._dynamo.graph_break()
    return z + 1


def made_before_a_break(x: torch.Tensor) -> object:
    y = x * 2
    torch._dynamo.graph_break()
    return y


def rebound_before_a_break(x: torch.Tensor) -> object:
    x = x * 2
    torch._dynamo.graph_break()
    return x.view(-1)


@pytest.mark.parametrize(
    "function", [interleaved, copies, handed_on, made_before_a_break, rebound_before_a_break]
)
def test_what_only_looks_like_it_is_silent(function: Callable[..., object]) -> None:
    region, x = compiled(function), torch.ones(2, 2)

    assert kinds(lambda call: region(x)) == []


class Meter(torch.nn.Module):
    """Sums into a buffer and keeps a part of what it was given, and returns neither."""

    last: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x.sum()
        self.last = x[1:]
        return x * 2


class State(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state += x
        return self.state


def test_what_a_function_assigns_is_no_result_of_it() -> None:
    meter, state = (torch.compile(one, backend="aot_eager") for one in (Meter(), State()))

    assert events(lambda call: meter(torch.ones(2, 2))) == ()
    assert [event.pairs for event in events(lambda call: state(torch.ones(2, 2)))] == [
        ("self.state: output 0 is the same tensor",)
    ]


def test_a_library_knows_what_it_returns() -> None:
    writes_and_returns = graph(
        given(written=(4, 5)),
        file="/venv/lib/python3.11/site-packages/torchmetrics/aggregation.py",
        returned_inputs=("L['x']",),
    )

    assert aliases.collect(Evidence(written_tensors.recording(writes_and_returns))) == ()


def reads(one: torch.Tensor, other: torch.Tensor) -> object:
    return one.sum() + other.sum()


def writes(one: torch.Tensor, other: torch.Tensor) -> object:
    one.mul_(0.5)
    return other.sum()


STORAGE = torch.arange(12.0)


@pytest.mark.parametrize(
    ("function", "one", "other", "expected"),
    [
        (writes, STORAGE[:8], STORAGE[6:], [("KGP405", "inputs")]),
        (writes, STORAGE.as_strided((3, 4), (2, 1)), torch.ones(2), [("KGP405", "internal")]),
        (reads, STORAGE[:8], STORAGE[6:], []),
        (reads, torch.ones(3, 1).expand(3, 4), torch.ones(2), []),
        (writes, STORAGE[0::2], STORAGE[1::2], []),
        (writes, STORAGE[:6], STORAGE[6:], []),
    ],
)
def test_inputs_overlap_where_one_of_them_is_written(
    function: Callable[..., object],
    one: torch.Tensor,
    other: torch.Tensor,
    expected: list[tuple[str, str]],
) -> None:
    region = compiled(function)

    assert kinds(lambda call: region(one, other)) == expected


def test_it_is_a_warning_where_the_memory_is_written_or_cuda_graphs_were_asked_for() -> None:
    def level(**fields: object) -> Level:
        whole = written_tensors.recording(graph(given(), returned_inputs=("L['x']",), **fields))
        (finding,) = aliases.diagnose(aliases.collect(Evidence(whole)))
        return finding.level

    write = written_tensors.InPlace(input=0, operator="mul_")
    assert [level(), level(in_place=(write,)), level(cuda_graphs=True)] == [
        Level.NOTE,
        Level.WARNING,
        Level.WARNING,
    ]


def test_what_autograd_ahead_of_time_intended_stands_beside_it() -> None:
    metadata = (
        "ViewAndMutationMeta(output_info=[OutputAliasInfo(output_type=<OutputType.alias_of_input: "
        "2>)], "
    )
    line = written.artifact(
        "aot_forward_graph_fw_metadata", "0/0", metadata + "static_input_indices=[0, 2])"
    )
    whole = written_tensors.a_returned_input()
    run = msgspec.structs.replace(
        whole.runs[0], records=written.records(*written.compiled_once(), line)
    )

    (event,) = aliases.collect(Evidence(msgspec.structs.replace(whole, runs=(run,))))

    assert (
        event.detail == "AOTAutograd: outputs are alias_of_input; inputs at fixed addresses: 0, 2"
    )


@pytest.mark.parametrize(
    ("marked", "words"), [(0, "no step was marked"), (8, "was called 8 times")]
)
def test_a_result_of_a_replay_that_is_kept_is_told_and_predicted_on_a_cpu(
    marked: int, words: str
) -> None:
    kept = (HeldOutput(output=0, calls=ALL[:-1]),)
    asked = graph(given(), cuda_graphs=True, held_outputs=kept)
    first_only = graph(given(), cuda_graphs=True, held_outputs=(HeldOutput(output=0, calls=(0,)),))
    plain = graph(given(), held_outputs=kept)

    (seen,) = aliases.diagnose(
        aliases.collect(Evidence(written_tensors.recording(asked, on_cuda=True, marked=marked)))
    )
    (predicted,) = aliases.diagnose(
        aliases.collect(Evidence(written_tensors.recording(asked, marked=marked)))
    )

    assert (seen.rule, seen.level, predicted.level) == ("KGP403", Level.WARNING, Level.NOTE)
    assert "is kept beyond the next replay" in seen.message
    assert words in seen.message
    assert aliases.collect(Evidence(written_tensors.recording(first_only, on_cuda=True))) == ()
    assert aliases.collect(Evidence(written_tensors.recording(plain, on_cuda=True))) == ()


def test_two_results_that_lie_in_one_input_are_told_by_that_input() -> None:
    one, two = lies(4096, (4,)), lies(4100, (4,), storage=4096)
    whole = written_tensors.recording(
        graph(
            given(),
            overlaps=(
                overlap("input 0", "output 0", lies(), one),
                overlap("input 0", "output 1", lies(), two),
                overlap("output 0", "output 1", one, two),
            ),
        )
    )

    (event,) = aliases.collect(Evidence(whole))

    assert (event.rule, event.pairs) == (
        "KGP402",
        ("x: output 0 is a view of it", "x: output 1 is a view of it"),
    )


def test_the_same_input_at_different_addresses_in_one_call_is_not_itself() -> None:
    runs = (held(run=0), held(run=1, memory=lies(8192)))
    tensor = written_tensors.GraphInput(name="L['x']", held=runs)

    assert aliases.collect(Evidence(written_tensors.recording(graph(tensor)))) == ()


# ---------------------------------------------------------------- torch.cond


def unchanged(t: torch.Tensor) -> torch.Tensor:
    return t  # returned by the branch


def doubled(t: torch.Tensor) -> torch.Tensor:
    return t * 2


def choose(x: torch.Tensor) -> object:
    return torch.cond(x.sum() > 0, doubled, unchanged, (x,))  # cond


@pytest.mark.parametrize("backend", ["eager", None])
def test_a_run_that_torch_cond_ended_has_both_lines(backend: str | None) -> None:
    function = choose if backend is None else torch.compile(choose, backend=backend)
    with pytest.raises(torch._dynamo.exc.UncapturedHigherOrderOpError) as caught:
        function(torch.ones(3))

    failed = describe_failure(caught.value)
    died = recordings.died(recordings.FUSED, "raised", failed.message, "compile")
    sources = recording(written_tensors.TensorRecords(), __file__).runs[0].records
    run = msgspec.structs.replace(
        died, exit=msgspec.structs.replace(died.exit, traceback=failed.traceback), records=sources
    )

    (finding,) = aliases.diagnose(
        aliases.collect(Evidence(recordings.recording(run, baseline=None)))
    )

    assert (finding.rule, finding.level) == ("KGP406", Level.ERROR)
    assert finding.location is not None
    assert (finding.location.file, [finding.location.line]) == (
        __file__,
        lines_with(__file__, "cond"),
    )
    assert [place.line for place in finding.related] == lines_with(
        __file__, "returned by the branch"
    )


def test_a_program_that_catches_it_is_told_once_and_not_as_a_failed_compilation_as_well() -> None:
    whole = written_tensors.a_refused_branch()

    (finding,) = aliases.diagnose(aliases.collect(Evidence(whole)))

    assert finding.location == written.place(*written.LOOP)
    assert finding.message == (
        "a branch of torch.cond returns an operand, a view of one, or one tensor twice: torch "
        "refuses it"
    )
    assert compilations.collect(Evidence(whole)) == ()


def test_a_mutation_in_a_branch_has_its_own_words() -> None:
    (finding,) = aliases.diagnose(
        aliases.collect(
            Evidence(
                written_tensors.a_refused_branch(
                    written_tensors.REFUSED.replace("gb0040", "gb0041")
                )
            )
        )
    )

    assert finding.message == "a branch of torch.cond writes to an operand: torch refuses it"


@pytest.mark.parametrize("change", [("torch.cond", "scan"), ("gb0040", "gb0059")])
def test_what_another_operator_or_another_reason_says_is_not_this_rule(
    change: tuple[str, str],
) -> None:
    text = written_tensors.REFUSED.replace(*change)

    assert aliases.collect(Evidence(written_tensors.a_refused_branch(text))) == ()
