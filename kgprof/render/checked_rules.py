"""Which rules a run could have shown: a clean report must not name one for which nothing was watched."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
    m.Witness.CUDA_GRAPH_LOG: lambda run, _: _captured(run, m.Witness.CUDA_GRAPH_LOG),
    m.Witness.TIMING: lambda run, _: not isinstance(run.step, m.Skipped),
    m.Witness.TRACE: lambda run, _: isinstance(run.kernels, m.KernelBreakdown),
    m.Witness.READS: lambda run, _: not isinstance(run.memory, m.Skipped),
    m.Witness.TENSORS: lambda run, _: not isinstance(run.memory, m.Skipped) and run.script is None,
    m.Witness.RESULTS: lambda run, _: isinstance(run.agreement, m.RunAgreement),
    m.Witness.EVALUATION: lambda run, _: isinstance(run.evaluation, m.Evaluation),
    m.Witness.EAGER_TIMES: lambda run, _: (
        isinstance(run.economics, m.Economics) and run.economics.verdict != m.Payoff.NOT_OBSERVED
    ),
    m.Witness.CPU: lambda _, device: device != CUDA,
    m.Witness.CUDA: lambda _, device: device == CUDA,
}
