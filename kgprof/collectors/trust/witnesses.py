"""What a run has to have before a rule can be seen in it, and so where each rule was looked for.

    Rule.seen_in ──names──► Witness ──WITNESSES──► what was looked at, or Skipped: why nothing could
    be
                                        │
    coverage(evidence, rules, found) ◄──┘   one answer for each rule in each run

A rule names what its collector needs; where that is new, it is one Witness and one function here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from kgprof import model as m
from kgprof.collectors.compile import recompiles, runs_eagerly
from kgprof.collectors.time.matmul_precision import FIRST_WITH_TF32
from kgprof.measures.economics import economics
from kgprof.measures.traced_steps import traced_steps
from kgprof.reading.evidence import Evidence, RunEvidence
from kgprof.reading.launches import LAUNCH_CATEGORIES
from kgprof.wording import plural

# what was looked at (empty: that is no part of the run's), or why nothing could be
Answer = str | m.Skipped
# Captures without which no compilation is seen at all; of the others each has a second source.
INDISPENSABLE = ("structured trace", m.SWITCHED_OFF)
# of COMPILE, by their names
CAPTURES = (m.Witness.FRAME_HOOK, m.Witness.GRAPH_HOOK, m.Witness.CUDA_GRAPH_LOG)
IN_TRACE = (
    *(m.Witness.TRACE, m.Witness.OPERATORS, m.Witness.LAUNCHES, m.Witness.STEPS),
    *(m.Witness.TENSOR_CORES, m.Witness.WHAT_LIMITS, m.Witness.HOST_LINES, m.Witness.OWN_FILES),
)
# of MEMORY
SYNC_HOOKS, TENSOR_PROBE, HANDMADE = "sync hooks", "tensor probe", "CUDA graphs of the program"


def coverage(
    evidence: Evidence, rules: Sequence[m.Rule], found: Sequence[m.Finding]
) -> tuple[m.Coverage, ...]:
    """Answer for each rule in each run; rules with one answer share a row."""
    rows: dict[tuple[m.RunKey, m.CoverageStatus, str, str], list[str]] = {}
    seen = {(finding.rule, finding.run) for finding in found}
    for run in evidence.runs:
        for rule in rules:
            status, looked_at, missing = m.CoverageStatus.NOT_SEEN, "", ""
            answer = looked_for(rule, run)
            if isinstance(answer, m.Skipped):
                status, missing = m.CoverageStatus.NOT_LOOKED_FOR, answer.reason
            else:
                looked_at = answer
            if not seen.isdisjoint(((rule.id, run.key), (rule.id, None))):
                status = m.CoverageStatus.SEEN
            rows.setdefault((run.key, status, looked_at, missing), []).append(rule.id)
    return tuple(
        m.Coverage(run, tuple(ids), status, looked_at, missing)
        for (run, status, looked_at, missing), ids in rows.items()
    )


def looked_for(rule: m.Rule, run: RunEvidence) -> Answer:
    """Say with what a rule was looked for: it takes all witnesses of one of its ways to be seen."""
    refused: list[tuple[int, m.Skipped]] = []
    for way in rule.seen_in:
        answers = [run.once(WITNESSES[witness]) for witness in way]
        lacking = next(
            (at for at, answer in enumerate(answers) if isinstance(answer, m.Skipped)), None
        )
        if lacking is None:
            return "; ".join(dict.fromkeys(str(answer) for answer in answers if answer))
        refused.append((lacking, m.first_skipped(*answers)))
    return max(refused, key=lambda each: each[0])[1]  # the way that came furthest


# ---------------------------------------------------------------- COMPILE


@m.skippable
def _compiled(run: RunEvidence) -> Answer:
    compiled = m.known(run.record.compile)
    if why := next(_not_recorded(run.record, compiled), ""):
        return m.Skipped(why)
    if not compiled.made:
        return "COMPILE"
    return f"COMPILE, {plural(compiled.made, 'call')}"


def _not_recorded(record: m.RunRecord, compiled: m.CompilePass) -> Iterator[str]:
    """Why compilations may have happened that no record tells of. A new reason is one more line
    here."""
    yield from (
        lost.words for lost in compiled.capture_unavailable if lost.capture in INDISPENSABLE
    )
    if unseen := m.ran_unseen(compiled.capture_unavailable):
        yield unseen
    if isinstance(record.records, m.Skipped):
        yield record.records.reason
    elif record.records.left_out:
        yield f"{record.records.left_out:,} records of the compiler exceed the limit"


@m.skippable
def _steady_calls(run: RunEvidence) -> Answer:
    """Where no call was told from another every recompile is seen, and which came after warm-up is
    not known."""
    compiled, script = m.known(run.record.compile), run.record.script
    if (script is not None and not script.counted) or compiled.made > compiled.steady_from:
        return ""
    steps = plural(compiled.made, "step")
    return m.Skipped(f"kgprof counted {steps}, and --warmup is {compiled.steady_from}")


def _calls(run: RunEvidence) -> Answer:
    script = run.record.script
    recompiled = any(event.run == run.key for event in run.whole.once(recompiles.collect))
    if recompiled and script is not None and not script.counted:
        return m.Skipped("functions were recompiled, and which calls that was in is not recorded")
    return ""


def _capture(name: m.Witness) -> Callable[[RunEvidence], Answer]:
    """COMPILE with one hook or log of torch's besides its records."""

    def captured(run: RunEvidence) -> Answer:
        for lost in m.known(run.record.compile).capture_unavailable:
            if lost.capture == name:
                return m.Skipped(lost.words)
        return run.once(_compiled)

    return m.skippable(captured)


