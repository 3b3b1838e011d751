"""Generated texts in every string field of a Profile through every format, in a trace through
``kgprof trace``, and in messages on stderr: each comes out as text and as nothing else."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kgprof import cli
from kgprof.cli import saying
from kgprof.model import Profile
from kgprof.progress import Plain, tell
from kgprof.render import by_name
from kgprof.wording import visible
from tests.attack.family import Family
from tests.attack.texts import generated
from tests.cli.test_saying import acted_on
from tests.contract.test_hostile import Parts, known_attributes
from tests.contract.test_renderers import OURS, tokens
from tests.render.everything import everything
from tests.render.test_junit import parsed as parsed_junit
from tests.render.test_sarif import rendered as validated_sarif

COUNT = 12_000
TOGETHER = 60  # texts in one Profile
TRACED = 10  # every tenth lot also stands in a trace
# What GitHub or GitLab links, outside of code: a person, an issue, a pull request.
LIVE = re.compile(
    r"(?<![\w/`])@\w|(?:[#!]|\bGH-|/(?:issues|pull|discussions|merge_requests)/)\d", re.IGNORECASE
)
OF_A_TRACE = {"download", "data-title"}  # attributes of a page with a trace
FORMATS = ("html", "json", "text", "markdown", "sarif", "junit", "github")


def lots(seed: random.Random) -> Sequence[tuple[int, Sequence[str]]]:
    texts = generated(COUNT, seed)
    return [(at, texts[at : at + TOGETHER]) for at in range(0, COUNT, TOGETHER)]


def attack(case: tuple[int, Sequence[str]], folder: Path) -> None:
    at, texts = case
    number = at // TOGETHER
    profile = everything(texts, skipped=bool(number % 2))
    documents = {name: by_name(name).render(profile) for name in FORMATS}
    assert msgspec.json.decode(documents["json"], type=Profile) == profile
    for name, document in documents.items():
        inert(name, document)
    validated_sarif(profile)
    parsed_junit(profile)
    on_stderr(texts)
    if number % TRACED == 0:
        in_a_trace(texts, folder)


def inert(name: str, document: str) -> None:
    """One document of any format holds nothing but text of what came from outside."""
    steering = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
    assert re.findall(steering, document) == [], name
    if name != "github":
        assert acted_on(saying.inert_document(document, name)) == [], name
    if name == "html":
        page = Parts(document)
        assert page.tags["script"] <= 3
        assert page.tags["style"] == 1
        assert not {"img", "iframe", "link", "object", "embed", "base", "form"} & set(page.tags)
        foreign = {attribute for attribute, _ in page.attributes} - known_attributes() - OF_A_TRACE
        assert not foreign, foreign
    if name == "text":
        assert visible(document, keep="\n") == document
        assert acted_on(document) == []
    if name == "markdown":
        markdown(document)
    if name == "github":
        lines = document.splitlines()
        assert all(re.fullmatch(r"::(error|warning|notice) [^:]*::.*", line) for line in lines)
        assert max(Counter(line.split(" ", 1)[0] for line in lines).values()) <= 10


def markdown(document: str) -> None:
    assert visible(document, keep="\n") == document
    assert acted_on(document) == []
    found = tokens(document)
    foreign = [one.content for one in found if one.type in ("html_inline", "html_block")]
    assert [content for content in foreign if "<" in OURS.sub("", content)] == []
    assert [one for one in found if one.type in ("link_open", "image")] == []
    # what stands between two pieces of HTML is a piece of its own: an empty comment parts them
    text = "\0".join(one.content for one in found if one.type in ("text", "text_special"))
    assert LIVE.findall(text) == []


def on_stderr(texts: Sequence[str]) -> None:
    stream = io.StringIO()
    progress = Plain(stream)
    with contextlib.redirect_stderr(stream):
        for text in texts:
            saying.say(text, text)
            saying.inform(text)
            tell(text)
            progress.phase(f"reading {text}", None)
    shown = stream.getvalue()
    assert visible(shown, keep="\n\t") == shown


def in_a_trace(texts: Sequence[str], folder: Path) -> None:
    """Names, categories and arguments of a trace are these texts."""
    events = []
    for at, text in enumerate(texts):
        begins = 100.0 * at
        arguments = {text: text, "External id": at, "Call stack": text, "stream": at % 3}
        step = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "args": {}}
        events += [
            {**step, "name": f"ProfilerStep#{at}", "ts": begins, "dur": 99.0},
            {**step, "name": text, "ts": begins + 1, "dur": 50.0},
            {**step, "cat": "cpu_op", "name": text, "ts": begins + 2, "dur": 20.0},
            {
                **step,
                "cat": "kernel",
                "name": text,
                "ts": begins + 9,
                "dur": 9.0,
                "args": arguments,
            },
            {**step, "cat": text, "name": text, "ts": begins + 3, "dur": 1.0, "tid": text},
        ]
    trace = folder / "t.json"
    trace.write_text(json.dumps({"traceEvents": events, "deviceProperties": [], text: text}))
    wanted = [f"--format={name}={folder / name}" for name in FORMATS if name != "html"]
    stderr, stdout = io.StringIO(), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(stdout):
        code = cli.run(["trace", str(trace), "-o", str(folder / "out"), "--no-hta", *wanted])
    shown = stderr.getvalue()
    assert code in (0, 2, 5, 6), shown
    assert visible(shown, keep="\n\t") == shown
    if code != 2:
        inert("html", (folder / "out" / "report.html").read_text("utf-8"))
        for name in FORMATS:
            if (folder / name).is_file():
                inert(name, (folder / name).read_text("utf-8"))


FAMILY = Family("injection", lots, attack)
