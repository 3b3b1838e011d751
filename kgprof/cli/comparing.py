"""`kgprof compare`: two Recordings as they stand, more than two, or two checkouts that are recorded
in turn first."""

import contextlib
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from kgprof import model as m
from kgprof import progress
from kgprof.analysis.redaction import redacted
from kgprof.cli import reading, writing
from kgprof.cli.options import SHEET_FORMATS, Context
from kgprof.cli.recording import load_before, making, redactor
from kgprof.cli.saying import Job, inform
from kgprof.compare import DEFAULT_BUDGETS, SIDES, CompareSettings, history, method_of
from kgprof.compare import compare as compared
from kgprof.compare.verdict import metric_words
from kgprof.document.history import sheet as history_sheet
from kgprof.errors import EXIT_OK, NoBaseError, UsageError
from kgprof.judge import looks
from kgprof.reading import layout
from kgprof.record import default_folder, refuse_other_platforms
from kgprof.record.ground.job import Checkout
from kgprof.record.ground.private_names import private_names
from kgprof.record.ground.unfinished import refuse_in_the_way, refuse_overwriting, results
from kgprof.record.processes import in_turn, interpreter
from kgprof.render import sheet
from kgprof.workloads import loading, programs

HISTORY_FILES = ("history.json", "history.html")
BASE = "base"  # of sides recorded in turn: base's Recording lies in this folder of head's


class Comparing(m.Model, kw_only=False):
    """What holds for both ways."""

    settings: CompareSettings
    entries: Sequence[m.AcceptedEntry]  # findings that the project accepts
    inputs: Sequence[Path]  # files of the configuration
    context: Context

    def recordings(self, base: Path, head: Path) -> int:
        """The exit code; nothing is run."""
        context = self.context
        output = context.output
        self._refuse_overwriting((base, head), layout.REPORTS)
        found = self.compared(base, head, (context.named(base), context.named(head)))
        recording = reading.recording_of(head)
        writing.add_to_job_summary(found, context.job)
        if output is not None:
            context.folder = output
            inform(f"the report is {writing.write_report(output, found, recording, Job())}")
        writing.emit(found, recording, context)
        return found.exit_code

    def history(self, paths: Sequence[Path]) -> int:
        """EXIT_OK; nothing is run."""
        context = self.context
        if context.fail_on_secret:
            raise UsageError("--fail-on-secret is about two sides", "leave it out")
        folder = context.output
        for output in context.outputs:
            if output.form not in SHEET_FORMATS:
                why = f"a history of {len(paths)} recordings has no format {output.form}"
                raise UsageError(why, f"one of {', '.join(SHEET_FORMATS)}, or compare two of them")
        self._refuse_overwriting(paths, HISTORY_FILES)
        if folder is not None:
            refuse_in_the_way(folder, HISTORY_FILES)
        shown = [self.shown(self._side(path)) for path in paths]
        found = history(shown, self.settings, [*map(context.named, paths)])
        page = history_sheet(found)
        if folder is not None:
            writing.write_sheet(folder, HISTORY_FILES, found, page)
            inform(f"the report is {folder / HISTORY_FILES[1]}")
        writing.emit_sheet(page, found, context, otherwise=sheet.text(page))
        return EXIT_OK

    def _refuse_overwriting(self, sides: Sequence[Path], names: Sequence[str]) -> None:
        """``names``: of the result, in its folder."""
        files = self.context.files
        if self.context.output is not None:
            files = [*(self.context.output / name for name in names), *files]
        for path in sides:
            refuse_overwriting([*results(path), *self.inputs], files, reading.recording_of(path))

    def _side(self, path: Path) -> m.Profile:
        return reading.with_accepted(reading.side(path, self.context.sharing), self.entries)

    def shown(self, profile: m.Profile) -> m.Profile:
        """A side that came as a report may have been made with --no-redact, and the other side's
        page would say it."""
        sharing = self.context.sharing
        return redacted(profile, private_names(), source=sharing.source, redact=sharing.redact)

    def compared(self, base: Path, head: Path, sources: tuple[str, str]) -> m.Profile:
        before = self._side(base)
        after = self._side(head)
        diff = reading.diff_between(before, after)
        return self.shown(compared(before, after, self.settings, sources=sources, diff=diff))

    def checkouts(
        self,
        base: str,
        head: str,
        workload: str,
        ask: Callable[[], m.Options],
        *,
        most: int,
        pythons: Sequence[str] = (),
    ) -> int:
        """The exit code of what is recorded now, pair by pair. ``ask`` gives the options, in a
        checkout; ``pythons``: the interpreter of both sides, or one each."""
        output = self.context.output or default_folder(f"compare-{workload.rpartition('/')[2]}")
        kept = output / BASE
        if kept.exists() and not (kept / layout.FOLDER / layout.HEADER).is_file():
            why = "already exists and is not a Recording's"
            raise UsageError(f"{kept} {why}", "choose another folder with -o")
        refuse_other_platforms()
        checked = [interpreter.checked(python) for python in pythons] or [""]
        with in_turn.checkouts(base, head, workload, (checked[0], checked[-1])) as trees:
            before, after = trees
            in_head = _workload_file("HEAD", after, workload)
            in_base = _workload_file("BASE", before, workload)
            with contextlib.chdir(after.folder):
                asked = ask()
            inputs = [*self.inputs, *filter(None, (in_head, in_base))]
            with making(output, inputs, self.context) as work:
                places = work.folder / BASE, work.folder
                sources = self.context.named(base), self.context.named(head)
                judge = partial(self.compared, *places, sources)
                whole = self.record(asked, trees, places, judge, most=most)
                work.check()
                self.context.interrupted = not whole
                self.context.writing = whole
                found = judge()
                own = self.shown(self._side(places[0]))
                writing.write_report(places[0], own, places[0] / layout.FOLDER, Job())
                writing.write_report(work.folder, _with_page(found), work.recording, Job())
                page = work.finish() / layout.REPORTS[0]
        writing.complain_of_runs(found, page.parent / layout.FOLDER)
        return writing.ended(found, page, self.context)

    def record(
        self,
        asked: m.Options,
        trees: tuple[Checkout, Checkout],
        places: tuple[Path, Path],
        judge: Callable[[], m.Profile],
        *,
        most: int,
    ) -> bool:
        budgets = {**DEFAULT_BUDGETS, **self.settings.budgets}
        limits = {str(name): percent for name, percent in budgets.items()}
        pair = partial(m.InTurn, id=uuid.uuid4().hex, most_rounds=most, limits=limits)
        two = trees[0].python != trees[1].python
        one, other = (
            in_turn.Side(
                told=pair(side=side, python=_said(tree) * two), checkout=tree, output=place
            )
            for side, tree, place in zip(SIDES, trees, places, strict=True)
        )
        load_before(asked, self.context)
        self.context.inform(method_of(other.told, asked))
        with self.context.progress() as shown:
            shown.phase(f"until it is complete, the result is in {places[1]}", None)
            return in_turn.record_in_turn(
                asked,
                (one, other),
                shown,
                looks=looks(most),
                decided=lambda pairs: _decided(judge(), pairs, shown),
                redact=redactor(self.context, trees[1].folder),
            )


