import lightning as L
import pandas as pd
import torch
from replay.data import Dataset, FeatureHint, FeatureInfo, FeatureSchema, FeatureSource, FeatureType
from replay.data.nn import SequenceTokenizer, TensorFeatureInfo, TensorFeatureSource, TensorSchema
from replay.models.nn.optimizer_utils import FatOptimizerFactory
from replay.models.nn.sequential import SasRec
from replay.models.nn.sequential.sasrec import SasRecTrainingDataset

SEEN = pd.DataFrame(
    {"user": [n // 8 for n in range(400)], "item": [n * n % 23 for n in range(400)], "time": range(400)}
)
FEATURES = FeatureSchema(
    [
        FeatureInfo("user", FeatureType.CATEGORICAL, FeatureHint.QUERY_ID),
        FeatureInfo("item", FeatureType.CATEGORICAL, FeatureHint.ITEM_ID),
        FeatureInfo("time", FeatureType.NUMERICAL, FeatureHint.TIMESTAMP),
    ]
)
SOURCE = [TensorFeatureSource(FeatureSource.INTERACTIONS, "item")]
ITEMS = TensorFeatureInfo(
    "items",
    FeatureType.CATEGORICAL,
    is_seq=True,
    feature_hint=FeatureHint.ITEM_ID,
    feature_sources=SOURCE,
    embedding_dim=16,
)
TOKENIZER = SequenceTokenizer(TensorSchema(ITEMS))
SEQUENCES = TOKENIZER.fit_transform(Dataset(FEATURES, SEEN))


class Data(L.LightningDataModule):
    def train_dataloader(self):
        return torch.utils.data.DataLoader(SasRecTrainingDataset(SEQUENCES, 8), batch_size=8, shuffle=True)


def model(lr):
    shape = {"block_count": 1, "head_count": 1, "hidden_size": 16, "max_seq_len": 8}
    return SasRec(TOKENIZER.tensor_schema, optimizer_factory=FatOptimizerFactory(learning_rate=lr), **shape)
