"""Texts that try to be more than text, in every string field that a Profile has, through every
renderer."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from html.parser import HTMLParser

import jsonschema
import msgspec
import pytest

from kgprof.model import BASE_PAGE, Profile, Skipped
from kgprof.render import RENDERERS, Renderer, by_name, embedded_profile
from kgprof.render import json as json_renderer
from kgprof.render.html import MAX_BYTES
from kgprof.render.markdown import LIMIT as MARKDOWN_LIMIT
from kgprof.wording import visible
from tests.contract.test_renderers import OURS, tokens
from tests.render import profiles
from tests.render.everything import Maker, everything, string_fields
from tests.render.test_junit import parsed as parsed_junit
from tests.render.test_sarif import rendered as validated_sarif

# What each field gets: with as many shifts as there are texts, every text stands in every field
# once.
SHIFTS = range(len(profiles.HOSTILE))
every_shift = pytest.mark.parametrize("shift", SHIFTS)


@cache
def hostile(shift: int) -> Profile:
    """Odd shifts have a reason wherever something can be skipped, even ones have the thing
    itself."""
    texts = profiles.HOSTILE[shift:] + profiles.HOSTILE[:shift]
    return everything(texts, skipped=bool(shift % 2))


class Parts(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text.append(data)


def test_every_string_field_of_the_model_is_filled() -> None:
    filled: set[tuple[str, str]] = set()
    for skipped in (False, True):
        maker = Maker(["x"], skipped=skipped)
        maker.of(Profile)
        filled |= maker.filled

    assert filled >= string_fields()
    # then: among them are those of the parts that came last, so the walk goes down into them
    assert {
        ("ComparedMetric", "note"),
        ("Cause", "text"),
        ("ChangedFact", "head"),
        ("Skipped", "reason"),
    } <= filled


@cache
def known_attributes() -> set[str]:
    """Those of pages whose texts are ours."""
    pages = (
        by_name("html").render(profiles.STATES[state]())
        for state in ("comparison", "cuda", "gate", "watched")
    )
    return {name for page in pages for name, _ in Parts(page).attributes}


@cache
def page_of(shift: int) -> str:
    return by_name("html").render(hostile(shift))


@every_shift
def test_html_takes_nothing_for_more_than_text(shift: int) -> None:
    text = page_of(shift)
    page = Parts(text)

    # the page's own, the Profile, and the events of steps
    assert page.tags["script"] == (2 if shift % 2 else 3)
    assert page.tags["style"] == 1
    assert not {"img", "iframe", "link", "object", "embed", "base", "form"} & set(page.tags)
    assert {name for name, _ in page.attributes} <= known_attributes()
    # a comparison leads to base's own page, under a name of ours
    assert {
        value for name, value in page.attributes if name == "href" and not value.startswith("#")
    } <= {BASE_PAGE}
    shown = "".join((*page.text, *(value for _, value in page.attributes)))
    assert visible(shown, keep="\n\t") == shown
    assert len(text.encode("utf-8")) <= MAX_BYTES


@pytest.mark.parametrize("renderer", RENDERERS, ids=lambda renderer: renderer.name)
@every_shift
def test_no_format_writes_what_steers_a_terminal(renderer: Renderer, shift: int) -> None:
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f]", renderer.render(hostile(shift))) == []


@every_shift
def test_what_the_page_carries_is_what_was_given(shift: int) -> None:
    text = page_of(shift)

    found = embedded_profile.embedded_in(text, "x.html")

    assert found.profile == (
        embedded_profile.comparable(hostile(shift)) if found.left_out else hostile(shift)
    )


@every_shift
def test_json_is_the_profile_and_fits_its_schema(shift: int) -> None:
    text = by_name("json").render(hostile(shift))

    assert msgspec.json.decode(text, type=Profile) == hostile(shift)
    jsonschema.Draft202012Validator(json_renderer.schema()).validate(json.loads(text))


@every_shift
def test_markdown_holds_no_html_link_image_or_table_but_its_own(shift: int) -> None:
    text = by_name("markdown").render(hostile(shift))
    found = tokens(text)

    foreign = [t.content for t in found if t.type in ("html_inline", "html_block")]
    assert [content for content in foreign if "<" in OURS.sub("", content)] == []
    blocks = [t for t in found if t.type in ("link_open", "image", "fence", "code_block")]
    # then: a fence is the changed line of a comparison, and ends where it was meant to
    assert [t.info for t in blocks] in ([], ["diff"])
    assert all(line[:2] in ("@@", "- ", "+ ") for t in blocks for line in t.content.splitlines())
    assert [t.tag for t in found if t.type == "heading_open"] == ["h3"]
    assert visible(text, keep="\n") == text
    # then: a code span ends where it was meant to; what GitHub would link in it is no link there
    outside = " ".join(t.content for t in found if t.type == "text")
    assert "@someone" not in outside
    assert not re.search(r"^::", text, re.MULTILINE)
    assert len(text) <= MARKDOWN_LIMIT
    # then: no cell holds a bar of its own
    for line in text.splitlines():
        if line.startswith("| "):
            assert line.endswith(" |")


@every_shift
def test_sarif_is_valid_and_complete(shift: int) -> None:
    run = validated_sarif(hostile(shift))

    assert len(run["results"]) == len(hostile(shift).findings)
    assert visible(json.dumps(run, ensure_ascii=False), keep="\n\t") == json.dumps(
        run, ensure_ascii=False
    )


@every_shift
def test_junit_is_well_formed(shift: int) -> None:
    root = parsed_junit(hostile(shift))

    assert root.findall(".//testcase")
    assert {element.tag for element in root.iter()} <= {
        *(
            "testsuites",
            "testsuite",
            "testcase",
            "properties",
            "property",
            "failure",
            "error",
            "system-out",
        ),
    }


@every_shift
def test_annotations_are_ours_alone(shift: int) -> None:
    lines = by_name("github").render(hostile(shift)).splitlines()

    assert lines
    assert [
        line for line in lines if not re.fullmatch(r"::(error|warning|notice) [^:]*::.*", line)
    ] == []
    assert max(Counter(line.split(" ", 1)[0] for line in lines).values()) <= 10


@every_shift
def test_the_terminal_is_not_steered(shift: int) -> None:
    # given: the Profile as it is, and as its runs, its gate and its comparison alone are shown
    whole = hostile(shift)
    plain = msgspec.structs.replace(whole, gate=None, comparison=None)
    gated = msgspec.structs.replace(whole, comparison=None)

    for profile in (whole, plain, gated):
        text = by_name("text").render(profile)
        assert visible(text, keep="\n") == text
        assert not [
            line for line in text.splitlines() if line.lstrip().startswith("::") or "##[" in line
        ]


def test_skipped_and_present_both_occur() -> None:
    present, absent = hostile(0), hostile(1)

    assert not isinstance(present.runs[0].kernels, Skipped)
    assert isinstance(absent.runs[0].kernels, Skipped)
    assert present.comparison is not None
    assert absent.comparison is None
