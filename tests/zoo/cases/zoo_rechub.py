import torch
from torch_rechub.basic.features import DenseFeature, SparseFeature
from torch_rechub.models.ranking import DeepFM


def clicks():
    users, items = torch.randint(0, 9, (2, 80), generator=torch.Generator().manual_seed(0)).numpy()
    return {"user": users, "item": items, "age": users / 9, "y": (users > items).astype("float32")}


def clicks_of(batch):
    return batch, batch.pop("y")


def model(lr):
    sparse = [SparseFeature(name, 9, embed_dim=4) for name in ("user", "item")]
    net = DeepFM([*sparse, DenseFeature("age")], sparse, {"dims": [8], "dropout": 0.1})
    return net, torch.optim.Adam(net.parameters(), lr=lr, weight_decay=1e-4)
