"""A sheet as a page, as Markdown and as text.

Texts may come from anybody: each printer makes them visible, on one line, and escapes them.
"""

from kgprof import model as m
from kgprof._version import __version__
from kgprof.document.escaping import escaped
from kgprof.document.sheet import Sheet
from kgprof.render.html import assets, environment
from kgprof.render.markdown import block_lines
from kgprof.render.page import SYMBOLS
from kgprof.render.text import STATUS_STYLES, WIDTH, new_console, printed, put, say

TEMPLATE = "sheet.html.jinja"


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
        lines += [*block_lines(section.blocks), ""]
    return "\n".join(lines).rstrip() + "\n"


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
        put(console, section.blocks)
    return printed(console)
