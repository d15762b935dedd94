import lightning as L
import torch
from monai.data import CacheDataset, DataLoader
from monai.losses import DiceLoss
from monai.networks.nets import UNet
from monai.transforms import Compose, EnsureTyped, RandFlipd, RandGaussianNoised, ScaleIntensityd

ROWS = [{"image": torch.rand(1, 16, 16, generator=torch.Generator().manual_seed(n))} for n in range(40)]
ROWS = [row | {"label": (row["image"] > 0.5).float()} for row in ROWS]
STEPS = [ScaleIntensityd("image"), RandFlipd(["image", "label"], 0.5), RandGaussianNoised("image", 0.5)]


class Data(L.LightningDataModule):
    def train_dataloader(self):
        steps = Compose([*STEPS, EnsureTyped(["image", "label"])])
        return DataLoader(CacheDataset(ROWS[8:], steps, progress=False), batch_size=8, shuffle=True)

    def val_dataloader(self):
        return DataLoader(
            CacheDataset(ROWS[:8], EnsureTyped(["image", "label"]), progress=False), batch_size=8
        )


class Net(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = UNet(2, 1, 1, channels=(4, 8), strides=(2,), norm="batch", dropout=0.1)
        self.loss = DiceLoss(sigmoid=True)

    def training_step(self, batch):
        return self.loss(self.net(batch["image"]), batch["label"])

    def validation_step(self, batch):
        self.log("val_loss", self.loss(self.net(batch["image"]), batch["label"]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)
