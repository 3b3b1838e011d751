"""A table, declared once and printed three times: as Markdown and for a terminal here, on the page
by ``blocks`` in templates/partials/macros.html.jinja. A cell holds what its figure is, what
qualifies it, and why it is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.escaping import escaped, one_line
from kgprof.document.quantity import (
    DASH,
    EXTREMES,
    count,
    figure,
    of_width,
    or_dash,
    percent,
    ranged,
    sampled,
    size,
)

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from kgprof.document.limits import Limits

_Value = TypeVar("_Value")
P = ParamSpec("P")
_SHORT = 16  # characters: on the page such details share a line, and longer ones may be wrapped
_FIGURES = (int, bool, float | None)  # types of fields without a text
_TERMINAL = 300  # characters of a cell


class View(m.Model):
    """What a template or a printer shows. A page has tens of thousands, and a dataclass takes 15
    times as long."""

    @property
    def block(self) -> str:
        """What a template calls its kind."""
        return type(self).__name__.lower()


Texts = Sequence[str]
Shown = dict[str, Any]  # what a template alone reads, by name
Note = tuple[str, str]  # what it is about, and a text


class Small(View, kw_only=False):
    """Texts in small below a cell's own; ``style`` is their class in the style sheet."""

    texts: Texts
    style: str = "below"
    fold: str = ""  # the words that open them on a click; empty: they are in sight


class Cell(View, kw_only=False):
    text: str = ""
    details: Texts = ()  # what qualifies a figure: its range, its samples
    below: Sequence[Small] = ()  # on the page only
    value: float | None = None  # what the page sorts by, where the text does not sort
    measured: bool = True
    title: str = ""  # shown on hovering; of a missing figure the reason
    wrong: bool = False  # a reader must not miss it
    bar: float | None = None  # 0..1 of a bar below the figure
    style: str = ""  # a class of the cell, beside its column's
    bar_style: str = ""
    mark: str = ""  # a letter or sign before the text that says the same
    mark_style: str = ""
    span: int = 1  # columns
    # what stands for the text in Markdown and on a terminal, where the page shows it in parts
    name: str = ""

    @property
    def detail(self) -> str:
        return ", ".join(self.details)

    @property
    def plain(self) -> str:
        return self.name or self.text

    @property
    def width(self) -> str:
        return or_dash(self.bar, of_width, "")

    @property
    def sort(self) -> str:
        """What the page sorts by, where the text says less."""
        shown = or_dash(self.value, "{:.5g}".format, "")
        if shown == self.text.replace(",", ""):
            return ""
        return shown

    @property
    def lines(self) -> Sequence[Small]:
        """The details as the page shows them: short ones share a line, so that no column grows for
        them."""
        lines: list[str] = []
        for detail in self.details:
            if lines and len(lines[-1]) + len(detail) + 2 <= _SHORT:
                lines[-1] += f", {detail}"
            else:
                lines.append(detail)
        return [Small((line,), _style(line)) for line in lines]


def _style(detail: str) -> str:
    if len(detail) > _SHORT:
        return "detail long"
    return "detail"


class Column(View, kw_only=False):
    name: str
    title: str = ""  # what the figures are: unit, pass, statistic
    style: str = "number"  # the class of its cells; only numbers stand on the right
    details: int = 0  # how many of a cell's details a terminal has room for

    @property
    def number(self) -> bool:
        return self.style.startswith("number")


class Row(View):
    cells: Sequence[Cell]
    anchor: str = ""
    style: str = ""


class Table(View, kw_only=False):
    """``label`` says to those who do not see it what the table is. A note is a text, or what it is
    about and a text."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    label: str = ""
    notes: Sequence[str | Note] = ()
    totals: Sequence[Row] = ()  # below the rows, whatever they are sorted by
    style: str = ""  # "sortable", "filtered"
    named_by: int = 0  # the column whose cells name their rows

    def only(self, *names: str) -> Table:
        """The table with these columns alone, in this order."""
        at = [
            next(i for i, column in enumerate(self.columns) if column.name == name)
            for name in names
        ]
        rows, totals = (
            [replace(row, cells=[row.cells[i] for i in at]) for row in rows]
            for rows in (self.rows, self.totals)
        )
        return replace(
            self, columns=[self.columns[i] for i in at], rows=rows, totals=totals, named_by=0
        )


class Fold(View, kw_only=False):
    """What the page shows behind one line that opens it; or, of one ``run``, while that is
    chosen."""

    title: str
    blocks: Sequence[Block] = ()
    caption: str = ""
    lead: str = ""
    anchor: str = ""
    open: bool = False
    # the anchor of the run that it is about: no fold then, but shown when that run is chosen
    run: str = ""


Fact = tuple[str, str | m.Skipped]  # its name and its value


class Facts(View, kw_only=False):
    facts: Sequence[Fact]


class Points(View, kw_only=False):
    """Sentences of a list; what follows the first of one stands below it: what to do, then what
    that brings."""

    points: Sequence[Texts]
    numbered: bool = False


class Drawing(View):
    """What the macro of its kind's name draws: templates/partials/drawings.html.jinja."""


class Drawn(Drawing, kw_only=False):
    """A drawing that templates alone read; ``name`` is its macro's."""

    name: str
    shown: Shown


Block = Table | Fold | Facts | Points | Drawing | str | Note  # a text is a note too
Blocks = Sequence[Block]
Cells = Sequence[Cell | str]


# ---------------------------------------------------------------- making


def missing(why: m.Skipped | str) -> Cell:
    """A dash, and why there is nothing else."""
    if isinstance(why, m.Skipped):
        why = why.reason
    return Cell(DASH, measured=False, title=why)


