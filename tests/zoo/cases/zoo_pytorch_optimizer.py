import pytorch_optimizer
import torch


def model(lr):
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    optimizer = pytorch_optimizer.Lookahead(pytorch_optimizer.AdaBelief(net.parameters(), lr=lr), k=3)
    return net, optimizer
