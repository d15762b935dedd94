import normflows as nf
import torch


class Flow(nf.NormalizingFlow):
    def forward(self, x):
        return self.forward_kld(x)


def loss(divergence, _):
    return divergence


def model(lr):
    layers = []
    for _ in range(2):
        layers += [
            nf.flows.AffineCouplingBlock(nf.nets.MLP([3, 8, 6])),
            nf.flows.Permute(6),
            nf.flows.ActNorm(6),
        ]
    flow = Flow(nf.distributions.DiagGaussian(6), layers)
    return flow, torch.optim.Adam(flow.parameters(), lr=lr)
