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
    processes = Processes()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        if missing := [name for name in names if not os.environ.get(name, "").isdecimal()]:
            hint = "start several processes with torchrun, which sets it"
            raise UsageError(
                f"{missing[0]} must be a whole number where one of {', '.join(names)} is set",
                hint=hint,
            )
        rank, world, local = (int(os.environ[name]) for name in names)
        processes = Processes(rank=rank, world=world, local=local)
        try:
            dist.init_process_group("gloo", timeout=LONGEST_WAIT)
        except (RuntimeError, ValueError) as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise UsageError(
                f"the {world} processes cannot join: {reason}", hint="start them with torchrun"
            ) from None
    evaluated = []
    try:
        graph = options.load_graph(asked.runs[0], asked.seed)
        began = time.monotonic()
        whole = closure(graph) if asked.check or asked.prune else None
        closure_s = time.monotonic() - began
        if whole is not None and not asked.quiet and not processes.rank:
            state = "" if whole.complete else ", and stopped there: too large"
            tell(f"kgprof: {closure_s:7.1f} s  the closure has {whole.size:,} triples{state}")
        for run in asked.runs:
            found = Evaluation(asked, run, graph, whole, processes).run()
            if found is not None:
                evaluated.append(replace(found, closure_seconds=closure_s))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    if processes.rank:
        return "", EXIT_OK
    wrong = any(evaluation.impossible for evaluation in evaluated)
    text = as_json(evaluated) if asked.form == "json" else as_text(evaluated)
    return text, EXIT_GATE_FAILED if wrong else EXIT_OK


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
        self.asked, self.options, self.graph, self.closure, self.processes = (
            asked,
            run,
            graph,
            whole,
            processes,
        )
        self.sampling = Sampling(
            graph, queries=run.queries, corruptions=run.corruptions, seed=asked.seed
        )
        self.device = _device(asked.device, processes)
        nothing = np.empty((0, 3), dtype=np.int64)
        slots = np.empty((0, 2, 1), dtype=np.int64)
        empty = Candidates(queries=nothing, triples=nothing, slots=slots, notes=self.sampling.notes)
        self.workload = LinkPrediction(run, graph, empty, asked.seed)
        self.key = m.RunKey(asked.strategy, asked.mode)
        self.workload.check_strategy(asked.strategy)
        self.scorer: Scorer | None = None
        if asked.score != evaluation_options.SCORES[0]:
            policy = self.workload.policy().double()
            self.scorer = Scorer(self.workload.prover(), policy, asked.score, run.depth)
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
        caps = self.workload.caps
        return {
            **self.options.as_text(),
            "graph": f"{graph.name}, {content.hexdigest()[:16]}",
            "weights": "seeded"
            if policy is None
            else hashlib.sha256(policy.read_bytes()).hexdigest()[:16],
            "seed": str(asked.seed),
            "strategy": asked.strategy,
            "mode": asked.mode,
            "device": self.device.type,
            "torch": str(torch.__version__),
            "closure": "prune" if asked.prune else "check" if asked.check else "none",
            "score": asked.score,
            "caps": (
                f"{caps.atoms} atoms, {caps.children} children, {caps.facts} facts, "
                f"{caps.rules} rules"
            ),
        }

    def run(self) -> Evaluated | None:
        """None in all processes but the first."""
        asked, rank, world = self.asked, self.processes.rank, self.processes.world
        folder = asked.folder
        if folder is not None and len(asked.runs) > 1:
            folder = folder / f"corruptions-{self.options.corruptions or options.ALL}"
        settings = self.settings()
        bounds = chunks.bounds(self.sampling.counts, asked.most)
        if rank:  # the first process looks at the folder, and writes down what it is of
            _together(dist.barrier)
        with closing(
            Checkpoint(folder, settings, bounds, resume=asked.resume or rank > 0)
        ) as store:
            if world > 1 and not rank:
                _together(dist.barrier)
            began = time.monotonic()
            sizes = (self.sampling.counts + 1).sum(axis=1)
            self._rows = int(np.add.reduceat(sizes, store.bounds[:-1]).max())
            mine = range(rank, store.chunks, world)
            progress = _Progress(self, store, mine)
            # one more of this process's chunks; False: no more will come
            saved = SimpleQueue[bool]()
            with ThreadPoolExecutor(1) as adder:
                try:
                    adding = adder.submit(self._total, store, saved)
                    for chunk, candidates in self._drawn(store, mine):
                        if candidates is not None:
                            progress.begin(chunk)
                            store.save(chunk, self.evaluate(candidates, progress.tick))
                        saved.put(True)
                        progress.done(chunk)
                except KeyboardInterrupt:
                    if store.kept:
                        tell(
                            f"kgprof: finished chunks are in {folder}; go on with --resume {folder}"
                        )
                    raise
                finally:
                    saved.put(False)
                total = adding.result()
            elapsed_s = time.monotonic() - (began if self._began is None else self._began)
        if rank:
            return None
        return Evaluated(
            total=total,
            settings=settings,
            notes=(*self.graph.notes, *self.sampling.notes),
            queries=len(self.sampling.queries),
            corruptions=str(self.options.corruptions or options.ALL),
            slots=strategy.room(self.options.batch_size, self.options.choices)
            if issubclass(strategy := by_name(asked.strategy), SlotStrategy)
            else None,
            chunks=store.chunks,
            processes=world,
            elapsed_s=elapsed_s,
            peak_bytes=_peak_bytes(),
            peak_gpu_bytes=torch.cuda.max_memory_allocated()
            if self.device.type == "cuda"
            else None,
            closure=None
            if self.closure is None
            else (self.closure.size, self.closure.rounds, self.closure.complete),
            closure_seconds=0.0,
        )

    def evaluate(self, candidates: Candidates, tick: Any) -> ChunkResult:
        """Search the candidates of one chunk and rank them."""
        triples = candidates.triples
        number = len(candidates.triples)
        held = known = np.zeros(number, dtype=np.bool_)
        if self.closure is not None:
            held, known = provable(self.graph, self.closure, triples)
        searched = np.flatnonzero(held | ~known) if self.asked.prune else np.arange(number)
        outcome = np.full(number, REFUTED, dtype=np.int8)
        steps = np.zeros(number, dtype=np.int32)
        dropped, nans, calls, seconds = (0, 0, 0, 0), 0, 0, 0.0
        if len(searched):
            session = self._loaded(triples[searched], candidates)
            began = time.monotonic()
            self._began = self._began or began
            found, calls = session.search(tick)
            seconds = time.monotonic() - began
            # Rows of padding come after the candidates.
            outcome[searched], steps[searched] = (
                found.outcome[: len(searched)],
                found.steps[: len(searched)],
            )
            dropped = found.dropped
            nans = found.nans
            if (
                why := dict(found.settings).get("kernels", "")
            ) != self._kernels and not self.asked.quiet:
                tell(f"kgprof: the kernels of levels are {why or 'used again'}")
            self._kernels = why
        scores = (outcome == PROVED).astype(np.float64)
        if self.scorer is not None:
            scores = self.scorer.scores(triples, outcome)
        nobody = chunks.NO_PLACES
        upper = (
            histogram(*places(held.astype(np.float64), candidates.slots))
            if self.closure is not None
            else nobody
        )
        truth = np.zeros((len(chunks.OUTCOMES), 3), dtype=np.int64)
        if self.closure is not None:
            np.add.at(truth, (outcome.astype(np.int64), np.where(known, held, 2)), 1)
        unlike = self.scorer.unlike if self.scorer is not None else 0
        if self.scorer is not None:
            self.scorer.unlike = 0
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

    def _loaded(self, triples: np.ndarray, candidates: Candidates) -> EvaluatorSession:
        """A session with these candidates: the last one, where it can take them, padded to the size
        that it has."""
        # Few are left of a pruned chunk: powers of two, so that few sizes have to be compiled.
        rows = 1 << max(8, (len(triples) - 1).bit_length()) if self.asked.prune else self._rows
        padded = np.zeros((rows, 3), dtype=np.int64)
        padded[: len(triples)] = triples
        if self.session is None or not self.session.load(padded):
            # What cannot be loaded anew gets no padding either.
            self.workload.candidates = replace(candidates, triples=padded)
            session = self.workload.prepare(self.key, self.device)
            if not session.load(padded):
                self.workload.candidates = replace(candidates, triples=triples)
                session = self.workload.prepare(self.key, self.device)
            self.session = session
        return self.session

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
        world = self.processes.world
        total = Total()
        hint = (
            f"go on with --resume {store.folder}: finished chunks are there" if store.kept else ""
        )
        for chunk in range(store.chunks):
            owner = chunk % world
            result = None
            if owner == rank:
                if not saved.get():
                    return total  # of nothing: the search has ended with an error
                result = store.load(chunk)
            if owner == rank != 0:
                assert result is not None
                packed = torch.frombuffer(bytearray(result.packed()), dtype=torch.uint8)
                _together(dist.send, torch.tensor([len(packed)]), 0, hint=hint)
                _together(dist.send, packed, 0, hint=hint)
            elif owner != rank == 0:
                size = torch.zeros(1, dtype=torch.int64)
                _together(dist.recv, size, owner, hint=hint)
                packed = torch.empty(int(size), dtype=torch.uint8)
                _together(dist.recv, packed, owner, hint=hint)
                result = ChunkResult.unpacked(packed.numpy().tobytes())
            if not rank:
                assert result is not None
                total.add(result, owner)
        return total


