"""Code is offered only where it fits: one test for each guard."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kgprof import collectors
from kgprof.model import Finding, Level, Location, SourceFile, Sources
from kgprof.reading.code_to_write import fitted
from kgprof.reading.evidence import Evidence
from kgprof.reading.source_text import SourceText
from tests.collectors import written_syncs

FILE, LIBRARY = "/src/shop/fit.py", "/lib/site-packages/shelf/layers.py"
TEXT = """\
from torch import optim
from shelf.pool import pooled

RATE = 0.1


def fit(batches, device):
    data = None
    opt = optim.AdamW([], lr=RATE)
    for batch in batches:
        x = batch.to(device)
        y = pooled(x, keep=True)
        z = pooled(x, **{})
    return [each for each in y]


def other(model, tokens):
    return model(tokens, mask=tokens)
"""
COPIES, POOLS, POOLS_OPTIONS, CALLS = 11, 12, 13, 18


def offered(fix: str, line: int, file: str = FILE, **about: object) -> str:
    files = {FILE: SourceFile(sha256="0" * 64, text=TEXT)}
    source = SourceText(Sources(libraries=("/lib/site-packages",), files=files))
    place = Location(file=file, line=line) if line else None
    finding = Finding(rule="KGP201", level=Level.WARNING, message="", location=place)
    return fitted(source, replace(finding, **about), fix)


@pytest.mark.parametrize("code", ["x.to(", "reset it", "while x: )"])
def test_what_does_not_parse_is_no_code(code: str) -> None:
    assert offered(code, COPIES) == ""


@pytest.mark.parametrize(
    "code", ["with torch.no_grad():", "@torch.compile", "x = x.clone(); x += 1"]
)
def test_the_head_of_a_statement_and_a_decorator_are_code(code: str) -> None:
    assert offered(f"{code}  # here", COPIES) == f"{code}  # here"


@pytest.mark.parametrize(
    ("code", "fits"),
    [
        ("x.detach()", True),
        ("optim.SGD([], lr=RATE)", True),
        ("pooled(x, size=data.number)", True),
        ("logging.info(len(device))", True),
        ("torch.full(N, StaticCache(...))", True),
        ("fit.batches = 1", True),  # a module of the project's own
        ("model(x)", False),  # of another function
        ("x.to(tokens)", False),
        ("[each for each in x]", True),  # bound by the code itself
        ("each.item()", False),  # by a comprehension of another line
        ("loss.backward()", False),
    ],
)
def test_its_names_are_visible_where_it_would_be_written(code: str, fits: bool) -> None:
    assert offered(code, COPIES) == (code if fits else "")


def test_a_name_is_visible_at_one_of_the_places_that_the_finding_points_to() -> None:
    elsewhere = (Location(file=FILE, line=CALLS),)

    assert offered("model.eval()", COPIES) == ""
    assert offered("model.eval()", COPIES, related=elsewhere) == "model.eval()"


def test_a_call_of_the_program_may_be_written_again_where_it_stands() -> None:
    assert offered("batch.to(device)", CALLS) == "batch.to(device)"
    assert offered("batch.cpu(device)", CALLS) == ""


def test_of_a_library_s_line_only_settings_are_offered() -> None:
    setting = "torch._dynamo.config.allow_rnn = True"

    assert offered("x.detach()", COPIES, LIBRARY) == ""
    assert offered(setting, COPIES, LIBRARY) == setting


@pytest.mark.parametrize(
    ("code", "line", "fits"),
    [
        ("Accelerator(..., split_batches=True)", 0, False),  # the program makes none
        ("AdamW(..., fused=True)", 0, True),
        ("DataLoader(..., num_workers=4)", 0, True),
        ("torch.optim.Adam(..., fused=True)", 0, True),
        ("generate(..., use_cache=True)", COPIES, False),
    ],
)
def test_an_argument_is_added_to_what_the_program_calls(code: str, line: int, fits: bool) -> None:
    assert offered(code, line) == (code if fits else "")


@pytest.mark.parametrize(
    ("code", "line", "written"),
    [
        ("to(..., non_blocking=True)", COPIES, "batch.to(device, non_blocking=True)"),
        ("pooled(..., size=...)", POOLS, "pooled(x, keep=True, size=...)"),
        ("pooled(..., keep=False)", POOLS, "pooled(x, keep=False)"),
        ("pooled(..., size=...)", POOLS_OPTIONS, "pooled(..., size=...)"),
        ("model(..., mask=None)", CALLS, "model(tokens, mask=None)"),
    ],
)
def test_an_argument_is_added_to_the_call_that_stands_there(
    code: str, line: int, written: str
) -> None:
    assert offered(f"{code}  # faster", line) == f"{written}  # faster"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("pooled(..., keep=True)", POOLS),
        ("pooled(..., keep=...)", POOLS),
        ("keep=True", POOLS),
        ("pooled(..., size=None)", POOLS),  # nothing is what it is without it
    ],
)
def test_what_stands_there_already_is_not_offered(code: str, line: int) -> None:
    assert offered(code, line) == ""


def test_each_finding_s_code_is_looked_at() -> None:
    evidence = Evidence(written_syncs.a_read())
    (found,) = (one for one in collectors.findings(evidence) if one.reads is not None)

    def fix_of(fix: str) -> str:
        (mended,) = collectors._fitting(evidence, [replace(found, fix=fix)])
        return mended.fix

    assert fix_of("data.num_graphs") == ""
    assert fix_of("torch.compiler.reset()") == "torch.compiler.reset()"
