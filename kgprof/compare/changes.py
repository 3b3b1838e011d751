"""Which line of the change a cause is put down to: a regression shows in one place and was written
in another.

What changed is the difference of the two sides' sources, or what ``git diff`` says of their
commits. A changed line is the cause's if it stands where the cause does, if it names what the cause
names (an attribute, a setting), if it does what such a cause comes of, or if all that changed is in
one file. Where nothing of that holds, no line is named.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from msgspec.structs import replace

from kgprof import model as m
from kgprof.reading.source_text import function_at
from kgprof.wording import relative

# Marks of a changed line; what they add up to decides between lines, and LEAST is what one line
# among others needs.
_AT, _GONE, _KERNEL, _FUNCTION, _BINDS, _TAKEN, _NAMES, _NAMED_BEFORE, _DOES, _FILE = (
    32,
    32,
    16,
    8,
    8,
    6,
    6,
    3,
    2,
    1,
)
LEAST = _DOES

_HUNK = re.compile(
    r"@@ -(?P<old>\d+)(?:,(?P<old_lines>\d+))? \+(?P<line>\d+)(?:,(?P<lines>\d+))? @@"
)
_DEFINED = re.compile(r"\s*(?:async )?def (\w+)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NO_CODE = re.compile(r"\s*(?:#.*|\"\"\".*)?")
_IMPORT = re.compile(r"\s*(?:from|import) ")
# In the name of an attribute, and of no use to find it.
_COMMON = frozenset(
    (
        "self",
        "cls",
        "torch",
        "L",
        "G",
        "_modules",
        "_buffers",
        "_parameters",
        "None",
        "True",
        "False",
    )
)
# What a line does that such a cause comes of.
_DOING = {
    m.CauseKind.COMPILE: r"compil|cache|dynamo|inductor|backend|autotune",
    m.CauseKind.MEMORY: (
        r"\b(?:zeros|ones|empty|full|randn?|tensor|clone|stack|cat|repeat|expand)(?:_like)?\("
    ),
    m.CauseKind.COPIES: r"\.(?:clone|copy_|to|cpu|cuda|contiguous|fill_|zero_)\(|_foreach_",
    m.CauseKind.KERNEL: r"\b(?:b?float\d+|half|double|allow_tf32)\b",
    m.CauseKind.LAUNCHES: r"compiler\.disable|custom_op|graph_break",
}


class ChangedLine(m.Model):
    """One that head has and base has not; of lines that are only gone, the one that stands in their
    place."""

    place: m.Location  # its file from the top of the repository
    was: m.Location | None = None  # what stood there in base, which may be several lines

    @property
    def before(self) -> str:
        return self.was.text if self.was else ""


def between(base: m.Profile, head: m.Profile, diff: str = "") -> tuple[ChangedLine, ...]:
    """The difference of those files whose text both sides have; of the others what ``diff`` says.
    Of head only files that it ran, where its Recording knows them: a test that changed with them
    made nothing slower."""
    before, after = (texts_of(side) for side in (base, head))
    whole: list[str] = []
    for file in before.keys() & after.keys():
        texts = (before[file].splitlines(), after[file].splitlines())
        whole += difflib.unified_diff(*texts, file, file, lineterm="", n=0)
    found = of_diff("\n".join(whole), after)
    told = [
        line for line in of_diff(diff, after) if line.place.file not in before.keys() & after.keys()
    ]
    ran = {relative(source.file, head.source_root) for source in head.sources}
    every = (*found, *told)
    return tuple(line for line in every if line.place.file in ran) or every


def of_diff(diff: str, texts: Mapping[str, str] | None = None) -> tuple[ChangedLine, ...]:
    """A unified diff's changed lines of Python. ``texts``: of head's files, which tell the
    functions that they are in; else the ``def`` above them in the diff itself does."""
    found: list[ChangedLine] = []
    file, line, function = "", 0, ""
    old = 0  # the line of base
    base_ends = head_ends = 0  # of the hunk: a line of it may look like a file's header
    gone: list[m.Location] = []
    added: list[m.Location] = []

    def close() -> None:
        nonlocal gone, added
        opposite: Sequence[m.Location | None] = gone
        whole = _together(gone)
        if len(gone) != len(added):
            opposite = [whole] * len(added)
        code = [
            ChangedLine(place=place, was=was)
            for place, was in zip(added, opposite, strict=True)
            if not _NO_CODE.fullmatch(place.text)
        ]
        if not added and whole and whole.text.strip():
            code = [ChangedLine(place=_place(file, line, "", function, texts), was=whole)]
        found.extend(each for each in code if file.endswith(".py"))
        gone, added = [], []

    for text in diff.splitlines():
        inside = line < head_ends or old < base_ends
        header = not inside and text.startswith(("diff ", "+++ ", "--- ", "@@ "))
        if header or not text.startswith(("+", "-")):
            close()
        if header and (begins := _HUNK.match(text)):
            line = int(begins["line"]) + (begins["lines"] == "0")
            old = int(begins["old"])
            head_ends = line + int(begins["lines"] or 1)
            base_ends = old + int(begins["old_lines"] or 1)
            function = ""
        elif header and text.startswith("+++ "):
            file = text[4:].partition("\t")[0].removeprefix("b/")
        elif header:
            continue
        elif text.startswith("-"):
            gone.append(m.Location(file, old, function, text=text[1:]))
            old += 1
        elif text[:1] in ("+", " "):
            if defined := _DEFINED.match(text[1:]):
                function = defined[1]
            if text[0] == "+":
                added.append(_place(file, line, text[1:], function, texts))
            else:
                old += 1
            line += 1
    close()
    return tuple(found)


def _together(gone: Sequence[m.Location]) -> m.Location | None:
    """Lines of base that nothing stands in the place of one by one."""
    if not gone:
        return None
    return replace(gone[0], text="\n".join(each.text for each in gone))


def texts_of(profile: m.Profile) -> dict[str, str]:
    root = profile.source_root
    return {relative(s.file, root): s.text for s in profile.sources if isinstance(s.text, str)}


def _place(
    file: str, line: int, text: str, function: str, texts: Mapping[str, str] | None
) -> m.Location:
    if texts and file in texts:
        function = function_at(texts[file], line)
    return m.Location(file, line, function, text=text.strip())


# ---------------------------------------------------------------- which of them it is


def put_down(
    compared: m.RunComparison,
    changed: Sequence[ChangedLine],
    findings: Iterable[m.ComparedFinding],
    run: m.RunReport,
    head: m.Profile,
) -> tuple[m.Cause, ...]:
    """The causes, each with the changed line that it is put down to. ``findings`` and ``run``:
    head's."""
    root = head.source_root
    texts = texts_of(head)
    known = {each.finding.fingerprint: each.finding for each in findings}
    causes = []
    for cause in compared.causes:
        places = [cause.location]
        names: list[str] = []
        if finding := known.get(cause.fingerprint):
            places += finding.related
            names += finding.names
        if cause.cause in (m.CauseKind.STEPS, m.CauseKind.SETTING):
            names += [setting.name for setting in compared.settings]
        named = {word for name in names for word in _WORD.findall(name)} - _COMMON
        clue = _Clue(
            doing=_DOING.get(cause.cause, ""),
            shown=_shown(filter(None, places), root),
            named=frozenset(named),
            computed=frozenset(_computed_by(cause, run, root)),
        )
        line = _likeliest(clue, changed, texts)
        if line is not None:
            cause = replace(cause, changed=line.place, was=line.was)
        causes.append(cause)
    return tuple(causes)


