"""Makes the user's datasets, in any process of a run: the same ones, whatever was drawn at random before."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cerebro_elastic.data.manifest import SPLITS
from cerebro_elastic.errors import CerebroError, DataError, TaskError, did_you_mean
from cerebro_elastic.generators import seeded
from cerebro_elastic.registry import import_object, place_in
from cerebro_elastic.system import arguments
from cerebro_elastic.system.words import counted

if TYPE_CHECKING:
    from cerebro_elastic.data.reading.datasets import NumberedDatasets

_KEPT = 2
"""The number of datasets with different arguments that stay in memory: for the present unit and the one
before."""

_OTHER_NAMES = {"validation": "valid"}
"""Of splits, in other libraries, such as the ``DatasetDict`` of datasets."""


@dataclass(frozen=True, slots=True)
class DatasetFactory:
    """Makes the user's datasets in any process of the run."""

    reference: str
    """A function or class, as ``module:name``. It returns a map-style dataset, such datasets by split, or a
    data module."""
    root: Path
    """The folder that is searched first for the module."""
    args: Mapping[str, Any]
    """Its arguments; values of JSON."""
    seed: int = 0
    """The seed of its random numbers, so that ``random_split`` gives the same rows on every host."""
    lengths: Mapping[str, int] = field(default_factory=dict)
    """The rows of each dataset, by split, when they were dealt to partitions; empty before."""

    @property
    def parameters(self) -> frozenset[str]:
        """The names of its parameters."""
        return arguments.accepted(self._function) or frozenset()

    def with_hparams(self, hparams: Mapping[str, Any]) -> DatasetFactory:
        """The factory for a config: hyper-parameters of the names of its parameters are arguments, too, and
        dotted ones are keys inside of them."""
        known = self.parameters
        searched = {name: value for name, value in hparams.items() if arguments.argument_of(name) in known}
        return replace(self, args=arguments.combined(self.args, searched)) if searched else self

    def check(self, hparams: Mapping[str, Any]) -> None:
        """Raise ``TaskError`` unless the factory gets each required argument once, and no other."""
        function, known = self._function, arguments.accepted(self._function)
        if unknown := [name for name in self.args if known is not None and name not in known]:
            near = did_you_mean(unknown[0], known or ())
            raise TaskError(f"data.args: {self.reference} takes no argument {unknown[0]!r}; {near}")
        if twice := sorted(self.args.keys() & hparams.keys()):
            raise TaskError(f"{', '.join(twice)}: both in data.args and searched; remove it from one of them")
        if missing := sorted(
            arguments.required(function) - self.args.keys() - set(map(arguments.argument_of, hparams))
        ):
            raise TaskError(
                f"{self.reference} needs {', '.join(missing)}: give it in data.args, or search over it"
            )

    def make(self) -> NumberedDatasets:
        """The datasets; the last ones that this process has made are returned again.

        Raises ``DataError`` if they cannot be made, or are not as long as they were.
        """
        datasets = _datasets(
            self.reference, self.root, json.dumps(dict(self.args), sort_keys=True), self.seed
        )
        if self.lengths and dict(datasets.lengths) != dict(self.lengths):
            raise DataError(
                f"{self.reference} returned {_described(datasets.lengths)} here, and "
                f"{_described(self.lengths)} when the rows were dealt to partitions: it must return the same "
                "rows on every host, with any arguments, and for the whole run"
            )
        return datasets

    @property
    def _function(self) -> Callable[..., Any]:
        function = import_object(self.reference, self.root)
        if not callable(function):
            raise TaskError(
                f"data.dataset: {self.reference} is a {type(function).__name__}: name a function or class "
                "that returns a Dataset"
            )
        return function  # type: ignore[no-any-return]


@lru_cache(_KEPT)
def _datasets(reference: str, root: Path, args: str, seed: int) -> NumberedDatasets:
    """The arguments are text, which distinguishes them."""
    from cerebro_elastic.data.reading.datasets import NumberedDatasets, datasets_of_module, is_module

    try:
        with seeded(seed):
            returned = import_object(reference, root)(**json.loads(args))
            if is_module(returned):
                return datasets_of_module(reference, f"{root} {reference} {args}", returned)
            return NumberedDatasets(reference, _by_split(returned))
    except CerebroError:
        raise
    except (Exception, SystemExit) as exc:
        raise DataError(
            f"{reference} failed at {place_in(str(root), exc)}: {type(exc).__name__}: {exc}; correct it, or "
            "its `args`"
        ) from exc


def forget_datasets() -> None:
    """Let this process make each dataset again."""
    _datasets.cache_clear()


def _by_split(returned: Any) -> Mapping[str, Any]:
    if not isinstance(returned, Mapping) or "train" not in returned:
        return {"train": returned}
    named = {_OTHER_NAMES.get(str(split), str(split)): data for split, data in returned.items()}
    return named if set(named) <= set(SPLITS) else {"train": returned}


def _described(lengths: Mapping[str, int]) -> str:
    return " and ".join(f"{counted(rows, 'row')} for {split}" for split, rows in lengths.items())
