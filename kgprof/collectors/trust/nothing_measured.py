"""Whether there is anything to speak of: a time, and a compilation where one was asked for."""

import msgspec

from kgprof import model as m
from kgprof.collectors.fingerprint import fingerprint
from kgprof.measures.traced_steps import TracedSteps, traced_steps
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.wording import clause, plural

NOT_COMPILED_MODES = ("eager", "as-is")  # kgprof itself compiles nothing in these
NOTHING_MEASURED = m.Rule(
    id="KGP504",
    name="nothing-measured-or-compiled",
    level=m.Level.ERROR,
    summary="No time was measured, or nothing was compiled where a compilation was expected.",
    why=(
        "A report without measurements must not look like a clean one. A workload that silently "
        "stopped compiling shows no graph break, no recompile and no compile time. It is an error "
        "if no run has a time, a warning if a compiled mode compiled nothing, and a note if a "
        "workload run without changes contains no torch.compile, or if a script without steps "
        "starts other Python scripts."
    ),
    example=(
        "torch.compile wraps a function that the step never calls; TORCHDYNAMO_DISABLE=1 is set; "
        "the step takes no tensors, so Dynamo has nothing to capture."
    ),
    remedy=(
        "Call the compiled function inside the step, unset TORCHDYNAMO_DISABLE, or let kgprof "
        "compile a function's step with --mode default. Where sizes and numbers stay the same from "
        "call to call, torch.compile is worth a try: kgprof sweep compares it with eager. If no "
        "time was measured, the run's log says how its process ended."
    ),
    topic=m.Topic.COVERAGE,
    seen_in=((m.Witness.END,),),
    can_cost=(),
)
RULES = (NOTHING_MEASURED,)

SPARSE = "torch.compile was not tried: the steps work on sparse tensors, which it does not support"
RNN = (
    "torch.compile was not tried: it leaves nn.GRU, nn.LSTM and nn.RNN, which the steps call, in "
    "eager"
)


class CoverageEvent(m.Model):
    """What one run has."""

    run: m.RunKey
    timed: bool | None  # None: no time was asked for
    raised: bool = False  # a line of the program's own ended it
    compilations: int | None  # None: not observed
    # made while the workload was loaded, of code that ran in no call
    unused: tuple[m.Compilation, ...] = ()
    launched: m.Launched | None = None  # by a script without a step
    # scripts and functions that a script without a step started in processes
    beside: tuple[m.Launched, ...] = ()
    workers: int = 0  # processes of a script's data loaders
    hidden: str = ""  # of a program that asks for a compilation: why there was none
    never: str = ""  # the program's calls of torch.compile, whose results no call reached
    uncompiled: str = ""  # what its traced steps on a GPU do that torch.compile does not support


def measured(run: m.RunRecord, options: m.Options) -> bool:
    """Whether there is at least one time taken under nothing but a clock; where none was asked for,
    anything at all.

    The gate judges for itself whether it has seen enough.
    """
    if run.script is not None and run.script.work_is_in is not None:
        return False  # its time is not that of what it launched
    if options.for_a_gate:
        return True
    if options.untimed:
        compiled = isinstance(run.compile, m.CompilePass) and bool(run.compile.compilations)
        stepped = run.script is not None and (bool(run.script.steps) or run.script.is_one_window)
        probed = isinstance(run.memory, m.MemoryPass) and bool(run.memory.step_us)
        return stepped or compiled or probed or isinstance(run.trace, m.TracePass)
    return isinstance(run.timing, m.TimingPass) and (
        any(run.timing.step_us) or bool(run.timing.evaluation_s)
    )


def collect(evidence: Evidence) -> tuple[CoverageEvent, ...]:
    options = evidence.recording.header.options
    events = []
    uncompiled = {run.key: _uncompiled(run) for run in evidence.on_gpu}
    for run in (each.record for each in evidence.runs):
        timed: bool | None = measured(run, options)
        if options.for_a_gate or (options.untimed and timed):
            timed = None
        off = _switched_off(run)
        compilations = None
        unused: tuple[m.Compilation, ...] = ()
        if isinstance(run.compile, m.CompilePass) and not run.exit.is_early:
            compilations = len(run.compile.compilations)
            unused = run.compile.unused
            if run.compile.capture_unavailable and not off:
                # an empty list from a torch whose hook is missing says nothing
                compilations = compilations or None
        event = CoverageEvent(
            run=run.key,
            timed=timed,
            raised=run.exit.failure is not None,
            compilations=compilations,
            unused=unused,
            hidden=off,
            uncompiled=uncompiled.get(run.key, ""),
        )
        if (script := run.script) is not None:
            event = msgspec.structs.replace(
                event,
                launched=script.work_is_in,
                beside=tuple(
                    one for one in script.launched if one.by in m.BESIDE and not script.step
                ),
                workers=script.workers,
                hidden=off or script.why_nothing_compiled(options.workload),
            )
        if not off:
            event = msgspec.structs.replace(event, never=_never_called(run))
        events.append(event)
    return tuple(events)


