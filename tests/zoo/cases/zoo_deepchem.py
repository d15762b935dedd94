import deepchem as dc
import rows
from deepchem.models.lightning import DCLightningDatasetModule, DCLightningModule


def data():
    columns = rows.numbers()
    return DCLightningDatasetModule(dc.data.NumpyDataset(columns["x"], columns["y"]), batch_size=8)


def model(lr):
    return DCLightningModule(dc.models.MultitaskRegressor(1, 6, [8], dropouts=0.1, learning_rate=lr))
