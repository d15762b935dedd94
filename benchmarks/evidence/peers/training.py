"""What the peers share: the job in a folder, a config's plain loop, worker processes, and the last line."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
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

    def load(self) -> tuple[Rows, Rows]:
        """The columns for training and for validation, in memory."""
        return self._columns("train"), self._columns("valid")

    def _columns(self, split: str) -> Rows:
        return tuple(torch.from_numpy(np.load(self.folder / split / f"{name}.npy")) for name in self.columns)


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
    return Job(folder, workload, written["epochs"], configs(written["space"]), written["columns"])


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
