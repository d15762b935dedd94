"""A user's torch ``Dataset`` as it is. The partitions hold the numbers of its rows, and nothing is copied.

The prepared dataset has one column, ``row``. Rows are numbered through the user's datasets: first those for
training, then those for validation and for a test, where the factory returns datasets of their own for these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils.data import IterableDataset, Subset, default_collate

from cerebro_elastic.data.manifest import SPLITS, Split
from cerebro_elastic.data.ragged import Index
from cerebro_elastic.data.sources import Columns
from cerebro_elastic.errors import DataError, TaskError

ROW = "row"
"""The column with the numbers of rows."""

MapDataset: TypeAlias = Any
"""What has ``__len__`` and ``__getitem__``, as torch's map-style datasets do."""


def _attribute(dataset: MapDataset, name: str) -> Any:
    """An attribute that has a value for each row; of a ``Subset`` those of its rows."""
    if isinstance(dataset, Subset):
        values = np.asarray(_attribute(dataset.dataset, name))
        return values[np.asarray(dataset.indices)] if values.ndim else values
    return getattr(dataset, name, None)


def _generators_of(dataset: MapDataset) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The random generators among a dataset's attributes, by name, and what returns the state of each."""
    if isinstance(dataset, Subset):
        yield from _generators_of(dataset.dataset)
        return
    for name, value in getattr(dataset, "__dict__", {}).items():
        match value:
            case random.Random():
                yield name, value.getstate
            case np.random.Generator():
                yield name, partial(getattr, value.bit_generator, "state")
            case np.random.RandomState():
                yield name, partial(value.get_state, legacy=False)
            case torch.Generator():
                yield name, partial(_state_of, value)


def _state_of(generator: torch.Generator) -> bytes:
    return generator.get_state().numpy().tobytes()


def stacked(rows: list[Any]) -> Any:
    """A batch of ``rows`` as a ``DataLoader`` makes it. Raises ``TaskError`` for rows that do not stack."""
    try:
        return default_collate(rows)
    except (RuntimeError, TypeError) as exc:
        raise TaskError(
            f"the dataset's rows do not make a batch: {exc}; return rows of equal shapes and types, or name "
            "a `collate` function that makes a batch of a list of rows"
        ) from exc


@dataclass(frozen=True)
class NumberedDatasets:
    """The user's datasets, their rows numbered through."""

    reference: str
    """What made them, for messages."""
    by_split: Mapping[str, MapDataset]
    """The datasets by split."""
    collate: Callable[[list[Any]], Any] = stacked
    """Makes a batch of a list of rows."""
    loader: Mapping[str, Any] = field(default_factory=dict)
    """The fields of ``LoaderSettings`` that are settled by the loader that the datasets came with."""
    module: Any = None
    """The user's data module that they came from, if one did."""

    def __post_init__(self) -> None:
        assert self.lengths  # each of them is checked

    @cached_property
    def lengths(self) -> Mapping[str, int]:
        """The rows of each."""
        return {split: _length(self.reference, split, data) for split, data in self.by_split.items()}

    @cached_property
    def _starts(self) -> Mapping[Split, int]:
        present = [split for split in SPLITS if split in self.by_split]
        starts = accumulate((self.lengths[split] for split in present), initial=0)
        return dict(zip(present, starts, strict=False))

    def columns(self, bucket: str | None = None) -> dict[Split, Columns]:
        """By split, the column of row numbers and, if rows come into batches by their length, that of what
        the datasets' attribute ``bucket`` says of each row."""
        return {split: dict(self._columns(split, start, bucket)) for split, start in self._starts.items()}

    def _columns(self, split: Split, start: int, bucket: str | None) -> Iterator[tuple[str, Index]]:
        yield ROW, np.arange(start, start + self.lengths[split])
        if bucket is not None:
            yield bucket, self._of_rows(split, bucket)

    def _of_rows(self, split: Split, name: str) -> Index:
        values = np.asarray(_attribute(self.by_split[split], name))
        if values.shape != (self.lengths[split],) or values.dtype.kind not in "iu":
            raise DataError(
                f"data.bucket is {name!r}: the {split} dataset that {self.reference} returned has no such "
                f"attribute with a whole number for each of its {self.lengths[split]} rows: give it one that "
                "has the rows' lengths"
            )
        return values.astype(np.int64)

    def rows(self, numbers: Sequence[int]) -> list[Any]:
        """The rows of one split, as the user's dataset returns them.

        Raises ``TaskError`` if the dataset has drawn from a generator of its own: a row would depend on which
        rows this process has read before.
        """
        before = [state() for _, state in self._own_generators]
        rows = self._rows(numbers)
        for (name, state), was in zip(self._own_generators, before, strict=True):
            if repr(state()) != repr(was):
                raise TaskError(
                    f"the dataset that {self.reference} returned draws from its own generator {name!r}: draw "
                    "from those of torch, numpy or Python, whose states hop with the config and are seeded "
                    "for each batch in worker processes"
                )
        return rows

    @cached_property
    def _own_generators(self) -> list[tuple[str, Callable[[], Any]]]:
        return [own for dataset in self.by_split.values() for own in _generators_of(dataset)]

    def _rows(self, numbers: Sequence[int]) -> list[Any]:
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


def _length(reference: str, split: str, dataset: Any) -> int:
    what = f"{reference} returned a {type(dataset).__name__} for {split}"
    if isinstance(dataset, IterableDataset):
        raise DataError(
            f"{what}, which has no rows by number: give it as `source`, so that its rows are written once, "
            "or return a map-style Dataset"
        )
    if isinstance(dataset, Mapping):
        raise DataError(f"{what}, whose rows have no numbers: give a function of columns as `source`")
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise DataError(
            f"{what}: it must be a map-style Dataset (with __len__ and __getitem__), or such datasets as "
            "{'train': ..., 'valid': ...}"
        )
    if (length := len(dataset)) < 1:
        raise DataError(f"{what}, which has no rows: see its `args`, and where it looks for data")
    return length
