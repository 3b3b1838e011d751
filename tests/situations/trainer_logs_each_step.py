"""Hugging Face's Trainer with torch_compile logs each step; FIX=1 logs each 50th and keeps NaN."""

import os
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

FIX = os.environ.get("FIX") == "1"


class Tokens(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(192) * (index % 97 + 1)) % 800
        return {"input_ids": tokens, "labels": tokens}


torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
config = GPT2Config(vocab_size=800, n_positions=192, n_embd=384, n_layer=6, n_head=6)
arguments = TrainingArguments(
    output_dir="/tmp/trainer_logs_each_step",
    max_steps=120,
    per_device_train_batch_size=16,
    torch_compile=True,
    bf16=True,
    logging_steps=50 if FIX else 1,
    logging_nan_inf_filter=not FIX,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Tokens())
began = time.perf_counter()
trainer.train()
print(f"{time.perf_counter() - began:.2f} s in all")
