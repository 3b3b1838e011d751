"""A sheet as a page, as Markdown and as text.

Texts may come from anybody: each printer makes them visible, on one line, and escapes them.
"""

import re
from collections.abc import Callable, Sequence

from kgprof import model as m
from kgprof._version import __version__
from kgprof.document.escaping import escaped, one_line, visible
from kgprof.document.sheet import Code, Sheet
from kgprof.document.table import Block, Facts, Fold, Table, terminal
from kgprof.document.table import markdown as table_lines
from kgprof.render.html import assets, environment
from kgprof.render.page import SYMBOLS
from kgprof.render.text import STATUS_STYLES, WIDTH, new_console, printed, say

TEMPLATE = "sheet.html.jinja"
_TEXT = 2_000  # characters of a sentence


def html(sheet: Sheet) -> str:
    """One file without scripts, of which no request leaves."""
    from markupsafe import Markup

    style, _, policy = assets()
    template = environment().get_template(TEMPLATE)
    status = "OK" if sheet.status is m.VerdictStatus.OK else sheet.status.capitalize()
    shown = {"symbol": SYMBOLS[sheet.status], "status": status, "version": __version__}
    return template.render(sheet=sheet, style=Markup(style), policy=policy, **shown)


def markdown(sheet: Sheet) -> str:
    lines = [f"## {escaped(sheet.title)}", "", f"**{escaped(sheet.verdict)}**", ""]
    lines += [f"{escaped(line)}  " for line in (sheet.trust, ", ".join(sheet.facts)) if line]
    for section in sheet.sections:
        lines += ["", f"### {escaped(section.title)}", ""]
        lines += [escaped(section.intro), ""] if section.intro else []
        lines += _markdown(section.blocks)
    return "\n".join(lines).rstrip() + "\n"


def _markdown(blocks: Sequence[Block]) -> list[str]:
    lines: list[str] = []
    for block in blocks:
        match block:
            case Table():
                head, rows = table_lines(block)
                lines += [*head, *rows, "", *_markdown(block.notes)]
            case Fold():
                lines += ["<details>", f"<summary>{escaped(block.title)}</summary>", ""]
                lines += [*_markdown(block.blocks), "</details>", ""]
            case Code():
                fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", block.text)), 3)
                lines += [f"{fence}python", *map(visible, block.text.splitlines()), fence, ""]
            case Facts():
                lines += [
                    *(f"- {escaped(fact.name)}: {escaped(fact.value)}" for fact in block.facts),
                    "",
                ]
            case str():
                lines += [escaped(block, _TEXT), ""]
            case (name, text):
                lines += [f"**{escaped(name)}:** {escaped(text, _TEXT)}", ""]
    return lines


def text(sheet: Sheet, *, color: bool = False, width: int = WIDTH) -> str:
    console = new_console(color, width - 1)
    say(console, sheet.title, "bold")
    say(console, f"{sheet.status.upper()}: {sheet.verdict}", STATUS_STYLES.get(sheet.status, ""))
    for line in (sheet.trust, ", ".join(sheet.facts)):
        if line:
            say(console, line, indent="  ")
    for section in sheet.sections:
        console.print()
        say(console, section.title, "bold")
        if section.intro:
            say(console, section.intro)
        _print(section.blocks, console.print, lambda line: say(console, line))
    return printed(console)


def _print(
    blocks: Sequence[Block], put: Callable[[object], None], sentence: Callable[[str], None]
) -> None:
    """Of a fold the title alone: what it holds is on the page."""
    for block in blocks:
        match block:
            case Table():
                put(terminal(block))
                _print(block.notes, put, sentence)
            case Fold():
                sentence(f"{block.title}: on the page")
            case Code():
                put("\n".join(f"    {visible(line)}" for line in block.text.splitlines()))
            case Facts():
                for fact in block.facts:
                    sentence(f"{fact.name}: {fact.value}")
            case str():
                sentence(block)
            case (name, words):
                sentence(f"{name}: {one_line(words, _TEXT)}")
