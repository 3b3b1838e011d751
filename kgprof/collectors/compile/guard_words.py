"""A guard in a sentence, with the names that the program gives its values."""

import os.path
import re
from collections.abc import Sequence

from kgprof import model as m
from kgprof.collectors.compile.input_sizes import MEMBER
from kgprof.collectors.compile.remedies import keys_of, param_group
from kgprof.collectors.guard_text import (
    A_TENSOR,
    TENSOR_KINDS,
    Guard,
    aliased,
    is_switched,
    of_array,
    other_settings,
)
from kgprof.wording import clause

STATES = {  # of the process, of which torch says no more
    "grad-mode": "it ran with gradients and without (no_grad, inference_mode): torch compiles each",
    "autocast": "it ran with autocast and without, and torch compiles for each",
    "backend": "several torch.compile calls compile it, with different backends or arguments",
}
_OTHER_AUTOCAST = "autocast was set in more than one way, and torch compiles for each"
HELD = "a value that the line of a graph break holds"
# modes that act on each call of a torch function, by the name of torch's check
_MODES = ("___check_torch_function_mode_stack", "TORCH_FUNCTION_MODE")
_DELETED = "Cache line invalidated because"
_METADATA = "___check_metadata_"  # of the second value that __tensor_flatten__ returns
_RETURNED_SIZE = re.compile(r"___stack\d+(?:\.size\(\)\[\d+\])*")
_GLOBAL = re.compile(r"G\['(\w+)'\]")
_LOCAL = re.compile(r"L\['(\w+)'\]")
_CELL = re.compile(r"(?P<owner>.+?)\.__closure__\[\d+\]\.cell_contents")
_PARTIAL = re.compile(r"(?P<owner>.+)\.(?:keywords\['(?P<name>\w+)'\]|args\[(?P<number>\d+)\])")
_POSITIONAL = re.compile(r"args\[(\d+)\]")
_NAMED = re.compile(r"kwargs\['(\w+)'\]")
_WRAPPED = re.compile(r"fn(?=\.|$)")
_OWNER = "fn.__self__"
# torch writes the condition under which it rejects a dict
_LENGTH_OF_DICT = re.compile(r"!= (?=\d+$)")
# torch's access to an entry of a dict whose key is no constant
_KEY_AT = re.compile(r"\[list\(dict\.keys\([^()]*\)\)\[(?P<position>\d+)\]\]")
_LONG_FLOAT = re.compile(r"-?\d+\.\d{7,}(?:e[+-]?\d+)?")


def is_returned_by_a_break(guard: Guard) -> bool:
    """Whether the value itself came from the line of a graph break. A tensor's dtype or size came
    with the inputs."""
    is_result = is_left_by_a_break(guard) and not guard.is_held
    return is_result and guard.kind not in TENSOR_KINDS


def is_left_by_a_break(guard: Guard) -> bool:
    return guard.source.startswith(m.ON_STACK) or guard.text.startswith(m.ON_STACK)


def in_words(
    guard: Guard, *, same: Sequence[Guard] = (), wraps: str = "", arguments: Sequence[str] = ()
) -> str:
    """``size of x, dimension 0: expected 8, got 9``. ``same``: all guards on the same value;
    ``wraps`` and ``arguments``: what torch's wrapper calls, if it is that which was compiled."""
    if guard.kind in STATES:
        if guard.kind == "autocast" and not is_switched(guard):
            return f"{_OTHER_AUTOCAST}{_with_others(guard)}"
        return f"{STATES[guard.kind]}{_with_others(guard)}"
    if guard.kind == "global-state" and guard.source:
        changed = _settings(guard.source.split())
        return f"the {changed} of the process changed, and torch compiles for each"
    if guard.text.startswith(_MODES):
        return (
            "it ran under a torch function mode such as `with torch.device(...)` and without, or "
            "under another, and torch compiles for each"
        )
    if guard.text.startswith(_METADATA):
        return "what a tensor subclass keeps beside its data is another than before"
    if guard.text.startswith(_DELETED):
        return "an object that it was compiled for was deleted, and torch drops such code"
    if is_returned_by_a_break(guard):
        return "that line returned another value than before"
    name = named(guard, wraps, arguments)
    if is_left_by_a_break(guard):
        name = "the result of a graph break's line"
        if guard.is_held:
            name = HELD
    if guard.kind == "dispatch-keys" and _is_of_autograd(guard):
        return f"{name} was made under torch.inference_mode in some calls and not in others"
    if guard.kind == "identity" and guard.source:  # its type says nothing: the other one has it too
        if guard.source.endswith(".__code__"):
            return f"{name} is another function than before"
        return f"{name} is another object than before"
    if guard.kind == "aliasing" and (one := aliased(guard)):
        which = " and ".join(one)
        if len(one) > 2:  # torch lists all tensors that it compares
            which = f"two or more of {', '.join(one)}"
        return f"{which} are one tensor, and were not before"
    if guard.kind == "aliasing" and guard.expected:
        return f"{name} and {guard.expected} were one object, and are two now"
    if guard.kind == "keys" and (keys := keys_of(same or (guard,))):
        has = f"{name} has {' and '.join(keys)}"
        if guard.source.endswith(".__dict__"):
            has += " of its own"
        return f"{has} in some calls and not in others"
    if guard.kind == "identity":  # what was created again has no name in a guard
        return guard.text
    subject = change = ""
    if guard.source:
        subject = f" of {name}"
    expected, actual = (_shortened(value, guard) for value in (guard.expected, guard.actual))
    if expected == A_TENSOR and "." in actual:  # of another class, which may be a tensor as well
        expected = ""
    if sides := ", ".join(filter(None, (clause("expected ", expected), clause("got ", actual)))):
        change = f": {sides}"
    if not (change or subject):
        return guard.text
    if guard.dimension is not None:
        subject += f", dimension {guard.dimension}"
    return f"{guard.kind}{subject}{change}"


