"""Tests share one quantising model through a session fixture, which compiles it before kgprof_guard looks."""

import pytest
import torch

scale, zero = torch.tensor(0.1), torch.tensor(3)


def fake_quantise(x):
    y = x * 2
    q = torch.quantize_per_tensor(y, scale, zero, torch.quint8)
    return q.dequantize() + 1


def ready_model():
    model = torch.compile(fake_quantise, backend="aot_eager")
    model(torch.ones(4))
    return model


@pytest.fixture(scope="session")
def model():
    return ready_model()


def check_values(model):
    assert model(torch.ones(4)).allclose(torch.full((4,), 3.0))


def check_one_graph(model, kgprof_guard):
    watched = kgprof_guard(model)
    for _ in range(4):
        watched(torch.ones(4))
    kgprof_guard.no_graph_breaks()


def check_one_graph_after_reset(model, kgprof_guard):
    torch._dynamo.reset()
    watched = kgprof_guard(model)
    for _ in range(4):
        watched(torch.ones(4))
    kgprof_guard.no_graph_breaks()


fast = None


def step():
    global fast
    fast = fast or ready_model()
    return fast(torch.ones(4))
