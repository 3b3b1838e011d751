"""Train a small denoiser with an EMA copy, in the manner of lucidrains' denoising-diffusion-pytorch."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def exists(x):
    return x is not None


def extract(a, t, x_shape):
    b, *_ = t.shape
    out = a.gather(-1, t)
    return out.reshape(b, *((1,) * (len(x_shape) - 1)))


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        half_dim = self.dim // 2
        emb = math.log(10000) / (half_dim - 1)
        emb = torch.exp(torch.arange(half_dim, device=x.device) * -emb)
        emb = x[:, None] * emb[None, :]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class Denoiser(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.time_mlp = nn.Sequential(SinusoidalPosEmb(dim), nn.Linear(dim, dim), nn.GELU())
        self.inp = nn.Linear(8, dim)
        self.mid = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.SiLU())
        self.out = nn.Linear(dim, 8)

    def forward(self, x, t):
        h = self.inp(x) + self.time_mlp(t)
        return self.out(h + self.mid(h))


class GaussianDiffusion(nn.Module):
    def __init__(self, model, timesteps=50):
        super().__init__()
        self.model = model
        betas = torch.linspace(1e-4, 0.02, timesteps)
        alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)
        self.num_timesteps = timesteps
        self.register_buffer("sqrt_alphas_cumprod", torch.sqrt(alphas_cumprod))
        self.register_buffer("sqrt_one_minus_alphas_cumprod", torch.sqrt(1.0 - alphas_cumprod))

    def q_sample(self, x_start, t, noise):
        return (
            extract(self.sqrt_alphas_cumprod, t, x_start.shape) * x_start
            + extract(self.sqrt_one_minus_alphas_cumprod, t, x_start.shape) * noise
        )

    def forward(self, img, noise=None):
        t = torch.randint(0, self.num_timesteps, (img.shape[0],), device=img.device).long()
        noise = noise if exists(noise) else torch.randn_like(img)
        x = self.q_sample(img, t, noise)
        return F.mse_loss(self.model(x, t), noise)


class EMA:
    def __init__(self, model, beta=0.99, update_every=2):
        self.online, self.ema = model, copy.deepcopy(model)
        self.beta, self.update_every = beta, update_every
        self.step = torch.tensor(0)
        self.initted = torch.tensor(False)

    def update(self):
        step = self.step.item()
        self.step += 1
        if (step % self.update_every) != 0:
            return
        if not self.initted.item():
            self.initted.data.copy_(torch.tensor(True))
        for ma, cur in zip(self.ema.parameters(), self.online.parameters()):
            ma.data.lerp_(cur.data, 1.0 - self.beta)


diffusion = GaussianDiffusion(Denoiser()).to(device)
ema = EMA(diffusion)
opt = torch.optim.Adam(diffusion.parameters(), lr=8e-5, betas=(0.9, 0.99))
compiled = torch.compile(diffusion, mode="reduce-overhead")
data = torch.randn(256, 8)
for step in range(30):
    total_loss = 0.0
    for _ in range(2):
        batch = data[torch.randint(0, 256, (16,))].to(device)
        loss = compiled(batch) / 2
        total_loss += loss.item()
        loss.backward()
    torch.nn.utils.clip_grad_norm_(diffusion.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    ema.update()
    if step % 10 == 0:
        print(f"loss: {total_loss:.4f}")
