"""From a Recording or a report on disk to the Profile that is shown, and the configuration that has a say in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kgprof import model as m
from kgprof.cli.options import Sharing
from kgprof.progress import tell as to_stderr

if TYPE_CHECKING:
    from kgprof import model as m
    from kgprof.collectors.accepted import Entry
    from kgprof.compare import CompareSettings
    from kgprof.gate import Settings
    from kgprof.gate.settings import Written


CONFIGURATION = ("kgprof.toml", "pyproject.toml")  # looked for from the working directory up to git's top folder


def read(
    recording: Path, *, hta: bool | None = False, quiet: bool = False, sharing: Sharing | None = None
) -> m.Profile:
    """The Profile, without what must not be shown; of a Recording that check-graphs made, with the gate it was held to.

    ``hta``: ask HolisticTraceAnalysis about GPU traces (None: those that it has not been asked about).
    """
    from kgprof.analysis.redaction import redacted
    from kgprof.reading import recordings

    sharing = sharing or Sharing()
    kinds = kernel_kinds()
    loaded = recordings.load(recording)
    if hta is not False:
        loaded = with_holistic(loaded, again=bool(hta), quiet=quiet)
    found = judged_profile(loaded, kinds)
    return redacted(found, loaded.header.private, source=sharing.source, redact=sharing.redact)


def judged_profile(loaded: m.Recording, kinds: tuple[m.KindOverride, ...]) -> m.Profile:
    """As it was recorded: what must not be shown is still in it."""
    from kgprof.analysis import analyse
    from kgprof.gate import judge
    from kgprof.gate.settings import from_record
    from kgprof.reading import layout

    found = analyse(loaded, kinds)
    if loaded.gate is None:
        return found
    return judge(found, from_record(loaded.gate, Path(loaded.folder) / layout.GATE))


def with_holistic(loaded: m.Recording, *, again: bool, quiet: bool) -> m.Recording:
    from kgprof.record import holistic

    def tell(text: str) -> None:
        if not quiet:
            to_stderr(f"kgprof: {text}")

    return holistic.asked(loaded, again=again, say=tell)


def gate_settings(options: Written, faults: list[str]) -> Settings:
    """Options, the configuration file and the file of accepted findings. Raises UsageError with every fault of all."""
    from kgprof.collectors import accepted
    from kgprof.gate.settings import combined, refuse

    folder, written = gate_configuration(faults)
    if options.accepted is not None:
        path = Path(options.accepted)
    elif written is not None and written.accepted is not None:
        path = folder / written.accepted
    else:
        path = folder / accepted.FILE
    text = text_of(path, faults)
    entries = accepted.parse(text, str(path), faults) if text is not None else ()
    refuse(faults)
    if text is None and options.accepted is not None:
        to_stderr(f"kgprof: there is no {path}: nothing is accepted")
    settings = combined(options, written, entries, str(path))
    if text is None or entries:
        return settings
    empty = f"{path.name} accepts nothing: --update-baseline writes what fails now into it; else it may be deleted"
    return replace(settings, notes=(*settings.notes, empty))


def gate_configuration(faults: list[str]) -> tuple[Path, Written | None]:
    """What the nearest folder says that says anything, and that folder (the working directory when none does)."""
    from kgprof.gate.settings import File, parse_file

    here = Path.cwd()
    for folder in (here, *here.parents):
        files = [File(path=str(folder / name), text=text_of(folder / name, faults)) for name in CONFIGURATION]
        found = [written for file in files if (written := parse_file(file, faults)) is not None]
        if len(found) > 1:
            faults.append(f"{folder}: {' and '.join(CONFIGURATION)} both configure kgprof; keep one")
        if found:
            return folder, found[0]
        if (folder / ".git").exists():
            break
    return here, None


def kernel_kinds() -> tuple[m.KindOverride, ...]:
    """The project's own rules for kinds of kernels. Raises UsageError with every fault of the configuration."""
    from kgprof.gate.settings import refuse

    faults: list[str] = []
    _, written = gate_configuration(faults)
    refuse(faults, hint="kgprof reads its configuration for every report", where="kgprof's configuration")
    return written.kernel_kinds if written is not None else ()


