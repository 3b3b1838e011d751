"""How Dynamo hands a compiled graph to the code that calls it: the one patch that stands between
the two.

Dynamo captures a graph, has a backend compile it (``OutputGraph.call_user_compiler``), puts the
result into the module's globals under a name of its own and calls it from there
(``OutputGraph.install_global_unsafe``). While anybody listens something else is put there, a layer
for each listener; when one leaves, its layer is taken off, so that nothing of it stands in what
follows.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from kgprof.record.ground.source import Source, aside, replace

PREFIX = "__compiled_fn"
INSTALL = "install_global_unsafe"
COMPILE = "call_user_compiler"

Graph = Callable[..., Any]


class InstalledGraphs(Source):
    """Each graph that is compiled within is replaced by ``around(output_graph, graph, captured)``;
    what entered first stands nearest to the graph, so that what is left first can be taken off
    first."""

    needs: tuple[str, ...] = (INSTALL,)  # methods of Dynamo's OutputGraph

    def __init__(self) -> None:
        # by the identity of Dynamo's OutputGraph, while it compiles
        self._captured: dict[int, Any] = {}

    def capture(self, output: Any) -> Any:
        """What ``around`` is to know of the graph, read before a backend makes something else of
        it."""

    @aside
    def failed(self, output: Any, error: Exception) -> None:
        """A backend did, for one graph; torch may fall back, or raise it to the program."""

    def around(self, output: Any, graph: Graph, captured: Any) -> Graph:
        """``graph`` itself, or what stands around it; ``captured`` is None where ``capture``
        raised."""
        raise NotImplementedError

    @aside
    def put_around(self, output: Any, graph: Graph, captured: Any) -> Graph:
        """``around``; inside Dynamo, where an exception of ours would fail the workload's
        compilation."""
        return self.around(output, graph, captured)

    def listen(self, undo: ExitStack) -> None:
        from torch._dynamo.output_graph import OutputGraph

        lacking = [name for name in self.needs if name not in vars(OutputGraph)]
        if lacking:
            self.unavailable = f"this torch has no OutputGraph.{' or '.join(lacking)}"
        if INSTALL not in lacking:
            if not _listening:
                _put_on(OutputGraph)
            _listening.append(self)
            undo.callback(self._leave)

    def _leave(self) -> None:
        """Takes off what nobody listens through any more; below a layer that is in use it has to
        wait for that one."""
        _listening.remove(self)
        for scope, name, layers in _standing:
            while layers and layers[-1].owner not in _listening:
                layer = layers.pop()
                # Else Dynamo has dropped the code that called it.
                if scope.get(name) is layer.replacement:
                    scope[name] = layer.below
        _standing[:] = [standing for standing in _standing if standing[-1]]
        if not _listening:
            _patch.close()

    def read(self, kept: dict[int, Any], output: Any, read: Callable[[], Any]) -> None:
        """Inside Dynamo: an exception of ours would fail the workload's compilation. It is told as
        unavailable."""
        try:
            kept[id(output)] = read()
        except Exception as error:  # noqa: BLE001
            self.unavailable = f"Dynamo's graph could not be read: {type(error).__name__}: {error}"


def compile_id_of(output: Any) -> str:
    """Return the id of the compilation that a graph of Dynamo's comes from; empty without one."""
    return str(output.dynamo_compile_id or "")


class _Layer(NamedTuple):
    owner: InstalledGraphs
    replacement: Graph
    below: Graph


def _put_on(output_graph: Any) -> None:
    """Once for all that listen: taken off in any order, patches of patches would leave some
    standing."""
    original = vars(output_graph)[INSTALL]
    compiler = vars(output_graph).get(COMPILE)

    def install(this: Any, name: str, value: Any) -> None:
        if not name.startswith(PREFIX):
            original(this, name, value)
            return
        layers: list[_Layer] = []
        for owner in _listening:
            below = layers[-1].replacement if layers else value
            replacement = owner.put_around(this, below, owner._captured.pop(id(this), None))
            if replacement is not None:
                layers.append(_Layer(owner, replacement, below))
        original(this, name, layers[-1].replacement if layers else value)
        _standing.append((this.global_scope, name, layers))

    def compiling(this: Any, *args: Any, **named: Any) -> Any:
        for owner in _listening:
            owner.read(owner._captured, this, partial(owner.capture, this))
        assert compiler is not None
        try:
            return compiler(this, *args, **named)
        except Exception as error:
            is_restart = _is_restart(error)
            for owner in _listening:
                owner._captured.pop(id(this), None)
                if not is_restart:
                    owner.failed(this, error)
            raise

    replace(output_graph, INSTALL, install, _patch)
    if compiler is not None:
        replace(output_graph, COMPILE, compiling, _patch)


def _is_restart(error: Exception) -> bool:
    """torch's own way out of a backend to trace the function once more: nothing failed. As Inductor
    does for a number that a graph break returned."""
    from torch._dynamo import exc

    return isinstance(error, getattr(exc, "RestartAnalysis", ()))


_listening: list[InstalledGraphs] = []
# each graph of a module, under its name there, with what stands around it, innermost first
_standing: list[tuple[dict[str, Any], str, list[_Layer]]] = []
_patch = ExitStack()
