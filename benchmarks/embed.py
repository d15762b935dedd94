"""Eight heads on one frozen encoder, whose features are kept, computed again, or computed in the model.

    python benchmarks/embed.py [--rows 4096] [--width 1024]

All units of 8 configs (3 epochs of 4 partitions, with validation) are trained in this process: all configs
visit a partition one after the other. Three ways take turns unit by unit:

- ``ordinary``: the model has the encoder and the head;
- ``computed``: ``data.embed`` is the encoder, the model is the head, and the cache has no room;
- ``kept``: the same, with room.

Printed are, of each: how many rows the encoder got for each row of the data; the seconds, and those of the
processor, which other work on the machine lengthens less; how many of the states at the end have the digests
of ``computed``. And the largest difference of a weight to ``ordinary``.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import nn

from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.made_once import MadeBatches
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.hop import checkpoint
from cerebro_elastic.hop.checkpoint.tree import flatten
from cerebro_elastic.recipes import TorchSection
from cerebro_elastic.training.functions import FunctionTask
from cerebro_elastic.training.task import Task, TaskState, UnitJob

COUNTS = "ENCODED_ROWS"
"""The environment variable that names the file into which the encoder writes the rows of each call."""
INPUTS, PARTITIONS, EPOCHS, BATCH = 256, 4, 3, 64
RATES = [0.3 / 2**number for number in range(8)]


class Encoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers: list[nn.Module] = [nn.Linear(INPUTS, width), nn.GELU()]
        for _ in range(3):
            layers += [nn.Linear(width, width), nn.GELU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, 64))
        self.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with open(os.environ[COUNTS], "a") as file:
            print(len(x), file=file)
        features: torch.Tensor = self.layers(x)
        return features


@cache
def encoder(width: int) -> Encoder:
    return Encoder(width)


def embed(batch: tuple[torch.Tensor, torch.Tensor], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = batch
    return encoder(width)(x), y


def head(lr: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    layer = nn.Linear(64, 10)
    return nn.Sequential(OrderedDict(head=layer)), torch.optim.SGD(layer.parameters(), lr=lr, momentum=0.9)


def whole(lr: float, width: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    model, optimizer = head(lr)
    return nn.Sequential(OrderedDict(encoder=Encoder(width), head=model.head)), optimizer


def task_of(model_fn: str) -> Task:
    section = TorchSection(model_fn=f"embed:{model_fn}", loss="cross_entropy")
    return FunctionTask(section, Path(__file__).parent)


def partition(index: int, rows: int) -> Partition:
    generator = np.random.default_rng(index)
    x = generator.standard_normal((rows, INPUTS)).astype(np.float32)
    y = generator.integers(0, 10, rows)
    return Partition(index, rows, {"x": x, "y": y}, name=f"partition {index}")


def weights_of(state: TaskState) -> Mapping[str, torch.Tensor]:
    return {name: leaf for name, leaf in flatten(state)[1].items() if "head." in name}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--width", type=int, default=1024)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = (asked.rows // PARTITIONS,) * PARTITIONS
    data = [partition(index, count) for index, count in enumerate(rows)]
    valid = [partition(PARTITIONS, rows[0])]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        encoded = root / "rows"
        os.environ[COUNTS] = str(encoded)
        plain = LoaderSettings(BATCH)
        embedded = replace(plain, embed=embed).with_hparams({"width": asked.width})
        ways: dict[str, tuple[Task, LoaderSettings, MadeBatches | None]] = {
            "ordinary": (task_of("whole"), plain, None),
            "computed": (task_of("head"), embedded, MadeBatches(root / "full", 1, "0" * 64)),
            "kept": (task_of("head"), embedded, MadeBatches(root / "made", 1 << 32, "0" * 64)),
        }
        seconds, forwards = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0)
        of_processor = dict.fromkeys(ways, 0.0)
        states: dict[tuple[str, int], TaskState] = {}
        for epoch, index, config in itertools.product(range(EPOCHS), range(PARTITIONS), range(len(RATES))):
            for way, (task, loader, made) in ways.items():
                rate = {"lr": RATES[config]}
                job = UnitJob(
                    unit=Unit(f"c{config}", epoch, index),
                    hparams=rate if loader is embedded else {**rate, "width": asked.width},
                    seed=7,
                    epochs=EPOCHS,
                    visited=tuple(range(index)),
                    rows=rows,
                    partition=data[index],
                    validation=valid,
                    loader=loader,
                    state=states.get((way, config)),
                    made=made,
                    device="cpu",
                )
                began, worked = time.perf_counter(), time.process_time()
                states[way, config] = task.train(job).state
                seconds[way] += time.perf_counter() - began
                of_processor[way] += time.process_time() - worked
                if encoded.exists():
                    forwards[way] += sum(map(int, encoded.read_text().split()))
                    encoded.unlink()
        digests = {
            (way, config): checkpoint.save(state, str(root / f"checkpoints/c{config}/{way}")).digest
            for (way, config), state in states.items()
        }
        total = sum(rows) + valid[0].rows
        for way in ways:
            same = sum(digests[way, config] == digests["computed", config] for config in range(len(RATES)))
            times = [
                f"{taken[way]:.1f} s{of} ({taken[way] / taken['ordinary']:.2f} x)"
                for taken, of in ((seconds, ""), (of_processor, " of the processor"))
            ]
            print(
                f"{way}: {forwards[way] / total:.2f} forwards of the encoder per row, {', '.join(times)}, "
                f"{same} of {len(RATES)} digests as computed"
            )
        differences = [
            (weights_of(states["kept", config])[name] - weight).abs().max().item()
            for config in range(len(RATES))
            for name, weight in weights_of(states["ordinary", config]).items()
        ]
        print(f"largest difference of a weight to the ordinary one: {max(differences):.1e}")


if __name__ == "__main__":
    main()
