"""The summary for people: what stands open, what is folded, and what is cut where there is no
room."""

from __future__ import annotations

import re

import msgspec
import pytest

from kgprof.analysis.redaction import redacted
from kgprof.model import Level, Location, PrivateNames, Profile
from kgprof.render.markdown import Markdown, code, fenced, prose
from tests.gathering import for_all
from tests.render import profiles


def with_findings(number: int) -> Profile:
    told = profiles.findings()
    found = [
        msgspec.structs.replace(
            told.findings[0], level=Level.WARNING, message=f"finding {i}", fingerprint=f"{i:012x}"
        )
        for i in range(number)
    ]
    return msgspec.structs.replace(told, findings=tuple(found))


def said(text: str) -> int:
    return len(re.findall(r"finding \d+", text))


def depth_at(text: str, what: str) -> int:
    """How many folded parts are open where ``what`` stands."""
    before = text[: text.index(what)]
    return before.count("<details>") - before.count("</details>")


def test_a_verdict_three_rows_a_cause_and_a_fix_stand_open_and_the_rest_is_folded() -> None:
    text = Markdown().render(with_findings(25))

    open_part = text[: text.index("<details>")]
    assert len([line for line in open_part.splitlines() if line.startswith("| `")]) == 3
    assert [
        part for part in ("**Finding:** `KGP501` ", "**What to do:** ") if part not in open_part
    ] == []
    assert said(open_part) == 1
    assert "<sub>15 more below</sub>\n" in text
    assert "| run | ms/step |" in text
    assert said(text) == 26
    assert depth_at(text, "finding 24") == 2
    assert depth_at(text, "**Where the time went**") == 1
    assert text.count("<details>") == text.count("</details>")


def test_the_table_of_runs_has_eight_metrics_at_most() -> None:
    (head,) = [
        line
        for line in Markdown().render(profiles.cuda()).splitlines()
        if line.startswith("| run | ms/step")
    ]

    assert head.count("|") <= 1 + 1 + 8


def test_each_finding_has_its_fix_as_code_or_why_there_is_none() -> None:
    told = with_findings(3)
    first, second, third = told.findings
    fixed = msgspec.structs.replace(first, fix="loss = loss.detach()")
    lacking = msgspec.structs.replace(second, no_fix="the library reads it <itself>")

    text = Markdown().render(
        msgspec.structs.replace(told, findings=(fixed, lacking, third), actions=())
    )

    lines = {
        name: line for line in text.splitlines() for name in re.findall(r"^- .*(finding \d)", line)
    }
    assert lines["finding 0"].endswith("; to try: `loss = loss.detach()`")
    assert lines["finding 1"].endswith("; no fix as code: the library reads it &lt;itself&gt;")
    assert "fix" not in lines["finding 2"]


def test_of_hundreds_of_findings_those_in_the_json_only_are_counted() -> None:
    text = Markdown(limit=10**6).render(with_findings(500))

    assert "<sub>490 more below, 290 of them in report.json only</sub>\n" in text
    assert said(text) == 211


@pytest.mark.parametrize("limit", [6_000, 20_000])
@pytest.mark.parametrize("state", ["huge", "hostile"])
@pytest.mark.parametrize("in_bytes", [False, True])
def test_what_does_not_fit_is_cut_on_a_row_and_every_folded_part_is_closed(
    limit: int, state: str, in_bytes: bool
) -> None:
    profile = profiles.STATES[state]()

    text = Markdown(limit=limit, in_bytes=in_bytes).render(profile)

    # then: what always stands there has a size of its own, which is below any limit that is in use
    if limit >= 20_000:
        assert (len(text.encode("utf-8")) if in_bytes else len(text)) <= limit
    assert len(re.findall(r"^<details>", text, re.MULTILINE)) == len(
        re.findall(r"^</details>", text, re.MULTILINE)
    )
    assert all(line.endswith(" |") for line in text.splitlines() if line.startswith("| "))
    assert text.rstrip("\n").splitlines()[-1].startswith("<sub>Reproduce: ")


def test_a_cut_says_how_many_rows_it_cost() -> None:
    text = Markdown(limit=12_000).render(profiles.huge())

    shown = sum(line.startswith("| strategy_") for line in text.splitlines())
    (cut,) = re.findall(r"\*([\d,]+) more runs cut; report.json has them\.\*", text)
    assert shown + int(cut) == len(profiles.huge().runs)


def test_the_report_is_linked_where_it_is_known_and_only_by_an_address() -> None:
    url = "https://github.com/o/r/actions/runs/123"

    assert f"[The whole report]({url})" in Markdown(report_url=url).render(profiles.clean())
    for none in ("", "javascript:alert(1)", "https://x.org/a)[b](c"):
        assert "The whole report" not in Markdown(report_url=none).render(profiles.clean())


def test_a_line_is_linked_at_the_commit_that_was_measured_and_only_at_one() -> None:
    profile = profiles.STATES["gate"]()
    repository = "https://github.com/owner/repository"
    clean = msgspec.structs.replace(
        profile.environment, git_commit="c0ffee", git_dirty=False, source_root="/src"
    )
    known = msgspec.structs.replace(profile, environment=clean)

    assert f"[`step.py:41`]({repository}/blob/c0ffee/step.py#L41)" in Markdown(
        source_url=repository
    ).render(known)
    for url, given in (("", known), (repository, profile), ("javascript:alert(1)", known)):
        assert "](" not in Markdown(source_url=url).render(given)


