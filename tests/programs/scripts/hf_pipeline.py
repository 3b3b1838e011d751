"""Classify texts with a transformers pipeline around a compiled model; each text has its own length."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import DistilBertConfig, DistilBertForSequenceClassification, PreTrainedTokenizerFast, pipeline

words = "the a film was good bad long short and but not very music plot loved hated".split()
vocab = {"[PAD]": 0, "[UNK]": 1, **{word: number for number, word in enumerate(words, 2)}}
backend = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
backend.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]")

torch.manual_seed(0)
config = DistilBertConfig(
    vocab_size=len(vocab), dim=32, hidden_dim=64, n_layers=2, n_heads=2, max_position_embeddings=32
)
model = DistilBertForSequenceClassification(config).eval()
model.forward = torch.compile(model.forward, backend="eager")
classify = pipeline(
    "text-classification", model=model, tokenizer=tokenizer, device="cuda" if torch.cuda.is_available() else "cpu"
)

texts = [
    "the film was good",
    "the plot was bad",
    "the film was very long and the music was bad",
    "loved",
    "the music was good but the plot was not",
    "hated the very long film",
    "a short film",
    "a very very good plot",
]
for text in texts:
    print(text, classify(text))
