"""Ways to damage a file: seeded, each a name and a function from good bytes to bad ones."""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Damage = tuple[str, Callable[[bytes], bytes]]
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**30, -(2**63), 1e308, 0.5, "", "x" * 300, "\x1b[2J\u202e#1", "NaN"),
    *(
        [],
        {},
        [[]],
        [None],
        {"": {}},
        [0] * 1000,
        {"kind": "skipped"},
        {"kind": "skipped", "reason": ""},
    ),
)


def of_bytes(rng: random.Random) -> Iterator[Damage]:
    """What needs no knowledge of the format."""
    yield "empty", lambda data: b""
    yield "blank", lambda data: b" \n" * 100
    yield "half", lambda data: data[: len(data) // 2]
    yield "all but one", lambda data: data[:-1]
    yield "twice", lambda data: data + data
    yield "in UTF-16", lambda data: data.decode("utf-8", "replace").encode("utf-16")
    yield "with a mark", lambda data: b"\xef\xbb\xbf" + data
    yield "packed", gzip.compress
    yield "packed twice", lambda data: gzip.compress(gzip.compress(data))
    yield "deep", lambda data: b"[" * 100_000
    yield "deep and closed", lambda data: b'{"a":' * 5_000 + b"1" + b"}" * 5_000
    yield "null", lambda data: b"null"
    yield "a list", lambda data: b"[]"
    yield "an object", lambda data: b"{}"
    yield "zeros", lambda data: bytes(len(data))
    for number in range(3):
        seed = rng.getrandbits(32)
        yield f"bytes of chance {number}", partial(_of_chance, seed)
        yield f"one byte {number}", partial(_one_byte, seed)


def _of_chance(seed: int, data: bytes) -> bytes:
    return random.Random(seed).randbytes(500)


def _one_byte(seed: int, data: bytes) -> bytes:
    rng = random.Random(seed)
    if not data:
        return b"\x00"
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def of_json(rng: random.Random, count: int) -> Iterator[Damage]:
    """Documents whose values and keys were changed, one to three each."""
    for number in range(count):
        yield f"values {number}", partial(changed, rng.getrandbits(32))


def changed(seed: int, data: bytes) -> bytes:
    rng = random.Random(seed)
    document = [json.loads(data)]
    for _ in range(rng.randint(1, 3)):
        holder, key = rng.choice(list(_places(document)))
        _change(holder, key, rng)
    return json.dumps(document[0]).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    entries: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list):
        entries = list(enumerate(value))
    for key, entry in entries:
        yield value, key
        yield from _places(entry)


def _change(holder: Any, key: Any, rng: random.Random) -> None:
    how = rng.randrange(6)
    value = holder[key]
    if how == 0 and isinstance(holder, dict):
        del holder[key]
        if not holder:
            holder["x"] = None
    elif how == 1 and isinstance(value, list):
        holder[key] = value[: len(value) // 2]
    elif how == 2 and isinstance(value, list):
        holder[key] = value + copy.deepcopy(value)
    elif how == 3 and isinstance(value, int | float):
        holder[key] = -value
    elif how == 4 and isinstance(value, list):
        rng.shuffle(value)
    else:
        holder[key] = copy.deepcopy(rng.choice(ODD))
