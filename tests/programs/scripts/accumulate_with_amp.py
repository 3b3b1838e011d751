"""Accumulate gradients under autocast and keep the loss on the device: a loop written to be fast."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
accumulation, epochs = 4, 2
model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.SiLU(), nn.Linear(64, 5)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=epochs * 6)
loader = DataLoader(
    TensorDataset(torch.randn(192, 32), torch.randint(0, 5, (192,))),
    batch_size=8,
    shuffle=True,
    drop_last=True,
    pin_memory=device == "cuda",
)


@torch.compile(backend="aot_eager")
def loss_of(inputs, targets):
    with torch.autocast(device, dtype=torch.bfloat16):
        outputs = model(inputs)
        return nn.functional.cross_entropy(outputs, targets) / accumulation


for epoch in range(epochs):
    running = torch.zeros((), device=device)
    for number, (inputs, targets) in enumerate(loader, 1):
        inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
        loss = loss_of(inputs, targets)
        loss.backward()
        running += loss.detach()
        if number % accumulation == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
    print(f"epoch {epoch}: {running.item() * accumulation / len(loader):.4f}")
