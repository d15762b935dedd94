"""The torch ``Dataset`` that a recipe names, and which hyper-parameters are its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.data.reading.dataset_factory import DatasetFactory
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.errors import TaskError, did_you_mean
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.training.task import TakesByName, Task

if TYPE_CHECKING:
    from cerebro_elastic.data.reading.datasets import NumberedDatasets


def dataset_factory(recipe: Recipe, lengths: Mapping[str, int] | None = None) -> DatasetFactory | None:
    """What makes the recipe's dataset in this process; ``None`` if its data are no dataset, or are
    materialized. ``lengths`` are those that it had when its rows were dealt, if they were."""
    data = recipe.data
    reference = data.dataset or data.datamodule
    if reference is None or data.materialize:
        return None
    return DatasetFactory(reference, recipe.root, data.args, recipe.seed, lengths or {})


def task_hparams(task: Task, dataset: DatasetFactory | None, hparams: HParams) -> HParams:
    """The hyper-parameters of the task: all but those that only the dataset takes."""
    if dataset is None:
        return hparams
    of_dataset = dataset.parameters - {"batch_size"}
    return {
        name: value
        for name, value in hparams.items()
        if name not in of_dataset or (isinstance(task, TakesByName) and task.takes(name))
    }


def check_hparams(task: Task, dataset: DatasetFactory | None, hparams: HParams) -> None:
    """Raise ``TaskError`` if the task cannot be trained with these hyper-parameters. Of one that neither the
    task nor the dataset takes, the message has the names of both."""
    try:
        task.check(task_hparams(task, dataset, hparams))
    except TaskError as exc:
        unknown = [n for n in hparams if isinstance(task, TakesByName) and not task.takes(n)]
        unknown = [n for n in unknown if dataset is not None and n not in dataset.parameters]
        if dataset is None or not unknown:
            raise
        near = did_you_mean(unknown[0], dataset.parameters)
        raise TaskError(f"{exc}; neither does {dataset.reference}; {near}") from exc


def bound(loader: LoaderSettings, hparams: HParams) -> LoaderSettings:
    """The loader for a config, whose hyper-parameters may be arguments of the dataset. A data module has
    settled more of it."""
    if loader.dataset is None:
        return loader
    dataset = loader.dataset.with_hparams(hparams)
    return replace(loader, dataset=dataset, **dataset.make().loader)


def checked_dataset(recipe: Recipe, points: Sequence[HParams]) -> NumberedDatasets | None:
    """The recipe's dataset, made with the arguments of each of the ``points``; ``None`` if it names none.

    Raises:
        TaskError: It does not take these arguments.
        DataError: It cannot be made, or its number of rows depends on the arguments.
    """
    factory = dataset_factory(recipe)
    if factory is None:
        return None
    for point in points:
        factory.check(point)
    datasets = factory.with_hparams(points[0] if points else {}).make()
    factory = replace(factory, lengths=datasets.lengths)
    for point in points:
        factory.with_hparams(point).make()
    return datasets