class _Progress:
    """Lines on stderr: how many of this process's candidates are done, how many a second, and how
    long it will take."""

    def __init__(self, evaluation: Evaluation, store: Checkpoint, mine: range) -> None:
        sizes = (evaluation.sampling.counts + 1).sum(axis=1)
        self._sizes = [
            int(sizes[slice(*store.bounds[chunk : chunk + 2])].sum())
            for chunk in range(store.chunks)
        ]
        self._all = sum(self._sizes[chunk] for chunk in mine)
        self._done = self._begun_with = 0
        self._chunk, self._chunks = 0, store.chunks
        self._fresh = False
        # `levels` finishes nearly all candidates of a chunk at once, at its last level.
        self._steadily = by_name(evaluation.asked.strategy) is not Levels
        self._evaluation = evaluation
        self._began = self._last = time.monotonic()
        self._shown = not evaluation.asked.quiet and not evaluation.processes.rank
        self._who = (
            f"process 1 of {evaluation.processes.world}: " if evaluation.processes.world > 1 else ""
        )

    def begin(self, chunk: int) -> None:
        self._chunk = chunk
        self._fresh = True

    def tick(self) -> None:
        if self._shown and time.monotonic() - self._last >= PROGRESS_S:
            session = self._evaluation.session
            in_chunk = session.finished if session is not None else 0
            self._tell(min(in_chunk, self._sizes[self._chunk]))

    def done(self, chunk: int) -> None:
        self._done += self._sizes[chunk]
        if not self._fresh:  # from the checkpoint: no work of this run
            self._begun_with += self._sizes[chunk]
        self._fresh = False
        if self._shown and (time.monotonic() - self._last >= PROGRESS_S or self._done == self._all):
            self._tell()

    def _tell(self, in_chunk: int = 0) -> None:
        self._last = time.monotonic()
        done = self._done + in_chunk
        elapsed = self._last - self._began
        fresh = done - self._begun_with
        speed = ""
        if elapsed and fresh > (0 if self._steadily else in_chunk):
            left = (self._all - done) * elapsed / fresh
            speed = (
                f", {fresh / elapsed:,.0f} candidates/s, {_duration(left)} left"
                if self._all > done
                else ""
            )
        share = f"{done:,} of {self._all:,} candidates"
        tell(
            f"kgprof: {elapsed:7.1f} s  {self._who}{share}, chunk {self._chunk + 1} of "
            f"{self._chunks}{speed}"
        )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes} min"
        if hours
        else f"{minutes} min {rest} s"
        if minutes
        else f"{rest} s"
    )


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
        return next(
            int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")
        )
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _together(call: Callable[..., Any], *args: Any, hint: str = "") -> None:
    """A call that other processes take part in. Raises WorkloadError when one of them is gone."""
    try:
        call(*args)
    except RuntimeError as error:
        hint = hint or "with --checkpoint DIR finished chunks outlive a process"
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise WorkloadError(
            f"another process of the evaluation died: {reason}", hint=hint
        ) from None
