import lightning as L
import torch
import torchmetrics


class Net(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = torch.nn.Linear(6, 2)
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=2)
        both = torchmetrics.MetricCollection(
            {"acc": self.accuracy, "auroc": torchmetrics.AUROC("multiclass", num_classes=2)}
        )
        self.tracked = both.clone(prefix="train_")
        self.running = torchmetrics.wrappers.Running(torchmetrics.MeanMetric(), window=5)

    def training_step(self, batch):
        scores = self.net(batch[0])
        loss = torch.nn.functional.cross_entropy(scores, batch[1])
        self.tracked.update(scores.softmax(1), batch[1])
        self.log("train_running", self.running(loss))
        self.log("train_loss", loss, on_epoch=True)
        self.log_dict(self.tracked, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)
