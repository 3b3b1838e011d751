"""Profiles made by hand, one for each state that a report can be in. Every figure is invented."""

from __future__ import annotations

import itertools

import msgspec

from kgprof import collectors
from kgprof.analysis import trace_diff
from kgprof.compare.flame_diff import flame_difference
from kgprof.judge import APART
from kgprof.measures.times import throughput
from kgprof.model import (
    PROFILE_SCHEMA_VERSION,
    AcceptedFinding,
    AcceptedStatus,
    BoundTotal,
    BreakEven,
    BudgetCheck,
    BudgetStatus,
    Cause,
    CauseKind,
    Ceiling,
    ChangedFact,
    ChecklistItem,
    ComparedFinding,
    ComparedMetric,
    ComparedSide,
    Comparison,
    Compilation,
    CompileStages,
    CompileSummary,
    Coverage,
    CoverageStatus,
    DeviceIdle,
    Economics,
    Environment,
    Evaluation,
    Exit,
    FailOn,
    Finding,
    FindingCost,
    FindingStatus,
    Gate,
    HolisticCall,
    HolisticCheck,
    HolisticFigure,
    HostBreakdown,
    HostRow,
    HostSpan,
    HostTime,
    Judged,
    KernelBreakdown,
    KernelKind,
    KernelLaunches,
    KernelRow,
    KindTotal,
    Lane,
    LaunchQueue,
    Level,
    Location,
    LogExcerpt,
    MachineSpeed,
    MemoryPeaks,
    MemorySummary,
    MetricVerdict,
    NotLookedFor,
    ObserverCost,
    Omission,
    Options,
    PassName,
    PhaseChange,
    Presence,
    ProcessSteps,
    Profile,
    Roofline,
    Rounds,
    RunAgreement,
    RunComparison,
    RunKey,
    RunReport,
    Skipped,
    SpanTotal,
    Speedup,
    Spread,
    StepPart,
    StepSeries,
    StepTimeline,
    StrategyPlan,
    TimeOf,
    TraceDifference,
    TradeOff,
    Undecided,
    Verdict,
    VerdictStatus,
    Witness,
)
from kgprof.reading.link_prediction import UNIT, CandidateResults, CapCounters, RankMetrics
from tests.record import handmade
from tests.render.flames import SLOWER, flame

# What a renderer must let through as nothing but text.
HOSTILE = (
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "<!-- ]]> </style><style>*{display:none}</style>",
    "{{ 7*7 }}{% raw %}",
    "line\u2028separator\u2029and\x00nul\x1b[31mansi\x07",
    "\u202egnp.exe\u202c bidi \u2066x\u2069",
    "::error file=a.py,line=1::pwned\n::warning::two",
    "| pipe | `tick` ``two`` **bold** [a](javascript:window.pwned=1) @someone #1\n# heading\n---",
    "javascript:window.pwned=1",
    "\"'&amp;&lt;=1+1\t\r\nend",
    "x" * 10_000,
    "\u65e5\u672c\u8a9e \U0001f525 \u0645\u0631\u062d\u0628\u0627",
)

EAGER = RunKey(strategy="batched", mode="eager")
KEYS = (
    EAGER,
    RunKey(strategy="batched", mode="default"),
    RunKey(strategy="torch_cond", mode="eager"),
    RunKey(strategy="torch_cond", mode="default"),
    RunKey(strategy="fused", mode="eager"),
    RunKey(strategy="fused", mode="default"),
)
_STEP_US = dict(zip(KEYS, (5210.0, 2930.0, 5480.0, 1840.0, 4990.0, 1510.0), strict=True))

CPU = Environment(
    kgprof="0.1.0",
    python="3.11.7",
    torch="2.13.0+cpu",
    triton=Skipped(reason="not installed"),
    cuda=Skipped(reason="torch was built without CUDA"),
    driver=Skipped(reason="no GPU"),
    device_name="Invented 9000 @ 3.1 GHz",
    cpu_name="Invented 9000 @ 3.1 GHz",
    cpu_count=2,
    torch_threads=2,
    memory_bytes=24 * 2**30,
    platform="Linux-6.1-x86_64",
    compiler="g++ 12.2.0",
    git_commit="0123456789abcdef0123456789abcdef01234567",
    git_dirty=True,
    flags={"TORCHINDUCTOR_CACHE_DIR": "/tmp/kgprof-cache"},
)
CUDA = msgspec.structs.replace(
    CPU,
    torch="2.11.0+cu130",
    triton="3.6.0",
    cuda="13.0",
    driver="580.65.06",
    device_name="NVIDIA H200",
    cpu_count=16,
    torch_threads=16,
    git_dirty=False,
)


def clean() -> Profile:
    """Six runs on a CPU, all well: what `make profile` should give."""
    return _profile(tuple(_run(key) for key in KEYS), CPU, "cpu")


def cuda() -> Profile:
    """Six runs on a GPU, with kernels of every generator."""
    return _profile(tuple(_run(key, device="cuda") for key in KEYS), CUDA, "cuda")


def dead() -> Profile:
    """torch_cond.default raised while it compiled; one run was killed by the time limit during
    TRACE."""
    runs = []
    for key in KEYS:
        run = _run(key)
        if key.slug == "torch_cond.default":
            run = _lost(
                key,
                "raised",
                "compile",
                "AssertionError: expected size 256==256, stride 2176==2160 at dim=0",
            )
        if key.slug == "batched.default":
            ended = Exit(
                outcome="timed-out", message="no end within 900 s", during="trace", elapsed_s=900.0
            )
            gone = Skipped(reason="the run timed out during trace: no end within 900 s")
            run = msgspec.structs.replace(run, exit=ended, kernels=gone, host=gone, agreement=gone)
        runs.append(run)
    omissions = tuple(
        Omission(what=what, reason="the run raised during compile: AssertionError", run=KEYS[3])
        for what in (
            "COMPILE pass",
            "TIMING pass",
            "TRACE pass",
            "HOST pass",
            "KERNELS pass",
            "evaluation",
        )
    )
    verdict = Verdict(
        status=VerdictStatus.FAILED,
        text=(
            "torch_cond.default raised during COMPILE: AssertionError: expected size "
            "256==256, stride 2176==2160"
        ),
        reasons=(
            "batched.default timed out during TRACE",
            "fused.default is the fastest: 3.45x as fast as batched",
        ),
    )
    profile = _profile(tuple(runs), CPU, "cpu")
    return msgspec.structs.replace(profile, verdict=verdict, omissions=omissions, exit_code=4)


