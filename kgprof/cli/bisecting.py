"""`kgprof bisect`: from two commits to the first one between them that is bad, by Recordings that
are kept and made once."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from kgprof import model as m
from kgprof.cli import reading, writing
from kgprof.cli.comparing import BASE, Comparing, refuse_in_a_checkout
from kgprof.cli.recording import making, redactor
from kgprof.cli.saying import Job, to_stdout
from kgprof.compare.bisect import (
    Key,
    Verdict,
    by_limits,
    by_work,
    changed_line,
    deciding_rows,
    next_commit,
    row_words,
    told,
    worse_metrics,
)
from kgprof.compare.verdict import metric_words
from kgprof.errors import EXIT_WORKLOAD, NoBaseError, OutputError, UsageError, WorkloadError
from kgprof.reading import files, layout, recordings
from kgprof.record import default_folder, record, refuse_other_platforms
from kgprof.record.ground import commits, store
from kgprof.record.processes import fork_server, in_turn
from kgprof.wording import relative

ALONE, PAIRS = "commits", "pairs"  # folders of Recordings: each by itself, or beside GOOD's
MADE_FOR = "made_for.json"  # the question, beside a Recording that is whole
_GOOD, _BAD, _SKIPPED = m.BisectVerdict.GOOD, m.BisectVerdict.BAD, m.BisectVerdict.SKIPPED
SAME_WORK = "GOOD and BAD were not seen to compile or run different things: they are timed in pairs"
NOT_WORSE = "BAD was not shown to be worse than GOOD"
ALL_SKIPPED = (
    "the others were skipped (where several commits changed the work, --max-regression "
    "METRIC=PERCENT decides by one metric)"
)


def bisected(search: "Search", good: str, bad: str) -> int:
    """The exit code, once the first bad commit is known or cannot be."""
    context = search.comparing.context
    refuse_other_platforms()
    refuse_in_a_checkout(search.workload, "bisect")
    search.good, search.bad = commits.ends(good, bad)
    output = context.output or default_folder(f"bisect-{search.workload.rpartition('/')[2]}")
    search.output = output
    inputs = search.comparing.inputs
    # the Recordings of a bisect stand elsewhere than beside the report
    own = layout.REPORTS[::-1]
    with making(output, inputs, context, worth_keeping=False, names=own) as work:
        try:
            with fork_server.imports_shared():
                found = search.found()
        except KeyboardInterrupt:
            context.inform(f"recordings are kept; to go on: the same command with -o {output}")
            raise
        context.writing = True
        compared, found, recording = search.judged(found)
        writing.write_report(work.folder, compared, recording, Job())
        work.finish()
    context.inform(f"the report is {output / layout.REPORTS[0]}")
    writing.add_to_job_summary(compared, context.job)
    writing.emit(compared, recording, context)
    if found.diff and not context.outputs:
        to_stdout(found.diff)
    return compared.exit_code


@dataclass
class Search:
    """Between ``good`` and ``bad``; in the checkout of a commit ``ask`` gives the options."""

    comparing: Comparing
    workload: str
    ask: Callable[[], m.Options]
    question: bytes  # what a Recording depends on besides its commit
    timed: bool  # by pairs with GOOD, of which there are ``pairs`` at most
    pairs: int
    limited: bool  # by limits, of which none is on a time unless it is ``timed``
    good: str = ""
    bad: str = ""
    output: Path = Path()
    tried: list[m.BisectedCommit] = field(default_factory=list)
    # what differs between the ends, and decides
    rows: Mapping[Key, m.WorkRow] = field(default_factory=dict)
    metrics: Mapping[Key, m.ComparedMetric] = field(default_factory=dict)

    def found(self) -> m.Bisect:
        """Raises WorkloadError where the workload dies in GOOD or BAD, UsageError where it is not
        in BAD, NoBaseError where it is not in GOOD."""
        self._record_ends()
        words = (*map(row_words, self.rows.values()), *map(metric_words, self.metrics.values()))
        reason = "" if words else NOT_WORSE
        while True:
            bad, halving = self._left()
            commit = next_commit(halving, bad, self._with(_SKIPPED))
            if commit is None and len(halving) > 1:
                reason = ALL_SKIPPED
            if commit is None or reason:
                return m.Bisect(
                    looked_for=words,
                    tried=tuple(self.tried),
                    remaining=tuple(halving),
                    why_open=reason,
                    authored=commits.of_commit(bad, "%aI"),
                    files=commits.changed_files(bad),
                )
            died = self._record(commit, "")
            verdict, why = (_SKIPPED, died) if died else self._verdict(commit)
            self._note(commit, verdict, why, recorded=not died)
            last = self.tried[-1]
            self.comparing.context.inform(last.words)
            if verdict is m.BisectVerdict.INCONCLUSIVE:
                reason = last.words

    def judged(self, found: m.Bisect) -> tuple[m.Profile, m.Bisect, Path]:
        """The first bad commit that is known beside its parent, or else beside the last one that
        was found good, with the change of the line that makes the difference; and its Recording."""
        bad, _ = self._left()
        *_, base = good = self._with(_GOOD)
        parent = commits.of_commit(bad, "%P").partition(" ")[0]
        if parent in good:
            base = parent
        profile, compared = self._compared(base, bad)
        place = changed_line(compared)
        if found.why_open:  # another commit may have made the difference
            place = None
        if place is not None and self.comparing.context.sharing.source != "none":
            line = f"{place.line},{place.line}:{relative(place.file, profile.source_root)}"
            found = replace(found, diff=commits.change_of_line(bad, line))
        recording = self._place(bad) / layout.FOLDER
        return self.comparing.shown(told(profile, found)), found, recording

    def _record_ends(self) -> None:
        """BAD first: where it cannot be loaded either, the workload is wrong and not new. Then what
        differs between them."""
        self.tried = []
        self._record(self.bad, "BAD")
        self._note(self.bad, _BAD)
        if not self.timed:  # else it is recorded beside each of the others
            self._record(self.good, "GOOD")
        self._note(self.good, _GOOD, recorded=not self.timed)
        _, compared = self._compared(self.good, self.bad)
        if self.timed or self.limited:
            self.metrics = worse_metrics(compared)
            return
        self.rows = deciding_rows(compared)
        if not self.rows:
            self.comparing.context.inform(SAME_WORK)
            self.timed = True
            self._record_ends()

    def _verdict(self, commit: str) -> Verdict:
        _, against_good = self._compared(self.good, commit)
        if self.metrics:
            return by_limits(self.metrics, against_good)
        _, against_bad = self._compared(self.bad, commit)
        return by_work(self.rows, against_good, against_bad)

    def _record(self, commit: str, end: str) -> str:
        """Unless that is done; why the workload is not there, or died. ``end``: GOOD or BAD, where
        that is raised."""
        place = self._place(commit)
        made_for = place / MADE_FOR
        try:
            if not made_for.is_file() or files.content(made_for) != self._made_for():
                made_for.unlink(missing_ok=True)
                self._announce(commit)
                if self.timed:
                    self._record_beside_good(commit, place)
                else:
                    self._record_alone(commit, place)
                store.write_export(made_for, self._made_for())
            profile = reading.side(place, self.comparing.context.sharing)
            if profile.exit_code == EXIT_WORKLOAD:
                raise WorkloadError(profile.verdict.text)
        except OutputError:
            raise
        except (UsageError, WorkloadError, NoBaseError) as error:
            if end:
                raise in_turn.of_side(end, error) from error
            return error.message
        return ""

    def _made_for(self) -> bytes:
        """What a Recording depends on; of pairs also when they end."""
        if not self.timed:
            return self.question
        return self.question + m.encode_json([self.pairs, self.comparing.settings.budgets])

    def _announce(self, commit: str) -> None:
        _, halving = self._left()
        made = sum(each.recorded for each in self.tried)
        ends = max(0, 2 - self.timed - len(self.tried))
        # merges and skipped commits make it more
        about = made + ends + (len(halving) - 1).bit_length()
        subject = commits.of_commit(commit, "%h %s")
        self.comparing.context.inform(f"recording {made + 1} of about {about}: {subject}")

    def _record_alone(self, commit: str, place: Path) -> None:
        context = self.comparing.context
        with in_turn.checkout(commit, self.workload) as tree:
            with contextlib.chdir(tree.folder):
                asked = replace(self.ask(), passes=m.OF_THE_WORK)
            place.mkdir(parents=True, exist_ok=True)
            with context.progress() as shown:
                private = redactor(context, tree.folder)
                record(asked, place, shown, redact=private, checkout=tree)
        if recordings.load_header(place / layout.FOLDER).interrupted:
            raise KeyboardInterrupt

    def _record_beside_good(self, commit: str, place: Path) -> None:
        with in_turn.checkouts(self.good, commit, self.workload) as trees:
            with contextlib.chdir(trees[1].folder):
                asked = self.ask()
            places = place / BASE, place
            places[0].mkdir(parents=True, exist_ok=True)
            judge = partial(self.comparing.compared, *places, (self.good, commit))
            if not self.comparing.record(asked, trees, places, judge, most=self.pairs):
                raise KeyboardInterrupt

    def _note(
        self, commit: str, verdict: m.BisectVerdict, why: str = "", *, recorded: bool = True
    ) -> None:
        subject = commits.of_commit(commit, "%s")
        self.tried.append(m.BisectedCommit(commit, subject, verdict, why, recorded))

    def _with(self, verdict: m.BisectVerdict) -> list[str]:
        return [each.commit for each in self.tried if each.verdict is verdict]

    def _left(self) -> tuple[str, list[str]]:
        """The first commit that is known to be bad, and those that may be the first bad one."""
        *_, bad = (self.bad, *self._with(_BAD))
        return bad, commits.halving(bad, self._with(_GOOD) or [self.good])

    def _place(self, commit: str) -> Path:
        return self.output / (PAIRS if self.timed else ALONE) / commit[: m.SHORT_COMMIT]

    def _compared(self, one: str, other: str) -> tuple[m.Profile, m.Comparison]:
        base = self._place(one)
        if self.timed and one == self.good:
            base = self._place(other) / BASE
        names = one[: m.SHORT_COMMIT], other[: m.SHORT_COMMIT]
        profile = self.comparing.compared(base, self._place(other), names)
        assert profile.comparison is not None
        return profile, profile.comparison
