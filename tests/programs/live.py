"""The live tests: each program runs once under kgprof, and every family is held to its truth.

What is not exact yet is an expected failure: the day it becomes exact, its line has to go.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pytest

from kgprof.collectors.trust.disagreements import SOURCES_DISAGREE
from tests.programs.advice import without_action
from tests.programs.run import FAMILIES, Answer, missing, watched
from tests.programs.truth import Program, programs

# Written as others are that stay: two of one library, or small loops of the same shape.
LONG = {
    *(
        "accelerate_loop",
        "hf_pipeline",
        "lightning_autoencoder",
        "pyg_gcn",
        "torchvision_detection",
    ),
    *("examples_dcgan", "examples_mnist", "examples_vae", "examples_word_language_model"),
    *(
        "accumulate_with_amp",
        "compiled_blocks",
        "ddpm_ema",
        "ensembling",
        "hf_sampling",
        "leanrl_dqn",
        "pyg_sag_pool",
    ),
}
NOT_YET: dict[tuple[str, str], str] = {}  # (program, family) -> why it is not exact


def cases(*, with_packages: bool) -> list[object]:
    """The families of each program, one after the other; of those that need others' packages, or of
    the rest."""
    return [
        pytest.param(program, family, id=f"{program.name}-{family}", marks=_marks(program, family))
        for program in programs()
        if bool(program.needs) is with_packages
        for family in (*FAMILIES, "sources", "gate", "advice", "ending")
    ]


def _marks(program: Program, family: str) -> tuple[pytest.MarkDecorator, ...]:
    reason = NOT_YET.get((program.name, family))
    expected = (
        (pytest.mark.xfail(strict=True, reason=reason, raises=AssertionError),) if reason else ()
    )
    return (*expected, *((pytest.mark.long,) if program.name in LONG else ()))


@functools.lru_cache(maxsize=1)  # the families of one program stand one after the other
def answer_for(program: Program) -> Answer:
    assert not missing(program), (
        f"not installed: {', '.join(missing(program))}; make sets up the extra 'programs'"
    )
    with tempfile.TemporaryDirectory(prefix=f"kgprof-{program.name}-") as folder:
        return watched(program, Path(folder))


def held_to_its_truth(program: Program, family: str) -> None:
    answer = answer_for(program)
    if family == "ending":
        assert answer.exit_code == program.exit_code, answer.screen
    elif family == "sources":
        assert not [
            one.message for one in answer.profile.findings if one.rule == SOURCES_DISAGREE.id
        ]
    elif family == "gate":
        assert answer.gate == program.gate, answer.profile.verdict
    elif family == "advice":
        assert without_action(answer.profile.findings) == ()
    else:
        score = answer.scores(program)[family]
        assert (score.missed, score.wrong) == ((), ())