def _said(tree: Checkout) -> str:
    """The end of its interpreter's path: "venv/bin/python"."""
    return "/".join(Path(tree.python).parts[-3:])


def _with_page(found: m.Profile) -> m.Profile:
    """The comparison that leads to base's own page."""
    assert found.comparison is not None
    base = replace(found.comparison.base, has_page=True)
    return replace(found, comparison=replace(found.comparison, base=base))


def _workload_file(side: str, tree: Checkout, workload: str) -> Path | None:
    """Raises UsageError where HEAD has no such workload, NoBaseError where BASE has none."""
    refuse_in_a_checkout(workload, "--record")
    with contextlib.chdir(tree.folder):
        try:
            target = loading.find(workload)
        except UsageError as error:
            if side == "BASE":
                raise NoBaseError(
                    f"BASE has no such workload: {error.message}", "it may be new in HEAD"
                ) from error
            raise UsageError(f"{side}: {error.message}", error.hint) from error
    if target is None:
        return None
    return target.file


def refuse_in_a_checkout(workload: str, what: str) -> None:
    """Raises UsageError for a workload that no checkout has as its own."""
    if programs.is_program(workload):
        hint = "compare one of its functions: file.py:name"
        raise UsageError(f"{what} does not work for a script ({workload})", hint)
    place = workload.rpartition(":")[0]
    if Path(place).is_absolute():
        hint = "name it as seen from the top of a checkout"
        raise UsageError(f"{place} is one file, whichever side is recorded", hint)


def _decided(found: m.Profile, pairs: int, shown: progress.Progress) -> bool:
    """Whether each time that decides lies on one side of its limit, or none was timed that
    could."""
    assert found.comparison is not None
    undecided = []
    for run in found.comparison.runs:
        for metric in (each for each in run.metrics if each.decides and each.time_of is not None):
            shown.result(f"after {pairs} pairs: {metric_words(metric)}: {metric.verdict}", run.run)
            undecided.append(metric.undecided)
    few = m.Undecided.ONE_ROUND
    return all(why is few for why in undecided) or not {
        few,
        m.Undecided.STRADDLES_BUDGET,
    }.intersection(undecided)
