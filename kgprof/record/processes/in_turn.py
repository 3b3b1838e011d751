"""Two checkouts recorded in turn on one machine: each a whole Recording, then TIMING again pair by
pair, ABBA ABBA ...

A pair is a fresh process of each side on the caches that its own recording left, both alive at
once: they take their evaluations, or their groups of steps, in turn. Of two identical programs the
pairs' ratios spread half as wide as with one process after the other (benchmarks/in_turn.py). Where
two do not fit beside each other (into a GPU's memory, say) they run one after the other. It ends
when it is decided, at the looks that were planned.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import product
from pathlib import Path

from msgspec.structs import replace

from kgprof import model as m
from kgprof.errors import (
    InputError,
    KgprofError,
    NoBaseError,
    OutputError,
    UsageError,
    WorkloadError,
)
from kgprof.judge import COLD_ROUNDS
from kgprof.progress import Progress
from kgprof.reading import layout
from kgprof.record.ground import store
from kgprof.record.ground.commits import GIT_FAILED, commit_of, git
from kgprof.record.ground.job import Checkout
from kgprof.record.ground.scratch import scratch_folder
from kgprof.record.processes import fork_server, recorder
from kgprof.workloads.catalog import BUILT_IN

COLD_MOST_S = 600  # after which no first call on empty caches is begun
APART = "both sides cannot run at the same time here: from now on one process after the other"
# what the owner runs after a checkout is for the owner's own
NO_HOOKS = ("-c", "core.hooksPath=/dev/null")


class Side(m.Model):
    told: m.InTurn
    checkout: Checkout
    output: Path  # its Recording is made in ``recording`` there


def record_in_turn(
    options: m.Options,
    sides: tuple[Side, Side],
    progress: Progress,
    *,
    looks: Sequence[int],
    decided: Callable[[int], bool],
    cold: Callable[[], Collection[m.RunKey]] = tuple,
    redact: recorder.Redact = str,
) -> bool:
    """Both Recordings, with at most as many pairs as the last of ``looks``; whether it came to its
    end.

    ``decided`` is asked after as many pairs as each of ``looks`` says. A process that dies costs
    its pair. ``cold`` names the runs whose two first calls on empty caches are far apart: they are
    made again in pairs, and none is begun after COLD_MOST_S. Raises UsageError and WorkloadError,
    which name the side, for a workload that cannot be loaded.
    """
    options = replace(options, rounds=looks[-1] + 1)
    with scratch_folder("kgprof-") as scratch, fork_server.imports_shared():
        # Head first: where it cannot be loaded either, the workload is wrong and not new.
        head = _begun(options, sides[1], scratch / "head", progress, redact)
        probed = scratch / "head" / recorder.PROBE_CACHE
        if probed.is_dir():  # Inductor's probe of this CPU, once for both
            shutil.copytree(probed, scratch / "base" / recorder.PROBE_CACHE)
        base = _begun(options, sides[0], scratch / "base", progress, redact)
        made = base, head
        keys = [key for key in head.plan.runs if key in base.plan.runs]
        progress.expect(keys, tuple(name for name in m.PASSES if options.wants(name)))
        pairs = 0
        beside = _can_take_turns(sides)
        pythons = {side.checkout.python for side in sides}
        hands_over = options.for_the_work and len(pythons) == 1  # another torch chooses for itself
        try:
            for key in dict.fromkeys((*head.plan.runs, *base.plan.runs)):
                for each in (one for one in made if key in one.plan.runs):
                    if each is head and key in base.plan.runs and hands_over:
                        _hand_over(base.choices(key), scratch / "head" / recorder.PROBE_CACHE)
                    if each.measure(key):
                        each.probe(key)
            for each in made:
                each.measure_ceilings()
                each.compare_results()
            keys = [key for key in keys if base.timing(key) and head.timing(key)]
            for pairs in range(1, looks[-1] + 1) if keys else ():
                for each in made:
                    _say_so_far(each, pairs)
                one, other = made if pairs % 2 else made[::-1]
                for key in keys:
                    if beside and one.measure_pair(other, key, pairs + 1):
                        continue
                    well = [each.measure_round(key, pairs + 1) for each in (one, other)]
                    if beside and all(well):  # so it was the other one's presence
                        beside = False
                        progress.result(APART, key)
                if pairs in looks and decided(pairs):
                    break
            doubtful = cold() if keys else ()
            ends = time.monotonic() + COLD_MOST_S
            for number, key in product(COLD_ROUNDS, [key for key in keys if key in doubtful]):
                for each in made if number % 2 else made[::-1]:
                    if time.monotonic() < ends:
                        each.measure_cold(key, number)
        except KeyboardInterrupt:
            for each in made:
                _say_so_far(each, pairs, interrupted=True)
            return False
    return True


def _hand_over(choices: Path, seed: Path) -> None:
    """Give HEAD what torch chose by timing kernels in BASE, where nothing else is timed: two
    recordings of one program would differ by chance."""
    if choices.is_dir():
        shutil.copytree(choices, seed / recorder.CHOICES, dirs_exist_ok=True)


def _can_take_turns(sides: tuple[Side, Side]) -> bool:
    """A built-in workload is measured by its own checkout's kgprof, which may be older than
    this."""
    homes = [Path(side.checkout.home) for side in sides if side.checkout.home]
    return all(_has(home, "turns.py") for home in homes)


def _has(home: Path, module: str) -> bool:
    """Tell whether the recorder of a checkout has a module, wherever it lay at that commit."""
    return any((home / "kgprof" / "record").rglob(module))


def _begun(
    options: m.Options, side: Side, scratch: Path, progress: Progress, redact: recorder.Redact
) -> recorder.Recorder:
    name = side.told.side.upper()
    scratch.mkdir(exist_ok=True)
    try:
        plan, dead = recorder.make_plan(
            options, side.output, scratch, progress, redact, side.checkout
        )
    except OutputError:
        raise
    except (UsageError, WorkloadError) as error:
        raise of_side(name, error) from error
    if dead is not None:
        raise WorkloadError(f"{name}: {options.workload} {dead.words}")
    making = recorder.Recorder(
        side.output / layout.FOLDER,
        options,
        plan,
        scratch,
        progress,
        checkout=side.checkout,
        side=side.told.side,
    )
    making.header = replace(making.header, in_turn=side.told)
    store.clear(side.output)
    store.create(making.folder, making.header)
    _say_so_far(making, 0)
    return making


def of_side(name: str, error: KgprofError) -> KgprofError:
    """An error that names the side. Without the workload there is no BASE, or no GOOD."""
    kind: type[KgprofError] = type(error)
    if isinstance(error, InputError):
        kind = UsageError  # whose message names the path already
    if isinstance(error, UsageError) and name in ("BASE", "GOOD"):
        kind = NoBaseError
    return kind(f"{name}: {error.message}", hint=error.hint)


def _say_so_far(making: recorder.Recorder, pairs: int, *, interrupted: bool = False) -> None:
    """The header says how many rounds there are, of which the first is the whole recording."""
    header = making.header
    options = replace(header.options, rounds=pairs + 1)
    header = replace(header, options=options, interrupted=interrupted)
    store.write_json(making.folder / layout.HEADER, header)


# ---------------------------------------------------------------- the two trees


@contextlib.contextmanager
def checkouts(
    base: str, head: str, workload: str, pythons: Sequence[str] = ("", "")
) -> Iterator[tuple[Checkout, Checkout]]:
    """Folders as they stand; of a commit of this repository a work tree, which is removed
    afterwards. ``pythons``: each side's interpreter.

    Raises UsageError for what is neither.
    """
    with contextlib.ExitStack() as stack:
        folders = [
            stack.enter_context(_tree(name, given))
            for name, given in (("BASE", base), ("HEAD", head))
        ]
        sides = zip(folders, reversed(folders), pythons, strict=True)
        one, other = (
            replace(
                _checkout(folder, str(opposite) if folder != opposite else "", workload),
                python=own,
            )
            for folder, opposite, own in sides
        )
        yield one, other


@contextlib.contextmanager
def checkout(commit: str, workload: str) -> Iterator[Checkout]:
    """In a work tree as ``checkouts`` makes it. Nothing may be imported from the owner's."""
    with _tree("commit", commit) as folder:
        yield _checkout(folder, git("rev-parse", "--show-toplevel"), workload)


