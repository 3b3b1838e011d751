"""Secrets in a text: what a name gives away, what has the shape of a credential, and what looks
like chance.

Python and JSON are parsed, line by line where the whole is neither; logs, command lines, headers
and ``.env`` are read by patterns. ``secrets.toml`` holds the words and the shapes.
"""

import ast
import functools
import html
import itertools
import math
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import IntEnum
from importlib import resources
from typing import Any, NamedTuple
from urllib.parse import unquote

TOKENS, CREDENTIALS, SECRETS = (
    "tokens and keys",
    "credentials in URLs",
    "values of variables named as secrets",
)
SECRET = "<secret>"
TOKEN = "<token>"

_RULES = tomllib.loads(
    resources.files("kgprof.analysis").joinpath("secrets.toml").read_text(encoding="utf-8")
)
_WORDS = {name: tuple(words.split()) for name, words in _RULES["names"].items()}
# what every name of a secret has in it
_TELLING = "|".join(_WORDS["telling"])
_JOINED = "|".join(_WORDS["before_key"] + _WORDS["before_token"] + _WORDS["before_pass"])
_FIND: dict[str, re.Pattern[str]] = {
    name: re.compile(find.lstrip("\n").replace("TELLING", _TELLING).replace("JOINED", _JOINED))
    for name, find in _RULES["expressions"].items()
}
_ENCODED = frozenset("%&\x1b\\")
_SHAPES = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_RULES['shapes'].values())})", re.ASCII)
SWITCHES = frozenset(_RULES["switches"]["names"].split())


class Named(IntEnum):
    """What a name says of its value."""

    NOTHING = 0
    IF_RANDOM = 1  # DEPLOYMENT_KEY: a secret if it was made by chance
    IF_QUOTED = 2  # token: if it is a literal, or was made by chance
    SURELY = 3


@functools.lru_cache(4096)
def named(name: str, *, no_code: bool = False) -> Named:
    """``no_code``: on a command line, in an environment or a query, where a word stands for
    itself."""
    words = [word.lower() for word in _FIND["words"].findall(name)]
    while len(words) > 1 and words[-1] in _WORDS["qualifiers"]:
        words.pop()
    last = "".join(words[-1:])
    if "".join(words[-3:]).endswith(_WORDS["secret"]):
        return Named.SURELY
    if joined := _FIND["joined"].fullmatch(last):  # dbpass, authtoken
        words[-1:] = joined.groups()
    first, before, last = ["", "", "", *words][-3:]
    befores = {before, first + before}  # GitHub is two words
    surely = no_code or (name.isupper() and "_" in name)
    says = Named.NOTHING
    if last in ("key", "keys") and before not in ("", *_WORDS["plain_key"]):
        says = Named.IF_RANDOM
        surely = not befores.isdisjoint(_WORDS["before_key"])
    elif last == "token" and before not in _WORDS["plain_token"]:
        says = Named.IF_QUOTED
        surely = surely or not befores.isdisjoint(_WORDS["before_token"])
    elif last in _WORDS["if_quoted"]:
        says = Named.IF_QUOTED
    elif last in ("pw", "pws", "pwd") and (before or not name.isupper()):
        says = Named.IF_QUOTED
        surely = surely or before != ""
    else:
        surely = last == "pass" and (
            before in _WORDS["before_pass"]
            or (before != "" and name.isupper() and before not in _WORDS["compiler"])
            or name in ("-pass", "--pass")
        )
    if surely:
        return Named.SURELY
    return says


def _hides(name: Named, value: str, *, quoted: bool) -> bool:
    """Whether this value is a secret under such a name. A template, a path, a call or another name
    is none."""
    if (
        name == Named.NOTHING
        or value.strip().lower() in ("", *_WORDS["plain_value"], *_WORDS["plain_field"])
        or _FIND["template"].fullmatch(value)
    ):
        return False
    by_chance = random(value) or _FIND["hexadecimal"].fullmatch(value) is not None
    if by_chance or _FIND["path"].fullmatch(value):
        return by_chance
    if quoted:
        return name >= Named.IF_QUOTED
    return name == Named.SURELY and not _is_code(value)


def _is_code(value: str) -> bool:
    return bool(_FIND["code"].fullmatch(value) or named(value) or named(value.rpartition("_")[0]))