def findings() -> Profile:
    """Results that differ, work unfinished, and a note: every level on one page."""
    different = RunAgreement(
        verdict="different",
        compared=5040,
        differing=12,
        near_ties=3,
        reference_compared=200,
        reference_differing=1,
        reference_near_ties=0,
        note="float64, logits rounded at 1e-9",
    )
    runs = [_run(key) for key in KEYS]
    runs[3] = msgspec.structs.replace(runs[3], agreement=different)
    unfinished = handmade.counted(_evaluation(), unfinished=40, truncated=600)
    missing = Skipped(reason="40 of 5,040 candidates are unfinished")
    runs[5] = msgspec.structs.replace(runs[5], evaluation=unfinished, per_unit=missing)
    found = (
        _finding("KGP501", Level.ERROR, KEYS[3], "12 of 5,040 results differ from batched.eager"),
        _finding("KGP502", Level.ERROR, KEYS[5], "40 of 5,040 candidates are unfinished"),
        _finding(
            "KGP504", Level.WARNING, KEYS[1], "mode default was requested, but nothing was compiled"
        ),
        _finding(
            "KGP504",
            Level.NOTE,
            None,
            "nothing was compiled in this run; its times are those of eager code",
        ),
    )
    net = "net = torch.compile(net)  # in the script, before the first step"
    found = (*found[:-1], msgspec.structs.replace(found[-1], fix=net))
    verdict = Verdict(
        status=VerdictStatus.FAILED, text=found[0].alone, reasons=tuple(f.alone for f in found[1:])
    )
    profile = _profile(tuple(runs), CPU, "cpu")
    return msgspec.structs.replace(profile, verdict=verdict, findings=found)


def as_is() -> Profile:
    """A user's own callable: one run, no evaluation, no baseline, nothing compiled, a trace without
    steps."""
    key = RunKey(strategy="train_step", mode="as-is")
    none = Skipped(reason="the workload has no whole evaluation")
    kernels = kernels_of(key, "cpu")
    run = msgspec.structs.replace(
        _run(KEYS[0]),
        key=key,
        is_baseline=False,
        evaluation_time=none,
        per_unit=none,
        evaluation=none,
        speedup=Skipped(reason="no run is declared as the baseline"),
        agreement=Skipped(reason="the workload does not compare its results"),
        kernels=msgspec.structs.replace(kernels, steps=0, warnings=("the trace marks no steps",)),
        notes=("the first step was left out of the samples: it held a compilation",),
    )
    note = _finding(
        "KGP504",
        Level.NOTE,
        None,
        "nothing was compiled in this run; its times are those of eager code",
    )
    verdict = Verdict(
        status=VerdictStatus.OK, text="train_step.as-is takes 5.21 ms/step", reasons=(note.alone,)
    )
    profile = _profile((run,), CPU, "cpu")
    return msgspec.structs.replace(
        profile, workload="train.py:train_step", baseline=None, verdict=verdict, findings=(note,)
    )


def skipped() -> Profile:
    """Two runs of which nothing is known, an environment of which little is."""
    runs = tuple(_lost(key, "killed", "compile", "SIGKILL") for key in KEYS[:2])
    unknown = Skipped(reason="not found")
    environment = msgspec.structs.replace(
        CPU, compiler=unknown, git_commit=unknown, git_dirty=unknown, flags={}
    )
    profile = _profile(runs, environment, "cpu")
    return msgspec.structs.replace(
        profile,
        baseline=None,
        vector_isa_probe_s=Skipped(reason="no C++ compiler"),
        verdict=Verdict(
            status=VerdictStatus.FAILED, text="nothing was measured: no run has a time"
        ),
        findings=(
            _finding("KGP504", Level.ERROR, None, "nothing was measured: no run has a time"),
        ),
        omissions=tuple(
            Omission(what=what, reason="the run was killed during compile: SIGKILL", run=run.key)
            for run in runs
            for what in ("COMPILE pass", "TIMING pass", "TRACE pass", "HOST pass")
        ),
        exit_code=4,
    )


def empty() -> Profile:
    """Interrupted before the first run."""
    verdict = Verdict(status=VerdictStatus.INCONCLUSIVE, text="interrupted before all was measured")
    return msgspec.structs.replace(
        _profile((), CPU, "cpu"), verdict=verdict, baseline=None, exit_code=130
    )


def watched() -> Profile:
    """Reads, moving buffers, memory, the checklist and a trade-off: what the MEMORY pass adds to
    `clean`."""
    branch = Location(
        file="/src/policy.py", line=77, function="choose", text="        if candidates.any():"
    )
    reads = tuple(
        Finding(
            rule="KGP201",
            level=Level.WARNING,
            message="Tensor.item reads 1 value a step",
            run=key,
            location=Location(
                file=f"/src/part_{i // 4}.py",
                line=10 + i,
                function="step",
                text=f"    n{i} = x.item()",
            ),
            count=17 * (1 + i % 3),
            fingerprint=f"read{i:03d}",
        )
        for key in (KEYS[1], KEYS[3])
        for i in range(11)
    )
    copied = Finding(
        rule="KGP305",
        level=Level.WARNING,
        message="3.0 MiB of 2 inputs would be copied in every replay",
        run=KEYS[3],
        location=branch,
        count=0,
        fingerprint="copied",
        related=(
            Location(
                file="/src/queue.py",
                line=12,
                function="refill",
                text="self.slots = torch.cat(parts)",
            ),
        ),
        detail="slots: a new address in each of 17 calls\nfilled: a new address in 9 of 17 calls",
        cost=FindingCost(
            value=41.5,
            unit="us/step",
            what="copies before each replay",
            measured_in=(PassName.TRACE,),
            samples=20,
        ),
    )
    runs = tuple(
        msgspec.structs.replace(
            _run(key),
            memory=_memory(key),
            rounds=_rounds(_STEP_US[key]),
            series=_series(_STEP_US[key], processes=3),
            economics=_economics(key),
            observers=(
                *_run(key).observers,
                ObserverCost(observer=PassName.MEMORY, ratio=1.9, samples=17),
            ),
        )
        for key in KEYS
    )
    profile = _profile(runs, msgspec.structs.replace(CPU, source_root="/src"), "cpu")
    return msgspec.structs.replace(
        profile, findings=(*reads, copied), checklist=_checklist(), trade_offs=_trade_offs(branch)
    )


def gate() -> Profile:
    """check-graphs: a budget exceeded, one not observed, two held; a finding accepted, an entry
    expired, a note."""
    keys = KEYS[1:4:2]
    untimed = Skipped(reason="only the COMPILE pass was requested")
    runs = tuple(
        msgspec.structs.replace(
            _run(key),
            step=untimed,
            evaluation_time=untimed,
            per_unit=untimed,
            speedup=untimed,
            evaluation=untimed,
            agreement=untimed,
            compared_with=None,
            kernels=untimed,
            host=untimed,
            observers=(ObserverCost(observer=PassName.COMPILE, ratio=untimed, samples=17),),
        )
        for key in keys
    )
    found = (
        _broken(keys[0], 41, ""),
        _broken(keys[1], 41, ""),
        _broken(keys[0], 58, "ada, until 2027-01-31: see #12"),
    )
    note = _finding(
        "KGP103", Level.NOTE, keys[1], "derive recompiled 2 times in step 1, during warm-up"
    )
    text = "gate failed: batched.default: 1 over the budget of 0 graph-breaks"
    profile = _profile(runs, msgspec.structs.replace(CPU, source_root="/src"), "cpu")
    return msgspec.structs.replace(
        profile,
        options=Options(passes=(PassName.COMPILE,)),
        command=("kgprof", "check-graphs", "linkpred"),
        baseline=None,
        exit_code=1,
        verdict=Verdict(status=VerdictStatus.FAILED, text=text),
        findings=(*found, note),
        gate=Gate(
            fail_on=FailOn.ERROR,
            backend="inductor",
            budgets=(
                _budget("skipped-frames", keys[0], 0.0, 0.0, 0, "held"),
                _budget("graph-breaks", keys[0], 0.0, 1.0, 1, "exceeded"),
                _budget("graph-breaks", keys[1], 2.5, 1.0, 0, "held"),
                _budget(
                    "cudagraph-skips", keys[1], 0.0, Skipped(reason="a CPU run"), 0, "not observed"
                ),
            ),
            accepted=(
                _accepted("src/step.py", "see #12", "2027-01-31", "used", 1),
                _accepted("src/old.py", "gone soon", "2026-01-31", "expired", 0),
            ),
            failing=(0,),
            notes=("the records of one run were cut",),
        ),
    )


