"""The file of accepted findings: read with every fault, written so that it reads back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgprof.collectors.trust import accepted
from kgprof.model import AcceptedEntry, Folded, PackageLine
from tests.gate.gated import ROOT, entry, finding

WHOLE = """
[[accepted]]
rule = "KGP101"
file = "src/model.py"
function = "step"
gb = "GB0059"
reason = "it is a demo"
owner = "ana"
expires = 2027-01-31
"""


def parse(text: str) -> tuple[tuple[AcceptedEntry, ...], list[str]]:
    faults: list[str] = []
    return accepted.parse(text, "a.toml", faults), faults


def test_a_whole_entry_is_read() -> None:
    assert parse(WHOLE) == ((entry(gb="GB0059"),), [])
    assert parse(WHOLE.replace("2027-01-31", '"2027-01-31"')) == ((entry(gb="GB0059"),), [])
    assert parse("") == ((), [])


@pytest.mark.parametrize(
    ("line", "instead", "expected"),
    [
        ('reason = "it is a demo"\n', "", "reason is missing"),
        ('owner = "ana"\n', "", "owner is missing"),
        ("expires = 2027-01-31\n", "", "expires is missing"),
        ('reason = "it is a demo"', 'reason = "  "', "reason is empty; fill it in"),
        ('owner = "ana"', 'owner = ""', "owner is empty; fill it in"),
        ("2027-01-31", '"soon"', "expires must be a date such as 2027-06-30, not 'soon'"),
        ("2027-01-31", "2027-01-31T00:00:00", "expires must be a date"),
        ('gb = "GB0059"', 'id = "GB0059"', "unknown key 'id'"),
        ("[[accepted]]", "[[acepted]]", "unknown key 'acepted' (did you mean accepted?)"),
        ("[[accepted]]", "[accepted]", "accepted must be written as [[accepted]]"),
        ('owner = "ana"', "owner = ", "a.toml: "),
    ],
)
def test_a_fault_is_said_and_the_entry_accepts_nothing(
    line: str, instead: str, expected: str
) -> None:
    entries, faults = parse(WHOLE.replace(line, instead))

    assert entries == ()
    assert len(faults) == 1
    assert expected in faults[0]


@pytest.mark.parametrize("prefix", ["/home/a/.venv/lib/python3.12/", "/opt/conda/lib/python3.11/"])
def test_an_entry_of_an_installed_workload_holds_in_every_environment(prefix: str) -> None:
    found = finding("KGP101", file=f"{prefix}site-packages/shop/model.py")

    (new,) = accepted.updated((), (found,), root=ROOT, expires="2027-01-31", keep_unused=False)

    assert new.file == "site-packages/shop/model.py"
    # by an older kgprof
    entered = msgspec.structs.replace(new, file="/somewhere/else/site-packages/shop/model.py")
    assert accepted.matches(entered, found, ROOT)
    assert not accepted.matches(msgspec.structs.replace(new, file="shop/model.py"), found, ROOT)


def test_the_faults_of_all_entries_are_said() -> None:
    _, faults = parse(WHOLE.replace('"ana"', '""') + WHOLE.replace('"it is a demo"', '""'))

    assert faults == [
        "a.toml: entry 1 (KGP101 src/model.py): owner is empty; fill it in",
        "a.toml: entry 2 (KGP101 src/model.py): reason is empty; fill it in",
    ]


def test_an_update_keeps_reasons_drops_what_is_gone_and_leaves_new_ones_to_be_filled_in() -> None:
    gone, kept, expired = entry("KGP103"), entry(), entry("KGP102", expires="2020-01-01")
    found = [
        finding(),
        finding("KGP102"),
        finding(function="other"),
        finding(function="other", line=90),
    ]

    entries = accepted.updated(
        (gone, kept, expired), found, root=ROOT, expires="2027-02-19", keep_unused=False
    )

    new = AcceptedEntry(
        rule="KGP101",
        file="src/model.py",
        function="other",
        gb="GB0059",
        reason="",
        owner="",
        expires="2027-02-19",
    )
    assert entries == (kept, expired, new)
    _, faults = parse(accepted.write(entries))
    assert [fault.partition(": ")[2].partition(": ")[2] for fault in faults] == [
        "reason is empty; fill it in",
        "owner is empty; fill it in",
    ]


LIBRARY = PackageLine(
    package="transformers", version="4.57.1", file="modeling_utils.py", line=4769, function="warn"
)
IN_LIBRARY = "transformers/modeling_utils.py:warn"


def test_an_entry_from_the_time_when_a_line_was_one_finding_accepts_all_that_it_stood_for() -> None:
    first, second = (
        Folded(gb_id="GB0059", into_fallen=False),
        Folded(gb_id="GB0059", into_fallen=True),
    )
    of_another_cause = finding(gb="GB0124", library=LIBRARY, folded=first)
    beside_a_fallen_frame = finding(gb="GB0124", folded=second)

    assert accepted.matches(entry(gb="GB0059"), of_another_cause, ROOT)
    assert accepted.matches(entry("KGP102", gb="GB0059"), beside_a_fallen_frame, ROOT)
    assert not accepted.matches(entry("KGP102", gb="GB0059"), of_another_cause, ROOT)
    assert not accepted.matches(entry(gb="GB0124"), finding(folded=first), ROOT)


def test_a_new_entry_accepts_what_happens_in_that_function_of_the_library() -> None:
    found = finding(gb="GB0124", library=LIBRARY, folded=Folded(gb_id="GB0059", into_fallen=False))

    (new,) = accepted.updated((), (found,), root=ROOT, expires="2027-01-31", keep_unused=False)

    assert (new.gb, new.library) == ("GB0124", IN_LIBRARY)
    upgraded = msgspec.structs.replace(LIBRARY, version="5.0", line=4801)
    assert accepted.matches(new, finding(gb="GB0124", library=upgraded), ROOT)
    assert not accepted.matches(new, finding(gb="GB0124"), ROOT)
    elsewhere = msgspec.structs.replace(LIBRARY, function="other")
    assert not accepted.matches(new, finding(gb="GB0124", library=elsewhere), ROOT)
    stated = msgspec.structs.replace(new, reason="it warns once", owner="ana")
    assert parse(accepted.write((stated,))) == ((stated,), [])


def test_an_update_of_a_part_keeps_what_it_could_not_see() -> None:
    assert accepted.updated((entry(),), [], root=ROOT, expires="2027-02-19", keep_unused=True) == (
        entry(),
    )


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text == text.strip() != ""
)


@given(
    st.lists(
        st.builds(
            AcceptedEntry,
            rule=names,
            file=names,
            function=names,
            gb=names,
            reason=names,
            owner=names,
            expires=st.dates().map(str),
        )
    )
)
def test_what_is_written_reads_back(entries: list[AcceptedEntry]) -> None:
    assert parse(accepted.write(entries)) == (tuple(entries), [])
