"""What limits a run: shares of its step that add up, and when the largest is not said to be it."""

from __future__ import annotations

import msgspec
import pytest

from kgprof import limits
from kgprof.analysis import analyse
from kgprof.analysis.verdict import fastest, verdict
from kgprof.model import (
    READS_ON_CPU,
    Bound,
    BoundTotal,
    Communication,
    DeviceIdle,
    HostSpan,
    HostTime,
    KernelBreakdown,
    KernelKind,
    KernelRow,
    LimitKind,
    LimitShare,
    Location,
    Roofline,
    RunLimits,
    RunPhase,
    RunPhaseTime,
    RunReport,
    ScriptAccount,
    ScriptRun,
    Skipped,
    Spread,
    WholeRun,
)
from tests.collectors.written_device import STEPS, steps, timed, traced, unlike_steps

LINE = Location(file="train.py", line=18)


def idle(**host_us: float) -> DeviceIdle:
    """Idle time of a window in which the GPU only waited for these spans of the CPU."""
    spans = tuple(HostSpan(name=name, total_us=us * STEPS) for name, us in host_us.items())
    host = sum(span.total_us for span in spans)
    return DeviceIdle(
        total_us=host,
        host_us=host,
        launch_us=0.0,
        unknown_us=0.0,
        edges_us=0.0,
        gaps=1,
        host_spans=spans,
    )


def report(
    *,
    step_us: float = 400.0,
    busy_us: float = 100.0,
    spread: float = 1.2,
    waited_for: DeviceIdle | Skipped | None = None,
    placed: dict[Bound, float] | None = None,
    exposed_us: float = 0.0,
) -> RunReport:
    """A run on a GPU with this step, this work in it, and these causes of its idle time."""
    (run,) = analyse(steps(step_us=step_us, kernels=10, kernel_us=busy_us / 10)).runs
    kernels = run.kernels
    assert isinstance(kernels, KernelBreakdown)
    if waited_for is not None:
        kernels = msgspec.structs.replace(kernels, idle=waited_for)
    if exposed_us:
        apart = Communication(count=1, total_us=0, busy_us=0, exposed_us=exposed_us * STEPS)
        kernels = msgspec.structs.replace(kernels, communication=apart)
    if placed is not None:
        totals = (BoundTotal(what=bound, total_us=us * STEPS) for bound, us in placed.items())
        roofline = Roofline(
            rule="",
            ceilings=(),
            without="",
            rows=(),
            rows_left_out=0,
            left_out_us=0,
            placed=tuple(totals),
            unplaced=(),
        )
        kernels = msgspec.structs.replace(kernels, roofline=roofline)
    step = run.step
    assert isinstance(step, Spread)
    step = msgspec.structs.replace(step, p10=step_us, p90=step_us * spread)
    return msgspec.structs.replace(run, kernels=kernels, step=step)


def judged(run: RunReport, waits: dict[Location | None, float] | None = None) -> RunLimits:
    by_kind = {(LimitKind.SYNC, line): us for line, us in (waits or {}).items()}
    result = limits.limits(run, by_kind)
    assert isinstance(result, RunLimits)
    assert sum(share.us for share in result.shares) == pytest.approx(result.step_us)
    assert sum(share.share for share in result.shares) == pytest.approx(1)
    return result


def leading(
    run: RunReport, waits: dict[Location | None, float] | None = None
) -> tuple[LimitKind, str] | None:
    share = judged(run, waits).leading
    return None if share is None else (share.limit, share.name)