def comparison() -> Profile:
    """Slower and with new findings: every verdict, every cause, every status of a finding, one run
    on one side."""
    return _compared(
        watched(),
        "failed",
        "worse: batched.default takes 12.4 % longer (41.2 against 36.7 ms/step)",
    )


def other_machine() -> Profile:
    """Environments that differ: no time is compared, and the new findings are told all the same."""
    found = _compared(
        watched(), "inconclusive", "times were not compared: another GPU; 2 new findings"
    )
    assert found.comparison is not None
    changes = (
        ChangedFact(name="GPU", base="Invented 9000", head="Invented 9001"),
        ChangedFact(name="flag TORCH_LOGS", base="not set", head="+dynamo"),
    )
    unlike = msgspec.structs.replace(
        found.comparison, environment=changes, comparable=False, causes=(), runs=()
    )
    return msgspec.structs.replace(found, comparison=unlike, exit_code=6)


def hostile_comparison() -> Profile:
    return _poisoned(comparison())


def hostile() -> Profile:
    """Every string of every part is one that tries to be more than text."""
    told, seen = findings(), watched()
    runs = tuple(
        msgspec.structs.replace(
            run,
            memory=seen.runs[0].memory,
            holistic=_holistic(run.key),
            rounds=seen.runs[0].rounds,
            economics=seen.runs[-1].economics,
        )
        for run in told.runs
    )
    broken = (_broken(KEYS[1], 41, ""), _broken(KEYS[1], 58, "ada, until 2027-01-31: see #12"))
    return _poisoned(
        msgspec.structs.replace(
            told,
            runs=runs,
            findings=(*told.findings, *broken, seen.findings[-1]),
            checklist=seen.checklist,
            trade_offs=seen.trade_offs,
        )
    )


def hostile_gate() -> Profile:
    return _poisoned(gate())


def commanding(commands: tuple[str, ...]) -> Profile:
    """Every string of it is one of these."""
    return _poisoned(findings(), commands)


def _poisoned(profile: Profile, hostile: tuple[str, ...] = HOSTILE) -> Profile:
    texts = iter(hostile * 10_000)
    numbers = itertools.count()

    def poisoned(value: object, name: str = "") -> object:
        # These are words of the model, not strings from outside.
        if name in (
            "kind",
            "verdict",
            "level",
            "status",
            "outcome",
            "measured_in",
            "observer",
            "better",
            "time_of",
            "fail_on",
        ):
            return value
        if name in ("cause", "time_of", "undecided"):
            return value
        if name in (
            "created_utc",
            "kgprof_version",
            "unit",
            "basis",
            "device",
            "fused_kinds",
            "passes",
        ):
            return value
        if name == "accepted" and value == "":
            return value  # nobody accepts it: that is a state, not a text
        if isinstance(value, str):
            text = next(texts)
            if name != "strategy":
                return text
            # Two runs whose names are alike up to where the page cuts them are two landmarks of one
            # name.
            return f"{next(numbers)}{text}" if len(text) > 1000 else f"{text}{next(numbers)}"
        if isinstance(value, list | tuple):
            return [poisoned(item, "" if isinstance(item, dict) else name) for item in value]
        if isinstance(value, dict):
            flags = name in ("flags", "settings", "group", "conditions")
            return {
                (next(texts) + str(i) if flags else key): poisoned(
                    item, "flag" if flags else str(key)
                )
                for i, (key, item) in enumerate(value.items())
            }
        return value

    rules = profile.rules
    document = poisoned(msgspec.to_builtins(msgspec.structs.replace(profile, rules=())))
    assert isinstance(document, dict)
    document["verdict"] = {"status": "failed", "text": hostile[0], "reasons": list(hostile)}
    return msgspec.structs.replace(msgspec.convert(document, Profile), rules=rules)


def huge() -> Profile:
    """Forty runs with hundreds of kernels, long names and long logs, five hundred findings."""
    keys = [
        RunKey(strategy=f"strategy_{i:02d}_with_a_rather_long_name", mode="default")
        for i in range(40)
    ]
    runs = tuple(
        msgspec.structs.replace(
            _run(KEYS[5], device="cuda"),
            key=key,
            kernels=_many_kernels(200),
            log=LogExcerpt(text="a log line that says something\n" * 2000, left_out_bytes=12_345),
        )
        for key in keys
    )
    found = tuple(
        _finding("KGP501", Level.ERROR, key, f"{i} results differ")
        for i, key in enumerate(keys[i % 40] for i in range(500))
    )
    return msgspec.structs.replace(_profile(runs, CUDA, "cuda"), findings=found)


STATES = {
    state.__name__: state
    for state in (
        clean,
        cuda,
        dead,
        findings,
        as_is,
        watched,
        gate,
        skipped,
        empty,
        hostile,
        hostile_gate,
        comparison,
        other_machine,
        hostile_comparison,
        huge,
    )
}


# ---------------------------------------------------------------- pieces


NO_MEMORY = "the MEMORY pass was not requested"


