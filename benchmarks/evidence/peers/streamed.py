"""Trains some configs on shards in S3 by a library that streams them; two processes, each with half of the
configs, one after the other.

    python benchmarks/evidence/peers/streamed.py LIBRARY ENDPOINT CACHE [--configs 8] [--epochs 3]

Each library shuffles in each epoch, and keeps what it has fetched in a folder of CACHE for each process (but
that of ``datasets`` is for both): so nothing is fetched again for the process's other configs and epochs. A
batch is made by the process that trains, for there is a core for each. The last line says when the first step
began, when training ended, and the rows trained on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from shard_files import SHARDS, WIDTH, model, mosaicml, opened
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, IterableDataset

BATCH, PROCESSES = 256, 2
Batches = Iterable[Any]
"""Of an epoch each time it is gone over."""


def litdata_batches(_endpoint: str, cache: Path) -> Batches:
    import litdata
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"  # the server has no TLS
    dataset = litdata.StreamingDataset("s3://bucket/litdata", cache_dir=str(cache), shuffle=True)
    return litdata.StreamingDataLoader(dataset, batch_size=BATCH)


def mosaicml_batches(endpoint: str, cache: Path) -> Batches:
    os.environ["S3_ENDPOINT_URL"] = endpoint
    dataset = mosaicml().StreamingDataset(
        remote="s3://bucket/mds", local=str(cache), shuffle=True, batch_size=BATCH
    )
    return DataLoader(dataset, batch_size=BATCH)


def webdataset_batches(endpoint: str, cache: Path) -> Batches:
    import webdataset

    urls = f"{endpoint}/bucket/tar/{{000..{SHARDS - 1:03d}}}.tar"
    dataset = webdataset.WebDataset(urls, cache_dir=str(cache), shardshuffle=SHARDS)
    decoded = dataset.shuffle(1000).to_tuple("bin", "cls").map_tuple(opened, int)
    return webdataset.WebLoader(decoded.batched(BATCH), batch_size=None)


def datasets_batches(_endpoint: str, cache: Path) -> Batches:
    import datasets

    shards = "s3://bucket/parquet/*.parquet"
    rows = datasets.load_dataset("parquet", data_files=shards, split="train", cache_dir=str(cache.parent))
    return DataLoader(rows.with_format("torch"), batch_size=BATCH, shuffle=True)


class ParquetRows(IterableDataset[Any]):
    """What a loop by hand reads: shards in a drawn order, the rows of each shuffled, by fsspec's cache."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache

    def __iter__(self) -> Iterator[Any]:
        import fsspec
        import pyarrow.parquet

        urls = [f"filecache::s3://bucket/parquet/{shard:03d}.parquet" for shard in torch.randperm(SHARDS)]
        for url in urls:
            with fsspec.open(url, filecache={"cache_storage": str(self._cache)}) as file:
                table = pyarrow.parquet.read_table(file)
            values = table["x"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
            x, y = torch.tensor(values.reshape(-1, WIDTH)), torch.tensor(table["y"].to_numpy())
            for rows in torch.randperm(len(y)).split(BATCH):
                yield x[rows], y[rows]


def torch_batches(_endpoint: str, cache: Path) -> Batches:
    return DataLoader(ParquetRows(cache), batch_size=None)


LIBRARIES: Mapping[str, Callable[[str, Path], Batches]] = {
    "litData": litdata_batches,
    "MosaicML streaming": mosaicml_batches,
    "WebDataset": webdataset_batches,
    "Hugging Face datasets": datasets_batches,
    "DataLoader over fsspec": torch_batches,
}


def trained(asked: argparse.Namespace, number: int) -> tuple[float, int]:
    """When the first step of this process began, and the rows that it has trained on."""
    torch.set_num_threads(1)
    cache = Path(asked.cache) / str(number)
    cache.mkdir()
    began, rows = 0.0, 0
    batches = LIBRARIES[asked.library](asked.endpoint, cache)
    for config in range(number, asked.configs, PROCESSES):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1 / 2**config)
        for _ in range(asked.epochs):
            for batch in batches:
                x, y = batch.values() if isinstance(batch, dict) else batch
                began = began or time.time()
                optimizer.zero_grad()
                cross_entropy(net(x), y).backward()
                optimizer.step()
                rows += len(y)
    return began, rows


def in_process(asked: argparse.Namespace, number: int, answers: Any) -> None:
    answers.put(trained(asked, number))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("library", choices=list(LIBRARIES))
    parser.add_argument("endpoint")
    parser.add_argument("cache")
    parser.add_argument("--configs", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    asked = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [
        context.Process(target=in_process, args=(asked, number, answers)) for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise SystemExit(f"a process ended with {process.exitcode}")
    began, rows = zip(*(answers.get() for _ in processes), strict=True)
    print(json.dumps({"began": min(began), "done": time.time(), "rows": sum(rows)}))


if __name__ == "__main__":
    main()
