"""What a reader cannot see in a name or a log, or what would steer a terminal or a page, is spelt out."""

from __future__ import annotations

import re
import unicodedata

# Cc control, Cf format (bidi overrides, zero width), Cs lone surrogates, Co private use, Cn unassigned, Zl and Zp line
# separators that JavaScript and editors take for line ends.
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_NOT_PLAIN = re.compile(r"[^ -~]")


def visible(text: str, *, keep: str = "") -> str:
    """The text with every invisible character as its escape, except those in ``keep`` (a log keeps its line ends)."""
    if text.isprintable():  # true of none of _INVISIBLE
        return text
    return _NOT_PLAIN.sub(lambda found: _spelt(found[0], keep), text)


def _spelt(character: str, keep: str) -> str:
    if character in keep or unicodedata.category(character) not in _INVISIBLE:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(text: str, limit: int) -> str:
    """Visible, on one line, and no longer than ``limit`` characters."""
    return clip(" ".join(visible(text, keep="\n\t").split()), limit)


def clip(text: str, limit: int) -> str:
    """At most ``limit`` characters, the last of them an ellipsis where something was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}"