def line_of(
    places: Sequence[m.Location],
    doing: str,
    changed: Sequence[ChangedLine],
    head: m.Profile,
    *,
    gone: Sequence[m.Location] = (),
) -> ChangedLine | None:
    """The changed line that a difference is put down to: where it shows (``places``, of head),
    where what is ``gone`` stood in base, or which does what ``doing`` matches."""
    # a file is called the same on both sides, mostly
    stood = [replace(place, file=PurePosixPath(place.file).name, line=0) for place in gone]
    clue = _Clue(
        doing=doing,
        shown=_shown((*places, *stood), head.source_root),
        gone=frozenset((place.file, place.text.strip()) for place in stood if place.text.strip()),
        is_exact=True,
    )
    return _likeliest(clue, changed, texts_of(head))


def _shown(places: Iterable[m.Location], root: str) -> tuple[tuple[str, int, str], ...]:
    return tuple((relative(place.file, root), place.line, place.function) for place in places)


class _Clue(m.Model):
    """What is known of what a line is looked for."""

    doing: str  # what such a line does; empty: not known
    shown: tuple[tuple[str, int, str], ...]  # file, line and function of each place
    named: frozenset[str] = frozenset()
    computed: frozenset[tuple[str, int]] = frozenset()  # the lines of its kernels
    # lines of base that it stood at: the file's name and the text
    gone: frozenset[tuple[str, str]] = frozenset()
    is_exact: bool = False  # the places are known to be its own

    def weight(self, line: ChangedLine, texts: Mapping[str, str]) -> int:
        place = line.place
        code = line.place.text
        here = (place.file, place.line)
        words = set(_WORD.findall(code))
        before = set(_WORD.findall(line.before))
        binds = any(
            re.match(rf"(?:self\.)?{name}\b(?:\s*:[^=]+)?\s*=[^=]", code)
            for name in self.named & words
        )
        # a function may be named with or without its class
        bare = place.function.rpartition(".")[2]
        files = {file for file, _, _ in self.shown}
        same = any(
            bare and f"/{place.file}".endswith(f"/{file}") and name.rpartition(".")[2] == bare
            for file, _, name in self.shown
        )
        named = PurePosixPath(place.file).name
        stood = {(named, text.strip()) for text in line.before.splitlines()}
        marks = (
            _AT * (here in {(file, at) for file, at, _ in self.shown}),
            _GONE * bool(self.gone & stood),
            _KERNEL * (here in self.computed),
            _FUNCTION * same,
            _BINDS * binds,
            _TAKEN * any(_takes(texts.get(file, ""), place) for file in files),
            _NAMES * bool(self.named & words),
            _NAMED_BEFORE * bool(self.named & before),
            _DOES * bool(self.doing and re.search(self.doing, code)),
            _FILE * (place.file in files),
            -_NAMES * bool(_IMPORT.match(code)),
        )
        return sum(marks)


