"""Every cell of a grid, each process in a child of its own, in turn over all cells; what a child
loses costs itself.

First one process of each cell with cold caches, then two more with the caches that it left, and at
the end further cold starts of the two cells that are ahead. What has been measured is handed over
after each process.
"""

import importlib.util
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from kgprof import model as m
from kgprof.errors import UsageError, WorkloadError
from kgprof.progress import Progress
from kgprof.reading import recordings
from kgprof.record.files import foreign
from kgprof.record.ground import store
from kgprof.record.ground.job import Job, Task
from kgprof.record.processes import children, recorder, trials
from kgprof.workloads import programs

Stages = Callable[[tuple[m.TraceRecord, ...]], m.CompileStages | m.Skipped]
# how one ended, what it measured, what it printed, and whether a signal to kgprof came
Process = tuple[m.Exit, m.CellTimes | m.Skipped, str, bool]
# what a backend of torch's needs
PACKAGES = {"onnxrt": "onnxruntime", "tensorrt": "torch_tensorrt"}
NEEDS_A_GPU = ("cudagraphs", "tensorrt")
# Seconds of one process, as a first guess before anything is measured.
START_GUESS_S, TIMING_GUESS_S, WARM_SHARE = 6.0, 4.0, 0.25
COMPILE_GUESS_S = {m.EAGER: 0.0, "max-autotune": 80.0, "max-autotune-no-cudagraphs": 80.0}
INDUCTOR_GUESS_S = 25.0
CAPTURE_GUESS_S = 3.0
LOG_KEPT = 4_000  # characters of the end of a log
NOTHING_COMPILED = (
    "nothing was compiled: there is no torch.compile call whose settings a sweep could change"
)


class Grid(m.Model):
    """What was asked for; all empty is the usual grid."""

    modes: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    dynamic: tuple[m.Dynamic, ...] = ()
    precisions: tuple[m.Precision, ...] = ()
    sizes: tuple[tuple[str, ...], ...] = ()

    def cells(self, device: str, *, own_settings: bool) -> tuple[m.Cell, ...]:
        """Eager first, which the others are held against. ``own_settings``: the program calls
        torch.compile itself."""
        if self.modes or self.backends or self.dynamic or self.precisions:
            cells = list(self._product())
        else:
            cells = list(_usual(device, own_settings))
        cells = [m.Cell(m.EAGER, backend=m.EAGER), *cells]
        sized = (replace(cell, size=size) for size in self.sizes or ((),) for cell in cells)
        return tuple(dict.fromkeys(sized))

    def _product(self) -> Iterator[m.Cell]:
        for precision in self.precisions or (m.Precision.AS_IS,):
            for backend in self.backends or (m.INDUCTOR,):
                # Modes are Inductor's.
                for mode in (self.modes or ("default",)) if backend == m.INDUCTOR else ("default",):
                    if mode == m.EAGER:
                        yield m.Cell(mode, backend=m.EAGER, precision=precision)
                        continue
                    for dynamic in self.dynamic or (m.Dynamic.AS_IS,):
                        yield m.Cell(mode, backend, dynamic, precision)


def _usual(device: str, own_settings: bool) -> Iterator[m.Cell]:
    """Eight cells on a GPU; four on a CPU, where compiling takes longest: no mode that differs from
    another one by CUDA graphs alone, nor bf16, nor dynamic shapes. The last ones are left out if
    there is no time for all of them."""
    gpu = device == "cuda"
    cells = (
        (own_settings, m.Cell(m.AS_IS)),
        (True, m.Cell("default")),
        (gpu, m.Cell("reduce-overhead")),
        (True, m.Cell("max-autotune-no-cudagraphs")),
        (gpu, m.Cell("max-autotune")),
        (gpu, m.Cell("default", dynamic=m.Dynamic.TRUE)),
        (True, m.Cell("default", backend="aot_eager")),
        (gpu, m.Cell("default", precision=m.Precision.BF16)),
    )
    return (cell for wanted, cell in cells if wanted)


