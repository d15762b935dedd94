from darts.models import NBEATSModel
from darts.utils.timeseries_generation import sine_timeseries

SERIES = sine_timeseries(length=160, value_frequency=0.07)


def fitted(lr=0.001):
    model = NBEATSModel(12, 4, num_stacks=2, layer_widths=16, batch_size=16, optimizer_kwargs={"lr": lr})
    _, settings = model._setup_for_fit_from_dataset(SERIES[:120], val_series=SERIES[100:])
    return model._setup_for_train(**settings)


def module(lr):
    return fitted(lr)["model"]


def data():
    return fitted()["datamodule"]
