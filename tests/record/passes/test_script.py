"""A program as it stands: it runs as Python would run it, and however it ends, what was seen of it
is kept."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from kgprof.measures import host_stacks
from kgprof.measures.host_stacks import flame_graph
from kgprof.model import (
    FlameGraph,
    HostPass,
    KernelOrigins,
    MemoryPass,
    PassName,
    RunPhase,
    Skipped,
    TensorRecords,
    TimingPass,
    TracePass,
    Unavailable,
)
from kgprof.reading import kineto, layout
from kgprof.record.passes import trace_window
from kgprof.record.passes.script import added_up, renumbered, what_the_profiler_cost
from kgprof.record.processes import children
from tests.record.scripted import CAPTURED, COMPILES, ran

TRAINS = """
import pickle, sys
import torch

class Kept:
    pass

assert type(pickle.loads(pickle.dumps(Kept()))) is Kept
print(sys.argv[1:], __name__, __file__ == sys.argv[0], sys.path[0] == __file__.rpartition("/")[0], sys.stdin.read())
print("to stderr", file=sys.stderr)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

@torch.compile(backend="eager", dynamic=False)
def loss_of(x):
    return model(x).sum()

def main():
    for number in range(34):
        loss_of(torch.ones(2 + (number == 6), 4)).backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""  # noqa: E501
ENDS_LATE = TRAINS + "    import time; time.sleep(0.5)\n"  # which is no part of its last step
SEVEN_STEPS = COMPILES + "for number in range(7): doubled(torch.ones(3 + (number == 5)))\n"


def test_one_run_of_a_training_script_gives_compilations_steps_and_a_trace(tmp_path: Path) -> None:
    done = ran(tmp_path, TRAINS, "--lr", "1")

    assert done.exit.outcome == "ok"
    assert done.echoed == "['--lr', '1'] __main__ True True \nto stderr\n"  # and no word of torch's
    assert done.echoed in done.run.log
    assert (done.script.step, done.script.steps) == ("an optimizer step", 34)
    assert [one.compile_id for one in done.compiled.compilations] == ["0/0", "0/1"]
    assert done.compiled.calls == 34
    assert len(done.compiled.call_us) == 9  # those before torch.profiler was on
    assert isinstance(done.run.trace, TracePass)
    assert len(done.run.trace.step_us) == 20
    assert "TRACE: 20 steps: " in done.notes
    assert not isinstance(done.run.records, Skipped)
    recompiled = [
        r.call for r in done.run.records.records if r.metadata.get("frame_compile_id") == 1
    ]
    assert set(recompiled) == {6}
    first, second = done.run.records.graphs
    assert first.runs == {step: 1 for step in range(34) if step != 6}
    assert second.runs == {6: 1}
    # Of the step before those of TRACE: where each operator was called, one of the backward where
    # its forward was.
    assert isinstance(done.run.kernel_origins, KernelOrigins)
    at = {
        origin.kernel.removeprefix("torch.ops.aten."): origin.lines
        for origin in done.run.kernel_origins.origins
    }
    program = TRAINS.splitlines()
    called = {
        name: program[line.line - 1].strip()
        for name, (line, *_) in at.items()
        if name in ("addmm", "mm", "add_")
    }
    assert called == {
        "addmm": "return model(x).sum()",
        "mm": "return model(x).sum()",
        "add_": "optimizer.step()",
    }


def test_tensors_are_looked_at_by_step_and_in_none_that_is_traced(tmp_path: Path) -> None:
    # given: two calls that are no step of the training, then 20 steps with a batch of their own
    # each
    text = """
    import torch

    @torch.compile(backend="eager")
    def scaled(x, weight):
        return x * weight

    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    kept = [torch.ones(3) for _ in range(22)]
    for number in range(22):
        loss = scaled(kept[number], weight).sum()
        if number > 1:
            loss.backward()
            optimizer.step()
    """

    # when: the window opens in step 8 and is closed when step 11 begins
    seen = ran(tmp_path, text, passes=(PassName.COMPILE, PassName.MEMORY, PassName.TRACE), steps=2)

    # then
    assert isinstance(seen.run.trace, TracePass)
    assert isinstance(seen.run.memory, MemoryPass)
    assert isinstance(seen.run.memory.tensors, TensorRecords)
    (graph,) = seen.run.memory.tensors.graphs
    batch, parameter = graph.inputs
    moved = [held.moved for held in batch.held]
    assert (batch.name, moved) == ("L['x']", [(0, 1, 2, 3, 4, *range(12, 20))])
    assert [held.moved for held in parameter.held] == [()]
    assert graph.runs == 15


