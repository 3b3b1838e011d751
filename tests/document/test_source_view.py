"""The workload's files by line: figures, findings, graphs and code, under the same switch as all
source."""

from __future__ import annotations

import msgspec

from kgprof.analysis.redaction import redacted
from kgprof.document.source_view import left_out, source_view
from kgprof.document.table import Shown
from kgprof.model import PrivateNames, Profile, RunKey
from kgprof.render.html import LEVELS, MAX_BYTES, Html
from tests.render.page_states import annotated

NOBODY = PrivateNames()


def view(profile: Profile, level: int = 0) -> Shown:
    (found,) = source_view(profile, {"a" * 12: "KGP201-a"}, LEVELS[level])
    return found


def test_a_line_has_its_figures_and_leads_to_its_finding() -> None:
    found = view(annotated())
    (file,) = found["files"]
    lines = {line["number"]: line for line in file["lines"]}

    assert list(lines) == [str(number) for number in range(17, 25)]
    assert lines["20"]["code"] == "line_20 = 20"
    assert lines["20"]["findings"] == (("KGP201", "KGP201-a"),)
    assert lines["20"]["figures"][0] == lines["21"]["figures"][0] != ""
    assert not any(lines["22"]["figures"])
    assert file["name"] == "src/step.py"
    assert file["caption"].endswith("1 finding")


def test_graphs_and_code_are_a_click_away_and_say_where_the_whole_is() -> None:
    graph, code = view(annotated())["compiled"]

    assert graph["text"] == "class GraphModule:\n    pass\n"
    assert graph["more"] == ""
    assert len(code["text"]) < 300_000
    assert f"{300_007 - len(code['text']):,} more characters" in code["more"]
    assert "--to code" in code["more"]


def test_without_the_source_the_lines_keep_their_figures_and_one_sentence_names_the_switch() -> (
    None
):
    hidden = redacted(annotated(), NOBODY, source="none")
    found = view(hidden)

    assert [(line["number"], line["code"]) for line in found["files"][0]["lines"]] == [
        ("20", None),
        ("21", None),
    ]
    assert (
        found["files"][0]["lines"][0]["figures"]
        == view(annotated())["files"][0]["lines"][3]["figures"]
    )
    assert found["compiled"] == ()
    assert "--include-source repo" in left_out(hidden)
    assert left_out(annotated()) == ""
    assert "line_20" not in Html().render(hidden)


def test_a_run_on_another_strategy_has_no_line_of_it() -> None:
    profile = annotated()
    other = RunKey(strategy="other", mode="eager")
    kept = msgspec.structs.replace(
        profile, findings=(msgspec.structs.replace(profile.findings[0], run=other),)
    )

    assert all(not line["findings"] for line in view(kept)["files"][0]["lines"])


def test_the_page_gives_the_view_up_before_it_grows_too_large() -> None:
    profile = annotated("".join(f"{'y' * 150} = {number}\n" for number in range(4000)))
    rows = [
        len(file["lines"])
        for level in range(len(LEVELS) - 4)
        for file in view(profile, level)["files"]
    ]

    assert len(Html().render(profile).encode()) <= MAX_BYTES
    assert max(rows) <= 300
    assert source_view(profile, {}, LEVELS[-1]) == ()
