"""Relevance scorers over [batch, patches, width] features: each a few small kernels, whatever the
number of patches.

The document has no code for the salience scorer; here it is the distance of a patch from the mean
patch.
"""

import functools

import torch

from kgprof.workloads.example import Compile, Shapes, Step, Strategy


def information_of(features: torch.Tensor) -> torch.Tensor:
    """[batch, patches]: Shannon's entropy of each patch's softmax."""
    probabilities = torch.softmax(features, dim=-1)
    entropy: torch.Tensor = -(probabilities * torch.log(probabilities + 1e-8)).sum(dim=-1)
    return entropy


def salience_of(features: torch.Tensor) -> torch.Tensor:
    """[batch, patches]: how far each patch is from the mean of its image."""
    distance: torch.Tensor = torch.linalg.vector_norm(
        features - features.mean(dim=1, keepdim=True), dim=-1
    )
    return distance


def coupling_as_written(query: torch.Tensor, content: torch.Tensor) -> torch.Tensor:
    """[batch, 1, patches]; the root is taken of a tensor on the CPU, as in the document."""
    scores = torch.matmul(query, content.transpose(-2, -1))
    return torch.softmax(scores / torch.sqrt(torch.tensor(content.size(-1))), dim=-1)


def coupling_of(query: torch.Tensor, content: torch.Tensor) -> torch.Tensor:
    """[batch, 1, patches]."""
    return torch.softmax(
        torch.matmul(query, content.transpose(-2, -1)) / content.size(-1) ** 0.5, dim=-1
    )


def build(shapes: Shapes, device: torch.device, compiled: Compile, *, of: str) -> Step:
    """``of`` is a key of ``STRATEGIES``. Each function is compiled by itself."""
    features = torch.randn(shapes.batch, shapes.patches, shapes.width, device=device)
    query = torch.randn(shapes.batch, 1, shapes.width, device=device)
    if of != "three":
        coupling = compiled(coupling_of if of == "query" else coupling_as_written)
        return lambda: coupling(query, features)
    information, salience, coupling = (
        compiled(information_of),
        compiled(salience_of),
        compiled(coupling_of),
    )
    return lambda: (information(features), salience(features), coupling(query, features))


_SUMMARIES = {
    "three": "Information, salience and coupling, each compiled by itself.",
    "query_as_written": "Only the query scorer, with its tensor on the CPU.",
    "query": "Only the query scorer, divided by a number.",
}
STRATEGIES = {
    name: Strategy(functools.partial(build, of=name), summary)
    for name, summary in _SUMMARIES.items()
}