def _compared(profile: Profile, status: str, text: str) -> Profile:
    head, base = profile.findings[:2], profile.findings[2:3]
    unchanged = profile.findings[3:]
    findings = (
        *(
            ComparedFinding(
                status=FindingStatus.NEW, finding=f, base_count=0, head_count=f.count, fails=i == 0
            )
            for i, f in enumerate(head)
        ),
        *(
            ComparedFinding(status=FindingStatus.FIXED, finding=f, base_count=f.count, head_count=0)
            for f in base
        ),
        *(
            ComparedFinding(
                status=FindingStatus.UNCHANGED,
                finding=f,
                base_count=17,
                head_count=max(f.count, 17),
            )
            for f in unchanged
        ),
        *(
            ComparedFinding(
                status=FindingStatus.NOT_LOOKED_FOR,
                finding=msgspec.structs.replace(
                    f, rule="KGP201", message="float() forces a GPU sync", fingerprint=""
                ),
                base_count=1,
                head_count=0,
                escaped="head",
                missing=NO_MEMORY,
            )
            for f in base
        ),
    )
    side = ComparedSide(
        source="main/report.html",
        created_utc="2026-11-20T02:03:04+00:00",
        kgprof_version="0.1.0",
        git_commit="9f8e7d6c5b4a39281706f5e4d3c2b1a098765432",
        git_dirty=False,
        exit_code=0,
        verdict=Verdict(status=VerdictStatus.OK, text="fused.default is the fastest"),
    )
    slower, lost = KEYS[1], KEYS[3]
    place = Location(
        file="/src/policy.py", line=77, function="choose", text="        if candidates.any():"
    )
    causes = (
        Cause(
            cause=CauseKind.FINDING,
            rule="KGP201",
            run=slower,
            text="KGP201 is new: Tensor.item reads 1 value a step",
            explains_us=4100.0,
            fingerprint=head[0].fingerprint,
            location=place,
        ),
        Cause(
            cause=CauseKind.KERNEL,
            run=slower,
            text="triton_red_fused_sum_1 takes 1.3 times as long",
            explains_us=200.0,
        ),
        Cause(
            cause=CauseKind.SETTING,
            text="--steps 20 -> 40",
            explains_us=Skipped(reason="no time is known to be worse"),
        ),
    )
    runs = (
        RunComparison(
            run=slower,
            status=Presence.BOTH,
            metrics=_metrics(slower, worse=True),
            decided_by="step",
            delta_us=4500.0,
            explained_us=4300.0,
            remainder_us=200.0,
            traced_us=5850.0,
            scale=0.77,
            trace=_difference(slower),
            flame=flame_difference(flame(), flame(SLOWER, factor=1.1)),
            phases=(
                PhaseChange(name="capture", base_s=1.25, head_s=1.5),
                PhaseChange(name="machine code", base_s=8.0, head_s=8.0),
            ),
            settings=(ChangedFact(name="depth", base="3", head=""),),
            causes=causes[:2],
            notes=("the step of base was timed in 5 rounds and that of head in 6",),
        ),
        RunComparison(
            run=lost,
            status=Presence.BOTH,
            metrics=_metrics(lost, worse=False),
            trace=_difference(lost),
        ),
        RunComparison(
            run=KEYS[4],
            status=Presence.BOTH,
            trace=TraceDifference(run=KEYS[4], against=KEYS[4], missing="no trace"),
        ),
        RunComparison(run=KEYS[5], status=Presence.NEW),
    )
    return msgspec.structs.replace(
        profile,
        command=("kgprof", "compare", "main/report.html", "pr/report.html"),
        exit_code=1,
        findings=(*head, *unchanged),
        verdict=Verdict(
            status=VerdictStatus(status),
            text=text,
            reasons=("KGP201 at part_0.py:10 is new", "batched.default: slower"),
        ),
        comparison=Comparison(
            base=side,
            head=msgspec.structs.replace(
                side,
                source="pr/report.html",
                git_commit=Skipped(reason="not a git repository"),
                git_dirty=Skipped(reason="not a git repository"),
            ),
            comparable=True,
            runs=runs,
            findings=findings,
            not_looked_for=(
                NotLookedFor(side="head", rules=("KGP201", "KGP202"), reason=NO_MEMORY),
            ),
            causes=causes,
            settings=(ChangedFact(name="--steps", base="20", head="40"),),
            method="Welch's interval for the ratio of geometric means over rounds, at 95 %.",
            notes=("what an older kgprof recorded holds no rounds",),
        ),
    )


def _metrics(run: RunKey, *, worse: bool) -> tuple[ComparedMetric, ...]:
    """One of each verdict, of each unit."""
    step = ComparedMetric(
        name="step",
        run=run,
        unit="us",
        time_of=TimeOf.STEP,
        measured_in=PassName.TIMING,
        base=36_700.0,
        head=41_250.8 if worse else 36_900.0,
        ratio=1.124 if worse else 1.005,
        low=1.098 if worse else 0.95,
        high=1.151 if worse else 1.07,
        base_rounds=5,
        head_rounds=6,
        budget_percent=5.0,
        verdict=MetricVerdict.WORSE if worse else MetricVerdict.INCONCLUSIVE,
        undecided=None if worse else Undecided.STRADDLES_BUDGET,
        decides=True,
        runs_to_settle=None if worse else 11,
        note=""
        if worse
        else "the interval is wider than the budget; 11 rounds per side should settle it",
    )
    unseen = Skipped(reason="a CPU run launches no GPU kernels")
    no_ratio = Skipped(reason="base is 0")
    return (
        step,
        ComparedMetric(
            name="graph breaks",
            run=run,
            unit="sites",
            base=0.0,
            head=3.0,
            ratio=no_ratio,
            verdict=MetricVerdict.WORSE,
            decides=True,
        ),
        ComparedMetric(
            name="peak resident",
            run=run,
            unit="bytes",
            measured_in=PassName.MEMORY,
            base=700.0 * 2**20,
            head=650.0 * 2**20,
            ratio=650 / 700,
            tolerance_percent=5.0,
            verdict=MetricVerdict.BETTER,
        ),
        ComparedMetric(
            name="ms/candidate",
            run=run,
            unit="ms/candidate",
            time_of=TimeOf.UNIT,
            base=0.107,
            head=0.107,
            ratio=1.0,
            verdict=MetricVerdict.SAME,
        ),
        ComparedMetric(
            name="launches per step",
            run=run,
            unit="launches/step",
            base=unseen,
            head=unseen,
            ratio=unseen,
            verdict=MetricVerdict.NOT_OBSERVED,
            undecided=Undecided.NOT_MEASURED,
            note="a CPU run launches no GPU kernels",
        ),
    )


def _difference(run: RunKey) -> TraceDifference:
    before, after = kernels_of(run, "cpu"), kernels_of(KEYS[0], "cpu")
    return trace_diff.difference(before, after, run=run, against=run)


def _profile(runs: tuple[RunReport, ...], environment: Environment, device: str) -> Profile:
    return Profile(
        schema_version=PROFILE_SCHEMA_VERSION,
        kgprof_version="0.1.0",
        created_utc="2026-11-21T02:03:04+00:00",
        workload="linkpred",
        command=("kgprof", "profile", "linkpred", "--", "--dataset", "family-tree:400"),
        options=Options(),
        exit_code=0,
        verdict=Verdict(
            status=VerdictStatus.OK,
            text="fused.default is the fastest: 3.45x as fast as batched.eager (0.0310 "
            "against 0.107 ms/candidate); "
            "results equal; all 5,040 candidates finished",
        ),
        environment=environment,
        device=device,
        baseline=EAGER,
        vector_isa_probe_s=8.61,
        strategies=(
            StrategyPlan(name="batched", modes=("eager",), summary="Lockstep batches."),
            StrategyPlan(name="fused", modes=("eager",), summary="Slots are refilled at once."),
            StrategyPlan(name="other", modes=("eager",), summary="Did not run."),
        ),
        runs=runs,
        findings=(),
        rules=collectors.RULES,
        coverage=looked_for(tuple(run.key for run in runs), device),
        omissions=(
            Omission(what="KERNELS pass", reason="eager mode compiles nothing", run=EAGER),
            Omission(
                what="further host functions",
                reason="212 with less self time were not recorded",
                run=EAGER,
            ),
        ),
    )


def looked_for(runs: tuple[RunKey, ...], device: str = "cpu") -> tuple[Coverage, ...]:
    """Every rule in every run, but for those of the other device; ``device`` "": of no other."""
    other = {"cpu": Witness.CUDA, "cuda": Witness.CPU}.get(device)
    elsewhere = tuple(
        rule.id for rule in collectors.RULES if all(other in way for way in rule.seen_in)
    )
    here = tuple(rule.id for rule in collectors.RULES if rule.id not in elsewhere)
    missing = f"this is a {'CPU' if device == 'cpu' else 'GPU'} run"
    return tuple(
        row
        for run in runs
        for row in (
            Coverage(run=run, rules=here, status=CoverageStatus.NOT_SEEN, looked_at="every pass"),
            Coverage(
                run=run, rules=elsewhere, status=CoverageStatus.NOT_LOOKED_FOR, missing=missing
            ),
        )
        if row.rules
    )