def test_a_module_runs_as_python_m_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "names.py").write_text("NAME = 'relative'\n", encoding="utf-8")
    main = (
        "import sys\nfrom .names import NAME\nprint(NAME, __name__, __package__, "
        "__spec__.name, sys.argv)\n"
    )
    (package / "__main__.py").write_text(main, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    done = ran(tmp_path, "", "x", workload="-m pkg")

    assert done.echoed == f"relative __main__ pkg pkg.__main__ ['{package / '__main__.py'}', 'x']\n"
    assert done.exit.outcome == "ok"


# The disk is full for the compiler's records {when}; the first write is that of the first mark.
# Half a second after each write there is another, however long a busy machine takes for one.
OFTEN = "import time; from kgprof.record.passes import script; script.WRITING_SHARE = 1e9"
FULL_DISK = """
import time
from kgprof.record.ground import kept_records, store
written, writes = kept_records.write_records, []

def full(*args):
    writes.append(args)
    if {when}:
        raise OSError(28, "No space left on device")
    written(*args)

kept_records.write_records = full
"""


def test_a_write_that_failed_once_costs_nothing_that_comes_later(tmp_path: Path) -> None:
    # given: it fails at a mark, the program goes on, and ends without another word
    text = f"{OFTEN}\n" + FULL_DISK.format(when="len(writes) == 2") + COMPILES
    text += """
import os

doubled(torch.ones(3))
for attempt in range(2):
    time.sleep(0.7)
    try:
        doubled(torch.ones(3 + attempt))
    except OSError as error:
        print(error)
time.sleep(0.7)
doubled(torch.ones(3))
os.kill(os.getpid(), 9)
"""
    done = ran(tmp_path, text)

    assert done.exit.outcome == "killed"
    assert done.echoed == ""  # the program did not see it
    assert done.script.steps > 2
    assert len(done.compiled.compilations) == 2


def test_what_cannot_be_written_keeps_nothing_else_from_being_written(tmp_path: Path) -> None:
    done = ran(
        tmp_path,
        FULL_DISK.format(when="len(writes) > 1") + SEVEN_STEPS,
        passes=(*CAPTURED, PassName.MEMORY),
    )

    assert done.exit.outcome == "ok"  # the program's own end
    assert "No space left on device" in done.run.log
    assert len(done.compiled.compilations) == 2
    assert isinstance(done.run.memory, MemoryPass)
    assert done.script.steps == 7


LAST_WORDS_FAIL = """
import pathlib
opened, failed = pathlib.Path.open, []

def full(path, *args, **kwargs):
    if "last_words" in path.name and len(failed) < {times}:
        failed.append(path)
        raise OSError(28, "No space left on device")
    return opened(path, *args, **kwargs)

pathlib.Path.open = full
"""


@pytest.mark.parametrize(
    ("times", "ending", "outcome", "message", "code"),
    [
        (1, "", "ok", "", 0),
        (99, "", "ok", "", 0),
        (1, "raise ValueError('no more')", "raised", "ValueError: no more", 1),
        (99, "1 / 0", "exited", "exit code 1; kgprof does not know why", 1),
    ],
)
def test_a_run_whose_last_words_cannot_be_written_is_what_it_was(
    tmp_path: Path, times: int, ending: str, outcome: str, message: str, code: int
) -> None:
    text = f"{LAST_WORDS_FAIL.format(times=times)}{COMPILES}\ndoubled(torch.ones(2))\n{ending}\n"

    done = ran(tmp_path, text, passes=(PassName.COMPILE,), ends_as_python=bool(ending))

    assert (done.exit.outcome, done.exit.message, done.exit.exit_code) == (outcome, message, code)
    assert len(done.compiled.compilations) == 1


@pytest.mark.parametrize(
    ("ending", "outcome", "message", "code"),
    [
        ("import sys; sys.exit(3)", "exited", "sys.exit(3)", 3),
        ("raise ValueError('no more')", "raised", "ValueError: no more", 1),
        ("import os; os._exit(5)", "exited", "os._exit(5)", 5),
        (
            "time.sleep(0.7); doubled(torch.ones(3)); os.kill(os.getpid(), 9)",
            "killed",
            "SIGKILL",
            -9,
        ),
    ],
)
def test_however_it_ends_its_code_is_kept_and_what_was_seen(
    tmp_path: Path, ending: str, outcome: str, message: str, code: int
) -> None:
    # OFTEN from the first line on: a slow first write would put the next one off to after the last
    # step.
    done = ran(tmp_path, f"{OFTEN}; import os\n{SEVEN_STEPS}{ending}\n")

    assert (done.exit.outcome, done.exit.message, done.exit.exit_code) == (outcome, message, code)
    assert len(done.compiled.compilations) == 2
    assert done.script.steps == 7 + (outcome == "killed")
    assert ("ended abruptly" in done.notes) == (outcome == "killed")
    if outcome == "raised":
        assert done.exit.traceback.splitlines()[1:] == [
            f'  File "{tmp_path / "program.py"}", line 9, in <module>',
            "    raise ValueError('no more')",
            "ValueError: no more",
        ]


def test_a_script_that_is_not_python_names_the_line(tmp_path: Path) -> None:
    done = ran(tmp_path, "x = 1\nif x\n")

    assert done.exit.message == f"SyntaxError: expected ':' [{tmp_path / 'program.py'}:2]"
    assert done.exit.traceback.startswith(f'  File "{tmp_path / "program.py"}", line 2\n')
    assert "kgprof/record" not in done.run.log


def test_processes_that_it_starts_are_not_watched_and_do_not_run_it_again(tmp_path: Path) -> None:
    done = ran(
        tmp_path,
        f"""
        import multiprocessing, os, subprocess, sys
        {textwrap_indent(COMPILES)}
        def seen(number):
            import kgprof
            return number, kgprof._on_step is None, __name__

        if __name__ == "__main__":
            doubled(torch.ones(3))
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(seen, [1]))
            worker = multiprocessing.get_context("spawn").Process(target=seen, args=(2,))
            worker.start()
            worker.join()
            asks = "import sys; print('kgprof' in sys.modules, sys.flags.safe_path)"
            print(subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True).stdout, end="")
            for batch in torch.utils.data.DataLoader(torch.ones(2, 3), num_workers=1):
                doubled(batch)
            sys.stdout.flush()
            forked = os.fork()
            doubled(torch.ones(3))
            if forked:
                os.waitpid(forked, 0)
                print("parent")
        """,  # noqa: E501
    )

    assert done.exit.outcome == "ok", done.run.log
    assert done.echoed == "[(1, True, '__mp_main__')]\nFalse False\nparent\n"
    assert done.script.steps == 4
    assert "seen (program.py:10) ran in processes of its own" in done.notes
    assert not list(tmp_path.glob("**/.partial-*"))


def textwrap_indent(text: str) -> str:
    return text.replace("\n", "\n        ")


def test_the_recording_stops_and_the_program_does_not(tmp_path: Path) -> None:
    done = ran(tmp_path, SEVEN_STEPS + "print('to the end')\n", max_steps=4)

    assert (done.exit.outcome, done.echoed) == ("ok", "to the end\n")
    assert (done.script.steps, done.script.stopped) == (4, "4 steps (--max-steps)")
    assert [one.compile_id for one in done.compiled.compilations] == ["0/0"]
    assert done.run.trace == Skipped(reason="the recording stopped: 4 steps (--max-steps)")


def test_it_stops_after_a_time_as_well(tmp_path: Path) -> None:
    # An hour passes, as a busy machine takes any time for two steps.
    passes = "import time; later = time.monotonic() + 3600; time.monotonic = lambda: later\n"
    last = "doubled(torch.ones(5)); print('to the end')\n"
    done = ran(
        tmp_path, SEVEN_STEPS.replace("range(7)", "range(2)") + passes + last, duration_s=1800
    )

    assert (done.exit.outcome, done.echoed) == ("ok", "to the end\n")
    assert done.script.stopped == "1800 s (--duration)"
    assert [one.compile_id for one in done.compiled.compilations] == ["0/0"]


def test_a_program_that_profiles_and_logs_itself_does_so_and_the_report_says_what_is_lost(
    tmp_path: Path,
) -> None:
    done = ran(
        tmp_path,
        COMPILES
        + """
import logging
import os
os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] = "0"
for number in range(12):
    doubled(torch.ones(3))
torch._logging.set_logs(dynamo=logging.ERROR)
with torch.profiler.profile() as profiler:
    doubled(torch.ones(3))
print(any(event.key == "aten::mul" for event in profiler.key_averages()))
doubled(torch.ones(4))
""",
    )

    assert done.exit.outcome == "ok", done.run.log
    assert done.echoed == "True\n"
    assert isinstance(done.run.trace, TracePass)
    assert len(done.run.trace.step_us) == 2  # whole ones of 12, before its own session began
    assert done.compiled.capture_unavailable == (
        Unavailable(
            capture="torch logs",
            why="the program called torch._logging.set_logs itself",
            incomplete=True,
        ),
    )
    assert "the program, or a library of it, set TORCHINDUCTOR_MAX_AUTOTUNE" in done.notes
    assert [one.compile_id for one in done.compiled.compilations] == ["0/0", "0/1"]


PLAIN = "import sys, torch\nx = torch.ones(3)\nfor _ in range(5):\n    x = x * x.sum().item()\n"


def test_a_program_of_plain_tensors_is_one_window(tmp_path: Path) -> None:
    done = ran(tmp_path, PLAIN, passes=(PassName.COMPILE, PassName.MEMORY))

    assert (done.exit.outcome, done.script.is_one_window, done.script.steps) == ("ok", True, 0)
    assert done.notes.startswith("the program has no steps: no kgprof.step(), optimizer,")
    assert isinstance(done.run.memory, MemoryPass)
    assert (len(done.run.memory.step_us), done.run.memory.steady_from) == (1, 0)
    assert not isinstance(done.run.memory.syncs, Skipped)
    assert [read.calls for read in done.run.memory.syncs.records] == [{0: 5}]


ONE_STEP = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
"""


def test_an_only_optimizer_step_of_which_the_beginning_is_not_known_makes_the_program_one_window(
    tmp_path: Path,
) -> None:
    done = ran(tmp_path, ONE_STEP, passes=(PassName.COMPILE, PassName.MEMORY))

    assert (done.script.is_one_window, done.script.steps) == (True, 0)
    assert done.notes.startswith("the program has no steps: the only optimizer step has an end")


def test_a_trace_with_a_step_that_compiles_is_said_to_have_it(tmp_path: Path) -> None:
    late = ran(tmp_path, TRAINS.replace("number == 6", "number == 15"))

    assert "torch compiled in 1 of the 20 traced steps" in late.notes


SLOW_TO_CLOSE = (
    TRAINS
    + """
    import time
    from kgprof.record.passes.trace_window import TraceWindow
    close = TraceWindow.close
    TraceWindow.close = lambda window, why: (time.sleep(5), close(window, why))
"""
)


def test_what_kgprof_does_when_the_program_has_ended_is_no_part_of_its_account(
    tmp_path: Path,
) -> None:
    account = ran(tmp_path, SLOW_TO_CLOSE).script.account

    assert not isinstance(account, Skipped)
    after = [each.us for each in account.phases if each.phase is RunPhase.AFTER]
    assert sum(after) < 5e6


def test_the_only_call_of_a_program_begins_where_it_is_made(tmp_path: Path) -> None:
    text = "import time; time.sleep(3)\n" + COMPILES + "doubled(torch.ones(3))\n"
    done = ran(tmp_path, text, passes=(PassName.COMPILE,))

    (only_us,) = done.compiled.call_us
    assert not isinstance(done.script.account, Skipped)
    assert only_us < done.script.account.total_us - 1e6


def test_the_first_optimizer_step_of_a_program_that_compiles_nothing_is_left_out_in_words(
    tmp_path: Path,
) -> None:
    text = ONE_STEP + "\nmodel(torch.ones(2, 4)).sum().backward()\noptimizer.step()\n"
    done = ran(tmp_path, text, passes=(PassName.COMPILE,))

    assert (done.script.steps, done.script.left_out) == (1, 1)
    assert "a step is an optimizer step; 1 counted, from the second on" in done.notes
    assert (
        "where the first optimizer step began is not known: no step time contains it" in done.notes
    )


def test_the_calls_of_a_layer_by_the_module_that_has_it_are_steps(
    tmp_path: Path,
) -> None:
    text = """
    import torch

    class Coder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(3, 3)

        def encode(self, x):
            return self.inner(x)

    coder = Coder()
    for _ in range(3):
        coder.encode(torch.ones(3))
    """

    done = ran(tmp_path, text, passes=(PassName.COMPILE,))

    assert done.script.steps == 3


def test_steps_in_which_torch_compiles_are_known(tmp_path: Path) -> None:
    done = ran(tmp_path, SEVEN_STEPS, passes=(PassName.COMPILE,))

    assert done.compiled.compiled_in == (0, 5)
    assert done.compiled.watched_us == (*done.compiled.call_us[3:5],)


@pytest.mark.parametrize(
    ("text", "samples", "words"),
    [
        (PLAIN, 1, "from its first line to its end"),
        (
            COMPILES + "doubled(torch.ones(3))\n",
            None,
            "torch compiled in 1 step of the rerun, and there was no other",
        ),
        (
            COMPILES + "for n in range(3): doubled(torch.ones(n))\n",
            None,
            "torch compiled in 3 steps of the rerun",
        ),
        (
            COMPILES + "for _ in range(4): doubled(torch.ones(3))\n",
            2,
            "none of them after --warmup 3",
        ),
        (
            COMPILES + "for n in range(9): doubled(torch.ones(3 + n // 6))\n",
            4,
            "3 to 7 of one rerun of the program, without 1",
        ),
        ("import torch\ntorch.nn.Linear(2, 2)(torch.ones(2))\n", 1, "from its only step on"),
        (ONE_STEP, 1, "from its first line to its end"),
        (PLAIN + "sys.exit(3)\n", None, "the rerun for TIMING saw no complete step"),
    ],
    ids=[
        *(
            "no step",
            "it compiles in one",
            "it compiles in each",
            "warm-up alone",
            "it compiles later",
        ),
        *("one step", "one that ends a step", "it failed"),
    ],
)
def test_a_program_with_few_steps_or_none_has_a_time_if_it_ended_well_and_compiled_in_none_of_it(
    tmp_path: Path, text: str, samples: int | None, words: str
) -> None:
    timing = ran(tmp_path, text, passes=(PassName.TIMING,)).run.timing

    if isinstance(timing, Skipped):
        assert samples is None
        assert timing.reason.startswith(words)
    else:
        assert [len(steps) for steps in timing.step_us] == [samples]
        assert words in timing.notes[0]


def test_kgprof_step_counts_before_anything_else(tmp_path: Path) -> None:
    done = ran(
        tmp_path,
        "import kgprof\n"
        + COMPILES
        + (
            "doubled(torch.ones(9))\nfor _ in range(5):\n    kgprof.step()\n    "
            "doubled(torch.ones(3)).sum().item()\n"
        ),
        passes=(PassName.COMPILE, PassName.MEMORY),
    )

    assert done.script.counted == {
        "a call of kgprof.step()": 5,
        "an optimizer step": 0,
        "an iteration of the loop that calls compiled functions": 0,
        "a call of a compiled function": 6,
        "a replay of a CUDA graph": 0,
        "a call of the outermost nn.Module": 0,
    }
    assert done.script.steps == 5
    assert not isinstance(done.run.records, Skipped)
    assert [graph.runs for graph in done.run.records.graphs] == [
        {-1: 1},
        {0: 1, 1: 1, 2: 1, 3: 1, 4: 1},
    ]
    assert isinstance(done.run.memory, MemoryPass)
    assert len(done.run.memory.step_us) == 5
    assert not isinstance(done.run.memory.syncs, Skipped)
    (read,) = done.run.memory.syncs.records
    assert (read.op, read.calls) == ("aten::_local_scalar_dense", {0: 1, 1: 1, 2: 1, 3: 1, 4: 1})
    assert (read.frames[0].file, read.frames[0].line) == (str(tmp_path / "program.py"), 11)
    assert isinstance(done.run.trace, Skipped)


def test_ctrl_c_ends_the_program_and_keeps_what_was_seen(tmp_path: Path) -> None:
    started = tmp_path / "started"
    text = SEVEN_STEPS + f"open({str(started)!r}, 'w').close()\nimport time\ntime.sleep(100)\n"

    def press() -> None:
        while not started.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    done = ran(tmp_path, text)
    presser.join()

    assert (done.exit.outcome, done.exit.message) == ("interrupted", "Ctrl-C")
    assert done.run.log.endswith("KeyboardInterrupt\n")
    assert (done.script.steps, len(done.compiled.compilations)) == (7, 2)


def test_a_program_that_hears_nothing_is_ended_and_has_written_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: its time is up when it is deaf, however long a busy machine takes to come to that
    monkeypatch.setattr(children, "CTRL_C_GRACE_S", 0.5)
    deaf_now = tmp_path / "deaf"

    def until_it_is_deaf(*_: object) -> None:
        deadline = time.monotonic() + 120
        while not deaf_now.exists():
            assert time.monotonic() < deadline, "it never came so far"
            time.sleep(0.05)
        raise queue.Empty

    monkeypatch.setattr(children._Child, "_await_news", until_it_is_deaf)
    deaf = f"""
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
open({str(deaf_now)!r}, "w").close()
time.sleep(100)
"""

    done = ran(tmp_path, SEVEN_STEPS + deaf, timeout_s=15)

    assert (done.exit.outcome, done.exit.message) == (
        "timed-out",
        "timed out after 15 s (--timeout)",
    )
    assert re.search(r'program.py", line \d+ in <module>', done.run.log)
    assert (done.script.steps, len(done.compiled.compilations)) == (7, 2)


IN_THREADS = (
    COMPILES
    + """
import threading

def on_a_thread(times):
    def steps():
        for _ in range(times):
            doubled(torch.ones(3))

    thread = threading.Thread(target=steps)
    thread.start()
    thread.join()
"""
)


@pytest.mark.parametrize(
    "calls",
    ["for _ in range(40): on_a_thread(1)", "on_a_thread(40)", "on_a_thread(14)"],
    ids=["a thread for each", "one", "one that ends within the window"],
)
def test_steps_on_other_threads_are_counted_and_not_traced(tmp_path: Path, calls: str) -> None:
    """torch.profiler that is stopped on another thread than it was started on ends the process by
    SIGSEGV."""
    done = ran(tmp_path, IN_THREADS + calls + "\nprint('the end')\n")

    assert (done.exit.outcome, done.echoed) == ("ok", "the end\n"), done.exit
    assert isinstance(done.run.trace, Skipped)
    assert done.run.trace.reason == trace_window.ELSEWHERE
    assert done.script.steps == (14 if "14" in calls else 40)


def test_too_few_steps_that_call_a_closure_say_how_to_count_finer(tmp_path: Path) -> None:
    text = """
    import torch
    weights = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.LBFGS([weights], max_iter=5)

    def closure():
        optimizer.zero_grad()
        loss = (weights ** 4).sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    """

    done = ran(tmp_path, text)

    assert done.script.closure == "closure (program.py:6)"
    assert (
        sum("kgprof.step()" in note and done.script.closure in note for note in done.script.notes)
        == 1
    )


def test_a_rerun_under_a_clock_gives_timing(tmp_path: Path) -> None:
    done = ran(tmp_path, TRAINS, passes=(PassName.TIMING,))

    assert isinstance(done.run.timing, TimingPass)
    assert [len(steps) for steps in done.run.timing.step_us] == [30]
    assert done.run.timing.loader_us == (0.0,) * 30  # it has no DataLoader
    assert len(done.run.timing.start_us) == 3
    # with what is compiled in it
    assert done.run.timing.start_us[0] > 10 * min(done.run.timing.step_us[0])
    (note,) = done.run.timing.notes
    words = (
        "steps 3 to 33 of one rerun of the program, without 1 in which torch "
        "compiled; a step is an optimizer step"
    )
    assert note.startswith(f"TIMING: {words}")
    assert isinstance(done.run.compile, Skipped)


def test_a_rerun_under_cprofile_gives_host(tmp_path: Path) -> None:
    done = ran(tmp_path, TRAINS, passes=(PassName.HOST,), steps=10, warmup=8)  # step 6 compiles

    assert isinstance(done.run.host, HostPass)
    assert len(done.run.host.step_us) == 10
    assert {row.function: row.calls for row in done.run.host.rows}["SGD.step"] == 10


def test_what_a_program_does_after_its_last_step_is_none(tmp_path: Path) -> None:
    done = ran(tmp_path, ENDS_LATE, passes=(PassName.HOST,), steps=100, warmup=8)

    assert isinstance(done.run.host, HostPass)
    assert len(done.run.host.step_us) == 34 - 9
    calls = {row.function: row.calls for row in done.run.host.rows}
    assert calls["SGD.step"] == 34 - 9
    assert "<built-in method time.sleep>" not in calls


def test_inductor_is_not_imported_for_a_program_that_does_not_ask_for_it(tmp_path: Path) -> None:
    passes = (*CAPTURED, PassName.MEMORY)
    done = ran(
        tmp_path, f"{TRAINS}print('torch._inductor.compile_fx' in sys.modules)\n", passes=passes
    )

    assert done.echoed.splitlines()[-2:] == ["to stderr", "False"]


EVALUATES_FIRST = """
    import torch

    model = torch.nn.Linear(4, 4)
    net = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.no_grad():
        for _ in range(EVALUATED):
            net(torch.ones(2, 4))
    for _ in range(TRAINED):
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("evaluated", "trained", "traced"),
    [(8, 12, "an optimizer step"), (30, 12, "an optimizer step")]
    + [(30, steps, "a call of a compiled function") for steps in (4, 8)],
    ids=["while it was open", "when it was over", "too few", "too few for one whole step"],
)
def test_a_trace_that_began_with_an_evaluation_begins_again_with_the_training(
    tmp_path: Path, evaluated: int, trained: int, traced: str
) -> None:
    text = EVALUATES_FIRST.replace("EVALUATED", str(evaluated)).replace("TRAINED", str(trained))

    done = ran(tmp_path, text, passes=(PassName.COMPILE, PassName.TRACE), steps=3, warmup=1)

    run = done.run
    assert run.script is not None
    assert isinstance(run.trace, TracePass)
    assert (run.script.step, run.script.traced or run.script.step) == ("an optimizer step", traced)
    assert len(run.trace.step_us) == 3
    trace = kineto.read(layout.run_folder(done.folder, run.key) / run.trace.trace_file)
    assert int(trace.columns.named("Optimizer.step#SGD.step").sum()) == (
        3 if traced == "an optimizer step" else 0
    )


