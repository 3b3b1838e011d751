"""`kgprof compare`: two Recordings as they stand, more than two, or two checkouts that are recorded
in turn first."""

import contextlib
import datetime
import sys
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from kgprof import model as m
from kgprof import progress
from kgprof.analysis.redaction import redacted
from kgprof.cli import reading, terminal, writing
from kgprof.cli.options import SHEET_FORMATS, Context
from kgprof.cli.recording import load_before, making, redactor
from kgprof.cli.saying import Job, inform
from kgprof.compare import SIDES, CompareSettings, history, method_of
from kgprof.compare import compare as compared
from kgprof.compare.metrics import COMPILE, named
from kgprof.compare.trend import point, trend
from kgprof.compare.verdict import metric_words
from kgprof.document.history import sheet as history_sheet
from kgprof.document.sheet import Sheet
from kgprof.document.trend import sheet as trend_sheet
from kgprof.errors import EXIT_OK, InputError, NoBaseError, UsageError
from kgprof.judge import looks
from kgprof.reading import layout
from kgprof.record import default_folder, refuse_other_platforms
from kgprof.record.ground import commits, store
from kgprof.record.ground.job import Checkout
from kgprof.record.ground.private_names import private_names
from kgprof.record.ground.unfinished import refuse_in_the_way, refuse_overwriting, results
from kgprof.record.processes import in_turn, interpreter
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
        self._refuse_for_a_sheet(paths, HISTORY_FILES)
        shown = [self.shown(self._side(path)) for path in paths]
        found = history(shown, self.settings, [*map(context.named, paths)])
        return self._show(found, history_sheet(found), HISTORY_FILES)

    def trend(self, folder: Path, paths: Sequence[Path]) -> int:
        """EXIT_OK: whether a commit is worse is for a comparison of pairs to say. Each recording
        becomes a file of ``folder`` whose name is made of what is in it: no job writes another's,
        and the same one is there once."""
        self._refuse_for_a_sheet(paths, reading.TREND_FILES)
        for path in paths:
            made = self._point(path)
            data = m.encode_json(made)
            name = f"{made.commit[:12] or 'no-commit'}-{sha256(data).hexdigest()[:16]}.json"
            store.write_export(folder / name, data)
            inform(f"{self.context.named(path)} is in the history: {folder / name}")
        points, unread = reading.points(folder)
        if not points:
            hint = "add one: kgprof compare --history FOLDER RECORDING"
            raise InputError("no recording is in this history", path=folder, hint=hint)
        found = trend(_in_order(points), unread)
        return self._show(found, trend_sheet(found), reading.TREND_FILES)

    def _point(self, path: Path) -> m.TrendPoint:
        """With the date of its commit, where git knows that here."""
        made = point(self.shown(self._side(path)), "")
        try:
            seconds = int(commits.of_commit(commits.commit_of(made.commit), "%ct"))
        except (*commits.GIT_FAILED, ValueError):
            return made
        date = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        return replace(made, committed_utc=date.strftime("%Y-%m-%dT%H:%M:%SZ"))

    def _refuse_for_a_sheet(self, paths: Sequence[Path], names: Sequence[str]) -> None:
        """``names``: of the result."""
        for output in self.context.outputs:
            if output.form not in SHEET_FORMATS:
                why = f"a history of {len(paths)} recordings has no format {output.form}"
                raise UsageError(why, f"one of {', '.join(SHEET_FORMATS)}, or compare two of them")
        self._refuse_overwriting(paths, names)
        if self.context.output is not None:
            refuse_in_the_way(self.context.output, names)

    def _show(self, found: m.History | m.Trend, page: Sheet, names: Sequence[str]) -> int:
        folder = self.context.output
        if folder is not None:
            writing.write_sheet(folder, names, found, page)
            inform(f"the report is {folder / names[1]}")
        writing.emit_sheet(page, found, self.context, otherwise=terminal.sheet(page, sys.stdout))
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
        limits = {str(name): percent for name, percent in self.settings.budgets.items()}
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
                cold=lambda: _doubtful(judge()),
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


def _in_order(points: Sequence[m.TrendPoint]) -> list[m.TrendPoint]:
    """By date; those that git knows here as ancestors of HEAD have their places in git's order."""
    by_date = sorted(points, key=lambda each: (each.when, each.created_utc))
    try:
        listed = commits.git("rev-list", "--topo-order", "--reverse", "HEAD").splitlines()
    except commits.GIT_FAILED:
        return by_date
    place = {commit: at for at, commit in enumerate(listed)}
    known = [each for each in by_date if each.commit in place]
    in_turn = iter(sorted(known, key=lambda each: place[each.commit]))
    return [next(in_turn) if each.commit in place else each for each in by_date]


def _doubtful(found: m.Profile) -> list[m.RunKey]:
    """The runs whose two first calls on empty caches are apart, which one pair cannot tell from
    chance."""
    assert found.comparison is not None
    first_calls = ((run.run, named(run.metrics, COMPILE)) for run in found.comparison.runs)
    return [run for run, call in first_calls if call and call.undecided is m.Undecided.ONE_ROUND]


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
