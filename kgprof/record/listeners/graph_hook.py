"""How often each compiled graph ran, call by call: silence after a recompile limit is seen here and
nowhere else."""

from typing import Any

import msgspec

from kgprof import model as m
from kgprof.record.ground.kept_records import Lines
from kgprof.record.ground.source import aside, not_compiled, words
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.compiled_calls import RunsHere
from kgprof.record.listeners.graph_lines import lines_of_operators
from kgprof.record.listeners.installed_graphs import Graph, InstalledGraphs, compile_id_of

FAILURES = 1000  # of backends, that are kept


class GraphHook(InstalledGraphs):
    """One GraphRuns for each graph that was compiled while it listened."""

    name = "graph hook"

    def __init__(self, calls: CallIndex, runs_here: RunsHere | None = None) -> None:
        """``runs_here``: counted up for each run, whichever graph's."""
        super().__init__()
        self._calls = calls
        self._runs_here = runs_here or RunsHere()
        self._graphs: list[m.GraphRuns] = []
        self._failures: list[m.BackendFailure] = []

    @property
    def graphs(self) -> tuple[m.GraphRuns, ...]:
        return tuple(self._graphs)

    def lines(self) -> Lines:
        """For the file of records."""
        yield from ({"graph": msgspec.to_builtins(graph, str_keys=True)} for graph in self.graphs)
        yield from ({"backend": msgspec.to_builtins(failure)} for failure in self._failures)

    def capture(self, output: Any) -> Any:
        return lines_of_operators(output.graph)

    @aside
    def failed(self, output: Any, error: Exception) -> None:
        if len(self._failures) < FAILURES:
            code = output.root_tx.f_code
            failure = m.BackendFailure(
                call=self._calls.current,
                function=code.co_name,
                file=code.co_filename,
                first_line=code.co_firstlineno,
                error=words(getattr(error, "inner_exception", error)),
            )
            self._failures.append(failure)

    def around(self, output: Any, graph: Graph, captured: Any) -> Graph:
        calls = self._calls
        runs_here = self._runs_here
        runs: dict[int, int] = {}
        self._graphs.append(
            m.GraphRuns(
                compile_id=compile_id_of(output),
                inputs=tuple(map(name_of, output.placeholders)),
                runs=runs,
                cuda_graphs=asks_for_cuda_graphs(output.compiler_fn),
                lines=captured or (),
            )
        )

        def counted(*args: Any, **kwargs: Any) -> Any:
            call = calls.current
            runs[call] = runs.get(call, 0) + 1
            runs_here.count += 1
            return graph(*args, **kwargs)

        not_compiled(counted)
        return counted


def name_of(placeholder: Any) -> str:
    """Dynamo's source of one input, ``L['x']``: metadata before a backend is called, an attribute
    from then on."""
    source = getattr(placeholder, "_dynamo_source", None)
    if source is None:
        source = getattr(placeholder.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)


def is_made(placeholder: Any) -> bool:
    """Whether Dynamo makes this input in each call, from a number or an array of numpy's."""
    return getattr(placeholder.meta.get("grapharg"), "pass_arg_as_tensor", False)


def asks_for_cuda_graphs(backend: Any) -> bool | None:
    """What torch.compile's mode and options say to Inductor, or Inductor's own default."""
    while (inner := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
        backend = inner
    settings = getattr(backend, "config", None)
    if getattr(backend, "compiler_name", "") != "inductor" or not isinstance(settings, dict):
        return None
    from torch._inductor import config

    return bool(settings.get("triton.cudagraphs", config.triton.cudagraphs))
