import torch
from tab_transformer_pytorch import FTTransformer


class Net(FTTransformer):
    def forward(self, x):
        return super().forward((x[:, :2] > 0).long(), x[:, 2:])


def model(lr):
    net = Net(categories=(2, 2), num_continuous=4, dim=8, depth=1, heads=2, dim_out=2, attn_dropout=0.1)
    return net, torch.optim.AdamW(net.parameters(), lr=lr)
