"""Changes of a text by its tokens, which keep it well-formed more often than changes of bytes do:
in JSON, in lines of JSON, in TOML, in HTML."""

from __future__ import annotations

import random
import re

TOKEN = re.compile(
    rb'"(?:[^"\\\n]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\b(?:true|false|null)\b|[\[\]{},:=\n]'
)
NUMBERS = (b"0", b"-1", b"1", b"0.5", b"-0.0", b"1e308", b"-1e308", b"5e-324", b"1e400", b"NaN")
LARGE = (b"2147483648", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809")
LARGER = (b"18446744073709551616", b"1" + b"0" * 30, b"9" * 400, b"9" * 5000)
TEXTS = (
    b'""',
    b'"x"',
    b'"\\ud800"',
    b'"\\u0000"',
    b'"\xed\xa0\x80"',
    b'"1"',
    b'"' + b"a" * 300 + b'"',
)
OTHERS = (b"null", b"true", b"false", b"[]", b"{}", b"[[]]", b'{"a": []}', b"[" * 200, b"Infinity")
VALUES = (*NUMBERS, *LARGE, *LARGER, *TEXTS, *OTHERS)


def mutated(data: bytes, draw: random.Random, most: int) -> bytes:
    """One to four tokens of it are replaced, left out, doubled or exchanged."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        tokens = list(TOKEN.finditer(data))
        if not tokens:
            return data[:most]
        one = draw.choice(tokens)
        other = draw.choice(tokens)[0]
        new = draw.choice((draw.choice(VALUES), draw.choice(VALUES), other, b"", one[0] * 2))
        data = data[: one.start()] + new + data[one.end() :]
    return data[:most]
