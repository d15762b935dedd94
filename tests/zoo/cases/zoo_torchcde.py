import rows
import torch
import torchcde


def paths():
    columns = rows.table(features=30)
    return columns | {"x": columns["x"].reshape(80, 10, 3)}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.start, self.field, self.head = (
            torch.nn.Linear(3, 4),
            torch.nn.Linear(4, 12),
            torch.nn.Linear(4, 2),
        )

    def forward(self, x):
        path = torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(x))

        def field(_, z):
            return self.field(z).tanh().view(-1, 4, 3)

        z = torchcde.cdeint(
            path, field, self.start(path.evaluate(path.interval[0])), path.interval, method="rk4"
        )
        return self.head(z[:, -1])
