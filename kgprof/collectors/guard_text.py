"""A failed guard in torch's words, turned into a class, a name, a dimension, and what was expected
and found.

torch has no other form for it than text. Guards over Python values are code (``len(xs) == 2``)
followed by a comment with the line that used the value, torch's hint, and the stack of that line;
guards over tensors are sentences whose subject stands in quotes. What neither reading knows is of
class OTHER; torch's text is always kept beside the class.
"""

import re
from collections.abc import Callable
from typing import Any

from kgprof import model as m
from kgprof.reading.compiled_text import place, used_at, without_comment
from kgprof.reading.dynamo_settings import switches_in

OTHER = "other"
A_TENSOR = "a tensor"


class Guard(m.Model):
    """One guard that did not hold, of one cache entry."""

    kind: str  # fixtures/corpus/README.md says what each means
    entry: str  # the compile id whose code was rejected
    source: str = ""  # what was looked at: "x", "self.factor", "GLOBAL_STATE"
    dimension: int | None = None  # of a size or stride
    expected: str = ""  # what the rejected code was compiled for
    actual: str = ""  # what came; empty where torch does not say
    text: str = ""  # torch's sentence, without the source line and stack that follow it
    # the line that made the value a constant; of its file torch gives the last part
    used: m.Location | None = None
    # the lines of compiled code that lead there, outermost first
    stack: tuple[m.Location, ...] = ()
    hint: str = ""  # torch's own, which stands behind the line
    # settings that torch names for it: "torch._dynamo.config.NAME = True"
    switches: tuple[str, ...] = ()
    # a value that lay on Python's stack while the line of a graph break ran, and is not its result
    is_held: bool = False
    variable: str = ""  # the variable behind a closure's cell: "w", "options.scale"

    @property
    def subject(self) -> tuple[str, str, int | None]:
        """What it is about, whatever was expected of it."""
        return self.kind, self.source, self.dimension


# Backend components of a dispatch key set: which of them it holds tells the device.
_BACKENDS = frozenset(
    {
        *(
            "CPU",
            "CUDA",
            "HIP",
            "XLA",
            "MPS",
            "IPU",
            "XPU",
            "HPU",
            "VE",
            "Lazy",
            "MTIA",
            "MAIA",
            "Meta",
        ),
        *("PrivateUse1", "PrivateUse2", "PrivateUse3"),
    }
)
_TENSOR_CLASSES = {
    "size": "size",
    "stride": "stride",
    "rank": "rank",
    "dtype": "dtype",
    "device index": "device",
    "requires_grad": "requires-grad",
}
TENSOR_KINDS = (*_TENSOR_CLASSES.values(), "dispatch-keys")
_ENTRY = re.compile(r"(?:(?P<entry>\d+/\d+): )?(?P<rest>.*)", re.DOTALL)
_TENSOR = re.compile(
    r"tensor '(?P<source>.*)' (?:tensor )?(?P<what>[a-z_ ]+) mismatch"
    r"(?: at index (?P<dimension>\d+))?\."
    r" expected (?P<expected>.*?)(?:, actual (?P<actual>.*))?",
    re.IGNORECASE,
)
_STATE = re.compile(r"GLOBAL_STATE changed: (?P<what>.*)")
_OBJECT = re.compile(r"___check_obj_id\((?P<source>.*), \d+\)(?:, type=(?P<expected>.*))?")
_HINT = "(HINT: "
# torch 2.13, symbolic_shapes: a size of 0 or 1 that no line asks for
_NOT_BY_THE_LINE = "the guard itself is not due user code"
# a key of a dict may hold anything
_CLOSED_OVER = re.compile(
    r"""guard on "(?P<name>[^"]+)"(?P<path>(?:\['[^']*'\]|\["[^"]*"\]|[\w.\[\]])*)"""
)
_FRAME = re.compile(
    r'^ *File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.*)$'
    r'(?:\n +(?!File ")(?P<text>.*))?',
    re.MULTILINE,
)
_RELATION = re.compile(r"(?:^|\s)(?:[!=<>]=|<|>)\s")
_OF_NUMPY = re.compile(r"___from_numpy\(([^()]*)\)")
_NAME = r"[A-Za-z_][\w.\[\]'\"]*"
_KEY_IN_ORDER = re.compile(
    r"list\(dict\.keys\((?P<source>.*)\)\)\[(?P<position>\d+)\] == (?P<key>.*)"
)
# Two names for one object; None, True and False are values.
_ANOTHER_NAME = (
    rf"(?P<source>{_NAME}) is "
    r"(?P<expected>(?!(?:None|True|False)$|not )[A-Za-z_][\w.\[\]'\"]*)"
)
_SHAPE = re.compile(
    r".*?(?P<source>[\w.\[\]'\"]+)\.(?P<what>size|stride)\(\)\[(?P<dimension>\d+)\].*"
)


