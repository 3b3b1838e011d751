"""The wrapper of torch.compile is asked to generate; the loop calls the model inside it."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(22)
config = GPT2Config(
    vocab_size=40, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=39
)
model = GPT2LMHeadModel(config).eval()
fast = torch.compile(model, backend="aot_eager")
prompt = torch.tensor([[1, 5, 9, 2]])
mask = torch.ones_like(prompt)
for _ in range(4):
    words = fast.generate(
        prompt, attention_mask=mask, max_new_tokens=5, do_sample=False, pad_token_id=39
    )
print(words.shape[1], "words")