def _likeliest(
    clue: _Clue, changed: Sequence[ChangedLine], texts: Mapping[str, str]
) -> ChangedLine | None:
    # Of equals one that took the place of another comes first: a new function runs where an old one
    # calls it.
    best = max(
        changed,
        key=lambda line: (clue.weight(line, texts), bool(line.place.text), bool(line.before)),
        default=None,
    )
    if best is None:
        return None
    is_the_only_one = len({line.place.file for line in changed}) == 1
    if clue.shown and clue.is_exact:
        is_the_only_one = len(changed) == 1
    if clue.weight(best, texts) < LEAST and not is_the_only_one:
        return None
    return best


def _computed_by(cause: m.Cause, run: m.RunReport, root: str) -> Iterator[tuple[str, int]]:
    """The lines of the kernels that the cause names."""
    of_kernels = cause.cause in (m.CauseKind.KERNEL, m.CauseKind.LAUNCHES, m.CauseKind.COPIES)
    if of_kernels and isinstance(run.kernels, m.KernelBreakdown):
        for row in run.kernels.rows:
            if cause.location in row.lines:
                yield from ((relative(place.file, root), place.line) for place in row.lines)


def _takes(text: str, place: m.Location) -> bool:
    """Whether a file takes from another one the name that a line there binds: ``from settings
    import WIDTH``."""
    binds = re.match(r"(\w+)\s*(?::[^=]+)?=[^=]", place.text)
    module = re.escape(place.file.rpartition("/")[2][:-3])
    if binds is None or place.function:
        return False
    return bool(
        re.search(
            rf"\b{module} import [^#\n]{{0,1000}}\b{binds[1]}\b|\b{module}\.{binds[1]}\b", text
        )
    )
