from neuralop import LpLoss
from neuralop.models import FNO
from neuralop.training import AdamW

LOSS = LpLoss(d=2, p=2)


def model(lr):
    net = FNO(n_modes=(4, 4), hidden_channels=8, in_channels=3, out_channels=1, n_layers=2)
    return net, AdamW(net.parameters(), lr=lr)