@pytest.mark.parametrize(
    ("spans", "limit"),
    [
        pytest.param(
            {"aten::mm": 40, "aten::add": 40, "Torch-Compiled Region: 0/0": 40},
            (LimitKind.LAUNCHES, ""),
        ),
        pytest.param({"aten::cudnn_rnn": 90, "aten::mm": 10}, (LimitKind.HOST, "aten::cudnn_rnn")),
        pytest.param(
            {"aten::attend_backward": 40, "aten::attend_forward": 35, "aten::mm": 25},
            (LimitKind.HOST, "aten::attend_backward and aten::attend_forward"),
        ),
        pytest.param(
            {"aten::mean_backward": 45, "aten::mean": 45, "aten::mm": 10},
            (LimitKind.HOST, "aten::mean_backward and aten::mean"),
        ),
        pytest.param(
            {
                "(Python between traced operations)": 45,
                "(Python between traced operations) in a": 45,
            },
            (LimitKind.HOST, limits.PYTHON_BETWEEN),
        ),
        pytest.param({"cudaFree": 90, "aten::mm": 10}, (LimitKind.HOST, "cudaFree")),
        pytest.param(
            {"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 90, "aten::mm": 10},
            (LimitKind.INPUT, "DataLoader"),
        ),
        pytest.param(
            {"(between copies from pageable memory)": 90, "aten::mm": 10},
            (LimitKind.COPIES, ""),
        ),
    ],
)
def test_an_idle_gpu_is_limited_by_what_the_cpu_did_meanwhile(
    spans: dict[str, float], limit: tuple[LimitKind, str]
) -> None:
    assert leading(report(waited_for=idle(**spans))) == limit


def test_an_idle_gpu_that_waits_for_a_compilation_is_limited_by_nothing_else() -> None:
    run = report(waited_for=idle(**{"aten::cudnn_rnn": 90, "aten::mm": 10}))
    assert isinstance(run.kernels, KernelBreakdown)
    assert isinstance(run.kernels.host_time, HostTime)
    usual = msgspec.structs.replace(run.kernels.host_time, steps=STEPS - 1)
    compiling = msgspec.structs.replace(run.kernels, host_time=usual)

    found = judged(msgspec.structs.replace(run, kernels=compiling))

    assert found.undecided.startswith("torch compiles or records in a traced step")


def test_a_line_that_waits_for_half_of_the_step_is_the_limit() -> None:
    # given: 300 of 400 us idle; the CPU waits for 300 at one line, for at most 100 of GPU work
    found = judged(report(waited_for=idle(**{"aten::mm": 10.0, "aten::add": 10.0})), {LINE: 300.0})

    assert found.leading is not None
    assert (found.leading.limit, found.leading.location, found.leading.us) == (
        LimitKind.SYNC,
        LINE,
        200.0,
    )


def test_a_wait_that_both_passes_saw_counts_once() -> None:
    # given: 300 us idle; MEMORY saw 200 us of waits, and TRACE idle time only in the same wait and
    # in launches
    spans = {"cudaDeviceSynchronize": 150.0, "aten::mm": 75.0, "aten::add": 75.0}
    found = judged(report(waited_for=idle(**spans)), {LINE: 200.0})

    sums = {share.limit: share.us for share in found.by_kind}
    assert sums[LimitKind.SYNC] == pytest.approx(150.0)
    assert sums[LimitKind.LAUNCHES] == pytest.approx(150.0)


def test_a_wait_in_which_the_gpu_may_work_all_the_time_is_no_idle_time() -> None:
    # given: 300 us of GPU work, the CPU waits for 290 of it, and launches while the GPU is idle
    spans = {"aten::mm": 50.0, "aten::add": 50.0}
    found = judged(report(busy_us=300.0, waited_for=idle(**spans)), {LINE: 290.0})

    assert [share.us for share in found.shares if share.limit is LimitKind.SYNC] == []


def test_a_wait_that_only_the_trace_saw_has_no_line() -> None:
    # given: MEMORY knows the line of 50 us; TRACE saw 150
    spans = {"cudaDeviceSynchronize": 150.0, "aten::mm": 75.0, "aten::add": 75.0}
    found = judged(report(waited_for=idle(**spans)), {LINE: 50.0})

    lines = {share.location: share.us for share in found.shares if share.limit is LimitKind.SYNC}
    assert lines == {LINE: pytest.approx(50.0), None: pytest.approx(100.0)}


def test_the_lines_of_one_kind_count_together() -> None:
    # given: five lines wait 60 us each, 200 of it without GPU work, and one operator takes 100
    waits: dict[Location | None, float] = {
        Location(file="a.py", line=line): 60.0 for line in range(5)
    }
    found = judged(report(waited_for=idle(**{"aten::cudnn_rnn": 100.0})), waits)

    assert found.leading is not None
    assert (found.leading.limit, found.leading.location) == (LimitKind.SYNC, None)


def test_two_kinds_of_about_the_same_size_decide_nothing() -> None:
    spans = {"enumerate(DataLoader)#x": 50.0, "(outside any traced operation)": 45.0}

    assert "similar shares" in judged(report(waited_for=idle(**spans))).undecided


def test_a_gpu_that_is_mostly_idle_is_not_limited_by_its_kernels() -> None:
    # given: 45 % of the step is compute; the idle rest has three reasons of a fifth each
    spans = {
        "enumerate(DataLoader)#x": 1.0,
        "(outside any traced operation)": 1.0,
        "aten::a": 0.6,
        "aten::b": 0.6,
    }
    found = judged(report(busy_us=180.0, waited_for=idle(**spans), placed={Bound.COMPUTE: 180.0}))

    assert found.leading is None
    assert found.undecided == "the GPU is idle for 55 % of the step, for several reasons"


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (
            report(waited_for=idle(**{"aten::cudnn_rnn": 90, "aten::mm": 10})),
            "limited by host code (mostly aten::cudnn_rnn): 68 % of the 0.400 ms step",
        ),
        (
            report(step_us=300.0, busy_us=390.0, placed={Bound.COMPUTE: 390.0}),
            "limited by compute: 100 % of 0.390 ms of GPU work per step",
        ),
        (report(busy_us=390.0), ""),
    ],
)
def test_a_run_says_what_limits_it_where_that_is_decided(run: RunReport, words: str) -> None:
    limited = msgspec.structs.replace(run, limits=limits.limits(run, {}))

    assert limits.words(limited) == words


