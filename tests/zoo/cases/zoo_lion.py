import torch
from lion_pytorch import Lion


def model(lr):
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    return net, Lion(net.parameters(), lr=lr, weight_decay=1e-2)
