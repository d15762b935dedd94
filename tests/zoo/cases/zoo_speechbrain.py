import torch
from speechbrain.lobes.features import Fbank
from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN, Classifier
from speechbrain.nnet.losses import nll_loss
from speechbrain.processing.features import InputNormalization


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.normalize = (
            Fbank(sample_rate=4000, n_mels=16),
            InputNormalization(norm_type="global"),
        )
        self.embedding = ECAPA_TDNN(16, channels=[8] * 5, lin_neurons=8, attention_channels=4)
        self.classifier = Classifier(8, out_neurons=2)

    def forward(self, x):
        x = self.normalize(self.features(x), torch.ones(len(x)))
        return self.classifier(self.embedding(x)).squeeze(1)


def loss(scores, y):
    return nll_loss(scores.log_softmax(1).unsqueeze(1), y.unsqueeze(1))


def model(lr):
    net = Net()
    return net, torch.optim.Adam(net.parameters(), lr=lr)
