"""Sample text from a small GPT-2 and answer with beam search, as Hugging Face's generation guides show both."""

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, GPT2Config, set_seed

set_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
config = GPT2Config(
    vocab_size=128, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2, pad_token_id=0
)
model = AutoModelForCausalLM.from_config(config).to(device).eval()

prompts = torch.randint(3, 128, (2, 8)).to(device)
mask = torch.ones_like(prompts)
sampling = GenerationConfig(
    do_sample=True, top_k=20, top_p=0.9, temperature=0.8, max_new_tokens=16, eos_token_id=2, pad_token_id=0
)
beams = GenerationConfig(num_beams=3, max_new_tokens=8, eos_token_id=2, pad_token_id=0)

for _ in range(3):
    with torch.no_grad():
        texts = model.generate(prompts, attention_mask=mask, generation_config=sampling)
    for text in texts:
        print(text.tolist())
answers = model.generate(prompts, attention_mask=mask, generation_config=beams)
print(answers.cpu().numpy().shape)
