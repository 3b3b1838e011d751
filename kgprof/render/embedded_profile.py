"""What a report.html carries: its Profile, gzip in base64, in a script element of a type that no
browser runs; and traces, each a download without scripts and a button that opens Perfetto's UI, or
a link to where it lies.

`kgprof extract` and `kgprof compare` read the Profile back from the file alone, wherever that was
downloaded to. A trace stands once, as the ``data:`` address of its download link; the button's
script reads it from there.
"""

import base64
import binascii
import re
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.escaping import one_line, zipped
from kgprof.document.limits import Limits, Share
from kgprof.document.quantity import size
from kgprof.document.table import Shown, Texts, View
from kgprof.errors import InputError
from kgprof.reading import files

T = TypeVar("T")

GENERATOR = "kgprof"  # what the page's <meta name="generator"> begins with
TYPE = "application/vnd.kgprof.profile+json"  # no JavaScript type, so the element is a data block
ID = "profile"
# of one Profile, unpacked; what packs to more is not carried, and not read
MAX_JSON_BYTES = 64 * 2**20
MAX_PAGE_BYTES = 16 * 2**20  # of a file that is read; our own are below 1 MB
LEAST, MOST = 1e-100, 1e100  # of a number that is not 0: squares of others are no numbers
USE_JSON = "use the report.json next to it, which has the Profile"

_GENERATOR = re.compile(rf'<meta\s+name="generator"\s+content="{GENERATOR}\b')
# Without a way back: a page is anybody's, and in one made of "<script <script ..." each would be
# tried up to the end.
_BLOCK = re.compile(rf'<script\s(?>[^<>]*?\bid="{ID}")[^<>]*+>([^<]*)(</script>)?')
_LEFT_OUT = re.compile(r'\bdata-left-out="([^"]*)"')

_NOT_OURS = "not a report.html written by kgprof"
_OURS = "give a report.html written by kgprof"
_AGAIN = "fetch or write the report again"
_SEPARATOR = "; "


# What a COMPARABLE Profile is without, in the page's words. Each is long, and no comparison reads
# it but the source files, in place of which git knows what changed.
LONG = (
    "the logs",
    "the timelines",
    "the step times and memory curves",
    "the CPU functions",
    "the roofline",
    "the source files",
    "the graphs and their code",
)


class Packed(View, kw_only=False):
    """The element of the page. ``text`` is empty where nothing is carried; ``left_out`` says what
    is not in it."""

    text: str
    left_out: Texts
    generator: ClassVar[str] = GENERATOR
    type: ClassVar[str] = TYPE
    id: ClassVar[str] = ID

    @property
    def attribute(self) -> str:
        """``left_out``, for who reads the element."""
        return _SEPARATOR.join(self.left_out)

    @property
    def without(self) -> str:
        """``left_out``, for people: "the logs, the timelines and the host functions"."""
        return " and ".join(
            part for part in (", ".join(self.left_out[:-1]), *self.left_out[-1:]) if part
        )

    @property
    def missing(self) -> Texts:
        """What is left out, and what can still be done with the page."""
        if not self.text:
            return ("the embedded Profile (kgprof compare and kgprof extract need report.json)",)
        if self.left_out:
            return (
                f"parts of the embedded Profile that kgprof compare does not need: {self.without}",
            )
        return ()


class Embedded(View, kw_only=False):
    """What a page carries."""

    profile: m.Profile
    left_out: Texts  # as Packed.left_out; what stands in their place says so too


def packed(profile: m.Profile, share: Share) -> Packed:
    """The same Profile gives the same text."""
    if share is Share.NOTHING:
        return Packed("", ("the whole Profile",))
    left_out: Texts = ()
    held = profile
    if share is not Share.WHOLE:
        held = comparable(profile)
        left_out = LONG
    data = msgspec.json.encode(held)
    if len(data) > MAX_JSON_BYTES:
        return packed(profile, Share(share - 1))
    return Packed(zipped(data), left_out)


def comparable(profile: m.Profile) -> m.Profile:
    """Without LONG. Each leaves a reason in its place."""
    gone = m.Skipped("omitted from the embedded Profile to stay under 1 MB")
    short = []
    for run in profile.runs:
        log = run.log
        kernels = run.kernels
        if isinstance(kernels, m.KernelBreakdown):
            kernels = replace(kernels, timeline=gone, roofline=gone)
        dropped = len(log.text.encode("utf-8", errors="replace"))
        log = replace(log, text="", left_out_bytes=log.left_out_bytes + dropped)
        compiled = run.compile
        if isinstance(compiled, m.CompileSummary):
            compiled = replace(compiled, texts=())
        run = replace(run, log=log, kernels=kernels, compile=compiled)
        short.append(replace(run, host=gone, series=gone, memory_curve=gone))
    sources = tuple(replace(source, text=gone) for source in profile.sources)
    return replace(profile, runs=tuple(short), sources=sources)


# ---------------------------------------------------------------- reading


def refused(path: Path | str, why: str, hint: str = "") -> InputError:
    return InputError(why, path=path, hint=hint)


def read(path: Path) -> Embedded:
    """Raises InputError where the file cannot be read, is no report of ours, or carries no Profile
    that is whole."""
    if path.is_dir():
        raise refused(path, "this is a folder, not a report", "give the report.html in it")
    try:
        data = files.content(path, MAX_PAGE_BYTES)
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
        if isinstance(error, FileNotFoundError):
            why = "file not found"
        raise refused(path, why, _OURS) from error
    return embedded_in(data.decode("utf-8", errors="replace"), path)