def text_of(path: Path, faults: list[str]) -> str | None:
    """None where there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f"{path}: cannot be read: {error}")
        return None


def side(path: Path, sharing: Sharing) -> m.Profile:
    """BASE or HEAD. A file is read as it stands; of a folder the Recording, or the report.json where there is none.

    Raises InputError.
    """
    from kgprof.errors import InputError
    from kgprof.reading import layout
    from kgprof.render import carried

    file = path / "report.json" if path.is_dir() else path
    if (path.is_dir() and (recording_of(path) or not file.is_file())) or file.name == layout.HEADER:
        return read(layout.resolve(path), sharing=sharing)
    if file.suffix.lower() in (".html", ".htm"):
        return carried.read(file).profile
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        hint = "give the folder that `kgprof profile` wrote, or a report of it"
        raise InputError("no such file or folder", path=path, hint=hint) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path) from error
    return carried.decoded(data, file)


def named_side(path: Path, sharing: Sharing) -> str:
    """As it was given; of a whole path only its end, because a report says nobody's folders."""
    return "/".join(path.parts[-2:]) if path.is_absolute() and sharing.redact else str(path)


def fit_to_show(found: m.Profile, sharing: Sharing) -> m.Profile:
    """A side that came as a report may have been made with --no-redact, and the other side's page would say it."""
    from kgprof.analysis.redaction import redacted
    from kgprof.record.private_names import private_names

    return redacted(found, private_names(), source=sharing.source, redact=sharing.redact)


def recording_of(path: Path) -> Path | None:
    """The Recording in a folder, from which a page takes its traces; None for a file that stands for itself."""
    from kgprof.errors import InputError
    from kgprof.reading import layout

    if not path.is_dir():
        return None
    try:
        return layout.resolve(path)
    except InputError:
        return None


def compare_settings(
    budgets: tuple[str, ...], fail_on: str | None, accepted_path: str | None, allow_different_environment: bool
) -> tuple[CompareSettings, tuple[Entry, ...]]:
    """Options over the configuration file over the defaults. Raises UsageError with every fault of all."""
    from kgprof.compare import FAIL_ON as NEW_FINDINGS
    from kgprof.compare import CompareSettings
    from kgprof.compare.metrics import BUDGETED
    from kgprof.gate import regressions
    from kgprof.gate.settings import refuse

    faults: list[str] = []
    folder, written = gate_configuration(faults)
    table = written.max_regression if written is not None else None
    from_file = regressions.parse_table(table, str(folder), BUDGETED, faults) if table is not None else {}
    from_options = regressions.parse_options(budgets, BUDGETED, faults)
    entries = accepted_entries(accepted_path, folder, written, faults)
    refuse(faults, hint="`kgprof compare --help` shows every form", where="what compare is told")
    settings = CompareSettings(
        budgets={**from_file, **from_options},
        fail_on=fail_on or (written.fail_on if written is not None else None) or NEW_FINDINGS,
        allow_different_environment=allow_different_environment,
    )
    return settings, entries


def accepted_entries(given: str | None, folder: Path, written: Written | None, faults: list[str]) -> tuple[Entry, ...]:
    from kgprof.collectors import accepted

    path = Path(given) if given is not None else folder / ((written and written.accepted) or accepted.FILE)
    text = text_of(path, faults)
    if text is None and given is not None:
        faults.append(f"{path}: there is no such file")
    return accepted.parse(text, str(path), faults) if text is not None else ()


def accepted_here(given: str | None) -> tuple[m.GateEntry, ...]:
    """What the project accepts, as a Recording keeps it. Raises UsageError with every fault of the files."""
    from dataclasses import asdict

    from kgprof import model as m
    from kgprof.gate.settings import refuse

    faults: list[str] = []
    folder, written = gate_configuration(faults)
    entries = accepted_entries(given, folder, written, faults)
    refuse(faults, hint="nothing has been run", where="what the project accepts")
    return tuple(m.GateEntry(**asdict(entry)) for entry in entries)


def with_accepted(found: m.Profile, entries: Sequence[Entry]) -> m.Profile:
    """Its findings, marked where the project accepts them."""
    import msgspec

    from kgprof.collectors import accepted

    if not entries:
        return found
    root, today = found.environment.source_root, found.created_utc[:10]
    findings, _ = accepted.apply(entries, found.findings, root=root, today=today)
    return msgspec.structs.replace(found, findings=findings)
