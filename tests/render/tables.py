"""What a test looks at in a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from kgprof.document.table import Block, Cell, Drawing, Fold, Table

_Drawing = TypeVar("_Drawing", bound=Drawing)


def texts(table: Table) -> tuple[tuple[str, ...], ...]:
    """The text of each cell, row by row."""
    return tuple(tuple(cell.text for cell in row.cells) for row in table.rows)


def tables(blocks: Iterable[Block]) -> tuple[Table, ...]:
    """Those that stand open or in a fold."""
    inside = (tables(block.blocks) if isinstance(block, Fold) else (block,) for block in blocks)
    return tuple(block for group in inside for block in group if isinstance(block, Table))


def notes(blocks: Iterable[Block]) -> tuple[str, ...]:
    return tuple(block for block in blocks if isinstance(block, str))


def drawn(kind: type[_Drawing], blocks: Iterable[Block]) -> _Drawing | None:
    """The first drawing of that kind."""
    return next((block for block in blocks if isinstance(block, kind)), None)


def small(cell: Cell) -> tuple[str, ...]:
    """What stands in small below the cell's text."""
    return tuple(text for part in cell.below for text in part.texts)
