"""The built-in workload: from options to sessions that the recorder can step, and to a judgement of
their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from kgprof import model as m
from kgprof.errors import UsageError
from kgprof.reading.link_prediction import UNIT
from kgprof.workloads.linkpred.agreement import Judge, Replays
from kgprof.workloads.linkpred.arrays import Ints
from kgprof.workloads.linkpred.caps import Caps
from kgprof.workloads.linkpred.evaluator import EvaluatorSession, Search, SlotSearch
from kgprof.workloads.linkpred.graph import FIRST_PREDICATE, KnowledgeGraph
from kgprof.workloads.linkpred.options import (
    FIRST_LOOKS,
    TRANSPOSED,
    LinkpredOptions,
    load_graph,
    parse,
)
from kgprof.workloads.linkpred.policy import (
    VARIABLES,
    GreedyChooser,
    PolicyNetwork,
    PolicySizes,
    load_weights,
)
from kgprof.workloads.linkpred.proof import Prover
from kgprof.workloads.linkpred.sampler import Candidates, sample
from kgprof.workloads.linkpred.slots import Problem, SlotStrategy
from kgprof.workloads.linkpred.strategies import STRATEGIES, by_name
from kgprof.workloads.linkpred.strategies.batched import Batched
from kgprof.workloads.linkpred.strategies.fused import Fused
from kgprof.workloads.linkpred.strategies.levels import Levels
from kgprof.workloads.linkpred.strategies.torch_cond import TorchCond
from kgprof.workloads.linkpred.unification import Engine
from kgprof.workloads.protocol import require_mode

DEFAULT_STRATEGIES = (Batched, TorchCond, Fused)
DEFAULT_MODES = (m.EAGER, "default")
PART = 16  # queries


def build(args: Sequence[str], seed: int) -> LinkPrediction:
    """The workload that ``args`` (what stands after ``--``) describe. Raises UsageError and
    InputError."""
    options = parse(args)
    graph = load_graph(options, seed)
    candidates = sample(graph, queries=options.queries, corruptions=options.corruptions, seed=seed)
    built = LinkPrediction(options, graph, candidates, seed)
    built.sized = any(each.partition("=")[0] in ("--queries", "--max-steps") for each in args)
    return built


class LinkPrediction:
    """Comparable-, Counting- and DivisibleWorkload: candidates ranked by whether the greedy search
    proves them."""

    name = "linkpred"
    unit = UNIT
    sized = False  # how many queries was asked for

    def __init__(
        self, options: LinkpredOptions, graph: KnowledgeGraph, candidates: Candidates, seed: int
    ) -> None:
        self.options = options
        self.graph = graph
        self.candidates = candidates
        self.seed = seed
        self.caps = Caps.from_graph(
            graph,
            atoms=options.max_atoms,
            children=options.max_children,
            width=options.children_width,
            facts=options.fact_fanout,
            rules=options.rule_fanout,
            selection=options.selection,
            depth=options.depth,
        )

    def part(self) -> tuple[LinkPrediction, str]:
        """PART queries: a batch or two of the size that all have."""
        whole = len(self.candidates.queries)
        if self.sized or whole <= PART:
            return self, ""
        chosen = sample(
            self.graph, queries=PART, corruptions=self.options.corruptions, seed=self.seed
        )
        said = f"{PART} of {whole:,} queries; all of them with `-- --queries {whole}`"
        return LinkPrediction(self.options, self.graph, chosen, self.seed), said

    def strategies(self) -> Sequence[m.StrategyPlan]:
        return tuple(
            m.StrategyPlan(name=s.name, modes=s.modes, summary=s.summary) for s in STRATEGIES
        )

    def check_strategy(self, name: str) -> None:
        """Raises UsageError for a name that is not offered: one of a later version, or an unknown
        one."""
        by_name(name)

    def alternatives(self) -> Sequence[m.Alternative]:
        """``fused`` derives fresh and continuing slots in one call, without asking whether there
        are fresh ones."""
        return (m.Alternative(guarded=TorchCond.name, always=Fused.name),)

    def default_runs(self, device: torch.device) -> Sequence[m.RunKey]:
        return tuple(m.RunKey(s.name, mode) for s in DEFAULT_STRATEGIES for mode in DEFAULT_MODES)

    def baseline(self, runs: Sequence[m.RunKey]) -> m.RunKey | None:
        """``batched`` in eager where it runs, else the first eager run, else the first."""
        lockstep = m.RunKey(Batched.name, m.EAGER)
        if lockstep in runs:
            return lockstep
        eager = [run for run in runs if run.mode == m.EAGER]
        return next(iter([*eager, *runs]), None)

    def prepare(self, run: m.RunKey, device: torch.device) -> EvaluatorSession:
        """Raises UsageError for a strategy or mode that is not there, InputError for weights that
        do not fit."""
        strategy = by_name(run.strategy)
        require_mode(run, strategy.modes)
        options, settings = self.options, self.settings()
        # Process-wide, like the option it stands for; each run has a process of its own.
        torch.set_float32_matmul_precision("high" if options.allow_tf32 else "highest")
        first_look = options.first_look
        if first_look != FIRST_LOOKS[0] and not issubclass(strategy, Levels):
            hint = f"--strategy {Levels.name}, or leave it out"
            raise UsageError(
                f"strategy {run.strategy!r} has no --first-look {first_look}", hint=hint
            )
        if issubclass(strategy, SlotStrategy):
            search: Search = SlotSearch(
                strategy(self.problem(device)),
                run.mode,
                part=options.compile,
                marked=options.mark_steps,
            )
        elif issubclass(strategy, Levels):
            search = strategy(
                self.problem(device), run.mode, part=options.compile, first_look=first_look
            )
        else:
            search = strategy(self.replays())
            settings["dtype"] = "float64"  # the chooser's, whatever --dtype says
        return EvaluatorSession(search, self.candidates, settings, options.max_steps)

    def agreement(
        self, results: Mapping[m.RunKey, Mapping[str, np.ndarray]], baseline: m.RunKey | None
    ) -> m.Agreement:
        options = self.options
        judge = Judge(
            replays=self.replays(),
            seed=self.seed,
            threshold=options.near_tie_gap,
            dtype=options.dtype,
        )
        threads = torch.get_num_threads()
        # thousands of tiny operators: two threads would wait for each other in each of them
        torch.set_num_threads(1)
        try:
            return judge.agreement(results, baseline)
        finally:
            torch.set_num_threads(threads)

    def replays(self) -> Replays:
        return Replays(
            prover=self.prover(),
            choose=self.chooser(),
            triples=self.candidates.triples,
            depth=self.options.depth,
        )

    def problem(self, device: torch.device) -> Problem:
        """The engine, the policy and the candidates on ``device``."""
        problem = Problem(
            Engine(self.graph, self.caps, self.options.selection),
            self.policy(),
            torch.from_numpy(self.candidates.triples),
            batch_size=self.options.batch_size,
            depth=self.options.depth,
            queries=self._queries() if self.options.layout == TRANSPOSED else None,
            choices=self.options.choices,
        )
        return problem.to(device)

    def _queries(self) -> Ints:
        """int64 [N]: the query that each candidate is of; padding, which is of none, is spread over
        the slots."""
        of = np.arange(len(self.candidates.triples))
        query, side, column = np.nonzero(self.candidates.slots >= 0)
        of[self.candidates.slots[query, side, column]] = query
        return of

    def policy(self) -> PolicyNetwork:
        """On the CPU, with the weights of ``--policy`` or seeded random ones."""
        options = self.options
        sizes = PolicySizes(
            predicates=FIRST_PREDICATE + len(self.graph.predicates),
            terms=1 + len(self.graph.constants) + VARIABLES,
            names=1 + len(self.graph.constants) + 2 * self.caps.atoms,
            embedding=options.embedding,
            hidden=options.hidden,
            layers=options.layers,
        )
        policy = PolicyNetwork(sizes, getattr(torch, options.dtype), self.seed)
        if options.policy is not None:
            load_weights(policy, options.policy)
        return policy

    def prover(self) -> Prover:
        return Prover(self.graph, self.caps, self.options.selection)

    def chooser(self) -> GreedyChooser:
        """The policy in float64 on the CPU, whatever the runs use: float32 weights are widened, not
        drawn anew."""
        return GreedyChooser(self.policy().double(), self.caps.atoms)

    def settings(self) -> dict[str, str]:
        """What the report says the evaluation was: the options as given, then what they came to."""
        graph, candidates, caps = self.graph, self.candidates, self.caps
        # How many corruptions a query has on a side, which filtering may have made fewer than asked
        # for.
        counts = (candidates.slots[:, :, 1:] >= 0).sum(axis=2)
        numbers = " to ".join(map(str, sorted({counts.min(), counts.max()})))
        effective = {
            "graph": graph.name,
            "seed": str(self.seed),
            "facts": str(len(graph.train)),
            "rules": str(len(graph.rules)),
            "predicates": str(len(graph.predicates)),
            "constants": str(len(graph.constants)),
            "queries evaluated": str(len(candidates.queries)),
            "corruptions evaluated": f"{numbers} per side",
            "caps": f"{caps.atoms} atoms, {caps.children} children (tensor {caps.width} wide), "
            f"{caps.facts} facts, {caps.rules} rules",
            "notes": "; ".join((*graph.notes, *candidates.notes)) or "none",
        }
        return {**self.options.as_text(), **effective}
