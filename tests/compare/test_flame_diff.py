"""Two flame graphs as one: matched by the names of the stacks, whatever moved in the files."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as some

from kgprof.compare.flame_diff import flame_difference, of_runs
from kgprof.model import FlameDifference, Skipped
from tests.render import profiles
from tests.render.flames import STEP, Line, flame


def tree(found: FlameDifference) -> list[tuple[str, int, int]]:
    """Path of names, own nanoseconds a step in base and in head."""
    paths: list[str] = []
    for node, parent in enumerate(found.parent):
        name = found.names[found.frames[found.frame[node]].name]
        paths.append(name if parent < 0 else f"{paths[parent]}/{name}")
    return list(zip(paths, found.base_self_ns, found.head_self_ns, strict=True))


def step(*below: Line) -> tuple[Line, ...]:
    return ((0, "step", "", 0, "step", 1.0, 1), *below)


def test_a_stack_stands_beside_itself_per_step_whatever_the_number_of_steps() -> None:
    base = flame(step((1, "f", "/old/a.py", 7, "python", 10.0, 1)), steps=5)
    head = flame(step((1, "f", "/new/a.py", 9, "python", 13.0, 1)), steps=3)

    found = flame_difference(base, head)

    assert tree(found) == [("step", 1_000, 1_000), ("step/f", 10_000, 13_000)]
    assert (found.base_steps, found.head_steps) == (5, 3)
    frame = found.frames[found.frame[1]]
    assert (found.names[frame.file], frame.line, frame.kind) == ("/new/a.py", 9, "python")


def test_what_only_one_side_has_stands_there_alone() -> None:
    base = flame(
        step((1, "gone", "a.py", 7, "python", 30.0, 1), (2, "aten::mm", "", 0, "operator", 5.0, 1))
    )
    head = flame(step((1, "new", "a.py", 7, "python", 20.0, 1)))

    assert tree(flame_difference(base, head)) == [
        ("step", 1_000, 1_000),
        ("step/gone", 30_000, 0),
        ("step/gone/aten::mm", 5_000, 0),
        ("step/new", 0, 20_000),
    ]


def test_functions_of_one_name_in_two_files_are_two() -> None:
    base = flame(step((1, "forward", "a.py", 7, "python", 30.0, 1)))
    head = flame(step((1, "forward", "b.py", 7, "python", 30.0, 1)))

    assert len(flame_difference(base, head).parent) == 3


def test_what_torch_counts_up_or_makes_from_the_code_does_not_tell_stacks_apart() -> None:
    def compiled(
        region: str, graph: str, file: str, resumed: int, evaluated: int
    ) -> tuple[Line, ...]:
        return step(
            (1, f"Torch-Compiled Region: {region}", "", 0, "region", 1.0, 1),
            (2, f"## Call CompiledFxGraph {graph} ##", "", 0, "region", 2.0, 1),
            (3, "call", file, 38, "generated", 3.0, 1),
            (2, f"torch_dynamo_resume_in_step_at_{resumed}", "a.py", resumed, "python", 4.0, 1),
            (3, "forward", f"<eval_with_key>.{evaluated}", 4, "python", 5.0, 1),
        )

    found = flame_difference(
        flame(compiled("0/0", "fabc", "/tmp/x/cabc.py", 7, 1)),
        flame(compiled("1/0", "fdef", "/y/cdef.py", 9, 3)),
    )

    assert len(found.parent) == 6
    assert found.base_self_ns == found.head_self_ns


def test_two_stacks_of_one_side_that_the_names_do_not_tell_apart_are_added() -> None:
    twice = step(
        (1, "Torch-Compiled Region: 0/0", "", 0, "region", 10.0, 1),
        (2, "aten::mm", "", 0, "operator", 3.0, 1),
        (1, "Torch-Compiled Region: 1/0", "", 0, "region", 20.0, 1),
        (2, "aten::mm", "", 0, "operator", 4.0, 1),
    )
    once = step((1, "Torch-Compiled Region: 0/0", "", 0, "region", 10.0, 1))

    assert tree(flame_difference(flame(once), flame(twice))) == [
        ("step", 1_000, 1_000),
        ("step/Torch-Compiled Region", 10_000, 30_000),
        ("step/Torch-Compiled Region/aten::mm", 0, 7_000),
    ]


def test_a_graph_against_itself_has_no_difference_and_keeps_its_order() -> None:
    found = flame_difference(flame(), flame())

    assert (
        found.base_self_ns == found.head_self_ns == tuple(round(own * 1000) for *_, own, _ in STEP)
    )


def test_a_run_without_stacks_on_either_side_has_none() -> None:
    run = profiles.clean().runs[0]
    without = msgspec.structs.replace(run, flame=Skipped(reason="killed"))

    assert of_runs(without, run) is None
    assert of_runs(run, without) is None
    assert of_runs(run, run) is not None


def test_a_whole_window_and_a_step_are_not_held_against_each_other() -> None:
    window = ((0, "window", "", 0, "step", 1.0, 1), (1, "f", "a.py", 7, "python", 10.0, 1))
    unmarked = msgspec.structs.replace(flame(window, steps=1), per="window")
    run = profiles.clean().runs[0]
    marked, without_marks = run, msgspec.structs.replace(run, flame=unmarked)

    assert of_runs(marked, without_marks) is None
    assert of_runs(without_marks, marked) is None
    both = of_runs(without_marks, without_marks)
    assert both is not None
    assert tree(both) == [("window", 1_000, 1_000), ("window/f", 10_000, 10_000)]


lines = some.lists(
    some.tuples(some.integers(1, 4), some.sampled_from("abc"), some.integers(0, 50)), max_size=15
)


def drawn(made: list[tuple[int, str, int]]) -> tuple[Line, ...]:
    found, depth = [], 0
    for wanted, name, own in made:
        depth = min(wanted, depth + 1)
        found.append((depth, name, "x.py", own, "python", float(own), 1))
    return step(*found)


@settings(max_examples=60, deadline=None)
@given(lines, lines)
def test_no_time_of_either_side_is_lost(
    base: list[tuple[int, str, int]], head: list[tuple[int, str, int]]
) -> None:
    before, after = flame(drawn(base)), flame(drawn(head))

    found = flame_difference(before, after)
    back = flame_difference(after, before)

    assert sum(found.base_self_ns) == sum(before.self_ns) // before.steps
    assert sum(found.head_self_ns) == sum(after.self_ns) // after.steps
    assert all(parent < node for node, parent in enumerate(found.parent))
    assert sorted((path, b, a) for path, a, b in tree(back)) == sorted(tree(found))
