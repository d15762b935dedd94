"""The batches of a pass over a partition, in order: made in worker processes, here, or by other ranks.

Each column of a batch is indexed with all of its rows at once, never row by row; a user's dataset is read row
by row. Rows that are always the same, by the user's word (``LoaderSettings.kept_columns``), are opened once
for the run, under a fixed seed; now and then one is opened again, under another. With ``embed`` batches are
taken from embedded rows (``embedding.py``). With ``bucket`` the order makes batches of rows of similar
length, so that little is padded.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cerebro_elastic.data.manifest import ROW
from cerebro_elastic.data.ragged import Index, Ragged
from cerebro_elastic.data.reading.column_rows import (
    array_of,
    called,
    decoded_array,
    encoded_rows,
    equal_rows,
    padded_rows,
    single_rows,
    stacked_arrays,
)
from cerebro_elastic.data.reading.embedding import CHUNK, EmbeddedRows, embedding
from cerebro_elastic.data.reading.loader_settings import LENGTHS, LoaderSettings
from cerebro_elastic.data.reading.made_once import Batches, DataUse, Made, MadeBatches, Make
from cerebro_elastic.data.reading.partition import Partition, in_file, sample_order
from cerebro_elastic.data.reading.shared_records import MISSING, Records, same
from cerebro_elastic.data.user_state import ForeignGenerators, seed_of_batch
from cerebro_elastic.errors import DamagedData, DataError
from cerebro_elastic.generators import seed_generators, seeded
from cerebro_elastic.system.process_settings import sent, take_over

_BUCKETS = 1
"""In a seed: for the order of batches, besides that of rows."""

BatchPart: TypeAlias = Callable[[int], slice]
"""The rows to take of a batch with a given number of rows."""


def training_order(partition: Partition, loader: LoaderSettings, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order in which ``epoch``'s training pass takes the partition's rows: a function of the arguments
    alone."""
    order = sample_order(seed, epoch, partition.index, partition.rows, loader.shuffle)
    if loader.bucket is None:
        return order
    column = partition.columns[loader.bucket]
    lengths = column.lengths if isinstance(column, Ragged) else np.asarray(column, np.int64)
    return bucketed(order, lengths, loader.batch_size, (seed, epoch, partition.index, _BUCKETS))


def batch_count(rows: int, batch_size: int, drop_last: bool = False) -> int:
    """Batches of a partition; the last one may be short, or is left out (``drop_last``). Raises ``DataError``
    if that leaves none."""
    if drop_last and rows < batch_size:
        raise DataError(
            f"drop_last leaves nothing of a partition of {rows} rows in batches of {batch_size}: use fewer "
            "partitions or smaller batches"
        )
    return rows // batch_size if drop_last else -(-rows // batch_size)


def whole(rows: int) -> slice:
    """The ``BatchPart`` that is all of a batch."""
    return slice(0, rows)


def batches(
    partition: Partition,
    order: NDArray[np.int64],
    loader: LoaderSettings,
    *,
    seed: int = 0,
    skip: int = 0,
    part: BatchPart = whole,
    epoch: int | None = None,
    made: MadeBatches | None = None,
    use: DataUse | None = None,
    beat: Callable[[], None] = lambda: None,
) -> Generator[Any, None, None]:
    """The partition's batches, its rows taken in ``order``, without the first ``skip``: those are not made.
    Of each, ``part`` is made.

    They are the same for any number of workers, except for code that draws from the three global generators:
    in a worker these are seeded for each batch (``seed_of_batch``), in this process they are not touched
    here. Generators that the user's functions and datasets carry are seeded for each batch in both.

    With ``made``, rows that are always the same are opened once, and the batches that workers make in an
    ``epoch`` are shared with the other ranks of the host. ``use`` counts. With ``loader.embed`` all rows from
    the first to the last one of ``order`` are embedded before the first batch; ``beat`` is called often
    during that.
    """
    if len(order) and (order.min() < 0 or order.max() >= partition.rows):
        raise IndexError(f"order has rows from {order.min()} to {order.max()} of {partition.rows}")
    size = loader.batch_size
    # Called here, since a worker process could not: full batches, and the last one.
    parts = {rows: part(rows) for rows in (size, len(order) % size) if rows}
    count = batch_count(len(order), size)

    def rows_of(number: int) -> BatchRows:
        rows = order[number * size : (number + 1) * size]
        return BatchRows(rows[parts[len(rows)]], rows)

    def of_pass() -> Generator[Any, None, None]:
        with _noting_damage(partition), ExitStack() as in_use:
            opened: dict[str, Records] = {}
            shared = embedded = None
            if loader.embed is not None and skip < count:
                left = order[skip * size :] // CHUNK
                numbers = range(int(left.min()), int(left.max()) + 1)
                embedded = _embedded(partition, loader, numbers, made, beat)
            elif made is not None and loader.calls_user and count:
                for name in sorted(loader.kept_columns):
                    rows_key = (partition.name, loader.dataset_args, name)
                    if (rows := in_use.enter_context(made.shared(rows_key, partition.rows))) is not None:
                        opened[name] = rows.records
                if loader.workers and epoch is not None:
                    digest = hashlib.sha256(order.tobytes()).digest()
                    key = (partition.name, loader.data_args, digest, size, sorted(parts.items()), seed)
                    shared = in_use.enter_context(made.shared(key, count, epoch))
            make = _making(BatchMaker(partition, loader, opened, embedded), rows_of, seed)
            counted = use or DataUse()
            for batch in Batches(range(skip, count), make, shared, counted):
                yield _pinned(batch) if loader.pin_memory else batch
            counted.differing = next(filter(None, (each.differing for each in opened.values())), "")

    return of_pass()


