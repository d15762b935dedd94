import torch
from xlstm import mLSTMBlockConfig, mLSTMLayerConfig, xLSTMLMModel, xLSTMLMModelConfig


def loss(scores, _):
    return scores.flatten(0, 1).logsumexp(1).mean()


def model(lr):
    block = mLSTMBlockConfig(mlstm=mLSTMLayerConfig(num_heads=2))
    net = xLSTMLMModel(
        xLSTMLMModelConfig(
            mlstm_block=block, vocab_size=50, embedding_dim=16, num_blocks=1, context_length=16
        )
    )
    net.reset_parameters()
    return net, torch.optim.AdamW(net.parameters(), lr=lr)