def test_without_timing_the_share_is_of_the_traced_step() -> None:
    run = report(waited_for=idle(**{"aten::cudnn_rnn": 90}))
    untimed = msgspec.structs.replace(run, step=Skipped(reason="no TIMING"))
    limited = msgspec.structs.replace(untimed, limits=limits.limits(untimed, {}))

    assert limits.words(limited).endswith("ms under torch.profiler)")


def test_a_verdict_names_the_limit_of_its_only_run_before_what_to_do() -> None:
    profile = analyse(steps(step_us=400.0, kernels=10, kernel_us=10.0))
    (run,) = profile.runs

    words = "limited by host code (mostly Python between operators): 72 % of the 0.400 ms step"
    assert limits.words(run) == words
    assert profile.verdict.text == (
        "fused.default takes 0.400 ms/step; "
        "limited by host code (mostly Python between operators): 72 % of the step"
    )


def test_a_kernel_that_takes_most_of_the_step_is_named_where_nothing_limits_it() -> None:
    profile = analyse(steps(step_us=800.0, kernels=10, kernel_us=60.0))

    assert profile.verdict.text == (
        "fused.default takes 0.800 ms/step; k does 100 % of the GPU's work"
    )
    assert limits.kernel_words(report(busy_us=190.0)) == ""


def test_the_limit_of_a_run_that_is_compared_by_its_evaluations_names_its_step() -> None:
    run = report(waited_for=idle(**{"aten::cudnn_rnn": 90, "aten::mm": 10}))
    found = msgspec.structs.replace(run, limits=limits.limits(run, {}))

    assert limits.words(found).endswith("of the 0.400 ms step")
    assert limits.words(found, says_step=True).endswith("of the step")


def test_waits_account_for_no_more_than_the_idle_time() -> None:
    # given: the CPU waits 490 us under instruments, and the GPU is idle for 300 of a step
    found = judged(report(), {LINE: 490.0})

    assert [(share.limit, share.us) for share in found.shares if share.limit is LimitKind.SYNC] == [
        (LimitKind.SYNC, pytest.approx(300.0))
    ]