def _run(key: RunKey, *, device: str = "cpu") -> RunReport:
    step = _STEP_US[key]
    baseline = _STEP_US[EAGER]
    return RunReport(
        key=key,
        is_baseline=key == EAGER,
        exit=Exit(outcome="ok", exit_code=0, elapsed_s=31.0),
        step=_spread(step, 306, "us"),
        series=_series(step),
        evaluation_time=_spread(step * 102 / 1e6, 3, "s"),
        unit=UNIT,
        per_unit=(per_unit := _spread(step * 102 / 1e3 / 5040, 3, "ms/candidate")),
        throughput=throughput(per_unit, UNIT),
        speedup=Skipped(reason="this run is the baseline")
        if key == EAGER
        else Speedup(
            ratio=baseline / step,
            low=0.92 * baseline / step,
            high=1.1 * baseline / step,
            basis="whole evaluation",
            verdict=Judged.FASTER if baseline > APART * step else Judged.UNDECIDED,
        ),
        evaluation=_evaluation(),
        agreement=RunAgreement(
            verdict="equal",
            compared=5040,
            differing=0,
            near_ties=0,
            reference_compared=200,
            reference_differing=0,
            reference_near_ties=0,
            note="float64, logits rounded at 1e-9",
        ),
        compared_with=None if key == EAGER else EAGER,
        compile=_compile(key, step),
        kernels=kernels_of(key, device),
        host=_host(step),
        flame=flame(factor=step / 600.0)
        if key in (EAGER, KEYS[5])
        else Skipped(reason="its trace was too large"),
        observers=(
            ObserverCost(observer=PassName.COMPILE, ratio=1.02, samples=17),
            ObserverCost(observer=PassName.TRACE, ratio=1.31, samples=20),
            ObserverCost(observer=PassName.HOST, ratio=1.44, samples=20),
            ObserverCost(observer=PassName.STACK, ratio=1.83, samples=5),
            ObserverCost(observer=PassName.KERNELS, ratio=Skipped(reason="eager mode"), samples=0),
        ),
        log=LogExcerpt(
            text="[W1121 02:03:04] a warning from torch\nkgprof: TRACE\n", left_out_bytes=0
        ),
        holistic=_holistic(key)
        if device == "cuda"
        else Skipped(reason="a CPU run: HTA analyses what ran on a GPU"),
    )


def _holistic(key: RunKey) -> HolisticCheck:
    """Of fused.default one figure and one kernel differ, as they would if HTA counted what a CPU
    event took."""
    window, fused = 20 * _STEP_US.get(key, 5210.0) * 1.3, key == KEYS[-1]
    calls = (
        HolisticCall(name="get_gpu_kernel_breakdown", outcome="ok"),
        HolisticCall(name="get_memory_bw_summary", outcome="empty"),
        HolisticCall(
            name="get_idle_time_breakdown", outcome="raised", reason="KeyError: 'index_correlation'"
        ),
        HolisticCall(
            name="critical_path_analysis",
            outcome="not called",
            reason="it ignores cudaGraphLaunch, so it would miss every kernel of a CUDA graph",
        ),
    )
    unanswered = Skipped(reason="get_idle_time_breakdown: raised: KeyError: 'index_correlation'")
    no_sizes = Skipped(reason="kgprof does not read the sizes of copies")
    return HolisticCheck(
        versions={"HolisticTraceAnalysis": "0.5.0", "pandas": "3.1.1"},
        calls=calls,
        tolerance_percent=0.5,
        figures=(
            _figure(
                "kernels, copies and fills",
                "us",
                0.8 * window,
                0.8 * window * (1.27 if fused else 1.0),
            ),
            _figure(
                "GPU idle",
                "us",
                0.2 * window,
                0.2 * window * 1.00001,
                "between the first and the last of them",
            ),
            _figure("idle: host_wait", "us", 0.1 * window, unanswered),
            _figure(
                "longest queue, stream 7",
                "operations",
                1049.0,
                1049.0,
                ("most operations launched but not started"),
            ),
            _figure("bandwidth, Memcpy DtoD", "GB/s", no_sizes, 1813.6),
        ),
        kernels=31,
        kernels_differing=20 if fused else 0,
        differing=(_figure("triton_poi_fused_index_mul_0", "us", 12.0, 97.2),) if fused else (),
    )


def _figure(
    name: str, unit: str, ours: float | Skipped, hta: float | Skipped, note: str = ""
) -> HolisticFigure:
    missing = next((side for side in (ours, hta) if isinstance(side, Skipped)), None)
    percent = (
        0.0 if isinstance(ours, Skipped) or isinstance(hta, Skipped) else 100 * (hta - ours) / ours
    )
    return HolisticFigure(
        name=name,
        unit=unit,
        ours=ours,
        hta=hta,
        difference_percent=percent if missing is None else missing,
        differs=abs(percent) > 0.5,
        note=note,
    )


def _lost(key: RunKey, outcome: str, during: str, message: str) -> RunReport:
    gone = Skipped(reason=f"the run {outcome} during {during}: {message}")
    return RunReport(
        key=key,
        is_baseline=False,
        exit=Exit(
            outcome=outcome,
            message=message,
            during=during,
            traceback="Traceback ...\n",
            elapsed_s=3.0,
        ),
        step=gone,
        evaluation_time=gone,
        per_unit=gone,
        speedup=gone,
        evaluation=gone,
        agreement=gone,
        compile=gone,
        kernels=gone,
        host=gone,
        observers=(),
        log=LogExcerpt(
            text=f"Traceback (most recent call last):\n  ...\n{message}\n", left_out_bytes=0
        ),
    )


def _spread(median: float, samples: int, unit: str) -> Spread:
    return Spread(
        median=median,
        p10=0.97 * median,
        p90=1.06 * median,
        minimum=0.94 * median,
        maximum=1.2 * median,
        samples=samples,
        unit=unit,
        measured_in=PassName.TIMING,
    )


def _evaluation() -> Evaluation:
    return CandidateResults(
        candidates=5040,
        proved=412,
        failed=4020,
        depth_truncated=600,
        overflow=8,
        unfinished=0,
        invalid=12,
        deep=233,
        steps=102,
        dropped=CapCounters(children=31),
        nan_scores=0,
        metrics=tuple(
            RankMetrics(
                side=side,
                ties=ties,
                queries=48,
                mrr=0.4123,
                hits_at_1=0.3125,
                hits_at_3=0.4583,
                hits_at_10=0.625,
            )
            for side in ("head", "tail", "both")
            for ties in ("optimistic", "realistic", "pessimistic", "expected")
        ),
        settings={
            "dataset": "family-tree:400",
            "depth": "6",
            "batch size": "256",
            "dtype": "float64",
            "policy": "seeded random weights",
            "corruptions evaluated": "10 per side",
        },
    ).declared()


