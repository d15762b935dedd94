"""A user's torch ``Dataset`` as it is, or a data module such as a ``LightningDataModule``: its training data,
and how its loader takes them. The partitions hold the numbers of its rows, and nothing is copied.

The prepared dataset has one column, ``row``. Rows are numbered through the user's datasets: first those for
training, then those for validation and for a test, where the factory returns separate datasets for these.

A data module is known by its methods, so that Lightning is not imported. Its ``prepare_data`` runs once on a
host, its ``setup`` once in each process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    default_collate,
)

from cerebro_elastic.config import cache_folder
from cerebro_elastic.data.manifest import ROW, SPLITS, Split
from cerebro_elastic.data.ragged import Columns
from cerebro_elastic.errors import DataError, TaskError
from cerebro_elastic.system.files import as_its_folder, make_folder
from cerebro_elastic.system.process import try_lock

_WHAT = {"bucket": "lengths", "stratify": "classes", "split_by": "groups"}
"""The meaning of a dataset's attribute for its rows, by the key that names it."""
_DONE = "done"
_METHODS = ("prepare_data", "setup", "train_dataloader", "val_dataloader")

MapDataset: TypeAlias = Any
"""An object with ``__len__`` and ``__getitem__``, as torch's map-style datasets are."""


def _attribute(dataset: MapDataset, name: str) -> NDArray[Any]:
    """An attribute with a value for each row; of a ``Subset`` those of its rows, of a ``ConcatDataset`` those
    of all its parts. Without such an attribute, no array of rows."""
    match dataset:
        case Subset():
            values = _attribute(dataset.dataset, name)
            return values[np.asarray(dataset.indices, np.int64)] if values.ndim else values
        case ConcatDataset():
            parts = [_attribute(part, name) for part in dataset.datasets]
            return np.concatenate(parts) if all(part.ndim for part in parts) else np.asarray(None)
        case _:
            return np.asarray(getattr(dataset, name, None))


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
    """Their maker's name, for messages."""
    by_split: Mapping[str, MapDataset]
    collate: Callable[[list[Any]], Any] = stacked
    """Makes a batch of a list of rows."""
    loader: Mapping[str, Any] = field(default_factory=dict)
    """The fields of ``LoaderSettings`` that the datasets' loader sets."""
    module: Any = None
    """The user's data module, if they came from one."""

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

    def columns(self, **attributes: str | None) -> dict[Split, Columns]:
        """By split, the column of row numbers, and columns of the datasets' ``attributes``: for ``bucket``
        the lengths of rows, for ``stratify`` their classes, for ``split_by`` their groups."""
        named = {key: name for key, name in attributes.items() if name is not None}
        return {split: dict(self._columns(split, start, named)) for split, start in self._starts.items()}

    def _columns(
        self, split: Split, start: int, attributes: Mapping[str, str]
    ) -> Iterator[tuple[str, NDArray[Any]]]:
        for key, name in attributes.items():
            yield name, self._of_rows(split, key, name)
        yield ROW, np.arange(start, start + self.lengths[split])

    def _of_rows(self, split: Split, key: str, name: str) -> NDArray[Any]:
        what = f"data.{key} is {name!r}"
        returned = f"the {split} dataset that {self.reference} returned"
        if name == ROW:
            raise DataError(f"{what}, as the numbers of rows are called: rename the attribute")
        try:
            values = _attribute(self.by_split[split], name)
        except Exception as exc:  # the user's class may raise anything
            why = f"{type(exc).__name__}: {exc}"
            raise DataError(f"{what}: this attribute of {returned} is no array: {why}") from exc
        lengths = key == "bucket"
        if values.shape != (self.lengths[split],) or (lengths and values.dtype.kind not in "iu"):
            value = "a whole number" if lengths else "one value"
            raise DataError(
                f"{what}: {returned} has no such attribute with {value} for each of its "
                f"{self.lengths[split]} rows: give it one that has the rows' {_WHAT[key]}"
            )
        return values.astype(np.int64) if lengths else values

    def rows(self, numbers: Sequence[int]) -> list[Any]:
        """The rows of one split, as the user's dataset returns them."""
        split, start = [item for item in self._starts.items() if item[1] <= numbers[0]][-1]
        dataset, places = self.by_split[split], [number - start for number in numbers]
        if callable(several := getattr(dataset, "__getitems__", None)):  # as torch's fetcher does
            return list(several(places))
        return list(self._each(split, dataset, places))

    def _each(self, split: Split, dataset: MapDataset, places: Sequence[int]) -> Iterator[Any]:
        for place in places:
            try:
                yield dataset[place]
            except Exception as exc:
                what = f"row {place} of the {split} dataset, a {type(dataset).__name__}"
                if _fails_again(dataset, place, exc):
                    why = f"{what}, cannot be read: {type(exc).__name__}: {exc}; leave it out of the dataset"
                    raise BadRow(why).with_traceback(exc.__traceback__) from exc
                exc.add_note(f"This was {what}.")
                raise


