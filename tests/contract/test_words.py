"""How kgprof speaks: shapes that no sentence of it has, over rules, help, goldens, its own strings
and what it prints.

A shape is a pattern for prose. What torch, the workload or an older kgprof wrote into a Recording
is replaced before it is looked at; code, JSON keys and option names are none of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kgprof.analysis import analyse
from kgprof.cli import verbs
from kgprof.collectors import RULES
from kgprof.model import Profile
from kgprof.reading import recordings
from kgprof.render import by_name
from kgprof.render.html import Html
from kgprof.render.markdown import Markdown
from tests.archives import unpacked
from tests.contract.test_sentences import rewritten
from tests.gathering import for_all
from tests.render import profiles
from tests.render.test_golden import VisibleText

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "fixtures" / "recordings"
# Written by hand: not the rules, which come from the code, the seeds, and a list of changes.
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "reports/example/README.md")
    ),
    *sorted({*(ROOT / "docs").glob("*.md")} - {ROOT / "docs" / "seeds.md"}),
    *sorted((ROOT / "fixtures").glob("*/README.md")),
]
LONGEST_LINE, LONGEST_PARAGRAPH = 100, 5
_EACH = r"(?:step|replay|run|side|evaluation|candidate|launch|process|call|trace|rank|graph)"
SHAPES = {
    "a sentence that begins with Of": r"(?:^|[.:;] |\n\W*)Of (?!course\b)",
    "Compared are": r"\bCompared are\b",
    "a sentence that begins with What": r"(?:^|\. |\n[#*\s]*)What (?!to do\b)[^?\n]*(?:[^?\n]$|\n)",
    "us as a unit": r"[\d})] us\b|\bus/\w+|\(us\)|, us\b",
    "a unit a step": rf"\b(?:µs|ms|us|once|times|\d+|syncs|reads|copies|kernels|launches|steps|rounds) an? {_EACH}\b",  # noqa: E501
    "a fraction of an event": r"\b\d+\.\d+ times (?:an?|per)\b",
    "anew": r"\banew\b",
    "no X where it is not an X": r"(?<!there )(?<!There )(?<!and )\bis no (?!longer\b|more\b|one\b|different\b)\w",  # noqa: E501
    "none as not a": r"\bnot a single\b",
    "the device, the host": r"\b[Tt]he (?:device|host)(?:'s)?\b(?! name)|\bof the host's\b",
    "asked for": r"\bw(?:as|ere) asked for\b|\basked for otherwise\b",
    "beyond the noise": r"\bbeyond the noise, so\b",
    "further for more": r"\b\d+ further\b|\bfurther (?:kernels|findings?|metrics?|reads)\b",
    "held against": r"\b[Hh]eld against\b|\bagainst the card\b",
    "earn back": r"\bearn(?:s|ed)? back\b",
}
# What a Kineto trace or an older Recording says, and what is no prose of kgprof's.
NOT_OURS = (
    "reading/kineto.py",
    "measures/kernel_kinds.py",
    "analysis/redaction.py",
    "lab/minifier.py",
    "record/processes/holistic.py",
)


def faults(text: str) -> list[str]:
    """Each shape that is in the text, with the words around it."""
    found = []
    for name, shape in SHAPES.items():
        for at in re.finditer(shape, text, re.MULTILINE):
            found.append(f"{name}: ...{text[max(0, at.start() - 30) : at.end() + 30]!r}")
    return found


@pytest.mark.parametrize(
    "text",
    [
        "Of the kernels 3 are known.",
        "158 us of work",
        "1.55 times a step",
        "compiled anew",
        "once a step",
        "42 µs a step",
        "Compared are the step and the evaluation.",
        "the device does nothing",
        "36 further kernels",
        "x.py is no Python file",
    ],
)
def test_each_shape_is_seen(text: str) -> None:
    assert faults(text)


@pytest.mark.parametrize(
    "text",
    ["6.9 µs per step", "us_per_step", "status", "--device auto", "there is no file", "Often"],
)
def test_what_is_no_such_shape_is_left_alone(text: str) -> None:
    assert faults(text) == []


def test_a_rule_speaks_plainly() -> None:
    texts = {rule.id: f"{rule.summary}\n\n{rule.why}\n\n{rule.remedy}" for rule in RULES}

    assert {name: faults(text) for name, text in texts.items() if faults(text)} == {}


def commands(group: click.Command, name: str = "kgprof") -> Iterator[tuple[str, click.Command]]:
    yield name, group
    if isinstance(group, click.Group):
        for each, command in group.commands.items():
            yield from commands(command, f"{name} {each}")


def test_help_speaks_plainly() -> None:
    found = {}
    for name, command in commands(verbs.cli):
        context = click.Context(command, info_name=name, terminal_width=400, max_content_width=400)
        found[name] = faults(command.get_help(context))

    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("golden", ["findings.html.txt", "findings.md", "findings.txt"])
def test_a_golden_speaks_plainly(golden: str) -> None:
    assert faults((ROOT / "tests" / "render" / "golden" / golden).read_text(encoding="utf-8")) == []


@for_all([state for state in profiles.STATES if "hostile" not in state])
def test_the_text_of_a_page_speaks_plainly(state: str) -> None:
    assert faults(VisibleText(Html().render(profiles.STATES[state]())).text()) == []


def test_a_template_speaks_plainly() -> None:
    """Also where no state of a page takes its branch; in place of a value stands 3, a text in it
    stays."""
    templates = sorted((ROOT / "templates").rglob("*.jinja"))
    assert len(templates) > 20
    for template in templates:
        prose = re.sub(r"(?s)\{[#%].*?[#%]\}", "", template.read_text(encoding="utf-8"))
        prose = re.sub(r"(?s)\{\{(.*?)\}\}", lambda value: text_in(value[1]) or "3", prose)

        assert faults(VisibleText(prose).text()) == [], template.name


def paragraphs(text: str) -> Iterator[list[str]]:
    """The prose of a page: an item of a list is a paragraph; code, tables, headings and pictures
    are none."""
    found: list[str] = []
    for line in re.sub(r"(?ms)^ *```.*?^ *```$", "", text).splitlines():
        if (
            not line.strip()
            or line.startswith(("#", "|", "!["))
            or re.match(r" *(?:[-*]|\d+\.) ", line)
        ):
            yield found
            found = []
        if line.strip() and not line.startswith(("#", "|", "![")):
            found.append(line)
    yield found


@for_all(PAGES, lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_of_the_documentation_speaks_plainly_in_short_paragraphs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = [lines for lines in paragraphs(text) if lines]
    rows = [line for line in text.splitlines() if line.startswith("|")]

    wide = [
        line
        for lines in prose
        for line in lines
        if len(re.sub(r"\]\([^)]*\)", "]", line)) > LONGEST_LINE
    ]
    long = [lines[0] for lines in prose if len(lines) > LONGEST_PARAGRAPH]
    spoken = [
        re.sub(r"`[^`]*`", "x", " ".join(lines)) for lines in (*prose, *([row] for row in rows))
    ]

    assert prose
    assert (wide, long, [fault for text in spoken for fault in faults(text)]) == ([], [], [])


def test_a_paragraph_ends_at_a_blank_line_an_item_and_a_table() -> None:
    text = "one\ntwo\n\n```\ncode\n```\n- a\n  b\n1. c\n| t |\nd\n## e\n"

    assert [lines for lines in paragraphs(text) if lines] == [
        ["one", "two"],
        ["- a", "  b"],
        ["1. c"],
        ["d"],
    ]


def text_in(expression: str) -> str:
    return " ".join(text for text in re.findall('"([^"]*)"', expression) if " " in text)


def strings(file: Path) -> Iterator[tuple[int, str]]:
    """Every text with a space in it that is no docstring; in place of a figure stands 3."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    skipped = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node) is not None
        ):
            skipped.add(node.body[0].value)  # type: ignore[attr-defined]
        if isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "3" for part in node.values
            )
        if " " in text.strip():
            yield node.lineno, text


