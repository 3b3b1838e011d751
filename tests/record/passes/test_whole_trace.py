"""TRACE of a program without steps: a rerun under torch.profiler, from first line to end."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kgprof.model import Outcome, PassName, Skipped, TracePass
from kgprof.reading import layout
from tests.record.scripted import KEY, ran

LOOPS = """
    import torch
    points = torch.ones(8, 8)
    for _ in range(3):
        points = torch.sin(points)
"""


def test_the_whole_program_is_in_it_and_no_step_is_marked(tmp_path: Path) -> None:
    done = ran(tmp_path, LOOPS, passes=(PassName.TRACE,), traces_all=True)

    trace = done.run.trace
    assert isinstance(trace, TracePass)
    assert trace.step_us == ()
    file = layout.run_folder(done.folder, KEY) / trace.trace_file
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    names = [event.get("name", "") for event in events]
    assert names.count("aten::sin") == 3
    assert not any(name.startswith("ProfilerStep") for name in names)


def test_a_program_that_profiles_itself_ends_as_it_would_and_has_no_such_trace(
    tmp_path: Path,
) -> None:
    text = """
        import torch
        from torch.profiler import profile
        with profile() as mine:
            torch.ones(3).sin()
        print("saw", len(mine.events()) > 0)
    """
    done = ran(tmp_path, text, passes=(PassName.TRACE,), traces_all=True)

    assert done.exit.outcome is Outcome.OK
    assert "saw True" in done.run.log
    assert isinstance(done.run.trace, Skipped)
    assert "the program runs torch.profiler itself" in done.run.trace.reason


TRAINS = """
    import torch
    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    def busy():
        return sum(x * x for x in range(900_000))
    for _ in range(40):
        busy()
        net(torch.ones(4, 8)).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_trace_equally_many_steps_however_long_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", str(ranks))

    trace = ran(tmp_path, TRAINS, steps=20).run.trace

    assert isinstance(trace, TracePass)
    assert (len(trace.step_us) == 20) == (ranks == 2)
    assert trace.host_lines is None  # there is no GPU that waits for them
