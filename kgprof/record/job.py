"""What the parent asks of a child process, and the lines that the child sends back while it works."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from kgprof.model import Model, Options, Plan, RunKey


class Task(StrEnum):
    PLAN = "plan"  # what can run here, and on which machine
    SCRIPT = "script"  # a whole program, run once as it stands, under the passes that the options name
    MEASURE = "measure"  # child A: COMPILE, TIMING, TRACE, HOST
    KERNELS = "kernels"  # child B: TRACE of code compiled with C++ kernel profiling
    AGREEMENT = "agreement"  # are the results of the runs equal?


class Job(Model, frozen=True, kw_only=True):
    """One child's work; it lies as JSON in the scratch folder."""

    task: Task
    options: Options
    parent_pid: int  # the child ends itself when this process is gone
    recording: str = ""  # the Recording's folder; empty while there is none (PLAN)
    answer: str = ""  # PLAN's answer is written here
    key: RunKey | None = None  # of MEASURE and KERNELS
    plan: Plan | None = None  # all but PLAN's own
    probe_cache: str = ""  # PLAN: where the vector-ISA probe's files go, for the runs to start from
    flags: dict[str, str] = msgspec.field(default_factory=dict)  # PLAN: torch's variables as the user set them


class Phase(Model, frozen=True, kw_only=True, tag_field="event", tag="phase"):
    """The child begins something; the last one is where it was when it died."""

    name: str


class Done(Model, frozen=True, kw_only=True, tag_field="event", tag="done"):
    """Everything asked for is written."""


class Failed(Model, frozen=True, kw_only=True, tag_field="event", tag="failed"):
    """An exception ended the child. ``exit_code`` is set when it was one of kgprof's own errors."""

    message: str
    hint: str = ""
    traceback: str = ""
    exit_code: int | None = None
    exited: bool = False  # a script that ended itself with a code other than 0


Event = Phase | Done | Failed
EVENT_DECODER = msgspec.json.Decoder(Event)
