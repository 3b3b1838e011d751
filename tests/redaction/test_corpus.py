"""Redaction is measured: recall by class on a kept corpus of made-up secrets, precision on text
that a report needs. SECURITY.md says what comes out, and the rates for random strings."""

from __future__ import annotations

import re
from pathlib import Path

from tests.redaction import corpus, second

REPOSITORY = Path(__file__).resolve().parents[2]
SECURITY = (REPOSITORY / "SECURITY.md").read_text("utf-8")
IN_ONE_LINE = SECURITY.replace("\n", " ")


def test_the_corpus_is_large_enough_and_no_larger() -> None:
    assert len({case.text for case in corpus.secrets()}) >= 1_000
    assert len({text for _, text in corpus.innocent()}) >= 600
    assert len(corpus.by_class()) >= 20
    assert sum(path.stat().st_size for path in corpus.HERE.iterdir() if path.is_file()) < 200_000


def test_of_each_class_at_least_97_percent_are_hidden() -> None:
    low = {name: recall for name, recall in corpus.by_class().items() if recall.percent < 97}

    assert low == {}


def test_no_innocent_text_is_changed() -> None:
    assert corpus.changed() == ()


def test_no_secret_comes_back_when_it_is_redacted_twice() -> None:
    once = [corpus.redact(case.text) for case in corpus.secrets()]

    assert [text for text in once if corpus.redact(text) != text] == []


def test_security_md_says_the_recall_of_each_class() -> None:
    assert corpus.table() in SECURITY


def test_security_md_says_the_rates_for_random_strings() -> None:
    assert corpus.chance_table() in SECURITY


def test_security_md_says_how_much_was_looked_at() -> None:
    said = f"{len(corpus.secrets()):,} made-up secrets"

    assert said in IN_ONE_LINE
    assert f"{len(corpus.innocent()):,} innocent texts" in IN_ONE_LINE


def test_the_second_list_has_ten_secrets_of_each_class() -> None:
    sizes = {name: found.all for name, found in second.by_class().items()}

    assert sizes == dict.fromkeys(corpus.by_class(), 10)
    assert len({case.text for case in second.secrets()}) == 250
    assert len({*second.innocent(), *second.with_a_folder()}) == 250


def test_of_an_innocent_text_with_a_folder_only_the_folder_is_replaced() -> None:
    for text in second.with_a_folder():
        before, folder, after = re.split("(<elsewhere>|<site-packages>)", second.redact(text))

        assert folder
        assert text.startswith(before)
        assert text.endswith(after)


def test_security_md_says_what_comes_out_of_the_second_list() -> None:
    hidden, unchanged = second.secrets_hidden(), second.texts_unchanged()

    assert f"below, has {hidden.percent:.1f} % hidden" in IN_ONE_LINE
    assert f"{hidden.percent:.1f} % of {hidden.all} secrets are hidden" in IN_ONE_LINE
    assert f"{unchanged.percent:.1f} % of {unchanged.all} innocent texts are" in IN_ONE_LINE
    assert ("That is below 99 %" in IN_ONE_LINE) == (unchanged.percent < 99)
    assert "One text is changed" in IN_ONE_LINE
    assert len(second.changed()) == 1
    assert f"the lowest are {second.lowest()}. " in IN_ONE_LINE
