"""What is said of a ladder: a gain only of a patch, "nothing to do" only of what was all tried."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.fix import sheet, verdict
from kgprof.render import sheet as printers
from tests.record import handmade

GAIN = m.Gain(ratio=0.5, low=0.4, high=0.625, pairs=4)
KEPT = m.LeverTrial(
    lever="fused-optimizer",
    says="updates the parameters in one kernel",
    code="opt = AdamW(params, fused=True)",
    changes=m.Changes.ROUNDING,
    kept=True,
    results=m.Results.ROUNDED,
    gain=GAIN,
)
IDLE = replace(
    KEPT,
    lever="one-thread",
    kept=False,
    gain=m.Skipped("1.10 and 1.20 in 2 pairs"),
    why="no gain was seen",
)
NOT_WANTED = m.NotTried(
    lever="tf32", says="multiplies in TF32", why="nothing asks for it", is_wanted=False
)
LATE = m.NotTried(lever="gc-freeze", says="freezes objects", why="the time was up", is_open=True)
NOTHING = m.Fix(
    schema_version=m.FIX_SCHEMA_VERSION,
    created_utc="2026-01-02T03:04:05+00:00",
    command=("kgprof", "fix", "a.py:step"),
    workload="a.py:step",
    environment=handmade.ENVIRONMENT,
    facts=m.StepFacts(device="cpu"),
    trials=(IDLE,),
    not_tried=(NOT_WANTED,),
    starts=12,
)
PATCHED = replace(
    NOTHING,
    trials=(KEPT, IDLE),
    patch="--- a/a.py\n+++ b/a.py\n",
    gain=GAIN,
    results=m.Results.ROUNDED,
)


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        (
            PATCHED,
            m.VerdictStatus.OK,
            "fix.patch (fused-optimizer): 2.00\N{MULTIPLICATION SIGN} as fast "
            "(1.60\N{MULTIPLICATION SIGN} to 2.50\N{MULTIPLICATION SIGN}); results: rounded",
        ),
        (
            NOTHING,
            m.VerdictStatus.OK,
            "nothing to do: none of 1 lever tried was kept",
        ),
        (
            replace(NOTHING, not_tried=(LATE,)),
            m.VerdictStatus.INCONCLUSIVE,
            "not decided: of 1 lever tried none was kept, and some were not decided",
        ),
        (
            replace(NOTHING, trials=(replace(IDLE, is_open=True, why="not decided"),)),
            m.VerdictStatus.INCONCLUSIVE,
            "not decided: of 1 lever tried none was kept, and some were not decided",
        ),
        (
            replace(NOTHING, interrupted=True),
            m.VerdictStatus.INCONCLUSIVE,
            "interrupted after 1 lever; by then none helped",
        ),
        (
            replace(NOTHING, trials=(KEPT,), interrupted=True),
            m.VerdictStatus.INCONCLUSIVE,
            "interrupted after 1 lever; by then fused-optimizer helped, and the patch was not "
            "measured",
        ),
        (
            replace(NOTHING, trials=(replace(IDLE, lever="tf32", needs_leave=True),)),
            m.VerdictStatus.OK,
            "nothing to do: none of 1 lever tried was kept; faster, but "
            "with another meaning (--allow meaning): tf32",
        ),
        (
            replace(NOTHING, not_tried=(replace(LATE, is_open=False),)),
            m.VerdictStatus.OK,
            "nothing to do: none of 1 lever tried was kept; no place in "
            "the file, or in it already: gc-freeze",
        ),
        (
            replace(
                NOTHING, trials=(replace(IDLE, why="given up: its first process did not end"),)
            ),
            m.VerdictStatus.OK,
            "nothing to do: none of 1 lever tried was kept; given up, for its first process took "
            f"long: {IDLE.lever}",
        ),
        (
            replace(NOTHING, trials=(KEPT,), gain=m.Skipped("no gain was seen")),
            m.VerdictStatus.INCONCLUSIVE,
            "not decided: measured again, the patch was not shown to help (no gain was seen)",
        ),
    ],
)
def test_the_verdict_says_no_more_than_was_measured(
    found: m.Fix, status: m.VerdictStatus, words: str
) -> None:
    assert verdict(found) == words
    assert sheet(found).status is status


def test_every_printer_has_the_ladder_and_what_was_not_tried() -> None:
    page = sheet(replace(PATCHED, not_tried=(NOT_WANTED, LATE)))

    for text in (printers.html(page), printers.markdown(page), printers.text(page)):
        for words in ("fused-optimizer", "one-thread", "no gain was seen", "gc-freeze", "tf32"):
            assert words in text
