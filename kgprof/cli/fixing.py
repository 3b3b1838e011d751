"""`kgprof fix`: from options to a patch that was measured, or to the reason why there is none."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from kgprof import model as m
from kgprof import progress
from kgprof.cli import terminal
from kgprof.cli.options import Context
from kgprof.cli.reading import shown_report
from kgprof.cli.recording import load_before, making
from kgprof.cli.saying import inform
from kgprof.cli.writing import emit_sheet, write_sheet
from kgprof.document.fix import sheet
from kgprof.errors import EXIT_INCONCLUSIVE, EXIT_OK, NoStepError, UsageError
from kgprof.lab.fix.ladder import NOTHING, Climb, Ending, Program
from kgprof.lab.fix.levers import levers
from kgprof.lab.fix.trees import tree_of
from kgprof.reading import files
from kgprof.record import default_folder
from kgprof.record.files import foreign
from kgprof.record.ground import store
from kgprof.record.ground.scratch import scratch_folder
from kgprof.record.processes import fork_server
from kgprof.wording import plural, short
from kgprof.workloads import loading, programs

FILES = ("fix.json", "fix.html")
PATCH = "fix.patch"
MOST_BYTES = 2**22  # of the workload's file
MOST_EFFECTS_SAID = 5
LEFT_OUT = "(left out: --include-source none; it is in fix.patch)"
_MARK = "\ufeff"  # of byte order


def fixed(
    asked: m.Options,
    *,
    minutes: float,
    allowed: m.Changes,
    again_is_safe: bool,
    apply: bool,
    context: Context,
) -> int:
    """The exit code of a ladder whose sheet is in its place."""
    program = _program(asked)
    file = program.tree.root / program.file
    original = files.content(file, MOST_BYTES)
    if apply:
        _refuse_a_changed_file(program, original)
    folder = default_folder(asked.workload)
    output = context.output or folder.with_name(f"fix-{folder.name}")
    until = time.monotonic() + 60 * minutes
    with (
        making(output, [file], context, worth_keeping=False, names=FILES) as work,
        scratch_folder("kgprof-") as scratch,
        fork_server.imports_shared(),
        context.progress() as phases,
    ):
        text = _text_of(file, original)
        climb = Climb(program, text, scratch, phases, until, again_is_safe=again_is_safe)
        facts, effects = climb.first_start()
        if effects and not again_is_safe:
            raise UsageError(
                f"it is not safe to start {asked.workload} again and again: {_said(effects)}",
                "if that does no harm: --again-is-safe",
            )
        if not context.quiet:
            _announce(climb, minutes)
        load_before(asked, context)
        climb.measure_as_it_is(facts)
        ending = NOTHING
        try:
            climb.climb(levers(climb.facts), allowed)
            climb.leave_out_each()
            ending = climb.ended()
        except KeyboardInterrupt:
            context.interrupted = True
        found = _found(climb, ending, context)
        shown = shown_report(found, context.sharing)
        if context.sharing.source == "none":
            shown = _without_code(shown)
        page = sheet(shown)
        write_sheet(work.folder, FILES, shown, page)
        if ending.patch:
            store.write_export(work.folder / PATCH, ending.patch.encode())
        output = work.finish()
    if not context.quiet:
        progress.tell(terminal.sheet(page, sys.stderr), kept=progress.STYLED)
    name = FILES[1]
    if ending.patch:
        name = PATCH
    emit_sheet(page, shown, context, otherwise=str(output / name))
    if apply and ending.patch:
        _apply(file, original, climb.kept.text)
    if ending.patch or found.is_decided:
        return EXIT_OK
    return EXIT_INCONCLUSIVE


def _found(climb: Climb, ending: Ending, context: Context) -> m.Fix:
    return m.Fix(
        schema_version=m.FIX_SCHEMA_VERSION,
        created_utc=foreign.now_utc(),
        command=("kgprof", *sys.argv[1:]),
        workload=climb.program.options.workload,
        environment=climb.environment,
        facts=climb.facts,
        trials=tuple(climb.trials),
        not_tried=tuple(climb.not_tried),
        patch=ending.patch,
        gain=ending.gain,
        results=ending.results,
        starts=climb.starts,
        interrupted=context.interrupted,
    )


def _without_code(found: m.Fix) -> m.Fix:
    patch = found.patch
    if patch:
        patch = LEFT_OUT
    return replace(
        found, patch=patch, trials=tuple(replace(each, code="") for each in found.trials)
    )


def _program(asked: m.Options) -> Program:
    """Raises UsageError for a workload that has no file to change, or none here."""
    workload = asked.workload
    if programs.is_program(workload):
        raise NoStepError(
            f"fix cannot step through a script ({workload})",
            "name a function without arguments that makes one step: FILE.py:step",
        )
    target = loading.find(workload)
    if target is None:
        raise UsageError(
            f"{workload} is built in: it has no file of yours to change",
            "name a function of yours: FILE.py:step",
        )
    found = target.file or programs.source_of(target.module)
    if found is None:
        raise UsageError(f"no source of {target.module} is found", "name its file: FILE.py:step")
    file = found.resolve()
    if Path(sys.prefix).resolve() in file.parents and "site-packages" in file.parts:
        raise UsageError(
            f"{file} is an installed package's, and a copy of it would not be imported",
            "name a file of yours: FILE.py:step",
        )
    tree = tree_of(file)
    here = Path.cwd().resolve()
    folder = ""
    if here == tree.root or tree.root in here.parents:
        folder = os.path.relpath(here, tree.root)
    if target.file is not None:
        seen_from = tree.root / folder
        workload = f"{os.path.relpath(file, seen_from)}:{target.name}"
    name = os.path.relpath(file, tree.root)
    if name not in tree.files:
        raise UsageError(
            f"git ignores {file}, so it is not in a copy of {tree.root}",
            "kgprof fix works on copies of what git knows or would add",
        )
    return Program(tree=tree, file=name, folder=folder, options=replace(asked, workload=workload))


def _text_of(file: Path, content: bytes) -> str:
    """Raises UsageError for a file that is not UTF-8, or begins with a byte order mark."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = _MARK
    if text.startswith(_MARK):
        raise UsageError(f"{file} is not plain UTF-8", "save it as UTF-8 without a byte order mark")
    return text


