"""The Profile for people and for machines. RENDERERS is the room's table of contents: a new format
is one line here."""

from collections.abc import Sequence
from typing import Protocol

from kgprof import model as m
from kgprof.render.github import Github
from kgprof.render.html import Html, Traces
from kgprof.render.json import Json
from kgprof.render.junit import Junit
from kgprof.render.markdown import Markdown
from kgprof.render.sarif import Sarif
from kgprof.render.text import Text


class Renderer(Protocol):
    """Reads the Profile and nothing else: the same Profile gives the same bytes."""

    name: str
    suffix: str

    def render(self, profile: m.Profile) -> str: ...


RENDERERS: Sequence[Renderer] = (Html(), Json(), Text(), Markdown(), Sarif(), Junit(), Github())


def by_name(name: str, traces: Traces | None = None, source_url: str = "") -> Renderer:
    """The renderer that ``--format`` names, which knows its names.

    ``traces``: the files that a page may carry or link to. They are no part of the Profile, and no
    other format has room for them. ``source_url``: of the repository, for the links of a finding
    that is copied from the page.
    """
    if name == Html.name and traces is not None:
        return Html(traces, source_url)
    (named,) = (renderer for renderer in RENDERERS if renderer.name == name)
    return named
