"""The gate: a Profile, budgets and accepted findings in, the same Profile with a verdict and an
exit code out.

Right of the wall: no torch, no clock, no environment. The day on which an accepted finding expires
is compared with the day of the recording.
"""

from msgspec.structs import replace

from kgprof import model as m
from kgprof.collectors.trust import accepted
from kgprof.errors import EXIT_OK
from kgprof.gate import metrics
from kgprof.gate.verdict import causes, failing, unused, verdict

__all__ = ["judge"]


def judge(profile: m.Profile, settings: m.GateSettings) -> m.Profile:
    """The Profile with its ``gate``; its verdict and exit code are the gate's, its accepted
    findings are marked."""

    root = profile.source_root
    today = profile.created_utc[:10]
    findings, entries = accepted.apply(settings.accepted, profile.findings, root=root, today=today)
    counted = [finding for finding in findings if not finding.accepted]
    excused = [finding for finding in findings if finding.accepted]
    checks = metrics.check(settings.budgets, profile, counted, excused)
    reasons = causes(profile, findings, checks, entries, settings)
    marked = replace(profile, findings=findings)
    return replace(
        marked,
        exit_code=next((reason.exit_code for reason in reasons), EXIT_OK),
        verdict=verdict(marked, reasons, checks, settings.fail_on),
        gate=m.Gate(
            fail_on=settings.fail_on,
            backend=profile.options.backend or m.BACKENDS[0],
            budgets=checks,
            accepted=entries,
            failing=failing(findings, checks, settings.fail_on),
            notes=(*settings.notes, *unused(entries, profile)),
        ),
    )