def test_kgprofs_own_strings_speak_plainly() -> None:
    files = sorted((ROOT / "kgprof").rglob("*.py"))
    ours = [file for file in files if not file.as_posix().endswith(NOT_OURS)]
    wrong = []
    for file in ours:
        for line, text in strings(file):
            wrong += [f"{file.relative_to(ROOT)}:{line} {fault}" for fault in faults(text)]

    assert len(ours) > 300
    assert wrong == []


@pytest.fixture(scope="module")
def committed() -> dict[str, Profile]:
    """Every committed Recording, with what its recorder wrote replaced."""
    folders = {path.name: path for path in RECORDINGS.iterdir() if path.is_dir()}
    for archive in sorted(RECORDINGS.glob("*.tgz")):
        folders[archive.name] = unpacked(archive.name)
    found = {}
    for name, folder in folders.items():
        for header in sorted(folder.rglob("recording.json")):
            recording = rewritten(
                recordings.load(header.parent), lambda sentence: "recorded" if sentence else ""
            )
            found[f"{name}/{header.parent.relative_to(folder)}"] = analyse(recording)
    return found


def test_what_is_printed_of_committed_recordings_speaks_plainly(
    committed: dict[str, Profile],
) -> None:
    found = {
        # The evaluator of those days wrote this setting.
        (name, form): faults(
            by_name(form).render(profile).replace(" a side, policy", " per side, policy")
        )
        for name, profile in committed.items()
        for form in ("text", "markdown")
    }

    assert len(committed) >= 10
    assert {key: wrong for key, wrong in found.items() if wrong} == {}


def test_a_comment_is_short_before_anything_is_opened(committed: dict[str, Profile]) -> None:
    every = {**committed, **{state: made() for state, made in profiles.STATES.items()}}
    sizes = {name: before_the_fold(profile) for name, profile in every.items()}
    # the table of a comparison has more rows, and the changed line stands below the cause
    most = {name: 2_200 if profile.comparison else 1_500 for name, profile in every.items()}

    assert {name: size for name, size in sizes.items() if size >= most[name]} == {}


def before_the_fold(profile: Profile) -> int:
    return (
        Markdown(source_url="https://github.com/owner/repository")
        .render(profile)
        .index("<details>")
    )
