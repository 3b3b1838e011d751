"""What the sheet of a sweep says of the correctness ladder and of varying sizes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kgprof import model as m
from kgprof.document.sheet import Code, Section, Sheet
from kgprof.document.sweep import ladder_section, shapes_section, shipped_section
from kgprof.render import sheet as printers

WRONG = m.TensorDifference(
    name="result",
    dtype="float32",
    elements=60,
    differing=7,
    reference=m.Reference.FLOAT64,
    max_abs=0.25,
    max_rel=0.125,
    max_ulp=2_097_152,
    eager_max_abs=1.5e-7,
    nans=2,
    infs=0,
    reference_nans=0,
    reference_infs=0,
    worst=(3, 4),
    worst_value="2.25",
    worst_reference="2",
)
RIGHT = replace(WRONG, differing=0, max_abs=1.5e-7, max_ulp=1, nans=0)
SKIPPED = m.Skipped(reason="the process was killed: SIGSEGV")


def rung(tensor: m.TensorDifference) -> m.RungResult:
    return m.RungResult(
        differs=tensor.differing > 0, seconds=1.0, compared=2, tensors=(tensor, RIGHT)
    )


LADDER = m.Ladder(
    strategy="step",
    cell="reduce-overhead",
    steps=1,
    rungs=(
        (m.Rung.FLOAT64, m.RungResult(differs=False, seconds=1.0, compared=0)),
        (m.Rung.EAGER, rung(RIGHT)),
        (m.Rung.CAPTURE, rung(RIGHT)),
        (m.Rung.DECOMPOSITION, rung(WRONG)),
        (m.Rung.CODE_GENERATION, SKIPPED),
    ),
    first=m.Rung.DECOMPOSITION,
    minified=m.Minified(
        script="step.decomposition.py",
        operators=("torch.nn.functional.silu",),
        nodes_before=14,
        attempts=9,
        finished=False,
        checked=m.Reproduction(differs=True, output="result 0: 7 of 60 elements differ"),
    ),
)


def words(section: Section, form: str = "text") -> str:
    page = Sheet(title="t", status=m.VerdictStatus.OK, verdict="v", sections=(section,))
    return {"text": lambda: printers.text(page, width=400), "html": lambda: printers.html(page)}[
        form
    ]()


def test_the_rung_that_differs_is_named_with_its_worst_tensor_and_script() -> None:
    text = words(ladder_section(LADDER))

    assert "The result of reduce-overhead changes at decomposition" in text
    assert (
        "1 operator of 14 nodes: torch.nn.functional.silu; time ran out, so a smaller graph may "
        "exist" in text
    )
    assert "python step.decomposition.py" in text
    (row,) = [line for line in text.splitlines() if line.startswith("decomposition ")]
    for figure in ("differs", "result (float32)", "0.25", "0.125", "2,097,152", "2, 0"):
        assert figure in row


@pytest.mark.parametrize(
    "expected", ["[3, 4] is 2.25, float64 has 2", "7 of 60 differ", "the process was killed"]
)
def test_the_page_has_the_worst_element_and_why_a_rung_has_none(expected: str) -> None:
    assert expected in words(ladder_section(LADDER), "html")


def test_a_ladder_without_a_difference_says_what_was_compared() -> None:
    sound = replace(
        LADDER,
        rungs=(*LADDER.rungs[:3], LADDER.rungs[-1]),
        first=None,
        minified=m.Skipped(reason="no rung differs"),
    )

    text = words(ladder_section(sound))
    assert "No rung differs (1 compared, 1 not): reduce-overhead." in text
    assert f"Not compared: {LADDER.rungs[-1][0]}: {SKIPPED.reason}" in text


def test_rungs_that_were_not_compared_are_named_beside_the_one_that_differs() -> None:
    up = m.Skipped(reason="the time was up")
    rungs = (*LADDER.rungs[:4], (m.Rung.CODE_GENERATION, up), (m.Rung.MODE, up))

    text = words(ladder_section(replace(LADDER, rungs=rungs)))

    assert "Not compared: code generation, mode: the time was up" in text


def test_an_error_of_float64_is_not_shown_as_zero() -> None:
    small = rung(replace(RIGHT, max_abs=2.22e-16))

    assert "2.22e-16" in words(
        ladder_section(replace(LADDER, rungs=((m.Rung.CAPTURE, small),), first=None))
    )


def test_a_ladder_on_which_nothing_could_run_was_not_checked() -> None:
    none = m.Skipped(reason="no rung differs")

    text = words(
        ladder_section(replace(LADDER, rungs=LADDER.rungs[-1:], first=None, minified=none))
    )

    assert "Not checked: no rung of reduce-overhead could be compared" in text
    assert "No rung differs" not in text


def test_a_rung_below_that_could_not_run_does_not_agree() -> None:
    rungs = (*LADDER.rungs[:2], (m.Rung.CAPTURE, SKIPPED), LADDER.rungs[3])

    assert "the rungs below it that could run agree" in words(
        ladder_section(replace(LADDER, rungs=rungs))
    )


def test_a_script_that_does_not_differ_by_itself_says_so() -> None:
    assert isinstance(LADDER.minified, m.Minified)
    alone = replace(LADDER.minified, checked=m.Reproduction(differs=False, output=""))

    text = words(ladder_section(replace(LADDER, minified=alone)))

    assert "The script alone does not differ" in text


def test_differing_results_and_metrics_of_the_workload_stand_in_its_column() -> None:
    agreement = m.RunAgreement(
        verdict=m.AgreementVerdict.DIFFERENT,
        compared=120,
        differing=3,
        near_ties=1,
        reference_compared=0,
        reference_differing=0,
        reference_near_ties=0,
    )
    metrics = ((m.Metric(label="score", value=0.5), 0.75),)
    own = m.RungResult(differs=True, seconds=1.0, compared=0, agreement=agreement, metrics=metrics)

    page = words(ladder_section(replace(LADDER, rungs=((m.Rung.CAPTURE, own),))), "html")

    assert "3 of 120 differ, 1 near-tie" in page
    assert "score 0.5 (eager 0.75)" in page
    assert "own comparison" in page
    assert "worst tensor" not in page  # a column that no rung fills
    tensors = words(ladder_section(LADDER), "html")
    assert ("worst tensor" in tensors, "own comparison" in tensors) == (True, False)


def spread(ms: float) -> m.Spread:
    kind = {"samples": 20, "unit": "ms", "measured_in": m.PassName.TIMING}
    return m.Spread(median=ms, p10=ms, p90=ms, minimum=ms, maximum=ms, **kind)  # type: ignore[arg-type]


def policy(ms: float, padded_to: int = 0, differs: str = "") -> m.PolicyResult:
    costs = (
        m.SizeCost(size=size, calls=1, padded_to=padded_to or size, steady=spread(ms))
        for size in (8, 16)
    )
    return m.PolicyResult(graphs=2, compile_s=12.5, sizes=tuple(costs), differs=differs)


SHAPES = m.Shapes(
    function="step",
    tensor="x",
    sizes=(8, 16),
    collected=False,
    buckets=(16,),
    policies=(
        (m.SizePolicy.STATIC, policy(1.0)),
        (m.SizePolicy.DYNAMIC, policy(1.25)),
        (
            m.SizePolicy.PADDED,
            policy(0.5, 16, "at size 8 result differs from eager's without padding, by up to 0.5"),
        ),
        (m.SizePolicy.MARKED, SKIPPED),
    ),
    recommended=m.SizePolicy.DYNAMIC,
    code="compiled = torch.compile(step, dynamic=True)",
)


def test_a_policy_is_recommended_with_its_line_and_what_noise_decided() -> None:
    text = words(shapes_section(SHAPES))

    assert (
        "Dimension 0 of x, an input of step, in 2 calls with 8, 16 (--sizes). Buckets: 16." in text
    )
    assert (
        "Recommended: dynamic (dynamic=True). As fast as static within noise, and compiles sooner."
        in text
    )
    assert "compiled = torch.compile(step, dynamic=True)" in text
    (padded,) = [line for line in text.splitlines() if line.startswith("padded")]
    for figure in ("12.5", "25.0 %", "at size 8 result differs"):
        assert figure in padded
    (marked,) = [line for line in text.splitlines() if line.startswith("marked")]
    assert SKIPPED.reason in marked


@pytest.mark.parametrize(
    ("loaded_s", "words"),
    [(2.0, "saves 7.50 s of the first call of default"), (11.0, "saves nothing of the first")],
)
def test_shipped_caches_say_what_they_save_with_the_lines(loaded_s: float, words: str) -> None:
    cold = m.Start(first_call_s=10.0, load_s=0.0, graphs_from_cache=0, graphs_compiled=2)
    loaded = m.Start(first_call_s=loaded_s, load_s=0.5, graphs_from_cache=2, graphs_compiled=0)

    section = shipped_section(
        m.ShippedCache(cell="default", cold=cold, loaded=loaded, artifact_bytes=2**20)
    )

    answer, lines = section.blocks
    assert isinstance(answer, str)
    assert words in answer
    assert "10.0 s on empty caches (2 graphs compiled)" in answer
    assert isinstance(lines, Code)
    assert "load_cache_artifacts" in lines.text
    assert shipped_section(m.Skipped(reason="why")).blocks == (("Not measured", "why"),)
