"""Draws the corpus of secrets and reads the list of innocent text: ``python -m
tests.redaction.corpus`` prints recall by class and what is wrong.

Secrets are made up, by a generator with a seed, from the lines and shapes of ``secrets.toml``.
``innocent.toml`` has text that a report needs and that must stay letter for letter.
"""

import functools
import itertools
import re
import string
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from kgprof.analysis.redaction import Redactor
from kgprof.model import PrivateNames

HERE = Path(__file__).parent
SEED = 42
PRIVATE = PrivateNames(users=("annabel",), hosts=("buildbox7",), homes=("/home/annabel",))
ROOT = "/home/annabel/proj"

LETTERS = string.ascii_letters + string.digits
ALPHABETS = {
    "a": LETTERS,
    "w": f"{LETTERS}-_",
    "b": f"{LETTERS}+/",
    "h": "0123456789abcdef",
    "H": "0123456789ABCDEF",
    "l": string.ascii_lowercase + string.digits,
    "U": string.ascii_uppercase + string.digits,
    "B": f"{string.ascii_uppercase}234567",
    "c": f"{string.ascii_lowercase}234567",
    "d": string.digits,
}
SYLLABLES = re.findall(
    "[a-z]+", "bo ka ri tu ne sol ma ver di lun pa tor fi gar mo ze hun qui dra wel"
)
RANDOM = {
    "alnum20": "{20a}",
    "alnum40": "{40a}",
    "alnum64": "{64a}",
    "lower40": "{40l}",
    "hex32": "{32h}",
    "base64_64": "{64b}",
    "hex40": "{40h}",
    "vault": "hvs.{24a}",
}


class Case(NamedTuple):
    kind: str  # the class
    text: str
    hidden: tuple[str, ...]  # what must not be seen


def _word(draw: Random, least: int) -> str:
    word = ""
    while len(word) < least:
        word += draw.choice(SYLLABLES)
    return word


def drawn(shape: str, draw: Random) -> str:
    """Returns a string of that shape: {20a} is 20 characters of the alphabet "a"."""
    return re.sub(
        r"\{(\d+)(\w)\}",
        lambda part: "".join(draw.choices(ALPHABETS[part[2]], k=int(part[1]))),
        shape,
    )


def _value(kind: str, draw: Random) -> str:
    """Returns a password or a key that nobody has."""
    if kind in RANDOM:
        return drawn(RANDOM[kind], draw)
    digits = drawn("{1d}", draw)
    match kind:
        case "word":
            return f"{_word(draw, 5)}{digits}{_word(draw, 4)}"
        case "plain":
            return _word(draw, 10)
        case "lower12":
            return "".join(draw.choices(string.ascii_lowercase, k=12))
        case "phrase":
            return f"{_word(draw, 5)} {_word(draw, 4)} {_word(draw, 5)}"
        case "punctuated":
            return f"{_word(draw, 4).title()}{draw.choice('!*+~^')}{digits}{_word(draw, 4)}!"
        case "punctuatedurl":
            return f"{_word(draw, 4).title()}{draw.choice('!*+~%$')}{digits}{_word(draw, 4)}"
        case "dollar":
            return f"${_word(draw, 5)}{_word(draw, 4).title()}{digits}"
    raise ValueError(f"no kind of values is called {kind!r}")


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((HERE / name).read_text("utf-8"))


@functools.cache
def secrets() -> tuple[Case, ...]:
    draw = Random(SEED)
    return tuple(case for each in _read("secrets.toml")["class"] for case in _of(each, draw))


def _of(each: dict[str, Any], draw: Random) -> Iterator[Case]:
    if "marked" in each:
        yield from (marked(each["name"], line.replace("·", "")) for line in each["marked"])
    elif "hidden" in each:
        for line in each["lines"]:
            yield Case(each["name"], line, tuple(each["hidden"]))
    elif "shapes" in each:
        lines = itertools.cycle(each["lines"])
        for shape in each["shapes"].values():
            for _ in range(2):
                made = drawn(shape, draw)
                yield Case(each["name"], next(lines).replace("§", made), (made,))
    else:
        values, names = itertools.cycle(each["values"]), itertools.cycle(each.get("names", [""]))
        for line in each["lines"] * each["times"]:
            kind = next(values)
            if own := re.search(r"§\{(\w+)\}", line):  # a kind of its own
                kind = own[1]
                line = line.replace(own[0], "§")
            made = _value(kind, draw)
            text = line.replace("¤", next(names)).replace("§", made)
            yield Case(each["name"], text, tuple(made.split(" ")))


