import torch
import torchaudio


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.spectrum = torchaudio.transforms.MelSpectrogram(4000, n_fft=128, n_mels=16)
        self.masked = torchaudio.transforms.TimeMasking(5)
        self.conformer = torchaudio.models.Conformer(16, 2, 16, 1, 3, dropout=0.1)
        self.head = torch.nn.Linear(16, 2)

    def forward(self, x):
        x = self.masked(self.spectrum(x)).mT
        x, _ = self.conformer(x, torch.full((len(x),), x.shape[1]))
        return self.head(x.mean(1))


def model(lr):
    net = Net()
    return net, torch.optim.AdamW(net.parameters(), lr=lr)