class BadRow(Exception):
    """A row of the user's dataset that cannot be read, here or elsewhere."""


def _fails_again(dataset: MapDataset, place: int, error: Exception) -> bool:
    """Whether an error of files is the row's own, such as of a picture that is cut off: reading it fails in
    the same way at once. A file that another machine may have, or a network, may come back."""
    transient = ConnectionError | TimeoutError | FileNotFoundError | PermissionError
    if not isinstance(error, OSError) or isinstance(error, transient):
        return False
    try:
        dataset[place]
    except Exception as again:
        return (type(again), str(again)) == (type(error), str(error))
    return False


def _length(reference: str, split: str, dataset: Any) -> int:
    what = f"{reference} returned a {type(dataset).__name__} for {split}"
    if is_stream(dataset):
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
        raise DataError(f"{what}, which has no rows: check its `args`, and its path to the data")
    return length


def is_module(returned: Any) -> bool:
    """Whether ``returned`` is a data module."""
    return all(callable(getattr(returned, method, None)) for method in _METHODS)


def datasets_of_module(reference: str, key: str, module: Any) -> NumberedDatasets:
    """The training data of a data module, which is prepared and set up for ``fit``.

    Args:
        reference: Its maker's name, for messages.
        key: Distinguishes preparations.
        module: The data module.

    Raises:
        DataError: Its training loader is one whose order or batches cannot be reproduced.
    """
    _prepare_once(key, module.prepare_data)
    module.setup("fit")
    loader = module.train_dataloader()
    if not isinstance(loader, DataLoader):
        raise DataError(
            f"{reference}: train_dataloader returned a {type(loader).__name__}: it must return one DataLoader"
        )
    settings = settings_of(loader, f"{reference}: the training loader")
    collate = stacked if loader.collate_fn is default_collate else loader.collate_fn
    dataset: Any = loader.dataset
    if loader.batch_sampler is None:
        dataset, collate = TakenByLists(dataset), partial(_only_batch, collate)
        settings["deterministic"] = False  # it has no single rows that could be kept
    return NumberedDatasets(reference, {"train": dataset}, collate, settings, module)


@dataclass(frozen=True)
class TakenByLists:
    """A dataset that makes a batch of a list of row numbers, behind a loader with ``batch_size=None`` and a
    ``BatchSampler`` as its sampler."""

    dataset: MapDataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, place: int) -> Any:
        return self.dataset[[place]]

    def __getitems__(self, places: list[int]) -> list[Any]:
        """One batch of all these rows."""
        return [self.dataset[places]]


def _only_batch(convert: Callable[[Any], Any], batches: list[Any]) -> Any:
    return convert(batches[0])


def settings_of(loader: DataLoader[Any], what: str) -> dict[str, Any]:
    """How a loader makes batches of its rows, by the keys of a recipe's ``data``, apart from its
    ``collate_fn``.

    Raises:
        DataError: Its order or batches cannot be reproduced over partitions; ``what`` names it.
    """
    if isinstance(loader.dataset, IterableDataset):
        raise DataError(
            f"{what} reads {type(loader.dataset).__name__}, an IterableDataset, which has no rows by number: "
            "use a map-style Dataset"
        )
    for refused, why in _refusals(loader):
        if refused:
            raise DataError(f"{what} has {why}")
    batches = _batch_sampler(loader)
    return {
        "batch_size": batches.batch_size,
        "shuffle": isinstance(batches.sampler, RandomSampler),
        "drop_last": batches.drop_last,
        "workers": loader.num_workers,
        "prefetch": loader.prefetch_factor or 2,
        "pin_memory": loader.pin_memory,
    }


def _batch_sampler(loader: DataLoader[Any]) -> Any:
    """The sampler that groups rows into batches; with ``batch_size=None``, one that yields lists of rows."""
    return loader.batch_sampler or loader.sampler


