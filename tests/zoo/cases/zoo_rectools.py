import lightning as L
import pandas as pd
from rectools.dataset import Dataset
from rectools.models import SASRecModel

SEEN = pd.DataFrame({"user_id": [n // 8 for n in range(400)], "item_id": [n * n % 23 for n in range(400)]})
SEEN = Dataset.construct(
    SEEN.assign(weight=1, datetime=pd.Timestamp("2024-01-01") + pd.to_timedelta(SEEN.index, "h"))
)


def model(lr=0.001):
    made = SASRecModel(n_factors=16, n_blocks=1, n_heads=1, session_max_len=8, batch_size=16, lr=lr)
    made._build_model_from_dataset(SEEN)
    return made.lightning_model


class Data(L.LightningDataModule):
    def train_dataloader(self):
        return model().data_preparator.get_dataloader_train()
