# ruff: noqa: ARG002 - as the page of the package has it
import torch
import torchsde


class Net(torch.nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def __init__(self):
        super().__init__()
        self.drift, self.spread, self.head = (
            torch.nn.Linear(6, 6),
            torch.nn.Linear(6, 6),
            torch.nn.Linear(6, 2),
        )

    def f(self, t, y):
        return self.drift(y).tanh()

    def g(self, t, y):
        return self.spread(y).sigmoid()

    def forward(self, x):
        return self.head(torchsde.sdeint(self, x, torch.tensor([0.0, 0.5]), dt=0.1)[-1])
