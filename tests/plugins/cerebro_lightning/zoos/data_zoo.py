"""Datasets and data modules as people write them, and a module that they feed."""
# ruff: noqa: ARG002 - hooks have the parameters that Lightning gives them

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    WeightedRandomSampler,
    random_split,
)
from torchmetrics.classification import BinaryAccuracy


class Points(Dataset[Any]):
    """Rows that are drawn anew whenever they are read."""

    def __init__(self, rows: int = 60, noise: float = 0.1) -> None:
        self.x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(3))
        self.noise = noise

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        x = self.x[row]
        return x + self.noise * torch.randn(4) if self.noise else x, int(x.sum() > 0)


def points() -> Points:
    return Points(noise=0.0)


def columns() -> dict[str, Any]:
    x = Points().x.numpy()
    return {"x": x, "y": (x.sum(1) > 0).astype("int64")}


def split(rows: int = 60) -> dict[str, Any]:
    train, valid = random_split(Points(rows), [0.8, 0.2])
    return {"train": train, "valid": valid}


class Net(L.LightningModule):
    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 2))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.log("val_loss", F.cross_entropy(self.net(batch[0]), batch[1]))

    def on_validation_epoch_end(self) -> None:
        """Reads its loaders as people do."""
        train, valid = self.trainer.train_dataloader, self.trainer.val_dataloaders
        loaders = {"train": train, **dict(enumerate(valid if isinstance(valid, list) else [valid]))}
        for name, loader in loaders.items():
            assert isinstance(loader, DataLoader)
            self.log_dict({f"batches of {name}": len(loader), f"rows of {name}": len(loader.dataset)})
            self.log(f"custom collate of {name}", float(loader.collate_fn is collate))
        self.log("size", float(loader.batch_size))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class Module(L.LightningDataModule):
    """Random splits, random rows, two validation loaders, batch hooks, and a state. By ``lists``, its dataset
    makes the batches; by ``batches``, it names a ``batch_sampler``."""

    def __init__(
        self,
        batch_size: int = 8,
        drop_last: bool = False,
        workers: int = 0,
        lists: bool = False,
        batches: bool = False,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.seen = 0

    def setup(self, stage: str) -> None:
        self.train, self.near, self.far = random_split(Points(), [46, 8, 6])

    def train_dataloader(self) -> Any:
        batches = BatchSampler(RandomSampler(self.train), self.hparams.batch_size, self.hparams.drop_last)
        if self.hparams.lists:
            return DataLoader(ByLists(self.train), sampler=batches, batch_size=None)
        if self.hparams.batches:
            return self.loader(batch_sampler=batches)
        return self.loader(shuffle=True, batch_size=self.hparams.batch_size)

    def loader(self, **order: Any) -> Any:
        if "batch_size" in order:
            order["drop_last"] = self.hparams.drop_last
        return DataLoader(self.train, num_workers=self.hparams.workers, collate_fn=collate, **order)

    def val_dataloader(self) -> Any:
        return [DataLoader(self.near, batch_size=3), DataLoader(self.far, batch_size=4, shuffle=True)]

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        x, y = batch
        self.seen += len(x)
        return (x + 0.01 * torch.randn_like(x) if self.trainer.training else x), y

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class ByLists(Dataset[Any]):
    """Makes a batch of a list of row numbers."""

    def __init__(self, rows: Dataset[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)  # type: ignore[arg-type]

    def __getitem__(self, numbers: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return collate([self.rows[number] for number in numbers])


def collate(rows: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([x for x, _ in rows]), torch.tensor([y for _, y in rows])


class Counting(L.LightningDataModule):
    """Counts batches in an attribute that it does not declare as state."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def train_dataloader(self) -> Any:
        return DataLoader(Points(), batch_size=8)

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        self.batches += 1
        return batch


class CountingInside(Counting):
    """Counts them in a list that it has from the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = [0]

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        self.seen[0] += 1
        return batch


class Quiet(Module):
    """Draws nothing at random but orders: what one rank sees, several see."""

    def setup(self, stage: str) -> None:
        self.train, self.near, self.far = random_split(Points(noise=0.0), [46, 8, 6])

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch


class QuietNet(Net):
    def __init__(self, lr: float = 0.1) -> None:
        super().__init__(lr)
        self.net = nn.Linear(4, 2)
        self.accuracy = BinaryAccuracy()

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        super().validation_step(batch, batch_idx, dataloader_idx)
        self.accuracy(self.net(batch[0]).argmax(1), batch[1])
        self.log("accuracy", self.accuracy)


class ValidatesStream(Module):
    def val_dataloader(self) -> Any:
        return {"near": super().val_dataloader()[0], "far": DataLoader(Stream())}


class Silent(Module):
    """Does not save its argument."""

    def __init__(self, rows: int) -> None:
        L.LightningDataModule.__init__(self)
        self.rows = rows


class Weighted(Module):
    def train_dataloader(self) -> Any:
        return self.loader(sampler=WeightedRandomSampler([1.0] * 46, 46), batch_size=8)


class OwnBatches(Module):
    def train_dataloader(self) -> Any:
        return self.loader(batch_sampler=[[0, 1], [2, 3]])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(range(3))


class Streams(Module):
    def train_dataloader(self) -> Any:
        return DataLoader(Stream())


class Several(Module):
    def train_dataloader(self) -> Any:
        return {"a": super().train_dataloader()}


class OwnLoader(Net):
    """Brings its data itself."""

    def train_dataloader(self) -> Any:
        return DataLoader(Points(), batch_size=8, shuffle=True)
