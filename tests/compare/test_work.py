"""Equal work is called equal only where it was seen on both sides; what differs is put down to the
line that changed."""

from __future__ import annotations

import msgspec
import pytest

from kgprof import model as m
from kgprof.compare import CompareSettings, compare
from kgprof.errors import EXIT_INCONCLUSIVE
from tests.analysis.compared import profile, with_run

FILE = "/work/project/model.py"
STATE = 'GLOBAL_STATE: ___check_global_state() against {"allow_tf32":false,"default_dtype":6}'


def at(line: int, text: str = "") -> m.Location:
    return m.Location(file=FILE, line=line, function="forward", text=text or f"line {line}")


ITEMS = (
    m.WorkItem(text="f32[8, 4][4, 1]cpu.sin() -> f32[8, 4][4, 1]cpu", lines=(at(11),)),
    m.WorkItem(text="f32[8, 4][4, 1]cpu.cos() -> f32[8, 4][4, 1]cpu", lines=(at(12),)),
    m.WorkItem(text="cpp_fused_cos_sin 0123456789ab(_, _)", lines=(at(11), at(12))),
    m.WorkItem(text="EQUALS_MATCH: L['self'].scale == 2.0", lines=(at(12),)),
    m.WorkItem(text=STATE),
)
WORK = m.CompiledWork(
    graphs=("one",),
    items=ITEMS,
    operators=(0, 1),
    calls=(2,),
    guards=(3, 4),
    allocated_bytes=128.0,
    calls_per_step=1.0,
    bytes_per_step=256.0,
    flops_per_step=0.0,
    eager=(("aten::mm(float32[8, 4], float32[4, 4])", 1.0),),
)


def with_work(side: m.Profile, work: m.CompiledWork | m.Skipped) -> m.Profile:
    return with_run(side, work=work)


def only_work(given: m.Profile) -> m.ComparedWork | m.Skipped:
    assert given.comparison is not None
    (run,) = given.comparison.runs
    return run.work


def compared(head: m.CompiledWork | m.Skipped) -> m.ComparedWork:
    work = only_work(compare(with_work(profile(), WORK), with_work(profile(), head)))
    assert isinstance(work, m.ComparedWork)
    return work


def changed(**fields: object) -> m.CompiledWork:
    return msgspec.structs.replace(WORK, **fields)


def differing(work: m.ComparedWork) -> set[m.WorkAspect]:
    return {row.aspect for row in work.rows if row.differs is True}


def test_equal_work_differs_in_nothing() -> None:
    work = compared(WORK)

    assert not work.differs
    assert work.differences == ()
    assert not any(row.differs is True for row in work.rows)
    seen = {row.aspect for row in work.rows if row.differs is False}
    assert seen >= {*m.WorkAspect} - {
        m.WorkAspect.SYNCS,
        m.WorkAspect.CUDA_GRAPHS,
        m.WorkAspect.KERNELS,
    }


def test_lines_that_moved_and_names_are_no_difference() -> None:
    moved = tuple(
        msgspec.structs.replace(
            item, lines=tuple(msgspec.structs.replace(line, line=90) for line in item.lines)
        )
        for item in ITEMS
    )
    moved = (*moved[:3], m.WorkItem(text="EQUALS_MATCH: L['self'].gain == 2.0"), moved[4])

    assert not compared(changed(items=moved)).differs


@pytest.mark.parametrize(
    ("head", "aspect", "said", "line"),
    [
        pytest.param(
            changed(
                operators=(0, 1, 5),
                items=(
                    *ITEMS,
                    m.WorkItem(text="f32[8, 4].clone() -> f32[8, 4]", lines=(at(13),)),
                ),
                graphs=("other",),
            ),
            m.WorkAspect.OPERATORS,
            "+ f32[8, 4].clone() -> f32[8, 4]",
            13,
            id="operator",
        ),
        pytest.param(
            changed(
                operators=(0,),
                graphs=("other",),
            ),
            m.WorkAspect.OPERATORS,
            "- f32[8, 4].cos() -> f32[8, 4]",
            12,
            id="operator that is gone",
        ),
        pytest.param(
            changed(
                calls=(5, 5),
                items=(*ITEMS, m.WorkItem(text="cpp_fused_sin ba9876543210(_)", lines=(at(11),))),
            ),
            m.WorkAspect.CODE,
            "+ cpp_fused_sin ba9876543210, cpp_fused_sin ba9876543210 in place of "
            "cpp_fused_cos_sin 0123456789ab",
            11,
            id="lost fusion",
        ),
        pytest.param(
            changed(
                guards=(3, 4, 5),
                items=(*ITEMS, m.WorkItem(text="EQUALS_MATCH: G['SIZE'] == 7", lines=(at(14),))),
            ),
            m.WorkAspect.GUARDS,
            "+ guard G['SIZE'] == 7",
            14,
            id="guard",
        ),
        pytest.param(
            changed(items=(*ITEMS[:4], m.WorkItem(text=STATE.replace("false", "true")))),
            m.WorkAspect.SETTINGS,
            "setting allow_tf32: false -> true",
            None,
            id="setting",
        ),
        pytest.param(
            changed(eager=(("aten::mm(float32[9, 4], float32[4, 4])", 1.0),)),
            m.WorkAspect.EAGER,
            "aten::mm(float32[8, 4], float32[4, 4]): 1 -> 0 per step",
            None,
            id="another size in eager mode",
        ),
        pytest.param(
            changed(graphs=("other",)),
            m.WorkAspect.OPERATORS,
            "the same operators, connected otherwise",
            None,
            id="connected otherwise",
        ),
    ],
)
def test_a_difference_has_its_words_and_its_line(
    head: m.CompiledWork, aspect: m.WorkAspect, said: str, line: int | None
) -> None:
    work = compared(head)

    assert differing(work) == {aspect}
    told = work.differences[0]
    assert told.text == said
    assert (told.location and told.location.line) == line


