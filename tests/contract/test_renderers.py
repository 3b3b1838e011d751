"""Every renderer over every state of a report: the same bytes twice, nothing from outside taken for
more than text, and no renderer that says something else than the JSON."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from functools import cache
from html.parser import HTMLParser

import click
import jsonschema
import msgspec
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from kgprof import render
from kgprof.cli import verbs
from kgprof.document import summary
from kgprof.document.build import FINDINGS
from kgprof.document.finding_list import grouped
from kgprof.document.limits import MORE_KERNELS, TOP_KERNELS
from kgprof.model import DeviceIdle, HostSpan, KernelBreakdown, Location, Profile
from kgprof.render import RENDERERS, Renderer, by_name, embedded_profile
from kgprof.render import json as json_renderer
from kgprof.render import markdown as markdown_renderer
from kgprof.render.html import MAX_BYTES
from kgprof.wording import visible
from tests.gathering import for_all
from tests.render import profiles

every_renderer = pytest.mark.parametrize("renderer", RENDERERS, ids=lambda renderer: renderer.name)
every_state = pytest.mark.parametrize("state", profiles.STATES)
# Of these the terminal has lines of their own: tests/render/test_gate_table_in_text.py,
# test_compare_words_in_text.py.
GATED = ("gate", "hostile_gate")
COMPARED = ("comparison", "other_machine", "hostile_comparison")


@cache
def rendered(name: str, state: str) -> str:
    """Once for all that is asked of it: a large page takes a second."""
    return by_name(name).render(profiles.STATES[state]())


@every_state
@for_all(RENDERERS, lambda renderer: renderer.name)
def test_the_same_profile_gives_the_same_bytes(renderer: Renderer, state: str) -> None:
    first = rendered(renderer.name, state)
    second = renderer.render(profiles.STATES[state]())

    assert first.encode("utf-8") == second.encode("utf-8")
    assert first.endswith("\n")


@every_renderer
def test_names_and_suffixes_are_told_apart(renderer: Renderer) -> None:
    assert by_name(renderer.name) is renderer
    assert [other for other in RENDERERS if other.suffix == renderer.suffix] == [renderer]


def test_the_help_of_the_option_names_every_format() -> None:
    option = next(param for param in verbs.report.params if param.name == "outputs")
    record = option.get_help_record(click.Context(verbs.report))

    assert record is not None
    said = record[1]
    assert [
        renderer.name for renderer in RENDERERS if not re.search(rf"\b{renderer.name}\b", said)
    ] == []


def test_every_renderer_of_the_room_is_listed() -> None:
    # given: a class with a suffix and a render method is a renderer
    found = set()
    for module in pkgutil.iter_modules(render.__path__):
        members = vars(importlib.import_module(f"kgprof.render.{module.name}"))
        found |= {
            item
            for item in members.values()
            if isinstance(item, type) and hasattr(item, "suffix") and hasattr(item, "render")
        }

    assert found == {type(renderer) for renderer in RENDERERS}


# ---------------------------------------------------------------- JSON


@every_state
def test_json_holds_the_whole_profile_and_fits_its_schema(state: str) -> None:
    text = rendered("json", state)

    assert msgspec.json.decode(text, type=Profile) == profiles.STATES[state]()
    document = json.loads(text)
    document["runs"] = document["runs"][:6]  # the forty of the huge one are alike
    jsonschema.Draft202012Validator(json_renderer.schema()).validate(document)


def test_the_schema_refuses_what_is_no_profile() -> None:
    document = json.loads(by_name("json").render(profiles.clean()))
    document["runs"][0]["step"]["median"] = "fast"

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json_renderer.schema()).validate(document)


# ---------------------------------------------------------------- HTML


class Elements(HTMLParser):
    """Elements, attributes and text as a browser's parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@every_state
def test_html_is_one_file_with_one_style_and_one_script(state: str) -> None:
    text = rendered("html", state)

    page = Elements(text)
    links = [value for name, value in page.attributes if name == "href"]
    ids = [value for name, value in page.attributes if name == "id"]

    assert len(text.encode("utf-8")) <= MAX_BYTES
    assert page.tags.count("style") == 1
    # then: one of the scripts runs; the others, the Profile and the events of steps, are of types
    # that no browser runs
    data = [value for name, value in page.attributes if name == "type" and "/" in value]
    assert page.tags.count("script") == 1 + len(data)
    assert data in ([embedded_profile.TYPE], ["application/gzip", embedded_profile.TYPE])
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert not [
        name for name, _ in page.attributes if name.startswith("on") or name in ("style", "src")
    ]
    assert [link for link in links if not link.startswith("#")] == []
    assert [link for link in links if link.removeprefix("#") not in ids] == []
    assert len(ids) == len(set(ids))