def _embedded(
    partition: Partition,
    loader: LoaderSettings,
    numbers: range,
    made: MadeBatches | None,
    beat: Callable[[], None],
) -> EmbeddedRows:
    """The chunks of these ``numbers``: computed here or, with ``made``, once by the ranks of the host."""
    assert loader.embed is not None
    of_rows = replace(loader, transform=None)
    key = ("embed", CHUNK, partition.name, of_rows.data_args)

    def rows_of(number: int) -> BatchRows:
        rows = np.arange(number * CHUNK, min((number + 1) * CHUNK, partition.rows))
        return BatchRows(rows, rows)

    maker = BatchMaker(partition, replace(of_rows, embed=None, batch_size=CHUNK, pin_memory=False))
    make = embedding(loader.embed, loader.arrays, _making(maker, rows_of, 0))
    chunks: dict[int, Any] = {}
    with nullcontext() if made is None else made.shared(key, batch_count(partition.rows, CHUNK)) as shared:
        for number, chunk in zip(numbers, Batches(numbers, make, shared, DataUse()), strict=True):
            beat()
            chunks[number] = chunk
    return EmbeddedRows(chunks)


def _making(maker: BatchMaker, rows_of: Callable[[int], BatchRows], seed: int) -> Make:
    """Makes batches in worker processes, or here; here those of embedded rows."""
    if maker.loader.workers and maker.embedded is None:
        return partial(in_worker_processes, maker.make, rows_of, (seed,), maker.loader, maker.generators)
    return partial(_here, maker, rows_of, seed)


@contextmanager
def _noting_damage(partition: Partition) -> Iterator[None]:
    """Damage that ends the block is noted in the partition."""
    try:
        yield
    except DamagedData as damage:
        partition.damage.append(damage)
        raise


def in_worker_processes(
    make: Callable[[Any], Any],
    argument_of: Callable[[int], Any],
    seed: tuple[int, ...],
    loader: LoaderSettings,
    generators: Callable[[], ForeignGenerators],
    numbers: Iterator[int],
    records: Records | None,
) -> Generator[Made, None, None]:
    """The results of ``make`` for each number's argument in the worker processes of a ``loader``, which put
    them into the records. (Imports torch.)

    For each call the process's global generators, and those that ``generators`` finds there, begin with a
    seed made from ``seed`` and the number (``seed_of_batch``).
    """
    from cerebro_elastic.data.reading.worker_processes import SentOnce, in_workers

    keep = SentOnce(_SeededMake(make, generators, seed, records, sent()))
    return in_workers((partial(keep, number, argument_of(number)) for number in numbers), loader)


@dataclass(frozen=True)
class _SeededMake:
    """Makes batches in a worker process, where each draws the same wherever the unit began."""

    make: Callable[[Any], Any]
    generators: Callable[[], ForeignGenerators]
    seed: tuple[int, ...]
    records: Records | None
    settings: Mapping[str, Any]
    """A config's constructor may have made settings that the user's functions read, and workers outlive the
    unit."""

    @cached_property
    def _foreign(self) -> ForeignGenerators:
        return self.generators()

    def __call__(self, number: int, argument: Any) -> Made:
        take_over(self.settings)
        seed = seed_of_batch(self.seed, number)
        seed_generators(seed)
        self._foreign.seed(seed)
        batch = self.make(argument)
        kept = self.records is not None and self.records.put(number, batch)
        return Made(MISSING if kept else batch, kept)