def _is_telling(value: str, by: str, text: str, end: int) -> bool:
    """Whether a word without quotes behind "token" or the like is a value, and neither a name nor
    prose."""
    if (
        value.lower() in (*_WORDS["words"], *_WORDS["plain_value"])
        or not _FIND["bare"].fullmatch(value)
        or _FIND["template"].fullmatch(value)
        or _is_code(value)
    ):
        return False
    alone = by == "=" or (by.startswith(":") and _FIND["ends"].match(text, end) is not None)
    return not value.isalpha() or (
        # the names of a program stand more than once
        alone and text.count(value, max(0, end - PARSED_OFTEN), end + PARSED_OFTEN) == 1
    )


@functools.lru_cache(65536)
def random(text: str) -> bool:
    """Whether letters and digits follow each other as by chance, unlike those of a hash, a kernel
    or a word."""
    bare = _FIND["sizes"].sub("", text)
    joined = re.sub("[-_+]", "", bare)  # base64 has a few of them
    for run in (
        *_FIND["run"].findall(bare),
        *_FIND["run"].findall(joined)[: 8 * len(joined) > 7 * len(bare) > 7 * 28],
    ):
        groups = re.findall("[0-9]+|[a-z]+|[A-Z]+", run)
        numbers = sum(group[0].isdigit() for group in groups)
        mixed = not (run.islower() or run.isupper())
        words = mixed and sum(map(len, _FIND["camel"].findall(run))) > 0.65 * len(run)
        entropy = math.log2(len(run)) - sum(n * math.log2(n) for n in Counter(run).values()) / len(
            run
        )
        changes = len(groups) / len(run)
        if len(run) >= 28:
            changes += 0.1
        fewest_numbers, fewest_changes = 3, 0.3
        if mixed:
            fewest_numbers, fewest_changes = 2, 0.42
        digits = sum(map(str.isdigit, run))
        sizes = digits >= 1.5 * numbers and _FIND["dimensions"].fullmatch(run)
        chance = (
            not (words or sizes)
            and numbers >= fewest_numbers
            and changes > fewest_changes
            and entropy > 3.4
        )
        if chance and (mixed or run in bare) and not _FIND["hash"].fullmatch(run):
            return True
    return False


@functools.lru_cache(65536)
def _without_tokens(word: str) -> str:
    if _FIND["checksum"].match(word):
        return word
    put = _FIND["prefixed"].sub(_prefixed, _SHAPES.sub(TOKEN, word))
    return _FIND["piece"].sub(_piece, put)


def _prefixed(found: re.Match[str]) -> str:
    if found[1].lower() in _WORDS["hashed"]:
        return found[0]
    return TOKEN


def _piece(found: re.Match[str]) -> str:
    if random(found[0]):
        return TOKEN
    return found[0]


# ---------------------------------------------------------------- what is parsed

# characters of the longest text that is parsed, and from several places on
PARSED = 500_000
PARSED_OFTEN = 10_000

# for lines that are a part of something
_WRAPPERS = (("", ""), ("{", "}"), ("f(", ")"), ("", ")"), ("", "\n pass"))


def _tree(text: str) -> tuple[int, ast.AST]:
    """And the characters that were put before it; an empty module where it cannot be parsed."""
    for head, tail in _WRAPPERS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of invalid escapes
            try:
                return len(head), ast.parse(f"{head}{text}{tail}")
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
    return 0, ast.Module(body=[], type_ignores=[])


def _pairs(node: ast.AST) -> Iterable[tuple[Any, Any]]:
    """Names with the values that they are given or compared with."""
    match node:
        case ast.Assign(targets=names, value=value):
            return (pair for name in names for pair in _unpacked(name, value))
        case ast.For(target=name, iter=value) | ast.comprehension(target=name, iter=value):
            # zip(users, ["a", "b"]): each argument is what a name is given
            each = getattr(value, "elts", [ast.Tuple(_lists(value))])
            return (pair for value in each for pair in _unpacked(name, value))
        case ast.AnnAssign(target=name, annotation=kind, value=value):
            # of YAML a list is an annotation: "passwords: ['a', 'b']"
            parts = (part for part in ast.walk(kind) if isinstance(part, ast.Call | ast.List))
            return ((name, part) for part in (value, *parts))
        case ast.NamedExpr(target=name, value=value) | ast.AugAssign(target=name, value=value):
            return ((name, value),)
        case ast.keyword(arg=name, value=value) | ast.Tuple(elts=[ast.Constant() as name, value]):
            return ((name, value),)
        case ast.Dict(keys=names, values=values):
            return zip(names, values, strict=True)
        case ast.Compare(left=left, comparators=[right]):
            return ((left, right), (right, left))
        case ast.BinOp(left=ast.Constant(value=str() as text), right=value):
            return ((_label(text), value),)
        case ast.arguments(defaults=values, kw_defaults=others):
            names = [each.arg for each in (*node.posonlyargs, *node.args)]
            last = [each.arg for each in node.kwonlyargs]
            return (*zip(names[::-1], values[::-1], strict=False), *zip(last, others, strict=True))
        case ast.Match(subject=name, cases=cases):
            tried = (part for case in cases for part in ast.walk(case.pattern))
            return ((name, part.value) for part in tried if isinstance(part, ast.MatchValue))
        case (
            ast.MatchMapping(keys=names, patterns=values)
            | ast.MatchClass(kwd_attrs=names, kwd_patterns=values)
        ):
            found = (getattr(value, "value", None) for value in values)
            return zip(names, found, strict=True)
        case ast.Call():
            return _given(node)
    return ()