@pytest.mark.parametrize(
    ("fields", "aspect"),
    [
        ({"bytes_per_step": 512.0}, m.WorkAspect.BYTES),
        ({"calls_per_step": 2.0}, m.WorkAspect.LAUNCHES),
        ({"flops_per_step": 1.0}, m.WorkAspect.FLOPS),
        ({"allocated_bytes": 0.0}, m.WorkAspect.BUFFERS),
    ],
)
def test_a_number_alone_is_a_difference(fields: dict[str, float], aspect: m.WorkAspect) -> None:
    assert differing(compared(changed(**fields))) == {aspect}


@pytest.mark.parametrize(
    "fields",
    [
        {"guards": m.Skipped("no guards")},
        {"calls": m.Skipped("no code")},
        {"bytes_per_step": m.Skipped("no step")},
        {"eager": m.Skipped("a mode of its own")},
    ],
)
def test_what_one_side_did_not_see_is_neither_equal_nor_different(
    fields: dict[str, m.Skipped],
) -> None:
    head = changed(**fields)
    given = compare(with_work(profile(), WORK), with_work(profile(), head))
    work = only_work(given)
    assert isinstance(work, m.ComparedWork)

    unseen = [row.name for row in work.rows if isinstance(row.differs, m.Skipped)]

    assert unseen
    assert not work.differs
    words = next(
        said for said in (given.verdict.text, *given.verdict.reasons) if "same work" in said
    )
    equal = len(work.rows) - len(unseen)
    assert f"as far as it was seen: {equal} of {len(work.rows)} things" in words
    assert words.endswith(f"not compared: {', '.join(unseen)}")


def test_without_the_work_of_a_side_nothing_is_said_of_it() -> None:
    given = compare(with_work(profile(), WORK), with_work(profile(), m.Skipped("texts are cut")))

    assert only_work(given) == m.Skipped("texts are cut")
    assert not any("work" in said for said in (given.verdict.text, *given.verdict.reasons))


BASE_TEXT = "".join(f"line {number}\n" for number in range(1, 20))
HEAD_TEXT = BASE_TEXT.replace("line 13\n", "y = x.clone()\n").replace("line 3\n", "# line 3\n")
CLONED = changed(
    operators=(0, 1, 5),
    items=(
        *ITEMS,
        m.WorkItem(text="f32[8].clone() -> f32[8]", lines=(at(13, "y = x.clone()"),)),
    ),
    graphs=("other",),
)


def with_text(side: m.Profile, text: str) -> m.Profile:
    source = m.ProjectSource(file=FILE, sha256=str(len(text)), text=text)
    environment = msgspec.structs.replace(side.environment, source_root="/work/project")
    return msgspec.structs.replace(side, sources=(source,), environment=environment)


def put_down(head: m.Profile, work: m.CompiledWork) -> m.ComparedWork:
    base = with_text(with_work(profile(), WORK), BASE_TEXT)
    found = only_work(compare(base, with_text(with_work(head, work), HEAD_TEXT)))
    assert isinstance(found, m.ComparedWork)
    return found


def test_a_difference_is_put_down_to_the_line_that_changed() -> None:
    (told,) = put_down(profile(), CLONED).differences

    assert told.changed is not None
    assert (told.changed.line, told.changed.text) == (13, "y = x.clone()")
    assert told.is_at_the_change


