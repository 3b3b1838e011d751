"""Generate text with a static cache and a compiled forward, as Hugging Face's generation guide shows it."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
config = LlamaConfig(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=None,
    pad_token_id=0,
)
model = LlamaForCausalLM(config).to(device).eval()
model.generation_config.cache_implementation = "static"
model.forward = torch.compile(model.forward, backend="eager", fullgraph=True)

input_ids = torch.randint(2, 128, (1, 10), device=device)
attention_mask = torch.ones_like(input_ids)
for _ in range(3):
    outputs = model.generate(input_ids, attention_mask=attention_mask, max_new_tokens=12, do_sample=False)
    print(outputs[0].tolist())
