"""Numbers as people read them: a few significant digits, thousands separators, never an exponent."""

from __future__ import annotations

from decimal import Decimal


def figure(value: float, digits: int = 3) -> str:
    """For columns: always ``digits`` significant digits; whole numbers above a thousand keep all their digits."""
    if value == 0:
        return "0"
    exponent = int(f"{value:e}".rpartition("e")[2])
    decimals = min(max(0, digits - 1 - exponent), 9)
    return f"{value:,.{decimals}f}"


def short(value: float, digits: int = 3, *, sign: str = "") -> str:
    """For sentences: the same without zeros at the end. ``sign``: "+" where a positive one has its sign too."""
    if abs(value) >= 10**digits:
        return f"{value:{sign},.0f}"
    return f"{Decimal(f'{value:.{digits}g}'):{sign},f}"
