import lightning as L
import torch
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn


class Scenes(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, n):
        picture = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(n))
        return picture, {"boxes": torch.tensor([[4.0, 4.0, 20.0 + n, 30.0]]), "labels": torch.tensor([1])}


def scenes():
    return Scenes()


def collate(rows):
    return tuple(zip(*rows, strict=True))


class Net(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = fasterrcnn_mobilenet_v3_large_320_fpn(
            weights=None, weights_backbone=None, num_classes=2, min_size=64, max_size=64
        )

    def training_step(self, batch):
        loss = sum(self.net(*batch).values())
        self.log("train_loss", loss, on_epoch=True, batch_size=4)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)
