"""How a batch is made of rows: every column indexed with a whole index batch, never row by row; a user's
dataset row by row. Rows that are opened without chance, by a ``decode`` function or a dataset, are opened
once.

Whether chance takes part is seen, not promised: a row is kept if opening it left all generators, and what the
user's functions keep, as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from cerebro_elastic.data.manifest import ROW
from cerebro_elastic.data.ragged import Index, Ragged
from cerebro_elastic.data.reading.array_libraries import batch_arrays, decoded_arrays, stacked_arrays
from cerebro_elastic.data.reading.column_rows import (
    augmented_rows,
    decoded_rows,
    encoded_rows,
    equal_rows,
    padded_rows,
    single_rows,
)
from cerebro_elastic.data.reading.loader_settings import LENGTHS, LoaderSettings
from cerebro_elastic.data.reading.partition import Partition, in_file
from cerebro_elastic.data.reading.records import Records

if TYPE_CHECKING:
    from cerebro_elastic.data.reading.datasets import NumberedDatasets


from cerebro_elastic.data.reading.kept_state import Watched
from cerebro_elastic.data.reading.records import MISSING

_AT_ONCE, _AT_ONCE_BYTES = 8, 1 << 19
"""The largest number of batches that are made in a row, and of bytes of each. While a batch is trained the
code that makes batches leaves the processor's caches; to load it again for each small batch costs time."""


@dataclass(frozen=True, slots=True)
class BatchRows:
    """Which rows of a partition are made into a batch."""

    index: Index
    """The rows that are taken here."""
    batch: Index
    """The rows that all ranks take together: sequences are padded to the longest of these."""


@dataclass(frozen=True)
class BatchMaker:
    """Makes batches of a partition's rows, in this process or in the one to which it is sent."""

    partition: Partition
    """The rows, or the numbers of those of a dataset."""
    loader: LoaderSettings
    """How a batch is made of them."""
    opened: Mapping[str, Records] = field(default_factory=dict)
    """By column, the rows that were opened before, and may be kept."""

    @property
    def functions(self) -> list[Any]:
        """The user's functions and objects that take part in making a batch in the rank itself."""
        loader = self.loader
        if loader.workers:
            return []
        own = [loader.transform, loader.collate, *loader.decode.values(), *loader.augment.values()]
        datasets = [*loader.dataset.make().by_split.values()] if loader.dataset else []
        return [function for function in [*own, *datasets] if function is not None]

    @property
    def at_once(self) -> int:
        """How many batches are made one right after the other. Only one if the user's code takes part in it:
        that code may draw from the generators that training draws from."""
        if self.loader.dataset is not None or self.loader.collate is not None or self.loader.decode:
            return 1
        stored = sum(in_file(column).nbytes for column in self.partition.columns.values())
        batch_bytes = max(1, stored // max(1, self.partition.rows) * self.loader.batch_size)
        return max(1, min(_AT_ONCE, _AT_ONCE_BYTES // batch_bytes))

    def make(self, rows: BatchRows) -> Any:
        """The batch of ``rows``: of the partition, or of the dataset whose rows it names."""
        return self.transformed(self.taken(rows))

    def transformed(self, batch: Any) -> Any:
        """The batch behind its ``transform``."""
        return batch if self.loader.transform is None else self.loader.transform(batch)

    def taken(self, rows: BatchRows) -> Any:
        """The batch before its ``transform``."""
        partition, loader = self.partition, self.loader
        partition.check_sizes()
        if loader.dataset is not None:
            datasets = loader.dataset.make()
            rows_of_batch = self._opened(ROW, rows.index, partial(self._of_dataset, datasets))
            return (loader.collate or datasets.collate)(rows_of_batch)
        if loader.collate is not None:
            columns = {name: self._single_values(name, rows.index) for name in partition.columns}
            values = zip(*columns.values(), strict=True)
            return loader.collate([_arranged(dict(zip(columns, row, strict=True)), loader) for row in values])
        return _arranged(dict(self._columns(rows)), loader)

    def _columns(self, rows: BatchRows) -> Iterator[tuple[str, Any]]:
        """What the batch has of each column."""
        partition, loader, arrays = self.partition, self.loader, batch_arrays(self.loader.arrays)
        for name, column in partition.columns.items():
            if not isinstance(column, Ragged):
                yield name, arrays.of(equal_rows(partition, name, rows.index))
            elif column.kind == "ragged" and loader.ragged == "pad":
                width = int(column.lengths[rows.batch].max())
                padded = padded_rows(partition, name, rows.index, width, loader.pad_value.get(name, 0))
                yield name, arrays.of(padded)
                yield name + LENGTHS, arrays.of(column.lengths[rows.index])
            elif name in loader.decode:
                decoded = decoded_arrays(arrays, self._decoded(name, rows.index), name)
                yield name, decoded if loader.ragged == "list" else stacked_arrays(arrays, decoded, name)
            else:
                yield name, list(self._single_values(name, rows.index))

    def _single_values(self, name: str, index: Index) -> Sequence[Any]:
        """A column's rows, each for itself."""
        partition, arrays = self.partition, batch_arrays(self.loader.arrays)
        column = partition.columns[name]
        if not isinstance(column, Ragged):
            rows: Sequence[Any] = arrays.of(equal_rows(partition, name, index))
            return rows
        if column.kind == "ragged":
            return list(map(arrays.of, single_rows(partition, name, index)))
        if name in self.loader.decode:
            return self._decoded(name, index)
        return encoded_rows(partition, name, index)

    def _decoded(self, name: str, index: Index) -> list[Any]:
        """Encoded values, opened, and augmented if there is a function for that."""
        decode, augment = self.loader.decode[name], self.loader.augment.get(name)
        values = self._opened(name, index, partial(decoded_rows, self.partition, name, decode=decode))
        return values if augment is None else augmented_rows(self.partition, name, index, values, augment)

    def _opened(self, name: str, index: Index, open_rows: Callable[[Index], list[Any]]) -> list[Any]:
        if name not in self.opened:
            return open_rows(index)
        return opened(index, open_rows, self.opened[name], self.functions)

    def _of_dataset(self, datasets: NumberedDatasets, index: Index) -> list[Any]:
        return datasets.rows(equal_rows(self.partition, ROW, index).tolist())


def _arranged(columns: dict[str, Any], loader: LoaderSettings) -> Any:
    """A batch or a row in the loader's layout."""
    if loader.layout == "dict":
        return columns
    return next(iter(columns.values())) if len(columns) == 1 else tuple(columns.values())


def opened(
    index: Index, open_rows: Callable[[Index], list[Any]], records: Records, functions: Sequence[Any]
) -> list[Any]:
    """The partition's rows at ``index``: from the ``records``, or opened by ``open_rows``, which calls the
    user's ``functions``, and kept there."""
    rows = [records.get(place) for place in index.tolist()]
    missing = [at for at, row in enumerate(rows) if row is MISSING]
    if missing:
        with Watched([] if records.declined else functions, len(missing)) as watched:
            now = open_rows(index[missing])
        for at, row in zip(missing, now, strict=True):
            rows[at] = row
            if not records.declined:
                records.put(int(index[at]), row, watched.pays)
    return rows
