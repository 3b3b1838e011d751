"""From a Recording or a report on disk to the Profile that is shown, and the configuration that has
a say in it.

The verbs import it when they run.
"""

import re
import subprocess
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import msgspec

from kgprof import model as m
from kgprof.analysis import analyse
from kgprof.analysis.redaction import R, redacted, redacted_report
from kgprof.cli.options import Sharing
from kgprof.cli.saying import inform
from kgprof.collectors.trust import accepted as accepted_findings
from kgprof.compare import FAIL_ON as NEW_FINDINGS
from kgprof.compare import CompareSettings
from kgprof.compare.metrics import BUDGETED
from kgprof.errors import InputError
from kgprof.gate import judge, metrics
from kgprof.gate.settings import Configuration, check_recorded, combined, parse_file, refuse
from kgprof.reading import files, layout, recordings
from kgprof.record.ground.private_names import private_names
from kgprof.record.processes import holistic
from kgprof.render import embedded_profile

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
# looked for from the working directory up to git's top folder
CONFIGURATION = ("kgprof.toml", "pyproject.toml")


def read(
    recording: Path,
    *,
    hta: bool | None = False,
    quiet: bool = False,
    sharing: Sharing | None = None,
) -> m.Profile:
    """The Profile, without what must not be shown; of a Recording that check-graphs made, with the
    gate it was held to.

    ``hta``: ask HolisticTraceAnalysis about GPU traces (None: those that it has not been asked
    about).
    """
    sharing = sharing or Sharing()
    kinds = kernel_kinds()
    loaded = recordings.load(recording)
    if hta is not False:
        loaded = holistic.asked(
            loaded, again=bool(hta), say=(lambda text: None) if quiet else inform
        )
    profile = judged_profile(loaded, kinds)
    return redacted(profile, loaded.header.private, source=sharing.source, redact=sharing.redact)


def judged_profile(loaded: m.Recording, kinds: tuple[m.KindOverride, ...]) -> m.Profile:
    """As it was recorded: files are named as they were, and what must not be shown is still in
    it."""
    profile = analyse(loaded, kinds)
    if loaded.gate is None:
        return profile
    check_recorded(loaded.gate, Path(loaded.folder) / layout.GATE)
    return judge(profile, loaded.gate)


def gate_settings(options: Configuration, faults: list[str]) -> m.GateSettings:
    """Options, the configuration file and the file of accepted findings. Raises UsageError with
    every fault of all."""
    file = gate_configuration(faults)
    path, entries = accepted_file(options.accepted, file, faults, must_exist=False)
    refuse(faults)
    if entries is None and options.accepted is not None:
        inform(f"{path} not found: nothing is accepted")
    settings = combined(options, file, entries or (), str(path))
    if entries is None or entries:
        return settings
    how = "--update-baseline writes what fails now into it; otherwise delete it"
    notes = (*settings.notes, f"{path.name} accepts nothing: {how}")
    return msgspec.structs.replace(settings, notes=notes)


