"""What a report carries comes back as it was, and nothing that merely looks like a report is taken
for one."""

from __future__ import annotations

import base64
import gzip
import re
from functools import cache
from pathlib import Path

import msgspec
import pytest

from kgprof.document.limits import Share
from kgprof.errors import InputError
from kgprof.model import PROFILE_SCHEMA_VERSION, KernelBreakdown, LogExcerpt, Profile, Skipped
from kgprof.render import embedded_profile
from kgprof.render.embedded_profile import LONG
from kgprof.render.html import LEVELS, MAX_BYTES, Html
from tests.render import profiles


def page_with(data: bytes, left_out: str = "") -> str:
    """A report of ours whose carried Profile is replaced by ``data``, packed as ours is."""
    text = base64.b64encode(gzip.compress(data)).decode()
    return page_with_text(text, left_out)


def page_with_text(text: str, left_out: str = "") -> str:
    page = Html().render(profiles.empty())
    return re.sub(
        r'(<script[^>]* id="profile" data-left-out=")"(>)[^<]*',
        lambda m: f'{m[1]}{left_out}"{m[2]}{text}',
        page,
    )


@pytest.mark.parametrize("state", [state for state in profiles.STATES if state != "huge"])
def test_the_profile_comes_back_as_it_was(state: str) -> None:
    profile = profiles.STATES[state]()

    found = embedded_profile.embedded_in(Html().render(profile), "report.html")

    assert found.profile == profile
    assert found.left_out == ()


def test_the_same_profile_is_packed_into_the_same_text() -> None:
    first, second = (embedded_profile.packed(profiles.clean(), Share.WHOLE).text for _ in range(2))
    header = base64.b64decode(first)[:10]

    assert first == second
    # then: neither a time nor the operating system, which Python versions write differently, is in
    # gzip's header
    assert header == b"\x1f\x8b\x08\x00" + bytes(4) + b"\x02\xff"


def test_a_page_saved_by_a_browser_or_sent_through_another_system_is_read() -> None:
    # given: another line end, lines broken, one before the document type
    text = Html().render(profiles.clean())
    broken = re.sub(r"[A-Za-z0-9+/]{76}", r"\g<0>\n", text[text.index('id="profile"') :])
    sent = "\r\n".join(("<!-- saved from url=(0014)about:internet -->", *text.splitlines()))

    assert embedded_profile.embedded_in(sent).profile == profiles.clean()
    assert (
        embedded_profile.embedded_in(text[: text.index('id="profile"')] + broken).profile
        == profiles.clean()
    )


def test_of_a_large_profile_what_a_comparison_reads_is_carried() -> None:
    # given: as many runs as fit only without their logs and lanes
    profile = profiles.huge()
    profile = msgspec.structs.replace(profile, runs=profile.runs[:19])

    text = Html().render(profile)
    found = embedded_profile.embedded_in(text, "report.html")

    assert len(text.encode()) <= MAX_BYTES
    assert found.left_out == LONG
    assert found.profile == embedded_profile.comparable(profile)
    for run, whole in zip(found.profile.runs, profile.runs, strict=True):
        assert isinstance(run.kernels, KernelBreakdown)
        assert isinstance(whole.kernels, KernelBreakdown)
        assert run.kernels.rows == whole.kernels.rows
        assert isinstance(run.kernels.timeline, Skipped)
        assert run.log == LogExcerpt(text="", left_out_bytes=12_345 + len(whole.log.text))
    parts = (
        "the logs, the timelines, the step times and memory curves, the CPU functions, the "
        "roofline, the source files and the graphs and their code"
    )
    assert f"parts of the embedded Profile that kgprof compare does not need: {parts}" in text


def test_a_report_that_is_too_large_to_carry_anything_says_so() -> None:
    profile = profiles.huge()
    text = Html().render(msgspec.structs.replace(profile, runs=profile.runs * 2))

    with pytest.raises(InputError) as raised:
        embedded_profile.embedded_in(text, "huge.html")

    assert raised.value.message == (
        "huge.html: this report has no Profile: it was omitted to stay under 1 MB"
    )
    assert raised.value.hint == "use the report.json next to it, which has the Profile"
    assert "the embedded Profile (kgprof compare and kgprof extract need report.json)" in text


def test_what_is_carried_gives_way_in_one_order() -> None:
    assert [limits.carries for limits in LEVELS] == sorted(
        (limits.carries for limits in LEVELS), reverse=True
    )
    # then: what compare reads is there for as long as no finding is left out
    assert all(limits.carries is Share.NOTHING for limits in LEVELS if limits.findings < 500)


def test_a_profile_that_could_not_be_read_back_is_not_carried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded_profile, "MAX_JSON_BYTES", 1000)

    assert embedded_profile.packed(profiles.clean(), Share.WHOLE).text == ""


