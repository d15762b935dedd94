import torch
from nnAudio.features import MelSpectrogram


def model(lr):
    spectrum = MelSpectrogram(
        sr=4000, n_fft=256, n_mels=16, trainable_mel=True, trainable_STFT=True, verbose=False
    )
    net = torch.nn.Sequential(spectrum, torch.nn.Flatten(), torch.nn.LazyLinear(2))
    net(torch.zeros(2, 4000))
    return net, torch.optim.AdamW(net.parameters(), lr=lr)