def _unpacked(name: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """The names of ``user, [*rest, password] = ...``, each with its part of the value."""
    match name, value:
        case (
            ast.Tuple(elts=names) | ast.List(elts=names),
            ast.Tuple(elts=values) | ast.List(elts=values),
        ):
            for each in zip(names, values, strict=False):
                yield from _unpacked(*each)
            yield from zip(names[::-1], values[::-1], strict=False)  # behind a name with a star
        case _:
            yield name, value


def _lists(call: ast.AST) -> list[Any]:
    return [each for each in getattr(call, "args", ()) if hasattr(each, "elts")]


def _given(call: ast.Call) -> Iterator[tuple[Any, Any]]:
    """What a call is given after a name or a message that ends with one; all of what a login is
    given, and what is added to passwords."""
    called = _name(call.func)
    if named(called) == Named.SURELY or called in _WORDS["logins"]:
        yield from (("secret", value) for value in call.args)
    elif called in _WORDS["adders"] and isinstance(call.func, ast.Attribute):
        yield from ((call.func.value, value) for value in call.args)
    for name, value in itertools.pairwise(call.args):
        match name:
            case ast.Constant(value=str() as text):
                whole = _FIND["name"].fullmatch(text)
                if whole and (called in _WORDS["setters"] or named(text) == Named.SURELY):
                    yield text, value
                elif not whole:
                    yield _label(text), value


def _label(text: str) -> str:
    """The name at the end of a message: "the password is: %s"."""
    return "".join(found["name"] for found in _FIND["label"].finditer(text))


def _name(node: Any) -> str:
    """The last name of an expression, or that of what it is in if that is surely a secret's."""
    names = list(_names(node))
    own = "".join(names[:1])
    if own.lower() not in _WORDS["plain_field"] and not named(own):
        return next((name for name in names if named(name) == Named.SURELY), own)
    return own


def _names(node: Any) -> Iterator[str]:
    """Those of ``a.PASSWORDS["prod"]["db"]`` from its end; getattr and the like name what they look
    up."""
    while node is not None:
        part, node = node, None
        match part:
            case str() as name:
                pass
            case ast.Constant(value=str() as name):
                pass
            case ast.Name(id=name) | ast.Attribute(attr=name):
                pass
            case ast.Subscript(value=node, slice=ast.Constant(value=str() as name)):
                pass
            case ast.Subscript(value=node):
                continue
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=given) if (
                given and called in _WORDS["lookups"]
            ):
                texts = [each for each in given if isinstance(each, ast.Constant)]
                node = [*texts, *given][0]
                continue
            case _:
                return
        if len(name) < 80:
            yield name


def _literals(value: Any, *, surely: bool) -> Iterator[Any]:
    """The strings and bytes that a value is made of, but for those that name what is looked up or
    called."""
    parts = [value]
    while parts:
        match part := parts.pop():
            case ast.JoinedStr() | ast.Constant(value=str() | bytes()):
                yield part
            case ast.Call(func=called, args=given, keywords=others):
                name = _name(called)
                decodes = name in _WORDS["decoders"]
                parts += [
                    each.value
                    for each in others
                    if each.arg in _WORDS["valued_by"]
                    or (decodes and each.arg not in _WORDS["plain_field"])
                ]
                if decodes:
                    parts += given
                elif name in _WORDS["setters"]:
                    parts += given[1 + (name in _WORDS["of"]) :]
                parts.append(called)
            case ast.Dict(keys=names, values=values) if surely:
                pairs = zip(names, values, strict=True)
                parts += [each for key, each in pairs if _name(key) not in _WORDS["plain_field"]]
            case ast.Lambda(body=body):
                parts.append(body)
            case (
                ast.BinOp()
                | ast.BoolOp()
                | ast.IfExp()
                | ast.Tuple()
                | ast.List()
                | ast.Set()
                | ast.Attribute()
                | ast.ListComp()
                | ast.comprehension()
            ):
                parts += ast.iter_child_nodes(part)