def test_html_shows_hostile_strings_as_they_are_written() -> None:
    page = Elements(rendered("html", "hostile"))
    shown = " ".join(" ".join(page.text).split())

    for hostile in profiles.HOSTILE:
        assert " ".join(visible(hostile, keep="\n\t").split())[:100] in shown


def test_html_shows_every_text_of_findings_gate_checklist_and_trade_offs_as_text() -> None:
    # given: a tag in each field that a page shows
    told, gated = profiles.watched(), profiles.gate()
    gate = gated.gate
    assert gate is not None
    place = Location(file="<b>file</b>", line=1, function="<b>function</b>", text="<b>line</b>")
    replace = msgspec.structs.replace
    first = replace(
        gated.findings[0],
        message="<b>message</b>",
        detail="one\n<b>detail</b>",
        related=(place,),
        accepted="<b>accepted</b>",
    )
    profile = replace(
        gated,
        findings=(first, *gated.findings[1:]),
        checklist=(replace(told.checklist[1], title="<b>title</b>", evidence="<b>evidence</b>"),),
        trade_offs=(replace(told.trade_offs[0], text="<b>text</b>", verdict="<b>verdict</b>"),),
        gate=replace(
            gate,
            backend="<b>backend</b>",
            notes=("<b>note</b>",),
            budgets=(
                replace(
                    gate.budgets[0],
                    metric="<b>metric</b>",
                    origin="<b>origin</b>",
                    unit="<b>unit</b>",
                ),
            ),
            accepted=(
                replace(
                    gate.accepted[0],
                    reason="<b>reason</b>",
                    owner="<b>owner</b>",
                    file="<b>path</b>",
                ),
            ),
        ),
    )

    page = by_name("html").render(profile)

    said = set(re.findall(r"&lt;b&gt;(\w+)&lt;/b&gt;", page))
    assert said == {
        *("message", "detail", "file", "function", "line", "accepted"),
        *("backend", "note", "metric", "origin", "unit", "reason", "owner", "path"),
        *("title", "evidence", "text", "verdict"),
    }
    assert "<b>" not in page


@pytest.mark.parametrize("name", ["html", "markdown"])
def test_source_lines_and_what_the_device_waited_for_are_text(name: str) -> None:
    # given: a tag in each string that the kernels' origins show
    told = profiles.cuda()
    replace = msgspec.structs.replace
    kernels = told.runs[1].kernels
    assert isinstance(kernels, KernelBreakdown)
    assert isinstance(kernels.idle, DeviceIdle)
    place = Location(file="<b>file</b>", line=1, function="<b>function</b>")
    tagged = replace(
        kernels,
        rows=(replace(kernels.rows[0], lines=(place, place)),),
        idle=replace(kernels.idle, host_spans=(HostSpan(name="<b>host</b>", total_us=1.0),)),
        by_region=(replace(kernels.by_region[0], span="<b>region</b>"), kernels.by_region[1]),
        by_span=(replace(kernels.by_span[0], span="<b>span</b>"), kernels.by_span[1]),
    )

    page = by_name(name).render(replace(told, runs=(replace(told.runs[1], kernels=tagged),)))

    assert "<b>" not in page
    if name == "html":
        assert set(re.findall(r"&lt;b&gt;(\w+)&lt;/b&gt;", page)) == {
            "file",
            "function",
            "host",
            "region",
            "span",
        }


@every_state
def test_html_counts_what_the_json_counts(state: str) -> None:
    profile = profiles.STATES[state]()
    text = rendered("html", state)

    assert len(re.findall(r'<li id="KGP\d+-[^"]*"', text)) == (
        0 if state.startswith("hostile") else len(grouped(profile.findings))
    )
    assert len(re.findall(r'<tr id="run-\d+"', text)) == (
        0 if state in GATED else len(profile.runs)
    )
    # as many as are listed
    assert f'<span class="tally">{len(grouped(profile.findings)):,}</span>' in text
    assert f'<section class="verdict {summary.tone(profile)}"' in text