def _here(
    maker: BatchMaker,
    rows_of: Callable[[int], BatchRows],
    seed: int,
    numbers: Iterator[int],
    _records: Records | None,
) -> Generator[Made, None, None]:
    """Batches made in this process. None is shared: the user's functions draw from the generators that
    training draws from, and their state hops with the config."""
    foreign = maker.generators()
    if foreign.by_path:
        for number in numbers:
            with foreign.seeded(seed_of_batch((seed,), number)):
                batch = maker.make(rows_of(number))
            yield Made(batch, kept=False)
    while together := [maker.taken(rows_of(number)) for number in islice(numbers, maker.at_once)]:
        for batch in together:
            yield Made(maker.transformed(batch), kept=False)


def _pinned(batch: Any) -> Any:
    from cerebro_elastic.system.torch_internals import pinned

    return pinned(batch)


_POOL = 100
"""The number of batches whose rows are sorted by length together: enough for similar lengths, and in each
epoch other rows meet in a batch."""


def bucketed(order: Index, lengths: Index, batch_size: int, seed: tuple[int, ...]) -> Index:
    """``order`` rearranged: rows are sorted by length in pools of batches, then the batches are shuffled.

    The short last batch stays the last one, of the rows that are last in ``order``.

    Args:
        order: The shuffled rows of a partition.
        lengths: The length of each row of the partition, by its number.
        batch_size: Rows of a batch.
        seed: The seed of the batches' order; not that of ``order``.
    """
    full = len(order) // batch_size * batch_size
    by_length = [
        pool[np.argsort(lengths[pool], kind="stable")]
        for pool in np.split(order[:full], range(_POOL * batch_size, full, _POOL * batch_size))
    ]
    batches = np.concatenate(by_length).reshape(-1, batch_size)
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    return np.concatenate([generator.permutation(batches).reshape(-1), order[full:]])


