"""What ``data.embed`` makes of a row is computed once per host, and changes no batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cerebro_elastic.data.manifest import ROW
from cerebro_elastic.data.reading.batches import batches
from cerebro_elastic.data.reading.dataset_factory import DatasetFactory
from cerebro_elastic.data.reading.embedding import CHUNK
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.data.reading.made_once import MadeBatches
from cerebro_elastic.data.reading.made_twice import differing
from cerebro_elastic.data.reading.partition import Partition
from cerebro_elastic.data.reading.worker_processes import end_idle
from cerebro_elastic.errors import RecipeError
from cerebro_elastic.recipes.data import Data
from cerebro_elastic.runs.exactness.own_batches import own_batches
from cerebro_elastic.system.subprocess_call import call_in_fork

ROWS = 2 * CHUNK + 20
X = np.random.default_rng(0).normal(size=(ROWS, 12)).astype("f4")
COLUMNS = Partition(0, ROWS, {"x": X, "y": np.arange(ROWS)}, name="columns")
NUMBERED = Partition(0, ROWS, {ROW: np.arange(ROWS)}, name="numbered")
ORDER = np.random.default_rng(1).permutation(ROWS)

ENCODER = torch.nn.Sequential(torch.nn.Linear(12, 33), torch.nn.GELU(), torch.nn.Linear(33, 17))
SEEN: list[int] = []
"""The number of rows of each call."""


def encoded(batch: Any, scale: float = 1.0) -> Any:
    """As if it rounded by the number of rows."""
    x, y = batch
    SEEN.append(len(x))
    return {"features": scale * ENCODER(x) + 1e-6 * len(x), "y": y}


def drawing(batch: Any) -> Any:
    return batch[0] + torch.rand(12)


def of_arrays(batch: Any) -> Any:
    return batch[0] @ np.ones((12, 2), "f4") + np.float32(1e-6 * len(batch[0])), batch[1]


def noisy(batch: Any) -> Any:
    return {**batch, "features": batch["features"] + torch.rand(17)}


class Pairs(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> Any:
        return X[row], row


@pytest.fixture(autouse=True)
def seen() -> Iterator[None]:
    SEEN.clear()
    yield
    end_idle()


@pytest.fixture
def made(tmp_path: Path) -> MadeBatches:
    return MadeBatches(tmp_path / "made", 1 << 30, "a" * 64)


def taken(
    make: Callable[..., Any], partition: Partition, loader: LoaderSettings, **keys: Any
) -> tuple[list[Any], torch.Tensor]:
    """The batches of a pass, and the next number of torch's generator."""
    torch.manual_seed(0)
    return list(make(partition, ORDER, loader, seed=3, skip=1, **keys)), torch.rand(1)


def assert_equal(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0)


DATASET = {"dataset": DatasetFactory("test_embedding:Pairs", Path(__file__).parent, {})}
WAYS: dict[str, tuple[Partition, dict[str, Any]]] = {
    "columns": (COLUMNS, {}),
    "a transform that draws": (COLUMNS, {"transform": noisy}),
    "arrays of numpy": (COLUMNS, {"arrays": "numpy", "embed": of_arrays}),
    "a dataset": (NUMBERED, DATASET),
    "a model that draws": (COLUMNS, {"embed": drawing}),
    "worker processes": (COLUMNS, {"workers": 1}),
}


@pytest.mark.parametrize("way", WAYS)
def test_batches_are_those_of_an_ordinary_loader_kept_or_not(way: str, made: MadeBatches) -> None:
    partition, keys = WAYS[way]
    loader = LoaderSettings(16, **{"embed": encoded, **keys})
    expected = taken(own_batches, partition, loader)
    beats: list[None] = []
    for of_host in (None, made, made):
        beat = functools.partial(beats.append, None)
        assert_equal(taken(batches, partition, loader, made=of_host, beat=beat), expected)
    assert len(beats) == 3 * -(-ROWS // CHUNK)


def test_each_row_is_embedded_once_whatever_the_epoch_the_batch_size_and_the_rank(made: MadeBatches) -> None:
    for size, epoch, part in [(16, 0, 0), (16, 1, 0), (50, 0, 0), (16, 0, 1)]:
        loader = LoaderSettings(size, embed=encoded)
        keys = {"epoch": epoch, "part": lambda rows, part=part: slice(part * rows // 2, rows)}
        list(batches(COLUMNS, ORDER, loader, made=made, **keys))
    assert sum(SEEN) == ROWS


def test_configs_with_other_arguments_share_no_rows(made: MadeBatches) -> None:
    plain = LoaderSettings(16, embed=encoded)
    for scale in (1.0, 2.0, 1.0):
        loader = plain.with_hparams({"scale": scale, "lr": 0.1})
        assert_equal(taken(batches, COLUMNS, loader, made=made), taken(own_batches, COLUMNS, loader))
    own = 3 * ROWS
    assert sum(SEEN) == 2 * ROWS + own


def test_damaged_rows_are_embedded_again(made: MadeBatches) -> None:
    loader = LoaderSettings(16, embed=encoded)
    expected = taken(batches, COLUMNS, loader, made=made)
    for segment in made.root.glob("*/all-*/*.segment"):
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 1
        segment.write_bytes(content)
    SEEN.clear()
    assert_equal(taken(batches, COLUMNS, loader, made=made), expected)
    assert SEEN


def test_few_rows_are_embedded_for_few_rows() -> None:
    """A preflight looks at the first rows alone."""
    list(batches(COLUMNS, np.arange(3), LoaderSettings(16, embed=encoded)))
    assert SEEN == [CHUNK]


@functools.cache
def made_on_use() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(12, 3)


def of_made_on_use(batch: Any) -> Any:
    return made_on_use()(batch[0])


DROPOUT = torch.nn.Dropout(0.1)


def dropping(batch: Any) -> Any:
    return DROPOUT(batch[0])


def test_a_model_that_draws_is_refused_before_the_start() -> None:
    def found(embed: Any) -> Any:
        loader = LoaderSettings(16, embed=embed)
        in_fork = functools.partial(call_in_fork, seconds=60.0)
        return differing({True: COLUMNS}, loader, lambda: loader, 4, in_fork)

    assert found(encoded) == found(of_made_on_use) == {}
    with pytest.raises(RecipeError, match="is its model in eval mode"):
        found(dropping)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"source": "a.csv", "decode": {"x": "m:f"}, "augment": {"x": "m:g"}}, "`augment` changes rows"),
        ({"datamodule": "m:Data"}, "by its loaders"),
    ],
)
def test_what_makes_other_rows_in_each_epoch_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Data(embed="m:e", **keys)
