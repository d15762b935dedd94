import heavyball.utils
import torch

heavyball.utils.compile_mode = None


def model(lr):
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    return net, heavyball.SOAP(net.parameters(), lr=lr)
