"""How often each compiled graph ran, call by call: silence after a recompile limit is seen here and nowhere else.

Dynamo puts a compiled graph into the module's globals under a name of its own and calls it from there
(``OutputGraph.install_global_unsafe``). A counter is put in its place while the source listens; on exit the graph
itself is put back, so that nothing of this stands in the passes that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import msgspec

from kgprof.compile_records import GraphRuns
from kgprof.record.call_index import CallIndex

PREFIX = "__compiled_fn"


class GraphHook:
    """One GraphRuns for each graph that was compiled while it listened."""

    name = "graph hook"

    def __init__(self, calls: CallIndex) -> None:
        self.unavailable = ""
        self._calls = calls
        self._graphs: list[GraphRuns] = []
        self._counted: list[tuple[dict[str, Any], str, Any, Any]] = []
        self._restore: Callable[[], None] | None = None

    @property
    def graphs(self) -> tuple[GraphRuns, ...]:
        return tuple(self._graphs)

    def lines(self) -> Iterator[dict[str, Any]]:
        """For the file of records."""
        yield from ({"graph": msgspec.to_builtins(graph, str_keys=True)} for graph in self.graphs)

    def __enter__(self) -> GraphHook:
        try:
            from torch._dynamo.eval_frame import skip_code
            from torch._dynamo.output_graph import OutputGraph

            original = OutputGraph.__dict__["install_global_unsafe"]
        except (ImportError, AttributeError, KeyError) as error:
            self.unavailable = f"this torch has no OutputGraph.install_global_unsafe or no skip_code ({error})"
            return self

        def install(this: Any, name: str, value: Any) -> None:
            counting = self._counting(this, value, skip_code) if name.startswith(PREFIX) else value
            original(this, name, counting)
            if counting is not value:
                self._counted.append((this.global_scope, name, counting, value))

        OutputGraph.install_global_unsafe = install  # type: ignore[assignment,method-assign]

        def restore() -> None:
            if OutputGraph.__dict__["install_global_unsafe"] is install:
                OutputGraph.install_global_unsafe = original  # type: ignore[method-assign]

        self._restore = restore
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._restore is not None:
            self._restore()
            self._restore = None
        for scope, name, counting, graph in self._counted:
            if scope.get(name) is counting:  # gone when Dynamo has dropped the code that called it
                scope[name] = graph
        self._counted.clear()

    def _counting(self, output: Any, graph: Callable[..., Any], skip_code: Callable[..., None]) -> Callable[..., Any]:
        calls = self._calls
        runs: dict[int, int] = {}
        self._graphs.append(
            GraphRuns(
                compile_id=str(getattr(output, "dynamo_compile_id", None) or ""),
                inputs=_input_names(output),
                runs=runs,
                cuda_graphs=_asks_for_cuda_graphs(getattr(output, "compiler_fn", None)),
            )
        )

        def counted(*args: Any, **kwargs: Any) -> Any:
            call = calls.current
            runs[call] = runs.get(call, 0) + 1
            return graph(*args, **kwargs)

        # It runs where Dynamo looks at every frame, and must not be compiled itself.
        skip_code(counted.__code__)
        return counted


def _input_names(output: Any) -> tuple[str, ...]:
    """Dynamo's names of the graph's inputs in the order of its placeholders; empty where this torch hides them."""
    names = []
    for node in getattr(output, "placeholders", ()):
        source = getattr(node, "_dynamo_source", None)
        name = getattr(source, "name", "")
        names.append(str(name() if callable(name) else name))
    return tuple(names)


def _asks_for_cuda_graphs(backend: Any) -> bool | None:
    """What torch.compile's mode and options say to Inductor, or Inductor's own default."""
    while (inner := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
        backend = inner
    settings = getattr(backend, "config", None)
    if getattr(backend, "compiler_name", "") != "inductor" or not isinstance(settings, dict):
        return None
    from torch._inductor import config

    return bool(settings.get("triton.cudagraphs", config.triton.cudagraphs))
