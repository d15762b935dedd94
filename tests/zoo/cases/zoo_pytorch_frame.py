import lightning as L
import pandas as pd
import torch
import torch_frame
from torch_frame.data import DataLoader, Dataset
from torch_frame.nn import FTTransformer

TABLE = pd.DataFrame(
    {
        "a": [n % 7 / 7 for n in range(80)],
        "b": [f"k{n % 3}" for n in range(80)],
        "y": [n % 2 for n in range(80)],
    }
)
ROWS = Dataset(
    TABLE,
    {"a": torch_frame.numerical, "b": torch_frame.categorical, "y": torch_frame.categorical},
    target_col="y",
)
ROWS.materialize()


class Data(L.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(ROWS.tensor_frame, batch_size=8, shuffle=True)


class Net(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        names = ROWS.tensor_frame.col_names_dict
        self.net = FTTransformer(
            8, out_channels=2, num_layers=1, col_stats=ROWS.col_stats, col_names_dict=names
        )

    def training_step(self, batch):
        loss = torch.nn.functional.cross_entropy(self.net(batch), batch.y)
        self.log("train_loss", loss, on_epoch=True, batch_size=8)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)
