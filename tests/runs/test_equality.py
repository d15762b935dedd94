"""A config trained by hopping over 2 or 3 nodes is, bit for bit, what one ordinary ``fit`` makes of the
same partitions in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lightning as L
import numpy as np
import pytest

from cerebro_elastic import RunResult
from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.data.reading.batches import batches
from cerebro_elastic.data.reading.partition import sample_order
from cerebro_elastic.hop.objects.encoder import Encoder
from cerebro_elastic.hop.optimizer_state import to_names
from cerebro_elastic.registry import import_object
from cerebro_elastic.reporting.results import ConfigResult
from cerebro_elastic.training.task import UnitJob
from cerebro_elastic.training.unit_runner import UnitRunner
from support.same import assert_same

pytestmark = pytest.mark.cluster

EPOCHS, PARTITIONS = 2, 3


class Loaders:
    """The loaders of an ordinary script: in each epoch the partitions as the config has visited them."""

    def __init__(self, result: RunResult, row: ConfigResult) -> None:
        self._bench = UnitRunner(result.spec, result.folder.cache, "cpu")
        self._row = row
        self._seed = result.recipe.seed
        self.train = Sized(self._training)
        self.valid = Sized(self._validation)
        self.epoch = 0

    def _jobs(self) -> Iterator[UnitJob]:
        visits = [visit for visit in self._row.visits if visit.unit.epoch == self.epoch]
        for k, visit in enumerate(visits):
            visited = tuple(before.unit.partition for before in visits[:k])
            yield self._bench.job(Config(self._row.config, {}, visited=visited), visit.unit, None)

    def _training(self) -> Iterator[Any]:
        for job in self._jobs():
            order = sample_order(self._seed, self.epoch, job.unit.partition, job.partition.rows)
            yield from batches(job.partition, order, job.loader)

    def _validation(self) -> Iterator[Any]:
        *_, last = self._jobs()
        for part in last.validation:
            yield from batches(part, np.arange(part.rows), last.loader)


class Sized:
    """An iterable that knows its length."""

    def __init__(self, items: Callable[[], Iterator[Any]]) -> None:
        self._items = items

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Any]:
        return self._items()


class EpochMetrics(L.Callback):
    """Says which epoch it is, and what is logged when everything of it is over."""

    def __init__(self, loaders: Loaders) -> None:
        self._loaders = loaders
        self.seen: list[dict[str, float]] = []

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:  # noqa: ARG002
        self._loaders.epoch = trainer.current_epoch
        if trainer.current_epoch:
            self.take(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:  # noqa: ARG002
        self.take(trainer)

    def take(self, trainer: L.Trainer) -> None:
        self.seen.append({name: float(value) for name, value in trainer.callback_metrics.items()})


def ordinary_fit(result: RunResult, row: ConfigResult) -> tuple[L.Trainer, L.LightningModule, EpochMetrics]:
    """What a script without us does."""
    recipe, loaders = result.recipe, Loaders(result, row)
    L.seed_everything(recipe.seed, verbose=False)
    module = import_object(recipe.task.module, recipe.root)(**row.hparams)  # type: ignore[attr-defined]
    metrics = EpochMetrics(loaders)
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        gradient_clip_val=0.5,
        accumulate_grad_batches=2,
        accelerator="cpu",
        logger=False,
        callbacks=[metrics],
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loaders.train, loaders.valid)
    return trainer, module, metrics


@pytest.fixture(autouse=True)
def _as_it_was(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary fit leaves its seed in the environment."""
    request.getfixturevalue("imports_as_found")
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "0")


def assert_equal(result: RunResult, nodes: int) -> None:
    assert {v.node for row in result.leaderboard for v in row.visits} == {f"node-{i}" for i in range(nodes)}
    for row in result.leaderboard:
        assert [v.unit.epoch for v in row.visits] == [e for e in range(EPOCHS) for _ in range(PARTITIONS)]
        trainer, module, metrics = ordinary_fit(result, row)
        state = result.state(row.config, best=False)
        assert_same(dict(state["state_dict"]), dict(module.state_dict()), "weights")
        (optimizer,), (scheduler,) = trainer.optimizers, trainer.lr_scheduler_configs
        assert_same(state["optimizer_states"][0], to_names(optimizer, module), "optimizer")
        carried = Encoder().tree(scheduler.scheduler.state_dict())
        assert_same(state["lr_schedulers"][0], carried, "scheduler")
        assert state["global_step"] == trainer.global_step
        assert state["epoch"] == trainer.current_epoch == EPOCHS
        assert [dict(metrics_of_epoch) for metrics_of_epoch in row.curve] == metrics.seen


def test_two_nodes(finished: RunResult) -> None:
    assert len(finished.leaderboard) == 4
    assert_equal(finished, 2)
