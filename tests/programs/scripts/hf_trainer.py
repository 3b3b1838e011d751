"""Fine-tune a tiny BERT with Hugging Face's Trainer and torch_compile=True."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(42)
config = BertConfig(
    vocab_size=100,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=32,
    num_labels=2,
)
model = BertForSequenceClassification(config)


class Reviews(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(size)
        self.input_ids = torch.randint(1, 100, (size, 16), generator=generator)
        self.labels = torch.randint(0, 2, (size,), generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        ids = self.input_ids[idx]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": self.labels[idx]}


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    return {"accuracy": float((logits.argmax(axis=-1) == labels).mean())}


training_args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    num_train_epochs=3,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    learning_rate=5e-4,
    eval_strategy="epoch",
    save_strategy="no",
    logging_steps=5,
    report_to="none",
    torch_compile=True,
    torch_compile_backend="aot_eager",
)
trainer = Trainer(
    model=model,
    args=training_args,
    train_dataset=Reviews(80),
    eval_dataset=Reviews(16),
    compute_metrics=compute_metrics,
)
trainer.train()
print(trainer.evaluate())
