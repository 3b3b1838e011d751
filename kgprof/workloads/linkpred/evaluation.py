"""``kgprof evaluate``: the evaluator alone, over any number of candidates, in one process or
several.

Chunks are dealt out in turn to the processes that torchrun started; each searches its own and keeps
their results as files. Beside that, a thread of the first process adds all of them up in their
order. No search waits for another process, so that one which is slow or dies costs its own chunks
and nothing else.
"""

import hashlib
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from kgprof import model as m
from kgprof.errors import EXIT_GATE_FAILED, EXIT_OK, InputError, UsageError, WorkloadError
from kgprof.progress import tell
from kgprof.workloads.linkpred import chunks, evaluation_options, options
from kgprof.workloads.linkpred.caps import Dropped
from kgprof.workloads.linkpred.chunks import REFUTED, Checkpoint, ChunkResult, Total, histogram
from kgprof.workloads.linkpred.closure import Closure, closure, provable
from kgprof.workloads.linkpred.evaluation_options import Asked
from kgprof.workloads.linkpred.evaluation_report import Evaluated, as_json, as_text
from kgprof.workloads.linkpred.evaluator import EvaluatorSession
from kgprof.workloads.linkpred.graph import KnowledgeGraph
from kgprof.workloads.linkpred.proof import PROVED
from kgprof.workloads.linkpred.ranking import places
from kgprof.workloads.linkpred.sampler import Candidates, Sampling
from kgprof.workloads.linkpred.scores import Scorer
from kgprof.workloads.linkpred.slots import SlotStrategy
from kgprof.workloads.linkpred.strategies import by_name
from kgprof.workloads.linkpred.strategies.levels import Levels
from kgprof.workloads.linkpred.workload import LinkPrediction

# of the first process for the others' chunks; one that dies is seen at once
LONGEST_WAIT = timedelta(days=30)
PROGRESS_S = 2.0
OUTLIVES = "with --checkpoint DIR finished chunks outlive a process"


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Which of the processes this one is. ``local`` is its number on its machine, and that of its
    GPU."""

    rank: int = 0
    world: int = 1
    local: int = 0


def main(args: Sequence[str]) -> tuple[str, int]:
    """What goes to stdout, and the exit code. Raises KgprofError."""
    asked = evaluation_options.parse(args)
    if isinstance(asked, str):
        return asked, EXIT_OK
    processes = _joined()
    try:
        graph = options.load_graph(asked.runs[0], asked.seed)
        whole = None
        if asked.check or asked.prune:
            began = time.monotonic()
            whole = closure(graph)
            whole = replace(whole, seconds=time.monotonic() - began)
            if not asked.quiet and not processes.rank:
                state = "" if whole.complete else ", and stopped there: too large"
                size = f"the closure has {whole.size:,} triples{state}"
                tell(f"kgprof: {whole.seconds:7.1f} s  {size}")
        runs = (Evaluation(asked, run, graph, whole, processes).run() for run in asked.runs)
        evaluated = [found for found in runs if found is not None]
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    if processes.rank:
        return "", EXIT_OK
    print_ = as_json if asked.json or asked.format == "json" else as_text
    wrong = any(evaluation.impossible for evaluation in evaluated)
    return print_(evaluated), EXIT_GATE_FAILED if wrong else EXIT_OK


def _joined() -> Processes:
    """Join the other processes, if torchrun started several. Raises UsageError."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return Processes()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    if missing := [name for name in names if not os.environ.get(name, "").isdecimal()]:
        hint = "start several processes with torchrun, which sets it"
        raise UsageError(
            f"{missing[0]} must be a whole number where one of {', '.join(names)} is set",
            hint=hint,
        )
    rank, world, local = (int(os.environ[name]) for name in names)
    try:
        dist.init_process_group("gloo", timeout=LONGEST_WAIT)
    except (RuntimeError, ValueError) as error:
        raise UsageError(
            f"the {world} processes cannot join: {_reason(error)}", hint="start them with torchrun"
        ) from None
    return Processes(rank=rank, world=world, local=local)


