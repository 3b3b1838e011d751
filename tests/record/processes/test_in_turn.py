"""Two checkouts recorded in turn: which child runs when and where, what is left of one that dies,
and the two trees."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from kgprof.errors import NoBaseError, UsageError, WorkloadError
from kgprof.model import Exit, InTurn, Options, Outcome, PassName
from kgprof.model.passes import OF_THE_WORK
from kgprof.reading import recordings
from kgprof.record.ground.job import Checkout, Failed, Task
from kgprof.record.processes import in_turn, recorder
from kgprof.record.processes.child import refuse_the_other_side
from kgprof.record.processes.children import Ended, Start
from kgprof.record.processes.in_turn import APART, Side, checkouts, record_in_turn
from tests.cli.test_endings import wait_until
from tests.record.processes.test_rounds import FIRST, SECOND, Children

DIED = Exit(outcome=Outcome.KILLED, message="SIGKILL", during="timing")
RAISED = Exit(outcome=Outcome.RAISED, message="no module named 'new'", during="plan")


class Both(Children):
    """What was started on which side: (side, strategy, round)."""

    def __init__(
        self,
        ends: dict[tuple[str, Task, str, int], Exit] | None = None,
        unplanned: dict[str, Ended] | None = None,
        interrupted_after: int = 1000,
        cannot_together: bool = False,
    ) -> None:
        super().__init__()
        self.together, self._cannot_together = 0, cannot_together
        self.on: list[tuple[str, str, int]] = []
        self.folders: set[tuple[str, str]] = set()
        self._of_side, self._unplanned, self._left = ends or {}, unplanned or {}, interrupted_after

    def run_in_turn(
        self, first: Start, second: Start, *, at_once: bool = False
    ) -> tuple[Ended, Ended]:
        assert not at_once  # a first call of a comparison is reported
        self.together += 1
        if self._cannot_together:
            return tuple(Ended(exit=DIED) for _ in (first, second))  # type: ignore[return-value]
        for each in (first, second):
            each.on_phase("prepare")
        one, other = (self.run(each) for each in (first, second))
        return one, other

    def run(self, given: Start, **others: Any) -> Ended:
        job = given.job
        assert job.checkout is not None
        side = Path(job.checkout.folder).name
        self.folders.add((side, Path(job.recording).parent.name))
        if job.task is Task.PLAN and side in self._unplanned:
            return self._unplanned[side]
        if job.key is not None:
            if job.task is Task.ROUND:
                self.on.append((side, job.key.strategy, job.round))
                self._left -= 1
            self._ends = {what[1:]: end for what, end in self._of_side.items() if what[0] == side}
        if self._left <= 0:
            return Ended(exit=Exit(outcome=Outcome.INTERRUPTED), interrupted=True)
        return super().run(given, **others)


def recorded(
    children: Both,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    looks: Sequence[int] = (2, 4),
    stops_at: int = 4,
    passes: tuple[PassName, ...] = (PassName.COMPILE, PassName.TIMING),
) -> tuple[bool, list[int]]:
    monkeypatch.setattr(recorder.children, "run", children.run)
    monkeypatch.setattr(recorder.children, "run_in_turn", children.run_in_turn)
    asked_at: list[int] = []

    def decided(pairs: int) -> bool:
        asked_at.append(pairs)
        return pairs >= stops_at

    sides = []
    for name in ("base", "head"):
        (folder / name).mkdir(parents=True)
        told = InTurn(id="a pair", side=name, most_rounds=looks[-1], limits={"step": 5.0})
        checkout = Checkout(folder=str(folder / name))
        sides.append(Side(told=told, checkout=checkout, output=folder / f"out-{name}"))
    options = Options(workload="invented", passes=passes)
    whole = record_in_turn(options, (sides[0], sides[1]), children, looks=looks, decided=decided)
    return whole, asked_at


def test_pairs_go_abba_run_by_run_until_it_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = Both()

    whole, asked_at = recorded(children, tmp_path, monkeypatch, looks=(2, 4, 6), stops_at=4)

    assert (whole, asked_at) == (True, [2, 4])
    first, second = FIRST.strategy, SECOND.strategy
    ab, ba = ("base", "head"), ("head", "base")
    expected = [
        (side, strategy, round_)
        for round_, order in ((2, ab), (3, ba), (4, ab), (5, ba))
        for strategy in (first, second)
        for side in order
    ]
    assert children.on == expected
    for side in ("base", "head"):
        loaded = recordings.load(tmp_path / f"out-{side}")
        assert (
            loaded.header.options.rounds,
            loaded.header.in_turn and loaded.header.in_turn.side,
        ) == (5, side)
        assert [[record.number for record in run.rounds] for run in loaded.runs] == [
            [2, 3, 4, 5]
        ] * 2
    assert [phase for phase in children.phases if "pair" in phase][:2] == [
        "base, pair 1: prepare",
        "head, pair 1: prepare",
    ]


def test_two_that_cannot_run_at_the_same_time_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = Both(cannot_together=True)

    recorded(children, tmp_path, monkeypatch)

    assert children.together == 1
    assert len(children.on) == 2 * 2 * 4
    assert [text.partition(": ")[2] for text in children.results].count(APART) == 1
    for side in ("base", "head"):
        for run in recordings.load(tmp_path / f"out-{side}").runs:
            assert [record.exit.outcome for record in run.rounds] == ["ok"] * 4


def test_a_side_of_an_older_kgprof_is_recorded_one_process_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_turn, "_can_take_turns", lambda sides: False)
    children = Both()

    recorded(children, tmp_path, monkeypatch)

    assert (children.together, len(children.on)) == (0, 2 * 2 * 4)


def test_it_ends_after_the_last_look_whatever_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = Both()

    assert recorded(children, tmp_path, monkeypatch, looks=(2, 4), stops_at=99) == (True, [2, 4])
    assert max(round_ for *_, round_ in children.on) == 5


def test_a_process_that_dies_costs_its_pair_and_a_run_that_was_not_timed_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {
        ("head", Task.ROUND, FIRST.strategy, 3): DIED,
        ("base", Task.MEASURE, SECOND.strategy, 1): DIED,
    }
    children = Both(ends)

    recorded(children, tmp_path, monkeypatch)

    assert {strategy for _, strategy, _ in children.on} == {FIRST.strategy}
    run = next(run for run in recordings.load(tmp_path / "out-head").runs if run.key == FIRST)
    assert [record.exit.outcome for record in run.rounds] == ["ok", "killed", "ok", "ok"]


def test_what_was_measured_before_a_signal_is_kept_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = Both(interrupted_after=7)

    whole, asked_at = recorded(children, tmp_path, monkeypatch, looks=(1, 4))

    assert (whole, asked_at) == (False, [1])
    for side in ("base", "head"):
        found = recordings.load(tmp_path / f"out-{side}")
        assert (found.header.interrupted, found.header.options.rounds) == (True, 3)
        interrupted = next(run.rounds[-1] for run in found.runs if run.key == SECOND)
        assert interrupted.exit == Exit(outcome=Outcome.INTERRUPTED)


@pytest.mark.parametrize(
    ("unplanned", "kind", "words"),
    [
        (
            {"base": Ended(exit=RAISED, failed=Failed(message="no such module", exit_code=2))},
            NoBaseError,
            "BASE: no such",
        ),
        (
            {"head": Ended(exit=RAISED, failed=Failed(message="no such module", exit_code=2))},
            UsageError,
            "HEAD: no such",
        ),
        ({"base": Ended(exit=DIED)}, WorkloadError, "BASE: invented could not be loaded: SIGKILL"),
    ],
)
def test_a_side_that_cannot_be_loaded_is_named(
    unplanned: dict[str, Ended],
    kind: type[Exception],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(self: Both, given: Start, **others: Any) -> Ended:
        if given.job.task is Task.PLAN:
            given.log.write_text("its log")
        return Both.run(self, given, **others)

    children = Both(unplanned=unplanned)
    children.run = run.__get__(children)  # type: ignore[method-assign]
    for side in ("base", "head"):
        (tmp_path / f"out-{side}").mkdir()

    with pytest.raises(kind) as error:
        recorded(children, tmp_path, monkeypatch)

    assert str(error.value).startswith(words)


# ---------------------------------------------------------------- the two trees


class Choosing(Both):
    """As torch that times kernels in each run, and keeps what it chose in its cache."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[str, str, list[str]]] = []  # side, strategy, choices of before

    def run(self, given: Start, **others: Any) -> Ended:
        job, caches = given.job, given.caches
        if job.task is Task.MEASURE and job.key is not None:
            assert job.checkout is not None
            assert caches.seed is not None
            side = Path(job.checkout.folder).name
            known = [path.name for path in (caches.seed / "cache").glob("*")]
            self.given.append((side, job.key.strategy, sorted(known)))
            chosen = caches.folder / "inductor" / "cache"
            chosen.mkdir(parents=True)
            (chosen / f"{side}-{job.key.strategy}").touch()
        return super().run(given, **others)


