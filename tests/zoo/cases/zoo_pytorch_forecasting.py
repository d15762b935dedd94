import lightning as L
import pandas as pd
from pytorch_forecasting import TemporalFusionTransformer, TimeSeriesDataSet

SHAPE = {"group_ids": ["group"], "max_encoder_length": 8, "max_prediction_length": 3}
TABLE = pd.DataFrame({"t": [*range(40)] * 4, "group": [f"g{n // 40}" for n in range(160)], "value": 0.0})
TABLE["value"] += TABLE["t"] % 7 + TABLE["group"].str[1].astype(float)
SERIES = TimeSeriesDataSet(TABLE, "t", "value", time_varying_unknown_reals=["value"], **SHAPE)


class Data(L.LightningDataModule):
    def train_dataloader(self):
        return SERIES.to_dataloader(train=True, batch_size=16)

    def val_dataloader(self):
        return TimeSeriesDataSet.from_dataset(SERIES, TABLE, predict=True).to_dataloader()


def model(learning_rate):
    return TemporalFusionTransformer.from_dataset(SERIES, learning_rate=learning_rate, hidden_size=8)