def _refusals(loader: DataLoader[Any]) -> Iterator[tuple[bool, str]]:
    batches = _batch_sampler(loader)
    sampler = getattr(batches, "sampler", None)
    yield (
        loader.batch_sampler is None and type(batches) is not BatchSampler,
        "batch_size=None, so that its dataset makes the batches: return one that makes rows, or give a "
        "BatchSampler as its sampler, so that it makes a batch of a list of rows",
    )
    yield (
        type(batches) is not BatchSampler,
        f"its own batch_sampler ({type(batches).__name__}), whose batches a partition cannot have: give "
        "batch_size and shuffle instead",
    )
    yield (
        type(sampler) not in (RandomSampler, SequentialSampler),
        f"the sampler {type(sampler).__name__}: only shuffle=True and shuffle=False can be reproduced over "
        "partitions",
    )
    yield (
        isinstance(sampler, RandomSampler)
        and (sampler.replacement or sampler.num_samples != len(sampler.data_source)),
        "a RandomSampler with replacement or num_samples: an epoch takes each row once",
    )
    yield (
        loader.worker_init_fn is not None and not _only_seeds(loader.worker_init_fn),
        "a worker_init_fn: generators are seeded for each batch; leave it out",
    )


def _only_seeds(worker_init_fn: Any) -> bool:
    """Whether it is one that a library sets, to seed generators."""
    function = getattr(worker_init_fn, "func", worker_init_fn)
    return str(getattr(function, "__module__", "")).startswith(("monai.", "lightning.", "pytorch_lightning."))


def is_stream(dataset: Any) -> bool:
    """Whether it has no rows by number. A ``StreamingDataset`` of MosaicML is an ``IterableDataset`` that
    has."""
    if not isinstance(dataset, IterableDataset):
        return False
    return type(dataset).__getitem__ is Dataset.__getitem__ or not hasattr(dataset, "__len__")


def check_divisible(reference: str, module: Any) -> None:
    """Raise ``DataError`` if several ranks cannot divide the batches of the validation loaders."""
    try:
        returned = module.val_dataloader()
    except Exception:  # it has none, or fails for a reason that a unit will show
        return
    loaders = returned.values() if isinstance(returned, Mapping) else returned
    for number, loader in enumerate(loaders if isinstance(returned, list | tuple | Mapping) else [returned]):
        if why := indivisible(loader):
            raise DataError(f"{reference}: the validation loader {number} {why}")


def indivisible(loader: Any) -> str | None:
    """Why several ranks cannot divide a validation loader's batches; ``None`` if they can."""
    if not isinstance(loader, DataLoader):
        what = f"is a {type(loader).__name__} and no DataLoader"
    elif isinstance(loader.dataset, IterableDataset):
        what = "reads an IterableDataset, which has no rows by number"
    elif loader.batch_sampler is None:
        what = "has batch_size=None, so that its dataset makes the batches"
    elif isinstance(loader.sampler, DistributedSampler):
        return "has a DistributedSampler: leave it out, each rank gets its rows of each batch anyway"
    elif not isinstance(loader.batch_sampler, Sized):
        what = f"has a {type(loader.batch_sampler).__name__} without __len__"
    else:
        return None
    return (
        f"{what}: ranks cannot divide its batches; give it a map-style Dataset and a batch_size, or use "
        "parallelism: single"
    )


_prepared: dict[str, IO[str]] = {}
"""The files on which this process holds locks until it ends."""


def _prepare_once(key: str, prepare: Callable[[], object]) -> None:
    """Call ``prepare``, unless a living process of this host has for the same ``key``.

    The first process takes the lock alone, prepares, and writes that it is done. The others wait for it, and
    all share the lock as long as they live. If the first one fails or is killed, the next one prepares.
    """
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    if name in _prepared:
        return
    path = cache_folder(os.environ) / "prepared" / f"{name}.lock"
    make_folder(path.parent)
    lock = open(path, "a+", opener=as_its_folder)  # noqa: SIM115 - until the process ends
    while not (_prepared_alone(lock, prepare) or _is_prepared(lock)):
        fcntl.flock(lock, fcntl.LOCK_UN)
    _prepared[name] = lock


def _prepared_alone(lock: IO[str], prepare: Callable[[], object]) -> bool:
    """Whether this process was the first, and has prepared."""
    if not try_lock(lock):
        return False
    lock.truncate(0)
    try:
        prepare()
    except BaseException:
        lock.close()
        raise
    lock.write(_DONE)
    lock.flush()
    fcntl.flock(lock, fcntl.LOCK_SH)
    return True


def _is_prepared(lock: IO[str]) -> bool:
    """Wait for the process that prepares; whether it has finished."""
    fcntl.flock(lock, fcntl.LOCK_SH)
    lock.seek(0)
    return lock.read() == _DONE