def embedded_in(text: str, path: Path | str = "report.html") -> Embedded:
    """What the page ``text`` carries; ``path`` is for the errors. Raises InputError as ``read``
    does."""
    if not _GENERATOR.search(text):
        raise refused(path, _NOT_OURS, _OURS)
    block = _BLOCK.search(text)
    if not block and text.rstrip().endswith("</html>"):
        raise refused(path, "this report has no Profile", USE_JSON)
    if not block or not block[2]:
        raise refused(path, "the report is truncated: its Profile is incomplete", "fetch it again")
    if not block[1].strip():
        why = "this report has no Profile: it was omitted to stay under 1 MB"
        raise refused(path, why, USE_JSON)
    left_out = _LEFT_OUT.findall(block[0])
    words = _SEPARATOR.join(left_out).split(_SEPARATOR)
    profile = decoded(_unpacked(block[1], path), path)
    return Embedded(profile, tuple(filter(None, words)))


def decoded(data: bytes, path: Path | str) -> m.Profile:
    """A Profile from its JSON, a newer or an older one refused in words. Raises InputError."""
    version = _of_json(data, _Versioned, path).schema_version
    known = m.PROFILE_SCHEMA_VERSION
    if version != known:
        age = "newer"
        hint = "update kgprof"
        if version < known:
            age = "older"
            hint = "give the Recording itself, which every later kgprof can read"
        raise refused(
            path, f"Profile schema {version} is {age} than this kgprof reads ({known})", hint
        )
    profile = _of_json(data, m.Profile, path)
    waiting: list[Any] = [_of_json(data, dict, path)]  # what the Profile has no field for, too
    while waiting:  # a list, because a recursion over a million numbers takes seconds
        each = waiting.pop()
        if isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
        elif isinstance(each, int | float) and each and not LEAST <= abs(each) <= MOST:
            why = f"not a kgprof Profile: {each} is beyond what anything is measured to be"
            raise refused(path, why, _AGAIN)
    return profile


class _Versioned(msgspec.Struct):
    schema_version: int


def _of_json(data: bytes, kind: type[T], path: Path | str) -> T:
    try:
        return m.decode_json(data, kind)
    except msgspec.DecodeError as error:
        raise refused(path, f"not a kgprof Profile: {error}", _AGAIN) from error


def _unpacked(text: str, path: Path | str) -> bytes:
    """No more than MAX_JSON_BYTES is ever held, whatever the text unpacks to."""
    reader = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        data = reader.decompress(
            base64.b64decode("".join(text.split()), validate=True), MAX_JSON_BYTES + 1
        )
    except (binascii.Error, ValueError, zlib.error) as error:
        raise refused(path, f"its Profile is damaged: {error}", "fetch the report again") from error
    if len(data) > MAX_JSON_BYTES:
        raise refused(path, f"its Profile unpacks to more than {MAX_JSON_BYTES // 2**20} MiB")
    if not reader.eof:
        raise refused(path, "its Profile is truncated", "fetch the report again")
    return data


EMBEDDED_BYTES = 400_000  # gzipped, of all traces together
_TEXT_OF_3_BYTES = 4  # base64


def stay() -> None:
    """The file lies where its link leads."""


@dataclass(frozen=True, kw_only=True)
class TraceFile:
    """Gzipped Kineto JSON of one run."""

    run: m.RunKey
    measured_in: m.PassName
    size_bytes: int
    read: Callable[[], bytes | None]  # called only where the page has room for a trace
    file_name: str  # that a browser saves it as
    # to the file, from where the page stands; empty where the page stands nowhere (stdout)
    link: str
    # puts the file where the link leads; called unless the page carries the trace
    place: Callable[[], None] = stay

    @cached_property
    def data(self) -> bytes | None:
        """As a page may carry it; None for one that no page can."""
        if self.size_bytes > EMBEDDED_BYTES:
            return None
        return self.read()


def embedded(traces: Sequence[TraceFile], room_bytes: int) -> frozenset[m.RunKey]:
    """In the order of the runs, each that still fits: into EMBEDDED_BYTES, and as text into
    ``room_bytes``."""
    left = min(EMBEDDED_BYTES, room_bytes // _TEXT_OF_3_BYTES * 3)
    fitting = set()
    for trace in traces:
        # base64 fills the last three bytes up
        if left > 2 and trace.data is not None and len(trace.data) + 2 <= left:
            fitting.add(trace.run)
            left -= len(trace.data) + 2
    return frozenset(fitting)


def trace_links(
    traces: Sequence[TraceFile], which: Collection[m.RunKey], limits: Limits
) -> Sequence[Shown]:
    """``which`` of them the page carries. An address is what the link leads to, and empty where
    there is none; the button can hand over what is carried."""
    links = []
    for trace in traces[: limits.runs]:
        address = trace.link
        if trace.run in which and trace.data is not None:
            coded = base64.b64encode(trace.data).decode("ascii")
            address = f"data:application/gzip;base64,{coded}"
        link = Shown(
            run=one_line(trace.run.slug, limits.name),
            measured_in=trace.measured_in.upper(),
            size=size(trace.size_bytes),
            file_name=one_line(trace.file_name, limits.name),
            address=address,
            carried=trace.run in which,
        )
        links.append(link)
    return links