@pytest.mark.parametrize(
    "asks",
    [
        "torch.compile(product)",
        pytest.param("torch._dynamo.optimize('inductor')(product)", marks=pytest.mark.long),
    ],
)
def test_of_the_first_graph_that_inductor_compiles_nothing_is_missed(
    tmp_path: Path, asks: str
) -> None:
    text = f"""
        import torch
        def product(x):
            return ((x * 3) @ x).sin()
        compiled = {asks}
        for _ in range(3): compiled(torch.ones(8, 8))
    """
    # the server whose children end as Python ends them has imported nothing of Inductor before
    passes = (PassName.COMPILE, PassName.TRACE)
    done = ran(tmp_path, text, passes=passes, steps=1, warmup=1, ends_as_python=True)

    kept = json.loads(
        (layout.run_folder(done.folder, done.run.key) / layout.KERNEL_ORIGINS).read_bytes()
    )
    lines = {
        origin["kernel"].partition("_")[0]: [one["line"] for one in origin["lines"]]
        for origin in kept["origins"]
    }
    assert lines == {"cpp": [4], "extern": [4]}
    (graph,) = kept["graphs"]
    assert (graph["eager"]["operators"], graph["kernels"], graph["generated"]) == (3, 3, 2)
    assert all("work" in origin for origin in kept["origins"])