def _said(effects: Sequence[m.Effect]) -> str:
    lines = [each.said for each in effects]
    said = "; ".join(lines[:MOST_EFFECTS_SAID])
    more = len(lines) - MOST_EFFECTS_SAID
    if more > 0:
        said += f"; and {more} more"
    return said


def _announce(climb: Climb, minutes: float) -> None:
    """What will be started, before anything is started again."""
    inform(
        f"the program is started again and again, each time in a copy of {climb.program.tree.root} "
        f"({plural(len(climb.program.tree.files), 'file')}): for {short(minutes)} minutes "
        "(--minutes) levers are begun, each with at least five starts unless it is slower at once; "
        "then the patch is measured"
    )


def _refuse_a_changed_file(program: Program, original: bytes) -> None:
    """Raises UsageError where git could not give the file back as it is."""
    shown = subprocess.run(
        ["git", "-C", str(program.tree.root), "cat-file", "blob", f"HEAD:{program.file}"],
        capture_output=True,
        check=False,
    )
    if shown.returncode or shown.stdout != original:
        raise UsageError(
            f"--apply changes {program.file}, and git does not have it as it is",
            "commit it first, or leave out --apply and use fix.patch",
        )


def _apply(file: Path, original: bytes, text: str) -> None:
    """Raises UsageError where the file is another one than was tried."""
    if files.content(file, MOST_BYTES) != original:
        raise UsageError(
            f"{file} was changed while kgprof measured: nothing is applied",
            "see fix.patch in the folder of the result",
        )
    with store.replacing(file) as partial:
        partial.write_text(text, "utf-8")
        shutil.copymode(file, partial)
    inform(f"{file} was changed")
