import lightning as L
import pandas as pd
from pytorch_tabular import TabularModel
from pytorch_tabular.config import DataConfig, OptimizerConfig, TrainerConfig
from pytorch_tabular.models import CategoryEmbeddingModelConfig

TABLE = pd.DataFrame({"a": [n % 7 / 7 for n in range(160)], "y": [int(n % 7 > 3) for n in range(160)]})


def tabular(lr=0.001):
    config = CategoryEmbeddingModelConfig(task="classification", layers="16-8", learning_rate=lr)
    data = DataConfig(target=["y"], continuous_cols=["a"], num_workers=0)
    settings = {"optimizer_config": OptimizerConfig(), "trainer_config": TrainerConfig(batch_size=16)}
    return TabularModel(data_config=data, model_config=config, **settings)


class Data(L.LightningDataModule):
    def train_dataloader(self):
        return tabular().prepare_dataloader(TABLE).train_dataloader()


def model(lr):
    return tabular(lr).prepare_model(tabular().prepare_dataloader(TABLE))