@pytest.mark.parametrize(("program", "warmup", "steps"), [(TRAINS, 8, 5), (ENDS_LATE, 25, 2)])
def test_a_rerun_with_stacks_gives_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, warmup: int, steps: int
) -> None:
    """Of whole steps alone, where the program ends before there are as many as were asked for."""
    # a busy machine adds its time to any function
    monkeypatch.setattr(host_stacks, "TOP_FUNCTIONS", 10_000)
    # step 6 compiles
    done = ran(tmp_path, program, passes=(PassName.STACK,), steps=10, warmup=warmup)

    assert isinstance(done.run.stack, TracePass)
    assert len(done.run.stack.step_us) == steps
    assert max(done.run.stack.step_us) < 500_000
    trace = kineto.read(layout.run_folder(done.folder, done.run.key) / done.run.stack.trace_file)
    flame = flame_graph(trace.columns, measured_in=PassName.STACK)
    assert isinstance(flame, FlameGraph)
    calls = {flame.names[flame.frames[row.frame].name]: row.calls for row in flame.top}
    assert calls["loss_of"] == calls["aten::linear"] == flame.steps == steps
    assert "<built-in function sleep>" not in calls


def test_lines_are_told_the_number_of_their_step() -> None:
    def number(label: int) -> int:
        return label // 2

    assert renumbered({"call": 5, "metadata": {}, "payload": None}, number)["call"] == 2
    assert renumbered({"frame": {"call": 3, "function": "f"}}, number) == {
        "frame": {"call": 1, "function": "f"}
    }
    assert renumbered({"log": {"call": 4}}, number) == {"log": {"call": 2}}
    counted = {"left_out": 0, "asked": {4: 1, 5: 2}}
    assert renumbered({"compiled_calls": counted}, number) == {
        "compiled_calls": {"left_out": 0, "asked": {2: 3}}
    }
    runs = {"0": 1, "1": 1, "2": 5}
    assert renumbered({"graph": {"compile_id": "0/0", "runs": runs}}, number)["graph"]["runs"] == {
        0: 2,
        1: 5,
    }
    assert renumbered({"left_out": 3}, number) == {"left_out": 3}


