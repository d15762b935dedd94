import torch
from asteroid import ConvTasNet
from asteroid.engine import System
from asteroid.losses import PITLossWrapper, pairwise_neg_sisdr


def mixtures():
    sources = torch.randn(20, 2, 2000, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.TensorDataset(sources.sum(1), sources)


def model(lr):
    net = ConvTasNet(2, n_filters=16, n_blocks=1, n_repeats=1, bn_chan=8, hid_chan=8, skip_chan=8)
    loss = PITLossWrapper(pairwise_neg_sisdr, pit_from="pw_mtx")
    rows = torch.utils.data.DataLoader(mixtures(), 4)
    return System(net, torch.optim.Adam(net.parameters(), lr=lr), loss, rows)
