"""Which rules a run could have shown, and every rule in full as one Markdown page: RULES.md, which
``kgprof explain --format markdown`` prints."""

import re
from collections.abc import Callable, Mapping, Sequence

from kgprof import model as m

CUDA = "cuda"


def checked_rules(profile: m.Profile) -> tuple[m.Rule, ...]:
    """Of the Profile's rules those that at least one of its runs could have shown, or that something was found by."""
    found = {finding.rule for finding in profile.findings}
    return tuple(
        rule
        for rule in profile.rules
        if rule.id in found or any(was_watched(rule, run, profile.device) for run in profile.runs)
    )


def was_watched(rule: m.Rule, run: m.RunReport, device: str) -> bool:
    return any(all(_PRESENT[witness](run, device) for witness in witnesses) for witnesses in rule.seen_in)


def _captured(run: m.RunReport, witness: m.Witness) -> bool:
    """Whether COMPILE had this hook or log of torch's."""
    return isinstance(run.compile, m.CompileSummary) and not any(
        lost.capture == witness and not lost.incomplete for lost in run.compile.capture_unavailable
    )


_PRESENT: Mapping[m.Witness, Callable[[m.RunReport, str], bool]] = {
    m.Witness.COMPILE: lambda run, _: not isinstance(run.compile, m.Skipped),
    m.Witness.CALLS: lambda run, _: (
        not isinstance(run.compile, m.Skipped) and (run.script is None or bool(run.script.counted))
    ),
    m.Witness.FRAME_HOOK: lambda run, _: _captured(run, m.Witness.FRAME_HOOK),
    m.Witness.GRAPH_HOOK: lambda run, _: _captured(run, m.Witness.GRAPH_HOOK),
    m.Witness.COMPILED_CALLS: lambda run, _: (
        not isinstance(run.compile, m.Skipped) and not isinstance(run.compile.compiled_calls, m.Skipped)
    ),
    m.Witness.CUDA_GRAPH_LOG: lambda run, _: _captured(run, m.Witness.CUDA_GRAPH_LOG),
    m.Witness.TIMING: lambda run, _: not isinstance(run.step, m.Skipped),
    m.Witness.TRACE: lambda run, _: isinstance(run.kernels, m.KernelBreakdown),
    m.Witness.READS: lambda run, _: not isinstance(run.memory, m.Skipped),
    m.Witness.TENSORS: lambda run, _: not isinstance(run.memory, m.Skipped) and run.script is None,
    m.Witness.RESULTS: lambda run, _: isinstance(run.agreement, m.RunAgreement),
    m.Witness.EVALUATION: lambda run, _: isinstance(run.evaluation, m.Evaluation),
    m.Witness.EAGER_TIMES: lambda run, _: isinstance(run.economics, m.Economics) and run.economics.is_decided,
    m.Witness.CPU: lambda _, device: device != CUDA,
    m.Witness.CUDA: lambda _, device: device == CUDA,
}


HEAD = """# Rules

All findings that kgprof can report, each with its fix. An id is never reused. This page is generated
(`kgprof explain --format markdown > RULES.md`), and a test holds it to the code.

| id | name | level | what it is |
|---|---|---|---|"""


def rules_page(rules: Sequence[m.Rule]) -> str:
    """A table of contents, then one section a rule, in the order of ids."""
    rows, sections = [], []
    for rule in sorted(rules, key=lambda rule: rule.id):
        summary = _literal(rule.summary)
        link = f"[{rule.id}](#{rule.id.lower()}-{rule.name})"
        rows.append(f"| {link} | {rule.name} | {rule.level} | {summary.replace('|', chr(92) + '|')} |")
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
