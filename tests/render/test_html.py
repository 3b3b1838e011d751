"""What holds the page together: its policy, its escaping, and the order in which it gives way."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import jinja2
import msgspec
import pytest

from kgprof.document.kernel_table import distinct_names
from kgprof.document.limits import Limits, Share
from kgprof.model import LogExcerpt, PassName, Profile, Skipped
from kgprof.render import html, page
from kgprof.render.embedded_profile import packed
from kgprof.render.html import LEVELS, MAX_BYTES, Html
from tests.gathering import for_all
from tests.render import profiles

TEMPLATES = sorted(Path(str(html.directory("templates"))).rglob("*.jinja"))


def test_the_policy_names_exactly_the_style_and_the_script_of_the_page() -> None:
    text = Html().render(profiles.clean())

    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = [
        base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        for part in (style, script)
    ]

    assert policy.replace("&#39;", "'") == (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_the_script_is_small_and_keeps_every_line_of_code() -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", Html().render(profiles.clean()), re.DOTALL)
    source = (html.directory("templates") / "assets" / "report.js").read_text(encoding="utf-8")

    assert len(script.encode()) < 36_000
    code = [
        line.strip()
        for line in source.splitlines()
        if line.strip() and not line.strip().startswith("//")
    ]
    assert script.splitlines() == code
    # what would be lost with the lines: a text that goes on over several of them
    assert not re.search(r"`[^`]*\n", re.sub(r"`[^`\n]*`", "", script))


@for_all(TEMPLATES)
def test_no_template_switches_escaping_off(template: Path) -> None:
    text = template.read_text(encoding="utf-8")

    assert template.name.endswith(".html.jinja")
    assert not re.search(r"\|\s*safe|autoescape|style=|\bon\w+=|<img|<link|https?://", text)


def test_only_the_style_and_the_script_are_taken_as_they_are() -> None:
    assert Path(html.__file__).read_text(encoding="utf-8").count("Markup(") == 2


def test_every_name_of_the_page_is_escaped() -> None:
    for template in TEMPLATES:
        assert html.environment().autoescape(template.name)  # type: ignore[operator]


def test_an_unknown_name_in_a_template_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        html.environment().from_string("{{ page.missing }}").render(page={})


def test_importing_the_renderers_costs_neither_jinja2_nor_rich() -> None:
    program = (
        "import sys, kgprof.render; print([m for m in ('jinja2', 'rich', 'torch', "
        "'numpy') if m in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


def test_each_level_holds_no_more_than_the_one_before() -> None:
    for larger, smaller in pairwise(msgspec.structs.astuple(limits) for limits in LEVELS):
        assert all(before >= after for before, after in zip(larger, smaller, strict=True))
        assert larger != smaller


def test_the_first_level_that_fits_is_found_without_trying_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given: what each level of a large page takes, one by one
    huge = profiles.huge()
    profile = msgspec.structs.replace(huge, runs=huge.runs[:16])
    packs = {share: packed(profile, share) for share in Share}
    pages = [page.build(profile, limits, packs[limits.carries]) for limits in LEVELS]
    layout = html.Layout()  # what pages share it writes once, as the next test holds
    sizes = [len(layout.text(made).encode()) for made in pages]
    first = next(level for level, size in enumerate(sizes) if size <= MAX_BYTES)
    tried = []
    build = page.build

    def counted(given: Profile, limits: Limits, *others: Any) -> page.Page:
        tried.append(LEVELS.index(limits))
        return build(given, limits, *others)

    monkeypatch.setattr(page, "build", counted)
    text = Html().render(profile)

    assert sizes == sorted(sizes, reverse=True)
    assert len(text.encode()) == sizes[first]
    assert len(tried) <= 5
    assert first in tried


def test_a_page_that_follows_another_is_as_if_it_were_the_first() -> None:
    # given: two pages of which many sections are the same
    profile, layout = profiles.cuda(), html.Layout()
    pages = [
        page.build(profile, limits, packed(profile, limits.carries))
        for limits in (LEVELS[3], LEVELS[5])
    ]

    assert [layout.text(made) for made in pages] == [html.Layout().text(made) for made in pages]


def test_logs_are_the_first_to_go() -> None:
    # given: logs that fill the page once they are escaped
    profile = profiles.clean()
    log = LogExcerpt(text="<&>" * 100_000, left_out_bytes=0)
    loud = tuple(msgspec.structs.replace(run, log=log) for run in profile.runs)

    text = Html().render(msgspec.structs.replace(profile, runs=loud))

    assert "Omitted to stay under 1 MB" in text
    assert "the logs." in text
    assert "native_layer_norm" in text
    assert "derive_and_choose" in text


def test_a_long_log_is_cut_in_its_middle() -> None:
    profile = profiles.clean()
    log = LogExcerpt(text="first\n" + "x" * 400_000 + "\nlast", left_out_bytes=0)
    quiet = tuple(msgspec.structs.replace(run, log=log) for run in profile.runs)

    text = Html().render(msgspec.structs.replace(profile, runs=quiet))

    assert text.count("first\n") == text.count("\nlast</pre>") == 6
    assert "characters left out ...]" in text


def test_two_kernels_never_look_alike() -> None:
    long = "graph_0_cpp_fused_" + "_".join(["bitwise_and"] * 20)
    names = [f"{long}_a_{long}_1", f"{long}_b_{long}_1", "short"]

    shown = distinct_names(names, 60, 120)

    assert len(set(shown)) == 3
    assert shown[2] == "short"
    assert [name.endswith(f"({number})") for number, name in enumerate(shown[:2], start=1)] == [
        True,
        True,
    ]


def test_names_that_differ_in_their_middle_are_shown_longer() -> None:
    first, second = (f"kernel<{'x' * 60}{letter}{'y' * 40}>" for letter in "ab")

    assert distinct_names([first, second], 60, 400) == [first, second]


@pytest.mark.parametrize(
    "words",
    [
        "git: fatal: ambiguous argument 'HEAD': unknown revision",
        "git: fatal: not a git repository (or any parent)",
    ],
)
def test_no_commit_is_said_in_our_words(words: str) -> None:
    environment = msgspec.structs.replace(profiles.CPU, git_commit=Skipped(reason=words))

    text = Html().render(msgspec.structs.replace(profiles.clean(), environment=environment))

    assert "not a git repository" in text
    assert "fatal" not in text


def test_a_page_without_times_says_why_and_not_that_timing_did_not_run() -> None:
    compiled = Skipped(reason="torch compiled in 2 steps of the rerun, and there was no other")
    clean = profiles.clean()
    runs = tuple(
        msgspec.structs.replace(run, step=compiled, evaluation_time=compiled) for run in clean.runs
    )

    options = msgspec.structs.replace(clean.options, passes=(PassName.COMPILE,))

    text = Html().render(msgspec.structs.replace(clean, runs=runs, options=options))

    assert f"TIMING has no step time: {compiled.reason}." in text


def test_a_gpu_report_does_not_speak_of_vector_instructions() -> None:
    words = "Inductor's test of the CPU's vector"
    assert words in Html().render(profiles.clean())
    assert words not in Html().render(profiles.cuda())
