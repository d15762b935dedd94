"""The hyper-parameters that the user's functions take, and those of a recipe's torch ``Dataset``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from cerebro_elastic.core.model.configs import HParams
from cerebro_elastic.data.reading.dataset_factory import DatasetFactory
from cerebro_elastic.data.reading.loader_settings import LoaderSettings
from cerebro_elastic.errors import TaskError, did_you_mean
from cerebro_elastic.recipes import Recipe
from cerebro_elastic.system import arguments
from cerebro_elastic.training.job_batches import check_batch_size
from cerebro_elastic.training.task import TakesByName, Task

if TYPE_CHECKING:
    from cerebro_elastic.data.reading.datasets import NumberedDatasets

Taker: TypeAlias = tuple[Callable[..., Any], frozenset[str]]
"""A function that gets hyper-parameters, and the names of its other arguments."""


BUDGET = frozenset({"epochs", "steps"})
"""The parameters that functions may have besides hyper-parameters: the config's epochs, and the batches in
all of them."""


@dataclass(frozen=True)
class Takers:
    """The hyper-parameters of the user's functions: each function gets those with its parameters' names."""

    functions: Mapping[str, Taker]
    """The functions by role, such as ``model_fn``."""
    args: Mapping[str, Any]
    """The section's ``args``: arguments that are not searched."""
    reserved: frozenset[str] = frozenset()
    """Names that no hyper-parameter may have."""

    def takes(self, name: str) -> bool:
        """Whether a function takes a hyper-parameter of this name."""
        taken = self._taken()
        return taken is None or arguments.argument_of(name) in taken or name == "batch_size"

    def check(self, hparams: HParams) -> None:
        """Raise ``TaskError`` unless some function takes each hyper-parameter of a config, and each function
        gets its required arguments."""
        check_batch_size(hparams)
        given = arguments.combined(self.args, hparams)
        if twice := sorted(self.args.keys() & hparams.keys()):
            raise TaskError(f"{', '.join(twice)}: both in task.args and searched; remove it from one of them")
        if ours := sorted(given.keys() & self.reserved):
            raise TaskError(f"{', '.join(ours)}: a name of the system's own; rename the hyper-parameter")
        taken = self._taken()
        for name in given:
            of_loader = name == "batch_size" and name in hparams
            if taken is not None and name not in taken and not of_loader:
                near = did_you_mean(name, {"batch_size", *taken})
                first, *others = self.functions
                nobody = f"none of {', '.join(self.functions)} takes a" if others else f"{first} takes no"
                raise TaskError(f"{nobody} hyper-parameter {name!r}; {near}")
        for role, (function, context) in self.functions.items():
            if missing := sorted(arguments.required(function) - context - given.keys()):
                raise TaskError(
                    f"{role} needs {', '.join(missing)}: search over it, or give it in task.args or a default"
                )

    def _taken(self) -> set[str] | None:
        """The hyper-parameters that the functions take; ``None`` if one takes any."""
        known = set[str]()
        for function, context in self.functions.values():
            names = arguments.accepted(function)
            if names is None:
                return None
            known |= names - context
        return known


def dataset_factory(recipe: Recipe, lengths: Mapping[str, int] | None = None) -> DatasetFactory | None:
    """The factory of the recipe's dataset in this process; ``None`` if its data are no dataset, or are
    materialized. ``lengths`` are its lengths when its rows were dealt, if they were."""
    data = recipe.data
    reference = data.dataset or data.datamodule
    if reference is None or data.materialize:
        return None
    return DatasetFactory(reference, recipe.root, data.args, recipe.seed, lengths or {})


def task_hparams(task: Task, loader: LoaderSettings, hparams: HParams) -> HParams:
    """The hyper-parameters of the task: all except those that only the dataset and the functions of the data
    take."""
    of_data = loader.parameters - {"batch_size"}
    return {
        name: value
        for name, value in hparams.items()
        if arguments.argument_of(name) not in of_data or (isinstance(task, TakesByName) and task.takes(name))
    }


def check_hparams(task: Task, loader: LoaderSettings, hparams: HParams) -> None:
    """Raise ``TaskError`` if the task cannot be trained with these hyper-parameters. Of one that neither the
    task nor the data take, the message has the names of both."""
    try:
        task.check(task_hparams(task, loader, hparams))
    except TaskError as exc:
        unknown = [n for n in hparams if isinstance(task, TakesByName) and not task.takes(n)]
        unknown = [n for n in unknown if arguments.argument_of(n) not in loader.parameters]
        takers = [*loader.functions, *([loader.dataset.reference] if loader.dataset is not None else [])]
        if not unknown or not takers:
            raise
        near = did_you_mean(unknown[0], loader.parameters)
        raise TaskError(f"{exc}; neither does {' or '.join(takers)}; {near}") from exc


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
