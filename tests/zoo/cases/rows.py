"""Small data of the usual shapes, as columns."""

import torch


def table(features=6, count=80):
    x = torch.randn(count, features, generator=torch.Generator().manual_seed(0))
    return {"x": x.numpy(), "y": (x[:, 0] > 0).long().numpy()}


def numbers():
    return table() | {"y": table()["x"].sum(1, keepdims=True)}


def pictures():
    x = torch.rand(40, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return {"x": x.numpy(), "y": (x.mean((1, 2, 3)) > 0.5).long().numpy()}


def masks():
    x = pictures()["x"]
    return {"x": x, "y": (x[:, :1] > 0.5).astype("float32")}


def waves():
    x = torch.randn(32, 4000, generator=torch.Generator().manual_seed(0))
    return {"x": x.numpy(), "y": (x[:, 0] > 0).long().numpy()}


def words():
    x = torch.randint(1, 50, (64, 16), generator=torch.Generator().manual_seed(0))
    return {"x": x.numpy(), "y": (x[:, 0] > 25).long().numpy()}
