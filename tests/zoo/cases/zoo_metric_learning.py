import lightning as L
import torch
from pytorch_metric_learning import distances, losses, miners, reducers
from torch.utils.data import TensorDataset


def rows():
    return TensorDataset(torch.randn(80, 8, generator=torch.Generator().manual_seed(0)), torch.arange(80) % 4)


class Metric(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = torch.nn.Linear(8, 4)
        self.loss_func = losses.TripletMarginLoss(
            margin=0.2, distance=distances.CosineSimilarity(), reducer=reducers.ThresholdReducer(low=0)
        )
        self.mining_func = miners.TripletMarginMiner(
            margin=0.2, distance=distances.CosineSimilarity(), type_of_triplets="semihard"
        )
        self.proxies = losses.CrossBatchMemory(losses.ContrastiveLoss(), embedding_size=4, memory_size=64)

    def training_step(self, batch):
        x, y = batch
        embeddings = self.net(x)
        loss = self.loss_func(embeddings, y, self.mining_func(embeddings, y)) + self.proxies(embeddings, y)
        self.log("train_loss", loss, on_epoch=True)
        self.log("triplets", float(self.mining_func.num_triplets))
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)