def _compile(key: RunKey, step: float) -> CompileSummary:
    compiled = key.mode != "eager"
    compilation = Compilation(
        compile_id="0/0",
        function="derive_and_choose",
        location="/src/fused.py:41",
        duration_s=11.2,
        stages=CompileStages(
            capture_s=1.4,
            frontend_s=1.1,
            scheduling_s=2.2,
            code_generation_s=0.6,
            machine_code_s=5.8,
            caching_s=0.1,
        ),
    )
    second = msgspec.structs.replace(
        compilation, compile_id="1/0", stages=Skipped(reason="cut"), fail_reason="refused"
    )
    return CompileSummary(
        first_call_s=14.7 if compiled else 0.021,
        steady=msgspec.structs.replace(
            _spread(step * 1.02, 17, "us"), measured_in=PassName.COMPILE
        ),
        compilations=(compilation, second) if compiled else (),
        capture_unavailable=(),
    )


def _host(step: float) -> HostBreakdown:
    rows = (
        HostRow(
            function="step",
            file="fused.py",
            line=88,
            calls=20,
            self_us=0.31 * 20 * step,
            cumulative_us=20 * step,
        ),
        HostRow(
            function="<built-in method torch._ops.aten.index>",
            file="~",
            line=0,
            calls=240,
            self_us=0.22 * 20 * step,
            cumulative_us=4.4 * step,
        ),
        HostRow(
            function="__call__",
            file="torch/_ops.py",
            line=1209,
            calls=860,
            self_us=2.1 * step,
            cumulative_us=9 * step,
        ),
    )
    return HostBreakdown(steps=20, total_self_us=20 * step, rows=rows, rows_left_out=212)


_CPU_KERNELS = (
    ("aten::addmm", KernelKind.GEMM, "aten", 0.29, ()),
    ("aten::native_layer_norm", KernelKind.NORMALISATION, "aten", 0.11, ()),
    ("aten::index", KernelKind.INDEX, "aten", 0.17, ()),
    ("aten::searchsorted", KernelKind.INDEX, "aten", 0.12, ()),
    ("aten::copy_", KernelKind.COPY, "aten", 0.06, ()),
    ("aten::eq", KernelKind.POINTWISE, "aten", 0.09, ()),
    ("aten::view", KernelKind.OTHER, "aten", 0.02, ()),
)
_CPP_KERNELS = (
    (
        "graph_0_cpp_fused__to_copy_add_eq_gather_index_native_layer_norm_where_3",
        KernelKind.POINTWISE,
        "cpp",
        0.38,
        ("_to_copy", "add", "eq", "gather", "index", "native_layer_norm", "where"),
    ),
    ("aten::addmm", KernelKind.GEMM, "aten", 0.22, ()),
    ("TorchDynamo Cache Lookup", KernelKind.FRAMEWORK, "framework", 0.04, ()),
    (
        "## Call CompiledFxGraph fouacj3v3spj3wndw73dmkh54ftjy4d672mgt6fsgqb7omc4mqxy ##",
        KernelKind.FRAMEWORK,
        "framework",
        0.08,
        (),
    ),
    ("aten::copy_", KernelKind.COPY, "aten", 0.05, ()),
)
_CUDA_KERNELS = (
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x256x8_stage3_warpsize2x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
        KernelKind.GEMM,
        "library",
        0.31,
        (),
    ),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous "
        "namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() "
        "const::{lambda()#4}, std::array<char*, 2ul> >(int, at::native::(anonymous "
        "namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}, std::array<char*, 2>)",
        KernelKind.POINTWISE,
        "aten",
        0.11,
        (),
    ),
    (
        "triton_red_fused_gather_gt_mul_sigmoid_sub_sum_unsqueeze_1",
        KernelKind.REDUCTION,
        "triton",
        0.19,
        ("gather", "gt", "mul", "sigmoid", "sub", "sum", "unsqueeze"),
    ),
    (
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, "
        "long, long, long, bool)",
        KernelKind.INDEX,
        "aten",
        0.06,
        (),
    ),
    ("Memcpy DtoD (Device -> Device)", KernelKind.COPY, "memcpy", 0.03, ()),
    (
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>()",
        KernelKind.ATTENTION,
        "library",
        0.04,
        (),
    ),
    (
        "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc",
        KernelKind.CONVOLUTION,
        "library",
        0.03,
        (),
    ),
    ("at_cuda_detail::cub::DeviceRadixSortSingleTileKernel", KernelKind.SORT, "aten", 0.03, ()),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", KernelKind.COMMUNICATION, "library", 0.03, ()),
)


def kernels_of(key: RunKey, device: str) -> KernelBreakdown:
    compiled = key.mode != "eager"
    shares = _CUDA_KERNELS if device == "cuda" else _CPP_KERNELS if compiled else _CPU_KERNELS
    window = 20 * _STEP_US.get(key, 5210.0) * 1.3
    return _breakdown(
        tuple(
            (name, kind, generator, share * window, ops)
            for name, kind, generator, share, ops in shares
        ),
        window,
        device,
        PassName.KERNELS if compiled and device == "cpu" else PassName.TRACE,
    )


def _many_kernels(number: int) -> KernelBreakdown:
    kernels = tuple(
        (
            f"triton_poi_fused_add_index_mul_{i}_with_a_long_tail",
            KernelKind.POINTWISE,
            "triton",
            900.0 / (1 + i),
            (),
        )
        for i in range(number)
    )
    return _breakdown(kernels, 20_000.0, "cuda", PassName.TRACE)


def _breakdown(
    kernels: tuple[tuple[str, KernelKind, str, float, tuple[str, ...]], ...],
    window: float,
    device: str,
    measured_in: PassName,
) -> KernelBreakdown:
    total = sum(kernel[3] for kernel in kernels)
    rows = tuple(
        KernelRow(
            name=name,
            kind=kind,
            generator=generator,
            count=20,
            total_us=us,
            share=us / total,
            min_us=us / 20 * 0.9,
            median_us=us / 20,
            max_us=us / 20 * 1.7,
            ops=ops,
            lines=_LINES if ops else (),
            lines_us=us if ops else 0.0,
        )
        for name, kind, generator, us, ops in sorted(kernels, key=lambda kernel: -kernel[3])
    )
    kinds = tuple(
        KindTotal(kind=kind, count=20 * len(us), total_us=sum(us))
        for kind in KernelKind
        if (us := [row.total_us for row in rows if row.kind is kind])
    )
    return KernelBreakdown(
        device=device,
        measured_in=measured_in,
        steps=20,
        window_us=window,
        busy_us=total,
        idle_us=window - total,
        total_us=total,
        launches=1860 if device == "cuda" else Skipped(reason="a CPU run launches no GPU kernels"),
        fused_kinds=(KernelKind.NORMALISATION,)
        if any("layer_norm" in op for row in rows for op in row.ops)
        else (),
        graph_launches=20
        if device == "cuda"
        else Skipped(reason="a CPU run launches no CUDA graphs"),
        kinds=kinds,
        rows=rows,
        lines_us=sum(row.lines_us for row in rows),
        idle=_idle(window - total)
        if device == "cuda"
        else Skipped(reason="a CPU run has no GPU that could wait"),
        by_step=(SpanTotal(span="ProfilerStep#0", count=20, total_us=total),)
        if device == "cuda"
        else (),
        by_region=_spans("0/0", total) if device == "cuda" else (),
        by_span=_spans("score_candidates", total) if device == "cuda" else (),
        roofline=_roofline(rows, total)
        if device == "cuda"
        else Skipped(reason="a CPU run launches no GPU kernels"),
        queue=_queue() if device == "cuda" else Skipped(reason="a CPU run launches no GPU kernels"),
        timeline=_timeline(window / 20, device),
        host_time=_host_time(window / 20),
    )


