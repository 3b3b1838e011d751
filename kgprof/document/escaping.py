"""What a reader cannot see in a name or a log, or what would steer a terminal or a page, is spelt
out."""

import base64
import gzip
import re

from kgprof.wording import visible

# the byte of gzip's header that differs between versions of Python; 255: unknown
_OPERATING_SYSTEM = 9


def one_line(text: str, limit: int, *, words: bool = False) -> str:
    """Visible, on one line, and no longer than ``limit`` characters; ``words`` as in ``clip``."""
    if not text.isprintable():
        text = visible(text, keep="\n\t")
    # most texts are as they should be; the only space of these is " "
    elif "  " not in text and text == text.strip():
        return clip(text, limit, words=words)
    return clip(" ".join(text.split()), limit, words=words)


def clip(text: str, limit: int, *, words: bool = False) -> str:
    """At most ``limit`` characters, the last of them an ellipsis where something was cut.
    ``words``: after a word, unless that takes away half of what fits."""
    if len(text) <= limit:
        return text
    end = -1
    if words:
        end = text.rfind(" ", limit // 2, limit)
    if end <= 0:
        end = limit - 1
    return text[:end] + "\N{HORIZONTAL ELLIPSIS}"


# ---------------------------------------------------------------- Markdown

CELL = 160  # characters of a name or message in a cell
# What means something anywhere in a line. An underscore between letters means nothing, and names
# are full of them.
_STEERING = re.compile(r"[\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
# What means something at the start of a line: headings, lists, rules, quotes, and GitHub's own
# workflow commands.
_LEADING = re.compile(r"^(\d{0,9})([.)](?=\s|$)|(?<!\d)[#+=:-])")
# What GitHub and GitLab read as a person, or as an issue or pull request, which would then name
# this comment.
_REFERENCE = re.compile(
    r"(?<![A-Za-z0-9_])@(?=\\?[A-Za-z0-9_.])|"
    r"(?:[#!]|\bGH-|/(?:issues|pull|discussions|merge_requests|work_items)/)(?=[0-9])",
    re.IGNORECASE,
)


def escaped(text: str, limit: int = CELL) -> str:
    """Text that Markdown and HTML read as nothing but text, on one line; plain names stay as they
    are."""
    safe = (
        one_line(text, limit, words=True)
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
    )
    safe = _STEERING.sub(r"\\\g<0>", safe)
    safe = _LEADING.sub(r"\1\\\2", safe)
    # A backslash does not keep GitHub from linking them; an empty comment between does.
    return _REFERENCE.sub(r"\g<0><!-- -->", safe)


def zipped(data: bytes) -> str:
    """gzip in base64: the same bytes with every version of Python."""
    made = bytearray(gzip.compress(data, compresslevel=9, mtime=0))
    made[_OPERATING_SYSTEM] = 255
    return base64.b64encode(made).decode("ascii")
