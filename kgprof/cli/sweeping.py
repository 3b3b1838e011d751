"""`kgprof sweep` and `kgprof advise`: from options to a sheet, through cells that were measured now
or earlier."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from kgprof import model as m
from kgprof import progress
from kgprof.cli import terminal
from kgprof.cli.options import Context
from kgprof.cli.reading import shown_report
from kgprof.cli.recording import making
from kgprof.cli.saying import inform, say
from kgprof.cli.writing import emit_sheet, write_sheet
from kgprof.collectors.compile import compilations
from kgprof.document.sheet import Section
from kgprof.document.sweep import ladder_section, shapes_section, sheet, shipped_section
from kgprof.errors import EXIT_NOTHING_MEASURED, EXIT_OK, EXIT_WORKLOAD, InputError
from kgprof.lab.cache_start import shipped_cache
from kgprof.lab.ladder import climb
from kgprof.lab.size_policies import compare_policies
from kgprof.lab.sweep import NOTHING_COMPILED, Grid, Session, refuse_another_question
from kgprof.measures.sweep import ahead, weighed
from kgprof.reading import files, layout
from kgprof.reading.source_text import SourceText
from kgprof.reading.structured_trace import RunTrace
from kgprof.record import default_folder
from kgprof.record.ground import store
from kgprof.record.ground.scratch import scratch_folder
from kgprof.record.ground.unfinished import refuse_overwriting
from kgprof.record.processes import children
from kgprof.record.processes.trials import TIME_UP, CellTrials
from kgprof.wording import plural, short
from kgprof.workloads import loading, programs

FILES = ("sweep.json", "sweep.html")
LADDER_SHARE = 1 / 3  # of --minutes, for the ladder and a start with shipped caches
LADDER_GUESS_S = 120.0  # with the start with shipped caches
ENDING_S = 5.0  # of --minutes, to end a process that runs and to write the page
MOST_BYTES = 8 * 2**20  # of a sweep.json; 100 cells in six processes each are 2 MB


def swept(
    asked: m.Options,
    grid: Grid,
    *,
    executions: int,
    turns: int,
    repeats: int,
    minutes: float,
    resume: bool,
    ladder: bool,
    varying: tuple[int, ...] | None,
    context: Context,
) -> int:
    """The exit code of a sweep whose sheet is in its place."""
    folder = default_folder(asked.workload)
    output = context.output or folder.with_name(f"sweep-{folder.name}")
    ends = time.monotonic() + 60 * minutes - ENDING_S
    earlier = earlier_sweep(output) if resume else None
    inputs = loading.files_of(asked.workload)

    def shown(sweep: m.Sweep) -> m.Sweep:
        return shown_report(sweep, context.sharing)

    with (
        making(output, inputs, context, worth_keeping=False, names=FILES) as work,
        scratch_folder("kgprof-") as scratch,
        context.progress(live=not programs.is_program(asked.workload)) as phases,
    ):

        def keep(sweep: m.Sweep) -> None:
            store.write_json(work.folder / FILES[0], shown(weighed(sweep, executions)))

        session = Session(asked, scratch, phases, stages_of, keep)
        session.plan(grid, work.folder, str)
        cells = session.begin(grid, turns, None)
        if earlier is not None:
            either = session.question, shown(session.sweep()).question
            refuse_another_question(earlier.question, either, output / FILES[0])
            cells = session.begin(grid, turns, earlier)
        climbing = climbs(ladder, asked.workload)
        if not context.quiet:
            announce(session, cells, turns, repeats, minutes, climbing)
        session.until = ends
        found = session.run(
            repeats=repeats,
            minutes=minutes * (1 - LADDER_SHARE * climbing),
            ahead=lambda sweep: ahead(sweep, executions),
        )
        found = weighed(found, executions)
        caches = session.caches("caches-trials", kept=True)
        found = tried(found, asked, ladder, varying, scratch, work.folder, phases, ends, caches)
        # with what the ladder says
        context.interrupted, found = found.interrupted, shown(weighed(found, executions))
        page = sheet(found, further(found))
        write_sheet(work.folder, FILES, found, page)
        output = work.finish()
    for each in found.cells:
        if failed := each.failed:
            say(f"{each.cell.name} {failed.words}", "the end of its log is on the page")
    if not context.quiet:
        progress.tell(terminal.sheet(page, sys.stderr), kept=progress.STYLED)
    emit_sheet(page, found, context, otherwise=str(output / FILES[1]))
    return exit_code(found)


def climbs(ladder: bool, workload: str) -> bool:
    """Whether time is kept for the ladder: a script has no step to compare."""
    return ladder and not programs.is_program(workload)


def tried(
    found: m.Sweep,
    asked: m.Options,
    ladder: bool,
    varying: tuple[int, ...] | None,
    scratch: Path,
    folder: Path,
    phases: progress.Progress,
    ends: float,
    caches: children.Caches,
) -> m.Sweep:
    """The correctness ladder of the best cell that compiles, unless an earlier sweep has it, and
    the policies for sizes (``varying`` None: without). What runs at ``ends`` is ended."""
    if found.interrupted or not (ladder or varying is not None):
        return found
    cells: list[m.Cell | None] = []
    for verdict in found.verdicts:
        cells += [verdict.best, verdict.runner_up]
    timed = [
        (each.step.median, each.cell) for each in found.worth if isinstance(each.step, m.Spread)
    ]
    cells += [cell for _, cell in sorted(timed)]
    cell = next((each for each in cells if each and each.compiles), None)
    if cell is None:
        return msgspec.structs.replace(found, ladder=m.Skipped("no cell that compiles was timed"))
    key = m.RunKey(found.question.strategy, cell.name)
    trials = CellTrials(
        options=asked,
        strategy=key.strategy,
        cell=cell,
        device=found.question.device,
        scratch=scratch,
        caches=caches,
        until=ends,
        on_phase=lambda name: phases.phase(name, key),
    )
    try:
        if ladder and not _is_whole(found.ladder, cell):
            found = msgspec.structs.replace(found, ladder=climb(trials, folder))
        if varying is not None:
            sized = msgspec.structs.replace(asked, workload_args=(*asked.workload_args, *cell.size))
            found = msgspec.structs.replace(
                found, shapes=compare_policies(replace(trials, options=sized), varying)
            )
        if ladder:
            phases.phase("a start with shipped caches", key)
            found = msgspec.structs.replace(found, shipped=shipped_cache(trials))
    except KeyboardInterrupt:
        if varying is not None and not found.shapes:
            found = msgspec.structs.replace(found, shapes=m.Skipped("the sweep was interrupted"))
        return msgspec.structs.replace(found, interrupted=True)
    return found


@m.otherwise(False)
def _is_whole(ladder: m.Ladder | m.Skipped, cell: m.Cell) -> bool:
    """Whether an earlier sweep climbed it on this cell, to its end."""
    before = m.known(ladder)
    ends = (*dict(before.rungs).values(), before.minified)
    return before.cell == cell.name and TIME_UP not in ends


def further(found: m.Sweep) -> tuple[Section, ...]:
    """What was tried on the best cell."""
    sections = [ladder_section(found.ladder)]
    if found.shapes is not None:
        sections.append(shapes_section(found.shapes))
    if found.shipped is not None:
        sections.append(shipped_section(found.shipped))
    return tuple(sections)


def exit_code(found: m.Sweep) -> int:
    """A cell that died costs itself; all of them the sweep."""
    ran = [each for each in found.cells if each.processes]
    if found.interrupted:
        return EXIT_OK
    if all(each.dead for each in ran):
        return EXIT_WORKLOAD
    alive = [each for each in ran if each.cell.compiles and not each.dead]
    if alive and not any(times.frames for each in alive for times in each.measured()):
        say(NOTHING_COMPILED, "your own function can be swept as file.py:name; kgprof compiles it")
        return EXIT_NOTHING_MEASURED
    return EXIT_OK


def announce(
    session: Session,
    cells: Sequence[m.CellResult],
    turns: int,
    repeats: int,
    minutes: float,
    ladder: bool,
) -> None:
    """The plan, before anything is measured."""
    left = [each for each in cells if not each.not_run]
    kept = sum(bool(each.processes) for each in cells)
    guess = (session.planned_s(repeats) + LADDER_GUESS_S * ladder) / 60
    plan = (
        f"strategy {session.strategy}: {plural(len(left), 'cell')}, each in "
        f"{plural(turns, 'process', 'processes')}, about {short(max(guess, 0.1), 2)} minutes, "
        f"at most {short(minutes)} (--minutes)"
    )
    if guess > minutes:
        plan += "; what does not fit is left out"
    if kept:
        plan += f"; {plural(kept, 'cell')} measured before"
    inform(plan)
    if session.others:
        inform(f"other strategies (choose one with --strategy): {', '.join(session.others)}")
    inform(f"cells: {'; '.join(each.cell.name for each in left)}")
    for each in cells:
        if each.not_run:
            inform(f"{each.cell.name} is left out: {each.not_run}")


def stages_of(records: tuple[m.TraceRecord, ...]) -> m.CompileStages | m.Skipped:
    """The seconds of all compilations in each stage; Skipped if there is none, or one whose spans
    are missing."""
    trace = RunTrace(
        m.RunKey("", ""),
        m.CompileRecords(records=records),
        calls=0,
        steady_from=0,
        source=SourceText(m.Sources()),
    )
    rows = [row.stages for row in compilations.compilations(trace)]
    known = [row for row in rows if isinstance(row, m.CompileStages)]
    if not rows or len(known) < len(rows):
        return m.first_skipped(*rows, m.Skipped("nothing was compiled"))
    names = [field.name for field in msgspec.structs.fields(m.CompileStages)]
    return m.CompileStages(**{name: sum(getattr(row, name) for row in known) for name in names})


# ---------------------------------------------------------------- a sweep on disk


def earlier_sweep(output: Path) -> m.Sweep | None:
    """Of the last sweep into this folder, or of one that was killed there; None if there is none
    yet."""
    for folder in (output / layout.UNFINISHED, output):
        if (folder / FILES[0]).is_file():
            return read_sweep(folder / FILES[0])
    return None


def sheet_file(path: Path) -> Path:
    """The sweep.json of a folder, or beside a sweep.html."""
    if path.is_dir():
        return path / FILES[0]
    if path.name == FILES[1]:
        return path.with_name(FILES[0])
    return path


def read_sweep(path: Path) -> m.Sweep:
    """``path``: the file, or the folder that holds it. Raises InputError."""
    file = sheet_file(path)
    within = None
    if path.is_dir():
        within = path
    hint = "give the folder that `kgprof sweep` wrote"
    try:
        found = m.decode_json(files.content(file, MOST_BYTES, within), m.Sweep)
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror or error}", path=file, hint=hint
        ) from error
    except msgspec.DecodeError as error:
        raise InputError(f"not a sweep of kgprof: {error}", path=file, hint=hint) from error
    if found.schema_version > m.SWEEP_SCHEMA_VERSION:
        raise InputError(
            f"written by a later kgprof ({found.environment.kgprof})",
            path=file,
            hint="update kgprof",
        )
    return found


def advised(path: Path, executions: int, memory_bytes: int | None, context: Context) -> int:
    """The verdict of a sweep for another number of executions, and for so much memory. Measures
    nothing."""
    sharing = msgspec.structs.replace(context.sharing, source="all")
    refuse_overwriting([sheet_file(path)], context.files)
    earlier = shown_report(read_sweep(path), sharing)
    found = weighed(earlier, executions, memory_bytes)
    page = sheet(found, further(found))
    memory = "any memory"
    if memory_bytes is not None:
        memory = plural(memory_bytes, "byte")
    steps = plural(executions, "execution")
    context.inform(
        f"inputs: {found.question.workload}, {steps}, {memory}, measured {found.created_utc}"
    )
    emit_sheet(page, found, context, otherwise=terminal.sheet(page, sys.stdout))
    return EXIT_OK
