"""How Dynamo hands a compiled graph to the code that calls it: the one patch that stands between the two.

Dynamo puts a compiled graph into the module's globals under a name of its own and calls it from there
(``OutputGraph.install_global_unsafe``). While anybody listens something else is put there, a layer for each listener;
when one leaves, its layer is taken off, so that nothing of it stands in what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

PREFIX = "__compiled_fn"

Graph = Callable[..., Any]


class InstalledGraphs:
    """Each graph that is compiled within is replaced by ``replaced(output_graph, graph)``; what entered first stands
    nearest to the graph, so that what is left first can be taken off first."""

    def __init__(self, replaced: Callable[[Any, Graph], Graph]) -> None:
        self.unavailable = ""
        self.replaced = replaced

    def __enter__(self) -> InstalledGraphs:
        if not _PATCH.is_on:
            self.unavailable = _PATCH.put_on()
        if not self.unavailable:
            _listening.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self not in _listening:
            return
        _listening.remove(self)
        for standing in _standing:
            standing.take_off()
        _standing[:] = [standing for standing in _standing if standing.layers]
        if not _listening:
            _PATCH.take_off()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layer:
    owner: InstalledGraphs
    replacement: Graph
    below: Graph


@dataclass(frozen=True, kw_only=True, slots=True)
class _Standing:
    """One graph of a module, with what stands around it, innermost first."""

    scope: dict[str, Any]
    name: str
    layers: list[_Layer]

    def take_off(self) -> None:
        """What nobody listens through any more; below a layer that is in use it has to wait for that one."""
        while self.layers and self.layers[-1].owner not in _listening:
            layer = self.layers.pop()
            if self.scope.get(self.name) is layer.replacement:  # gone when Dynamo has dropped the code that called it
                self.scope[self.name] = layer.below


class _Patch:
    """Of ``OutputGraph.install_global_unsafe``, once for all that listen: taken off in any order, patches of patches
    would leave some standing."""

    def __init__(self) -> None:
        self._restore: Callable[[], None] | None = None

    @property
    def is_on(self) -> bool:
        return self._restore is not None

    def put_on(self) -> str:
        """Why it cannot be; empty when it is."""
        try:
            from torch._dynamo.output_graph import OutputGraph

            original = OutputGraph.__dict__["install_global_unsafe"]
        except (ImportError, AttributeError, KeyError) as error:
            return f"this torch has no OutputGraph.install_global_unsafe ({error})"

        def install(this: Any, name: str, value: Any) -> None:
            if not name.startswith(PREFIX):
                original(this, name, value)
                return
            layers = list(_layers(this, value))
            original(this, name, layers[-1].replacement if layers else value)
            _standing.append(_Standing(scope=this.global_scope, name=name, layers=layers))

        OutputGraph.install_global_unsafe = install  # type: ignore[assignment,method-assign]

        def restore() -> None:
            if OutputGraph.__dict__["install_global_unsafe"] is install:
                OutputGraph.install_global_unsafe = original  # type: ignore[method-assign]

        self._restore = restore
        return ""

    def take_off(self) -> None:
        if self._restore is not None:
            self._restore()
            self._restore = None


def _layers(output: Any, graph: Graph) -> Iterator[_Layer]:
    for owner in _listening:
        replacement = owner.replaced(output, graph)
        yield _Layer(owner=owner, replacement=replacement, below=graph)
        graph = replacement


_listening: list[InstalledGraphs] = []
_standing: list[_Standing] = []
_PATCH = _Patch()
