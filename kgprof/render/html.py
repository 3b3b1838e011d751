"""One self-contained HTML file: no request leaves it, and it never grows beyond MAX_BYTES."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from kgprof import model as m
from kgprof.render import page, resources
from kgprof.render.carried import Packed, Share, packed
from kgprof.render.hand_off import TraceToHandOff, carried
from kgprof.render.limits import TOP_KERNELS, Limits
from kgprof.render.visible import visible

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_BYTES = 1_000_000
TEMPLATE = "report.html.jinja"
FRAME_BYTES = 4_000  # what a carried trace needs besides its data: link, button, names (of 400 characters, escaped)

# What goes when the page grows too large, in this order; each level holds what the one before it holds, or less. Of the
# Profile that the page carries, what no comparison reads goes before anything that a reader of the page sees but the
# logs; the rest of it goes before findings do, which are what the page is for.
_FULL = Limits(
    log_chars=300_000,
    timelines=12,
    flames=6,
    flame_rows=40,
    host_rows=25,
    kernel_rows=TOP_KERNELS,
    findings=500,
    runs=200,
    name=400,
    lines=200,
    carries=Share.WHOLE,
)
_QUIET = replace(_FULL, log_chars=0)
_SHORT = replace(_QUIET, carries=Share.COMPARABLE)
_BARE = replace(_SHORT, timelines=0, flames=0, flame_rows=0, host_rows=0, kernel_rows=0, name=200, lines=50)
LEVELS = (
    _FULL,
    _QUIET,
    _SHORT,
    replace(_SHORT, timelines=4, flames=4, flame_rows=20),
    replace(_SHORT, timelines=2, flames=2, flame_rows=12, host_rows=0),
    replace(_SHORT, timelines=1, flames=1, flame_rows=8, host_rows=0, kernel_rows=8, name=300, lines=100),
    _BARE,
    replace(_BARE, carries=Share.NOTHING),
    replace(_BARE, carries=Share.NOTHING, findings=100, runs=50, name=120, lines=20),
    replace(_BARE, carries=Share.NOTHING, findings=20, runs=20, name=60, lines=10),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithTraces:
    """A page, and the traces that it carries: the others must lie where their links lead."""

    text: str
    carried: frozenset[m.RunKey]


class Html:
    name = "html"
    suffix = ".html"

    def render(self, profile: m.Profile) -> str:
        return self.with_traces(profile, ()).text

    def with_traces(self, profile: m.Profile, traces: Sequence[TraceToHandOff]) -> WithTraces:
        """Traces get what room the page leaves: nothing else of it goes for them."""
        made = _first_that_fits(profile, traces)
        left = MAX_BYTES - len(made.text.encode("utf-8"))
        which = carried(traces[: made.limits.runs], left - FRAME_BYTES * len(traces))
        text = _rendered(profile, made.limits, made.own, traces, which) if which else made.text
        return WithTraces(text=text, carried=which)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    limits: Limits
    own: Packed
    text: str


def _first_that_fits(profile: m.Profile, traces: Sequence[TraceToHandOff]) -> _Made:
    """Most pages fit as they are. The others get smaller from level to level, so that the level is found by halving."""
    packing = cache(lambda share: packed(profile, share))

    def attempt(level: int) -> _Made | None:
        limits = LEVELS[level]
        own = packing(limits.carries)
        if len(own.text) > MAX_BYTES:
            return None
        text = _rendered(profile, limits, own, traces)
        return _Made(limits=limits, own=own, text=text) if len(text.encode("utf-8")) <= MAX_BYTES else None

    found = attempt(0)
    low, high = 1, len(LEVELS) - 1 if found is None else 0
    while low <= high:
        middle = (low + high) // 2
        tried = attempt(middle)
        found, low, high = (tried, low, middle - 1) if tried else (found, middle + 1, high)
    if found is None:
        raise AssertionError(f"a page of the last level is larger than {MAX_BYTES:,} bytes")
    return found


def _rendered(
    profile: m.Profile,
    limits: Limits,
    own: Packed,
    traces: Sequence[TraceToHandOff] = (),
    which: Collection[m.RunKey] = (),
) -> str:
    from markupsafe import Markup

    style, script = _asset("report.css"), _bare(_asset("report.js"))
    return (
        _environment()
        .get_template(TEMPLATE)
        .render(
            page=page.build(profile, limits, own, traces, which),
            # The only two strings that are not escaped, and both are files of ours.
            style=Markup(style),
            script=Markup(script),
            policy=content_security_policy(style, script),
        )
    )


def content_security_policy(style: str, script: str) -> str:
    """Nothing may be loaded, and of inline code only these two texts may run."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


@cache
def _bare(script: str) -> str:
    """Without the lines that only comment and without indentation: every report carries it."""
    lines = (line.strip() for line in script.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


@cache
def _asset(name: str) -> str:
    return (resources.directory("templates") / "assets" / name).read_text(encoding="utf-8")


def _shown(value: object) -> object:
    """Whatever a template writes, so that no field is forgotten. What is Markup has been through here."""
    return visible(value, keep="\n\t") if type(value) is str else value


@cache
def _environment() -> Environment:
    # jinja2 is imported late: `kgprof --help` names the formats and must not pay for it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=FileSystemLoader(str(resources.directory("templates"))),
        # By default only names that end in .html are escaped, and ours end in .html.jinja.
        autoescape=select_autoescape(["html.jinja"]),
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
