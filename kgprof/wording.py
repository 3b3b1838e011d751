"""How numbers, files, kernels and choices are written for a person."""

import difflib
import posixpath
import re
import unicodedata
from collections.abc import Collection, Iterable, Sized
from decimal import Decimal
from itertools import groupby

# Cc control, Cf format (bidi overrides, zero width), Cs lone surrogates, Co private use, Cn
# unassigned, Zl and Zp line separators that JavaScript and editors take for line ends.
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_NOT_PLAIN = re.compile(r"[^ -~]")


def figure(value: float, digits: int = 3) -> str:
    """For columns: always ``digits`` significant digits; whole numbers above a thousand keep all
    their digits."""
    if value == 0:
        return "0"
    exponent = int(f"{value:e}".rpartition("e")[2])
    decimals = min(max(0, digits - 1 - exponent), 9)
    return f"{value:,.{decimals}f}"


def short(value: float, digits: int = 3, *, sign: str = "") -> str:
    """For sentences: the same without zeros at the end. ``sign``: "+" where a positive one has its
    sign too."""
    if abs(value) >= 10**digits:
        return f"{value:{sign},.0f}"
    return f"{Decimal(f'{value:.{digits}g}'):{sign},f}"


def plural(number: float, noun: str, nouns: str = "", *, digits: int = 3, sign: str = "") -> str:
    """A number and its noun: "1 step", "1,234 steps", "0.95 launches". ``nouns``: the plural, if it
    is not the noun with an s; ``digits`` and ``sign``: as ``short`` writes a mean."""
    shown = f"{number:{sign},}" if isinstance(number, int) else short(number, digits, sign=sign)
    if shown.removeprefix("+") == "1":
        return f"{shown} {noun}"
    return f"{shown} {nouns or f'{noun}s'}"


def slower(ratio: float) -> str:
    """ "9.8 % slower", by a time over another one."""
    percent = f"{100 * abs(ratio - 1):.1f} %"
    if ratio > 1:
        return f"{percent} slower"
    return f"{percent} faster"


def clause(before: str, words: object, after: str = "") -> str:
    """The words between two others; empty where there are none."""
    return f"{before}{words}{after}" if words else ""


def and_more(names: Sized, shown: int) -> str:
    """ " and 3 more" behind the first ``shown`` of them; empty where those are all."""
    return clause(" and ", max(0, len(names) - shown), " more")


def step_name(call: int) -> str:
    """``step 3``; what has the number -1 came before the first step."""
    if call < 0:
        return "before the first step"
    return f"step {call}"


def in_steps(calls: Collection[int]) -> str:
    """``in step 3``, ``in steps 3 and 9``, ``in 4 steps (0 to 7)``, ``before the first step and in
    step 2``."""
    numbered = sorted(call for call in {*calls} if call >= 0)
    words = [step_name(call) for call in calls if call < 0][:1]
    if len(numbered) == 2:
        words.append(f"in steps {numbered[0]} and {numbered[1]}")
    elif numbered[1:]:
        words.append(f"in {len(numbered)} steps ({numbered[0]} to {numbered[-1]})")
    else:
        words += [f"in {step_name(call)}" for call in numbered]
    return " and ".join(words)


RANGES = 6  # of lines, in a sentence


def ranges(lines: Iterable[int]) -> str:
    """Lines of a file, neighbours together: "18,81-84"; of many the first few."""
    near = groupby(enumerate(sorted({*lines})), lambda numbered: numbered[1] - numbered[0])
    groups = [[line for _, line in group] for _, group in near]
    shown = [_range(group[0], group[-1]) for group in groups[:RANGES]]
    if len(groups) > RANGES:
        shown.append("\N{HORIZONTAL ELLIPSIS}")
    return ",".join(shown)


def _range(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first}-{last}"


def opening(text: str) -> str:
    """The first line of an error's words, and what it announces: "backend='inductor' raised:
    AssertionError: ..."."""
    first, *others = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    if first.endswith(":") and others:
        return f"{first} {others[0]}"
    return first


def nearest(name: str, known: Iterable[str]) -> str:
    """`` (did you mean ...?)``, or all there are when nothing is near."""
    names = list(known)
    for near in difflib.get_close_matches(name, names, n=1, cutoff=0.5):
        return f" (did you mean {near}?)"
    return f" (there are {', '.join(names)})"


# The folder itself, and what stands for it in a redacted report.
_INSTALLED = re.compile(r"(?:.*/|<)(?:site|dist)-packages>?/(?P<file>.+)")


def relative(file: str, root: str) -> str:
    """``file`` as seen from ``root``; one that lies elsewhere, or is relative already, stays as it
    is."""
    path = file.replace("\\", "/")
    top = root.replace("\\", "/").rstrip("/")
    if top and path.startswith(f"{top}/"):
        return posixpath.normpath(path[len(top) + 1 :])
    return path


def shared(file: str, root: str) -> str:
    """As ``relative``; one that is installed from its site-packages on, so that two environments
    name it alike."""
    path = relative(file, root)
    if found := _INSTALLED.fullmatch(path):
        return f"site-packages/{found['file']}"
    return path


_NOISE = ("void ", "at::native::", "(anonymous namespace)::", "at_cuda_detail::")
KERNEL_NAME_LENGTH = 110
_KEPT_END = 24


def short_name(name: str, length: int = KERNEL_NAME_LENGTH) -> str:
    """A C++ name without what all of them share and without its parameters; what is still too long
    loses its middle, for Inductor's generated names are told apart by the number at their end."""
    for noise in _NOISE:
        name = name.replace(noise, "")
    return middle_out(_without_parameters(name), length)


def middle_out(name: str, length: int) -> str:
    if len(name) <= length:
        return name
    return f"{name[: length - _KEPT_END - 1]}\N{HORIZONTAL ELLIPSIS}{name[-_KEPT_END:]}"


def _without_parameters(name: str) -> str:
    """Up to the parenthesis that ends a function's name, outside of its template's arguments. One
    after a space is part of a name: "Memcpy DtoH (Device -> Pageable)"."""
    depth = 0
    for at, character in enumerate(name):
        if character == "(" and depth <= 0 and name[:at].strip() and name[at - 1] != " ":
            return name[:at]
        depth += (character == "<") - (character == ">")
    return name


def visible(text: str, *, keep: str = "") -> str:
    """The text with every invisible character as its escape, except those in ``keep`` (a log keeps
    its line ends)."""
    if text.isprintable():  # true of none of _INVISIBLE
        return text

    def spelt(found: re.Match[str]) -> str:
        character = found[0]
        code = ord(found[0])
        if character in keep or unicodedata.category(character) not in _INVISIBLE:
            return character
        if code < 0x100:
            return f"\\x{code:02x}"
        if code < 0x10000:
            return f"\\u{code:04x}"
        return f"\\U{code:08x}"

    return _NOT_PLAIN.sub(spelt, text)
