"""Sample images by reversing a diffusion: the compiled network is handed the step as a Python number."""

import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
T = 14
betas = torch.linspace(1e-4, 0.02, T, device=device)
alphas = 1.0 - betas
alphas_cumprod = torch.cumprod(alphas, dim=0)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time_embed = nn.Embedding(T, 8)
        self.inp = nn.Conv2d(1, 8, 3, padding=1)
        self.out = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x, t):
        step = torch.full((x.shape[0],), t, device=x.device, dtype=torch.long)
        h = self.inp(x) + self.time_embed(step)[:, :, None, None]
        return self.out(torch.relu(h))


net = UNet().to(device).eval()
net = torch.compile(net, backend="eager", dynamic=False)


@torch.no_grad()
def sample(shape):
    x = torch.randn(shape, device=device)
    for t in reversed(range(T)):
        eps = net(x, t)
        mean = (x - betas[t] / torch.sqrt(1 - alphas_cumprod[t]) * eps) / torch.sqrt(alphas[t])
        x = mean + torch.sqrt(betas[t]) * torch.randn_like(x) if t > 0 else mean
    return x


images = sample((2, 1, 8, 8))
print(images.cpu().abs().mean())
