"""Findings that the project accepts: a file in the repository, each entry with a reason, an owner and a last day.

    [[accepted]]
    rule = "KGP101"
    file = "src/model.py"      # as the findings name it: relative to git's top folder
    function = "Model.step"
    gb = "GB0059"              # optional: torch's id of the graph break
    reason = "the loss is printed once an epoch"
    owner = "ana"
    expires = 2027-06-30       # the last day on which it holds

An empty reason or owner is a fault of the file. ``--update-baseline`` writes new entries with both empty, so that
somebody has to fill them in before the gate runs again.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kgprof import model as m
from kgprof.wording import nearest, shared

FILE = "kgprof-accepted.toml"
REQUIRED = ("rule", "file", "function", "reason", "owner", "expires")
OPTIONAL = ("gb",)
USED, UNUSED, EXPIRED = "used", "unused", "expired"
_DAY = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])")
_GRAPH_BREAK_ID = re.compile(r"\bGB\d+\b")
_HEAD = """\
# Findings of `kgprof check-graphs` that this project accepts for now. Each needs a reason, an owner and a last day;
# `kgprof check-graphs --update-baseline` adds what is new, with reason and owner left for you to fill in.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    rule: str
    file: str
    function: str
    gb: str
    reason: str
    owner: str
    expires: str

    def matches(self, finding: m.Finding, root: str) -> bool:
        """Line numbers are left out: they move with every edit above them."""
        place = finding.location
        return (
            finding.rule == self.rule
            and (shared(place.file, root) if place else "", place.function if place else "")
            == (shared(self.file, root), self.function)
            and (not self.gb or self.gb == graph_break_id(finding))
        )


def graph_break_id(finding: m.Finding) -> str:
    """torch's own id, as it stands in the message; empty for other findings."""
    found = _GRAPH_BREAK_ID.search(finding.message)
    return found[0] if found else ""


# ---------------------------------------------------------------- reading


def parse(text: str, path: str, faults: list[str]) -> tuple[Entry, ...]:
    """Every entry that is whole; what is wrong with the others goes to ``faults``."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        faults.append(f"{path}: {error}")
        return ()
    faults += [f"{path}: unknown key {key!r}{nearest(key, ['accepted'])}" for key in document if key != "accepted"]
    entries = document.get("accepted", [])
    if not isinstance(entries, list):
        faults.append(f"{path}: accepted must be written as [[accepted]]")
        return ()
    read = [_entry(entry, f"{path}: entry {number}", faults) for number, entry in enumerate(entries, start=1)]
    return tuple(entry for entry in read if entry is not None)


def _entry(entry: object, place: str, faults: list[str]) -> Entry | None:
    if not isinstance(entry, dict):
        faults.append(f"{place} is no table")
        return None
    before = len(faults)
    place = f"{place} ({entry.get('rule', '?')} {entry.get('file', '?')})"
    known = (*REQUIRED, *OPTIONAL)
    faults += [f"{place}: unknown key {key!r}{nearest(key, known)}" for key in entry if key not in known]
    texts = {key: str(value).strip() for key, value in entry.items()}
    # A finding about a whole run has no file and no function; reason and owner are never empty.
    faults += [f"{place}: {key} is missing" for key in REQUIRED if key not in texts]
    faults += [f"{place}: {key} is empty; say it" for key in ("rule", "reason", "owner") if texts.get(key) == ""]
    if "expires" in texts and not _DAY.fullmatch(texts["expires"]):
        faults.append(f"{place}: expires is a day, 2027-06-30, not {texts['expires']!r}")
    if len(faults) > before:
        return None
    return Entry(**{key: texts.get(key, "") for key in known})


# ---------------------------------------------------------------- applying


def apply(
    entries: Sequence[Entry], findings: Sequence[m.Finding], *, root: str, today: str
) -> tuple[tuple[m.Finding, ...], tuple[m.AcceptedFinding, ...]]:
    """The findings, marked where they are accepted, and how each entry fared. An expired entry accepts nothing."""
    valid = [entry for entry in entries if entry.expires >= today]
    marked = tuple(_marked(finding, valid, root) for finding in findings)
    return marked, tuple(_fared(entry, findings, root, today) for entry in entries)


def apply_recorded(
    entries: Sequence[m.GateEntry], findings: Sequence[m.Finding], *, root: str, today: str
) -> tuple[tuple[m.Finding, ...], tuple[m.AcceptedFinding, ...]]:
    """As ``apply``, with the entries as a Recording keeps them."""
    read = [Entry(**msgspec.structs.asdict(entry)) for entry in entries]
    return apply(read, findings, root=root, today=today)


def expired_words(entry: m.AcceptedFinding) -> str:
    """Why a finding that was accepted counts again."""
    place = ":".join(part for part in (entry.file, entry.function) if part)
    where = f" in {place}" if place else ""
    return f"expired on {entry.expires}: accepted {entry.rule}{where} ({entry.owner}: {entry.reason})"


def _marked(finding: m.Finding, valid: Sequence[Entry], root: str) -> m.Finding:
    entry = next((entry for entry in valid if entry.matches(finding, root)), None)
    if entry is None:
        return finding
    return msgspec.structs.replace(finding, accepted=f"{entry.owner}, until {entry.expires}: {entry.reason}")


def _fared(entry: Entry, findings: Sequence[m.Finding], root: str, today: str) -> m.AcceptedFinding:
    matched = sum(entry.matches(finding, root) for finding in findings)
    return m.AcceptedFinding(
        rule=entry.rule,
        file=entry.file,
        function=entry.function,
        graph_break_id=entry.gb,
        reason=entry.reason,
        owner=entry.owner,
        expires=entry.expires,
        status=EXPIRED if entry.expires < today else USED if matched else UNUSED,
        findings=matched,
    )


# ---------------------------------------------------------------- writing


def updated(
    entries: Sequence[Entry], findings: Sequence[m.Finding], *, root: str, expires: str, keep_unused: bool
) -> tuple[Entry, ...]:
    """The entries that still match something, as they are, then one for each finding that none of them covers.

    An expired entry keeps its day: to go on accepting it is a decision, and a file that renews itself takes none.
    """
    kept = [entry for entry in entries if keep_unused or any(entry.matches(f, root) for f in findings)]
    new: dict[Entry, None] = {}
    for finding in findings:
        if not any(entry.matches(finding, root) for entry in kept):
            new[_new_entry(finding, root, expires)] = None
    return (*kept, *new)


def _new_entry(finding: m.Finding, root: str, expires: str) -> Entry:
    place = finding.location
    return Entry(
        rule=finding.rule,
        file=shared(place.file, root) if place else "",
        function=place.function if place else "",
        gb=graph_break_id(finding),
        reason="",
        owner="",
        expires=expires,
    )


def write(entries: Sequence[Entry]) -> str:
    """The file's text."""
    return "\n".join([_HEAD, *(_table(entry) for entry in entries)])


def _table(entry: Entry) -> str:
    lines = ["[[accepted]]", f"rule = {_quoted(entry.rule)}", f"file = {_quoted(entry.file)}"]
    lines.append(f"function = {_quoted(entry.function)}")
    if entry.gb:
        lines.append(f"gb = {_quoted(entry.gb)}")
    lines += [f"reason = {_quoted(entry.reason)}", f"owner = {_quoted(entry.owner)}", f"expires = {entry.expires}"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are TOML's, but for DEL and for pairs of surrogates."""
    escaped = json.dumps(text.encode("utf-8", errors="replace").decode("utf-8"), ensure_ascii=False)
    return escaped.replace("\x7f", "\\u007f")
