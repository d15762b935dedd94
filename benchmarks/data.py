"""Batches of JPEG pictures, as a plain ``DataLoader`` makes them and as units do, side by side.

    python benchmarks/data.py [--pictures 2000] [--workers 2] [--rounds 5]

All read the same Dataset, which opens a JPEG, crops it at random and returns a tensor. Ours take rows by
number (``data.dataset``), or have their bytes in partitions (``materialize``) and open them by ``decode``.
In each round each makes one pass in four parts and trains nothing, in turns. A part is a unit of ours, and an
epoch of the plain loader, whose sampler deals out a fourth at a time: so all begin as often. Printed are
pictures per second, their ratio to the plain loader's in the same round, and the time from the begin of a
part to its first batch once the processes are warm: medians of the rounds. Needs Pillow, and no other work
on the machine.
"""

from __future__ import annotations

import argparse
import io
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Sampler

from cerebro_elastic import prepare
from cerebro_elastic.data.manifest import Manifest
from cerebro_elastic.data.preparing.from_columns import prepare_columns
from cerebro_elastic.data.preparing.settings import PrepareSettings
from cerebro_elastic.data.preparing.splits import Sources
from cerebro_elastic.data.reading.batches import batches, training_order
from cerebro_elastic.data.reading.cache import PartitionCache
from cerebro_elastic.data.reading.dataset_factory import DatasetFactory
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.worker_processes import end_idle

SIDE, CROP, BATCH, PARTITIONS = 96, 64, 32, 4


class Pictures(Dataset[Any]):
    """Encoded pictures in a folder."""

    def __init__(self, folder: str, opened: bool = True) -> None:
        self.files = sorted(Path(folder).glob("*.jpg"))
        self.opened = opened

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        encoded = self.files[number].read_bytes()
        return (open_picture(encoded) if self.opened else encoded), number % 10


def open_picture(encoded: bytes) -> torch.Tensor:
    """A random crop of a JPEG."""
    picture = np.asarray(Image.open(io.BytesIO(encoded)))
    top, left = torch.randint(SIDE - CROP, (2,)).tolist()
    return torch.from_numpy(picture[top : top + CROP, left : left + CROP].copy()).permute(2, 0, 1) / 255


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="cerebro-pictures-") as folder:
        write_pictures(Path(folder), options.pictures)
        ways = {
            "plain DataLoader": plain(folder, options.workers),
            "data.dataset": by_number(folder, options.workers),
            "materialize, decode": materialized(folder, options.workers),
        }
        rng = np.random.default_rng(0)  # who comes first may have it easier
        for units in ways.values():
            sum(1 for _ in units())  # start the processes
        rounds = [
            {way: timed(ways[way]) for way in rng.permutation(list(ways))} for _ in range(options.rounds)
        ]
        end_idle()
    print(f"{'':22} {'pictures/s':>11} {'ratio':>6} {'first batch':>12}")
    for way in ways:
        rate = options.pictures / statistics.median(r[way][0] for r in rounds)
        ratio = statistics.median(r["plain DataLoader"][0] / r[way][0] for r in rounds)
        first = statistics.median(r[way][1] for r in rounds)
        print(f"{way:22} {rate:11.0f} {ratio:6.2f} {1e3 * first:9.0f} ms")


def write_pictures(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    for number in range(count):
        smooth = Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).resize((SIDE, SIDE))
        smooth.save(folder / f"{number:06d}.jpg", quality=90)


def timed(units: Callable[[], Iterator[Iterator[Any]]]) -> tuple[float, float]:
    """Seconds of a pass over all units, and of the first batch of a unit (the mean)."""
    began, firsts = time.perf_counter(), []
    for unit in units():
        start = time.perf_counter()
        next(unit)
        firsts.append(time.perf_counter() - start)
        for _ in unit:
            pass
    return time.perf_counter() - began, statistics.mean(firsts)


def plain(folder: str, workers: int) -> Callable[[], Iterator[Iterator[Any]]]:
    """A ``DataLoader`` whose processes stay, and whose epoch is a fourth of the pictures."""
    pictures = Pictures(folder)
    parts = Parts(len(pictures))
    loader = DataLoader(pictures, batch_sampler=parts, num_workers=workers, persistent_workers=workers > 0)

    def units() -> Iterator[Iterator[Any]]:
        for _ in range(PARTITIONS):
            yield iter(loader)

    return units


class Parts(Sampler[list[int]]):
    """Batches of another part of the rows in each epoch."""

    def __init__(self, rows: int) -> None:
        self._parts = itertools.cycle(np.array_split(np.random.default_rng(0).permutation(rows), PARTITIONS))

    def __iter__(self) -> Iterator[list[int]]:
        part = next(self._parts).tolist()
        return (part[start : start + BATCH] for start in range(0, len(part), BATCH))


def by_number(folder: str, workers: int) -> Callable[[], Iterator[Iterator[Any]]]:
    factory = DatasetFactory("data:Pictures", Path(__file__).parent, {"folder": folder})
    datasets = factory.make()
    columns = datasets.columns()["train"]
    settings = PrepareSettings(partitions=PARTITIONS)
    sources = Sources(lambda: columns)
    manifest = prepare_columns(sources, f"{folder}/numbers", settings, datasets=datasets.lengths)
    loader = LoaderSettings(BATCH, workers=workers, dataset=factory)
    return partial(units_of, f"{folder}/numbers", manifest, loader)


def materialized(folder: str, workers: int) -> Callable[[], Iterator[Iterator[Any]]]:
    source: Any = partial(Pictures, folder, opened=False)
    source.__module__, source.__qualname__ = __name__, "Pictures"
    manifest = prepare(source, f"{folder}/bytes", partitions=PARTITIONS, valid=0)
    from data import open_picture as decode  # as processes that make batches import it

    loader = LoaderSettings(BATCH, workers=workers, decode={"x": decode})
    return partial(units_of, f"{folder}/bytes", manifest, loader)


def units_of(url: str, manifest: Manifest, loader: LoaderSettings) -> Iterator[Iterator[Any]]:
    cache = PartitionCache(Path(url).parent / "cache")
    for index in range(PARTITIONS):
        partition = cache.fetch(url, manifest, "train", index)
        yield batches(partition, training_order(partition, loader, 0, 0), loader)


if __name__ == "__main__":
    main()