def of_array(source: str) -> str:
    """What the program has in place of the tensor that torch makes of a NumPy array."""
    return _OF_NUMPY.sub(r"\1", source)


def other_settings(guard: Guard) -> list[str]:
    """Of a mode that gave the guard its kind: what else of the process changed in the same call."""
    if guard.kind not in ("grad-mode", "autocast"):
        return []
    own = guard.kind.replace("-", "_")
    return [name for name in guard.source.split() if not name.startswith(own)]


def is_switched(guard: Guard) -> bool:
    """Whether autocast was on in some calls only: its dtype or cache may have changed instead."""
    return guard.kind == "autocast" and ")_enabled" in guard.source


def aliased(guard: Guard) -> list[str]:
    """The tensors of which some are one: torch lists all that it compares."""
    return re.findall(r'"([^"]+)"', guard.source) if guard.kind == "aliasing" else []


def is_condition(guard: Guard) -> bool:
    """Whether a value or size was expected to lie in a range, or in a relation to another. torch
    writes the length of a dict as one."""
    is_text = guard.expected.startswith(("'", '"'))
    return guard.kind != "length" and not is_text and bool(_RELATION.search(guard.expected))


def parse(text: str) -> Guard:
    """One reason as torch gives it, ``"0/0: tensor 'x' rank mismatch. expected 1, actual 2"``."""
    found = _ENTRY.fullmatch(text)
    assert found is not None  # it matches any text
    entry, reason = found["entry"] or "", found["rest"]
    guard, comment = without_comment(reason)
    of_torch = _comment(reason, comment)
    for read in _READINGS:
        if (parsed := read(guard)) is not None:
            kind, fields = parsed
            return Guard(kind=kind, entry=entry, text=guard, **fields, **of_torch)
    return Guard(kind=OTHER, entry=entry, text=guard, **of_torch)


def _comment(reason: str, comment: str) -> dict[str, Any]:
    """What torch says about a guard: behind it in its line, and in the stack below."""
    line = reason.partition("\n")[0]
    hint, used = _hint(line), used_at(comment)
    closed_over = _CLOSED_OVER.search(hint)
    return {
        "used": None if _NOT_BY_THE_LINE in line else used,
        "stack": tuple(place(frame) for frame in _FRAME.finditer(reason)),
        "hint": hint,
        "switches": switches_in(line),
        "variable": f"{closed_over['name']}{closed_over['path']}" if closed_over else "",
    }


def _hint(line: str) -> str:
    """What stands in torch's brackets at the end of the line."""
    hint = line.partition(_HINT)[2].rstrip()
    return hint.removesuffix(")") if hint.endswith(")") else ""


Parsed = tuple[str, dict[str, Any]] | None  # the class, and Guard's other fields


def _tensor(guard: str) -> Parsed:
    found = _TENSOR.fullmatch(guard)
    if found is None:
        return None
    what = found["what"].lower()
    # Behind the last of them torch may name a switch.
    expected, actual = ((found[name] or "").partition(". ")[0] for name in ("expected", "actual"))
    kind = _TENSOR_CLASSES.get(what, OTHER)
    if what == "dispatch key set":
        kind = "dispatch-keys" if devices_of(expected) == devices_of(actual) else "device"
    dimension = found["dimension"]
    return kind, {
        "source": found["source"],
        "dimension": None if dimension is None else int(dimension),
        "expected": expected.removeprefix("requires_grad=").removeprefix("device index to be "),
        "actual": actual,
    }


def devices_of(keys: str) -> set[str]:
    return set(re.findall(r"\w+", keys)) & _BACKENDS


def _state(guard: str) -> Parsed:
    """Several settings may have changed at once; the first one named gives the class."""
    found = _STATE.fullmatch(guard)
    if found is None:
        return None
    what = found["what"].strip()
    if what.startswith("grad_mode"):
        return "grad-mode", {"source": what}
    return "autocast" if what.startswith("autocast") else "global-state", {"source": what}