@m.skippable
def _compiled_calls(run: RunEvidence) -> Answer:
    m.known(runs_eagerly.counted_calls(run.key, m.known(run.record.records)))
    return run.once(_compiled)


def _generated_code(run: RunEvidence) -> Answer:
    backend = run.whole.recording.header.options.backend
    if backend in ("eager", "aot_eager"):
        return m.Skipped(f"backend {backend} generates no code")
    return ""


# ---------------------------------------------------------------- TIMING, TRACE


@m.skippable
def _timing(run: RunEvidence) -> Answer:
    samples = sum(map(len, m.known(run.record.timing).step_us))
    if not samples:
        return m.Skipped("TIMING has no step")
    return f"TIMING, {plural(samples, 'step')}"


def _loader_clock(run: RunEvidence) -> Answer:
    timing = run.record.timing
    if isinstance(timing, m.TimingPass) and not timing.loader_us:
        return m.Skipped("next() of DataLoaders is timed in the steps of scripts only")
    return ""


def _in_trace(witness: m.Witness) -> Callable[[RunEvidence], Answer]:
    def answer(run: RunEvidence) -> Answer:
        traced = m.known(run.once(traced_steps))
        if why := run.once(_not_in_trace).get(witness):
            return m.Skipped(why)
        return f"TRACE, {traced.extent.words}"

    return m.skippable(answer)


def _not_in_trace(run: RunEvidence) -> dict[m.Witness, str]:
    """Say of each thing that TRACE lacks why a rule has to have it. Only of a run that has one."""
    traced = m.known(run.once(traced_steps))
    lacking: dict[m.Witness, str] = {}
    if not traced.columns.of_category("cpu_op").any():
        lacking[m.Witness.OPERATORS] = "the trace has no operators of the CPU"
    if not traced.columns.of_category(*LAUNCH_CATEGORIES).any():
        lacking[m.Witness.LAUNCHES] = "the trace has no CUDA runtime or driver calls"
    if not traced.extent.steps:
        lacking[m.Witness.STEPS] = "no steps are marked in the trace"
    if m.known(run.record.trace).host_lines is None:
        lacking[m.Witness.HOST_LINES] = "the lines of the CPU were not sampled"
    if not any(file.text for file in run.source.own.values()):
        lacking[m.Witness.OWN_FILES] = "the text of the program's files was not recorded"
    major, minor = run.compute_capability
    if not major:
        lacking[m.Witness.TENSOR_CORES] = "the trace does not name the GPU"
    elif (major, minor) < FIRST_WITH_TF32:
        lacking[m.Witness.TENSOR_CORES] = (
            f"compute capability {major}.{minor} has no tensor cores for TF32"
        )
    if not traced.is_mostly_busy and m.PassName.TIMING not in traced.extent.measured_in:
        busy = (
            "under the profiler the GPU is busy "
            f"{100 * traced.busy_us / traced.extent.step_us:.0f} % of the time"
        )
        unknown = f"{busy}; whether it limits the program is not known without TIMING"
        lacking[m.Witness.WHAT_LIMITS] = traced.extent.unlike or unknown
    return lacking


