"""Measures the redaction on a second list: ``python -m tests.redaction.second`` prints recall by
class and what is wrong.

The list was written after the rules by somebody who had seen neither them nor the first list.

In ``second.toml``, what has to be gone from a text stands between « and ».
"""

import functools
import sys
import tomllib
from difflib import SequenceMatcher
from typing import Any

from kgprof.analysis.redaction import Redactor
from kgprof.model import PrivateNames
from tests.redaction.corpus import HERE, Case, Recall, marked, recall


@functools.cache
def _list() -> dict[str, Any]:
    read: dict[str, Any] = tomllib.loads((HERE / "second.toml").read_text("utf-8").replace("·", ""))
    return read


@functools.cache
def secrets() -> tuple[Case, ...]:
    return tuple(marked(kind, line) for kind, lines in _list()["hidden"].items() for line in lines)


def innocent() -> tuple[str, ...]:
    return tuple(_list()["innocent"])


def with_a_folder() -> tuple[str, ...]:
    """Returns the innocent texts of which a folder has to be replaced, and nothing else."""
    return tuple(_list()["with_a_folder"])


def redact(text: str) -> str:
    user = _list()["user"]
    private = PrivateNames(users=(user,), hosts=(_list()["host"],), homes=(f"/home/{user}",))
    return Redactor(private, root=f"/home/{user}/vit")(text)


def shown(case: Case) -> bool:
    """Says whether a word of the secret, or half of the secret in one piece, can still be read."""
    safe = redact(case.text)
    secret = " ".join(case.hidden)
    kept = SequenceMatcher(None, secret, safe, autojunk=False).find_longest_match()
    return 2 * kept.size >= len(secret) or any(word in safe for word in case.hidden)


@functools.cache
def by_class() -> dict[str, Recall]:
    return recall(secrets(), shown)


@functools.cache
def changed() -> tuple[tuple[str, str], ...]:
    """Returns the innocent texts that do not stay as they are, with what becomes of each."""
    return tuple((text, safe) for text in innocent() if (safe := redact(text)) != text)


def secrets_hidden() -> Recall:
    return Recall(*map(sum, zip(*by_class().values(), strict=True)))


def texts_unchanged() -> Recall:
    return Recall(len(innocent()) - len(changed()), len(innocent()))


def lowest() -> str:
    """Returns the classes of which more than one secret is shown, as SECURITY.md names them."""
    low = " and ".join(
        f"{name} ({found.hidden} of {found.all})"
        for name, found in by_class().items()
        if found.hidden < found.all - 1
    )
    return low or "at 9 of 10"


def main() -> None:
    """Prints recall by class, each secret that is shown, and each innocent text changed."""
    write = sys.stdout.write
    for name, found in by_class().items():
        write(f"{found.hidden:3} of {found.all} {name}\n")
    for case in filter(shown, secrets()):
        write(f"shown [{case.kind}] {case.text!r} -> {redact(case.text)!r}\n")
    for text, safe in changed():
        write(f"changed {text!r} -> {safe!r}\n")
    write(f"{secrets_hidden().hidden} of {secrets_hidden().all} secrets hidden\n")
    write(f"{texts_unchanged().hidden} of {texts_unchanged().all} innocent texts unchanged\n")


if __name__ == "__main__":
    main()
