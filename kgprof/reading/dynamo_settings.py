"""The settings of torch._dynamo.config that torch names in a graph break or behind a guard, and
which of them a run may try."""

import re
from collections import Counter
from collections.abc import Iterable

from kgprof import model as m

MOST_TRIED = 3  # of one run, each in a process of its own
# They raise, hide errors, switch compiling off or need a call of their own; torch names them all.
_NEVER_TRIED = re.compile(r"error_on_|fail_on_|suppress_errors|disable|compiled_autograd|debug_")
_NAMED = re.compile(
    r"torch\._dynamo\.config\.(?P<name>\w+)`?(?: ?= ?| to )`?(?P<value>True|False|\d+)"
)
_RESET = m.DYNAMO_RESET.encode()
# of a break, and of the guards that failed
_REASONS = b'"recompile_reasons"'
_ARTIFACTS = (b'"dynamo_graph_break_reason"', _REASONS)


def switches_in(text: str) -> tuple[str, ...]:
    """The settings that torch names with a value, each as code: "torch._dynamo.config.NAME =
    True"."""
    found = (
        f"torch._dynamo.config.{each['name']} = {each['value']}" for each in _NAMED.finditer(text)
    )
    return tuple(dict.fromkeys(found))


def settings_in(text: str) -> tuple[m.Setting, ...]:
    """Those of them that a run may try: their value is True or False."""
    found = (
        m.Setting(name=each["name"], value=each["value"] == "True")
        for each in _NAMED.finditer(text)
        if not each["value"].isdecimal() and not _NEVER_TRIED.match(each["name"])
    )
    return tuple(dict.fromkeys(found))


# With it torch makes a symbol of every size, as torch.compile(..., dynamic=True) does.
ALL_SIZES = m.Setting(name="assume_static_by_default", value=False)
_OF_SIZES = (b" size mismatch at index ", b".size()[")


def named_in(lines: Iterable[bytes]) -> tuple[tuple[m.Setting, ...], bool]:
    """The settings that the records of COMPILE name most often, and the one for sizes if one made
    torch compile again; and whether the program made torch forget what it compiled."""
    named: Counter[m.Setting] = Counter()
    by_size = False
    is_reset = False
    for line in lines:
        if any(artifact in line for artifact in _ARTIFACTS):
            named.update(settings_in(line.decode("utf-8", errors="replace")))
        by_size = by_size or (_REASONS in line and any(word in line for word in _OF_SIZES))
        is_reset = is_reset or _RESET in line
    settings = [setting for setting, _ in named.most_common(MOST_TRIED)]
    return (*settings, *([ALL_SIZES] if by_size else [])), is_reset
