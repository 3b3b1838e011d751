"""What --help and -h show."""

from __future__ import annotations

import click
import pytest

from kgprof import cli
from kgprof.cli import helping
from kgprof.cli.verbs import cli as verbs
from tests.gathering import for_all

OF_KGPROF = sorted(set(verbs.commands) - {"evaluate"})  # whose help is the evaluator's


def shown(args: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.run(args) == 0
    return capsys.readouterr().out


def test_every_verb_is_in_one_group() -> None:
    grouped = [name for group in helping.VERBS.values() for name in group]

    assert sorted(grouped) == sorted(verbs.commands)
    assert len(set(grouped)) == len(grouped)


def test_the_list_of_verbs_is_in_groups_and_cuts_no_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(["--help"], capsys)

    assert text.index("\nDiagnose:\n  profile ") < text.index("\nDecide:\n  compare ")
    assert "..." not in text[text.index("Diagnose:") :]
    assert text == shown(["-h"], capsys)


@for_all(OF_KGPROF)
def test_each_option_of_a_verb_is_listed_once_in_its_group(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown([verb, "--help"], capsys)

    titles = [line.removesuffix(":") for line in text.splitlines() if line[:1].isalpha()]
    assert [title for title in titles if title in helping.OPTIONS] == [
        title for title in helping.OPTIONS if title in titles
    ]
    options = [param for param in verbs.commands[verb].params if isinstance(param, click.Option)]
    for name in (option.opts[-1] for option in options if not option.hidden):
        lines = [line.split() for line in text.splitlines() if line.startswith("  -")]
        assert sum(name in line for line in lines) == 1, name


@for_all(OF_KGPROF)
def test_the_short_help_is_the_first_words_and_the_examples(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown([verb, "-h"], capsys)

    assert text.startswith(f"Usage: kgprof {verb} ")
    assert "  For example:  kgprof " in text
    assert text.endswith(f"\n\nkgprof {verb} --help lists every option.\n")
    assert "--verbose" not in text
    assert len(text.splitlines()) <= 20


def test_a_group_names_no_option_that_no_verb_has() -> None:
    params = [one for verb in verbs.commands.values() for one in verb.params]
    known = {name for one in params for name in one.opts}

    named = {name for names in helping.OPTIONS.values() for name in names}
    assert named - known == set()
