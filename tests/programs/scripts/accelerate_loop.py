"""Train with Accelerate: gradient accumulation, clipping, gathered metrics, a compiled model by its plugin."""

import torch
from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin, set_seed
from torch.utils.data import DataLoader, TensorDataset

set_seed(3)
plugin = TorchDynamoPlugin(backend="aot_eager")
accelerator = Accelerator(gradient_accumulation_steps=2, dynamo_plugin=plugin)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 20)
features, labels = torch.randn(96, 16), torch.randint(0, 4, (96,))
train_loader = DataLoader(TensorDataset(features, labels), batch_size=8, shuffle=True)
eval_loader = DataLoader(TensorDataset(features[:32], labels[:32]), batch_size=8)
model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
    model, optimizer, train_loader, eval_loader, scheduler
)

for epoch in range(3):
    model.train()
    total_loss = 0
    for inputs, targets in train_loader:
        with accelerator.accumulate(model):
            outputs = model(inputs)
            loss = torch.nn.functional.cross_entropy(outputs, targets)
            total_loss += loss.detach().float()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

    model.eval()
    correct, seen = 0, 0
    for inputs, targets in eval_loader:
        with torch.no_grad():
            outputs = model(inputs)
        predictions, references = accelerator.gather_for_metrics((outputs.argmax(dim=-1), targets))
        correct += (predictions == references).sum().item()
        seen += references.shape[0]
    accelerator.print(f"epoch {epoch}: loss {total_loss.item() / len(train_loader):.3f} accuracy {correct / seen:.3f}")
accelerator.end_training()
