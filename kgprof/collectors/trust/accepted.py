"""Findings that the project accepts: a file in the repository, each entry with a reason, an owner
and a last day.

    [[accepted]]
    rule = "KGP101"
    file = "src/model.py"      # as the findings name it: relative to git's top folder
    function = "Model.step"
    gb = "GB0059"              # optional: torch's id of the graph break
    library = "transformers/modeling_utils.py:warn_once"  # optional: the library's function in
    which it happened
    reason = "the loss is printed once an epoch"
    owner = "ana"
    expires = 2027-06-30       # the last day on which it holds

An empty reason or owner is a fault of the file. ``--update-baseline`` writes new entries with both
empty, so that somebody has to fill them in before the gate runs again.
"""

import json
import re
from collections.abc import Sequence

import msgspec

from kgprof import model as m
from kgprof.collectors.compile.skipped_frames import SKIPPED_FRAME
from kgprof.reading.files import toml
from kgprof.wording import clause, nearest, shared

FILE = "kgprof-accepted.toml"
REQUIRED = ("rule", "file", "function", "reason", "owner", "expires")
OPTIONAL = ("gb", "library")
_DAY = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])")
_HEAD = """\
# Findings of `kgprof check-graphs` that this project accepts for now. Each needs a reason, an owner
# and a last day; `kgprof check-graphs --update-baseline` adds what is new, with reason and owner
# left for you to fill in.
"""


def matches(entry: m.AcceptedEntry, finding: m.Finding, root: str) -> bool:
    """Line numbers are left out: they move with every edit above them. An entry without ``library``
    may be from the time when all that a line leads to was one finding, and matches what that
    finding stood for."""
    if _where(finding, root) != (shared(entry.file, root), entry.function):
        return False
    if entry.library and entry.library != library_function(finding):
        return False
    accepts = [(finding.rule, graph_break_id(finding))]
    if finding.refusal and finding.refusal.folded and not entry.library:
        folded = finding.refusal.folded
        rule = finding.rule
        if folded.into_fallen:
            rule = SKIPPED_FRAME.id
        accepts.append((rule, folded.gb_id))
    return any(entry.rule == rule and entry.gb in ("", gb) for rule, gb in accepts)


def _where(finding: m.Finding, root: str) -> tuple[str, str]:
    """File and function; both empty for a finding about a whole run."""
    place = finding.location
    if place is None:
        return "", ""
    return shared(place.file, root), place.function


def graph_break_id(finding: m.Finding) -> str:
    """torch's own; empty for other findings."""
    if finding.refusal is None:
        return ""
    return finding.refusal.cause.gb_id


def library_function(finding: m.Finding) -> str:
    """``transformers/modeling_utils.py:warn_once``; empty where it happened in the project."""
    line = finding.library
    if line is None:
        return ""
    return f"{line.package}/{line.file}:{line.function}"


# ---------------------------------------------------------------- reading


def parse(text: str, path: str, faults: list[str]) -> tuple[m.AcceptedEntry, ...]:
    """Every entry that is whole; what is wrong with the others goes to ``faults``."""
    try:
        document = toml(text)
    except ValueError as error:
        faults.append(f"{path}: {error}")
        return ()
    faults += [
        f"{path}: unknown key {key!r}{nearest(key, ['accepted'])}"
        for key in document
        if key != "accepted"
    ]
    entries = document.get("accepted", [])
    if not isinstance(entries, list):
        faults.append(f"{path}: accepted must be written as [[accepted]]")
        return ()
    read = [
        _entry(entry, f"{path}: entry {number}", faults)
        for number, entry in enumerate(entries, start=1)
    ]
    return tuple(entry for entry in read if entry is not None)


