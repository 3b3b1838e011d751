"""The sheet of `kgprof fix`: the patch with its gain, the ladder, what was not tried."""

from collections.abc import Iterator

from kgprof import model as m
from kgprof.document.quantity import if_known, ratio
from kgprof.document.sheet import Code, Section, Sections, Sheet
from kgprof.document.table import Cell, Cells, Column, Table, dashed, missing, plain, written
from kgprof.wording import clause, plural

_LADDER = (
    "Each lever was tried in a copy of the program, on top of those that were kept above it. The "
    "time is that with it over that without it, from pairs of processes that took turns (beside "
    "workers of a DataLoader one after the other); the range is a 95 % interval. Results: what {} "
    "steps returned, and the parameters, buffers and gradients after them, from seeded starts; "
    "rounded: as near to float64 as those of the program as it is, within a factor of 3 to 10; "
    "behind an optimizer by kind, within a factor of 4."
)
_PATCH = (
    "These lines were measured. The file is named as seen from the top of the repository, or from "
    "the folder that holds its package where there is no git: there, `git apply` with the path of "
    "fix.patch makes the change."
)


def sheet(found: m.Fix) -> Sheet:
    """``found`` is shown whole: a lever that was not tried has its reason."""
    return Sheet(
        title=f"Fix of {found.workload}",
        status=_status(found),
        verdict=verdict(found),
        trust=f"{plural(found.starts, 'start')} of the program, each in a copy of its files",
        facts=(
            "".join(if_known(found.environment.device_name, str)),
            f"torch {found.environment.torch}",
            f"kgprof {found.environment.kgprof}",
            found.created_utc,
        ),
        sections=tuple(_sections(found)),
    )


def _status(found: m.Fix) -> m.VerdictStatus:
    if found.patch or found.is_decided:
        return m.VerdictStatus.OK
    return m.VerdictStatus.INCONCLUSIVE


def verdict(found: m.Fix) -> str:
    """Say what the patch does, or why there is none."""
    kept = ", ".join(each.lever for each in found.trials if each.kept)
    if found.patch and isinstance(found.gain, m.Gain):
        gain = found.gain
        times = f"{ratio(1 / gain.high)} to {ratio(1 / gain.low)}"
        same = f"; results: {found.results}" if isinstance(found.results, m.Results) else ""
        return f"fix.patch ({kept}): {ratio(1 / gain.ratio)} as fast ({times}){same}"
    tried = plural(len(found.trials), "lever")
    if found.interrupted:
        by_then = "none helped"
        if kept:
            by_then = f"{kept} helped, and the patch was not measured"
        return f"interrupted after {tried}; by then {by_then}"
    if found.is_decided:
        said = f"nothing to do: none of {tried} tried was kept"
        return said + "".join(_but(found))
    if kept and isinstance(found.gain, m.Skipped):
        return f"not decided: measured again, the patch was not shown to help ({found.gain.reason})"
    return f"not decided: of {tried} tried none was kept, and some were not decided"


def _but(found: m.Fix) -> Iterator[str]:
    """What else there is to know before nothing is done."""
    faster = [each.lever for each in found.trials if each.needs_leave]
    yield clause("; faster, but with another meaning (--allow meaning): ", ", ".join(faster))
    different = (m.Results.DIFFERENT, m.Results.NOT_COMPARABLE)
    others = [
        each.lever
        for each in found.trials
        if each.results in different and not (each.kept or each.needs_leave)
    ]
    yield clause("; faster, but its results differ or cannot be compared: ", ", ".join(others))
    slow = [each.lever for each in found.trials if each.why.startswith(m.FIX_GIVEN_UP)]
    yield clause("; given up, for its first process took long: ", ", ".join(slow))
    placeless = [each.lever for each in found.not_tried if each.is_wanted]
    yield clause("; no place in the file, or in it already: ", ", ".join(placeless))


def _sections(found: m.Fix) -> Sections:
    if found.patch:
        yield Section("Patch", (Code(found.patch),), _PATCH)
    yield Section("Ladder", (_ladder(found),), _LADDER.format(m.FIX_RESULT_STEPS))
    codes = [f"# {each.lever}: {each.says}\n{each.code}" for each in found.trials if each.code]
    if codes:
        yield Section("Code of each lever", (Code("\n\n".join(codes)),), folded=True)
    wanted = [each for each in found.not_tried if each.is_wanted]
    others = ", ".join(each.lever for each in found.not_tried if not each.is_wanted)
    rows = [(each.lever, each.says, each.why) for each in wanted]
    table = plain("Not tried", ("lever", "what it does", "why not"), rows, words=3)
    said = clause("Nothing in the program asks for: ", others)
    if rows or said:
        yield Section("Not tried", (table,) if rows else (), said)


def _ladder(found: m.Fix) -> Table:
    figures = (Column("time"), Column("pairs"))
    headings = ("lever", "what it does", *figures, "results", "may change", "")
    return plain("Ladder", headings, list(_rows(found)), words=len(headings))


def _rows(found: m.Fix) -> Iterator[Cells]:
    for each in found.trials:
        pairs = each.gain.pairs if isinstance(each.gain, m.Gain) else each.gain
        yield (
            each.lever,
            each.says,
            _gain(each.gain),
            written(pairs, str),
            each.results if isinstance(each.results, m.Results) else missing(each.results),
            each.changes,
            _ending(each),
        )


def _ending(trial: m.LeverTrial) -> str:
    if not trial.kept:
        return trial.why
    match trial.gain:
        case m.Skipped(reason=seen):
            return f"kept: {seen}"
    return "kept"


@dashed
def _gain(gain: m.Gain | m.Skipped) -> Cell:
    known = m.known(gain)
    return written(known.ratio, ratio, f"{ratio(known.low)} to {ratio(known.high)}")
