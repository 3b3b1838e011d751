"""A setting of torch is a fix where its trial shows that it helps, and then says how."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kgprof.collectors import findings
from kgprof.collectors.compile.tried_settings import where_it_helped
from kgprof.document.finding_list import advice
from kgprof.model import (
    CodeCount,
    Control,
    Exit,
    Finding,
    Level,
    Outcome,
    Recording,
    Setting,
    Skipped,
    SourceLine,
    TraceRecord,
)
from kgprof.reading.dynamo_settings import ALL_SIZES
from kgprof.reading.evidence import Evidence
from tests.collectors import written
from tests.collectors.written import (
    CALLER,
    FILE,
    LIBRARY,
    PRINT,
    REPORT,
    STEP,
    broken,
    compiled,
    rejected,
    resumed,
)

SCALARS = "capture_scalar_outputs"
CODE = f"torch._dynamo.config.{SCALARS} = True"
READ = (FILE, 17, "step")
REASON = (
    "Unsupported Tensor.item() call with capture_scalar_outputs=False\n"
    "  Explanation: It reads.\n"
    f"  Hint: Set `{CODE}`.\n\n"
    "  Developer debug context: call_method TensorVariable() item () {}\n\n"
    " For more details about this graph break, please visit: https://a.org/gb/gb0999.html"
)
INT = "torch._dynamo.config.allow_unspec_int_on_nn_module"
GUARD = f"self.k == {{}}  # x (HINT: {INT} = True, or a tensor)"
# a graph before the break and one behind it, and a print that breaks another function
TWO_BREAKS = (
    *compiled("0/0", STEP),
    broken("0/0", CALLER, READ, reason=REASON),
    *compiled("1/0", resumed(STEP, 17)),
    *compiled("2/0", REPORT),
    broken("2/0", PRINT),
)


def at(place: tuple[str, int, str]) -> SourceLine:
    return SourceLine(file=place[0], line=place[1])


def code(place: tuple[str, int, str]) -> SourceLine:
    return SourceLine(file=place[0], line=place[1], function=place[2])


def trial(outcome: Outcome = Outcome.OK, *, name: str = SCALARS, **counted: Any) -> Control:
    fields = {"graphs": 2, "breaks": (at(PRINT),), "counts": (), **counted}
    return Control(Exit(outcome), setting=Setting(name=name, value=True), **fields)


# the run to hold the trials against
WITHOUT = Control(Exit(Outcome.OK), compiled_s=1.0, graphs=3, breaks=(at(READ), at(PRINT)))


def tried(
    *lines: TraceRecord, trials: tuple[Control, ...] | Skipped, line: int = READ[1]
) -> Finding:
    """The finding at a line of the program."""
    recording: Recording = written.recording(*lines)
    (run,) = recording.runs
    recording = replace(recording, runs=(replace(run, setting_trials=trials),))
    every = findings(Evidence(recording))
    return next(one for one in every if one.location is not None and one.location.line == line)


@pytest.mark.parametrize("without", [(), (WITHOUT,)])  # none: a Recording of before
def test_graphs_that_become_fewer_are_the_fixs_comment(without: tuple[Control, ...]) -> None:
    found = tried(*TWO_BREAKS, trials=(trial(compiled_s=1.2), *without))

    assert (found.fix, found.tried) == (f"{CODE}  # tried: 2 graphs instead of 3", True)
    assert advice(found) == (f"fix: {found.fix}",)


def test_a_setting_is_no_fix_where_the_run_without_it_did_not_end_well() -> None:
    cut_off = replace(WITHOUT, exit=Exit(Outcome.TIMED_OUT), compiled_s=0.0)

    assert tried(*TWO_BREAKS, trials=(trial(), cut_off)).fix == ""


def test_a_line_that_breaks_no_more_is_the_comment_where_the_graphs_are_as_many() -> None:
    found = tried(*TWO_BREAKS, trials=(trial(graphs=3, breaks=()),))

    assert found.fix == f"{CODE}  # tried: 3 graphs, no break at this line"


@pytest.mark.parametrize(
    "against",
    [
        trial(Outcome.RAISED),
        trial(Outcome.TIMED_OUT),
        trial(Outcome.KILLED),
        trial(breaks=(at(PRINT), at(READ))),  # it breaks there as before
        trial(breaks=(at(PRINT), at((FILE, 18, "step")))),  # the break moved
        trial(graphs=4),
        # a program that catches what torch raises
        trial(graphs=0, counts=(CodeCount(code=code(STEP), failures=("BackendCompilerFailed",)),)),
        trial(counts=(CodeCount(code=SourceLine(file="", line=0), failures=("Unsupported",)),)),
        trial(compiled_s=1.4),
        # without the break its caller is compiled for each new value, up to the limit
        trial(counts=(CodeCount(code=code(STEP), times=8),)),
    ],
)
def test_a_setting_that_does_not_help_is_no_fix_and_no_hint(against: Control) -> None:
    found = tried(*TWO_BREAKS, trials=(against, WITHOUT))

    assert found.fix == ""
    assert found.message.endswith(f"; tried alone, and not offered: {SCALARS}")
    assert found.refusal is not None
    assert found.refusal.cause.hints == ()


def test_a_setting_that_was_tried_in_vain_is_not_part_of_what_always_helps() -> None:
    name = "trace_autograd_ops"
    reason = REASON.replace(SCALARS, name).replace("gb0999", "gb9186")
    lines = (*compiled("0/0", STEP), broken("0/0", CALLER, READ, reason=reason))

    found = tried(*lines, trials=(trial(name=name, breaks=(at(READ),)),))

    assert found.fix == "torch.autograd.grad(...)  # outside of what is compiled"
    assert found.message.endswith(f"; tried alone, and not offered: {name}")
    assert advice(found) == (f"to try: {found.fix}",)


@pytest.mark.parametrize("trials", [(), Skipped("it takes long"), (trial(name="allow_rnn"),)])
def test_a_setting_that_nobody_tried_is_torchs_hint(trials: tuple[Control, ...] | Skipped) -> None:
    reason = REASON.replace(SCALARS, "allow_it")
    lines = (*compiled("0/0", STEP), broken("0/0", CALLER, READ, reason=reason))

    found = tried(*lines, trials=trials)

    assert found.fix == ""
    assert found.refusal is not None
    assert any("allow_it" in hint for hint in found.refusal.cause.hints)


def test_a_trial_decides_where_the_text_only_guesses() -> None:
    """Python returns what line 17 reads, as far as the text says."""
    lines = (*compiled("0/0", STEP), broken("0/0", CALLER, READ, reason=REASON))

    assert tried(*lines, trials=()).fix == ""
    assert tried(*lines, trials=(trial(graphs=1, breaks=()),)).fix.startswith(CODE)


def test_a_setting_that_the_text_speaks_against_has_to_show_more_than_a_break_less() -> None:
    """The print may stand before the line that needs the number, which then raises."""
    assert tried(*TWO_BREAKS, trials=(trial(graphs=3),)).fix == ""


def test_a_library_whose_break_the_setting_mends_is_no_note() -> None:
    inside = (LIBRARY, 12, "forward")
    lines = (*compiled("0/0", STEP), broken("0/0", CALLER, READ, inside, reason=REASON))

    without = tried(*lines, trials=())
    found = tried(*lines, trials=(trial(graphs=1, breaks=()),))

    assert (without.fix, without.level) == ("", Level.NOTE)
    assert found.fix.startswith(CODE)
    assert found.level is Level.WARNING


def recompiled(times: int) -> tuple[TraceRecord, ...]:
    lines = [*compiled("0/0", STEP)]
    for number in range(1, times):
        guards = [GUARD.format(each) for each in reversed(range(number))]
        lines.append(rejected(f"0/{number}", *guards, call=number))
        lines += compiled(f"0/{number}", STEP, call=number)
    return tuple(lines)


@pytest.mark.parametrize(
    ("times", "fix"),
    [
        (2, f"{INT} = True  # tried: compiled 2 times instead of 4"),
        (4, ""),
        (0, ""),  # torch gave it up, or compiled another code object
    ],
)
def test_a_recompile_is_mended_where_the_function_is_compiled_less(times: int, fix: str) -> None:
    count = CodeCount(code=code(STEP), times=times)
    against = trial(name="allow_unspec_int_on_nn_module", breaks=(), counts=(count,))

    found = tried(*recompiled(4), trials=(against,), line=written.STEP_DEF)

    assert (found.fix, found.tried) == (fix, bool(fix))
    vain = "; tried alone, and not offered: allow_unspec_int_on_nn_module"
    assert found.message.endswith(vain) is not bool(fix)


@pytest.mark.parametrize(
    ("times", "words"), [(2, "; tried: compiled 2 times instead of 4"), (4, "")]
)
def test_symbols_for_all_sizes_are_offered_where_they_helped(times: int, words: str) -> None:
    lines = [*compiled("0/0", STEP)]
    for number in range(1, 4):
        guard = f"tensor 'x' size mismatch at index 0. expected 8, actual {8 + number}"
        lines += [rejected(f"0/{number}", guard, call=number)]
        lines += compiled(f"0/{number}", STEP, call=number)
    count = CodeCount(code=code(STEP), times=times)
    against = trial(name=ALL_SIZES.name, breaks=(), counts=(count,))

    found = tried(*lines, trials=(against,), line=written.STEP_DEF)

    assert words in found.fix
    assert bool(found.fix) is found.tried is bool(words)


def test_code_without_a_setting_is_shown_as_it_is_and_with_one_where_that_helped() -> None:
    for fix in ("x = x.contiguous()  # before", "torch._dynamo.config.recompile_limit = 9  # each"):
        assert where_it_helped(fix, {}) == fix
    assert where_it_helped(CODE, {}) == where_it_helped(CODE, {SCALARS: ""}) == ""
    effects = {SCALARS: "tried: 1 graph"}
    assert where_it_helped(f"{CODE}  # a guess", effects) == f"{CODE}  # tried: 1 graph"
