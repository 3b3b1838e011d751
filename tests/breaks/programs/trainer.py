"""A model of one's own under a trainer of a library: the model calls the library, and the library calls the model."""

import torch
from formers import PreTrainedModel, Trainer, TrainingArguments
from formers.modeling import Attention


class Classifier(PreTrainedModel):
    pad_token_id = 0

    def __init__(self, vocabulary=50, width=16, classes=3):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, width)
        self.attention = Attention(width)
        self.head = torch.nn.Linear(width, classes)

    def forward(self, input_ids, labels, attention_mask=None):
        self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        hidden = self.attention(self.embedding(input_ids), attention_mask)
        logits = self.head(hidden.mean(1))
        return torch.nn.functional.cross_entropy(logits, labels)


def batch():
    return {"input_ids": torch.randint(1, 50, (4, 12)), "labels": torch.randint(0, 3, (4,))}


torch.manual_seed(0)
train = [batch() for _ in range(8)]
trainer = Trainer(Classifier(), TrainingArguments(epochs=2, torch_compile=True), train_dataset=train)
trainer.train()
