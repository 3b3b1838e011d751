"""A Hugging Face BERT fine-tuning loop in bfloat16 with the eager attention."""

import os
import time

import torch
from transformers import BertConfig, BertForSequenceClassification

FIX = os.environ.get("FIX", "")
torch.manual_seed(0)
config = BertConfig(
    num_labels=2, attn_implementation="sdpa" if FIX == "sdpa" else "eager", max_position_embeddings=1024
)
model = BertForSequenceClassification(config).to("cuda", torch.bfloat16)
if FIX == "compile":
    model = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, **({"fused": True} if FIX == "fused" else {}))
batches = [
    {
        "input_ids": torch.randint(0, 30000, (16, 512)),
        "attention_mask": torch.ones(16, 512, dtype=torch.long),
        "labels": torch.randint(0, 2, (16,)),
    }
    for _ in range(8)
]
times = []
for i in range(50):
    batch = {k: v.to("cuda") for k, v in batches[i % 8].items()}
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if i in (15, 45):
        torch.cuda.synchronize()
        times.append(time.perf_counter())
print("ms/step", (times[1] - times[0]) / 30 * 1e3)
