"""Train a vector quantizer that logs how much of its codebook is in use from inside forward."""

import logging

import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("vq")
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class VectorQuantizer(nn.Module):
    def __init__(self, codes=16, dim=4):
        super().__init__()
        self.codebook = nn.Embedding(codes, dim)
        self.steps = 0

    def forward(self, z):
        distances = torch.cdist(z, self.codebook.weight)
        indices = distances.argmin(dim=-1)
        used = torch.unique(indices).numel()
        log.info("codes in use: %d", used)
        quantized = self.codebook(indices)
        loss = (quantized.detach() - z).square().mean() + 0.25 * (quantized - z.detach()).square().mean()
        return z + (quantized - z).detach(), loss


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 4)
        self.quantizer = VectorQuantizer()
        self.decoder = nn.Linear(4, 12)

    def forward(self, x):
        z, loss = self.quantizer(self.encoder(x))
        return self.decoder(z), loss


model = torch.compile(AutoEncoder().to(device), backend="eager")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(12):
    x = torch.randn(20, 12, device=device)
    reconstruction, commitment = model(x)
    loss = (reconstruction - x).square().mean() + commitment
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
print(loss.item())
