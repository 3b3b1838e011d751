"""What a verb that is no profile shows: a verdict, and sections of tables."""

import re
from collections.abc import Iterator, Sequence

from kgprof import model as m
from kgprof.document.table import Blocks, Drawing, Fold, View


class Code(Drawing, kw_only=False):
    """Lines to copy."""

    text: str


class Section(View, kw_only=False):
    title: str
    blocks: Blocks
    intro: str = ""
    # on the page the intro is behind a line that opens it; in a comment the whole section is
    folded: bool = False
    noun: str = "rows"  # what is counted where there is no room for all of them

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


Sections = Iterator[Section]


class Sheet(View):
    """``trust`` is one line on how far the verdict can be relied on; ``facts`` name machine,
    versions and date."""

    title: str
    status: m.VerdictStatus
    verdict: str
    trust: str = ""
    facts: Sequence[str] = ()
    # drawn on the page's first screen; the tables of the sections are their twins
    pictures: Sequence[Fold] = ()
    sections: Sequence[Section]