def dashed(function: Callable[P, Cell]) -> Callable[P, Cell]:
    """Make a function return a dash with the reason as soon as ``m.known`` meets what was not
    measured."""
    skipping = m.skippable(function)

    def cell(*args: P.args, **kwargs: P.kwargs) -> Cell:
        made = skipping(*args, **kwargs)
        if isinstance(made, m.Skipped):
            return missing(made)
        return made

    return cell


@dashed
def written(value: m.Figure, words: Callable[[Any], str], *details: str) -> Cell:
    """``words`` of the value, which the page sorts by, and those details that are not empty."""
    shown = m.known(value)
    return Cell(words(shown), tuple(filter(None, details)), value=shown)


def number(value: m.Figure, *details: str) -> Cell:
    """Three digits."""
    return written(value, figure, *details)


def whole(value: int | m.Skipped, *details: str) -> Cell:
    return written(value, count, *details)


def share(value: m.Figure, *details: str) -> Cell:
    return written(value, percent, *details)


def sized(value: int | m.Skipped, *details: str) -> Cell:
    return written(value, size, *details)


def several(
    value: _Value | m.Skipped, columns: int, cells: Callable[[_Value], Sequence[Cell]]
) -> Sequence[Cell]:
    """``cells`` of the value in as many columns."""
    if isinstance(value, m.Skipped):
        return [missing(value)] * columns
    return cells(value)


@dashed
def timed(time: m.Time, scale: float = 1.0, unit: str = "") -> Cell:
    """The median times ``scale``, and below it the range and the number of the samples."""
    spread = m.known(time)
    return written(
        spread.median * scale,
        lambda median: f"{figure(median)}{unit}",
        ranged(spread, scale),
        sampled(spread),
    )


def small(*texts: str, style: str = "below") -> Sequence[Small]:
    """A line each, of those that are not empty."""
    return [Small((text,), style) for text in texts if text]


def row(*cells: Cell | str, anchor: str = "", style: str = "") -> Row:
    return Row(cells=tuple(map(_as_cell, cells)), anchor=anchor, style=style)


def _as_cell(cell: Cell | str) -> Cell:
    if isinstance(cell, str):
        return Cell(cell)
    return cell


def plain(
    label: str,
    headings: Sequence[str | Column],
    rows: Iterable[Row | Cells],
    *,
    style: str = "sortable",
    first: str = "",
    words: int = 1,
    named_by: int = 0,
) -> Table:
    """Where a heading is no Column, the first ``words`` cells of each row are words and the others
    numbers; ``first``: the style of the first ones."""
    columns = []
    for place, heading in enumerate(headings):
        if isinstance(heading, str):
            heading = Column(heading)
            if place < words:
                heading = replace(heading, style="")
        columns.append(heading)
    if first:
        columns[0] = replace(columns[0], style=first)
    made = []
    for cells in rows:
        if not isinstance(cells, Row):
            cells = row(*cells)
        made.append(cells)
    return Table(columns, made, label, style=style, named_by=named_by)


# ---------------------------------------------------------------- printing


def bounded(content: _Value, limits: Limits) -> _Value:
    """What the page has room for: no list too long, and every text visible, on one line, and no
    longer than two names. Most of it is as it should be, and is given back as it came."""
    made: Any = content
    if isinstance(content, str):
        made = one_line(content, 2 * limits.name)
    elif isinstance(content, tuple | list):
        made = type(content)([bounded(part, limits) for part in content[: limits.longest]])
    elif isinstance(content, dict):
        made = {name: bounded(part, limits) for name, part in content.items()}
    elif names := _fields(made.__class__):
        changed = {}
        for name in names:
            if (part := getattr(content, name)) and (shown := bounded(part, limits)) is not part:
                changed[name] = shown
        if changed:
            content = replace(made, **changed)
        return content
    if made != content:
        content = made
    return content


@cache
def _fields(kind: type) -> Texts:
    """Those that may hold a text; none of a drawing, nor of what no table is made of."""
    if issubclass(kind, Drawing) or not issubclass(kind, View | m.Skipped | m.Finding):
        return ()
    return [part.name for part in msgspec.structs.fields(kind) if part.type not in _FIGURES]


def markdown(table: Table) -> list[str]:
    """The heading's two lines, and a line a row."""

    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    def printed(cell: Cell) -> str:
        text = escaped(cell.plain)
        if cell.wrong:
            text = f"**{text}**"
        if cell.details and cell.measured:
            text += f"<br><sub>{escaped(cell.detail, 400)}</sub>"
        return text

    def rule(column: Column) -> str:
        if column.number:
            return "--:"
        return ":--"

    head = [line(escaped(column.name) for column in table.columns), line(map(rule, table.columns))]
    return head + [line(map(printed, row.cells)) for row in (*table.rows, *table.totals)]


def terminal(table: Table) -> RichTable:
    """Aligned for a terminal; below a row, dimmed, the details that its columns have room for."""
    from rich.table import Table as RichTable  # late: `kgprof --help` must not pay for it

    printed = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in table.columns:
        side: Literal["left", "right"] = "left"
        if column.number:
            side = "right"
        printed.add_column(one_line(column.name, _TERMINAL), overflow="fold", justify=side)
    for made in table.rows:
        printed.add_row(*(one_line(cell.plain, _TERMINAL) for cell in made.cells))
        details = [
            ", ".join(
                detail.removesuffix(f", {EXTREMES}")
                for detail in cell.details[: column.details * cell.measured]
            )
            for column, cell in zip(table.columns, made.cells, strict=False)
        ]
        if any(details):
            printed.add_row(*(one_line(detail, _TERMINAL) for detail in details), style="dim")
    for made in table.totals:
        printed.add_row(*(one_line(cell.plain, _TERMINAL) for cell in made.cells), style="dim")
    return printed
