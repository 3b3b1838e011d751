"""Several runs, one finding."""

from __future__ import annotations

import msgspec
import pytest

from kgprof.document.finding_list import grouped, said_cost, times
from kgprof.model import Finding, FindingCost, Level, Location, PassName, Refusal, TorchCause
from kgprof.render import by_name
from tests.render import profiles

EAGER, DEFAULT = profiles.KEYS[:2]
HERE = Location(file="step.py", line=3)


def found(
    message: str, *, place: Location | None = None, run: bool = True, second: bool = False
) -> Finding:
    key = DEFAULT if second else EAGER
    return Finding(
        rule="KGP106",
        level=Level.WARNING,
        message=message,
        run=key if run else None,
        location=place,
        fingerprint=str(second),
    )


def test_equal_messages_are_one_with_all_their_runs() -> None:
    findings = (
        found("compiled anew"),
        found("something else"),
        found("compiled anew", second=True),
    )

    assert [group.message for group in grouped(findings)] == [
        "batched.eager, batched.default: compiled anew",
        "batched.eager: something else",
    ]


def test_a_message_that_stands_alone_names_its_run_where_no_place_tells() -> None:
    assert found("odd").alone == "batched.eager: odd"
    assert found("odd", place=HERE).alone == "odd"
    assert found("odd", run=False).alone == "odd"


def test_other_places_and_no_run_stay_apart() -> None:
    findings = (found("odd"), found("odd", place=HERE, second=True), found("of no run", run=False))

    assert [group.message for group in grouped(findings)] == [
        "batched.eager: odd",
        "batched.default: odd",
        "of no run",
    ]


@pytest.mark.parametrize("name", ["html", "text", "markdown"])
def test_every_renderer_for_people_says_it_once_with_the_runs(name: str) -> None:
    same = (found("compiled anew"), found("compiled anew", second=True))
    profile = msgspec.structs.replace(profiles.clean(), findings=same)

    shown = by_name(name).render(profile)

    # the page names the costliest ones above as well, in its three answers
    listed = (
        shown.partition('<section aria-labelledby="findings">')[2]
        or shown.partition("<details>")[2]
        or shown
    )
    assert listed.count("compiled anew") == 1
    assert shown.count("batched.eager, batched.default") == 1


def test_what_is_accepted_stays_apart_from_what_is_not() -> None:
    accepted = msgspec.structs.replace(found("odd"), accepted="ada: known")

    assert [group.members for group in grouped((found("odd"), accepted))] == [
        (found("odd"),),
        (accepted,),
    ]


@pytest.mark.parametrize(
    ("counts", "times"),
    [((1, 1), ""), ((0, 0), ""), ((3, 3), "3 times"), ((1, 1200), "1\N{EN DASH}1,200 times")],
)
def test_how_often_is_a_range_over_the_runs(counts: tuple[int, int], times: str) -> None:
    first, second = (
        msgspec.structs.replace(found("odd", second=bool(i)), count=count)
        for i, count in enumerate(counts)
    )

    assert [group.times for group in grouped((first, second))] == [times]


@pytest.mark.parametrize(
    ("said", "shown"), [("read 4 times a step", ""), ("read 14 times a step", "4 times")]
)
def test_how_often_is_not_said_twice(said: str, shown: str) -> None:
    assert times([msgspec.structs.replace(found(said), count=4)]) == shown


def test_what_torch_refused_it_met_as_often_while_it_compiled() -> None:
    """A line that breaks the graph in each of 12 calls may have been compiled twice."""
    refused = Refusal(cause=TorchCause(kind="Data-dependent branching"))
    broken = msgspec.structs.replace(found("breaks"), count=2, refusal=refused)

    assert times([broken]) == "2 times while compiling"


def test_the_cost_of_several_runs_is_a_range_in_one_unit() -> None:
    def costs(value: float, unit: str = "us/step", samples: int = 17) -> Finding:
        cost = FindingCost(
            value=value,
            unit=unit,
            what="it waited",
            measured_in=(PassName.MEMORY,),
            samples=samples,
        )
        return msgspec.structs.replace(found("read", second=samples != 17), cost=cost)

    (both,) = grouped((costs(280.0), costs(310.0, samples=20), found("read")))
    (unlike,) = grouped((costs(280.0), costs(3.0, "s", samples=1)))
    (unknown,) = grouped((found("read"),))

    assert both.cost == "280\N{EN DASH}310 µs per step (it waited; MEMORY, n = 17\N{EN DASH}20)"
    assert (unlike.cost, unknown.cost) == ("", "")


def test_a_cost_says_how_far_its_samples_lie_apart() -> None:
    first, second = (
        FindingCost(
            value=value,
            unit="us/step",
            what="it waited",
            measured_in=(PassName.MEMORY,),
            samples=17,
            extremes=extremes,
        )
        for value, extremes in ((280.0, (270.0, 291.0)), (310.0, (305.0, 400.0)))
    )

    assert said_cost([first]) == "280 µs per step (it waited; MEMORY, 270\N{EN DASH}291, n = 17)"
    assert said_cost([first, second]) == (
        "280\N{EN DASH}310 µs per step (it waited; MEMORY, 270\N{EN DASH}400, n = 17)"
    )


@pytest.mark.parametrize("name", ["html", "text", "markdown"])
def test_every_renderer_for_people_says_the_cost(name: str) -> None:
    cost = FindingCost(
        value=310.0, unit="us/step", what="it waited", measured_in=(PassName.MEMORY,), samples=17
    )
    same = msgspec.structs.replace(found("compiled anew"), cost=cost)

    shown = by_name(name).render(msgspec.structs.replace(profiles.clean(), findings=(same,)))

    assert "costs 310 µs per step (it waited; MEMORY, n = 17)" in " ".join(shown.split())
