import torch
from torchdyn.core import NeuralODE


def model(lr):
    field = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 6))
    ode = NeuralODE(field, solver="rk4", sensitivity="adjoint", return_t_eval=False)
    net = torch.nn.ModuleDict({"ode": ode, "head": torch.nn.Linear(6, 2)})
    net.forward = lambda x: net.head(net.ode(x, torch.linspace(0, 1, 4))[-1])
    return net, torch.optim.Adam(net.parameters(), lr=lr)
