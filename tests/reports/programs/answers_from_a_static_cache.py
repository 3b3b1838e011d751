"""A small Llama answers three prompts with a static cache; each answer begins where its prompt ends."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

torch.manual_seed(13)
shape = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2)
config = LlamaConfig(vocab_size=50, num_key_value_heads=2, max_position_embeddings=64, **shape)
model = LlamaForCausalLM(config).eval()
model.forward = torch.compile(model.forward, backend="aot_eager", fullgraph=True)


@torch.no_grad()
def answer(prompt, tokens):
    cache = StaticCache(config=config, max_cache_len=48)
    words, place = prompt, torch.arange(prompt.shape[1])
    written = []
    for _ in range(tokens):
        logits = model(words, past_key_values=cache, position_ids=place[None]).logits
        words = logits[:, -1:].argmax(-1)
        place = place[-1:] + 1
        written.append(words.item())
    return written


for length in (6, 9, 11):
    print(length, answer(torch.arange(length)[None] % 50, 5))
