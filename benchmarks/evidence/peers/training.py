"""What the peers share: the job in a folder, a config's plain loop, worker processes, and the last line."""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from workloads import WORKLOADS, Workload, configs

PROCESSES = 2
_EVALUATED = 256
"""Rows of a batch that is evaluated."""
Rows = tuple[Tensor, ...]


@dataclass(frozen=True)
class Job:
    """What is to be trained."""

    folder: Path
    workload: Workload
    epochs: int
    configs: Sequence[Mapping[str, Any]]
    columns: Sequence[str]
    url: str = ""
    """Where its rows lie as partitions, if not in the folder."""
    partitions: Sequence[int] = ()
    """How many rows each has."""
    share: int = 1
    """One of so many rows is trained, and validated."""

    def load(self) -> tuple[Rows, Rows]:
        """The columns for training and for validation, in memory."""
        return self.part(0, 1)

    def part(self, number: int, of: int) -> tuple[Rows, Rows]:
        """Those of one of several processes that share the rows."""
        if not self.url:
            train, valid = self._columns("train"), self._columns("valid")
            return _rows(train, number, of), _rows(valid, number, of)
        return self._joined(range(number, len(self.partitions), of)), _rows(self.validation(), number, of)

    def _joined(self, numbers: Sequence[int]) -> Rows:
        """Several partitions as one. Each is read alone, so that no two are in memory twice."""
        whole: Rows = ()
        rows = sum(self.partitions[number] // self.share for number in numbers)
        at = 0
        for number in numbers:
            read_now = self.partition(number)
            whole = whole or tuple(torch.empty(rows, *each.shape[1:], dtype=each.dtype) for each in read_now)
            for column, part in zip(whole, read_now, strict=True):
                column[at : at + len(part)] = part
            at += len(read_now[-1])
        return whole

    def partition(self, number: int) -> Rows:
        """A partition for training, from its URL."""
        return self._stored(f"train/{number:05}")

    def validation(self) -> Rows:
        """All rows for validation, from the URL."""
        return self._stored("valid/00000")

    def _stored(self, folder: str) -> Rows:
        columns = [array_of(read(f"{self.url}/{folder}/{name}.npy")) for name in self.columns]
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return tuple(torch.from_numpy(column[: len(column) // self.share]) for column in columns)

    def _columns(self, split: str) -> Rows:
        return tuple(torch.from_numpy(np.load(self.folder / split / f"{name}.npy")) for name in self.columns)


def _rows(columns: Rows, number: int, of: int) -> Rows:
    return columns if of == 1 else tuple(column[number::of].clone() for column in columns)


def read(url: str) -> bytes:
    """All bytes of a file, by one request."""
    from fsspec.core import url_to_fs

    files, path = url_to_fs(url)
    content: bytes = files.cat_file(path)
    return content


def array_of(content: bytes) -> NDArray[Any]:
    """The array of a ``.npy`` file; its memory is that of the bytes."""
    from numpy.lib import format as npy

    file = io.BytesIO(content)
    npy.read_magic(file)
    shape, _, dtype = npy.read_array_header_1_0(file)
    return np.frombuffer(content, dtype, offset=file.tell()).reshape(shape)


@dataclass(frozen=True)
class Outcome:
    """What became of a config."""

    began: float
    """``time.time`` at its first step."""
    accuracy: float
    """The best of its epochs."""


def read_job(folder: Path) -> Job:
    """The job that ``workloads.write`` has written."""
    written = json.loads((folder / "job.json").read_text())
    workload = WORKLOADS[written["workload"]]
    where = {name: written[name] for name in ("url", "partitions", "share") if name in written}
    return Job(folder, workload, written["epochs"], configs(written["space"]), written["columns"], **where)


def arguments(doc: str | None, *ways: str) -> argparse.ArgumentParser:
    """The peers' arguments: a way, if there are several, and the folder."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    if ways:
        parser.add_argument("way", choices=ways)
    parser.add_argument("folder", type=Path)
    return parser


def report(outcomes: Iterable[Outcome]) -> None:
    """Print the last line: the best accuracy, and when training began."""
    outcomes = list(outcomes)
    best = max(outcome.accuracy for outcome in outcomes)
    print(json.dumps({"accuracy": best, "began": min(outcome.began for outcome in outcomes)}))


def seed_of(config: Mapping[str, Any]) -> int:
    """A config's own seed, for its first weights and its order of rows."""
    return zlib.crc32(json.dumps(config, sort_keys=True).encode())


class Training:
    """A config's model and optimizer, and its passes over rows."""

    def __init__(self, workload: Workload, config: Mapping[str, Any]) -> None:
        torch.manual_seed(seed_of(config))
        self._workload = workload
        self.batch_size: int = config["batch_size"]
        self.model: nn.Module = workload.model(config["architecture"])
        self.optimizer = self.optimizer_of(config)

    def optimizer_of(self, config: Mapping[str, Any]) -> torch.optim.Optimizer:
        rates = {"lr": config["lr"], "weight_decay": config["weight_decay"]}
        return torch.optim.Adam(self.model.parameters(), **rates)

    def gradients(self, rows: Rows, batch: Tensor) -> None:
        """Add the gradients of a batch."""
        x, y = self._workload.to_input([column[batch] for column in rows])
        loss: Any = cross_entropy(self.model(x), y)
        loss.backward()

    def epoch(self, rows: Rows) -> None:
        """One pass over all rows in random batches."""
        for batch in torch.randperm(len(rows[-1])).split(self.batch_size):
            self.optimizer.zero_grad()
            self.gradients(rows, batch)
            self.optimizer.step()

    def correct(self, rows: Rows) -> int:
        """How many rows are classified well."""
        right = 0
        with torch.no_grad():
            for batch in torch.arange(len(rows[-1])).split(_EVALUATED):
                x, y = self._workload.to_input([column[batch] for column in rows])
                right += int(self.model(x).argmax(1).eq(y).sum())
        return right


def train(job: Job, config: Mapping[str, Any], rows: Rows, valid: Rows) -> Outcome:
    """One config after its plain loop: every epoch over all rows, with a validation behind it."""
    training, began, best = Training(job.workload, config), time.time(), 0
    for _ in range(job.epochs):
        training.epoch(rows)
        best = max(best, training.correct(valid))
    return Outcome(began, best / len(valid[-1]))


class ConfigQueue:
    """Configs that several forked processes take by turns."""

    def __init__(self, configs: Sequence[Mapping[str, Any]]) -> None:
        self._configs = configs
        self._taken = multiprocessing.get_context("fork").Value("i", 0)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        while True:
            with self._taken.get_lock():
                number = self._taken.value
                self._taken.value += 1
            if number >= len(self._configs):
                return
            yield self._configs[number]


def forked(work: Callable[[int], list[Outcome]], processes: int = PROCESSES) -> list[Outcome]:
    """What ``work`` returns in each of some forked processes; it gets the process's number.

    Forking spares each of them the imports.
    """
    import torch._dynamo  # which optimizers and DDP would import when first used

    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def body(number: int) -> None:
        torch.set_num_threads(1)
        results.put(work(number))

    workers = [context.Process(target=body, args=(number,)) for number in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        if worker.exitcode:
            raise SystemExit(f"a worker ended with {worker.exitcode}")
    return [outcome for _ in workers for outcome in results.get()]