def repository(folder: Path) -> Path | None:
    """Git's top folder above it; None where there is none."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


def gate_configuration(faults: list[str]) -> Configuration:
    """What the nearest folder says that says anything."""
    here = Path.cwd()
    top = repository(here)
    for folder in (here, *here.parents):
        saying = []
        for name in CONFIGURATION:
            text = text_of(folder / name, faults, top or folder)
            if text is not None and (file := parse_file(str(folder / name), text, faults)):
                saying.append(file)
        if len(saying) > 1:
            faults.append(
                f"{folder}: {' and '.join(CONFIGURATION)} both configure kgprof; keep one"
            )
        if saying:
            return saying[0]
        if folder == top:
            break
    return Configuration(folder=str(here))


def kernel_kinds() -> tuple[m.KindOverride, ...]:
    """The project's own rules for kinds of kernels. Raises UsageError with every fault of the
    configuration."""
    faults: list[str] = []
    kinds = gate_configuration(faults).kernel_kinds
    refuse(
        faults,
        hint="kgprof reads its configuration for every report",
        where="kgprof's configuration",
    )
    return kinds


def text_of(path: Path, faults: list[str], within: Path | None = None) -> str | None:
    """A configuration; None if there is no such file. ``within``: as files.opened has it."""
    try:
        return files.content(path, files.TOML_BYTES, within).decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}")
        return None


def side(path: Path, sharing: Sharing) -> m.Profile:
    """BASE or HEAD. A file is read as it stands; of a folder the Recording, or the report.json
    where there is none.

    Raises InputError.
    """
    file = path
    within = None
    if path.is_dir():
        file = path / "report.json"
        within = path
    if (within and (recording_of(path) or not file.is_file())) or file.name == layout.HEADER:
        return read(layout.resolve(path), sharing=sharing)
    if file.suffix.lower() in (".html", ".htm"):
        return embedded_profile.read(file).profile
    try:
        data = files.content(file, embedded_profile.MAX_JSON_BYTES, within)
    except FileNotFoundError as error:
        hint = "give the folder that `kgprof profile` wrote, or a report of it"
        raise InputError("file or folder not found", path=path, hint=hint) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=path) from error
    return embedded_profile.decoded(data, file)


TREND_FILES = ("trend.json", "trend.html")


def points(folder: Path) -> tuple[list[m.TrendPoint], list[tuple[str, str]]]:
    """The recordings in the folder of a history, and the names of other files in it with what is
    wrong with them. Raises InputError where there is no such folder."""
    read: list[m.TrendPoint] = []
    unread = []
    try:
        files_there = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path=folder) from error
    for path in files_there:
        if path.name.startswith(".") or path.name in TREND_FILES:
            continue
        try:
            each = m.decode_json(files.content(path, files.TOML_BYTES, folder), m.TrendPoint)
        except (OSError, msgspec.DecodeError) as error:
            unread.append((path.name, getattr(error, "strerror", None) or str(error)))
            continue
        if each.trend_version == m.TREND_SCHEMA_VERSION:
            read.append(each)
        else:
            unread.append((path.name, f"another kgprof wrote it (version {each.trend_version})"))
    return read, unread


def diff_between(base: m.Profile, head: m.Profile) -> str:
    """What git says changed in Python files between the two commits; empty where one is not known
    or not here, and of a head that was recorded with changes on top of its commit."""
    commits = [side.environment.git_commit for side in (base, head)]
    known = [commit for commit in commits if isinstance(commit, str) and _COMMIT.fullmatch(commit)]
    if len({*known}) < 2 or head.environment.git_dirty is not False:
        return ""
    asked = [
        "git",
        "diff",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--unified=50",
        *known,
        "--",
        "*.py",
    ]
    top = repository(Path.cwd())
    try:
        done = subprocess.run(
            asked,
            cwd=top,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            check=True,
        )
    # no git here, or one that fails or hangs: the sources have to do
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def shown_report(report: R, sharing: Sharing) -> R:
    """A sweep or the cases of a capture, without what must not be shown."""
    private = private_names()
    return redacted_report(report, private, source=sharing.source, redact=sharing.redact)


def carried(path: Path, sharing: Sharing) -> m.Profile | None:
    """The Profile in a report that has no Recording beside it, or that is a comparison; None where
    the Recording says more. Raises InputError for a file that is neither."""
    file = path
    if path.is_dir():
        file = path / layout.REPORTS[1]
    is_alone = layout.found(path) is None
    if file.name == layout.HEADER or not file.is_file():
        return None
    try:
        found = side(file, sharing)
    except InputError:
        if is_alone:
            raise
        return None  # an incomplete report beside its Recording is written again
    if is_alone or found.comparison is not None:
        return redacted(found, private_names(), source=sharing.source, redact=sharing.redact)
    return None


def recording_of(path: Path) -> Path | None:
    """The Recording in a folder, from which a page takes its traces; None for a file that stands
    for itself."""
    if not path.is_dir():
        return None
    try:
        return layout.resolve(path)
    except InputError:
        return None


def compare_settings(
    limits: tuple[str, ...],
    fail_on: str | None,
    accepted: str | None,
    allow_different_environment: bool,
) -> tuple[CompareSettings, tuple[m.AcceptedEntry, ...]]:
    """Options over the configuration file over the defaults. Raises UsageError with every fault of
    all."""
    faults: list[str] = []
    file = gate_configuration(faults)
    written = chain(
        metrics.of_table(file.max_regression, file.folder, faults),
        metrics.of_options(limits, faults),
    )
    budgets = metrics.regressions(written, BUDGETED, faults)
    _, entries = accepted_file(accepted, file, faults)
    refuse(faults, hint="`kgprof compare --help` shows every form", where="compare's settings")
    level = fail_on or file.fail_on or NEW_FINDINGS
    return CompareSettings(budgets, level, allow_different_environment), entries or ()


def accepted_file(
    given: str | None, file: Configuration, faults: list[str], *, must_exist: bool = True
) -> tuple[Path, tuple[m.AcceptedEntry, ...] | None]:
    """The option's, the configuration's in its folder, or the usual name there; None where there is
    no file, which is a fault where the option names one that ``must_exist``."""
    folder = Path(file.folder)
    path = folder / (file.accepted or accepted_findings.FILE)
    within: Path | None = repository(folder) or folder
    if given is not None:
        path = Path(given)
        within = None
    text = text_of(path, faults, within)
    if text is not None:
        return path, accepted_findings.parse(text, str(path), faults)
    if must_exist and given is not None:
        faults.append(f"{path}: file not found")
    return path, None


def configuration(accepted: str | None) -> list[Path]:
    """The files from the working directory on that may have a say in it."""
    files = [Path(accepted or accepted_findings.FILE)]
    for folder in (Path.cwd(), *Path.cwd().parents):
        files += [folder / name for name in CONFIGURATION]
    return files


def accepted_here(given: str | None) -> tuple[m.AcceptedEntry, ...]:
    """What the project accepts. Raises UsageError with every fault of the files."""
    faults: list[str] = []
    _, entries = accepted_file(given, gate_configuration(faults), faults)
    refuse(faults, hint="nothing has been run", where="the file of accepted findings")
    return entries or ()


def with_accepted(found: m.Profile, entries: Sequence[m.AcceptedEntry]) -> m.Profile:
    """Its findings, marked where the project accepts them."""
    if not entries:
        return found
    root = found.environment.source_root
    today = found.created_utc[:10]
    findings, _ = accepted_findings.apply(entries, found.findings, root=root, today=today)
    return msgspec.structs.replace(found, findings=findings)
