import auraloss
import rows
import torch

LOSS = auraloss.freq.MultiResolutionSTFTLoss(
    [256, 128], [64, 32], [256, 128], perceptual_weighting=True, sample_rate=4000
)


def pairs():
    x = rows.waves()["x"][:, None]
    return {"x": x, "y": x * 0.5}


def model(lr):
    net = torch.nn.Sequential(
        torch.nn.Conv1d(1, 8, 31, padding=15), torch.nn.Tanh(), torch.nn.Conv1d(8, 1, 31, padding=15)
    )
    return net, torch.optim.AdamW(net.parameters(), lr=lr)
