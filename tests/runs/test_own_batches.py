"""The batches of the ordinary fit are those of units, where these make them right."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from cerebro_elastic.data.ragged import encoded, sequences
from cerebro_elastic.data.reading.batches import batches
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.hop.generators import rng
from cerebro_elastic.runs.exactness.own_batches import own_batches
from cerebro_elastic.training.fingerprint import fingerprints

ROWS = 11
STREAM = random.Random(4)
FLOATS = np.random.default_rng(1).normal(size=(ROWS, 3)).astype(np.float32)
COLUMNS = {
    "x": FLOATS,
    "words": sequences([np.arange(1 + row % 4) for row in range(ROWS)], "words"),
    "image": encoded([row.tobytes() for row in FLOATS], "image"),
    "y": np.arange(ROWS),
}


def opened(value: bytes) -> Any:
    return np.frombuffer(value, np.float32)


def shifted(value: Any) -> Any:
    return value + np.float32(np.random.normal() + STREAM.random())


def noisy(batch: Any) -> Any:
    return {**batch, "x": batch["x"] + torch.randn(3)}


def collated(rows: list[Any]) -> Any:
    return [sum(torch.as_tensor(row[at]).sum() for row in rows) for at in (0, 1, 3)]


OPENS = {"decode": {"image": opened}, "augment": {"image": shifted}}


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"layout": "dict", "pad_value": {"words": -1}},
        {"ragged": "list"},
        {"arrays": "numpy"},
        {"arrays": "numpy", **OPENS},
        OPENS,
        {"layout": "dict", "transform": noisy, **OPENS},
        {"collate": collated, **OPENS},
    ],
    ids=lambda keys: "-".join(keys) or "plain",
)
def test_own_batches_are_those_of_units(keys: dict[str, Any]) -> None:
    partition = Partition(0, ROWS, COLUMNS)
    order = np.random.default_rng(2).permutation(ROWS)
    made = []
    for make in (own_batches, batches):
        with rng.borrowed():
            rng.seed_all(3)
            each = list(make(partition, order, LoaderSettings(4, **keys), seed=5, skip=1))
            made.append(fingerprints({"batch": each, "generator": rng.capture()}))
    assert made[0] == made[1]
