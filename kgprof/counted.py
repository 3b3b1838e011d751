"""A number and its noun: "1 step", "1,234 steps"."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """``plural``, where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
