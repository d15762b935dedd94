# ruff: noqa: ARG002 - as the page of the package has it
import kornia.augmentation as K
import lightning as L
import torch
from torch.utils.data import TensorDataset


def pictures():
    return TensorDataset(
        torch.rand(40, 3, 16, 16, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    )


class Net(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 14 * 14, 2)
        )
        self.augment = K.AugmentationSequential(
            K.RandomHorizontalFlip(p=0.5),
            K.ColorJiggle(0.1, 0.1, 0.1, 0.1),
            K.RandomAffine(20.0),
            data_keys=["input"],
        )

    def on_after_batch_transfer(self, batch, dataloader_idx):
        x, y = batch
        return (self.augment(x), y) if self.trainer.training else batch

    def training_step(self, batch):
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)