def _without_literals(text: str) -> str:
    """Of Python or JSON, with each literal beside a secret's name emptied between its quotes."""
    code = text.strip()
    data = code.encode("utf-8", "surrogatepass")
    lead = text[: len(text) - len(text.lstrip())]
    if len(code) >= PARSED:
        return text
    head, tree = _tree(code)
    starts = [0, *itertools.accumulate(map(len, data.splitlines(keepends=True)))]
    emptied = set()
    for name, value in (pair for node in ast.walk(tree) for pair in _pairs(node)):
        says = named(_name(name))
        for literal in _literals(value, surely=says == Named.SURELY):
            said = "".join(map(_text, getattr(literal, "values", [literal]))).strip()
            if _hides(says, said, quoted=True):
                first = (literal.lineno, literal.col_offset)
                last = (literal.end_lineno, literal.end_col_offset)
                emptied.add(
                    tuple(
                        starts[line - 1] + column - head * (line == 1)
                        for line, column in (first, last)
                    )
                )
    if not emptied:
        return text
    outermost = [
        (start, end)
        for start, end in emptied
        if not any(first <= start and end <= last for first, last in emptied - {(start, end)})
    ]
    for start, end in sorted(outermost, reverse=True):
        quoted = re.sub(
            rb"(?s)^([A-Za-z]*)(\"{3}|'{3}|\"|').*", rb"\1\2<secret>\2", data[start:end]
        )
        data = data[:start] + quoted + data[end:]
    return f"{lead}{data.decode('utf-8', 'surrogatepass')}{text[len(text.rstrip()) :]}"


def _text(part: ast.expr) -> str:
    """What stands there literally; nothing of what an f-string computes."""
    match part:
        case ast.Constant(value=str() as text):
            return text
        case ast.Constant(value=value):
            return repr(value)[2:-1]
    return ""


def _behind_a_prefix(text: str) -> str:
    """The same of what follows a time, a level, a file's name, or what else a log puts before a
    line."""
    most = 1
    if len(text) < PARSED_OFTEN:
        most = 8
    for found in itertools.islice(_FIND["prefix_end"].finditer(text), most):
        put = _without_literals(text[found.end() :])
        if put != text[found.end() :]:
            return text[: found.end()] + put
    return text


# ---------------------------------------------------------------- what is read by patterns


class Pattern(NamedTuple):
    category: str
    find: re.Pattern[str]
    put: str
    # what every match holds: a text without it is not searched, which is most of the time
    needs: str = ""


class Pair(NamedTuple):
    # with groups "name", "value" and, where the value is in quotes or the like, "q"
    find: re.Pattern[str]
    needs: tuple[str, ...]


PAIRS = tuple(Pair(re.compile(each["find"]), tuple(each["needs"])) for each in _RULES["pairs"])
PATTERNS = tuple(
    Pattern(**{**each, "find": re.compile(each["find"])}) for each in _RULES["patterns"]
)


def _without_values(text: str) -> str:
    """Any text, with what stands beside a secret's name replaced."""
    put, start, done = "", 0, 0
    while found := _FIND["beside"].search(text, start):
        before = _FIND["name_before"].search(text, max(0, found.start() - 64), found.start())
        first = (before or found).start()
        name, by, quoted = text[first : found.end("name")], found["by"], found["quote"] is not None
        if quoted:
            value, part = found["literal"], "literal"
        else:
            value, part = found["word"].rstrip(")]}>`:."), "word"
        start = found.end("name")
        end = found.start(part) + len(value)
        joined = not set(by).isdisjoint(":=")
        option = name.startswith("-") and (":" not in by or by == ":")
        set_there = option or (
            by == "=" and (name.isupper() or text[max(0, first - 1) : first] in ("?", "&", ";"))
        )
        says = named(name, no_code=set_there)
        if option or joined:
            # --token TOKEN
            placeholder = "=" not in by and value.isupper() and value.replace("_", "").isalpha()
            # ("--token", default="...")
            placeholder |= not quoted and "," in by and bool(_FIND["keyword"].match(value))
            beside = not (option and placeholder)
        elif set(by).isdisjoint("\"',") and (quoted or by.strip()):  # password 'VALUE'
            made_up = not value.replace("-", "").isalpha() and _is_telling(value, by, text, end)
            beside = made_up or (quoted and says == Named.SURELY)
        elif set(by).isdisjoint("\"',"):  # client_secret VALUE
            beside = says == Named.SURELY and not _FIND["ordinary"].fullmatch(value)
        else:  # ("Authorization", "token ...")
            beside = quoted and bool(
                _FIND["opens"].search(text, max(0, first - 4), first)
                and _FIND["closes"].match(text, found.end())
            )
        hides = _hides(says, value, quoted=quoted or set_there)
        if _FIND["label_end"].match(text, max(0, first - 1)):
            continue  # prompt("Password: ", ...)
        if says == Named.IF_QUOTED and joined and not quoted:
            hides = hides or _is_telling(value, by, text, end)
        # a line of YAML may have blanks in its value
        if by.startswith(":") and _FIND["begins"].search(text, max(0, first - 40), first):
            rest = _FIND["rest"].match(text, end)
            if rest and not quoted:
                end = rest.end()
        if not (beside and hides):
            continue
        if not quoted and (rest := _FIND["word_end"].match(text, found.end())):
            end = rest.end()
        put += text[done : found.start(part)] + SECRET
        start = done = end
    return put + text[done:]