def _entry(entry: object, place: str, faults: list[str]) -> m.AcceptedEntry | None:
    if not isinstance(entry, dict):
        faults.append(f"{place} must be a table")
        return None
    before = len(faults)
    place = f"{place} ({entry.get('rule', '?')} {entry.get('file', '?')})"
    known = (*REQUIRED, *OPTIONAL)
    faults += [
        f"{place}: unknown key {key!r}{nearest(key, known)}" for key in entry if key not in known
    ]
    texts = {key: str(value).strip() for key, value in entry.items()}
    # A finding about a whole run has no file and no function; reason and owner are never empty.
    faults += [f"{place}: {key} is missing" for key in REQUIRED if key not in texts]
    faults += [
        f"{place}: {key} is empty; fill it in"
        for key in ("rule", "reason", "owner")
        if texts.get(key) == ""
    ]
    if "expires" in texts and not _DAY.fullmatch(texts["expires"]):
        faults.append(
            f"{place}: expires must be a date such as 2027-06-30, not {texts['expires']!r}"
        )
    if len(faults) > before:
        return None
    return m.AcceptedEntry(**{key: texts.get(key, "") for key in known})


# ---------------------------------------------------------------- applying


def apply(
    entries: Sequence[m.AcceptedEntry], findings: Sequence[m.Finding], *, root: str, today: str
) -> tuple[tuple[m.Finding, ...], tuple[m.AcceptedFinding, ...]]:
    """The findings, marked where they are accepted, and how each entry fared. An expired entry
    accepts nothing."""
    marked = []
    for finding in findings:
        valid = (
            entry for entry in entries if entry.expires >= today and matches(entry, finding, root)
        )
        if entry := next(valid, None):
            reason = f"{entry.owner}, until {entry.expires}: {entry.reason}"
            finding = msgspec.structs.replace(finding, accepted=reason)
        marked.append(finding)
    return tuple(marked), tuple(_fared(entry, findings, root, today) for entry in entries)


def expired_words(entry: m.AcceptedFinding) -> str:
    """Why a finding that was accepted counts again."""
    where = clause(" in ", ":".join(filter(None, (entry.file, entry.function))))
    return (
        f"expired on {entry.expires}: accepted {entry.rule}{where} ({entry.owner}: {entry.reason})"
    )


def _fared(
    entry: m.AcceptedEntry, findings: Sequence[m.Finding], root: str, today: str
) -> m.AcceptedFinding:
    matched = sum(matches(entry, finding, root) for finding in findings)
    status = m.AcceptedStatus.UNUSED
    if entry.expires < today:
        status = m.AcceptedStatus.EXPIRED
    elif matched:
        status = m.AcceptedStatus.USED
    return m.AcceptedFinding(
        entry.rule,
        entry.file,
        entry.function,
        entry.gb,
        entry.reason,
        entry.owner,
        entry.expires,
        status,
        matched,
        entry.library,
    )


# ---------------------------------------------------------------- writing


def updated(
    entries: Sequence[m.AcceptedEntry],
    findings: Sequence[m.Finding],
    *,
    root: str,
    expires: str,
    keep_unused: bool,
) -> tuple[m.AcceptedEntry, ...]:
    """The entries that still match something, as they are, then one for each finding that none of
    them covers.

    An expired entry keeps its day: to go on accepting it is a decision, and a file that renews
    itself takes none.
    """
    kept = [
        entry for entry in entries if keep_unused or any(matches(entry, f, root) for f in findings)
    ]
    new: dict[m.AcceptedEntry, None] = {}
    for finding in findings:
        if any(matches(entry, finding, root) for entry in kept):
            continue
        file, function = _where(finding, root)
        entry = m.AcceptedEntry(
            finding.rule,
            file,
            function,
            graph_break_id(finding),
            reason="",
            owner="",
            expires=expires,
            library=library_function(finding),
        )
        new[entry] = None
    return (*kept, *new)


def write(entries: Sequence[m.AcceptedEntry]) -> str:
    """The file's text."""
    tables = []
    for entry in entries:
        fields = {
            key: getattr(entry, key)
            for key in ("rule", "file", "function", "gb", "library", "reason", "owner")
        }
        lines = [
            f"{key} = {_quoted(text)}"
            for key, text in fields.items()
            if text or key not in OPTIONAL
        ]
        tables.append("\n".join(("[[accepted]]", *lines, f"expires = {entry.expires}\n")))
    return "\n".join([_HEAD, *tables])


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are TOML's, but for DEL and for pairs of surrogates."""
    escaped = json.dumps(text.encode("utf-8", errors="replace").decode("utf-8"), ensure_ascii=False)
    return escaped.replace("\x7f", "\\u007f")
