"""Every kgprof command in the README and the reference exists, with these options, and every link leads somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from kgprof.cli import verbs

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/reference.md", "docs/benchmarks.md")


def commands(page: str) -> list[list[str]]:
    """The words after ``kgprof`` of each command, in code blocks and code spans."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    lines = [*re.findall(r"^(?:[^#\n]*(?:&&|-m) )?kgprof (\S.*)$", blocks, re.MULTILINE)]
    lines += re.findall(r"`kgprof ([a-z][^`]*)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return [shlex.split(line.rstrip(")"), comments=True) for line in lines]


@pytest.mark.parametrize("page", PAGES[:2])
def test_every_command_exists_with_its_options(page: str) -> None:
    found = commands(page)

    assert len(found) >= 8
    for words in found:
        verb = verbs.cli.commands.get(words[0])
        assert verb is not None, words
        own = words[1 : words.index("--")] if "--" in words else words[1:]
        known = {name for param in verb.params for name in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}
        assert [word for word in own if word.startswith("-") and word.partition("=")[0] not in known] == [], words
        assert isinstance(verb, click.Command)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_file_leads_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if "://" not in link]

    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_the_readme_takes_five_minutes_to_read() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert len(text.split()) <= 900
    assert max(len(line) for line in text.splitlines() if not line.startswith(("|", "!"))) <= 105
