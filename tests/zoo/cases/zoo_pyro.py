# ruff: noqa: ARG002 - as the page of the package has it
import lightning as L
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.nn import PyroModule, PyroSample
from torch.utils.data import TensorDataset


def rows():
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, x.sum(1))


class Regression(PyroModule):
    def __init__(self):
        super().__init__()
        self.linear = PyroModule[torch.nn.Linear](3, 1)
        self.linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 3]).to_event(2))

    def forward(self, x, y=None):
        mean = self.linear(x).squeeze(-1)
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Normal(mean, 0.5), obs=y)


class Variational(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        model = Regression()
        guide = AutoNormal(model)
        self.loss_fn = Trace_ELBO()(model, guide)
        self.loss_fn(torch.zeros(8, 3), torch.zeros(8))

    def training_step(self, batch, batch_idx):
        loss = self.loss_fn(*batch)
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.loss_fn.parameters(), lr=self.lr)