def _reason(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


class Evaluation:
    """One number of corruptions, from the queries to the total."""

    def __init__(
        self,
        asked: Asked,
        run: options.LinkpredOptions,
        graph: KnowledgeGraph,
        whole: Closure | None,
        processes: Processes,
    ) -> None:
        self.asked, self.options, self.graph = asked, run, graph
        self.closure, self.processes = whole, processes
        self.sampling = Sampling(
            graph, queries=run.queries, corruptions=run.corruptions, seed=asked.seed
        )
        self.sizes = (self.sampling.counts + 1).sum(axis=1)  # candidates of each query
        self.device = _device(asked.device, processes)
        self.workload = LinkPrediction(run, graph, self.sampling.candidates(0, 0), asked.seed)
        self.key = m.RunKey(asked.strategy, asked.mode)
        self.workload.check_strategy(asked.strategy)
        self.scorer: Scorer | None = None
        if asked.score != evaluation_options.SCORES[0]:
            prover, chooser = self.workload.prover(), self.workload.chooser()
            self.scorer = Scorer(prover, chooser, asked.score, run.depth)
        self.session: EvaluatorSession | None = None
        self._rows = 0  # the candidates of the largest chunk
        self._began: float | None = None  # the first search
        self._kernels = ""  # why they were not used

    def settings(self) -> dict[str, str]:
        """All that the result depends on; what a checkpoint was begun with must be the same."""
        graph, asked, policy = self.graph, self.asked, self.options.policy
        content = hashlib.sha256(repr((graph.predicates, graph.constants, graph.rules)).encode())
        for array in (graph.train, graph.valid, graph.test, graph.domains):
            content.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        weights = "seeded"
        if policy is not None:
            weights = hashlib.sha256(policy.read_bytes()).hexdigest()[:16]
        caps = self.workload.caps
        closure = "none"
        if asked.prune:
            closure = "prune"
        elif asked.check:
            closure = "check"
        return {
            **self.options.as_text(),
            "graph": f"{graph.name}, {content.hexdigest()[:16]}",
            "weights": weights,
            "seed": str(asked.seed),
            "strategy": asked.strategy,
            "mode": asked.mode,
            "device": self.device.type,
            "torch": str(torch.__version__),
            "closure": closure,
            "score": asked.score,
            "caps": (
                f"{caps.atoms} atoms, {caps.children} children, {caps.facts} facts, "
                f"{caps.rules} rules"
            ),
        }

    def run(self) -> Evaluated | None:
        """None in all processes but the first."""
        asked, rank, world = self.asked, self.processes.rank, self.processes.world
        corruptions = str(self.options.corruptions or options.ALL)
        folder = asked.folder
        if folder is not None and len(asked.runs) > 1:
            folder = folder / f"corruptions-{corruptions}"
        settings = self.settings()
        bounds = chunks.bounds(self.sampling.counts, asked.most)
        resume = bool(asked.resume) or rank > 0
        if rank:  # the first process looks at the folder, and writes down what it is of
            _together(dist.barrier)
        with closing(Checkpoint(folder, settings, bounds, self.sizes, resume=resume)) as store:
            if world > 1 and not rank:
                _together(dist.barrier)
            began = time.monotonic()
            total = self._searched(store)
            elapsed_s = time.monotonic() - (began if self._began is None else self._began)
        if rank:
            return None
        strategy = by_name(asked.strategy)
        slots = 0
        if issubclass(strategy, SlotStrategy):
            slots = strategy.room(self.options.batch_size, self.options.choices)
        on_gpu = self.device.type == "cuda"
        return Evaluated(
            total=total,
            settings=settings,
            notes=(*self.graph.notes, *self.sampling.notes),
            queries=len(self.sampling.queries),
            corruptions=corruptions,
            slots=slots,
            chunks=store.chunks,
            processes=world,
            elapsed_s=elapsed_s,
            peak_bytes=_peak_bytes(),
            peak_gpu_bytes=torch.cuda.max_memory_allocated() if on_gpu else None,
            closure=self.closure,
        )

    def _searched(self, store: Checkpoint) -> Total:
        """Search this process's chunks while a thread adds up those of all."""
        self._rows = max(store.candidates)
        mine = range(self.processes.rank, store.chunks, self.processes.world)
        progress = _Progress(self, store, mine)
        # one more of this process's chunks; False: no more will come
        saved = SimpleQueue[bool]()
        with ThreadPoolExecutor(1) as adder:
            try:
                adding = adder.submit(self._total, store, saved)
                for chunk, candidates in self._drawn(store, mine):
                    if candidates is not None:
                        progress.chunk = chunk
                        store.save(chunk, self.evaluate(candidates, progress.tick))
                    saved.put(True)
                    progress.finish(chunk, fresh=candidates is not None)
            except KeyboardInterrupt:
                if store.kept:
                    place = store.folder
                    tell(f"kgprof: finished chunks are in {place}; go on with --resume {place}")
                raise
            finally:
                saved.put(False)
            return adding.result()

    def evaluate(self, candidates: Candidates, tick: Callable[[], None]) -> ChunkResult:
        """Search the candidates of one chunk and rank them."""
        triples = candidates.triples
        number = len(triples)
        searched = np.arange(number)
        truth = np.zeros((len(chunks.OUTCOMES), 3), dtype=np.int64)
        upper = chunks.NO_PLACES
        if self.closure is not None:
            held, known = provable(self.graph, self.closure, triples)
            upper = histogram(*places(held.astype(np.float64), candidates.slots))
            if self.asked.prune:
                searched = np.flatnonzero(held | ~known)
        outcome = np.full(number, REFUTED, dtype=np.int8)
        steps = np.zeros(number, dtype=np.int32)
        dropped, nans, calls, seconds = Dropped(), 0, 0, 0.0
        if len(searched):
            session = self._loaded(triples[searched], candidates)
            began = time.monotonic()
            self._began = self._began or began
            found, calls = session.search(tick)
            seconds = time.monotonic() - began
            # Rows of padding come after the candidates.
            outcome[searched] = found.outcome[: len(searched)]
            steps[searched] = found.steps[: len(searched)]
            dropped, nans = found.dropped, found.nans
            self._tell_of_kernels(dict(found.settings).get("kernels", ""))
        if self.closure is not None:
            np.add.at(truth, (outcome.astype(np.int64), np.where(known, held, 2)), 1)
        scores, unlike = (outcome == PROVED).astype(np.float64), 0
        if self.scorer is not None:
            scores, unlike = self.scorer.scores(triples, outcome)
        return ChunkResult(
            outcome=outcome,
            steps=steps,
            places=histogram(*places(scores, candidates.slots)),
            upper_places=upper,
            truth=truth,
            dropped=np.array(dropped, dtype=np.int64),
            counts=np.array([calls, nans, candidates.invalid, unlike], dtype=np.int64),
            seconds=np.array(seconds),
        )

    def _tell_of_kernels(self, why: str) -> None:
        if why != self._kernels and not self.asked.quiet:
            tell(f"kgprof: the kernels of levels are {why or 'used again'}")
        self._kernels = why

    def _loaded(self, triples: np.ndarray, candidates: Candidates) -> EvaluatorSession:
        """A session with these candidates: the last one, where it can take them, padded to the size
        that it has."""
        # Few are left of a pruned chunk: powers of two, so that few sizes have to be compiled.
        rows = 1 << max(8, (len(triples) - 1).bit_length()) if self.asked.prune else self._rows
        padded = np.zeros((rows, 3), dtype=np.int64)
        padded[: len(triples)] = triples
        if self.session is not None and self.session.load(padded):
            return self.session
        # What cannot be loaded anew gets no padding either.
        for filled in (padded, triples):
            self.workload.candidates = replace(candidates, triples=filled)
            session = self.session = self.workload.prepare(self.key, self.device)
            if session.load(padded):
                break
        return session

    def _drawn(
        self, store: Checkpoint, mine: Sequence[int]
    ) -> Iterator[tuple[int, Candidates | None]]:
        """These chunks with their candidates, None where the result is kept; drawn while the one
        before is searched."""

        def draw(chunk: int) -> Candidates | None:
            try:
                if store.load(chunk) is not None:
                    return None
            except InputError as error:
                tell(f"kgprof: {error.message}; this chunk is computed again")
            return self.sampling.candidates(*store.bounds[chunk : chunk + 2])

        with ThreadPoolExecutor(1) as drawer:
            coming = [drawer.submit(draw, chunk) for chunk in mine[:1]]
            for place, chunk in enumerate(mine):
                candidates = coming.pop().result()
                coming += [drawer.submit(draw, after) for after in mine[place + 1 : place + 2]]
                yield chunk, candidates

    def _total(self, store: Checkpoint, saved: "SimpleQueue[bool]") -> Total:
        """The sum in the first process, to which the others hand their chunks one by one; all as
        soon as they come."""
        rank = self.processes.rank
        total = Total()
        hint = OUTLIVES
        if store.kept:
            hint = f"go on with --resume {store.folder}: finished chunks are there"
        for chunk in range(store.chunks):
            owner = chunk % self.processes.world
            if owner == rank:
                if not saved.get():
                    return total  # of nothing: the search has ended with an error
                result = store.load(chunk)
                assert result is not None
                if rank:
                    _together(dist.send_object_list, [result], 0, hint=hint)
                else:
                    total.add(result, owner)
            elif not rank:
                received: list[Any] = [None]
                _together(dist.recv_object_list, received, owner, hint=hint)
                total.add(received[0], owner)
        return total


class _Progress:
    """Lines on stderr: how many of this process's candidates are done, how many a second, and how
    long it will take."""

    def __init__(self, evaluation: Evaluation, store: Checkpoint, mine: range) -> None:
        self._sizes = store.candidates
        self._all = sum(self._sizes[chunk] for chunk in mine)
        self._done = self._begun_with = 0
        self.chunk = 0  # that is searched
        # `levels` finishes nearly all candidates of a chunk at once, at its last level.
        self._steadily = by_name(evaluation.asked.strategy) is not Levels
        self._evaluation = evaluation
        self._began = self._last = time.monotonic()
        rank, world = evaluation.processes.rank, evaluation.processes.world
        self._shown = not evaluation.asked.quiet and not rank
        self._who = f"process 1 of {world}: " if world > 1 else ""

    def tick(self) -> None:
        if self._shown and time.monotonic() - self._last >= PROGRESS_S:
            session = self._evaluation.session
            in_chunk = session.finished if session is not None else 0
            self._tell(min(in_chunk, self._sizes[self.chunk]))

    def finish(self, chunk: int, *, fresh: bool) -> None:
        self._done += self._sizes[chunk]
        if not fresh:  # from the checkpoint: no work of this run
            self._begun_with += self._sizes[chunk]
        if self._shown and (time.monotonic() - self._last >= PROGRESS_S or self._done == self._all):
            self._tell()

    def _tell(self, in_chunk: int = 0) -> None:
        self._last = time.monotonic()
        done = self._done + in_chunk
        left = self._all - done
        elapsed = self._last - self._began
        fresh = done - self._begun_with
        speed = ""
        if left and elapsed and fresh > (0 if self._steadily else in_chunk):
            time_left = _duration(left * elapsed / fresh)
            speed = f", {fresh / elapsed:,.0f} candidates/s, {time_left} left"
        share = f"{done:,} of {self._all:,} candidates"
        at = f"chunk {self.chunk + 1} of {len(self._sizes)}"
        tell(f"kgprof: {elapsed:7.1f} s  {self._who}{share}, {at}{speed}")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _device(name: str, processes: Processes) -> torch.device:
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UsageError("--device cuda, and torch sees no GPU", hint="give --device cpu")
    count = torch.cuda.device_count()
    if processes.local >= count:
        hint = f"start at most {count} processes on this machine"
        raise UsageError(f"process {processes.local + 1} has no GPU, there are {count}", hint=hint)
    torch.cuda.set_device(processes.local)
    return torch.device("cuda", processes.local)


def _peak_bytes() -> int:
    """The most memory that this process has held. Linux hands ru_maxrss on to what a process
    becomes, VmHWM not."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        held = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(held.split()[1]) * 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _together(call: Callable[..., Any], *args: Any, hint: str = OUTLIVES) -> None:
    """A call that other processes take part in. Raises WorkloadError when one of them is gone."""
    try:
        call(*args)
    except RuntimeError as error:
        raise WorkloadError(
            f"another process of the evaluation died: {_reason(error)}", hint=hint
        ) from None
