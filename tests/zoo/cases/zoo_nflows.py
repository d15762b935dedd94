import torch
from nflows.distributions import StandardNormal
from nflows.flows import Flow
from nflows.transforms import BatchNorm, CompositeTransform, MaskedAffineAutoregressiveTransform


class Density(Flow):
    def forward(self, x):
        return self.log_prob(x)


def loss(density, _):
    return -density.mean()


def model(lr):
    steps = [
        MaskedAffineAutoregressiveTransform(6, 16),
        BatchNorm(6),
        MaskedAffineAutoregressiveTransform(6, 16),
    ]
    flow = Density(CompositeTransform(steps), StandardNormal([6]))
    return flow, torch.optim.Adam(flow.parameters(), lr=lr)