def _timeline(step_us: float, device: str) -> StepTimeline:
    """Every kind of event, thirty to a lane of the CPU, and 300 on the GPU; each call launched ten
    kernels."""
    lanes = [("thread 7", "spans", ("span",)), ("thread 7", "regions", ("region",))]
    lanes += [
        ("thread 7", "operators", ("gemm", "pointwise", "index", "copy", "framework", "other"))
    ]
    if device == "cuda":
        lanes += [
            ("thread 7", "calls", ("launch", "wait", "call")),
            ("stream 7", "kernels", ("gemm", "normalisation")),
        ]
        lanes += [
            ("stream 7", "copies", ("copy",)),
            ("device", "idle", ("host", "launch", "unknown", "edge")),
        ]
    kinds = tuple(dict.fromkeys(kind for _, _, of in lanes for kind in of))
    return StepTimeline(
        name="ProfilerStep#11",
        number=9,
        steps=20,
        duration_us=step_us,
        window_us=1.1 * step_us,
        names=tuple(f"aten::{content}" for _, content, _ in lanes),
        kinds=kinds,
        lanes=tuple(_lane(at, *lane, kinds, step_us) for at, lane in enumerate(lanes)),
        lanes_left_out=1,
        left_out_us=2.0,
        left_out_below_us=step_us / 1000,
        from_other_steps=3,
        after_the_window=1,
    )


