import torch
from torch_audiomentations import AddColoredNoise, Compose, Gain, PolarityInversion


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.augment = Compose([Gain(), PolarityInversion(p=0.5), AddColoredNoise()], output_type="dict")
        self.net = torch.nn.Sequential(
            torch.nn.Conv1d(1, 4, 64, 16), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(2)
        )

    def forward(self, x):
        return self.net(self.augment(x.unsqueeze(1), sample_rate=4000).samples)


def model(lr):
    net = Net()
    net(torch.zeros(2, 4000))
    return net, torch.optim.AdamW(net.parameters(), lr=lr)
