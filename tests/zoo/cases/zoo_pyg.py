# ruff: noqa: ARG002 - as the page of the package has it
import lightning as L
import torch
from torch_geometric.data import Data
from torch_geometric.data.lightning import LightningDataset
from torch_geometric.nn import GIN, MLP, global_add_pool


def graph(n):
    g = torch.Generator().manual_seed(n)
    return Data(
        x=torch.randn(6, 4, generator=g),
        edge_index=torch.randint(0, 6, (2, 12), generator=g),
        y=torch.tensor([n % 2]),
    )


def data():
    return LightningDataset(
        [graph(n) for n in range(48)], [graph(n) for n in range(48, 64)], batch_size=8, num_workers=0
    )


class Model(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.gnn = GIN(4, 16, 2, dropout=0.1, jk="cat")
        self.classifier = MLP([16, 16, 2], norm="batch_norm", dropout=0.1)

    def step(self, data):
        x = global_add_pool(self.gnn(data.x, data.edge_index), data.batch)
        return torch.nn.functional.cross_entropy(self.classifier(x), data.y)

    def training_step(self, data, batch_idx):
        loss = self.step(data)
        self.log("train_loss", loss, on_epoch=True, batch_size=8)
        return loss

    def validation_step(self, data, batch_idx):
        self.log("val_loss", self.step(data), batch_size=8)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)