@cache
def faults() -> dict[str, tuple[str, str]]:
    """What is given for a report, and what is said of it."""
    page = Html().render(profiles.empty())
    document = msgspec.to_builtins(profiles.empty())
    newer = msgspec.json.encode(
        {**document, "schema_version": PROFILE_SCHEMA_VERSION + 1, "runs": {"new": 1}}
    )
    carrying = base64.b64encode(gzip.compress(msgspec.json.encode(profiles.empty()))).decode()
    end = page.index("</script>", page.index('id="profile"'))
    return {
        "an empty file": ("", "not a report.html written by kgprof"),
        "another page": (
            "<!DOCTYPE html><html><p>kgprof</p></html>",
            "not a report.html written by kgprof",
        ),
        "a binary": ("\x00\ufffd" * 1000, "not a report.html written by kgprof"),
        "cut off in its text": (
            page[: page.index("<main")],
            "the report is truncated: its Profile is incomplete",
        ),
        "cut off in the Profile": (
            page[: end - 100],
            "the report is truncated: its Profile is incomplete",
        ),
        "cut off in the closing tag": (
            page[: end + 3],
            "the report is truncated: its Profile is incomplete",
        ),
        "an old report": (
            re.sub(r'<script type="application[^>]*>[^<]*</script>', "", page),
            "this report has no Profile",
        ),
        "a newer schema": (
            page_with(newer),
            f"Profile schema {PROFILE_SCHEMA_VERSION + 1} is newer than this kgprof reads "
            f"({PROFILE_SCHEMA_VERSION})",
        ),
        "an older schema": (
            page_with(b'{"schema_version": 1}'),
            f"Profile schema 1 is older than this kgprof reads ({PROFILE_SCHEMA_VERSION})",
        ),
        "no base64": (page_with_text("a!b"), "its Profile is damaged: Only base64 data is allowed"),
        "no gzip": (
            page_with_text(base64.b64encode(b"plain").decode()),
            "its Profile is damaged: Error -3 while decompressing data: incorrect header check",
        ),
        "gzip that ends early": (
            page_with_text(carrying[: len(carrying) // 8 * 4]),
            "its Profile is truncated",
        ),
        "no JSON": (
            page_with(b"\xff{"),
            "not a kgprof Profile: JSON is malformed: invalid character (byte 0)",
        ),
        "no Profile": (page_with(b"[]"), "not a kgprof Profile: Expected `object`, got `array`"),
        "another document": (
            page_with(f'{{"schema_version": {PROFILE_SCHEMA_VERSION}}}'.encode()),
            "not a kgprof Profile: Object missing required field `kgprof_version`",
        ),
    }


@pytest.mark.parametrize("fault", faults())
def test_what_is_no_whole_report_is_one_clear_error(fault: str) -> None:
    text, said = faults()[fault]

    with pytest.raises(InputError) as raised:
        embedded_profile.embedded_in(text, "x.html")

    assert raised.value.message == f"x.html: {said}"
    assert raised.value.exit_code == 2


def test_what_unpacks_beyond_reason_is_not_unpacked() -> None:
    # given: 200 MB of spaces in some 200 KB
    bomb = page_with(b" " * 200_000_000)
    assert len(bomb) < MAX_BYTES

    with pytest.raises(InputError) as raised:
        embedded_profile.embedded_in(bomb, "bomb.html")

    assert raised.value.message == "bomb.html: its Profile unpacks to more than 64 MiB"


@pytest.mark.parametrize("part", ["<script ", ' id="profile"', '<script id="profile" '])
def test_a_page_that_never_comes_to_the_point_is_looked_through_once(part: str) -> None:
    """Where each part is tried up to the end, this takes days."""
    page = f'<meta name="generator" content="kgprof 1"><script {part * 1_000_000}'

    with pytest.raises(InputError, match="truncated"):
        embedded_profile.embedded_in(page, "report.html")


def test_a_file_is_read_to_a_limit(tmp_path: Path) -> None:
    large = tmp_path / "trace.html"
    with large.open("wb") as file:
        file.truncate(embedded_profile.MAX_PAGE_BYTES + 1)

    with pytest.raises(
        InputError, match=r"trace.html: cannot be read: larger than 16,777,216 bytes"
    ):
        embedded_profile.read(large)


@pytest.mark.parametrize("hostile", profiles.HOSTILE)
def test_no_text_of_the_profile_ends_the_element_or_passes_for_it(hostile: str) -> None:
    # given: a text that looks like a carried Profile of its own, beside one that tries to end the
    # element
    other = (
        f'<script type="{embedded_profile.TYPE}" id="profile" data-left-out="">AAAA</'
        f"script>{hostile}"
    )
    profile = msgspec.structs.replace(profiles.empty(), workload=other, command=(hostile, other))

    page = Html().render(profile)

    assert embedded_profile.embedded_in(page).profile == profile
    assert page.count(f'<script type="{embedded_profile.TYPE}"') == 1


def test_every_level_that_carries_something_gives_a_profile() -> None:
    whole = profiles.cuda()

    for share in Share:
        text = embedded_profile.packed(whole, share).text
        assert bool(text) is (share is not Share.NOTHING)
        if text:
            assert isinstance(embedded_profile.embedded_in(page_with_text(text)).profile, Profile)
