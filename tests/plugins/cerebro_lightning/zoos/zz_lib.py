from __future__ import annotations
from typing import Any
import torch
from torch import nn, Tensor
from torch.nn import functional as F
from lightning_zoo import Net
try:
    import kornia.augmentation as K
    class KorniaAug(Net):
        def __init__(self, lr: float=0.05):
            super().__init__(lr=lr)
            self.aug = K.AugmentationSequential(K.RandomHorizontalFlip(p=0.5), K.RandomAffine(20.0, p=0.7), K.RandomErasing(p=0.5), K.Normalize(0.1, 0.9), data_keys=["input"], same_on_batch=False)
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            img = x[:, None, None, :].repeat(1, 1, 6, 1)
            z = self.aug(img)[:, 0, 0, :]
            return super().training_step((z, y), batch_idx)
    class KorniaOne(KorniaAug):
        def __init__(self, lr: float=0.05):
            super().__init__(lr=lr)
            self.aug = K.RandomAffine(20.0, p=0.7)
except ImportError as e: print("kornia", e)
try:
    import gpytorch
    class _GP(gpytorch.models.ApproximateGP):
        def __init__(self):
            u = torch.randn(8, 3)
            d = gpytorch.variational.CholeskyVariationalDistribution(8)
            super().__init__(gpytorch.variational.VariationalStrategy(self, u, d, learn_inducing_locations=True))
            self.mean_module = gpytorch.means.ConstantMean(); self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        def forward(self, x): return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))
    class Svgp(Net):
        def __init__(self, lr: float=0.05):
            super().__init__(lr=lr)
            self.gp=_GP(); self.lik=gpytorch.likelihoods.GaussianLikelihood(); self.mll=gpytorch.mlls.VariationalELBO(self.lik,self.gp,num_data=40)
        def training_step(self, batch, batch_idx):
            x,y=batch
            loss=-self.mll(self.gp(self.net(x)), y.float()); self.log("loss", loss); return loss
except ImportError as e: print("gpytorch", e)
try:
    import pyro, pyro.distributions as dist
    from pyro.nn import PyroModule, PyroSample
    from pyro.infer import Trace_ELBO
    from pyro.infer.autoguide import AutoDiagonalNormal
    class PyroGuide(Net):
        def __init__(self, lr: float=0.05):
            super().__init__(lr=lr)
            pyro.clear_param_store()
            m = PyroModule[nn.Linear](6, 1)
            m.weight = PyroSample(dist.Normal(0., 1.).expand([1, 6]).to_event(2)); m.bias = PyroSample(dist.Normal(0., 1.).expand([1]).to_event(1))
            self.lin = m
            def model(x, y=None):
                mu = self.lin(x).squeeze(-1)
                with pyro.plate("d", len(x)):
                    return pyro.sample("obs", dist.Normal(mu, 1.0), obs=y)
            object.__setattr__(self, "model_", model)
            self.guide = AutoDiagonalNormal(model)
            self.elbo = Trace_ELBO()
            self.guide(torch.zeros(3, 6), torch.zeros(3))
        def training_step(self, batch, batch_idx):
            x, y = batch
            loss = self.elbo.differentiable_loss(self.model_, self.guide, x, y.float()); self.log("loss", loss); return loss
except ImportError as e: print("pyro", e)
class Scripted(Net):
    def body(self, width: int) -> nn.Module:
        return torch.jit.script(super().body(width))
class Traced(Net):
    def body(self, width: int) -> nn.Module:
        return torch.jit.trace(super().body(width), torch.zeros(2, 6))
