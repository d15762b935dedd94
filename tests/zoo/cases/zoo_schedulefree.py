import schedulefree
import torch


def rows():
    x = torch.randn(80, 6, generator=torch.Generator().manual_seed(0))
    return {"x": x.numpy(), "y": (x[:, 0] > 0).long().numpy()}


def model(lr):
    net = torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 2)
    )
    return net, schedulefree.AdamWScheduleFree(net.parameters(), lr=lr)
