import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer


def model(lr):
    net = GradSampleModule(
        torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    return net, DPOptimizer(optimizer, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=8)
