"""The generators' state: captured, restored, and a tree that a checkpoint can hold."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from cerebro_elastic.hop.generators import rng


@pytest.fixture(autouse=True)
def generators_as_found() -> Iterator[None]:
    found = rng.capture()
    yield
    rng.restore(found)


def draw() -> tuple[float, ...]:
    return (
        random.random(),
        random.gauss(0, 1),
        float(np.random.random()),
        float(np.random.standard_normal()),
        float(torch.rand(())),
    )


def test_restoring_repeats_what_followed() -> None:
    rng.seed_all(3)
    draw()
    state = rng.capture()
    following = [draw() for _ in range(5)]
    rng.seed_all(4)
    assert [draw() for _ in range(5)] != following
    rng.restore(state)
    assert [draw() for _ in range(5)] == following


def test_seeding_is_that_of_lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(variable, "0")  # it sets them for good
    seed_everything = pytest.importorskip("lightning").seed_everything
    rng.seed_all(11)
    ours = draw()
    seed_everything(11, verbose=False)
    assert draw() == ours
