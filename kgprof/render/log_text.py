"""The logs of the runs, within the room that the page has for them."""

from __future__ import annotations

from collections.abc import Sequence

from kgprof import model as m
from kgprof.render.escaping import one_line, visible
from kgprof.render.limits import Limits
from kgprof.render.quantity import count, size


def logs(runs: Sequence[m.RunReport], limits: Limits) -> tuple[tuple[str, str, str], ...]:
    """Run, size and text of each."""
    if not limits.log_chars:
        return ()
    written = [run for run in runs if run.log.text]
    each = limits.log_chars // max(1, len(written))
    half, shown = each // 2, []
    for run in written:
        text, size_bytes = visible(run.log.text, keep="\n\t"), len(run.log.text.encode("utf-8", errors="replace"))
        if len(text) > each:
            text = f"{text[:half]}\n[... {count(len(text) - 2 * half)} characters left out ...]\n{text[-half:]}"
        whole = size(size_bytes + run.log.left_out_bytes)
        shown.append((one_line(run.key.slug, limits.name), whole, text))
    return tuple(shown)