@pytest.mark.parametrize(
    ("placed", "limit"),
    [
        ({Bound.COMPUTE: 300.0, Bound.MEMORY: 80.0}, LimitKind.COMPUTE),
        ({Bound.COMPUTE: 80.0, Bound.MEMORY: 300.0}, LimitKind.MEMORY),
        ({Bound.LATENCY: 300.0}, LimitKind.SMALL_KERNELS),
    ],
)
def test_a_busy_gpu_is_limited_by_where_its_kernels_lie_in_the_roofline(
    placed: dict[Bound, float], limit: LimitKind
) -> None:
    assert leading(report(busy_us=390.0, placed=placed)) == (limit, "")


BATCH_NORM = "void at::native::batch_norm_backward_kernel<c10::BFloat16, float>(long)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
FOREACH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<float>(long)"
TO_NHWC = "void cudnn::engines_precompiled::nchwToNhwcKernel<float>(long)"


@pytest.mark.parametrize(
    ("rows", "limit"),
    [
        # given: of 390 us of work, these kernels by kind, generator and name
        (
            [
                (KernelKind.NORMALISATION, "aten", BATCH_NORM, 200),
                (KernelKind.COPY, "library", TO_NHWC, 80),
            ],
            (LimitKind.UNFUSED, "normalisation"),
        ),
        (
            [(KernelKind.POINTWISE, "aten", ADD, 150), (KernelKind.COPY, "library", TO_NHWC, 150)],
            (LimitKind.UNFUSED, ""),
        ),
        ([(KernelKind.POINTWISE, "aten", FOREACH, 380)], None),
        ([(KernelKind.POINTWISE, "triton", "triton_poi_fused_add_0", 380)], None),
        ([(KernelKind.GEMM, "library", "sm90_xmma_gemm", 380)], None),
    ],
)
def test_kernels_of_eager_code_that_compiling_fuses_limit_a_busy_gpu(
    rows: list[tuple[KernelKind, str, str, float]], limit: tuple[LimitKind, str] | None
) -> None:
    run = report(busy_us=390.0)
    assert isinstance(run.kernels, KernelBreakdown)
    kept = tuple(
        KernelRow(
            name=name,
            kind=kind,
            generator=generator,
            count=1,
            total_us=us * STEPS,
            share=us / 390,
            min_us=us,
            median_us=us,
            max_us=us,
        )
        for kind, generator, name, us in rows
    )
    kernels = msgspec.structs.replace(run.kernels, rows=kept)

    assert leading(msgspec.structs.replace(run, kernels=kernels)) == limit


def test_a_busy_gpu_without_a_roofline_is_not_decided() -> None:
    found = judged(report(busy_us=390.0))

    assert found.leading is None
    assert "unexplained" in found.undecided


def test_a_busy_gpu_whose_limit_is_not_decided_is_given_with_its_share() -> None:
    busy = analyse(steps(step_us=100.0, kernels=10, kernel_us=9.7)).verdict.text
    idle_text = analyse(steps(step_us=400.0, kernels=10, kernel_us=10.0)).verdict.text

    assert busy.startswith("fused.default takes 0.100 ms/step; the GPU works 97 % of the step")
    assert "the GPU works" not in idle_text


def busy_in_the_trace(step: Spread | Skipped) -> str:
    """The traced steps take 110 us each, and the GPU works in 100 of them."""
    run = report(step_us=400.0, busy_us=100.0, spread=3.0)
    assert isinstance(run.kernels, KernelBreakdown)
    kernels = msgspec.structs.replace(run.kernels, window_us=110.0 * STEPS)
    run = msgspec.structs.replace(run, kernels=kernels, step=step)
    found = limits.limits(run, {}, "the traced steps are shorter than most")
    run = msgspec.structs.replace(run, limits=found)
    return verdict((run,), (), baseline=None, interrupted=False).text


