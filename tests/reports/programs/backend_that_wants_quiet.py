"""A backend that refuses to compile while torch's logs of graph breaks are on; nothing has switched them on here."""

import logging

import torch


def quiet(graph, inputs):
    if logging.getLogger("torch._dynamo.symbolic_convert.__graph_breaks").isEnabledFor(logging.DEBUG):
        raise RuntimeError("no verbose logs with this backend")
    return graph.forward


@torch.compile(backend=quiet)
def halved(rows):
    return rows / 2


def step():
    return halved(torch.ones(4))


if __name__ == "__main__":
    for _ in range(6):
        step()
