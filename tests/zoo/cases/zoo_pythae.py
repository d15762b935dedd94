import torch
from pythae.data.datasets import DatasetOutput
from pythae.models import BetaVAE, BetaVAEConfig


class Auto(BetaVAE):
    def forward(self, x):
        return super().forward(DatasetOutput(data=x))


def loss(output, _):
    return output.loss


def model(lr):
    net = Auto(BetaVAEConfig(input_dim=(6,), latent_dim=2, beta=2.0))
    return net, torch.optim.Adam(net.parameters(), lr=lr)
