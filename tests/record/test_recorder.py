"""What the parent makes of a child that made no plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kgprof import progress
from kgprof.errors import EXIT_USAGE, UsageError
from kgprof.model import Exit, Options
from kgprof.record import recorder
from kgprof.record.children import Ended
from kgprof.record.job import Failed


@pytest.mark.parametrize("left_behind", [False, True])
def test_a_refused_plan_is_a_usage_error_and_an_empty_folder_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_behind: bool
) -> None:
    output = tmp_path / "out"

    def refuses(*args: Any, **options: Any) -> Ended:
        if left_behind:
            (output / "core").touch()
        failed = Failed(message="no strategy 'x'", traceback="", exit_code=EXIT_USAGE)
        return Ended(exit=Exit(outcome="raised"), failed=failed)

    monkeypatch.setattr(recorder.children, "run", refuses)

    with pytest.raises(UsageError, match="no strategy 'x'"):
        recorder.record(Options(), output, progress.Silent())

    assert output.exists() == left_behind
