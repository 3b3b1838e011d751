"""Generated texts that try to be more than text: HTML, Markdown, XML, commands of CI systems,
references, escapes of terminals, and characters that nobody sees."""

from __future__ import annotations

import random

TAGS = (
    "script",
    "img",
    "svg",
    "iframe",
    "a",
    "style",
    "details",
    "table",
    "base",
    "math",
    "object",
)
EVENTS = (
    "onerror",
    "onload",
    "onclick",
    "onfocus",
    "ontoggle",
    "style",
    "href",
    "src",
    "formaction",
)
CODE = ("alert(1)", "javascript:alert(1)", "window.pwned=1", "expression(1)", "data:text/html,x")
CLOSERS = (
    *("</script>", "</style>", "-->", "]]>", "?>", "</title>", "</textarea>", "</pre>", "</td>"),
    *("</details>", "</summary>", "```", "~~~", "</testcase>", "</system-out>", "*/", "'''"),
)
MARKS = (
    *("# heading", "---", "===", "> quote", "- item", "1. item", "1) item", "| a | b |", "|---|"),
    *("[a](http://e.example)", "![i](http://e.example/i.png)", "[r]: http://e.example", "**b**"),
    *("`code`", "``", "~~s~~", "<!-- c -->", "&lt;b&gt;", "&#60;b&#62;", "\\<b>", "$x$", "    x"),
)
REFERENCES = (
    *("#1", "fixes #12", "closes GH-7", "gh-7", "owner/repo#345", "@someone", "@org/team", "!9"),
    *("see https://github.com/o/r/issues/1", "https://github.com/o/r/pull/22", "Resolves: #3"),
    *("https://gitlab.com/g/p/-/merge_requests/4", "o/r/discussions/5", "(#6)", "[#7]", "x#8"),
)
COMMANDS = (
    *("::error::x", "::set-output name=a::b", "::stop-commands::t", "::add-mask::x", "##[error]x"),
    *("##[group]x", "  ::warning file=a::b", "##vso[task.setvariable]x", "section_start:1:x"),
    *("::endgroup::", "::notice::", "\t::debug::x", "::ADD-PATH::/x"),
)
STEERING = (
    *("\x1b[31m", "\x1b]0;title\x07", "\x1b]8;;http://e.example\x1b\\l\x1b]8;;\x1b\\", "\x1b[2J"),
    *("\x9b31m", "\x07", "\x08\x08", "\r", "\x00", "\x7f", "\x0c", "\x85", "\x1bc", "\x1b[6n"),
)
UNSEEN = tuple(
    "\u202e\u202d\u202a\u202c\u2066\u2067\u2069\u200e\u200f\u061c\u200b\u2060\ufeff"
    "\u2028\u2029\U000e0041\ue000\ufffe\u00ad\u180e\ufff9\U0010ffff"
)
SYNTAX = (
    *(
        "{{7*7}}",
        "{% raw %}",
        "${{ secrets.X }}",
        "${x}",
        "%s%n",
        "{0.__class__}",
        "=1+1",
        "\\u003c",
    ),
    *('"', "'", "\\", "\\\\", "<", ">", "&", "\n", "\t", "\n\n", '"}', "</", "<!", "%0A", "%3C"),
)
PLAIN = (
    "name",
    "fused_add",
    "日本語",
    "é",
    "🔥",
    "مرحبا",
    "x" * 300,
    "a b",
    "C:\\x",
    "../../etc",
    "0",
)
KINDS = (CLOSERS, MARKS, REFERENCES, COMMANDS, STEERING, UNSEEN, SYNTAX, PLAIN)


def generated(count: int, seed: random.Random) -> list[str]:
    """Texts of one to five pieces, no two alike."""
    made: dict[str, None] = {}
    while len(made) < count:
        pieces = [_piece(seed) for _ in range(seed.randint(1, 5))]
        made["".join((*pieces, str(seed.randrange(10**6))))] = None
    return list(made)


def _piece(seed: random.Random) -> str:
    if seed.random() < 0.2:
        tag, event, code = seed.choice(TAGS), seed.choice(EVENTS), seed.choice(CODE)
        quote = seed.choice(('"', "'", "", "`"))
        text = f"<{tag}{seed.choice(' /' + chr(9) + chr(10))}{event}={quote}{code}{quote}>"
    elif seed.random() < 0.1:
        text = "".join(chr(seed.randrange(0x20, 0xD7FF)) for _ in range(seed.randint(1, 12)))
    else:
        text = seed.choice(seed.choice(KINDS))
    if seed.random() < 0.1:
        text = text.swapcase()
    return text + seed.choice(("", "", " ", "\n"))
