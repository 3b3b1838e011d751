# Fit a small PINN-like network to a 1-D Poisson problem with LBFGS.
import math, torch
torch.manual_seed(0)

class Mlp(torch.nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.Tanh(), torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    def forward(self, x):
        return self.net(x)

model = Mlp()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = model.to(device)
xs = torch.linspace(0, 1, 128, device=device).unsqueeze(1)
target = torch.sin(2 * math.pi * xs)
fit = torch.compile(lambda m, x, t: torch.nn.functional.mse_loss(m(x), t))
opt = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=10, line_search_fn="strong_wolfe")
history = []

def closure():
    opt.zero_grad()
    loss = fit(model, xs, target)
    loss.backward()
    history.append(loss.item())
    return loss

for epoch in range(12):
    loss = opt.step(closure)
    if epoch % 4 == 0:
        print(f"epoch {epoch}: {float(loss):.5f} after {len(history)} evaluations")