_AT_ONCE, _AT_ONCE_BYTES = 8, 1 << 19
"""The largest number of batches that are made in a row, and of bytes of each. While a batch is trained the
code that makes batches leaves the processor's caches; to load it again for each small batch costs time."""


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The rows of a partition that make a batch."""

    index: Index
    """The rows that are taken here."""
    batch: Index
    """The rows that all ranks take together: sequences are padded to the longest of these."""


@dataclass(frozen=True)
class BatchMaker:
    """Makes batches of a partition's rows, in this process or, once sent, in another."""

    partition: Partition
    """The rows, or the numbers of those of a dataset."""
    loader: LoaderSettings
    """How a batch is made of them."""
    opened: Mapping[str, Records] = field(default_factory=dict)
    """By column, the rows that were opened before, and may be kept."""
    embedded: EmbeddedRows | None = None
    """In place of the partition's rows."""

    def generators(self) -> ForeignGenerators:
        """The generators that the user's functions and datasets carry in this process."""
        return self._generators

    @cached_property
    def _generators(self) -> ForeignGenerators:
        return ForeignGenerators(self.loader.objects)

    @property
    def at_once(self) -> int:
        """How many batches are made one right after the other, before their ``transform``. Only one if the
        user's code takes part in it: that code may draw from the generators that training draws from."""
        loader = self.loader
        if loader.dataset or loader.collate or loader.decode or loader.embed:
            return 1
        stored = sum(in_file(column).nbytes for column in self.partition.columns.values())
        batch_bytes = max(1, stored // max(1, self.partition.rows) * loader.batch_size)
        return max(1, min(_AT_ONCE, _AT_ONCE_BYTES // batch_bytes))

    def make(self, rows: BatchRows) -> Any:
        """The batch of ``rows``: of the partition, or of the dataset whose rows it names."""
        return self.transformed(self.taken(rows))

    def transformed(self, batch: Any) -> Any:
        """The batch behind its ``transform``."""
        return batch if self.loader.transform is None else self.loader.transform(batch)

    def taken(self, rows: BatchRows) -> Any:
        """The batch before its ``transform``."""
        if self.embedded is not None:
            return self.embedded.taken(rows.index)
        partition, loader = self.partition, self.loader
        partition.check_sizes()
        if loader.dataset is not None:
            datasets = loader.dataset.make()

            def read(index: Index) -> list[Any]:
                return datasets.rows(equal_rows(partition, ROW, index).tolist())

            rows_of_batch = self._opened(ROW, rows.index, read, f"the dataset of {partition.name}")
            return (loader.collate or datasets.collate)(rows_of_batch)
        if loader.collate is not None:
            columns = {name: self._single_values(name, rows.index) for name in partition.columns}
            values = zip(*columns.values(), strict=True)
            return loader.collate([_arranged(dict(zip(columns, row, strict=True)), loader) for row in values])
        return _arranged(dict(self._columns(rows)), loader)

    def _columns(self, rows: BatchRows) -> Iterator[tuple[str, Any]]:
        partition, loader, arrays = self.partition, self.loader, self.loader.arrays
        for name, column in partition.columns.items():
            if not isinstance(column, Ragged):
                yield name, array_of(arrays, equal_rows(partition, name, rows.index))
            elif column.kind == "ragged" and loader.ragged == "pad":
                width = int(column.lengths[rows.batch].max())
                padded = padded_rows(partition, name, rows.index, width, loader.pad_value.get(name, 0))
                yield name, array_of(arrays, padded)
                yield name + LENGTHS, array_of(arrays, column.lengths[rows.index])
            elif name in loader.decode:
                decoded = [decoded_array(arrays, value, name) for value in self._decoded(name, rows.index)]
                yield name, decoded if loader.ragged == "list" else stacked_arrays(arrays, decoded, name)
            else:
                yield name, list(self._single_values(name, rows.index))

    def _single_values(self, name: str, index: Index) -> Sequence[Any]:
        """A column's rows, each for itself."""
        partition, arrays = self.partition, self.loader.arrays
        column = partition.columns[name]
        if not isinstance(column, Ragged):
            rows: Sequence[Any] = array_of(arrays, equal_rows(partition, name, index))
            return rows
        if column.kind == "ragged":
            return [array_of(arrays, row) for row in single_rows(partition, name, index)]
        if name in self.loader.decode:
            return self._decoded(name, index)
        return encoded_rows(partition, name, index)

    def _decoded(self, name: str, index: Index) -> list[Any]:
        """Encoded values, opened, and augmented if the column has a function for that."""
        augment = self.loader.augment.get(name)
        decode = partial(decoded_rows, self.partition, self.loader, name)
        values = self._opened(name, index, decode, f"`decode` of {name!r}")
        return values if augment is None else called(augment, "augment", values, self.partition, name, index)

    def _opened(
        self, name: str, index: Index, open_rows: Callable[[Index], list[Any]], what: str
    ) -> list[Any]:
        """Rows as the user's code opens them: those that are always the same under a fixed seed, so that it
        does not matter which of them were kept."""
        records = self.opened.get(name)
        if name not in self.loader.kept_columns or (records is not None and records.differing):
            return open_rows(index)

        def under(seed: int, index: Index) -> list[Any]:
            with seeded(seed), self._generators.seeded(seed):
                return open_rows(index)

        return under(0, index) if records is None else opened(index, under, records, what)


def decoded_rows(partition: Partition, loader: LoaderSettings, name: str, index: Index) -> list[Any]:
    """A column's encoded values, opened."""
    return called(loader.decode[name], "decode", encoded_rows(partition, name, index), partition, name, index)


def _arranged(columns: dict[str, Any], loader: LoaderSettings) -> Any:
    """A batch or a row in the loader's layout."""
    if loader.layout == "dict":
        return columns
    return next(iter(columns.values())) if len(columns) == 1 else tuple(columns.values())


_TESTED = 1 / 256
"""The share of kept rows that are opened again when they are taken."""
_chance = random.Random()
"""Chooses the rows; no result depends on it."""


def opened(
    index: Index, open_rows: Callable[[int, Index], list[Any]], records: Records, what: str
) -> list[Any]:
    """The partition's rows at ``index``: from the ``records``, or opened by ``open_rows`` under a seed, and
    kept there. If a kept row differs when it is opened again, no more rows are kept; ``what`` names the
    function that opens them."""
    rows = [records.get(place) for place in index.tolist()]
    missing = [at for at, row in enumerate(rows) if row is MISSING]
    if len(missing) < len(rows) and _chance.random() < _TESTED * (len(rows) - len(missing)):
        at = next(at for at, row in enumerate(rows) if row is not MISSING)
        (again,) = open_rows(1 + _chance.randrange(1 << 31), index[[at]])
        if not same(rows[at], again):
            records.distrust(f"{what} has made another row {index[at]} than before")
    if missing:
        for at, row in zip(missing, open_rows(0, index[missing]), strict=True):
            rows[at] = row
            records.put(int(index[at]), row)
    return rows