def test_a_page_that_grows_too_large_says_what_it_left_out() -> None:
    text = rendered("html", "huge")

    assert "Omitted to stay under 1 MB" in text
    assert "the logs" in text
    (names,) = re.findall(r"([\d,]+) kernel names \(their sum stands in each table", text)
    # then: of those that a page with room shows of each of the 40 runs; what lies beyond is on no
    # page
    assert int(names.replace(",", "")) <= 40 * (TOP_KERNELS + MORE_KERNELS)
    assert "a log line that says something" not in text


@pytest.mark.parametrize("times", [8, pytest.param(40, marks=pytest.mark.long)])
def test_no_profile_is_too_large_for_the_page(times: int) -> None:
    # given: hundreds or thousands of runs
    profile = profiles.huge()
    larger = msgspec.structs.replace(
        profile, runs=profile.runs * times, findings=profile.findings * times
    )

    text = by_name("html").render(larger)

    assert len(text.encode("utf-8")) <= MAX_BYTES
    assert f"of {len(larger.runs):,} runs" in text


# ---------------------------------------------------------------- Markdown

OURS = re.compile(r"</?(?:br|sub|s|details|summary)>|<!-- -->")


def tokens(text: str) -> list[Token]:
    flat = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        flat += [token, *(token.children or [])]
    return flat


@every_state
def test_markdown_holds_no_html_link_or_image_but_its_own(state: str) -> None:
    found = tokens(rendered("markdown", state))

    foreign = [
        t.content
        for t in found
        if t.type in ("html_inline", "html_block") and OURS.sub("", t.content).strip()
    ]
    assert [content for content in foreign if "<" in OURS.sub("", content)] == []
    assert [t.type for t in found if t.type in ("link_open", "image", "fence", "code_block")] == []
    assert [t.tag for t in found if t.type == "heading_open"] == ["h3"]


@every_state
def test_markdown_tables_have_one_row_a_run_and_no_torn_row(state: str) -> None:
    profile = profiles.STATES[state]()
    text = rendered("markdown", state)

    rows: list[int] = []
    for token in tokens(text):
        if token.type == "tr_open":
            rows.append(0)
        rows[-1:] = [rows[-1] + 1] if token.type in ("th_open", "td_open") else rows[-1:]
    lines = [line for line in text.splitlines() if line.startswith("| ")]

    assert len(rows) == len([line for line in lines if not line.startswith("| :--")])
    assert len(text) <= markdown_renderer.LIMIT
    if state != "huge":
        said = sum(text.count(sign) for sign in ("❌ **", "⚠️ **", "ℹ️ **", "- <s>**"))  # noqa: RUF001
        assert said >= min(len(grouped(profile.findings)), FINDINGS)


def test_markdown_mentions_nobody() -> None:
    text = rendered("markdown", "hostile")

    assert "@someone" not in text
    assert "@<!-- -->someone" in text


def test_markdown_that_grows_too_long_is_cut_on_row_edges_and_says_so() -> None:
    profile = profiles.huge()

    text = by_name("markdown").render(msgspec.structs.replace(profile, runs=profile.runs * 10))
    runs = [line for line in text.splitlines() if line.startswith("| strategy_")]

    assert len(text) <= markdown_renderer.LIMIT
    assert all(line.endswith(" |") for line in runs)
    assert re.search(
        r"\*(?:[\d,]+ more \w+ cut; report.json holds them|Cut at 60,000 characters)", text
    )


# ---------------------------------------------------------------- text


@every_state
def test_text_is_plain_and_no_wider_than_asked(state: str) -> None:
    text = rendered("text", state)

    assert visible(text, keep="\n\N{ZERO WIDTH JOINER}") == text
    assert state in (*GATED, *COMPARED) or max(len(line) for line in text.splitlines()) <= 120


@pytest.mark.parametrize("state", ["hostile", "hostile_gate"])
def test_text_steers_no_ci_system(state: str) -> None:
    text = rendered("text", state)

    assert not [line for line in text.splitlines() if line.strip().startswith("::")]


@pytest.mark.parametrize(
    "state", [state for state in profiles.STATES if state not in (*GATED, *COMPARED)]
)
def test_text_says_every_finding_and_every_run(state: str) -> None:
    profile = profiles.STATES[state]()
    words = " ".join(rendered("text", state).split())

    assert len(re.findall(r"(?:error|warning|note) KGP\d{3}: ", words)) == (
        0 if state.startswith("hostile") else len(grouped(profile.findings))
    )
    assert summary.status_word(profile).upper() in words
