import lightning as L
import torch
from ema_pytorch import EMA


class Net(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = torch.nn.Linear(6, 2)
        self.ema = EMA(self.net, beta=0.99, update_after_step=2, update_every=2)

    def training_step(self, batch):
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def on_train_batch_end(self, *_):
        self.ema.update()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.net.parameters(), lr=self.lr)
