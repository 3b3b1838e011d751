"""Names of kernels, short enough to read and long enough to be told apart."""

from __future__ import annotations

_NOISE = ("void ", "at::native::", "(anonymous namespace)::", "at_cuda_detail::")
LENGTH = 110
_KEPT_END = 24


def short_name(name: str, length: int = LENGTH) -> str:
    """A C++ name without what all of them share and without its parameters; what is still too long loses its middle,
    for Inductor's generated names are told apart by the number at their end."""
    for noise in _NOISE:
        name = name.replace(noise, "")
    return middle_out(_without_parameters(name), length)


def middle_out(name: str, length: int) -> str:
    if len(name) <= length:
        return name
    return f"{name[: length - _KEPT_END - 1]}\N{HORIZONTAL ELLIPSIS}{name[-_KEPT_END:]}"


def _without_parameters(name: str) -> str:
    """Up to the parenthesis that ends a function's name, outside of its template's arguments. One after a space is
    part of a name: "Memcpy DtoH (Device -> Pageable)"."""
    depth = 0
    for at, character in enumerate(name):
        if character == "(" and depth <= 0 and name[:at].strip() and name[at - 1] != " ":
            return name[:at]
        depth += (character == "<") - (character == ">")
    return name
