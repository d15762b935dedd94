"""What it costs to compare each row with its sum: CPU time per batch, beside that of training the batch.

    python benchmarks/row_sums.py [--rounds 5]

Rows lie in memory-mapped files, are taken in random order and compared as in a unit. "share" is the time of
the comparison over that of making the batch and training it, in one thread.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from overhead_models import make, mlp
from torch import nn
from torch.nn.functional import cross_entropy

from cerebro_elastic import prepare
from cerebro_elastic.data.reading.batches import batches
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition

BATCHES = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"{'model':30} {'batch':>6} {'rows of':>9} {'train':>9} {'compare':>9} {'share':>7}")
    for name, model, features, size in (
        ("MLP, 0.5 M parameters", mlp(), 784, 32),
        ("MLP 784-64-10", _small(784), 784, 32),
        ("MLP 40-64-10, tabular", _small(40), 40, 1024),
        ("ResNet-18", make("resnet18", 0.1, 0.9)[0], 3072, 32),
    ):
        count = 4 if name == "ResNet-18" else BATCHES
        trained, compared = _seconds(model, features, size, count, rounds)
        share = compared / trained
        columns = f"{4 * features} B", f"{1e6 * trained:.0f} us", f"{1e6 * compared:.1f} us"
        print(f"{name:30} {size:6} {columns[0]:>9} {columns[1]:>9} {columns[2]:>9} {share:7.2%}")


def _small(features: int) -> nn.Module:
    return nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 10))


def _seconds(model: nn.Module, features: int, size: int, count: int, rounds: int) -> tuple[float, float]:
    """CPU seconds per batch of making and training one, and of the comparison in it; each the least of all
    rounds."""
    rng = np.random.default_rng(0)
    rows = size * count

    def columns() -> dict[str, np.ndarray]:
        return {"x": rng.standard_normal((rows, features), np.float32), "y": rng.integers(0, 10, rows)}

    with tempfile.TemporaryDirectory() as folder:
        manifest = prepare(columns, f"{folder}/data", partitions=1, valid=0)
        partition = PartitionCache(Path(folder, "cache")).fetch(f"{folder}/data", manifest, "train", 0)
        bare = Partition(0, rows, partition.columns)
        loader, order = LoaderSettings(size), rng.permutation(rows)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def train() -> float:
            began = time.process_time()
            for x, y in batches(bare, order, loader):
                inputs = x.reshape(-1, 3, 32, 32) if features == 3072 else x
                optimizer.zero_grad()
                cross_entropy(model(inputs), y).backward()
                optimizer.step()
            return time.process_time() - began

        def compare() -> float:
            spent = 0.0
            for at, (x, y) in enumerate(batches(bare, order, loader)):
                index, began = order[at * size :][:size], time.process_time()
                partition.check_sizes()
                partition.check_rows("x", index, x.numpy())
                partition.check_rows("y", index, y.numpy())
                spent += time.process_time() - began
            return spent

        return min(train() for _ in range(rounds)) / count, min(compare() for _ in range(rounds)) / count


if __name__ == "__main__":
    main()
