"""Reads of one thread while another runs a compiled graph."""

from __future__ import annotations

import threading

import torch

from kgprof.reading.project import ProjectFiles
from kgprof.record.ground import project_sources
from kgprof.record.listeners.call_index import CallIndex
from kgprof.record.listeners.syncs import Syncs


def test_a_read_beside_another_threads_graph_is_in_no_graph():
    # given: a graph that stays in its call until this thread has read
    entered, go_on = threading.Event(), threading.Event()

    def waits(graph, inputs):
        def run(*args):
            entered.set()
            assert go_on.wait(30)
            return graph(*args)

        return run

    compiled = torch.compile(lambda x: x + 1, backend=waits)
    calls = CallIndex()
    syncs = Syncs(calls, torch.device("cpu"), _project())

    # when
    with syncs, calls.call():
        other = threading.Thread(target=compiled, args=(torch.ones(3),))
        other.start()
        assert entered.wait(30)
        torch.ones(1).item()
        go_on.set()
        other.join()

    # then
    assert [(record.op, record.compile_id, record.calls) for record in syncs.records().records] == [
        ("aten::_local_scalar_dense", "", {0: 1})
    ]


def _project() -> ProjectFiles:
    return project_sources.project_files(__file__)
