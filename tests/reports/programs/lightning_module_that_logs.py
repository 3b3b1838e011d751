"""A compiled LightningModule logs its loss in each training step."""

import logging
import warnings

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Regression(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main():
    pl.seed_everything(13, verbose=False)
    data = TensorDataset(torch.randn(30, 6), torch.randn(30, 1))
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", **quiet)
    trainer.fit(torch.compile(Regression(), backend="aot_eager"), DataLoader(data, batch_size=6))
    print(f"loss {trainer.callback_metrics['loss']:.4f}")


if __name__ == "__main__":
    main()
