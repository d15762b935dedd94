from neuralforecast.models import NHITS
from neuralforecast.tsdataset import TimeSeriesDataModule, TimeSeriesDataset
from neuralforecast.utils import AirPassengersPanel


def series():
    dataset, *_ = TimeSeriesDataset.from_df(AirPassengersPanel[["unique_id", "ds", "y"]])
    return TimeSeriesDataModule(dataset, batch_size=1)


def model(learning_rate):
    return NHITS(h=12, input_size=24, max_steps=100, learning_rate=learning_rate, mlp_units=[[16, 16]] * 3)
