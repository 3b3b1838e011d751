"""Boxes of a tree: each below what it belongs to, and what there is no room for counted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec.structs import replace

from kgprof.document.flame_chart import Item, icicle
from kgprof.document.table import Shown
from kgprof.render.html import LEVELS

LIMITS = LEVELS[0]


def item(parent: int, width: float, name: str = "f") -> Item:
    return Item(parent=parent, width=width, style="f-python", label=name, title=f"{name}\nPython")


def box(x: str, y: int, width: str, *, label: str = "f", wide: bool = True) -> Shown:
    return Shown(
        style="f-python" if wide else "f-python narrow",
        x=x,
        y=y,
        width=width,
        label=label,
        title="f\nPython",
        file="",
    )


def test_a_child_begins_where_its_parent_does_or_the_child_before_it_ends() -> None:
    found = icicle(
        [item(-1, 200.0), item(0, 100.0), item(1, 40.0), item(1, 10.0), item(0, 50.0)], LIMITS
    )

    assert found.boxes == [
        box("0.000%", 0, "100.000%"),
        box("0.000%", 24, "50.000%"),
        box("0.000%", 48, "20.000%"),
        box("20.000%", 48, "5.000%", wide=False),
        box("50.000%", 24, "25.000%"),
    ]
    assert (found.height, found.left_out) == (72, [])


def test_a_narrow_box_has_no_name_in_it_and_a_hair_is_not_drawn() -> None:
    found = icicle([item(-1, 10_000.0), item(0, 100.0), item(0, 10.0)], LIMITS)

    assert found.boxes[1:] == [box("0.000%", 24, "1.000%", label="", wide=False)]
    assert found.left_out == ["1 frame narrower than 0.15 % of the step"]


def test_rows_beyond_the_limit_are_left_out_and_counted() -> None:
    chain = [item(-1, 10.0), *(item(node, 10.0) for node in range(9))]

    found = icicle(chain, replace(LIMITS, flame_rows=4))

    assert (len(found.boxes), found.height) == (4, 96)
    assert found.left_out == ["6 frames below the first 4 rows"]


def test_many_boxes_share_the_room_of_the_page() -> None:
    flat = [item(-1, 500.0), *(item(0, 1.0 + node / 1_000) for node in range(400))]

    one, six = icicle(flat, LIMITS), icicle(flat, LIMITS, trees=6)

    assert (len(one.boxes), len(six.boxes)) == (300, 100)
    assert six.left_out == ["301 frames narrower than 0.26 % of the step"]


@settings(max_examples=50, deadline=None)
@given(some.lists(some.tuples(some.integers(0, 10**6), some.floats(0.0, 1.0)), max_size=60))
def test_no_box_leaves_its_parents_and_none_hangs_in_the_air(made: list[tuple[int, float]]) -> None:
    # given: each node takes a share of what its parent has left
    items, left = [item(-1, 1_000.0)], [1_000.0]
    for above, share in made:
        parent = above % len(items)
        width = left[parent] * share
        left[parent] -= width
        items.append(item(parent, width))
        left.append(width)

    found = icicle(items, LIMITS)

    spans = [
        (box["y"], float(box["x"][:-1]), float(box["x"][:-1]) + float(box["width"][:-1]))
        for box in found.boxes
    ]
    for y, start, end in spans[1:]:
        assert any(a <= start + 0.01 and end <= b + 0.01 for row, a, b in spans if row == y - 24)
