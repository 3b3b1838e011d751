"""Redaction is measured: recall by class on a kept corpus of made-up secrets, precision on text
that a report needs. SECURITY.md says what comes out, and the rates for random strings."""

from __future__ import annotations

from pathlib import Path

from tests.redaction import corpus

REPOSITORY = Path(__file__).resolve().parents[2]
SECURITY = (REPOSITORY / "SECURITY.md").read_text("utf-8")


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

    assert said in SECURITY.replace("\n", " ")
    assert f"{len(corpus.innocent()):,} innocent texts" in SECURITY.replace("\n", " ")