def _checkout(folder: Path, opposite: str, workload: str) -> Checkout:
    is_own = workload in BUILT_IN and _has(folder, "child.py")
    return Checkout(folder=str(folder), other=opposite, home=str(folder) * is_own)


@contextlib.contextmanager
def _tree(name: str, given: str) -> Iterator[Path]:
    path = Path(given)
    if path.is_dir():
        if (path / layout.HEADER).is_file() or (path / layout.FOLDER / layout.HEADER).is_file():
            raise UsageError(
                f"{name} {given} is a Recording, not a checkout",
                hint="compare Recordings without --record",
            )
        yield path.resolve()
        return
    try:
        commit = commit_of(given)
    except GIT_FAILED as error:
        kind = "a file" if path.exists() else "neither a folder nor a commit of the repository here"
        raise UsageError(
            f"{name} {given} is {kind}",
            hint="give a folder that holds a checkout, or a commit such as HEAD^",
        ) from error
    with scratch_folder("kgprof-tree-", name.lower()) as scratch:
        tree = scratch.resolve() / name.lower()
        try:
            git(*NO_HOOKS, "worktree", "add", "--detach", "--force", str(tree), commit)
        except GIT_FAILED as error:
            why = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            raise UsageError(
                f"{name} {given} could not be checked out: {why[-1] if why else 'git failed'}",
                hint="check it out into a folder yourself and give that folder",
            ) from error
        yield tree