def marked(kind: str, line: str) -> Case:
    """Returns the case of a line in which the secret stands between « and »."""
    before, _, rest = line.partition("«")
    secret, _, after = rest.partition("»")
    return Case(kind, before + secret + after, tuple(secret.split(" ")))


@functools.cache
def innocent() -> tuple[tuple[str, str], ...]:
    """Returns each text with its class."""
    draw = Random(SEED)
    return tuple(
        (each["name"], drawn(line, draw) if "times" in each else line)
        for each in _read("innocent.toml")["class"]
        for line in each["lines"] * each.get("times", 1)
    )


def redact(text: str) -> str:
    return Redactor(PRIVATE, root=ROOT)(text)


def shown(case: Case) -> bool:
    """Says whether any part of the secret can still be read."""
    safe = redact(case.text)
    return any(hidden in safe for hidden in case.hidden)


class Recall(NamedTuple):
    hidden: int
    all: int

    @property
    def percent(self) -> float:
        return 100 * self.hidden / self.all


def recall(cases: tuple[Case, ...], is_shown: Callable[[Case], bool]) -> dict[str, Recall]:
    """Returns how many of each class are hidden, in the order of the cases."""
    counts: dict[str, Recall] = {}
    for case in cases:
        before = counts.get(case.kind, Recall(0, 0))
        counts[case.kind] = Recall(before.hidden + (not is_shown(case)), before.all + 1)
    return counts


@functools.cache
def by_class() -> dict[str, Recall]:
    return recall(secrets(), shown)


@functools.cache
def changed() -> tuple[tuple[str, str], ...]:
    """Returns the innocent texts that do not stay as they are, with what becomes of each."""
    return tuple((text, safe) for _, text in innocent() if (safe := redact(text)) != text)


CHANCE_LENGTHS = (16, 20, 24, 32)
CHANCE_ALPHABETS = {
    "letters and digits": "a",
    "lower case and digits": "l",
    "base64url": "w",
    "base64": "b",
    "hexadecimal": "h",
}
CHANCE_DRAWN = 400


def chance(alphabet: str, length: int) -> float:
    """Returns the percentage of random strings that are hidden with nothing telling beside them."""
    draw = Random(length)
    gone = 0
    for _ in range(CHANCE_DRAWN):
        made = drawn(f"{{{length}{alphabet}}}", draw)
        gone += made not in redact(f"value {made} end")
    return 100 * gone / CHANCE_DRAWN


def table() -> str:
    """Returns the table of SECURITY.md."""
    rows = ["| class | secrets | hidden |", "|---|---|---|"]
    for name, found in by_class().items():
        rows.append(f"| {name} | {found.all} | {found.percent:.1f} % |")
    whole = Recall(*map(sum, zip(*by_class().values(), strict=True)))
    rows.append(f"| **all** | **{whole.all}** | **{whole.percent:.1f} %** |")
    return "\n".join(rows)


def chance_table() -> str:
    """Returns the table of random strings."""
    rows = [
        f"| alphabet | {' | '.join(f'{length}' for length in CHANCE_LENGTHS)} |",
        f"|---|{'---|' * len(CHANCE_LENGTHS)}",
    ]
    for name, alphabet in CHANCE_ALPHABETS.items():
        rates = [f"{chance(alphabet, length):.0f} %" for length in CHANCE_LENGTHS]
        rows.append(f"| {name} | {' | '.join(rates)} |")
    return "\n".join(rows)


def main() -> None:
    """Prints the tables, each secret that is shown, and each innocent text that is changed."""
    write = sys.stdout.write
    write(f"{table()}\n\n{chance_table()}\n\n")
    for case in filter(shown, secrets()):
        write(f"shown [{case.kind}] {case.text!r} -> {redact(case.text)!r}\n")
    for text, safe in changed():
        write(f"changed {text!r} -> {safe!r}\n")
    write(f"{len(innocent())} innocent texts, {len(changed())} changed\n")


if __name__ == "__main__":
    main()
