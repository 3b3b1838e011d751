"""One self-contained HTML file: no request leaves it, and it never grows beyond MAX_BYTES."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.limits import FIRST_RUNS, MORE_KERNELS, TOP_KERNELS, Limits, Share, importance
from kgprof.render import page
from kgprof.render.embedded_profile import TraceFile, embedded, packed, trace_links
from kgprof.render.markdown import blob
from kgprof.wording import visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.environment import TemplateModule

MAX_BYTES = 1_000_000
TEMPLATE = "report.html.jinja"
# what a carried trace needs besides its data: link, button, names (of 400 characters, escaped)
FRAME_BYTES = 4_000

# What goes when the page grows too large, in this order; each level holds what the one before it
# holds, or less. Of the Profile that the page carries, what no comparison reads goes before
# anything that a reader of the page sees but the logs; the rest of it goes before findings do,
# which are what the page is for.
_FULL = Limits(
    log_chars=300_000,
    timelines=12,
    flames=6,
    flame_rows=40,
    host_rows=25,
    kernel_rows=TOP_KERNELS,
    other_rows=TOP_KERNELS,
    more_kernels=MORE_KERNELS,
    findings=500,
    runs=200,
    name=400,
    lines=200,
    source_rows=300,
    code_chars=48_000,
    carries=Share.WHOLE,
)
_QUIET = replace(_FULL, log_chars=0)
_SHORT = replace(_QUIET, carries=Share.COMPARABLE)
_FIRST = replace(
    _SHORT,
    timelines=FIRST_RUNS,
    flames=FIRST_RUNS,
    flame_rows=20,
    other_rows=15,
    source_rows=200,
    code_chars=24_000,
)
_LESS = replace(_FIRST, other_rows=4, source_rows=60, code_chars=6_000)
_LEAST = replace(
    _LESS, flame_rows=8, host_rows=0, kernel_rows=10, more_kernels=150, name=300, lines=100
)
_PICTURES = ("timelines", "flames", "flame_rows", "source_rows", "code_chars")
_ROWS = ("host_rows", "kernel_rows", "other_rows", "more_kernels")
_BARE = replace(_SHORT, name=200, lines=50, **dict.fromkeys((*_PICTURES, *_ROWS), 0))
LEVELS = (
    _FULL,
    _QUIET,
    _SHORT,
    _FIRST,
    replace(_FIRST, flame_rows=16, host_rows=10, other_rows=8, source_rows=120, code_chars=12_000),
    replace(_LESS, flame_rows=12, host_rows=5, kernel_rows=20),
    replace(_LESS, flame_rows=10, host_rows=0, kernel_rows=15),
    _LEAST,
    replace(_LEAST, timelines=1, flames=1, kernel_rows=6, other_rows=2, more_kernels=40),
    _BARE,
    replace(_BARE, carries=Share.NOTHING),
    replace(_BARE, carries=Share.NOTHING, findings=100, runs=50, name=120, lines=20),
    replace(_BARE, carries=Share.NOTHING, findings=20, runs=20, name=60, lines=10),
)

# Which level is tried first decides nothing but how many pages are made before the one that is
# written.
_MOSTLY = 5  # the level that a page needs that is too large
_TIMES_ITS_PROFILE = 5  # so much larger than the Profile in it is a page of level 0, or more
_SAYING_SO = 10_000  # no page needs more bytes to say what is left out of it


Traces = Callable[[], Sequence[TraceFile]]


class Html:
    """``traces`` is called once for each page: the files that it may carry or link to.
    ``source_url``: as Markdown's."""

    name = "html"
    suffix = ".html"

    def __init__(self, traces: Traces = tuple, source_url: str = "") -> None:
        self._traces = traces
        self._source_url = source_url

    def render(self, profile: m.Profile) -> str:
        """The trace of the first run is part of the page as long as kernels are; the others get
        what room is left."""
        order = {profile.runs[at].key: place for place, at in enumerate(importance(profile.runs))}
        traces = sorted(self._traces(), key=lambda trace: order.get(trace.run, len(order)))
        layout = Layout()
        reserved = 0
        for trace in traces:
            if order.get(trace.run) == 0 and embedded([trace], MAX_BYTES):
                reserved = 4 * (trace.size_bytes // 3 + 1) + FRAME_BYTES * len(traces)
        limits, made, text = _first_that_fits(
            profile, traces, layout, reserved, blob(profile, self._source_url)
        )
        left = MAX_BYTES - len(text.encode("utf-8"))
        which = embedded(traces[: limits.runs], left - FRAME_BYTES * len(traces))
        for trace in traces:
            if trace.run not in which:
                trace.place()
        if not which:
            return text
        return layout.text(page.carrying(made, trace_links(traces, which, limits)))


class Layout:
    """The text of pages of one Profile: a section that is as it was in the page before is not laid
    out again."""

    def __init__(self) -> None:
        self._laid_out: dict[str, tuple[page.Section, TemplateModule]] = {}

    def text(self, made: page.Page) -> str:
        from markupsafe import Markup

        for section in made.sections:
            if section.anchor not in self._laid_out or self._laid_out[section.anchor][0] != section:
                template = environment().get_template(f"partials/{section.anchor}.html.jinja")
                module = template.make_module(
                    {"page": made, "profile": made.profile, **section.content}
                )
                self._laid_out[section.anchor] = (section, module)
        style, script, policy = assets()
        return (
            environment()
            .get_template(TEMPLATE)
            .render(
                page=made,
                profile=made.profile,
                **made.head,
                chapters=[
                    (name, [self._laid_out[section.anchor] for section in sections])
                    for name, sections in made.chapters
                ],
                # The only two strings that are not escaped, and both are files of ours.
                style=Markup(style),
                script=Markup(script),
                policy=policy,
            )
        )


def _first_that_fits(
    profile: m.Profile,
    traces: Sequence[TraceFile],
    layout: Layout,
    reserved: int = 0,
    blob: str = "",
) -> tuple[Limits, page.Page, str]:
    """``reserved``: bytes for a trace, on the levels that have kernels. Most pages fit as they are.
    The others get smaller from level to level, so that the level is found by halving, from the one
    that most of them need; what a page has besides its Profile, those of the levels before it have
    too."""
    packing = cache(lambda share: packed(profile, share))
    best: tuple[Limits, page.Page, str] | None = None
    low = 0
    high = len(LEVELS) - 1
    level = 0
    if _TIMES_ITS_PROFILE * len(packing(_FULL.carries).text) > MAX_BYTES:
        level = _MOSTLY
    while low <= high:
        limits = LEVELS[level]
        own = packing(limits.carries)
        kept_free = reserved * bool(limits.kernel_rows)
        made = page.build(profile, limits, own, traces, blob)
        text = ""
        if len(own.text) <= MAX_BYTES:
            text = layout.text(made)
        if text and (size := len(text.encode("utf-8"))) <= MAX_BYTES - kept_free:
            best = (limits, made, text)
            high = level - 1
            besides = size - len(own.text) - _SAYING_SO + kept_free
            while low <= high and besides + len(packing(LEVELS[low].carries).text) > MAX_BYTES:
                low += 1
        else:
            low = level + 1
        level = (low + high + 1) // 2 if level else _MOSTLY
    if best is None:
        raise AssertionError(f"a page of the last level is larger than {MAX_BYTES:,} bytes")
    return best


def directory(name: str) -> Traversable:
    """The folder ``templates`` or ``fixtures``: a package when installed, beside the package in a
    checkout."""
    try:
        return resources.files(f"kgprof.{name}")
    except ModuleNotFoundError:
        return Path(__file__).resolve().parents[2] / name


@cache
def assets() -> tuple[str, str, str]:
    """The style sheet, the script without its comments and indentation, since every report carries
    it, and the policy: nothing may be loaded, and of inline code only these two texts may run."""
    folder = directory("templates") / "assets"
    style, script = (
        (folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js")
    )
    lines = (line.strip() for line in script.splitlines())
    script = "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))
    styles, scripts = (
        "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
        for text in (style, script)
    )
    policy = (
        f"default-src 'none'; style-src '{styles}'; script-src '{scripts}'; base-uri "
        "'none'; form-action 'none'"
    )
    return style, script, policy


def _shown(value: object) -> object:
    """Whatever a template writes, so that no field is forgotten. What is Markup has been through
    here."""
    if type(value) is str and not value.isprintable():
        return visible(value, keep="\n\t")
    return value


@cache
def environment() -> Environment:
    # jinja2 is imported late: `kgprof --help` names the formats and must not pay for it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=FileSystemLoader(str(directory("templates"))),
        # By default only names that end in .html are escaped, and ours end in .html.jinja.
        autoescape=select_autoescape(["html.jinja"]),
        undefined=StrictUndefined,
        # folding constants takes a sixth of the compilation, and there are none to fold
        optimized=False,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
