"""A comparison as text: what a reader of a log sees, line by line."""

from __future__ import annotations

import re

import msgspec

from kgprof.compare import compare
from kgprof.model import KernelKind, Level
from kgprof.render.text import Text
from tests.analysis.compared import BEFORE, finding, kernels, profile, slower, with_run
from tests.render.profiles import HOSTILE, STATES


def test_a_regression_with_its_cause_its_figures_and_what_is_left() -> None:
    """base spends 200 us in index, head 350, and has a note more and a warning less."""
    base = with_run(
        profile(findings=(finding("KGP402", message="a result is the input", fingerprint="old"),))
    )
    base = with_run(base, kernels=kernels(*BEFORE))
    rows = [(n, k, c, 350.0 if k is KernelKind.INDEX else us) for n, k, c, us in BEFORE]
    head = with_run(slower(base, 1180.0), kernels=kernels(*rows))
    head = msgspec.structs.replace(head, findings=(finding("KGP203", level=Level.NOTE, line=77),))

    text = Text().render(compare(base, head, sources=("base-run", "head-run")))

    commit = ", commit 0123456789ab with local changes"
    assert text.splitlines()[:9] == [
        "kgprof compare: linkpred on Invented 9000 @ 3.1 GHz",
        "",
        "REGRESSION: fused.default: step 18.0 % slower (95 % CI +17.3 to +18.7 %, 5 + 5 rounds; "
        "limit 5 %); likely cause: aten::index: 20 -> 35 µs per launch, 10 launches per step "
        "(accounts for 0.152 of the 0.18 ms/step)",
        "  fused.default: evaluation 18.0 % slower (95 % CI +17.3 to +18.7 %, 5 + 5 rounds; "
        "limit 5 %)",
        "  1 more new finding",
        "  1 fixed finding",
        "",
        f"base: base-run (2026-11-21T02:03:04+00:00{commit})",
        f"head: head-run (2026-11-21T02:03:04+00:00{commit})",
    ]
    assert (
        "1. kernel: fused.default: aten::index: 20 -> 35 µs per launch, 10 launches per step "
        "(accounts for" in text
    )
    assert "\nfused.default: under the profiler the step" in text
    assert (
        "\nfused.default: +0.180 ms per step; +0.152 ms explained, +0.028 ms not explained" in text
    )
    row = next(line for line in text.splitlines() if re.match("step +fused.default", line))
    columns = " ".join(row.split()[3:])
    assert columns == "worse 1.0000 ms 1.180 ms +18.0 % +17.3 to +18.7 %, 5 + 5 rounds"
    assert "  allowed: at most +5.0 %" in text
    assert "Findings: 1 new, 1 fixed, 0 unchanged" in text
    assert "\nNew\nnote KGP203: step.py:77: fused.default: Tensor.item reads 1 value a step" in text
    assert "\nFixed\nwarning KGP402: step.py:41: fused.default: a result is the input" in text


def test_nothing_in_a_comparison_is_a_command_or_steers_a_terminal() -> None:
    given = STATES["hostile"]()

    text = Text().render(compare(given, given, sources=(HOSTILE[6], HOSTILE[4])))

    assert not any(line.lstrip().startswith("::") for line in text.splitlines())
    assert not {"\x1b", "\x00", "\x07", "\u202e", "\u2028"} & set(text)
