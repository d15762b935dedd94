"""A node of two systems that train configs of ``pictures.py`` and survive the loss of a node.

    python failing.py tasks FOLDER NODE SPEC        a worker; start one for each node
    torchrun ... failing.py ddp FOLDER NODE SPEC    a worker of one elastic group

SPEC is JSON: ``configs`` (a list of hyper-parameters) and ``epochs``. After every epoch a worker keeps the
config's state in FOLDER, and goes on from it. It notes each batch in a file of its own: the time, config,
epoch, batch, and rows.

``tasks``: a worker takes the first config that nobody has. It holds a lock on it, which the system takes from
a dead process. So the next free worker goes on with the config of a lost one, from its last epoch.
``ddp``: all workers train one config after the other, each with its part of every batch.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pictures import BATCH, load, model, to_input
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


class Training:
    """One worker's part of the training of configs, one at a time."""

    def __init__(self, folder: Path, node: str, epochs: int) -> None:
        torch.set_num_threads(1)
        self._folder, self._epochs = folder, epochs
        self._notes = (folder / f"{node}.notes").open("a", buffering=1)
        data = load()
        self._train, self._valid = (
            [torch.from_numpy(column.copy()) for column in data[split].values()]
            for split in ("train", "valid")
        )
        self._grouped = distributed.is_initialized()
        self._rank = distributed.get_rank() if self._grouped else 0
        self._world = distributed.get_world_size() if self._grouped else 1

    def train(self, config: int, hparams: Mapping[str, Any]) -> float:
        """Train a config from its last epoch on; its last accuracy."""
        torch.manual_seed(config)
        net = model(hparams["width"])
        optimizer = torch.optim.AdamW(net.parameters(), hparams["lr"])
        file = self._folder / f"{config}.pt"
        epoch, accuracy = 0, 0.0
        if file.exists():
            state = torch.load(file)
            net.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            epoch, accuracy = state["epoch"], state["accuracy"]
        stepped = DistributedDataParallel(net) if self._grouped else net
        while epoch < self._epochs:
            self._epoch(stepped, optimizer, config, epoch)
            epoch, accuracy = epoch + 1, self._accuracy(net)
            if self._rank == 0:
                state = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(
                    {**state, "epoch": epoch, "accuracy": accuracy}, partial := file.with_suffix(".part")
                )
                partial.rename(file)
        return accuracy

    def _epoch(self, net: Any, optimizer: torch.optim.Optimizer, config: int, epoch: int) -> None:
        net.train()
        images, labels = self._train
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1000 * config + epoch))
        for number, batch in enumerate(order.split(BATCH)):
            mine = batch[self._rank :: self._world]
            self._notes.write(f"{time.time():.4f} {config} {epoch} {number} {len(mine)}\n")
            image, label = to_input((images[mine], labels[mine]))
            optimizer.zero_grad()
            cross_entropy(net(image), label).backward()
            optimizer.step()

    def _accuracy(self, net: Any) -> float:
        net.eval()
        images, labels = (column[self._rank :: self._world] for column in self._valid)
        with torch.no_grad():
            right = sum(
                net(to_input((image, label))[0]).argmax(1).eq(label).sum()
                for image, label in zip(images.split(500), labels.split(500), strict=True)
            )
        if self._grouped:
            distributed.all_reduce(right)
        return float(right) / len(self._valid[1])


def tasks(folder: Path, node: str, configs: list[dict[str, Any]], epochs: int) -> None:
    """Train whatever nobody else trains, until all is done."""
    training = Training(folder, node, epochs)
    done: dict[int, float] = {}
    while len(done) < len(configs):
        for config in sorted(set(range(len(configs))) - set(done)):
            with _locked(folder / f"{config}.lock") as ours:
                if ours:
                    done[config] = training.train(config, configs[config])
                    break
        else:
            time.sleep(0.1)


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether we have the lock."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def ddp(folder: Path, node: str, configs: list[dict[str, Any]], epochs: int) -> None:
    """Train all configs, one after the other, in the group that torchrun has made."""
    distributed.init_process_group("gloo")
    training = Training(folder, node, epochs)
    for config, hparams in enumerate(configs):
        training.train(config, hparams)
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("way", choices=["tasks", "ddp"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("node")
    parser.add_argument("spec", type=json.loads)
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    {"tasks": tasks, "ddp": ddp}[asked.way](asked.folder, asked.node, **asked.spec)


if __name__ == "__main__":
    main()