def _uncompiled(run: RunEvidence) -> str:
    traced = run.once(traced_steps)
    if not isinstance(traced, TracedSteps):
        return ""
    if traced.have_sparse_tensors:
        return SPARSE
    if traced.rnn_calls:
        return RNN
    return ""


@m.otherwise("")
def _switched_off(run: m.RunRecord) -> str:
    """What keeps torch.compile from doing anything; empty where nothing does, or it did."""
    compiled = m.known(run.compile)
    if compiled.compilations:
        return ""
    lost = compiled.capture_unavailable
    return next((one.why for one in lost if one.capture == m.SWITCHED_OFF), "")


@m.otherwise("")
def _never_called(run: m.RunRecord) -> str:
    """Say where or how often the program called torch.compile, where it was seen that nothing that
    it made was called."""
    calls = m.known(m.known(run.records).compiled_calls)
    if calls.callables or calls.left_out:
        return ""
    script = run.script
    if script is None:
        if not calls.asked:
            return ""
        return f"torch.compile was called {plural(sum(calls.asked.values()), 'time')}"
    if not script.was_asked or script.uncalled or script.workers:
        return ""
    return clause("torch.compile stands in ", script.compile_call)


def diagnose(events: tuple[CoverageEvent, ...]) -> tuple[m.Finding, ...]:
    if only := next(
        (event for event in events if event.launched is not None and event.timed is not None), None
    ):
        launched = only.launched
        assert launched is not None
        by = launched.by
        if launched.processes:
            by += f", {plural(launched.processes, 'process', 'processes')}"
        what = f"the script only launches other processes ({by}), and kgprof sees only its own"
        how = "Run"
        if launched.by == m.SPAWN:
            how = "Let each rank call the function that is spawned, and run"
        found = _finding(m.Level.ERROR, only.run, f"{what}. {how} {launched.command}", "no-time")
        return (msgspec.structs.replace(found, fix=launched.command),)
    if events and all(event.raised for event in events):
        return ()  # how it ended says why
    if not any(event.timed is None or event.timed for event in events):
        return (
            _finding(m.Level.ERROR, None, "nothing was measured: no run has a time", "no-time"),
        )
    missing = [
        event
        for event in events
        if event.compilations == 0 and event.run.mode not in NOT_COMPILED_MODES
    ]
    if missing:
        return tuple(_not_compiled(event) for event in missing)
    if any(event.compilations != 0 for event in events):
        return ()
    if only := next((event for event in events if event.beside), None):
        return (_beside(only.run, only.beside),)
    timed = all(event.timed is not None for event in events)
    unused = [made for event in events for made in event.unused]
    workers = max(event.workers for event in events)
    message = m.nothing_compiled(unused, workers)
    if not (unused or workers):
        message += " in this run"
    if never := next((event.never for event in events if event.never), ""):
        message += f": {never}, and nothing that it made was called"
    elif hidden := next((event.hidden for event in events if event.hidden), ""):
        return (_finding(m.Level.NOTE, None, f"{message}: {hidden}", "as-it-stands"),)
    if timed:
        message += "; its times are those of eager code"
    found = _finding(m.Level.NOTE, None, message, "as-it-stands")
    why = next((event.uncompiled for event in events if event.uncompiled), "")
    return (msgspec.structs.replace(found, no_fix=why),)


def _not_compiled(event: CoverageEvent) -> m.Finding:
    message = f"mode {event.run.mode} was requested, but {m.nothing_compiled(event.unused)}"
    message += clause(": ", event.hidden)
    return _finding(m.Level.WARNING, event.run, message, "not-compiled")


def _beside(run: m.RunKey, beside: tuple[m.Launched, ...]) -> m.Finding:
    """The first script or module, which kgprof can run, else the function in which it can be
    called."""
    first = next((one for one in beside if one.by == m.PYTHON), beside[0])
    what = "nothing was compiled here, and the script has no steps of its own. It starts"
    if first.by == m.PYTHON:
        what += f" Python scripts, which kgprof does not see. Run {first.command}"
        if more := sum(one.by == m.PYTHON for one in beside) - 1:
            what += f" and {plural(more, 'other script')}"
    else:
        where = first.function or "the functions of a pool"
        what += (
            f" {where} with multiprocessing, which kgprof does not see. Watch the function of one "
            f"step there ({first.command}), print what it returned at the end, and run the script "
            "with python"
        )
    return msgspec.structs.replace(
        _finding(m.Level.NOTE, run, what, "as-it-stands"), fix=first.command
    )


def _finding(level: m.Level, run: m.RunKey | None, message: str, identity: str) -> m.Finding:
    rule = NOTHING_MEASURED.id
    return m.Finding(
        rule=rule,
        level=level,
        message=message,
        run=run,
        fingerprint=fingerprint(rule, run, identity),
    )