def test_a_gpu_that_is_busy_in_the_traced_steps_need_not_be_so_in_the_median_one() -> None:
    step = report(step_us=400.0).step

    assert "the GPU works" not in busy_in_the_trace(step)
    untimed = busy_in_the_trace(Skipped(reason="not measured"))
    assert "the GPU works 91 % of the traced step" in untimed


def test_collectives_that_nothing_hides_are_communication() -> None:
    assert leading(report(busy_us=390.0, exposed_us=250.0)) == (LimitKind.COMMUNICATION, "")


def test_steps_that_vary_more_than_twofold_decide_nothing_while_the_gpu_waits() -> None:
    recording = timed(steps(step_us=400.0, kernels=10, kernel_us=10.0), (200.0, 400.0, 800.0))
    found = analyse(recording).runs[0].limits

    assert isinstance(found, RunLimits)
    assert found.leading is None
    assert "varied" in found.undecided


def test_a_mean_of_unlike_traced_steps_decides_nothing() -> None:
    # given: 115 us of work on average, 20 in the median step, and a median step of 125 us in TIMING
    (run,) = analyse(traced(unlike_steps(20.0, 20.0, 20.0, 400.0), step_us=125.0)).runs

    assert isinstance(run.limits, RunLimits)
    assert "the traced steps differ" in run.limits.undecided
    assert (limits.step_words(run), limits.is_gpu_bound(run)) == ("", False)


def test_traced_calls_in_another_kind_of_step_have_no_share_of_it() -> None:
    """An iteration of 50 ms that makes calls of 400 us, which were traced."""
    whole = steps(step_us=400.0, kernels=10, kernel_us=10.0)
    (record,) = whole.runs
    script = ScriptRun(
        step="an epoch",
        traced="a call of f",
        steps=8,
        counted={},
    )
    record = msgspec.structs.replace(record, script=script)

    for each in (whole, timed(whole, (5e4,) * 9)):
        (timed_run,) = each.runs
        record = msgspec.structs.replace(record, timing=timed_run.timing)
        profile = analyse(msgspec.structs.replace(whole, runs=(record,)))
        (run,) = profile.runs
        assert isinstance(run.limits, RunLimits)
        assert run.limits.undecided == (
            "a step of TRACE is a call of f, a step of the run an epoch"
        )
        assert limits.step_words(run) == ""
        assert not any("% of the step" in each.message for each in profile.findings)
        assert not any("idle" in each.message for each in profile.findings)


def test_a_read_on_the_cpu_is_no_sync() -> None:
    spans = {READS_ON_CPU: 90, "aten::mm": 10, "aten::add": 10}

    assert leading(report(waited_for=idle(**spans))) == (LimitKind.LAUNCHES, "")


def test_reads_on_the_cpu_that_the_listener_makes_long_are_no_limit_of_a_traced_step() -> None:
    run = report(waited_for=idle(**{READS_ON_CPU: 90, "aten::mm": 40, "aten::add": 40}))
    untimed = msgspec.structs.replace(run, step=Skipped(reason="no TIMING"))

    found = limits.limits(untimed, {})

    assert isinstance(found, RunLimits)
    assert (found.leading, found.undecided.partition(" % ")[2]) == (
        None,
        "of the step is unexplained (mostly reads of tensors on the CPU)",
    )


def test_operators_that_launch_nothing_are_no_launches() -> None:
    spans = [HostSpan(name=f"aten::{name}", total_us=30.0, on_cpu=True) for name in "abc"]
    waited_for = msgspec.structs.replace(idle(**{"aten::mm": 10}), host_spans=tuple(spans))

    assert leading(report(waited_for=waited_for)) == (LimitKind.HOST, limits.LAUNCH_NOTHING)


def test_an_optimizers_own_python_is_no_launch() -> None:
    own = f"{limits._PYTHON[0]} in Optimizer.step#AdamW8bit.step"

    found = leading(report(waited_for=idle(**{own: 60, "aten::mm": 10, "aten::add": 10})))

    assert found == (LimitKind.HOST, "Python of AdamW8bit.step")


