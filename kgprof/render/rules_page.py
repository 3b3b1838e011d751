"""Every rule in full, as one Markdown page: RULES.md, which ``kgprof explain --format markdown`` prints."""

from __future__ import annotations

from collections.abc import Sequence

from kgprof import model as m

HEAD = """# Rules

What kgprof can find, and what to do about it. An id is never reused. This page is generated
(`kgprof explain --format markdown > RULES.md`), and a test holds it to the code.

| id | name | level | what it is |
|---|---|---|---|"""


def rules_page(rules: Sequence[m.Rule]) -> str:
    """A table of contents, then one section a rule, in the order of ids."""
    ordered = sorted(rules, key=lambda rule: rule.id)
    rows = [f"| [{r.id}](#{r.id.lower()}-{r.name}) | {r.name} | {r.level} | {_cell(r.summary)} |" for r in ordered]
    return "\n".join([HEAD, *rows, *(_section(rule) for rule in ordered)]) + "\n"


def _section(rule: m.Rule) -> str:
    return "\n".join(
        (
            f"\n## {rule.id} {rule.name}\n",
            f"Level: {rule.level}. {_escaped(rule.summary)}\n",
            f"**Why.** {_escaped(rule.why)}\n",
            f"**Example.** {_escaped(rule.example)}\n",
            f"**What to do.** {_escaped(rule.remedy)}",
        )
    )


def _cell(text: str) -> str:
    return _escaped(text).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Names with underscores, stars and angle brackets as they stand."""
    for character in "\\`*_<>[]":
        text = text.replace(character, f"\\{character}")
    return text