def _by_name(guard: str) -> Parsed:
    """What torch compares as a whole, by the name of the check."""
    if "check_no_aliasing" in guard or "object_aliasing" in guard.lower():
        return "aliasing", {}
    if guard.startswith("BACKEND_MATCH") or "___check_current_backend" in guard:
        return "backend", {}
    known = (
        "___check_torch_function_mode_stack",
        "TORCH_FUNCTION_MODE",
        "CURRENT_DEVICE",
        "___check_global_state",
    )
    return ("global-state", {}) if any(name in guard for name in known) else None


def _check_object(guard: str) -> Parsed:
    """None, True and False are compared by identity too, and are what they say: a type and two
    values."""
    found = _OBJECT.fullmatch(guard)
    if found is None:
        return None
    expected = found["expected"] or ""
    kind = "identity"
    if "NoneType" in expected or expected == "None":
        kind = "type"
    elif "'bool'" in expected or expected in ("True", "False"):
        kind = "value"
    return kind, {"source": found["source"], "expected": expected}


def _shape(guard: str) -> Parsed:
    """A condition on a symbol: ``2 <= x.size()[0]``."""
    found = _SHAPE.fullmatch(guard)
    return found and (
        found["what"],
        {"source": found["source"], "dimension": int(found["dimension"]), "expected": guard},
    )


def _key_in_order(guard: str) -> Parsed:
    """``list(dict.keys(x))[0] == 'a'``."""
    found = _KEY_IN_ORDER.fullmatch(guard)
    return found and (
        "keys",
        {
            "source": found["source"],
            "expected": f"{found['key']} as key {int(found['position']) + 1}",
        },
    )


def _form(kind: str, form: str, **fields: str) -> Callable[[str], Parsed]:
    """Reads the guards of one form, whose groups are Guard's fields; ``not`` before it turns what
    was expected."""

    def read(guard: str) -> Parsed:
        found = re.fullmatch(form, guard)
        if found is None:
            return None
        groups = {name: text or "" for name, text in found.groupdict().items()}
        if groups.pop("not", ""):
            groups["expected"] = f"no {groups['expected']}"
        return kind, {**groups, **fields}

    return read


# In this order: a later one would also take what an earlier one takes.
_READINGS: tuple[Callable[[str], Parsed], ...] = (
    _tensor,
    _form(
        "type",
        r"expected type of '(?P<source>.*)' to be a tensor type, '? ?but found (?P<actual>.*)",
        expected=A_TENSOR,
    ),
    _state,
    _form("aliasing", r"Duplicate tensors? found: (?P<source>.*)"),
    _by_name,
    _form("type", r"___check_type_id\((?P<source>.*), \d+\)(?:, type=(?P<expected>.*))?"),
    _check_object,
    _form(
        "type",
        r"CodeGuardAccessor: Not a function on (?P<source>.*)\.__code__",
        expected="a function",
    ),
    _form("keys", r"(?P<not>not )?___dict_contains\((?P<expected>.*), (?P<source>[^,]*)\)"),
    _form("keys", r"(?P<not>not )?set\.__contains__\((?P<source>[^,]*), (?P<expected>.*)\)"),
    _key_in_order,
    _form("keys", r"list\((?:dict\.keys\()?(?P<source>.*?)(?:\.keys\(\))?\)+ == (?P<expected>.*)"),
    _form("keys", r"KeyError on (?P<source>.*)\[(?P<expected>'[^']*')\]"),
    _form("attribute", r"(?P<not>not )?hasattr\((?P<source>.*), (?P<expected>'[^']*')\)"),
    _form("length", r"len\((?P<source>.*)\) (?:== )?(?P<expected>(?:(?:!=|<=?|>=?) )?\d+)"),
    _form("length", r"not (?P<source>[\w.\[\]'\"]+)", expected="0"),
    _shape,
    _form("type", r"(?P<source>.*) is (?P<expected>(?:not )?None)"),
    _form("aliasing", _ANOTHER_NAME),
    _form("value", r"(?P<source>.*?) (?:==|is) (?P<expected>.*)"),
    _form("value", rf"(?P<source>{_NAME}) (?P<expected>(?:!=|<=?|>=?) .*)"),
    _form("value", rf"(?P<expected>-?[\d.]+ <=? (?P<source>{_NAME}))"),
)
