"""As nanoGPT trains: batches drawn by hand from a numpy array, losses estimated now and then, a device as a string."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

batch_size, block_size, eval_iters, log_interval = 4, 8, 3, 2
device = "cuda" if torch.cuda.is_available() else "cpu"
device_type = "cuda" if "cuda" in device else "cpu"
torch.manual_seed(1337)
corpus = np.random.default_rng(0).integers(0, 40, 4000).astype(np.uint16)


def get_batch(split):
    data = corpus[:3600] if split == "train" else corpus[3600:]
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy((data[i : i + block_size]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + block_size]).astype(np.int64)) for i in ix])
    if device_type == "cuda":
        x, y = x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    else:
        x, y = x.to(device), y.to(device)
    return x, y


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(40, 16)
        self.wpe = nn.Embedding(block_size, 16)
        self.lm_head = nn.Linear(16, 40)

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        logits = self.lm_head(self.wte(idx) + self.wpe(pos))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


model = GPT()
model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ["train", "val"]:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            logits, loss = model(X, Y)
            losses[k] = loss.item()  # item 18 in 3
        out[split] = losses.mean()
    model.train()
    return out


X, Y = get_batch("train")
best_val_loss = 1e9
for iter_num in range(16):
    if iter_num % 5 == 0:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        if losses["val"] < best_val_loss:
            best_val_loss = losses["val"]
    logits, loss = model(X, Y)
    X, Y = get_batch("train")
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % log_interval == 0:
        lossf = loss.item()  # item 6 in 6
        print(f"iter {iter_num}: loss {lossf:.4f}")
