"""A user's data module, such as a ``LightningDataModule``: its training data, and how its loader takes them.

Known by its methods, so that Lightning is not imported. ``prepare_data`` runs once on a host, ``setup`` once
in each process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sized
from pathlib import Path
from typing import IO, Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from cerebro_elastic.data.reading.datasets import NumberedDatasets, stacked
from cerebro_elastic.errors import DataError
from cerebro_elastic.system.files import as_its_folder, make_folder

_DONE = "done"
_METHODS = ("prepare_data", "setup", "train_dataloader", "val_dataloader")


def is_module(returned: Any) -> bool:
    """Whether ``returned`` is a data module."""
    return all(callable(getattr(returned, method, None)) for method in _METHODS)


def datasets_of_module(reference: str, key: str, module: Any) -> NumberedDatasets:
    """The training data of a data module, which is prepared and set up for ``fit``.

    Args:
        reference: What made it, for messages.
        key: Distinguishes what is to be prepared.
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
    if isinstance(loader.dataset, IterableDataset):
        raise DataError(
            f"{reference}: the training loader reads an IterableDataset, which has no rows by number: use a "
            "map-style Dataset"
        )
    for refused, why in _refusals(loader):
        if refused:
            raise DataError(f"{reference}: the training loader has {why}")
    return NumberedDatasets(
        reference,
        {"train": loader.dataset},
        stacked if loader.collate_fn is default_collate else loader.collate_fn,
        {
            "batch_size": loader.batch_size,
            "shuffle": isinstance(loader.sampler, RandomSampler),
            "drop_last": loader.drop_last,
            "workers": loader.num_workers,
            "prefetch": loader.prefetch_factor or 2,
            "pin_memory": loader.pin_memory,
        },
        module,
    )


def _refusals(loader: DataLoader[Any]) -> Iterator[tuple[bool, str]]:
    sampler, batches = loader.sampler, loader.batch_sampler
    yield (
        loader.batch_size is None and batches is None,
        "batch_size=None, so that its dataset makes the batches: return one that makes rows",
    )
    yield (
        type(batches) is not BatchSampler,
        f"a batch_sampler of its own ({type(batches).__name__}), whose batches a partition cannot have: give "
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
        loader.worker_init_fn is not None,
        "a worker_init_fn: the generators of workers are seeded for each batch; leave it out",
    )


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
"""What this process holds locks on until it ends."""


def _prepare_once(key: str, prepare: Callable[[], object]) -> None:
    """Call ``prepare``, unless a living process of this host has for the same ``key``.

    The first process takes the lock alone, prepares, and writes that it is done. The others wait for it, and
    all share the lock as long as they live. If the first one fails or is killed, the next one prepares.
    """
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    if name in _prepared:
        return
    path = _folder(os.environ) / f"{name}.lock"
    make_folder(path.parent)
    lock = open(path, "a+", opener=as_its_folder)  # noqa: SIM115 - until the process ends
    while not (_prepared_alone(lock, prepare) or _is_prepared(lock)):
        fcntl.flock(lock, fcntl.LOCK_UN)
    _prepared[name] = lock


def _prepared_alone(lock: IO[str], prepare: Callable[[], object]) -> bool:
    """Whether this process was the first, and has prepared."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
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
    """Wait for the process that prepares; whether it has come to its end."""
    fcntl.flock(lock, fcntl.LOCK_SH)
    lock.seek(0)
    return lock.read() == _DONE


def _folder(env: Mapping[str, str]) -> Path:
    return Path(env.get("CEREBRO_CACHE") or Path.home() / ".cache" / "cerebro") / "prepared"