def test_what_is_code_in_a_sentence_is_code_and_nothing_else_means_anything() -> None:
    assert (
        prose("use torch.where or x.item() *here*", 100)
        == "use `torch.where` or `x.item()` \\*here\\*"
    )
    assert prose("a `tick`: mode='default'", 100) == "a \\`tick\\`: `mode='default'`"
    assert (code("a|b", 20, cell=True), code("<a`>", 20)) == ("`a\\|b`", "&lt;a\\`&gt;")


@pytest.mark.parametrize(
    ("limit", "shown"),
    [
        (60, "Call `model.encode(x)` with `mode='max autotune'` in `my_step`."),
        (49, "Call `model.encode(x)` with `mode='max autotune'` in…"),
        (46, "Call `model.encode(x)` with `mode='max autotune'`…"),
        (45, "Call `model.encode(x)` with…"),
        (21, "Call `model.encode(x)`…"),
        (20, "Call model.encode(x…"),
    ],
)
def test_a_sentence_is_cut_between_words_and_outside_of_code(limit: int, shown: str) -> None:
    assert prose("Call model.encode(x) with mode='max autotune' in my_step.", limit) == shown


@for_all(range(8, 60))
def test_no_cut_is_inside_backticks(limit: int) -> None:
    whole = "Call model.encode(x) with mode='max autotune' in my_step."
    sentence, cell = prose(whole, limit), code(whole, limit)

    assert [span for span in re.findall("`([^`]*)`", sentence + cell) if "…" in span] == []
    assert [len(shown.replace("`", "")) <= limit for shown in (sentence, cell)] == [True, True]
    assert [whole.startswith(re.sub("[`…]", "", shown)) for shown in (sentence, cell)] == [
        True,
        True,
    ]


def test_the_command_can_be_run_again_as_it_stands() -> None:
    profile = msgspec.structs.replace(
        profiles.clean(), command=("kgprof", "profile", "a b.py", "--", "--x=1 2")
    )

    assert "<sub>Reproduce: kgprof profile 'a b.py' -- '--x=1 2'</sub>\n" in Markdown().render(
        profile
    )


def test_the_box_says_what_the_text_contains_and_what_was_left_out() -> None:
    given = msgspec.structs.replace(profiles.empty(), command=("kgprof", "/home/bob/x.py"))

    text = Markdown().render(redacted(given, PrivateNames()))

    box = text[text.index("Contents of this file") :]
    assert "- Left out: home directories (1)\n" in box
    assert "- Source lines: 0 lines, only from the repository (--include-source repo)\n" in box
    assert "bob" not in text


def test_cause_is_said_of_a_comparison_alone() -> None:
    text = Markdown().render(with_findings(3))

    assert "**Finding:** `KGP501` " in text
    assert "**Cause:**" not in text


def with_a_changed_line(before: str, after: str) -> Profile:
    """The first cause is put down to a line of the change."""
    told = profiles.comparison()
    assert told.comparison is not None
    first, *others = told.comparison.causes
    first = msgspec.structs.replace(
        first,
        changed=Location("pkg/step.py", 41, "step", text=after),
        was=Location("pkg/step.py", 40, "step", text=before),
    )
    found = msgspec.structs.replace(told.comparison, causes=(first, *others))
    return msgspec.structs.replace(told, comparison=found)


def test_the_changed_line_stands_below_the_cause_as_a_diff() -> None:
    text = Markdown().render(with_a_changed_line("    n = 3", "    n = x.item()"))

    front = text[: text.index("<details>")]
    assert "\n```diff\n@@ step.py:41 @@\n- n = 3\n+ n = x.item()\n```\n" in front


def test_a_changed_line_cannot_close_its_fence_nor_begin_a_line_of_its_own() -> None:
    text = Markdown().render(with_a_changed_line("", "x = '''\n```\n# not a heading"))

    assert "\n````diff\n@@ step.py:41 @@\n+ x = ''' ``` # not a heading\n````\n" in text


def test_a_comment_on_a_comparison_repeats_no_cause_and_no_metric() -> None:
    text = Markdown().render(profiles.comparison())

    found = profiles.comparison().comparison
    assert found is not None
    assert text.count(found.causes[0].text) <= 1
    assert text.count("| step |") <= 1
    assert "Kernels of" not in text


def test_the_first_line_of_a_comparison_ends_with_a_clause() -> None:
    told = profiles.other_machine()
    clauses = [f"clause number {i} of a long verdict that says everything" for i in range(9)]
    verdict = msgspec.structs.replace(told.verdict, text="; ".join(clauses))
    text = Markdown().render(msgspec.structs.replace(told, verdict=verdict))

    (line,) = [line for line in text.splitlines() if line.startswith("❔")]
    assert line.endswith(f"; {clauses[3]}")


def test_a_line_of_code_is_no_command_of_the_job_that_prints_it() -> None:
    assert [*fenced("diff", ["- ##[error]x"])] == ["```diff", "- #\\#[error]x", "```"]
