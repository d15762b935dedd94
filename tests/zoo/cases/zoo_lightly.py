import lightning as L
import torch
from lightly.data import LightlyDataset
from lightly.loss import NTXentLoss
from lightly.models.modules import SimCLRProjectionHead
from lightly.transforms import SimCLRTransform
from torchvision.datasets import FakeData
from torchvision.models import shufflenet_v2_x0_5


def pictures():
    return LightlyDataset.from_torch_dataset(
        FakeData(32, (3, 32, 32), 2), transform=SimCLRTransform(input_size=32, gaussian_blur=0.0)
    )


class Net(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.backbone = shufflenet_v2_x0_5()
        self.backbone.fc = torch.nn.Identity()
        self.head = SimCLRProjectionHead(1024, 32, 16)
        self.criterion = NTXentLoss()

    def training_step(self, batch):
        views = [self.head(self.backbone(view)) for view in batch[0]]
        loss = self.criterion(*views)
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)
