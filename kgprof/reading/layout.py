"""A Recording on disk: one folder, one file a pass, every file written beside its name and renamed
into place.

    recording/
      recording.json                     RecordingHeader: schema number, command, options, plan,
                                         environment
      agreement.json agreement_log.txt   Agreement, or Skipped with its reason
      ceilings.json ceilings_log.txt     what the card does at most, or Skipped
      accepted.json gate.json            findings that the project accepts; what check-graphs held
                                         it to
      PRIVATE.txt                        that nothing in here is redacted
      runs/<strategy>.<mode>/
        compile.json timing.json trace.json host.json stack.json memory.json kernels.json
                                         one pass each, or Skipped
        evaluation.json                  Evaluation, or Skipped
        kernel_origins.json              which lines each generated kernel computes, or Skipped
        compiled_kernels.json            registers, spills and stages of each Triton kernel, or
                                         Skipped
        exit.json probe_exit.json        how child A and child B ended
        round_2.json round_2_exit.json round_2_log.txt
                                         TIMING once more, one set a round from the second on
        cold_2.json cold_2_log.txt       of sides recorded in turn: seconds of a first call more, on
                                         empty caches
        trace.json.gz stack_trace.json.gz kernels.json.gz
                                         what torch.profiler exported
        holistic.json                    what HolisticTraceAnalysis says of trace.json.gz, once it
                                         has been asked
        trace_records.jsonl.gz           what the sources of COMPILE wrote, one JSON object a line
        script.json                      of a whole program: what a step was taken to be, and how
                                         many there were
        collectives.json                 of a launched rank that did not end well: the collectives
                                         that it began
        control.json                     of a run that kgprof may have changed: the same one without
                                         any listener
        setting_trials.json              the same with each setting that torch named in the run
        sources.json                     source text and break registry for reading it elsewhere
        result.npz                       the result vector
        log.txt probe_log.txt            what torch and the workload wrote in child A and B, head
                                         and tail

A SIGKILL therefore costs the pass that was running and nothing else. Until the end all of it, and
the reports, lie in recording.unfinished/ (record.ground.unfinished), and an older result stands
where it stood. The schema number is model.RECORDING_SCHEMA_VERSION; its history stands beside it.
"""

import hashlib
from pathlib import Path
from urllib.parse import quote

from kgprof import model as m
from kgprof.errors import InputError

HEADER = "recording.json"
FOLDER = "recording"  # inside the output folder
# beside it, while a result is made: what takes the place of all this at the end
UNFINISHED = "recording.unfinished"
PARTIAL = ".partial-"  # begins the name of a file that is not whole yet
PLAN_LOG = "plan.log"  # only where there is no Recording to hold it
REPORTS = ("report.html", "report.json")  # beside it
TRACE_FILES = {row.name: row.trace_file for row in m.PASSES.values() if row.trace_file}
TRACE_RECORDS = "trace_records.jsonl.gz"
SOURCES = "sources.json"  # beside it
RESULT = "result.npz"
SCRIPT = "script.json"
CONTROL = "control.json"
SETTING_TRIALS = "setting_trials.json"
COLLECTIVES = "collectives.json"
EAGER_TIMES = "eager_timing.json"  # of a script with compiling switched off
GATE = "gate.json"
ACCEPTED = "accepted.json"
LOG = "log.txt"
PROBE_LOG = "probe_log.txt"  # child B's
KERNEL_ORIGINS = "kernel_origins.json"
HOLISTIC = "holistic.json"
COMPILED_KERNELS = "compiled_kernels.json"
PRIVATE = "PRIVATE.txt"
AGREEMENT = "agreement.json"
CEILINGS = "ceilings.json"
EVALUATION = "evaluation.json"
_NAME_LIMIT = 120  # characters of a folder name; file systems stop at 255 bytes


def round_name(number: int) -> str:
    """What the files of one further round begin with."""
    return f"round_{number}"


def cold_name(number: int) -> str:
    """The file of a first call on empty caches, beside the other side's."""
    return f"cold_{number}.json"


def exit_name(probe: bool) -> str:
    return "probe_exit.json" if probe else "exit.json"


def run_folder(folder: Path, key: m.RunKey) -> Path:
    """``runs/<strategy>.<mode>``; what a folder name cannot hold is percent-encoded, a long name
    ends in its hash."""
    name = quote(key.slug, safe=" +,=@()[]")
    if len(name) > _NAME_LIMIT:
        name = f"{name[: _NAME_LIMIT - 9]}-{hashlib.sha256(key.slug.encode()).hexdigest()[:8]}"
    return folder / "runs" / name


def trace_path(recording: m.Recording, key: m.RunKey, name: m.PassName) -> Path:
    """The gzipped Kineto trace of TRACE or KERNELS."""
    return run_folder(Path(recording.folder), key) / TRACE_FILES[name]


def found(path: Path) -> Path | None:
    """The Recording's folder, from itself, the output folder that holds it, or a report beside it;
    None where there is none."""
    near = _near(path)
    for folder in (near, near / FOLDER, near / UNFINISHED / FOLDER):
        if (folder / HEADER).is_file():
            return folder
    return None


def _near(path: Path) -> Path:
    if path.name in (*REPORTS, HEADER) and not path.is_dir():
        return path.parent
    return path


def resolve(path: Path) -> Path:
    """As ``found``. Raises InputError when there is none."""
    folder = found(path)
    if folder is not None:
        return folder
    near = _near(path)
    if not path.exists():
        raise InputError(
            "file or folder not found",
            path=path,
            hint="give the folder that `kgprof profile` wrote",
        )
    if (near / UNFINISHED).is_dir():
        hint = "run `kgprof profile` again"
        raise InputError("kgprof ended here before anything was measured", path=path, hint=hint)
    raise InputError(
        f"no Recording found ({FOLDER}/{HEADER} is missing)",
        path=path,
        hint="give the folder that `kgprof profile` wrote, or the report.html inside it",
    )


def output_folder(folder: Path) -> Path:
    """Where the reports of a Recording stand: beside ``recording/``, or in a Recording that was
    moved out of it."""
    return folder.parent if folder.name == FOLDER else folder
