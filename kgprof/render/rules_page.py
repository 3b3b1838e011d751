"""Every rule in full as one Markdown page: RULES.md, which ``kgprof explain --format markdown``
prints."""

import re
from collections.abc import Sequence

from kgprof import model as m

HEAD = """# Rules

All findings that kgprof can report, each with its fix. An id is never reused. This page is \
generated
(`kgprof explain --format markdown > RULES.md`), and a test holds it to the code.

| id | name | level | what it is |
|---|---|---|---|"""


def rules_page(rules: Sequence[m.Rule]) -> str:
    """A table of contents, then one section a rule, in the order of ids."""
    rows = []
    sections = []
    for rule in sorted(rules, key=lambda rule: rule.id):
        summary = _literal(rule.summary)
        link = f"[{rule.id}](#{rule.id.lower()}-{rule.name})"
        rows.append(
            f"| {link} | {rule.name} | {rule.level} | {summary.replace('|', chr(92) + '|')} |"
        )
        sections.append(
            f"\n## {rule.id} {rule.name}\n\n"
            f"Level: {rule.level}. {summary}\n\n"
            f"**Why.** {_literal(rule.why)}\n\n"
            f"**Example.** {_literal(rule.example)}\n\n"
            f"**What to do.** {_literal(rule.remedy)}"
        )
    return "\n".join([HEAD, *rows, *sections]) + "\n"


def _literal(text: str) -> str:
    """Names with underscores, stars and angle brackets as they stand."""
    return re.sub(r"([\\`*_<>\[\]])", r"\\\1", text)
