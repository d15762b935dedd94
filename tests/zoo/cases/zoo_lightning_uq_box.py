from functools import partial

import rows
import torch
from lightning_uq_box.models import MLP
from lightning_uq_box.uq_methods import MVERegression


def inputs():
    x, y = (torch.from_numpy(column) for column in rows.numbers().values())
    return torch.utils.data.StackDataset(input=x, target=y)


def model(lr):
    net = MLP(n_inputs=6, n_outputs=2, dropout_p=0.1)
    return MVERegression(net, burnin_epochs=1, optimizer=partial(torch.optim.Adam, lr=lr))
