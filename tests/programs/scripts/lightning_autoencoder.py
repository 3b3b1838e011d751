"""Fit an autoencoder with Lightning's Trainer; its two halves are compiled in __init__."""

import tempfile

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class LitAutoEncoder(pl.LightningModule):
    def __init__(self, hidden=16, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 3))
        decoder = nn.Sequential(nn.Linear(3, hidden), nn.ReLU(), nn.Linear(hidden, 64))
        self.encoder, self.decoder = torch.compile(encoder, backend="eager"), torch.compile(decoder, backend="eager")

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        loss = nn.functional.mse_loss(self(x), x)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        (x,) = batch
        self.log("val_loss", nn.functional.mse_loss(self(x), x), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main():
    pl.seed_everything(7)
    dataset = TensorDataset(torch.randn(120, 64))
    train, val = random_split(dataset, [96, 24])
    model = LitAutoEncoder()
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        default_root_dir=tempfile.mkdtemp(),
    )
    trainer.fit(model, DataLoader(train, batch_size=8, shuffle=True), DataLoader(val, batch_size=8))
    print(trainer.callback_metrics["val_loss"])


if __name__ == "__main__":
    main()