def _settings(names: Sequence[str]) -> str:
    words = "settings"
    if len(names) == 1:
        words = "setting"
    return f"{words} {' and '.join(names)}"


def _with_others(guard: Guard) -> str:
    """The settings that changed beside the one that gives the guard its kind."""
    if not (others := other_settings(guard)):
        return ""
    return f" (the {_settings(others)} changed in the same call)"


def _key_by_number(found: re.Match[str]) -> str:
    return f"[its key {int(found['position']) + 1}]"


def _is_of_autograd(guard: Guard) -> bool:
    """Whether dispatch keys differ in nothing but those that a tensor of inference mode lacks."""
    keys = (set(re.findall(r"\w+", text)) for text in (guard.expected, guard.actual))
    differ = set.symmetric_difference(*keys)
    return all(key.startswith(("Autograd", "ADInplaceOrView")) for key in differ)


def named(guard: Guard, wraps: str = "", arguments: Sequence[str] = ()) -> str:
    """What a guard is on, as the program names it."""
    source = of_array(guard.source.removesuffix(".__code__"))
    source = _KEY_AT.sub(_key_by_number, source)
    if group := param_group(guard):
        return f"{group['key']}{group['part']} of the optimizer's param group {group['group']}"
    if guard.variable:
        cell = _CELL.match(source)
        if cell is None:
            return guard.variable
        owner = _GLOBAL.sub(r"\1", _LOCAL.sub(r"\1", cell["owner"]))
        return f"{guard.variable}, which {owner} closes over"
    if partial := _PARTIAL.fullmatch(source):
        argument = partial["name"] or f"argument {partial['number']}"
        owner = f"functools.partial {partial['owner']}"
        if wraps and _WRAPPED.fullmatch(partial["owner"]):
            owner = wraps
        return f"{argument} in the {owner}"
    if wraps:
        source = _of_wrapped(source, wraps, arguments)
    source = _GLOBAL.sub(r"the global \1", source).removesuffix(".__dict__")
    return MEMBER.sub(r".\1", _LOCAL.sub(r"\1", source))


def _of_wrapped(source: str, wraps: str, arguments: Sequence[str]) -> str:
    """The wrapper has its arguments in ``args`` and ``kwargs``, and calls ``fn``, of whose object a
    method says ``self``."""
    if source.startswith(_OWNER):
        return f"self{source.removeprefix(_OWNER)}"
    if (at := _POSITIONAL.match(source)) and int(at[1]) < len(arguments):
        return f"{arguments[int(at[1])]}{source[at.end() :]}"
    return _WRAPPED.sub(wraps, _NAMED.sub(r"\1", source), count=1)


def _shortened(value: str, guard: Guard) -> str:
    if guard.kind == "length":
        value = _LENGTH_OF_DICT.sub("", value)
    value = _RETURNED_SIZE.sub("it", value)
    if _LONG_FLOAT.fullmatch(value):
        return f"{float(value):.6g}"
    return value


def used_in(place: m.Location | None, beside: m.Location | None) -> str:
    """``, used in line 6``; with the file's name where that is not the file of ``beside``."""
    if place is None:
        return ""
    if beside is not None and beside.file == place.file:
        return f", used in line {place.line}"
    return f", used in {os.path.basename(place.file)}:{place.line}"
