"""A LightningModule as anybody writes one: nothing in it knows of cerebro-elastic."""

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F


def load():
    """Handwritten digits: 1,797 images of 8 x 8 pixels from 0 to 16, which scikit-learn ships."""
    digits = load_digits()
    return {"image": digits.images[:, None].astype("float32") / 16, "label": digits.target}


class Digits(L.LightningModule):
    def __init__(self, lr, width, dropout=0.2):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3), nn.ReLU(), nn.Conv2d(width, width, 3), nn.ReLU(),
            nn.Flatten(), nn.Dropout(dropout), nn.Linear(16 * width, 10),
        )  # fmt: skip

    def training_step(self, batch):
        image, label = batch
        loss = F.cross_entropy(self.net(image), label)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch):
        image, label = batch
        scores = self.net(image)
        self.log("val_loss", F.cross_entropy(scores, label))
        self.log("val_acc", (scores.argmax(1) == label).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)]