def test_what_shows_at_an_unchanged_line_keeps_its_own() -> None:
    items = (
        *ITEMS,
        m.WorkItem(
            text="f32[8].clone() -> f32[8]",
            lines=(msgspec.structs.replace(at(5), file="/work/project/other.py", function="g"),),
        ),
    )
    (told,) = put_down(profile(), msgspec.structs.replace(CLONED, items=items)).differences

    assert told.changed is None or told.changed.line == 13
    assert not told.is_at_the_change


def test_what_base_had_is_put_down_to_what_took_its_place() -> None:
    items = (ITEMS[0], msgspec.structs.replace(ITEMS[1], lines=(at(13),)), *ITEMS[2:])
    base = with_text(with_work(profile(), changed(items=items)), BASE_TEXT)
    head = with_text(with_work(profile(), changed(operators=(0,), graphs=("other",))), HEAD_TEXT)

    work = only_work(compare(base, head))
    assert isinstance(work, m.ComparedWork)
    (told,) = work.differences

    assert told.only_in_base
    assert told.changed is not None
    assert told.changed.line == 13


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            ['{"allow_tf32":false,"autocast_state":{"enabled":[false]}}'],
            ['{"allow_tf32":false,"autocast_state":{"enabled":[true]}}'],
            ["setting autocast_state.enabled: [false] -> [true]"],
        ),
        (['{"a":1.5}', '{"a":2}'], ['{"a":2}', '{"a":1.5}'], []),
        (['{"a":1}', '{"a":2}'], ['{"a":2}'], ["1 state of torch's settings, 2 states in base"]),
    ],
)
def test_settings_are_compared_as_states_in_any_order(
    before: list[str], after: list[str], told: list[str]
) -> None:
    def state(*texts: str) -> m.CompiledWork:
        items = tuple(
            m.WorkItem(text=f"GLOBAL_STATE: ___check_global_state() against {text}")
            for text in texts
        )
        return changed(items=(*ITEMS, *items), guards=(3, *range(5, 5 + len(texts))))

    given = compare(with_work(profile(), state(*before)), with_work(profile(), state(*after)))
    work = only_work(given)
    assert isinstance(work, m.ComparedWork)

    settings = [each for each in work.differences if each.aspect is m.WorkAspect.SETTINGS]
    assert [each.text for each in settings] == told


def test_an_operator_that_only_moved_is_not_told() -> None:
    items = tuple(m.WorkItem(text=name) for name in "abcde")

    base = changed(items=items, operators=(0, 1, 2, 3), graphs=("1",), guards=(), calls=())
    head = changed(items=items, operators=(3, 0, 1, 2, 4), graphs=("2",), guards=(), calls=())
    work = only_work(compare(with_work(profile(), base), with_work(profile(), head)))
    assert isinstance(work, m.ComparedWork)

    assert [each.text for each in work.differences] == ["+ e"]


@pytest.mark.parametrize("limited", [False, True])
def test_other_code_is_worse_only_where_there_is_a_limit(limited: bool) -> None:
    """It may be the better one."""
    items = (*ITEMS, m.WorkItem(text="cpp_fused_sin ba9876543210(_)"))
    budgets = {"generated code": 0.0} if limited else {}
    head = with_work(profile(), changed(items=items, calls=(5,)))

    given = compare(with_work(profile(), WORK), head, CompareSettings(budgets=budgets))
    assert given.comparison is not None
    (run,) = given.comparison.runs

    verdicts = [each.verdict for each in run.metrics if each.name == "generated code"]
    assert verdicts == [m.MetricVerdict.WORSE] * limited


def test_generated_code_with_a_limit_that_one_side_has_not_is_not_passed() -> None:
    settings = CompareSettings(budgets={"generated code": 0.0})
    head = with_work(profile(), changed(calls=m.Skipped("C++ wrapper")))

    given = compare(with_work(profile(), WORK), head, settings)

    assert given.exit_code == EXIT_INCONCLUSIVE
    assert "generated code" in " ".join((given.verdict.text, *given.verdict.reasons))


def test_in_another_environment_no_line_is_blamed() -> None:
    other = profile()
    environment = msgspec.structs.replace(other.environment, torch="9.9")
    head = with_work(
        msgspec.structs.replace(other, environment=environment),
        changed(operators=(0,), graphs=("other",)),
    )

    given = compare(with_text(with_work(profile(), WORK), BASE_TEXT), with_text(head, HEAD_TEXT))
    work = only_work(given)
    assert isinstance(work, m.ComparedWork)

    assert all(each.changed is None for each in work.differences)
    said = " ".join((given.verdict.text, *given.verdict.reasons))
    assert "so do the environments, which may be why" in said
