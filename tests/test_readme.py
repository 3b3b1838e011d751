"""Every kgprof command in the documentation exists, with these options, and every link leads
somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from kgprof.cli import verbs
from kgprof.workloads import loading
from tests.gathering import for_all

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ("docs/seeds.md",)
PAGES = [
    *("README.md", "SECURITY.md", "CONTRIBUTING.md"),
    *(
        name
        for path in sorted((ROOT / "docs").glob("*.md"))
        if (name := f"docs/{path.name}") not in GENERATED
    ),
]


def commands(page: str) -> list[list[str]]:
    """The words after ``kgprof`` of each command, in code blocks and code spans."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    lines = [*re.findall(r"^(?:[^#\n]*(?:&&|-m) )?kgprof (\S.*)$", blocks, re.MULTILINE)]
    lines += re.findall(
        r"`kgprof ([a-z][^`]*)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    )
    return [shlex.split(line.rstrip(")"), comments=True) for line in lines]


@pytest.mark.parametrize("page", ["README.md", "docs/reference.md"])
def test_a_page_of_commands_has_commands(page: str) -> None:
    assert len(commands(page)) >= 8


@for_all(PAGES)
def test_every_command_exists_with_its_options(page: str) -> None:
    for words in commands(page):
        verb = verbs.cli.commands.get(words[0])
        assert verb is not None, words
        own = words[1 : words.index("--")] if "--" in words else words[1:]
        known = {name for param in verb.params for name in (*param.opts, *param.secondary_opts)} | {
            "--help",
            "-h",
        }
        if words[0] == "evaluate":  # its options are the evaluator's
            known.update(re.findall(r"--[\w-]+", loading.evaluate(["--help"])[0]))
        assert [
            word for word in own if word.startswith("-") and word.partition("=")[0] not in known
        ] == [], words
        assert isinstance(verb, click.Command)


@for_all(PAGES)
def test_every_link_to_a_file_leads_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]

    assert [link for link in links if not leads_somewhere(ROOT / page, link)] == []


def leads_somewhere(page: Path, link: str) -> bool:
    """Also to a heading of that page, by the anchor that GitHub gives it."""
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    if not target.exists() or not anchor:
        return target.exists()
    headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
    return anchor in [
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    ]


def test_the_readme_takes_five_minutes_to_read() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert len(text.split()) <= 900
    assert max(len(line) for line in text.splitlines() if not line.startswith(("|", "!"))) <= 100