def test_steps_that_vary_do_not_matter_where_the_gpu_is_busy_throughout() -> None:
    # The CPU runs ahead, and waits where the queue is full: its own steps differ, the GPU's do not.
    found = report(busy_us=390.0, spread=3.0, placed={Bound.COMPUTE: 300.0})

    assert leading(found) == (LimitKind.COMPUTE, "")


def test_many_equal_shares_have_no_leader() -> None:
    spans = {
        "enumerate(DataLoader)#x": 10,
        "(outside any traced operation)": 10,
        "aten::a": 5,
        "aten::b": 5,
    }
    found = judged(report(busy_us=100.0, waited_for=idle(**spans)), {LINE: 80.0})

    assert found.leading is None


def test_overlapping_steps_are_as_long_as_their_work() -> None:
    found = judged(report(step_us=300.0, busy_us=390.0, placed={Bound.COMPUTE: 390.0}))

    assert found.step_us == pytest.approx(390.0)


def test_a_run_without_traced_steps_has_no_limits() -> None:
    run = report()
    assert isinstance(run.kernels, KernelBreakdown)
    unmarked = msgspec.structs.replace(run.kernels, steps=0)
    on_cpu = msgspec.structs.replace(run.kernels, device="cpu")

    for kernels in (Skipped(reason="no TRACE"), unmarked, on_cpu):
        without = msgspec.structs.replace(run, kernels=kernels)
        assert isinstance(limits.limits(without, {}), Skipped)


# ---------------------------------------------------------------- the program's own clock


def timing_itself(us: float) -> RunLimits:
    """A step of 400 us with 100 us of GPU work, for which and so long the program's clock waits."""
    spans = {"aten::mm": 50.0, "aten::add": 50.0, "aten::sum": 50.0}
    found = limits.limits(report(waited_for=idle(**spans)), {(LimitKind.CLOCK, LINE): us + 100.0})
    assert isinstance(found, RunLimits)
    return found


def test_a_clock_is_not_what_limits_a_program_however_long_it_waits() -> None:
    assert timing_itself(200.0).leading is None
    assert timing_itself(200.0).undecided == "the program's own clock waits for 50 % of the step"


def test_a_clock_does_not_stand_beside_what_limits_a_program() -> None:
    # given: 160 us of launches, and 140 in the clock, which would be similar shares
    found = timing_itself(140.0)

    assert found.leading is not None
    assert found.leading.limit is LimitKind.LAUNCHES


# ---------------------------------------------------------------- a whole run


def whole(**seconds: float) -> WholeRun:
    """A script of 400 steps, by what its time went into."""
    total = sum(seconds.values())
    shares = [
        LimitShare(limit=LimitKind[kind], us=1e6 * took, share=took / total)
        for kind, took in seconds.items()
    ]
    shares.sort(key=lambda share: -share.us)
    return WholeRun(total_us=1e6 * total, steps=400, shares=tuple(shares))


