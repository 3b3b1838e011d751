"""Graphs by name: what they hold, and what is said where their package is missing."""

from __future__ import annotations

import json

import pytest

from kgprof.errors import UsageError
from kgprof.workloads.linkpred import datasets
from kgprof.workloads.linkpred.options import load_graph, parse

SIZES = {  # train, valid, test, constants, predicates: PyKEEN's own documentation
    "umls": (5216, 652, 661, 135, 46),
    "kinships": (8544, 1068, 1074, 104, 25),
    "nations": (1592, 199, 201, 14, 55),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_packaged_graph_is_whole_and_its_rules_are_mined(name: str) -> None:
    pytest.importorskip("pykeen", reason="pykeen is not installed")
    options = parse(["--dataset", name])

    graph = load_graph(options, 0)

    parts = (graph.train, graph.valid, graph.test, graph.constants, graph.predicates)
    assert tuple(map(len, parts)) == SIZES[name]
    assert len(graph.rules) > 100
    assert "rules mined from train" in graph.notes[-1]
    assert (options.max_atoms, options.max_children) == (6, 32)


def test_without_its_package_a_graph_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(UsageError) as error:
        load_graph(parse(["--dataset", "umls"]), 0)

    assert (
        error.value.message
        == "the graph 'umls' comes with the package pykeen, which is not installed"
    )
    assert "kgprof[datasets]" in error.value.hint
    rows = json.loads(datasets.listing("json"))
    assert [row["name"] for row in rows] == ["family-tree", *SIZES]
    assert [bool(row["missing"]) for row in rows] == [False, True, True, True]
