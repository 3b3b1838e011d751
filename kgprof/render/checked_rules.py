"""Which rules a run could have shown: a clean report must not name one for which nothing was watched."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kgprof import model as m

CUDA = "cuda"
Seen = Callable[[m.RunReport, str], bool]  # of a run, on a device


def checked_rules(profile: m.Profile) -> tuple[m.Rule, ...]:
    """Of the Profile's rules those that at least one of its runs could have shown, or that something was found by."""
    found = {finding.rule for finding in profile.findings}
    return tuple(
        rule
        for rule in profile.rules
        if rule.id in found or any(was_watched(rule.id, run, profile.device) for run in profile.runs)
    )


def was_watched(rule: str, run: m.RunReport, device: str) -> bool:
    """A rule that this page does not know is taken as looked for."""
    seen = SEEN_IN.get(rule)
    return seen is None or seen(run, device)


def _compile(run: m.RunReport, device: str) -> bool:
    return not isinstance(run.compile, m.Skipped)


def _calls(run: m.RunReport, device: str) -> bool:
    """Whether one call was told from the next: in a TORCH_TRACE directory none is."""
    return _compile(run, device) and not _from_files(run)


def _from_files(run: m.RunReport) -> bool:
    return run.script is not None and not run.script.counted


def _capture(name: str) -> Seen:
    def seen(run: m.RunReport, device: str) -> bool:
        lines = run.compile.capture_unavailable if isinstance(run.compile, m.CompileSummary) else ()
        return _compile(run, device) and not any(line.startswith(f"capture {name} unavailable") for line in lines)

    return seen


def _on_cuda(seen: Seen) -> Seen:
    return lambda run, device: device == CUDA and seen(run, device)


def _reads(run: m.RunReport, device: str) -> bool:
    return not isinstance(run.memory, m.Skipped)


def _tensors(run: m.RunReport, device: str) -> bool:
    """A script is not compiled under the probes."""
    return _reads(run, device) and run.script is None


def _predicted_read(run: m.RunReport, device: str) -> bool:
    return device != CUDA and _reads(run, device)


def _skipped_graphs(run: m.RunReport, device: str) -> bool:
    """On a CPU run it is a prediction, from what Inductor was told."""
    return _capture("cuda graph log" if device == CUDA else "graph hook")(run, device)


def _launches(run: m.RunReport, device: str) -> bool:
    return isinstance(run.kernels, m.KernelBreakdown)


def _launches_and_times(run: m.RunReport, device: str) -> bool:
    return _launches(run, device) and not isinstance(run.step, m.Skipped)


def _weighed(run: m.RunReport, device: str) -> bool:
    return isinstance(run.economics, m.Economics) and run.economics.verdict != "not observed"


def _results(run: m.RunReport, device: str) -> bool:
    return isinstance(run.agreement, m.RunAgreement)


def _evaluated(run: m.RunReport, device: str) -> bool:
    return isinstance(run.evaluation, m.Evaluation)


def _two_sources(run: m.RunReport, device: str) -> bool:
    return _capture("frame hook")(run, device) or _reads(run, device)


SEEN_IN: Mapping[str, Seen] = {
    **dict.fromkeys(("KGP101", "KGP102", "KGP103", "KGP104", "KGP106", "KGP107"), _compile),
    "KGP105": _calls,
    **dict.fromkeys(("KGP201", "KGP202"), _reads),
    "KGP203": _predicted_read,
    "KGP301": _skipped_graphs,
    **dict.fromkeys(("KGP302", "KGP304"), _on_cuda(_capture("cuda graph log"))),
    "KGP303": _on_cuda(_launches),
    **dict.fromkeys(("KGP305", "KGP401", "KGP402", "KGP403", "KGP404", "KGP405"), _tensors),
    "KGP406": _capture("frame hook"),
    "KGP501": _results,
    "KGP502": _evaluated,
    "KGP503": _two_sources,
    "KGP504": lambda run, device: True,
    **dict.fromkeys(("KGP601", "KGP602"), _on_cuda(_launches_and_times)),
    "KGP603": _weighed,
}
