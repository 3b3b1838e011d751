"""Programs without a fault name no rung: the tolerance is eager's own rounding, and the random
numbers are eager's."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgprof import model as m
from kgprof.lab import ladder
from kgprof.record.processes import trials
from kgprof.record.processes.children import Caches
from tests.record import forked

PROGRAMS = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(7)

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x):
        q, k, v = (t.view(*t.shape[:2], 4, 8).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(2))

attn, tokens = Attention(), torch.randn(2, 10, 32)
def attention():
    return attn(tokens)

mlp, features = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.3)), torch.randn(8, 16)
def layer_norm_dropout():
    return mlp(features)

conv = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 5))
images, labels = torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,))
sgd = torch.optim.SGD(conv.parameters(), lr=0.1, momentum=0.9)
def conv_bn_training():
    sgd.zero_grad()
    loss = F.cross_entropy(conv(images), labels)
    loss.backward()
    sgd.step()
    return loss.detach()

wide = torch.randn(64, 1000) * 5
def softmax():
    return torch.softmax(wide, -1), torch.logsumexp(wide, -1)

state = torch.zeros(100)
def in_place():
    state.add_(1.1)
    part = state[10:20]
    part.mul_(2)
    return state.clamp_(max=3).sum(), part

index, source = torch.randint(0, 50, (500,)), torch.randn(500)
def scatter():
    return torch.zeros(50).scatter_add(0, index, source), torch.zeros(50).index_add_(0, index, source)

long = torch.randn(20, 3000)
def cumsum():
    return long.cumsum(1), long.cumsum(1).argmax(1), torch.topk(long, 5)

half = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 64)).bfloat16()
batch = torch.randn(16, 64).bfloat16()
def bfloat16():
    return half(batch)

lstm, series = nn.LSTM(16, 32, 2, batch_first=True), torch.randn(4, 12, 16)
def recurrent():
    return lstm(series)

def random_numbers():
    return F.dropout(wide, 0.5).mean(1) + torch.randn(64) * 0.1 + torch.rand(64)

head, target = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)), torch.randint(0, 10, (16,))
inputs = torch.randn(16, 64)
def autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(head(inputs), target)
    loss.backward()
    return loss
"""  # noqa: E501
NAMES = tuple(line[4:-3] for line in PROGRAMS.splitlines() if line.startswith("def "))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_program_without_a_fault_names_no_rung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(trials, "run", forked.run)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    file = tmp_path / "program.py"
    file.write_text(PROGRAMS)

    of = trials.CellTrials(
        options=m.Options(workload=f"{file}:{name}"),
        strategy=name,
        cell=m.Cell(mode="default"),
        device="cpu",
        scratch=tmp_path,
        caches=Caches(folder=tmp_path / "caches", kept=True),
    )
    climbed = ladder.climb(of, tmp_path / "out")

    assert isinstance(climbed, m.Ladder)
    results = dict(climbed.rungs)
    assert all(isinstance(found, m.RungResult) for found in results.values()), results
    assert climbed.first is None, climbed.result(climbed.first or m.Rung.EAGER)
    eager = dict(climbed.rungs)[m.Rung.EAGER]
    assert isinstance(eager, m.RungResult)
    assert {tensor.reference for tensor in eager.tensors} == {m.Reference.FLOAT64}