def _without_pairs(text: str) -> str:
    for find, needs in PAIRS:
        if any(one in text for one in needs):
            text = find.sub(_without_pair, text)
    return text


def _without_pair(found: re.Match[str], above: Named = Named.NOTHING) -> str:
    """``above``: what a line of a list or a dict is below."""
    groups = found.groupdict(default="")
    name = above or named(groups["name"], no_code=groups["name"].isupper())
    if name == Named.NOTHING:
        return found[0]
    if lines := groups.get("lines"):
        below = _FIND["line"].sub(functools.partial(_without_pair, above=name), lines)
        return found[0].removesuffix(lines) + below
    value = groups["value"].strip("- \t\n")
    hides = _hides(name, value, quoted="q" in groups and found["q"] is not None)
    if not hides and name == Named.IF_QUOTED:
        by = "=" * (not set(found[0]).isdisjoint("[\n"))  # no row of a table
        hides = _is_telling(value, by, found.string, found.end("value"))
    if not hides or groups["name"].lower() in _WORDS["plain_field"]:
        return found[0]
    first, last = (place - found.start() for place in found.span("value"))
    return f"{found[0][:first]}{SECRET}{found[0][last:]}"


def _decoded(line: str) -> str:
    """As a person would read it: without colours, entities, escapes of quotes and percents."""
    if "%" in line:
        line = _FIND["percents"].sub(lambda word: unquote(unquote(word[0])), line)
    line = _FIND["colours"].sub("", line)
    if "&" in line:
        line = _FIND["entities"].sub(lambda entity: html.unescape(entity[0]), line)
    if "\\u00" in line or "\\x" in line:
        line = _FIND["escapes"].sub(lambda code: chr(int(code[1], 16)), line)
    return line.replace("\uff1a", ":").replace("\uff1d", "=")


def without_secrets(text: str, counts: Counter[str]) -> str:
    """The text with each secret replaced by what it was; ``counts`` how many, by category. A line
    that holds one in another encoding becomes the decoded one."""
    text = _without_plain(text, counts)
    if not (text.isascii() and _ENCODED.isdisjoint(text)):
        lines = text.split("\n")
        for number, line in enumerate(lines):
            if (decoded := _decoded(line)) != line and (
                safe := _without_plain(decoded, counts)
            ) != decoded:
                lines[number] = safe
        text = "\n".join(lines)
    return text


def _without_plain(text: str, counts: Counter[str]) -> str:
    for category, find, put, needs in PATTERNS:
        if needs in text:
            text, number = find.subn(put, text)
            _count(counts, category, number)
    before = (text.count(SECRET), text.count(TOKEN))
    if _FIND["in_names"].search(text):
        text = _without_pairs(text)
        if "'" in text or '"' in text:
            text = _without_quoted(text)
        text = _without_values(text)
    text = _FIND["long"].sub(lambda word: _without_tokens(word[0]), text)
    _count(counts, SECRETS, text.count(SECRET) - before[0])
    _count(counts, TOKENS, text.count(TOKEN) - before[1])
    return text


def _count(counts: Counter[str], category: str, number: int) -> None:
    if number > 0:
        counts[category] += number


def _without_quoted(text: str) -> str:
    """As a whole, else line by line."""
    whole = _behind_a_prefix(text)
    if whole != text:
        return whole
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if _FIND["in_names"].search(line):
            lines[number] = _behind_a_prefix(line)
    return "".join(lines)
