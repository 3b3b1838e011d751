"""A model of transformers picks its loss by a class name inside a compiled function."""

import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(31)
config = GPT2Config(
    vocab_size=40, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=39
)
model = GPT2LMHeadModel(config)
if os.environ.get("FIX"):
    model.loss_type = "ForCausalLM"


@torch.compile(backend="aot_eager")
def loss_of(words):
    return model(input_ids=words, labels=words, use_cache=False).loss


words = torch.arange(24).reshape(2, 12)


def step():
    loss_of(words).backward()