def lacking(cell: m.Cell, device: str, strategy_modes: Sequence[str]) -> str:
    """Why a cell cannot run here; empty if it can."""
    if (
        cell.compiles
        and (package := PACKAGES.get(cell.backend))
        and importlib.util.find_spec(package) is None
    ):
        return f"not installed: backend {cell.backend} needs the package {package}"
    if device == "cpu" and cell.backend in NEEDS_A_GPU:
        return f"backend {cell.backend} needs an NVIDIA GPU"
    if device == "cpu" and cell.precision is m.Precision.TF32:
        return "TF32 needs an NVIDIA GPU"
    if cell.mode not in strategy_modes and m.AS_IS not in strategy_modes:
        return f"the strategy does not run in mode {cell.mode}"
    return ""


def guess_s(cell: m.Cell, *, cold: bool) -> float:
    """Seconds of one process, before any has run."""
    compiling = INDUCTOR_GUESS_S if cell.backend == m.INDUCTOR else CAPTURE_GUESS_S
    compiling = COMPILE_GUESS_S.get(cell.mode, compiling)
    return START_GUESS_S + TIMING_GUESS_S + compiling * (1.0 if cold else WARM_SHARE)


class Session:
    """A sweep in the making."""

    def __init__(
        self,
        options: m.Options,
        scratch: Path,
        progress: Progress,
        stages: Stages,
        write: Callable[[m.Sweep], None],
    ) -> None:
        self._options, self._scratch, self._progress = options, scratch, progress
        self._stages = stages
        self._write = write
        self._is_program = programs.is_program(options.workload)
        self._caches: dict[m.Cell, str] = {}
        self._took_s: dict[tuple[m.Cell, bool], float] = {}
        self._began = time.monotonic()
        self._ends = 0.0
        self.until = math.inf  # of ``time.monotonic``: what still runs then is ended
        self._interrupted = False

    def plan(self, grid: Grid, output: Path, redact: recorder.Redact) -> None:
        """What there is to run. Raises UsageError, and WorkloadError for a workload that cannot be
        loaded."""
        asked = self._options
        # its probe of the CPU takes longer than all the rest
        if grid.backends and m.INDUCTOR not in grid.backends:
            asked = replace(asked, backend=grid.backends[0])
        plan, dead = recorder.make_plan(
            asked, output, self._scratch, self._progress, redact, compiles=True
        )
        if dead is not None:
            raise WorkloadError(
                f"{self._options.workload} {dead.words}",
                hint=("a sweep needs a workload that can be loaded"),
            )
        self._plan = plan
        self.strategy = plan.runs[0].strategy
        self.variables = plan.variables | (
            {"TORCHINDUCTOR_VEC_ISA_OK": "1"} if plan.vector_isa_works else {}
        )
        self.modes = next(each.modes for each in plan.strategies if each.name == self.strategy)
        self.others = tuple(
            dict.fromkeys(run.strategy for run in plan.runs if run.strategy != self.strategy)
        )
        options = self._options
        machine = plan.environment
        self.question = m.SweepQuestion(
            workload=options.workload,
            workload_args=options.workload_args,
            strategy=self.strategy,
            device=plan.device,
            device_name=machine.device_name,
            cpu_count=machine.cpu_count,
            torch=machine.torch,
            seed=options.seed,
            steps=options.steps,
            warmup=options.warmup,
        )

    def caches(self, name: str, *, kept: bool) -> children.Caches:
        """Cold, but for the vector-ISA probe, which is a part of no start."""
        seed = self._scratch / recorder.PROBE_CACHE
        return children.Caches(
            folder=self._scratch / name, seed=seed, extra=self.variables, kept=kept
        )

    def begin(self, grid: Grid, turns: int, earlier: m.Sweep | None) -> tuple[m.CellResult, ...]:
        """The cells, and of ``earlier`` those that have ended; the others begin again, as their
        caches are gone. What was tried on its best cell is kept too."""
        done = {each.cell: each for each in earlier.cells} if earlier is not None else {}
        self._tried: dict[str, Any] = (
            {} if earlier is None else {"ladder": earlier.ladder, "shapes": earlier.shapes}
        )
        # A script's cold run is under the listeners of COMPILE, and gives no steady time.
        self._warm_turns = turns if self._is_program else turns - 1
        own = self._is_program or not set(self.modes) & {*m.COMPILED_MODES}
        # A strategy with evaluate() calls its own step: its settings are changed where it compiles.
        device = self.question.device
        cells = grid.cells(device, own_settings=own)
        self._cells = {
            cell: m.CellResult(
                cell=cell, not_run=self._lacks_compiler(cell) or lacking(cell, device, self.modes)
            )
            for cell in cells
        }
        self._cells |= {
            cell: found for cell, found in done.items() if found.failed or self._turned(found)
        }
        return tuple(self._cells.values())

    def _lacks_compiler(self, cell: m.Cell) -> str:
        why = recorder.lacks_compiler(self._plan, cell.mode)
        return f"no C++ compiler: {why}" if why and cell.backend == m.INDUCTOR else ""

    def _turned(self, found: m.CellResult) -> bool:
        return bool(found.processes) and found.started(cold=False) >= self._warm_turns

    def sweep(self) -> m.Sweep:
        """As far as it has come."""
        return m.Sweep(
            schema_version=m.SWEEP_SCHEMA_VERSION,
            created_utc=foreign.now_utc(),
            question=self.question,
            environment=self._plan.environment,
            cells=tuple(self._cells.values()),
            interrupted=self._interrupted,
            command=("kgprof", *sys.argv[1:]),
            **self._tried,
        )

    def planned_s(self, repeats: int) -> float:
        """Seconds of what has not been measured yet, as a guess."""
        seconds = 0.0
        for cell, found in self._cells.items():
            if not found.not_run or found.processes:
                cold = max(0, max(1, repeats) - found.started(cold=True))
                warm = max(0, self._warm_turns - found.started(cold=False))
                seconds += cold * guess_s(cell, cold=True) + warm * guess_s(cell, cold=False)
        return seconds

    def run(
        self,
        *,
        repeats: int,
        minutes: float,
        ahead: Callable[[m.Sweep], Sequence[m.Cell]],
    ) -> m.Sweep:
        """As many processes of each cell as ``begin`` was told; then cold starts up to ``repeats``
        of each, or of those ``ahead`` only."""
        self._ends = self._began + 60 * minutes
        alive = [
            cell for cell, found in self._cells.items() if not found.not_run or found.processes
        ]
        try:
            # once more what was left out: the others may have taken less time than expected
            for _ in range(2):
                for cell in alive:
                    if not self._cells[cell].processes and (
                        self._has_room(cell) or self._left_out(cell)
                    ):
                        self._one(cell, cold=True)
                    started = (
                        self._cells[cell].measured() if self._is_program and cell.compiles else ()
                    )
                    # nor will another cell compile anything
                    if started and not any(each.frames for each in started):
                        return self.sweep()
                self._in_turn(self._affordable(), range(self._warm_turns), cold=False)
            alive = [cell for cell in alive if self._turned(self._cells[cell])]
            chosen = (
                alive if repeats > 1 else [cell for cell in ahead(self.sweep()) if cell in alive]
            )
            self._in_turn(chosen, range(1, repeats if repeats > 1 else m.COLD_STARTS), cold=True)
        except KeyboardInterrupt:
            self._interrupted = True
        return self.sweep()

    def _in_turn(self, cells: Sequence[m.Cell], numbers: range, *, cold: bool) -> None:
        for number, cell in itertools.product(numbers, cells):
            found = self._cells[cell]
            if not found.failed and found.started(cold=cold) <= number:
                self._one(cell, cold=cold, last=not cold and number == numbers[-1])

    def _begun(self) -> list[m.Cell]:
        cells = self._cells.items()
        return [
            cell
            for cell, found in cells
            if found.processes and not (found.failed or self._turned(found))
        ]

    def _has_room(self, cell: m.Cell) -> bool:
        """All turns of this cell too, beside those that are left of the cells before it: a few
        cells that are judged are worth more than many that are not."""
        warm_s = sum(self._expected_s(each, cold=False) for each in (*self._begun(), cell))
        ends = time.monotonic() + self._warm_turns * warm_s + self._expected_s(cell, cold=True)
        return not cell.compiles or ends <= self._ends

    def _affordable(self) -> list[m.Cell]:
        """The fastest cells whose further turns end in time, and eager in any case; the others say
        that they wait."""
        alive = self._begun()

        def step_us(cell: m.Cell) -> float:
            return min(
                (us for each in self._cells[cell].measured() for us in each.step_us), default=0.0
            )

        left_s = self._ends - time.monotonic()
        kept = list[m.Cell]()
        for cell in sorted(alive, key=lambda cell: (cell.compiles, step_us(cell))):
            left_s -= self._warm_turns * self._expected_s(cell, cold=False)
            if left_s > 0 or not cell.compiles:
                kept.append(cell)
        return [cell for cell in alive if cell in kept or self._left_out(cell)]

    def _left_out(self, cell: m.Cell) -> bool:
        few = (
            "in fewer processes than the others" if self._cells[cell].processes else "in no process"
        )
        why = f"measured {few}: time ran out (--minutes; continue with --resume)"
        self._cells[cell] = replace(self._cells[cell], not_run=why)
        return False

    def _expected_s(self, cell: m.Cell, *, cold: bool) -> float:
        """Of one more process: as the last such one, else of the cold one what is no compiling,
        else the guess."""
        if (cell, cold) in self._took_s:
            return self._took_s[cell, cold]
        before = self._took_s.get((cell, True))
        if before is None or cold:
            # A machine that is busy is so for all cells alike: as the first process has shown.
            first, took_s = next(iter(self._took_s.items()), ((cell, cold), 0.0))
            return guess_s(cell, cold=cold) * max(1.0, took_s / guess_s(first[0], cold=first[1]))
        spent = sum(sum(each.start_s) for each in self._cells[cell].measured(cold=True)[:1])
        return before - spent * (1 - WARM_SHARE)

    def _one(self, cell: m.Cell, *, cold: bool, last: bool = False) -> None:
        """One process, if it is expected to end in time. Raises KeyboardInterrupt."""
        found = self._cells[cell]
        if time.monotonic() + self._expected_s(cell, cold=cold) > self._ends and cell.compiles:
            if not cold or not found.processes:  # a further cold start is no turn
                self._left_out(cell)
            return
        number = len(found.processes) + 1
        key = m.RunKey(self.strategy, cell.name)
        self._progress.phase(f"process {number}, {'cold caches' if cold else 'warm caches'}", key)
        began = time.monotonic()
        name = self._caches.setdefault(cell, f"caches-{len(self._caches)}")
        if cold and number > 1:  # the others' caches stay as the first process left them
            name = "caches-cold"
        caches = self.caches(name, kept=not cold or number == 1)
        mode = cell.mode if cell.mode in self.modes else m.AS_IS
        device = self.question.device
        steady = not cold or number == 1
        question = m.CellQuestion(cell, self.strategy, mode, device, cold, steady, last)
        asked = self._program_process if self._is_program else self._process
        ended, measured, log, interrupted = asked(question, caches, number)
        self._took_s[cell, cold] = time.monotonic() - began
        if ended.outcome is m.Outcome.TIMED_OUT and time.monotonic() >= self.until:
            if not cold or not found.processes:
                self._left_out(cell)
            return
        if interrupted:
            raise KeyboardInterrupt
        kept = "" if ended.outcome is m.Outcome.OK else log[-LOG_KEPT:]
        process = m.CellProcess(number, cold, ended, measured, kept)
        self._cells[cell] = replace(found, processes=(*found.processes, process), not_run="")
        self._write(self.sweep())

    def _process(self, question: m.CellQuestion, caches: children.Caches, number: int) -> Process:
        trial = trials.run(
            "kgprof.lab.sweep_cell:measure",
            question,
            options=self._options,
            scratch=self._scratch,
            caches=caches,
            until=self.until,
        )
        ended = replace(trial.exit, during="")
        measured: m.CellTimes | m.Skipped = m.Skipped(f"the process {ended.words}")
        if trial.answer is not None:
            answer = m.decode_json(trial.answer, m.CellAnswer)
            measured = answer.times
            if answer.spans:
                measured = replace(measured, stages=self._stages(answer.spans))
        return ended, measured, trial.log, trial.interrupted

    def _program_process(
        self, question: m.CellQuestion, caches: children.Caches, number: int
    ) -> Process:
        """A cold one under the listeners of COMPILE, for its start and the stages; the others under
        a clock alone."""
        cell = question.cell
        cold = question.cold
        passes = (m.PassName.COMPILE if cold else m.PassName.TIMING,)
        args = (*self._options.workload_args, *cell.size)
        limit_s = min(self._options.timeout_s, max(0.0, self.until - time.monotonic()))
        options = replace(self._options, passes=passes, workload_args=args, timeout_s=limit_s)
        (key,) = self._plan.runs
        folder = self._scratch / f"recording-{list(self._cells).index(cell)}-{number}"
        store.create(folder, foreign.header(options, self._plan))
        job = Job(
            Task.SCRIPT,
            options,
            recording=str(folder.resolve()),
            key=key,
            plan=self._plan,
            cell=cell,
        )
        log = folder / "log.txt"
        ended = children.run(children.Start(job, self._scratch, log, caches))
        store.write_exit(folder, key, ended.exit)
        (run,) = recordings.load(folder).runs
        count = max(1, self._options.warmup)
        measured: m.CellTimes | m.Skipped = m.Skipped(f"the program {ended.exit.words}")
        if cold and isinstance(run.compile, m.CompilePass) and ended.exit.outcome is m.Outcome.OK:
            records = run.records.records if isinstance(run.records, m.CompileRecords) else ()
            measured = m.CellTimes(
                start_s=tuple(us / 1e6 for us in run.compile.call_us[:count]),
                step_us=(),
                clock="perf_counter",
                frames=len(run.compile.compilations),
                stages=self._stages(records),
            )
        elif isinstance(run.timing, m.TimingPass):
            steady = run.timing.every_us
            groups = (
                steady[at : at + options.steps] for at in range(0, len(steady), options.steps)
            )
            measured = m.CellTimes(
                start_s=tuple(us / 1e6 for us in run.timing.start_us),
                step_us=tuple(statistics.fmean(group) for group in groups),
                clock=run.timing.clock,
                frames=0,
            )
        elif not cold and ended.exit.outcome is m.Outcome.OK:
            measured = run.timing
        text = log.read_text("utf-8", errors="replace")
        return ended.exit, measured, text, ended.interrupted


def refuse_another_question(
    found: m.SweepQuestion, asked: Iterable[m.SweepQuestion], path: Path
) -> None:
    """``asked``: as it is, and as it may be shown. Raises UsageError if ``found`` is neither."""
    questions = tuple(asked)
    if found not in questions:
        names = [field.name for field in msgspec.structs.fields(m.SweepQuestion)]
        sides = ((name, getattr(found, name), getattr(questions[-1], name)) for name in names)
        why = "; ".join(
            f"{name} was {before!r}, is {now!r}" for name, before, now in sides if before != now
        )
        raise UsageError(
            f"--resume: {path} was made with different settings: {why}",
            hint="choose another folder with -o",
        )