def _lane(
    at: int, owner: str, content: str, of: tuple[str, ...], kinds: tuple[str, ...], step_us: float
) -> Lane:
    many = 300 if content == "kernels" else 30
    each_ns = round(1000 * step_us / many)
    return Lane(
        owner=owner,
        content=content,
        busy_us=0.6 * step_us,
        covered=2,
        name=(at,) * many,
        kind=tuple(kinds.index(of[i % len(of)]) for i in range(many)),
        start_ns=tuple(i * each_ns for i in range(many)),
        duration_ns=(round(0.6 * each_ns),) * many,
        call=tuple(i // 10 for i in range(many)) if content == "kernels" else (),
        left_out=4,
        left_out_us=0.004 * step_us,
    )


def _series(step_us: float, processes: int = 1) -> StepSeries:
    """306 steps in all, one of them six times as long as the others."""
    each, entries = 306 // processes, 60 // processes
    every = -(-each // entries)
    middle = tuple(step_us * (1 + 0.01 * (at % 5)) for at in range(-(-each // every)))
    made = []
    for number in range(1, processes + 1):
        high = [us * 1.1 for us in middle]
        if number == processes:
            high[3] = 6 * step_us
        made.append(
            ProcessSteps(
                number=number,
                time=_spread(step_us, each, "us"),
                evaluations=(each,),
                every=every,
                low_us=tuple(us * 0.98 for us in middle),
                middle_us=middle,
                high_us=tuple(high),
            )
        )
    counts = (20, 60, 100, 80, 30, 10, 5)
    time = msgspec.structs.replace(_spread(step_us, 306, "us"), maximum=6 * step_us)
    return StepSeries(
        processes=tuple(made),
        time=time,
        bins_from_us=0.9 * step_us,
        bin_us=step_us / 13,
        counts=counts,
        above=1,
    )


def _host_time(step_us: float) -> HostTime:
    shares = (
        ("Dynamo cache lookup (guards)", 0.1, 1.0),
        ("operators", 0.6, 40.0),
        ("unexplained", 0.3, None),
    )
    return HostTime(
        steps=20,
        mean_us=step_us,
        parts=tuple(
            StepPart(
                name=name,
                mean_us=share * step_us,
                median_us=0.98 * share * step_us,
                minimum_us=0.9 * share * step_us,
                maximum_us=1.4 * share * step_us,
                calls=calls,
            )
            for name, share, calls in shares
        ),
        other_threads_us=0.1 * step_us,
    )


def _queue() -> LaunchQueue:
    return LaunchQueue(
        calls=1860,
        median_us=2.2,
        p10_us=1.8,
        p90_us=31.0,
        maximum_us=70.4,
        before_return=21,
        mean_depth=12.4,
        maximum_depth=42,
        empty_share=0.44,
    )


def _roofline(rows: tuple[KernelRow, ...], total: float) -> Roofline:
    """Each kernel once, a third of them not placed."""
    unknown = Skipped(reason="no call in Inductor's code is known to have launched it")
    verdicts = (
        ("latency-bound", 0.04),
        ("memory-bound", 0.81),
        (unknown, unknown),
        ("compute-bound", 0.66),
    )
    launches = tuple(
        _launches(row, total, *verdicts[index % len(verdicts)], products=index % len(verdicts) == 3)
        for index, row in enumerate(rows)
    )
    return Roofline(
        rule="Latency-bound: less than half of the ceiling, and short.",
        ceilings=(
            Ceiling(
                operation="copy",
                dtype="",
                unit="bytes/s",
                median=4.1e12,
                minimum=4.0e12,
                maximum=4.2e12,
                samples=20,
                how="1,024 MiB copied between buffers, counting reads and writes",
            ),
            Ceiling(
                operation="matmul",
                dtype="bfloat16",
                unit="FLOP/s",
                median=6.9e14,
                minimum=6.5e14,
                maximum=7.0e14,
                samples=20,
                how="8192 x 8192 times 8192 x 8192",
            ),
        ),
        without="",
        rows=launches,
        rows_left_out=3,
        left_out_us=12.5,
        **totals(launches),
    )


def totals(rows: tuple[KernelLaunches, ...]) -> dict[str, tuple[BoundTotal, ...]]:
    """``placed`` and ``unplaced`` of a Roofline that holds all its rows."""
    placed: dict[str, float] = {}
    unplaced: dict[str, float] = {}
    for row in rows:
        into, what = (
            (unplaced, row.bound.reason) if isinstance(row.bound, Skipped) else (placed, row.bound)
        )
        into[what] = into.get(what, 0.0) + row.total_us
    return {
        name: tuple(BoundTotal(what=what, total_us=us) for what, us in found.items())
        for name, found in (("placed", placed), ("unplaced", unplaced))
    }


def _launches(
    row: KernelRow,
    total: float,
    bound: str | Skipped,
    of_ceiling: float | Skipped,
    *,
    products: bool,
) -> KernelLaunches:
    untold = Skipped(reason="known of Triton kernels only")
    triton = row.generator == "triton"
    return KernelLaunches(
        name=row.name,
        generator=row.generator,
        count=row.count,
        total_us=row.total_us,
        share=row.total_us / total,
        median_us=row.median_us,
        grid=(2048, 3, 1),
        block=(128, 1, 1),
        registers=53,
        shared_bytes=8192,
        blocks_per_sm=46.5,
        warps=4,
        occupancy_percent=0.0 if bound == "latency-bound" else 48.0,
        spills=6 if triton else untold,
        stages=1 if triton else untold,
        bytes_moved=bound if isinstance(bound, Skipped) else 3_000_000,
        flops=10**9 if products else Skipped(reason="Inductor counts none"),
        bytes_per_s=bound if isinstance(bound, Skipped) else 3.3e12,
        flops_per_s=4.5e14 if products else Skipped(reason="Inductor counts none"),
        bound=bound,
        of_ceiling=of_ceiling,
    )


_LINES = (
    Location(
        file="/src/step.py", line=41, function="derive", text="    scores = torch.relu(x + bias)"
    ),
    Location(file="/src/step.py", line=42, function="derive", text="    return scores * weight"),
    Location(file="/site/torch/nn/functional.py", line=7, function="relu"),
)


def _idle(us: float) -> DeviceIdle:
    return DeviceIdle(
        total_us=us,
        host_us=us * 0.5,
        launch_us=us * 0.25,
        unknown_us=us * 0.125,
        edges_us=us * 0.125,
        gaps=40,
        host_spans=(
            HostSpan(name="aten::item", total_us=us * 0.1),
            HostSpan(name="evaluate", total_us=us * 0.4),
        ),
    )


def _spans(name: str, us: float) -> tuple[SpanTotal, ...]:
    return (
        SpanTotal(span=name, count=300, total_us=us * 0.75),
        SpanTotal(span="(unattributed)", count=100, total_us=us * 0.25),
    )


def _finding(rule: str, level: Level, run: RunKey | None, message: str) -> Finding:
    return Finding(rule=rule, level=level, message=message, run=run, fingerprint="0123456789ab")


def _broken(run: RunKey, line: int, accepted: str) -> Finding:
    return Finding(
        rule="KGP101",
        level=Level.WARNING,
        message="graph break in derive: Data-dependent branching (GB0170)",
        run=run,
        location=Location(
            file="/src/step.py", line=line, function="derive", text="    if x.sum() > 0:"
        ),
        count=4,
        fingerprint=f"broken{line}",
        related=(Location(file="/src/evaluator.py", line=9, function="evaluate", text="step(x)"),),
        detail=(
            "Detected data-dependent branching.\nHint: Use `torch.cond` to express "
            "dynamic control flow."
        ),
        accepted=accepted,
    )


def _budget(
    metric: str, run: RunKey, limit: float, observed: float | Skipped, accepted: int, status: str
) -> BudgetCheck:
    return BudgetCheck(
        metric=metric,
        run=run,
        limit=limit,
        unit="sites",
        observed=observed,
        accepted=accepted,
        origin="default",
        status=BudgetStatus(status),
    )


def _accepted(file: str, reason: str, expires: str, status: str, findings: int) -> AcceptedFinding:
    return AcceptedFinding(
        rule="KGP101",
        file=file,
        function="derive",
        graph_break_id="GB0170",
        reason=reason,
        owner="ada",
        expires=expires,
        status=AcceptedStatus(status),
        findings=findings,
    )


def _memory(key: RunKey) -> MemorySummary:
    no_allocator = Skipped(reason="a CPU has no caching allocator")
    eager = key.mode == "eager"
    return MemorySummary(
        steps=17,
        peaks=MemoryPeaks(
            allocated_bytes=no_allocator,
            reserved_bytes=no_allocator,
            resident_bytes=(700 if eager else 731) * 2**20,
            resident_before_bytes=690 * 2**20,
        ),
        over_eager_bytes=Skipped(reason="this run is in mode eager") if eager else 31 * 2**20,
        over_eager_of="" if eager else "resident",
        syncs_per_step=1.0 if key.strategy == "torch_cond" else 0.0,
    )


def _checklist() -> tuple[ChecklistItem, ...]:
    return (
        ChecklistItem(
            id="static-shapes",
            title="Shapes are static",
            status="pass",
            evidence="0 recompiles in 17 calls of 3 runs",
        ),
        ChecklistItem(
            id="no-reads",
            title="No value is read back in the step",
            status="fail",
            evidence="11 places read 22 values a step",
            findings=("read000", "copied"),
        ),
        ChecklistItem(
            id="cuda-graphs",
            title="CUDA graphs replay",
            status="not observed",
            evidence="a CPU run",
        ),
    )


def _rounds(step_us: float) -> Rounds:
    """Of five rounds the third was lost."""
    return Rounds(
        asked=5,
        numbers=(1, 2, 4, 5),
        step_us=(step_us,) * 4,
        evaluation_s=(step_us * 102 / 1e6,) * 4,
        warm_first_call_s=(2.0, 2.5, 3.0),
        step=_spread(step_us, 4, "us"),
        evaluation_time=_spread(step_us * 102 / 1e6, 4, "s"),
        per_unit=_spread(step_us * 102 / 1e3 / 5040, 4, "ms/candidate"),
        warm_first_call=_spread(2.5, 3, "s"),
        graphs_from_cache=(2, 2, 2),
        graphs_compiled=(0, 0, 0),
        machine=MachineSpeed(host_us=(4.1, 4.3, 4.0, 5.2), device_us=(210.0, 212.5, 209.0, 211.0)),
        lost=("round 3 was killed during TIMING: SIGKILL",),
    )


def _economics(key: RunKey) -> Economics | Skipped:
    """batched.default pays, torch_cond.default never does, fused.default has no eager run to be
    held against."""
    if key.mode == "eager":
        return Skipped(reason="mode eager is what compiled runs are compared with")
    eager = RunKey(strategy=key.strategy, mode="eager")
    unseen = Skipped(reason="this strategy was not run in mode eager; add --mode eager")
    pays = Economics(
        run=key,
        eager=eager,
        cold_s=14.2,
        per="candidate",
        compiled_time=_spread(0.0593, 4, "ms/candidate"),
        eager_time=_spread(0.105, 4, "ms/candidate"),
        rounds=4,
        saved_us=45.7,
        cold=BreakEven(steps=6200.0, units=306_346.0, after_s=18.2),
        verdict="pays",
        text="faster than eager; compiling took 14.2 s and pays off after 6,200 steps",
    )
    if key == KEYS[1]:
        return pays
    if key == KEYS[3]:
        slower = Skipped(reason="slower than eager")
        return msgspec.structs.replace(
            pays,
            saved_us=-4.0,
            cold=slower,
            verdict="never",
            text="it never earns back",
        )
    return msgspec.structs.replace(
        pays,
        eager_time=unseen,
        saved_us=unseen,
        cold=unseen,
        verdict="not observed",
        text=f"not compared with eager: {unseen.reason}",
    )


def _trade_offs(place: Location) -> tuple[TradeOff, ...]:
    kept = TradeOff(
        guarded=KEYS[3],
        always=KEYS[5],
        location=place,
        syncs_per_step=1.0,
        sync_us=310.0,
        saved_us=40.0,
        net=_spread(1840.0, 306, "us"),
        net_always=_spread(1510.0, 306, "us"),
        verdict="remove it",
        text=(
            "Reading the predicate costs 0.310 ms per step and saves 0.040 ms: do the "
            "work in every step."
        ),
    )
    unseen = Skipped(reason="no wait was timed on a CPU")
    unknown = msgspec.structs.replace(
        kept,
        location=None,
        sync_us=unseen,
        saved_us=unseen,
        verdict="not observed",
        text="Nothing was compared.",
    )
    return (kept, unknown)