# ---------------------------------------------------------------- MEMORY


@m.skippable
def _watched(run: RunEvidence, capture: str, part: str) -> Answer:
    """Half of the hooks, or half of the records, would show too few."""
    memory = m.known(run.record.memory)
    for lost in memory.capture_unavailable:
        if lost.capture == capture:
            return m.Skipped(lost.words)
    if len(memory.step_us) <= memory.steady_from:
        steps = plural(len(memory.step_us), "step")
        return m.Skipped(f"MEMORY watched {steps}, and warm-up takes {memory.steady_from}")
    if left_out := getattr(m.known(getattr(memory, part)), "left_out", 0):
        return m.Skipped(f"{left_out:,} {part} are beyond what MEMORY keeps")
    return f"MEMORY, {plural(len(memory.step_us) - memory.steady_from, 'step')}"


def _tensors(run: RunEvidence) -> Answer:
    memory, compiled = run.record.memory, run.record.compile
    compiles = isinstance(compiled, m.CompilePass) and bool(compiled.compilations)
    if compiles and isinstance(memory, m.MemoryPass):
        tensors = memory.tensors
        if isinstance(tensors, m.TensorRecords) and not tensors.graphs:
            return m.Skipped("no compiled graph ran while MEMORY watched")
    return _watched(run, TENSOR_PROBE, "tensors")


def _handmade_graphs(run: RunEvidence) -> Answer:
    if run.record.script is None and isinstance(run.record.memory, m.MemoryPass):
        return m.Skipped("CUDA graphs that a program records itself are watched in scripts only")
    return _watched(run, HANDMADE, "graphs")


# ---------------------------------------------------------------- results and times


@m.skippable
def _results(run: RunEvidence) -> Answer:
    agreement = m.known(run.whole.recording.agreement)
    others = dict(agreement.runs)
    left_out = m.Skipped("this run was left out when results were compared")
    mine = m.known(others.pop(run.key, left_out))
    compared = bool(mine.compared)
    if run.key == agreement.baseline:
        compared = any(isinstance(one, m.RunAgreement) and one.compared for one in others.values())
    if not compared and not mine.reference_compared:
        return m.Skipped("there was no other result")
    return f"{plural(max(mine.compared, mine.reference_compared), 'result')} compared"


@m.skippable
def _evaluation(run: RunEvidence) -> Answer:
    m.known(run.record.evaluation)
    return "a whole evaluation"


def _cpu(run: RunEvidence) -> Answer:
    if run.whole.device == "cuda":
        return m.Skipped("this is a GPU run")
    return ""


def _cuda(run: RunEvidence) -> Answer:
    if run.whole.device == "cuda":
        return ""
    return m.Skipped("this is a CPU run")


@m.skippable
def _eager_times(run: RunEvidence) -> Answer:
    if run.key.mode == m.EAGER:
        return "nothing is compiled in mode eager"
    found = m.known(run.once(economics))
    if found.verdict == m.Payoff.NOT_OBSERVED:
        m.known(found.cold)
    return "COMPILE, TIMING and eager's"


def _end(run: RunEvidence) -> Answer:
    if run.record.exit.is_early:
        return m.Skipped(f"the run {run.record.exit.words}")
    return ""


WITNESSES: Mapping[m.Witness, Callable[[RunEvidence], Answer]] = {
    m.Witness.COMPILE: _compiled,
    m.Witness.STEADY_CALLS: _steady_calls,
    m.Witness.CALLS: _calls,
    **{witness: _capture(witness) for witness in CAPTURES},
    m.Witness.COMPILED_CALLS: _compiled_calls,
    m.Witness.GENERATED_CODE: _generated_code,
    m.Witness.TIMING: _timing,
    m.Witness.LOADER_CLOCK: _loader_clock,
    **{witness: _in_trace(witness) for witness in IN_TRACE},
    m.Witness.READS: lambda run: _watched(run, SYNC_HOOKS, "syncs"),
    m.Witness.HANDMADE_GRAPHS: _handmade_graphs,
    m.Witness.TENSORS: _tensors,
    m.Witness.RESULTS: _results,
    m.Witness.EVALUATION: _evaluation,
    m.Witness.EAGER_TIMES: _eager_times,
    m.Witness.END: _end,
    m.Witness.CPU: _cpu,
    m.Witness.CUDA: _cuda,
}
