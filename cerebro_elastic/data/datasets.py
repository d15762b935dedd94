"""A user's torch ``Dataset`` as it is. The partitions hold the numbers of its rows, and nothing is copied.

The prepared dataset has one column, ``row``. Rows are numbered through the user's datasets: first those for
training, then those for validation and for a test, where the factory returns datasets of their own for these.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import IterableDataset, default_collate

from cerebro_elastic import arguments
from cerebro_elastic.data.manifest import SPLITS, Split
from cerebro_elastic.data.sources import Columns
from cerebro_elastic.errors import DataError, TaskError, did_you_mean
from cerebro_elastic.registry import import_object, place_in
from cerebro_elastic.words import counted

ROW = "row"
"""The column with the numbers of rows."""

MapDataset: TypeAlias = Any
"""What has ``__len__`` and ``__getitem__``, as torch's map-style datasets do."""

_KEPT = 2
"""Datasets of so many different arguments stay in memory: those of the present unit and of the one before."""


@dataclass(frozen=True, slots=True)
class DatasetFactory:
    """Makes the user's datasets in any process of the run."""

    reference: str
    """A function or class, as ``module:name``. It returns a map-style dataset, or such datasets by split."""
    root: Path
    """The folder in which the module is looked for first."""
    args: Mapping[str, Any]
    """Its arguments; values of JSON."""
    seed: int = 0
    """The seed of what it draws at random: so that ``random_split`` gives the same rows on every host."""
    lengths: Mapping[str, int] = field(default_factory=dict)
    """The rows of each dataset, by split, when they were dealt to partitions; empty before."""

    @property
    def parameters(self) -> frozenset[str]:
        """The names of its parameters."""
        return arguments.accepted(self._function) or frozenset()

    def with_hparams(self, hparams: Mapping[str, Any]) -> DatasetFactory:
        """The factory for a config: hyper-parameters of the names of its parameters are arguments, too."""
        searched = {name: value for name, value in hparams.items() if name in self.parameters}
        return replace(self, args={**self.args, **searched}) if searched else self

    def check(self, hparams: Mapping[str, Any]) -> None:
        """Raise ``TaskError`` unless the factory gets what it needs, once, and nothing else."""
        function, known = self._function, arguments.accepted(self._function)
        if unknown := [name for name in self.args if known is not None and name not in known]:
            near = did_you_mean(unknown[0], known or ())
            raise TaskError(f"data.args: {self.reference} takes no argument {unknown[0]!r}; {near}")
        if twice := sorted(self.args.keys() & hparams.keys()):
            raise TaskError(f"{', '.join(twice)}: both in data.args and searched; remove it from one of them")
        if missing := sorted(arguments.required(function) - self.args.keys() - hparams.keys()):
            raise TaskError(
                f"{self.reference} needs {', '.join(missing)}: give it in data.args, or search over it"
            )

    def make(self) -> NumberedDatasets:
        """The datasets; those that this process has made last are returned again.

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
    """The arguments are text, by which they are told apart."""
    function = import_object(reference, root)
    try:
        with _seeded(seed):
            returned = function(**json.loads(args))
        by_split = dict(returned) if _is_by_split(returned) else {"train": returned}
        lengths = {split: _length(reference, split, dataset) for split, dataset in by_split.items()}
    except DataError:
        raise
    except (Exception, SystemExit) as exc:
        raise DataError(
            f"{reference} failed at {place_in(str(root), exc)}: {type(exc).__name__}: {exc}; correct it, or "
            "its `args`"
        ) from exc
    return NumberedDatasets(reference, by_split, lengths)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Within the block the generators begin with ``seed``; behind it they go on where they stood."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def _is_by_split(returned: Any) -> bool:
    return isinstance(returned, Mapping) and "train" in returned and set(returned) <= set(SPLITS)


def _length(reference: str, split: str, dataset: Any) -> int:
    what = f"{reference} returned a {type(dataset).__name__} for {split}"
    if isinstance(dataset, IterableDataset):
        raise DataError(
            f"{what}, which has no rows by number: give it as `source`, so that its rows are written once, "
            "or return a map-style Dataset"
        )
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise DataError(
            f"{what}: it must be a map-style Dataset (with __len__ and __getitem__), or such datasets as "
            "{'train': ..., 'valid': ...}"
        )
    if (length := len(dataset)) < 1:
        raise DataError(f"{what}, which has no rows: see its `args`, and where it looks for data")
    return length


@dataclass(frozen=True)
class NumberedDatasets:
    """The user's datasets, their rows numbered through."""

    reference: str
    """What made them, for messages."""
    by_split: Mapping[str, MapDataset]
    """The datasets by split."""
    lengths: Mapping[str, int]
    """The rows of each."""

    @cached_property
    def _starts(self) -> Mapping[Split, int]:
        present = [split for split in SPLITS if split in self.by_split]
        starts = accumulate((self.lengths[split] for split in present), initial=0)
        return dict(zip(present, starts, strict=False))

    def columns(self) -> dict[Split, Columns]:
        """By split, the column of row numbers."""
        return {
            split: {ROW: np.arange(start, start + self.lengths[split])}
            for split, start in self._starts.items()
        }

    def rows(self, numbers: Sequence[int]) -> list[Any]:
        """The rows of one split, as the user's dataset returns them."""
        split, start = max((item for item in self._starts.items() if item[1] <= numbers[0]), key=_start)
        dataset, places = self.by_split[split], [number - start for number in numbers]
        if callable(several := getattr(dataset, "__getitems__", None)):  # as torch's fetcher does
            return list(several(places))
        return list(self._each(split, dataset, places))

    def _each(self, split: Split, dataset: MapDataset, places: Sequence[int]) -> Iterator[Any]:
        for place in places:
            try:
                yield dataset[place]
            except Exception as exc:
                exc.add_note(f"This was row {place} of the {split} dataset that {self.reference} returned.")
                raise


def _start(item: tuple[Split, int]) -> int:
    return item[1]


def _described(lengths: Mapping[str, int]) -> str:
    return " and ".join(f"{counted(rows, 'row')} for {split}" for split, rows in lengths.items())


def stacked(rows: list[Any]) -> Any:
    """A batch of ``rows`` as a ``DataLoader`` makes it. Raises ``TaskError`` for rows that do not stack."""
    try:
        return default_collate(rows)
    except (RuntimeError, TypeError) as exc:
        raise TaskError(
            f"the dataset's rows do not make a batch: {exc}; return rows of equal shapes and types, or name "
            "a `collate` function that makes a batch of a list of rows"
        ) from exc