def test_what_is_waited_is_told_by_step_like_what_is_counted() -> None:
    # given: two marks in each step
    assert added_up({0: 10.0, 1: 5.0, 6: 7.0}, lambda label: label // 2) == {0: 15.0, 3: 7.0}


def test_steps_of_many_operators_are_traced_no_longer_than_needed(tmp_path: Path) -> None:
    text = (
        f"{COMPILES}\nimport time\nfor _ in range(30):\n    doubled(torch.ones(3))\n"
        "    until = time.process_time() + 0.09\n    while time.process_time() < until:\n"
        "        pass\n"
    )

    done = ran(tmp_path, text, passes=(PassName.COMPILE, PassName.TRACE), steps=20, warmup=1)

    run = done.run
    assert run.script is not None
    assert isinstance(run.trace, TracePass)
    assert len(run.trace.step_us) == 5
    assert any(note.startswith("TRACE followed 5 of the 20 steps") for note in run.script.notes)


def test_steps_that_compiled_before_the_profiler_ran_without_it_too() -> None:
    trace = TracePass(step_us=(1.0,) * 20, trace_file="t.json.gz", cpp_kernel_profile=False)

    note = what_the_profiler_cost(trace, ())

    assert note == (
        "TRACE: 20 steps; all before it were warm-up or compiled: there is none to compare with"
    )
