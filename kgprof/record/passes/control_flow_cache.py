"""Compiled graphs with control flow (torch.cond), which torch does not cache, kept from child A for
child B.

COMPILE records that torch passed its cache by, and what it compiled cold. Child B runs the same
program to see how that code is called; with what child A keeps it need not lower the graph a second
time. The key is torch's own, computed as if these operators could be cached: their subgraphs are in
it.
"""

import importlib
import sys
from contextlib import ExitStack
from typing import Any
from unittest import mock

from torch._ops import HigherOrderOperator

from kgprof.record.ground.source import Source, replace
from kgprof.record.passes.timing import BYPASS

# Inductor writes their subgraphs into its code
CONTROL_FLOW = ("cond", "while_loop", "scan", "associative_scan")


class ControlFlowCache(Source):
    """While entered, such a graph is kept as torch keeps others (``keeps``, child A), or looked for
    first."""

    name = "cache of graphs with control flow"

    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self._key: Any = None  # of the graph that is about to be compiled past the cache

    def listen(self, undo: ExitStack) -> None:
        cache = importlib.import_module("torch._inductor.codecache").FxGraphCache
        compile_fx = importlib.import_module("torch._inductor.compile_fx")
        prepare = cache.prepare_key
        save = cache._save_graph
        generate = compile_fx.fx_codegen_and_compile
        counters = importlib.import_module("torch._dynamo.utils").counters
        cacheable = HigherOrderOperator.cacheable

        def prepared(*graph: Any, **named: Any) -> Any:
            found, info = prepare(*graph, **named)
            self._key = None
            if found is None:
                counted = counters["inductor"][BYPASS]
                with mock.patch.object(
                    HigherOrderOperator,
                    "cacheable",
                    lambda this: this.name() in CONTROL_FLOW or cacheable(this),
                ):
                    self._key, _ = prepare(*graph, **named)
                counters["inductor"][BYPASS] = counted
            return (self._key, {}) if self._key and not self._keeps else (found, info)

        def generated(graph: Any, inputs: Any, *args: Any, **named: Any) -> Any:
            key = self._key
            self._key = None
            compiled = generate(graph, inputs, *args, **named)
            if key and self._keeps:
                try:
                    save(key[0], compiled, inputs, True, None)
                except Exception as error:  # noqa: BLE001  the program's compilation has succeeded
                    why = f"{type(error).__name__}: {error}"
                    print(  # noqa: T201
                        f"[kgprof: a graph could not be kept: {why}]", file=sys.stderr, flush=True
                    )
            return compiled

        replace(cache, "prepare_key", staticmethod(prepared), undo)
        replace(compile_fx, "fx_codegen_and_compile", generated, undo)
