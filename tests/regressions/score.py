"""What `kgprof compare` says of the planted regressions, beside what is true of them.

python -m tests.regressions.score          a line a pair, and the score
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kgprof.analysis import analyse
from kgprof.compare import CompareSettings, compare
from kgprof.model import Cause, Comparison, Finding, Profile, Skipped
from kgprof.reading import recordings
from kgprof.wording import relative
from tests.regressions.planted import (
    NO_CHANGE,
    Pair,
    Reading,
    Regression,
    Truth,
    regressions,
    unchanged,
)


@dataclass(frozen=True, kw_only=True)
class Compared:
    name: str
    head: Profile  # with its comparison

    @property
    def comparison(self) -> Comparison:
        assert self.head.comparison is not None
        return self.head.comparison

    @property
    def new(self) -> tuple[Finding, ...]:
        return tuple(
            compared.finding for compared in self.comparison.findings if compared.status == "new"
        )

    @property
    def raises_alarm(self) -> bool:
        """It calls the head worse, or tells of a finding that the base has not."""
        worse = any(
            metric.verdict == "worse" for run in self.comparison.runs for metric in run.metrics
        )
        return self.head.exit_code == 1 or worse or bool(self.new)

    def points_into(self, regression: Regression) -> bool:
        """The first cause's line is one that the patch brings."""
        place = self.comparison.causes[0].place
        return place is not None and (
            relative(place.file, self.head.environment.source_root),
            place.line,
        ) in (regression.added)

    def named(self, truth: Truth) -> int | None:
        """The place, from 1, of the first cause that is the truth or one of its second readings;
        None: none is."""
        for place, cause in enumerate(self.comparison.causes, start=1):
            if any(self._is(cause, reading) for reading in (truth, *truth.accept)):
                return place
        return None

    def _is(self, cause: Cause, reading: Reading) -> bool:
        if cause.cause != reading.kind:
            return False
        if reading.kind != "finding":
            return True
        found = next((one for one in self.new if one.fingerprint == cause.fingerprint), None)
        return found is not None and is_read_as(found, reading)


def is_read_as(found: Finding, reading: Reading) -> bool:
    """Rule, file and function are the reading's, as far as it names them."""
    place = found.location
    file, function = ("", "") if place is None else (place.file, place.function.rpartition(".")[2])
    return (
        found.rule == reading.rule
        and (not reading.file or file.endswith(reading.file))
        and (not reading.function or function in {"", reading.function})
    )


class Profiles:
    """Of the archives, each read once."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._known: dict[Path, Profile] = {}

    def of(self, archive: Path) -> Profile:
        if archive not in self._known:
            folder = self._scratch / str(len(self._known))
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
            self._known[archive] = analyse(recordings.load(folder / "recording"))
        return self._known[archive]

    def planted(self, regression: Regression, *patches: Path) -> Compared:
        """``patches``: the difference of the two commits, as git would say it; none: what the
        Recordings hold."""
        diff = "".join(patch.read_text(encoding="utf-8") for patch in patches)
        return self._compared(
            regression.name, unchanged(regression.setting, 0), regression.recording, diff=diff
        )

    def no_change(self, pair: Pair) -> Compared:
        base, head = unchanged(*pair.base), unchanged(*pair.head)
        return self._compared(
            pair.name, base, head, allow_different_environment=pair.allow_different_environment
        )

    def _compared(
        self,
        name: str,
        base: Path,
        head: Path,
        *,
        allow_different_environment: bool = False,
        diff: str = "",
    ) -> Compared:
        settings = CompareSettings(allow_different_environment=allow_different_environment)
        return Compared(name=name, head=compare(self.of(base), self.of(head), settings, diff=diff))


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        profiles = Profiles(Path(scratch))
        recorded = [each for each in regressions() if each.recording.is_file()]
        places = [_say(each, profiles.planted(each)) for each in recorded]
        lines = sum(profiles.planted(each, each.recorded).points_into(each) for each in recorded)
        pairs = [
            pair
            for pair in NO_CHANGE
            if all(unchanged(*side).is_file() for side in (pair.base, pair.head))
        ]
        alarms = [_say_unchanged(profiles.no_change(pair)) for pair in pairs]
    first, among = sum(place == 1 for place in places), sum(place is not None for place in places)
    sys.stdout.write(
        f"\n{first} of {len(places)} named first, {among} named; {sum(alarms)} false alarms in "
        f"{len(alarms)} pairs\n"
        f"{lines} of {len(places)} with a line of the patch, given the difference of the commits\n"
    )


def _say(regression: Regression, compared: Compared) -> int | None:
    truth, place = regression.truth, compared.named(regression.truth)
    expected = [reading.rule or reading.kind for reading in (truth, *truth.accept)]
    said = "right" if place == 1 else f"named as number {place}" if place else "NOT NAMED"
    sys.stdout.write(f"\n{regression.name}: {said}; expected {' or '.join(expected)}\n")
    _say_rest(compared)
    return place


def _say_unchanged(compared: Compared) -> bool:
    sys.stdout.write(f"\n{compared.name}: {'FALSE ALARM' if compared.raises_alarm else 'quiet'}\n")
    _say_rest(compared)
    return compared.raises_alarm


def _say_rest(compared: Compared) -> None:
    lines = [f"verdict: {compared.head.verdict}, exit {compared.head.exit_code}"]
    for number, cause in enumerate(compared.comparison.causes, start=1):
        explains = (
            "" if isinstance(cause.explains_us, Skipped) else f" ({cause.explains_us:+.1f} us)"
        )
        lines.append(f"{number}. {cause.cause}{explains}: {cause.text}")
    lines += [f"new finding {found.rule} {found.level}: {found.message}" for found in compared.new]
    for run in compared.comparison.runs:
        judged = [
            metric for metric in run.metrics if metric.verdict not in {"same", "not observed"}
        ]
        lines += [
            f"{metric.name}: {metric.verdict}, {_figure(metric.base)} to {_figure(metric.head)} "
            f"{metric.unit} [{_figure(metric.low)}, {_figure(metric.high)}]"
            for metric in judged
        ]
    lines += [
        f"environment: {change.name}: {change.base} -> {change.head}"
        for change in compared.comparison.environment
    ]
    sys.stdout.write("".join(f"    {line[:400]}\n" for line in lines))


def _figure(value: float | Skipped) -> str:
    return "-" if isinstance(value, Skipped) else f"{value:.4g}"


if __name__ == "__main__":
    main()