def test_the_line_that_is_named_is_the_one_of_compiling_again() -> None:
    found = whole(COMPILING=5.0, RECOMPILING=6.0, STEPS=1.0)
    placed = [msgspec.structs.replace(each, location=LINE) for each in found.shares]
    run = msgspec.structs.replace(
        report(), whole=msgspec.structs.replace(found, shares=tuple(placed))
    )

    assert limits.places(run) == [LINE]
    assert limits.words(run).count(f"mostly at train.py:{LINE.line}") == 1
    assert LINE not in limits.places(report())


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            whole(COMPILING=5.0, RECOMPILING=6.0, RECORDING=2.0, STEPS=1.0),
            "limited by compiling again (43 % of the 14.0 s of its 400 steps, with cold compile "
            "caches) and recording CUDA graphs (14 %)",
        ),
        (
            whole(COMPILING=1.0, RECORDING=8.0, STEPS=1.0),
            "limited by recording CUDA graphs (80 % of the 10.0 s of its 400 steps, with cold "
            "compile caches)",
        ),
        (
            whole(COMPILING=6.0, RECOMPILING=5.0, STEPS=1.0),
            "limited by compiling again (42 % of the 12.0 s of its 400 steps, with cold compile "
            "caches)",
        ),
        # what is paid once in every run is no limit, nor what is less than the steps
        (whole(COMPILING=90.0, STEPS=1.0), ""),
        (whole(COMPILING=5.0, RECOMPILING=2.0, STEPS=3.0), ""),
        # nor what is less than compiling for the first time
        (whole(COMPILING=8.0, RECOMPILING=2.75, STEPS=2.7), ""),
    ],
)
def test_a_run_is_limited_by_what_is_paid_once_if_that_is_most_of_it(
    found: WholeRun, words: str
) -> None:
    # given: a run whose step is not decided
    run = msgspec.structs.replace(report(busy_us=390.0), whole=found)
    limited = msgspec.structs.replace(run, limits=limits.limits(run, {}))

    assert limits.words(limited) == words


@pytest.mark.parametrize(
    ("usual_us", "why"),
    [
        (100.0, "and the median step of the run 0.100 ms"),
        # the GPU works in most of it, and is idle in most of the traced one
        (390.0, "a step takes 0.390 ms without torch.profiler, and has 0.200 ms of GPU work"),
    ],
)
def test_traced_steps_that_took_longer_than_the_others_stand_for_none(
    usual_us: float, why: str
) -> None:
    run = report(busy_us=200.0, waited_for=idle(**{"aten::cudnn_rnn": 90}))
    assert not isinstance(run.compile, Skipped)
    usual = msgspec.structs.replace(run.step, median=usual_us)
    untimed = msgspec.structs.replace(
        run,
        step=Skipped(reason="no TIMING"),
        compile=msgspec.structs.replace(run.compile, steady=usual),
    )

    found = judged(untimed)

    assert found.leading is None
    assert found.undecided.endswith(why)


def test_steps_that_the_cpu_starts_faster_than_the_gpu_does_them_have_no_step_time() -> None:
    """A benchmark that starts calls and waits for none: their times have none of the GPU's work."""
    run = report(step_us=100.0, busy_us=390.0, placed={Bound.MEMORY: 390.0})
    calls = ScriptRun(step="a call of a compiled function", steps=29, counted={})
    script = msgspec.structs.replace(run, script=calls)
    both = [msgspec.structs.replace(each, limits=limits.limits(each, {})) for each in (run, script)]

    of_workload, of_script = (fastest([each], None).text for each in both)

    assert of_workload.endswith("takes 0.100 ms/step")
    assert of_script.endswith(
        "step time not decided: the CPU starts one every 0.100 ms, and a traced one has 0.390 ms "
        "of GPU work"
    )
    assert limits.words(both[1]) == ""
    assert not limits.is_gpu_bound(both[1])


@pytest.mark.parametrize(
    ("steps_us", "under_listeners", "is_ahead"),
    [(29 * 170.0, False, True), (29 * 170.0, True, False), (29 * 150.0, False, False)],
)
def test_work_that_is_a_little_longer_than_the_step_is_ahead_where_all_steps_take_as_long(
    steps_us: float, under_listeners: bool, is_ahead: bool
) -> None:
    calls = ScriptRun(step="a call of a compiled function", steps=29, counted={})
    run = report(step_us=100.0, busy_us=160.0, placed={Bound.MEMORY: 160.0})
    assert isinstance(run.step, Spread)
    account = ScriptAccount(
        total_us=steps_us,
        phases=(RunPhaseTime(RunPhase.STEPS, steps_us, 1.0),),
        under_listeners=under_listeners,
    )
    step = msgspec.structs.replace(run.step, samples=29)
    run = msgspec.structs.replace(run, script=calls, step=step, account=account)

    found = limits.starts_ahead(run, limits.limits(run, {}))

    assert bool(found) is is_ahead
