"""The evaluator's own trade-off, measured: a read of the predicate of torch.cond against one call
for all slots."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kgprof import cli
from kgprof.cli import reading
from kgprof.model import RunReport, Skipped, Spread

QUICK = (
    "--mode",
    "eager",
    "--steps",
    "6",
    "--passes",
    "compile,timing,memory",
    "--evaluations",
    "2",
    "--quiet",
    "--device",
    "cpu",
)


def per_candidate(run: RunReport) -> Spread:
    assert isinstance(run.per_unit, Spread)
    return run.per_unit


@pytest.mark.long
def test_the_verdict_agrees_with_the_times_of_the_two(tmp_path: Path) -> None:
    strategies = ("--strategy", "fused", "--strategy", "torch_cond")
    command = [
        "profile",
        "linkpred",
        *strategies,
        *QUICK,
        "-o",
        str(tmp_path),
        "--",
        "--queries",
        "10",
        "--batch-size",
        "32",
    ]

    assert cli.run(command) == 0
    profile = reading.read(tmp_path)

    always, guarded = profile.runs
    (found,) = profile.trade_offs
    times = per_candidate(guarded), per_candidate(always)
    assert (found.guarded, found.always, found.net, found.net_always) == (
        guarded.key,
        always.key,
        *times,
    )
    # Times on a machine with other work may overlap; whatever they are, the verdict is theirs.
    expected = "keep the read" if times[0].median < times[1].median else "remove it"
    overlapping = max(time.minimum for time in times) <= min(time.maximum for time in times)
    assert found.verdict in ({"inconclusive"} if overlapping else {expected, "inconclusive"})
    if found.verdict == "inconclusive":  # a sentence says which of the three it is
        assert re.search(r"spreads overlap|apart or more|varied .* within one process", found.text)
    # One read more, at the line of torch.cond; the other one, whether it is done, is in both.
    assert found.syncs_per_step == 1.0
    assert found.location is not None
    assert Path(found.location.file).name == "torch_cond.py"
    assert found.location.text.strip() == "states, number, dropped = torch.cond("
    assert isinstance(found.sync_us, Skipped)
