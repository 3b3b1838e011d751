"""Hugging Face's Trainer with torch_compile, told to log in every step.

Truth: the step is bound by launches of small kernels, and the Trainer reads the loss per step.
FIX=1: it logs every 50 steps and does not look for NaN.
"""

import os
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

FIX = os.environ.get("FIX") == "1"


class Verses(Dataset):
    """Verses of 64 words, made up."""

    def __len__(self) -> int:
        return 8 * 160

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.randint(0, 800, (64,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


class Stopwatch(TrainerCallback):
    """Keeps the time at which each step ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: object, **__: object) -> None:
        self.ends.append(time.perf_counter())


def main() -> None:
    torch.manual_seed(19)
    config = GPT2Config(
        vocab_size=800, n_positions=64, n_embd=256, n_layer=6, n_head=4, loss_type="ForCausalLM"
    )
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=8,
            max_steps=150,
            torch_compile=True,
            bf16=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            logging_steps=50 if FIX else 1,
            logging_nan_inf_filter=not FIX,
            optim="adamw_torch_fused",
        )
        Trainer(
            GPT2LMHeadModel(config), arguments, train_dataset=Verses(), callbacks=[watch]
        ).train()
    print(f"ms/step {(watch.ends[-1] - watch.ends[49]) / (len(watch.ends) - 50) * 1e3:.2f}")


if __name__ == "__main__":
    main()
