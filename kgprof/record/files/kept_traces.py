"""Which trace of a Recording is a run's own, and where it lies: for the viewers that it is handed
to."""

from collections.abc import Sequence
from pathlib import Path

from kgprof import model as m
from kgprof.errors import InputError, UsageError
from kgprof.reading import files, layout, recordings

# The order in which the report reads them: in KERNELS the generated C++ kernels have names.
TRACED = (m.PassName.KERNELS, m.PassName.TRACE)


class KeptTrace(m.Model):
    """Gzipped Kineto JSON."""

    key: m.RunKey
    measured_in: m.PassName
    path: Path
    size_bytes: int

    @property
    def file_name(self) -> str:
        """For a copy of it outside its run's folder."""
        return f"{self.path.parent.name}.{self.path.name}"


def kept_traces(folder: Path, keys: Sequence[m.RunKey]) -> tuple[KeptTrace, ...]:
    """The first of TRACED of each run that has one, while the file is there."""
    return tuple(filter(None, (_first(folder, key, TRACED) for key in keys)))


def asked_for(recording: m.Recording, slug: str | None, name: m.PassName | None) -> KeptTrace:
    """The trace of one run, of pass ``name`` or else the first of TRACED.

    Raises UsageError where several runs have one and none was named, or the run is not there;
    InputError, with the reason, where it has no such trace.
    """
    folder = Path(recording.folder)
    wanted = TRACED if name is None else (name,)
    every = {run.key.slug: run for run in recording.runs}
    if slug is not None and slug not in every:
        raise UsageError(
            f"no run {slug!r} in this Recording", hint=f"its runs are {', '.join(every)}"
        )
    runs = every if slug is None else {slug: every[slug]}
    having = [
        kept for run in runs.values() if (kept := _first(folder, run.key, wanted)) is not None
    ]
    if len(having) == 1:
        return having[0]
    if having:
        raise UsageError(
            f"{len(having)} runs have a trace", hint=f"choose one with --run: {_slugs(having)}"
        )
    reasons = [_why(recording, run, wanted) for run in runs.values()]
    if slug is None:
        hint = f"{next(iter(runs))}: {reasons[0]}" if runs else ""
        raise InputError("no run has such a trace", path=recording.folder, hint=hint)
    others = kept_traces(folder, [run.key for run in recording.runs])
    instead = (
        f"there is a trace of {_slugs(others)}"
        if others
        else "no run of this Recording has a trace"
    )
    raise InputError(reasons[0], path=slug, hint=instead)


def _first(folder: Path, key: m.RunKey, wanted: Sequence[m.PassName]) -> KeptTrace | None:
    for name in wanted:
        path = layout.run_folder(folder, key) / layout.TRACE_FILES[name]
        if (
            files.stands(path, folder)
            and recordings.read_pass(folder, key, name, m.TracePass) is not None
        ):
            return KeptTrace(key=key, measured_in=name, path=path, size_bytes=path.stat().st_size)
    return None


def _why(recording: m.Recording, run: m.RunRecord, wanted: Sequence[m.PassName]) -> str:
    """Why there is no trace of the wanted pass, or of TRACE, which every run has unless something
    kept it away."""
    name = wanted[-1]
    traced = run.left_by(name)
    if isinstance(traced, m.Skipped):
        return f"there is no {name.upper()} pass: {traced.reason}"
    return (
        f"the trace of {name.upper()} was moved or deleted "
        f"({layout.trace_path(recording, run.key, name)})"
    )


def _slugs(found: Sequence[KeptTrace]) -> str:
    return ", ".join(kept.key.slug for kept in found)
