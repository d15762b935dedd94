import gpytorch
import lightning as L
import torch
from torch.utils.data import TensorDataset


def rows():
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, x.sum(1).sin())


class Approximate(gpytorch.models.ApproximateGP):
    def __init__(self, points):
        by = gpytorch.variational.CholeskyVariationalDistribution(points.size(0))
        super().__init__(
            gpytorch.variational.VariationalStrategy(self, points, by, learn_inducing_locations=True)
        )
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Process(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.model = Approximate(torch.randn(10, 3))
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.mll = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, num_data=64)

    def training_step(self, batch):
        loss = -self.mll(self.model(batch[0]), batch[1])
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(
            [{"params": self.model.parameters()}, {"params": self.likelihood.parameters()}], lr=self.lr
        )
