"""A Recording of files that another program left: one run for each of its processes, and nothing of
this machine."""

import datetime
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from kgprof import model as m
from kgprof._version import __version__
from kgprof.reading import layout
from kgprof.record.ground import store
from kgprof.record.ground.private_names import private_names

NO_VERSION = "(version not in the trace)"
NOT_TOLD = "(not in the trace)"


def create(
    output: Path,
    options: m.Options,
    keys: Sequence[m.RunKey],
    environment: m.Environment,
    *,
    on_cuda: bool,
    reason: str,
    trace_files: tuple[m.TraceFile, ...] = (),
) -> Path:
    """Start it in ``output/recording``, in place of an older one; ``reason``: why the files do not
    show the rest.

    Raises UsageError for a folder that cannot be written.
    """
    store.clear(output)
    plan = as_it_stands(
        options.workload, keys, "cuda" if on_cuda else "cpu", environment, reason=reason
    )
    plan = replace(plan, trace_files=trace_files)
    store.create(output / layout.FOLDER, header(options, plan))
    return output / layout.FOLDER


def run_keys(names: Iterable[str], again: str, number: int) -> tuple[m.RunKey, ...]:
    """A run for each name; one that is taken gets ``again`` and the first free number from
    ``number`` on."""
    taken: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}-{again}{further}" for further in count(number))
        taken[next(each for each in chain((name,), numbered) if each not in taken)] = None
    return tuple(m.RunKey(name, m.AS_IS) for name in taken)


def as_it_stands(
    workload: str, keys: Sequence[m.RunKey], device: str, environment: m.Environment, *, reason: str
) -> m.Plan:
    """The plan of runs that nobody chose or compares; ``reason``: why Inductor's vector-ISA probe
    was not timed."""
    return m.Plan(
        workload=workload,
        strategies=tuple(m.StrategyPlan(key.strategy, (key.mode,)) for key in keys),
        runs=tuple(keys),
        baseline=None,
        device=device,
        environment=environment,
        vector_isa_probe_s=m.Skipped(reason),
        agreement=False,
    )


def now_utc() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def header(options: m.Options, plan: m.Plan) -> m.RecordingHeader:
    """The header of a Recording that this command makes now."""
    return m.RecordingHeader(
        schema_version=m.RECORDING_SCHEMA_VERSION,
        created_utc=now_utc(),
        command=("kgprof", *sys.argv[1:]),
        private=private_names(),
        options=options,
        plan=plan,
    )


def write_run(
    folder: Path,
    key: m.RunKey,
    shown: m.PassName,
    value: m.Model,
    *,
    reason: str,
    reasons: Mapping[m.PassName, str] | None = None,
) -> None:
    """The one pass that the files show, and why they show no other. How the program ended is not in
    them: the gate must not take a program for dead that wrote all it had."""
    for name in m.PassName:
        absent = m.Skipped((reasons or {}).get(name, reason))
        store.write_pass(folder, key, name, value if name is shown else absent)
    store.write_json(layout.run_folder(folder, key) / layout.EVALUATION, m.Skipped(reason))
    store.write_exit(folder, key, m.Exit(m.Outcome.OK))


def environment(*, reason: str, **known: Any) -> m.Environment:
    """The machine that was traced: the fields of Environment that are known; ``reason``: why the
    rest is not."""
    always = {"kgprof": __version__, "python": NO_VERSION, "torch": NO_VERSION, "flags": {}}
    told = {**always, "cpu_name": NOT_TOLD, "platform": NOT_TOLD, **known}
    unknown = {
        one.name: m.Skipped(reason) for one in msgspec.structs.fields(m.Environment) if one.required
    }
    return m.Environment(**{**unknown, **told})
