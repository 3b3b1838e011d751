"""What makes a finding the same finding in the next commit."""

from __future__ import annotations

import hashlib

from kgprof import model as m


def fingerprint(rule: str, run: m.RunKey | None, *identity: str) -> str:
    """Twelve hex digits over what the finding is about. Counts, times and line numbers change, so they stay out."""
    parts = (rule, run.slug if run else "", *identity)
    return hashlib.sha256("\0".join(parts).encode("utf-8", errors="replace")).hexdigest()[:12]
