"""How Dynamo hands a compiled graph to the code that calls it: the one patch that stands between the two.

Dynamo puts a compiled graph into the module's globals under a name of its own and calls it from there
(``OutputGraph.install_global_unsafe``). While this is entered something else is put there; on exit the graph itself is
put back, so that nothing of it stands in the passes that follow.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

PREFIX = "__compiled_fn"

Graph = Callable[..., Any]


class InstalledGraphs:
    """Each graph that is compiled within is replaced by ``replaced(output_graph, graph)``."""

    def __init__(self, replaced: Callable[[Any, Graph], Graph]) -> None:
        self.unavailable = ""
        self._replaced = replaced
        self._standing: list[tuple[dict[str, Any], str, Graph, Graph]] = []
        self._restore: Callable[[], None] | None = None

    def __enter__(self) -> InstalledGraphs:
        try:
            from torch._dynamo.output_graph import OutputGraph

            original = OutputGraph.__dict__["install_global_unsafe"]
        except (ImportError, AttributeError, KeyError) as error:
            self.unavailable = f"this torch has no OutputGraph.install_global_unsafe ({error})"
            return self

        def install(this: Any, name: str, value: Any) -> None:
            if not name.startswith(PREFIX):
                original(this, name, value)
                return
            standing = self._replaced(this, value)
            original(this, name, standing)
            self._standing.append((this.global_scope, name, standing, value))

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
        for scope, name, standing, graph in self._standing:
            if scope.get(name) is standing:  # gone when Dynamo has dropped the code that called it
                scope[name] = graph
        self._standing.clear()
