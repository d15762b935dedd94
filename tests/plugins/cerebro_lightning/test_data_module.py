"""Units over a user's Dataset or data module, side by side with one plain ``Trainer.fit`` over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import data_zoo
import lightning as L
import numpy as np
import pytest
import torch
from data_harness import ORDERS, SEED, by_ranks, quiet, recipe_of, runner_of, units
from torch.utils.data import DataLoader

from cerebro_elastic.core.model.configs import Config
from cerebro_elastic.core.model.units import Unit
from cerebro_elastic.data.reading import worker_processes as batch_workers
from cerebro_elastic.data.reading.datasets import ROW
from cerebro_elastic.data.reading.partition import sample_order
from cerebro_elastic.errors import CerebroError, DataError, TaskError
from cerebro_elastic.hop.generators import rng
from cerebro_elastic.training.parallel.rank_pool import Ranks
from cerebro_elastic.training.unit_runner import UnitRunner
from cerebro_lightning.loaders import UnitLoaders
from cerebro_lightning.optimizers import NamedStateStrategy


@pytest.fixture(autouse=True)
def _no_workers_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("CEREBRO_CACHE", str(tmp_path / "cache"))
    yield
    batch_workers.end_idle()


class InOrder:
    """A batch sampler: the rows of the partitions, epoch by epoch as units visit them."""

    def __init__(self, runner: UnitRunner, batch_size: int, drop_last: bool) -> None:
        self._epoch, self._size, self._drop_last = -1, batch_size, drop_last
        self._rows = {j: runner.fetch(Unit("c0", 0, j).phase, j, lambda: None).columns[ROW] for j in range(3)}

    def __len__(self) -> int:
        return len(list(self._batches(0)))

    def __iter__(self) -> Iterator[list[int]]:
        self._epoch += 1
        return self._batches(self._epoch)

    def _batches(self, epoch: int) -> Iterator[list[int]]:
        for j in ORDERS[epoch]:
            rows = self._rows[j]
            order = sample_order(SEED, epoch, j, len(rows))
            for start in range(0, len(rows), self._size):
                batch = order[start : start + self._size]
                if len(batch) == self._size or not self._drop_last:
                    yield [int(row) for row in rows[batch]]


def plain_fit() -> tuple[data_zoo.Net, L.Trainer]:
    """The module as a script makes it, and a stock trainer."""
    L.seed_everything(SEED, verbose=False)
    trainer = L.Trainer(
        max_epochs=len(ORDERS),
        accelerator="cpu",
        num_sanity_val_steps=0,
        logger=False,
        **dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False),
    )
    return data_zoo.Net(0.1), trainer


@pytest.mark.parametrize(
    "args",
    [{"drop_last": True}, {"lists": True}, {"batches": True}],
    ids=["without short batches", "by lists of rows", "by a batch sampler"],
)
def test_units_over_a_data_module_equal_one_plain_fit(tmp_path: Path, args: dict[str, Any]) -> None:
    recipe = recipe_of({"datamodule": "data_zoo:Module", "args": args}, lr=[0.1], batch_size=[8, 5])
    point = {"lr": 0.1, "batch_size": 5}
    runner = runner_of(recipe, tmp_path, point)
    job, last = list(units(runner, point))[-1]

    made = job.loader.dataset.make().module  # type: ignore[union-attr]

    class Plain(data_zoo.Module):
        def setup(self, stage: str) -> None:  # noqa: ARG002
            self.train, self.near, self.far = made.train, made.near, made.far

        def train_dataloader(self) -> Any:
            batches = InOrder(runner, 5, "drop_last" in args)
            if "lists" in args:
                return DataLoader(data_zoo.ByLists(self.train), sampler=batches, batch_size=None)  # type: ignore[arg-type]
            return self.loader(batch_sampler=batches)

    net, trainer = plain_fit()
    module = Plain(batch_size=5, **args)
    with rng.borrowed():
        trainer.fit(net, datamodule=module)
        generators = rng.capture()
    assert all(torch.equal(value, last.state["state_dict"][name]) for name, value in net.state_dict().items())
    assert torch.equal(generators["torch"], last.state["cerebro"]["rng"]["torch"])
    assert last.metrics == {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert {"val_loss/dataloader_idx_0", "val_loss/dataloader_idx_1"} <= last.metrics.keys()
    assert last.state["Module"] == {"seen": module.seen}


@pytest.mark.cluster
def test_several_ranks_divide_the_batches_of_all_loaders(ranks: Ranks, tmp_path: Path) -> None:
    *_, (_, alone) = units(runner_of(quiet(0), tmp_path, {"lr": 0.1}), {"lr": 0.1})
    several, by_workers = (
        ranks.together(by_ranks, str(tmp_path / name), workers, members=range(2))[0]
        for name, workers in (("once", 0), ("workers", 1))
    )
    for name, value in alone.state["state_dict"].items():
        np.testing.assert_allclose(several[0][name], value, rtol=1e-5, atol=1e-6)
    assert alone.metrics == pytest.approx(several[1], rel=1e-5)
    assert {"val_loss/dataloader_idx_1", "accuracy/dataloader_idx_0"} <= several[1].keys()
    assert all(np.array_equal(value, by_workers[0][name]) for name, value in several[0].items())
    assert by_workers[1] == several[1]


def test_loaders_that_several_ranks_cannot_divide_are_refused_before_the_run(tmp_path: Path) -> None:
    several = quiet(0, "ddp", "ValidatesStream")
    with pytest.raises(DataError, match="the validation loader 1 reads an IterableDataset"):
        runner_of(several, tmp_path, {"lr": 0.1})
    assert runner_of(quiet(0, module="ValidatesStream"), tmp_path, {"lr": 0.1})


def test_units_over_a_dataset_equal_one_plain_fit(tmp_path: Path) -> None:
    """A Dataset whose rows are random, split at random by its factory, with a searched argument."""
    recipe = recipe_of({"dataset": "data_zoo:split", "batch_size": 8}, rows=[60], lr=[0.1])
    point = {"rows": 60, "lr": 0.1}
    runner = runner_of(recipe, tmp_path, point)
    job, last = list(units(runner, point))[-1]
    made = job.loader.dataset.make().by_split  # type: ignore[union-attr]
    net, trainer = plain_fit()
    with rng.borrowed():
        trainer.fit(
            net,
            DataLoader(made["train"], batch_sampler=InOrder(runner, 8, drop_last=False)),
            DataLoader(made["valid"], batch_size=8),
        )
    assert all(torch.equal(value, last.state["state_dict"][name]) for name, value in net.state_dict().items())
    assert last.metrics == {name: float(value) for name, value in trainer.callback_metrics.items()}


@pytest.mark.parametrize("data", [{"dataset": "data_zoo:points"}, {"source": "data_zoo:columns"}])
def test_a_module_finds_its_validation_rows_in_the_loader(tmp_path: Path, data: dict[str, Any]) -> None:
    recipe = recipe_of({**data, "valid": 0.3, "batch_size": 8}, lr=[0.1])
    job = runner_of(recipe, tmp_path, {"lr": 0.1}).job(Config("c0", {"lr": 0.1}), Unit("c0", 0, 0), None)
    loader = UnitLoaders(job, NamedStateStrategy(torch.device("cpu"))).validation(data_zoo.Net())
    batches, rows = list(loader), [loader.dataset[number] for number in range(len(loader.dataset))]
    assert len(loader) == len(batches)
    assert torch.equal(torch.cat([x for x, _ in batches]), torch.stack([x for x, _ in rows]))


def test_workers_serve_unit_after_unit_and_the_result_is_a_function_of_the_seed(tmp_path: Path) -> None:
    recipe = recipe_of({"datamodule": "data_zoo:Module", "args": {"workers": 1}})
    runner = runner_of(recipe, tmp_path, {"lr": 0.1})
    first = [result.state["state_dict"]["net.0.weight"] for _, result in units(runner, {"lr": 0.1}, [(0, 2)])]
    (settings,) = batch_workers._idle
    (processes,) = batch_workers._idle[settings]
    again = [result.state["state_dict"]["net.0.weight"] for _, result in units(runner, {"lr": 0.1}, [(0, 2)])]
    assert all(map(torch.equal, first, again))
    assert batch_workers._idle[settings] == [processes]


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("Weighted", "the sampler WeightedRandomSampler: only shuffle=True and shuffle=False"),
        ("OwnBatches", "its own batch_sampler"),
        ("Streams", "has no rows by number"),
        ("Several", "train_dataloader returned a dict: it must return one DataLoader"),
    ],
)
def test_a_loader_that_cannot_be_reproduced_is_refused_by_name(tmp_path: Path, module: str, why: str) -> None:
    recipe = recipe_of({"datamodule": f"data_zoo:{module}"})
    with pytest.raises(CerebroError, match=why):
        runner_of(recipe, tmp_path, {"lr": 0.1})


def test_an_unused_hyper_parameter_is_named_with_the_arguments_of_the_dataset(
    tmp_path: Path,
) -> None:
    recipe = recipe_of({"dataset": "data_zoo:split"}, rowss=[60])
    with pytest.raises(TaskError, match=r"Net takes no .* 'rowss'; .* neither does .*did you mean 'rows'\?"):
        runner_of(recipe, tmp_path, {"rowss": 60})


@pytest.mark.parametrize(("module", "attribute"), [("Counting", "batches"), ("CountingInside", "seen")])
def test_a_data_module_that_changes_and_does_not_say_so_is_refused(
    tmp_path: Path, module: str, attribute: str
) -> None:
    runner = runner_of(recipe_of({"datamodule": f"data_zoo:{module}"}), tmp_path, {"lr": 0.1})
    with pytest.raises(TaskError, match=f"{module} changed its {attribute} while it trained"):
        next(units(runner, {"lr": 0.1}))


def test_a_module_may_bring_its_loaders_itself(tmp_path: Path) -> None:
    runner = runner_of(recipe_of({"datamodule": "data_zoo:OwnLoader"}, "OwnLoader"), tmp_path, {"lr": 0.1})
    assert [result.samples for _, result in units(runner, {"lr": 0.1})] == [20] * 6
