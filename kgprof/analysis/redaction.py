"""What a Profile leaves out so that it can be attached to a pull request: names, secrets, foreign
folders and source.

It works on the finished Profile, every string of it whatever the field, so that no renderer has to
think of it and no new field can be forgotten. Fingerprints stay as they are: they were made from
what stood there before, and two Profiles are compared by them.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from kgprof import collectors
from kgprof import model as m
from kgprof.analysis.secrets import (
    CREDENTIALS,
    SECRET,
    SECRETS,
    SWITCHES,
    TOKEN,
    TOKENS,
    Named,
    Pattern,
    named,
    without_secrets,
)

T = TypeVar("T")
R = TypeVar("R", bound=m.Profile | m.CaptureReport | m.Sweep | m.Fix)

NONE, REPO, ALL = SOURCES = ("none", "repo", "all")
LEFT_OUT = "<source line left out>"

HOMES, USERS, HOSTS = "home directories", "user names", "host names"
VALUES, FOLDERS, REPOSITORY = (
    "values of environment variables",
    "folders outside the repository",
    "repository folder",
)

# fields that hold fingerprints, which must stay what they are
_IDENTITIES = ("fingerprint", "findings", "reads")
_FINGERPRINT = re.compile(r"[0-9a-f]{12}")

# Accounts that every machine or CI system has: they name nobody.
_NOBODY = frozenset(
    {
        *("root", "admin", "nobody", "user", "users", "home", "app"),
        *("runner", "ubuntu", "debian", "ec2-user", "jenkins", "docker", "vscode"),
    }
)
# characters of a user name that is looked for in running text; "max" and "al" are words
_SHORTEST_NAME = 4
_LOCAL = frozenset(("localhost", "localdomain", "ip6-localhost"))


_PATH_END = r"[^/\s\"'<>|:,;()\[\]{}\\`]+"
# Not in the middle of a word, of a relative path, or of what another pattern has already put there.
# Options of a compiler have none before it: -I/home/NAME.
_PATH_START = (
    r"(?:(?<=file://)|(?<=(?<![\w./-])-[A-Z])|(?<=-isystem)|(?<=-iquote)|(?<=-include)"
    r"|(?<=\\[nrt])|(?<![\w.\-~>/])(?<!\w\+\+))"
)
_SLASH = r"(?:\\{0,2}/){1,3}"
_NO_ADDRESS = r"(?!(?<=:)(?:\\{0,2}/){2})"  # what stands behind "https:"


def _beginning(start: str, path: str, name: str) -> re.Pattern[str]:
    """Compiles an expression for ``path`` behind ``start``.

    It takes any other path of such names as a group "kept", as a whole: no second search begins
    inside of it.
    """
    return re.compile(rf"{start}(?:{path}|(?P<kept>(?:/{name})+))")


_SITE_PACKAGES = Pattern(
    FOLDERS,
    _beginning(_PATH_START, rf"(?:/{_PATH_END})*/(?:site|dist)-packages(?=/|\b)", _PATH_END),
    "<site-packages>",
    needs="-packages",
)
_PYTHON = Pattern(
    FOLDERS,
    _beginning(_PATH_START, rf"(?:/{_PATH_END})*/lib/python3\.\d+t?(?=/)", _PATH_END),
    "<python>",
    needs="/lib/python3.",
)
_ANY_HOME = Pattern(
    HOMES,
    re.compile(
        rf"{_PATH_START}{_NO_ADDRESS}(?:{_SLASH}[\w.-]+){{0,3}}?{_SLASH}(?:home|Users){_SLASH}"
        rf"(?!Shared){_PATH_END}"
    ),
    "~",
    needs="/",
)
# torch leaves out the folders that a file shares with torch: "# File: home/NAME/x.py:3 in f".
_SHORTENED = r"(?=/[^\s:]*:\d+ in )"
_SHORTENED_HOME = Pattern(
    HOMES, re.compile(rf"(?<= )(?:home|Users)/{_PATH_END}{_SHORTENED}"), "~", needs=" in "
)
_WINDOWS_HOME = Pattern(
    HOMES,
    re.compile(r"(?i)\b[A-Z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/)[^\\/\s\"'<>|:]+"),
    "~",
    needs=":",
)
_ROOTS_HOME = Pattern(HOMES, re.compile(rf"{_PATH_START}/root(?=/)"), "~", needs="/root/")
# Every machine has these. In /tmp, /var and /run lie anybody's folders.
_SYSTEM = "usr|etc|proc|sys|dev(?!/shm/)|lib|lib64|bin|sbin"
_NAME = r"[\w.+@%=~-]"
_ELSEWHERE = _beginning(
    rf"{_PATH_START}(?!/(?:{_SYSTEM})/)",
    rf"(?:/{_NAME}+)+?(?=(?:/{_NAME}+){{2}}/*(?!{_NAME}|/))",
    rf"{_NAME}+",
)
_NAMED_HOME = re.compile(r"/(?:home|Users)/([\w.-]+)")


# ---------------------------------------------------------------- a text


class Redactor:
    """Takes out of a text what identifies a machine, a person or an account. ``counts``: how often,
    by category."""

    def __init__(self, private: m.PrivateNames, *, root: str = "") -> None:
        self.counts: Counter[str] = Counter()
        self._patterns = (*_folders(private, root), *_names(private))
        self._known: dict[str, tuple[str, Counter[str]]] = {}

    def __call__(self, text: str) -> str:
        if text not in self._known:
            self._known[text] = self._redacted(text)
        put, counts = self._known[text]
        if counts:
            self.counts.update(counts)
        return put

    def count(self, category: str) -> None:
        self.counts[category] += 1

    def beside(self, name: str, value: str) -> str:
        """The value of a setting, an option or a variable of that name, as it may be shown."""
        if value in ("", SECRET) or named(name, no_code=True) < Named.IF_QUOTED:
            return value
        self.counts[SECRETS] += 1
        return SECRET

    def _redacted(self, text: str) -> tuple[str, Counter[str]]:
        counts: Counter[str] = Counter()
        text = without_secrets(text, counts)
        for category, find, put, needs in self._patterns:
            if needs not in text:
                continue
            before = text
            text, number = _replaced(find, put, text)
            if text != before:
                counts[category] += number
        return text, counts


def _replaced(find: re.Pattern[str], put: str, text: str) -> tuple[str, int]:
    """Returns the text with each match replaced, and their number. A match with a group "kept"
    stays."""
    if "kept" not in find.groupindex:
        return find.subn(put, text)
    number = 0

    def put_in(match: re.Match[str]) -> str:
        nonlocal number
        if match["kept"] is not None:
            return match[0]
        number += 1
        return put

    return find.sub(put_in, text), number


def _folders(private: m.PrivateNames, root: str) -> Iterable[Pattern]:
    """What lies in the repository is named from its top, and what PYTHONPATH leads to from there;
    then homes, libraries, and the rest by its last two names."""
    yield from (_SITE_PACKAGES, _PYTHON)
    if root.startswith("/") and root.strip("/"):
        top = re.escape(root.rstrip("/"))
        yield Pattern(REPOSITORY, re.compile(rf"{_PATH_START}{top}/"), "", needs="/")
        yield Pattern(
            REPOSITORY, re.compile(rf"{_PATH_START}{top}(?![\w.-])"), "<repository>", needs="/"
        )
        parts = root.strip("/").split("/")
        ends = (re.escape("/".join(parts[at:])) for at in range(len(parts) - 1))
        if shortened := "|".join(ends):
            find = re.compile(rf"(?<= )(?:{shortened})/(?=[^\s:]*:\d+ in )")
            yield Pattern(REPOSITORY, find, "", needs=" in ")
    for folder in sorted(set(private.import_folders), key=len, reverse=True):
        yield Pattern(
            FOLDERS,
            re.compile(rf"{_PATH_START}{re.escape(folder)}(?=/)"),
            "<PYTHONPATH>",
            needs=folder,
        )
    for home in sorted({home.rstrip("/") for home in private.homes}, key=len, reverse=True):
        if home.count("/") >= 1:
            yield Pattern(
                HOMES, re.compile(rf"{_PATH_START}{re.escape(home)}(?![\w.-])"), "~", needs=home
            )
    yield from (
        _SHORTENED_HOME,
        _ANY_HOME,
        _WINDOWS_HOME,
        _ROOTS_HOME,
        Pattern(FOLDERS, _ELSEWHERE, "<elsewhere>", needs="/"),
    )


# as it is, and as a shell or a title writes it
_WRITTEN = (str, str.lower, str.upper, str.capitalize)


def _names(private: m.PrivateNames) -> Iterable[Pattern]:
    for user in _longest_first(private.users):
        whole = len(user) >= _SHORTEST_NAME and not _is_a_word(user)
        for written in {case(user) for case in _WRITTEN[: 4 * whole or 1]}:
            name = re.escape(written)
            find = (  # in a path
                rf"(?:(?<=/)|(?<=# )(?=[^\s:]*/)|(?<=torchinductor_)){name}(?![A-Za-z0-9.-])"
                rf"|(?<![A-Za-z0-9]){name}(?=@[A-Za-z0-9])"
            )
            if whole:
                find = rf"(?<![A-Za-z0-9]){name}(?![A-Za-z0-9])"  # anywhere
            yield Pattern(USERS, re.compile(find), "<user>", needs=written)
    for host in _longest_first(
        (*private.hosts, *(host.partition(".")[0] for host in private.hosts))
    ):
        if len(host) >= _SHORTEST_NAME and host not in _LOCAL and not _is_a_word(host):
            for written in {case(host) for case in _WRITTEN}:
                find = rf"(?<![A-Za-z0-9-]){re.escape(written)}(?![A-Za-z0-9-])"
                yield Pattern(HOSTS, re.compile(find), "<host>", needs=written)


def _longest_first(names: Iterable[str]) -> list[str]:
    return sorted(
        {name for name in names if name and name not in _NOBODY},
        key=lambda name: (-len(name), name),
    )


_WORD = re.compile(r"[a-z][a-z-]+")


def _is_a_word(name: str) -> bool:
    """Whether kgprof itself says it: who is called "step" must not turn every step of a report into
    a user."""
    if not _OURS:
        for said in (collectors.RULES, msgspec.json.schema(m.Profile)):
            text = m.encode_json(said).decode().lower().replace("_", " ")
            _OURS.update(_WORD.findall(text))
    return name.lower() in _OURS


_OURS: set[str] = set()


_JSON_STRING = re.compile(r'(?<!\\)"[^"\\]*(?:\\.[^"\\]*)*"')


def redacted_trace(text: str, private: m.PrivateNames, *, root: str = "") -> str:
    """A Kineto trace with every string redacted as those of a Profile are; a trace says each a
    thousandfold."""
    users = tuple(dict.fromkeys((*private.users, *sorted(set(_NAMED_HOME.findall(text))))))
    redactor = Redactor(replace(private, users=users), root=root)
    strings = set(_JSON_STRING.findall(text))
    if keys := [
        key
        for key in strings
        if _NAME_ONLY.fullmatch(key[1:-1]) and named(key[1:-1], no_code=True) >= Named.IF_QUOTED
    ]:
        beside = rf"((?:{'|'.join(map(re.escape, sorted(keys)))})\s*:\s*){_JSON_STRING.pattern}"
        text = re.sub(beside, rf'\1"{SECRET}"', text)
    put = {string: f'"{redactor(string[1:-1])}"' for string in strings}
    if all(string == safe for string, safe in put.items()):  # as in most traces
        return text
    return _JSON_STRING.sub(lambda found: put.get(found[0], found[0]), text)


# ---------------------------------------------------------------- a Profile


def redacted(
    profile: m.Profile, private: m.PrivateNames, *, source: str = REPO, redact: bool = True
) -> m.Profile:
    """The Profile as it may be shown, with its ``contents``.

    ``redact=False`` leaves names and secrets; ``source`` is obeyed all the same. A Profile that has
    been through here comes out as it is, but for what is asked for beyond that.
    """
    root = profile.environment.source_root
    kept = _SourceLines(source, root)
    made = kept.of(profile)
    before = profile.contents or m.Contents(redaction=False, source=ALL)
    counts = Counter({one.category: one.count for one in before.redacted})
    if redact:
        made, found = _identities_left_out(made, private)
        counts += found
    return replace(
        made,
        contents=m.Contents(
            redaction=redact or before.redaction,
            source=min((source, before.source), key=SOURCES.index),
            redacted=tuple(
                m.RedactedCategory(category=name, count=counts[name]) for name in sorted(counts)
            ),
            source_lines=len(kept.shown),
            source_lines_left_out=before.source_lines_left_out + len(kept.left_out),
        ),
    )


def redacted_text(
    text: m.CompiledText, header: m.RecordingHeader, *, source: str, redact: bool
) -> m.CompiledText:
    """A graph or code as it may leave the machine."""
    root = header.plan.environment.source_root
    safe: m.CompiledText = _SourceLines(source, root).of(text)
    if redact:
        safe = _walk(safe, Redactor(header.private, root=root))
    return safe


def redacted_report(report: R, private: m.PrivateNames, *, source: str, redact: bool) -> R:
    """As ``redacted`` does it for a Profile."""
    made = _SourceLines(source, report.environment.source_root).of(report)
    if redact:
        made, _ = _identities_left_out(made, private)
    return made


def _identities_left_out(report: R, private: m.PrivateNames) -> tuple[R, Counter[str]]:
    """And how often, by category. With the users that its own paths name, as a Recording may come
    from another machine; and with values of variables that are not known to be switches, of which
    two digits say where they are equal."""
    named = _NAMED_HOME.findall(msgspec.json.encode(report).decode())
    environment = report.environment
    users = tuple(dict.fromkeys((*private.users, *sorted(named))))
    redactor = Redactor(replace(private, users=users), root=environment.source_root)
    flags = {name: _value(name, value, redactor) for name, value in environment.flags.items()}
    changed: dict[str, Any] = {
        "environment": replace(environment, flags=flags),
        "command": _arguments(report.command, redactor),
    }
    for name in ("options", "question"):
        if (given := getattr(report, name, None)) is not None:
            arguments = _arguments(given.workload_args, redactor)
            changed[name] = replace(given, workload_args=arguments)
    return _walk(replace(report, **changed), redactor), redactor.counts


_VALUE_LEFT_OUT = re.compile(r"<value [0-9a-f]{2}>")


def _value(name: str, value: str, redactor: Redactor) -> str:
    if name in SWITCHES or _VALUE_LEFT_OUT.fullmatch(value):
        return value
    redactor.count(VALUES)
    return f"<value {hashlib.sha256(value.encode('utf-8', errors='replace')).hexdigest()[:2]}>"


def _arguments(words: tuple[str, ...], redactor: Redactor) -> tuple[str, ...]:
    """``--hf-token VALUE``: what follows an option that is named as a secret; and of
    ``--hf-token=VALUE`` the value."""
    put: list[str] = []
    for before, word in zip(("", *words), words, strict=False):
        name, equals, value = word.partition("=")
        follows = before.startswith("-") and "=" not in before and not word.startswith("-")
        if follows and (not equals or redactor.beside(before, word) == SECRET):
            put.append(redactor.beside(before, word))
        elif equals:
            put.append(f"{name}={redactor.beside(name, value)}")
        else:
            put.append(word)
    return tuple(put)


_NAME_ONLY = re.compile(r"[\w.-]{1,80}")
_NO_TEXT = frozenset({int, float, bool, type(None)})  # as most of a Profile is


def _walk(
    value: Any,
    text: Callable[[str], str],
    field: str = "",
    location: Callable[[Any], Any] | None = None,
) -> Any:
    """The same value with every string replaced; what does not change stays the same object."""
    kind = type(value)
    if kind is str:  # an enum is a string too, and stays
        if field in _IDENTITIES and _FINGERPRINT.fullmatch(value):
            return value
        return text(value)
    if location is not None and kind in (m.Location, m.ProjectSource, m.CompiledText):
        return location(value)
    if isinstance(value, msgspec.Struct):
        changed = {}
        for name in value.__struct_fields__:
            old = getattr(value, name)
            if type(old) not in _NO_TEXT and (new := _walk(old, text, name, location)) is not old:
                changed[name] = new
        if changed:
            return replace(value, **changed)
    elif isinstance(value, tuple) and not _NO_TEXT.issuperset(map(type, value)):
        items = tuple(_walk(item, text, field, location) for item in value)
        if any(new is not old for new, old in zip(items, value, strict=True)):
            return items
    elif isinstance(value, dict):
        return _walk_mapping(value, text, field)
    return value


SECRET_KINDS = (TOKENS, CREDENTIALS, SECRETS)
_MARKS = (SECRET, TOKEN, "<credentials>")


def fields_with_secrets(profile: m.Profile) -> Iterator[str]:
    """Yields the fields of a redacted report in which a secret was replaced, as report.json names
    them."""
    parts: list[tuple[str, Any]] = [("", msgspec.to_builtins(profile))]
    for path, value in parts:  # it grows
        if isinstance(value, str) and any(mark in value for mark in _MARKS):
            yield path
        elif isinstance(value, dict):
            parts += [(f"{path}.{name}".lstrip("."), each) for name, each in value.items()]
        elif isinstance(value, list | tuple):
            parts += [(f"{path}[{at}]", each) for at, each in enumerate(value)]


def _walk_mapping(
    value: Mapping[str, Any], text: Callable[[str], str], field: str
) -> Mapping[str, Any]:
    """Two keys that become one are told apart by a number; what a key names as a secret is one."""
    put: dict[str, Any] = {}
    for key, item in value.items():
        name = wanted = _walk(key, text, field)
        number = 1
        while name in put:
            number += 1
            name = f"{wanted} ({number})"
        put[name] = _walk(item, text, field)
        if (
            isinstance(text, Redactor)
            and type(item) is str
            and field != "flags"
            and _NAME_ONLY.fullmatch(key)
        ):
            put[name] = text.beside(str(key), put[name])
    if put == value:
        return value
    return put


# ---------------------------------------------------------------- source lines

# A frame of a traceback, and the lines below it that stand further in: the source line and its
# carets. A log may put the same prefix before each of them.
_FRAME = re.compile(
    r"^(?P<head>(?P<indent>[^\n\"]*?)File \"(?P<file>[^\"\n]+)\", line (?P<line>\d+)[^\n]*\n)"
    r"(?P<code>(?:(?P=indent)[ \t]{2,}[^\n]*(?:\n|\Z))+)",
    re.MULTILINE,
)
# torch's guards end with the line that they come from, generated code names it.
_BESIDE = re.compile(
    r"(?P<head># )(?P<code>[^\n#]+?)(?P<tail>  # (?P<file>[^\s:]+):(?P<line>\d+) in \S+)"
)
_GENERATED = re.compile(
    r"(?P<head>File: (?P<file>[^\n:]+):(?P<line>\d+) in [^,\n]{1,256}, code: )"
    r"(?P<code>[^\n]+)(?P<tail>)"
)


class _SourceLines:
    """Which lines of source stay: those of the repository (``repo``), all, or none."""

    def __init__(self, wanted: str, root: str) -> None:
        self._wanted = wanted
        self._root = root.rstrip("/")
        self.shown: set[tuple[str, str]] = set()
        self.left_out: set[tuple[str, str]] = set()

    def of(self, value: T) -> T:
        return _walk(value, self._in_text, location=self._location)  # type: ignore[no-any-return]

    def _location(self, place: m.Location | m.ProjectSource | m.CompiledText) -> Any:
        # it is source in another form, and quotes the lines that it was made of
        if isinstance(place, m.CompiledText):
            if self._wanted == NONE:
                return replace(place, text="", cut=place.cut + len(place.text))
            return replace(place, text=self._in_text(place.text))
        if isinstance(place, m.ProjectSource):
            if isinstance(place.text, m.Skipped):
                return place
            numbers = range(1, len(place.text.splitlines()) + 1)
            stays = [self._stays(place.file, str(number)) for number in numbers]
            gone: str | m.Skipped = m.Skipped(f"left out by --include-source {self._wanted}")
        else:
            stays = [not place.text or self._stays(place.file, str(place.line))]
            gone = ""
        if all(stays):
            return place
        return replace(place, text=gone)

    def _in_text(self, text: str) -> str:
        put = text
        if "\n" in text or "  # " in text or ", code: " in text:
            for pattern in (_FRAME, _BESIDE, _GENERATED):
                put = pattern.sub(self._quoted, put)
        if put == text:  # the same object: what does not change stays as it is
            return text
        return put

    def _quoted(self, found: re.Match[str]) -> str:
        if LEFT_OUT in found["code"] or self._stays(found["file"], found["line"]):
            return found[0]
        if found.re is _FRAME:
            return f"{found['head']}{found['indent']}  {LEFT_OUT}\n"
        return f"{found['head']}{LEFT_OUT}{found['tail']}"

    def _stays(self, file: str, line: str) -> bool:
        stays = self._wanted == ALL or (self._wanted == REPO and self._in_repository(file))
        if stays:
            self.shown.add((file, line))
        else:
            self.left_out.add((file, line))
        return stays

    def _in_repository(self, file: str) -> bool:
        """Installed packages are nobody's source here, also in a virtual environment below git's
        top folder."""
        if "/site-packages/" in file or "/dist-packages/" in file or file.startswith(("<", "~")):
            return False
        return not file.startswith("/") or (bool(self._root) and file.startswith(f"{self._root}/"))
