import rows
import torch
from e3nn import nn, o3


def clouds():
    columns = rows.table(features=15)
    return columns | {"x": columns["x"].reshape(80, 5, 3)}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.edges, hidden = o3.Irreps.spherical_harmonics(2), o3.Irreps("4x0e + 2x1o")
        self.product = o3.FullyConnectedTensorProduct(self.edges, self.edges, hidden)
        self.norm = nn.BatchNorm(hidden)
        self.head = o3.Linear(hidden, "2x0e")

    def forward(self, x):
        y = o3.spherical_harmonics(self.edges, x, normalize=True)
        return self.head(self.norm(self.product(y, y.roll(1, 1)).mean(1)))


def model(lr):
    net = Net()
    return net, torch.optim.Adam(net.parameters(), lr=lr)