@pytest.mark.parametrize(
    ("passes", "are_handed_over"), [(OF_THE_WORK, True), ((PassName.COMPILE,), False)]
)
def test_what_torch_chose_in_base_is_heads_where_nothing_is_timed(
    passes: tuple[PassName, ...],
    are_handed_over: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    children, first, second = Choosing(), FIRST.strategy, SECOND.strategy

    recorded(children, tmp_path, monkeypatch, passes=passes)

    chosen = [f"base-{first}", f"base-{second}"] if are_handed_over else []
    assert sorted(children.given) == [
        *(("base", strategy, []) for strategy in (first, second)),
        ("head", first, chosen[:1]),
        ("head", second, chosen),
    ]


def git(folder: Path, *args: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return subprocess.run(
        ["git", *who, *args], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    for text in ("one", "two"):
        (folder / "step.py").write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", text)
    monkeypatch.chdir(folder)
    return folder


def test_a_commit_is_checked_out_and_removed_afterwards_and_a_folder_stays(
    repository: Path,
) -> None:
    (repository / "step.py").write_text("not committed")

    trees = checkouts("HEAD^", ".", "step.py:step")
    base, head = trees.__enter__()

    assert (Path(base.folder) / "step.py").read_text() == "one"
    assert (Path(head.folder) / "step.py").read_text() == "not committed"
    assert (base.other, head.other, base.home) == (head.folder, base.folder, "")
    interrupted = KeyboardInterrupt()
    assert not trees.__exit__(KeyboardInterrupt, interrupted, None)
    assert not Path(base.folder).exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_git_forgets_the_work_tree_of_a_kgprof_that_is_killed(repository: Path) -> None:
    trees = (
        "from kgprof.record.processes.in_turn import checkouts; trees = checkouts('HEAD^', "
        "'.', 'step.py:step')"
    )
    asks = f"{trees}; print(trees.__enter__()[0].folder, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", asks], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        folder = Path(running.stdout.readline().strip())
        assert len(git(repository, "worktree", "list").splitlines()) == 2
        running.kill()

    wait_until(lambda: not folder.parent.exists())
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_one_folder_twice_has_no_other_side(repository: Path) -> None:
    with checkouts(".", str(repository), "step.py:step") as sides:
        assert [side.other for side in sides] == ["", ""]


def test_a_built_in_workload_is_the_checkouts_own(repository: Path) -> None:
    (repository / "kgprof" / "record").mkdir(parents=True)
    (repository / "kgprof" / "record" / "child.py").touch()

    with checkouts("HEAD", ".", "linkpred") as (base, head):
        assert (base.home, head.home) == ("", str(repository))
    with checkouts("HEAD", ".", "step.py:step") as (base, head):
        assert (base.home, head.home) == ("", "")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            "no-such-branch",
            "BASE no-such-branch is neither a folder nor a commit of the repository here",
        ),
        ("step.py", "BASE step.py is a file"),
        ("--help", "BASE --help is neither"),
        ("report", "BASE report is a Recording, not a checkout"),
    ],
)
def test_what_is_no_checkout_is_refused(given: str, words: str, repository: Path) -> None:
    (repository / "report" / "recording").mkdir(parents=True)
    (repository / "report" / "recording" / "recording.json").touch()

    with pytest.raises(UsageError) as error, checkouts(given, ".", "step.py:step"):
        pass

    assert str(error.value).startswith(words)


def test_a_module_of_the_other_side_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"

    def imported(name: str, file: Path) -> None:
        module = ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)

    checkout = Checkout(folder=str(here), other=str(there))
    imported("mine", here / "mine.py")
    imported("kgprof.mine", there / "kgprof" / "mine.py")  # the instrument is one for both sides
    imported("installed", Path(sys.prefix) / "installed.py")
    imported("beside", Path(f"{there}-more") / "beside.py")
    refuse_the_other_side(checkout)
    refuse_the_other_side(None)
    imported("theirs", there / "theirs.py")

    with pytest.raises(WorkloadError, match="the module theirs comes from the other side"):
        refuse_the_other_side(checkout)
    refuse_the_other_side(msgspec.structs.replace(checkout, other=""))
