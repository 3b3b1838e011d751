"""One denoising step of a small diffusion model: a convolutional net with skip connections."""

import math

import torch
import torch.nn.functional as F
from torch import nn

CHANNELS = 32
STEPS = 50


def time_embedding(t, width):
    """Sines and cosines of the time at geometric frequencies."""
    half = width // 2
    frequencies = torch.exp(-math.log(10000.0) * torch.arange(half, device=t.device) / half)
    angles = t[:, None].float() * frequencies[None]
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class ResidualBlock(nn.Module):
    def __init__(self, channels_in, channels_out, time_width):
        super().__init__()
        self.norm_in = nn.GroupNorm(8, channels_in)
        self.conv_in = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.time = nn.Linear(time_width, channels_out)
        self.norm_out = nn.GroupNorm(8, channels_out)
        self.conv_out = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.skip = nn.Conv2d(channels_in, channels_out, 1)

    def forward(self, x, emb):
        h = self.conv_in(F.silu(self.norm_in(x)))
        h = h + self.time(emb)[:, :, None, None]
        h = self.conv_out(F.silu(self.norm_out(h)))
        return h + self.skip(x)


class Denoiser(nn.Module):
    def __init__(self, channels=CHANNELS):
        super().__init__()
        self.time_width = 2 * channels
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.down = ResidualBlock(channels, 2 * channels, self.time_width)
        self.middle = ResidualBlock(2 * channels, 2 * channels, self.time_width)
        self.up = ResidualBlock(3 * channels, channels, self.time_width)
        self.head = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, image, t):
        emb = F.silu(time_embedding(t, self.time_width))
        h0 = self.stem(image)
        h1 = self.down(F.avg_pool2d(h0, 2), emb)
        h1 = self.middle(h1, emb)
        h = F.interpolate(h1, scale_factor=2.0, mode="nearest")
        h = self.up(torch.cat([h, h0], dim=1), emb)
        return self.head(F.silu(h))


def cosine_schedule(steps):
    t = torch.linspace(0, 1, steps + 1)
    alphas = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
    return (alphas / alphas[0]).clamp(min=1e-4)


torch.manual_seed(0)
net = Denoiser().eval()
denoise = torch.compile(net)
alphas = cosine_schedule(STEPS)
image = torch.randn(4, 3, 32, 32)


@torch.no_grad()
def step(i=25):
    t = torch.full((image.shape[0],), i)
    noise = denoise(image, t)
    signal = (image - (1 - alphas[i]).sqrt() * noise) / alphas[i].sqrt()
    signal = signal.clamp(-1, 1)
    return alphas[i - 1].sqrt() * signal + (1 - alphas[i - 1]).sqrt() * noise
